"""Theory of car sharing: exact solutions, the optimum, the limit of many stations, the best fleet.

*Exact* and *optimal*: the chain of reserved spaces and parked cars at every station, r and v (with
trip rates that depend on the origin: of the cars on the road between every two stations). States:
1,608 for 4 stations of 3 spaces and 7 cars, 11,085 for 5 and 8, 50,553 for 5 stations of 4 spaces
and 10 cars. `exact` takes up to 60,000 (1 min, .5 GB), `optimal` up to 10,000 (10 s).

*Mean field* (N stations alike, M cars, N -> infinity, s = M / N; the requested destination): r and
v of a station have the law

    pi(r, v) ~ (L / mu)^r / r! (L / (lambda p))^v   on r + v <= K,

L = lambda P(v > 0), p = P(r + v < K); the free parameter is fixed by E[r + v] = s. The fleet of
fewest problematic stations and of most accepted users has P(v = 0) = P(r + v = K), that is
s = K / 2 + E[r] / 2 (MODELS section 7, derived from Fricker, Mohamed and Bourdais).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbgym.models.car_engine import even_start, make, table_keys, table_rule
from lbgym.models.car_sharing import CarSharing
from lbgym.models.machine import Rule

from .chain import Booleans, Chain, Floats, Integers, Moves, TooLarge, explore, stationary
from .control import Answer, Control, least_cost, recurrent
from .result import Numbers

MOST_STATES = 60_000
MOST_DECIDED = 10_000
_HOPELESS, _MANY_SPACES = 20, 3_000  # times too many states; spaces whose states are counted
_LARGEST_KEY = 1 << 62
_SAME = 1e-12  # relative; values closer than this tie

# Policies whose chain is known.
KNOWN = ("requested", "two-choice", "least-occupied", "least-parked", "least-per-demand")
Shares = Callable[[Integers, Integers, int], Floats]


@dataclass(frozen=True, repr=False)
class CarSharingNumbers(Numbers):
    """Long-run means; names as in `simulate`'s result, plain floats.

    policy : its name, or the optimal policy itself
    cost : 1 - accepted
    no_car, no_space, both : share of the stations without a car, without a space, with neither
    problematic : without a car or without a space
    accepted : share of the users
    cars_on_road : mean number of them
    states, residual, seconds : of the chain
    """

    system: CarSharing
    policy: Any
    cost: float
    no_car: float
    no_space: float
    both: float
    problematic: float
    accepted: float
    cars_on_road: float
    states: int
    residual: float
    seconds: float
    truncation_error: float = 0.0


@dataclass(frozen=True, repr=False)
class CarSharingOptimum(CarSharingNumbers):
    """The optimum; `policy` attains it (`simulate` and `exact` take it).

    error : the proven distance of `accepted` from the most, in users per unit time
    objective : what is most
    """

    error: float = 0.0
    iterations: int = 0
    objective: str = "accepted"


# --- what the policies do, independently of the compiled rules ------------------------------------
def _uniform(system: CarSharing, i: int) -> Floats:
    """(N,) any station alike."""
    shares = np.full(system.stations, 1.0)
    if not system.self_trips:
        shares[i] = 0.0
    return np.asarray(shares / shares.sum())


def spaces(system: CarSharing, r: Integers, v: Integers, i: int) -> Booleans:
    """(m, N) whether a user of station i may go to each station."""
    free = r + v < system.capacities
    if not system.self_trips:
        free[:, i] = False
    return np.asarray(free)


def _least(value: Floats, free: Booleans) -> Floats:
    """(m, N) the free stations of least value, ties uniform; all 0 if none is free."""
    best = np.where(free, value, np.inf).min(axis=1, keepdims=True)
    best[np.isinf(best)] = 0.0
    tied = free & (value <= best + _SAME * np.abs(best))
    return np.asarray(tied / np.maximum(tied.sum(axis=1, keepdims=True), 1))


def _two_choice(system: CarSharing, r: Integers, v: Integers, i: int) -> Floats:
    """P(j) = sum over the other sample k of p_j p_k (2 if q_j < q_k, 1 if equal)."""
    p, q = _uniform(system, i), r + v
    less = (q[:, :, None] < q[:, None, :]) * 2.0 + (q[:, :, None] == q[:, None, :])
    return np.asarray(p * (less @ p))


def _shares(system: CarSharing, rule: Rule) -> Shares:
    """``shares(r, v, i)``: (m, N), the probabilities of the destinations of users at i."""
    name = rule.name
    if rule.table is not None:
        return _table_shares(system, rule)
    if name == "requested":
        wanted = system.destination_shares
        return lambda r, v, i: np.broadcast_to(wanted[i], r.shape)
    if name == "two-choice":
        return lambda r, v, i: _two_choice(system, r, v, i)
    if name not in KNOWN:
        raise ValueError(f"exact: the chain of policy {name} is not known; use simulate")
    at = np.eye(system.stations)
    values: dict[str, Callable[[Integers, Integers, int], Floats]] = {
        "least-occupied": lambda r, v, i: (r + v).astype(float),
        "least-parked": lambda r, v, i: (v - at[i]) + r / (1.0 + system.spaces),
        "least-per-demand": lambda r, v, i: (r + v - at[i]) / system.arrival_rates,
    }
    return lambda r, v, i: _least(values[name](r, v, i), spaces(system, r, v, i))


def _table_shares(system: CarSharing, rule: Rule) -> Shares:
    keys, choices = rule.table

    def shares(r: Integers, v: Integers, i: int) -> Floats:
        wanted = table_keys(system, r, v)
        row = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        choice = np.where(keys[row] == wanted, choices[row, i], system.stations)
        return np.eye(system.stations + 1)[choice][:, :-1]

    return shares


# --- the chain ------------------------------------------------------------------------------------
class CarChain:
    """A car-sharing system under a policy as a `chain.Model`.

    A state is the cars on each *road*, then the cars parked at each station. Roads: the
    destinations, if the rate of a trip depends on that alone; else every pair of stations.
    """

    def __init__(self, system: CarSharing, shares: Shares) -> None:
        self.system, self.of = system, shares
        n, rates = system.stations, system.trip_rates
        self.n = n
        if (rates == rates[0]).all():
            self.origins, self.to = np.full(n, -1), np.arange(n)
            self.rates = rates[0]
        else:
            pairs = np.indices((n, n)).reshape(2, -1)
            self.origins, self.to = pairs[0], pairs[1]
            self.rates = rates.ravel()
        self.roads = len(self.to)
        capacities = np.concatenate([system.capacities[self.to], system.capacities])
        self.bases = np.minimum(capacities, system.cars) + 1
        if np.log2(self.bases.astype(float)).sum() > 61:
            raise TooLarge(_LARGEST_KEY)

    def start(self) -> Integers:
        return np.concatenate([np.zeros(self.roads, np.int64), even_start(self.system)])[None, :]

    def canonical(self, states: Integers) -> Integers:
        return states

    def keys(self, states: Integers) -> Integers:
        key = np.zeros(len(states), dtype=np.int64)
        for k, base in enumerate(self.bases):
            key = key * base + states[:, k]
        return key

    def inside(self, states: Integers) -> Booleans:
        return np.ones(len(states), dtype=bool)

    def split(self, states: Integers) -> tuple[Integers, Integers]:
        """(m, N) reserved spaces and parked cars."""
        r = np.zeros((len(states), self.n), dtype=np.int64)
        np.add.at(r.T, self.to, states[:, : self.roads].T)
        return r, states[:, self.roads :]

    def leave(self, states: Integers, i: int, j: int) -> Integers:
        """The states after a car has left i for j."""
        target = states.copy()
        target[:, i + self.roads] -= 1
        road = np.flatnonzero((self.to == j) & ((self.origins == i) | (self.origins < 0)))[0]
        target[:, road] += 1
        return target

    def arrivals(self, states: Integers) -> Iterator[Moves]:
        """Users who leave."""
        r, v = self.split(states)
        for i, rate in enumerate(self.system.arrival_rates):
            share = np.where(spaces(self.system, r, v, i), self.of(r, v, i), 0.0)
            share = share * (v[:, [i]] > 0)
            for j in range(self.n):
                rows = np.flatnonzero(share[:, j])
                if len(rows):
                    target = self.leave(states[rows], i, j)
                    yield Moves(rows, rate * share[rows, j], target, {"accepted": 1.0})

    def ends(self, states: Integers) -> Iterator[Moves]:
        """Trips that end."""
        for road, rate in enumerate(self.rates):
            rows = np.flatnonzero(states[:, road])
            if len(rows):
                target = states[rows]
                target[:, road] -= 1
                target[:, self.roads + self.to[road]] += 1
                yield Moves(rows, rate * states[rows, road], target)

    def moves(self, states: Integers) -> Iterator[Moves]:
        yield from self.arrivals(states)
        yield from self.ends(states)


def number_of_states(system: CarSharing) -> list[int]:
    """For M = 0, 1, ... cars, the ways to have r + v <= K with a sum of M over the stations."""
    ways = [1]
    for capacity in system.capacities.tolist():
        more = [0] * (len(ways) + capacity)
        for m, number in enumerate(ways):
            for held in range(capacity + 1):
                more[m + held] += number * (held + 1)
        ways = more
    return ways


def _chain(system: CarSharing, shares: Shares, what: str, most: int) -> CarChain:
    """The chain of a system; ValueError if it has so many states that it is hopeless to begin."""
    number = number_of_states(system)[system.cars] if system.spaces <= _MANY_SPACES else 10**99
    if number > _HOPELESS * most:
        size = f"{number:,}" if number < 10**15 else f"{number:.1e}"
        raise ValueError(_too_large(system, what, f"up to {size}", most))
    try:
        return CarChain(system, shares)
    except TooLarge:
        raise ValueError(_too_large(system, what, f"more than {most:,}", most)) from None


def _explored(model: CarChain, most: int, what: str) -> Chain:
    try:
        return explore(model, most)
    except TooLarge:
        raise ValueError(_too_large(model.system, what, f"more than {most:,}", most)) from None


def _too_large(system: CarSharing, what: str, size: str, most: int) -> str:
    instead = " or, for requested and stations alike, mean_field" if what == "exact" else ""
    return (
        f"{what}: {system.stations} stations and {system.cars} cars have {size} states, at most "
        f"{most:,} can be solved; take fewer stations, spaces or cars, or use simulate{instead}"
    )


def _recurring(chain: Chain, name: str) -> Chain:
    try:
        return recurrent(chain)
    except ArithmeticError as error:
        raise ValueError(f"exact: under {name} {error}; the mean depends on the start") from None


def _numbers(
    model: CarChain, states: Integers, pi: Floats, accepted: float, **rest: Any
) -> dict[str, Any]:
    """What a distribution over the states says."""
    system = model.system
    r, v = model.split(states)
    empty, full = v == 0, r + v == system.capacities
    share = accepted / system.total_rate
    return {
        "system": system,
        "cost": 1 - share,
        "accepted": share,
        "no_car": float(pi @ empty.mean(axis=1)),
        "no_space": float(pi @ full.mean(axis=1)),
        "both": float(pi @ (empty & full).mean(axis=1)),
        "problematic": float(pi @ (empty | full).mean(axis=1)),
        "cars_on_road": float(pi @ r.sum(axis=1)),
        "states": len(states),
        **rest,
    }


def exact(system: CarSharing, policy: Any = "requested") -> CarSharingNumbers:
    """Solve a small system under a policy (a name, or the policy of an `optimal`).

    Raises ValueError if the system is too large (with the number of its states).
    """
    begun = time.perf_counter()
    rule = make(policy, system)
    model = _chain(system, _shares(system, rule), "exact", MOST_STATES)
    chain = _explored(model, MOST_STATES, "exact")
    chain = _recurring(chain, rule.name)
    pi, residual = stationary(chain)
    accepted = float(pi @ chain.counts["accepted"]) if "accepted" in chain.counts else 0.0
    found = _numbers(model, chain.states, pi, accepted, policy=rule.name, residual=residual)
    return CarSharingNumbers(**found, seconds=time.perf_counter() - begun)


# --- the optimum ----------------------------------------------------------------------------------
def optimal(system: CarSharing) -> CarSharingOptimum:
    """The most users that any choice of destinations (or refusal) accepts, with full information.

    What users request plays no part. Raises ValueError if the system is too large.
    """
    begun = time.perf_counter()
    model = _chain(
        system,
        lambda r, v, i: np.broadcast_to(_uniform(system, i), r.shape),
        "optimal",
        MOST_DECIDED,
    )
    if model.roads > system.stations:
        raise ValueError("optimal: trip rates must not depend on where a trip begins")
    chain = _explored(model, MOST_DECIDED, "optimal")
    answer = _best(model, chain)
    rule = _rule_of(model, chain, answer)
    under = recurrent(replace(chain, rates=answer.rates))
    pi, residual = stationary(under)
    found = _numbers(model, under.states, pi, -answer.cost, policy=rule, residual=residual)
    seconds = time.perf_counter() - begun
    return CarSharingOptimum(
        **found, seconds=seconds, error=answer.error, iterations=answer.iterations
    )


def _matrix(chain: Chain, rows: Integers, columns: Integers, rate: Any) -> Any:
    from scipy.sparse import coo_array

    rates = np.broadcast_to(np.asarray(rate, dtype=float), rows.shape)
    away = rows != columns
    entries = (rates[away], (rows[away], columns[away]))
    return coo_array(entries, shape=(chain.size, chain.size)).tocsr()


def _control(model: CarChain, chain: Chain, i: int) -> Control:
    """Where users at station i go: a station, or N = refused; accepting one costs -1."""
    system, m = model.system, chain.size
    r, v = model.split(chain.states)
    free = spaces(system, r, v, i) & (v[:, [i]] > 0)
    rate, rates = float(system.arrival_rates[i]), []
    for j in range(model.n):
        rows = np.flatnonzero(free[:, j])
        targets = model.keys(model.leave(chain.states[rows], i, j))
        rates.append(_matrix(chain, rows, chain.rows(targets), rate))
    nowhere = np.zeros(0, np.int64)
    rates.append(_matrix(chain, nowhere, nowhere, rate))
    allowed = np.vstack([free.T, np.ones((1, m), dtype=bool)])
    costs = np.zeros((model.n + 1, m))
    costs[:-1] = -rate
    return Control(rates, costs, allowed)


def _best(model: CarChain, chain: Chain) -> Answer:
    """The decision process on all states."""
    ends = list(model.ends(chain.states))
    source = np.concatenate([e.source for e in ends])
    targets = np.concatenate([model.keys(e.target) for e in ends if e.target is not None])
    rate = np.concatenate([e.rate for e in ends])
    fixed = _matrix(chain, source, chain.rows(targets), rate)
    controls = [_control(model, chain, i) for i in range(model.n)]
    return least_cost(fixed, np.zeros(chain.size), controls)


def _rule_of(model: CarChain, chain: Chain, answer: Answer) -> Rule:
    keys = table_keys(model.system, *model.split(chain.states))
    order = np.argsort(keys)
    choices = np.stack(answer.choices, axis=1)[order]
    if keys.max(initial=0) >= 1 << 53:
        raise ValueError("optimal: too many spaces for the table of a policy")
    return table_rule(model.system, keys[order], choices, "optimal")


# --- the limit of many stations -------------------------------------------------------------------
@dataclass(frozen=True, repr=False)
class CarSharingLimit(Numbers):
    """The limit of many stations; per station, as `CarSharingNumbers` otherwise.

    cars_per_station : s; cars_on_road : E[r]
    park, drive : the parameters L / (lambda p) and L / mu of the product form
    law : P(r, v), shape (K + 1, K + 1)
    """

    system: CarSharing
    policy: str
    cost: float
    no_car: float
    no_space: float
    both: float
    problematic: float
    accepted: float
    cars_on_road: float
    cars_per_station: float
    park: float
    drive: float
    law: Floats


def _law(park: float, drive: float, capacity: int) -> Floats:
    """drive^r / r! park^v on r + v <= K, normalised, from logarithms."""
    from scipy.special import gammaln

    r, v = np.indices((capacity + 1, capacity + 1))
    weight = r * np.log(drive) - gammaln(r + 1) + v * np.log(park)
    weight[r + v > capacity] = -np.inf
    law = np.exp(weight - weight.max())
    return np.asarray(law / law.sum())


def _limit_at(system: CarSharing, park: float) -> CarSharingLimit:
    """The law with a given park parameter."""
    from scipy.optimize import brentq

    capacity, offered = _of_equal_stations(system)

    def excess(drive: float) -> float:
        return drive - offered * (1.0 - float(_law(park, drive, capacity)[:, 0].sum()))

    drive = float(brentq(excess, 1e-300, offered, xtol=1e-15, rtol=1e-15))
    law = _law(park, drive, capacity)
    r, v = np.indices(law.shape)
    empty, full = float(law[:, 0].sum()), float(law[r + v == capacity].sum())
    both = float(law[capacity, 0])
    accepted = (1 - empty) * (1 - full)
    return CarSharingLimit(
        system=system,
        policy="requested",
        cost=1 - accepted,
        no_car=empty,
        no_space=full,
        both=both,
        problematic=empty + full - both,
        accepted=accepted,
        cars_on_road=float((law * r).sum()),
        cars_per_station=float((law * (r + v)).sum()),
        park=park,
        drive=drive,
        law=law,
    )


def _of_equal_stations(system: CarSharing) -> tuple[int, float]:
    """K and lambda / mu."""
    if not system.alike:
        raise ValueError("mean_field: only of stations that are all alike; use exact or simulate")
    capacity = int(system.capacities[0])
    return capacity, float(system.arrival_rates[0] / system.trip_rates[0, 0])


def mean_field(system: CarSharing, policy: Any = "requested") -> CarSharingLimit:
    """The limit of many such stations with as many cars a station; requested destinations only."""
    from scipy.optimize import brentq

    if make(policy, system).name != "requested":
        raise ValueError("mean_field: known for the policy requested only; use exact or simulate")
    capacity, _ = _of_equal_stations(system)
    wanted = system.cars / system.stations
    if wanted >= capacity:
        raise ValueError("mean_field: a fleet that fills every space never moves")

    def excess(log: float) -> float:
        return _limit_at(system, float(np.exp(log))).cars_per_station - wanted

    low, high = -1.0, 1.0
    while excess(low) > 0:
        low *= 2
    while excess(high) < 0:
        high *= 2
    log = brentq(excess, low, high, xtol=1e-15, rtol=1e-14)
    return _limit_at(system, float(np.exp(log)))


def best_fleet_limit(system: CarSharing) -> CarSharingLimit:
    """The fleet, of any size, for which the limit has the fewest problematic stations and the most
    accepted users: its park parameter is 1. The system's own fleet plays no part."""
    return _limit_at(system, 1.0)


# --- without reservation, to compare --------------------------------------------------------------
def bike_sharing(
    capacity: int, arrival_rate: float, trip_rate: float, ratio: float = 1.0
) -> tuple[float, float, float]:
    """The limit without reservations (C. Fricker and N. Gast, 2016): bikes per station, and the
    shares of empty and of full stations; `ratio` is that of returns to departures tried.

    The law of the bikes parked is geometric on 0 .. K.
    """
    law = float(ratio) ** np.arange(capacity + 1)
    law /= law.sum()
    road = ratio * arrival_rate / trip_rate
    return road + float(law @ np.arange(capacity + 1)), float(law[0]), float(law[-1])
