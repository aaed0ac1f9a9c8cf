"""`optimal`: the least long-run cost of any policy that sees every queue, and a policy with it.

The system is a Markov decision process on queue lengths: an arriving job joins any server; a job
that looks at another server moves there or stays. Solved by policy iteration (Howard 1960; Puterman
1994, section 8.6): the relative values of a policy are one sparse system of equations (`chain`),
and each decision is then made as they say, until nothing changes.

States: prod (cap_i + 1), queues without a limit cut where the best policy hardly ever is. Measured
on one core: 2 servers at load .7 1,500 states and .3 s, at load .9 20,000 and 2 s; 3 servers at
load .7 20,000 and 5 s, at load .8 45,000 and 30 s; at most 60,000 states (1 minute, .5 GB).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.checks import charges, flag
from lbgym.kinds import by_kind
from lbgym.system import System

from .chain import Booleans, Floats, Integers, relative_values
from .cutting import SMALLER, Solution, close, given_cut, shrunk, solve, wanted_cut
from .dispatch import Cut, DispatchModel
from .optimal_graph import OnGraph, optimal_on_graph
from .optimal_loss import OptimalLoss, optimal_loss
from .result import Exact, result_of, totals_of
from .rules import OPTIMAL, Static, plan
from .table import table_plan, table_policy

MOST_STATES = 60_000
_BEYOND = 1e-9  # what lies beyond the cut may matter so much, relative to the mean
_KEPT = 0.75  # of a cut queue length stands in the policy's table; beyond, the cut can be felt
_BETTER = 1e-10  # a decision changes only if that gains so much, relative to the values
_NO_GAIN = 1e-12  # relative, of the cost in two rounds
_ITERATIONS = 200
_FIRST_STATES = 2_500  # of the box that the first optimum is found in
_ROUNDS = 8

OBJECTIVES = ("cost", "jobs_in_system", "blocking_probability")


@dataclass(frozen=True, repr=False)
class Optimal(Exact):
    """The optimum: the numbers of `Exact` under the best policy, and that policy.

    policy : the policy itself; `simulate`, `exact` and agents take it
    objective : what is least
    cost_per_time : jobs in system + charge x losses + cost x moves per unit time (of these, what
        the objective counts)
    table : the server for an arriving job, one axis a server: ``table[q_0, q_1]``; on a graph
        first one axis of edges: ``table[edge, q_0, q_1, ...]``
    moves : whether a job moves, ``moves[source, target, q_0, q_1]``; None without migration
    iterations : of policy iteration, all boxes together
    """

    objective: str
    cost_per_time: float
    table: NDArray[np.int64]
    moves: NDArray[np.bool_] | None
    iterations: int


# --- the decision process -------------------------------------------------------------------------
@dataclass(frozen=True)
class Prices:
    """What the objective counts: a job's stay per unit time, its loss, its move."""

    stay: float
    loss: float
    move: float


@dataclass
class Decisions:
    """A policy on a grid: the server for an arrival in each state, and the moves taken.

    place : (m,); moves : one (m,) for each pair of servers
    """

    place: Integers
    moves: list[Booleans]


