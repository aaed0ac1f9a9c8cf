"""Rules that remember the queues they have seen: own-sends=1, lsq(d), jsq(d, memory=1).

``sed(own-sends=1)``, ``index(a, own-sends=1)``: each router takes a queue to be as long as when it
last saw it plus the jobs that it has sent there since, and sends the job where (that + a) / mu is
least (a = 1 for SED). It last saw the queues when the system last read them (`read_interval`) or,
with ``sed(d, own-sends=1)``, when it last probed each: every job probes d sampled servers (2d
messages). It reads all n estimates: O(n) a job.

``lsq(d)``, local shortest queue: each router keeps an estimate of every queue, 0 at first. A job
asks d sampled servers, which corrects their estimates, then goes where its router's estimate is
least, and that estimate grows by one. 2d messages a job (S. Vargaftik, I. Keslassy, A. Orda,
IEEE/ACM Transactions on Networking 28, 2020, arXiv 2003.02368, LSQ-Sample; there the answers come
after the job has been sent). It reads all n estimates: O(n) a job.

``jsq(d, memory=1)``: a job goes to the shortest of d sampled servers and of the one that its router
remembers; the shortest of them after that is remembered. 2 (d + 1) messages a job, 2d where the
remembered server is among the sampled (M. Mitzenmacher, B. Prabhakar, D. Shah, FOCS 2002).

Ties as in `jsq`. Limits are ignored.
"""

from __future__ import annotations

from lbgym.engine.access import (
    aside,
    inner,
    last_probe,
    rule,
    sent_since_probe,
    sent_since_read,
    server,
)
from lbgym.engine.vocabulary import candidate, param, pick, probe, recall, remember, seen
from lbgym.system import System

from .comparing import TIES, index_params, index_value, least_so_far
from .jsq import better, samples
from .registry import Parts, family, one_of


# --- what was seen and own sends since ------------------------------------------------------------
@inner
def _believed(w, i):
    """The queue of server i as the acting router last saw it, and its own sends since."""
    k = w.router * w.n_servers + i
    if w.probe_memory_on:
        return last_probe(w, k).jobs + sent_since_probe(w, k).jobs
    return aside(w, i).reading + sent_since_read(w, k).jobs


@rule
def least_with_own_sends(w):
    """The least index of what was last seen plus own sends since, ties uniform; params as
    `least_of_all`."""
    for c in range(w.samples):
        probe(w, candidate(w, c))
    best, least, tied = 0, 0.0, 0
    for i in range(w.n_servers):
        value = index_value(w, server(w, i).pool, _believed(w, i))
        best, least, tied = least_so_far(w, i, value, best, least, tied)
    return best


# --- local shortest queue -------------------------------------------------------------------------
@rule
def least_estimate(w):
    """The least of the acting router's estimates. Params: ties. Memory: routers x servers."""
    ties, first = int(param(w, 0)), w.router * w.n_servers
    for k in range(w.samples):
        i = candidate(w, k)
        remember(w, first + i, probe(w, i))
    best, tied = 0, 1
    for i in range(1, w.n_servers):
        order = recall(w, first + i) - recall(w, first + best)
        if order == 0:
            order = better(w, i, best, ties)
        if order < 0:
            best, tied = i, 1
        elif order == 0:
            tied += 1
            if pick(w, tied) == 0:
                best = i
    remember(w, first + best, recall(w, first + best) + 1)
    return best


# --- the power of memory --------------------------------------------------------------------------
@inner
def _is_candidate(w, i):
    """Whether server i is among the sampled."""
    for k in range(w.samples):
        if candidate(w, k) == i:
            return True
    return False


