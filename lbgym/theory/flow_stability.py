"""Stability of flow networks under tail drop: the critical load of one class, growth beyond it.

Let the flows of one class grow without end. It floods its first link; of classes that cross nothing
else they grow along until they get just their load there, so it sends on what they leave. All other
classes go on as a chain of their own under that constant input, and what comes out of its last link
on average is the largest load at which the class does not grow. With two links of capacity 1 and
a_2 >= rho_1 this is 1 - rho_2 - rho_1 (1 - rho_2)^(1 + (1 - rho_1) / a_2) (derived from
Feuillet 2012).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lbgym.models.flow_engine import fixed_rate, make
from lbgym.models.flow_network import FlowNetwork

from .flow_chain import (
    BEYOND,
    OVERLOADED,
    FlowChain,
    Plan,
    affordable,
    free_plan,
    settle,
)


def _under(network: FlowNetwork, policy: Any) -> FlowNetwork:
    """The network with the access rate that a policy has for good."""
    rule = make(policy, network)
    if network.route_classes or rule.place is not fixed_rate:
        raise ValueError(f"critical_load: known for fixed routes and rates only, not {rule.name}")
    chooser = network.level_class
    if chooser is None:
        return network
    return with_access(network, chooser, network.flows[chooser].levels[int(rule.params[0])])


def _flooded(network: FlowNetwork, flow: int) -> tuple[int, list[int]]:
    """The first link of a class, and the classes that cross nothing else."""
    if network.drop != "tail":
        raise ValueError("critical_load: known for tail drop only")
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
    free = free_plan(network)
    plan = Plan(free.shares, lambda flows: np.full(len(flows), level))

    def build(cut: int) -> FlowChain:
        return FlowChain(network, plan, cut, (flow, constant), alone)

    groups = build(1).g
    if groups == 0:
        states = np.zeros((1, 0), dtype=np.int64)
        return float(build(1).useful(states, np.zeros(1, np.int64))[0, -1])
    solution = settle(build, groups, affordable(groups), BEYOND)
    if solution.crowded > OVERLOADED:
        raise ValueError(
            f"critical_load: the other classes are not stable while class {flow} floods the network"
        )
    useful = solution.model.useful(solution.chain.states, plan.level(solution.chain.states))
    return float(solution.pi @ useful[:, -1])


def critical_load(network: FlowNetwork, policy: Any = "fixed-rate", flow: int = 0) -> float:
    """The largest load (arrival rate x mean size) of one class that the network carries, the others
    as they are; its own arrival rate plays no part.

    Raises ValueError where it is not known: fair drop, alternative routes, a first link that other
    classes with more links cross, other classes that are not stable by themselves.
    """
    network = _under(network, policy)
    first, alone = _flooded(network, flow)
    left = network.capacities[first] - math.fsum(network.flows[k].load for k in alone)
    return 0.0 if left <= 0 else _passes(network, flow, left, alone)


def growth(network: FlowNetwork, policy: Any = "fixed-rate", flow: int = 0) -> tuple[float, ...]:
    """Flows that each class gains per unit time when one class is beyond its critical load (all 0
    if it is not). At most one other class may share that class's first link.

    The two that grow send x and C - x through that link, in proportion to access rate x number of
    flows, that is, to access rate x growth.
    """
    from scipy.optimize import brentq

    network = _under(network, policy)
    first, alone = _flooded(network, flow)
    capacity, one = network.capacities[first], network.flows[flow]
    gains = [0.0] * network.classes
    if len(alone) > 1:
        raise ValueError("growth: at most one other class may share the first link of the class")
    if one.load <= critical_load(network, flow=flow):
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
