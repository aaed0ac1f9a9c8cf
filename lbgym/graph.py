"""Graphs of servers: each edge feeds its two ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lbgym.checks import quoted

# None, "ring", "complete", ("torus", rows, columns) or a tuple of edges.
Graph = str | tuple[Any, ...] | None
Edges = tuple[tuple[int, int], ...]


def as_graph(value: Any, servers: int) -> Graph:
    """Check a graph of so many servers and bring it into its plain form.

    Raises ValueError for an unknown form, a vertex that does not exist, an edge from a server to
    itself, or a graph that is not connected.
    """
    if value is None:
        return None
    if isinstance(value, str):
        if value not in ("ring", "complete"):
            raise ValueError(f"graph: must be {_FORMS}, got {value!r}")
        if servers < 2:
            raise ValueError(f"graph: needs at least 2 servers, the system has {servers}")
        return value
    if not isinstance(value, Iterable):
        raise ValueError(f"graph: must be {_FORMS}, got {value!r}")
    items = tuple(value)
    if items and items[0] == "torus":
        return _torus(items, servers)
    edges = tuple(_edge(k, item, servers) for k, item in enumerate(items))
    _check_connected(edges, servers)
    return edges


_FORMS = "'ring', 'complete', ['torus', rows, columns] or a list of edges [[0, 1], ...]"


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _torus(items: tuple[Any, ...], servers: int) -> Graph:
    if len(items) != 3 or not all(_whole(x) and x >= 1 for x in items[1:]):
        raise ValueError(f"graph: a torus is ['torus', rows, columns], got {list(items)!r}")
    rows, columns = int(items[1]), int(items[2])
    if rows * columns != servers or servers < 2:
        raise ValueError(
            f"graph: a torus of {rows} x {columns} has {rows * columns} servers, "
            f"the system has {servers}"
        )
    return ("torus", rows, columns)


def _edge(k: int, item: Any, servers: int) -> tuple[int, int]:
    pair = tuple(item) if isinstance(item, Iterable) and not isinstance(item, str) else ()
    if len(pair) != 2 or not all(_whole(x) for x in pair):
        raise ValueError(f"graph[{k}]: must be a pair of servers, got {quoted(item)}")
    a, b = int(pair[0]), int(pair[1])
    for vertex in (a, b):
        if not 0 <= vertex < servers:
            raise ValueError(f"graph[{k}]: servers are 0..{servers - 1}, got {vertex}")
    if a == b:
        raise ValueError(f"graph[{k}]: an edge must join two servers, got {a} twice")
    return a, b


def _check_connected(edges: Edges, servers: int) -> None:
    neighbours: dict[int, list[int]] = {i: [] for i in range(servers)}
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    reached, waiting = {0}, [0]
    while waiting:
        for i in neighbours[waiting.pop()]:
            if i not in reached:
                reached.add(i)
                waiting.append(i)
    if len(reached) < servers:
        apart = next(i for i in range(servers) if i not in reached)
        raise ValueError(f"graph: must be connected; server {apart} cannot be reached from 0")


def edges_of(graph: Graph, servers: int) -> Edges:
    """The edges of a checked graph. A ring of two servers has a double edge."""
    if graph is None:
        return ()
    if graph == "ring":
        return tuple((i, (i + 1) % servers) for i in range(servers))
    if graph == "complete":
        return tuple((i, j) for i in range(servers) for j in range(i + 1, servers))
    if graph[0] == "torus":
        return _torus_edges(int(graph[1]), int(graph[2]))
    return graph  # type: ignore[return-value]


def _torus_edges(rows: int, columns: int) -> Edges:
    """To the right and downwards from every server; a direction of length 1 has no edges."""
    edges = []
    for r in range(rows):
        for c in range(columns):
            here = r * columns + c
            if columns > 1:
                edges.append((here, r * columns + (c + 1) % columns))
            if rows > 1:
                edges.append((here, (r + 1) % rows * columns + c))
    return tuple(edges)
