"""`simulate`: a policy and a system in one compiled loop, as estimates with intervals.

One run is one trajectory: it begins as `env.reset(seed=seed)` does, discards its warm-up, and is
then cut into batches of equally many arrivals (see `lbgym.stats`). Results depend on the seed and
the number of replications, never on the number of threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lbgym import stats
from lbgym.checks import charges, listed
from lbgym.engine import Overload, State, layout
from lbgym.engine.run import run_to_balance, run_until
from lbgym.kinds import kind_of
from lbgym.policies import Policy, make
from lbgym.stats import Estimate
from lbgym.system import System, as_system
from lbgym.track import TOTALS, Track

BATCHES = 32  # of one run; several replications share at least as many
CHUNK = 100_000  # arrivals between looks at the clock and at Ctrl-C
MOST_JOBS = 10**15  # counted exactly by a float; years of simulation
MOST_REPLICATIONS = 10**6

Progress = Callable[[int, int], None]


# --- one run --------------------------------------------------------------------------------------
class RuleRun:
    """One replication of a compiled policy."""

    def __init__(self, policy: Policy, generator: np.random.Generator, options: dict[str, Any]):
        self.place, self.move = policy.rules()
        self.state = policy.state(max_jobs=options["max_jobs"])
        self.state.seed(generator)
        self.state.begin(options["start"])
        self.track = Track()
        self.name = policy.name

    def run_to(self, arrivals: int, progress: Callable[[int], None]) -> None:
        """Go on until so many jobs have arrived."""
        state = self.state
        run = run_until.of(state)
        done = int(state.world[0]["arrivals"])
        while done < arrivals:
            goal = min(done + CHUNK, arrivals)
            status = run(state.address, self.place, self.move, goal)
            if status == layout.GROW:
                state.grow()
            elif status == layout.INVALID:
                raise ValueError(
                    f"policy {self.name}: chose server {state.world[0]['action']}, "
                    f"must be 0..{state.system.servers - 1}"
                )
            now = int(state.world[0]["arrivals"])
            progress(now - done)
            done = now

    def run_batches(self, boundaries: Sequence[int], progress: Callable[[int], None]) -> None:
        """Run to each boundary in turn and note where the run stands."""
        try:
            for goal in boundaries:
                self.run_to(goal, progress)
                self.track.note(self.state)
        except Overload:
            self.track.note_overload(self.state)


# --- result ---------------------------------------------------------------------------------------
@dataclass(frozen=True, repr=False)
class Result:
    """What a simulation estimates. Each estimate is a number with ``.mean .low .high`` (95 %).

    cost : response time of the accepted + charge of the lost (+ move costs), per arrival
    response_time : mean, of accepted jobs; `jobs_in_system` its time average
    waiting_probability : of accepted jobs, not to start service at once
    blocking_probability : of all jobs, to be lost
    messages_per_job, withdrawals_per_job, migrations_per_job : per arrival, one-way messages
    slowdown : mean of response time over size of the departed; None where sizes are not drawn or
        E[1 / size] is infinite (short jobs then have no mean slowdown under FCFS)
    balancing_time : closed systems only: time until no job could gain by moving
    growth : jobs in system gained per unit time; `stable` True, False or None (undecided)
    utilization : busy share of the capacity, of systems with units the share of them in use;
        `utilization_per_pool`, `jobs_per_pool` by pool
    queue_tail : ``{"all": [...], "pools": [[...], ...]}``, fraction of servers with >= k jobs
    counts : exact integers since time 0. S messages sent (the initial ones included), B accepted
        jobs that found their server idle, I idle servers now, O messages outstanding now, used,
        withdrawn, absorbed, probes, arrivals, blocked, departed, present, started (jobs at time 0),
        started_busy, migrations, moved_to_idle
    jobs, events, seconds : arrivals, events and wall time of all replications
    """

    system: System
    policy: str
    information: str
    seed: int
    replications: int
    loss_charge: float
    move_cost: float
    cost: Estimate
    response_time: Estimate
    waiting_probability: Estimate
    blocking_probability: Estimate
    jobs_in_system: Estimate
    messages_per_job: Estimate
    withdrawals_per_job: Estimate
    migrations_per_job: Estimate
    growth: Estimate
    slowdown: Estimate | None
    stable: bool | None
    utilization: float
    utilization_per_pool: tuple[float, ...]
    jobs_per_pool: tuple[float, ...]
    queue_tail: dict[str, Any]
    blocking_by_class: tuple[float, ...]
    counts: dict[str, int]
    jobs: int
    warmup: int
    events: int
    seconds: float
    balancing_time: Estimate | None
    batches: dict[str, NDArray[np.float64]]
    histograms: NDArray[np.int64]

    def response_time_quantile(self, p: float) -> Estimate:
        """The p-quantile of the response time, from a histogram (error < 1.6 %)."""
        return stats.quantile(self.histograms, p)

    def batch_costs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Total cost and number of arrivals of each batch; shapes (batches,)."""
        b = self.batches
        if self.balancing_time is not None:
            return b["balancing_time"] + self.move_cost * b["migrations"], b["arrivals"]
        holding = not self.system.has_units
        total = stats.total_cost(b, self.loss_charge, self.move_cost, holding)
        return total, b["arrivals"]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: every field but the batches, with p50, p90, p99 of the response time."""
        left_out = ("system", "batches", "histograms")
        shown = {k: v for k, v in self.__dict__.items() if k not in left_out}
        shown["system"] = self.system.to_dict()
        shown["response_time_quantiles"] = {
            str(p): self.response_time_quantile(p) for p in (0.5, 0.9, 0.99)
        }
        plain: dict[str, Any] = stats.as_plain(shown)
        return plain

    def __repr__(self) -> str:
        lines = [f"{self.policy} on {self.system.describe()}"]
        lines += [f"  {name:22} {getattr(self, name)}" for name in _SHOWN]
        stable = "undecided; a longer run may tell" if self.stable is None else self.stable
        lines.append(f"  {'stable':22} {stable}")
        lines.append(f"  {self.jobs:,} jobs in {self.seconds:.2f} s, seed {self.seed}")
        return "\n".join(lines)


_SHOWN = (
    "cost",
    "response_time",
    "waiting_probability",
    "blocking_probability",
    "jobs_in_system",
    "messages_per_job",
    "migrations_per_job",
    "growth",
)


def _batches(tracks: Sequence[Track]) -> dict[str, NDArray[np.float64]]:
    """Totals of each batch, one replication after another; present becomes the gain."""
    rows = np.concatenate([np.diff(np.array(t.totals), axis=0) for t in tracks])
    return {name: rows[:, k] for k, name in enumerate(TOTALS)}


def _window_tails(tracks: Sequence[Track], system: System) -> dict[str, Any]:
    """Utilisation, jobs and queue-length tails over the measured window."""
    pools = []
    for k in range(len(system.pools)):
        levels = max(len(t.tails[-1][k]) for t in tracks)
        area = np.zeros(levels)
        for t in tracks:
            area[: len(t.tails[-1][k])] += t.tails[-1][k]
            area[: len(t.tails[0][k])] -= t.tails[0][k]
        pools.append(area)
    time = pools[0][0] / system.pools[0].servers  # of all replications
    if not time > 0:
        raise ValueError("jobs: all that are measured come at one instant, a batch; give more jobs")
    longest = max(map(len, pools))
    summed = sum(np.pad(area, (0, longest - len(area))) for area in pools)
    jobs = [float(area[1:].sum() / time) for area in pools]
    return {
        **_utilization(tracks, system, pools, float(time)),
        "jobs_per_pool": tuple(jobs),
        "queue_tail": {
            "all": _trimmed(summed / (time * system.servers)),
            "pools": [
                _trimmed(area / (time * spec.servers))
                for area, spec in zip(pools, system.pools, strict=True)
            ],
        },
    }


def _utilization(
    tracks: Sequence[Track], system: System, pools: Sequence[NDArray[np.float64]], time: float
) -> dict[str, Any]:
    """The share of the slots that is busy, or of the units that is in use; pools: tail areas."""
    if system.has_units:
        sizes = [spec.servers * (spec.units or 0) for spec in system.pools]
        areas = sum(t.units[-1] - t.units[0] for t in tracks)
        busy = [float(x) for x in areas / (time * np.array(sizes))]
        weights = [float(size) for size in sizes]
    else:
        busy = [
            float(area[1 : spec.slots + 1].sum() / (time * spec.servers * spec.slots))
            for area, spec in zip(pools, system.pools, strict=True)
        ]
        weights = [spec.servers * spec.slots * spec.speed for spec in system.pools]
    return {
        "utilization": float(np.average(busy, weights=weights)),
        "utilization_per_pool": tuple(busy),
    }


def _trimmed(tail: NDArray[np.float64]) -> list[float]:
    """The tail up to the last level that was ever reached."""
    reached = np.flatnonzero(tail > 0)
    return [float(x) for x in tail[: reached[-1] + 1]]


def _counts(states: Iterable[State]) -> dict[str, int]:
    worlds = [state.world[0] for state in states]
    return {key: sum(int(w[name]) for w in worlds) for key, name in layout.COUNTS.items()}


def _blocking_by_class(tracks: Sequence[Track]) -> tuple[float, ...]:
    """Share of each class's jobs that was lost in the measured window."""
    counts = sum(t.classes[-1] - t.classes[0] for t in tracks)
    return tuple(float(lost / max(came, 1)) for came, lost in np.asarray(counts))


