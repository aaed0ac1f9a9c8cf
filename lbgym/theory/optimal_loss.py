"""`optimal` for loss systems with classes: which server each job goes to so that least is lost.

A Markov decision process on every server's numbers of jobs by class, solved by relative value
iteration (`control`), which proves its answer to 1e-9. Sending a job to a server without room loses
it, as in the environment: that is the only way to refuse one. At most 60,000 states (a product over
the servers); 900 states .2 s.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.policies.registry import Policy
from lbgym.system import System

from .chain import Booleans, Floats, Integers, explore, stationary
from .control import Control, least_cost
from .loss import (
    MOST,
    ExactLoss,
    LossModel,
    exact_result,
    number_of_states,
    refuse_others,
)
from .rules import OPTIMAL

OBJECTIVES = ("cost", "weighted_loss", "blocking_probability")


@dataclass(frozen=True, repr=False)
class OptimalLoss(ExactLoss):
    """The optimum: the numbers of `ExactLoss` under the best policy, and that policy.

    policy : the policy itself; `simulate`, `exact` and agents take it
    objective : what is least
    cost_per_time : objective per unit time (weight lost times the charge, or jobs lost)
    table : the server for a job of each class in each state; shape (classes, states)
    iterations : of value iteration; error : the proven distance of cost_per_time from the least
    """

    objective: str = "cost"
    cost_per_time: float = math.nan
    table: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    iterations: int = 0
    error: float = math.nan


class TableLossModel(LossModel):
    """A loss system whose jobs go where a table says; states are the keys of all contents."""

    def __init__(self, system: System, table: NDArray[np.int64] | None) -> None:
        n = system.servers
        self.table = table
        super().__init__(system, lambda v, q, k: np.full(v.shape, 1 / n), single(system))

    def sharing(self, states: Integers, k: int) -> Floats:
        if self.table is None:  # everywhere, to find the states
            return super().sharing(states, k)
        chosen = self.table[k, self.keys(states)]
        return np.asarray(np.eye(states.shape[1])[chosen], dtype=np.float64)


def single(system: System) -> tuple[tuple[int, ...], ...]:
    """Every server by itself."""
    return tuple((i,) for i in range(system.servers))


class _Choices:
    """What sending a job of each class to each server does, in all states at once."""

    def __init__(self, system: System) -> None:
        self.model = TableLossModel(system, None)
        self.chain = explore(self.model, MOST)
        self.n, self.classes = system.servers, self.model.classes

    def sent(self, i: int, k: int) -> tuple[Any, Booleans]:
        """Rates of joining server i, and where a job of class k would be lost there."""
        from scipy.sparse import coo_array

        states, m = self.chain.states, self.chain.size
        after = self.model.server(i).more[k][states[:, i]]
        lost = after < 0
        rows = np.flatnonzero(~lost)
        target = states[rows]
        target[:, i] = after[rows]
        rate = np.full(len(rows), self.classes.arrivals[k])
        columns = self.chain.rows(self.model.keys(target))
        return coo_array((rate, (rows, columns)), shape=(m, m)).tocsr(), lost

    def control(self, k: int, price: float, lossless: bool) -> Control:
        """The decision on jobs of class k, each of which costs so much if lost."""
        rates, lost = zip(*(self.sent(i, k) for i in range(self.n)), strict=True)
        losses = np.stack(lost)
        allowed = np.ones_like(losses)
        if lossless:
            allowed = ~losses | losses.all(axis=0)
        return Control(rates, losses * price * self.classes.arrivals[k], allowed)

    def departures(self) -> Any:
        """Rates of jobs that are done."""
        from scipy.sparse import coo_array

        row, column, rate = [], [], []
        states = self.chain.states
        for i in range(self.n):
            for k in range(len(self.classes.units)):
                for move in self.model.leaves(states, i, k):
                    assert move.target is not None
                    row.append(move.source)
                    column.append(self.chain.rows(self.model.keys(move.target)))
                    rate.append(move.rate)
        m = self.chain.size
        place = (np.concatenate(row), np.concatenate(column))
        return coo_array((np.concatenate(rate), place), shape=(m, m)).tocsr()


def optimal_loss(system: System, objective: str, charge: float, lossless: bool) -> OptimalLoss:
    """The best policy that sees every server's jobs by class.

    Raises ValueError if the system is too large (with the number of its states).
    """
    begun = time.perf_counter()
    refuse_others(system, "optimal")
    if objective not in OBJECTIVES:
        raise ValueError(
            f"objective: with units must be one of {', '.join(OBJECTIVES)}, got {objective!r}"
        )
    _refuse_large(system)
    choices = _Choices(system)
    weights = choices.classes.weights
    prices = {
        "cost": charge * weights,
        "weighted_loss": weights,
        "blocking_probability": np.ones(len(weights)),
    }[objective]
    controls = [choices.control(k, float(price), lossless) for k, price in enumerate(prices)]
    answer = least_cost(choices.departures(), np.zeros(choices.chain.size), controls)
    table = np.stack(answer.choices).astype(np.int64)
    numbers = exact_table(system, table, charge)
    return OptimalLoss(
        **{
            **numbers.__dict__,
            "policy": loss_policy(system, choices.model, table),
            "seconds": time.perf_counter() - begun,
        },
        objective=objective,
        cost_per_time=answer.cost,
        table=table,
        iterations=answer.iterations,
        error=answer.error,
    )


def exact_table(system: System, table: NDArray[np.int64], charge: float | None) -> ExactLoss:
    """The stationary numbers of the policy of a table."""
    begun = time.perf_counter()
    model = TableLossModel(system, table)
    chain = explore(model, MOST)
    pi, residual = stationary(chain)
    asked = 2.0 * system.servers
    result = exact_result(system, model, chain, pi, OPTIMAL, asked, charge)
    return replace(result, residual=residual, seconds=time.perf_counter() - begun)


def _refuse_large(system: System) -> None:
    number = number_of_states(system, single(system))
    if number > MOST:
        size = f"{number:,}" if number < 10**15 else f"{float(number):.1e}"
        raise ValueError(
            f"optimal: {system.servers:,} servers with units have {size} states, at most {MOST:,} "
            "can be solved; take fewer servers, units or classes"
        )


def loss_policy(system: System, model: LossModel, table: NDArray[np.int64]) -> Policy:
    """The policy of a table: where a job of each class goes in each state."""
    from .table import content_policy

    contents = [model.server(i).jobs for i in range(system.servers)]
    return content_policy(system, contents, table)
