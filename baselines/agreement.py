"""Theory against simulation over all models, with z-scores: the exact values of
`baselines.reference`, and those of `baselines.exact_cases`.

    python -m baselines.agreement             # a standard error of 0.25 % each: 20 minutes
    python -m baselines.agreement --quick     # of 2 %: under a minute

Each case runs with its own seed, as independent replications (100; each begins with a warm-up and
is longer than 50 relaxation times), as many jobs as a pilot run says are needed. A z-score is the
difference over its standard error from the spread of the replications, put on the normal scale
(Student's t). Quantities that are constant (0 or 1) must be met exactly; a probability with fewer
than 100 expected events is judged by an exact Poisson test.

The verdict: no |z| of 4.5 or more; over one z a run (its quantities take turns), M of them, |mean|
below 3/sqrt(M) and standard deviation within 1 +- 3/sqrt(2M). A run that fails is done once more,
with a fresh seed and four times the jobs.

A full run can be interrupted: finished cases are kept and not run again. It writes
``baselines/results/agreement.json`` and ``docs/agreement.md``.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, poisson, t
from tqdm import tqdm

from baselines.exact_cases import exact_cases
from baselines.reference import Case, cases
from lbgym import CarSharing, FlowNetwork
from lbgym._version import __version__
from lbgym.simulate import Result, simulate

RESULTS = Path(__file__).parent / "results" / "agreement.json"
PARTIAL = RESULTS.with_suffix(".partial.jsonl")
PAGE = Path(__file__).parent.parent / "docs" / "agreement.md"

LARGEST_Z = 4.5
FEWEST_EVENTS = 100
RETRY_FACTOR = 4
MARGIN = 1.3  # jobs above what a pilot asks for: its errors are estimates too

Floats = NDArray[np.float64]

# Quantity -> the two totals whose ratio it is.
RATIOS = {
    "EN": ("area", "clock"),
    "P_wait": ("waited", "accepted"),
    "P_block": ("blocked", "arrivals"),
    "messages": ("sent", "arrivals"),
    "withdrawals": ("withdrawn", "arrivals"),
    "migrations": ("migrations", "clock"),
    "cost": ("cost", "arrivals"),
    "loss": ("lost_weight", "arrivals"),
    "T": ("balancing_time", "arrivals"),
    "accepted": ("accepted", "arrivals"),
    "no_car": ("area_empty", "station_time"),
    "no_space": ("area_full", "station_time"),
    "problematic": ("area_problematic", "station_time"),
}
PROBABILITIES = ("P_wait", "P_block")

# The flagship under policies without exact values: published estimates of the cost, and how near.
FLAGSHIP_COSTS = {
    "pull": 2.676,
    "pull(fallback=weighted-random, choice=fastest)": 1.805,
    "pull(fallback=wrr, choice=fastest)": 1.545,
    "sed": 1.036,
    "jsed(ties=fastest)": 0.923,
}
WITHIN = 0.015


@dataclass(frozen=True)
class Settings:
    """How long to run.

    error : wanted standard error of each value, relative
    replications, relaxations : how many, and their least length in relaxation times
    """

    error: float
    replications: int
    relaxations: float
    threads: int
    seed: int


FULL = Settings(error=0.0025, replications=100, relaxations=50, threads=2, seed=1)
QUICK = Settings(error=0.02, replications=20, relaxations=20, threads=2, seed=1)


@dataclass(frozen=True)
class Row:
    """One quantity of one run; `test` is "normal", "constant" or "poisson"."""

    case: str
    policy: str
    quantity: str
    theory: float
    simulated: float
    error: float
    z: float
    test: str
    jobs: int
    seconds: float
    seed: int
    attempt: int
    source: str

    @property
    def passes(self) -> bool:
        return abs(self.z) < LARGEST_Z


# --- one case -------------------------------------------------------------------------------------
def totals(result: Result, groups: int) -> dict[str, Floats]:
    """Totals of each replication, or of groups of episodes; shapes (groups,)."""
    sums = {
        name: values[: len(values) - len(values) % groups].reshape(groups, -1).sum(axis=1)
        for name, values in result.batches.items()
        if values.ndim == 1
    }
    if "blocked" in sums:
        sums["accepted"] = sums["arrivals"] - sums["blocked"]
        sums["cost"] = sums["area"] + result.loss_charge * sums["blocked"]
    if "area_empty" in sums:
        sums["station_time"] = sums["clock"] * result.system.stations
        sums["area_problematic"] = sums["area_empty"] + sums["area_full"] - sums["area_both"]
    return sums


def mean_and_error(sums: Mapping[str, Floats], quantity: str) -> tuple[float, float]:
    """A quantity and its standard error from the spread of the replications."""
    above, below = (sums[name] for name in RATIOS[quantity])
    mean = above.sum() / below.sum()
    if len(above) < 2:
        return float(mean), math.nan
    spread = ((above - mean * below) ** 2).sum() * len(above) / (len(above) - 1)
    return float(mean), float(math.sqrt(spread) / below.sum())


def normal_score(difference: float, error: float, replications: int) -> float:
    """Student's t with replications - 1 degrees of freedom, on the normal scale."""
    ratio = difference / error
    tail = norm.isf(t.sf(abs(ratio), replications - 1))
    return math.copysign(float(tail), ratio)


