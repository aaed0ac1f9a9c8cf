"""A running system: allocates the arrays, links them, clears them, makes them grow."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.laws import MMPP, Exponential, Piecewise, Poisson, Process, Renewal, Trace
from lbgym.system import System

from . import layout
from .layout import RECORDS, WORLD
from .random import LAYERS
from .run import clear_world, fill_trajectory, note_message_room, restart_trajectory

_FATES = {"withdraw": layout.WITHDRAW, "keep": layout.KEEP, "resend": layout.RESEND}
_WARM_TAIL = 1e-13
_LINE = 64  # bytes of a line of the cache


class Overload(RuntimeError):
    """More jobs in the system than `max_jobs`."""

    def __init__(self, present: int, max_jobs: int) -> None:
        super().__init__(
            f"max_jobs: {present} jobs in the system reach the allowed {max_jobs}; "
            "the system is overloaded or unstable"
        )


class State:
    """One running copy of a system.

    Parameters
    ----------
    system : System
    messages : bool
        Idle servers send pull-messages.
    ordered : bool
        Servers are kept sorted by queue length (JSQ, SED and the like; always with migrations).
    memory : bool
        Routers remember messages and sendings (only observations need it).
    read_memory : bool
        Routers remember what they sent since the last read.
    backlog : bool
        Routers reckon what is left of the jobs they sent (needs `memory`).
    probe_memory : bool
        Routers remember what sampled servers answered, when, and what they sent since.
    samples : int
        Servers sampled for each arriving job.
    ring_asks : bool
        A resampling job asks the server it draws (two messages, also if that server is full).
    sizes : bool
        Sizes are drawn at arrival even if exponential, so that the rule may know them.
    router_samples : int
        Routers an idle server samples before it sends its message (JIQ-SQ).
    params, scratch
        Arguments of the rule and the number of its memory cells.
    max_jobs : int
        Most jobs in the system; more raise `Overload`.
    histogram : bool
        Response times are counted.
    watched : bool
        `expected_response` is kept, also where sizes are drawn.
    """

    def __init__(
        self,
        system: System,
        *,
        messages: bool = False,
        ordered: bool = False,
        memory: bool = False,
        read_memory: bool = False,
        backlog: bool = False,
        probe_memory: bool = False,
        samples: int = 0,
        ring_asks: bool = False,
        router_samples: int = 1,
        sizes: bool = False,
        params: Sequence[float] = (),
        scratch: int = 0,
        max_jobs: int = 10_000_000,
        histogram: bool = True,
        watched: bool = False,
    ) -> None:
        self.system = system
        self.max_jobs = max_jobs
        self.world = np.zeros(1, WORLD)
        self.arrays: dict[str, NDArray[Any]] = {}
        if system.edges and samples not in (0, 2):
            raise ValueError(f"samples: with a graph they are an edge's two ends, got {samples}")
        if sizes and (system.slotted or system.closed_jobs is not None):
            raise ValueError("sizes: jobs of slotted time or closed systems have none")
        w = self.world[0]
        n, pools, routers = system.servers, len(system.pools), system.router_count
        w["n_servers"], w["n_pools"], w["n_routers"] = n, pools, routers
        w["drawn"], w["slotted"] = sizes or system.draws_sizes, system.slotted
        w["read_interval"] = np.inf if system.read_interval is None else system.read_interval
        w["units_on"] = system.has_units
        w["shared"] = any(pool.discipline == "ps" for pool in system.pools)
        w["n_edges"] = len(system.edges)
        w["n_classes"] = len(system.class_shares)
        w["migration_rate"] = system.migration_rate
        w["equal_routers"] = len(set(system.router_weights)) == 1
        w["fate"] = _FATES[system.message_fate]
        w["messages_on"] = messages
        w["sorted_on"] = ordered or system.migration_rate > 0
        w["memory_on"], w["read_memory_on"] = memory, read_memory
        w["backlog_on"], w["probe_memory_on"] = backlog, probe_memory
        w["samples"], w["replace"], w["watched"] = samples, system.replace, watched
        w["ring_asks"], w["router_samples"] = ring_asks, router_samples
        w["n_params"], w["n_scratch"] = len(params), scratch

        made = self._make
        made("servers", n)
        made("standings", n if w["sorted_on"] or w["units_on"] else 0)
        reads = system.read_interval is not None
        made("asides", n if reads or w["fate"] == layout.RESEND else 0)
        made("pools", pools)
        made("class_jobs", n * len(system.class_shares) if system.has_units else 0)
        edges = made("edges", len(system.edges))
        if system.edges:
            edges["a"], edges["b"] = np.array(system.edges).T
        made("routers", routers)["weight_to"] = np.cumsum(system.router_weights)
        made("lists", routers * pools if messages else 0)
        jobs = min(64 + 2 * n if n < 100_000 else n + n // 2, max_jobs)
        made("jobs", jobs, RECORDS["works" if w["drawn"] else "jobs"])
        parts = w["drawn"] and (w["shared"] or w["migration_rate"] > 0)
        made("remains", jobs if parts else 0)
        made("tails", 0)
        made("order", n if w["sorted_on"] else 0)
        for name in ("sent_at", "sent_since"):
            made(name, routers * n if memory else 0)
        made("sent_since_read", routers * n if read_memory else 0)
        made("backlog", routers * n if backlog else 0)
        for name in ("probed_at", "last_probe", "sent_since_probe"):
            made(name, routers * n if probe_memory else 0)
        made("candidates", samples)
        made("histogram", layout.BINS if histogram else 0)
        made("streams", layout.STREAMS)
        made("params", len(params))["value"] = params
        made("scratch", scratch)
        made("start", n)
        made("entries", n if messages and w["fate"] == layout.RESEND else 0)
        made("held", 4 * n + 4 * layout.LIST_ROOM * routers * pools if messages else 0)
        self.arrays["layers"] = LAYERS
        self._fill_pools()
        self._fill_classes()
        self._fill_seats()
        self._fill_laws()
        self._fill_arrivals()
        self.link()

    def _make(self, name: str, length: int, record: np.dtype[Any] | None = None) -> NDArray[Any]:
        """A cleared array that begins with a line of the cache."""
        record = record or RECORDS[name]
        bytes_in_all = length * record.itemsize
        block = np.zeros(bytes_in_all + _LINE, np.uint8)
        first = -block.ctypes.data % _LINE
        self.arrays[name] = block[first : first + bytes_in_all].view(record)
        return self.arrays[name]

    def _fill_pools(self) -> None:
        pools = self.arrays["pools"]
        first, speed, row = 0, 0.0, 0
        for k, spec in enumerate(self.system.pools):
            this = pools[k]
            rate = spec.speed / self.system.mean_size
            this["first"], this["servers"], this["speed"] = first, spec.servers, rate
            this["mean_service"], this["per_slot"] = 1.0 / rate, 1.0 / spec.slots
            limit = self.system.limit_of(spec)
            this["limit"] = layout.NO_LIMIT if limit is None else limit
            this["slots"], this["shares"] = spec.slots, spec.discipline == "ps"
            this["units"] = spec.units or 0
            self.arrays["servers"]["pool"][first : first + spec.servers] = k
            first += spec.servers
            speed += spec.servers * rate
            this["speed_to"] = speed
            this["tails"] = row
            limit = self.system.limit_of(spec)
            this["levels"] = 16 if limit is None else min(limit + 3, 64)
            row += this["levels"]
        self._make("tails", row)
        self._make("warm", 0)
        self.world[0]["speed_sum"] = speed

    def _fill_classes(self) -> None:
        """Classes, and the table of potential completions by pool (and class, with units)."""
        system = self.system
        kinds = system.classes or (None,)
        table = self._make("classes", len(kinds))
        table["share_to"] = np.cumsum(system.class_shares)
        table["units"] = [1 if kind is None else kind.units for kind in kinds]
        table["mean_size"] = [1.0 if kind is None else kind.mean_size for kind in kinds]
        table["weight"] = [1.0 if kind is None else kind.weight for kind in kinds]
        rows: list[tuple[int, int, int, float]] = []  # pool, class, seats, rate of a seat
        for k, spec in enumerate(system.pools):
            if spec.units is None:
                rows.append((k, -1, spec.slots, spec.speed / system.mean_size))
                continue
            for c, kind in enumerate(system.classes or ()):
                if spec.units >= kind.units:
                    rows.append((k, c, spec.units // kind.units, 1.0 / kind.mean_size))
        ticks = self._make("ticks", len(rows))
        total = 0.0
        for row, (k, c, seats, rate) in zip(ticks, rows, strict=True):
            row["rate_from"], row["per_rate"] = total, 1.0 / (seats * rate)
            row["pool"], row["klass"], row["seats"] = k, c, seats
            total += system.pools[k].servers * seats * rate
        w = self.world[0]
        closed = system.closed_jobs is not None
        w["n_ticks"], w["tick_rate"] = len(rows), total
        w["tick_gap"] = np.inf if closed else 1.0 / total

    def _fill_seats(self) -> None:
        """Seats of the servers, pool after pool, if sizes are drawn."""
        w, pools = self.world[0], self.arrays["pools"]
        total = 0
        for row, spec in zip(pools, self.system.pools, strict=True):
            row["pace"] = spec.speed
            row["seats"] = spec.slots if spec.units is None else self.system.limit_of(spec)
            row["first_seat"] = total
            total += int(row["servers"] * row["seats"])
        w["n_seats"] = total if w["drawn"] else 0
        uneven = w["drawn"] and (pools["seats"] != 1).any()  # seats are not servers
        self._make("services", w["n_servers"] if w["drawn"] and (uneven or w["shared"]) else 0)
        self._make("finishes", 2 * w["n_seats"])
        seats = self._make("seats", w["n_seats"] if uneven else 0)
        if uneven:
            each = np.repeat(pools["seats"], pools["servers"])
            seats["server"] = np.repeat(np.arange(w["n_servers"]), each)

    def _fill_laws(self) -> None:
        """Laws of sizes and of gaps."""
        process = self.system.arrivals
        gaps = process.law if isinstance(process, Renewal) else Exponential()
        made = self._make("laws", 2)
        values: list[tuple[float, float]] = []
        for row, law in zip(made, (self.system.size_law, gaps), strict=True):
            row["code"] = layout.LAW_CODES[law.law]
            row["a"], row["b"], row["c"], table = law.row()
            row["begin"], row["count"] = len(values), len(table)
            values += table
        rows = self._make("law_values", len(values))
        if values:
            rows["x"], rows["y"] = np.array(values).T

    def _fill_arrivals(self) -> None:
        """The arrival process, scaled to the arrival rate."""
        w, system, process = self.world[0], self.system, self.system.arrivals
        batch = process.batch
        epochs = 0.0 if system.closed_jobs is not None else system.arrival_rate / batch.mean
        w["arrival_gap"] = 1.0 / epochs if epochs > 0 else np.inf
        w["process"] = layout.PROCESS_CODES[process.process]
        w["batch_fixed"], w["period"] = batch.fixed, getattr(process, "period", np.inf)
        if batch.geometric and batch.mean > 1:
            w["batch_log"] = math.log1p(-1.0 / batch.mean)
        below = [1.0] if batch.geometric and batch.mean == 1 else batch.below
        self._make("batch_below", len(below))["p"] = below
        w["n_batches"] = len(below)
        w["plain_arrivals"] = process == Poisson() and not system.slotted
        w["amplitude"] = getattr(process, "amplitude", 0.0)
        w["angle"] = math.fmod(getattr(process, "phase", 0.0), 2 * math.pi)
        self._fill_phases(process, epochs)
        self._fill_trace(process, epochs)

    def _fill_phases(self, process: Process, epochs: float) -> None:
        w = self.world[0]
        if not isinstance(process, MMPP | Piecewise):
            self._make("phases", 0)
            self._make("jumps", 0)
            return
        count = len(process.rates)
        w["n_phases"] = count
        phases = self._make("phases", count)
        phases["rate"] = np.array(process.rates) * (epochs / process.mean_rate)
        if isinstance(process, Piecewise):
            phases["until"] = [*process.breakpoints[1:], process.period]
            self._make("jumps", 0)
            return
        moves = np.array(process.generator)
        np.fill_diagonal(moves, 0.0)
        phases["leave"] = moves.sum(axis=1)
        shares = np.vstack([moves, process.stationary])
        sums = np.maximum(shares.sum(axis=1, keepdims=True), layout.TINY)
        self._make("jumps", shares.size)["below"] = np.cumsum(shares / sums, axis=1).ravel()

    def _fill_trace(self, process: Process, epochs: float) -> None:
        w = self.world[0]
        if not isinstance(process, Trace):
            self._make("trace", 0)
            return
        jobs = process.data
        rows = self._make("trace", len(jobs.times))
        w["n_trace"], w["period"] = len(rows), len(rows) / epochs
        rows["time"] = (jobs.times - jobs.times[0]) * (w["period"] / jobs.period)
        if process.size_law is not None:
            w["trace_sizes"], rows["work"] = 1, process.size_law.scaled
        if jobs.classes is not None:
            w["trace_classes"], rows["klass"] = 1, jobs.classes
        if jobs.routers is not None:
            w["trace_routers"], rows["router"] = 1, jobs.routers

    def link(self) -> None:
        """Write the arrays' addresses and sizes into the world. Nothing else may."""
        w = self.world[0]
        for name, array in self.arrays.items():
            w[f"at_{name}"] = array.ctypes.data
            w[f"size_{name}"] = len(array)
        w["jobs_room"] = len(self.arrays["jobs"])
        w["held_room"] = len(self.arrays["held"])
        w["entries_room"] = len(self.arrays["entries"])
        self.address = self.world.ctypes.data

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "address"}

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self.link()

    def variant(self) -> int:
        """Which of compiled `Variants` is for this system: 0 those for any system."""
        w = self.world[0]
        for k, plain in enumerate(layout.PLAIN, 1):
            if all(w[name] == value for name, value in plain.items()):
                return k
        return 0

    def copy(self) -> State:
        """An independent copy that goes on from here."""
        return copy.deepcopy(self)

    # --- beginning --------------------------------------------------------------------------------
    def seed(self, generator: np.random.Generator) -> None:
        """Fill the random streams from a NumPy generator."""
        words = generator.integers(1, 2**64, size=(layout.STREAMS, 4), dtype=np.uint64)
        for k, field in enumerate("abcd"):
            self.arrays["streams"][field] = words[:, k]

    def begin(self, start: str | Sequence[int] = "empty") -> None:
        """A new trajectory from the streams as they are.

        `start`: ``"empty"``, ``"warm"`` (each queue from its stationary law under speed-weighted
        random dispatch), or one queue length for each server.
        """
        self.prepare(start)
        restart_trajectory.of(self)(self.address)
        self._check_number(int(self.arrays["start"]["length"].sum()))
        while fill_trajectory.of(self)(self.address) == layout.GROW:
            self.grow()

    def clear(self) -> None:
        """Back to time 0, nobody in; streams, parameters and room stay."""
        clear_world(self.address)

    def prepare(self, start: str | Sequence[int]) -> None:
        """Say how trajectories are to begin, see `begin`; ValueError if that is impossible."""
        self.world[0]["start_mode"] = self._start_mode(start)

    def _start_mode(self, start: str | Sequence[int] | NDArray[Any]) -> int:
        if isinstance(start, str):
            if start == "empty" and self.system.closed_jobs is not None:
                self.arrays["start"]["length"] = 0
                self.arrays["start"]["length"][0] = self.system.closed_jobs
                return layout.GIVEN
            if start == "empty":
                return layout.EMPTY
            lawless = self.system.has_units or self.system.closed_jobs is not None
            if start == "warm" and lawless:
                raise ValueError("start: 'warm' is not for closed systems or units; use 'empty'")
            if start == "warm":
                if len(self.arrays["warm"]) == 0:
                    self._fill_warm()
                return layout.WARM
            raise ValueError(f"start: must be 'empty', 'warm' or queue lengths, got {start!r}")
        lengths = np.asarray(start)
        n = self.system.servers
        if lengths.shape != (n,) or not np.issubdtype(lengths.dtype, np.integer):
            raise ValueError(f"start: must be {n} whole queue lengths, got {start!r}")
        bad = np.flatnonzero((lengths < 0) | (lengths > self.system.limits))
        if len(bad):
            i = bad[0]
            raise ValueError(
                f"start[{i}]: must be between 0 and its server's limit "
                f"({self.system.limits[i]:g}), got {lengths[i]}"
            )
        self._check_number(int(lengths.sum()))
        self.arrays["start"]["length"] = lengths
        return layout.GIVEN

    def _check_number(self, jobs: int) -> None:
        if jobs > self.max_jobs:
            raise ValueError(f"start: {jobs} jobs are more than max_jobs ({self.max_jobs})")
        if self.system.has_units and jobs:
            raise ValueError("start: a system with units begins empty")
        if self.system.closed_jobs not in (None, jobs):
            raise ValueError(
                f"start: must hold the {self.system.closed_jobs} jobs of the closed system, "
                f"got {jobs}"
            )

    def _fill_warm(self) -> None:
        """Stationary laws of the pools' servers under speed-weighted random dispatch (M/M/s/K)."""
        rows = []
        for spec in self.system.pools:
            offered = self.system.arrival_rate / self.world[0]["speed_sum"]
            if spec.limit is None and offered >= spec.slots:
                raise ValueError(
                    "start: 'warm' needs speed-weighted random dispatch to be stable "
                    f"(load below 1 or finite limits), got load {self.system.load:g}"
                )
            weights = _stationary(offered, spec.slots, spec.limit, self.max_jobs)
            rows.append(np.cumsum(weights) / np.sum(weights))
        pools = self.arrays["pools"]
        pools["warm_levels"] = [len(row) for row in rows]
        pools["warm"] = np.cumsum([0, *pools["warm_levels"][:-1]])
        self._make("warm", sum(map(len, rows)))["below"] = np.concatenate(rows)
        self.link()

    # --- growing ----------------------------------------------------------------------------------
    def grow(self) -> None:
        """Make room for what the engine needs (`w.need`), at least half as much again."""
        w = self.world[0]
        need = w["need"]
        if need == layout.JOBS:
            self._grow_jobs()
        elif need == layout.LEVELS:
            self._grow_levels(int(w["need_pool"]))
        elif need == layout.HELD:
            self._grow_held()
        elif need == layout.ENTRIES:
            self._lengthen("entries", max(16, len(self.arrays["entries"])))
        w["need"] = layout.NOTHING
        if w["messages_on"]:
            note_message_room(self.address)

    def _lengthen(self, name: str, more: int) -> None:
        old = self.arrays[name]
        self._make(name, len(old) + more, old.dtype)[: len(old)] = old
        self.link()

    def _grow_jobs(self) -> None:
        room = len(self.arrays["jobs"])
        if room >= self.max_jobs:
            raise Overload(int(self.world[0]["present"]), self.max_jobs)
        more = room if room < 1_000_000 else room // 4
        more = min(more, self.max_jobs - room)
        self._lengthen("jobs", more)
        if len(self.arrays["remains"]):
            self._lengthen("remains", more)

    def _grow_levels(self, pool: int) -> None:
        pools, old = self.arrays["pools"], self.arrays["tails"]
        more = int(pools[pool]["levels"])
        end = int(pools[pool]["tails"]) + more
        grown = self._make("tails", len(old) + more)
        grown[:end], grown[end + more :] = old[:end], old[end:]
        pools["levels"][pool] += more
        pools["tails"][pool + 1 :] += more
        self.link()

    def _grow_held(self) -> None:
        """Lay the routers' lists afresh, each with room for twice its messages."""
        lists, old = self.arrays["lists"], self.arrays["held"]
        rooms = np.maximum(layout.LIST_ROOM, 2 * lists["count"])
        bases = np.cumsum(rooms) - rooms
        used, spare = int(rooms.sum()), int(2 * rooms.max())
        held = self._make("held", max(len(old), 2 * used + 4 * spare))
        for row, base in zip(lists, bases, strict=True):
            count = row["count"]
            held[base : base + count] = old[row["begin"] : row["begin"] + count]
        lists["begin"], lists["room"] = bases, rooms
        self.world[0]["held_used"], self.world[0]["held_spare"] = used, spare
        self.link()


def _stationary(offered: float, slots: int, limit: int | None, most: int) -> NDArray[np.float64]:
    """Stationary law of an M/M/s/K queue up to a factor: of 0, 1, ... jobs, the far tail left out.

    `offered` is arrival rate over the service rate of a slot; no more than `most` jobs. In
    logarithms, as the law of a long queue that is always full rises beyond any float.
    """
    levels = most if limit is None else min(limit, most)
    if offered < slots:
        ratio = offered / slots
        tail = (math.log(_WARM_TAIL) + math.log1p(-ratio)) / math.log(ratio)
        levels = min(levels, slots + 1 + math.ceil(tail))
    k = np.arange(1, levels + 1)
    logs = np.concatenate(([0.0], np.cumsum(np.log(offered / np.minimum(k, slots)))))
    return np.exp(logs - logs.max())