class Grid:
    """All queue-length vectors of a box, and what a decision in each of them does.

    spread : probabilities of the servers if arriving jobs are not placed by decisions
    """

    def __init__(
        self,
        system: System,
        caps: Sequence[int],
        prices: Prices,
        lossless: bool,
        spread: Floats | None,
    ) -> None:
        self.system, self.prices, self.spread = system, prices, spread
        self.caps = np.array(caps)
        self.shape = tuple(int(c) + 1 for c in caps)
        self.n, self.m = len(caps), int(np.prod(self.shape))
        self.q = np.stack(np.unravel_index(np.arange(self.m), self.shape), axis=1)
        self.strides = np.array([int(np.prod(self.shape[i + 1 :])) for i in range(self.n)])
        slots = np.array([p.slots for p in system.pools])[system.pool_of_server]
        self.served = system.speeds / system.mean_size * np.minimum(self.q, slots)
        self.room = self.q < self.caps
        self.limited = np.isfinite(system.limits)
        self.choice = self._choices(lossless)
        # A queue without a limit is not to be filled to its cut because jobs cost nothing beyond:
        # a job dropped there costs twice what its stay would.
        rate = system.speeds / system.mean_size * slots
        self.dropped = np.where(self.limited, prices.loss, 2 * prices.stay * (self.caps + 1) / rate)
        self.pairs = []
        if system.migrates:
            self.pairs = [(i, j) for i in range(self.n) for j in range(self.n) if i != j]

    def _choices(self, lossless: bool) -> Booleans:
        """(m, n) which servers an arriving job may be sent to."""
        choice = self.room | self.limited
        if lossless:
            choice = choice & (self.room | (self.room.sum(axis=1) == 0)[:, None])
        choice[choice.sum(axis=1) == 0, 0] = True  # the corner of a cut box: the job is dropped
        return np.asarray(choice)

    def index(self, policy: NDArray[np.int64]) -> Integers:
        """A table, one axis a server, as decisions; longer queues are clipped to it."""
        longest = np.array(policy.shape) - 1
        return np.asarray(policy[tuple(np.minimum(self.q, longest).T)])

    def ring(self, i: int, j: int) -> Floats:
        """Rate at which jobs of server i look at server j and find room."""
        each = self.system.migration_rate / self.n
        return np.asarray(each * self.q[:, i] * self.room[:, j])

    def joins(self, d: Decisions, i: int) -> Floats:
        """Rate at which jobs are sent to server i."""
        if self.spread is not None:
            return np.full(self.m, self.system.arrival_rate * float(self.spread[i]))
        return np.asarray(self.system.arrival_rate * (d.place == i), dtype=np.float64)

    def _transitions(self, d: Decisions) -> Iterator[tuple[Integers, Integers, Floats]]:
        here = np.arange(self.m)
        for i in range(self.n):
            rate = self.joins(d, i)
            rows = here[self.room[:, i] & (rate > 0)]
            yield rows, rows + self.strides[i], rate[rows]
            rows = here[self.q[:, i] > 0]
            yield rows, rows - self.strides[i], self.served[rows, i]
        for (i, j), moves in zip(self.pairs, d.moves, strict=True):
            rate = self.ring(i, j)
            rows = here[moves & (rate > 0)]
            yield rows, rows - self.strides[i] + self.strides[j], rate[rows]

    def evaluate(self, d: Decisions) -> tuple[float, Floats]:
        """Cost per unit time of a policy and its relative values."""
        from scipy.sparse import coo_array

        row, column, rate = (np.concatenate(x) for x in zip(*self._transitions(d), strict=True))
        rates = coo_array((rate, (row, column)), shape=(self.m, self.m)).tocsr()
        cost = self.prices.stay * self.q.sum(axis=1)
        for i in range(self.n):
            cost = cost + self.dropped[i] * self.joins(d, i) * ~self.room[:, i]
        for (i, j), moves in zip(self.pairs, d.moves, strict=True):
            cost += self.prices.move * self.ring(i, j) * moves
        return relative_values(rates, cost, first=0)

    def improve(self, h: Floats, d: Decisions) -> Decisions:
        """The decisions that the relative values favour; as before where it makes no difference."""
        here = np.arange(self.m)
        small = _BETTER * max(float(np.abs(h).max()), 1.0)
        value = np.full((self.m, self.n), np.inf)
        for i in range(self.n):
            rows = self.room[:, i]
            value[rows, i] = h[here[rows] + self.strides[i]]
            value[~rows, i] = h[~rows] + self.dropped[i]
        value[~self.choice] = np.inf
        best = value.argmin(axis=1)
        better = value[here, best] < value[here, d.place] - small
        moves = []
        for (i, j), old in zip(self.pairs, d.moves, strict=True):
            asked = here[(self.q[:, i] > 0) & self.room[:, j]]
            gain = np.zeros(self.m)
            after = h[asked - self.strides[i] + self.strides[j]]
            gain[asked] = h[asked] - after - self.prices.move
            moves.append(np.where(np.abs(gain) > small, gain > 0, old))
        return Decisions(np.where(better, best, d.place), moves)

    def start(self) -> Decisions:
        """Least (q + 1) / mu among the choices; nobody moves."""
        index = (self.q + 1) / self.system.speeds
        place = np.where(self.choice, index + ~self.room * index.max(), np.inf).argmin(axis=1)
        return Decisions(place, [np.zeros(self.m, dtype=bool) for _ in self.pairs])

    def carried(self, table: NDArray[np.int64], moves: NDArray[np.bool_] | None) -> Decisions:
        """The decisions of another box's tables, where they are possible here."""
        start = self.start()
        place = self.index(table)
        place = np.where(self.choice[np.arange(self.m), place], place, start.place)
        if moves is None:
            return Decisions(place, [])
        taken = [self.index(moves[i, j].astype(np.int64)) == 1 for i, j in self.pairs]
        return Decisions(place, taken)

    def tables(self, d: Decisions) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """The decisions as tables."""
        table = d.place.reshape(self.shape)
        if not self.pairs:
            return table, None
        moves = np.zeros((self.n, self.n, *self.shape), dtype=bool)
        for (i, j), taken in zip(self.pairs, d.moves, strict=True):
            moves[i, j] = taken.reshape(self.shape)
        return table, moves


