"""Classical, learned and optimal policies on the suite: scores, times, paired differences.

    python -m baselines.leaderboard                        # all tasks, about half an hour
    python -m baselines.leaderboard --tasks cars migrate   # these again, the others as they are
    python -m baselines.leaderboard --train --seeds 0-2    # train what has settings, then the above

Learned agents are folders under baselines/models/, settings for training them under
training/settings/suite/. Results are kept in baselines/results/leaderboard.json, and
docs/leaderboard.md is written from them. All policies of a task see the same random numbers, which
no training used and no choice of settings.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baselines.agreement import versions
from lbgym import simulate, suite, theory
from lbgym.cli import Parser, seeds, whole
from lbgym.simulate import Result, paired_difference
from lbgym.standings import AGENT, kinds_of, scaled
from lbgym.stats import Estimate, as_plain
from lbgym.suite import Task

HERE = Path(__file__).parent
MODELS, RESULTS = HERE / "models", HERE / "results" / "leaderboard.json"
PAGE = HERE.parent / "docs" / "leaderboard.md"
SETTINGS = HERE.parent / "training" / "settings" / "suite"
# Arguments of theory.optimal where the reference is the exact optimum of the task.
OPTIMAL: dict[str, dict[str, Any]] = {
    "pair-1-10": {},
    "two-class-loss": {},
    "migrate": {"move_cost": 2.0, "place": "random"},
    "cars": {},
    "flow-rate": {},
}
SEED, REPLICATIONS, JOBS = 4_000_037, 64, 8_000
MORE_JOBS = {"pull-pair": 40_000}  # where a rule is all but matched, which takes longer to see


# --- one policy on one task -----------------------------------------------------------------------
@dataclass(frozen=True)
class Run:
    """A simulated policy."""

    policy: str
    kind: str
    result: Result
    training: dict[str, Any]


def run(task: Task, policy: Any, kind: str, jobs: int, training: Any = None) -> Run:
    """Simulate a policy on a task; warm-up a quarter, as agents start empty."""
    result = simulate(
        task.system,
        policy,
        jobs=jobs,
        warmup=jobs // 4,
        replications=REPLICATIONS,
        seed=SEED,
        loss_charge=task.loss_charge,
        move_cost=task.move_cost,
        max_jobs=100_000,
    )
    return Run(str(result.policy), kind, result, dict(training or {}))


def paired(task: Task, one: Result, other: Result) -> Estimate:
    """The task's cost of `one` minus that of `other`, paired by batch."""
    return scaled(paired_difference(one, other), task.factor)


def models(task: Task) -> list[Path]:
    """The folders of the task's learned agents."""
    return sorted(f.parent for f in MODELS.glob(f"{task.name}-[0-9]*/settings.json"))


def runs_of(task: Task, jobs: int) -> list[Run]:
    """All policies of a task."""
    found = [run(task, name, kind, jobs) for name, kind in kinds_of(task).items()]
    if task.name in OPTIMAL:
        best = theory.optimal(task.system, **OPTIMAL[task.name])
        found.append(run(task, best.policy, "optimal", jobs))
    for folder in models(task):
        training = json.loads((folder / "settings.json").read_text(encoding="utf-8"))["training"]
        found.append(run(task, f"model:{folder}", AGENT, jobs, training))
    return found


