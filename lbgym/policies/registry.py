"""Policies by name: the one place that parses a name and binds a rule to a system.

A name is ``word[(argument{, argument})]``; an argument is a value or ``key=value``; a value is a
number, a fraction (``1/2``), a word or a policy. A *family* is a builder that turns checked
arguments into the `Parts` of a policy.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np

from lbgym.engine.access import COMPILED, Entry, cache_by_sources, rule, rule_signature
from lbgym.engine.state import State
from lbgym.suggest import nearest, unknown
from lbgym.system import System, as_system


@rule
def stay(w):
    """A resampling job stays where it is."""
    return w.source


# --- what a policy is -----------------------------------------------------------------------------
@dataclass(frozen=True)
class Parts:
    """What a builder gives: rules, their arguments and memory, and what the engine must keep.

    `information` and `columns`, when None, are the family's. `anonymous`: of the sampled servers it
    matters only what they answer, not which they are. `refuses`: it may turn a job away.
    """

    place: Any
    move: Any = stay
    params: tuple[float, ...] = ()
    scratch: int = 0
    messages: bool = False
    ordered: bool = False
    memory: bool = False
    read_memory: bool = False
    probe_memory: bool = False
    sizes: bool = False
    samples: int = 0
    ring_asks: bool = False
    router_samples: int = 1
    anonymous: bool = False
    anywhere: bool = False
    refuses: bool = False
    information: str | None = None
    columns: tuple[str, ...] | None = None

    def needs(self) -> dict[str, Any]:
        """What `State` must be told to keep."""
        kept = ("messages", "ordered", "memory", "read_memory", "probe_memory", "sizes")
        names = (*kept, "samples", "ring_asks", "router_samples")
        return {name: getattr(self, name) for name in (*names, "params", "scratch")}

    def but(self, **changes: Any) -> Parts:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True)
class Policy:
    """A rule bound to a system.

    Attributes
    ----------
    name : str
        Its canonical name, which `make` takes.
    information : str
        What it knows; tables group by it.
    columns : tuple of str
        The observation columns its agent needs to see.
    """

    name: str
    system: System
    parts: Parts

    @property
    def information(self) -> str:
        return self.parts.information or ""

    @property
    def columns(self) -> tuple[str, ...]:
        return self.parts.columns or ()

    def rules(self) -> tuple[Any, Any]:
        """The compiled rules for arrivals and for resamplings."""
        return _ready(self.parts.place), _ready(self.parts.move)

    def state(self, **options: Any) -> State:
        """A running copy of the system that keeps what this policy needs."""
        return State(self.system, **(self.parts.needs() | options))

    def agent(self, env: Any = None) -> Any:
        """The agent: acts on observations of `env` (see `lbgym.agents.PolicyAgent`)."""
        from lbgym.agents import PolicyAgent

        return PolicyAgent(self, env)


def _ready(compiled: Any) -> Any:
    return compiled.ready() if isinstance(compiled, Entry) else compiled


@dataclass(frozen=True)
class Family:
    """A row of the registry."""

    name: str
    build: Callable[..., Any]
    information: str
    columns: tuple[str, ...] = ()
    on_graph: bool = False

    @property
    def help(self) -> str:
        return inspect.getdoc(self.build) or ""

    @property
    def usage(self) -> str:
        """How it is written, for messages and lists."""
        shown = []
        for parameter in _arguments(self.build):
            if parameter.kind is parameter.VAR_POSITIONAL:
                shown.append("p1, ..., pn")
            elif parameter.kind is parameter.KEYWORD_ONLY:
                shown.append(f"{parameter.name.replace('_', '-')}={parameter.default}")
            elif parameter.default is parameter.empty:
                shown.append(parameter.name)
            else:
                shown.append(f"[{parameter.name}]")
        return self.name + (f"({', '.join(shown)})" if shown else "")


_FAMILIES: dict[str, Family] = {}
_ALIASES: dict[str, str] = {}


def family(
    name: str,
    *,
    information: str,
    columns: Iterable[str] = (),
    aliases: Iterable[str] = (),
    on_graph: bool = False,
) -> Callable[[Callable[..., Parts]], Callable[..., Parts]]:
    """Register a builder ``build(system, *arguments) -> Parts`` under a name."""

    def register(build: Callable[..., Parts]) -> Callable[..., Parts]:
        _FAMILIES[name] = Family(name, build, information, tuple(columns), on_graph)
        for alias in aliases:
            _ALIASES[alias] = name
        return build

    return register


def families() -> list[Family]:
    """Every registered family."""
    return list(_FAMILIES.values())


def names() -> list[str]:
    """The names of all policies, aliases included."""
    return sorted([*_FAMILIES, *_ALIASES])


USUAL = (
    "random",
    "weighted-random",
    "round-robin",
    "wrr",
    "pull",
    "pull(fallback=weighted-random, choice=fastest)",
    "pull(fallback=wrr, choice=fastest)",
    "jsq(2)",
    "sed(2)",
    "jsq",
    "sed",
    "jsed(ties=fastest)",
    "fpi",
)
USUAL_MIGRATING = (
    "local-search",
    "local-search(rule=weak)",
    "local-search(rule=oblivious)",
    "local-search(place=wrr)",
    "local-search(place=pull(fallback=wrr, choice=fastest))",
)


def usual(system: System) -> tuple[str, ...]:
    """The policies that a comparison begins with; some may not do for the system."""
    return USUAL + USUAL_MIGRATING if system.migrates else USUAL


# --- parsing --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Call:
    """A parsed policy name."""

    name: str
    positional: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> bool:
        return bool(self.positional or self.keywords)

    def __str__(self) -> str:
        shown = [_shown(v) for v in self.positional]
        shown += [f"{k}={_shown(v)}" for k, v in self.keywords.items()]
        return self.name + (f"({', '.join(shown)})" if shown else "")


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


_TOKEN = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w-]))"
    r"|(?P<word>[A-Za-z][\w-]*)|(?P<mark>[(),=/]))"
)


def parse(text: str) -> Call:
    """Parse a policy's name. Raises ValueError that says where it goes wrong."""
    if not isinstance(text, str):
        raise ValueError(f"policy: must be a name, got {text!r}")
    tokens: list[tuple[str, str]] = []
    place = 0
    stripped = text.rstrip()
    while place < len(stripped):
        match = _TOKEN.match(stripped, place)
        if match is None:
            raise ValueError(f"policy {text!r}: cannot read {stripped[place:]!r}")
        tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
        place = match.end()
    try:
        call, rest = _call(tokens, text)
    except RecursionError:
        raise ValueError(f"policy {text[:40]!r}...: too many brackets within brackets") from None
    if rest:
        raise ValueError(f"policy {text!r}: unexpected {rest[0][1]!r} after {call}")
    return call


