"""Loss systems with classes: jobs of class k occupy A_k units of a server of C_i units.

MODELS section 4 (Mukhopadhyay, Karthik, Mazumdar and Guillemin, Perf. Eval. 91, 2015). `exact_loss`
solves the chain of every server's numbers of jobs by class; `loss_mean_field` the limit of many
servers, in which a server of vacancy v gets class k at rate lambda_k a(v),
a(v) = (F(v)^d - F(v-1)^d) / P(V = v), F the law of the vacancy over all servers.

Cost: 60,000 states 10 s; mean field: servers of up to 2,000 configurations, .1 s at 50.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbgym.policies.registry import Call, Policy, make, parse
from lbgym.system import Pool, System

from .chain import (
    Booleans,
    Chain,
    Floats,
    Integers,
    Moves,
    TooLarge,
    explore,
    generator,
    solver,
    stationary,
)
from .mean_field import MeanField, anderson
from .result import Exact
from .rules import BUILDERS, OPTIMAL, Groups, Static, alike, order_of, sampled_shares

MOST = 60_000  # states
MOST_KINDS = 2_000  # configurations of a server in a mean field
_ITERATIONS, _POOR = 500, 1e-9  # of a fixed point; a change of the law that is refused
_LARGEST_KEY = 1 << 62
_KNOWN = "max-vacancy, max-vacancy(d), best-fit, trunk-reservation, random, static, jsq, jsq(d)"

# Probability of each server, (m, n); all 0: refused. From vacancies, queue lengths and a class.
Shares = Callable[[Integers, Integers, int], Floats]


@dataclass(frozen=True, repr=False)
class ExactLoss(Exact):
    """An exact loss system.

    blocking_by_class : lost jobs of each class over its arrivals
    weighted_loss : lost weight per arrival (cost with a loss charge of 1)
    jobs_by_class : mean number in system
    utilization : share of the units in use
    """

    blocking_by_class: tuple[float, ...] = ()
    weighted_loss: float = math.nan
    jobs_by_class: tuple[float, ...] = ()

    def __repr__(self) -> str:
        lost = ", ".join(f"{x:.9g}" for x in self.blocking_by_class)
        lines = [f"  blocking_by_class      {lost}", f"  weighted_loss          {self.cost:.9g}"]
        return "\n".join([super().__repr__(), *lines])


@dataclass(frozen=True)
class LossMeanField(MeanField):
    """The limit of a loss system; fields as in `ExactLoss`, jobs_by_class per server."""

    blocking_by_class: tuple[float, ...] = ()
    weighted_loss: float = math.nan
    jobs_by_class: tuple[float, ...] = ()


# --- servers and classes --------------------------------------------------------------------------
@dataclass(frozen=True)
class Classes:
    """The classes as arrays: arrival rates, rates of departure, units, weights, shares."""

    arrivals: Floats
    served: Floats
    units: Integers
    weights: Floats
    shares: Floats

    @classmethod
    def of(cls, system: System) -> Classes:
        kinds = system.classes or ()
        shares = np.array(system.class_shares)
        return cls(
            arrivals=shares * system.arrival_rate,
            served=1 / np.array([c.mean_size for c in kinds]),
            units=np.array([c.units for c in kinds], dtype=np.int64),
            weights=np.array([c.weight for c in kinds]),
            shares=shares,
        )


def number_of_contents(units: int, needs: Integers) -> int:
    """How many ways there are to fill a server: vectors n >= 0 with sum A_k n_k <= units."""
    ways = [1] + [0] * units
    for need in needs.tolist():
        for k in range(need, units + 1):
            ways[k] += ways[k - need]
    return sum(ways)


class Contents:
    """What a server may hold: its possible numbers of jobs by class, and steps between them.

    jobs : (kinds, classes); vacancy : (kinds,)
    more, fewer : (classes, kinds) the kind with one more or one fewer job of a class, or -1
    """

    def __init__(self, units: int, needs: Integers) -> None:
        rows: list[tuple[int, ...]] = [()]
        for need in needs.tolist():
            rows = [
                (*row, k)
                for row in rows
                for k in range((units - self._used(row, needs)) // need + 1)
            ]
        place = {row: k for k, row in enumerate(rows)}
        self.jobs = np.array(rows, dtype=np.int64)
        self.vacancy = units - self.jobs @ needs
        self.more = self._steps(place, +1)
        self.fewer = self._steps(place, -1)

    @staticmethod
    def _used(row: tuple[int, ...], needs: Integers) -> int:
        return sum(n * int(need) for n, need in zip(row, needs, strict=False))

    def _steps(self, place: dict[tuple[int, ...], int], by: int) -> Integers:
        rows = self.jobs.tolist()
        steps = [
            [place.get((*row[:k], row[k] + by, *row[k + 1 :]), -1) for row in rows]
            for k in range(self.jobs.shape[1])
        ]
        return np.array(steps, dtype=np.int64)


# --- policies -------------------------------------------------------------------------------------
def _max_vacancy(system: System, d: Any = None) -> Shares:
    size = system.servers if d is None else int(d)
    replace = system.replace and d is not None
    flat = np.zeros(system.servers)

    def shares(vacancy: Integers, q: Integers, k: int) -> Floats:
        before, tied = order_of(-vacancy.astype(float), flat)
        return sampled_shares(before, tied, size, replace)

    return shares


def _tightest(vacancy: Integers, need: int) -> Floats:
    fits = vacancy >= need
    tightness = np.where(fits, vacancy, np.iinfo(np.int64).max)
    chosen = fits & (tightness == tightness.min(axis=1, keepdims=True))
    return np.asarray(chosen / np.maximum(chosen.sum(axis=1, keepdims=True), 1))


def _best_fit(system: System) -> Shares:
    units = Classes.of(system).units
    return lambda vacancy, q, k: _tightest(vacancy, int(units[k]))


def _trunk_reservation(system: System, *thresholds: float) -> Shares:
    units = Classes.of(system).units

    def shares(vacancy: Integers, q: Integers, k: int) -> Floats:
        spare = vacancy.sum(axis=1) - units[k] >= thresholds[k]
        return np.asarray(_tightest(vacancy, int(units[k])) * spare[:, None])

    return shares


_RULES: dict[str, Callable[..., Shares]] = {
    "max-vacancy": _max_vacancy,
    "best-fit": _best_fit,
    "trunk-reservation": _trunk_reservation,
}


def _rule(system: System, call: Call, name: str) -> tuple[Shares, Groups, int]:
    """Probabilities, interchangeable servers, and how many servers a job asks."""
    n = system.servers
    if call.name in _RULES:
        asked = int(call.positional[0]) if call.name == "max-vacancy" and call.positional else n
        shares = _RULES[call.name](system, *call.positional)
        return shares, alike(system.pool_of_server), asked
    if call.name not in BUILDERS or call.name in ("pull", "jiq", "jiq-sq", "threshold", "fpi"):
        raise ValueError(f"policy {name}: theory has no loss system for it; it knows {_KNOWN}")
    plan = BUILDERS[call.name](system, *call.positional, **call.keywords)
    asked = 0 if isinstance(plan.place, Static) else getattr(plan.place, "d", None) or n
    return lambda vacancy, q, k: plan.place.shares(q, None)[0], plan.groups, asked


# --- exact ----------------------------------------------------------------------------------------
class LossModel:
    """A loss system as a `chain.Model`: each server's kind, sorted within groups."""

    def __init__(self, system: System, shares: Shares, groups: Groups) -> None:
        self.classes = Classes.of(system)
        self.shares = shares
        self.groups = [list(group) for group in groups]
        self.pools = system.pool_of_server
        needs = self.classes.units
        self.contents: list[Contents] = [Contents(p.units or 0, needs) for p in system.pools]
        self.sizes = [len(self.contents[p].vacancy) for p in self.pools]
        if math.prod(self.sizes) >= _LARGEST_KEY:
            raise TooLarge(number_of_states(system, groups))

    def server(self, i: int) -> Contents:
        return self.contents[int(self.pools[i])]

    def vacancies(self, states: Integers) -> Integers:
        return np.stack([self.server(i).vacancy[x] for i, x in enumerate(states.T)], axis=1)

    def queues(self, states: Integers) -> Integers:
        """(m, n) numbers of jobs of all classes."""
        columns = [self.server(i).jobs[x].sum(axis=1) for i, x in enumerate(states.T)]
        return np.stack(columns, axis=1)

    def start(self) -> Integers:
        return np.zeros((1, len(self.pools)), dtype=np.int64)

    def canonical(self, states: Integers) -> Integers:
        for group in self.groups:
            if len(group) > 1:
                states[:, group] = np.sort(states[:, group], axis=1)
        return states

    def keys(self, states: Integers) -> Integers:
        keys = np.zeros(len(states), dtype=np.int64)
        for column, size in zip(states.T, self.sizes, strict=True):
            keys = keys * size + column
        return keys

    def inside(self, states: Integers) -> Booleans:
        return np.ones(len(states), dtype=bool)

    def sharing(self, states: Integers, k: int) -> Floats:
        """The probability of each server for a job of class k; shape (m, n)."""
        return self.shares(self.vacancies(states), self.queues(states), k)

    def moves(self, states: Integers) -> Iterator[Moves]:
        rows = np.arange(len(states))
        for k in range(len(self.classes.units)):
            shares = self.sharing(states, k)
            rate = shares * self.classes.arrivals[k]
            refused = np.maximum(1 - shares.sum(axis=1), 0.0)
            yield Moves(rows, self.classes.arrivals[k] * refused, None, {f"lost {k}": 1.0})
            for i in range(len(self.pools)):
                yield from self._joins(states, i, k, rate[:, i])
                yield from self.leaves(states, i, k)

    def _joins(self, states: Integers, i: int, k: int, rate: Floats) -> Iterator[Moves]:
        after = self.server(i).more[k][states[:, i]]
        lost = np.flatnonzero((after < 0) & (rate > 0))
        yield Moves(lost, rate[lost], None, {f"lost {k}": 1.0})
        rows = np.flatnonzero((after >= 0) & (rate > 0))
        target = states[rows]
        target[:, i] = after[rows]
        yield Moves(rows, rate[rows], target)

    def leaves(self, states: Integers, i: int, k: int) -> Iterator[Moves]:
        """Jobs of a class that are done at a server."""
        jobs = self.server(i).jobs[states[:, i], k]
        rows = np.flatnonzero(jobs)
        target = states[rows]
        target[:, i] = self.server(i).fewer[k][target[:, i]]
        yield Moves(rows, jobs[rows] * self.classes.served[k], target)


