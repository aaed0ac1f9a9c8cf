"""How engine code is compiled, and how it reaches a record of the running system.

*Compiling.* `inner` marks a function that is compiled into its callers, `special` one that only
some systems reach. `entry` marks one that Python calls: it is compiled at first use with an
explicit signature and cached on disk. Numba's file cache does not notice an edit in another module
that a cached function uses (numba#1833), so the cache folder is named by a hash of all the sources
that hold compiled code.

*Reaching.* The world record ``w`` holds addresses; `server(w, k)`, `job(w, j)` ... return the
record at an address, which costs one addition. Passing the arrays themselves through helper
functions costs several times the work of an event (atomic reference counts).
``LBGYM_CHECKED=1`` makes every accessor test its index; under ``NUMBA_DISABLE_JIT=1`` the same
accessors are plain Python over the same memory (and always test).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, lower_getattr, models, overload, register_model

from .layout import ARRAYS, LEAN, RECORDS, SIZED, WORLD

COMPILED = not numba.config.DISABLE_JIT
CHECKED = os.environ.get("LBGYM_CHECKED", "") not in ("", "0")

world_type = numba.from_dtype(WORLD)
rule_signature = types.int64(world_type)
rule_type = types.FunctionType(rule_signature)


# --- compiling ----------------------------------------------------------------------------------
def _source_hash() -> str:
    """A hash of every file that holds compiled code: those that import this module, and these."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(f"{numba.__version__} {CHECKED} {WORLD} {RECORDS}".encode())
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if path.parent.name == "engine" or b"engine.access" in source:
            digest.update(path.relative_to(package).as_posix().encode())
            digest.update(source)
    return digest.hexdigest()[:16]


_HASH = _source_hash()  # now, not at first use: the files may change while a process runs


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _cache_folder() -> Path:
    """``$NUMBA_CACHE_DIR``, else the user's cache folder, else a temporary one; by source hash."""
    homes = [os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")]
    roots = [Path(home) / "lbgym" for home in homes if home]
    with contextlib.suppress(RuntimeError):  # no home folder
        roots.append(Path.home() / ".cache" / "lbgym")
    name = _HASH
    for root in roots:
        if _writable(root / name):
            return root / name
    return Path(tempfile.mkdtemp(prefix="lbgym-"))


_folder: Path | None = None


@contextlib.contextmanager
def cache_by_sources() -> Iterator[None]:
    """Point Numba's file cache at this version of the sources while something is compiled."""
    global _folder
    if _folder is None:
        _folder = _cache_folder()
        if COMPILED and not any(_folder.iterdir()):
            print("lbgym: compiling the engine, once for this version", file=sys.stderr)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_folder)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


_inlined = {"error_model": "numpy", "forceinline": True}


def inner(function: Any) -> Any:
    """A function for compiled code, inlined wherever it is called.

    Constants and short integers are taken as int64, so that it is compiled once for all of them:
    being inlined, it loses nothing.
    """
    compiled: Any = numba.njit(**_inlined)(function)
    if not COMPILED:
        return compiled
    call = compiled.get_call_template

    def call_once(arguments: Any, keywords: Any) -> Any:
        return call([_as_int64(x) for x in arguments], keywords)

    compiled.get_call_template = call_once
    return compiled


def _as_int64(x: Any) -> Any:
    """int64 for the type of a constant or a shorter integer, any other type itself."""
    plain = types.unliteral(x)
    return types.int64 if isinstance(plain, types.Integer) and plain.bitwidth < 64 else plain


class Entry:
    """A compiled function that Python calls; compiled (or loaded) at its first use."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.function = function
        self.signature = signature
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self._ready: Any = None

    def ready(self) -> Any:
        """The compiled function itself: bind it once where calls are frequent."""
        if self._ready is None:
            with cache_by_sources():
                self._ready = numba.njit(
                    self.signature, cache=True, error_model="numpy", nogil=True
                )(self.function)
            if not COMPILED:
                self._ready = _ignoring_wraparound(self.function)
        return self._ready

    def direct(self) -> Any:
        """`ready` without Numba's choice by argument types, which costs more than many a step: the
        arguments must be of the signature's types."""
        compiled = self.ready()
        return next(iter(compiled.overloads.values())).entry_point if COMPILED else compiled

    def of(self, state: Any) -> Any:
        """`ready`, whatever the running system."""
        return self.ready()

    def __call__(self, *arguments: Any) -> Any:
        return self.ready()(*arguments)

    def __reduce__(self) -> str:
        """Pickled and copied by name, as functions are."""
        return self.__name__


