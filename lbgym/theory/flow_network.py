"""Theory of flow networks: exact solutions, the optimum, stability of one class, its growth.

*Exact* and *optimal*: the chain of the flows of every group (class and route), cut at a total
number of flows; arrivals beyond do not happen. S flows of G groups have C(S + G, G) states; `exact`
takes up to 60,000 for one or two groups and 25,000 beyond (some 10 s, 1 GB), `optimal` up to 12,000
(10 s). `truncation_error` is the difference of the mean number of flows from that of a chain cut 15
% earlier.

*Stability* (tail drop). Let the flows of one class grow without end. It floods its first link; of
classes that cross nothing else they grow along until they get just their load there, so it sends on
what they leave. All other classes go on as a chain of their own under that constant input, and what
comes out of its last link on average is the largest load at which the class does not grow. With two
links of capacity 1 and a_2 >= rho_1 this is 1 - rho_2 - rho_1 (1 - rho_2)^(1 + (1 - rho_1) / a_2)
(MODELS section 8, derived from Feuillet 2012).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbgym.models.flow_engine import make, own_links, table_rule
from lbgym.models.flow_network import FlowNetwork, Route
from lbgym.models.machine import Rule
from lbgym.policies.registry import parse

from .chain import Booleans, Chain, Floats, Integers, Moves, TooLarge, explore, stationary
from .control import Answer, Control, least_cost

AFFORDABLE = 60_000  # states with one or two groups
AFFORDABLE_BEYOND = 25_000
MOST_DECIDED = 12_000
_FIRST_STATES, _FIRST_CUT = 1_500, 150
_BEYOND = 1e-10  # what lies beyond the cut may matter so much, relative to the mean
_DECIDED_BEYOND = 1e-8  # likewise, of an optimum
_SMALLER = 0.85  # the cut that the truncation error is estimated with
_KEPT = 0.75  # of the cut stands in an optimal policy's table; beyond, the cut can be felt
_ROUNDS = 8
_LONG = 300  # flows: a chain still crowded near such a cut is taken to have no end
_CROWDED = 0.15
_OVERLOADED = 0.02  # of the time near the cut is more than a stable network spends there
_SAME = 1e-12  # relative; values closer than this tie


@dataclass(frozen=True)
class FlowNumbers:
    """Long-run means; names as in `simulate`'s result, plain floats.

    policy : its name, or the optimal policy itself
    cost : jobs_in_system over the arrival rate: the mean duration of a flow
    flows, flow_duration, useful_rate : by class; useful_rate is what its flows send usefully
    empty : share of the time without a flow
    cut : the most flows kept; truncation_error : of jobs_in_system, absolute, an upper estimate
    """

    network: FlowNetwork
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


@dataclass(frozen=True)
class FlowOptimum(FlowNumbers):
    """The optimum; `policy` attains it (`simulate` and `exact` take it).

    error : the proven distance of `jobs_in_system` from the least in the chain as it is cut
    """

    error: float = 0.0
    iterations: int = 0


# --- what the links let through -------------------------------------------------------------------
def through(
    network: FlowNetwork, routes: Sequence[Route], sending: Floats, flows: Floats
) -> tuple[Floats, Floats]:
    """(m, groups) what each group sends usefully, and (m, links) what reaches each link.

    sending, flows : (m, groups) what enters the first link, and how many flows send it
    """
    x, reaches = sending.copy(), np.zeros((len(sending), network.links))
    for link in network.link_order:
        members = np.flatnonzero([link in route for route in routes])
        inputs = x[:, members]
        reaches[:, link] = inputs.sum(axis=1)
        over = np.flatnonzero(reaches[:, link] > network.capacities[link])
        capacity = network.capacities[link]
        if network.drop == "fair":
            x[np.ix_(over, members)] = _fair(inputs[over], flows[np.ix_(over, members)], capacity)
        else:
            x[np.ix_(over, members)] *= (capacity / reaches[over, link])[:, None]
    return x, reaches


def _fair(inputs: Floats, flows: Floats, capacity: float) -> Floats:
    """(m, groups) min(input, f) of every flow; f is the largest (C - what the flows of least input
    send) / (number of the others), whichever these are."""
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(flows > 0, inputs / flows, 0.0)
    order = np.argsort(each, axis=1)
    rising = np.take_along_axis(inputs, order, axis=1)
    left = capacity - (np.cumsum(rising, axis=1) - rising)
    behind = np.cumsum(np.take_along_axis(flows, order, axis=1)[:, ::-1], axis=1)[:, ::-1]
    share = np.where(behind > 0, left / np.maximum(behind, 1.0), -np.inf).max(axis=1)
    return np.asarray(np.minimum(inputs, share[:, None] * flows))


# --- what the policies do, independently of the compiled rules ------------------------------------
@dataclass(frozen=True)
class Plan:
    """A policy on a network.

    shares : ``shares(flows, k)``: (m, routes), the probabilities of the routes of class k
    level : ``level(flows)``: (m,), the access rate of the class that chooses
    """

    shares: Callable[[Integers, int], Floats]
    level: Callable[[Integers], Integers]


def _plan(network: FlowNetwork, rule: Rule) -> Plan:
    def no_level(flows: Integers) -> Integers:
        return np.zeros(len(flows), dtype=np.int64)

    def one_route(flows: Integers, k: int) -> Floats:
        routes = len(network.flows[k].alternatives)
        return np.full((len(flows), routes), 1.0 / routes)

    if rule.table is not None:
        return _table_plan(network, rule)
    call = parse(rule.name)
    if call.name == "static":
        weights = np.array(call.positional, dtype=float)
        share = weights / weights.sum()
        return Plan(
            lambda flows, k: (
                np.broadcast_to(share, (len(flows), len(share)))
                if k in network.route_classes
                else np.ones((len(flows), 1))
            ),
            no_level,
        )
    if call.name == "join-least-loaded":
        return Plan(lambda flows, k: _least_loaded(network, flows, k), no_level)
    if call.name == "fixed-rate":
        chosen = int(rule.params[0])
        return Plan(one_route, lambda flows: np.full(len(flows), chosen))
    raise ValueError(f"exact: the chain of policy {rule.name} is not known; use simulate")


def _least_loaded(network: FlowNetwork, flows: Integers, k: int) -> Floats:
    groups = network.groups
    access = np.array([network.flows[c].access_rate for c, _ in groups])
    _, reaches = through(network, [r for _, r in groups], flows * access, flows.astype(float))
    load = reaches / np.array(network.capacities)
    routes = [route for c, route in groups if c == k]
    value = np.stack([load[:, own_links(network, k, r)].max(axis=1) for r in routes], axis=1)
    least = value.min(axis=1, keepdims=True)
    widths = np.array(
        [min(network.capacities[x] for x in own_links(network, k, r)) for r in routes]
    )
    wide = np.where(value <= least + _SAME * np.abs(least), widths, 0.0)
    tied = wide == wide.max(axis=1, keepdims=True)
    return np.asarray(tied / tied.sum(axis=1, keepdims=True))


def _table_plan(network: FlowNetwork, rule: Rule) -> Plan:
    bases, choices = rule.table
    most = np.array(bases) - 1

    def rows(flows: Integers) -> Integers:
        return np.asarray(np.ravel_multi_index(tuple(np.minimum(flows, most).T), bases))

    return Plan(
        lambda flows, k: np.eye(len(network.flows[k].alternatives))[choices[rows(flows), k]],
        lambda flows: choices[rows(flows), -1],
    )


# --- the chain ------------------------------------------------------------------------------------
class FlowChain:
    """A network under a plan as a `chain.Model`; a state is the number of flows of each group.

    most : flows in all
    flood : (class, input) of a class without end, seen by the others as a constant input behind
        its first link; it and the classes in `absorbed` have no flows of their own then
    """

    def __init__(
        self,
        network: FlowNetwork,
        plan: Plan,
        most: int,
        flood: tuple[int, float] | None = None,
        absorbed: Sequence[int] = (),
    ) -> None:
        self.network, self.plan, self.most, self.flood = network, plan, most, flood
        gone = {*absorbed} | ({flood[0]} if flood else set())
        self.groups = [(k, route) for k, route in network.groups if k not in gone]
        self.g = len(self.groups)
        self.klass = np.array([k for k, _ in self.groups], dtype=np.int64)
        self.per_size = np.array([1 / network.flows[k].mean_size for k in self.klass])
        if self.g * math.log2(most + 2) > 61:
            raise TooLarge(1 << 61)

    def start(self) -> Integers:
        return np.zeros((1, self.g), dtype=np.int64)

    def canonical(self, states: Integers) -> Integers:
        return states

    def keys(self, states: Integers) -> Integers:
        key = np.zeros(len(states), dtype=np.int64)
        for column in states.T:
            key = key * (self.most + 2) + column
        return key

    def inside(self, states: Integers) -> Booleans:
        return np.asarray(states.sum(axis=1) <= self.most)

    def access(self, states: Integers, level: Integers) -> Floats:
        """(m, groups) access rates."""
        rates = np.array([self.network.flows[k].access_rate for k in self.klass])
        access = np.broadcast_to(rates, states.shape).copy()
        chooser = self.network.level_class
        if chooser is not None:
            levels = np.array(self.network.flows[chooser].levels)
            access[:, self.klass == chooser] = levels[level][:, None]
        return access

    def useful(self, states: Integers, level: Integers) -> Floats:
        """(m, groups) what each group sends usefully; a flooding class comes last."""
        sending = states * self.access(states, level)
        routes, flows = [route for _, route in self.groups], states.astype(float)
        if self.flood is not None:
            k, constant = self.flood
            routes.append((self.network.flows[k].route or ())[1:])
            sending = np.column_stack([sending, np.full(len(states), constant)])
            flows = np.column_stack([flows, np.full(len(states), 1.0)])
        return through(self.network, routes, sending, flows)[0]

    def arrivals(self, states: Integers) -> Iterator[Moves]:
        for k in sorted({int(k) for k in self.klass}):
            share = self.plan.shares(states, k)
            own = np.flatnonzero(self.klass == k)
            for j, g in enumerate(own):
                rows = np.flatnonzero(share[:, j])
                target = states[rows]
                target[:, g] += 1
                yield Moves(rows, self.network.flows[k].arrival_rate * share[rows, j], target)

    def completions(self, states: Integers, level: Integers) -> Iterator[Moves]:
        useful = self.useful(states, level)
        for g in range(self.g):
            rows = np.flatnonzero(useful[:, g])
            target = states[rows]
            target[:, g] -= 1
            yield Moves(rows, useful[rows, g] * self.per_size[g], target)

    def moves(self, states: Integers) -> Iterator[Moves]:
        yield from self.arrivals(states)
        yield from self.completions(states, self.plan.level(states))


# --- solving and cutting --------------------------------------------------------------------------
@dataclass(frozen=True)
class Solution:
    """A solved chain."""

    model: FlowChain
    chain: Chain
    pi: Floats
    residual: float

    @property
    def total(self) -> Integers:
        """(m,) flows in each state."""
        return np.asarray(self.chain.states.sum(axis=1))

    @property
    def mean(self) -> float:
        """Mean number of flows."""
        return float(self.pi @ self.total)

    @property
    def crowded(self) -> float:
        """Share of the time within 20 % of the cut."""
        return float(self.pi[self.total > 0.8 * self.model.most].sum())


Build = Callable[[int], FlowChain]


def _solve(model: FlowChain, most: int) -> Solution:
    chain = explore(model, most)
    pi, residual = stationary(chain)
    return Solution(model, chain, pi, residual)


def _cut_for(groups: int, states: int) -> int:
    """The largest total with at most so many states."""
    cut = 1
    while math.comb(cut + 1 + groups, groups) <= states:
        cut += 1 + (cut // 10 if math.comb(cut + 1 + cut // 10 + groups, groups) <= states else 0)
    return cut


def _needed(total: Integers, pi: Floats, cut: int, beyond: float) -> float:
    """Where the total may be cut: its tail goes on as it falls between a third and two thirds of
    the present cut. Infinite if it does not fall."""
    far = 2 * cut // 3
    while far > 2 and pi[total >= far].sum() < 1e-13:
        far -= 1
    near = max(far // 2, 1)
    at_near, at_far = float(pi[total >= near].sum()), float(pi[total >= far].sum())
    if not 0 < at_far < at_near:
        return math.inf
    decay = math.log(at_near / at_far) / (far - near)
    scale = max(float(pi @ total), 1e-3)
    return far + max(math.log(at_far * (2 * far + 1 / decay) / (beyond * scale)), 0.0) / decay


def _settle(build: Build, groups: int, most: int, beyond: float) -> Solution:
    """The solution cut where so little lies beyond, or where it is as large as affordable."""
    largest = _cut_for(groups, most)
    cut = min(_cut_for(groups, _FIRST_STATES), _FIRST_CUT, largest)
    for _ in range(_ROUNDS):
        solution = _solve(build(cut), most)
        if solution.crowded > _CROWDED and cut >= min(_LONG, 2 * largest // 3):
            break
        wanted = min(_needed(solution.total, solution.pi, cut, beyond), 2 * cut, largest)
        if wanted <= 1.05 * cut:
            break
        cut = math.ceil(wanted) if wanted < largest else largest
    return solution


def _affordable(groups: int) -> int:
    return AFFORDABLE if groups <= 2 else AFFORDABLE_BEYOND


def _given(total: Any, groups: int, most: int, what: str) -> int:
    if isinstance(total, bool) or not isinstance(total, int | np.integer) or total < 1:
        raise ValueError(f"total: must be a whole number >= 1, got {total!r}")
    if math.comb(int(total) + groups, groups) > most:
        raise ValueError(
            f"{what}: {groups} groups of flows, {total} in all, have "
            f"{math.comb(int(total) + groups, groups):,} states, at most {most:,} can be solved"
        )
    return int(total)


def _check_groups(network: FlowNetwork, most: int, what: str) -> None:
    groups = len(network.groups)
    if _cut_for(groups, most) < 4:
        raise ValueError(
            f"{what}: {groups} groups of flows with only 4 flows in all have "
            f"{math.comb(4 + groups, groups):,} states, at most {most:,} can be solved; "
            "take fewer classes, or use simulate"
        )


# --- exact ----------------------------------------------------------------------------------------
def exact(
    network: FlowNetwork, policy: Any = "fixed-rate", total: int | None = None
) -> FlowNumbers:
    """Solve a small network under a policy (a name, or the policy of an `optimal`).

    total : where to cut the number of flows; default: where it does not matter.

    Raises ValueError if the network is too large (with the number of its states) or unstable.
    """
    begun = time.perf_counter()
    rule = make(policy, network)
    plan, groups = _plan(network, rule), len(network.groups)
    most = _affordable(groups)
    _check_groups(network, most, "exact")
    _refuse_overload(network)

    def build(cut: int) -> FlowChain:
        return FlowChain(network, plan, cut)

    if total is None:
        solution = _settle(build, groups, most, _BEYOND)
        if solution.crowded > _OVERLOADED:
            raise ValueError(
                f"exact: {rule.name} looks unstable, or too near it: {solution.crowded:.2g} of the "
                f"time is spent near the cut at {solution.model.most} flows; lower the load "
                "(critical_load says how far) or give a larger total"
            )
    else:
        solution = _solve(build(_given(total, groups, most, "exact")), most)
    error = _truncation(build, solution, most)
    level = plan.level(solution.chain.states)
    found = _numbers(solution, level, rule.name, error)
    return FlowNumbers(**found, seconds=time.perf_counter() - begun)


def _refuse_overload(network: FlowNetwork) -> None:
    if network.route_classes:
        return
    for link, load in enumerate(network.link_loads):
        if load >= 1:
            raise ValueError(f"exact: link {link} has load {load:g}; no policy keeps it stable")


def _truncation(build: Build, solution: Solution, most: int) -> float:
    smaller = max(int(_SMALLER * solution.model.most), 1)
    return abs(_solve(build(smaller), most).mean - solution.mean)


def _numbers(solution: Solution, level: Integers, policy: Any, error: float) -> dict[str, Any]:
    model, pi, states = solution.model, solution.pi, solution.chain.states
    network = model.network
    useful = pi @ model.useful(states, level)
    each = pi @ states

    def by_class(values: Floats) -> tuple[float, ...]:
        return tuple(float(values[model.klass == k].sum()) for k in range(network.classes))

    flows = by_class(each)
    return {
        "network": network,
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
def optimal(network: FlowNetwork, total: int | None = None) -> FlowOptimum:
    """The fewest flows on average over all choices of routes, or of access rates, that see the
    number of flows of every group.

    total : where to cut the number of flows; default: where it does not matter.

    Raises ValueError if the network is too large, or if there is nothing to decide.
    """
    begun = time.perf_counter()
    if not network.route_classes and network.level_class is None:
        raise ValueError("optimal: nothing to decide; give a flow routes or access_rates")
    groups = len(network.groups)
    _check_groups(network, MOST_DECIDED, "optimal")
    cut = total if total is None else _given(total, groups, MOST_DECIDED, "optimal")
    decided = _decide(network, _cut_of(network) if cut is None else cut)
    if cut is None:  # the policy found says where the cut does not matter
        largest = _cut_for(groups, MOST_DECIDED)
        under = decided.solution
        wanted = _needed(under.total, under.pi, under.model.most, _DECIDED_BEYOND)
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
    return _cut_for(len(network.groups), _FIRST_STATES)


def _free_plan(network: FlowNetwork) -> Plan:
    """A plan under which every state is reached."""
    return Plan(
        lambda flows, k: np.full(
            (len(flows), len(network.flows[k].alternatives)),
            1 / len(network.flows[k].alternatives),
        ),
        lambda flows: np.zeros(len(flows), dtype=np.int64),
    )


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
    model = FlowChain(network, _free_plan(network), cut)
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


# --- stability ------------------------------------------------------------------------------------
def _flooded(network: FlowNetwork, flow: int) -> tuple[int, list[int]]:
    """The first link of a class, and the classes that cross nothing else."""
    if network.drop != "tail":
        raise ValueError("critical_load: known for tail drop only")
    if network.route_classes:
        raise ValueError("critical_load: known for fixed routes only")
    if isinstance(flow, bool) or flow not in range(network.classes):
        raise ValueError(f"flow: must be a class from 0 to {network.classes - 1}, got {flow!r}")
    first = (network.flows[flow].route or ())[0]
    alone = []
    for k, other in enumerate(network.flows):
        if k != flow and first in (other.route or ()):
            if other.route != (first,):
                raise ValueError(
                    f"critical_load: class {k} crosses the first link of class {flow} ({first}) "
                    "and others; known only if such classes cross nothing else"
                )
            alone.append(k)
    return first, alone


def _passes(network: FlowNetwork, flow: int, constant: float, alone: Sequence[int]) -> float:
    """What is useful of a constant input of a class behind its first link, on average."""
    chooser = network.level_class
    level = 0
    if chooser is not None:
        level = network.flows[chooser].levels.index(network.flows[chooser].access_rate)
    free = _free_plan(network)
    plan = Plan(free.shares, lambda flows: np.full(len(flows), level))

    def build(cut: int) -> FlowChain:
        return FlowChain(network, plan, cut, (flow, constant), alone)

    groups = build(1).g
    if groups == 0:
        states = np.zeros((1, 0), dtype=np.int64)
        return float(build(1).useful(states, np.zeros(1, np.int64))[0, -1])
    solution = _settle(build, groups, _affordable(groups), _BEYOND)
    if solution.crowded > _OVERLOADED:
        raise ValueError(
            f"critical_load: the other classes are not stable while class {flow} floods the network"
        )
    useful = solution.model.useful(solution.chain.states, plan.level(solution.chain.states))
    return float(solution.pi @ useful[:, -1])


def critical_load(network: FlowNetwork, flow: int = 0) -> float:
    """The largest load (arrival rate x mean size) of one class that the network carries, the others
    as they are; its own arrival rate plays no part.

    Raises ValueError where it is not known: fair drop, alternative routes, a first link that other
    classes with more links cross, other classes that are not stable by themselves.
    """
    first, alone = _flooded(network, flow)
    left = network.capacities[first] - math.fsum(network.flows[k].load for k in alone)
    return 0.0 if left <= 0 else _passes(network, flow, left, alone)


def growth(network: FlowNetwork, flow: int = 0) -> tuple[float, ...]:
    """Flows that each class gains per unit time when one class is beyond its critical load (all 0
    if it is not). At most one other class may share that class's first link.

    The two that grow send x and C - x through that link, in proportion to access rate x number of
    flows, that is, to access rate x growth.
    """
    from scipy.optimize import brentq

    first, alone = _flooded(network, flow)
    capacity, one = network.capacities[first], network.flows[flow]
    gains = [0.0] * network.classes
    if len(alone) > 1:
        raise ValueError("growth: at most one other class may share the first link of the class")
    if one.load <= critical_load(network, flow):
        return tuple(gains)

    def gain(x: float) -> float:
        return one.arrival_rate - _passes(network, flow, x, alone) / one.mean_size

    if not alone:
        gains[flow] = gain(capacity)
        return tuple(gains)
    other = network.flows[alone[0]]

    def others(x: float) -> float:
        return other.arrival_rate - (capacity - x) / other.mean_size

    def balance(x: float) -> float:
        return one.access_rate * gain(x) * (capacity - x) - other.access_rate * others(x) * x

    x = float(brentq(balance, capacity - other.load, capacity, xtol=1e-14, rtol=1e-13))
    gains[flow], gains[alone[0]] = gain(x), others(x)
    return tuple(gains)


def two_link_limit(rho1: float, rho2: float, access2: float) -> float:
    """Critical load of the class that crosses two links of capacity 1, class 2 with an access rate
    of at least rho1: 1 - rho2 - rho1 (1 - rho2)^(1 + (1 - rho1) / access2)."""
    if access2 < rho1:
        raise ValueError(f"access2: must be at least rho1 ({rho1:g}), got {access2:g}")
    return float(1 - rho2 - rho1 * (1 - rho2) ** (1 + (1 - rho1) / access2))


def with_load(network: FlowNetwork, flow: int, load: float) -> FlowNetwork:
    """The same network with another load of one class."""
    return network.with_rate(flow, load / network.flows[flow].mean_size)


def with_access(network: FlowNetwork, flow: int, access_rate: float) -> FlowNetwork:
    """The same network with another access rate of one class."""
    flows = list(network.flows)
    flows[flow] = dataclasses.replace(flows[flow], access_rate=access_rate)
    return dataclasses.replace(network, flows=tuple(flows))
