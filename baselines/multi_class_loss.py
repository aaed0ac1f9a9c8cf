"""Loss systems with classes that need several units: the largest vacancy of d sampled servers.

    python -m baselines.multi_class_loss            # about a minute
    python -m baselines.multi_class_loss --quick    # under 20 seconds, no files

A. Mukhopadhyay, A. Karthik, R. Mazumdar, F. Guillemin, *Mean field and propagation of chaos in
multi-class heterogeneous loss models*, Perf. Eval. 91 (2015). Server i has C_i units, a class-k job
needs A_k of them; the one of d sampled servers with the largest vacancy is chosen, and the job is
lost if even that is too small. Shown, with the blocking probability of each class:

1. *small*: two servers, beside the exact chain;
2. *large*: 200 servers of 5 and of 10 units: d = 1 loses what Kaufman and Roberts' formula says;
   d = 2 loses far less, as its mean field says; d = 3 and d = 5 still less;
3. *room*: sampling all servers is not the best there is: on three servers of 4, 6 and 8 units best
   fit keeps room for the wide jobs (weighted loss .2273 against .3378).

Writes ``baselines/results/multi_class_loss.json`` and ``.png``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from baselines import study as shared
from baselines.study import Row, part_of, repeated, row
from lbgym.simulate import Result, simulate
from lbgym.system import JobClass, Pool, System, as_system

NAMES = ("narrow", "wide")
NEEDS = (1, 2)
# Two servers: units, arrival rates, service rates, d and the exact blocking of each class.
SMALL = (
    ((4, 4), (2.0, 1.0), (1.0, 1.0), 2, (0.029771694218348202, 0.15476700341662433)),
    ((4, 4), (3.0, 2.0), (1.0, 1.0), 1, (0.21539871677360223, 0.457378551787351)),
    ((3, 5), (3.0, 1.5), (1.0, 0.5), 2, (0.157899376213078, 0.49130224567623226)),
)
# Half the servers with 5 and half with 10 units, rates 3 and 1.5 a server: d -> the mean field.
LARGE = 200
LIMITS = {
    1: (0.1692444205017651, 0.33894173098689895),
    2: (0.030444516024087126, 0.1841014888158575),
}
SAMPLES = (1, 2, 3, 5)
ROOM = {"max-vacancy": 0.3378, "best-fit": 0.2273}
ROUNDED = 5e-5


def classes(units: Sequence[int], rates: Sequence[float], speeds: Sequence[float]) -> System:
    """Two classes on servers with these units."""
    kinds = [
        JobClass(share=rate, mean_size=1 / speed, units=need, name=name)
        for rate, speed, need, name in zip(rates, speeds, NEEDS, NAMES, strict=True)
    ]
    pools = [Pool(units.count(c), units=c) for c in sorted(set(units))]
    return System(pools, arrival_rate=sum(rates), classes=kinds)


def by_class(result: Result) -> Sequence[float]:
    return result.blocking_by_class


def small(jobs: int, seed: int) -> Iterator[Row]:
    """Two servers, exactly."""
    for k, (units, rates, speeds, d, exact) in enumerate(SMALL):
        system = classes(units, rates, speeds)
        policy = f"max-vacancy({d})"
        found = repeated(system, policy, by_class, jobs=jobs, seed=seed + k)
        for name, estimate, value in zip(NAMES, found, exact, strict=True):
            yield row(
                "small",
                f"units {units}, rates {rates}, service {speeds}",
                policy,
                f"P_block {name}",
                estimate,
                value,
                x=k,
                jobs=8 * jobs,
                seed=seed + k,
            )


def large(jobs: int, seed: int) -> Iterator[Row]:
    """Many servers: d = 1, the mean field of d = 2, and more samples."""
    half = LARGE // 2
    system = classes([5] * half + [10] * half, (3.0 * LARGE, 1.5 * LARGE), (1.0, 1.0))
    before = (1.0, 1.0)
    for d in SAMPLES:
        policy = f"max-vacancy({d})"
        found = repeated(system, policy, by_class, jobs=jobs, seed=seed + d)
        for k, (name, estimate) in enumerate(zip(NAMES, found, strict=True)):
            limit = LIMITS[d][k] if d in LIMITS else before[k]
            kind = "exact" if d == 1 else "limit" if d in LIMITS else "below"
            yield row(
                "large",
                f"{LARGE} servers, half 5, half 10 units",
                f"{name}, max-vacancy(d)",
                f"P_block {name}, d = {d}",
                estimate,
                limit,
                kind,
                within=0.003 if kind == "limit" else 0.0,
                x=d,
                jobs=8 * jobs,
                seed=seed + d,
            )
        before = (float(found[0]), float(found[1]))


def room(jobs: int, seed: int) -> Iterator[Row]:
    """Weighted loss where wide jobs need room."""
    system = as_system("two-class-loss")
    for k, (policy, exact) in enumerate(ROOM.items()):
        found = simulate(system, policy, jobs=jobs, seed=seed + k)
        said: dict[str, Any] = {"x": k, "jobs": jobs, "seed": seed + k, "within": ROUNDED}
        yield row("room", "two-class-loss", policy, "weighted loss", found.cost, exact, **said)


def study(quick: bool, seed: int) -> list[Row]:
    """All rows."""
    jobs = 100_000 if quick else 800_000
    return [
        *small(jobs, seed),
        *large(2 * jobs, seed + 10),
        *room(8 * jobs, seed + 20),
    ]


def draw(rows: list[Row]) -> Any:
    """Blocking against d, and the two rules on three servers."""
    figure, ((many, three),) = shared.figure(2)
    for k, name in enumerate(NAMES):
        some = part_of(rows, "large", f"{name}, max-vacancy(d)")
        label = f"{name} jobs ({NEEDS[k]} unit{'s' if NEEDS[k] > 1 else ''})"
        shared.plot(many, some, label, f"C{k}")
        known = [(d, value[k]) for d, value in LIMITS.items()]
        label = "mean field" if k == 0 else ""
        many.plot(*zip(*known, strict=True), "o", ms=9, mfc="none", color="black", label=label)
    many.set(
        yscale="log",
        xticks=SAMPLES,
        xlabel="sampled servers d",
        ylabel="P(lost)",
        title=f"{LARGE} servers, half with 5 and half with 10 units",
    )
    some = part_of(rows, "room")
    shared.plot(three, some, "simulated (rings: exact)", "C2", "s")
    three.set(
        xticks=[r.x for r in some],
        xticklabels=[r.policy for r in some],
        xlim=(-0.5, len(some) - 0.5),
        ylim=(0, None),
        ylabel="weighted loss a job",
        title="three servers of 4, 6 and 8 units, jobs of 1 and 4",
    )
    for axis in (many, three):
        axis.grid(alpha=0.3)
        axis.legend()
    return figure


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status is 0 if every prediction holds."""
    words = "Loss systems with classes: the largest vacancy of d sampled servers."
    return shared.run("multi_class_loss", words, study, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
