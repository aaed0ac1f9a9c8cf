"""What a trained model is worth: its cost beside that of other policies, by `lbgym.simulate`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbgym.cli import progress_bar
from lbgym.report import show, show_difference
from lbgym.sb3 import load_agent
from lbgym.simulate import Result, paired_difference, simulate
from lbgym.stats import Estimate, as_plain
from lbgym.torch_agent import read_settings, write_settings

CHOICE_SEED, SEED = 2_000_003, 1_000_003  # random numbers that no training uses


@dataclass(frozen=True)
class Evaluation:
    """Results of a model and of others; a difference is the model's cost minus the other's."""

    agent: Result
    others: list[Result]
    differences: list[Estimate]

    def __str__(self) -> str:
        r = self.agent
        lines = [
            f"cost per arrival on {r.system.name or r.system.describe()}, loss charge "
            f"{r.loss_charge:g} (95 %; {r.replications} x {r.jobs // r.replications:,} jobs)",
            f"  {show(r.cost):14} {r.policy}",
        ]
        for other, difference in zip(self.others, self.differences, strict=True):
            minus = show_difference(difference).strip()
            lines.append(f"  {show(other.cost):14} {other.policy}; the model's minus it: {minus}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        pairs = zip(self.others, self.differences, strict=True)
        others = [{**other.to_dict(), "difference": d} for other, d in pairs]
        plain: dict[str, Any] = as_plain({"agent": self.agent.to_dict(), "others": others})
        return plain


def run(folder: Path, policy: Any, **same: Any) -> Result:
    """A simulation, with progress, of the system that the model in `folder` was trained on."""
    kwargs = read_settings(folder, f"model:{folder}")["environment"]
    prices = {k: kwargs[k] for k in ("loss_charge", "move_cost") if k in kwargs}
    with progress_bar("evaluate") as progress:
        return simulate(kwargs["system"], policy, progress=progress, **prices, **same)


def choose_how_to_act(folder: Path, jobs: int, replications: int) -> dict[str, float]:
    """Take the likeliest action, or draw it: from now on the model does what costs less.

    An argmax is often better, but routers that think alike then also err alike.
    """
    costs = {}
    for way in ("likeliest", "drawn"):
        agent = load_agent(folder)
        agent.deterministic = way == "likeliest"
        same = {"jobs": jobs, "replications": replications, "seed": CHOICE_SEED}
        costs[way] = run(folder, agent, **same).cost.mean
    settings = read_settings(folder, f"model:{folder}")
    settings["deterministic"] = costs["likeliest"] <= costs["drawn"]
    settings["training"]["cost_by_action"] = costs
    write_settings(folder, settings)
    return costs


def evaluate(folder: Path, against: Sequence[str], jobs: int, replications: int) -> Evaluation:
    """The model beside other policies on common random numbers."""
    same = {"jobs": jobs, "replications": replications, "seed": SEED}
    agent = run(folder, f"model:{folder}", **same)
    others = [run(folder, policy, **same) for policy in against]
    return Evaluation(agent, others, [paired_difference(agent, other) for other in others])


def write(path: Path, data: Any) -> None:
    """JSON-able data as a file."""
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
