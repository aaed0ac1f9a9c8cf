"""Local choice on a graph: each edge feeds the shorter of its two ends (MODELS section 6).

`exact_on_graph` solves small graphs; a state stands for all that the graph's symmetries make of it.
`pair_approximation` is the limit of a long ring in which the lengths of neighbours are dependent,
but those of a server's two neighbours are not, given its own (P. Dester, C. Fricker, H. Mohamed
2018): y_ij = P(q_k = i, q_{k+1} = j) moves by i -> i + 1 at rate rho (o_ij + r_i), o_ij the chance
that the pair's own edge feeds i, r_i that the next edge does.

Cost: rings of 3 and 4 servers at load .7 2 and 10 s; pair approximation .1 to 2 s.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lbgym.graph import Edges
from lbgym.policies.registry import Policy, make, parse
from lbgym.system import System

from .chain import Booleans, Floats, Integers, TooLarge, generator
from .dispatch import Cut, DispatchModel
from .mean_field import MeanField, extrapolated
from .rules import OPTIMAL, Groups, Plan, Static, order_of

_KNOWN = "local-choice, jsq, sed, random"
_BRUTE = 6  # servers of which all permutations are tried
_CHECKED = 16  # servers of which all sets are checked for stability
_LARGEST_KEY = 1 << 62
_NEGLIGIBLE = 1e-13  # probability of the last level of the pair approximation
_FIRST_LEVELS, _MOST_LEVELS = 10, 110
_ITERATIONS = 200
_ACCURATE, _POOR = 1e-13, 1e-9


# --- where jobs go --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ends:
    """The end of the job's edge at which (q + a) / c is less."""

    edges: Edges
    a: Floats
    c: Floats
    second: Floats  # ties go to the smaller of these, then to a fair coin

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        value = (q + self.a) / self.c
        shares = np.zeros(q.shape)
        for pair in self.edges:
            ends = list(pair)
            before, tied = order_of(value[:, ends], self.second[ends])
            shares[:, ends] += np.where(before == 0, 1 / tied, 0.0) / len(self.edges)
        return shares, np.full(len(q), 2.0)


def graph_plan(system: System, policy: object) -> Plan:
    """The policy's probabilities on a system with a graph."""
    if isinstance(policy, Policy) and policy.name == OPTIMAL:
        from .optimal_graph import table_plan_of

        if policy.system != system:
            raise ValueError("policy optimal: it belongs to another system; ask optimal for this")
        return table_plan_of(policy)
    bound = make(policy, system)
    try:
        call = parse(bound.name)
    except ValueError:
        raise ValueError(_unknown(bound.name)) from None
    n, edges = system.servers, system.edges
    if call.name == "random":
        ends = np.bincount(np.ravel(edges), minlength=n)
        groups: Groups = tuple((i,) for i in range(n))
        return Plan("", groups, Static(ends / ends.sum())).bound(system, bound.name)
    if call.name not in ("local-choice", "jsq", "sed"):
        raise ValueError(_unknown(bound.name))
    ties = str(call.keywords.get("ties", "random"))
    second = {
        "random": np.zeros(n),
        "fastest": -system.speeds,
        "lowest": np.arange(n, dtype=float),
    }[ties]
    a, c = (np.ones(n), system.speeds) if call.name == "sed" else (np.zeros(n), np.ones(n))
    groups = orbits(symmetries(system, second), n)
    return Plan("", groups, Ends(edges, a, c, second), index=(a, c)).bound(system, bound.name)


def _unknown(name: str) -> str:
    return f"policy {name}: theory knows no probabilities for it on a graph; it knows {_KNOWN}"


# --- symmetries -----------------------------------------------------------------------------------
def symmetries(system: System, second: Floats) -> Integers:
    """Permutations of the servers that change nothing; (number, servers), the identity first.

    Of all permutations where there are few, of the turns and reflections of a ring otherwise.
    """
    n = system.servers
    if n <= _BRUTE:
        candidates = list(itertools.permutations(range(n)))
    else:
        turns = [tuple((i + k) % n for i in range(n)) for k in range(n)]
        candidates = turns + [turn[::-1] for turn in turns]
    kind = list(zip(system.pool_of_server.tolist(), second.tolist(), strict=True))
    edges = sorted(map(sorted, system.edges))
    kept = [
        p
        for p in candidates
        if all(kind[p[i]] == kind[i] for i in range(n))
        and sorted(sorted((p[i], p[j])) for i, j in edges) == edges
    ]
    return np.array(kept, dtype=np.int64)


