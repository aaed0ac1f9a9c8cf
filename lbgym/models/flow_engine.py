# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
"""A flow network on the move: from decision to decision, and the rules that decide.

The state is the number of flows of each *group* (class and route) and the access-rate level of the
class that has a choice. Two sorts of decision: ROUTE, an arriving flow of a class with alternative
routes; LEVEL, something has happened while flows of the class with alternative access rates are
there. Everything else happens inside `advance`. Sizes are exponential: a unit-rate hazard of the
service stream is used up at the total rate of completions. Arrivals of equal seeds are the same
under every policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from lbgym.engine.access import accessor, entry, inner
from lbgym.engine.layout import (
    ARRIVALS,
    DECIDE,
    DONE,
    GROW,
    INVALID,
    NOTHING,
    PAUSE,
    SERVICE,
)
from lbgym.engine.random import exponential, uniform
from lbgym.engine.start import zero
from lbgym.engine.state import Overload
from lbgym.engine.vocabulary import coin, param, pick
from lbgym.policies.registry import Family

from .flow_network import FlowNetwork
from .machine import (
    PATIENCE,
    SAME,
    Machine,
    Rule,
    choice_at,
    clear_memory,
    doors,
    families_of,
    make_rule,
    record,
    row_of,
    table_params,
    world_record,
)

ROUTE, LEVEL = 1, 2  # w.kind

ARRAYS = {
    "classes": record(
        [
            ("share_to", "f8", "share of the arrivals of classes up to and with this one"),
            ("per_size", "f8", "1 / mean size"),
            ("access", "f8", "access rate of its flows now"),
            ("first", "i8", "its first group"),
            ("routes", "i8", "number of its groups"),
            ("flows", "i8", "flows present"),
            ("area", "f8", "time integral of that number up to `clock`"),
            ("arrivals", "i8", "flows that arrived"),
            ("departed", "i8", "flows that are done"),
        ]
    ),
    "groups": record(
        [
            ("klass", "i8", "its class"),
            ("flows", "i8", "flows present"),
            (
                "sending",
                "f8",
                "what they send, behind the links dealt with so far; at rest: useful",
            ),
            ("begin", "i8", "where its own links begin in `own`"),
            ("count", "i8", "how many they are"),
        ]
    ),
    "links": record(
        [
            ("capacity", "f8", "most that it lets through"),
            ("input", "f8", "what reaches it"),
            ("begin", "i8", "where its groups begin in `members`"),
            ("count", "i8", "how many cross it"),
        ]
    ),
    "order": record([("link", "i8", "links, each after those that lead into it")]),
    "members": record([("group", "i8", "groups that cross a link")]),
    # links that not every alternative of a class crosses (all of them if there are none)
    "own": record([("link", "i8", "links that tell a route from the class's others")]),
    "levels": record([("access", "f8", "access rates of the class that chooses")]),
    "start": record([("flows", "i8", "flows of each group at time 0")]),
}
WORLD, FIRST_MOVING, PAST_MOVING = world_record(
    [
        ("n_classes", "i8", "classes"),
        ("n_groups", "i8", "groups: classes and routes"),
        ("n_links", "i8", "links"),
        ("n_levels", "i8", "access rates to choose among (1: no choice)"),
        ("fair", "i8", "1: fair drop, 0: tail drop"),
        ("most", "i8", "most flows present"),
        ("level_class", "i8", "class that chooses, -1 if none"),
        ("first_level", "i8", "its access rate at time 0"),
    ],
    [
        ("level", "i8", "its access rate now"),
        ("klass", "i8", "class of the arriving flow"),
        ("pace", "f8", "completions per unit time now"),
        ("present", "i8", "flows present"),
        ("area", "f8", "time integral of that number up to `clock`"),
        ("departed", "i8", "flows that are done"),
        ("started", "i8", "flows present at time 0"),
    ],
    ARRAYS,
)
COUNTS = ("arrivals", "departed", "present", "started")

klass_of = accessor("classes", ARRAYS["classes"])
group = accessor("groups", ARRAYS["groups"])
link = accessor("links", ARRAYS["links"])
order = accessor("order", ARRAYS["order"])
member = accessor("members", ARRAYS["members"])
own = accessor("own", ARRAYS["own"])
level_of = accessor("levels", ARRAYS["levels"])
start_of = accessor("start", ARRAYS["start"])
world, rule_signature, rule_type = doors(WORLD)


# --- what the links let through -------------------------------------------------------------------
@inner
def _fair_share(w, x):
    """The f for which the flows' min(input, f) add up to the capacity of an overloaded link."""
    f = 0.0
    while True:
        below, above = 0.0, 0  # input of the flows that send at most f, number of the others
        for m in range(x.begin, x.begin + x.count):
            g = group(w, member(w, m).group)
            if g.sending <= f * g.flows:
                below += g.sending
            else:
                above += g.flows
        if above == 0:
            return f
        more = (x.capacity - below) / above
        if more <= f * (1.0 + SAME):
            return more
        f = more


