"""What an agent is paid for a step, that is from one decision to the next.

Two forms with the same long-run mean per arrival (Little's law):

- ``response`` (first come first served, no migration): minus the expected response time of the
  job just placed, given the state: (q + 1) / mu at a server of one slot that held q jobs;
- ``holding``: minus the time integral of the number in system.

They differ by the change of the potential ``sum over servers of q (q + 1) / (2 mu)`` and by noise
of mean 0. Two more forms: ``loss`` (the default, and the only one, with units): minus the weight of
each lost job; ``time`` (the default of closed systems): minus the elapsed time.

All subtract a charge for a lost job, times its weight, and a price for each move; further prices
by name: ``{"base": "response", "messages": 0.01, "migrations": 0.5}``. A constant times the elapsed
time may be added (`baseline`). Unit: mean service time of a speed-1 server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.checks import finite, number
from lbgym.engine.access import inner, record_reader
from lbgym.suggest import unknown
from lbgym.system import System

HOLDING, RESPONSE, LOSS, TIME = 0, 1, 2, 3
BASES = {"response": RESPONSE, "holding": HOLDING, "loss": LOSS, "time": TIME}
TERMS = ("base", "messages", "migrations")

PRICES = np.dtype(
    [
        ("form", "i8"),  # HOLDING, RESPONSE, LOSS or TIME
        ("lost", "f8"),  # of a lost job of weight 1
        ("moved", "f8"),  # of a migration
        ("message", "f8"),  # of a message
        ("baseline", "f8"),  # added per unit time
    ],
    align=True,
)
TOTALS = np.dtype(  # as they stood at the last decision
    [("clock", "f8"), ("area", "f8"), ("lost_weight", "f8"), ("moved", "i8"), ("messages", "i8")],
    align=True,
)
prices_at = record_reader(PRICES)
totals_at = record_reader(TOTALS)


@inner
def area_now(w):
    """Time integral of the number in system."""
    return w.present * w.clock + w.moment


@inner
def messages_now(w):
    """One-way messages so far: a probe is two, a pull-message one, a withdrawal one."""
    return w.sent + w.withdrawn + 2 * w.probes


@inner
def note(w, totals):
    """Note the totals at a decision."""
    totals.clock = w.clock
    totals.area = area_now(w)
    totals.lost_weight = w.lost_weight
    totals.moved = w.migrations
    totals.messages = messages_now(w)


@inner
def reward(w, prices, totals):
    """Reward since the totals were noted."""
    if prices.form == RESPONSE:
        cost = w.expected_response
    elif prices.form == HOLDING:
        cost = area_now(w) - totals.area
    else:
        cost = w.clock - totals.clock if prices.form == TIME else 0.0
    cost += prices.lost * (w.lost_weight - totals.lost_weight)
    cost += prices.moved * (w.migrations - totals.moved)
    cost += prices.message * (messages_now(w) - totals.messages)
    return prices.baseline * (w.clock - totals.clock) - cost


# --- from arguments -------------------------------------------------------------------------------
def prices(
    system: System,
    reward: str | Mapping[str, Any] | None,
    loss_charge: float | None,
    move_cost: float,
    baseline: float,
) -> NDArray[Any]:
    """The `PRICES` record, shape (1,), of an environment's arguments; ValueError on a wrong one."""
    terms = dict(reward) if isinstance(reward, Mapping) else {"base": reward}
    for name in terms:
        if name not in TERMS:
            raise ValueError(f"reward: {unknown('term', name, TERMS)}")
    base = _base(terms.pop("base", None), system)
    charge = loss_charge
    if charge is None:
        charge = 1.0 if base == "loss" else system.default_loss_charge
    record = np.zeros(1, PRICES)
    row = record[0]
    row["form"] = BASES[base]
    row["lost"] = number("loss_charge", charge, zero=True)
    row["moved"] = number("move_cost", move_cost, zero=True)
    row["moved"] += finite("reward: migrations", terms.pop("migrations", 0.0))
    row["message"] = finite("reward: messages", terms.pop("messages", 0.0))
    row["baseline"] = finite("baseline", baseline)
    return record


def _base(base: Any, system: System) -> str:
    """The form of the reward, or the system's default."""
    shares = any(spec.discipline == "ps" for spec in system.pools)
    if base is None:
        if system.has_units:
            return "loss"
        if system.closed_jobs is not None:
            return "time"
        return "holding" if system.migrates or shares else "response"
    if not isinstance(base, str) or base not in BASES:
        raise ValueError(f"reward: {unknown('form', base, BASES)}")
    if system.has_units and base != "loss":
        raise ValueError(f"reward: with units only lost jobs cost; use 'loss', got {base!r}")
    if base == "response" and (system.migrates or shares):
        why = "jobs migrate" if system.migrates else "servers share their speed (ps)"
        raise ValueError(
            f"reward: 'response' needs jobs that stay and fcfs, here {why}; use 'holding'"
        )
    if base == "time" and system.closed_jobs is None:
        raise ValueError("reward: 'time' is for closed systems; use 'holding'")
    return base
