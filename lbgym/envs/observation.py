"""What an agent sees: a table with one row per choice, then a few context values.

A row is a server; with ``action="candidate"`` one of the sampled servers; with ``action="pool"``
a pool, each column being the average over its servers; with ``action="move"`` the source and the
target of the resampling job. The observation is flat: the columns one
after another (each contiguous over the rows), then the context. `COLUMNS` says what there is.

Whole numbers without a natural bound are shown as ``x / (1 + x)`` (`whole` inverts it exactly up
to 2,000), ages as ``a / (1 + a)`` with a in mean service times of a speed-1 server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lbgym.checks import listed
from lbgym.engine.access import (
    aside,
    candidate_of,
    class_jobs,
    doubles,
    floats,
    held,
    inner,
    integers,
    message_list,
    pool,
    record_reader,
    server,
    special,
    standing,
)
from lbgym.engine.layout import ARRIVAL, RESAMPLE
from lbgym.engine.messages import NONE, message_at, place_of
from lbgym.engine.queues import backlog_now, vacancy
from lbgym.engine.service import work_left
from lbgym.engine.state import State
from lbgym.suggest import unknown
from lbgym.system import System

# --- what there is --------------------------------------------------------------------------------
(
    MESSAGE,
    MESSAGE_ORDER,
    MESSAGE_AGE,
    SENT,
    SENT_AGE,
    BACKLOG,
    SENT_SINCE_READ,
    SENT_SINCE_PROBE,
    LAST_PROBE,
    PROBE_AGE,
    SPEED,
    LIMIT,
    CAPACITY,
    QUEUE,
    READ,
    VACANCY,
    NEIGHBOURS,
    QUEUE_ORDER,
    QUEUE_PROBED,
    CANDIDATE,
    SERVER,
    SOURCE,
    TARGET,
    KIND,
    ROUTER,
    KLASS,
    READ_AGE,
    WORK,
    SIZE,
) = range(29)
CLASS_JOBS = 29  # and the next ones, one a class
SHOWN_CLASSES = 6  # classes whose jobs can be shown

SERVERS, CANDIDATES, POOLS, ENDS = 0, 1, 2, 3  # view.rows_are; ENDS: source and target of a move
ROWS = {"server": SERVERS, "candidate": CANDIDATES, "pool": POOLS, "move": ENDS}


def _one(system: System, samples: int) -> float:
    return 1.0


def _servers(system: System, samples: int) -> float:
    return float(system.servers)


def _last_server(system: System, samples: int) -> float:
    return float(system.servers - 1)


@dataclass(frozen=True)
class Column:
    """A column of the table, or a context value."""

    name: str
    code: int
    meaning: str
    high: Callable[[System, int], float] = _one
    context: bool = False
    averaged: bool = True  # whether a pool may show its average
    moving: bool = False  # whether it says something of a resampling job's source and target
    messages: bool = False
    memory: bool = False
    backlog: bool = False
    read_memory: bool = False
    probe_memory: bool = False
    ordered: bool = False


_ALL = (
    Column("message", MESSAGE, "1 if the acting router holds the server's message", messages=True),
    Column(
        "message_order",
        MESSAGE_ORDER,
        "0 without message, else 1 + its position in the router's list",
        high=_servers,
        averaged=False,
        messages=True,
    ),
    Column(
        "message_age",
        MESSAGE_AGE,
        "a / (1 + a), a the time since the held message came; 0 without",
        messages=True,
        memory=True,
    ),
    Column(
        "sent",
        SENT,
        "x / (1 + x), x the jobs this router sent there since the server's message last came or "
        "was used",
        memory=True,
    ),
    Column(
        "sent_age",
        SENT_AGE,
        "a / (1 + a), a the time since this router last sent a job there; 1 if never",
        memory=True,
    ),
    Column(
        "backlog",
        BACKLOG,
        "x / (1 + x), x the jobs of this router that are left there if each takes its mean time; "
        "none when the server's message comes, never more than its limit",
        messages=True,
        memory=True,
        backlog=True,
    ),
    Column(
        "sent_since_read",
        SENT_SINCE_READ,
        "x / (1 + x), x the jobs this router has sent there since the queues were last read",
        read_memory=True,
    ),
    Column(
        "last_probe",
        LAST_PROBE,
        "as queue, but when this router last probed the server, perhaps now; 0 if never; needs "
        "sampled servers (2 messages each)",
        probe_memory=True,
    ),
    Column(
        "sent_since_probe",
        SENT_SINCE_PROBE,
        "x / (1 + x), x the jobs this router has sent there since it last probed the server",
        probe_memory=True,
    ),
    Column(
        "probe_age",
        PROBE_AGE,
        "a / (1 + a), a the time since this router last probed the server; 1 if never",
        probe_memory=True,
    ),
    Column(
        "speed",
        SPEED,
        "jobs per unit time of each slot",
        moving=True,
        high=lambda system, samples: max(p.speed for p in system.pools) / system.mean_size,
    ),
    Column(
        "limit",
        LIMIT,
        "K / (1 + K), K the most jobs a server may hold; 1 without limit",
        moving=True,
    ),
    Column(
        "capacity",
        CAPACITY,
        "C / (1 + C), C the server's units; without units as limit",
        moving=True,
    ),
    Column("queue", QUEUE, "q / (1 + q), q the queue length now (2n messages an arrival)"),
    Column(
        "queue_order",
        QUEUE_ORDER,
        "position among the servers sorted by pool, then longest first",
        high=_last_server,
        averaged=False,
        ordered=True,
    ),
    Column(
        "queue_probed",
        QUEUE_PROBED,
        "as queue, but only of sampled servers (2 messages each), else 0; at a resampling of "
        "source and target",
        averaged=False,
        moving=True,
    ),
    Column("read", READ, "as queue, but as it was when the queues were last read"),
    Column(
        "vacancy",
        VACANCY,
        "v / (1 + v), v the free units (without units: places); 1 without limit; asks all servers "
        "(2n messages), of a table of candidates only these",
    ),
    *(
        Column(
            f"class_jobs_{k}",
            CLASS_JOBS + k,
            f"x / (1 + x), x the jobs of class {k} in the server; asks as vacancy does (only with "
            "units)",
        )
        for k in range(SHOWN_CLASSES)
    ),
    Column(
        "neighbours",
        NEIGHBOURS,
        "m / (1 + m), m the mean queue length of the server's neighbours in the graph, an edge's "
        "other end included (2 messages each)",
    ),
    Column(
        "candidate",
        CANDIDATE,
        "k + 1 for the k-th server sampled for the job, else 0; candidate(d) samples d, default 2",
        high=lambda system, samples: float(samples),
        averaged=False,
    ),
    Column("server", SERVER, "the server's number", high=_last_server, averaged=False, moving=True),
    Column("source", SOURCE, "1 at the server where the resampling job is", averaged=False),
    Column("target", TARGET, "1 at the server which the resampling job drew", averaged=False),
    Column("kind", KIND, "0 an arrival, 1 a resampling", context=True),
    Column(
        "router",
        ROUTER,
        "number of the acting router; -1 at a resampling",
        high=lambda system, samples: system.router_count - 1.0,
        context=True,
    ),
    Column(
        "class",
        KLASS,
        "number of the arriving job's class",
        high=lambda system, samples: len(system.classes or (None,)) - 1.0,
        context=True,
    ),
    Column(
        "work",
        WORK,
        "x / (1 + x), x the work left in the server, where sizes are drawn; asks as vacancy does",
    ),
    Column(
        "size",
        SIZE,
        "x / (1 + x), x the size of the arriving job, where sizes are drawn; 0 at a resampling",
        context=True,
    ),
    Column(
        "read_age",
        READ_AGE,
        "a / (1 + a), a the time since the queues were last read",
        context=True,
    ),
)

COLUMNS = {column.name: column for column in _ALL}
LOCAL = ("message", "message_age", "sent", "sent_age", "speed", "limit")
MOVING = ("source", "target", "kind")
SIZED = ("work", "size")
CLASS_COLUMNS = tuple(f"class_jobs_{k}" for k in range(SHOWN_CLASSES))
READ_ONLY = ("read", "sent_since_read", "read_age")


def describe_columns(indent: str = "    ") -> str:
    """The columns as a list for a docstring."""
    lines = [
        f"- `{c.name}`: {c.meaning}" + (" (context)" if c.context else "") for c in COLUMNS.values()
    ]
    return f"\n{indent}".join(lines)


def share(x: Any) -> Any:
    """``x / (1 + x)`` as observations show it: float32, 1 at infinity."""
    x = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(x), 1.0, x / (1 + x)).astype(np.float32)


def whole(shown: Any) -> Any:
    """The whole number x that is shown as ``x / (1 + x)``; exact up to 2,000, at most 2**24."""
    y = np.asarray(shown, np.float64)
    return np.rint(y / np.maximum(1 - y, 2.0**-24)).astype(np.int64)


# --- compiled: one observation --------------------------------------------------------------------
VIEW = np.dtype(
    [
        ("rows_are", "i8"),  # SERVERS, CANDIDATES, POOLS or ENDS
        ("rows", "i8"),
        ("columns", "i8"),
        ("contexts", "i8"),
        ("asks_all", "i8"),  # 1: an arrival asks every server
        ("asks_sampled", "i8"),  # 1: an arrival asks the sampled servers
        ("asks_neighbours", "i8"),  # 1: an arrival asks the sampled servers' neighbours
        ("at_codes", "i8"),  # int64 codes of the columns, then of the context
        ("at_static", "i8"),  # float32 (3, n): speed, limit and capacity of every server
        ("at_neighbours", "i8"),  # int64: where each server's neighbours begin (n + 1), then they
        ("at_table", "i8"),  # float32 (n,): a column to be averaged by pool
    ],
    align=True,
)
view_at = record_reader(VIEW)

_ONE = np.float32(1)
_ZERO = np.float32(0)


@inner
def _share(x):
    """x / (1 + x) of a count."""
    y = np.float32(x)
    return y / (y + _ONE)


@inner
def _age(now, since):
    """a / (1 + a) of an age; 1 if `since` is minus infinity."""
    return _ONE - _ONE / (_ONE + np.float32(now - since))


@inner
def _sampled(w, i):
    """1 + which candidate server i is, 0 if none."""
    for k in range(w.samples):
        if candidate_of(w, k).server == i:
            return k + 1
    return 0


@inner
def _message_cell(w, code, i):
    """A message column of server i."""
    e = message_at(w, w.router, i)
    if e == NONE:
        return _ZERO
    if code == MESSAGE:
        return _ONE
    first, place, own = w.router * w.n_pools, place_of(w, i, e), server(w, i).pool
    if code == MESSAGE_AGE:
        return _age(w.clock, held(w, message_list(w, first + own).begin + place).time)
    for p in range(own):
        place += message_list(w, first + p).count
    return np.float32(place + 1)


@special("n_edges", _ZERO)
def _neighbours(w, view, i):
    """m / (1 + m), m the mean queue length of the neighbours of server i."""
    places = integers(view.at_neighbours)
    total = 0
    for k in range(places[i], places[i + 1]):
        total += server(w, places[k]).length
    return _share(total / (places[i + 1] - places[i]))


@inner
def _seen(w, view, code, i):
    """READ, VACANCY or NEIGHBOURS of server i."""
    if code == READ:
        return _share(aside(w, i).reading)
    if code == VACANCY:
        return _share(vacancy(w, i))
    return _neighbours(w, view, i)


@inner
def _is_time(code):
    """Whether what a router remembers is when something was, else a number of jobs."""
    return code == SENT_AGE or code == PROBE_AGE


@inner
def _remembered(w, code):
    """Where what the acting router remembers of all servers begins."""
    first = w.router * w.n_servers
    if code == SENT:
        return w.at_sent_since + 4 * first
    if code == SENT_AGE:
        return w.at_sent_at + 8 * first
    if code == SENT_SINCE_READ:
        return w.at_sent_since_read + 4 * first
    if code == SENT_SINCE_PROBE:
        return w.at_sent_since_probe + 4 * first
    if code == LAST_PROBE:
        return w.at_last_probe + 4 * first
    return w.at_probed_at + 8 * first


@inner
def _cell(w, view, code, i, k):
    """A column of server i, which is candidate k."""
    if code == WORK:
        return _share(work_left(w, i))
    if code <= MESSAGE_AGE:
        return _message_cell(w, code, i)
    if code == BACKLOG:
        return _share(backlog_now(w, i))
    if code <= PROBE_AGE:
        remembered = _remembered(w, code)
        if _is_time(code):
            return _age(w.clock, doubles(remembered)[i])
        return _share(floats(remembered)[i])
    if code <= CAPACITY:
        return np.float32(floats(view.at_static)[(code - SPEED) * w.n_servers + i])
    if code == QUEUE or code == QUEUE_PROBED:
        return _share(server(w, i).length)
    if code <= NEIGHBOURS:
        return _seen(w, view, code, i)
    if code == QUEUE_ORDER:
        return np.float32(standing(w, i).position)
    if code == CANDIDATE:
        return np.float32(k + 1)
    if code >= CLASS_JOBS:
        return _share(class_jobs(w, i * w.n_classes + code - CLASS_JOBS).jobs)
    return np.float32(i)


@inner
def _clear(p, n):
    for i in range(n):
        p[i] = _ZERO


@inner
def _fill_messages(w, code, p):
    """A message column over all servers: only the held messages differ from 0."""
    _clear(p, w.n_servers)
    if w.kind != ARRIVAL:
        return
    seen = 0
    for j in range(w.n_pools):
        records = message_list(w, w.router * w.n_pools + j)
        for k in range(records.count):
            message = held(w, records.begin + k)
            seen += 1
            if code == MESSAGE:
                p[message.server] = _ONE
            elif code == MESSAGE_ORDER:
                p[message.server] = np.float32(seen)
            else:
                p[message.server] = _age(w.clock, message.time)


@inner
def _fill_memory(w, code, p):
    """What the acting router remembers of its sendings and probes, over all servers."""
    n = w.n_servers
    if w.kind != ARRIVAL:
        _clear(p, n)
        return
    if code == BACKLOG:
        for i in range(n):
            p[i] = _share(backlog_now(w, i))
        return
    remembered = _remembered(w, code)
    if _is_time(code):
        now, times = w.clock, doubles(remembered)
        for i in range(n):
            p[i] = _age(now, times[i])
    else:
        jobs = floats(remembered)
        for i in range(n):
            p[i] = _share(jobs[i])


@inner
def _fill_probed(w, p):
    """Queue lengths of the servers asked for this decision."""
    _clear(p, w.n_servers)
    if w.kind == RESAMPLE:
        p[w.source] = _share(server(w, w.source).length)
        p[w.target] = _share(server(w, w.target).length)
        return
    for k in range(w.samples):
        i = candidate_of(w, k).server
        p[i] = _share(server(w, i).length)


@inner
def _fill_marks(w, code, p):
    """Marks at single servers."""
    _clear(p, w.n_servers)
    if code == CANDIDATE:
        if w.kind == ARRIVAL:
            for k in range(w.samples - 1, -1, -1):  # of a server sampled twice the first counts
                p[candidate_of(w, k).server] = np.float32(k + 1)
    elif w.kind == RESAMPLE:
        p[w.source if code == SOURCE else w.target] = _ONE


@inner
def _fill(w, view, code, p):
    """A column over all servers."""
    n = w.n_servers
    if code <= MESSAGE_AGE:
        _fill_messages(w, code, p)
    elif code <= PROBE_AGE:
        _fill_memory(w, code, p)
    elif code <= CAPACITY:
        static = floats(view.at_static + 4 * n * (code - SPEED))
        for i in range(n):
            p[i] = np.float32(static[i])
    elif code == QUEUE:
        for i in range(n):
            p[i] = _share(server(w, i).length)
    elif code <= NEIGHBOURS:
        for i in range(n):
            p[i] = _seen(w, view, code, i)
    elif code == WORK:
        for i in range(n):
            p[i] = _share(work_left(w, i))
    elif code == QUEUE_ORDER:
        for i in range(n):
            p[i] = np.float32(standing(w, i).position)
    elif code == QUEUE_PROBED:
        _fill_probed(w, p)
    elif code == SERVER:
        for i in range(n):
            p[i] = np.float32(i)
    elif code >= CLASS_JOBS:
        for i in range(n):
            p[i] = _share(class_jobs(w, i * w.n_classes + code - CLASS_JOBS).jobs)
    else:
        _fill_marks(w, code, p)


@inner
def _average(w, table, p):
    """Average a column over each pool."""
    for j in range(w.n_pools):
        this = pool(w, j)
        total = 0.0
        for i in range(this.first, this.first + this.servers):
            total += float(table[i])
        p[j] = np.float32(total / this.servers)


@inner
def _server_of(w, view, k):
    """The server that row k of a short table shows, -1 if none."""
    if view.rows_are == CANDIDATES:
        return candidate_of(w, k).server
    return w.source if k == 0 else w.target


@inner
def observe(w, view, address):
    """Write the observation of the pending decision to an address."""
    codes = integers(view.at_codes)
    for c in range(view.columns):
        place = address + 4 * view.rows * c
        p = floats(place)
        if view.rows_are == CANDIDATES or view.rows_are == ENDS:
            for k in range(view.rows):
                i = _server_of(w, view, k)
                p[k] = _cell(w, view, codes[c], i, k) if i >= 0 else _ZERO
        else:  # compiled code that appears once compiles in half the time
            table = floats(place if view.rows_are == SERVERS else view.at_table)
            _fill(w, view, codes[c], table)
            if view.rows_are == POOLS:
                _average(w, table, p)
    p = floats(address + 4 * view.rows * view.columns)
    for c in range(view.contexts):
        code = codes[view.columns + c]
        if code == KIND:
            p[c] = np.float32(w.kind == RESAMPLE)
        elif code == ROUTER:
            p[c] = np.float32(w.router)
        elif code == READ_AGE:
            p[c] = _age(w.clock, w.read_at)
        elif code == SIZE:
            p[c] = _share(w.job_size) if w.kind == ARRIVAL else _ZERO
        else:
            p[c] = np.float32(w.klass) if w.kind == ARRIVAL else _ZERO


@inner
def count_asked(w, view):
    """Count the questions behind the observation: a live view asks once per arrival."""
    if w.kind == RESAMPLE:
        w.probes += view.asks_sampled
    else:
        w.probes += view.asks_all * w.n_servers + view.asks_sampled * w.samples
        if view.asks_neighbours:
            places = integers(view.at_neighbours)
            for k in range(w.samples):
                i = candidate_of(w, k).server
                w.probes += places[i + 1] - places[i]


# --- the same as data -----------------------------------------------------------------------------
class Observation:
    """Which columns an environment shows, and how they lie in its observations.

    Parameters
    ----------
    system : System
    observe : list of column names, or None for the default
    action : "server", "candidate", "pool", "move"
    samples : int
        Servers sampled per job as far as `action` says, 0 if it does not.

    Attributes
    ----------
    columns, context : tuples of names
    space : Box, float32, shape (rows x columns + context,)
    messages, memory, backlog, read_memory, probe_memory, ordered, samples : what the engine keeps

    Raises
    ------
    ValueError
        Names the column that is unknown, given twice or impossible here.
    """

    def __init__(
        self, system: System, observe: Iterable[str] | None, action: str, samples: int
    ) -> None:
        self.system = system
        self.action = action
        names = _default(system, action) if observe is None else _names(observe)
        names, self.samples = _with_samples(names, samples, system)
        self._check(names)
        self.columns = tuple(name for name in names if not COLUMNS[name].context)
        self.context = tuple(name for name in names if COLUMNS[name].context)
        shown = [COLUMNS[name] for name in names]
        self.messages = action == "pool" or any(c.messages for c in shown)
        self.memory = any(c.memory for c in shown)
        self.backlog = any(c.backlog for c in shown)
        self.read_memory = any(c.read_memory for c in shown)
        self.probe_memory = any(c.probe_memory for c in shown)
        self.ordered = any(c.ordered for c in shown)
        self.rows = {"server": system.servers, "candidate": self.samples, "move": 2}.get(
            action, len(system.pools)
        )
        self.width = self.rows * len(self.columns) + len(self.context)
        self.space = self._space()

    def _check(self, names: Sequence[str]) -> None:
        for k, name in enumerate(names):
            if name not in COLUMNS:
                raise ValueError(f"observe: {unknown('column', name, COLUMNS)}")
            if name in names[:k]:
                raise ValueError(f"observe: column {name!r} is given twice")
            if self.action == "pool" and not COLUMNS[name].averaged:
                raise ValueError(f"observe: {name!r} has no average over a pool (action='pool')")
            if name in MOVING and not self.system.migrates:
                raise ValueError(f"observe: {name!r} needs a system with migration_rate above 0")
            self._check_special(name)
        if not names:
            raise ValueError("observe: must name at least one column")
        remembers = [name for name in names if COLUMNS[name].probe_memory]
        if remembers and not self.samples:
            raise ValueError(
                f"observe: {remembers[0]!r} needs sampled servers; show 'candidate(d)' too"
            )
        if "queue_probed" in names and not (self.samples or self.system.migrates):
            raise ValueError(
                "observe: 'queue_probed' needs sampled servers; show 'candidate(d)' too"
            )

    def _check_special(self, name: str) -> None:
        if self.action == "move" and not COLUMNS[name].moving:
            able = ", ".join(c.name for c in COLUMNS.values() if c.moving)
            raise ValueError(f"observe: with action='move' there are {able}; got {name!r}")
        if name in READ_ONLY and self.system.read_interval is None:
            raise ValueError(f"observe: {name!r} needs a system with a read_interval")
        if name in SIZED and not self.system.draws_sizes:
            raise ValueError(
                f"observe: {name!r} needs a system whose sizes are drawn; for exponential ones "
                "set size={'law': 'erlang', 'k': 1}"
            )
        if name in CLASS_COLUMNS:
            self._check_class(name)
        if name == "neighbours" and self.system.graph is None:
            raise ValueError("observe: 'neighbours' needs a system with a graph, e.g. 'ring'")

    def _check_class(self, name: str) -> None:
        classes = len(self.system.class_shares) if self.system.has_units else 0
        if CLASS_COLUMNS.index(name) >= classes:
            raise ValueError(
                f"observe: {name!r} needs a system with units and a class of that number, "
                f"it has {classes} classes with units"
            )

    def _space(self) -> Any:
        names = (*self.columns, *self.context)
        # At least 1: a column of one possible value is allowed, a Box of one value draws a warning.
        high = [max(1.0, COLUMNS[c].high(self.system, self.samples)) for c in names]
        lows = [0.0] * len(self.columns) + [
            -1.0 if c == "router" and self.system.migrates else 0.0 for c in self.context
        ]
        counts = [self.rows] * len(self.columns) + [1] * len(self.context)
        return spaces.Box(
            np.repeat(np.asarray(lows, np.float32), counts),
            np.repeat(np.asarray(high, np.float32), counts),
            dtype=np.float32,
        )

    def place(self, name: str) -> int:
        """Where a column or context value begins in an observation, -1 if it is not shown."""
        if name in self.columns:
            return self.columns.index(name) * self.rows
        if name in self.context:
            return self.rows * len(self.columns) + self.context.index(name)
        return -1

    def table(self, observation: NDArray[np.float32]) -> dict[str, Any]:
        """Column -> (..., rows), context -> (...), from observations of shape (..., width)."""
        obs = np.asarray(observation)
        if obs.ndim == 0 or obs.shape[-1] != self.width:
            raise ValueError(f"observation: must have {self.width} values, got shape {obs.shape}")
        table = {
            name: obs[..., k * self.rows : (k + 1) * self.rows]
            for k, name in enumerate(self.columns)
        }
        return table | {name: obs[..., self.place(name)] for name in self.context}

    def record(self, state: State) -> ViewArrays:
        """The compiled side's description of this observation."""
        return ViewArrays(self, state)