class Variants(tuple[Entry, ...]):
    """A function compiled for every system, then once more for each of `layout.PLAIN` (or some)."""

    def of(self, state: Any) -> Any:
        """The compiled function for a running system."""
        k = state.variant()
        return self[k if k < len(self) else 0].ready()


def _ignoring_wraparound(function: Callable[..., Any]) -> Callable[..., Any]:
    """Plain Python: unsigned integers of the random streams wrap around as they must."""

    def call(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*arguments)

    return call


def entry(signature: Any) -> Callable[[Callable[..., Any]], Entry]:
    """Mark a function that Python calls, with its Numba signature."""
    return lambda function: Entry(function, signature)


def rule(function: Callable[..., Any]) -> Entry:
    """Mark a compiled rule: ``int64(w)``, the server chosen for the pending decision."""
    return Entry(function, rule_signature)


# --- reaching -----------------------------------------------------------------------------------
def _record_at(record: Any) -> Any:
    """Intrinsic: the record of this type at an address."""

    @intrinsic
    def at(typing_context, address):
        def code(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(record))

        return record(types.int64), code

    return at


def _python_record(address: Any, dtype: np.dtype[Any]) -> Any:
    memory: Any = (ctypes.c_char * dtype.itemsize).from_address(int(address))
    return np.frombuffer(memory, dtype=dtype).view(np.recarray)[0]


def record_reader(dtype: np.dtype[Any]) -> Any:
    """The compiled function ``(address)`` that returns the record of a dtype there."""
    if not COMPILED:
        return lambda address: _python_record(address, dtype)
    namespace = {"at": _record_at(numba.from_dtype(dtype))}
    exec("def reader(address):\n    return at(address)\n", namespace)
    return inner(namespace["reader"])


def accessor(name: str, dtype: np.dtype[Any], step: str = "") -> Any:
    """The function ``(w, k)`` that returns the k-th record of an array; w has its address and size
    as ``at_name`` and ``size_name``. `step`: bytes from record to record, an expression of w, if
    these are not always the dtype's."""
    address, size, step = f"at_{name}", f"size_{name}", step or str(dtype.itemsize)
    if not COMPILED:
        bytes_of = eval(f"lambda w: {step}")

        def reach(w: Any, k: Any) -> Any:
            if not 0 <= k < getattr(w, size):
                raise IndexError(f"{name}[{k}]: must be in 0..{getattr(w, size) - 1}")
            return _python_record(int(getattr(w, address)) + int(k) * int(bytes_of(w)), dtype)

        return reach

    namespace = {"at": _record_at(numba.from_dtype(dtype))}
    source = f"def {name}(w, k):\n"
    if CHECKED:
        source += f"    if k < 0 or k >= w.{size}:\n"
        source += f"        raise IndexError('{name}: index out of range')\n"
    source += f"    return at(w.{address} + k * ({step}))\n"
    exec(source, namespace)  # the field's name must be literal for Numba
    return inner(namespace[name])


_JOB, _WORK = RECORDS["jobs"].itemsize, RECORDS["works"].itemsize
_JOB_BYTES = f"{_JOB} + {_WORK - _JOB} * w.drawn"  # from one job's record to the next
_accessors = {called: accessor(name, RECORDS[name]) for name, (called, _, _) in ARRAYS.items()}
server = _accessors["server"]
standing = _accessors["standing"]
aside = _accessors["aside"]
pool = _accessors["pool"]
tick_row = _accessors["tick_row"]
job_class = _accessors["job_class"]
class_jobs = _accessors["class_jobs"]
edge = _accessors["edge"]
router = _accessors["router"]
message_list = _accessors["message_list"]
held = _accessors["held"]
entry_of = _accessors["entry"]
job = accessor("jobs", RECORDS["jobs"], _JOB_BYTES)
work_of = accessor("jobs", RECORDS["works"], _JOB_BYTES)  # only if `drawn`
remains_of = _accessors["remains_of"]
service_of = _accessors["service_of"]
seat_of = _accessors["seat_of"]
finish = _accessors["finish"]
law_of = _accessors["law_of"]
law_value = _accessors["law_value"]
phase_of = _accessors["phase_of"]
jump = _accessors["jump"]
batch_below = _accessors["batch_below"]
trace_of = _accessors["trace_of"]
tail = _accessors["tail"]
order = _accessors["order"]
sent_at = _accessors["sent_at"]
sent_since = _accessors["sent_since"]
sent_since_read = _accessors["sent_since_read"]
backlog = _accessors["backlog"]
probed_at = _accessors["probed_at"]
last_probe = _accessors["last_probe"]
sent_since_probe = _accessors["sent_since_probe"]
candidate_of = _accessors["candidate"]
bin_of = _accessors["bin"]
stream = _accessors["stream"]
layer = _accessors["layer"]
param_of = _accessors["param"]
scratch = _accessors["scratch"]
start_of = _accessors["start"]
warm_of = _accessors["warm"]

