"""`mean_field`: the limit as the number of servers grows, the system's pools as proportions.

`system` says the shares of the pools and the arrival rate per server; its number of servers plays
no other part. In the limit the servers are independent and each sees the others only through the
fractions x of servers with k jobs, so each pool is a birth-death chain whose rates depend on x; the
stationary law is a fixed point of that dependence:

- random, weighted, static, JSQ(d), SED(d) with limits and slots (supermarket model: Vvedenskaya,
  Dobrushin and Karpelevich 1996; Erlang loss: Vasantam and Mazumdar 2021);
- local search, strict and oblivious, with any of these placements (Ganesh et al. 2012; the fixed
  point is derived in MODELS section 5);
- PULL and JIQ: closed forms, jobs always find an idle server if the routers are equal (Stolyar,
  arXiv 1512.07873).

`ou_covariance`: fluctuations about the limit for JSQ(d) Erlang loss.

Cost: levels x pools unknowns, a few hundred; .01 to 1 s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.checks import finite, integer
from lbgym.kinds import by_kind
from lbgym.system import Pool, System

from .closed_form import pull_busy, unequal_routers
from .rules import Least, Plan, Pull, Static, gains, plan

Floats = NDArray[np.float64]

_NEGLIGIBLE = 1e-15  # the fraction of servers beyond the last level
_FIRST_LEVELS = 32
_MOST_LEVELS = 4_096
_ACCURATE = 1e-12  # change of the law in one more iteration
_POOR = 1e-9  # is refused
_ITERATIONS = 150
_NEWTON = 15  # iterations at most
_SETTLED = 1e-9  # change of the law that is taken for Newton's end; the next ones only polish
_SHORTEST = 1e-4  # step of the arrival rate, relative
_MOST_CAPACITY = 1_000  # of fluctuations
_MOST_UNKNOWNS = 3_000  # of a dense matrix


@dataclass(frozen=True)
class MeanField:
    """The limit; names as in `simulate`'s Result, plain floats.

    jobs_per_server : mean number of jobs of a server; `jobs_in_system` that of as many servers as
        the system has
    jobs_per_pool : likewise, of each pool in all
    messages_per_job, withdrawals_per_job, migrations_per_job : per arrival
    queue_tail : ``{"all": [...], "pools": [[...], ...]}``
    error : how far the law is from reproducing itself
    """

    system: System
    policy: str
    cost: float
    response_time: float
    waiting_probability: float
    blocking_probability: float
    jobs_in_system: float
    jobs_per_server: float
    jobs_per_pool: tuple[float, ...]
    messages_per_job: float
    withdrawals_per_job: float
    migrations_per_job: float
    utilization: float
    utilization_per_pool: tuple[float, ...]
    queue_tail: dict[str, Any]
    error: float
    seconds: float


# --- servers that depend on each other's fractions ------------------------------------------------
@dataclass(frozen=True)
class Levels:
    """The pools, cut at some level, as arrays.

    share : (pools,) of the servers; rate : (pools, 1) of a slot
    q : (1, levels + 1) the levels; room : (pools, levels + 1) whether one more job fits
    served : (pools, levels + 1) jobs per unit time
    """

    system: System
    levels: int

    @property
    def share(self) -> Floats:
        return np.array([p.servers for p in self.system.pools]) / self.system.servers

    @property
    def q(self) -> NDArray[np.int64]:
        return np.arange(self.levels + 1)[None, :]

    @property
    def limits(self) -> NDArray[np.int64]:
        """(pools, 1) limits, or the last level."""
        return np.array([[p.limit or self.levels] for p in self.system.pools])

    @property
    def room(self) -> NDArray[np.bool_]:
        return np.asarray(self.q < self.limits)

    @property
    def endless(self) -> bool:
        """Whether no server has a limit."""
        return all(p.limit is None for p in self.system.pools)

    @property
    def served(self) -> Floats:
        rates = np.array([[p.speed] for p in self.system.pools]) / self.system.mean_size
        slots = np.array([[p.slots] for p in self.system.pools])
        return np.asarray(rates * np.minimum(self.q, slots), dtype=np.float64)

    @property
    def arrival_rate(self) -> float:
        """Per server."""
        return self.system.arrival_rate / self.system.servers


Map = Callable[[Floats], Floats]

# A law is an array (pools, levels + 1), rows summing to 1. These give, for a law, the rate of
# arrivals that each server at each level is offered, whether it has room or not; and the rates of
# migrations into and out of it. A slope is the matrix of derivatives of such rates, raveled, by the
# law, raveled.
Slope = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Offered:
    """Arrivals offered by a placement, and their slope."""

    rates: Map
    slope: Slope

    def __call__(self, law: Floats) -> Floats:
        return self.rates(law)


@dataclass(frozen=True)
class Migrations:
    """Migrations into and out of each server: linear in the law.

    into, out : (N, N), N pools x levels raveled
    """

    into: Floats
    out: Floats

    def __call__(self, law: Floats) -> tuple[Floats, Floats]:
        flat = law.ravel()
        return (self.into @ flat).reshape(law.shape), (self.out @ flat).reshape(law.shape)


def _by_pool(levels: Levels, place: Static) -> Offered:
    """Given probabilities; the limit has the same in each part of a pool."""
    pools = levels.system.pool_of_server
    total = np.bincount(pools, weights=place.p)
    rate = total * levels.system.arrival_rate / np.bincount(pools)
    fixed = np.broadcast_to(rate[:, None], (len(rate), levels.levels + 1))
    return Offered(lambda law: fixed, lambda law: np.zeros((law.size, law.size)))


def _by_samples(levels: Levels, place: Least) -> Offered:
    """The least of d sampled: a rank is chosen iff all samples are at it or after, not all after.

    Servers of one rank share that: lambda (G(>= r)^d - G(> r)^d) / g(r) for each.
    """
    assert place.d is not None
    system, d = levels.system, place.d
    first = np.flatnonzero(np.diff(system.pool_of_server, prepend=-1))
    value = (levels.q + place.a[first, None]) / place.c[first, None]
    second = np.broadcast_to(place.second[first, None], value.shape)
    rank = _ranks(value.ravel(), second.ravel())
    number = int(rank.max()) + 1
    share = np.broadcast_to(levels.share[:, None], value.shape).ravel()

    def fractions(law: Floats) -> tuple[Floats, Floats]:
        """Of each rank, the fraction of servers at it or after, and after it."""
        g = np.bincount(rank, weights=law.ravel() * share, minlength=number)
        upto = np.append(np.cumsum(g[::-1])[::-1], 0.0)
        return upto[:-1], upto[1:]

    def offered(law: Floats) -> Floats:
        # (A^d - B^d) / (A - B) as a sum, so that rare ranks lose no digits.
        a, b = fractions(law)
        chosen = np.sum([a**j * b ** (d - 1 - j) for j in range(d)], axis=0)
        return np.asarray(levels.arrival_rate * chosen[rank].reshape(law.shape))

    def slope(law: Floats) -> Floats:
        a, b = fractions(law)
        nothing = np.zeros(number)
        by_a = sum((j * a ** (j - 1) * b ** (d - 1 - j) for j in range(1, d)), nothing)
        by_b = sum((j * b ** (j - 1) * a ** (d - 1 - j) for j in range(1, d)), nothing)
        of, by = rank[:, None], rank[None, :]
        found = by_a[of] * (by >= of) + by_b[of] * (by > of)
        return np.asarray(levels.arrival_rate * found * share)

    return Offered(offered, slope)


def _ranks(value: Floats, second: Floats) -> NDArray[np.int64]:
    """Ranks by value, then by `second`, equal ones sharing theirs."""
    order = np.lexsort((second, np.round(value, 10)))
    v, s = value[order], second[order]
    new = (np.diff(v) > 1e-9 * np.abs(v[1:])) | (s[1:] != s[:-1])
    rank = np.empty(len(v), dtype=np.int64)
    rank[order] = np.concatenate([[0], np.cumsum(new)])
    return rank


def _searching(levels: Levels, the_plan: Plan) -> Migrations:
    """Local search: each job looks at a uniform server at rate beta."""
    assert the_plan.search is not None
    q, system = levels.q[0], levels.system
    speeds = np.array([p.speed for p in system.pools])[:, None]
    share, beta = levels.share, system.migration_rate
    here = (speeds[:, :, None, None], q[None, :, None, None])
    allowed = gains(the_plan.search, here, (speeds[None, None], q[None, None, None]))
    goes = (allowed & levels.room).astype(float).reshape(2 * (len(speeds) * len(q),))
    held = np.repeat(share, len(q))  # per law: servers at each level, in all
    jobs = np.tile(q, len(speeds))
    return Migrations(beta * goes.T * (held * jobs), beta * jobs[:, None] * goes * held)


def _stationary(births: Floats, deaths: Floats) -> Floats:
    """Laws of birth-death chains, one a row; births from k, deaths from k."""
    with np.errstate(divide="ignore"):
        steps = np.log(births[:, :-1]) - np.log(deaths[:, 1:])
    logs = np.cumsum(np.pad(steps, ((0, 0), (1, 0))), axis=1)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


@dataclass(frozen=True)
class Equations:
    """The differential equation of the law, with a part of the arrivals.

    part : of the arrivals that come
    """

    levels: Levels
    offered: Offered
    migrations: Migrations | None
    part: float = 1.0

    def rates(self, law: Floats) -> tuple[Floats, Floats]:
        """Births and deaths at each level when the fractions are as given."""
        room = self.levels.room
        births, deaths = self.part * self.offered(law) * room, self.levels.served
        if self.migrations is not None:
            into, out = self.migrations(law)
            births, deaths = births + into * room, deaths + out
        return births, deaths

    def slopes(self, law: Floats) -> tuple[Floats, Floats]:
        """Their derivatives by the law, (N, N) each."""
        room = self.levels.room.ravel()[:, None]
        births = self.part * self.offered.slope(law) * room
        if self.migrations is None:
            return births, np.zeros_like(births)
        return births + self.migrations.into * room, self.migrations.out

    def again(self, law: Floats) -> Floats:
        """The stationary law of the rates that a law gives."""
        return _stationary(*self.rates(law))


def _drift(law: Floats, births: Floats, deaths: Floats) -> Floats:
    """How the law changes per unit time."""
    flow = births[:, :-1] * law[:, :-1] - deaths[:, 1:] * law[:, 1:]
    return np.asarray(-np.diff(np.pad(flow, ((0, 0), (1, 1))), axis=1))


def _drift_slope(law: Floats, births: Floats, deaths: Floats, slopes: tuple[Any, Any]) -> Floats:
    """Its derivatives by the law, (N, N)."""
    last = law.shape[1] - 1
    up = np.diag(births.ravel()) + law.ravel()[:, None] * slopes[0]
    down = np.diag(deaths.ravel()) + law.ravel()[:, None] * slopes[1]
    up[last :: last + 1] = 0.0  # nobody is born beyond the last level
    down[:: last + 1] = 0.0
    return np.asarray(np.roll(up, 1, axis=0) - up + np.roll(down, -1, axis=0) - down)


def _newton(equations: Equations, law: Floats) -> tuple[Floats, float]:
    """The law that stays, by Newton's method, and its last change; infinite far from it."""
    levels = law.shape[1]
    first = np.arange(0, law.size, levels)
    total = np.repeat(np.eye(len(law)), levels, axis=1)  # each pool's law keeps its sum
    moved = math.inf
    for _ in range(_NEWTON):
        births, deaths = equations.rates(law)
        matrix = _drift_slope(law, births, deaths, equations.slopes(law))
        known = -_drift(law, births, deaths).ravel()
        matrix[first], known[first] = total, 0.0
        try:
            change = np.linalg.solve(matrix, known).reshape(law.shape)
        except np.linalg.LinAlgError:
            return law, math.inf
        law = np.maximum(law + change, 0.0)
        law /= law.sum(axis=1, keepdims=True)
        before, moved = moved, float(np.abs(change).max())
        if moved < _SETTLED and moved > before / 2:  # as small as rounding lets it become
            break
    return law, moved if moved < _SETTLED else math.inf