def orbits(permutations: Integers, n: int) -> Groups:
    """Servers that a symmetry maps to each other."""
    found = {tuple(sorted(set(permutations[:, i].tolist()))) for i in range(n)}
    return tuple(sorted(found))


class GraphModel(DispatchModel):
    """A dispatching chain whose states stand for their images under the graph's symmetries."""

    def _number_states(self) -> None:
        assert isinstance(self.plan.place, Ends)
        self.permutations = symmetries(self.system, self.plan.place.second)
        self.sizes = [int(cap) + 1 for cap in self.caps]
        self.possible = math.prod(self.sizes)
        if self.possible >= _LARGEST_KEY:
            raise TooLarge(self.possible)

    def canonical(self, states: Integers) -> Integers:
        least = states.copy()
        key = self._numbers(states)
        for p in self.permutations[1:]:
            image = states[:, p]
            other = self._numbers(image)
            better = other < key
            least[better], key[better] = image[better], other[better]
        return least

    def keys(self, states: Integers) -> Integers:
        return self._numbers(states)

    def _numbers(self, states: Integers) -> Integers:
        # One more than the cap may be asked for before `inside` refuses it.
        keys = np.zeros(len(states), dtype=np.int64)
        for column, size in zip(states.T, self.sizes, strict=True):
            keys = keys * (size + 1) + column
        return keys


def model_of(system: System, the_plan: Plan, cut: Cut) -> DispatchModel:
    """The chain of a system, with a graph or without."""
    kind = GraphModel if isinstance(the_plan.place, Ends) else DispatchModel
    return kind(system, the_plan, cut)


def possible_on_graph(system: System, the_plan: Plan, cap: int) -> int:
    """The states with queues without a limit cut at a cap, likely or not."""
    assert isinstance(the_plan.place, Ends)
    number = math.prod(cap + 1 if math.isinf(k) else int(k) + 1 for k in system.limits.tolist())
    return number // len(symmetries(system, the_plan.place.second))


# --- stability ------------------------------------------------------------------------------------
def refuse_unstable_graph(system: System, what: str = "exact") -> None:
    """Some set of servers without limits gets more from the edges inside than it serves.

    All sets of small graphs; of larger ones single edges and the whole.
    """
    slots = np.array([p.slots for p in system.pools])[system.pool_of_server]
    served = system.speeds * slots / system.mean_size
    endless = np.flatnonzero(np.isinf(system.limits)).tolist()
    each = system.arrival_rate / len(system.edges)
    for inside in _sets(system, endless):
        members = set(inside)
        rate = each * sum(i in members and j in members for i, j in system.edges)
        capacity = float(served[list(inside)].sum())
        if rate >= capacity * (1 - 1e-9):
            raise ValueError(
                f"{what}: not stable at load {system.load:g}: the edges inside servers "
                f"{list(inside)} bring {rate:.4g} jobs per unit time, they serve {capacity:.4g}; "
                "lower the load or set limits"
            )


def _sets(system: System, endless: Sequence[int]) -> list[tuple[int, ...]]:
    if len(endless) <= _CHECKED:
        sizes = range(2, len(endless) + 1)
        return [s for size in sizes for s in itertools.combinations(endless, size)]
    free = set(endless)
    return [e for e in system.edges if free.issuperset(e)] + [tuple(endless)]


