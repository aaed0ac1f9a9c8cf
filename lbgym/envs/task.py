"""A task: all that an environment's arguments say, read once; rows are running copies of it.

`Env` steps one row of a task, `VectorEnv` many. A kind of environment (dispatching systems, car
sharing, flow networks) is a subclass of `Task`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lbgym.checks import finite
from lbgym.engine import layout
from lbgym.engine.state import Overload
from lbgym.kinds import read
from lbgym.suggest import arguments_of, check_keywords, unknown

from .desk import DESK, Functions, begin_once, show_once, step_once

_NEVER = 1 << 62
_LINE = 64  # bytes of a cache line
_CONSTANT = ("layers", "warm", "laws", "law_values", "phases", "jumps", "batch_below", "trace")
_COLD = (
    "servers",
    "entries",
    "sent_at",
    "sent_since",
    "jobs",
    "remains",
    "asides",
    "start",
    "scratch",
)

# A key of `info`: what the world record (or records, of many rows) and the arrays say. The arrays
# of many rows have one dimension more.
Fact = Callable[[Any, Mapping[str, Any]], Any]


class Task(ABC):
    """What an environment's arguments say.

    Attributes
    ----------
    system
        What is simulated.
    observation_space, action_space
        Of one row.
    width : int
        Numbers in an observation.
    info_keys : tuple of str
        Keys of `info`.
    closed : bool
        Whether an episode can end by itself.
    """

    FUNCTIONS: ClassVar[Functions]
    FACTS: ClassVar[Mapping[str, Fact | Mapping[str, str]]]  # a mapping: names of world fields

    system: Any
    observation_space: spaces.Box
    action_space: spaces.Discrete
    shown: Any  # has ``table(observation)``
    columns: tuple[str, ...]
    context: tuple[str, ...]
    action: str
    width: int
    info_keys: tuple[str, ...]
    start: Any
    horizon_arrivals: int
    horizon_time: float
    masked: bool = False
    closed: bool = False

    @classmethod
    def of(cls, defaults: Mapping[str, Any], system: Any, arguments: Mapping[str, Any]) -> Self:
        """The task of an environment's arguments; TypeError for one that there is not."""
        known = [x for x in arguments_of(cls.__init__) if x != "defaults"]
        check_keywords("environment", arguments, [*known, "render_mode"])
        return cls(defaults, system=system, **arguments)  # type: ignore[call-arg]

    @abstractmethod
    def new_state(self, system: Any, light: bool) -> Any:
        """A running copy of a system of the task's shape; light: without what only `simulate`
        reads."""

    @abstractmethod
    def new_record(self, row: Row) -> Any:
        """What else the compiled step reads: an object with ``link() -> address``, and with the
        names of those of its arrays that each row has to itself in ``OWN``."""

    def choices(self, state: Any) -> NDArray[Any] | None:
        """The records of a running system that actions name, if they are records."""
        return None

    @abstractmethod
    def start_of(self, options: Mapping[str, Any]) -> Any:
        """The start that `reset`'s options mean."""

    def check_start(self, state: Any) -> None:  # noqa: B027
        """Raise ValueError if a trajectory that has begun so leaves nothing to decide."""

    @abstractmethod
    def shape(self) -> tuple[Any, ...]:
        """What rows of one vector environment must agree in."""

    @abstractmethod
    def describe_shape(self) -> str:
        """The same in words."""

    @abstractmethod
    def picture(self, row: Row, last_action: int | None) -> str:
        """A row drawn in text."""

    @abstractmethod
    def drawing(self, row: Row) -> NDArray[np.uint8]:
        """A row drawn in pixels, shape (height, width, 3)."""

    def facts(self, key: str, w: Any, arrays: Mapping[str, Any]) -> Any:
        """What `info` says under a key other than dt and action_mask, of one row or of many."""
        fact = self.FACTS[key]
        if isinstance(fact, Mapping):
            return {name: w[field] for name, field in fact.items()}
        return fact(w, arrays)

    def action_error(self, action: Any) -> ValueError:
        """What is wrong with an action outside the space."""
        return ValueError(
            f"action: must be an integer from 0 to {self.action_space.n - 1}, got {action!r}"
        )