def number_of_states(system: System, groups: Groups) -> int:
    """How many states the servers have, alike ones in any order."""
    needs, number = Classes.of(system).units, 1
    for group in groups:
        units = system.pools[system.pool_of_server[group[0]]].units or 0
        number *= math.comb(number_of_contents(units, needs) + len(group) - 1, len(group))
    return number


def exact_loss(system: System, policy: Any, loss_charge: float | None = None) -> Exact:
    """The stationary numbers of a small loss system with classes.

    Raises ValueError if it is too large (with the number of its states).
    """
    begun = time.perf_counter()
    refuse_others(system, "exact")
    if isinstance(policy, Policy) and policy.name == OPTIMAL:
        return _exact_optimum(system, policy, loss_charge)
    bound = make(policy, system)
    name = bound.name or repr(policy)
    shares, groups, asked = _rule(system, _call(bound.name), name)
    number = number_of_states(system, groups)
    if number > MOST:
        size = f"{number:,}" if number < 10**15 else f"{float(number):.1e}"
        raise ValueError(
            f"exact: {name} on {system.servers:,} servers with units has {size} states, at most "
            f"{MOST:,} can be solved; take fewer servers, units or classes, or use simulate or, "
            "for max-vacancy(d), mean_field"
        )
    model = LossModel(system, shares, groups)
    chain = explore(model, MOST)
    pi, residual = stationary(chain)
    result = exact_result(system, model, chain, pi, name, 2.0 * asked, loss_charge)
    return _finished(result, residual, time.perf_counter() - begun)


