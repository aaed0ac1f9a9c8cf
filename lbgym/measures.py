"""What tables say of each kind of system: estimates from batch totals, their columns, their words.

A `Measures` is a row of functions of the system and of a run's totals by batch (see `lbgym.stats`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym import stats
from lbgym.stats import Estimate

__all__ = ["CARS", "DISPATCH", "FLOWS", "Measures", "Totals", "flat"]

Floats = NDArray[np.float64]
Batches = Mapping[str, Floats]


@dataclass(frozen=True)
class Totals:
    """A run's totals by batch, and what is charged.

    batches : by name; shape (batches,) or (batches, classes)
    histograms : of the response time, shape (batches, bins); empty where none are kept
    """

    system: Any
    batches: Batches
    loss_charge: float
    move_cost: float
    histograms: NDArray[np.int64]


@dataclass(frozen=True)
class Measures:
    """What is measured of one kind of system.

    costs : total cost of each batch, shape (batches,)
    estimates : by name, as in the result of `simulate`; a tuple where there is one for each class
    stable : whether the number in system stays bounded, from the totals and the number of runs;
        None where it always does, as tables need not say
    columns : heading and estimate of the columns of a table that differ from the cost
    arrivals : what arrives
    always : headings that are shown even where every line says 0
    words : what the headings mean, with ``{charges}`` for what the loss of a job and a move cost
    """

    costs: Callable[[Totals], Floats]
    estimates: Callable[[Totals], dict[str, Any]]
    stable: Callable[[Totals, int], bool | None] | None
    columns: Callable[[Any], dict[str, str]]
    arrivals: str
    always: tuple[str, ...]
    words: str


def flat(estimates: Mapping[str, Any]) -> dict[str, Estimate]:
    """One name for each estimate: those of class k as "name_k"."""
    found: dict[str, Estimate] = {}
    for name, value in estimates.items():
        if isinstance(value, tuple):
            found |= {f"{name}_{k}": x for k, x in enumerate(value)}
        else:
            found[name] = value
    return found


def _by_class(above: Floats, below: Floats) -> tuple[Estimate, ...]:
    """A ratio for each class; above (batches, classes), below likewise or (batches,)."""
    below = np.broadcast_to(below if below.ndim == 2 else below[:, None], above.shape)
    return tuple(stats.ratio(above[:, k], below[:, k]) for k in range(above.shape[1]))


def _is_stable(t: Totals, runs: int) -> bool | None:
    return stats.stable(t.batches["present"], t.batches["clock"], t.system.arrival_rate, runs)


# --- jobs at servers ------------------------------------------------------------------------------
def _dispatch_costs(t: Totals) -> Floats:
    holding = not t.system.has_units
    return stats.total_cost(t.batches, t.loss_charge, t.move_cost, holding)


def _dispatch_estimates(t: Totals) -> dict[str, Any]:
    holding = not t.system.has_units
    found = stats.per_job(t.batches, t.loss_charge, t.move_cost, holding)
    if all(t.system.limit_of(pool) is None for pool in t.system.pools):
        found["blocking_probability"] = Estimate(0.0, 0.0, 0.0)
    for name, p in (("p50", 0.5), ("p99", 0.99)):
        found[name] = stats.quantile(t.histograms, p)
    return found


def _dispatch_columns(_: Any) -> dict[str, str]:
    return {
        "mean": "response_time",
        "p50": "p50",
        "p99": "p99",
        "waiting": "waiting_probability",
        "blocking": "blocking_probability",
        "messages": "messages_per_job",
        "migrations": "migrations_per_job",
    }


DISPATCH = Measures(
    costs=_dispatch_costs,
    estimates=_dispatch_estimates,
    stable=_is_stable,
    columns=_dispatch_columns,
    arrivals="jobs",
    always=("mean", "messages"),
    words="cost: response time of accepted jobs{charges}, per arrival; mean,\n"
    "p50, p99: response time; waiting, blocking: probabilities; messages, migrations: per arrival.",
)


# --- car sharing ----------------------------------------------------------------------------------
def _car_costs(t: Totals) -> Floats:
    return t.loss_charge * (t.batches["arrivals"] - t.batches["accepted"])


def _car_estimates(t: Totals) -> dict[str, Any]:
    b = t.batches
    time = b["clock"] * t.system.stations
    problematic = b["area_empty"] + b["area_full"] - b["area_both"]
    lost, charge = stats.probability(b["arrivals"] - b["accepted"], b["arrivals"]), t.loss_charge
    return {
        "cost": Estimate(charge * lost, charge * lost.low, charge * lost.high),
        "accepted": stats.probability(b["accepted"], b["arrivals"]),
        "no_car": stats.ratio(b["area_empty"], time),
        "no_space": stats.ratio(b["area_full"], time),
        "problematic": stats.ratio(problematic, time),
        "cars_on_road": stats.ratio(b["area_road"], b["clock"]),
    }


def _car_columns(_: Any) -> dict[str, str]:
    names = ("accepted", "no_car", "no_space", "problematic", "cars_on_road")
    return {name.replace("_", " ").replace("cars ", ""): name for name in names}


CARS = Measures(
    costs=_car_costs,
    estimates=_car_estimates,
    stable=None,
    columns=_car_columns,
    arrivals="users",
    always=("accepted", "no car", "no space", "problematic", "on road"),
    words="cost: share of the users lost{charges}; accepted: share of the users;\n"
    "no car, no space, problematic (either): share of the stations; on road: cars.",
)


# --- flow networks --------------------------------------------------------------------------------
def _flow_costs(t: Totals) -> Floats:
    return t.batches["area"]


def _flow_estimates(t: Totals) -> dict[str, Any]:
    b = t.batches
    time, duration = b["clock"], stats.ratio(b["area"], b["arrivals"])
    return {
        "cost": duration,
        "response_time": duration,
        "jobs_in_system": stats.ratio(b["area"], time),
        "flows": _by_class(b["area_by_class"], time),
        "flow_duration": _by_class(b["area_by_class"], b["arrivals_by_class"]),
        "growth": stats.growth(b["present"], time),
        "growth_by_class": _by_class(b["flows_by_class"], time),
    }


def _flow_columns(system: Any) -> dict[str, str]:
    names = [flow.name or f"class {k}" for k, flow in enumerate(system.flows)]
    each = {name: f"flows_{k}" for k, name in enumerate(names)} if len(names) > 1 else {}
    return {"flows": "jobs_in_system", **each}


FLOWS = Measures(
    costs=_flow_costs,
    estimates=_flow_estimates,
    stable=_is_stable,
    columns=_flow_columns,
    arrivals="flows",
    always=("flows",),
    words="cost: mean duration of a flow; flows: their mean number, of all classes and by class.",
)
