"""Gymnasium environments: thin views of a system and the engine."""

from .discount import TimeDiscount
from .dispatch import DispatchEnv

__all__ = ["DispatchEnv", "TimeDiscount"]