def _continued(equations: Equations) -> tuple[Floats, float]:
    """The fixed point, followed from a system without arrivals to all of them."""
    levels = equations.levels
    law = np.tile(np.eye(1, levels.levels + 1), (len(levels.share), 1))
    part, step, error = 0.0, 0.25, math.inf
    while part < 1 and step > _SHORTEST:
        next_part = min(part + step, 1.0)
        there, error = _newton(replace(equations, part=next_part), law)
        if math.isfinite(error):
            law, part, step = there, next_part, 1.5 * step
        else:
            step /= 2
    return law, error


def _fixed_point(equations: Equations, law: Floats) -> tuple[Floats, float]:
    """A law that reproduces itself, and the change that one more iteration makes.

    At first each pool takes the stationary law of the rates that the present law gives. Should
    that not converge, Newton's method follows the law from a system without arrivals.
    """
    law, error = anderson(equations.again, law, _ITERATIONS)
    if error >= _ACCURATE and law.size <= _MOST_UNKNOWNS:
        law, error = _continued(equations)
    return law, error


def anderson(again: Map, law: Floats, iterations: int) -> tuple[Floats, float]:
    """Iterate, with Anderson's extrapolation (Walker and Ni 2011)."""
    xs: list[Floats] = []
    changes: list[Floats] = []
    error = math.inf
    for _ in range(iterations):
        change = again(law) - law
        error = float(np.abs(change).max())
        if error < _ACCURATE:
            break
        xs, changes = [*xs[-6:], law.ravel()], [*changes[-6:], change.ravel()]
        law = extrapolated(xs, changes).reshape(law.shape)
        law = np.maximum(law, 0.0)
        law /= law.sum(axis=1, keepdims=True)
    return law, error


