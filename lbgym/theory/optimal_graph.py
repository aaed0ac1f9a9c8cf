"""`optimal` for local choice: which end of its edge each job joins, seeing every queue.

A Markov decision process on queue lengths up to the graph's symmetries, solved by relative value
iteration (`control`), which proves its answer to 1e-9. Queues without a limit are cut where local
choice hardly ever is; a job dropped there costs twice what its stay would. At most 60,000 states up
to symmetry: rings of 3 and 4 servers at load .7 take 3 and 20 s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.policies.registry import Policy
from lbgym.system import System

from .chain import Booleans, Chain, Floats, Integers, TooLarge, explore
from .control import Answer, Control, least_cost
from .cutting import SMALLER, given_cut, settle, shrunk, solve
from .dispatch import Cut
from .graph import Ends, GraphModel, graph_plan, refuse_unstable_graph
from .result import Exact, result_of, totals_of
from .rules import OPTIMAL, Plan
from .table import edge_policy, edge_table

MOST = 60_000
_BEYOND = 1e-9  # what lies beyond the cut may matter so much, relative to the mean
_CELLS = 400_000  # of the policy's table; beyond it the shorter end is taken


class AnyEnd(Ends):
    """Either end with the same chance: to find every state."""

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        ends = np.bincount(np.ravel(self.edges), minlength=q.shape[1]) / (2 * len(self.edges))
        return np.broadcast_to(ends, q.shape), np.full(len(q), float(q.shape[1]))


@dataclass(frozen=True)
class EndsByTable(Ends):
    """The end that a table names for an edge and the queue lengths, beyond it the shorter one."""

    table: NDArray[np.int64]  # (edges, one axis a server), the server

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        shorter, _ = super().shares(q, held)
        longest = np.array(self.table.shape[1:]) - 1
        known = (q <= longest).all(axis=1)
        cells = tuple(q[known].T)
        chosen = np.zeros((int(known.sum()), q.shape[1]))
        for table in self.table:
            chosen += np.eye(q.shape[1])[table[cells]] / len(self.edges)
        shares = shorter.copy()
        shares[known] = chosen
        return shares, np.full(len(q), float(q.shape[1]))


def plain_ends(system: System) -> dict[str, Any]:
    """The fields of an `Ends` that compares queue lengths."""
    n = system.servers
    return {"edges": system.edges, "a": np.zeros(n), "c": np.ones(n), "second": np.zeros(n)}


def table_plan_of(policy: Policy) -> Plan:
    """The probabilities of a policy that `edge_policy` made."""
    system = policy.system
    base = graph_plan(system, "local-choice")
    place = EndsByTable(**plain_ends(system), table=edge_table(policy))
    return replace(base, place=place).bound(system, OPTIMAL)


# --- the decision process -------------------------------------------------------------------------
class _Choices:
    """What joining each end of each edge does, in all states of a box at once."""

    def __init__(self, system: System, base: Plan, cut: Cut) -> None:
        self.system = system
        self.model = GraphModel(system, replace(base, place=AnyEnd(**plain_ends(system))), cut)
        self.chain: Chain = explore(self.model, MOST)
        self.q = self.model.queues(self.chain.states)
        self.each = system.arrival_rate / len(system.edges)

    def joined(self, i: int) -> tuple[Any, Booleans]:
        """Rates of joining server i, and where there is no room for it within the cut."""
        from scipy.sparse import coo_array

        m, states = self.chain.size, self.chain.states.copy()
        states[:, i] += 1
        states = self.model.canonical(states)
        room = self.model.inside(states)
        rows = np.flatnonzero(room)
        columns = self.chain.rows(self.model.keys(states[rows]))
        rate = np.full(len(rows), self.each)
        return coo_array((rate, (rows, columns)), shape=(m, m)).tocsr(), ~room

    def controls(self, stay: float, loss: float, lossless: bool) -> list[Control]:
        """One decision for each edge."""
        model = self.model
        dropped = np.where(
            np.isfinite(self.system.limits),
            loss,
            2 * stay * (model.caps + 1) / (model.rates * model.slots),
        )
        joins = [self.joined(i) for i in range(self.system.servers)]
        found = []
        for pair in self.system.edges:
            lost = self.system.limits[list(pair), None] <= self.q[:, list(pair)].T
            allowed = ~lost | lost.all(axis=0) if lossless else np.ones_like(lost)
            costs = np.stack([self.each * dropped[i] * joins[i][1] for i in pair])
            found.append(Control([joins[i][0] for i in pair], costs, allowed))
        return found

    def departures(self) -> Any:
        """Rates of jobs that are served."""
        from scipy.sparse import coo_array

        m, row, column, rate = self.chain.size, [], [], []
        for i in range(self.system.servers):
            rows = np.flatnonzero(self.q[:, i])
            target = self.chain.states[rows]
            target[:, i] -= 1
            target = self.model.canonical(target)
            inside = self.model.inside(target)
            row.append(rows[inside])
            column.append(self.chain.rows(self.model.keys(target[inside])))
            served = np.minimum(self.q[rows, i], self.model.slots[i])[inside]
            rate.append(self.model.rates[i] * served)
        place = (np.concatenate(row), np.concatenate(column))
        return coo_array((np.concatenate(rate), place), shape=(m, m)).tocsr()

    def best(self, stay: float, loss: float, lossless: bool) -> Answer:
        """The least cost per unit time and the end of each edge in each state."""
        controls = self.controls(stay, loss, lossless)
        return least_cost(self.departures(), stay * self.q.sum(axis=1).astype(float), controls)

    def table(self, answer: Answer) -> NDArray[np.int64]:
        """The server for each edge and queue lengths, from the states that stand for them."""
        n, edges = self.system.servers, self.system.edges
        shape = tuple(int(c) + 1 for c in self._kept())
        full = np.stack(np.unravel_index(np.arange(int(np.prod(shape))), shape), axis=1)
        least, way = self._standing_for(full)
        rows = np.minimum(self.chain.rows(self.model.keys(least)), self.chain.size - 1)
        known = self.chain.keys[rows] == self.model.keys(least)
        inverse = np.argsort(self.model.permutations, axis=1)
        number = {tuple(sorted(pair)): e for e, pair in enumerate(edges)}
        lookup = np.zeros((n, n), dtype=np.int64)
        for (x, y), e in number.items():
            lookup[x, y] = lookup[y, x] = e
        ends, choices = np.array(edges), np.stack(answer.choices)
        tables = []
        for x, y in edges:
            shorter = np.where(full[:, y] < full[:, x], y, x)
            there = lookup[inverse[way, x], inverse[way, y]]
            chosen = ends[there, choices[there, rows]]  # in the state that stands for it
            here = self.model.permutations[way, chosen]
            tables.append(np.where(known, here, shorter).reshape(shape))
        return np.stack(tables)

    def _kept(self) -> list[int]:
        """The longest queues of the policy's table."""
        n = self.system.servers
        each = max(int((_CELLS / len(self.system.edges)) ** (1 / n)) - 1, 1)
        return [min(int(cap), each) for cap in self.model.caps]

    def _standing_for(self, states: Integers) -> tuple[Integers, Integers]:
        """The canonical state of each, and by which permutation it is reached."""
        least, way = states.copy(), np.zeros(len(states), dtype=np.int64)
        key = self.model.keys(states)
        for k, p in enumerate(self.model.permutations[1:], start=1):
            image = states[:, p]
            other = self.model.keys(image)
            better = other < key
            least[better], key[better], way[better] = image[better], other[better], k
        return least, way