class ViewArrays:
    """The `VIEW` record of an observation and the arrays behind its addresses."""

    def __init__(self, shown: Observation, state: State) -> None:
        names = (*shown.columns, *shown.context)
        self.codes = np.array([COLUMNS[name].code for name in names], np.int64)
        speeds = state.arrays["pools"]["speed"][shown.system.pool_of_server]
        limits = shown.system.limits
        units = state.arrays["pools"]["units"][shown.system.pool_of_server]
        capacities = units if shown.system.has_units else limits
        self.static = np.stack([np.float32(speeds), share(limits), share(capacities)])
        self.neighbours = _adjacency(shown.system if "neighbours" in names else None)
        self.table = np.zeros(shown.system.servers if shown.action == "pool" else 0, np.float32)
        self.record = np.zeros(1, VIEW)
        view = self.record[0]
        view["rows_are"] = ROWS[shown.action]
        view["rows"] = shown.rows
        view["columns"], view["contexts"] = len(shown.columns), len(shown.context)
        asks = not {"vacancy", "work", *CLASS_COLUMNS}.isdisjoint(names)
        few = asks and shown.action == "candidate"
        view["asks_all"] = "queue" in names or (asks and not few)
        view["asks_sampled"] = "queue_probed" in names or shown.probe_memory or few
        view["asks_neighbours"] = "neighbours" in names

    def link(self) -> int:
        """Write the addresses; returns the record's own."""
        view = self.record[0]
        view["at_codes"] = self.codes.ctypes.data
        view["at_static"] = self.static.ctypes.data
        view["at_neighbours"] = self.neighbours.ctypes.data
        view["at_table"] = self.table.ctypes.data
        return self.record.ctypes.data


