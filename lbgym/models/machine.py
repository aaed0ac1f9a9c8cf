# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
"""What the two small engines share: arrays behind one world record, random streams, rules by name.

The conventions are those of `lbgym.engine.layout`: one record per thing, one record ``w`` with
every scalar and the arrays' addresses, accessors ``(w, k)`` compiled into their callers. What is
compiled to be called from Python (`advance`, `apply`, `run`) stands in each engine: made by a
function here, it would be compiled anew in every process, as Numba's file cache does not know two
closures by what they enclose.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from lbgym.engine import layout
from lbgym.engine.access import Entry, accessor, inner, record_reader
from lbgym.engine.layout import RECORDS
from lbgym.engine.random import LAYERS
from lbgym.engine.start import zero
from lbgym.policies.registry import Call, Family, checked_rule, parse
from lbgym.suggest import unknown

PATIENCE = 4_000_000  # events after which `advance` lets Python look for Ctrl-C
SAME = 1e-12  # relative; values closer than this tie

Fields = list[tuple[str, str, str]]  # name, dtype, meaning

# Arrays that every engine has, as the big engine has them.
_CELL = RECORDS["scratch"].itemsize
COMMON = {name: RECORDS[name] for name in ("streams", "layers", "params", "scratch")}

# Scalars that every engine has: what a trajectory leaves alone, and what it begins anew with 0.
SETTINGS: Fields = [
    ("arrival_gap", "f8", "mean time between arrivals"),
    ("rest_at", "i8", "`advance` rests once so many have arrived"),
    ("horizon", "f8", "`advance` rests at this time"),
    ("n_params", "i8", "arguments of the rule"),
    ("n_scratch", "i8", "memory cells of the rule"),
]
MOVING: Fields = [
    ("clock", "f8", "now"),
    ("next_arrival", "f8", "when the next arrival comes"),
    ("hazard", "f8", "unit-rate hazard left until the next completion"),
    ("kind", "i8", "sort of the pending decision, NOTHING if there is none"),
    ("action", "i8", "what a rule has chosen"),
    ("arrivals", "i8", "arrivals dealt with"),
    ("events", "i8", "events"),
]


def record(fields: Fields) -> np.dtype[Any]:
    """The dtype of a table of fields."""
    return np.dtype([(name, kind) for name, kind, _ in fields], align=True)


def world_record(
    settings: Fields, moving: Fields, arrays: Mapping[str, Any]
) -> tuple[np.dtype[Any], int, int]:
    """The dtype of a world: scalars, then address and size of every array; and the bytes between
    which the scalars lie that a trajectory begins anew."""
    names = [*arrays, *COMMON]
    addresses = [(f"at_{name}", "i8") for name in names]
    scalars = [(name, kind) for name, kind, _ in [*SETTINGS, *settings, *MOVING, *moving]]
    sizes = [(f"size_{name}", "i8") for name in names]
    dtype = np.dtype([*scalars, *addresses, *sizes], align=True)
    fields: Any = dtype.fields
    return dtype, int(fields["clock"][1]), int(fields[addresses[0][0]][1])


@inner
def clear_memory(w):
    """Empty the rule's memory."""
    zero(w.at_scratch, w.size_scratch * _CELL)


def doors(dtype: np.dtype[Any]) -> tuple[Any, Any, Any]:
    """The compiled ``(address)`` that returns a world, the signature of its rules, their type."""
    rule_signature = types.int64(numba.from_dtype(dtype))
    return record_reader(dtype), rule_signature, types.FunctionType(rule_signature)