# --- the answer -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class OnGraph:
    """An optimum on a graph: its numbers, policy, table, cost per unit time, iterations."""

    numbers: Exact
    policy: Policy
    table: NDArray[np.int64]
    cost_per_time: float
    iterations: int


def optimal_on_graph(
    system: System,
    cap: int | Sequence[int] | None,
    prices: tuple[float, float],
    charge: float,
    lossless: bool,
) -> OnGraph:
    """The best choice of an end by a policy that sees every queue; prices: of a stay and a loss.

    Raises ValueError if the system is too large or overloaded.
    """
    begun = time.perf_counter()
    if system.has_units or system.read_interval is not None or system.migrates:
        raise ValueError("optimal: a graph with units, reads or migration has none here; simulate")
    refuse_unstable_graph(system, "optimal")
    base = graph_plan(system, "local-choice")
    try:
        cut = _cut(system, base, cap)
        choices = _Choices(system, base, cut)
        answer = choices.best(*prices, lossless)
        error = 0.0
        if np.isinf(system.limits).any():
            smaller = shrunk(cut, SMALLER, system, base.groups)
            other = _Choices(system, base, smaller).best(*prices, lossless)
            error = abs(other.cost - answer.cost)
        table = choices.table(answer)
        place = EndsByTable(**plain_ends(system), table=table)
        plan = replace(base, place=place).bound(system, OPTIMAL)
        solution = solve(GraphModel(system, plan, cut), MOST)
    except TooLarge as refused:
        raise ValueError(
            f"optimal: {system.servers} servers on a graph have more than {refused.states:,} "
            f"states, at most {MOST:,} can be solved; take 3 or 4 servers, a lower load, smaller "
            "limits or a smaller cap"
        ) from None
    numbers = replace(
        result_of(system, OPTIMAL, totals_of(solution), charge, 0.0),
        truncation_error=error,
        seconds=time.perf_counter() - begun,
    )
    return OnGraph(numbers, edge_policy(system, table), table, answer.cost, answer.iterations)


def _cut(system: System, base: Plan, cap: int | Sequence[int] | None) -> Cut:
    """The cut given, or that which local choice asks for."""
    if cap is not None and np.isinf(system.limits).any():
        return given_cut(system, base.groups, cap)
    if not np.isinf(system.limits).any():
        return Cut(tuple(int(system.limits[group[0]]) for group in base.groups), math.inf)

    def build(cut: Cut) -> GraphModel:
        return GraphModel(system, base, cut)

    return settle(system, build, base.groups, MOST // 2, _BEYOND)[1]