def extrapolated(xs: Sequence[Floats], changes: Sequence[Floats]) -> Floats:
    """The combination of past steps whose changes cancel best, plus a damped change."""
    x, change = xs[-1], changes[-1]
    if len(xs) > 1:
        moved = np.diff(np.array(xs), axis=0).T
        differed = np.diff(np.array(changes), axis=0).T
        weights, *_ = np.linalg.lstsq(differed, change, rcond=1e-10)
        x, change = x - moved @ weights, change - differed @ weights
    return np.asarray(x + 0.5 * change, dtype=np.float64)


# --- results --------------------------------------------------------------------------------------
def _trimmed(tail: Floats) -> list[float]:
    return [float(x) for x in tail[: np.flatnonzero(tail > 0)[-1] + 1]]


@dataclass(frozen=True)
class _Limit:
    """A law and what happens per arrival: jobs lost, jobs that wait, messages, migrations."""

    levels: Levels
    law: Floats
    lost: float = 0.0
    waits: float = 0.0
    messages: float = 0.0
    withdrawals: float = 0.0
    migrations: float = 0.0
    error: float = 0.0


def _result(limit: _Limit, name: str, begun: float) -> MeanField:
    levels, law = limit.levels, limit.law
    system, share = levels.system, levels.share
    slots = np.array([[p.slots] for p in system.pools])
    jobs = (law * levels.q).sum(axis=1)
    per_server = float(share @ jobs)
    busy = (law * np.minimum(levels.q, slots)).sum(axis=1) / slots[:, 0]
    weights = [p.servers * p.slots * p.speed for p in system.pools]
    tails = np.cumsum(law[:, ::-1], axis=1)[:, ::-1]
    per_job = per_server / levels.arrival_rate
    return MeanField(
        system=system,
        policy=name,
        cost=per_job + system.default_loss_charge * limit.lost,
        response_time=per_job / (1 - limit.lost),
        waiting_probability=limit.waits / (1 - limit.lost),
        blocking_probability=limit.lost,
        jobs_in_system=per_server * system.servers,
        jobs_per_server=per_server,
        jobs_per_pool=tuple(float(x * p.servers) for x, p in zip(jobs, system.pools, strict=True)),
        messages_per_job=limit.messages,
        withdrawals_per_job=limit.withdrawals,
        migrations_per_job=limit.migrations,
        utilization=float(np.average(busy, weights=weights)),
        utilization_per_pool=tuple(float(x) for x in busy),
        queue_tail={"all": _trimmed(share @ tails), "pools": [_trimmed(t) for t in tails]},
        error=limit.error,
        seconds=time.perf_counter() - begun,
    )


