"""What the studies share: rows of prediction beside simulation, repeated runs, the command line.

A study gives rows and a drawing; `run` prints the rows, and, without ``--quick``, stores them under
``baselines/results/`` with the command, the seed and the versions that made them, and the drawing.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baselines.agreement import aligned, versions
from lbgym import stats
from lbgym.policies import make
from lbgym.simulate import Result, RuleRun, simulate
from lbgym.stats import Estimate

RESULTS = Path(__file__).parent / "results"
REACH = 2.5  # half-widths of a 95 % interval that a true value may be away: 5 standard errors
HEADINGS = ("system", "policy", "quantity", "prediction", "simulated", "95 % interval", "seed", "")

Floats = NDArray[np.float64]


# --- rows -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Row:
    """One number of one run, and what is predicted of it.

    x : where the drawing puts it; kind : "exact", "limit", "above", "below"
        (all of the interval) or "" (only shown)
    within : how far a limit may still be away, absolute
    """

    part: str
    system: str
    policy: str
    quantity: str
    x: float
    simulated: float
    low: float
    high: float
    jobs: int
    seed: int
    prediction: float | None = None
    kind: str = ""
    within: float = 0.0

    @property
    def passes(self) -> bool:
        """Whether the prediction holds."""
        if self.kind == "" or self.prediction is None:
            return True
        if self.kind == "above":
            return self.low > self.prediction
        if self.kind == "below":
            return self.high < self.prediction
        reach = REACH * max(self.high - self.simulated, self.simulated - self.low)
        return abs(self.simulated - self.prediction) <= reach + self.within + 1e-12

    def cells(self) -> list[str]:
        signs = {"above": "> ", "below": "< ", "limit": "-> "}
        predicted = "" if self.prediction is None else f"{self.prediction:.6g}"
        return [
            self.system,
            self.policy,
            self.quantity,
            signs.get(self.kind, "") + predicted,
            f"{self.simulated:.5g}",
            f"{self.low:.4g} .. {self.high:.4g}",
            str(self.seed),
            "" if self.kind == "" else "as predicted" if self.passes else "WRONG",
        ]


def row(
    part: str,
    system: str,
    policy: str,
    quantity: str,
    estimate: Estimate,
    prediction: float | None = None,
    kind: str = "exact",
    **more: Any,
) -> Row:
    """A row from an estimate; without a prediction it is only shown."""
    values = {"x": math.nan, "jobs": 0, "seed": 0} | more
    return Row(
        part,
        system,
        policy,
        quantity,
        simulated=float(estimate),
        low=estimate.low,
        high=estimate.high,
        prediction=prediction,
        kind="" if prediction is None else kind,
        **values,
    )


def part_of(rows: Sequence[Row], part: str, policy: str | None = None) -> list[Row]:
    """The rows of one part of a study, perhaps of one policy, in the order of x."""
    some = [r for r in rows if r.part == part and policy in (None, r.policy)]
    return sorted(some, key=lambda r: r.x)


# --- estimates that `simulate` gives without an interval, or not at all ---------------------------
def mean(values: Sequence[float] | Floats) -> Estimate:
    """Mean of independent values with its 95 % interval."""
    return stats.ratio(np.asarray(values, float), np.ones(len(values)))


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """A positive multiple of an estimate."""
    return Estimate(float(estimate) * factor, estimate.low * factor, estimate.high * factor)


def repeated(
    system: Any,
    policy: str,
    read: Callable[[Result], Sequence[float]],
    *,
    jobs: int,
    seed: int,
    runs: int = 8,
) -> list[Estimate]:
    """What `read` takes from the results of independent runs, with seeds from 1000 seed on."""
    found = [read(simulate(system, policy, jobs=jobs, seed=1000 * seed + k)) for k in range(runs)]
    return [mean(values) for values in np.array(found, dtype=float).T]


def found_by_arrivals(
    system: Any, policy: str, *, jobs: int, every: int, seed: int
) -> Iterator[Floats]:
    """Queue lengths of all servers as every so-many-th arrival finds them.

    A tenth of the jobs is warm-up. Arrivals are Poisson, so means are time averages.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    bound = make(policy, system)
    run = RuleRun(bound, generator, {"max_jobs": 10_000_000, "start": "empty"})
    for goal in range(jobs // 10, jobs, every):
        run.run_to(goal, lambda _: None)
        yield run.state.arrays["servers"]["length"][: system.servers].astype(float)


# --- the command ----------------------------------------------------------------------------------
def figure(panels: int) -> tuple[Any, Any]:
    """An empty figure and its axes, side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(
        1, panels, figsize=(5.2 * panels, 4.4), layout="constrained", squeeze=False
    )


def plot(axis: Any, rows: Sequence[Row], label: str, color: str, fmt: str = "o-") -> None:
    """Simulated values with their intervals against x; exact values as black rings."""
    reach = [[r.simulated - r.low for r in rows], [r.high - r.simulated for r in rows]]
    x, y = [r.x for r in rows], [r.simulated for r in rows]
    axis.errorbar(x, y, reach, fmt=fmt, ms=4, color=color, label=label, capsize=2)
    known = [(r.x, r.prediction) for r in rows if r.kind == "exact"]
    if known:
        axis.plot(*zip(*known, strict=True), "o", ms=9, mfc="none", color="black")


def run(
    name: str,
    description: str,
    study: Callable[[bool, int], list[Row]],
    draw: Callable[[list[Row]], Any],
    arguments: Sequence[str] | None,
) -> int:
    """The command of a study; its exit status is 0 if every prediction holds."""
    parser = argparse.ArgumentParser(prog=f"python -m baselines.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="under 20 seconds, no files")
    parser.add_argument("--seed", type=int, default=1, help="of the first run (default 1)")
    given = parser.parse_args(arguments)
    rows = study(given.quick, given.seed)
    print(aligned(HEADINGS, [r.cells() for r in rows], 3))
    if not given.quick:
        record = {
            "command": f"python -m baselines.{name} --seed {given.seed}",
            "versions": versions(),
            "rows": [asdict(r) | {"passes": r.passes} for r in rows],
        }
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        draw(rows).savefig(RESULTS / f"{name}.png", dpi=120)
        print(f"\nwritten: {RESULTS / name}.json, .png")
    return 0 if all(r.passes for r in rows) else 1
