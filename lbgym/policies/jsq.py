"""Rules that compare queue lengths: JSQ, SED, JSED, index and FPI, over all servers or d probes.

All of them send the job where ``(q + a) / c`` is least, q being the queue length (the job in
service included), with constants a and c of the server's pool:

| name | a | c | source |
|---|---|---|---|
| ``jsq`` | 0 | 1 | Winston 1977 |
| ``sed`` | 1 | mu | shortest expected delay; Shenker and Weinrib 1989 |
| ``jsed`` | 0 | mu | order of Luo and Zubeldia, arXiv 2510.14284 |
| ``index(a)`` | a | mu | |
| ``fpi`` | 1 | mu - lambda | policy improvement from the best Bernoulli split; Krishnan 1990 |

``jsq`` .. ``fpi`` look at all n servers (2n messages a job), ``jsq(d)``, ``sed(d)`` and
``index(a, d)`` at d servers
sampled for the job (2d messages; Vvedenskaya et al. 1996, Mitzenmacher 2001). Ties: ``random``
(uniform), ``fastest`` (uniform among the fastest), ``lowest`` (lowest index). Limits are ignored.

``fastest-shortest`` is ``jsq(ties=fastest)``; ``fastest-idle`` takes the fastest idle server, or
any server, drawn uniformly, if none is idle (JFSQ and JFIQ of W. Weng, X. Zhou and R. Srikant,
arXiv 2008.08830).

``threshold(k)``, two servers: the slower only if it is empty and the faster holds at least k jobs
(Larsen 1981; Lin and Kumar 1984 for the queue with one line).
"""

from __future__ import annotations

from typing import Any

from lbgym.engine.access import inner, pool, rule, server
from lbgym.engine.vocabulary import (
    candidate,
    param,
    pick,
    probe,
    probe_all,
    seen,
    shortest,
    shortest_count,
    shortest_server,
    speed,
)
from lbgym.system import System

from .comparing import FASTEST, LOWEST, RANDOM, compare, index_params, index_value
from .registry import Parts, count, family, real
from .static import uniform_server


@rule
def least_of_all(w):
    """The server of least index among all, found by pools: O(pools)."""
    probe_all(w)
    ties = int(param(w, 0))
    least, fastest = index_value(w, 0, shortest(w, 0)), pool(w, 0).speed
    for p in range(1, w.n_pools):
        this = pool(w, p)
        order = compare(index_value(w, p, shortest(w, p)), least)
        if order < 0:
            least, fastest = index_value(w, p, shortest(w, p)), this.speed
        elif order == 0:
            fastest = max(fastest, this.speed)
    tied = 0
    lowest = w.n_servers
    for p in range(w.n_pools):
        if compare(index_value(w, p, shortest(w, p)), least) == 0:
            if ties == LOWEST:
                for k in range(shortest_count(w, p)):
                    lowest = min(lowest, shortest_server(w, p, k))
            elif ties == RANDOM or pool(w, p).speed == fastest:
                tied += shortest_count(w, p)
    if ties == LOWEST:
        return lowest
    k = pick(w, tied)
    for p in range(w.n_pools):
        if compare(index_value(w, p, shortest(w, p)), least) == 0:
            if ties == RANDOM or pool(w, p).speed == fastest:
                if k < shortest_count(w, p):
                    return shortest_server(w, p, k)
                k -= shortest_count(w, p)
    return -1


@inner
def better(w, i, j, ties):
    """Whether sampled server i goes before j when their indices tie."""
    if ties == FASTEST:
        return compare(speed(w, j), speed(w, i))
    if ties == LOWEST:
        return -1 if i < j else 1
    return 0


@inner
def least_of_sampled(w, ties):
    """The server of least index among those sampled; params as `least_of_all`."""
    best = candidate(w, 0)
    least = index_value(w, server(w, best).pool, probe(w, best))
    tied = 1
    for k in range(1, w.samples):
        i = candidate(w, k)
        value = index_value(w, server(w, i).pool, probe(w, i))
        order = compare(value, least)
        if order == 0 and i != best:
            order = better(w, i, best, ties)
        if order < 0:
            best, least, tied = i, value, 1
        elif order == 0:
            tied += 1
            if pick(w, tied) == 0:
                best = i
    return best


@rule
def least_of_probed(w):
    """The server of least index among the d sampled for this job."""
    return least_of_sampled(w, int(param(w, 0)))


@inner
def _fastest_idle_speed(w):
    """The speed of the fastest idle server, 0 if none is idle."""
    fastest = 0.0
    for p in range(w.n_pools):
        if shortest(w, p) == 0:
            fastest = max(fastest, pool(w, p).speed)
    return fastest


@rule
def fastest_idle(w):
    """A uniform one of the fastest idle servers, if none is idle of all."""
    probe_all(w)
    fastest = _fastest_idle_speed(w)
    if fastest == 0.0:
        return uniform_server(w)
    number = 0
    for p in range(w.n_pools):
        if shortest(w, p) == 0 and pool(w, p).speed == fastest:
            number += shortest_count(w, p)
    k = pick(w, number)
    for p in range(w.n_pools):
        if shortest(w, p) == 0 and pool(w, p).speed == fastest:
            if k < shortest_count(w, p):
                return shortest_server(w, p, k)
            k -= shortest_count(w, p)
    return -1