# --- PULL -----------------------------------------------------------------------------------------
def _equal_routers(system: System, place: Pull) -> _Limit:
    """Every job finds an idle server: of all alike, or of the fastest that are not all busy."""
    pools, levels = system.pools, Levels(system, 1)
    rates = [p.speed / system.mean_size for p in pools]
    needed, capacity = levels.arrival_rate, float(levels.share @ np.array(rates))
    if needed >= capacity:
        raise ValueError(
            f"mean_field: the limit of PULL has one job a server, which carries an arrival rate of "
            f"{capacity * system.servers:g}, got {system.arrival_rate:g}; lower the load"
        )
    if len(set(place.preference.tolist())) == 1:
        busy = pull_busy(needed, rates, levels.share.tolist())
    else:
        busy = _fastest_first(needed, rates, levels.share.tolist())
    return _Limit(levels, np.array([[1 - b, b] for b in busy]), messages=1.0)


def _fastest_first(needed: float, rates: Sequence[float], share: Sequence[float]) -> list[float]:
    """Busy fractions when the fastest idle servers always get the job."""
    busy = [0.0] * len(rates)
    for speed in sorted(set(rates), reverse=True):
        alike = [k for k, rate in enumerate(rates) if rate == speed]
        part = sum(share[k] for k in alike) * speed
        for k in alike:
            busy[k] = min(max(needed / part, 0.0), 1.0)
        needed -= part
    return busy