def _exact_optimum(system: System, policy: Policy, loss_charge: float | None) -> ExactLoss:
    from .optimal_loss import exact_table
    from .table import content_table

    if policy.system != system:
        raise ValueError("policy optimal: it belongs to another system; ask optimal for this")
    return exact_table(system, content_table(policy), loss_charge)


def refuse_others(system: System, what: str) -> None:
    """Raise ValueError for what has no chain here."""
    if system.read_interval is not None or system.graph is not None:
        raise ValueError(f"{what}: units with a read_interval or a graph are not known; simulate")


def _call(name: str) -> Call:
    try:
        return parse(name)
    except ValueError:
        return Call("")


def _finished(result: ExactLoss, residual: float, seconds: float) -> ExactLoss:
    return replace(result, residual=residual, seconds=seconds)


def exact_result(
    system: System,
    model: LossModel,
    chain: Chain,
    pi: Floats,
    name: str,
    messages: float,
    loss_charge: float | None,
) -> ExactLoss:
    """The numbers of a solved chain; messages: per arrival."""
    classes = model.classes
    states = chain.states
    lost = np.array([_rate(chain, pi, f"lost {k}") for k in range(len(classes.units))])
    by_class = np.array(
        [
            sum(pi @ model.server(i).jobs[states[:, i], k] for i in range(system.servers))
            for k in range(len(classes.units))
        ]
    )
    laws = _laws(model, states, pi)
    tails = [_tail(model.server(i).jobs.sum(axis=1), laws[i]) for i in range(system.servers)]
    used = np.array(
        [
            1 - laws[i] @ model.server(i).vacancy / (system.pools[model.pools[i]].units or 1)
            for i in range(system.servers)
        ]
    )
    per_server = np.array([tail[1:].sum() for tail in tails])
    accepted = float(system.arrival_rate - lost.sum())
    charge = system.default_loss_charge if loss_charge is None else float(loss_charge)
    weighted = float(lost @ classes.weights) / system.arrival_rate
    members = [np.flatnonzero(model.pools == p) for p in range(len(system.pools))]
    units = np.array([p.units or 0 for p in system.pools])[model.pools]
    return ExactLoss(
        system=system,
        policy=name,
        loss_charge=charge,
        move_cost=0.0,
        cost=charge * weighted,
        response_time=float(by_class.sum()) / accepted,
        waiting_probability=0.0,
        blocking_probability=float(lost.sum()) / system.arrival_rate,
        jobs_in_system=float(by_class.sum()),
        messages_per_job=messages,
        withdrawals_per_job=0.0,
        migrations_per_job=0.0,
        utilization=float(np.average(used, weights=units)),
        utilization_per_pool=tuple(float(used[m].mean()) for m in members),
        jobs_per_server=tuple(float(x) for x in per_server),
        jobs_per_pool=tuple(float(per_server[m].sum()) for m in members),
        queue_tail={
            "all": _mean_tail(tails),
            "pools": [_mean_tail([tails[i] for i in m]) for m in members],
        },
        truncation_error=0.0,
        states=chain.size,
        cut=tuple(int(x) for x in system.limits),
        residual=0.0,
        seconds=0.0,
        blocking_by_class=tuple(float(x) for x in lost / classes.arrivals),
        weighted_loss=weighted,
        jobs_by_class=tuple(float(x) for x in by_class),
    )


