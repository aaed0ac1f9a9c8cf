"""The chain of a flow network: what its links let through, what a policy does, where to cut.

S flows of G groups (class and route) have C(S + G, G) states. Independent of the compiled engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbgym.models.flow_engine import own_links
from lbgym.models.flow_network import FlowNetwork, Route
from lbgym.models.machine import Rule
from lbgym.policies.registry import parse

from .chain import Booleans, Chain, Floats, Integers, Moves, TooLarge, explore, stationary

AFFORDABLE = 60_000  # states with one or two groups
AFFORDABLE_BEYOND = 25_000
FIRST_STATES, _FIRST_CUT = 1_500, 150
BEYOND = 1e-10  # what lies beyond the cut may matter so much, relative to the mean
OVERLOADED = 0.02  # of the time near the cut is more than a stable network spends there
_ROUNDS = 8
_LONG = 300  # flows: a chain still crowded near such a cut is taken to have no end
_CROWDED = 0.15
_SAME = 1e-12  # relative; values closer than this tie


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


def plan_of(network: FlowNetwork, rule: Rule) -> Plan:
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


def free_plan(network: FlowNetwork) -> Plan:
    """A plan under which every state is reached."""
    return Plan(
        lambda flows, k: np.full(
            (len(flows), len(network.flows[k].alternatives)),
            1 / len(network.flows[k].alternatives),
        ),
        lambda flows: np.zeros(len(flows), dtype=np.int64),
    )


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


def solve(model: FlowChain, most: int) -> Solution:
    chain = explore(model, most)
    pi, residual = stationary(chain)
    return Solution(model, chain, pi, residual)


def cut_for(groups: int, states: int) -> int:
    """The largest total with at most so many states."""
    cut = 1
    while math.comb(cut + 1 + groups, groups) <= states:
        cut += 1 + (cut // 10 if math.comb(cut + 1 + cut // 10 + groups, groups) <= states else 0)
    return cut


def needed(total: Integers, pi: Floats, cut: int, beyond: float) -> float:
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


def settle(build: Build, groups: int, most: int, beyond: float) -> Solution:
    """The solution cut where so little lies beyond, or where it is as large as affordable."""
    largest = cut_for(groups, most)
    cut = min(cut_for(groups, FIRST_STATES), _FIRST_CUT, largest)
    for _ in range(_ROUNDS):
        solution = solve(build(cut), most)
        if solution.crowded > _CROWDED and cut >= min(_LONG, 2 * largest // 3):
            break
        wanted = min(needed(solution.total, solution.pi, cut, beyond), 2 * cut, largest)
        if wanted <= 1.05 * cut:
            break
        cut = math.ceil(wanted) if wanted < largest else largest
    return solution


def affordable(groups: int) -> int:
    return AFFORDABLE if groups <= 2 else AFFORDABLE_BEYOND


def given_cut(cap: Any, groups: int, most: int, what: str) -> int:
    """A cut that was asked for, checked."""
    if isinstance(cap, bool) or not isinstance(cap, int | np.integer) or cap < 1:
        raise ValueError(f"cap: must be a whole number >= 1, got {cap!r}")
    if math.comb(int(cap) + groups, groups) > most:
        raise ValueError(
            f"{what}: {groups} groups of flows, {cap} in all, have "
            f"{math.comb(int(cap) + groups, groups):,} states, at most {most:,} can be solved"
        )
    return int(cap)


def check_groups(network: FlowNetwork, most: int, what: str) -> None:
    groups = len(network.groups)
    if cut_for(groups, most) < 4:
        raise ValueError(
            f"{what}: {groups} groups of flows with only 4 flows in all have "
            f"{math.comb(4 + groups, groups):,} states, at most {most:,} can be solved; "
            "take fewer classes, or use simulate"
        )