class Machine(ABC):
    """One running copy of a system: `advance` to the next decision, `apply` it.

    Subclasses name their records and fill the arrays; `seed`, then `begin`, start a trajectory.
    """

    WORLD: ClassVar[np.dtype[Any]]
    ARRAYS: ClassVar[Mapping[str, np.dtype[Any]]]
    _advance: ClassVar[Entry]
    _apply: ClassVar[Entry]
    _restart: ClassVar[Entry]

    def __init__(self, system: Any, params: Sequence[float] = (), scratch: int = 0) -> None:
        self.system = system
        self.world = np.zeros(1, self.WORLD)
        self.arrays: dict[str, NDArray[Any]] = {"layers": LAYERS}
        self.make("streams", layout.STREAMS)
        self.make("params", len(params))["value"] = params
        self.make("scratch", scratch)
        w = self.world[0]
        w["n_params"], w["n_scratch"] = len(params), scratch
        w["arrival_gap"] = 1.0 / system.total_rate
        self.rest(None)

    def make(self, name: str, length: int) -> NDArray[Any]:
        """A new array of records, all zero."""
        dtype = COMMON[name] if name in COMMON else self.ARRAYS[name]
        self.arrays[name] = np.zeros(length, dtype)
        return self.arrays[name]

    def link(self) -> None:
        """Write the arrays' addresses and sizes into the world. Nothing else may."""
        w = self.world[0]
        for name, array in self.arrays.items():
            w[f"at_{name}"], w[f"size_{name}"] = array.ctypes.data, len(array)
        self.address = self.world.ctypes.data

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "address"}

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self.link()

    def copy(self) -> Any:
        """An independent copy that goes on from here."""
        return copy.deepcopy(self)

    def seed(self, generator: np.random.Generator) -> None:
        """Fill the random streams from a NumPy generator."""
        words = generator.integers(1, 2**64, size=(layout.STREAMS, 4), dtype=np.uint64)
        for k, field in enumerate("abcd"):
            self.arrays["streams"][field] = words[:, k]

    def begin(self, start: Any = "empty") -> None:
        """A new trajectory from the streams as they are."""
        self.prepare(start)
        self._restart(self.address)

    @abstractmethod
    def prepare(self, start: Any) -> None:
        """Say how trajectories are to begin; ValueError if that is impossible."""

    def rest(self, arrivals: int | None, horizon: float = np.inf) -> None:
        """Where `advance` comes to rest at the latest: after so many arrivals, at such a time."""
        most = np.iinfo(np.int64).max
        self.world[0]["rest_at"] = most if arrivals is None else arrivals
        self.world[0]["horizon"] = horizon

    def advance(self) -> int:
        """Run events until the next decision: DECIDE; or DONE, GROW, PAUSE (see `layout`)."""
        return int(self._advance(self.address))

    def apply(self, action: int) -> int:
        """Carry out the pending decision: DECIDE; INVALID if the action is out of range."""
        return int(self._apply(self.address, action))


# --- rules by name --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rule:
    """A policy bound to a car-sharing system or a flow network.

    place : the compiled rule ``int64(w)``
    params, scratch : its arguments and number of memory cells
    samples : stations that are sampled for each user (car sharing)
    """

    name: str
    system: Any
    place: Any
    information: str = ""
    params: tuple[float, ...] = ()
    scratch: int = 0
    samples: int = 0
    table: Any = None  # of an optimal policy: what `theory` knows it by
    columns: tuple[str, ...] = ()  # what its agent must see

    def ready(self) -> Any:
        """The compiled function."""
        return self.place.ready() if isinstance(self.place, Entry) else self.place

    def rules(self) -> tuple[Any, ...]:
        """The same, as other policies give theirs."""
        return (self.ready(),)

    def agent(self, env: Any) -> Any:
        """Its agent in an environment; ValueError names what that would have to show."""
        from lbgym.model_agents import ModelAgent

        return ModelAgent(self, env)


def families_of(*rows: Family) -> dict[str, Family]:
    """The policies of one kind of system by name."""
    return {row.name: row for row in rows}


def make_rule(policy: Any, system: Any, families: Mapping[str, Family], signature: Any) -> Rule:
    """A policy's name, a `Rule` or a user's compiled function ``int64(w)``, bound to a system."""
    if isinstance(policy, Rule):
        if policy.system == system:
            return policy
        if policy.table is not None or not isinstance(policy.place, Entry):
            return dataclasses.replace(policy, system=system)
        return make_rule(policy.name, system, families, signature)
    if callable(policy):
        name = getattr(policy, "__name__", "rule")
        return Rule(name, system, checked_rule(policy, signature), "user's")
    return _built(parse(policy), system, families)


def _built(call: Call, system: Any, families: Mapping[str, Family]) -> Rule:
    if call.name not in families:
        kind = f"policy of a {system.KIND} system"
        raise ValueError(unknown(kind, call.name, sorted(families)))
    row = families[call.name]
    keywords = {key.replace("-", "_"): value for key, value in call.keywords.items()}
    try:
        inspect.signature(row.build).bind(system, *call.positional, **keywords)
    except TypeError:
        raise ValueError(f"policy {call}: wrong arguments; use {row.usage}") from None
    rule: Rule = row.build(system, *call.positional, **keywords)
    return dataclasses.replace(rule, name=str(call), information=row.information)


# --- the rule of a table --------------------------------------------------------------------------
def table_params(keys: NDArray[np.int64], choices: NDArray[np.int64]) -> tuple[float, ...]:
    """Params of `row_of`: the number of keys, the keys in rising order, then a row of choices each.

    Keys are below 2^53, so that they are exact as floats.
    """
    return (float(len(keys)), *keys.astype(float).tolist(), *choices.astype(float).ravel().tolist())


_param = accessor("params", COMMON["params"])


@inner
def row_of(w, key):
    """The row of a key in the table, -1 if it is not there."""
    n = int(_param(w, 0).value)
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        if _param(w, 1 + middle).value < key:
            low = middle + 1
        else:
            high = middle
    if low < n and _param(w, 1 + low).value == key:
        return low
    return -1


@inner
def choice_at(w, row, width, k):
    """The k-th choice of a row that is `width` long."""
    return int(_param(w, 1 + int(_param(w, 0).value) + row * width + k).value)