def _rate(chain: Chain, pi: Floats, count: str) -> float:
    return float(pi @ chain.counts[count]) if count in chain.counts else 0.0


def _laws(model: LossModel, states: Integers, pi: Floats) -> list[Floats]:
    """Each server's law over its kinds; servers of a group share their mean."""
    laws: list[Floats] = [np.zeros(0)] * len(model.pools)
    for group in model.groups:
        counts = np.zeros(model.sizes[group[0]])
        for i in group:
            counts += np.bincount(states[:, i], weights=pi, minlength=len(counts))
        for i in group:
            laws[i] = counts / len(group)
    return laws


def _tail(jobs: Integers, law: Floats) -> Floats:
    counts = np.bincount(jobs, weights=law)
    return np.asarray(np.cumsum(counts[::-1])[::-1], dtype=np.float64)


def _mean_tail(tails: list[Floats]) -> list[float]:
    longest = max(map(len, tails))
    mean = np.mean([np.pad(tail, (0, longest - len(tail))) for tail in tails], axis=0)
    return [float(x) for x in mean if x > 0]


# --- mean field -----------------------------------------------------------------------------------
class _Limit:
    """Pools whose servers see each other through the law of the vacancy only."""

    def __init__(self, system: System, d: int) -> None:
        self.system, self.d = system, d
        self.classes = Classes.of(system)
        self.per_server = self.classes.arrivals / system.servers
        self.share = np.array([p.servers for p in system.pools]) / system.servers
        needs = self.classes.units
        self.contents = [Contents(p.units or 0, needs) for p in system.pools]
        self.width = max(len(c.vacancy) for c in self.contents)
        self.largest = max(p.units or 0 for p in system.pools)
        self.steps = [self._matrices(c) for c in self.contents]

    def _matrices(self, contents: Contents) -> tuple[Any, Any]:
        """Rates of departures, and of arrivals if a were 1; both kinds x kinds."""
        from scipy.sparse import coo_array

        size = len(contents.vacancy)
        up, down = coo_array((size, size)).tocsr(), coo_array((size, size)).tocsr()
        for k, (rate, served) in enumerate(zip(self.per_server, self.classes.served, strict=True)):
            rows = np.flatnonzero(contents.more[k] >= 0)
            to = contents.more[k][rows]
            up += coo_array((np.full(len(rows), rate), (rows, to)), shape=(size, size)).tocsr()
            leaving = contents.jobs[to, k] * served
            down += coo_array((leaving, (to, rows)), shape=(size, size)).tocsr()
        return down, up

    def vacancy(self, law: Floats) -> Floats:
        """(largest + 1,) law of the vacancy over all servers."""
        g = np.zeros(self.largest + 1)
        for p, contents in enumerate(self.contents):
            held = law[p, : len(contents.vacancy)] * self.share[p]
            g += np.bincount(contents.vacancy, weights=held, minlength=len(g))
        return g

    def offered(self, law: Floats) -> Floats:
        """a(v): the rate at which a server of each vacancy is chosen, over that of arrivals."""
        cdf = np.concatenate([[0.0], np.cumsum(self.vacancy(law))])
        powers = [cdf[1:] ** j * cdf[:-1] ** (self.d - 1 - j) for j in range(self.d)]
        return np.asarray(np.sum(powers, axis=0), dtype=np.float64)

    def again(self, law: Floats) -> Floats:
        """The stationary laws when others have the given ones."""
        from scipy.sparse import diags_array

        a = self.offered(law)
        after = np.zeros_like(law)
        for p, (contents, (down, up)) in enumerate(zip(self.contents, self.steps, strict=True)):
            flow = generator(down + diags_array(a[contents.vacancy]) @ up).T.tocsc()
            pi = np.ones(len(contents.vacancy))
            others = np.arange(1, len(pi))  # the empty server is the first
            into = -np.asarray(flow[others][:, [0]].todense()).ravel()
            pi[1:] = solver(flow[others][:, others])(into)
            after[p, : len(pi)] = pi / pi.sum()
        return after

    def begin(self) -> Floats:
        law = np.zeros((len(self.contents), self.width))
        for p, contents in enumerate(self.contents):
            law[p, : len(contents.vacancy)] = 1 / len(contents.vacancy)
        return law