@inner
def _shortest_asked(w, kept, longer, ties):
    """The shortest of the sampled servers and, unless -1, `kept`; `longer` counts one more job."""
    best, least, tied = -1, 0, 0
    for k in range(w.samples + (kept >= 0)):
        i = candidate(w, k) if k < w.samples else kept
        length = seen(w, i) + (i == longer)
        order = -1 if best < 0 else length - least
        if order == 0:
            order = better(w, i, best, ties)
        if order < 0:
            best, least, tied = i, length, 1
        elif order == 0:
            tied += 1
            if pick(w, tied) == 0:
                best = i
    return best


@rule
def shortest_with_memory(w):
    """The shortest of the sampled and the remembered. Params: ties. Memory: of each router, 1 + the
    server that it remembers."""
    for k in range(w.samples):
        probe(w, candidate(w, k))
    kept = int(recall(w, w.router)) - 1
    if kept >= 0:
        if _is_candidate(w, kept):
            kept = -1
        else:
            probe(w, kept)
    ties = int(param(w, 0))
    best = _shortest_asked(w, kept, -1, ties)
    remember(w, w.router, 1 + _shortest_asked(w, kept, best, ties))
    return best


# --- building -------------------------------------------------------------------------------------
@family("lsq", information="d probes, own memory")
def build_lsq(system: System, d: int, *, ties: str = "random") -> Parts:
    """The shortest queue by the router's own estimates, which d probes a job refresh."""
    return Parts(
        place=least_estimate,
        params=(float(one_of(ties, TIES, "lsq: ties")),),
        scratch=system.router_count * system.servers,
        samples=samples(d, system, "lsq"),
        anywhere=True,
        columns=("candidate", "queue_probed", *_for_ties(ties), "router"),
    )


def with_own_sends(
    system: System, name: str, d: object, ties: str, own_sends: object, a: float
) -> Parts:
    """`sed` or `index` on what was last seen, by reads or (given d) by probes, and own sends."""
    if own_sends != 1 or isinstance(own_sends, bool):
        raise ValueError(f"{name}: own-sends must be 0 or 1, got {own_sends}")
    if ties != "random":
        raise ValueError(f"{name}: with own-sends=1 ties must be 'random', got {ties!r}")
    params = tuple(index_params(system, ties, name, "index", a))
    if system.read_interval is not None:
        if d is not None:
            raise ValueError(
                f"{name}: own-sends goes without d on a system with a read_interval, got d = {d}"
            )
        return Parts(
            place=least_with_own_sends,
            params=params,
            read_memory=True,
            information="last read, own sends since",
            columns=("read", "sent_since_read", "speed"),
        )
    if d is None:
        raise ValueError(
            f"{name}: own-sends needs a system with a read_interval, or sampled servers; use "
            f"{name}({'' if name == 'sed' else 'a, '}d, own-sends=1)"
        )
    if system.edges:
        raise ValueError(f"{name}: own-sends is not for systems with a graph")
    return Parts(
        place=least_with_own_sends,
        params=params,
        samples=samples(d, system, name),
        probe_memory=True,
        anywhere=True,
        information="d probes, own memory",
        columns=("candidate", "last_probe", "sent_since_probe", "speed"),
    )


def with_memory(system: System, d: object, ties: str, memory: object) -> Parts:
    """`jsq` of d sampled servers and a remembered one."""
    if memory != 1 or isinstance(memory, bool):
        raise ValueError(f"jsq: memory must be 0 or 1, got {memory}")
    if d is None:
        raise ValueError("jsq: memory needs sampled servers; use jsq(d, memory=1)")
    if system.edges or system.read_interval is not None:
        raise ValueError("jsq: memory is not for systems with a graph or a read_interval")
    return Parts(
        place=shortest_with_memory,
        params=(float(one_of(ties, TIES, "jsq: ties")),),
        scratch=system.router_count,
        samples=samples(d, system, "jsq"),
        anywhere=True,
        information="d probes, own memory",
        columns=("candidate", "queue", *_for_ties(ties), "router"),
    )


def _for_ties(ties: str) -> tuple[str, ...]:
    return ("speed",) if ties == "fastest" else ()
