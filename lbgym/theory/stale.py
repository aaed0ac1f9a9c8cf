"""Two servers whose queues are read every T units of time (MODELS section 2).

Between reads the order of the queues is fixed, so each server is a birth-death chain of its own,
and the queue lengths at the reads are a Markov chain: the mass at each order goes through two
matrix exponentials. Means over time follow from the integrals of these over an interval
(Y. Luo, M. Zubeldia, arXiv 2510.14284).

In slotted time the same holds with powers of a slot's transition matrix: Poisson arrivals, then at
most one completion.

Cost: queues of 100 jobs 2 to 4 s, of 160 jobs 10 to 40 s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbgym.laws import Poisson
from lbgym.policies.registry import Call, make, parse
from lbgym.system import Pool, System

from .chain import Floats
from .result import Exact, Totals, result_of
from .rules import BUILDERS, Least, Static, order_of
from .stability import say_growth

MOST = 320  # the longest queue kept
SMALLER = 0.85  # the box that the truncation error is estimated with
_FIRST = 40
_NEGLIGIBLE = 1e-12  # time share at the longest queue kept
_GROWTH = 1.6
_FAINT = 1e-6  # chance of longer queues that is surely too much
_ACCURATE, _POOR = 1e-15, 1e-12
_CYCLES, _KEPT = 40, 80  # of GMRES
_KNOWN = "rank(p1, p2), jsq, jsq(d), sed, sed(d), jsed, index(a), index(a, d), fpi, random, static"


# --- policies -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Order:
    """Jobs go to the first of the order of (q + a) / c with probability p1, else to the second."""

    name: str
    a: Floats
    c: Floats
    second: Floats  # ties go to the smaller of these, then to a coin tossed once a read
    p: tuple[float, float]

    def first(self, levels: Sequence[int]) -> Floats:
        """Probability that server 0 is the first, for all pairs of queue lengths."""
        q = np.indices((levels[0] + 1, levels[1] + 1)).reshape(2, -1).T
        before, tied = order_of((q + self.a) / self.c, self.second)
        chance = np.where(before[:, 0] == 0, 1 / tied[:, 0], 0.0)
        return np.asarray(chance.reshape(levels[0] + 1, levels[1] + 1), dtype=np.float64)


def _order(system: System, policy: Any) -> Order | None:
    """The order and probabilities of a policy; None: it looks at nothing."""
    bound = make(policy, system)
    try:
        call = parse(bound.name)
    except ValueError:
        call = Call("")
    rates = system.speeds / system.mean_size
    if call.name == "rank":
        total = math.fsum(call.positional)
        p = (call.positional[0] / total, call.positional[1] / total)
        c = rates if call.keywords.get("order", "jsq") == "jsed" else np.ones(2)
        return Order(bound.name, np.zeros(2), c, np.zeros(2), p)
    if call.name not in BUILDERS or "own-sends" in call.keywords:
        raise ValueError(_unknown(bound.name))
    place = BUILDERS[call.name](system, *call.positional, **call.keywords).place
    if isinstance(place, Static):
        return None
    if not isinstance(place, Least):
        raise ValueError(_unknown(bound.name))
    return Order(bound.name, place.a, place.c, place.second, _first_of_sampled(place))


def _first_of_sampled(place: Least) -> tuple[float, float]:
    """Rank probabilities: of d samples the one of lowest rank."""
    if place.d == 1:
        return 0.5, 0.5
    second = 0.5**place.d if place.replace and place.d is not None else 0.0
    return 1 - second, second


def _unknown(name: str) -> str:
    return f"policy {name}: theory has no chain for it where queues are read; it knows {_KNOWN}"


# --- one server between reads ---------------------------------------------------------------------
@dataclass(frozen=True)
class _Interval:
    """A server fed at a fixed rate: its transitions over an interval, and their time average.

    `found`: the average that arrivals see; in slotted time those of a slot come before its service.
    """

    step: Floats
    mean: Floats
    found: Floats

    @classmethod
    def of(cls, pool: Pool, service: float, rate: float, levels: int, length: float) -> _Interval:
        from scipy.linalg import expm

        size = levels + 1
        deaths = service * np.minimum(np.arange(1, size), pool.slots)
        births = np.full(levels, rate)
        flow = np.diag(births, 1) + np.diag(deaths, -1)
        flow -= np.diag(flow.sum(axis=1))
        both = np.zeros((2 * size, 2 * size))
        both[:size, :size] = flow * length
        both[:size, size:] = np.eye(size)
        found = expm(both)  # the second block is the integral, in units of an interval
        return cls(found[:size, :size], found[:size, size:], found[:size, size:])

    @classmethod
    def in_slots(cls, chance: float, rate: float, levels: int, slots: int) -> _Interval:
        """In slotted time: Poisson arrivals of this rate, a completion with this chance."""
        from scipy.stats import poisson

        size = levels + 1
        arrivals = np.zeros((size, size))
        for q in range(size):
            arrivals[q, q:] = poisson.pmf(np.arange(size - q), rate)
            arrivals[q, -1] += poisson.sf(levels - q, rate)
        service = np.diag(np.full(size, 1 - chance)) + np.diag(np.full(levels, chance), -1)
        service[0, 0] = 1.0
        slot = arrivals @ service
        step, total = np.eye(size), np.zeros((size, size))
        for _ in range(slots):
            step = step @ slot
            total += step
        mean = total / slots
        return cls(step, mean, mean + (np.eye(size) - step) / slots)


# --- the chain at the reads -----------------------------------------------------------------------
@dataclass(frozen=True)
class _Box:
    """A solved system with queues cut at `levels`.

    mass : (2, levels + 1, levels + 1) law at the reads, by which server is the first
    laws : laws[first][server], time averages times the mass of that order; found: as arrivals see
    rates : rates[first][server] of arrivals
    """

    levels: tuple[int, int]
    mass: Floats
    laws: list[list[Floats]]
    found: list[list[Floats]]
    rates: list[list[float]]
    residual: float

    def law(self, server: int) -> Floats:
        return np.asarray(self.laws[0][server] + self.laws[1][server], dtype=np.float64)

    @property
    def jobs(self) -> float:
        return sum(float(self.law(i) @ np.arange(self.levels[i] + 1)) for i in (0, 1))


def _solve(
    system: System, order: Order, levels: tuple[int, int], near: Floats | None = None
) -> _Box:
    pools = [system.pools[p] for p in system.pool_of_server]
    service = (system.speeds / system.mean_size).tolist()
    arrivals, length = system.arrival_rate, system.read_interval or 1.0
    p = order.p
    rates = [[p[0] * arrivals, p[1] * arrivals], [p[1] * arrivals, p[0] * arrivals]]

    def part(f: int, i: int) -> _Interval:
        if system.slotted:
            return _Interval.in_slots(service[i], rates[f][i], levels[i], int(length))
        return _Interval.of(pools[i], service[i], rates[f][i], levels[i], length)

    parts = [[part(f, i) for i in (0, 1)] for f in (0, 1)]
    first = order.first(levels)
    chance = np.stack([first, 1 - first])

    def again(x: Floats) -> Floats:
        there = x * chance
        moved = [parts[f][0].step.T @ there[f] @ parts[f][1].step for f in (0, 1)]
        return np.asarray(moved[0] + moved[1], dtype=np.float64)

    x, residual = _stationary(again, _resized(near, levels))
    mass = chance * x
    reads = [[mass[f].sum(axis=1 - i) for i in (0, 1)] for f in (0, 1)]
    laws = [[reads[f][i] @ parts[f][i].mean for i in (0, 1)] for f in (0, 1)]
    found = [[reads[f][i] @ parts[f][i].found for i in (0, 1)] for f in (0, 1)]
    return _Box(levels, mass, laws, found, rates, residual)


def _stationary(again: Callable[[Floats], Floats], begin: Floats) -> tuple[Floats, float]:
    """The law that reproduces itself: x - x P + (sum x) u = u, u any law; begin: one near it."""
    from scipy.sparse.linalg import LinearOperator, gmres

    shape, size = begin.shape, begin.size
    x = begin.ravel() / begin.sum()
    for _ in range(5):
        x = again(x.reshape(shape)).ravel()
    u = x / x.sum()

    def matvec(v: Floats) -> Floats:
        flat = v.ravel()
        return np.asarray(flat - again(flat.reshape(shape)).ravel() + flat.sum() * u)

    operator = LinearOperator((size, size), matvec=matvec, dtype=np.float64)
    before = math.inf
    for _ in range(_CYCLES):
        x, _ = gmres(operator, u, x0=x, rtol=1e-16, atol=0.0, restart=_KEPT, maxiter=1)
        x /= x.sum()
        residual = float(np.abs(again(x.reshape(shape)).ravel() - x).max())
        if residual < _ACCURATE or (residual < _POOR and residual > before / 2):
            break
        before = residual
    if residual > _POOR:
        raise ArithmeticError(f"exact: the chain at the reads has an error of {residual:.1e}")
    return np.asarray(x.reshape(shape), dtype=np.float64), residual


def _resized(x: Floats | None, levels: tuple[int, int]) -> Floats:
    """A law to begin with, from that of another box or from nothing."""
    shape = (levels[0] + 1, levels[1] + 1)
    if x is None:
        i, j = np.indices(shape)
        return np.asarray(np.exp(-0.2 * (i + j)), dtype=np.float64)
    begin = np.zeros(shape)
    rows, columns = min(shape[0], x.shape[0]), min(shape[1], x.shape[1])
    begin[:rows, :columns] = np.maximum(x[:rows, :columns], 0.0)
    return begin


# --- the answer -----------------------------------------------------------------------------------
def _levels(system: System, cap: Any, longest: int) -> tuple[int, int]:
    """The longest queues kept: limits, else the caps given, else `longest`."""
    found = []
    for i, limit in enumerate(system.limits.tolist()):
        own = cap if cap is None or isinstance(cap, int | np.integer) else cap[_pool(system, i)]
        found.append(int(limit) if math.isfinite(limit) else int(own or longest))
    return found[0], found[1]


def _pool(system: System, server: int) -> int:
    return int(system.pool_of_server[server])


def _refuse(system: System, order: Order, cap: Any) -> None:
    if system.servers != 2:
        size = float(_FIRST) ** system.servers
        raise ValueError(
            f"exact: with a read_interval only two servers can be solved, {system.servers:,} have "
            f"at least {size:.1e} states; use simulate"
        )
    if cap is not None:
        given = [cap] if isinstance(cap, int | np.integer) else list(cap)
        if len(given) not in (1, len(system.pools)) or any(
            isinstance(c, bool) or not isinstance(c, int | np.integer) or c < 1 for c in given
        ):
            raise ValueError(f"cap: must be a whole number >= 1 or one for each pool, got {cap!r}")
    longest = max(_levels(system, cap, 1))
    if longest > MOST:
        raise ValueError(
            f"exact: queues of up to {longest:,} jobs give {(longest + 1) ** 2:,} states, at most "
            f"{(MOST + 1) ** 2:,} can be solved; take smaller limits or caps, or simulate"
        )
    _refuse_unstable(system, order)


def _refuse_unstable(system: System, order: Order) -> None:
    """MODELS section 2: the k longest must serve more than they get, for each order."""
    slots = np.array([p.slots for p in system.pools])[system.pool_of_server]
    served = system.speeds * slots / system.mean_size
    free = np.isinf(system.limits)
    least = float(served[free].min()) if free.any() else math.inf
    margins = [order.p[1] * system.arrival_rate - least]
    if free.all():
        margins.append(system.arrival_rate - float(served.sum()))
    if max(margins) >= -1e-9 * system.arrival_rate:
        raise ValueError(
            f"exact: {order.name} is not stable at load {system.load:g}: "
            f"{say_growth(max(margins))}; lower the load or set limits"
        )


def _refuse_long(system: System, order: Order) -> None:
    """Refuse queues that become longer than can be kept, between reads or for the load's sake."""
    free = np.isinf(system.limits)
    slots = np.array([p.slots for p in system.pools])[system.pool_of_server]
    served = (slots * system.speeds / system.mean_size)[free]
    if not free.any():
        return
    interval = system.read_interval or 0.0
    rise = (max(order.p) * system.arrival_rate - float(served.min())) * interval
    total = 0.0
    if free.all():  # as one queue served by all, which is k or more with chance load ** k
        total = math.log(_FAINT) / math.log(system.load) / 2
    if max(rise, total) > MOST:
        why = f"between two reads a queue may grow by {rise:,.0f} jobs"
        if total > rise:
            why = f"at load {system.load:g} queues of {total:,.0f} jobs matter"
        raise ValueError(
            f"exact: {why}, at most {MOST} ({(MOST + 1) ** 2:,} states) can be kept; take a "
            "shorter read_interval, a lower load or limits, or simulate"
        )