def poisson_score(seen: float, expected: float) -> float:
    """The exact Poisson test of a count, on the normal scale (two-sided, mid-p)."""
    below = poisson.cdf(seen - 1, expected) + poisson.pmf(seen, expected) / 2
    return float(norm.ppf(below))


def is_rare(case: Case, quantity: str, arrivals: float) -> bool:
    expected = case.values[quantity] * arrivals
    return quantity in PROBABILITIES and 0 < expected < FEWEST_EVENTS


def compare(case: Case, result: Result, settings: Settings, attempt: int) -> list[Row]:
    """A row for each known quantity."""
    sums = totals(result, settings.replications)
    rows = []
    for quantity, theory in case.values.items():
        mean, error = mean_and_error(sums, quantity)
        if theory == 0 or (theory == 1 and quantity in PROBABILITIES):
            test, z = "constant", 0.0 if mean == theory else math.inf
        elif is_rare(case, quantity, sums["arrivals"].sum()):
            above, below = (float(sums[name].sum()) for name in RATIOS[quantity])
            test, z = "poisson", poisson_score(above, theory * below)
        else:
            test, z = "normal", normal_score(mean - theory, error, settings.replications)
        rows.append(
            Row(
                case=case.name,
                policy=case.policy,
                quantity=quantity,
                theory=theory,
                simulated=mean,
                error=error,
                z=z,
                test=test,
                jobs=result.jobs,
                seconds=result.seconds,
                seed=result.seed,
                attempt=attempt,
                source=case.source,
            )
        )
    return rows


def relaxation_jobs(case: Case) -> float:
    """Arrivals in one relaxation time, 1 / (1 - sqrt(load))^2 services of the slowest server.

    Without limits, at the load of the M/M/1 queue with as many jobs, if that is higher: some
    policies work their slowest server harder than the rest. Of car sharing ten mean trips; of flow
    networks as of a single queue with as many flows; an episode of a closed system begins afresh.
    """
    if isinstance(case.system, CarSharing):
        return 10 * case.system.total_rate / float(case.system.trip_rates.min())
    if isinstance(case.system, FlowNetwork):
        return case.system.total_rate * (1 + case.values["EN"]) ** 2
    if case.system.closed_jobs is not None:
        return 1.0
    load = case.system.load
    if "EN" in case.values and not np.isfinite(case.system.limits).all():
        load = max(load, case.values["EN"] / (1 + case.values["EN"]))
    load = min(load, 1 / load)
    slowest = float(case.system.speeds.min())
    return case.system.arrival_rate / slowest / (1 - math.sqrt(load)) ** 2


