"""`exact`: the stationary numbers of a small system under a named policy, without simulation.

The chain (`dispatch`) is found and solved by sparse elimination (`chain`). Its size is the number
of ways to fill the servers, up to the order of those that the policy cannot tell apart; what is
affordable on one core:

| servers without limit | states | time | memory |
|---|---|---|---|
| 1, 2 | 250,000 | 10 s | 1 GB |
| 3 | 90,000 | 15 s | 1 GB |
| 4 | 40,000 | 20 s | 1 GB |
| 5 and more | 25,000 | 30 s | 1 GB |

Examples: 2 servers at load .9 take 3,000 states and .2 s; 24 servers with limit 3 and 2 routers
under PULL 20,475 states and 8 s; JSQ on 4 servers at load .9 20,000 states and 1.5 s.

Queues without a limit are cut where the solution itself says that what lies beyond matters less
than 1e-11: tails of the longest queue of each group, of the total and of the spread between servers
are measured in a small box and extended. `truncation_error` is the difference of the mean number in
system from that of a box 15 % smaller, so it is an upper estimate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbgym.system import System, as_system

from .chain import Chain, Floats, TooLarge, explore, stationary
from .dispatch import Cut, DispatchModel
from .rules import Plan, plan

AFFORDABLE = {0: 250_000, 1: 250_000, 2: 250_000, 3: 90_000, 4: 40_000}
AFFORDABLE_BEYOND = 25_000
_BEYOND = 1e-11  # what lies beyond the cut may matter so much, relative to the mean
_SMALLER = 0.85  # the box that the truncation error is estimated with
_FIRST_STATES = 4_000  # of the box in which tails are measured first
_ROUNDS = 8
OVERLOADED = 0.02  # of the time near the cut is more than a stable system spends there
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


def _endless(system: System, groups: Sequence[Sequence[int]]) -> list[bool]:
    return [math.isinf(system.limits[group[0]]) for group in groups]


def affordable(system: System, saturated: int = 0) -> int:
    """How many states may be solved, by the number of queues without a limit."""
    endless = int(np.isinf(system.limits).sum()) - saturated
    return AFFORDABLE.get(endless, AFFORDABLE_BEYOND)


def _first_cut(system: System, groups: Sequence[Sequence[int]]) -> Cut:
    """A box of a few thousand states."""
    free = sum(len(g) for g, e in zip(groups, _endless(system, groups), strict=True) if e)
    cap = 24
    while cap > 3 and math.comb(cap + free, free) > _FIRST_STATES:
        cap -= 1
    caps = [_cap(system, group, cap) for group in groups]
    return Cut(tuple(caps))


def _cap(system: System, group: Sequence[int], cap: int) -> int:
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


def _next_cut(solution: Solution, cut: Cut, beyond: float) -> Cut:
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


def _close(cut: Cut, other: Cut) -> bool:
    pairs = [*zip(cut.caps, other.caps, strict=True), (cut.total, other.total)]
    return all(x <= 1.1 * y for x, y in [*pairs, (cut.spread, other.spread)])


def _shrunk(cut: Cut, by: float, system: System, groups: Sequence[Sequence[int]]) -> Cut:
    endless = _endless(system, groups)
    caps = tuple(
        max(math.floor(cap * by), 1) if e else cap for cap, e in zip(cut.caps, endless, strict=True)
    )
    finite = sum(
        cap * len(group) for cap, group, e in zip(cut.caps, groups, endless, strict=True) if not e
    )
    total = max(cut.total - finite, 1.0) * by + finite
    return Cut(caps, total, cut.spread * by)


def settle(
    system: System,
    build: Build,
    groups: Sequence[Sequence[int]],
    most: int,
    beyond: float = _BEYOND,
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
        wanted = _next_cut(solution, cut, beyond)
        if _close(wanted, cut):
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
            cut, fits = _shrunk(cut, 0.93, system, groups), False


# --- the result -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Exact:
    """Long-run means; names as in `simulate`'s Result, plain floats.

    cost : response time of the accepted + charge of the lost + move costs, per arrival
    jobs_per_server : mean queue of each server; jobs_per_pool as in Result
    queue_tail : ``{"all": [...], "pools": [[...], ...]}``, fraction of servers with >= k jobs
    truncation_error : of jobs_in_system, absolute, an upper estimate; 0 without a cut
    states, seconds, residual : of the chain; cut : the longest queues kept, by server
    """

    system: System
    policy: str
    loss_charge: float
    move_cost: float
    cost: float
    response_time: float
    waiting_probability: float
    blocking_probability: float
    jobs_in_system: float
    messages_per_job: float
    withdrawals_per_job: float
    migrations_per_job: float
    utilization: float
    utilization_per_pool: tuple[float, ...]
    jobs_per_server: tuple[float, ...]
    jobs_per_pool: tuple[float, ...]
    queue_tail: dict[str, Any]
    truncation_error: float
    states: int
    cut: tuple[int, ...]
    residual: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {**self.__dict__, "system": self.system.to_dict()}

    def __repr__(self) -> str:
        lines = [f"{self.policy} on {self.system.describe()}, exact"]
        lines += [f"  {name:22} {getattr(self, name):.9g}" for name in _SHOWN]
        lines.append(f"  {self.states:,} states in {self.seconds:.2f} s")
        return "\n".join(lines)


_SHOWN = (
    "cost",
    "response_time",
    "waiting_probability",
    "blocking_probability",
    "jobs_in_system",
    "messages_per_job",
    "migrations_per_job",
    "truncation_error",
)


def _server_tails(solution: Solution) -> list[Floats]:
    """For each server, P(q >= k), k = 0, 1, ...; servers of a group share their mean."""
    model = solution.model
    q = solution.chain.states // model.codes.number
    tails: list[Floats] = [np.zeros(0)] * model.system.servers
    for group in model.groups:
        counts = np.bincount(q[:, group].ravel(), weights=np.repeat(solution.pi, len(group)))
        law = counts / len(group)
        tail = np.cumsum(law[::-1])[::-1]
        for k in group:
            tails[model.live[k]] = tail
    return tails


def _mean_tail(tails: Sequence[Floats]) -> list[float]:
    longest = max(map(len, tails))
    total = np.sum([np.pad(tail, (0, longest - len(tail))) for tail in tails], axis=0)
    return [float(x) for x in total / len(tails) if x > 0]


def _summary(solution: Solution) -> dict[str, Any]:
    """What a solution says of servers and pools."""
    system, tails = solution.model.system, _server_tails(solution)
    pools = system.pool_of_server
    slots = [system.pools[p].slots for p in pools]
    busy = np.array([t[1 : s + 1].sum() / s for t, s in zip(tails, slots, strict=True)])
    jobs = np.array([t[1:].sum() for t in tails])
    members = [np.flatnonzero(pools == p) for p in range(len(system.pools))]
    return {
        "utilization": float(np.average(busy, weights=system.speeds * slots)),
        "utilization_per_pool": tuple(float(busy[i].mean()) for i in members),
        "jobs_per_server": tuple(float(x) for x in jobs),
        "jobs_per_pool": tuple(float(jobs[i].sum()) for i in members),
        "queue_tail": {
            "all": _mean_tail(tails),
            "pools": [_mean_tail([tails[k] for k in i]) for i in members],
        },
    }


def result_of(solution: Solution, loss_charge: float | None, move_cost: float) -> Exact:
    """The numbers of a solution; the truncation error and the time are not known yet."""
    model = solution.model
    system = model.system
    arrivals = system.arrival_rate
    blocked, moved = solution.rate("blocked"), solution.rate("moved")
    sent, withdrawn = solution.rate("sent"), solution.rate("withdrawn")
    charge = system.default_loss_charge if loss_charge is None else float(loss_charge)
    jobs, accepted = solution.jobs, arrivals - blocked
    return Exact(
        system=system,
        policy=model.plan.name,
        loss_charge=charge,
        move_cost=float(move_cost),
        cost=(jobs + charge * blocked + move_cost * moved) / arrivals,
        response_time=jobs / accepted,
        waiting_probability=solution.rate("waits") / accepted,
        blocking_probability=blocked / arrivals,
        jobs_in_system=jobs,
        messages_per_job=(sent + withdrawn + 2 * solution.rate("probes")) / arrivals,
        withdrawals_per_job=withdrawn / arrivals,
        migrations_per_job=moved / arrivals,
        **_summary(solution),
        truncation_error=0.0,
        states=solution.chain.size,
        cut=tuple(int(c) for c in model.caps),
        residual=solution.residual,
        seconds=0.0,
    )


# --- exact ----------------------------------------------------------------------------------------
def exact(
    system: Any,
    policy: Any,
    cap: int | Sequence[int] | None = None,
    *,
    loss_charge: float | None = None,
    move_cost: float = 0.0,
) -> Exact:
    """Solve a small system under a policy.

    Parameters
    ----------
    system
        A `System`, its dict, a scenario's name or the path of a TOML file.
    policy
        The name of any policy without a memory of its own, or the policy of an `optimal`.
    cap : int or one a pool, optional
        Where to cut queues without a limit. Default: where it does not matter.
    loss_charge, move_cost
        As `simulate` takes them.

    Raises
    ------
    ValueError
        If the system is too large (with the number of its states), unstable (with its growth), or
        the policy is not a chain on queue lengths and messages.
    """
    begun = time.perf_counter()
    system = as_system(system)
    the_plan = plan(system, policy)
    _refuse_unstable(system, policy, the_plan)
    try:
        solution, smaller = _solutions(system, the_plan, cap)
    except TooLarge as error:
        raise ValueError(_too_large(system, the_plan, error.states)) from None
    _refuse_crowded(solution)
    result = result_of(solution, loss_charge, move_cost)
    error = 0.0 if smaller is None else abs(smaller.jobs - solution.jobs)
    return replace(result, truncation_error=error, seconds=time.perf_counter() - begun)


def _solutions(
    system: System, the_plan: Plan, cap: int | Sequence[int] | None
) -> tuple[Solution, Solution | None]:
    """The solution, and that in a smaller box where there is a cut."""
    groups = the_plan.groups

    def build(cut: Cut) -> DispatchModel:
        return DispatchModel(system, the_plan, cut)

    most = affordable(system)
    if not any(_endless(system, groups)):
        return solve(build(Cut(tuple(_cap(system, g, 0) for g in groups))), most), None
    if cap is None:
        solution, cut = settle(system, build, groups, most)
    else:
        cut = _given_cut(system, groups, cap)
        solution = solve(build(cut), most)
    return solution, solve(build(_shrunk(cut, _SMALLER, system, groups)), most)


def _given_cut(system: System, groups: Sequence[Sequence[int]], cap: int | Sequence[int]) -> Cut:
    per_pool = [cap] * len(system.pools) if isinstance(cap, int | np.integer) else list(cap)
    if len(per_pool) != len(system.pools):
        raise ValueError(
            f"cap: must be one number or one for each of the {len(system.pools)} pools, got {cap!r}"
        )
    for c in per_pool:
        if isinstance(c, bool) or not isinstance(c, int | np.integer) or c < 1:
            raise ValueError(f"cap: must be a whole number >= 1, got {c!r}")
    pool = system.pool_of_server
    return Cut(tuple(_cap(system, group, int(per_pool[pool[group[0]]])) for group in groups))


def _too_large(system: System, the_plan: Plan, states: int) -> str:
    possible = max(states, _possible(system, the_plan))
    size = f"{possible:,}" if possible < 10**15 else f"{possible:.1e}"
    what = "up to " + size if possible > states else f"more than {states:,}"
    return (
        f"exact: {the_plan.name} on {system.servers} servers has {what} states, "
        f"at most {affordable(system):,} can be solved; take fewer servers, smaller limits or "
        "fewer routers, or use simulate or mean_field"
    )


def _possible(system: System, the_plan: Plan) -> int:
    """The states with queues without a limit cut at 10."""
    codes = 1
    if the_plan.messages:
        routers = system.router_count
        codes = 2**routers if system.message_fate == "resend" else routers + 1
    number = 1
    for group in the_plan.groups:
        kinds = (_cap(system, group, 10) + 1) * codes
        number *= math.comb(kinds + len(group) - 1, len(group))
    return number


def _refuse_unstable(system: System, policy: Any, the_plan: Plan) -> None:
    from .stability import growth_of

    if int(np.isinf(system.limits).sum()) in (1, 2, 3) or not the_plan.messages:
        rate = growth_of(system, the_plan)
        if rate is not None and rate > -1e-9 * system.arrival_rate:
            raise ValueError(
                f"exact: {the_plan.name} is not stable at load {system.load:g}: the backlog "
                f"grows by {max(rate, 0.0):.4g} jobs per unit time; lower the load "
                "(critical_load says how far) or set limits"
            )


def _refuse_crowded(solution: Solution) -> None:
    """Refuse what a cut has made of a system whose backlog grows."""
    chance = crowded(solution)
    if chance > OVERLOADED:
        raise ValueError(
            f"exact: {solution.model.plan.name} looks unstable, or too near it: a queue comes "
            f"within 20 % of its cut at {max(solution.model.cut.caps):,} jobs with probability "
            f"{chance:.2g}; lower the load, set limits or give a larger cap"
        )