@rule
def threshold(w):
    """The slower of two servers only if empty while the faster holds at least k. Params: k."""
    probe_all(w)
    fast, slow = 0, 1
    if speed(w, 1) > speed(w, 0):
        fast, slow = 1, 0
    if seen(w, slow) == 0 and seen(w, fast) >= param(w, 0):
        return slow
    return fast


# --- building -------------------------------------------------------------------------------------
def samples(d: object, system: System, name: str) -> int:
    """Check the number of servers a job samples."""
    number = count(d, f"{name}: d")
    if number > system.servers and not system.replace:
        raise ValueError(
            f"{name}: d must be at most the number of servers ({system.servers}) "
            f"when sampling without replacement, got {number}"
        )
    return number


def _all_or_sampled(system: System, name: str, index: str, d: object, ties: str, a: float) -> Parts:
    params = tuple(index_params(system, ties, name, index, a))
    if system.edges:
        d = 2
    if system.read_interval is not None:
        return _by_last_read(system, name, d, params)
    if d is None:
        return Parts(place=least_of_all, params=params, ordered=True)
    return Parts(
        place=least_of_probed,
        params=params,
        samples=samples(d, system, name),
        anonymous=len(system.pools) == 1 and ties != "lowest",
        information="d probes",
        columns=("candidate", "queue_probed") + (("speed",) if index != "jsq" else ()),
    )


def _by_last_read(system: System, name: str, d: object, params: tuple[float, ...]) -> Parts:
    """The same comparison on a system whose queues are read now and then."""
    from .order_based import first_in_order, first_of_sampled, order_cells

    return Parts(
        place=first_in_order if d is None else first_of_sampled,
        params=params,
        scratch=order_cells(system),
        samples=0 if d is None else samples(d, system, name),
        information="order of the queues at the last read",
        columns=("read", "speed") + (() if d is None else ("candidate",)),
    )


@family("jsq", information="live queue lengths", columns=("queue",), on_graph=True)
def build_jsq(
    system: System, d: int | None = None, *, ties: str = "random", memory: int = 0
) -> Parts:
    """The shortest queue of all servers, or of d sampled ones, with memory=1 also of the one that
    was shortest last."""
    if memory != 0:
        from .remembering import with_memory

        return with_memory(system, d, ties, memory)
    return _all_or_sampled(system, "jsq", "jsq", d, ties, 0.0)


@family("fastest-shortest", information="live queue lengths, speeds", columns=("queue", "speed"))
def build_fastest_shortest(system: System, d: int | None = None) -> Parts:
    """The fastest of the shortest queues, of all servers or of d sampled ones."""
    return build_jsq(system, d, ties="fastest")


@family("fastest-idle", information="live queue lengths, speeds", columns=("queue", "speed"))
def build_fastest_idle(system: System) -> Parts:
    """The fastest idle server; if none is idle a server drawn uniformly."""
    if system.read_interval is not None:
        raise ValueError("fastest-idle: needs live queue lengths, the system has a read_interval")
    return Parts(place=fastest_idle, ordered=True)


@family("sed", information="live queue lengths, speeds", columns=("queue", "speed"), on_graph=True)
def build_sed(
    system: System, d: int | None = None, *, ties: str = "random", own_sends: int = 0
) -> Parts:
    """The least (q + 1) / mu of all servers, or of d sampled ones; with own-sends=1 of all by what
    was last read, or last probed by d probes a job, and own sends since."""
    if own_sends != 0:
        from .remembering import with_own_sends

        return with_own_sends(system, "sed", d, ties, own_sends, 1.0)
    return _all_or_sampled(system, "sed", "sed", d, ties, 1.0)


@family("jsed", information="live queue lengths, speeds", columns=("queue", "speed"))
def build_jsed(system: System, *, ties: str = "random") -> Parts:
    """The least q / mu of all servers."""
    return _all_or_sampled(system, "jsed", "jsed", None, ties, 0.0)


@family("index", information="live queue lengths, speeds", columns=("queue", "speed"))
def build_index(
    system: System, a: Any, d: int | None = None, *, ties: str = "random", own_sends: int = 0
) -> Parts:
    """The least (q + a) / mu of all servers, or of d sampled ones; own-sends as in sed."""
    number = real(a, "index: a")
    if own_sends != 0:
        from .remembering import with_own_sends

        return with_own_sends(system, "index", d, ties, own_sends, number)
    return _all_or_sampled(system, "index", "index", d, ties, number)


@family("fpi", information="live queue lengths, speeds, load", columns=("queue", "speed"))
def build_fpi(system: System, *, ties: str = "random") -> Parts:
    """One step of policy improvement from the best Bernoulli split."""
    if system.load >= 1:
        raise ValueError(f"fpi: needs a load below 1, got {system.load:g}")
    if any(spec.slots > 1 for spec in system.pools):
        raise ValueError("fpi: needs servers of one slot")
    return _all_or_sampled(system, "fpi", "fpi", None, ties, 1.0)


@family("threshold", information="live queue lengths, speeds", columns=("queue", "speed"))
def build_threshold(system: System, k: int) -> Parts:
    """Two servers: the slower only if it is empty and the faster holds at least k."""
    if system.servers != 2:
        raise ValueError(f"threshold: needs exactly 2 servers, the system has {system.servers}")
    return Parts(place=threshold, params=(float(count(k, "threshold: k", least=0)),))