@inner
def pass_link(w, x):
    """One link: what comes in, and what of it comes out."""
    x.input = 0.0
    for m in range(x.begin, x.begin + x.count):
        x.input += group(w, member(w, m).group).sending
    if x.input <= x.capacity:
        return
    f = _fair_share(w, x) if w.fair else x.capacity / x.input
    for m in range(x.begin, x.begin + x.count):
        g = group(w, member(w, m).group)
        if w.fair:
            g.sending = min(g.sending, f * g.flows)
        else:
            g.sending *= f


@inner
def refresh(w):
    """What every group sends usefully, and the rate of completions."""
    for k in range(w.n_groups):
        g = group(w, k)
        g.sending = g.flows * klass_of(w, g.klass).access
    for k in range(w.n_links):
        pass_link(w, link(w, order(w, k).link))
    w.pace = 0.0
    for k in range(w.n_groups):
        g = group(w, k)
        w.pace += g.sending * klass_of(w, g.klass).per_size


# --- events ---------------------------------------------------------------------------------------
@inner
def pass_time(w, t):
    """Nothing happens until t."""
    span = t - w.clock
    for k in range(w.n_classes):
        c = klass_of(w, k)
        c.area += span * c.flows
    w.area += span * w.present
    w.hazard = max(w.hazard - span * w.pace, 0.0)
    w.clock = t


@inner
def count(w, k, by):
    """Flows come into group k, or leave."""
    g = group(w, k)
    g.flows += by
    klass_of(w, g.klass).flows += by
    w.present += by
    refresh(w)


@inner
def complete(w):
    """A flow is done: its group with probability in proportion to the rates of completion."""
    w.hazard = exponential(w, SERVICE)
    x = uniform(w, SERVICE) * w.pace
    done = -1
    for k in range(w.n_groups):
        g = group(w, k)
        rate = g.sending * klass_of(w, g.klass).per_size
        if rate > 0.0:
            done = k
            if x < rate:
                break
            x -= rate
    klass_of(w, group(w, done).klass).departed += 1
    w.departed += 1
    count(w, done, -1)


@inner
def flow_arrives(w):
    """A flow comes: a decision if its class has several routes."""
    w.next_arrival = w.clock + w.arrival_gap * exponential(w, ARRIVALS)
    x = uniform(w, ARRIVALS)
    k = 0
    while k < w.n_classes - 1 and x >= klass_of(w, k).share_to:
        k += 1
    w.klass = k
    klass_of(w, k).arrivals += 1
    if klass_of(w, k).routes > 1:
        w.kind = ROUTE
    else:
        w.arrivals += 1
        count(w, klass_of(w, k).first, 1)


@inner
def has_level(w):
    """Whether the access rate of flows now present is to be decided."""
    return w.n_levels > 1 and klass_of(w, w.level_class).flows > 0


@inner
def advance(w):
    """Run events until the next decision."""
    last = w.events + PATIENCE
    w.kind = NOTHING
    while w.arrivals < w.rest_at:
        if w.present >= w.most:
            return GROW
        end = w.clock + w.hazard / w.pace if w.pace > 0.0 else np.inf
        t = min(end, w.next_arrival)
        if t > w.horizon:
            pass_time(w, w.horizon)
            return DONE
        pass_time(w, t)
        w.events += 1
        if end <= w.next_arrival:
            complete(w)
        else:
            flow_arrives(w)
        if w.kind == NOTHING and has_level(w):
            w.kind = LEVEL
        if w.kind != NOTHING:
            return DECIDE
        if w.events > last:
            return PAUSE
    return DONE


@inner
def choices(w):
    """Number of actions of the pending decision."""
    if w.kind == ROUTE:
        return klass_of(w, w.klass).routes
    return w.n_levels if w.kind == LEVEL else 0


