"""Domain randomisation as data: systems like a given one, some of their values drawn at random.

>>> import lbgym, numpy
>>> ranges = {"load": [0.5, 0.95], "pools[0].speed": [1, 4]}
>>> system = Randomizer(lbgym.as_system("flagship"), ranges).draw(numpy.random.default_rng(0))
>>> 0.5 <= system.load <= 0.95
True

A key says where the value stands in the system's dict, as in its error messages. A range is

- ``[low, high]`` for a number: uniform between both, of whole numbers where the system has one;
- ``{"values": [...]}`` for anything: each equally likely.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lbgym.checks import listed, quoted

_STEP = re.compile(r"\.([a-z]\w*)|\[(\d+)\]")
_RIVALS = {"load": "arrival_rate", "arrival_rate": "load"}  # a system is given by one of both


class Randomizer:
    """Draws systems.

    Parameters
    ----------
    system
        Of any kind.
    ranges : mapping
        Place of a value -> its range, see above.

    Raises
    ------
    ValueError
        For a place that the system lacks, or a range that is none.
    """

    def __init__(self, system: Any, ranges: Mapping[str, Any]) -> None:
        if not isinstance(ranges, Mapping) or not ranges:
            raise ValueError(
                f"randomize: must be a dict such as {{'load': [0.5, 0.9]}}, got {quoted(ranges)}"
            )
        self.system = system
        # in one order, so that equal seeds draw alike however the dict was written
        self._ranges = {place: _range(system, place, ranges[place]) for place in sorted(ranges)}
        if _RIVALS.keys() <= self._ranges.keys():
            raise ValueError("randomize: has both load and arrival_rate, must have one of them")

    def draw(self, generator: np.random.Generator) -> Any:
        """A system of the same kind."""
        return self._with({place: one.draw(generator) for place, one in self._ranges.items()})

    def extremes(self) -> Iterator[Any]:
        """The system with one of its values at an end of its range, or at one of its choices."""
        for place, one in self._ranges.items():
            for value in one.ends():
                yield self._with({place: value})

    def _with(self, values: Mapping[str, Any]) -> Any:
        data = self.system.to_dict()
        for place, value in values.items():
            *way, last = _steps(place)
            data.pop(_RIVALS.get(place, ""), None)
            inner = data
            for step in way:
                inner = inner[step]
            inner[last] = copy.deepcopy(value)
        try:
            return type(self.system).from_dict(data)
        except ValueError as error:
            told = ", ".join(f"{place} = {value!r}" for place, value in values.items())
            raise ValueError(f"randomize: with {told}: {error}") from None


# --- ranges ---------------------------------------------------------------------------------------
class Between:
    """Uniform between two numbers, both included if they are whole."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def draw(self, generator: np.random.Generator) -> float:
        if isinstance(self.low, int):
            return int(generator.integers(self.low, int(self.high), endpoint=True))
        return float(self.low + (self.high - self.low) * generator.random())

    def ends(self) -> Sequence[float]:
        return self.low, self.high


class OneOf:
    """Each of some values, equally likely."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values

    def draw(self, generator: np.random.Generator) -> Any:
        return self.values[int(generator.integers(len(self.values)))]

    def ends(self) -> Sequence[Any]:
        return self.values


def _range(system: Any, place: Any, given: Any) -> Between | OneOf:
    """The range of a value, checked."""
    now = _value_at(system, place)
    if isinstance(given, Mapping):
        values = listed(given.get("values"))
        if not values or set(given) != {"values"}:
            raise ValueError(
                f"randomize[{place!r}]: must be [low, high] or {{'values': [...]}}, got {given!r}"
            )
        return OneOf(values)
    if isinstance(now, bool) or not isinstance(now, int | float):
        raise ValueError(
            f"randomize[{place!r}]: is {quoted(now)} in the system, no number; must be "
            f"{{'values': [...]}}, got {given!r}"
        )
    ends = listed(given) or []
    kinds = int | np.integer if isinstance(now, int) else int | float | np.number
    numbers = all(isinstance(x, kinds) and not isinstance(x, bool | np.bool_) for x in ends)
    if len(ends) != 2 or not numbers or not -np.inf < ends[0] <= ends[1] < np.inf:
        what = "whole numbers" if isinstance(now, int) else "finite numbers"
        raise ValueError(
            f"randomize[{place!r}]: must be [low, high], {what} with low <= high, got {given!r}"
        )
    kind = int if isinstance(now, int) else float
    return Between(kind(ends[0]), kind(ends[1]))


# --- places ---------------------------------------------------------------------------------------
def _steps(place: str) -> list[str | int]:
    """``pools[0].speed`` as ``["pools", 0, "speed"]``; empty if it is no place."""
    dotted, steps, at = f".{place}", [], 0
    while match := _STEP.match(dotted, at):
        name, number = match.groups()
        steps.append(name or int(number))
        at = match.end()
    return steps if at == len(dotted) else []


def _value_at(system: Any, place: Any) -> Any:
    """The value that stands at a place now; what the dict leaves out is what the system has."""
    steps = _steps(place) if isinstance(place, str) else []
    thing, data = system, system.to_dict()
    try:
        for k, step in enumerate(steps):
            thing = thing[step] if isinstance(step, int) else getattr(thing, step)
            if k < len(steps) - 1:
                data = data[step]
    except (AttributeError, IndexError, KeyError, TypeError):
        steps = []
    if not steps or not isinstance(data, list if isinstance(steps[-1], int) else dict):
        raise ValueError(
            f"randomize: {place!r} is no value of the system; must be a place in its dict such as "
            "'load' or 'pools[0].speed'"
        )
    return thing
