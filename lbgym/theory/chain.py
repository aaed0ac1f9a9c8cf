"""Finite Markov chains in continuous time: found layer by layer, solved as sparse equations.

A *model* says what its states are and where they lead (`Model`); `explore` finds every state that
can be reached and the rates between them; `stationary` solves for the long-run distribution.
Nothing here knows what the states mean.

All states of a step are handled at once, as rows of an integer array, so that the work per state is
that of NumPy (2 to 5 us a transition) and not of the interpreter. Memory: about 100 bytes a
transition while exploring, then some 30 to 100 numbers a state while solving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

ELIMINATED = 3_000  # states of the largest system solved without iterating
BACKWARD = 1e-14  # error of an iterative solution that passes, relative to the matrix
RESIDUAL = 1e-10  # largest imbalance of a state that passes, over the fastest rate


class TooLarge(Exception):
    """The chain has more states than allowed; `states` says how many at least."""

    def __init__(self, states: int) -> None:
        super().__init__(f"more than {states:,} states")
        self.states = states


@dataclass(frozen=True)
class Moves:
    """Transitions of one kind, out of many states at once.

    source : (k,) row of the state left
    rate : (k,) per unit time
    target : (k, width) the state entered, canonical or not; None: nothing changes
    counts : what each transition counts, by name: numbers or arrays of shape (k,)
    """

    source: Integers
    rate: Floats
    target: Integers | None
    counts: Mapping[str, Any] = field(default_factory=dict)


class Model(Protocol):
    """What `explore` needs to know."""

    def start(self) -> Integers:
        """Some states to begin with; shape (k, width). The first is one that recurs."""

    def canonical(self, states: Integers) -> Integers:
        """The representative of each state's class."""

    def keys(self, states: Integers) -> Integers:
        """A number for each canonical state, different for different ones."""

    def inside(self, states: Integers) -> Booleans:
        """Whether the cut keeps a state; a transition to one outside does not happen."""

    def moves(self, states: Integers) -> Iterator[Moves]:
        """Every transition out of the states given."""


@dataclass(frozen=True)
class Chain:
    """A chain found by `explore`.

    states : (m, width), in order of their keys; keys : (m,)
    rates : (m, m) sparse matrix of the rates from row to column, without a diagonal
    counts : expected counts per unit time in each state, by name; each (m,)
    first : the row of the first start state
    """

    states: Integers
    keys: Integers
    rates: Any
    counts: dict[str, Floats]
    first: int

    @property
    def size(self) -> int:
        return len(self.keys)

    def rows(self, keys: Integers) -> Integers:
        """The rows of states that are in the chain."""
        return np.searchsorted(self.keys, keys).astype(np.int64)


# --- finding the states ---------------------------------------------------------------------------
_Edges = tuple[Integers, Integers, Floats]  # keys left, keys entered, rates
_Counted = tuple[str, Integers, Floats]  # name, keys, expected counts per unit time


class _Found:
    """States seen so far, in order of their keys."""

    def __init__(self, keys: Integers) -> None:
        self.keys = np.sort(keys)

    def fresh(self, keys: Integers) -> tuple[Integers, Integers]:
        """Those of the keys that are new, once each, and where they stand among the keys."""
        unique, first = np.unique(keys, return_index=True)
        place = np.minimum(np.searchsorted(self.keys, unique), len(self.keys) - 1)
        new = self.keys[place] != unique
        return unique[new], first[new].astype(np.int64)

    def add(self, keys: Integers) -> None:
        self.keys = np.insert(self.keys, np.searchsorted(self.keys, keys), keys)


def explore(model: Model, most: int) -> Chain:
    """Every state that can be reached from the start, and the rates between them.

    Raises TooLarge when there are more than `most`.
    """
    frontier = model.canonical(model.start())
    first = model.keys(frontier[:1])
    _, once = np.unique(model.keys(frontier), return_index=True)
    frontier = frontier[once]
    found = _Found(model.keys(frontier))
    layers = [frontier]
    edges: list[_Edges] = []
    counted: list[_Counted] = []
    while len(frontier):
        here = model.keys(frontier)
        keys, states, moved = _leave(model, frontier, here, edges, counted)
        fresh, place = found.fresh(keys) if moved else (keys, keys)
        frontier = states[place]
        found.add(fresh)
        layers.append(frontier)
        if len(found.keys) > most:
            raise TooLarge(len(found.keys))
    return _assemble(np.concatenate(layers), found.keys, model, edges, counted, int(first[0]))


def _leave(
    model: Model,
    states: Integers,
    here: Integers,
    edges: list[_Edges],
    counted: list[_Counted],
) -> tuple[Integers, Integers, bool]:
    """Note all transitions out of some states; the states entered and their keys."""
    all_keys, all_states = [], []
    for move in model.moves(states):
        for name, count in move.counts.items():
            counted.append((name, here[move.source], move.rate * count))
        if move.target is None:
            continue
        target = model.canonical(move.target)
        kept = model.inside(target)
        keys = model.keys(target[kept])
        edges.append((here[move.source[kept]], keys, move.rate[kept]))
        all_keys.append(keys)
        all_states.append(target[kept])
    if not all_keys:
        return here[:0], states[:0], False
    return np.concatenate(all_keys), np.concatenate(all_states), True


