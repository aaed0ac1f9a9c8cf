"""Theory of flow networks: exact solutions and the optimum; `flow_stability` has critical loads.

The chain of the flows of every group (class and route) is cut at a total number of flows; arrivals
beyond do not happen. `exact` takes up to 60,000 states for one or two groups and 25,000 beyond
(some 10 s, 1 GB), `optimal` up to 12,000 (10 s). `truncation_error` is the difference of the mean
number of flows from that of a chain cut 15 % earlier.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbgym.models.flow_engine import make, table_rule
from lbgym.models.flow_network import FlowNetwork
from lbgym.models.machine import Rule

from .chain import Chain, Floats, Integers, Moves, explore, stationary
from .control import Answer, Control, least_cost
from .flow_chain import (
    BEYOND,
    FIRST_STATES,
    OVERLOADED,
    Build,
    FlowChain,
    Solution,
    affordable,
    check_groups,
    cut_for,
    free_plan,
    given_cut,
    needed,
    plan_of,
    settle,
    solve,
    through,
)
from .flow_stability import critical_load, growth, two_link_limit, with_access, with_load
from .result import Numbers

__all__ = [
    "FlowChain",
    "FlowNumbers",
    "FlowOptimum",
    "critical_load",
    "exact",
    "growth",
    "optimal",
    "through",
    "two_link_limit",
    "with_access",
    "with_load",
]

MOST_DECIDED = 12_000
_DECIDED_BEYOND = 1e-8  # what lies beyond the cut may matter so much, relative to an optimum
_SMALLER = 0.85  # the cut that the truncation error is estimated with
_KEPT = 0.75  # of the cut stands in an optimal policy's table; beyond, the cut can be felt


@dataclass(frozen=True, repr=False)
class FlowNumbers(Numbers):
    """Long-run means; names as in `simulate`'s result, plain floats.

    policy : its name, or the optimal policy itself
    cost : jobs_in_system over the arrival rate: the mean duration of a flow
    flows, flow_duration, useful_rate : by class; useful_rate is what its flows send usefully
    empty : share of the time without a flow
    cut : the most flows kept; truncation_error : of jobs_in_system, absolute, an upper estimate
    """

    system: FlowNetwork
    policy: Any
    cost: float
    jobs_in_system: float
    response_time: float
    flows: tuple[float, ...]
    flow_duration: tuple[float, ...]
    useful_rate: tuple[float, ...]
    empty: float
    truncation_error: float
    cut: int
    states: int
    residual: float
    seconds: float


@dataclass(frozen=True, repr=False)
class FlowOptimum(FlowNumbers):
    """The optimum; `policy` attains it (`simulate` and `exact` take it).

    error : the proven distance of `jobs_in_system` from the least in the chain as it is cut
    objective : what is least
    """

    error: float = 0.0
    iterations: int = 0
    objective: str = "jobs_in_system"


# --- exact ----------------------------------------------------------------------------------------
def exact(network: FlowNetwork, policy: Any = "fixed-rate", cap: int | None = None) -> FlowNumbers:
    """Solve a small network under a policy (a name, or the policy of an `optimal`).

    cap : where to cut the number of flows; default: where it does not matter.

    Raises ValueError if the network is too large (with the number of its states) or unstable.
    """
    begun = time.perf_counter()
    rule = make(policy, network)
    plan, groups = plan_of(network, rule), len(network.groups)
    most = affordable(groups)
    check_groups(network, most, "exact")
    _refuse_overload(network, "exact")

    def build(cut: int) -> FlowChain:
        return FlowChain(network, plan, cut)

    if cap is None:
        solution = settle(build, groups, most, BEYOND)
        if solution.crowded > OVERLOADED:
            raise ValueError(
                f"exact: {rule.name} looks unstable, or too near it: {solution.crowded:.2g} of the "
                f"time is spent near the cut at {solution.model.most} flows; lower the load "
                "(critical_load says how far) or give a larger cap"
            )
    else:
        solution = solve(build(given_cut(cap, groups, most, "exact")), most)
    error = _truncation(build, solution, most)
    level = plan.level(solution.chain.states)
    found = _numbers(solution, level, rule.name, error)
    return FlowNumbers(**found, seconds=time.perf_counter() - begun)


def _refuse_overload(network: FlowNetwork, what: str) -> None:
    """Refuse a network with a link that gets its capacity or more, however flows are routed."""
    if not network.route_classes:
        for link, load in enumerate(network.link_loads):
            if load >= 1:
                raise ValueError(
                    f"{what}: link {link} has load {load:g}; no policy keeps it stable"
                )
    elif (load := least_link_load(network)) >= 1:
        raise ValueError(
            f"{what}: however the flows are routed, some link has load {load:g} or more; no policy "
            "keeps it stable"
        )


def least_link_load(network: FlowNetwork) -> float:
    """The largest load over capacity of a link when flows are split over their routes so that it is
    least: a linear programme."""
    from scipy.optimize import linprog

    parts = [(k, route) for k, flow in enumerate(network.flows) for route in flow.alternatives]
    loads = [network.flows[k].load for k, _ in parts]
    crosses = np.array([[link in route for _, route in parts] for link in range(network.links)])
    of_class = np.array([[k == c for k, _ in parts] for c in range(network.classes)], dtype=float)
    capacities = np.array(network.capacities)[:, None]
    found = linprog(
        np.append(np.zeros(len(parts)), 1.0),
        A_ub=np.hstack([crosses * loads, -capacities]),
        b_ub=np.zeros(network.links),
        A_eq=np.hstack([of_class, np.zeros((network.classes, 1))]),
        b_eq=np.ones(network.classes),
    )
    return float(found.fun)


def _truncation(build: Build, solution: Solution, most: int) -> float:
    smaller = max(int(_SMALLER * solution.model.most), 1)
    return abs(solve(build(smaller), most).mean - solution.mean)


def _numbers(solution: Solution, level: Integers, policy: Any, error: float) -> dict[str, Any]:
    model, pi, states = solution.model, solution.pi, solution.chain.states
    network = model.network
    useful = pi @ model.useful(states, level)
    each = pi @ states

    def by_class(values: Floats) -> tuple[float, ...]:
        return tuple(float(values[model.klass == k].sum()) for k in range(network.classes))

    flows = by_class(each)
    return {
        "system": network,
        "policy": policy,
        "cost": solution.mean / network.total_rate,
        "jobs_in_system": solution.mean,
        "response_time": solution.mean / network.total_rate,
        "flows": flows,
        "flow_duration": tuple(
            x / flow.arrival_rate for x, flow in zip(flows, network.flows, strict=True)
        ),
        "useful_rate": by_class(useful),
        "empty": float(pi[solution.chain.first]),
        "truncation_error": error,
        "cut": model.most,
        "states": solution.chain.size,
        "residual": solution.residual,
    }


# --- the optimum ----------------------------------------------------------------------------------
def optimal(network: FlowNetwork, cap: int | None = None) -> FlowOptimum:
    """The fewest flows on average over all choices of routes, or of access rates, that see the
    number of flows of every group.

    cap : where to cut the number of flows; default: where it does not matter.

    Raises ValueError if the network is too large, or if there is nothing to decide.
    """
    begun = time.perf_counter()
    if not network.route_classes and network.level_class is None:
        raise ValueError("optimal: nothing to decide; give a flow routes or access_rates")
    groups = len(network.groups)
    check_groups(network, MOST_DECIDED, "optimal")
    _refuse_overload(network, "optimal")
    cut = None if cap is None else given_cut(cap, groups, MOST_DECIDED, "optimal")
    decided = _decide(network, _cut_of(network) if cut is None else cut)
    if cut is None:  # the policy found says where the cut does not matter
        largest = cut_for(groups, MOST_DECIDED)
        under = decided.solution
        wanted = needed(under.total, under.pi, under.model.most, _DECIDED_BEYOND)
        decided = _decide(network, math.ceil(min(wanted, largest)))
    smaller = _decide(network, max(int(_SMALLER * decided.solution.model.most), 1))
    error = abs(smaller.solution.mean - decided.solution.mean)
    level = decided.level(network)
    found = _numbers(decided.solution, level, _policy(network, decided), error)
    return FlowOptimum(
        **found,
        seconds=time.perf_counter() - begun,
        error=decided.answer.error,
        iterations=decided.answer.iterations,
    )


@dataclass(frozen=True)
class _Decided:
    """The optimum of a chain as it is cut."""

    solution: Solution
    answer: Answer

    def level(self, network: FlowNetwork) -> Integers:
        """(m,) the access rate in every state."""
        if network.level_class is None:
            return np.zeros(self.solution.chain.size, dtype=np.int64)
        return self.answer.choices[-1]


def _cut_of(network: FlowNetwork) -> int:
    return cut_for(len(network.groups), FIRST_STATES)


def _rates(model: FlowChain, chain: Chain, moves: Iterator[Moves]) -> Any:
    from scipy.sparse import coo_array

    rows, columns, rates = [], [], []
    for move in moves:
        if move.target is not None:
            kept = model.inside(move.target)
            rows.append(move.source[kept])
            columns.append(chain.rows(model.keys(move.target[kept])))
            rates.append(move.rate[kept])
    entries = (np.concatenate(rates), (np.concatenate(rows), np.concatenate(columns)))
    return coo_array(entries, shape=(chain.size, chain.size)).tocsr()


def _control(model: FlowChain, chain: Chain, rates: list[Any]) -> Control:
    shape = (len(rates), chain.size)
    return Control(rates, np.zeros(shape), np.ones(shape, dtype=bool))


def _decide(network: FlowNetwork, cut: int) -> _Decided:
    """The decision process on all states with at most so many flows."""
    model = FlowChain(network, free_plan(network), cut)
    chain = explore(model, MOST_DECIDED)
    states, controls = chain.states, []
    fixed: list[Any] = []
    for k in range(network.classes):
        own = np.flatnonzero(model.klass == k)
        joins = [_rates(model, chain, _joins(model, states, k, int(g))) for g in own]
        if k in network.route_classes:
            controls.append(_control(model, chain, joins))
        else:
            fixed += joins
    levels = 1 if network.level_class is None else len(network.flows[network.level_class].levels)
    served = [
        _rates(model, chain, model.completions(states, np.full(chain.size, level)))
        for level in range(levels)
    ]
    if levels > 1:
        controls.append(_control(model, chain, served))
    else:
        fixed += served
    none = _rates(model, chain, iter([Moves(np.zeros(0, np.int64), np.zeros(0), states[:0])]))
    answer = least_cost(sum(fixed, none), states.sum(axis=1).astype(float), controls)
    chain = replace(chain, rates=answer.rates)
    pi, residual = stationary(chain)
    return _Decided(Solution(model, chain, pi, residual), answer)


def _joins(model: FlowChain, states: Integers, k: int, g: int) -> Iterator[Moves]:
    """Every flow of class k that arrives joins group g."""
    target = states.copy()
    target[:, g] += 1
    rate = model.network.flows[k].arrival_rate
    yield Moves(np.arange(len(states)), np.full(len(states), rate), target)


def _policy(network: FlowNetwork, decided: _Decided) -> Rule:
    """The policy as a full table; states beyond its reach are shrunk into it."""
    model, chain = decided.solution.model, decided.solution.chain
    most = max(int(_KEPT * model.most), 1)
    bases = (most + 1,) * model.g
    flows = np.stack(np.unravel_index(np.arange(math.prod(bases)), bases), axis=1)
    here = np.arange(len(flows))
    while len(over := here[flows.sum(axis=1) > most]):
        flows[over, flows[over].argmax(axis=1)] -= 1
    rows = chain.rows(model.keys(flows))
    table = np.zeros((len(flows), network.classes + 1), dtype=np.int64)
    for k, choice in zip(network.route_classes, decided.answer.choices, strict=False):
        table[:, k] = choice[rows]
    table[:, -1] = decided.level(network)[rows]
    return table_rule(network, bases, table, "optimal")
