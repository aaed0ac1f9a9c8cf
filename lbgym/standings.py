"""What policies are worth on the suite: common random numbers, scores, one table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lbgym.benchmark import canonical, run_benchmark
from lbgym.records import Row, Settings
from lbgym.stats import Estimate, as_plain
from lbgym.suite import Task
from lbgym.tables import Line, tables

__all__ = ["Standing", "run_suite", "standings", "standings_text"]

ANCHOR, RULE, TUNED, AGENT = "anchor", "rule", "tuned", "agent"


@dataclass(frozen=True)
class Standing:
    """A policy on a task.

    kind : "anchor", "rule" (without parameters), "tuned" or "agent" (whatever else was asked for)
    value : the task's cost
    difference : value minus that of the best rule, paired; None for that rule itself
    score : 0 as good as the anchor, 100 as the reference
    closed : share of the gap between the best rule and the reference that is closed
    stable : whether the number in system stays bounded, None if undecided
    """

    task: Task
    policy: str
    kind: str
    value: Estimate
    difference: Estimate | None
    score: float
    closed: float
    stable: bool | None
    jobs: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        plain: dict[str, Any] = as_plain({**vars(self), "task": self.task.name})
        return plain


def kinds_of(task: Task, more: Sequence[str] = ()) -> dict[str, str]:
    """What is run on a task: policy -> kind, by canonical names."""
    tuned = [task.tuned_policy] if task.tuned_policy else []
    groups = ((ANCHOR, [task.anchor_rule]), (RULE, task.rules), (TUNED, tuned), (AGENT, more))
    found: dict[str, str] = {}
    for kind, names in groups:
        for name in names:
            found.setdefault(canonical(name), kind)
    return found


def run_suite(
    tasks: Iterable[Task],
    *,
    more: Mapping[str, Sequence[str]] | None = None,
    seeds: Iterable[int] = range(4),
    jobs: int = 1_000_000,
    replications: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    fresh: bool = False,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Standing]:
    """The rules of each task and, by task name, `more` policies; other arguments as of
    `run_benchmark`, whose folder keeps what is finished."""
    found: list[Standing] = []
    for task in tasks:
        kinds = kinds_of(task, (more or {}).get(task.name, ()))
        rows = run_benchmark(
            [task.system],
            list(kinds),
            seeds=seeds,
            settings=Settings(
                jobs=jobs,
                replications=replications,
                loss_charge=task.loss_charge,
                move_cost=task.move_cost,
            ),
            folder=folder,
            workers=workers,
            fresh=fresh,
            progress=progress,
            say=say,
        )
        found += standings(task, rows, kinds)
    return found


def standings(task: Task, rows: Sequence[Row], kinds: Mapping[str, str]) -> list[Standing]:
    """Score the rows of one task; `kinds` as of `kinds_of`."""
    best = best_rule(tables(rows)[0].lines, kinds)
    (table,) = tables(rows, best)
    least = task.factor * next(float(x.estimates["cost"]) for x in table.lines if x.policy == best)
    found = []
    for line in table.lines:
        value = scaled(line.estimates["cost"], task.factor)
        difference = line.difference
        found.append(
            Standing(
                task=task,
                policy=line.policy,
                kind=kinds[line.policy],
                value=value,
                difference=None if difference is None else scaled(difference, task.factor),
                score=task.score(float(value)),
                closed=task.closed(float(value), least),
                stable=line.stable,
                jobs=line.jobs,
                seconds=line.seconds,
            )
        )
    return found


def best_rule(lines: Sequence[Line], kinds: Mapping[str, str]) -> str:
    """The rule without parameters that costs least."""
    of_rules = [line for line in lines if kinds[line.policy] == RULE]
    return min(of_rules, key=lambda line: float(line.estimates["cost"])).policy


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """A positive multiple of an estimate."""
    return Estimate(float(estimate) * factor, estimate.low * factor, estimate.high * factor)


# --- text -----------------------------------------------------------------------------------------
def standings_text(found: Sequence[Standing]) -> str:
    """One table; a heading for each task says what is measured and what the scores refer to."""
    lines = [f"{'':4}{'policy':50} {'kind':7} {'value':>18} {'score':>7} {'closed':>7}"]
    for task in dict.fromkeys(x.task for x in found):
        lines += ["", f"{task.number:2}  {task.name}: {task.metric} ({task.information})"]
        lines.append(f"    {_known(task)}")
        for x in sorted((x for x in found if x.task == task), key=lambda x: -float(x.value)):
            closed = "" if x.kind == ANCHOR else f"{x.closed:7.2f}"
            warning = "  not stable" if x.stable is False else ""
            value = f"{float(x.value):.4g} ± {x.value.half_width:.2g}"
            lines.append(
                f"    {x.policy:50} {x.kind:7} {value:>18} {x.score:7.1f} {closed:>7}{warning}"
            )
    lines += [
        "",
        "value: lower is better, ± half of the 95 % interval; score: 0 anchor, 100 reference;",
        "closed: share of the gap between the best rule without parameters and the reference.",
    ]
    return "\n".join(lines)


def _known(task: Task) -> str:
    """Anchor, reference and what else is known."""
    said = [f"anchor {task.anchor:.4g}", f"reference {task.reference:.5g} ({task.kind})"]
    if task.tuned is not None:
        said.append(f"tuned {task.tuned:.5g} ({task.tuned_rule})")
    if task.bound is not None:
        said.append(f"bound {task.bound:.3g}")
    return ", ".join(said)
