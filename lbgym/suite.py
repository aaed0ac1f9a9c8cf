"""The suite: twelve tasks with what is known of each, and what a policy is worth on them.

Of every task the cost is known that choosing blindly has (the anchor, score 0) and the least that
is known to be possible (the reference, score 100), where it comes from, and the rules that have the
same information as an agent.

>>> from lbgym import suite
>>> suite.get("pair-1-10").score(2.7470)
100.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from lbgym import scenarios
from lbgym.suggest import unknown

__all__ = ["SUITE", "Task", "get", "read"]

EXACT, FULL, KNOWN = "exact optimum", "full information", "best known"
MESSAGES = "own pull-messages and own memory"
SCALE = 20.0  # of the discount exp(-dt / SCALE), in mean service times of a speed-1 server


@dataclass(frozen=True, eq=False)
class Task:
    """A system, what an agent sees and does there, and what is known of the cost.

    Every cost is one for which lower is better.

    Attributes
    ----------
    number, name : int, str
        Place in the suite; the scenario's name.
    information : str
        What an agent knows; `rules` know no more.
    env : str
        Id of the environment.
    arguments : mapping
        Of the environment, besides the system.
    metric : str
        What is measured, in words.
    per_time : bool
        Whether it is the cost per unit time; else per arrival.
    anchor, anchor_rule : float, str
        Cost of the rule that chooses blindly, score 0.
    rules : tuple of str
        Rules without parameters.
    tuned : float or None
        Cost of the best rule known with a parameter tuned for this system.
    tuned_rule, tuned_policy : str
        What it does, and its name if it has one here.
    reference, kind, source : float, str, str
        Score 100; an exact optimum of this very task, a policy that sees everything (a ceiling, not
        a target), or the best known; and how it was found.
    bound : float or None
        No policy whatsoever costs less; where the reference is not exact.
    loss_charge : float or None
        Of a lost job; None: the system's own.
    move_cost : float
        Of a migration.
    scale : float
        Of the discount, in mean service times of a speed-1 server.
    """

    name: str
    information: str
    env: str
    arguments: Mapping[str, Any]
    metric: str
    anchor: float
    anchor_rule: str
    rules: tuple[str, ...]
    reference: float
    kind: str
    source: str
    per_time: bool = False
    tuned: float | None = None
    tuned_rule: str = ""
    tuned_policy: str = ""
    bound: float | None = None
    loss_charge: float | None = None
    move_cost: float = 0.0
    scale: float = SCALE
    number: int = 0

    @property
    def system(self) -> Any:
        """What is simulated."""
        return scenarios.get(self.name)

    @property
    def factor(self) -> float:
        """What turns a cost per arrival, as in `Result.cost`, into the task's."""
        if not self.per_time:
            return 1.0
        flows = getattr(self.system, "flows", None)
        if flows is not None:
            return float(sum(flow.arrival_rate for flow in flows))
        return float(self.system.arrival_rate)

    def score(self, value: float) -> float:
        """0 for the anchor, 100 for the reference."""
        return 100.0 * (self.anchor - value) / (self.anchor - self.reference)

    def closed(self, value: float, best: float) -> float:
        """Share of the gap between the best rule's cost and the reference that a cost closes."""
        return (best - value) / (best - self.reference)

    def make(self, **others: Any) -> Any:
        """The environment, by ``gymnasium.make``."""
        import gymnasium

        return gymnasium.make(self.env, **self.keywords(others))

    def make_vec(self, num_envs: int, **others: Any) -> Any:
        """The native vector environment, by ``gymnasium.make_vec``."""
        import gymnasium

        return gymnasium.make_vec(self.env, num_envs=num_envs, **self.keywords(others))

    def keywords(self, others: Mapping[str, Any]) -> dict[str, Any]:
        """The environment's arguments; `others` come last."""
        prices: dict[str, Any] = {"system": self.name}
        if self.loss_charge is not None:
            prices["loss_charge"] = self.loss_charge
        if self.move_cost:
            prices["move_cost"] = self.move_cost
        return {**prices, **self.arguments, **others}


def _task(name: str, **parts: Any) -> Task:
    arguments = MappingProxyType(parts.pop("arguments"))
    return Task(name=name, arguments=arguments, **parts)


_DISPATCH = "lbgym/MultiRouter-v0"
_LOCAL = ("message", "message_age", "sent", "sent_age", "speed", "limit")
_PULL = (
    "wrr",
    "pull",
    "pull(fallback=weighted-random, choice=fastest)",
    "pull(fallback=wrr, choice=fastest)",
)