_SERVER, _FINISH = RECORDS["servers"].itemsize, RECORDS["finishes"].itemsize

if COMPILED:
    _world_at = _record_at(world_type)

    @inner
    def world(address):
        """The world record at an address."""
        return _world_at(address)

    class PlainWorld(types.Record):  # type: ignore[misc]
        """The type of the world record of a plain system: some of its scalars are constants."""

        def __init__(self, name: str, constants: dict[str, float]) -> None:
            fields = [
                (field, {"type": this.type, "offset": this.offset})
                for field, this in world_type.fields.items()
            ]
            # One field more, never read: Numba would take a record of the same fields for this one.
            fields.append((name, {"type": types.int64, "offset": world_type.size}))
            super().__init__(fields, world_type.size + 8, world_type.aligned)
            self.constants = constants

        def can_convert_to(self, typing_context: Any, other: Any) -> None:
            """Nothing compiled for other systems serves for these unasked."""

        def lacks(self, name: str) -> bool:
            """Whether nothing special is to be done for this scalar's sake."""
            return self.constants.get(name, math.nan) == LEAN.get(name, 0)

    register_model(PlainWorld)(models.RecordModel)

    def _constant(name: str) -> None:
        @lower_getattr(PlainWorld, name)
        def get(context, builder, kind, record):
            return context.get_constant(kind.typeof(name), kind.constants[name])

    for _name in LEAN:
        _constant(_name)

    _lean_at = _record_at(PlainWorld("lean", LEAN))
    _sized_at = _record_at(PlainWorld("sized", SIZED))

    @inner
    def lean_world(address):
        """The world record of a lean system."""
        return _lean_at(address)

    @inner
    def sized_world(address):
        """The world record of a sized system."""
        return _sized_at(address)

    def special(name: str, result: Any = None) -> Any:
        """Mark an `inner` function that a system reaches only if its scalar of that name is other
        than `layout.LEAN` has it. For plain systems where it is not, it is compiled to nothing but
        a result of the right type. Its first argument is w."""

        def mark(function: Any) -> Any:
            def reach(*arguments):
                """What compiled code calls."""

            def nothing(*arguments):
                return result

            @overload(reach, strict=False, jit_options=_inlined)
            def choose(w, *others):
                return nothing if isinstance(w, PlainWorld) and w.lacks(name) else function

            return reach

        return mark

    @intrinsic
    def any_world(typing_context, w):
        """The world record w as rules take it."""

        def code(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], context.get_value_type(world_type))

        return world_type(w), code

    @intrinsic
    def _bits(typing_context, value):
        def code(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], context.get_value_type(types.int64))

        return types.int64(types.float64), code

    @inner
    def bits(value):
        """The 64 bits of a float as an integer."""
        return _bits(value)

    def code_address(compiled: Any, signature: Any = rule_signature) -> int:
        """Where a compiled function's code is (by default a rule's); it must be kept alive."""
        result = compiled.get_compile_result(signature)
        return int(result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name))

    @intrinsic
    def _call_rule(typing_context, address, w):
        def code(context, builder, signature, arguments):
            result, argument = (context.get_value_type(t) for t in (types.int64, world_type))
            kind = ir.FunctionType(result, [argument]).as_pointer()
            return builder.call(builder.inttoptr(arguments[0], kind), [arguments[1]])

        return types.int64(types.int64, world_type), code

    @inner
    def call_rule(address, w):
        """What the rule at an address says. (A rule given as an argument costs 40 us a call.)"""
        return _call_rule(address, w)

    @intrinsic
    def _call_with(typing_context, address, one, other):
        def code(context, builder, signature, arguments):
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 2).as_pointer()
            builder.call(builder.inttoptr(arguments[0], kind), arguments[1:])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), code

    @intrinsic
    def _prefetch(typing_context, address):
        def code(context, builder, signature, arguments):
            pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
            hint = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=kind)
            place = builder.inttoptr(arguments[0], pointer)
            builder.call(hint, [place, number(0), number(3), number(1)])
            return context.get_dummy_value()

        return types.void(types.int64), code

    @inner
    def prefetch(address, size):
        """Ask for that many bytes of memory, to be near when they are read."""
        for place in range(address, address + size, 64):
            _prefetch(place)

    @inner
    def prefetch_server(w, i):
        """Ask for the record of server i."""
        _prefetch(w.at_servers + i * _SERVER)

    @inner
    def prefetch_job(w, j):
        """Ask for the record of job j."""
        _prefetch(w.at_jobs + j * (_JOB + (_WORK - _JOB) * w.drawn))

    @inner
    def prefetch_finish(w, k):
        """Ask for node k of the tournament."""
        _prefetch(w.at_finishes + k * _FINISH)

    @inner
    def call_with(address, one, other):
        """Call the function ``void(int64, int64)`` at an address."""
        _call_with(address, one, other)

    def _scalar_at(kind: Any) -> tuple[Any, Any]:
        @intrinsic
        def load(typing_context, address):
            def code(context, builder, signature, arguments):
                pointer = builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())
                return builder.load(pointer)

            return kind(types.int64), code

        @intrinsic
        def store(typing_context, address, value):
            def code(context, builder, signature, arguments):
                pointer = builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())
                builder.store(arguments[1], pointer)
                return context.get_dummy_value()

            return types.void(types.int64, kind), code

        return load, store

    def _block_at(kind: Any) -> Any:
        @intrinsic
        def block(typing_context, address):
            def code(context, builder, signature, arguments):
                return builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())

            return types.CPointer(kind)(types.int64), code

        return block

    _floats, _doubles, _integers, _flags = map(
        _block_at, (types.float32, types.float64, types.int64, types.int8)
    )

    @inner
    def floats(address):
        """The float32 numbers from an address on; loops over them are vectorised."""
        return _floats(address)

    @inner
    def doubles(address):
        """The float64 numbers from an address on."""
        return _doubles(address)

    @inner
    def integers(address):
        """The int64 numbers from an address on."""
        return _integers(address)

    @inner
    def flags(address):
        """The int8 numbers from an address on."""
        return _flags(address)

    _load32, _store32 = _scalar_at(types.float32)

    @inner
    def read_float32(address, k):
        """The k-th float32 at an address."""
        return _load32(address + 4 * k)

    @inner
    def write_float32(address, k, value):
        """Set the k-th float32 at an address."""
        _store32(address + 4 * k, np.float32(value))