@inner
def apply(w, action):
    """The arriving flow takes a route, or the class's access rate is set."""
    if action < 0 or action >= choices(w):
        w.action = action
        return INVALID
    if w.kind == ROUTE:
        w.arrivals += 1
        count(w, klass_of(w, w.klass).first + action, 1)
    else:
        set_level(w, action)
    w.kind = NOTHING
    return DECIDE


@inner
def set_level(w, level):
    """The access rate of the class that chooses."""
    w.level = level
    klass_of(w, w.level_class).access = level_of(w, level).access
    refresh(w)


@entry(types.int64(types.int64))
def next_decision(address):
    """Run events until the next decision."""
    return advance(world(address))


@entry(types.int64(types.int64, types.int64))
def carry_out(address, action):
    """Carry out the pending decision."""
    return apply(world(address), action)


@inner
def restart(address):
    """Clear a running network, let the flows of time 0 in and draw the first times."""
    w = world(address)
    zero(address + FIRST_MOVING, PAST_MOVING - FIRST_MOVING)
    clear_memory(w)
    w.klass = -1
    for k in range(w.n_classes):
        c = klass_of(w, k)
        c.flows, c.area, c.arrivals, c.departed = 0, 0.0, 0, 0
    for k in range(w.n_groups):
        group(w, k).flows = 0
    w.next_arrival = w.arrival_gap * exponential(w, ARRIVALS)
    w.hazard = exponential(w, SERVICE)
    for k in range(w.n_groups):
        count(w, k, start_of(w, k).flows)
    w.started = w.present
    if w.n_levels > 1:
        set_level(w, w.first_level)


@entry(types.void(types.int64))
def restart_trajectory(address):
    """`restart`."""
    restart(address)


@entry(types.int64(types.int64, rule_type))
def run(address, rule):
    """Advance, decide and apply until the world is to rest: DONE, GROW, INVALID or PAUSE."""
    w = world(address)
    while True:
        if w.kind == NOTHING:
            status = advance(w)
            if status != DECIDE:
                return status
        status = apply(w, rule(w))
        if status != DECIDE:
            return status


# --- what rules see -------------------------------------------------------------------------------
@inner
def flows_of(w, k):
    """Flows of class k that are present."""
    return klass_of(w, k).flows


@inner
def link_load(w, k):
    """What reaches link k, over its capacity."""
    x = link(w, k)
    return x.input / x.capacity


@inner
def route_load(w, k):
    """The largest load of the links that tell the k-th route of the arriving flow from others."""
    g = group(w, klass_of(w, w.klass).first + k)
    most = 0.0
    for m in range(g.begin, g.begin + g.count):
        most = max(most, link_load(w, own(w, m).link))
    return most


@inner
def route_capacity(w, k):
    """The least capacity of those links."""
    g = group(w, klass_of(w, w.klass).first + k)
    least = np.inf
    for m in range(g.begin, g.begin + g.count):
        least = min(least, link(w, own(w, m).link).capacity)
    return least


# --- rules ----------------------------------------------------------------------------------------
@entry(rule_signature)
def static(w):
    """A route with given probabilities."""
    x = coin(w)
    k = 0
    while k < choices(w) - 1 and x >= param(w, k):
        k += 1
    return k


@inner
def _less_loaded(w, i, j):
    """-1, 0 or 1: route i before, alike or after route j: by load, the larger capacity first."""
    x, y = route_load(w, i), route_load(w, j)
    if abs(x - y) > SAME * abs(y):
        return -1 if x < y else 1
    x, y = route_capacity(w, i), route_capacity(w, j)
    return 0 if x == y else (-1 if x > y else 1)


@entry(rule_signature)
def join_least_loaded(w):
    """The route of least load, ties to that of larger capacity, then uniform."""
    best, tied = 0, 1
    for k in range(1, choices(w)):
        order = _less_loaded(w, k, best)
        if order < 0:
            best, tied = k, 1
        elif order == 0:
            tied += 1
            if pick(w, tied) == 0:
                best = k
    return best


@entry(rule_signature)
def fixed_rate(w):
    """Always the same access rate."""
    return int(param(w, 0))


@entry(rule_signature)
def by_table(w):
    """The choice of a table by flows in each group; params end with the bases of the key."""
    first = w.n_params - w.n_groups
    key = 0.0
    for k in range(w.n_groups):
        base = param(w, first + k)
        key = key * base + min(float(group(w, k).flows), base - 1.0)
    row = row_of(w, key)
    if row < 0:
        return 0
    column = w.klass if w.kind == ROUTE else w.n_classes
    return choice_at(w, row, w.n_classes + 1, column)