def _assemble(
    states: Integers,
    keys: Integers,
    model: Model,
    edges: list[_Edges],
    counted: list[_Counted],
    first: int,
) -> Chain:
    from scipy.sparse import coo_array

    m = len(keys)
    states = states[np.argsort(model.keys(states))]
    if edges:
        source, target, rate = (np.concatenate(part) for part in zip(*edges, strict=True))
        row, column = np.searchsorted(keys, source), np.searchsorted(keys, target)
        away = row != column
        rates = coo_array((rate[away], (row[away], column[away])), shape=(m, m)).tocsr()
    else:
        rates = coo_array((m, m)).tocsr()
    counts: dict[str, Floats] = {}
    for name, source, count in counted:
        total = counts.setdefault(name, np.zeros(m))
        total += np.bincount(np.searchsorted(keys, source), weights=count, minlength=m)
    return Chain(states, keys, rates, counts, int(np.searchsorted(keys, first)))


# --- solving --------------------------------------------------------------------------------------
def generator(rates: Any) -> Any:
    """Rates with the diagonal that makes each row sum to 0."""
    from scipy.sparse import diags_array

    return (rates - diags_array(np.asarray(rates.sum(axis=1)).ravel())).tocsr()


def solver(matrix: Any) -> Callable[[Floats], Floats]:
    """A function that solves a diagonally dominant system of equations.

    Small systems by sparse elimination: no pivoting, symmetric ordering. Others by GMRES: chains
    that mix fast (short limits) need no more than their diagonal to converge; the rest are
    preconditioned by an incomplete elimination, which fails rarely; then by elimination after all.
    """
    from scipy.sparse import csc_matrix

    matrix = csc_matrix(matrix)
    if matrix.shape[0] <= ELIMINATED:
        return _by_elimination(matrix)
    return _Iterative(matrix).solve


class _Iterative:
    """A large system and the cheapest way to solve it that has not failed yet."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        self.ways = self._ways()
        self.way = next(self.ways)

    def _ways(self) -> Iterator[Callable[[Floats], Floats | None]]:
        diagonal = self.matrix.diagonal()
        yield partial(_gmres, self.matrix, lambda v: v / diagonal, 1)
        yield partial(_gmres, self.matrix, _factors(self.matrix, 1e-2).solve, 5)
        yield _by_elimination(self.matrix)

    def solve(self, right: Floats) -> Floats:
        while (x := self.way(right)) is None:
            self.way = next(self.ways)
        return x


def _by_elimination(matrix: Any) -> Callable[[Floats], Floats]:
    """With one step of iterative refinement."""
    factors = _factors(matrix, None)

    def solve(right: Floats) -> Floats:
        x = factors.solve(right)
        return np.asarray(x + factors.solve(right - matrix @ x), dtype=np.float64)

    return solve


def _factors(matrix: Any, drop: float | None) -> Any:
    from scipy.sparse.linalg import spilu, splu

    how = {
        "permc_spec": "MMD_AT_PLUS_A",
        "diag_pivot_thresh": 0.0,
        "options": {"SymmetricMode": True},
    }
    return splu(matrix, **how) if drop is None else spilu(matrix, drop_tol=drop, **how)


def _gmres(
    matrix: Any, approximate: Callable[[Floats], Floats], rounds: int, right: Floats
) -> Floats | None:
    """The solution, to a backward error near that of floats; None if that takes too long."""
    from scipy.sparse.linalg import LinearOperator, gmres

    inverse = LinearOperator(matrix.shape, matvec=approximate)
    x, _ = gmres(matrix, right, M=inverse, rtol=1e-13, atol=0.0, restart=80, maxiter=rounds)
    error = np.abs(right - matrix @ x).max()
    if not error <= BACKWARD * np.abs(matrix.diagonal()).max() * np.abs(x).max():
        return None
    return np.asarray(x, dtype=np.float64)


def stationary(chain: Chain) -> tuple[Floats, float]:
    """The long-run distribution and its residual max |pi Q| / max rate.

    One state's probability is fixed and the rest solved for: the first state, or others if that one
    proves too rare for that (in an overloaded system the last). Raises ArithmeticError if the
    residual is not small.
    """
    if chain.size == 1:
        return np.ones(1), 0.0
    flow = generator(chain.rates).T.tocsc()
    residual = np.inf
    for fixed in (chain.first, chain.size - 1, chain.size // 2):
        try:
            pi = _given_one(flow, fixed)
        except RuntimeError:  # singular as far as floats can tell
            continue
        residual = float(np.abs(flow @ pi).max() / np.abs(flow.diagonal()).max())
        if residual < RESIDUAL:
            return pi, residual
    raise ArithmeticError(
        f"the chain of {chain.size:,} states has no accurate solution: {residual:.1e}"
    )


def _given_one(flow: Any, fixed: int) -> Floats:
    """The distribution, in proportion to the probability of one state; flow is Q transposed."""
    others = np.delete(np.arange(flow.shape[0]), fixed)
    into = -np.asarray(flow[others][:, [fixed]].todense()).ravel()
    pi = np.ones(flow.shape[0])
    pi[others] = np.maximum(solver(flow[others][:, others])(into), 0.0)
    return np.asarray(pi / pi.sum(), dtype=np.float64)


def relative_values(rates: Any, cost: Floats, first: int) -> tuple[float, Floats]:
    """Mean cost g per unit time and relative values h: cost - g + Q h = 0, h[first] = 0.

    Poisson's equation (Puterman 1994, section 8.2.3).
    """
    m = len(cost)
    if m == 1:
        return float(cost[0]), np.zeros(1)
    q = generator(rates).tocsc()
    others = np.delete(np.arange(m), first)
    solve = solver(q[others][:, others])
    h, each = np.zeros(m), np.zeros(m)
    h[others] = solve(-cost[others])  # as if g were 0
    each[others] = solve(np.ones(m - 1))  # and what each unit of g adds
    row = q[[first]]
    gain = float((cost[first] + (row @ h)[0]) / (1.0 - (row @ each)[0]))
    h += gain * each
    return gain, h