_Tokens = list[tuple[str, str]]


def _call(tokens: _Tokens, text: str) -> tuple[Call, _Tokens]:
    if not tokens or tokens[0][0] != "word":
        raise ValueError(f"policy {text!r}: must begin with a name such as 'pull' or 'jsq(2)'")
    name, tokens = tokens[0][1], tokens[1:]
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    if not tokens or tokens[0][1] != "(":
        return Call(name), tokens
    tokens = tokens[1:]
    while True:
        if not tokens:
            raise ValueError(f"policy {text!r}: a closing bracket is missing")
        if tokens[0][1] == ")" and not positional and not keywords:
            return Call(name), tokens[1:]
        if len(tokens) > 1 and tokens[0][0] == "word" and tokens[1][1] == "=":
            key = tokens[0][1]
            value, tokens = _value(tokens[2:], text)
            if key in keywords:
                raise ValueError(f"policy {text!r}: {key} is given twice")
            keywords[key] = value
        else:
            value, tokens = _value(tokens, text)
            if keywords:
                raise ValueError(f"policy {text!r}: {_shown(value)} must come before key=value")
            positional.append(value)
        if not tokens:
            raise ValueError(f"policy {text!r}: a closing bracket is missing")
        mark, tokens = tokens[0][1], tokens[1:]
        if mark == ")":
            return Call(name, tuple(positional), keywords), tokens
        if mark != ",":
            raise ValueError(f"policy {text!r}: expected ',' or ')', got {mark!r}")