def table_rule(
    system: FlowNetwork,
    bases: Sequence[int],
    choices_: NDArray[np.int64],
    name: str,
) -> Rule:
    """A rule from a full table: ``choices_[row, column]``, rows counted in the bases of the groups
    (more flows than the table has count as its most), columns the classes and then the level."""
    params = (*table_params(np.arange(len(choices_)), choices_), *map(float, bases))
    seen = ("route_flows",) if system.route_classes else ("flows",)
    columns = (*seen, *_whose(system))
    table = (tuple(bases), choices_)
    return Rule(name, system, by_table, "everything", params, table=table, columns=columns)


def _whose(system: FlowNetwork) -> tuple[str, ...]:
    """What tells the class of an arriving flow, where several have routes."""
    return ("class",) if len(system.route_classes) > 1 else ()


def build_static(system: FlowNetwork, *p: Any) -> Rule:
    """An arriving flow takes its k-th route with a probability in proportion to the k-th weight."""
    routes = {len(system.flows[k].alternatives) for k in system.route_classes}
    if not routes:
        raise ValueError("static: there are no routes to choose among; use fixed-rate")
    if routes != {len(p)}:
        raise ValueError(
            f"static: needs one weight for each of the {sorted(routes)} routes, got {len(p)}"
        )
    if any(isinstance(x, str) or not 0 <= x < np.inf for x in p) or not sum(p) > 0:
        raise ValueError(f"static: weights must be >= 0 and not all 0, got {list(p)}")
    shares = np.array(p, dtype=float) / float(sum(p))
    return Rule(
        "", system, static, params=tuple(np.cumsum(shares).tolist()), columns=_whose(system)
    )


def build_join_least_loaded(system: FlowNetwork) -> Rule:
    """The route of least load, ties to that of larger capacity, then uniform."""
    if not system.route_classes:
        raise ValueError("join-least-loaded: there are no routes to choose among; use fixed-rate")
    return Rule("", system, join_least_loaded, columns=("link_load", *_whose(system)))


def build_fixed_rate(system: FlowNetwork, a: Any = None) -> Rule:
    """Always the same access rate: a, one of access_rates, or else the class's own access_rate."""
    if system.route_classes:
        raise ValueError(
            "fixed-rate: leaves open which route to take; use static(..) or join-least-loaded"
        )
    if system.level_class is None:
        if a is not None:
            raise ValueError("fixed-rate(a): no class has access_rates to choose among")
        return Rule("", system, fixed_rate, params=(0.0,))
    flow = system.flows[system.level_class]
    rate = flow.access_rate if a is None else a
    near = [k for k, x in enumerate(flow.levels) if not isinstance(rate, str) and x == rate]
    if not near:
        allowed = ", ".join(f"{x:g}" for x in flow.levels)
        raise ValueError(f"fixed-rate: must be one of the access_rates {allowed}, got {rate}")
    return Rule("", system, fixed_rate, params=(float(near[0]),))


FAMILIES = families_of(
    Family("static", build_static, "nothing"),
    Family("join-least-loaded", build_join_least_loaded, "link loads"),
    Family("fixed-rate", build_fixed_rate, "nothing"),
)


def families() -> list[Family]:
    """Every policy of flow networks."""
    return list(FAMILIES.values())


def names() -> list[str]:
    """Their names."""
    return sorted(FAMILIES)


def usual(system: FlowNetwork) -> tuple[str, ...]:
    """The policies that a comparison begins with: equal weights and the least load, or every
    access rate."""
    if system.route_classes:
        routes = len(system.flows[system.route_classes[0]].alternatives)
        return f"static({', '.join('1' * routes)})", "join-least-loaded"
    if system.level_class is None:
        return ("fixed-rate",)
    return tuple(f"fixed-rate({a:.12g})" for a in system.flows[system.level_class].levels)


def make(policy: Any, system: FlowNetwork) -> Rule:
    """A policy's name, a `Rule` or a user's compiled function, bound to a network."""
    return make_rule(policy, system, FAMILIES, rule_signature)