def _settle(system: System, order: Order) -> _Box:
    """Queues without a limit cut where the last level hardly matters."""
    levels, near = _levels(system, None, _FIRST), None
    while True:
        box = _solve(system, order, levels, near)
        near = box.mass.sum(axis=0)
        at_end = [float(box.law(i)[-1]) for i in (0, 1) if math.isinf(system.limits[i])]
        if max(at_end, default=0.0) < _NEGLIGIBLE:
            return box
        longest = max(x for x, k in zip(levels, system.limits, strict=True) if math.isinf(k))
        if longest >= MOST:
            if max(at_end) < 1e-8:
                return box
            raise ValueError(
                f"exact: queues of {MOST} jobs ({(MOST + 1) ** 2:,} states) are not long enough "
                f"for {order.name} at load {system.load:g}; lower the load, set limits or simulate"
            )
        levels = _levels(system, None, min(math.ceil(longest * _GROWTH), MOST))


def exact_stale(system: System, policy: Any, cap: Any, loss_charge: float | None) -> Exact | None:
    """The long-run means of two servers read every T; None if the policy does not read."""
    begun = time.perf_counter()
    order = _order_of_two(system, policy)
    if order is None:
        return None
    _refuse(system, order, cap)
    if cap is None:
        _refuse_long(system, order)
    box = _settle(system, order) if cap is None else _solve(system, order, _levels(system, cap, 1))
    error = 0.0
    if np.isinf(system.limits).any():
        kept = [
            math.floor(k * SMALLER) if math.isinf(limit) else k
            for k, limit in zip(box.levels, system.limits, strict=True)
        ]
        box_kept, near = (max(kept[0], 1), max(kept[1], 1)), box.mass.sum(axis=0)
        error = abs(_solve(system, order, box_kept, near).jobs - box.jobs)
    result = result_of(system, order.name, _totals(system, box), loss_charge, 0.0)
    return replace(result, truncation_error=error, seconds=time.perf_counter() - begun)


