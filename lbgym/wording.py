"""Systems in words, for tables and titles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lbgym.system import Pool, System


def say_servers(pools: tuple[Pool, ...]) -> str:
    """How many servers of which speed."""
    if len(pools) == 1:
        return f"{_count(pools[0].servers, 'server')} of speed {pools[0].speed:g}"
    each = ", ".join(f"{p.servers} x {p.speed:g}" for p in pools)
    return f"{_count(sum(p.servers for p in pools), 'server')} ({each})"


def say_places(pools: tuple[Pool, ...]) -> list[str]:
    """Slots, disciplines, limits or units."""
    said = []
    if any(p.slots != 1 for p in pools):
        said.append(_shared("slots", "slots", [str(p.slots) for p in pools]))
    if any(p.discipline == "ps" for p in pools):
        said.append(_shared("discipline", "disciplines", [p.discipline for p in pools]))
    if pools[0].units is not None:
        said.append(_shared("units", "units", [str(p.units) for p in pools]))
    elif any(p.limit is not None for p in pools):
        said.append(_shared("limit", "limits", [str(p.limit or "none") for p in pools]))
    else:
        said.append("no limit")
    return said


def say_rest(system: System) -> list[str]:
    """Routers, load and what is not as usual."""
    said = [_count(system.router_count, "router")]
    if not isinstance(system.routers, int):
        said[0] += f" ({' : '.join(f'{w:g}' for w in system.router_weights)})"
    field, value = system._given
    if field == "closed_jobs":
        said.append(f"{_count(system.closed_jobs or 0, 'job')}, closed")
    elif field == "load":
        said.append(f"load {value:g}")
    else:
        said.append(f"arrival rate {value:g} (load {system.load:g})")
    if system.graph is not None:
        kind = system.graph if isinstance(system.graph, str) else "graph"
        said.append(f"{kind} of {_count(len(system.edges), 'edge')}")
    if system.read_interval is not None:
        said.append(f"read every {system.read_interval:g}")
    if system.migrates:
        said.append(f"migration rate {system.migration_rate:g}")
    if system.message_fate != "withdraw":
        said.append(f"message fate {system.message_fate}")
    if system.replace:
        said.append("sampling with replacement")
    if system.size.law != "exponential":
        said.append(f"{_written(system.size.to_data(), 'law')} sizes")
    if system.arrivals.to_data() != "poisson":
        said.append(f"{_written(system.arrivals.to_data(), 'process')} arrivals")
    if system.slotted:
        said.append("slotted time")
    if system.classes is not None:
        said.append(_count(len(system.classes), "class", "classes"))
    return said


def _written(data: Any, key: str) -> str:
    """A law or process as "erlang (k=2)"; long values are left out."""
    if isinstance(data, str):
        return data
    word = data[key]
    if isinstance(data.get("law"), str | dict) and key == "process":
        return f"{word} ({_written(data['law'], 'law')})"
    short = [f"{k}={v:g}" for k, v in data.items() if isinstance(v, int | float)]
    return f"{word} ({', '.join(short)})" if short else str(word)


def _count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def _shared(singular: str, plural: str, values: list[str]) -> str:
    """ "limit 10" if all pools agree, else "limits 2, 4"."""
    if len(set(values)) == 1:
        return f"{singular} {values[0]}"
    return f"{plural} {', '.join(values)}"
