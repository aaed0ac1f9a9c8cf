"""`simulate` for car sharing and flow networks: runs, what is noted along them, results.

The loop over batches, replications, threads and precision is that of `lbgym.simulate`; the
estimators are those of `lbgym.stats`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym import stats
from lbgym.engine import layout
from lbgym.kinds import kind_of
from lbgym.measures import Totals
from lbgym.simulate import CHUNK, RuleGroup, RuleRun
from lbgym.stats import Estimate

from . import car_engine, flow_engine
from .car_sharing import CarSharing
from .flow_network import FlowNetwork
from .machine import Machine, Rule

Floats = NDArray[np.float64]
NO_HISTOGRAMS = np.zeros((0, 0), np.int64)


# --- runs -----------------------------------------------------------------------------------------
@dataclass
class ModelTrack:
    """What was noted along one run: running totals at each batch boundary."""

    totals: list[dict[str, Any]] = field(default_factory=list)
    overloaded: bool = False

    def note(self, state: Any) -> None:
        """Note where the run stands."""
        self.totals.append(state.totals())

    def note_overload(self, state: Any) -> None:
        """The run ends here, with too many jobs; if in its warm-up, all of it counts."""
        self.overloaded = True
        if not self.totals:
            now = state.totals()
            self.totals = [{name: 0.0 * np.asarray(x) for name, x in now.items()}]
        self.note(state)

    def join_pairs(self) -> None:
        """Make batches twice as long (an odd last one stays as it is)."""
        del self.totals[1:-1:2]


class ModelRun(RuleRun):
    """One replication of a compiled policy."""

    state: Any
    track: Any

    def __init__(self, rule: Rule, generator: np.random.Generator, options: dict[str, Any]):
        engine, kind = ENGINES[rule.system.KIND]
        self.rule, self.loop = rule.ready(), engine.run.ready()
        self.state: Machine = kind.under(rule, max_jobs=options["max_jobs"])
        self.state.seed(generator)
        self.state.begin(options["start"])
        self.track = ModelTrack()
        self.name = rule.name

    def run_to(self, arrivals: int, progress: Callable[[int], None]) -> None:
        """Go on until so many have arrived."""
        state = self.state
        done = int(state.world[0]["arrivals"])
        while done < arrivals:
            state.rest(min(done + CHUNK, arrivals))
            status = self.loop(state.address, self.rule)
            if status == layout.GROW:
                state.grow()
            elif status == layout.INVALID:
                raise ValueError(f"policy {self.name}: chose {state.world[0]['action']}")
            now = int(state.world[0]["arrivals"])
            progress(now - done)
            done = now


class ModelGroup(RuleGroup):
    """Replications of a policy, on threads."""

    def __init__(
        self,
        system: CarSharing | FlowNetwork,
        policy: Any,
        generators: Sequence[np.random.Generator],
        options: dict[str, Any],
        threads: int,
    ):
        engine, _ = ENGINES[system.KIND]
        rule = engine.make(policy, system)
        self.name, self.information = rule.name, rule.information
        self.threads = threads
        self.runs = [ModelRun(rule, generator, options) for generator in generators]


ENGINES: dict[str, Any] = {
    CarSharing.KIND: (car_engine, car_engine.CarState),
    FlowNetwork.KIND: (flow_engine, flow_engine.FlowState),
}


# --- results --------------------------------------------------------------------------------------
@dataclass(frozen=True, repr=False)
class ModelResult:
    """What every result has. Each estimate is a number with ``.mean .low .high`` (95 %).

    counts : exact integers since time 0
    jobs, events, seconds : arrivals, events and wall time of all replications
    batches : totals of each batch, by name; (batches,) or (batches, classes)
    """

    system: Any
    policy: str
    information: str
    seed: int
    replications: int
    cost: Estimate
    counts: dict[str, int]
    jobs: int
    warmup: int
    events: int
    seconds: float
    batches: dict[str, Floats]
    loss_charge: float
    move_cost: float

    @property
    def histograms(self) -> NDArray[np.int64]:
        """Of the response time, shape (batches, bins): none are kept, so (0, 0)."""
        return NO_HISTOGRAMS

    def batch_costs(self) -> tuple[Floats, Floats]:
        """Total cost and number of arrivals of each batch; shapes (batches,)."""
        charges = self.loss_charge, self.move_cost
        totals = Totals(self.system, self.batches, *charges, NO_HISTOGRAMS)
        costs: Floats = kind_of(self.system).part("measures").costs(totals)
        return costs, self.batches["arrivals"]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: every field but the batches."""
        shown = {k: v for k, v in self.__dict__.items() if k not in ("system", "batches")}
        plain: dict[str, Any] = stats.as_plain({**shown, "system": self.system.to_dict()})
        return plain

    def __repr__(self) -> str:
        lines = [f"{self.policy} on {self.system.describe()}"]
        for name, value in self.__dict__.items():
            if isinstance(value, Estimate):
                lines.append(f"  {name:22} {value}")
            elif isinstance(value, tuple) and value and isinstance(value[0], Estimate):
                lines.append(f"  {name:22} {', '.join(map(str, value))}")
        lines.append(f"  {self.jobs:,} arrivals in {self.seconds:.2f} s, seed {self.seed}")
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class CarSharingResult(ModelResult):
    """What a simulation of car sharing estimates.

    cost : loss charge (1 unless given) x (1 - accepted), per user
    no_car, no_space : share of the stations without a car, without a space; `problematic`: either
    accepted : share of the users
    cars_on_road : their number
    """

    no_car: Estimate
    no_space: Estimate
    problematic: Estimate
    accepted: Estimate
    cars_on_road: Estimate
    stable: bool = True


