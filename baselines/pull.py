"""PULL with several routers: waiting vanishes as servers are added, unless routers are unequal.

    python -m baselines.pull            # a few minutes
    python -m baselines.pull --quick    # under 20 seconds, up to 1,000 servers, no files

A. Stolyar (arXiv 1512.07873) shows that with equal routers and a load below 1 the probability that
a job waits or is lost tends to 0, at one pull-message a job. Three things are shown:

1. that probability for n = 2 .. 10,000 servers (limit 3, load .7, two routers), the small ones
   beside the exact chain;
2. two routers with shares .8 and .2 (no limit): the busy one runs short of messages, because idle
   servers choose routers uniformly, and the waiting probability tends to .3231 instead;
3. a load below 1 does not make PULL stable on few servers: speeds 1 and 2, both sides of the
   critical load. (A 95 % interval misses one growth in twenty: such a run is done once more.)

Writes ``baselines/results/pull.json`` and ``baselines/results/pull.png``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from baselines.agreement import aligned, versions
from baselines.reference import cases
from lbgym.simulate import simulate
from lbgym.system import Pool, System

RESULTS = Path(__file__).parent / "results" / "pull.json"
PICTURE = RESULTS.with_suffix(".png")

LOAD = 0.7
SPLIT = (0.8, 0.2)
SIZES = (2, 4, 8, 16, 24, 100, 1000, 10_000)
SPLIT_SIZES = (2, 4, 8, 16, 32, 100, 300, 1000, 5000)
REPLICATIONS = 4


def equal_routers(n: int) -> System:
    return System(Pool(n, limit=3), routers=2, load=LOAD)


def unequal_routers(n: int) -> System:
    return System(Pool(n), routers=SPLIT, load=LOAD)


def limit_of_waiting(weights: Sequence[float], load: float) -> float:
    """P(wait) as n -> infinity: equal servers without limits, routers with these weights.

    x = 1 - P(wait) = (1 - load w_E) / (1 - load e / R), E the e routers whose weight exceeds x / R
    and w_E their weight: they use up every message they get. E grows from the busiest router on.
    """
    routers = len(weights)
    x = 1.0
    for e in range(1, routers + 1):
        busiest = sorted(weights, reverse=True)[:e]
        if busiest[-1] <= x / routers:
            break
        x = (1 - load * sum(busiest)) / (1 - load * e / routers)
    return 1 - x


# --- waiting as n grows ---------------------------------------------------------------------------
@dataclass(frozen=True)
class SizeRow:
    """Waiting probability and pull-messages per arrival at n servers; `exact` if known."""

    routers: str
    n: int
    waiting: float
    low: float
    high: float
    exact: float | None
    blocking: float
    messages: float
    jobs: int
    seed: int
    seconds: float

    def cells(self) -> list[str]:
        return [
            self.routers,
            f"{self.n:,}",
            "" if self.exact is None else f"{self.exact:.5f}",
            f"{self.waiting:.3g}",
            f"{self.low:.3g} .. {self.high:.3g}",
            f"{self.blocking:.2g}",
            f"{self.messages:.4f}",
            f"{self.jobs:,}",
            f"{self.seconds:.1f}",
        ]


SIZE_HEADINGS = (
    "routers",
    "servers",
    "exact",
    "P(wait)",
    "95 % interval",
    "P(lost)",
    "messages",
    "jobs",
    "seconds",
)


def jobs_for(n: int, effort: float) -> int:
    """Jobs of a replication.

    Messages wander from one router to the other by chance alone, a random walk across .3 n
    messages at rate 1.4 n: its memory is about .036 n^2 jobs, of which a run holds a multiple.
    """
    return round(max(500_000 * effort, 0.5 * min(effort, 2) * n**2))


def at_size(routers: str, n: int, effort: float, threads: int, seed: int) -> SizeRow:
    """Simulate n servers."""
    system = equal_routers(n) if routers == "equal" else unequal_routers(n)
    jobs = jobs_for(n if routers == "equal" else 1, effort)
    options: dict[str, Any] = {"jobs": jobs, "seed": seed, "threads": threads}
    result = simulate(system, "pull", replications=REPLICATIONS, **options)
    return SizeRow(
        routers=routers,
        n=n,
        waiting=result.waiting_probability.mean,
        low=result.waiting_probability.low,
        high=result.waiting_probability.high,
        exact=exact_waiting(system),
        blocking=result.blocking_probability.mean,
        messages=float(result.batches["sent"].sum() / result.batches["arrivals"].sum()),
        jobs=result.jobs,
        seed=seed,
        seconds=result.seconds,
    )


def exact_waiting(system: System) -> float | None:
    """The exact chain's value under PULL, where the reference table has the system."""

    def identity(some: System) -> tuple[Any, ...]:
        return some.pools, some.message_fate, some.router_weights, round(some.load, 9)

    known = {
        identity(case.system): case.values["P_wait"] for case in cases() if case.policy == "pull"
    }
    return known.get(identity(system))


# --- stability ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Critical:
    """A system near its critical load, and what theory says of it."""

    name: str
    system: System
    policy: str
    stable: bool
    growth: float


def pair(routers: int, load: float) -> System:
    """Two servers of speeds 1 and 2 without limits."""
    return System([Pool(1, speed=1.0), Pool(1, speed=2.0)], routers=routers, load=load)


