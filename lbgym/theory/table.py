"""A rule that looks its answer up: the compiled form of an exact optimum.

Params: for each server the longest queue of the table; the server for an arriving job at each
combination of queue lengths, the last server's varying fastest; then, if jobs migrate, for each
source and target a table of the same size, 1 where the job moves; last, where arriving jobs are
spread by given probabilities instead, these, accumulated. Longer queues are clipped to the table.
A decision looks at all n servers (2n messages).

With units the table goes by what each server holds (`place_by_content`). Params: for each server
and class one more than the most jobs it can hold of that class; for each server the number of its
contents and, for each combination of jobs by class, which content that is; then for each class the
server in each state, the last server's content varying fastest.

On a graph (`place_by_edge`) there is a table for each edge; where a queue is longer than the table
the job joins the shorter end, ties by a fair coin.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lbgym.engine.access import edge, inner, rule
from lbgym.engine.vocabulary import candidate, coin, jobs_of_class, param, pick, probe_all, seen
from lbgym.policies.registry import Parts, Policy, stay
from lbgym.system import System

from .rules import OPTIMAL, Plan, Static, Table, table_moves

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
def place_by_chance(w):
    """A server drawn by the probabilities at the end."""
    u = coin(w)
    i = 0
    while i < w.n_servers - 1 and u >= param(w, w.n_params - w.n_servers + i):
        i += 1
    return i


@rule
def move_by_table(w):
    """Move if the table of this source and target says so."""
    probe_all(w)
    table = 1 + w.source * w.n_servers + w.target
    if param(w, w.n_servers + table * _cells(w) + _cell(w)) > 0.5:
        return w.target
    return w.source


@rule
def place_by_content(w):
    """The server that the table names for the job's class and what every server holds."""
    probe_all(w)
    at, cell, cells = w.n_servers * w.n_classes, 0, 1
    for i in range(w.n_servers):
        place, places = 0, 1
        for k in range(w.n_classes):
            room = int(param(w, i * w.n_classes + k))
            place = place * room + min(jobs_of_class(w, i, k), room - 1)
            places *= room
        contents = int(param(w, at))
        cell = cell * contents + int(param(w, at + 1 + place))
        cells *= contents
        at += 1 + places
    return int(param(w, at + w.klass * cells + cell))


@inner
def _edge_of(w, a, b):
    """The number of an edge between two servers."""
    for e in range(w.n_edges):
        x, y = edge(w, e).a, edge(w, e).b
        if (x == a and y == b) or (x == b and y == a):
            return e
    return 0


@rule
def place_by_edge(w):
    """The end that the table of the job's edge names. Params as of `place_by_table`."""
    probe_all(w)
    a, b = candidate(w, 0), candidate(w, 1)
    for i in range(w.n_servers):
        if seen(w, i) > param(w, i):
            if seen(w, a) == seen(w, b):
                return a if pick(w, 2) == 0 else b
            return a if seen(w, a) < seen(w, b) else b
    return int(param(w, w.n_servers + _edge_of(w, a, b) * _cells(w) + _cell(w)))


def edge_policy(system: System, table: NDArray[np.int64]) -> Policy:
    """The policy of tables: table[edge, queue lengths], the server."""
    pieces = [np.array(table.shape[1:]) - 1, table.ravel()]
    parts = Parts(
        place=place_by_edge,
        params=tuple(float(x) for x in np.concatenate(pieces)),
        samples=2,
        information="live queue lengths, the system",
        columns=("candidate", "queue_probed", "neighbours"),
    )
    return Policy(OPTIMAL, system, parts)


def edge_table(policy: Policy) -> NDArray[np.int64]:
    """The tables of a policy that `edge_policy` made."""
    n, params = policy.system.servers, np.array(policy.parts.params)
    shape = tuple((params[:n] + 1).astype(int))
    return params[n:].astype(np.int64).reshape(-1, *shape)


def content_policy(
    system: System, contents: Sequence[NDArray[np.int64]], table: NDArray[np.int64]
) -> Policy:
    """The policy of a table by contents.

    contents : for each server (contents, classes) jobs by class; table : (classes, states)
    """
    rooms = [jobs.max(axis=0) + 1 for jobs in contents]
    pieces: list[NDArray[np.int64]] = [np.concatenate(rooms)]
    for jobs, room in zip(contents, rooms, strict=True):
        known = np.zeros(int(np.prod(room)), dtype=np.int64)
        known[np.ravel_multi_index(tuple(jobs.T), tuple(room))] = np.arange(len(jobs))
        pieces += [np.array([len(jobs)]), known]
    parts = Parts(
        place=place_by_content,
        params=tuple(float(x) for x in np.concatenate([*pieces, table.ravel()])),
        information="live occupancies by class, the system",
        columns=(*(f"class_jobs_{k}" for k in range(len(table))), "class"),
    )
    return Policy(OPTIMAL, system, parts)


def content_table(policy: Policy) -> NDArray[np.int64]:
    """The table of a policy that `content_policy` made; shape (classes, states)."""
    classes, params = len(policy.system.class_shares), np.array(policy.parts.params)
    n = policy.system.servers
    rooms = params[: n * classes].astype(np.int64).reshape(n, classes)
    at = n * classes + int((1 + rooms.prod(axis=1)).sum())
    return params[at:].astype(np.int64).reshape(classes, -1)


def table_policy(
    system: System,
    action: NDArray[np.int64],
    moves: NDArray[np.bool_] | None,
    place: NDArray[np.float64] | None = None,
) -> Policy:
    """The policy of a table: action has one axis a server, moves two more (source, target).

    place : the probabilities by which arriving jobs are spread, if not by the table
    """
    pieces = [np.array(action.shape) - 1, action.ravel()]
    if moves is not None:
        pieces.append(moves.ravel())
    if place is not None:
        pieces.append(np.cumsum(place))
    parts = Parts(
        place=place_by_table if place is None else place_by_chance,
        move=stay if moves is None else move_by_table,
        params=tuple(float(x) for x in np.concatenate(pieces)),
        information="live queue lengths, the system",
        columns=("queue",) if moves is None else ("queue", "kind", "source", "target"),
    )
    return Policy(OPTIMAL, system, parts)


def plan_of(policy: Policy) -> Plan:
    """The probabilities of a policy that `table_policy` made."""
    n, params = policy.system.servers, np.array(policy.parts.params)
    shape = tuple((params[:n] + 1).astype(int))
    size = int(np.prod(shape))
    action = params[n : n + size].astype(np.int64).reshape(shape)
    moves = None
    if policy.parts.move is move_by_table:
        bits = params[n + size : n + size * (1 + n * n)] > 0.5
        moves = bits.reshape((n, n, *shape))
    if policy.parts.place is place_by_chance:
        return table_plan(policy.system, action, moves, np.diff(params[-n:], prepend=0.0))
    return table_plan(policy.system, action, moves, None)


def table_plan(
    system: System,
    action: NDArray[np.int64],
    moves: NDArray[np.bool_] | None,
    place: NDArray[np.float64] | None,
) -> Plan:
    """The same as a plan."""
    return Plan(
        name=OPTIMAL,
        groups=tuple((i,) for i in range(system.servers)),
        place=Table(action) if place is None else Static(place),
        allowed=None if moves is None else table_moves(moves),
        looks=0 if moves is None else system.servers,
    ).bound(system, OPTIMAL)