def loss_mean_field(system: System, policy: Any) -> MeanField:
    """The limit of max-vacancy(d) (or random, d = 1) on pools of servers with units."""
    begun = time.perf_counter()
    refuse_others(system, "mean_field")
    bound = make(policy, system)
    name = bound.name or repr(policy)
    call = _call(bound.name)
    if call.name == "max-vacancy" and call.positional:
        d = int(call.positional[0])
    elif call.name == "random":
        d = 1
    else:
        raise ValueError(
            f"mean_field: {name} has none with units; known for max-vacancy(d) and random"
        )
    _refuse_wide(system)
    limit = _Limit(system, d)
    law, error = anderson(limit.again, limit.begin(), _ITERATIONS)
    if error > _POOR:
        raise ArithmeticError(f"mean_field: {name} did not converge (error {error:.1e})")
    return _limit_result(system, limit, law, error, name, time.perf_counter() - begun)


def _refuse_wide(system: System) -> None:
    needs = Classes.of(system).units
    kinds = max(number_of_contents(p.units or 0, needs) for p in system.pools)
    if kinds > MOST_KINDS:
        raise ValueError(
            f"mean_field: a server may be filled in {kinds:,} ways, at most {MOST_KINDS:,} can be "
            "solved; take fewer units or classes, or simulate"
        )