def policy_iteration(grid: Grid, d: Decisions) -> tuple[float, Decisions, int]:
    """Cost per unit time of the best decisions, these, and how many rounds it took.

    It ends when nothing changes, or when two rounds have changed nothing that matters.
    """
    costs = [np.inf, np.inf]
    for k in range(1, _ITERATIONS + 1):
        cost, h = grid.evaluate(d)
        costs = [*costs[-2:], cost]
        better = grid.improve(h, d)
        same = all(np.array_equal(x, y) for x, y in zip(d.moves, better.moves, strict=True))
        same &= np.array_equal(d.place, better.place)
        if same or costs[0] - cost <= _NO_GAIN * abs(cost):
            return cost, d, k
        d = better
    raise ArithmeticError(f"optimal: no best policy after {_ITERATIONS} rounds of iteration")


# --- boxes ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Found:
    """An optimum in a box."""

    caps: tuple[int, ...]
    cost: float
    table: NDArray[np.int64]
    moves: NDArray[np.bool_] | None
    iterations: int


class _Search:
    """Optima of a system in one box after another, each starting from the last."""

    def __init__(
        self, system: System, prices: Prices, lossless: bool, place: Floats | None
    ) -> None:
        self.system, self.prices, self.lossless, self.place = system, prices, lossless, place
        self.groups = tuple((i,) for i in range(system.servers))
        self.last: _Found | None = None

    def at(self, caps: Sequence[int]) -> _Found:
        """The optimum in a box."""
        grid = Grid(self.system, caps, self.prices, self.lossless, self.place)
        begin = grid.start()
        if self.last is not None:
            begin = grid.carried(self.last.table, self.last.moves)
        cost, decisions, rounds = policy_iteration(grid, begin)
        before = 0 if self.last is None else self.last.iterations
        self.last = _Found(tuple(caps), cost, *grid.tables(decisions), before + rounds)
        return self.last

    def under(self, found: _Found) -> Solution:
        """The stationary law under an optimum, in its box."""
        plan = table_plan(self.system, found.table, found.moves, self.place)
        return solve(DispatchModel(self.system, plan, Cut(found.caps)), MOST_STATES)

    def settle(self) -> tuple[_Found, Solution]:
        """The optimum in a box beyond which little matters, or that is as large as affordable."""
        caps = self._first_caps()
        for _ in range(_ROUNDS):
            found = self.at(caps)
            solution = self.under(found)
            cut = Cut(found.caps)
            wanted = wanted_cut(solution, cut, _BEYOND)
            if close(Cut(wanted.caps), cut):
                break
            caps = self._affordable(wanted.caps)
            if caps == found.caps:
                break
        return found, solution

    def _first_caps(self) -> tuple[int, ...]:
        limits = self.system.limits
        free = int(np.isinf(limits).sum())
        fixed = np.prod(limits[np.isfinite(limits)] + 1)
        cap = 40
        while free and cap > 4 and fixed * (cap + 1) ** free > _FIRST_STATES:
            cap -= 1
        caps = tuple(cap if np.isinf(x) else int(x) for x in limits)
        self._check_size(caps)
        return caps

    def _check_size(self, caps: Sequence[int]) -> None:
        states = 1
        for cap in caps:
            states *= int(cap) + 1
        if states > MOST_STATES:
            size = f"{states:,}" if states < 10**15 else f"{states:.1e}"
            raise ValueError(
                f"optimal: {self.system.servers} servers with up to {max(caps)} jobs each have "
                f"{size} states, at most {MOST_STATES:,} can be solved; take 2 or 3 servers or "
                "smaller limits, or use lower_bound, which takes any system"
            )

    def _affordable(self, caps: tuple[int, ...]) -> tuple[int, ...]:
        """The box, or the largest similar one that is affordable."""
        cut = Cut(caps)
        while np.prod(np.array(cut.caps, dtype=float) + 1) > MOST_STATES:
            cut = shrunk(cut, 0.95, self.system, self.groups)
        return cut.caps