def _slowdown(b: dict[str, NDArray[np.float64]], system: System) -> Estimate | None:
    if not system.draws_sizes or math.isinf(system.size_law.inverse_mean):
        return None
    return stats.ratio(b["slowdown_sum"], b["departed"])


def _result(runs: Sequence[Any], system: Any, seconds: float, given: dict[str, Any]) -> Result:
    from lbgym.models.runs import model_result

    if not isinstance(system, System):  # a result of another kind, alike in what is used here
        return cast("Result", model_result(runs, system, seconds, given))
    tracks = [run.track for run in runs]
    b = _batches(tracks)
    estimates: dict[str, Any] = stats.per_job(
        b, given["loss_charge"], given["move_cost"], not system.has_units
    )
    if all(system.limit_of(spec) is None for spec in system.pools):
        estimates["blocking_probability"] = Estimate(0.0, 0.0, 0.0)
    overloaded = any(t.overloaded for t in tracks)
    is_stable = stats.stable(b["present"], b["clock"], system.arrival_rate, len(runs))
    histograms = np.concatenate([np.diff(np.array(t.histograms), axis=0) for t in tracks])
    return Result(
        system=system,
        policy=given["name"],
        information=given["information"],
        seed=given["seed"],
        replications=len(runs),
        loss_charge=given["loss_charge"],
        move_cost=given["move_cost"],
        slowdown=_slowdown(b, system),
        balancing_time=None,
        stable=False if overloaded else is_stable,
        blocking_by_class=_blocking_by_class(tracks),
        counts=_counts(run.state for run in runs),
        jobs=sum(int(run.state.world[0]["arrivals"]) for run in runs),
        warmup=min(given["warmup"], *(int(t.totals[0][TOTALS.index("arrivals")]) for t in tracks)),
        events=sum(int(run.state.world[0]["events"]) for run in runs),
        seconds=seconds,
        batches=b,
        histograms=histograms,
        **estimates,
        **_window_tails(tracks, system),
    )


