"""Rules that know sizes: least work left and size intervals.

| name | the job goes to | messages per job |
|---|---|---|
| ``lwl`` | the server with least work left over speed (all slots) | 2n |
| ``sita`` | the server whose interval of sizes holds its size | 0 |

``lwl`` (Daley 1987; for equal servers it is one common queue, M/G/n) looks at all servers at each
job, O(n). Ties as of ``jsq``. ``sita`` gives server 1 the shortest jobs and server n the longest,
with cutoffs that load all of them alike: SITA-E (Harchol-Balter, Crovella and Murta 1999). Where a
cutoff is a size that many jobs have, a coin divides them. Exponential sizes, otherwise memoryless,
are drawn at arrival under these rules.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.engine.access import inner, pool, rule, server
from lbgym.engine.vocabulary import coin, job_size, param, pick, probe_all, speed, work_seen
from lbgym.system import System

from .comparing import FASTEST, LOWEST, TIES, compare
from .registry import Parts, family, one_of

_BISECTIONS = 200
_SAME = 1e-12


@inner
def _delay(w, i):
    """Work left of server i over its speed."""
    p = pool(w, server(w, i).pool)
    return work_seen(w, i) / (p.pace * p.slots)


@rule
def least_work(w):
    """The server with least work left over speed. Params: ties."""
    probe_all(w)
    ties = int(param(w, 0))
    best, least, tied = 0, _delay(w, 0), 1
    for i in range(1, w.n_servers):
        value = _delay(w, i)
        order = compare(value, least)
        if order == 0 and ties == FASTEST:
            order = compare(speed(w, best), speed(w, i))
        if order < 0:
            best, least, tied = i, value, 1
        elif order == 0 and ties != LOWEST:
            tied += 1
            if pick(w, tied) == 0:
                best = i
    return best


@rule
def by_size(w):
    """The server whose interval holds the job's size.

    Params of each cutoff: itself, the share of the work in smaller jobs, that in jobs up to it, and
    the share that the servers before it shall have.
    """
    x = job_size(w)
    low, high = 0, w.n_servers - 1
    while low < high:
        middle = (low + high) >> 1
        if param(w, 4 * middle) >= x:
            high = middle
        else:
            low = middle + 1
    if low < w.n_servers - 1 and param(w, 4 * low) == x:
        below, upto = param(w, 4 * low + 1), param(w, 4 * low + 2)
        if upto > below:
            u = below + coin(w) * (upto - below)
            while low < w.n_servers - 1 and u >= param(w, 4 * low + 3):
                low += 1
    return low


# --- building -------------------------------------------------------------------------------------
def _check(system: System, name: str) -> None:
    if system.slotted or system.closed_jobs is not None or system.has_units:
        raise ValueError(f"{name}: is not for slotted time, closed systems or units")


@family("lwl", information="work left, speeds", columns=("work", "speed"))
def build_lwl(system: System, *, ties: str = "random") -> Parts:
    """The least work left over speed of all servers."""
    _check(system, "lwl")
    if system.read_interval is not None:
        raise ValueError("lwl: needs live queues; with a read_interval use jsq, sed or jsed")
    return Parts(place=least_work, params=(float(one_of(ties, TIES, "lwl: ties")),), sizes=True)


@family("sita", information="own size, law of sizes, speeds", columns=("size",))
def build_sita(system: System) -> Parts:
    """Sizes in intervals, one a server, that load all servers alike (SITA-E)."""
    _check(system, "sita")
    return Parts(place=by_size, params=size_cutoffs(system), sizes=True)


def size_cutoffs(system: System) -> tuple[float, ...]:
    """Params of `by_size`."""
    slots = np.array([p.slots for p in system.pools])[system.pool_of_server]
    capacity = np.cumsum(system.speeds * slots)
    wanted = capacity[:-1] / capacity[-1]
    find = _cutoff if system.size_law.atoms is None else _cutoff_among_atoms(system)
    params: list[float] = []
    for share in wanted.tolist():
        params += [*find(system, share), share]
    return tuple(params)


def _kinds(system: System) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares and mean sizes of the classes."""
    means = np.array([c.mean_size for c in system.classes or ()] or [1.0])
    return np.array(system.class_shares), means


def _work_below(system: System, x: float) -> float:
    shares, means = _kinds(system)
    work = shares * means
    return float(work @ system.size_law.work_below(x / means) / work.sum())


def _cutoff(system: System, share: float) -> tuple[float, float, float]:
    """The size below which that share of the work lies; twice the share, as no size is an atom."""
    low, high = 0.0, 1.0
    while _work_below(system, high) < share and high < math.inf:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if _work_below(system, middle) < share:
            low = middle
        else:
            high = middle
    return high, share, share


def _cutoff_among_atoms(system: System) -> Any:
    """The same where sizes have finitely many values: the first value that reaches the share."""
    law, (shares, means) = system.size_law, _kinds(system)
    atoms = np.asarray(law.atoms)
    chances = np.diff(law.cdf(atoms), prepend=0.0)
    sizes = np.concatenate([atoms * mean for mean in means])
    values, place = np.unique(sizes, return_inverse=True)
    work = np.bincount(place, np.concatenate([s * chances for s in shares]) * sizes)
    upto = np.cumsum(work) / work.sum()

    def find(system: System, share: float) -> tuple[float, float, float]:
        k = int(np.searchsorted(upto, share - _SAME))
        return float(values[k]), float(upto[k - 1]) if k else 0.0, float(upto[k])

    return find