def _adjacency(system: System | None) -> NDArray[np.int64]:
    """Where each server's neighbours begin, shape (n + 1,), then the neighbours."""
    if system is None:
        return np.zeros(0, np.int64)
    ends = np.array(system.edges, np.int64)
    ends = np.concatenate([ends, ends[:, ::-1]])
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    first = np.searchsorted(ends[:, 0], np.arange(system.servers + 1))
    return np.concatenate([system.servers + 1 + first, ends[:, 1]])


def _default(system: System, action: str) -> list[str]:
    if action == "move":
        return ["queue_probed", "speed"]
    if action == "candidate":
        return ["queue_probed", "speed", "limit"]
    return [*LOCAL, *(MOVING if system.migrates else ())]


def _names(observe: Iterable[str]) -> list[str]:
    names = listed(observe)
    if names is None:
        raise ValueError(f"observe: must be a list of columns, got {observe!r}")
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"observe: must be a list of columns, got {name!r} in it")
    return names


def with_count(word: str, name: str, default: int, where: str) -> int | None:
    """d of ``name(d)``, the default for the bare name, None for another word."""
    match = re.fullmatch(rf"{name}(?:\((\d+)\))?", word.replace(" ", ""))
    if match is None:
        return None
    number = int(match[1]) if match[1] else default
    if number < 1:
        raise ValueError(f"{where}: d of {name}(d) must be at least 1, got {number}")
    return number


def _with_samples(names: list[str], samples: int, system: System) -> tuple[list[str], int]:
    """The plain names, and the number of servers sampled per job."""
    plain = []
    for name in names:
        number = with_count(name, "candidate", 2, "observe")
        plain.append(name if number is None else "candidate")
        if number is None:
            continue
        if samples and number != samples:
            raise ValueError(
                f"observe: {name} samples {number} servers, but action='candidate({samples})'; "
                "both must agree"
            )
        samples = number
    if samples > system.servers and not system.replace:
        raise ValueError(
            f"candidate({samples}): at most the {system.servers} servers can be sampled "
            "without replacement"
        )
    return plain, samples