else:

    def world(address: Any) -> Any:
        """The world record at an address."""
        return _python_record(address, WORLD)

    lean_world = sized_world = world

    def special(name: str, result: Any = None) -> Any:
        """Nothing to be marked."""
        return lambda function: function

    def any_world(w: Any) -> Any:
        """The world record w."""
        return w

    def bits(value: Any) -> int:
        """The 64 bits of a float as an integer."""
        return int(struct.unpack("<q", struct.pack("<d", value))[0])

    _functions: dict[int, Any] = {}

    def code_address(compiled: Any, signature: Any = rule_signature) -> int:
        """A number that stands for a function, for `call_rule` and `call_with`."""
        _functions[id(compiled)] = compiled
        return id(compiled)

    def call_rule(address: Any, w: Any) -> Any:
        """What the rule of a number says."""
        return _functions[int(address)](w)

    def prefetch(address: Any, size: Any) -> None:
        """Nothing to be asked for."""

    prefetch_server = prefetch_job = prefetch_finish = prefetch

    def call_with(address: Any, one: Any, other: Any) -> None:
        """Call the function ``void(int64, int64)`` of a number."""
        _functions[int(address)](one, other)

    def floats(address: Any) -> Any:
        """The float32 numbers from an address on."""
        return ctypes.cast(int(address), ctypes.POINTER(ctypes.c_float))

    def doubles(address: Any) -> Any:
        """The float64 numbers from an address on."""
        return ctypes.cast(int(address), ctypes.POINTER(ctypes.c_double))

    def integers(address: Any) -> Any:
        """The int64 numbers from an address on."""
        return ctypes.cast(int(address), ctypes.POINTER(ctypes.c_int64))

    def flags(address: Any) -> Any:
        """The int8 numbers from an address on."""
        return ctypes.cast(int(address), ctypes.POINTER(ctypes.c_int8))

    def read_float32(address: Any, k: Any) -> Any:
        """The k-th float32 at an address."""
        return np.float32(ctypes.c_float.from_address(int(address) + 4 * int(k)).value)

    def write_float32(address: Any, k: Any, value: Any) -> None:
        """Set the k-th float32 at an address."""
        ctypes.c_float.from_address(int(address) + 4 * int(k)).value = float(value)
