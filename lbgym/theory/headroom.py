"""How far the rules that are exactly solvable stay from the optimum (MODELS section 11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lbgym.kinds import kind_of
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
    """A rule, its exact value of the objective, and by how much of the optimum it misses it."""

    policy: str
    value: float
    gap: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; the gap in percent."""
        return {"policy": self.policy, "value": self.value, "gap_percent": 100 * self.gap}


def rules_for(system: Any) -> tuple[str, ...]:
    """Names of rules without parameters that suit a system."""
    if not isinstance(system, System):
        rules: tuple[str, ...] = kind_of(system).part("rules").usual(system)
        return rules
    if system.has_units:
        return _UNITS
    if system.graph is not None:
        return _GRAPH
    if system.migrates:
        return tuple(f"local-search(place={name})" for name in ("random", "jsq", "sed"))
    return _PLAIN


def gaps(best: Any, progress: Callable[[int, int], None] | None = None) -> list[Gap]:
    """The rules that theory can solve on the system of an `optimal`, the nearest to it first.

    Rules that are unstable there, or too large to solve, are left out. Of the thresholds on two
    servers of unequal speeds only the best is shown. Raises nothing.
    """
    system, names = best.system, rules_for(best.system)
    found = []
    for k, name in enumerate(names):
        found += [gap for gap in [_gap(best, name)] if gap is not None]
        if progress is not None:
            progress(k + 1, len(names))
    plain = rules_for(system) is _PLAIN
    if plain and system.servers == 2 and system.speeds[0] != system.speeds[1]:
        found += _best_threshold(best)
    return sorted(found, key=lambda gap: gap.gap)


def value_of(result: Any, objective: str) -> float:
    """The value of an objective of `optimal`."""
    return float(getattr(result, objective))


def _gap(best: Any, name: str) -> Gap | None:
    priced = isinstance(best, Exact)
    charges = {"loss_charge": best.loss_charge, "move_cost": best.move_cost} if priced else {}
    try:
        result = exact(best.system, name, **charges)
    except (ValueError, ArithmeticError):
        return None
    value, least = value_of(result, best.objective), value_of(best, best.objective)
    sign = -1 if is_most(best) else 1
    return Gap(name, value, sign * (value / least - 1) if least > 0 else 0.0)


def is_most(best: Any) -> bool:
    """Whether the objective of an optimum is to be large."""
    return bool(best.objective == "accepted")


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