def exact_slotted(system: System, policy: Any, cap: Any, loss_charge: float | None) -> Exact:
    """`exact_stale` in slotted time."""
    if system.arrivals != Poisson():
        raise ValueError("exact: slotted time needs Poisson arrivals; simulate")
    if system.read_interval is None or system.graph is not None:
        raise ValueError("exact: slotted time needs a read_interval and no graph; simulate")
    if not np.isinf(system.limits).all():
        raise ValueError("exact: slotted time with limits has no chain here; simulate")
    found = exact_stale(system, policy, cap, loss_charge)
    if found is None:
        raise ValueError("exact: slotted time is for rules that read the queues; simulate")
    return found


def _order_of_two(system: System, policy: Any) -> Order | None:
    if system.migrates:
        raise ValueError("exact: jobs that move and queues that are read now and then: simulate")
    if system.servers != 2:
        call = parse(make(policy, system).name or "custom")
        if call.name in ("random", "weighted-random", "static"):
            return None
        return Order(call.name, np.zeros(2), np.ones(2), np.zeros(2), (1.0, 0.0))
    return _order(system, policy)


def _totals(system: System, box: _Box) -> Totals:
    """What the laws say; a read asks each server once."""
    waits = blocked = 0.0
    for f in (0, 1):
        for i in (0, 1):
            if system.slotted:  # all wait but the first that finds an idle server
                rate, law = box.rates[f][i], box.found[f][i]
                waits += rate * float(law.sum()) + math.expm1(-rate) * float(law[0])
                continue
            law, pool = box.laws[f][i], system.pools[_pool(system, i)]
            full = float(law[-1]) if pool.limit is not None else 0.0
            waits += box.rates[f][i] * (float(law[pool.slots :].sum()) - full)
            blocked += box.rates[f][i] * full
    tails = [np.cumsum(box.law(i)[::-1])[::-1] for i in (0, 1)]
    return Totals(
        jobs=box.jobs,
        rates={"waits": waits, "blocked": blocked, "probes": 2 / (system.read_interval or 1.0)},
        tails=[np.asarray(tail, dtype=np.float64) for tail in tails],
        states=math.prod(k + 1 for k in box.levels),
        cut=box.levels,
        residual=box.residual,
    )