def _limit_result(
    system: System, limit: _Limit, law: Floats, error: float, name: str, seconds: float
) -> LossMeanField:
    classes = limit.classes
    cdf = np.cumsum(limit.vacancy(law))
    lost = cdf[classes.units - 1] ** limit.d
    laws = [law[p, : len(c.vacancy)] for p, c in enumerate(limit.contents)]
    by_pool = np.array([x @ c.jobs for x, c in zip(laws, limit.contents, strict=True)])
    by_class = limit.share @ by_pool
    tails = [_tail(c.jobs.sum(axis=1), x) for x, c in zip(laws, limit.contents, strict=True)]
    longest = max(map(len, tails))
    padded = np.array([np.pad(tail, (0, longest - len(tail))) for tail in tails])
    blocked, weighted = float(classes.shares @ lost), float(classes.shares * classes.weights @ lost)
    jobs = float(by_class.sum())
    units = [_units(p) for p in system.pools]
    used = np.array(
        [1 - float(x @ c.vacancy) / u for x, c, u in zip(laws, limit.contents, units, strict=True)]
    )
    return LossMeanField(
        system=system,
        policy=name,
        cost=system.default_loss_charge * weighted,
        response_time=jobs / float(limit.per_server @ (1 - lost)),
        waiting_probability=0.0,
        blocking_probability=blocked,
        jobs_in_system=jobs * system.servers,
        jobs_per_server=jobs,
        jobs_per_pool=tuple(
            float(row.sum()) * p.servers for row, p in zip(by_pool, system.pools, strict=True)
        ),
        messages_per_job=0.0 if name == "random" else 2.0 * limit.d,
        withdrawals_per_job=0.0,
        migrations_per_job=0.0,
        utilization=float(np.average(used, weights=limit.share * np.array(units))),
        utilization_per_pool=tuple(float(x) for x in used),
        queue_tail={
            "all": [float(x) for x in limit.share @ padded],
            "pools": [[float(x) for x in tail] for tail in tails],
        },
        error=error,
        seconds=seconds,
        blocking_by_class=tuple(float(x) for x in lost),
        weighted_loss=weighted,
        jobs_by_class=tuple(float(x) for x in by_class),
    )


def _units(pool: Pool) -> int:
    return pool.units or 1
