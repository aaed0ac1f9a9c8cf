"""Rules that look at nothing: random, weighted-random, static, round-robin, wrr.

| name | the job goes to | messages per job |
|---|---|---|
| ``random`` | a server drawn uniformly | 0 |
| ``weighted-random`` | server i with probability mu_i / sum mu | 0 |
| ``static(p1, ..., pn)`` | server i with probability proportional to p_i | 0 |
| ``round-robin`` | each router takes the servers in turn | 0 |
| ``wrr`` | smooth weighted round robin, per router | 0 |

``wrr``: at each use every server gains its speed in credit, the one with most credit (lowest index
on ties) is picked and pays the sum of the speeds. Servers of one pool gain alike, so within a pool
they take turns; the rule therefore keeps one credit and one place a pool and costs O(pools), not
O(servers). Source: the smooth variant is due to nginx (I. Sysoev, 2012).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lbgym.engine.access import inner, pool, rule
from lbgym.engine.vocabulary import candidate, coin, param, pick, pool_at_speed, recall, remember
from lbgym.system import System

from .registry import Parts, family, real

_TIE = 1e-9  # credits closer than this share of the total speed are equal


@inner
def uniform_server(w):
    """A server drawn uniformly."""
    return pick(w, w.n_servers)


@inner
def server_by_speed(w):
    """A server drawn with probability proportional to its speed."""
    x = coin(w) * w.speed_sum
    p = pool_at_speed(w, x)
    this = pool(w, p)
    low = this.speed_to - this.servers * this.speed
    return this.first + min(max(int((x - low) / this.speed), 0), this.servers - 1)


@inner
def server_by_table(w, first):
    """A server drawn by the cumulative probabilities in params[first : first + n]."""
    u = coin(w)
    low, high = 0, w.n_servers - 1
    while low < high:
        middle = (low + high) >> 1
        if u < param(w, first + middle):
            high = middle
        else:
            low = middle + 1
    return low


@inner
def server_in_turn(w):
    """Smooth weighted round robin of the acting router; memory: credit and place of each pool."""
    base = 2 * w.router * w.n_pools
    best, most = 0, -math.inf
    for p in range(w.n_pools):
        credit = recall(w, base + 2 * p) + pool(w, p).speed
        remember(w, base + 2 * p, credit)
        if credit > most + _TIE * w.speed_sum:
            best, most = p, credit
    this = pool(w, best)
    place = int(recall(w, base + 2 * best + 1))
    if place + 1 < this.servers:
        remember(w, base + 2 * best + 1, place + 1)
    else:  # everyone in the pool has paid once more
        remember(w, base + 2 * best + 1, 0)
        remember(w, base + 2 * best, most - w.speed_sum)
    return this.first + place


@rule
def random(w):
    """A uniform server."""
    return uniform_server(w)


@rule
def weighted_random(w):
    """A server by speed."""
    return server_by_speed(w)


@rule
def static(w):
    """A server by given probabilities."""
    return server_by_table(w, 0)


@rule
def round_robin(w):
    """The acting router's next server."""
    i = int(recall(w, w.router))
    remember(w, w.router, (i + 1) % w.n_servers)
    return i


@rule
def wrr(w):
    """Smooth weighted round robin."""
    return server_in_turn(w)


def turn_cells(system: System) -> int:
    """Memory cells that `server_in_turn` needs."""
    return 2 * system.router_count * len(system.pools)


def cumulative(weights: tuple[Any, ...], system: System, where: str) -> tuple[float, ...]:
    """Check static weights, one for each server, and accumulate them to 1."""
    if len(weights) != system.servers:
        raise ValueError(
            f"{where}: needs one weight for each of the {system.servers} servers, "
            f"got {len(weights)}"
        )
    for k, p in enumerate(weights):
        real(p, f"{where}: weight {k + 1}")
    largest = max(weights)
    if largest <= 0:
        raise ValueError(f"{where}: at least one weight must be positive")
    table = np.cumsum(np.asarray(weights, float) / largest)
    table /= table[-1]
    table[-1] = 1.0
    return tuple(float(x) for x in table)


@rule
def random_end(w):
    """An end of the job's edge."""
    return candidate(w, pick(w, 2))


@family("random", information="none", on_graph=True)
def build_random(system: System) -> Parts:
    """Each job to a server drawn uniformly (with a graph: to an end of its edge)."""
    if system.edges:
        return Parts(place=random_end, samples=2, columns=("candidate",))
    return Parts(place=random)


@family("weighted-random", information="speeds", columns=("speed",))
def build_weighted_random(system: System) -> Parts:
    """Each job to a server drawn with probability proportional to its speed."""
    return Parts(place=weighted_random)


@family("static", information="none")
def build_static(system: System, *weights: float) -> Parts:
    """Each job to server i with probability proportional to the i-th weight."""
    return Parts(place=static, params=cumulative(weights, system, "static"))


@family("round-robin", information="own memory", columns=("router",))
def build_round_robin(system: System) -> Parts:
    """Each router takes the servers in turn."""
    return Parts(place=round_robin, scratch=system.router_count)


@family("wrr", information="speeds, own memory", columns=("speed", "router"))
def build_wrr(system: System) -> Parts:
    """Smooth weighted round robin by speed, each router on its own."""
    return Parts(place=wrr, scratch=turn_cells(system))
