"""A dispatching system drawn in text."""

from __future__ import annotations

from lbgym.engine.layout import ARRIVAL
from lbgym.engine.state import State
from lbgym.system import System

_WIDEST_BAR, _MOST_SERVERS, _MOST_ROUTERS = 40, 50, 12


def picture(system: System, state: State, last_action: int | None) -> str:
    """Queues as bars, pool by pool, with messages, the clock and what is to be decided.

    ``#`` is a job in service, ``=`` one that waits; ``*`` marks the servers whose message the
    acting router holds. Of a large pool the first servers are drawn.
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
    lines.append(_decision(state))
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
        busy = min(length, 1 if spec.discipline == "fcfs" and spec.slots == 1 else spec.slots)
        if spec.discipline == "ps":
            busy = length
        bar = ("#" * busy + "=" * (length - busy))[:_WIDEST_BAR]
        mark = "*" if i in held else " "
        lines.append(f"  {i:>{digits}}{mark}|{bar} {length}".replace("| 0", "|"))
    if shown < spec.servers:
        lines.append(f"  ... and {spec.servers - shown} more servers")
    return lines


def _held(state: State) -> set[int]:
    """Servers whose message the acting router holds."""
    w = state.world[0]
    if not w["messages_on"] or w["router"] < 0:
        return set()
    servers: set[int] = set()
    pools, entries = int(w["n_pools"]), state.arrays["entries"]["server"]
    for row in state.arrays["lists"][w["router"] * pools : (w["router"] + 1) * pools]:
        places = state.arrays["held"]["entry"][row["begin"] : row["begin"] + row["count"]]
        servers.update(entries[places].tolist())
    return servers


def _messages(state: State) -> str:
    held = state.arrays["routers"]["held"].tolist()
    shown = ", ".join(f"router {r}: {count}" for r, count in enumerate(held[:_MOST_ROUTERS]))
    more = f", ... ({len(held)} routers)" if len(held) > _MOST_ROUTERS else ""
    return f"messages  {shown}{more}"


def _decision(state: State) -> str:
    w = state.world[0]
    if not w["kind"]:  # the end of a closed system
        return "balanced: nothing to decide"
    if w["kind"] != ARRIVAL:
        return f"decide: a job at server {w['source']} may move to server {w['target']}"
    sampled = state.arrays["candidates"]["server"].tolist()
    among = f" among servers {', '.join(map(str, sampled))}" if sampled else ""
    return f"decide: a job at router {w['router']}{among}"
