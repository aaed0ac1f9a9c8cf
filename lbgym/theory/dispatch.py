"""The chain of a dispatching system: queue lengths and, where the policy uses them, messages.

A state gives each server a *kind* = queue length x codes + code, the code saying who holds the
server's messages:

| message fate | codes | code |
|---|---|---|
| no messages | 1 | 0 |
| ``withdraw``, ``keep`` | R + 1 | 0: nobody, r + 1: router r |
| ``resend`` | 2^R | bit r: router r |

Servers that the policy cannot tell apart form a *group* whose kinds are kept sorted: a state stands
for all its permutations. Queues without a limit are cut (`Cut`): arrivals beyond do not happen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lbgym.system import System

from .chain import Booleans, Floats, Integers, Moves, TooLarge
from .rules import Plan, sampled_shares

ENDLESS = 1 << 40  # the queue of a server taken to be saturated
_LARGEST_KEY = 1 << 62


@dataclass(frozen=True)
class Cut:
    """Where queues without a limit are cut.

    caps : the longest queue of each group (ignored where the servers have a limit)
    total : most jobs in the system
    spread : most that the indices (q + a) / c of two servers may differ, where the policy joins
        the least
    """

    caps: tuple[int, ...]
    total: float = math.inf
    spread: float = math.inf


class Codes:
    """What the message codes mean; every table is indexed by code, the first axis by router."""

    def __init__(self, system: System, messages: bool) -> None:
        self.routers = system.router_count if messages else 0
        self.fate = system.message_fate
        if not messages:
            self.number = 1
        elif self.fate == "resend":
            if self.routers > 20:
                raise TooLarge(2**self.routers)
            self.number = 2**self.routers
        else:
            self.number = self.routers + 1
        code, r = np.arange(self.number), np.arange(self.routers)[:, None]
        if self.fate == "resend":
            self.holds = (code >> r) & 1 == 1
            self.without = code & ~(1 << r)
            self.sent_to = code | (1 << r)
        else:
            self.holds = code == r + 1
            self.without = np.where(self.holds, 0, code)
            self.sent_to = np.where(code == 0, r + 1, code)


class DispatchModel:
    """A system under a plan as a `chain.Model`.

    saturated : servers taken to hold endlessly many jobs: always busy, never sending; the chain is
        that of the others, and ``counts["joined i"]`` says what the saturated ones get.
    """

    def __init__(
        self, system: System, plan: Plan, cut: Cut, saturated: frozenset[int] = frozenset()
    ) -> None:
        self.system, self.plan, self.cut = system, plan, cut
        self.saturated = np.array([i in saturated for i in range(system.servers)])
        self.live = [i for i in range(system.servers) if i not in saturated]
        self.codes = Codes(system, plan.messages)
        self.limits = system.limits
        self.rates = system.speeds / system.mean_size
        slots = np.array([p.slots for p in system.pools])
        self.slots = slots[system.pool_of_server]
        self.caps = np.zeros(system.servers, dtype=np.int64)
        for group, cap in zip(plan.groups, cut.caps, strict=True):
            self.caps[list(group)] = [min(cap, self.limits[i]) for i in group]
        column = {server: k for k, server in enumerate(self.live)}
        self.groups = [
            [column[i] for i in group if i in column]
            for group in plan.groups
            if any(i in column for i in group)
        ]
        self._number_states()

    def _number_states(self) -> None:
        """Tables that give each sorted group a number: sum over places k of C(kind + k, k + 1)."""
        self.tables: list[Integers] = []
        self.possible = 1
        for group in self.groups:
            kinds = (int(self.caps[self.live[group[0]]]) + 1) * self.codes.number
            self.possible *= math.comb(kinds + len(group) - 1, len(group))
            if self.possible < _LARGEST_KEY:
                rows = [[math.comb(x + k, k + 1) for x in range(kinds)] for k in range(len(group))]
                self.tables.append(np.array(rows, dtype=np.int64))
        if self.possible >= _LARGEST_KEY:
            raise TooLarge(self.possible)

    # --- what a state says ---

    def queues(self, states: Integers) -> Integers:
        """(m, servers) queue lengths; ENDLESS where saturated."""
        q = np.full((len(states), self.system.servers), ENDLESS, dtype=np.int64)
        q[:, self.live] = states // self.codes.number
        return q

    def held(self, states: Integers, router: Integers) -> Booleans | None:
        """(m, servers) whose messages a router holds; router: (m,)."""
        if not self.plan.messages:
            return None
        held = np.zeros((len(states), self.system.servers), dtype=bool)
        held[:, self.live] = self.codes.holds[router[:, None], states % self.codes.number]
        return held

    # --- the model ---

    def start(self) -> Integers:
        """All idle; each server's message at the first router."""
        code = 1 if self.plan.messages else 0
        return np.full((1, len(self.live)), code, dtype=np.int64)

    def canonical(self, states: Integers) -> Integers:
        for group in self.groups:
            if len(group) > 1:
                states[:, group] = np.sort(states[:, group], axis=1)
        return states

    def keys(self, states: Integers) -> Integers:
        keys = np.zeros(len(states), dtype=np.int64)
        for group, table in zip(self.groups, self.tables, strict=True):
            keys *= math.comb(table.shape[1] + len(group) - 1, len(group))
            for k, column in enumerate(group):
                keys += table[k][states[:, column]]
        return keys

    def inside(self, states: Integers) -> Booleans:
        q = states // self.codes.number
        kept = np.asarray((q <= self.caps[self.live]).all(axis=1))
        if self.cut.total < math.inf:
            kept &= q.sum(axis=1) <= self.cut.total
        if self.cut.spread < math.inf:
            kept &= self.spread(q) <= self.cut.spread
        return kept

    def spread(self, q: Integers) -> Floats:
        """How far apart the servers' indices are; only for plans with an index."""
        assert self.plan.index is not None
        a, c = self.plan.index
        index = (q + a[self.live]) / c[self.live]
        return np.asarray(index.max(axis=1) - index.min(axis=1), dtype=np.float64)

    def moves(self, states: Integers) -> Iterator[Moves]:
        yield from self._arrivals(states)
        for k in range(len(self.live)):
            yield from self._departures(states, k)
        if self.plan.allowed is not None:
            for k in range(len(self.live)):
                for j in range(len(self.live)):
                    if k != j:
                        yield from self._migrations(states, k, j)

    # --- arrivals ---

    def _arrivals(self, states: Integers) -> Iterator[Moves]:
        weights = np.array(self.system.router_weights if self.plan.messages else (1.0,))
        m, routers = len(states), len(weights)
        at = np.repeat(np.arange(m), routers)  # each state once for each router
        router = np.tile(np.arange(routers), m)
        there = states[at]
        shares, probes = self.plan.place.shares(self.queues(there), self.held(there, router))
        rate = shares * (weights[router] * self.system.arrival_rate)[:, None]
        for i in np.flatnonzero(self.saturated):
            rows = np.flatnonzero(rate[:, i])
            counts = {f"joined {i}": 1.0, "waits": 1.0, "probes": probes[rows]}
            yield Moves(at[rows], rate[rows, i], None, counts)
        for k, i in enumerate(self.live):
            rows = np.flatnonzero(rate[:, i])
            target, counts = self._join(there[rows], k, router[rows])
            yield Moves(at[rows], rate[rows, i], target, {**counts, "probes": probes[rows]})

    def _join(
        self, target: Integers, k: int, router: Integers
    ) -> tuple[Integers, dict[str, Floats]]:
        """A job that a router sends to the k-th live server; its message of it is used up."""
        i = self.live[k]
        q, code = np.divmod(target[:, k], self.codes.number)
        if self.plan.messages:
            code = self.codes.without[router, code]
        full = q >= self.limits[i]
        code, withdrawn = self._filled(q, code, full)
        target[:, k] = (q + ~full) * self.codes.number + code
        return target, {
            "blocked": full.astype(float),
            "waits": (~full & (q >= self.slots[i])).astype(float),
            "withdrawn": withdrawn.astype(float),
        }

    def _filled(self, q: Integers, code: Integers, refused: Booleans) -> tuple[Integers, Booleans]:
        """Codes once a job has come, and where a message was withdrawn."""
        if not self.plan.messages or self.codes.fate != "withdraw":
            return code, np.zeros(len(q), dtype=bool)
        withdrawn = (q == 0) & ~refused & (code > 0)
        return np.where(withdrawn, 0, code), withdrawn

    # --- departures ---

    def _departures(self, states: Integers, k: int) -> Iterator[Moves]:
        q = states[:, k] // self.codes.number
        rows = np.flatnonzero(q)
        rate = self.rates[self.live[k]] * np.minimum(q[rows], self.slots[self.live[k]])
        target = states[rows]
        target[:, k] -= self.codes.number
        yield from self._left(rows, rate, target, k, {})

    def _left(
        self, rows: Integers, rate: Floats, target: Integers, k: int, counts: dict[str, Floats]
    ) -> Iterator[Moves]:
        """A job has left the k-th live server; if that leaves it idle it sends its message."""
        if not self.plan.messages:
            yield Moves(rows, rate, target, counts)
            return
        sends = target[:, k] < self.codes.number
        if self.codes.fate == "keep":
            sends &= target[:, k] % self.codes.number == 0
        quiet, loud = np.flatnonzero(~sends), np.flatnonzero(sends)
        yield Moves(
            rows[quiet], rate[quiet], target[quiet], {n: c[quiet] for n, c in counts.items()}
        )
        at, router, chance = self._destinations(target[loud])
        after = target[loud][at]
        after[:, k] = self.codes.sent_to[router, after[:, k]]
        looks = self.plan.router_samples if self.plan.router_samples > 1 else 0
        sent = {n: c[loud][at] for n, c in counts.items()}
        sent |= {"sent": np.ones(len(at)), "probes": np.full(len(at), float(looks))}
        yield Moves(rows[loud][at], rate[loud][at] * chance, after, sent)

    def _destinations(self, states: Integers) -> tuple[Integers, Integers, Floats]:
        """Where a new message may go: row of the state, router, probability; each (m R,)."""
        m, routers = len(states), self.codes.routers
        at, router = np.repeat(np.arange(m), routers), np.tile(np.arange(routers), m)
        if self.plan.router_samples <= 1:
            return at, router, np.full(m * routers, 1.0 / routers)
        holding = [self.codes.holds[r][states % self.codes.number].sum(1) for r in range(routers)]
        count = np.stack(holding, axis=1)
        before = (count[:, None, :] < count[:, :, None]).sum(axis=2)
        tied = (count[:, None, :] == count[:, :, None]).sum(axis=2)
        chance = sampled_shares(before, tied, self.plan.router_samples, replace=False).ravel()
        possible = np.flatnonzero(chance)
        return at[possible], router[possible], chance[possible]

    # --- migrations ---

    def _migrations(self, states: Integers, k: int, j: int) -> Iterator[Moves]:
        """Jobs of the k-th live server that look at the j-th."""
        assert self.plan.allowed is not None
        q = self.queues(states)
        source, place = self.live[k], self.live[j]
        asked = np.flatnonzero((q[:, source] > 0) & (q[:, place] < self.limits[place]))
        each = self.system.migration_rate / self.system.servers
        rate = each * q[asked, source]
        if self.plan.looks:
            yield Moves(asked, rate, None, {"probes": np.ones(len(asked))})
        goes = self.plan.allowed(source, place, q[asked])
        rows, rate = asked[goes], rate[goes]
        target = states[rows]
        length, code = np.divmod(target[:, j], self.codes.number)
        code, withdrawn = self._filled(length, code, np.zeros(len(rows), dtype=bool))
        target[:, j] = (length + 1) * self.codes.number + code
        target[:, k] -= self.codes.number
        counts = {"moved": np.ones(len(rows)), "withdrawn": withdrawn.astype(float)}
        yield from self._left(rows, rate, target, k, counts)
