"""What a system is: pools of servers, routers, a load. Frozen, checked once, plain data outside.

A `System` says what there is; where it is now is the engine's state. Times are in units of the
mean service time of a job of size 1 on a server of speed 1.
"""

import dataclasses
import inspect
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from lbgym.checks import (
    LEAST,
    MAX_COUNT,
    MOST,
    flag,
    integer,
    label,
    listed,
    number,
    one_of,
    quoted,
)
from lbgym.graph import Graph, as_graph, edges_of
from lbgym.laws import Exponential, Law, Poisson, Process, Trace, as_law, as_process
from lbgym.suggest import explained, unknown
from lbgym.toml_text import read_toml, toml_value
from lbgym.wording import say_places, say_rest, say_servers

__all__ = ["JobClass", "Pool", "System", "as_system"]

Discipline = Literal["fcfs", "ps"]
MessageFate = Literal["withdraw", "keep", "resend"]

DISCIPLINES = ("fcfs", "ps")
MESSAGE_FATES = ("withdraw", "keep", "resend")

MAX_SERVERS = 100_000_000  # the arrays of a larger system do not fit any machine we know of
MAX_ROUTERS = 1_000_000
MAX_CHANGES = 10_000  # of the arrival rate's phase for each job: more would seem to hang

Part = TypeVar("Part", "Pool", "JobClass")


# --- The parts. ----------------------------------------------------------------------------------


@explained
@dataclass(frozen=True)
class Pool:
    """Servers alike in every respect.

    servers: how many.
    speed: work per unit time of a server (of each of its slots).
    limit: the most jobs a server may hold, those in service included; None: any number.
    slots: jobs that a server serves at once, each at `speed` (an Erlang loss server with C
        circuits is `slots=C, limit=C`).
    discipline: "fcfs" or "ps" (processor sharing, one slot).
    units: capacity of a server of a loss system with classes: each of its jobs occupies the units
        of its class for an exponential time of the class's mean, whatever the speed.
    """

    servers: int
    speed: float = 1.0
    limit: int | None = None
    slots: int = 1
    discipline: Discipline = "fcfs"
    units: int | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "servers", integer("servers", self.servers, most=MAX_SERVERS))
        put(self, "speed", number("speed", self.speed))
        put(self, "slots", integer("slots", self.slots, most=MAX_COUNT))
        put(self, "limit", _limit(self.limit, self.slots))
        put(self, "discipline", one_of("discipline", self.discipline, DISCIPLINES))
        if self.discipline == "ps" and self.slots != 1:
            raise ValueError(f"slots: must be 1 with discipline ps, got {self.slots}")
        if self.units is not None:
            put(self, "units", integer("units", self.units, most=MAX_COUNT))
            if (self.speed, self.limit, self.slots, self.discipline) != (1.0, None, 1, "fcfs"):
                raise ValueError(
                    "units: speed, limit, slots and discipline play no part with units"
                )

    def __repr__(self) -> str:
        return _call(self)


def _limit(value: object, slots: int) -> int | None:
    if value is None or (isinstance(value, Real) and value == math.inf):
        return None
    try:
        limit = integer("limit", value, most=MAX_COUNT)
    except ValueError as error:
        raise ValueError(f"{error} (without a limit: None)") from None
    if limit < slots:
        raise ValueError(f"limit: must be at least slots ({slots}), got {limit}")
    return limit


@explained
@dataclass(frozen=True)
class JobClass:
    """A kind of job.

    share: its part of the arrivals; the shares of a system's classes are normalised.
    mean_size: mean work of a job.
    weight: what losing a job of this class counts.
    units: how many units of a server it needs (loss systems with classes).
    """

    share: float = 1.0
    mean_size: float = 1.0
    weight: float = 1.0
    name: str = ""
    units: int = 1

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "share", number("share", self.share))
        put(self, "mean_size", number("mean_size", self.mean_size))
        put(self, "weight", number("weight", self.weight, zero=True))
        put(self, "name", label("name", self.name))
        put(self, "units", integer("units", self.units, most=MAX_COUNT))

    def __repr__(self) -> str:
        return _call(self)