def _value(tokens: _Tokens, text: str) -> tuple[Any, _Tokens]:
    if tokens and tokens[0][0] == "number":
        value: float = _number(tokens[0][1])
        if len(tokens) > 2 and tokens[1][1] == "/" and tokens[2][0] == "number":
            below = _number(tokens[2][1])
            if below == 0:
                raise ValueError(f"policy {text!r}: a fraction over 0")
            return value / below, tokens[3:]
        return value, tokens[1:]
    if tokens and tokens[0][0] == "word":
        call, rest = _call(tokens, text)
        return (call if call.arguments else call.name), rest
    got = tokens[0][1] if tokens else "the end"
    raise ValueError(f"policy {text!r}: expected a value, got {got!r}")


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


# --- checking arguments ---------------------------------------------------------------------------
def one_of(value: Any, table: Mapping[str, Any], where: str) -> Any:
    """The table's entry for a word; else a ValueError that lists the words."""
    if not isinstance(value, str) or value not in table:
        words, got = ", ".join(table), _shown(value)
        raise ValueError(f"{where} must be one of {words}, got {got}{meant(value, table)}")
    return table[value]


def meant(word: Any, allowed: Iterable[str]) -> str:
    """ ", did you mean 'pull'?" if a word is near to an allowed one, else nothing."""
    near = nearest(word, allowed)
    return "" if near is None else f", did you mean {near!r}?"


def real(value: Any, where: str) -> float:
    """Check a finite number that is at least 0."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:
        raise ValueError(f"{where} must be a number >= 0, got {_shown(value)}")
    return float(value)


def count(value: Any, where: str, least: int = 1) -> int:
    """Check a whole number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{where} must be a whole number >= {least}, got {_shown(value)}")
    return int(value)


def as_call(value: Any, where: str) -> Call:
    """A policy given as an argument."""
    if isinstance(value, Call):
        return value
    if isinstance(value, str):
        return parse(value)
    raise ValueError(f"{where} must be a policy, got {_shown(value)}")


def _arguments(build: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(build).parameters.values())[1:]


def parts_of(call: Call, system: System) -> Parts:
    """The parts of a parsed policy on a system."""
    name = _ALIASES.get(call.name, call.name)
    if name not in _FAMILIES:
        raise ValueError(unknown("policy", call.name, names()))
    row = _FAMILIES[name]
    allowed = [p.name for p in _arguments(row.build)]
    keywords = {key.replace("-", "_"): value for key, value in call.keywords.items()}
    for key in keywords:
        if key not in allowed:
            near = meant(key, allowed)
            raise ValueError(f"policy {call}: unknown argument {key!r}{near}; use {row.usage}")
    try:
        inspect.signature(row.build).bind(system, *call.positional, **keywords)
    except TypeError:
        raise ValueError(f"policy {call}: wrong arguments; use {row.usage}") from None
    _check_suits(call, row, system)
    parts = row.build(system, *call.positional, **keywords)
    information = row.information if parts.information is None else parts.information
    columns = row.columns if parts.columns is None else parts.columns
    if system.router_count == 1:
        columns = tuple(c for c in columns if c != "router")
    return parts.but(information=information, columns=columns)


def _check_suits(call: Call, row: Family, system: System) -> None:
    """Whether a family is meant for such a system."""
    if system.graph is not None and not row.on_graph:
        able = ", ".join(f.name for f in families() if f.on_graph)
        raise ValueError(
            f"policy {call}: with a graph a job may go to its edge's two ends only; use {able}"
        )
    if system.graph is None and row.name == "local-choice":
        raise ValueError("local-choice: needs a system with a graph, e.g. graph='ring'")


