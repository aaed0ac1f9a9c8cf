"""Closed systems: how long random local search takes to balance a given number of jobs.

Jobs do not arrive or leave; each resamples at rate beta and moves if its rule says so, until none
could gain: with equal speeds until the longest and the shortest queue differ by at most 1,
otherwise until a Nash equilibrium (MODELS section 5; Ganesh et al. 2012, Berenbrink et al. 2017).
Servers alike in speed and limit are interchangeable, so a configuration stands for all its
permutations among them.

A move that gains lowers the potential sum_i q_i (q_i + 1) / (2 mu_i), so no configuration comes
back and the equations are solved one after the other, few of them in rational numbers. With moves
that do not gain (``oblivious``, and ``weak`` with unequal speeds) they are sparse linear equations.

Cost: 10,000 configurations of 10 servers 2 s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from lbgym.policies.registry import make, parse
from lbgym.system import System

from .chain import Booleans, Floats
from .result import Exact
from .rules import alike, gains

MOST = 50_000  # configurations
RATIONAL = 300  # at most so many are solved in rational numbers
_LEFT_OUT = 1e-13  # probability that the distribution of the balancing time may miss
_EASY = 1_000_000  # jobs times servers for which configurations are counted

Configuration = tuple[int, ...]


@dataclass(frozen=True)
class Absorption:
    """An absorbing chain, uniformised: ticks come at a rate, each makes one step.

    step : (states, states) sparse probabilities; done : (states,) whether it is over there
    """

    rate: float
    step: Any
    done: Booleans
    start: int

    def done_by(self, times: Floats) -> Floats:
        """The probability that it is over at each time; shape (times,)."""
        from scipy.stats import poisson

        ticks = self.rate * times
        if len(ticks) == 0:
            return np.zeros(0)
        most = int(poisson.isf(_LEFT_OUT, ticks.max())) + 1
        law = np.zeros(len(self.done))
        law[self.start] = 1.0
        over = np.zeros(most + 1)  # probability that it is over after so many ticks
        for k in range(most + 1):
            over[k:] = law[self.done].sum()
            if over[k] > 1 - _LEFT_OUT:
                break
            law = self.step.T @ law
        # sum over k of P(K = k) over[k] = sum of P(K >= k) times the gains of over
        gains = np.diff(over, prepend=0.0)
        rows = [poisson.sf(np.flatnonzero(gains) - 1, x) @ gains[gains != 0] for x in ticks]
        return np.minimum(np.array(rows, dtype=np.float64), 1.0)


def _absorption(found: _Found, start: Configuration, each: Fraction) -> Absorption:
    """The chain of configurations, uniformised at its fastest rate."""
    from scipy.sparse import coo_array, diags_array

    row = {q: k for k, q in enumerate(found)}
    entries = [(row[q], row[y], k) for q, (to, _) in found.items() for y, k in to.items()]
    i, j, ways = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    moves = coo_array((ways.astype(float), (i, j)), shape=(len(row), len(row))).tocsr()
    leave = np.asarray(moves.sum(axis=1)).ravel()
    fastest = max(float(leave.max()), 1.0)
    step = (moves / fastest + diags_array(1 - leave / fastest)).tocsr()
    return Absorption(fastest * float(each), step, leave == 0, row[start])


@dataclass(frozen=True, repr=False)
class ExactClosed(Exact):
    """An exact closed system. Only these mean something:

    balancing_time : expected, from the start; cost adds the move costs
    balancing_time_fraction : the same as a rational number; None if there are too many states
    balancing_time_std : its standard deviation; balancing_time_cdf(t) its distribution
    moves : expected number; migrations_per_job per job
    ends : probability of each configuration in which it ends, servers alike sorted
    """

    balancing_time: float = math.nan
    balancing_time_fraction: Fraction | None = None
    balancing_time_std: float = math.nan
    moves: float = math.nan
    ends: dict[Configuration, float] = field(default_factory=dict)
    steps: Absorption | None = field(default=None, compare=False)

    def balancing_time_cdf(self, t: Any) -> Any:
        """P(balancing time <= t) for one time or an array of them, in the same shape.

        By uniformisation (Jensen 1953), to 1e-12; the work grows with the largest t times the
        fastest rate. Raises ValueError for a t that is negative, infinite or no number.
        """
        times = np.asarray(t, dtype=float)
        if not np.isfinite(times).all() or (times < 0).any():
            raise ValueError(f"balancing_time_cdf: t must be finite and >= 0, got {t!r}")
        assert self.steps is not None
        found = self.steps.done_by(times.ravel()).reshape(times.shape)
        return float(found) if times.ndim == 0 else found

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        fraction = self.balancing_time_fraction
        return {
            **{key: value for key, value in super().to_dict().items() if key != "steps"},
            "balancing_time_fraction": None if fraction is None else str(fraction),
            "ends": [[list(end), chance] for end, chance in self.ends.items()],
        }

    def __repr__(self) -> str:
        fraction = str(self.balancing_time_fraction or "")
        exactly = f" = {fraction}" if 0 < len(fraction) <= 40 else ""
        return "\n".join(
            [
                f"{self.policy} on {self.system.describe()}, exact",
                f"  balancing_time         {self.balancing_time:.9g}{exactly}",
                f"  balancing_time_std     {self.balancing_time_std:.9g}",
                f"  moves                  {self.moves:.9g}",
                f"  {self.states:,} states in {self.seconds:.2f} s",
            ]
        )


# --- configurations and moves ---------------------------------------------------------------------
@dataclass(frozen=True)
class _Search:
    """Local search of one rule: which jobs move, when it is over."""

    speeds: list[float]
    limits: list[float]
    groups: tuple[tuple[int, ...], ...]
    rule: str

    def canonical(self, q: Sequence[int]) -> Configuration:
        found = list(q)
        for group in self.groups:
            for i, length in zip(group, sorted(q[i] for i in group), strict=True):
                found[i] = length
        return tuple(found)

    def balanced(self, q: Configuration) -> bool:
        """Whether no job could gain strictly by moving, as the engine has it."""
        worst = max(x / mu for x, mu in zip(q, self.speeds, strict=True))
        best = min((x + 1) / mu for x, mu in zip(q, self.speeds, strict=True))
        return worst <= best * (1 + 1e-12)

    def moves(self, q: Configuration) -> tuple[dict[Configuration, int], int]:
        """How many (job, server looked at) lead to each other configuration, and to any move."""
        kinds = self._kinds(q)
        found: dict[Configuration, int] = {}
        moving = 0
        for i, alike_i in kinds:
            for j, alike_j in kinds:
                pairs = alike_i * (alike_j - 1 if i == j else alike_j)
                if not q[i] or not pairs or q[j] >= self.limits[j] or not self._goes(q, i, j):
                    continue
                moving += pairs * q[i]
                if i == j:  # a twin of itself
                    j = next(k for k in self._group(i) if k != i and q[k] == q[i])
                after = list(q)
                after[i] -= 1
                after[j] += 1
                target = self.canonical(after)
                if target != q:
                    found[target] = found.get(target, 0) + pairs * q[i]
        return found, moving

    def _goes(self, q: Configuration, i: int, j: int) -> bool:
        here, there = (self.speeds[i], q[i]), (self.speeds[j], q[j])
        return bool(gains(self.rule, here, there))

    def _group(self, i: int) -> tuple[int, ...]:
        return next(group for group in self.groups if i in group)

    def _kinds(self, q: Configuration) -> list[tuple[int, int]]:
        """A server of each kind and length, and how many there are."""
        found: list[tuple[int, int]] = []
        for group in self.groups:
            first: dict[int, int] = {}
            number: dict[int, int] = {}
            for i in group:
                first.setdefault(q[i], i)
                number[q[i]] = number.get(q[i], 0) + 1
            found += [(first[length], number[length]) for length in first]
        return found


_Found = dict[Configuration, tuple[dict[Configuration, int], int]]


def _explore(search: _Search, start: Configuration, refuse: Callable[[], ValueError]) -> _Found:
    """Every configuration on the way, and where it leads; balanced ones lead nowhere."""
    found: _Found = {}
    waiting = [start]
    while waiting:
        q = waiting.pop()
        if q in found:
            continue
        if len(found) >= MOST:
            raise refuse()
        if search.balanced(q):
            found[q] = ({}, 0)
            continue
        found[q] = search.moves(q)
        if not found[q][0]:
            raise ValueError(
                f"exact: limits keep the jobs from balancing, {list(q)} is as far as they get"
            )
        waiting += [target for target in found[q][0] if target not in found]
    return found


# --- solving --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Solved:
    """From the start: time, its rational value, its second moment, moves, where it ends."""

    time: float
    fraction: Fraction | None
    second: float
    moves: float
    ends: dict[Configuration, float]


def _in_turn(
    found: _Found, order: Sequence[Configuration], start: Configuration, each: Fraction
) -> _Solved:
    """Equations without circles, each after those that it needs."""
    fraction = None
    if len(found) <= RATIONAL:
        exact: dict[Configuration, Fraction] = {}
        for q in order:
            to = found[q][0]
            later = sum((k * exact[y] for y, k in to.items()), Fraction(0))
            exact[q] = (1 / each + later) / sum(to.values()) if to else Fraction(0)
        fraction = exact[start]
    rate = float(each)
    values: dict[Configuration, tuple[float, float, float]] = {}
    for q in order:
        to, moving = found[q]
        if not to:
            values[q] = (0.0, 0.0, 0.0)
            continue
        leave = sum(to.values())
        t, t2, m = (math.fsum(k * values[y][c] for y, k in to.items()) / leave for c in range(3))
        t += 1 / (rate * leave)
        values[q] = (t, t2 + 2 * t / (rate * leave), m + moving / leave)
    reached = dict.fromkeys(order, 0.0)
    reached[start] = 1.0
    for q in reversed(order):
        to = found[q][0]
        for y, k in to.items():
            reached[y] += reached[q] * k / sum(to.values())
    ends = {q: reached[q] for q in order if not found[q][0]}
    t, t2, m = values[start]
    return _Solved(t if fraction is None else float(fraction), fraction, t2, m, ends)


def _together(found: _Found, start: Configuration, each: Fraction) -> _Solved:
    """Equations with circles: sparse elimination."""
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import splu

    going = [q for q, (to, _) in found.items() if to]
    row = {q: k for k, q in enumerate(going)}
    entries = [
        (row[q], row[y], -float(k)) for q in going for y, k in found[q][0].items() if y in row
    ]
    leave = np.array([float(sum(found[q][0].values())) for q in going])
    size, rate = len(going), float(each)
    i, j, value = (np.array(part) for part in zip(*entries, (0, 0, 0.0), strict=True))
    diagonal = np.arange(size)
    matrix = coo_array(
        (
            np.concatenate([value, leave]),
            (
                np.concatenate([i, diagonal]).astype(np.int64),
                np.concatenate([j, diagonal]).astype(np.int64),
            ),
        ),
        shape=(size, size),
    )
    factors = splu(matrix.tocsc())
    t = factors.solve(np.full(size, 1 / rate))
    t2 = factors.solve(2 * t / rate)
    m = factors.solve(np.array([float(found[q][1]) for q in going]))
    begin = np.zeros(size)
    begin[row[start]] = 1.0
    visits = factors.solve(begin, trans="T")  # time spent, times each
    ends: dict[Configuration, float] = {}
    for q, spent in zip(going, visits, strict=True):
        for y, k in found[q][0].items():
            if y not in row:
                ends[y] = ends.get(y, 0.0) + float(spent) * k
    k0 = row[start]
    return _Solved(float(t[k0]), None, float(t2[k0]), float(m[k0]), ends)


def _solve(found: _Found, start: Configuration, each: Fraction) -> _Solved:
    if not found[start][0]:
        return _Solved(0.0, Fraction(0), 0.0, 0.0, {start: 1.0})
    try:
        order = list(
            TopologicalSorter({q: list(to) for q, (to, _) in found.items()}).static_order()
        )
    except CycleError:
        return _together(found, start, each)
    return _in_turn(found, order, start, each)


# --- the answer -----------------------------------------------------------------------------------
def _start(system: System, start: Any) -> list[int]:
    """The queue lengths to begin with; None: all jobs in the first server, as `simulate` has it."""
    jobs, n = system.closed_jobs or 0, system.servers
    if start is None or (isinstance(start, str) and start == "empty"):
        lengths = np.zeros(n, dtype=np.int64)
        lengths[0] = jobs
    else:
        lengths = np.asarray(start)
    if lengths.shape != (n,) or not np.issubdtype(lengths.dtype, np.integer):
        raise ValueError(f"start: must be {n} whole queue lengths, got {start!r}")
    for i, (x, limit) in enumerate(zip(lengths.tolist(), system.limits, strict=True)):
        if not 0 <= x <= limit:
            raise ValueError(f"start[{i}]: must be between 0 and {limit:g}, got {x}")
    if lengths.sum() != jobs:
        raise ValueError(
            f"start: must hold the {jobs} jobs of the closed system, got {lengths.sum()}"
        )
    return [int(x) for x in lengths]


def configurations(jobs: int, sizes: Sequence[int]) -> int:
    """How many ways there are to fill groups of interchangeable servers with so many jobs."""
    ways = [1] + [0] * jobs
    for size in sizes:
        for part in range(1, size + 1):  # partitions into at most `size` parts
            for k in range(part, jobs + 1):
                ways[k] += ways[k - part]
    return ways[jobs]


def _hopeless(system: System, groups: Sequence[Sequence[int]]) -> bool:
    """Whether it is plain that there are too many configurations from one server on, which comes by
    most of them."""
    jobs = system.closed_jobs or 0
    easy = jobs * system.servers <= _EASY
    return easy and configurations(jobs, [len(g) for g in groups]) > 4 * MOST


def _too_large(system: System, groups: Sequence[Sequence[int]]) -> ValueError:
    jobs = system.closed_jobs or 0
    many = f"more than {MOST:,}"
    if jobs * system.servers <= _EASY:
        number = configurations(jobs, [len(g) for g in groups])
        many = f"up to {number:,}" if number < 10**15 else f"up to {float(number):.1e}"
    return ValueError(
        f"exact: {jobs:,} jobs on {system.servers:,} servers have {many} configurations, at most "
        f"{MOST:,} can be solved; take fewer jobs or servers, a start nearer balance, or simulate"
    )


def exact_closed(system: System, policy: Any, start: Any = None, move_cost: float = 0.0) -> Exact:
    """The expected time until a closed system is balanced.

    Raises ValueError if there are too many configurations (with their number).
    """
    begun = time.perf_counter()
    bound = make(policy, system)
    call = parse(bound.name) if bound.name else None
    if call is None or call.name != "local-search":
        raise ValueError(f"exact: a closed system needs local-search, got {bound.name or policy!r}")
    groups = alike(system.speeds, system.limits)
    rule = str(call.keywords.get("rule", "strict"))
    search = _Search(system.speeds.tolist(), system.limits.tolist(), groups, rule)
    lengths = search.canonical(_start(system, start))
    if system.servers > MOST or (start is None and _hopeless(system, groups)):
        raise _too_large(system, groups)
    found = _explore(search, lengths, lambda: _too_large(system, groups))
    each = Fraction(repr(system.migration_rate)) / system.servers
    solved = _solve(found, lengths, each)
    jobs = float(system.closed_jobs or 0)
    return ExactClosed(
        system=system,
        policy=bound.name,
        loss_charge=0.0,
        move_cost=float(move_cost),
        cost=solved.time + move_cost * solved.moves,
        response_time=math.nan,
        waiting_probability=math.nan,
        blocking_probability=0.0,
        jobs_in_system=jobs,
        messages_per_job=math.nan,
        withdrawals_per_job=math.nan,
        migrations_per_job=solved.moves / jobs,
        utilization=0.0,
        utilization_per_pool=(0.0,) * len(system.pools),
        jobs_per_server=(),
        jobs_per_pool=(),
        queue_tail={"all": [], "pools": [[] for _ in system.pools]},
        truncation_error=0.0,
        states=len(found),
        cut=(),
        residual=0.0,
        seconds=time.perf_counter() - begun,
        balancing_time=solved.time,
        balancing_time_fraction=solved.fraction,
        balancing_time_std=math.sqrt(max(solved.second - solved.time**2, 0.0)),
        moves=solved.moves,
        ends=solved.ends,
        steps=_absorption(found, lengths, each),
    )