# --- simulate -------------------------------------------------------------------------------------
def simulate(
    system: Any,
    policy: Any,
    *,
    jobs: int = 1_000_000,
    warmup: int | None = None,
    seed: int = 0,
    replications: int | None = None,
    precision: float | None = None,
    threads: int = 1,
    loss_charge: float | None = None,
    move_cost: float = 0.0,
    max_jobs: int = 10_000_000,
    start: Any = None,
    progress: Progress | None = None,
) -> Result:
    """Run a policy on a system and estimate what it costs.

    Parameters
    ----------
    system
        A `System`, its dict, a scenario's name or the path of a TOML file; or a `CarSharing` or
        `FlowNetwork` likewise, which give a `CarSharingResult` or a `FlowResult`.
    policy
        A policy's name, a `Policy`, a user's compiled rule, or an agent with `predict` (which then
        acts in the environment).
    jobs : int
        Arrivals per replication, the warm-up included.
    warmup : int, optional
        Arrivals discarded first; default 10 % of `jobs`.
    replications : int, optional
        Independent runs. None: one run, seeded exactly as ``env.reset(seed=seed)``.
    precision : float, optional
        Go on, doubling, until the relative half-width of `cost` is at most this.
    threads : int
        Replications run side by side; at most `replications`.
    loss_charge : float, optional
        Cost of a lost job; default ``system.default_loss_charge``.
    move_cost : float
        Cost of a migration.
    max_jobs : int
        More jobs in the system end the run: a partial result with ``stable`` False.
    start
        ``"empty"`` (default), ``"warm"`` or queue lengths.
    progress : callable, optional
        Called with (arrivals so far, arrivals planned) of all replications.

    Raises
    ------
    ValueError
        For any argument out of range.
    """
    system = as_system(system)
    _check(jobs, warmup, seed, replications, precision, threads, max_jobs)
    charge, moved = charges(system, loss_charge, move_cost)
    _meaningful(system, loss_charge, moved)
    skipped = jobs // 10 if warmup is None else warmup
    seeds = _generators(seed, replications)
    if system.closed_jobs is not None:
        return simulate_closed(system, policy, jobs, seed, start, moved, progress)
    options = {"max_jobs": max_jobs, "start": "empty" if start is None else start}
    begun = time.perf_counter()
    group = _group(system, policy, seeds, options, threads)
    per_run = max(4, -(-BATCHES // len(seeds)))
    boundaries = np.linspace(skipped, jobs, per_run + 1).round().astype(int).tolist()
    count = _counter(progress, jobs * len(seeds))
    group.run_batches(boundaries, count)
    given = {
        "name": group.name,
        "information": group.information,
        "seed": seed,
        "loss_charge": charge,
        "move_cost": moved,
        "warmup": skipped,
    }

    def result() -> Result:
        return _result(group.runs, system, time.perf_counter() - begun, given)

    found = result()
    while precision is not None and not _precise_enough(found, precision, group.runs):
        step = (boundaries[-1] - boundaries[0]) // per_run * 2
        for run in group.runs:
            run.track.join_pairs()
        more = [boundaries[-1] + step * k for k in range(1, max(per_run // 2, 1) + 1)]
        boundaries = [boundaries[0], more[-1]]
        count = _counter(progress, more[-1] * len(seeds), done=found.jobs)
        group.run_batches(more, count)
        found = result()
    return found


def _precise_enough(found: Result, precision: float, runs: Sequence[Any]) -> bool:
    if any(run.track.overloaded for run in runs):
        return True
    return found.cost.half_width <= precision * abs(found.cost)


def _counter(progress: Progress | None, total: int, done: int = 0) -> Callable[[int], None]:
    """A function that adds up arrivals and reports them."""
    so_far = [done]

    def count(more: int) -> None:
        so_far[0] += more
        if progress is not None:
            progress(so_far[0], total)

    return count


def _generators(seed: int, replications: int | None) -> list[np.random.Generator]:
    root = np.random.SeedSequence(seed)
    children = [root] if replications is None else root.spawn(replications)
    return [np.random.Generator(np.random.PCG64(child)) for child in children]


class RuleGroup:
    """Replications of a compiled policy, on threads."""

    def __init__(
        self,
        policy: Policy,
        generators: Sequence[np.random.Generator],
        options: dict[str, Any],
        threads: int,
    ):
        self.name, self.information = policy.name, policy.information
        self.threads = threads
        self.runs = [RuleRun(policy, generator, options) for generator in generators]

    def run_batches(self, boundaries: Sequence[int], progress: Callable[[int], None]) -> None:
        """All runs to all boundaries."""
        if self.threads == 1:
            for run in self.runs:
                run.run_batches(boundaries, progress)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            for done in [pool.submit(r.run_batches, boundaries, progress) for r in self.runs]:
                done.result()


def _group(
    system: Any,
    policy: Any,
    generators: Sequence[np.random.Generator],
    options: dict[str, Any],
    threads: int,
) -> Any:
    from lbgym.agent_runs import AgentGroup, as_agent
    from lbgym.models.runs import ModelGroup

    agent = as_agent(policy)
    if agent is not None:
        return AgentGroup(system, agent, generators, options)
    if not isinstance(system, System):
        return ModelGroup(system, policy, generators, options, threads)
    return RuleGroup(make(policy, system), generators, options, threads)


def _meaningful(system: Any, loss_charge: Any, move_cost: float) -> None:
    """Raise ValueError for a price of what does not happen in a system of another kind."""
    if isinstance(system, System):
        return
    words = kind_of(system).words
    if move_cost != 0:
        raise ValueError(f"move_cost: means nothing for {words}; leave it out")
    if loss_charge is not None and system.default_loss_charge == 0:
        raise ValueError(f"loss_charge: means nothing for {words}; leave it out")


def _check(
    jobs: Any,
    warmup: Any,
    seed: Any,
    replications: Any,
    precision: Any,
    threads: Any,
    max_jobs: Any,
) -> None:
    def whole(name: str, value: Any, least: int, most: int | None = None) -> None:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name}: must be a whole number >= {least}, got {value!r}")
        if most is not None and value > most:
            raise ValueError(f"{name}: must be at most {most:,}, got {value:,}")

    whole("jobs", jobs, 100, MOST_JOBS)
    whole("seed", seed, 0)
    whole("threads", threads, 1)
    whole("max_jobs", max_jobs, 1)
    if warmup is not None:
        whole("warmup", warmup, 0)
        if warmup > jobs - 64:
            raise ValueError(
                f"warmup: must leave at least 64 of the {jobs} jobs to measure, got {warmup}"
            )
    if replications is not None:
        whole("replications", replications, 1, MOST_REPLICATIONS)
    if threads > (replications or 1):
        raise ValueError(
            f"threads: must be at most replications ({replications or 1}), got {threads}; "
            "results never depend on threads"
        )
    if precision is not None and (
        isinstance(precision, bool)
        or not isinstance(precision, int | float)
        or not 0 < precision < 1
    ):
        raise ValueError(f"precision: must be between 0 and 1, got {precision!r}")


# --- closed systems -------------------------------------------------------------------------------
def simulate_closed(
    system: System,
    policy: Any,
    episodes: int,
    seed: int,
    start: Any,
    move_cost: float,
    progress: Progress | None,
) -> Result:
    """Many independent episodes of a closed system, each until it is balanced."""
    bound = make(policy, system)
    _, move = bound.rules()
    state = bound.state(max_jobs=max(10_000_000, system.closed_jobs or 0))
    state.seed(_generators(seed, None)[0])
    begun, run = time.perf_counter(), run_to_balance.ready()
    w = state.world[0]
    times, moves, events = np.zeros(episodes), np.zeros(episodes), 0
    for k in range(episodes):
        state.begin("empty" if start is None else start)
        while (status := run(state.address, move)) != layout.BALANCED:
            if status == layout.GROW:
                state.grow()
            elif status == layout.INVALID:
                raise ValueError(f"policy {bound.name}: chose server {w['action']}")
        times[k], moves[k] = w["clock"], w["migrations"]
        events += int(w["events"])
        if progress is not None:
            progress(k + 1, episodes)
    each = np.ones(episodes)
    nothing = Estimate(math.nan, math.nan, math.nan)
    jobs = float(system.closed_jobs or 0)
    return Result(
        system=system,
        policy=bound.name,
        information=bound.information,
        seed=seed,
        replications=1,
        loss_charge=0.0,
        move_cost=move_cost,
        cost=stats.ratio(times + move_cost * moves, each),
        response_time=nothing,
        waiting_probability=nothing,
        blocking_probability=Estimate(0.0, 0.0, 0.0),
        jobs_in_system=Estimate(jobs, jobs, jobs),
        messages_per_job=nothing,
        withdrawals_per_job=nothing,
        migrations_per_job=stats.ratio(moves, jobs * each),
        growth=Estimate(0.0, 0.0, 0.0),
        slowdown=None,
        balancing_time=stats.ratio(times, each),
        stable=True,
        utilization=0.0,
        utilization_per_pool=(0.0,) * len(system.pools),
        jobs_per_pool=tuple(float(x) for x in _jobs_by_pool(state)),
        queue_tail={"all": [], "pools": [[] for _ in system.pools]},
        blocking_by_class=(0.0,),
        counts=_counts([state]),
        jobs=episodes,
        warmup=0,
        events=events,
        seconds=time.perf_counter() - begun,
        batches={"balancing_time": times, "migrations": moves, "arrivals": each},
        histograms=np.zeros((1, layout.BINS), np.int64),
    )


def _jobs_by_pool(state: State) -> NDArray[np.float64]:
    lengths = state.arrays["servers"]["length"].astype(float)
    return np.bincount(state.system.pool_of_server, weights=lengths).astype(np.float64)


# --- compare --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Comparison:
    """Results of several policies on common random numbers, and differences of cost.

    `differences[k]` is the cost of policy k minus that of the first, paired by batch; `shrinkage`
    is the factor by which pairing narrowed its interval against independent runs.
    """

    results: list[Result]
    differences: list[Estimate]
    shrinkage: list[float]

    def __repr__(self) -> str:
        base = self.results[0].policy
        lines = [f"{base}: cost {self.results[0].cost}"]
        rows = zip(self.results, self.differences, self.shrinkage, strict=True)
        for r, d, factor in list(rows)[1:]:
            same = d.low == d.high == 0
            paired = "0: the same, job by job" if same else f"{d} ({factor:.1f} x narrower)"
            lines.append(f"{r.policy}: cost {r.cost}, minus {base} {paired}")
        return "\n".join(lines)


def paired_difference(one: Result, other: Result) -> Estimate:
    """Cost of `one` minus cost of `other`, paired by batch; both from equal seeds and jobs."""
    (mine, arrivals), (theirs, others) = one.batch_costs(), other.batch_costs()
    if not stats.pairable(arrivals, others):
        raise ValueError("paired difference: both results must come from equal jobs and seeds")
    return stats.difference(mine, theirs, arrivals, others)


def compare(system: Any, policies: Sequence[Any], **same: Any) -> Comparison:
    """Simulate several policies with the same settings and seeds, and pair them with the first."""
    if "precision" in same:
        raise ValueError("compare: precision would make runs of unequal length; give jobs instead")
    names = listed(policies)
    if not names:
        raise ValueError(f"compare: policies must be a list of policies, got {policies!r}")
    results = [simulate(system, policy, **same) for policy in names]
    differences = [paired_difference(r, results[0]) for r in results]
    shrinkage = []
    for r, d in zip(results, differences, strict=True):
        apart = math.hypot(r.cost.half_width, results[0].cost.half_width)
        shrinkage.append(apart / d.half_width if d.half_width > 0 else math.inf)
    return Comparison(results, differences, shrinkage)
