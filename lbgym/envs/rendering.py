"""A dispatching system drawn in text and in pixels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lbgym.engine.layout import ARRIVAL
from lbgym.engine.state import State
from lbgym.system import System

Pixels = NDArray[np.uint8]  # (height, width, 3)

# --- in text --------------------------------------------------------------------------------------
_WIDEST_BAR, _MOST_SERVERS, _MOST_ROUTERS = 40, 50, 12


def picture(system: System, state: State, last_action: int | None) -> str:
    """Queues as bars, pool by pool, with messages, the clock and what is to be decided.

    ``#`` is a job in service, ``=`` one that waits; ``*`` marks the servers whose message the
    acting router holds. Where servers have units, ``#`` is a unit in use and ``.`` a free one, with
    the jobs behind. Of a large pool the first servers are drawn.
    """
    w = state.world[0]
    lines = [
        f"time {w['clock']:.3f}   jobs {w['present']}   arrivals {w['arrivals']}   "
        f"lost {w['blocked']}   idle {w['idle']}/{w['n_servers']}"
    ]
    for k in range(len(system.pools)):
        lines += _pool(system, state, k)
    if w["messages_on"]:
        lines.append(_messages(state))
    if w["reads"]:
        lines.append(f"queues read {w['clock'] - w['read_at']:.3f} ago")
    lines.append(_decision(system, state))
    if last_action is not None:
        lines.append(f"last action {last_action}")
    return "\n".join(lines) + "\n"


def _pool(system: System, state: State, k: int) -> list[str]:
    spec, this = system.pools[k], state.arrays["pools"][k]
    limit = "no limit" if spec.limit is None else f"limit {spec.limit}"
    first, shown = int(this["first"]), min(spec.servers, _MOST_SERVERS)
    lengths = state.arrays["servers"]["length"][first : first + spec.servers]
    held = _held(state)
    kind = f"speed {spec.speed:g}, {limit}" if spec.units is None else f"{spec.units} units"
    lines = [f"pool {k}: {spec.servers} x {kind}, jobs {lengths.sum()}"]
    digits = len(str(first + shown - 1))
    for i in range(first, first + shown):
        length = int(lengths[i - first])
        if spec.units is not None:
            lines.append(f"  {i:>{digits}} |{_units(state, i, spec.units)}, jobs {length}")
            continue
        busy = min(length, 1 if spec.discipline == "fcfs" and spec.slots == 1 else spec.slots)
        if spec.discipline == "ps":
            busy = length
        bar = ("#" * busy + "=" * (length - busy))[:_WIDEST_BAR]
        mark = "*" if i in held else " "
        lines.append(f"  {i:>{digits}}{mark}|{bar} {length}".replace("| 0", "|"))
    if shown < spec.servers:
        lines.append(f"  ... and {spec.servers - shown} more servers")
    return lines


def _units(state: State, i: int, units: int) -> str:
    """The units of a server, in use and free."""
    free = units - int(state.arrays["standings"]["used"][i])
    bar = ("#" * (units - free) + "." * free)[:_WIDEST_BAR]
    return f"{bar}| {free} of {units} units free"


def _held(state: State) -> set[int]:
    """Servers whose message the acting router holds."""
    w = state.world[0]
    if not w["messages_on"] or w["router"] < 0:
        return set()
    servers: set[int] = set()
    pools = int(w["n_pools"])
    for row in state.arrays["lists"][w["router"] * pools : (w["router"] + 1) * pools]:
        there = state.arrays["held"]["server"][row["begin"] : row["begin"] + row["count"]]
        servers.update(there.tolist())
    return servers


def _messages(state: State) -> str:
    held = state.arrays["routers"]["held"].tolist()
    shown = ", ".join(f"router {r}: {count}" for r, count in enumerate(held[:_MOST_ROUTERS]))
    more = f", ... ({len(held)} routers)" if len(held) > _MOST_ROUTERS else ""
    return f"messages  {shown}{more}"


def _decision(system: System, state: State) -> str:
    w = state.world[0]
    if not w["kind"]:  # the end of a closed system
        return "balanced: nothing to decide"
    if w["kind"] != ARRIVAL:
        return f"decide: a job at server {w['source']} may move to server {w['target']}"
    sampled = state.arrays["candidates"]["server"].tolist()
    among = f" among servers {', '.join(map(str, sampled))}" if sampled else ""
    return f"decide: a job{_of_class(system, int(w['klass']))} at router {w['router']}{among}"


def _of_class(system: System, k: int) -> str:
    """The class of a job, and the units it needs."""
    if system.classes is None:
        return ""
    this = system.classes[k]
    name = f" ({this.name})" if this.name else ""
    needs = f", which needs {this.units} unit{'s' * (this.units > 1)}," * system.has_units
    return f" of class {k}{name}{needs}"


# --- in pixels ------------------------------------------------------------------------------------
_WIDTH, _HEIGHT, _MARGIN = 480, 200, 8  # about: columns and jobs are whole numbers of pixels
_MOST_COLUMNS, _MOST_LEVELS, _LEVELS = 400, 40, 20
_PAPER, _LIMIT, _LINE = (255, 255, 255), (70, 70, 70), (190, 190, 190)
_MESSAGE, _SAMPLED = (235, 160, 0), (130, 130, 130)
SOURCE, TARGET = (200, 40, 40), (30, 150, 60)
_POOLS = ((31, 119, 180), (148, 103, 189), (23, 150, 140), (140, 86, 75), (214, 90, 150))


def drawing(system: System, state: State) -> Pixels:
    """Queues as columns in the colour of their pool, a job in service dark, a waiting one pale.

    A dark line marks the limit; a queue that is longer than the picture is high ends in one of its
    own colour. Marks below: the servers whose message the acting router holds (orange), sampled
    ones (grey); at a resampling the source (red) and the target (green). Of a large system evenly
    spaced servers are drawn. The size depends on the system alone.
    """
    shown = np.linspace(0, system.servers - 1, min(system.servers, _MOST_COLUMNS)).astype(np.int64)
    levels = _levels(system)
    wide, high = max(_WIDTH // len(shown), 1), max(_HEIGHT // levels, 2)
    floor = _MARGIN + high * (levels + 1)
    shape = (floor + 2 * _MARGIN, wide * len(shown) + 2 * _MARGIN, 3)
    pixels: Pixels = np.full(shape, _PAPER, np.uint8)
    inside = slice(_MARGIN, shape[1] - _MARGIN)
    pools, lengths = system.pool_of_server[shown], state.arrays["servers"]["length"][shown]
    marks = _marks(state)
    gap = 1 if wide > 2 else 0
    for column, (i, k, length) in enumerate(zip(shown.tolist(), pools, lengths, strict=True)):
        left = _MARGIN + column * wide
        across = slice(left, left + wide - gap)
        spec, colour = system.pools[k], np.array(_POOLS[k % len(_POOLS)])
        busy = length if spec.discipline == "ps" else min(length, spec.slots)
        tall = floor - high * np.minimum([busy, length], levels)
        pixels[tall[1] : floor, across] = (colour + 2 * np.array(_PAPER)) // 3
        pixels[tall[0] : floor, across] = colour
        if high > 2:
            pixels[floor - high : tall[1] - 1 : -high, across] = _PAPER  # between jobs
        if length > levels:
            pixels[_MARGIN + high // 2 : _MARGIN + high, across] = colour
        if spec.limit is not None and spec.limit <= levels:
            pixels[floor - high * spec.limit - 1, across] = _LIMIT
        if i in marks:
            pixels[floor + 3 : floor + 9, across] = marks[i]
    pixels[floor, inside] = _LINE
    return pixels


def _levels(system: System) -> int:
    """How many jobs the picture is high."""
    limits = [_LEVELS if spec.limit is None else spec.limit for spec in system.pools]
    return min(max(limits), _MOST_LEVELS)


def _marks(state: State) -> dict[int, tuple[int, int, int]]:
    """The colour of the mark under a server, of those that have one."""
    w = state.world[0]
    if w["kind"] != ARRIVAL:
        return {int(w["source"]): SOURCE, int(w["target"]): TARGET}
    sampled: Iterable[int] = state.arrays["candidates"]["server"].tolist()
    return dict.fromkeys(sampled, _SAMPLED) | dict.fromkeys(_held(state), _MESSAGE)


def columns(
    dark: NDArray[np.int64],
    pale: NDArray[np.int64],
    line: NDArray[np.int64],
    marks: dict[int, tuple[int, int, int]],
) -> Pixels:
    """Columns of dark and, on top of them, pale blocks; a line at a height; marks below."""
    shown = np.linspace(0, len(dark) - 1, min(len(dark), _MOST_COLUMNS)).astype(np.int64)
    levels = min(max(int(line.max()), 1), _MOST_LEVELS)
    wide, high = max(_WIDTH // len(shown), 1), max(_HEIGHT // levels, 2)
    floor = _MARGIN + high * (levels + 1)
    shape = (floor + 2 * _MARGIN, wide * len(shown) + 2 * _MARGIN, 3)
    pixels: Pixels = np.full(shape, _PAPER, np.uint8)
    colour = np.array(_POOLS[0])
    for column, k in enumerate(shown.tolist()):
        left = _MARGIN + column * wide
        across = slice(left, left + max(wide - 2, 1))
        low, top = (floor - high * min(int(x), levels) for x in (dark[k], dark[k] + pale[k]))
        pixels[top:floor, across] = (colour + 2 * np.array(_PAPER)) // 3
        pixels[low:floor, across] = colour
        pixels[floor - high : top - 1 : -high, across] = _PAPER  # between blocks
        if line[k] <= levels:
            pixels[floor - high * int(line[k]) - 1, across] = _LIMIT
        if k in marks:
            pixels[floor + 3 : floor + 9, across] = marks[k]
    pixels[floor, _MARGIN : shape[1] - _MARGIN] = _LINE
    return pixels