class Row:
    """A running copy of a task."""

    def __init__(self, task: Task, light: bool = False) -> None:
        self.task = task
        self.state = task.new_state(task.system, light)
        self.desk = np.zeros(1, DESK)
        this = self.desk[0]
        this["row_bytes"] = 4 * task.width
        this["masked"] = task.masked
        this["horizon_arrivals"], this["horizon_time"] = task.horizon_arrivals, task.horizon_time
        self.record = task.new_record(self)
        self.start: Any = None
        self.seeded = False
        self.link()

    def link(self) -> None:
        """Write the addresses."""
        self.state.link()
        self.address = int(self.desk.ctypes.data)
        this = self.desk[0]
        this["at_world"] = self.state.address
        this["at_task"] = self.record.link()
        choices = self.task.choices(self.state)
        if choices is not None:
            this["to_choices"] = choices.ctypes.data - self.address
            this["choice_bytes"] = choices.itemsize
        self._kept = self.task.FUNCTIONS.bind(self.desk, self.state)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("address", "_kept")}

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self.link()

    # --- memory -----------------------------------------------------------------------------------
    def owned(self) -> dict[str, NDArray[Any]]:
        """The arrays that make up this row, by name."""
        own = {name: getattr(self.record, name) for name in self.record.OWN}
        arrays = {name: x for name, x in self.state.arrays.items() if name not in _CONSTANT}
        last = {name: arrays.pop(name) for name in _COLD if name in arrays}
        return {"desk": self.desk, "world": self.state.world, **own, **arrays, **last}

    def own(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Use these arrays from now on."""
        for name, array in arrays.items():
            if name == "desk":
                self.desk = array
            elif name == "world":
                self.state.world = array
            elif name in self.record.OWN:
                setattr(self.record, name, array)
            else:
                self.state.arrays[name] = array
        self.link()

    def take_over(self, other: Row) -> None:
        """Go on with the random streams of another row, which ends here."""
        self.state.arrays["streams"][...] = other.state.arrays["streams"]
        self.desk[0]["seeded"], self.desk[0]["ended"] = (
            other.desk[0]["seeded"],
            other.desk[0]["ended"],
        )
        self.seeded = other.seeded
        self.prepare(self.task.start)

    # --- beginning --------------------------------------------------------------------------------
    def seed(self, generator: np.random.Generator) -> None:
        """Fill the random streams."""
        self.state.seed(generator)
        self.desk[0]["seeded"] = 1
        self.seeded = True

    def prepare(self, start: Any) -> None:
        """Say how trajectories are to begin."""
        if start is not self.start:
            self.state.prepare(start)
            self.start = start

    def begin(self) -> None:
        """A new trajectory, up to its first decision, whose observation is written."""
        status = begin_once(self.address, 1)
        self.finish_beginning(status)

    def finish_beginning(self, status: int) -> None:
        """Go on with a beginning that needs room or time."""
        while status not in (layout.DECIDE, layout.BALANCED):
            if status == layout.GROW:
                try:
                    self.state.grow()
                except Overload as overload:
                    raise ValueError(f"start: {overload}") from None
            status = begin_once(self.address, 0)

    # --- the rare paths of a step -----------------------------------------------------------------
    def settle(self, status: int, action: int) -> str:
        """Finish a step that needs room or time, or raise; returns the reason of an overload.

        After an overload nothing has happened: the decision is still pending.
        """
        while status not in (layout.DECIDE, layout.BALANCED):
            if status == layout.INVALID:
                raise self.task.action_error(action)
            if status == layout.GROW:
                try:
                    self.state.grow()
                except Overload as overload:
                    self._stay_here()
                    return str(overload)
            elif status != layout.PAUSE:
                raise AssertionError(status)
            status = step_once(self.address, action)[0]
        return ""

    def _stay_here(self) -> None:
        """The pending decision is shown once more, as the end of an episode."""
        w, this = self.state.world[0], self.desk[0]
        if "chosen" in w.dtype.names:
            w["chosen"] = 0
        show_once(self.address)
        this["status"], this["truncated"], this["reward"], this["dt"] = layout.DECIDE, 1, 0.0, 0.0


def gather(rows: Sequence[Row]) -> dict[str, NDArray[Any]]:
    """Move each row into one stretch of memory, one row after another, so that stepping them all
    misses few pages; returns arrays over all rows by name, shape (rows, length).

    An array whose length differs between rows stays where it is.
    """
    parts = [row.owned() for row in rows]
    names = [name for name, x in parts[0].items() if len({len(own[name]) for own in parts}) == 1]
    places, end = {}, 0
    for name in names:
        places[name] = end
        end += -(-parts[0][name].nbytes // _LINE) * _LINE
    stride = end + _LINE * (1 - end // _LINE % 2)  # an odd number of lines: rows share no sets
    block = np.zeros(stride * len(rows) + _LINE, np.uint8)
    first = -block.ctypes.data % _LINE
    views = {}
    for name in names:
        one = parts[0][name]
        strides = (stride, one.dtype.itemsize)
        shape = (len(rows), len(one))
        views[name] = np.ndarray(shape, one.dtype, block.data, first + places[name], strides)
    for k, row in enumerate(rows):
        move(row, views, k)
    return views


def move(row: Row, arrays: Mapping[str, NDArray[Any]], k: int) -> None:
    """Move a row to place k of gathered memory."""
    moved = {}
    for name, own in row.owned().items():
        if name in arrays and len(own) == arrays[name].shape[1]:
            arrays[name][k][...] = own
            moved[name] = arrays[name][k]
    row.own(moved)


# --- reading arguments ----------------------------------------------------------------------------
def whole(field: str, value: Any, least: int) -> int:
    """A whole number that is at least so large."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{field}: must be a whole number >= {least}, got {value!r}")
    return int(value)


