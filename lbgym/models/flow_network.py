"""Flow-level data networks without congestion control, as data.

M. Feuillet, *On the flow-level stability of data networks without congestion control: the case of
linear networks and upstream trees* (2012).

Flows arrive in Poisson streams, each with a document of exponential size, and send at their access
rate along a route of links, whatever the congestion. A link whose input exceeds its capacity drops
the excess; what comes out of the last link is useful.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from lbgym.checks import label, number, one_of, quoted
from lbgym.suggest import explained, unknown

from .data import Data, listed, one_or_each, spread

Drop = Literal["tail", "fair"]
DROPS = ("tail", "fair")
MAX_LINKS = 10_000
MAX_GROUPS = 10_000

Route = tuple[int, ...]


@explained
@dataclass(frozen=True, repr=False)
class Flow(Data):
    """A class of flows.

    route : the links it crosses, in order (the first of `routes` if there are alternatives).
    arrival_rate : flows per unit time.
    access_rate : what each flow sends per unit time.
    mean_size : mean size of a document.
    routes : alternatives, among which every arriving flow must choose.
    access_rates : alternatives, among which the access rate of all flows of the class is set anew
        whenever something has happened.
    name : a label for tables.
    """

    route: Route | None = None
    arrival_rate: float = 1.0
    access_rate: float = 1.0
    mean_size: float = 1.0
    routes: tuple[Route, ...] | None = None
    access_rates: tuple[float, ...] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        def put(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        for field in ("arrival_rate", "access_rate", "mean_size"):
            put(field, number(field, getattr(self, field)))
        put("name", label("name", self.name))
        if self.routes is not None:
            put("routes", _alternatives("routes", self.routes, _route))
        if self.route is None and self.routes is None:
            raise ValueError("route: required, a list of links such as [0, 1]")
        put("route", self.alternatives[0] if self.route is None else _route("route", self.route))
        if self.route not in self.alternatives:
            raise ValueError(f"route: must be one of routes, got {list(self.route or ())}")
        if self.access_rates is not None:
            put("access_rates", _alternatives("access_rates", self.access_rates, number))
            if self.access_rate not in self.levels:
                raise ValueError(
                    f"access_rate: must be one of access_rates, got {self.access_rate:g}"
                )

    @property
    def alternatives(self) -> tuple[Route, ...]:
        """The routes it may take."""
        return (self.route or (),) if self.routes is None else self.routes

    @property
    def levels(self) -> tuple[float, ...]:
        """The access rates it may have."""
        return (self.access_rate,) if self.access_rates is None else self.access_rates

    @property
    def load(self) -> float:
        """Arrival rate times mean size: what it must be able to send per unit time."""
        return self.arrival_rate * self.mean_size


@explained
@dataclass(frozen=True, repr=False)
class FlowNetwork(Data):
    """Links and the classes of flows that cross them.

    flows : `Flow`s or their dicts.
    capacities : of each link.
    drop : what an overloaded link lets through. "tail": each class in proportion to its input;
        "fair": each flow min(its input, f), f such that the total is the capacity.
    name : a label for tables.

    The routes must agree on an order of the links. Either arriving flows choose among `routes`, or
    one class chooses among `access_rates`. Any wrong value raises ValueError.
    """

    KIND: ClassVar[str] = "flow-network"
    TABLES: ClassVar[tuple[str, ...]] = ("flows",)
    closed_jobs: ClassVar[None] = None  # an endless run, not episodes

    flows: tuple[Flow, ...]
    capacities: tuple[float, ...]
    drop: Drop = "tail"
    name: str = ""

    def __post_init__(self) -> None:
        def put(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        put("flows", _flows(self.flows))
        put("capacities", listed("capacities", self.capacities, number))
        put("drop", one_of("drop", self.drop, DROPS))
        put("name", label("name", self.name))
        if not 1 <= len(self.capacities) <= MAX_LINKS:
            raise ValueError(
                f"capacities: must be 1 to {MAX_LINKS:,} links, got {len(self.capacities)}"
            )
        self._check_links()
        _order(self)
        self._check_alternatives()

    def _check_links(self) -> None:
        for k, flow in enumerate(self.flows):
            for route in flow.alternatives:
                for link in route:
                    if link >= self.links:
                        raise ValueError(
                            f"flows[{k}].route: link {link} does not exist, there are "
                            f"{self.links} (0 to {self.links - 1})"
                        )

    def _check_alternatives(self) -> None:
        with_levels = [k for k, flow in enumerate(self.flows) if len(flow.levels) > 1]
        with_routes = [k for k, flow in enumerate(self.flows) if len(flow.alternatives) > 1]
        if len(with_levels) > 1:
            raise ValueError(
                "access_rates: one class at most may have alternatives, got classes "
                f"{', '.join(map(str, with_levels))}"
            )
        if with_levels and with_routes:
            raise ValueError(
                f"routes and access_rates: a network has alternatives of one sort, got access "
                f"rates of class {with_levels[0]} and routes of class {with_routes[0]}"
            )
        groups = sum(len(flow.alternatives) for flow in self.flows)
        if groups > MAX_GROUPS:
            raise ValueError(f"flows: at most {MAX_GROUPS:,} classes and routes, got {groups:,}")

    # --- The usual shapes. ---

    @classmethod
    def linear(
        cls,
        arrival_rates: Sequence[float],
        *,
        capacities: float | Sequence[float] = 1.0,
        access_rate: float | Sequence[float] = 1.0,
        mean_size: float | Sequence[float] = 1.0,
        access_rates: Sequence[float] | None = None,
        drop: Drop = "tail",
        name: str = "",
    ) -> Self:
        """Links in a row: class 0 crosses all of them, class l = 1, 2, ... only the l-th.

        `arrival_rates`: of class 0, 1, ...; one link less than classes. `access_rates`: the
        alternatives of class 0.
        """
        rates = listed("arrival_rates", arrival_rates, number)
        links = len(rates) - 1
        if links < 1:
            raise ValueError(
                f"arrival_rates: must be at least two (class 0 and one a link), got {len(rates)}"
            )
        routes: list[Route] = [tuple(range(links)), *((link,) for link in range(links))]
        flows = _make_flows(rates, routes, access_rate, mean_size)
        if access_rates is not None:
            flows[0] = dataclasses.replace(flows[0], access_rates=tuple(access_rates))
        each = spread(one_or_each("capacities", capacities, number, links, "links"), links)
        return cls(tuple(flows), each, drop, name)

    @classmethod
    def tree(
        cls,
        parents: Sequence[int | None],
        arrival_rates: Sequence[float],
        *,
        capacities: float | Sequence[float] = 1.0,
        access_rate: float | Sequence[float] = 1.0,
        mean_size: float | Sequence[float] = 1.0,
        drop: Drop = "tail",
        name: str = "",
    ) -> Self:
        """An upstream tree: every link leads into its parent, the root (parent None) out.

        One class for each leaf (a link that is nobody's parent), in the order of the links;
        `arrival_rates` are theirs. Two leaves and a root: ``parents=[2, 2, None]``.
        """
        links = len(parents)
        up = [None if p is None else _link(f"parents[{k}]", p) for k, p in enumerate(parents)]
        for k, parent in enumerate(up):
            if parent is not None and parent >= links:
                raise ValueError(f"parents[{k}]: link {parent} does not exist")
        leaves = [link for link in range(links) if link not in up]
        routes = [_upwards(leaf, up) for leaf in leaves]
        rates = listed("arrival_rates", arrival_rates, number)
        if len(rates) != len(leaves) or not leaves:
            raise ValueError(
                f"arrival_rates: must be one for each of the {len(leaves)} leaves, got {len(rates)}"
            )
        each = spread(one_or_each("capacities", capacities, number, links, "links"), links)
        return cls(tuple(_make_flows(rates, routes, access_rate, mean_size)), each, drop, name)

    # --- What there is. ---

    @property
    def links(self) -> int:
        """Number of links."""
        return len(self.capacities)

    @property
    def classes(self) -> int:
        """Number of classes of flows."""
        return len(self.flows)

    @property
    def groups(self) -> tuple[tuple[int, Route], ...]:
        """Every (class, route): flows of one group are alike."""
        return tuple((k, route) for k, flow in enumerate(self.flows) for route in flow.alternatives)

    @property
    def link_order(self) -> tuple[int, ...]:
        """The links in an order that every route follows."""
        return _order(self)

    @property
    def total_rate(self) -> float:
        """Flows that arrive per unit time."""
        return math.fsum(flow.arrival_rate for flow in self.flows)

    @property
    def arrival_rate(self) -> float:
        """The same; a name that all systems have."""
        return self.total_rate

    @property
    def level_class(self) -> int | None:
        """The class that chooses among access rates; None if there is none."""
        with_levels = (k for k, flow in enumerate(self.flows) if len(flow.levels) > 1)
        return next(with_levels, None)

    @property
    def route_classes(self) -> tuple[int, ...]:
        """The classes that choose among routes."""
        return tuple(k for k, flow in enumerate(self.flows) if len(flow.alternatives) > 1)

    @property
    def link_loads(self) -> tuple[float, ...]:
        """Load over capacity of each link, every class on its own `route`."""
        totals = np.zeros(self.links)
        for flow in self.flows:
            totals[list(flow.route or ())] += flow.load
        return tuple(float(x) for x in totals / np.array(self.capacities))

    @property
    def default_loss_charge(self) -> float:
        """No flow is ever lost."""
        return 0.0

    def with_rate(self, flow: int, arrival_rate: float) -> Self:
        """The same network with another arrival rate of one class."""
        flows = list(self.flows)
        flows[flow] = dataclasses.replace(flows[flow], arrival_rate=arrival_rate)
        return dataclasses.replace(self, flows=tuple(flows))

    def describe(self) -> str:
        """One short line: "3 classes of flows on 2 links, loads 0.6, 0.6 of the links"."""
        words = "classes" if self.classes > 1 else "class"
        loads = ", ".join(f"{x:g}" for x in self.link_loads[:6]) + ", ..." * (self.links > 6)
        said = [
            f"{self.classes} {words} of flows on {self.links} link{'s' * (self.links > 1)}",
            f"link load{'s' * (self.links > 1)} {loads}",
        ]
        if self.level_class is not None:
            said.append(f"{len(self.flows[self.level_class].levels)} access rates")
        said += [
            f"{len(self.flows[k].alternatives)} routes of class {k}" for k in self.route_classes
        ]
        if self.drop != "tail":
            said.append(f"{self.drop} drop")
        return ", ".join(said)


# --- reading --------------------------------------------------------------------------------------
def _link(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ValueError(f"{field}: must be a link (a whole number >= 0), got {value!r}")
    return int(value)


def _route(field: str, value: Any) -> Route:
    links = listed(field, value, _link)
    if not links:
        raise ValueError(f"{field}: must have at least one link")
    for k, link in enumerate(links):
        if link in links[:k]:
            raise ValueError(f"{field}: crosses link {link} twice; a route must not be cyclic")
    return links


def _alternatives(field: str, value: Any, check: Any) -> tuple[Any, ...]:
    found = listed(field, value, check)
    if not found:
        raise ValueError(f"{field}: must not be empty (without alternatives: None)")
    if len(set(found)) < len(found):
        raise ValueError(f"{field}: must all be different, got {quoted(list(found))}")
    return found


def _flows(value: Any) -> tuple[Flow, ...]:
    if isinstance(value, Flow | Mapping):
        value = [value]
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"flows: must be a list of flows, got {quoted(value)}")
    flows = tuple(_flow(f"flows[{k}]", item) for k, item in enumerate(value))
    if not flows:
        raise ValueError("flows: must not be empty")
    return flows


def _flow(where: str, item: object) -> Flow:
    if isinstance(item, Flow):
        return item
    if not isinstance(item, Mapping):
        raise ValueError(f"{where}: must be a Flow or its dict, got {quoted(item)}")
    names = [field.name for field in dataclasses.fields(Flow)]
    for key in item:
        if key not in names:
            raise ValueError(f"{where}: {unknown('field', key, names)}")
    try:
        return Flow(**item)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None


def _make_flows(
    rates: Sequence[float], routes: Sequence[Route], access_rate: Any, mean_size: Any
) -> list[Flow]:
    n = len(rates)
    access = spread(one_or_each("access_rate", access_rate, number, n, "classes"), n)
    sizes = spread(one_or_each("mean_size", mean_size, number, n, "classes"), n)
    rows = zip(routes, rates, access, sizes, strict=True)
    return [Flow(route, rate, a, size) for route, rate, a, size in rows]


def _upwards(leaf: int, parents: Sequence[int | None]) -> Route:
    route = [leaf]
    while (parent := parents[route[-1]]) is not None:
        if parent in route:
            raise ValueError(f"parents: links {route} lead round in a circle")
        route.append(parent)
    return tuple(route)


def _order(network: FlowNetwork) -> tuple[int, ...]:
    """The links, each after all that lead into it (the lowest first where there is a choice)."""
    pairs = {
        pair
        for flow in network.flows
        for route in flow.alternatives
        for pair in itertools.pairwise(route)
    }
    left, order = set(range(network.links)), []
    while left:
        blocked = {b for a, b in pairs if a in left}
        free = sorted(left - blocked)
        if not free:
            raise ValueError(
                f"flows: the routes lead round in a circle over links {sorted(left)}; every route "
                "must follow one common order of the links"
            )
        order += free
        left -= set(free)
    return tuple(order)