# --- state ----------------------------------------------------------------------------------------
class FlowState(Machine):
    """One running copy of a flow network."""

    WORLD, ARRAYS = WORLD, ARRAYS
    _advance, _apply, _restart = next_decision, carry_out, restart_trajectory

    def __init__(
        self, system: FlowNetwork, params: Sequence[float] = (), max_jobs: int = 10_000_000
    ) -> None:
        super().__init__(system, params)
        w, groups = self.world[0], system.groups
        w["n_classes"], w["n_groups"], w["n_links"] = system.classes, len(groups), system.links
        w["fair"], w["most"] = system.drop == "fair", max_jobs
        self._fill_classes()
        self._fill_groups()
        self.make("order", system.links)["link"] = system.link_order
        self.make("start", len(groups))
        self.link()

    def _fill_classes(self) -> None:
        system, w = self.system, self.world[0]
        rows = self.make("classes", system.classes)
        rates = np.array([flow.arrival_rate for flow in system.flows])
        rows["share_to"] = np.cumsum(rates) / rates.sum()
        rows["per_size"] = [1.0 / flow.mean_size for flow in system.flows]
        rows["access"] = [flow.access_rate for flow in system.flows]
        rows["routes"] = [len(flow.alternatives) for flow in system.flows]
        rows["first"] = np.cumsum(rows["routes"]) - rows["routes"]
        chooser = system.level_class
        levels = (0.0,) if chooser is None else system.flows[chooser].levels
        self.make("levels", len(levels))["access"] = levels
        w["n_levels"], w["level_class"] = len(levels), -1 if chooser is None else chooser
        if chooser is not None:
            w["first_level"] = levels.index(system.flows[chooser].access_rate)

    def _fill_groups(self) -> None:
        groups = self.system.groups
        rows = self.make("groups", len(groups))
        rows["klass"] = [k for k, _ in groups]
        telling = [own_links(self.system, k, route) for k, route in groups]
        self._lay(rows, "own", "link", telling)
        crossing = [
            [g for g, (_, route) in enumerate(groups) if x in route]
            for x in range(self.system.links)
        ]
        links = self.make("links", self.system.links)
        links["capacity"] = self.system.capacities
        self._lay(links, "members", "group", crossing)

    def _lay(self, rows: Any, name: str, field: str, lists: Sequence[Sequence[int]]) -> None:
        """Lists one after another in an array, and where each begins in the rows."""
        rows["count"] = [len(x) for x in lists]
        rows["begin"] = np.cumsum(rows["count"]) - rows["count"]
        self.make(name, int(rows["count"].sum()))[field] = [k for x in lists for k in x]

    @classmethod
    def under(cls, rule: Rule, max_jobs: int = 10_000_000, **_: Any) -> FlowState:
        """A running copy that keeps what a policy needs."""
        return cls(rule.system, rule.params, max_jobs)

    def prepare(self, start: Any) -> None:
        """How trajectories begin: ``"empty"``, or flows of each class (on its first route)."""
        if isinstance(start, str) and start != "empty":
            raise ValueError(f"start: must be 'empty' or flows by class, got {start!r}")
        given = 0 if isinstance(start, str) else self._given(start)
        self.arrays["start"]["flows"] = 0
        self.arrays["start"]["flows"][self.arrays["classes"]["first"]] = given

    def _given(self, start: Any) -> NDArray[np.int64]:
        flows = np.asarray(start)
        n = self.system.classes
        whole = np.issubdtype(flows.dtype, np.integer)
        if flows.shape != (n,) or not whole or (flows < 0).any():
            raise ValueError(f"start: must be {n} whole numbers of flows, got {start!r}")
        return flows

    def grow(self) -> None:
        """There is no more room to be had: raises Overload."""
        raise Overload(int(self.world[0]["present"]), int(self.world[0]["most"]))

    def totals(self) -> dict[str, Any]:
        """Running totals, for batches; by class where the name says so."""
        w, rows = self.world[0], self.arrays["classes"]
        found: dict[str, Any] = {
            name: float(w[name]) for name in ("clock", "arrivals", "area", "present")
        }
        for name in ("area", "arrivals", "flows"):
            found[f"{name}_by_class"] = rows[name].astype(float)
        return found


def own_links(system: FlowNetwork, k: int, route: Sequence[int]) -> list[int]:
    """The links of a route that not all alternatives of class k cross; all if there are none."""
    common = set.intersection(*(set(other) for other in system.flows[k].alternatives))
    return [x for x in route if x not in common] or list(route)
