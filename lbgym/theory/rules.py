"""What the policies do, once more: as probabilities over the servers, given the state.

The compiled rules of `lbgym.policies` draw; these say with which probability, for many states at
once. They are written independently, from the policies' definitions, so that theory and simulation
are witnesses of each other; only the names and their checks are shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lbgym.policies.registry import Call, Policy, make, parse
from lbgym.system import System

from .chain import Booleans, Floats, Integers
from .closed_form import best_split

Groups = tuple[tuple[int, ...], ...]
Allowed = Callable[[int, int, Integers], Booleans]

OPTIMAL = "optimal"  # what the policies of `optimal` are called

_SAME = 1e-12  # relative; indices closer than this tie


class Placement(Protocol):
    """Where an arriving job goes."""

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        """Probability of each server, (m, n), and queues looked at, (m,); q and held: (m, n).

        held: whose messages the acting router holds, None if the policy uses none.
        """


@dataclass(frozen=True)
class Plan:
    """A policy on a system.

    groups : servers that the policy cannot tell apart
    place : where arriving jobs go
    messages : whether idle servers send pull-messages, each to the poorest of `router_samples`
    allowed : whether a job of server i that looks at server j moves there; None: never
    looks : how many queues a job looks at before it decides whether to move
    search : the rule of local search, if it is that
    index : (a, c): the policy tends to even out (q + a) / c, by default q / speed; only a guide to
        where endless queues can be cut
    """

    name: str
    groups: Groups
    place: Placement
    messages: bool = False
    router_samples: int = 1
    allowed: Allowed | None = None
    looks: int = 0
    search: str | None = None
    index: tuple[Floats, Floats] | None = None

    def bound(self, system: System, name: str) -> Plan:
        """The same with its name, and an index if it has none."""
        index = self.index or (np.zeros(system.servers), system.speeds)
        return replace(self, name=name, index=index)


# --- choosing -------------------------------------------------------------------------------------
def sampled_shares(before: Integers, tied: Integers, d: int, replace: bool) -> Floats:
    """Probability of each server when d are sampled and the first in some order is taken.

    before, tied : (m, n) how many servers come strictly before each, and how many tie with it (it
    included); ties are uniform. The chosen class is this one iff no sample comes before it and not
    all come after: f(n - before) - f(n - before - tied), f(k) = P(all d samples among k servers).
    """
    n = before.shape[1]
    if replace:
        among = (np.arange(n + 1) / n) ** d
    else:
        among = np.array([math.comb(k, d) for k in range(n + 1)]) / math.comb(n, d)
    shares = (among[n - before] - among[n - before - tied]) / tied
    return np.asarray(shares, dtype=np.float64)


def order_of(value: Floats, second: Floats) -> tuple[Integers, Integers]:
    """How many servers come before each, and tie with it, by value and then `second`; (m, n)."""
    before = np.zeros(value.shape, dtype=np.int64)
    tied = np.zeros(value.shape, dtype=np.int64)
    for j in range(value.shape[1]):
        same = np.abs(value[:, [j]] - value) <= _SAME * np.abs(value)
        less = ~same & (value[:, [j]] < value)
        before += less | (same & (second[j] < second))
        tied += same & (second[j] == second)
    return before, tied


@dataclass(frozen=True)
class Static:
    """Given probabilities."""

    p: Floats

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        return np.broadcast_to(self.p, q.shape), np.zeros(len(q))


@dataclass(frozen=True)
class Least:
    """Where (q + a) / c is least: among all servers (d None) or among d sampled ones."""

    a: Floats
    c: Floats
    second: Floats  # ties go to the smaller of these
    d: int | None
    replace: bool

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        n = q.shape[1]
        before, tied = order_of((q + self.a) / self.c, self.second)
        if self.d is None:
            return np.where(before == 0, 1.0 / tied, 0.0), np.full(len(q), float(n))
        shares = sampled_shares(before, tied, self.d, self.replace)
        return shares, np.full(len(q), float(self.d))


@dataclass(frozen=True)
class Ranked:
    """The server of rank j in the order of q / c, ties uniform, with probability p_j."""

    c: Floats
    p: Floats

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        n = q.shape[1]
        before, tied = order_of(q / self.c, np.zeros(n))
        upto = np.concatenate([[0.0], np.cumsum(self.p)])
        shares = (upto[before + tied] - upto[before]) / tied
        return np.asarray(shares, dtype=np.float64), np.full(len(q), float(n))


@dataclass(frozen=True)
class FastestIdle:
    """A uniform one of the fastest idle servers; if none is idle of all."""

    speeds: Floats

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        speed = np.where(q == 0, self.speeds, 0.0)
        eligible = speed == speed.max(axis=1, keepdims=True)
        return eligible / eligible.sum(axis=1, keepdims=True), np.full(len(q), float(q.shape[1]))


@dataclass(frozen=True)
class Threshold:
    """The slow server only if it is empty while the fast one holds at least k."""

    fast: int
    k: int

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        slow = (q[:, 1 - self.fast] == 0) & (q[:, self.fast] >= self.k)
        shares = np.empty(q.shape)
        shares[:, self.fast] = ~slow
        shares[:, 1 - self.fast] = slow
        return shares, np.full(len(q), 2.0)


@dataclass(frozen=True)
class Pull:
    """A server whose message is held, of the fastest speed or any; else the fallback."""

    fallback: Placement
    preference: Floats  # of the servers held, those with the largest of these

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        assert held is not None
        best = np.where(held, self.preference, -1.0)
        eligible = held & (best == best.max(axis=1, keepdims=True))
        count = eligible.sum(axis=1)
        empty = count == 0
        shares = eligible / np.maximum(count, 1)[:, None]
        probes = np.zeros(len(q))
        if empty.any():
            shares[empty], probes[empty] = self.fallback.shares(q[empty], None)
        return shares, probes


@dataclass(frozen=True)
class Table:
    """The server that a table names for the queue lengths; longer queues are clipped to it."""

    action: NDArray[np.int64]  # one axis a server

    def shares(self, q: Integers, held: Booleans | None) -> tuple[Floats, Floats]:
        longest = np.array(self.action.shape) - 1
        chosen = self.action[tuple(np.minimum(q, longest).T)]
        return np.eye(q.shape[1])[chosen], np.full(len(q), float(q.shape[1]))


# --- moving ---------------------------------------------------------------------------------------
def gains(search: str, here: tuple[Any, Any], there: tuple[Any, Any]) -> Booleans:
    """Whether a job moves by local search; here and there: (speed, queue length), arrays or not.

    Strict: mu_j / (q_j + 1) > mu_i / q_i; weak: >=; oblivious: always.
    """
    would, does = there[0] * here[1], here[0] * (there[1] + 1)
    same = np.abs(would - does) <= _SAME * np.abs(does)
    if search == "oblivious":
        return np.ones_like(same)
    return np.asarray((same & (search == "weak")) | (~same & (would > does)))


def _searching(speeds: Floats, search: str) -> Allowed:
    def allowed(i: int, j: int, q: Integers) -> Booleans:
        return gains(search, (speeds[i], q[:, i]), (speeds[j], q[:, j]))

    return allowed


def table_moves(bits: NDArray[np.bool_]) -> Allowed:
    """Moves by table: bits[i, j][queue lengths], longer queues clipped."""

    def allowed(i: int, j: int, q: Integers) -> Booleans:
        longest = np.array(bits.shape[2:]) - 1
        return np.asarray(bits[i, j][tuple(np.minimum(q, longest).T)], dtype=bool)

    return allowed


# --- from a name to a plan ------------------------------------------------------------------------
def alike(*columns: Sequence[Any] | NDArray[Any]) -> Groups:
    """Servers that agree in every column."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(zip(*columns, strict=True)):
        found.setdefault(row, []).append(i)
    return tuple(tuple(servers) for servers in found.values())


