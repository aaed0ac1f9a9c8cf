"""Checks of arguments: each returns the value in its plain Python type or raises one clear
ValueError: field, what is allowed, what came."""

import math
import reprlib
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from lbgym.suggest import nearest

MAX_COUNT = 2**31 - 1  # limits and slots: fits a 32-bit integer
LEAST, MOST = 1e-100, 1e100  # squares of sums of such numbers are still floats


def quoted(value: object) -> str:
    """A value as messages show it: short and on one line."""
    return " ".join(reprlib.repr(value).split())


def _real(value: object) -> float:
    """The float that a real number is; NaN for one beyond floats and for anything else."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def number(field: str, value: object, *, zero: bool = False) -> float:
    """A float between `LEAST` and `MOST` (or, with `zero`, 0)."""
    allowed = "a finite number >= 0" if zero else "a finite number > 0"
    x = _real(value)
    if not math.isfinite(x) or x < 0 or (x == 0 and not zero):
        raise ValueError(f"{field}: must be {allowed}, got {quoted(value)}")
    if x and not LEAST <= x <= MOST:
        raise ValueError(f"{field}: must be between {LEAST} and {MOST}, got {x!r}")
    return x + 0.0  # -0.0 becomes 0.0


def finite(field: str, value: object) -> float:
    """A finite float of any sign."""
    x = _real(value)
    if not math.isfinite(x):
        raise ValueError(f"{field}: must be a finite number, got {quoted(value)}")
    return x


def charges(system: Any, loss_charge: object, move_cost: object) -> tuple[float, float]:
    """What a lost job costs (None: what the system says) and a move; neither is below 0."""
    lost = loss_charge is not None
    charge = number("loss_charge", loss_charge, zero=True) if lost else system.default_loss_charge
    return float(charge), number("move_cost", move_cost, zero=True)


def signed(field: str, value: object) -> float:
    """A float of any sign whose size is between `LEAST` and `MOST`, or 0."""
    x = finite(field, value)
    return math.copysign(number(field, abs(x), zero=True), x) + 0.0


def integer(field: str, value: object, *, most: int) -> int:
    """An integer from 1 to `most`; NumPy's integers are welcome."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        got = quoted(value)
        raise ValueError(f"{field}: must be an integer from 1 to {most:,}, got {got}")
    return int(value)


def listed(value: object) -> list[Any] | None:
    """What a list, tuple, array ... holds; None for anything that only looks like one."""
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        return None
    try:
        return list(value)
    except TypeError:  # a NumPy array without dimensions calls itself iterable
        return None


def one_of(field: str, value: object, allowed: tuple[str, ...]) -> str:
    """One of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        near = nearest(value, allowed) if isinstance(value, str) else None
        question = f", did you mean {near!r}?" if near is not None else ""
        words = ", ".join(allowed)
        raise ValueError(f"{field}: must be one of {words}, got {quoted(value)}{question}")
    return str(value)


def label(field: str, value: object) -> str:
    """A text that fits into one cell of a table."""
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"{field}: must be printable text on one line, got {quoted(value)}")
    return str(value)


def flag(field: str, value: object) -> bool:
    """A truth value, and nothing that merely acts like one."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{field}: must be true or false, got {quoted(value)}")
    return bool(value)
