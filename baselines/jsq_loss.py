"""Erlang loss under JSQ(d): blocking against the mean field, and the fluctuations about it.

    python -m baselines.jsq_loss            # about a minute
    python -m baselines.jsq_loss --quick    # under 20 seconds, no files

T. Vasantam, R. Mazumdar, *Sensitivity of mean-field fluctuations in Erlang loss models with
randomized routing*, J. Appl. Prob. 58 (2021). N servers of C circuits each, N lambda jobs per unit
time; each goes to the least occupied of d random servers and is lost if that one is full. u_k is
the fraction of servers with at least k jobs. Shown:

1. *blocking* against N (C = 3, lambda = 2.5, d = 2): it falls to u_C^d of the mean field;
2. *fluctuations*: N Var(u_k) tends to the stationary covariance of the Ornstein-Uhlenbeck limit;
3. *small*: exact blocking and N Var(u_k) of four servers with two circuits;
4. *static*: blocking far below that of random routing (Erlang's formula) at every load.

Writes ``baselines/results/jsq_loss.json`` and ``.png``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from baselines import study as shared
from baselines.study import Row, part_of, row
from lbgym import theory
from lbgym.simulate import simulate
from lbgym.stats import Estimate
from lbgym.system import Pool, System

C, RATE, D = 3, 2.5, 2
POLICY = f"jsq({D})"
# The exact chain: N: (P_block, N Var(u_1), .. N Var(u_C)).
EXACT = {
    2: (0.19184725888636506, 0.05264724327889704, 0.25955119984287395, 0.3014013832629486),
    10: (0.15492008377955668, 0.03961479645139755, 0.22890720952234908, 0.355304541639962),
}
SIZES = (2, 4, 10, 30, 100, 300, 1000)
FOUR = (0.07166520389045178, 0.2576850937920418, 0.2398603356847616)  # N = 4, C = 2, lambda = 1
LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
BATCHES = 20


def loss(n: int, slots: int, rate: float) -> System:
    """N servers with C circuits, `rate` jobs per unit time and server."""
    return System(Pool(n, slots=slots, limit=slots), arrival_rate=n * rate)


def variances(system: System, samples: int, seed: int) -> list[Estimate]:
    """N Var(u_k), k = 1 .. C: mean of (u - mean u)^2 over batches of what arrivals find."""
    n, slots = system.servers, system.pools[0].slots
    every = max(1, n * 2)  # .8 units of time
    jobs = samples * every * 10 // 9
    levels = np.arange(1, slots + 1)
    found = shared.found_by_arrivals(system, POLICY, jobs=jobs, every=every, seed=seed)
    u = np.array([(q[:, None] >= levels).mean(axis=0) for q in found])
    squares = n * (u - u.mean(axis=0)) ** 2
    batches = np.array([part.mean(axis=0) for part in np.array_split(squares, BATCHES)])
    return [shared.mean(values) for values in batches.T]


def blocking(largest: int, jobs: int, seed: int) -> Iterator[Row]:
    """P_block against N."""
    limit = theory.mean_field(loss(100, C, RATE), POLICY).blocking_probability
    for k, n in enumerate(SIZES):
        if n > largest:
            continue
        found = simulate(loss(n, C, RATE), POLICY, jobs=jobs, seed=seed + k)
        exact = EXACT[n][0] if n in EXACT else None
        yield row(
            "blocking",
            f"N {n:,}, C {C}, lambda {RATE}",
            POLICY,
            "P_block",
            found.blocking_probability,
            limit if exact is None else exact,
            "limit" if exact is None else "exact",
            within=0.25 / n,
            x=n,
            jobs=jobs,
            seed=seed + k,
        )


def fluctuations(largest: int, samples: int, seed: int) -> Iterator[Row]:
    """N Var(u_k) against N."""
    limit = np.diag(theory.ou_covariance(RATE, C, D).covariance)
    for j, n in enumerate(SIZES):
        if n > largest:
            continue
        for k, estimate in enumerate(variances(loss(n, C, RATE), samples, seed + j)):
            exact = EXACT[n][1 + k] if n in EXACT else None
            yield row(
                "fluctuations",
                f"N {n:,}, C {C}, lambda {RATE}",
                f"{POLICY}, k = {k + 1}",
                f"N Var(u_{k + 1})",
                estimate,
                float(limit[k]) if exact is None else exact,
                "limit" if exact is None else "exact",
                within=0.0 if exact is not None else 0.2 / n,
                x=n,
                jobs=samples,
                seed=seed + j,
            )


def small(jobs: int, samples: int, seed: int) -> Iterator[Row]:
    """Four servers with two circuits, exactly."""
    system = loss(4, 2, 1.0)
    found = simulate(system, POLICY, jobs=jobs, seed=seed)
    estimates = [found.blocking_probability, *variances(system, samples, seed)]
    names = ("P_block", "N Var(u_1)", "N Var(u_2)")
    for name, estimate, exact in zip(names, estimates, FOUR, strict=True):
        said: dict[str, Any] = {"jobs": jobs if name == "P_block" else samples, "seed": seed}
        yield row("small", "N 4, C 2, lambda 1", POLICY, name, estimate, exact, x=4, **said)


def static(jobs: int, seed: int) -> Iterator[Row]:
    """Random routing and JSQ(2) against the load, 100 servers of 5 circuits."""
    for k, load in enumerate(LOADS):
        system = loss(100, 5, 5 * load)
        erlang = theory.closed_form.erlang_b(5, 5 * load)
        said: dict[str, Any] = {"x": load, "jobs": jobs, "seed": seed + k}
        for policy in ("random", POLICY):
            found = simulate(system, policy, jobs=jobs, seed=seed + k)
            lost = found.blocking_probability
            name = f"N 100, C 5, load {load}"
            kind = "exact" if policy == "random" else "below"
            yield row("static", name, policy, "P_block", lost, erlang, kind, **said)


def study(quick: bool, seed: int) -> list[Row]:
    """All rows."""
    largest = 100 if quick else SIZES[-1]
    jobs, samples = (600_000, 4_000) if quick else (5_000_000, 40_000)
    return [
        *blocking(largest, jobs, seed),
        *fluctuations(largest, samples, seed + 20),
        *small(jobs, samples, seed + 40),
        *static(jobs, seed + 50),
    ]


def draw(rows: list[Row]) -> Any:
    """Blocking and fluctuations against N, and blocking against the load."""
    figure, ((lost, swing, loads),) = shared.figure(3)
    some = part_of(rows, "blocking")
    shared.plot(lost, some, f"{POLICY}, simulated (rings: exact)", "C0")
    lost.axhline(some[-1].prediction, color="C0", ls="--", lw=1, label="mean field")
    lost.set(
        xscale="log", xlabel="servers N", ylabel="P(lost)", title=f"C = {C}, lambda = {RATE}, d = 2"
    )
    for k in range(C):
        some = part_of(rows, "fluctuations", f"{POLICY}, k = {k + 1}")
        shared.plot(swing, some, f"u_{k + 1}", f"C{k}")
        swing.axhline(some[-1].prediction, color=f"C{k}", ls="--", lw=1)
    swing.set(
        xscale="log",
        ylim=(0, None),
        xlabel="servers N",
        ylabel="N Var(u_k)",
        title="fluctuations (dashed: Ornstein-Uhlenbeck limit)",
    )
    for k, policy in enumerate(("random", POLICY)):
        shared.plot(loads, part_of(rows, "static", policy), policy, f"C{k}")
    loads.set(yscale="log", xlabel="load", ylabel="P(lost)", title="100 servers of 5 circuits")
    for axis in (lost, swing, loads):
        axis.grid(alpha=0.3)
        axis.legend()
    return figure


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status is 0 if every prediction holds."""
    words = "JSQ(d) Erlang loss: blocking, mean field, fluctuations."
    return shared.run("jsq_loss", words, study, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