# --- the answer -----------------------------------------------------------------------------------
@by_kind
def optimal(
    system: Any,
    cap: int | Sequence[int] | None = None,
    objective: str | None = None,
    loss_charge: float | None = None,
    move_cost: float = 0.0,
    lossless: bool = False,
    *,
    place: Any = None,
) -> Optimal | OptimalLoss:
    """The best policy with full information, for 2 or 3 servers (more with small limits), for car
    sharing and for flow networks. Its ``.policy`` is a rule that `simulate` and `exact` take.

    Of systems with units see `lbgym.theory.optimal_loss`, with a graph `optimal_graph`.

    Parameters
    ----------
    system
        A system of any kind, its dict, a scenario's name or the path of a TOML file.
    cap : int or one a pool, optional
        Where to cut queues without a limit, or the flows in all. Default: where it does not matter.
        A job that would go beyond the cut is thrown away and counts as no loss in the numbers, so a
        small cap makes a system look better than it is (`truncation_error` says by how much). A
        system that really ends there is one with ``limit=cap``, where losses cost ``loss_charge``,
        solved with ``lossless=True`` if they may happen only when every server is full.
    objective : str, optional
        What is least: ``cost`` (default; as in `Exact`), ``jobs_in_system`` (systems without
        limits: else losing all jobs is best), ``blocking_probability``; with units ``cost``,
        ``weighted_loss`` or ``blocking_probability``.
    loss_charge, move_cost
        As `simulate` takes them.
    lossless : bool
        Never send a job to a full server while another has room.
    place : policy, optional
        For systems whose jobs migrate: where arriving jobs go (``random``, ``weighted-random`` or
        ``static(..)``), so that only the moves are decided. Default: both are.

    Returns
    -------
    Optimal
        Of jobs at servers.
    CarSharingOptimum
        The most users accepted, by any choice of destinations or refusal; up to 10,000 states.
    FlowOptimum
        The fewest flows, by the routes of arriving flows or the access rate of the class that has
        alternatives at every moment; `cap` is the most flows in all; up to 12,000 states.

    Raises
    ------
    ValueError
        If the system is too large (with the number of its states) or overloaded.
    """
    begun = time.perf_counter()
    system.require_memoryless("optimal")
    _refuse_others(system)
    charge, move_cost = charges(system, loss_charge, move_cost)
    lossless = flag("lossless", lossless)
    if system.has_units:
        _only_dispatch(place, "units")
        return optimal_loss(system, objective or "cost", charge, lossless)
    prices = _prices(system, objective or "cost", charge, move_cost)
    if system.graph is not None:
        _only_dispatch(place, "a graph")
        paid = (prices.stay, prices.loss)
        on_graph = optimal_on_graph(system, cap, paid, charge, lossless)
        return _answer_on_graph(on_graph, objective or "cost")
    endless = np.isinf(system.limits)
    if endless.all() and system.load >= 1:
        raise ValueError(f"optimal: no policy keeps load {system.load:g} stable; set limits")
    spread = None if place is None else _spread(system, place)
    search = _Search(system, prices, lossless, spread)
    if cap is None or not endless.any():
        found, solution = search.settle()
    else:
        caps = given_cut(system, search.groups, cap).caps
        search._check_size(caps)
        found = search.at(caps)
        solution = search.under(found)
    error = 0.0
    if endless.any():
        smaller = shrunk(Cut(found.caps), SMALLER, system, search.groups)
        error = abs(search.at(smaller.caps).cost - found.cost)
    numbers = replace(
        result_of(system, OPTIMAL, totals_of(solution), charge, move_cost),
        truncation_error=error,
        seconds=time.perf_counter() - begun,
    )
    return _answer(numbers, found, objective or "cost", endless, spread)


