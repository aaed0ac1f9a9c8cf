"""Policies that know the order of the queues at the last read: stability, heavy traffic, staleness.

    python -m baselines.order_based            # about a minute
    python -m baselines.order_based --quick    # under 20 seconds, no files

Y. Luo, M. Zubeldia (arXiv 2510.14284): one dispatcher reads n queues every T units of time and
decides by the order of the scaled lengths q_i / w_i (w = 1: JSQ, w = speed: JSED). Shown:

1. *stability*: speeds (.2, .2, 2.6), load .7: JSQ(2) sends a third of the jobs to the two slow
   servers, more than they serve, so their backlog grows by .3 per unit time; JSED and weighted
   random are stable, whatever T;
2. *heavy traffic*, speeds (1, 2), T = 1: (1 - load) E[N] -> 1 under JSQ and JSED, but -> n under
   weighted random (n load exactly);
3. *collapse*: there |q_1/w_1 - q_2/w_2|, in the mean and over the mean total of the scaled queues,
   tends to 0 under JSQ and JSED and does not under weighted random;
4. *staleness*: E[N] grows with T, beside the exact chain (two equal servers, load .7).

Writes ``baselines/results/order_based.json`` and ``.png``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from baselines import study as shared
from baselines.study import Row, part_of, row, scaled
from lbgym.simulate import simulate
from lbgym.system import Pool, System

UNEQUAL = [Pool(2, speed=0.2), Pool(1, speed=2.6)]
PAIR = [Pool(1, speed=1.0), Pool(1, speed=2.0)]
GROWTH = 0.3
LOADS = (0.8, 0.9, 0.95)
# E[N] of two equal servers at load .7 under JSQ, read every T: the exact chain.
STALE = {0.1: 2.99780433, 2.0: 3.78766550, 5.0: 4.90142163, 10.0: 6.58417867}
WEIGHTS = {"jsq": (1.0, 1.0), "jsed": (1.0, 2.0), "weighted-random": (1.0, 2.0)}
BATCHES = 20


def stability(jobs: int, seed: int) -> Iterator[Row]:
    """JSQ(2) is unstable where JSED and weighted random are not."""
    for interval in (None, 1.0):
        system = System(UNEQUAL, load=0.7, read_interval=interval)
        name = "speeds .2 .2 2.6, live" if interval is None else "speeds .2 .2 2.6, T 1"
        for policy in ("jsq(2)", "jsed", "weighted-random"):
            found = simulate(system, policy, jobs=jobs, seed=seed)
            growth = GROWTH if policy == "jsq(2)" else 0.0
            yield row(
                "stability",
                name,
                policy,
                f"growth (stable: {found.stable})",
                found.growth,
                growth,
                jobs=jobs,
                seed=seed,
                x=interval or 0.0,
            )


def heavy_traffic(jobs: int, samples: int, seed: int) -> Iterator[Row]:
    """(1 - load) E[N], and how far the scaled queues are apart."""
    for load in LOADS:
        system = System(PAIR, load=load, read_interval=1.0)
        for policy, weights in WEIGHTS.items():
            said: dict[str, Any] = {"x": load, "jobs": jobs, "seed": seed}
            found = simulate(system, policy, jobs=jobs, seed=seed)
            blind = policy == "weighted-random"
            last = load == LOADS[-1]
            yield row(
                "heavy traffic",
                f"speeds 1 2, T 1, load {load}",
                policy,
                "(1 - load) E[N]",
                scaled(found.jobs_in_system, 1 - load),
                2 * load if blind else 1.0 if last else None,
                "exact" if blind else "limit",
                within=0.0 if blind else 0.15,
                **said,
            )
            yield row(
                "collapse",
                f"speeds 1 2, T 1, load {load}",
                policy,
                "spread / total",
                spread(system, policy, weights, samples, seed),
                0.35 if last else None,
                "above" if blind else "below",
                **said,
            )


def spread(
    system: System, policy: str, weights: tuple[float, float], samples: int, seed: int
) -> Any:
    """Mean |q_1/w_1 - q_2/w_2| over the mean of q_1/w_1 + q_2/w_2, as arrivals find them."""
    every = 100
    jobs = samples * every * 10 // 9
    found = shared.found_by_arrivals(system, policy, jobs=jobs, every=every, seed=seed)
    q = np.array(list(found)) / np.array(weights)
    apart = np.abs(q[:, 0] - q[:, 1])
    parts = np.array_split(np.arange(len(q)), BATCHES)
    above = np.array([apart[part].mean() for part in parts])
    below = np.array([q[part].sum(axis=1).mean() for part in parts])
    return shared.stats.ratio(above, below)


def staleness(jobs: int, seed: int) -> Iterator[Row]:
    """E[N] against the time between reads."""
    for k, (interval, exact) in enumerate(STALE.items()):
        system = System(Pool(2), load=0.7, read_interval=interval)
        found = simulate(system, "jsq", jobs=jobs, seed=seed + k)
        yield row(
            "staleness",
            f"2 equal, load .7, T {interval:g}",
            "jsq",
            "E[N]",
            found.jobs_in_system,
            exact,
            x=interval,
            jobs=jobs,
            seed=seed + k,
        )


def study(quick: bool, seed: int) -> list[Row]:
    """All rows."""
    jobs = 800_000 if quick else 5_000_000
    return [
        *stability(jobs, seed),
        *heavy_traffic(3 * jobs, 4_000 if quick else 30_000, seed + 1),
        *staleness(jobs, seed + 2),
    ]


def draw(rows: list[Row]) -> Any:
    """Heavy traffic, collapse and staleness."""
    figure, ((traffic, collapse, stale),) = shared.figure(3)
    for k, policy in enumerate(WEIGHTS):
        shared.plot(traffic, part_of(rows, "heavy traffic", policy), policy, f"C{k}")
        shared.plot(collapse, part_of(rows, "collapse", policy), policy, f"C{k}")
    traffic.axhline(1, color="gray", ls="--", lw=1, label="limit 1")
    traffic.axhline(2, color="gray", ls=":", lw=1, label="limit n = 2")
    traffic.set(xlabel="load", ylabel="(1 - load) E[N]", title="heavy traffic, speeds 1 and 2, T 1")
    collapse.set(
        xlabel="load",
        ylabel="mean |q1/w1 - q2/w2| over mean total",
        title="the scaled queues collapse",
        ylim=(0, None),
    )
    shared.plot(stale, part_of(rows, "staleness"), "jsq, simulated (rings: exact)", "C0")
    stale.set(xlabel="time T between reads", ylabel="E[N]", title="two equal servers, load .7")
    for axis in (traffic, collapse, stale):
        axis.grid(alpha=0.3)
        axis.legend()
    return figure


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status is 0 if every prediction holds."""
    words = "Order-based policies: stability, heavy traffic, stale reads."
    return shared.run("order_based", words, study, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
