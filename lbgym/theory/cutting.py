"""Solving a dispatching chain, and where to cut queues without a limit.

A box is found in rounds: the solution in a small box shows how fast the tails of the longest queue
of each group, of the total and of the spread between servers fall; the next box ends where what
lies beyond matters less than asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbgym.system import System

from .chain import Chain, Floats, TooLarge, explore, stationary
from .dispatch import Cut, DispatchModel

AFFORDABLE = {0: 250_000, 1: 250_000, 2: 250_000, 3: 120_000, 4: 80_000}
AFFORDABLE_BEYOND = 60_000
BEYOND = 1e-11  # what lies beyond the cut may matter so much, relative to the mean
SMALLER = 0.85  # the box that the truncation error is estimated with
OVERLOADED = 0.02  # of the time near the cut is more than a stable system spends there
_FIRST_STATES = 4_000  # of the box in which tails are measured first
_ROUNDS = 8
_LONG = 2_000  # jobs


# --- solutions ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Solution:
    """A solved chain."""

    model: DispatchModel
    chain: Chain
    pi: Floats
    residual: float

    @property
    def jobs(self) -> float:
        """Mean number of jobs at the live servers."""
        return float(self.pi @ self.lengths.sum(axis=1))

    @property
    def lengths(self) -> Floats:
        """(m, live servers) queue lengths."""
        return (self.chain.states // self.model.codes.number).astype(float)

    def rate(self, count: str) -> float:
        """How often something happens per unit time."""
        return float(self.pi @ self.chain.counts[count]) if count in self.chain.counts else 0.0


def solve(model: DispatchModel, most: int) -> Solution:
    """Explore and solve; TooLarge if there are more states than `most`."""
    chain = explore(model, most)
    pi, residual = stationary(chain)
    return Solution(model, chain, pi, residual)


# --- cutting queues without a limit ---------------------------------------------------------------
Build = Callable[[Cut], DispatchModel]


def endless(system: System, groups: Sequence[Sequence[int]]) -> list[bool]:
    """Which groups have no limit."""
    return [math.isinf(system.limits[group[0]]) for group in groups]


def affordable(system: System, saturated: int = 0) -> int:
    """How many states may be solved, by the number of queues without a limit."""
    number = int(np.isinf(system.limits).sum()) - saturated
    return AFFORDABLE.get(number, AFFORDABLE_BEYOND)


def _first_cut(system: System, groups: Sequence[Sequence[int]]) -> Cut:
    """A box of a few thousand states."""
    free = sum(len(g) for g, e in zip(groups, endless(system, groups), strict=True) if e)
    cap = 24
    while cap > 3 and math.comb(cap + free, free) > _FIRST_STATES:
        cap -= 1
    caps = [longest(system, group, cap) for group in groups]
    return Cut(tuple(caps))


def longest(system: System, group: Sequence[int], cap: int) -> int:
    """The longest queue of a group: its limit, or the cap."""
    limit = system.limits[group[0]]
    return cap if math.isinf(limit) else int(limit)


def _needed(value: Floats, pi: Floats, cut: float, beyond: float, scale: float) -> float:
    """Where a feature of the states may be cut so that what lies beyond does not matter.

    Its tail P(value >= k) is taken to go on as geometrically as it falls between a third and two
    thirds of the present cut. Infinite if it does not fall.
    """
    end = cut if math.isfinite(cut) else float(value.max())
    order = np.argsort(value)[::-1]
    tail = np.cumsum(pi[order])
    measured = value[order][tail > 1e-13]
    far = min(2 * end / 3, float(measured[0]) if len(measured) else end)
    if far <= 0:
        return 1.0
    near = far / 2
    at_near, at_far = (float(pi[value >= k].sum()) for k in (near, far))
    if not 0 < at_far < at_near:
        return math.inf
    decay = math.log(at_near / at_far) / (far - near)
    needed = far
    for _ in range(50):
        needed = far + max(math.log(at_far * (needed + 1 / decay) / (beyond * scale)), 0.0) / decay
    return needed


def crowded(solution: Solution) -> float:
    """The largest probability that a queue without a limit is near its cut (beyond 80 %)."""
    model, q = solution.model, solution.lengths
    near = [
        float(solution.pi[q[:, k] > 0.8 * model.caps[i]].sum())
        for k, i in enumerate(model.live)
        if math.isinf(model.limits[i])
    ]
    return max(near, default=0.0)


def wanted_cut(solution: Solution, cut: Cut, beyond: float) -> Cut:
    """The cut that the tails of a solution ask for."""
    model, pi = solution.model, solution.pi
    q = solution.lengths
    scale = max(solution.jobs, 1e-3)
    caps = list(cut.caps)
    for g, group in enumerate(model.plan.groups):
        columns = [model.live.index(i) for i in group if i in model.live]
        if columns and math.isinf(model.limits[group[0]]):
            longest = q[:, columns].max(axis=1)
            needed = _needed(longest, pi, cut.caps[g], beyond, scale)
            caps[g] = math.ceil(min(max(needed, 4), 2.5 * cut.caps[g]))
    total, spread = q.sum(axis=1), model.spread(q.astype(np.int64))
    most = 2.5 * min(cut.total, float(total.max()))
    widest = 2.5 * min(cut.spread, float(spread.max()))
    return Cut(
        tuple(caps),
        min(max(_needed(total, pi, cut.total, beyond, scale), 4.0), most),
        min(_needed(spread, pi, cut.spread, beyond, scale), widest),
    )


def close(cut: Cut, other: Cut) -> bool:
    pairs = [*zip(cut.caps, other.caps, strict=True), (cut.total, other.total)]
    return all(x <= 1.1 * y for x, y in [*pairs, (cut.spread, other.spread)])


def shrunk(cut: Cut, by: float, system: System, groups: Sequence[Sequence[int]]) -> Cut:
    free = endless(system, groups)
    caps = tuple(
        max(math.floor(cap * by), 1) if e else cap for cap, e in zip(cut.caps, free, strict=True)
    )
    finite = sum(
        cap * len(group) for cap, group, e in zip(cut.caps, groups, free, strict=True) if not e
    )
    total = max(cut.total - finite, 1.0) * by + finite
    return Cut(caps, total, cut.spread * by)


def settle(
    system: System,
    build: Build,
    groups: Sequence[Sequence[int]],
    most: int,
    beyond: float = BEYOND,
    patience: int = _LONG,
) -> tuple[Solution, Cut]:
    """The solution in a box beyond which so little matters, or that is as large as affordable.

    A queue often near its cut, with the cut beyond `patience`, is taken to have no end.
    """
    cut = _first_cut(system, groups)
    solution = solve(build(cut), most)
    for _ in range(_ROUNDS):
        if not solution.model.live or (max(cut.caps) > patience and crowded(solution) > 0.15):
            break
        wanted = wanted_cut(solution, cut, beyond)
        if close(wanted, cut):
            break
        solution, cut, fits = _as_large(system, build, groups, wanted, most)
        if not fits:
            break
    return solution, cut


def _as_large(
    system: System, build: Build, groups: Sequence[Sequence[int]], cut: Cut, most: int
) -> tuple[Solution, Cut, bool]:
    """The solution in the box, or in the largest similar one that is affordable."""
    fits = True
    while True:
        try:
            return solve(build(cut), most), cut, fits
        except TooLarge:
            if max(cut.caps) < 3:
                raise
            cut, fits = shrunk(cut, 0.93, system, groups), False


def given_cut(system: System, groups: Sequence[Sequence[int]], cap: Any) -> Cut:
    """The cut that a user asks for; raises ValueError."""
    per_pool: list[Any] = [cap] * len(system.pools)
    if isinstance(cap, Sequence) and not isinstance(cap, str):
        per_pool = list(cap)
    if len(per_pool) != len(system.pools):
        raise ValueError(
            f"cap: must be one number or one for each of the {len(system.pools)} pools, got {cap!r}"
        )
    for c in per_pool:
        if isinstance(c, bool) or not isinstance(c, int | np.integer) or c < 1:
            raise ValueError(f"cap: must be a whole number >= 1, got {c!r}")
    pool = system.pool_of_server
    return Cut(tuple(longest(system, group, int(per_pool[pool[group[0]]])) for group in groups))