_ALL = (
    _task(
        "pair-1-10",
        information="all queue lengths",
        env=_DISPATCH,
        arguments={"observe": ("queue", "speed")},
        metric="jobs in system",
        per_time=True,
        anchor=14 / 3,
        anchor_rule="weighted-random",
        rules=("jsq", "sed", "jsed(ties=fastest)", "fpi"),
        tuned=2.7513,
        tuned_rule="the slow server from 4 jobs at the fast one on",
        tuned_policy="threshold(4)",
        reference=2.7470,
        kind=EXACT,
        source="theory.optimal",
    ),
    _task(
        "triple-two-probes",
        information="two uniform probes a job, own memory; any server",
        env=_DISPATCH,
        arguments={
            "observe": ("last_probe", "sent_since_probe", "probe_age", "candidate", "speed")
        },
        metric="jobs in system",
        per_time=True,
        anchor=7.0,
        anchor_rule="weighted-random",
        rules=("wrr", "jsq(2, memory=1)", "lsq(2)", "static(0, 0, 1)", "sed(2, own-sends=1)"),
        tuned=3.234,
        tuned_rule="least (last probe + own sends since + 1/2) / mu",
        tuned_policy="index(0.5, 2, own-sends=1)",
        reference=3.1320,
        kind=FULL,
        source="theory.optimal, which sees every queue",
    ),
    _task(
        "flagship",
        information=MESSAGES,
        env=_DISPATCH,
        arguments={"observe": _LOCAL},
        metric="cost per job",
        anchor=3.957,
        anchor_rule="weighted-random",
        rules=_PULL,
        tuned=1.37,
        tuned_rule="local counters",
        reference=0.923,
        kind=FULL,
        source="jsed(ties=fastest), simulated",
        bound=0.791,
        loss_charge=20.0,
    ),
    _task(
        "split-80-20",
        information=MESSAGES,
        env=_DISPATCH,
        arguments={"observe": (*_LOCAL, "backlog")},
        metric="cost per job",
        anchor=3.957,
        anchor_rule="weighted-random",
        rules=_PULL,
        tuned=1.339,
        tuned_rule="local counters",
        reference=0.925,
        kind=FULL,
        source="jsed(ties=fastest), simulated",
        bound=0.791,
        loss_charge=20.0,
    ),
    _task(
        "pull-pair",
        information=MESSAGES,
        env=_DISPATCH,
        arguments={"observe": (*_LOCAL, "backlog")},
        metric="jobs in system",
        per_time=True,
        anchor=18.0,
        anchor_rule="weighted-random",
        rules=(
            "wrr",
            "pull(fallback=wrr, choice=fastest)",
            "pull(fallback=belief, choice=fastest)",
        ),
        reference=9.7839,
        kind=FULL,
        source="theory.optimal, which sees every queue",
    ),
    _task(
        "stale-20",
        information="queues read every 5 units of time, own sends since",
        env="lbgym/StaleInformation-v0",
        arguments={},
        metric="response time",
        anchor=5.0,
        anchor_rule="weighted-random",
        rules=("wrr", "jsed", "sed(own-sends=1)"),
        reference=0.72,
        kind=FULL,
        source="jsed on live queues, simulated",
        bound=0.588,
    ),
    _task(
        "two-class-loss",
        information="jobs of each class in each server",
        env="lbgym/Loss-v0",
        arguments={"observe": ("class_jobs_0", "class_jobs_1", "vacancy", "capacity", "class")},
        metric="weight lost per job",
        anchor=0.5297,
        anchor_rule="random",
        rules=("max-vacancy(2)", "max-vacancy", "best-fit"),
        reference=0.2028,
        kind=EXACT,
        source="theory.optimal",
    ),
    _task(
        "migrate",
        information="queue lengths",
        env="lbgym/LocalSearchOpen-v0",
        arguments={},
        metric="jobs in system and moves per unit time",
        per_time=True,
        anchor=8.0,
        anchor_rule="random",
        rules=("local-search(rule=strict)", "local-search(rule=oblivious)"),
        tuned=5.6013,
        tuned_rule="move if that gains at least 2",
        reference=5.4768,
        kind=EXACT,
        source="theory.optimal",
        move_cost=2.0,
    ),
    _task(
        "cars",
        information="reserved spaces and parked cars",
        env="lbgym/CarSharing-v0",
        arguments={
            "observe": ("reserved", "parked", "space", "arrival_rate", "from_here", "wanted")
        },
        metric="share of users lost",
        anchor=0.6537,
        anchor_rule="requested",
        rules=("two-choice", "least-occupied", "least-parked"),
        tuned=0.3982,
        tuned_rule="fewest cars and reserved spaces per demand",
        tuned_policy="least-per-demand",
        reference=0.3874,
        kind=EXACT,
        source="theory.optimal",
    ),
    _task(
        "flow-rate",
        information="flows of each class",
        env="lbgym/FlowNetwork-v0",
        arguments={},
        metric="flows",
        per_time=True,
        anchor=3.855,
        anchor_rule="fixed-rate(0.25)",
        rules=("fixed-rate(0.5)", "fixed-rate(1)", "fixed-rate(2)"),
        tuned=2.6803,
        tuned_rule="lowest rate if both cross classes are there, else highest",
        reference=2.6803,
        kind=EXACT,
        source="theory.optimal",
    ),
    _task(
        "heavy",
        information="size of the job, work left in each server",
        env=_DISPATCH,
        arguments={"observe": ("work", "speed", "size")},
        metric="response time",
        anchor=5.297,
        anchor_rule="random",
        rules=("round-robin", "jsq", "sita", "lwl"),
        reference=2.158,
        kind=KNOWN,
        source="a tuned rule, simulated",
    ),
    _task(
        "bursts",
        information=MESSAGES,
        env=_DISPATCH,
        arguments={"observe": (*_LOCAL, "backlog")},
        metric="cost per job",
        anchor=3.70,
        anchor_rule="weighted-random",
        rules=_PULL,
        reference=1.83,
        kind=FULL,
        source="jsed(ties=fastest), simulated",
        bound=1.69,
        loss_charge=20.0,
    ),
)

SUITE: dict[str, Task] = {task.name: replace(task, number=k) for k, task in enumerate(_ALL, 1)}


def get(name: str) -> Task:
    """The task of that name; ValueError with the nearest name if there is none."""
    if name not in SUITE:
        raise ValueError(f"task: {unknown('task', name, SUITE)}")
    return SUITE[name]


def read(names: Sequence[str] | None) -> list[Task]:
    """The tasks of these names, of which one may be several ("cars,migrate"), each once; all for
    None."""
    if names is None:
        return list(SUITE.values())
    found = [name.strip() for several in names for name in several.split(",")]
    return list({name: get(name) for name in found}.values())