CRITICAL = (
    Critical("speeds 1, 2; R = 1 (critical .8539)", pair(1, 0.80), "pull", True, 0.0),
    Critical("speeds 1, 2; R = 1 (critical .8539)", pair(1, 0.90), "pull", False, 0.0881),
    Critical("speeds 1, 2; R = 2 (critical .7908)", pair(2, 0.74), "pull", True, 0.0),
    Critical("speeds 1, 2; R = 2 (critical .7908)", pair(2, 0.84), "pull", False, 0.0827),
    Critical("M/M/1", System(Pool(1), load=0.999), "random", True, 0.0),
)


@dataclass(frozen=True)
class StabilityRow:
    """What `simulate` says about stability."""

    name: str
    load: float
    stable: bool | None
    expected: bool
    growth: float
    low: float
    high: float
    theory: float
    jobs: int
    seed: int

    @property
    def passes(self) -> bool:
        """Not called unstable if it is stable; called so, with its growth, if it is not."""
        if self.expected:
            near_critical = self.load > 0.99
            return self.stable is True or (near_critical and self.stable is None)
        return self.stable is False and self.low <= self.theory <= self.high

    def cells(self) -> list[str]:
        return [
            self.name,
            f"{self.load:g}",
            str(self.stable),
            f"{round(self.growth, 4) + 0.0:.4f}",
            f"{self.low:+.4f} .. {self.high:+.4f}",
            f"{self.theory:.4f}",
            f"{self.jobs:,}",
            "as it must be" if self.passes else "WRONG",
        ]


STABILITY_HEADINGS = ("system", "load", "stable", "growth", "95 % interval", "theory", "jobs", "")


def near_critical(case: Critical, jobs: int, seed: int) -> StabilityRow:
    """Simulate one of them; if it fails, once more, afresh and four times as long."""
    row = _near_critical(case, jobs, seed)
    return row if row.passes else _near_critical(case, 4 * jobs, seed + 1000)


def _near_critical(case: Critical, jobs: int, seed: int) -> StabilityRow:
    result = simulate(case.system, case.policy, jobs=jobs, seed=seed)
    return StabilityRow(
        name=case.name,
        load=case.system.load,
        stable=result.stable,
        expected=case.stable,
        growth=result.growth.mean,
        low=result.growth.low,
        high=result.growth.high,
        theory=case.growth,
        jobs=result.jobs,
        seed=seed,
    )


# --- the study ------------------------------------------------------------------------------------
def draw(rows: list[SizeRow]) -> None:
    """P(wait) against the number of servers, equal and unequal routers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    looks = {
        "equal": ("C0", "two equal routers, limit 3"),
        "unequal": ("C1", "two with shares .8 and .2, no limit"),
    }
    for routers, (color, label) in looks.items():
        some = [row for row in rows if row.routers == routers]
        sizes = [row.n for row in some]
        means = [row.waiting for row in some]
        reach = [
            [row.waiting - max(row.low, 1e-6) for row in some],
            [row.high - row.waiting for row in some],
        ]
        axes.errorbar(sizes, means, reach, fmt=".-", color=color, label=label, capsize=2)
        known = [(row.n, row.exact) for row in some if row.exact is not None]
        if known:
            exact = "exact chain" if routers == "equal" else None
            axes.plot(*zip(*known, strict=True), "o", ms=10, mfc="none", color="black", label=exact)
    limit = limit_of_waiting(SPLIT, LOAD)
    axes.axhline(limit, color="C1", ls="--", lw=1, label=f"limit for shares .8 and .2: {limit:.4f}")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="servers",
        ylabel="probability that an accepted job waits",
        title=f"PULL at load {LOAD}: with equal routers waiting vanishes, with unequal ones not",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=150)


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status is 0 if everything is as theory says."""
    parser = argparse.ArgumentParser(
        prog="python -m baselines.pull", description="PULL as n grows, and where it is unstable."
    )
    parser.add_argument("--quick", action="store_true", help="at most 1,000 servers, no files")
    parser.add_argument("--threads", type=int, default=2, help="results do not depend on it")
    parser.add_argument("--seed", type=int, default=1, help="of the first run (default 1)")
    given = parser.parse_args(arguments)
    effort, largest, jobs = (0.5, 1000, 2_000_000) if given.quick else (8.0, 10_000, 20_000_000)
    wanted = [("equal", n) for n in SIZES] + [("unequal", n) for n in SPLIT_SIZES]
    wanted = [(routers, n) for routers, n in wanted if n <= largest]
    rows = [
        at_size(routers, n, effort, given.threads, given.seed + k)
        for k, (routers, n) in enumerate(tqdm(wanted, unit="size", disable=None))
    ]
    stability = [
        near_critical(case, jobs, given.seed + len(rows) + k)
        for k, case in enumerate(tqdm(CRITICAL, unit="system", disable=None))
    ]
    print(aligned(SIZE_HEADINGS, [row.cells() for row in rows], 1))
    limit = limit_of_waiting(SPLIT, LOAD)
    print(f"\nlimit of P(wait) for shares .8 and .2: {limit:.4f}\n")
    print(aligned(STABILITY_HEADINGS, [row.cells() for row in stability], 1))
    if not given.quick:
        record = {
            "command": f"python -m baselines.pull --seed {given.seed}",
            "versions": versions(),
            "limit": limit,
            "sizes": [asdict(row) for row in rows],
            "stability": [asdict(row) for row in stability],
        }
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        draw(rows)
        print(f"\nwritten: {RESULTS}, {PICTURE}")
    return 0 if all(row.passes for row in stability) else 1


if __name__ == "__main__":
    sys.exit(main())
