"""Gymnasium environments: thin views of a system and the engine."""

from .discount import TimeDiscount
from .dispatch import DispatchEnv
from .models import (
    LocalChoiceEnv,
    LocalSearchClosedEnv,
    LocalSearchOpenEnv,
    LossEnv,
    StaleInformationEnv,
)

__all__ = [
    "DispatchEnv",
    "LocalChoiceEnv",
    "LocalSearchClosedEnv",
    "LocalSearchOpenEnv",
    "LossEnv",
    "StaleInformationEnv",
    "TimeDiscount",
]