def _unequal_routers(system: System, the_plan: Plan) -> _Limit:
    """Equal servers: those busy get the jobs of routers without messages, at an even rate."""
    pool = system.pools[0]
    plain = (
        len(system.pools) == 1
        and pool.limit is None
        and pool.slots == 1
        and system.message_fate == "withdraw"
        and isinstance(the_plan.place, Pull)
        and isinstance(the_plan.place.fallback, Static)
        and len(set(the_plan.place.fallback.p.tolist())) == 1
    )
    if not plain:
        raise ValueError(
            "mean_field: with unequal routers PULL's limit is known for one pool of single-slot "
            "servers without limits, fate withdraw and the random fallback; take equal routers"
        )
    load = system.load
    if load >= 1:
        raise ValueError(f"mean_field: needs a load below 1, got {load:g}")
    wait = unequal_routers(load, system.router_weights)
    count = _FIRST_LEVELS
    while wait**count > _NEGLIGIBLE:  # births at busy servers over deaths
        count *= 2
    levels = Levels(system, count)
    tail = np.concatenate([[1.0], load * wait ** np.arange(count)])
    law = np.append(-np.diff(tail), tail[-1])[None, :]
    withdrawn = wait / load * (1 - load)  # jobs sent at random that find an idle server
    return _Limit(levels, law, 0.0, wait, 1 - wait + withdrawn, withdrawn)