def excess(case: Case, result: Result, settings: Settings) -> float:
    """How many times longer the run should be for the wanted error of every value not rare."""
    sums = totals(result, settings.replications)
    most = 0.0
    for quantity, theory in case.values.items():
        _, error = mean_and_error(sums, quantity)
        if error > 0 and not is_rare(case, quantity, sums["arrivals"].sum()):
            most = max(most, (error / (settings.error * theory)) ** 2)
    return most


def seed_of(case: Case, settings: Settings, stage: str) -> int:
    """A seed of its own for each case, whatever else is run."""
    return zlib.crc32(f"{settings.seed} {case.name} {stage}".encode())


def run(case: Case, settings: Settings) -> list[Row]:
    """A pilot, a run as long as it says (longer if that was not enough), one more if it fails."""

    def simulated(jobs: int, stage: str) -> Result:
        return simulate(
            case.system,
            case.policy,
            jobs=jobs,
            seed=seed_of(case, settings, stage),
            replications=settings.replications,
            threads=settings.threads,
        )

    jobs = least = max(1000, math.ceil(settings.relaxations * relaxation_jobs(case)))
    result = simulated(jobs, "pilot")
    for stage in ("first", "longer", "longest"):
        jobs = max(least, math.ceil(MARGIN * excess(case, result, settings) * jobs))
        result = simulated(jobs, stage)
        if excess(case, result, settings) <= 1:
            break
    rows = compare(case, result, settings, 1)
    if not all(row.passes for row in rows):
        rows = compare(case, simulated(RETRY_FACTOR * jobs, "second"), settings, 2)
    return rows


# --- the flagship where nothing is exact ----------------------------------------------------------
@dataclass(frozen=True)
class NearRow:
    """A cost against a published estimate."""

    policy: str
    published: float
    simulated: float
    half_width: float
    jobs: int
    seconds: float
    seed: int

    @property
    def difference(self) -> float:
        return self.simulated / self.published - 1

    @property
    def passes(self) -> bool:
        return abs(self.difference) < WITHIN


def near(policy: str, settings: Settings, precision: float) -> NearRow:
    """The flagship's cost with a loss charge of 20, to a relative half-width."""
    seed = zlib.crc32(f"{settings.seed} flagship {policy}".encode())
    result = simulate(
        "flagship",
        policy,
        jobs=200_000,
        precision=precision,
        loss_charge=20.0,
        seed=seed,
        replications=settings.threads,
        threads=settings.threads,
    )
    return NearRow(
        policy=policy,
        published=FLAGSHIP_COSTS[policy],
        simulated=result.cost.mean,
        half_width=result.cost.half_width,
        jobs=result.jobs,
        seconds=result.seconds,
        seed=seed,
    )


# --- the verdict ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Verdict:
    """Over all rows the largest |z|; over one z a run the mean and the standard deviation."""

    values: int
    constants: int
    poisson: int
    runs: int
    retried: int
    largest_z: float
    mean_z: float
    spread_z: float

    @property
    def mean_bound(self) -> float:
        return 3 / math.sqrt(self.runs)

    @property
    def spread_bound(self) -> float:
        return 3 / math.sqrt(2 * self.runs)

    @property
    def passes(self) -> bool:
        enough = self.runs < 2 or abs(self.spread_z - 1) < self.spread_bound
        return self.largest_z < LARGEST_Z and abs(self.mean_z) < self.mean_bound and enough

    def __str__(self) -> str:
        return (
            f"{'AGREE' if self.passes else 'DISAGREE'}: {self.values} values "
            f"({self.constants} constants, {self.poisson} by the Poisson test) of {self.runs} runs "
            f"({self.retried} done twice); largest |z| {self.largest_z:.2f} (< {LARGEST_Z}), "
            f"mean z {self.mean_z:+.3f} (within {self.mean_bound:.3f}), "
            f"standard deviation {self.spread_z:.3f} (1 +- {self.spread_bound:.3f})"
        )