def _refuse_others(system: System) -> None:
    """Raise ValueError where not every queue is seen, or no job arrives."""
    if system.closed_jobs is not None:
        raise ValueError("optimal: a closed system has no long-run cost; use exact")
    if system.read_interval is not None:
        raise ValueError(
            "optimal: knows full information only, the system's queues are read now and then; "
            "leave out its read_interval for the optimum of who sees them always"
        )


def _answer_on_graph(found: OnGraph, objective: str) -> Optimal:
    return Optimal(
        **{**found.numbers.__dict__, "policy": found.policy},
        objective=objective,
        cost_per_time=found.cost_per_time,
        table=found.table,
        moves=None,
        iterations=found.iterations,
    )


def _only_dispatch(place: Any, what: str) -> None:
    if place is not None:
        raise ValueError(f"place: not with {what}: only where jobs migrate is it not decided")


def _answer(
    numbers: Exact, found: _Found, objective: str, endless: Booleans, spread: Floats | None
) -> Optimal:
    keep = tuple(
        slice(0, int(cap * _KEPT) + 1 if cut else int(cap) + 1)
        for cap, cut in zip(found.caps, endless, strict=True)
    )
    table = found.table[keep]
    moves = None if found.moves is None else found.moves[(slice(None), slice(None), *keep)]
    return Optimal(
        **{**numbers.__dict__, "policy": table_policy(numbers.system, table, moves, spread)},
        objective=objective,
        cost_per_time=found.cost,
        table=table,
        moves=moves,
        iterations=found.iterations,
    )


def _spread(system: System, place: Any) -> Floats:
    """The probabilities of a placement that looks at nothing."""
    if not system.migrates:
        raise ValueError("place: only where jobs migrate is there anything else to decide")
    placement = plan(system, place).place
    if not isinstance(placement, Static):
        raise ValueError(f"place: must be random, weighted-random or static(..), got {place}")
    return placement.p


def _prices(system: System, objective: str, charge: float, move_cost: float) -> Prices:
    if objective not in OBJECTIVES:
        raise ValueError(f"objective: must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
    if objective == "blocking_probability":
        if np.isinf(system.limits).any():
            raise ValueError(
                "objective: nothing is lost where some servers have no limit; use cost, or set "
                "limits"
            )
        return Prices(0.0, 1.0, 0.0)
    if objective == "jobs_in_system":
        if np.isfinite(system.limits).any():
            raise ValueError(
                "objective: with limits the fewest jobs in system come from losing them; use cost"
            )
        return Prices(1.0, 0.0, 0.0)
    return Prices(1.0, charge, move_cost)