def plan(system: System, policy: Any) -> Plan:
    """The policy's probabilities on a system.

    Raises ValueError for names that are wrong anywhere, and for policies that theory has no chain
    for: those with memory of their own, and users' rules.
    """
    if isinstance(policy, Policy) and policy.name == OPTIMAL:
        from .table import plan_of  # compiled code, which takes a moment to import

        if policy.system != system:
            raise ValueError("policy optimal: it belongs to another system; ask optimal for this")
        return plan_of(policy)
    bound = make(policy, system)
    try:
        call = parse(bound.name)
    except ValueError:
        call = Call("")
    if call.name not in BUILDERS or "own-sends" in call.keywords:
        raise ValueError(_no_plan(bound.name))
    return BUILDERS[call.name](system, *call.positional, **call.keywords).bound(system, bound.name)


_MEMORIES = ("wrr", "round-robin", "lsq", "belief", "memory", "own-sends")


def _no_plan(name: str) -> str:
    known = ", ".join(BUILDERS)
    if any(word in name for word in _MEMORIES):
        return (
            f"policy {name}: its memory multiplies the states beyond what an exact chain "
            f"can hold; simulate it, or ask for one of {known}"
        )
    return f"policy {name}: theory knows no probabilities for it; it knows {known}"


def _split(system: System, weights: NDArray[np.float64] | Sequence[float]) -> Plan:
    p = np.asarray(weights, dtype=float) / math.fsum(weights)
    return Plan("", alike(system.pool_of_server, p), Static(p))