# --- rows -----------------------------------------------------------------------------------------
def rows_of(task: Task, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """JSON-able rows; an agent's has its paired differences to all other policies."""
    values = {r.policy: scaled(r.result.cost, task.factor) for r in runs}
    best = min((r for r in runs if r.kind == "rule"), key=lambda r: float(r.result.cost))
    return [_row(task, r, runs, values[r.policy], float(values[best.policy])) for r in runs]


def _row(task: Task, r: Run, runs: Sequence[Run], value: Estimate, best: float) -> dict[str, Any]:
    name = r.policy
    if r.kind == AGENT:
        name = f"model:{Path(r.policy.removeprefix('model:')).name}"
    row = {
        "task": task.name,
        "policy": name,
        "kind": r.kind,
        "value": value,
        "score": task.score(float(value)),
        "closed": task.closed(float(value), best),
        "stable": r.result.stable,
        "jobs": r.result.jobs,
        "microseconds_per_job": 1e6 * r.result.seconds / r.result.jobs,
    }
    if r.kind == AGENT:
        others = [x for x in runs if x.kind != AGENT]
        row["differences"] = {x.policy: paired(task, r.result, x.result) for x in others}
        keys = ("seed", "timesteps", "seconds", "steps_per_second")
        row["training"] = {key: r.training.get(key) for key in keys}
    plain: dict[str, Any] = as_plain(row)
    return plain


def verdict(row: dict[str, Any], rules: Sequence[str]) -> str:
    """Whether an agent beats every rule without parameters, at 95 %."""
    highs = [row["differences"][rule]["high"] for rule in rules]
    lows = [row["differences"][rule]["low"] for rule in rules]
    if max(highs) < 0:
        return "better than every rule"
    return "worse than a rule" if max(lows) > 0 else "undecided"


# --- the page -------------------------------------------------------------------------------------
def page(rows: Sequence[dict[str, Any]]) -> str:
    """The results as Markdown."""
    lines = [
        "# Leaderboard",
        "",
        "Made by `python -m baselines.leaderboard` from `baselines/results/leaderboard.json`; not "
        "edited by hand. Costs (lower is better) with half of their 95 % intervals; score: 0 "
        "choosing blindly, 100 the reference; closed: share of the gap between the best rule "
        "without parameters and the reference. All policies of a task see the same random numbers, "
        "so differences are known better than the costs themselves. Time: of the whole simulation, "
        "per job (agents act through Python, 64 systems at a time; rules are compiled).",
    ]
    lines += ["", *_summary(rows)]
    for task in suite.SUITE.values():
        own = [row for row in rows if row["task"] == task.name]
        if own:
            lines += ["", *_section(task, own)]
    return "\n".join(lines) + "\n"


def _summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each learned agent."""
    lines = [
        "## Learned agents",
        "",
        "All that were trained, not the best of several; the number at the end of a name is the "
        "seed of its training.",
        "",
        "| agent | cost | minus best rule | minus tuned | minus optimum | verdict | training |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in suite.SUITE.values():
        own = [row for row in rows if row["task"] == task.name]
        rules = [row["policy"] for row in own if row["kind"] == "rule"]
        for row in (row for row in own if row["kind"] == AGENT):
            t = row["training"]
            cells = [
                f"`{row['policy']}`",
                f"{row['value']['mean']:.4g}",
                _minus(row, _best_rule(own)),
                _minus_kind(row, own, "tuned", _tuned(task)),
                _minus_kind(row, own, "optimal", "not known"),
                verdict(row, rules),
                f"{t['seconds']:.0f} s, {t['steps_per_second']:,} steps/s",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _section(task: Task, rows: Sequence[dict[str, Any]]) -> list[str]:
    reference = f"{task.reference:.5g} ({task.kind}: {task.source})"
    lines = [
        f"## {task.number}. {task.name}",
        "",
        f"{task.metric}; known: {task.information}. Anchor {task.anchor:.4g}, reference "
        f"{reference}.",
        "",
        "| policy | kind | cost | score | closed | µs a job | training |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: -row["value"]["mean"]):
        value = row["value"]
        half = (value["high"] - value["low"]) / 2
        training = ""
        if "training" in row:
            t = row["training"]
            training = f"{t['timesteps']:,} steps, {t['seconds']:.0f} s"
        lines.append(
            f"| `{row['policy']}` | {row['kind']} | {value['mean']:.4g} ± {half:.2g} | "
            f"{row['score']:.1f} | {row['closed']:.2f} | {row['microseconds_per_job']:.2g} | "
            f"{training} |"
        )
    rules = [row["policy"] for row in rows if row["kind"] == "rule"]
    for row in (row for row in rows if row["kind"] == AGENT):
        lines += ["", f"`{row['policy']}`: {verdict(row, rules)}. {_compared(row, rows)}"]
    return lines


def _best_rule(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row of a task's best rule without parameters."""
    return min((r for r in rows if r["kind"] == "rule"), key=lambda r: r["value"]["mean"])


def _tuned(task: Task) -> str:
    """What is known of a tuned rule that is not among the policies."""
    return "none known" if task.tuned is None else f"{task.tuned:.4g}, not run here"


def _minus_kind(
    row: dict[str, Any], rows: Sequence[dict[str, Any]], kind: str, otherwise: str
) -> str:
    """An agent's difference to the policy of that kind, if there is one."""
    return next((_minus(row, r) for r in rows if r["kind"] == kind), otherwise)


def _minus(row: dict[str, Any], other: dict[str, Any]) -> str:
    """An agent's difference to another policy."""
    d = row["differences"][other["policy"]]
    half, share = (d["high"] - d["low"]) / 2, 100 / other["value"]["mean"]
    return f"{d['mean']:+.4g} ± {half:.2g} ({share * d['mean']:+.2f} ± {share * half:.2f} %)"


def _compared(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """An agent's differences to the best rule, to a tuned one and to the optimum."""
    others = [_best_rule(rows), *(r for r in rows if r["kind"] in ("tuned", "optimal"))]
    said = (f"minus `{x['policy']}`: {_minus(row, x)}" for x in others)
    return "; ".join(said) + "."


# --- training -------------------------------------------------------------------------------------
def train(task: Task, seed: int) -> None:
    """Train an agent by the task's settings and keep its two files."""
    from training import torch_ppo

    name = f"{task.name}-{seed}"
    words = ["--settings", str(SETTINGS / f"{task.name}.toml"), "--seed", str(seed)]
    ended = torch_ppo.main([*words, "--out", "runs", "--name", name, "--fresh"])
    if ended == 130:
        raise KeyboardInterrupt
    if ended:
        raise ValueError(f"train: {name} failed")
    store(Path("runs") / name, name)


def store(folder: Path, name: str) -> None:
    """Copy a trained agent to the leaderboard's models."""
    (MODELS / name).mkdir(parents=True, exist_ok=True)
    for file in ("model.zip", "settings.json"):
        shutil.copy(folder / file, MODELS / name / file)


# --- the command ----------------------------------------------------------------------------------
def main(words: Sequence[str] | None = None) -> int:
    """The command; 0, or 2 for bad arguments."""
    parser = Parser(
        prog="python -m baselines.leaderboard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--tasks", nargs="+", metavar="TASK", help="only these; the others stay as they are"
    )
    parser.add_argument("--jobs", type=whole(1000), help=f"of each of {REPLICATIONS} runs")
    parser.add_argument(
        "--train", action="store_true", help="train first, where there are settings"
    )
    parser.add_argument("--seeds", type=seeds, default=[0, 1, 2], help="of the trainings")
    options = parser.parse_args(words)
    try:
        tasks = suite.read(options.tasks)
        if options.train:
            for task in (t for t in tasks if (SETTINGS / f"{t.name}.toml").is_file()):
                for seed in options.seeds:
                    train(task, seed)
        for task in tasks:
            jobs = options.jobs or MORE_JOBS.get(task.name, JOBS)
            keep(task, rows_of(task, runs_of(task, jobs)))
            print(f"{task.number:2} {task.name}: done", flush=True)
    except (ValueError, ImportError, OSError) as error:
        print(f"baselines.leaderboard: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("baselines.leaderboard: interrupted; what was done is kept", file=sys.stderr)
        return 130
    print(f"written: {RESULTS}, {PAGE}")
    return 0


def keep(task: Task, rows: Sequence[dict[str, Any]]) -> None:
    """Replace a task's rows in the stored results, and make the page anew."""
    old = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.is_file() else []
    order = list(suite.SUITE)
    new = [row for row in old if row["task"] != task.name] + list(rows)
    new.sort(key=lambda row: order.index(row["task"]))
    record = {
        "command": "python -m baselines.leaderboard",
        "seed": SEED,
        "replications": REPLICATIONS,
        "versions": versions(),
        "rows": new,
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(new), encoding="utf-8")


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)  # small networks gain nothing from more
    sys.exit(main())
