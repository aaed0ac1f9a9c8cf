"""Rules for loss systems: where is room? (Mukhopadhyay et al. 2015; Vasantam and Mazumdar 2021)

The vacancy of a server is the number of its free units (without units: of its free places).

| name | the job goes to | messages |
|---|---|---|
| ``max-vacancy`` | the server of largest vacancy, ties uniform | 2n |
| ``max-vacancy(d)`` | the same among d sampled servers | 2d |
| ``best-fit`` | the server of smallest vacancy that has room for the job | 2n |
| ``trunk-reservation(t1, ..., tK)`` | best fit, class k only if t_k units stay free in all | 2n |
"""

from __future__ import annotations

import math
from typing import Any

from lbgym.engine.access import inner, job_class, rule
from lbgym.engine.queues import vacancy
from lbgym.engine.vocabulary import candidate, param, pick, probe, probe_all
from lbgym.system import System

from .jsq import samples
from .registry import Parts, family


@inner
def _roomiest(w, number, sampled):
    """The largest vacancy of so many servers, ties uniform: the sampled ones or the first."""
    best, most, tied = 0, -1, 0
    for k in range(number):
        i = candidate(w, k) if sampled else k
        v = vacancy(w, i)
        if v > most:
            best, most, tied = i, v, 1
        elif v == most:
            tied += 1
            if pick(w, tied) == 0:
                best = i
    return best


@rule
def max_vacancy(w):
    """The largest vacancy of all, ties uniform."""
    probe_all(w)
    return _roomiest(w, w.n_servers, False)


@rule
def max_vacancy_of_sampled(w):
    """The largest vacancy of the sampled servers, ties uniform."""
    for k in range(w.samples):
        probe(w, candidate(w, k))
    return _roomiest(w, w.samples, True)


@inner
def _tightest(w):
    """The smallest vacancy that fits, ties uniform; the first server if none does."""
    need = job_class(w, w.klass).units
    best, least, tied = 0, -1, 0
    for i in range(w.n_servers):
        v = vacancy(w, i)
        if v < need:
            continue
        if least < 0 or v < least:
            best, least, tied = i, v, 1
        elif v == least:
            tied += 1
            if pick(w, tied) == 0:
                best = i
    return best


@rule
def best_fit(w):
    """The smallest vacancy that fits."""
    probe_all(w)
    return _tightest(w)


@rule
def trunk_reservation(w):
    """Best fit, but refused (server number n) if fewer than t_k units would stay free."""
    probe_all(w)
    free = 0
    for i in range(w.n_servers):
        free += vacancy(w, i)
    if free - job_class(w, w.klass).units < param(w, w.klass):
        return w.n_servers
    return _tightest(w)


def _needs_limits(system: System, name: str) -> None:
    if any(system.limit_of(spec) is None for spec in system.pools):
        raise ValueError(f"{name}: needs servers with a limit or units")


@family("max-vacancy", information="live occupancies", columns=("vacancy",))
def build_max_vacancy(system: System, d: int | None = None) -> Parts:
    """The server of largest vacancy, of all or of d sampled ones."""
    _needs_limits(system, "max-vacancy")
    if d is None:
        return Parts(place=max_vacancy)
    return Parts(
        place=max_vacancy_of_sampled,
        samples=samples(d, system, "max-vacancy"),
        anonymous=len(system.pools) == 1,
        information="d probes",
        columns=("vacancy", "candidate"),
    )


@family("best-fit", information="live occupancies", columns=("vacancy", "class"))
def build_best_fit(system: System) -> Parts:
    """The server of smallest vacancy that has room for the job."""
    _needs_limits(system, "best-fit")
    return Parts(place=best_fit)


@family("trunk-reservation", information="live occupancies", columns=("vacancy", "class"))
def build_trunk_reservation(system: System, *t: Any) -> Parts:
    """Best fit, but class k only if at least t_k units stay free in all."""
    if not system.has_units:
        raise ValueError("trunk-reservation: needs a system with units")
    classes = len(system.class_shares)
    if len(t) != classes:
        raise ValueError(
            f"trunk-reservation: needs {classes} thresholds, one a class, got {len(t)}"
        )
    for k, x in enumerate(t):
        if isinstance(x, str) or not 0 <= x < math.inf:
            raise ValueError(f"trunk-reservation: threshold {k + 1} must be >= 0, got {x}")
    return Parts(place=trunk_reservation, refuses=True, params=tuple(float(x) for x in t))