# --- the answer -----------------------------------------------------------------------------------
@by_kind
def mean_field(system: Any, policy: Any) -> MeanField:
    """The limit of a policy as the number of servers grows, pools in the system's proportions; of
    car sharing, as the number of stations grows with as many cars a station.

    Parameters
    ----------
    system
        A system of any kind, its dict, a scenario's name or the path of a TOML file.
    policy
        Jobs at servers: pull, jiq, random, weighted-random, static, jsq(d), sed(d), local-search;
        max-vacancy(d) where servers have units; local-choice on a ring (pair approximation). Car
        sharing: requested, stations alike. Flow networks have none.

    Returns
    -------
    MeanField
        Of jobs at servers; `LossMeanField` where they have units.
    CarSharingLimit
        Of car sharing.

    Raises
    ------
    ValueError
        For a policy without such a limit, and an unstable one.
    """
    begun = time.perf_counter()
    system.require_memoryless("mean_field")
    if system.has_units:
        from .loss import loss_mean_field  # which is made of what stands here

        return loss_mean_field(system, policy)
    if system.read_interval is not None or system.closed_jobs is not None:
        raise ValueError("mean_field: none is known with a read_interval or closed_jobs; simulate")
    if system.graph is not None:
        from .graph import pair_approximation

        return pair_approximation(system, policy)
    the_plan = plan(system, policy)
    if isinstance(the_plan.place, Pull):
        _only_plain_pull(the_plan)
        equal = max(system.router_weights) <= min(system.router_weights) * (1 + 1e-12)
        if equal:
            limit = _equal_routers(system, the_plan.place)
        else:
            limit = _unequal_routers(system, the_plan)
    else:
        _check_stable(system, the_plan)
        limit = _iterated(system, the_plan)
    return _result(limit, the_plan.name, begun)


def _only_plain_pull(the_plan: Plan) -> None:
    if the_plan.allowed is not None or the_plan.router_samples > 1:
        raise ValueError(
            f"mean_field: none is known for {the_plan.name}; known for pull and jiq, random, "
            "weighted-random, static, jsq(d), sed(d) and local-search"
        )


def _offered(levels: Levels, the_plan: Plan) -> Offered:
    place = the_plan.place
    if isinstance(place, Static):
        return _by_pool(levels, place)
    if isinstance(place, Least) and place.d is not None and "lowest" not in the_plan.name:
        return _by_samples(levels, place)
    raise ValueError(
        f"mean_field: {the_plan.name} has none, because its choice depends on more than the "
        "fractions of servers at each length; known for random, weighted-random, static, jsq(d), "
        "sed(d), pull, jiq and local-search"
    )


def _check_stable(system: System, the_plan: Plan) -> None:
    """Refuse what has no stationary limit; the finite system's criterion for d < n."""
    _offered(Levels(system, 2), the_plan)
    if any(p.limit is not None for p in system.pools):
        return
    place = the_plan.place
    rates = np.array([p.speed * p.slots / system.mean_size for p in system.pools])
    levels = Levels(system, 2)
    if the_plan.allowed is not None:
        loads = [levels.arrival_rate / float(levels.share @ rates)]
    elif isinstance(place, Static):
        offered = _by_pool(levels, place)(np.zeros((len(rates), 3)))[:, 0]
        loads = (offered / rates).tolist()
    else:
        assert isinstance(place, Least)
        assert place.d is not None
        slowest = np.argsort(rates)
        part = np.cumsum(levels.share[slowest])
        served = np.cumsum((levels.share * rates)[slowest])
        loads = (levels.arrival_rate * part**place.d / served).tolist()
    if max(loads) >= 1:
        raise ValueError(
            f"mean_field: {the_plan.name} is not stable here: some servers get {max(loads):.4g} "
            "times what they can serve; lower the load"
        )


def _iterated(system: System, the_plan: Plan) -> _Limit:
    """The fixed point, with levels doubled until the last hardly matters."""
    endless = [k for k, p in enumerate(system.pools) if p.limit is None]
    count = max([_FIRST_LEVELS if endless else 1, *(p.limit or 1 for p in system.pools)])
    while True:
        levels = Levels(system, count)
        offered = _offered(levels, the_plan)
        migrations = None if the_plan.allowed is None else _searching(levels, the_plan)
        law, error = _fixed_point(Equations(levels, offered, migrations), _start(levels))
        if not endless or law[endless, -1].max() < _NEGLIGIBLE or count >= _MOST_LEVELS:
            break
        count *= 2
    if error > _POOR:
        raise ArithmeticError(f"mean_field: {the_plan.name} did not converge (error {error:.1e})")
    return _counted(levels, the_plan, law, offered, migrations, error)


