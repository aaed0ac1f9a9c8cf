"""Local choice: a job on a circle of queues joins the shorter of two neighbours.

    python -m baselines.local_choice            # two minutes
    python -m baselines.local_choice --quick    # under 20 seconds, no files

P. Dester, C. Fricker, H. Mohamed, *Stationary distribution analysis of a queueing model with local
choice* (2018). N queues of speed 1 on a circle, Poisson(rho) jobs between each pair of neighbours,
a fair coin on ties. Shown:

1. *queue*: the mean queue on a circle of 100 for rho = .3 .. .9 lies between no choice (M/M/1) and
   two random choices (a complete graph of 100), far nearer to the latter;
2. *idle*: P(q = 0) = 1 - rho exactly on the circle;
3. *small*: the exact mean queue on a circle of 4;
4. *light traffic*: P(q = 1), P(q = 2), P(q = 3) beside their series in rho, up to rho^6.

Writes ``baselines/results/local_choice.json`` and ``.png``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from baselines import study as shared
from baselines.study import Row, part_of, repeated, row, scaled
from lbgym.simulate import Result, simulate
from lbgym.system import Pool, System
from lbgym.theory import closed_form

N = 100
LOADS = (0.3, 0.5, 0.7, 0.8, 0.9)
SMALL = {0.1: 0.10138820771, 0.5: 0.668918322278, 0.7: 1.27636931526}  # mean queue, circle of 4
# Coefficients of rho, rho^2, .. of P(q = m), any circle of at least as many queues as the order.
SERIES = {
    1: (1, 0, -3 / 2, 11 / 8, -7 / 3, 1609 / 432),
    2: (0, 0, 3 / 2, -11 / 8, 47 / 24, -2137 / 432),
    3: (0, 0, 0, 0, 3 / 8, 11 / 9),
}
LIGHT = (0.05, 0.1, 0.15)
NEXT = 5.0  # what is left out of the series: at most this times rho^7


def series(m: int, load: float) -> float:
    """P(q = m) in light traffic."""
    return sum(c * load ** (k + 1) for k, c in enumerate(SERIES[m]))


def queue(jobs: int, seed: int) -> Iterator[Row]:
    """No choice, circle, complete graph: mean queue."""
    for k, load in enumerate(LOADS):
        blind = load / (1 - load)
        two = float(closed_form.supermarket(load, 2)[1:].sum())
        said: dict[str, Any] = {"x": load, "jobs": jobs, "seed": seed + k}
        cases = (
            ("no choice", System(Pool(N), load=load), "random", blind, "exact"),
            ("circle", System(Pool(N), load=load, graph="ring"), "local-choice", blind, "below"),
            ("circle", System(Pool(N), load=load, graph="ring"), "local-choice", two, "above"),
            ("two random", System(Pool(N), load=load, graph="complete"), "local-choice", two, ""),
        )
        known: dict[str, Any] = {}
        for name, system, policy, value, kind in cases:
            if name not in known:
                known[name] = simulate(system, policy, jobs=jobs, seed=seed + k)
            mean = scaled(known[name].jobs_in_system, 1 / N)
            limit = {"within": 0.05 * value} if kind == "" else {}
            kind = kind or "limit"
            yield row(
                "queue", f"{N} queues, rho {load}", name, "E[q]", mean, value, kind, **said, **limit
            )


def empty(jobs: int, seed: int) -> Iterator[Row]:
    """P(q = 0) on the circle."""

    def read(result: Result) -> list[float]:
        return [1 - result.queue_tail["all"][1]]

    for k, load in enumerate((0.5, 0.9)):
        system = System(Pool(N), load=load, graph="ring")
        (idle,) = repeated(system, "local-choice", read, jobs=jobs, seed=seed + k)
        name = f"{N} queues, rho {load}"
        said: dict[str, Any] = {"x": load, "jobs": 8 * jobs, "seed": seed + k}
        yield row("idle", name, "circle", "P(q = 0)", idle, 1 - load, **said)


def small(jobs: int, seed: int) -> Iterator[Row]:
    """Mean queue of a circle of 4."""
    for k, (load, exact) in enumerate(SMALL.items()):
        system = System(Pool(4), load=load, graph="ring")
        found = simulate(system, "local-choice", jobs=jobs, seed=seed + k)
        mean = scaled(found.jobs_in_system, 1 / 4)
        said: dict[str, Any] = {"x": load, "jobs": jobs, "seed": seed + k}
        yield row("small", f"4 queues, rho {load}", "circle", "E[q]", mean, exact, **said)


def light_traffic(jobs: int, seed: int) -> Iterator[Row]:
    """P(q = 1), P(q = 2), P(q = 3) beside the series."""

    def read(result: Result) -> list[float]:
        tail = np.array([*result.queue_tail["all"], 0, 0, 0, 0, 0])
        return [float(tail[m] - tail[m + 1]) for m in SERIES]

    for k, load in enumerate(LIGHT):
        system = System(Pool(N), load=load, graph="ring")
        found = repeated(system, "local-choice", read, jobs=jobs, seed=seed + k)
        for m, estimate in zip(SERIES, found, strict=True):
            yield row(
                "light traffic",
                f"{N} queues, rho {load}",
                f"circle, m = {m}",
                f"P(q = {m})",
                estimate,
                series(m, load),
                within=NEXT * load**7,
                x=load,
                jobs=8 * jobs,
                seed=seed + k,
            )


def study(quick: bool, seed: int) -> list[Row]:
    """All rows."""
    jobs = 400_000 if quick else 10_000_000
    return [
        *queue(2 * jobs, seed),
        *empty(jobs // 2, seed + 10),
        *small(2 * jobs, seed + 20),
        *light_traffic(jobs, seed + 30),
    ]


def draw(rows: list[Row]) -> Any:
    """Mean queue, and light traffic."""
    figure, ((queues, light),) = shared.figure(2)
    for k, name in enumerate(("no choice", "circle", "two random")):
        some = list({r.x: r for r in part_of(rows, "queue", name)}.values())
        label = {"circle": "circle: the shorter of two neighbours", "two random": "complete graph"}
        shared.plot(queues, some, label.get(name, "no choice (rings: M/M/1)"), f"C{k}")
    load = np.linspace(LOADS[0], LOADS[-1], 100)
    two = [closed_form.supermarket(x, 2)[1:].sum() for x in load]
    queues.plot(load, two, color="gray", ls="--", lw=1, label="two random choices, N = infinity")
    queues.set(
        xlabel="rho", ylabel="mean queue", yscale="log", title=f"{N} queues, local choice or none"
    )
    load = np.linspace(LIGHT[0], LIGHT[-1], 100)
    for k, m in enumerate(SERIES):
        some = part_of(rows, "light traffic", f"circle, m = {m}")
        light.plot(load, series(m, load), color=f"C{k}", lw=1)  # type: ignore[arg-type]
        shared.plot(light, some, f"P(q = {m}), simulated", f"C{k}", ".")
    light.set(xlabel="rho", yscale="log", title="light traffic: lines are the series to rho^6")
    for axis in (queues, light):
        axis.grid(alpha=0.3)
        axis.legend()
    return figure


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status is 0 if every prediction holds."""
    words = "Local choice on a circle: between no choice and two random choices."
    return shared.run("local_choice", words, study, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
