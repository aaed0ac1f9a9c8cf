"""Small Markov decision processes in continuous time, by relative value iteration.

A process is fixed rates and costs plus a few *controls*, each of which has one action in every
state; what an action adds is a sparse matrix of rates and a cost. Uniformised at a rate above every
state's own, values are improved together with the policy, then swept some times under that policy
(modified policy iteration; Puterman 1994, section 8.7). The smallest and the largest change of one
improving sweep enclose the least cost per unit time, so the answer comes with its proof, also
where policies have transient states or several recurrent classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .chain import Booleans, Chain, Floats, Integers, generator

_SLACK = 1.05  # the uniformised rate over the fastest state's
_SWEEPS = 20  # under one policy
_ROUNDS = 50_000
_PRECISION = 1e-9  # of the cost, relative
_TIE = 1e-9  # actions that differ by less, relative to the cost, tie: the first is taken


@dataclass(frozen=True)
class Control:
    """A decision to be made in every state.

    rates : for each action the (m, m) sparse rates that it adds, without a diagonal
    costs : (actions, m) cost per unit time that it adds
    allowed : (actions, m); at least one in every state
    """

    rates: Sequence[Any]
    costs: Floats
    allowed: Booleans

    def under(self, choice: Integers) -> Any:
        """The rates that one action a state adds."""
        from scipy.sparse import diags_array

        return sum(diags_array((choice == a) * 1.0) @ rates for a, rates in enumerate(self.rates))

    @property
    def fastest(self) -> float:
        """The most that it adds to the rate of a state."""
        return max(float(rates.sum(axis=1).max()) for rates in self.rates)


@dataclass(frozen=True)
class Answer:
    """The least cost per unit time, and a policy that has it.

    choices : (m,) the action of each control; rates : (m, m) of the chain under them
    error : the proven distance of `cost` from the least
    """

    cost: float
    choices: list[Integers]
    rates: Any
    error: float
    iterations: int


def least_cost(rates: Any, cost: Floats, controls: Sequence[Control]) -> Answer:
    """Relative value iteration. Raises ArithmeticError if it does not converge."""
    own = generator(rates)
    moves = [[generator(r) for r in c.rates] for c in controls]
    step = 1.0 / (_SLACK * (float(rates.sum(axis=1).max()) + sum(c.fastest for c in controls)))
    h = np.zeros(len(cost))
    here = np.arange(len(cost))
    for iterations in range(1, _ROUNDS + 1):  # noqa: B007
        change = cost + own @ h
        choices = []
        for control, actions in zip(controls, moves, strict=True):
            values = np.stack([x + q @ h for x, q in zip(control.costs, actions, strict=True)])
            values = np.where(control.allowed, values, np.inf)
            choices.append(_first_best(values, change))
            change = change + values[choices[-1], here]
        low, high = float(change.min()), float(change.max())
        if high - low < _PRECISION * max(abs(high), abs(low), 1e-3):
            break
        under = rates + sum(c.under(x) for c, x in zip(controls, choices, strict=True))
        paid = cost + sum(c.costs[x, here] for c, x in zip(controls, choices, strict=True))
        h = _swept(h + step * change, generator(under), paid, step)
    else:
        raise ArithmeticError(f"value iteration is still {high - low:.1e} wide after {_ROUNDS:,}")
    under = rates + sum(c.under(x) for c, x in zip(controls, choices, strict=True))
    return Answer((low + high) / 2, choices, under.tocsr(), (high - low) / 2, iterations)


def _first_best(values: Floats, scale: Floats) -> Integers:
    """(m,) the first of the actions that are as good as any."""
    close = _TIE * max(float(np.abs(scale).max()), 1.0)
    return np.asarray((values <= values.min(axis=0) + close).argmax(axis=0))


def _swept(h: Floats, q: Any, cost: Floats, step: float) -> Floats:
    """Values after some sweeps under one policy."""
    for _ in range(_SWEEPS):
        h = h + step * (cost + q @ h)
    return np.asarray(h - h[0])


def recurrent(chain: Chain) -> Chain:
    """The chain on the states that recur.

    Raises ArithmeticError if they fall into classes that do not lead to each other.
    """
    from scipy.sparse.csgraph import connected_components

    number, of = connected_components(chain.rates, directed=True, connection="strong")
    if number == 1:
        return chain
    source, target = chain.rates.nonzero()
    leaves = np.zeros(number, dtype=bool)
    leaves[of[source[of[source] != of[target]]]] = True
    if (~leaves).sum() > 1:
        raise ArithmeticError(f"the states fall into {(~leaves).sum()} separate recurrent classes")
    return kept(chain, np.flatnonzero(~leaves[of]))


def kept(chain: Chain, rows: Integers) -> Chain:
    """The chain on some of its states."""
    return replace(
        chain,
        states=chain.states[rows],
        keys=chain.keys[rows],
        rates=chain.rates[rows][:, rows],
        counts={name: x[rows] for name, x in chain.counts.items()},
        first=int(np.searchsorted(rows, chain.first)) if chain.first in rows else 0,
    )
