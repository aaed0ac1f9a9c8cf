"""Random local search: jobs that migrate balance quickly, and make systems stable.

    python -m baselines.local_search            # two minutes
    python -m baselines.local_search --quick    # under 20 seconds, no files

A. Ganesh, S. Lilienthal, D. Manjunath, A. Proutiere, F. Simatos, *Load balancing via random local
search in closed and open systems* (2012); P. Berenbrink, P. Kling, C. Liaw, A. Mehrabian, *Tight
load balancing via randomized local search* (2017). Every job looks at a random server at rate beta
and moves if that gives it a larger share of speed (RLS), or always (RLO).

Closed, m jobs on n servers, beta = 1, T the time until no server holds two more than another:

1. *bound*: E[T] / (ln n + n^2 / m) stays bounded for n = 10 .. 10,000 (all jobs in one server);
2. *small*: the exact means of small systems;
3. *last step*: with one server one over and one server one under k = m / n, E[T] = n / (k + 1);
4. *destructive*: moves that undo a move of RLS (1, 2, 3 of them) never make T shorter.

Open, processor sharing:

5. *stability*: where static placement overloads a server (arrival rates 1.2 and .6 at speeds 1 and
   2: .2 more jobs per unit time), RLS and RLO are stable for any beta;
6. *open*: E[N] of RLS and RLO on two equal servers, load .8, beside the exact chain, between M/M/2
   (4.4444: beta -> infinity) and two M/M/1 (8: beta = 0).

Writes ``baselines/results/local_search.json`` and ``.png``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from baselines import study as shared
from baselines.study import Row, part_of, row
from lbgym import theory
from lbgym.simulate import simulate, simulate_closed
from lbgym.stats import Estimate
from lbgym.system import Pool, System

# Of E[T] / (ln n + n^2 / m). While h servers are one over and h one under k = m / n, a job moves
# at rate h^2 (k + 1) / n; summed over h, that is pi^2/6 k / (k + 1): .82 for k = 1, 1.32 for k = 4.
BOUND = 2.0
SIZES = {10: 4000, 30: 2000, 100: 1000, 300: 300, 1000: 100, 3000: 10, 10_000: 3}  # n: episodes
SMALL = {(3, 6): 81 / 40, (4, 10): 235208503969 / 132927434640, (10, 40): 4.95774892504}
LAST_STEP = ((5, 20), (8, 8), (8, 16), (100, 400))
SPLIT = "static(0.6666666666666666, 0.3333333333333333)"
# E[N] on two equal servers, load .8, beta 1: the exact chain.
OPEN = {"strict": 4.93462597763, "oblivious": 5.43639548806}
BETAS = (0.2, 1.0, 5.0, 25.0)


# --- closed ---------------------------------------------------------------------------------------
def balancing(
    n: int, m: int, episodes: int, seed: int, start: Sequence[int] | None = None
) -> Estimate:
    """Mean time until the loads are balanced, from one server (or from `start`)."""
    system = System(Pool(n), closed_jobs=m, migration_rate=1.0)
    policy = "local-search(rule=strict)"
    found = simulate_closed(system, policy, episodes, seed, start, 0.0, None)
    assert found.balancing_time is not None
    return found.balancing_time


def bound(largest: int, effort: float, seed: int) -> Iterator[Row]:
    """E[T] over ln n + n^2 / m."""
    for factor in (1, 4):
        for n, episodes in SIZES.items():
            if n > largest:
                continue
            number = max(3, round(episodes * effort))
            time = balancing(n, factor * n, number, seed)
            yield row(
                "bound",
                f"closed, n {n:,}, m {factor * n:,}",
                f"RLS, m = {factor} n" if factor > 1 else "RLS, m = n",
                "E[T] / (ln n + n^2 / m)",
                shared.scaled(time, 1 / (math.log(n) + n / factor)),
                BOUND,
                "below",
                x=n,
                jobs=number,
                seed=seed,
            )


def small(episodes: int, seed: int) -> Iterator[Row]:
    """Small systems and the last step, exactly."""
    said: dict[str, Any] = {"jobs": episodes, "seed": seed}
    for (n, m), exact in SMALL.items():
        time = balancing(n, m, episodes, seed)
        name = f"closed, n {n}, m {m}, all in one"
        yield row("small", name, "RLS", "E[T]", time, exact, x=n, **said)
    for n, m in LAST_STEP:
        k = m // n
        time = balancing(n, m, episodes, seed, [k + 1, *[k] * (n - 2), k - 1])
        name = f"closed, n {n}, m {m}, one over, one under"
        yield row("last step", name, "RLS", "E[T]", time, n / (k + 1), x=n, **said)


def destructive(episodes: int, seed: int) -> Iterator[Row]:
    """Moves that undo one of RLS: from no higher a load to another no lower."""
    n, k = 8, 4
    loads = [k] * n
    before = 0.0
    for moves in range(1, 5):
        loads[0] += 1
        loads[-1] -= 1
        time = balancing(n, n * k, episodes, seed, loads)
        yield row(
            "destructive",
            f"closed, n {n}, m {n * k}, {moves} destructive moves",
            "RLS",
            "E[T]",
            time,
            before,
            "above",
            x=moves,
            jobs=episodes,
            seed=seed,
        )
        before = float(time)


# --- open -----------------------------------------------------------------------------------------
def stability(jobs: int, seed: int) -> Iterator[Row]:
    """Unstable without migration, stable with any."""
    pools = [Pool(1, speed=s, discipline="ps") for s in (1.0, 2.0)]
    # In turn or shared, exponential jobs leave at the same rate; long lines are quicker in turn.
    still = System([Pool(1, speed=1.0), Pool(1, speed=2.0)], arrival_rate=1.8)
    cases = [(still, SPLIT, 0.2)]
    for rate in (0.1, 1.0):
        moving = System(pools, arrival_rate=1.8, migration_rate=rate)
        cases += [(moving, f"local-search(rule={rule}, place={SPLIT})", 0.0) for rule in OPEN]
    for system, policy, growth in cases:
        found = simulate(system, policy, jobs=jobs, seed=seed)
        yield row(
            "stability",
            f"open, rates 1.2 .6, speeds 1 2, beta {system.migration_rate:g}",
            policy.split(", place")[0].replace("local-search(rule=", "") if growth == 0 else "none",
            f"growth (stable: {found.stable})",
            found.growth,
            growth,
            x=system.migration_rate,
            jobs=jobs,
            seed=seed,
        )


def opened(jobs: int, seed: int) -> Iterator[Row]:
    """E[N] against beta."""
    for k, beta in enumerate(BETAS):
        system = System(Pool(2, discipline="ps"), load=0.8, migration_rate=beta)
        for rule, at_one in OPEN.items():
            policy = f"local-search(rule={rule})"
            exact = at_one if beta == 1 else theory.exact(system, policy).jobs_in_system
            found = simulate(system, policy, jobs=jobs, seed=seed + k)
            yield row(
                "open",
                f"open, 2 equal, load .8, beta {beta:g}",
                rule,
                "E[N]",
                found.jobs_in_system,
                exact,
                x=beta,
                jobs=jobs,
                seed=seed + k,
            )


def study(quick: bool, seed: int) -> list[Row]:
    """All rows."""
    return [
        *bound(1000 if quick else 10_000, 0.25 if quick else 1.0, seed),
        *small(2000 if quick else 10_000, seed + 1),
        *destructive(2000 if quick else 10_000, seed + 2),
        *stability(300_000 if quick else 1_000_000, seed + 3),
        *opened(200_000 if quick else 1_500_000, seed + 4),
    ]


def draw(rows: list[Row]) -> Any:
    """The bound, and E[N] against beta."""
    figure, ((closed, opens),) = shared.figure(2)
    for k, policy in enumerate(("RLS, m = n", "RLS, m = 4 n")):
        shared.plot(closed, part_of(rows, "bound", policy), policy, f"C{k}")
    closed.set(
        xscale="log",
        ylim=(0, None),
        xlabel="servers n",
        ylabel="E[T] / (ln n + n²/m)",
        title="closed: balancing time from all jobs in one server",
    )
    for k, rule in enumerate(OPEN):
        label = {"strict": "RLS", "oblivious": "RLO"}[rule]
        shared.plot(opens, part_of(rows, "open", rule), label, f"C{k}")
    opens.axhline(8, color="gray", ls=":", lw=1, label="no migration: two M/M/1")
    opens.axhline(40 / 9, color="gray", ls="--", lw=1, label="M/M/2")
    opens.set(
        xscale="log",
        xlabel="rate beta of looking at another server",
        ylabel="E[N]",
        title="open: two equal servers, load .8 (rings: exact)",
    )
    for axis in (closed, opens):
        axis.grid(alpha=0.3)
        axis.legend()
    return figure


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status is 0 if every prediction holds."""
    words = "Random local search: balancing time, stability, migration."
    return shared.run("local_search", words, study, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
