"""How far the rules that are exactly solvable stay above the optimum (MODELS section 11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lbgym.system import System

from .exact import exact
from .result import Exact

_PLAIN = (
    "weighted-random",
    "jsq",
    "sed",
    "jsed(ties=fastest)",
    "fastest-idle",
    "index(1/2)",
    "fpi",
)
_UNITS = ("random", "max-vacancy", "best-fit")
_GRAPH = ("random", "local-choice", "sed")
_MOST_HELD = 20  # of a threshold that is tried


@dataclass(frozen=True)
class Gap:
    """A rule, its exact value of the objective, and by how much of the optimum it is above it."""

    policy: str
    value: float
    gap: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; the gap in percent."""
        return {"policy": self.policy, "value": self.value, "gap_percent": 100 * self.gap}


def rules_for(system: System) -> tuple[str, ...]:
    """Names of rules without parameters that suit a kind of system."""
    if system.has_units:
        return _UNITS
    if system.graph is not None:
        return _GRAPH
    if system.migrates:
        return tuple(f"local-search(place={name})" for name in ("random", "jsq", "sed"))
    return _PLAIN


def gaps(best: Any, progress: Callable[[int, int], None] | None = None) -> list[Gap]:
    """The rules that theory can solve on the system of an `optimal`, least value first.

    Rules that are unstable there, or too large to solve, are left out. Of the thresholds on two
    servers of unequal speeds only the best is shown. Raises nothing.
    """
    system, names = best.system, rules_for(best.system)
    found = []
    for k, name in enumerate(names):
        found += [gap for gap in [_gap(best, name)] if gap is not None]
        if progress is not None:
            progress(k + 1, len(names))
    plain = not (system.has_units or system.migrates or system.graph)
    if plain and system.servers == 2 and system.speeds[0] != system.speeds[1]:
        found += _best_threshold(best)
    return sorted(found, key=lambda gap: gap.value)


def value_of(result: Exact, objective: str) -> float:
    """The value of an objective of `optimal`."""
    return float(getattr(result, objective))


def _gap(best: Any, name: str) -> Gap | None:
    try:
        result = exact(best.system, name, loss_charge=best.loss_charge, move_cost=best.move_cost)
    except (ValueError, ArithmeticError):
        return None
    value, least = value_of(result, best.objective), value_of(best, best.objective)
    return Gap(name, value, value / least - 1 if least > 0 else 0.0)


def _best_threshold(best: Any) -> list[Gap]:
    """The best threshold(k), tried upwards until it gets worse."""
    last: Gap | None = None
    for gap in _thresholds(best):
        if last is not None and gap.value >= last.value:
            break
        last = gap
    return [] if last is None else [last]


def _thresholds(best: Any) -> Iterator[Gap]:
    for k in range(1, _MOST_HELD + 1):
        gap = _gap(best, f"threshold({k})")
        if gap is not None:
            yield gap
