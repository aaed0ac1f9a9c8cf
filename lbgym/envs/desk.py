"""The compiled loop of every environment: one step, or a step of many rows.

A *desk* is where one running system meets who decides: a record with the addresses of the system,
of the functions that step, begin and mask this kind of environment, and of the row of memory where
the next observation goes. A kind of environment brings four functions ``void(int64, int64)``:

- ``step(desk, action)``: carry out an action, if a decision is pending, and go on to the next;
- ``begin(desk, afresh)``: a new trajectory up to its first decision; not afresh: go on with it;
- ``show(desk, 0)``: write the observation of the pending decision;
- ``mask(desk, address)``: write an int8 for each action, 1 if it is allowed now.

What came of it stands in the desk: ``status``, ``truncated``, ``reward``, ``dt``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from lbgym.engine.access import (
    Entry,
    Variants,
    call_with,
    code_address,
    entry,
    inner,
    prefetch,
    record_reader,
)
from lbgym.engine.layout import BALANCED, DECIDE
from lbgym.engine.random import renew

DESK = np.dtype(
    [
        ("at_world", "i8"),
        ("at_task", "i8"),  # the record of this kind of environment
        ("at_step", "i8"),
        ("at_begin", "i8"),
        ("at_show", "i8"),
        ("at_mask", "i8"),
        ("at_row", "i8"),  # where the next observation goes
        ("row_bytes", "i8"),
        ("to_choices", "i8"),  # bytes from here to the records that actions name
        ("choice_bytes", "i8"),  # of one of them, 0: not said
        ("masked", "i8"),  # 1: a masked action is an error
        ("horizon_arrivals", "i8"),
        ("horizon_time", "f8"),
        ("status", "i8"),  # DECIDE or BALANCED: done; GROW, PAUSE: call again; INVALID, MASKED
        ("seeded", "i8"),  # 1: the random streams are fresh, 0: a new episode renews them
        ("beginning", "i8"),  # how far a new trajectory has come: 0 it runs
        ("ended", "i8"),  # 1: the episode is over
        ("truncated", "i8"),
        ("reward", "f8"),
        ("dt", "f8"),
    ],
    align=True,
)
_NEAR = 2048  # bytes of the next row that are asked for while one is stepped
MASKED = 5  # status: the action is masked
desk_at = record_reader(DESK)

desk_signature = types.void(types.int64, types.int64)


class Functions(NamedTuple):
    """What a kind of environment brings."""

    step: Entry | Variants
    begin: Entry | Variants
    show: Entry | Variants
    mask: Entry | Variants

    def bind(self, desks: NDArray[Any], state: Any) -> tuple[Any, ...]:
        """Write their addresses into desks of a running system; returns what must be kept alive."""
        ready = [function.of(state) for function in self]
        for name, compiled in zip(self._fields, ready, strict=True):
            desks[f"at_{name}"] = code_address(compiled, desk_signature)
        return tuple(ready)


def desk_entry(function: Any) -> Entry:
    """Mark one of the four functions."""
    return entry(desk_signature)(function)


@inner
def fresh_streams(desk, w):
    """Random numbers for a new episode."""
    if not desk.seeded:
        renew(w)
    desk.seeded = 0


@inner
def is_done(status):
    """Whether a step has been made."""
    return status == DECIDE or status == BALANCED


_outcome = types.Tuple((types.int64, types.boolean, types.float64, types.float64))


@entry(_outcome(types.int64, types.int64))
def step_once(address, action):
    """Carry out an action and go on to the next decision: (status, truncated, reward, dt)."""
    desk = desk_at(address)
    call_with(desk.at_step, address, action)
    if is_done(desk.status):
        desk.at_row += desk.row_bytes
    return desk.status, desk.truncated != 0, desk.reward, desk.dt


@entry(types.int64(types.int64, types.int64))
def begin_once(address, afresh):
    """Begin a trajectory, or go on with one that has begun; returns the status."""
    desk = desk_at(address)
    call_with(desk.at_begin, address, afresh)
    if is_done(desk.status):
        desk.at_row += desk.row_bytes
    return desk.status


@entry(types.void(types.int64))
def show_once(address):
    """Write the observation of the pending decision once more."""
    desk = desk_at(address)
    call_with(desk.at_show, address, 0)
    desk.at_row += desk.row_bytes


@entry(types.void(types.int64, types.int64, types.boolean[::1], types.int64))
def show_rows(address, size, chosen, at_rows):
    """Write the observations of the chosen rows once more, one row after another from `at_rows`."""
    for k in range(len(chosen)):
        if chosen[k]:
            desk = desk_at(address + k * size)
            desk.at_row = at_rows + k * desk.row_bytes
            call_with(desk.at_show, address + k * size, 0)


@entry(types.void(types.int64, types.int8[:, ::1], types.int64))
def mask_rows(address, masks, size):
    """1 for each action that is allowed now: masks (rows, choices), desks of `size` bytes."""
    for k in range(len(masks)):
        desk = desk_at(address + k * size)
        call_with(
            desk.at_mask, address + k * size, np.int64(masks.ctypes.data) + k * masks.shape[1]
        )


_flags = types.boolean[::1]
_floats = types.float64[::1]


@inner
def _collect(desk, k, rewards, terminated, truncated, elapsed):
    """The outcome of row k; whether it is one."""
    rewards[k] = desk.reward
    elapsed[k] = desk.dt
    truncated[k] = desk.truncated != 0
    terminated[k] = desk.status == BALANCED
    desk.ended = desk.truncated != 0 or desk.status == BALANCED
    return is_done(desk.status)


@entry(
    types.int64(
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64[::1],
        types.int64,
        _floats,
        _flags,
        _flags,
        _floats,
    )
)
def step_rows(
    address, size, first, last, resets, actions, at_rows, rewards, terminated, truncated, elapsed
):
    """Step rows `first` to `last` - 1; with `resets` those whose episode is over begin anew.

    Desks of `size` bytes, observations one after another. Returns how many rows are not done.
    """
    later = 0
    for k in range(first, last):
        this = address + k * size
        desk = desk_at(this)
        desk.at_row = at_rows + k * desk.row_bytes
        if k + 1 < last:
            prefetch(this + size, min(size, _NEAR))
            choice = desk.to_choices + actions[k + 1] * desk.choice_bytes
            prefetch(this + size + choice, 1)  # rows are laid out alike
        if resets and desk.ended:
            call_with(desk.at_begin, this, 1)
        else:
            call_with(desk.at_step, this, actions[k])
        if not _collect(desk, k, rewards, terminated, truncated, elapsed):
            later += 1
    return later


@entry(types.int64(types.int64, types.int64, types.int64, types.int64, _flags, types.int64))
def begin_rows(address, size, first, last, chosen, at_rows):
    """Begin the chosen rows of `first` to `last` - 1 anew; returns how many are not done."""
    later = 0
    for k in range(first, last):
        if chosen[k]:
            this = address + k * size
            desk = desk_at(this)
            desk.at_row = at_rows + k * desk.row_bytes
            call_with(desk.at_begin, this, 1)
            desk.ended = 0
            if not is_done(desk.status):
                later += 1
    return later