def _counted(
    levels: Levels,
    the_plan: Plan,
    law: Floats,
    offered: Offered,
    migrations: Migrations | None,
    error: float,
) -> _Limit:
    """What happens per arrival under a law."""
    held = law * levels.share[:, None]
    chances = held * offered(law) / levels.arrival_rate
    slots = np.array([[p.slots] for p in levels.system.pools])
    moves = looks = 0.0
    if migrations is not None:
        moves = float((migrations(law)[1] * held).sum()) / levels.arrival_rate
    if the_plan.looks:
        beta = levels.system.migration_rate
        looks = beta * float((held * levels.q).sum()) / levels.arrival_rate
    d = the_plan.place.d if isinstance(the_plan.place, Least) else None
    return _Limit(
        levels,
        law,
        lost=float((chances * ~levels.room).sum()) if not levels.endless else 0.0,
        waits=float((chances * (levels.room & (levels.q >= slots))).sum()),
        messages=2.0 * (d or 0) + 2.0 * looks,
        migrations=moves,
        error=error,
    )


def _start(levels: Levels) -> Floats:
    """Geometric laws of the system's load."""
    load = min(levels.system.load, 0.95)
    law = np.where(levels.q <= levels.limits, load**levels.q, 0.0)
    return np.asarray(law / law.sum(axis=1, keepdims=True), dtype=np.float64)


# --- fluctuations ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Fluctuations:
    """sqrt(N) (u^N - u) is asymptotically Gaussian; u_k: fraction of servers with >= k jobs.

    tail : (C,) u_1 .. u_C; covariance : (C, C), of which N Cov(u^N) is near; mean : (C,)
    variance_of_total : of sum_k u_k, that is N Var of the mean number of jobs a server
    """

    tail: Floats
    covariance: Floats
    mean: Floats
    variance_of_total: float


def ou_covariance(load: float, capacity: int, d: int, beta: float = 0.0) -> Fluctuations:
    """Stationary fluctuations of JSQ(d) Erlang loss: N servers of C slots, no waiting room.

    Arrival rate per server ``load - beta / sqrt(N)``, service rate 1. With A the Jacobian of the
    mean field and B = diag(load (u_{k-1}^d - u_k^d) + k (u_k - u_{k+1})), A S + S A' + B = 0; the
    mean is beta A^{-1} (u_{k-1}^d - u_k^d) (Vasantam and Mazumdar, J. Appl. Prob. 58, 2021).

    Capacity at most 1,000 (10 s).
    """
    from scipy.linalg import solve_continuous_lyapunov

    capacity = integer("capacity", capacity, most=_MOST_CAPACITY)
    beta = finite("beta", beta)
    system = System(Pool(1, slots=capacity, limit=capacity), arrival_rate=load, replace=True)
    tail = np.pad(mean_field(system, f"jsq({d})").queue_tail["all"], (0, capacity))
    u = tail[: capacity + 2]  # u_0 .. u_{C+1}
    k = np.arange(1, capacity + 1)
    joins = u[:-2] ** d - u[1:-1] ** d
    a = np.diag(-load * d * u[1:-1] ** (d - 1) - k)
    a += np.diag(load * d * u[1:-2] ** (d - 1), -1) + np.diag(k[:-1].astype(float), 1)
    noise = np.diag(load * joins + k * (u[1:-1] - u[2:]))
    covariance = solve_continuous_lyapunov(a, -noise)
    mean = beta * np.linalg.solve(a, joins)
    return Fluctuations(u[1:-1], covariance, mean, float(covariance.sum()))