def _random(system: System) -> Plan:
    return _split(system, np.ones(system.servers))


def _weighted_random(system: System) -> Plan:
    return _split(system, system.speeds)


def _static(system: System, *weights: float) -> Plan:
    return _split(system, weights)


def _least(system: System, a: Floats, c: Floats, d: int | None, ties: str) -> Plan:
    second = {
        "random": np.zeros(system.servers),
        "fastest": -system.speeds,
        "lowest": np.arange(system.servers, dtype=float),
    }[ties]
    place = Least(a, c, second, None if d is None else int(d), system.replace)
    groups = alike(system.pool_of_server, second)
    return Plan("", groups, place, index=(a, c))


def _jsq(system: System, d: int | None = None, *, ties: str = "random", memory: int = 0) -> Plan:
    if memory:
        raise ValueError(_no_plan(f"jsq({d}, memory={memory})"))
    n = system.servers
    return _least(system, np.zeros(n), np.ones(n), d, ties)


def _rank(system: System, *p: float, order: str = "jsq") -> Plan:
    c = system.speeds if order == "jsed" else np.ones(system.servers)
    place = Ranked(c, np.array(p, dtype=float) / math.fsum(p))
    return Plan("", alike(system.pool_of_server), place, index=(np.zeros(system.servers), c))


def _fastest_shortest(system: System, d: int | None = None) -> Plan:
    return _jsq(system, d, ties="fastest")


def _fastest_idle(system: System) -> Plan:
    return Plan("", alike(system.pool_of_server), FastestIdle(system.speeds))


def _sed(system: System, d: int | None = None, *, ties: str = "random") -> Plan:
    return _least(system, np.ones(system.servers), system.speeds, d, ties)


def _jsed(system: System, *, ties: str = "random") -> Plan:
    return _least(system, np.zeros(system.servers), system.speeds, None, ties)


def _index(system: System, a: float, d: int | None = None, *, ties: str = "random") -> Plan:
    return _least(system, np.full(system.servers, float(a)), system.speeds, d, ties)


def _fpi(system: System, *, ties: str = "random") -> Plan:
    rates = system.speeds / system.mean_size
    shares = np.array(best_split(system.arrival_rate, rates.tolist()))
    spare = rates - system.arrival_rate * shares
    return _least(system, np.ones(system.servers), spare, None, ties)


def _threshold(system: System, k: int) -> Plan:
    fast = 1 if system.speeds[1] > system.speeds[0] else 0
    return Plan("", ((0,), (1,)), Threshold(fast, int(k)))


def _pull(system: System, *, fallback: Any = "random", choice: str = "uniform") -> Plan:
    call = fallback if isinstance(fallback, Call) else parse(str(fallback))
    if call.name not in BUILDERS:
        raise ValueError(_no_plan(f"pull(fallback={call})"))
    plain = BUILDERS[call.name](system, *call.positional, **call.keywords)
    preference = system.speeds if choice == "fastest" else np.ones(system.servers)
    return Plan("", plain.groups, Pull(plain.place, preference), messages=True)


def _jiq_sq(system: System, d: int) -> Plan:
    return replace(_pull(system), router_samples=int(d))


def _local_search(system: System, *, rule: str = "strict", place: Any = "random") -> Plan:
    call = place if isinstance(place, Call) else parse(str(place))
    if call.name not in BUILDERS:
        raise ValueError(_no_plan(f"local-search(place={call})"))
    placement = BUILDERS[call.name](system, *call.positional, **call.keywords)
    return replace(
        placement,
        allowed=_searching(system.speeds, rule),
        looks=int(rule != "oblivious"),
        search=rule,
        index=None,
    )


BUILDERS: dict[str, Callable[..., Plan]] = {
    "random": _random,
    "weighted-random": _weighted_random,
    "static": _static,
    "jsq": _jsq,
    "rank": _rank,
    "fastest-shortest": _fastest_shortest,
    "fastest-idle": _fastest_idle,
    "sed": _sed,
    "jsed": _jsed,
    "index": _index,
    "fpi": _fpi,
    "threshold": _threshold,
    "pull": _pull,
    "jiq": _pull,
    "jiq-sq": _jiq_sq,
    "local-search": _local_search,
}