def info_keys(info: Any, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of `info` that are wanted."""
    if isinstance(info, str) or not isinstance(info, Sequence):
        raise ValueError(f"info: must be a list of keys, got {info!r}")
    known = ("dt", "action_mask", *facts)
    for key in info:
        if key not in known:
            raise ValueError(f"info: {unknown('key', key, known)}")
    return tuple(info)


def horizons(arrivals: Any, time: Any, default: int) -> tuple[int, float]:
    """Arrivals and time at which an episode is cut off; `default` arrivals if neither is given."""
    end = math.inf
    if time is not None:
        end = finite("horizon_time", time)
        if end <= 0:
            raise ValueError(f"horizon_time: must be positive, got {time!r}")
    if arrivals is None:
        return (default if time is None else _NEVER), end
    if not isinstance(arrivals, bool) and isinstance(arrivals, int | np.integer) and arrivals == -1:
        return _NEVER, end
    return min(whole("horizon_arrivals", arrivals, 1), _NEVER), end


def start_given(start: Any) -> Any:
    """A word, or whole numbers as a list; the engine checks both."""
    return start if isinstance(start, str) else np.asarray(start).tolist()


def options_given(options: Any, key: str) -> Mapping[str, Any]:
    """`reset`'s options, in which only one key may stand."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ValueError(f"options: must be a dict, got {options!r}")
    for name in options:
        if name != key:
            raise ValueError(f"options: {unknown('key', name, (key,))}")
    return options


def model_system(thing: Any, kind: Any) -> Any:
    """The system of a kind; ValueError if it is of another."""
    system = read(thing)
    if not isinstance(system, kind):
        raise ValueError(
            f"system: must be a {kind.__name__}, its dict, a scenario's name or the path of a "
            f".toml file, got a {type(system).__name__}"
        )
    return system


def meaningless(field: str, value: Any, *allowed: Any) -> None:
    """Raise ValueError if an argument that means nothing here says something."""
    if value not in allowed:
        raise ValueError(
            f"{field}: means nothing for this environment; leave it out, got {value!r}"
        )


def observed(observe: Any, known: Sequence[str]) -> list[str]:
    """Names of what is to be shown, each known and given once."""
    if isinstance(observe, str) or not isinstance(observe, Sequence) or not observe:
        raise ValueError(f"observe: must be a list of columns, got {observe!r}")
    for k, name in enumerate(observe):
        if name not in known:
            raise ValueError(f"observe: {unknown('column', name, known)}")
        if name in observe[:k]:
            raise ValueError(f"observe: column {name!r} is given twice")
    return list(observe)


class Segments:
    """An observation as named stretches of numbers, one after another.

    parts : (name, length, highest value), length 0 for a single number, which stands alone
    """

    def __init__(self, parts: Sequence[tuple[str, int, float]]) -> None:
        self.parts = [(name, length) for name, length, _ in parts]
        lengths = [max(length, 1) for _, length in self.parts]
        self.width = sum(lengths)
        self.ends = np.cumsum(lengths).tolist()
        high = np.repeat(np.array([high for *_, high in parts], np.float32), lengths)
        self.space = spaces.Box(np.zeros_like(high), high, dtype=np.float32)

    def place(self, name: str) -> int:
        """Where a stretch begins, -1 if it is not shown."""
        for (known, length), end in zip(self.parts, self.ends, strict=True):
            if known == name:
                return int(end) - max(length, 1)
        return -1

    def table(self, observation: NDArray[np.float32]) -> dict[str, Any]:
        """Name -> (..., length), or (...) for a single number, of observations (..., width)."""
        obs = np.asarray(observation)
        if obs.ndim == 0 or obs.shape[-1] != self.width:
            raise ValueError(f"observation: must have {self.width} values, got shape {obs.shape}")
        found: dict[str, Any] = {}
        for (name, length), end in zip(self.parts, self.ends, strict=True):
            found[name] = obs[..., end - length : end] if length else obs[..., end - 1]
        return found