# --- a long ring ----------------------------------------------------------------------------------
class _Pair:
    """Two neighbours on a long ring, up to so many jobs each."""

    def __init__(self, rho: float, levels: int) -> None:
        self.rho, self.size = rho, levels + 1
        i, j = (x.ravel() for x in np.indices((self.size, self.size)))
        self.i, self.j = i, j
        self.mine = np.where(i < j, 1.0, np.where(i == j, 0.5, 0.0))

    def other_edge(self, y: Floats) -> Floats:
        """r_i: the chance that the next edge of a server of length i feeds it."""
        beyond = y.sum(axis=1, keepdims=True) - np.cumsum(y, axis=1)
        gets = np.diag(beyond) + np.diag(y) / 2
        x = y.sum(axis=1)
        return np.asarray(np.where(x > 1e-200, gets / np.maximum(x, 1e-200), 0.0))

    def law(self, r: Floats) -> Floats:
        """The stationary law of the pair, given r."""
        from scipy.sparse import coo_array
        from scipy.sparse.linalg import splu

        n, i, j = self.size, self.i, self.j
        place = i * n + j
        moves = [
            (i < n - 1, place + n, self.rho * (self.mine + r[i])),
            (j < n - 1, place + 1, self.rho * (1 - self.mine + r[j])),
            (i > 0, place - n, np.ones(n * n)),
            (j > 0, place - 1, np.ones(n * n)),
        ]
        source = np.concatenate([place[can] for can, _, _ in moves])
        target = np.concatenate([to[can] for can, to, _ in moves])
        rate = np.concatenate([rate[can] for can, _, rate in moves])
        flow = generator(coo_array((rate, (source, target)), shape=(n * n, n * n)).tocsr())
        flow = flow.T.tocsc()
        others = np.arange(1, n * n)
        into = -np.asarray(flow[others][:, [0]].todense()).ravel()
        y = np.ones(n * n)
        how = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        factors = splu(flow[others][:, others], permc_spec="MMD_AT_PLUS_A", **how)
        y[1:] = np.maximum(factors.solve(into), 0.0)
        y = y.reshape(n, n) + y.reshape(n, n).T
        return np.asarray(y / y.sum(), dtype=np.float64)

    def begin(self) -> Floats:
        """r if the queues were independent and geometric."""
        x = self.rho ** np.arange(self.size)
        return self.other_edge(np.outer(x, x) / x.sum() ** 2)


def pair_approximation(system: System, policy: object) -> MeanField:
    """The limit of a long ring under local choice, in the pair approximation."""
    begun = time.perf_counter()
    the_plan = graph_plan(system, policy)
    pool = system.pools[0]
    place = the_plan.place
    plain = (
        system.graph == "ring"
        and len(system.pools) == 1
        and pool.limit is None
        and pool.slots == 1
        and isinstance(place, Ends)
        and not place.second.any()
    )
    if not plain:
        raise ValueError(
            f"mean_field: on a graph only a ring of equal single-slot servers without limits under "
            f"local-choice has one, got {the_plan.name} on {system.describe()}"
        )
    rho = system.load
    if rho >= 1:
        raise ValueError(f"mean_field: needs a load below 1, got {rho:g}")
    x, error = _pairs(rho)
    tail = np.cumsum(x[::-1])[::-1]
    jobs = float(x @ np.arange(len(x)))
    rate = system.arrival_rate / system.servers
    waits = _waits(rho, x)
    return MeanField(
        system=system,
        policy=the_plan.name,
        cost=jobs / rate,
        response_time=jobs / rate,
        waiting_probability=waits,
        blocking_probability=0.0,
        jobs_in_system=jobs * system.servers,
        jobs_per_server=jobs,
        jobs_per_pool=(jobs * system.servers,),
        messages_per_job=4.0,
        withdrawals_per_job=0.0,
        migrations_per_job=0.0,
        utilization=float(1 - x[0]),
        utilization_per_pool=(float(1 - x[0]),),
        queue_tail={"all": tail.tolist(), "pools": [tail.tolist()]},
        error=error,
        seconds=time.perf_counter() - begun,
    )


def _waits(rho: float, x: Floats) -> float:
    """Jobs that find their server busy; the others start a busy period, as many as end."""
    return float(1 - x[1] / rho)


def _pairs(rho: float) -> tuple[Floats, float]:
    """The law of one server, and the error of the fixed point; more levels until enough."""
    levels = _FIRST_LEVELS
    while True:
        x, error = _fixed_point(_Pair(rho, levels))
        if x[-1] < _NEGLIGIBLE:
            break
        if levels >= _MOST_LEVELS:
            raise ValueError(
                f"mean_field: at load {rho:g} the pair approximation needs more than "
                f"{_MOST_LEVELS} levels; lower the load"
            )
        levels = levels * 3 // 2
    if error > _POOR:
        raise ArithmeticError(f"mean_field: the pair approximation has an error of {error:.1e}")
    return x, error


def _fixed_point(pair: _Pair) -> tuple[Floats, float]:
    """Iterate r, with Anderson's extrapolation; changes count as much as their servers are many."""
    r = pair.begin()
    rs: list[Floats] = []
    changes: list[Floats] = []
    for _ in range(_ITERATIONS):
        y = pair.law(r)
        x = y.sum(axis=1)
        change = np.where(x > _NEGLIGIBLE, pair.other_edge(y) - r, 0.0)
        error = float(np.abs(change * x).max())
        if error < _ACCURATE:
            break
        rs, changes = [*rs[-6:], r], [*changes[-6:], change]
        r = np.clip(extrapolated(rs, changes), 0.0, 1.0)
    return np.asarray(x, dtype=np.float64), error