@dataclass(frozen=True, repr=False)
class FlowResult(ModelResult):
    """What a simulation of a flow network estimates.

    cost : mean number of flows over their arrival rate: the mean duration of a flow
    jobs_in_system : flows of all classes; `flows`, `flow_duration` by class
    growth : flows gained per unit time; `growth_by_class`; `stable` True, False or None (undecided)
    """

    jobs_in_system: Estimate
    response_time: Estimate
    flows: tuple[Estimate, ...]
    flow_duration: tuple[Estimate, ...]
    growth: Estimate
    growth_by_class: tuple[Estimate, ...]
    stable: bool | None


def _batches(runs: Sequence[ModelRun]) -> dict[str, Floats]:
    """Totals of each batch, one replication after another."""
    names = runs[0].track.totals[0]
    return {
        name: np.concatenate(
            [np.diff(np.array([t[name] for t in run.track.totals]), axis=0) for run in runs]
        )
        for name in names
    }


def model_result(
    runs: Sequence[ModelRun], system: Any, seconds: float, given: Mapping[str, Any]
) -> ModelResult:
    """What the runs say."""
    b = _batches(runs)
    worlds = [run.state.world[0] for run in runs]
    engine, _ = ENGINES[system.KIND]
    common: dict[str, Any] = {
        "system": system,
        "policy": given["name"],
        "information": given["information"],
        "seed": given["seed"],
        "replications": len(runs),
        "counts": {name: sum(int(w[name]) for w in worlds) for name in engine.COUNTS},
        "jobs": sum(int(w["arrivals"]) for w in worlds),
        "warmup": min(given["warmup"], *(int(r.track.totals[0]["arrivals"]) for r in runs)),
        "events": sum(int(w["events"]) for w in worlds),
        "seconds": seconds,
        "batches": b,
        "loss_charge": given["loss_charge"],
        "move_cost": given["move_cost"],
    }
    measures = kind_of(system).part("measures")
    totals = Totals(system, b, common["loss_charge"], common["move_cost"], NO_HISTOGRAMS)
    estimates = measures.estimates(totals)
    if isinstance(system, CarSharing):
        return CarSharingResult(**common, **estimates)
    stable = measures.stable(totals, len(runs))
    overloaded = any(run.track.overloaded for run in runs)
    return FlowResult(**common, **estimates, stable=False if overloaded else stable)