def judge(rows: list[Row]) -> Verdict:
    """The verdict on all rows."""
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    chosen = []
    for k, of_case in enumerate(by_case.values()):
        normal = [row.z for row in of_case if row.test == "normal"]
        chosen.append(normal[k % len(normal)])
    return Verdict(
        values=len(rows),
        constants=sum(row.test == "constant" for row in rows),
        poisson=sum(row.test == "poisson" for row in rows),
        runs=len(chosen),
        retried=sum(of_case[0].attempt > 1 for of_case in by_case.values()),
        largest_z=max(abs(row.z) for row in rows),
        mean_z=float(np.mean(chosen)),
        spread_z=float(np.std(chosen, ddof=1)) if len(chosen) > 1 else math.nan,
    )


# --- tables ---------------------------------------------------------------------------------------
HEADINGS = (
    "case",
    "policy",
    "quantity",
    "theory",
    "simulated",
    "std. error",
    "z",
    "jobs",
    "seconds",
)
LEFT = 3  # columns of words


def cells(row: Row) -> list[str]:
    z = {"constant": "exact" if row.passes else "WRONG", "poisson": f"{row.z:+.2f} (Poisson)"}
    return [
        row.case,
        row.policy,
        row.quantity,
        f"{row.theory:.6g}",
        f"{row.simulated:.6g}",
        f"{row.error:.2g}",
        z.get(row.test, f"{row.z:+.2f}"),
        f"{row.jobs:,}",
        f"{row.seconds:.1f}",
    ]


NEAR_HEADINGS = ("flagship", "published", "simulated", "95 % +-", "difference", "jobs", "seconds")


def near_cells(row: NearRow) -> list[str]:
    return [
        row.policy,
        f"{row.published:g}",
        f"{row.simulated:.4f}",
        f"{row.half_width:.4f}",
        f"{row.difference:+.2%}{'' if row.passes else ' TOO FAR'}",
        f"{row.jobs:,}",
        f"{row.seconds:.1f}",
    ]