# --- making ---------------------------------------------------------------------------------------
def make(policy: Any, system: Any) -> Policy:
    """A policy bound to a dispatching system.

    `policy` is a name, a `Policy` (bound anew), or a user's own rule: a ``@numba.njit`` function
    ``int64(w)`` (see `custom` for rules that need messages, samples, arguments or memory).
    """
    system = as_system(system)
    if not isinstance(system, System):
        raise ValueError(f"system: must be one of jobs at servers, got {system.describe()}")
    if isinstance(policy, Policy):
        if isinstance(policy.parts.place, Entry) and policy.name:
            return make(policy.name, system) if policy.system != system else policy
        return dataclasses.replace(policy, system=system)
    if callable(policy):
        return custom(policy)(system)
    call = parse(policy)
    if system.closed_jobs is not None and call.name in (*_FAMILIES, *_ALIASES):
        if call.name != "local-search":
            raise ValueError(f"policy {call}: jobs of a closed system only move; use local-search")
    return Policy(str(call), system, parts_of(call, system))


def checked_rule(function: Any, signature: Any = rule_signature) -> Any:
    """A user's rule ``int64(w)``, through the same door as the built-in ones."""
    python = getattr(function, "py_func", function)
    name = getattr(python, "__name__", repr(function))
    if COMPILED and not hasattr(function, "py_func"):
        raise ValueError(f"rule {name}: must be compiled; decorate it with @numba.njit")
    takes = len(inspect.signature(python).parameters)
    if takes != 1:
        raise ValueError(f"rule {name}: must take one argument, the world w; it takes {takes}")
    if not COMPILED:
        return python
    with cache_by_sources():
        try:
            fresh = numba.njit(error_model="numpy")(python)
            fresh.compile(signature.args)
        except KeyError as error:
            raise ValueError(f"rule {name}: the world has no field {error}") from None
        except numba.core.errors.NumbaError as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"rule {name}: does not compile as int64(w): {reason}") from None
        returned = fresh.nopython_signatures[0].return_type
        if not isinstance(returned, numba.types.Integer):
            raise ValueError(
                f"rule {name}: must return an integer (what it chooses), returns {returned}"
            )
        return numba.njit(signature, error_model="numpy")(python)


def custom(
    function: Any,
    *,
    move: Any = None,
    name: str = "",
    params: Iterable[float] = (),
    scratch: int = 0,
    messages: bool = False,
    ordered: bool = False,
    samples: int = 0,
    sizes: bool = False,
    information: str = "user's",
    columns: Iterable[str] = (),
) -> Callable[[Any], Policy]:
    """A policy from a user's own rule: ``custom(rule, samples=2)(system)``.

    Parameters
    ----------
    function : numba.njit function ``int64(w)``
        The server for an arriving job, in the words of `lbgym.engine.vocabulary`.
    move : numba.njit function ``int64(w)``, optional
        The same for a resampling job: ``w.source`` to stay, ``w.target`` to move.
    params, scratch
        Arguments (read by `param`) and number of memory cells (`recall`, `remember`).
    messages, ordered, samples, sizes
        What the engine must keep: pull-messages, servers sorted by length, sampled servers, sizes
        drawn at arrival.
    """
    place_rule = checked_rule(function)
    move_rule = stay if move is None else checked_rule(move)
    parts = Parts(
        place=place_rule,
        move=move_rule,
        params=tuple(float(x) for x in params),
        scratch=scratch,
        messages=messages,
        ordered=ordered,
        samples=samples,
        sizes=sizes,
        information=information,
        columns=tuple(columns),
    )
    title = name or getattr(function, "__name__", "rule")
    return lambda system: Policy(title, as_system(system), parts)
