"""A rule that looks its answer up: the compiled form of an exact optimum.

Params: for each server the longest queue of the table; the server for an arriving job at each
combination of queue lengths, the last server's varying fastest; then, if jobs migrate, for each
source and target a table of the same size, 1 where the job moves. Longer queues are clipped to the
table. It looks at all n servers (2n messages a decision).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lbgym.engine.access import inner, rule
from lbgym.engine.vocabulary import param, probe_all, seen
from lbgym.policies.registry import Parts, Policy, stay
from lbgym.system import System

from .rules import OPTIMAL

# Compiled code; Numba's decorators are untyped.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"


@inner
def _cell(w):
    """Where the present queue lengths stand in a table."""
    cell = 0
    for i in range(w.n_servers):
        longest = int(param(w, i))
        cell = cell * (longest + 1) + min(seen(w, i), longest)
    return cell


@inner
def _cells(w):
    """How many cells a table has."""
    cells = 1
    for i in range(w.n_servers):
        cells *= int(param(w, i)) + 1
    return cells


@rule
def place_by_table(w):
    """The server that the table names."""
    probe_all(w)
    return int(param(w, w.n_servers + _cell(w)))


@rule
def move_by_table(w):
    """Move if the table of this source and target says so."""
    probe_all(w)
    table = 1 + w.source * w.n_servers + w.target
    if param(w, w.n_servers + table * _cells(w) + _cell(w)) > 0.5:
        return w.target
    return w.source


def table_policy(
    system: System, action: NDArray[np.int64], moves: NDArray[np.bool_] | None
) -> Policy:
    """The policy of a table: action has one axis a server, moves two more (source, target)."""
    tables = [action.ravel()] if moves is None else [action.ravel(), moves.ravel()]
    params = np.concatenate([np.array(action.shape) - 1, *tables])
    parts = Parts(
        place=place_by_table,
        move=stay if moves is None else move_by_table,
        params=tuple(float(x) for x in params),
        information="live queue lengths, the system",
        columns=("queue",) if moves is None else ("queue", "kind", "source", "target"),
    )
    return Policy(OPTIMAL, system, parts)


def tables_of(policy: Policy) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """The tables of a policy that `table_policy` made."""
    n, params = policy.system.servers, np.array(policy.parts.params)
    shape = tuple((params[:n] + 1).astype(int))
    size = int(np.prod(shape))
    action = params[n : n + size].astype(np.int64).reshape(shape)
    if policy.parts.move is not move_by_table:
        return action, None
    return action, (params[n + size :] > 0.5).reshape((n, n, *shape))