def aligned(headings: Iterable[str], rows: list[list[str]], left: int) -> str:
    """A table in plain text: words to the left, numbers to the right."""
    lines = [list(headings), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def markdown(headings: Iterable[str], rows: list[list[str]], left: int) -> str:
    """The same table in Markdown."""
    names = list(headings)
    rule = [":--" if k < left else "--:" for k in range(len(names))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (names, rule, *rows))


# --- the whole study ------------------------------------------------------------------------------
def finished(settings: Settings) -> dict[str, list[Row]]:
    """Cases that an interrupted run with the same settings has done, by name."""
    done: dict[str, list[Row]] = {}
    if PARTIAL.exists():
        for line in PARTIAL.read_text(encoding="utf-8").splitlines():
            kept = json.loads(line)
            if kept["settings"] == _asked(settings):
                rows = [Row(**row) for row in kept["rows"]]
                done[rows[0].case] = rows
    return done


def _asked(settings: Settings) -> dict[str, Any]:
    """What decides the numbers: not the threads."""
    return {k: v for k, v in asdict(settings).items() if k != "threads"} | {"version": __version__}


def keep(rows: list[Row], settings: Settings) -> None:
    """Add a finished case to the file of an unfinished run."""
    with PARTIAL.open("a", encoding="utf-8") as file:
        kept = {"settings": _asked(settings), "rows": [asdict(row) for row in rows]}
        file.write(json.dumps(kept) + "\n")


def study(
    chosen: list[Case], settings: Settings, done: dict[str, list[Row]], resumable: bool
) -> list[Row]:
    """All rows of the chosen cases."""
    rows: list[Row] = []
    with tqdm(chosen, unit="case", disable=None) as bar:
        for case in bar:
            bar.set_postfix_str(case.name)
            of_case = done.get(case.name) or run(case, settings)
            if resumable and case.name not in done:
                keep(of_case, settings)
            rows += of_case
    return rows


def study_flagship(settings: Settings, precision: float) -> list[NearRow]:
    """The rows of the flagship."""
    with tqdm(FLAGSHIP_COSTS, unit="policy", disable=None) as bar:
        return [near(policy, settings, precision) for policy in bar]


def write(rows: list[Row], flagship: list[NearRow], settings: Settings) -> None:
    """The numbers as JSON, the tables as a page."""
    verdict = judge(rows)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "command": "python -m baselines.agreement",
        "versions": versions(),
        "settings": asdict(settings),
        "verdict": str(verdict),
        "passes": verdict.passes,
        "rows": [asdict(row) for row in rows],
        "flagship": [asdict(row) for row in flagship],
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(rows, flagship, settings), encoding="utf-8")


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    import numba

    return {
        "lbgym": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def page(rows: list[Row], flagship: list[NearRow], settings: Settings) -> str:
    """The Markdown page."""
    return f"""# Theory and simulation

Made by `python -m baselines.agreement`: every exact value of `baselines/reference_values.json`, and
of the further models as `lbgym.theory.exact` solves them, against `lbgym.simulate`,
{settings.replications} independent replications a case, each case with its own seed,
run to a standard error of {settings.error:.2%} of each value. EN is the mean number in system,
P_wait the waiting probability of accepted jobs, P_block the blocking probability;
messages (pull-messages) and withdrawals are per arrival, migrations per unit time, cost per arrival
with the loss charge, loss the weight lost per arrival, T the balancing time; accepted, no_car,
no_space and problematic are those of car sharing. Constants are met exactly; rare events are
judged by an exact Poisson test.

**{judge(rows)}**

{markdown(HEADINGS, [cells(row) for row in rows], LEFT)}

## The flagship, where nothing is exact

Mean cost per arrival with a loss charge of 20, against published estimates; within
{WITHIN:.1%} is agreement.

{markdown(NEAR_HEADINGS, [near_cells(row) for row in flagship], 1)}
"""


def selected(only: str | None) -> list[Case]:
    """Cases whose name, policy or source contains the text."""
    return [
        case
        for case in [*cases(), *exact_cases()]
        if only is None
        or any(only.lower() in x.lower() for x in (case.name, case.policy, case.source))
    ]


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status: 0 if everything agrees."""
    parser = argparse.ArgumentParser(
        prog="python -m baselines.agreement",
        description="Theory against simulation, with z-scores.",
    )
    parser.add_argument("--quick", action="store_true", help="a standard error of 2 %%, no files")
    parser.add_argument("--only", metavar="TEXT", help="cases with this in name, policy or source")
    parser.add_argument("--threads", type=int, default=2, help="results do not depend on it")
    parser.add_argument("--error", type=float, help="relative standard error (default 0.0025)")
    parser.add_argument("--seed", type=int, default=1, help="of the whole table (default 1)")
    given = parser.parse_args(arguments)
    chosen = selected(given.only)
    if not chosen:
        parser.error(f"--only: no case has {given.only!r} in name, policy or source")
    settings = replace(QUICK if given.quick else FULL, threads=given.threads, seed=given.seed)
    if given.error is not None:
        settings = replace(settings, error=given.error)
    begun = time.perf_counter()
    done = {} if given.quick else finished(settings)
    rows = study(chosen, settings, done, resumable=not given.quick)
    print(aligned(HEADINGS, [cells(row) for row in rows], LEFT))
    flagship = []
    if given.only is None:
        flagship = study_flagship(settings, 0.006 if given.quick else 0.003)
        print("\n" + aligned(NEAR_HEADINGS, [near_cells(row) for row in flagship], 1))
    verdict = judge(rows)
    print(f"\n{verdict}")
    if flagship:
        close = sum(row.passes for row in flagship)
        print(f"flagship: {close} of {len(flagship)} costs within {WITHIN:.1%}")
    print(f"{time.perf_counter() - begun:.0f} s")
    if not given.quick and given.only is None:
        write(rows, flagship, settings)
        PARTIAL.unlink(missing_ok=True)
        print(f"written: {RESULTS}, {PAGE}")
    return 0 if verdict.passes and all(row.passes for row in flagship) else 1


if __name__ == "__main__":
    sys.exit(main())
