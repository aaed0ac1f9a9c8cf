"""A million servers: PULL and JSQ(2) beside their mean field, with time and memory.

    python -m baselines.million            # a few minutes, half a gigabyte
    python -m baselines.million --quick    # 10,000 servers, under 20 seconds, no files

Half the servers of speed 1, half of speed 2, limit 10, four routers, load .9. Each of several
independent runs begins with queue lengths by the limit's law (from empty queues JSQ(2) would need
hundreds of millions of jobs), lets ten jobs a server arrive as a warm-up and then measures ten
million jobs. Means and intervals are over the runs: batches of one run would be shorter than the
memory of so large a system. Shown, beside the limit as the number of servers grows
(`lbgym.theory.mean_field`):

1. *response*: E[T], P(wait), the jobs in each pool, and that the number of jobs stays as it is;
2. *tails*: the fraction of servers of each pool with at least k jobs;
3. *effort*: CPU time of a job, and the peak of the process's resident memory.

Writes ``baselines/results/million.json`` and ``.png``.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baselines.study import Row, figure, mean, part_of, row, run
from lbgym import Pool, System, theory
from lbgym.simulate import Result, simulate

POLICIES = ("pull", "jsq(2)")
RUNS = 4
MEASURED = 10_000_000
WARMUP = 10  # jobs a server
LEVELS = 5  # of the tails that are told
FINITE = 100  # n servers may be so much over n away from infinitely many, relative


def system_of(n: int) -> System:
    """Half of speed 1, half of speed 2."""
    return System([Pool(n // 2, 1.0, 10), Pool(n // 2, 2.0, 10)], routers=4, load=0.9)


def queues_of(limit: theory.MeanField) -> NDArray[np.int64]:
    """A queue length for each server, by the law of its pool."""
    parts = []
    for pool, tail in zip(limit.system.pools, limit.queue_tail["pools"], strict=True):
        at_least = np.round(np.array(tail) * pool.servers).astype(int)
        parts.append((at_least[1:, None] > np.arange(pool.servers)).sum(axis=0))
    return np.concatenate(parts)


def results_of(
    system: System, policy: str, start: Any, jobs: int, seed: int, runs: int
) -> tuple[list[Result], list[float]]:
    """Independent runs and the CPU nanoseconds of a job in each, warm-up included."""
    results, costs = [], []
    warmup = WARMUP * system.servers
    for k in range(runs):
        begun = time.process_time()
        plan: dict[str, Any] = {"jobs": warmup + jobs, "warmup": warmup, "start": start}
        results.append(simulate(system, policy, seed=1000 * seed + k, **plan))
        costs.append(1e9 * (time.process_time() - begun) / (warmup + jobs))
    return results, costs


def peak_memory() -> float:
    """The most resident memory that this process has had, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def _at(tail: Sequence[float], k: int) -> float:
    """P(Q >= k); what is left out is 0."""
    return float(tail[k]) if k < len(tail) else 0.0


def rows_of(policy: str, n: int, jobs: int, seed: int, runs: int) -> list[Row]:
    """All rows of a policy."""
    system = system_of(n)
    limit = theory.mean_field(system, policy)
    results, costs = results_of(system, policy, queues_of(limit), jobs, seed, runs)
    made: list[Row] = []

    def add(part: str, what: str, values: Sequence[float], predicted: Any = None, x: float = n):
        more: dict[str, Any] = {"x": x, "jobs": runs * jobs, "seed": 1000 * seed}
        if predicted is not None:
            within = FINITE / n * max(abs(predicted), 1)
            more |= {"kind": "limit", "prediction": float(predicted), "within": within}
        made.append(row(part, f"n = {n:,}", policy, what, mean(values), **more))

    add("response", "E[T]", [float(r.response_time) for r in results], limit.response_time)
    waited = [float(r.waiting_probability) for r in results]
    add("response", "P(wait)", waited, limit.waiting_probability)
    for p, pool in enumerate(system.pools):
        here = [r.jobs_per_pool[p] / pool.servers for r in results]
        name = f"jobs a server, speed {pool.speed:g}"
        add("response", name, here, limit.jobs_per_pool[p] / pool.servers)
    drift = [float(r.growth) / n for r in results]
    add("response", "jobs a server gained per unit time", drift, 0.0)
    for p, pool in enumerate(system.pools):
        tails = [r.queue_tail["pools"][p] for r in results]
        for k in range(1, LEVELS + 1):
            *values, predicted = (_at(tail, k) for tail in (*tails, limit.queue_tail["pools"][p]))
            add(f"tail {p}", f"speed {pool.speed:g}, P(Q >= {k})", values, predicted, k)
    add("effort", "CPU ns a job", costs)
    add("effort", "peak memory so far, MB", [peak_memory()] * 2)
    return made


def study(quick: bool, seed: int) -> list[Row]:
    """Rows of both policies."""
    n, jobs = (10_000, MEASURED // 10) if quick else (1_000_000, MEASURED)
    rows = [rows_of(policy, n, jobs, seed + k, RUNS) for k, policy in enumerate(POLICIES)]
    return [one for of_policy in rows for one in of_policy]


def draw(rows: list[Row]) -> Any:
    """Tails of the queue lengths, simulated and predicted."""
    picture, axes = figure(2)
    for p, axis in enumerate(axes[0]):
        for policy, color in zip(POLICIES, ("C0", "C1"), strict=True):
            some = part_of(rows, f"tail {p}", policy)
            k = [r.x for r in some]
            axis.plot(k, [r.simulated for r in some], "o", color=color, label=policy)
            axis.plot(k, [r.prediction for r in some], "-", color=color, lw=1)
        axis.set(title=f"servers of speed {p + 1}", xlabel="k", ylim=(-0.03, 1.03), xticks=k)
        axis.set_ylabel("fraction with at least k jobs")
        axis.grid(alpha=0.3)
        axis.legend(title="a million servers (dots),\nmean field (lines)")
    return picture


def main(arguments: Sequence[str] | None = None) -> int:
    return run("million", (__doc__ or "").partition("\n")[0], study, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
