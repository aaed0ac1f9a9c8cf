"""Gymnasium environments: thin views of a system and the engine."""

from .car_sharing import CarSharingEnv
from .discount import TimeDiscount
from .dispatch import DispatchEnv
from .flow_network import FlowNetworkEnv
from .models import (
    LocalChoiceEnv,
    LocalSearchClosedEnv,
    LocalSearchOpenEnv,
    LossEnv,
    StaleInformationEnv,
)

__all__ = [
    "CarSharingEnv",
    "DispatchEnv",
    "FlowNetworkEnv",
    "LocalChoiceEnv",
    "LocalSearchClosedEnv",
    "LocalSearchOpenEnv",
    "LossEnv",
    "StaleInformationEnv",
    "TimeDiscount",
]
