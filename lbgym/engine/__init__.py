"""The engine: how a system moves from decision to decision (`layout`: what it is made of)."""

from .access import rule
from .state import Overload, State

__all__ = ["Overload", "State", "rule"]