# --- The system. ---------------------------------------------------------------------------------


@explained
@dataclass(frozen=True, init=False, repr=False)
class System:
    """Jobs arrive at routers, which send them to servers; by default in a Poisson stream, of
    exponential size.

    pools: `Pool`s or their dicts, one or a list.
    routers: how many, equally loaded, or a list of positive weights (normalised).
    load, arrival_rate: exactly one of them; the other follows from
        load = arrival_rate * mean size / sum of servers * slots * speed. Both then read as floats;
        a load of 1 or more is allowed. `dataclasses.replace(system, load=0.8)` and
        `system.with_load(0.8)` set a new load, whichever of the two was given before.
    message_fate: what becomes of a pull-message when its idle server gets a job otherwise:
        "withdraw", "keep" or "resend".
    migration_rate: rate of each job's resampling clock; 0: jobs stay where they were placed.
    replace: True if sampled servers are drawn with replacement.
    size: law of the job sizes, a name or a dict such as {"law": "erlang", "k": 2}, scaled to mean 1
        (to `mean_size` of each class). See `lbgym.laws`.
    arrivals: arrival process, "poisson" or a dict such as {"process": "mmpp", ...}; `load` or
        `arrival_rate` sets its mean. See `lbgym.laws`.
    slotted: True for slotted time. In slot t = 0, 1, ...: queues are read if `read_interval` (a
        whole number) divides t; the arrivals of [t, t + 1) are placed one by one; then each server
        completes a job with probability speed (at most 1) over mean size. All that happens at t, so
        a job served in its first slot has response time 0, and time averages are averages over the
        slots' ends.
    classes: None or `JobClass`es or their dicts. If their mean sizes differ, sizes are drawn.
    graph: where a job may go. None: to any server; otherwise each edge of the graph gets an equal
        share of the arrivals, and a job goes to one of its edge's two ends: "ring",
        ["torus", rows, columns], "complete" or a list of edges [[0, 1], ...].
    read_interval: time between reads of all queues; rules with a live view then see the last read.
    closed_jobs: the number of jobs of a closed system (no arrivals, no service, jobs only move).
    name: a label for tables.

    Any wrong value raises ValueError: field, what is allowed, what came.
    """

    KIND: ClassVar[str] = "dispatch"

    pools: tuple[Pool, ...]
    routers: int | tuple[float, ...]
    message_fate: MessageFate
    migration_rate: float
    replace: bool
    classes: tuple[JobClass, ...] | None
    graph: Graph
    read_interval: float | None
    closed_jobs: int | None
    size: Law
    arrivals: Process
    slotted: bool
    name: str
    # ("load", 0.9) or ("arrival_rate", 27.0): what the user gave. A field, so that equality, hash,
    # pickle and dataclasses.replace see it; the other of the two is always computed.
    _given: tuple[str, float]

    def __init__(
        self,
        pools: Pool | Mapping[str, Any] | Iterable[Pool | Mapping[str, Any]],
        routers: int | Iterable[float] = 1,
        load: float | None = None,
        arrival_rate: float | None = None,
        *,
        message_fate: MessageFate = "withdraw",
        migration_rate: float = 0.0,
        replace: bool = False,
        classes: JobClass
        | Mapping[str, Any]
        | Iterable[JobClass | Mapping[str, Any]]
        | None = None,
        graph: Any = None,
        read_interval: float | None = None,
        closed_jobs: int | None = None,
        size: Any = "exponential",
        arrivals: Any = "poisson",
        slotted: bool = False,
        name: str = "",
        _given: tuple[str, float] | None = None,  # only for dataclasses.replace
    ) -> None:
        put = object.__setattr__
        put(self, "pools", _parts("pools", Pool, pools))
        put(self, "routers", _routers(routers))
        put(self, "message_fate", one_of("message_fate", message_fate, MESSAGE_FATES))
        put(self, "migration_rate", number("migration_rate", migration_rate, zero=True))
        put(self, "replace", flag("replace", replace))
        put(self, "classes", None if classes is None else _parts("classes", JobClass, classes))
        put(self, "size", as_law(size))
        put(self, "arrivals", as_process(arrivals))
        put(self, "slotted", flag("slotted", slotted))
        put(self, "name", label("name", name))
        put(self, "graph", as_graph(graph, self.servers))
        if read_interval is not None:
            read_interval = number("read_interval", read_interval)
        put(self, "read_interval", read_interval)
        if closed_jobs is not None:
            closed_jobs = integer("closed_jobs", closed_jobs, most=MAX_COUNT)
            _given = _closed(load, arrival_rate)
        put(self, "closed_jobs", closed_jobs)
        put(self, "_given", _load_or_rate(load, arrival_rate, _given))
        self._check_together()

    def _check_together(self) -> None:
        if self.servers > MAX_SERVERS:
            raise ValueError(f"pools: at most {MAX_SERVERS:,} servers, got {self.servers:,}")
        self._check_units()
        self._check_special()
        if self.closed_jobs is not None:
            return
        self._check_laws()
        self._check_slots()
        for quantity, value in (("a load", self.load), ("an arrival rate", self.arrival_rate)):
            if not LEAST <= value <= MOST:
                field, given = self._given
                raise ValueError(
                    f"{field}: {given!r} gives {quantity} of {value:g} with these speeds and "
                    f"sizes; must be between {LEAST} and {MOST}"
                )

    def _check_units(self) -> None:
        if len({p.units is None for p in self.pools}) > 1:
            raise ValueError("pools: either all or none must have units")
        if not self.has_units:
            for i, kind in enumerate(self.classes or ()):
                if kind.units != 1:
                    raise ValueError(
                        f"classes[{i}].units: needs pools with units, got {kind.units}"
                    )
            return
        if self.classes is None:
            raise ValueError("units: a system with units needs classes")
        most = max(p.units or 0 for p in self.pools)
        for i, kind in enumerate(self.classes):
            if kind.units > most:
                raise ValueError(
                    f"classes[{i}].units: no server can hold {kind.units}, the largest has {most}"
                )
        if self.migrates:
            raise ValueError("migration_rate: jobs of a system with units do not move; must be 0")

    def _check_special(self) -> None:
        """Combinations of graph, reads and closed jobs that have no meaning."""
        if self.closed_jobs is not None:
            if not self.migrates:
                raise ValueError("closed_jobs: needs migration_rate above 0, e.g. 1.0")
            if self.has_units or self.graph is not None or self.read_interval is not None:
                raise ValueError("closed_jobs: excludes units, graph and read_interval")
            places = sum(p.servers * (math.inf if p.limit is None else p.limit) for p in self.pools)
            if self.closed_jobs > places:
                raise ValueError(
                    f"closed_jobs: must be at most the {places:g} places, got {self.closed_jobs}"
                )
            if self.size != Exponential() or self.arrivals != Poisson() or self.slotted:
                raise ValueError("closed_jobs: excludes size, arrivals and slotted")

    def _check_laws(self) -> None:
        """Whether sizes, arrivals and a trace fit the rest."""
        if self.arrivals.changes > MAX_CHANGES * self.arrival_rate:
            raise ValueError(
                f"arrivals: the rate changes {self.arrivals.changes / self.arrival_rate:.3g} times "
                f"for each job, must be at most {MAX_CHANGES:,}"
            )
        if not isinstance(self.arrivals, Trace):
            return
        trace = self.arrivals.data
        if trace.sizes is not None and self.size != Exponential():
            raise ValueError("size: the trace has sizes of its own; leave size out")
        kinds = (
            ("class", trace.classes, len(self.class_shares)),
            ("router", trace.routers, self.router_count),
        )
        for name, values, number_of in kinds:
            if values is not None and not 0 <= values.min() <= values.max() < number_of:
                raise ValueError(
                    f"arrivals: the trace has {name} {values.max()}, must be 0..{number_of - 1}"
                )

    def _check_slots(self) -> None:
        """Slotted time is for single servers with geometric service."""
        if not self.slotted:
            return
        if self.draws_sizes:
            raise ValueError("slotted: service is geometric; leave size out")
        if self.has_units or self.migrates:
            raise ValueError("slotted: excludes units and migration_rate")
        for i, p in enumerate(self.pools):
            if p.slots != 1 or p.discipline != "fcfs":
                raise ValueError(f"slotted: pools[{i}] must have one slot and discipline fcfs")
            if p.speed / self.mean_size > 1:
                raise ValueError(
                    f"slotted: pools[{i}].speed over mean size is a probability, must be at most "
                    f"1, got {p.speed / self.mean_size:g}"
                )
        if self.read_interval is not None and not self.read_interval.is_integer():
            raise ValueError(
                f"read_interval: must be a whole number of slots, got {self.read_interval:g}"
            )

    # --- How much is there, how much comes. ---

    @property
    def load(self) -> float:
        """Arrival rate times mean size over capacity (units: offered units over units)."""
        field, value = self._given
        return value if field == "load" else value * self.mean_size / self.capacity

    @property
    def arrival_rate(self) -> float:
        """Jobs per unit time, all routers together."""
        field, value = self._given
        return value if field == "arrival_rate" else value * self.capacity / self.mean_size

    @property
    def servers(self) -> int:
        """Number of servers."""
        return sum(p.servers for p in self.pools)

    @property
    def capacity(self) -> float:
        """Most work per unit time: the sum of servers * slots * speed (or of the units)."""
        if self.has_units:
            return float(sum(p.servers * (p.units or 0) for p in self.pools))
        return math.fsum(p.servers * p.slots * p.speed for p in self.pools)

    @property
    def mean_size(self) -> float:
        """Mean size of a job: of the classes, weighted by share (with units: size x units)."""
        if self.classes is None:
            return 1.0
        shares = math.fsum(c.share for c in self.classes)
        return math.fsum(c.share * c.mean_size * c.units for c in self.classes) / shares

    @property
    def router_count(self) -> int:
        """Number of routers."""
        return self.routers if isinstance(self.routers, int) else len(self.routers)

    @property
    def router_weights(self) -> tuple[float, ...]:
        """Each router's part of the arrivals; sums to 1."""
        if isinstance(self.routers, int):
            return (1.0 / self.routers,) * self.routers
        weights = math.fsum(self.routers)
        return tuple(w / weights for w in self.routers)

    @property
    def class_shares(self) -> tuple[float, ...]:
        """Each class's part of the arrivals; sums to 1. Without classes (1.0,)."""
        if self.classes is None:
            return (1.0,)
        shares = math.fsum(c.share for c in self.classes)
        return tuple(c.share / shares for c in self.classes)

    @property
    def has_units(self) -> bool:
        """True for a loss system in which jobs occupy units."""
        return self.pools[0].units is not None

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The edges of the graph; empty without one."""
        return edges_of(self.graph, self.servers)

    def limit_of(self, pool: Pool) -> int | None:
        """The most jobs that a server of a pool may hold."""
        if pool.units is None:
            return pool.limit
        return pool.units // min(c.units for c in self.classes or (JobClass(),))

    @property
    def size_law(self) -> Law:
        """Law of the sizes of each class over its `mean_size`: `size`, or that of the trace."""
        recorded = self.arrivals.size_law if isinstance(self.arrivals, Trace) else None
        return self.size if recorded is None else recorded

    @property
    def draws_sizes(self) -> bool:
        """True if sizes are drawn (or given) at arrival: they are not exponential with one mean."""
        if isinstance(self.size_law, Exponential):
            unequal = len({c.mean_size for c in self.classes or ()}) > 1
            return unequal and not self.has_units
        return True

    def require_memoryless(self, who: str) -> None:
        """Raise ValueError unless this is a Markov chain on queue lengths in continuous time."""
        if self.draws_sizes:
            raise ValueError(f"{who}: needs exponential sizes of one mean; simulate")
        if self.arrivals != Poisson():
            raise ValueError(f"{who}: needs Poisson arrivals; simulate")
        if self.slotted:
            raise ValueError(f"{who}: is for continuous time, not slotted; simulate")

    @property
    def migrates(self) -> bool:
        """True if jobs resample their server."""
        return self.migration_rate > 0

    @property
    def default_loss_charge(self) -> float:
        """What a lost job costs if nobody says otherwise: twice the longest mean response time of
        a job that takes the last place of a server with a limit; 0 without limits. No accepted job
        then expects to cost more than half the charge, so losing jobs does not pay as a habit."""
        if self.has_units:
            return 1.0  # a lost job costs its weight, and nothing else costs
        last_place = (
            self.mean_size * (1 + (p.limit - p.slots) / p.slots) / p.speed
            for p in self.pools
            if p.limit is not None
        )
        return 2.0 * max(last_place, default=0.0)

    # --- One value per server, pools in order; a fresh array at each call. ---

    @property
    def pool_of_server(self) -> NDArray[np.int64]:
        """(servers,) index of each server's pool."""
        counts = [p.servers for p in self.pools]
        return np.repeat(np.arange(len(self.pools), dtype=np.int64), counts)

    @property
    def speeds(self) -> NDArray[np.float64]:
        """(servers,) work per unit time."""
        return np.array([p.speed for p in self.pools])[self.pool_of_server]

    @property
    def limits(self) -> NDArray[np.float64]:
        """(servers,) most jobs; inf without a limit."""
        limits = [self.limit_of(p) for p in self.pools]
        per_pool = [math.inf if k is None else float(k) for k in limits]
        return np.array(per_pool)[self.pool_of_server]

    # --- Another system like this one. ---

    def with_load(self, load: float) -> Self:
        """The same system at another load."""
        return dataclasses.replace(self, _given=("load", number("load", load)))

    # --- As data and as text. ---

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold: "kind" and every field that is not at its default."""
        data: dict[str, Any] = {"kind": self.KIND}
        if self.name:
            data["name"] = self.name
        data["pools"] = [_non_defaults(p) for p in self.pools]
        if self.routers != 1:
            data["routers"] = self.routers if isinstance(self.routers, int) else list(self.routers)
        field, value = self._given
        data[field] = self.closed_jobs if field == "closed_jobs" else value
        if self.graph is not None:
            data["graph"] = _listed(self.graph)
        if self.read_interval is not None:
            data["read_interval"] = self.read_interval
        if self.message_fate != "withdraw":
            data["message_fate"] = self.message_fate
        if self.migration_rate:
            data["migration_rate"] = self.migration_rate
        if self.replace:
            data["replace"] = True
        if self.size != Exponential():
            data["size"] = self.size.to_data()
        if self.arrivals != Poisson():
            data["arrivals"] = self.arrivals.to_data()
        if self.slotted:
            data["slotted"] = True
        if self.classes is not None:
            data["classes"] = [_non_defaults(c) for c in self.classes]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The system that `to_dict` wrote; "kind" may be left out."""
        if not isinstance(data, Mapping):
            raise ValueError(f"system: must be a dict, got {quoted(data)}")
        fields = dict(data)
        kind = fields.pop("kind", cls.KIND)
        if kind != cls.KIND:
            raise ValueError(f"kind: must be {cls.KIND!r}, got {quoted(kind)}")
        for field in fields:
            if field not in _FIELDS:
                raise ValueError(unknown("field", field, ("kind", *_FIELDS)))
        if "pools" not in fields:
            raise ValueError("pools: required, a list of pools")
        return cls(**fields)

    def to_json(self) -> str:
        """`to_dict` as JSON on one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_toml(self) -> str:
        """`to_dict` as the text of a TOML file, which `from_toml` reads."""
        data = self.to_dict()
        tables = {key: data.pop(key) for key in ("pools", "classes") if key in data}
        lines = [f"{key} = {toml_value(value)}" for key, value in data.items()]
        for key, rows in tables.items():
            for row in rows:
                lines += ["", f"[[{key}]]", *(f"{k} = {toml_value(v)}" for k, v in row.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Self:
        """The system written in a TOML file; every fault in it is a ValueError that names it."""
        data = read_toml(Path(path))
        try:
            return cls.from_dict(data)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def __repr__(self) -> str:
        data = self.to_dict()
        data.pop("kind")
        name = data.pop("name", None)
        data["pools"] = list(self.pools)
        if self.classes is not None:
            data["classes"] = list(self.classes)
        if name is not None:
            data["name"] = name
        return f"System({', '.join(f'{key}={value!r}' for key, value in data.items())})"

    def describe(self) -> str:
        """One short line: "20 servers (10 x 1, 10 x 2), limit 10, 4 routers, load 0.9"."""
        return ", ".join([say_servers(self.pools), *say_places(self.pools), *say_rest(self)])


# The fields that a dict or a TOML file may have: the constructor's arguments.
_FIELDS = tuple(p for p in inspect.signature(System).parameters if not p.startswith("_"))


@overload
def as_system(thing: "System") -> "System": ...
@overload
def as_system(thing: object) -> Any: ...
def as_system(thing: object) -> Any:
    """The system meant by a `System`, `CarSharing` or `FlowNetwork`, its dict, a scenario's name or
    the path of a TOML file (a Path, or a text that ends in .toml). Whatever takes a system takes
    all of these; of a dict or a file "kind" says which sort of system it is."""
    from lbgym.kinds import read  # which knows all the kinds there are

    return read(thing)


# --- Reading the constructor's arguments. --------------------------------------------------------


def _parts(field: str, part: type[Part], value: object) -> tuple[Part, ...]:
    """A tuple of pools or classes from one or several, as objects or dicts."""
    if isinstance(value, part | Mapping):
        value = [value]
    items = listed(value)
    if items is None:
        raise ValueError(f"{field}: must be a list of {field}, got {quoted(value)}")
    parts = tuple(_part(f"{field}[{i}]", part, item) for i, item in enumerate(items))
    if not parts:
        raise ValueError(f"{field}: must not be empty")
    return parts


def _part(where: str, part: type[Part], item: object) -> Part:
    if isinstance(item, part):
        return item
    if not isinstance(item, Mapping):
        kind = part.__name__
        raise ValueError(f"{where}: must be a {kind} or its dict, got {quoted(item)}")
    fields = {f.name: f for f in dataclasses.fields(part)}
    for key in item:
        if key not in fields:
            raise ValueError(f"{where}: {unknown('field', key, fields)}")
    for name, field in fields.items():
        if field.default is MISSING and name not in item:
            raise ValueError(f"{where}.{name}: required")
    try:
        return part(**item)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None


def _routers(value: object) -> int | tuple[float, ...]:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return integer("routers", value, most=MAX_ROUTERS)
    items = listed(value)
    if items is None:
        got = quoted(value)
        raise ValueError(f"routers: must be an integer >= 1 or a list of weights, got {got}")
    weights = tuple(number(f"routers[{i}]", w) for i, w in enumerate(items))
    if not 1 <= len(weights) <= MAX_ROUTERS:
        raise ValueError(f"routers: must be 1 to {MAX_ROUTERS:,} weights, got {len(weights)}")
    return weights


def _closed(load: object, arrival_rate: object) -> tuple[str, float]:
    if load is not None or arrival_rate is not None:
        raise ValueError("closed_jobs: a closed system has no load and no arrival_rate")
    return "closed_jobs", 0.0


def _listed(value: Any) -> Any:
    """Tuples as lists, all the way down."""
    return [_listed(x) for x in value] if isinstance(value, tuple) else value


def _load_or_rate(
    load: object, arrival_rate: object, given: tuple[str, float] | None
) -> tuple[str, float]:
    if load is not None and arrival_rate is not None:
        raise ValueError("load and arrival_rate: give one of them, got both")
    if load is not None:
        return "load", number("load", load)
    if arrival_rate is not None:
        return "arrival_rate", number("arrival_rate", arrival_rate)
    if given is None:
        raise ValueError("load and arrival_rate: give one of them, got neither")
    return given


# --- Writing and reading text. -------------------------------------------------------------------


def _non_defaults(part: Pool | JobClass) -> dict[str, Any]:
    values = {f.name: (getattr(part, f.name), f.default) for f in dataclasses.fields(part)}
    return {name: value for name, (value, default) in values.items() if value != default}


def _call(part: Pool | JobClass) -> str:
    """The call that makes it, without the defaults."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in _non_defaults(part).items())
    return f"{type(part).__name__}({arguments})"
