"""How often the 95 % intervals of `simulate` contain the truth.

    python -m baselines.coverage            # 400 runs a system, a few minutes
    python -m baselines.coverage --runs 50  # a look; no files

Single runs with default settings and seeds 0, 1, ... on queues that have closed forms. Coverage
must be at least 90 % for the shortest runs and between 92 % and 98 % otherwise; half-widths are
relative to the truth. Writes ``baselines/results/coverage.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from baselines.agreement import aligned, markdown, versions
from lbgym.simulate import Result, simulate
from lbgym.stats import Estimate
from lbgym.system import Pool, System

RESULTS = Path(__file__).parent / "results" / "coverage.json"
PAGE = Path(__file__).parent.parent / "docs" / "coverage.md"
RUNS = 400
LEAST, MOST = 0.92, 0.98
LEAST_SHORTEST = 0.90

ESTIMATES: dict[str, Callable[[Result], Estimate]] = {
    "cost": lambda result: result.cost,
    "response_time": lambda result: result.response_time,
    "jobs_in_system": lambda result: result.jobs_in_system,
    "waiting_probability": lambda result: result.waiting_probability,
    "blocking_probability": lambda result: result.blocking_probability,
    "p50": lambda result: result.response_time_quantile(0.5),
    "p99": lambda result: result.response_time_quantile(0.99),
}


@dataclass(frozen=True)
class Queue:
    """A queue, the length of a run, and the truth by estimate."""

    name: str
    system: System
    jobs: int
    truth: dict[str, float]
    shortest: bool = False


def mm1(load: float, jobs: int, shortest: bool = False) -> Queue:
    """M/M/1: the response time is exponential with mean 1 / (1 - load)."""
    mean = 1 / (1 - load)
    truth = {
        "cost": mean,
        "response_time": mean,
        "jobs_in_system": load * mean,
        "waiting_probability": load,
        "p50": math.log(2) * mean,
        "p99": math.log(100) * mean,
    }
    return Queue(f"M/M/1 load {load:g}", System(Pool(1), load=load), jobs, truth, shortest)


def mm1k(load: float, limit: int, jobs: int) -> Queue:
    """M/M/1/K: the number in system is a truncated geometric variable."""
    system = System(Pool(1, limit=limit), load=load)
    weights = load ** np.arange(limit + 1)
    weights /= weights.sum()
    blocked = float(weights[-1])
    present = float(weights @ np.arange(limit + 1))
    truth = {
        "cost": present / load + system.default_loss_charge * blocked,
        "response_time": present / load / (1 - blocked),
        "jobs_in_system": present,
        "waiting_probability": float(1 - weights[0] / (1 - blocked)),
        "blocking_probability": blocked,
    }
    return Queue(f"M/M/1/{limit} load {load:g}", system, jobs, truth)


QUEUES = (
    mm1(0.8, 20_000, shortest=True),
    mm1(0.8, 200_000),
    mm1(0.8, 1_000_000),
    mm1(0.95, 1_000_000),
    mm1k(0.8, 5, 200_000),
)


@dataclass(frozen=True)
class Row:
    """Of one estimate: how often its interval misses, and how wide it is (relative, mean)."""

    queue: str
    jobs: int
    quantity: str
    truth: float
    runs: int
    too_high: int
    too_low: int
    half_width: float
    bias: float
    least: float

    @property
    def coverage(self) -> float:
        return 1 - (self.too_high + self.too_low) / self.runs

    @property
    def passes(self) -> bool:
        return self.least <= self.coverage <= MOST

    def cells(self) -> list[str]:
        return [
            self.queue,
            self.quantity,
            f"{self.jobs:,}",
            f"{self.truth:.6g}",
            f"{self.coverage:.1%}{'' if self.passes else ' !'}",
            str(self.too_high),
            str(self.too_low),
            f"{self.half_width:.2%}",
            f"{self.bias:+.2%}",
        ]


HEADINGS = (
    "queue",
    "estimate",
    "jobs",
    "truth",
    "coverage",
    "above",
    "below",
    "half-width",
    "bias",
)


def cover(queue: Queue, runs: int, threads: int) -> list[Row]:
    """Run with seeds 0 .. runs - 1 and count."""

    def estimates(seed: int) -> dict[str, Estimate]:
        result = simulate(queue.system, "random", jobs=queue.jobs, seed=seed)
        return {name: ESTIMATES[name](result) for name in queue.truth}

    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(estimates, range(runs))
        found = list(tqdm(found, queue.name, runs, unit="run", leave=False, disable=None))
    return [_row(queue, name, [of_run[name] for of_run in found]) for name in queue.truth]


def _row(queue: Queue, name: str, found: list[Estimate]) -> Row:
    truth = queue.truth[name]
    return Row(
        queue=queue.name,
        jobs=queue.jobs,
        quantity=name,
        truth=truth,
        runs=len(found),
        too_high=sum(estimate.low > truth for estimate in found),
        too_low=sum(estimate.high < truth for estimate in found),
        half_width=float(np.mean([estimate.half_width for estimate in found])) / truth,
        bias=float(np.mean(found)) / truth - 1,
        least=LEAST_SHORTEST if queue.shortest else LEAST,
    )


def write(rows: list[Row], verdict: str, runs: int) -> None:
    """The numbers as JSON, the table as a page."""
    record = {
        "command": f"python -m baselines.coverage --runs {runs}",
        "seeds": [0, runs - 1],
        "versions": versions(),
        "rows": [asdict(row) | {"coverage": row.coverage} for row in rows],
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(
        f"""# Do the intervals cover?

Made by `{record["command"]}`: how often the 95 % intervals of single runs of `lbgym.simulate`
(default settings, one seed a run) contain the truth on queues with closed forms. *Above* and
*below* count the runs whose interval lies wholly above or below the truth; half-widths and bias are
relative to it.

**{verdict}**

{markdown(HEADINGS, [row.cells() for row in rows], 2)}
""",
        encoding="utf-8",
    )


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status is 0 if every coverage is as it must be."""
    parser = argparse.ArgumentParser(
        prog="python -m baselines.coverage", description="Coverage of the 95 % intervals."
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"independent runs (default {RUNS})")
    parser.add_argument("--threads", type=int, default=2, help="results do not depend on it")
    given = parser.parse_args(arguments)
    rows = [row for queue in QUEUES for row in cover(queue, given.runs, given.threads)]
    print(aligned(HEADINGS, [row.cells() for row in rows], 2))
    passing = sum(row.passes for row in rows)
    verdict = (
        f"{passing} of {len(rows)} coverages within {LEAST:.0%} .. {MOST:.0%} "
        f"(shortest runs: from {LEAST_SHORTEST:.0%}); {given.runs} runs, seeds from 0"
    )
    print(f"\n{verdict}")
    if given.runs >= RUNS:
        write(rows, verdict, given.runs)
    return 0 if passing == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
