"""Rules that know the order of the queues, perhaps as it was at the last read.

Y. Luo, M. Zubeldia, arXiv 2510.14284: every T units of time (the system's `read_interval`) all
queues are read and the servers sorted by ``(q + a) / c``, shortest first, ties drawn once per read.
Until the next read a job goes to the server of rank j with probability p_j, whatever was sent
since. ``rank(p1, ..., pn, order=jsq|jsed)`` takes the p_j; on a system that is read, ``jsq``,
``sed``, ``jsed``, ``index(a)`` and ``fpi`` send everything to rank 1 of their own order, ``jsq(d)``
and ``sed(d)`` to the sampled server of lowest rank. Without an interval the order is the live one.

Messages: a read asks all n servers (2n); without an interval every job does.
"""

from __future__ import annotations

from lbgym.engine.access import aside, inner, pool, rule, server
from lbgym.engine.vocabulary import (
    candidate,
    coin,
    param,
    pick,
    probe_all,
    recall,
    remember,
)
from lbgym.system import System

from .comparing import compare, index_params, index_value
from .registry import Parts, family, one_of
from .static import cumulative

_FASTEST, _LOWEST = 1, 2

# Memory: 0 the reads when the order was made, then n cells each of ranks to servers, servers to
# ranks, index values, and room to merge.


@inner
def _after(w, i, j, ties):
    """Whether server i must stand behind server j."""
    first_key = 1 + 2 * w.n_servers
    order = compare(recall(w, first_key + i), recall(w, first_key + j))
    if order == 0 and ties == _FASTEST:
        order = compare(pool(w, server(w, j).pool).speed, pool(w, server(w, i).pool).speed)
    elif order == 0 and ties == _LOWEST:
        order = -1 if i < j else 1
    return order > 0


@inner
def _merge(w, low, middle, high, ties):
    """Merge the sorted ranks low .. middle - 1 and middle .. high - 1."""
    room = 1 + 3 * w.n_servers
    a, b = low, middle
    for k in range(low, high):
        left = a < middle and (
            b >= high or not _after(w, int(recall(w, 1 + a)), int(recall(w, 1 + b)), ties)
        )
        if left:
            remember(w, room + k, recall(w, 1 + a))
            a += 1
        else:
            remember(w, room + k, recall(w, 1 + b))
            b += 1
    for k in range(low, high):
        remember(w, 1 + k, recall(w, room + k))


@inner
def _sort(w, ties):
    """Rank the servers by the last read; equal ones in an order drawn afresh."""
    n = w.n_servers
    for i in range(n):
        s = server(w, i)
        remember(w, 1 + i, i)
        length = s.length if w.reads == 0 else aside(w, i).reading
        remember(w, 1 + 2 * n + i, index_value(w, s.pool, length))
    for k in range(n - 1, 0, -1):  # a stable sort of a shuffled list draws the ties
        other = pick(w, k + 1)
        kept = recall(w, 1 + k)
        remember(w, 1 + k, recall(w, 1 + other))
        remember(w, 1 + other, kept)
    width = 1
    while width < n:
        for low in range(0, n - width, 2 * width):
            _merge(w, low, low + width, min(low + 2 * width, n), ties)
        width *= 2
    for k in range(n):
        remember(w, 1 + n + int(recall(w, 1 + k)), k)


@inner
def _look(w):
    """Make the order anew if there is anything new to see."""
    if w.reads == 0:  # no interval: look now
        probe_all(w)
        _sort(w, int(param(w, 0)))
    elif recall(w, 0) != w.reads:
        remember(w, 0, w.reads)
        _sort(w, int(param(w, 0)))


@rule
def first_in_order(w):
    """The server of rank 1."""
    _look(w)
    return int(recall(w, 1))


@rule
def first_of_sampled(w):
    """The sampled server of lowest rank."""
    _look(w)
    best = candidate(w, 0)
    for k in range(1, w.samples):
        i = candidate(w, k)
        if recall(w, 1 + w.n_servers + i) < recall(w, 1 + w.n_servers + best):
            best = i
    return best


@rule
def rank(w):
    """The server of rank j with probability p_j; cumulative p are the last n params."""
    _look(w)
    u = coin(w)
    first = w.n_params - w.n_servers
    low, high = 0, w.n_servers - 1
    while low < high:
        middle = (low + high) >> 1
        if u < param(w, first + middle):
            high = middle
        else:
            low = middle + 1
    return int(recall(w, 1 + low))


def order_cells(system: System) -> int:
    """Memory cells of an order."""
    return 1 + 4 * system.servers


@family("rank", information="order of the queues at the last read")
def build_rank(system: System, *p: float, order: str = "jsq") -> Parts:
    """The server of rank j in the order of the last read with probability proportional to p_j."""
    index = one_of(order, {"jsq": "jsq", "jsed": "jsed"}, "rank: order")
    a = 0.0
    params = index_params(system, "random", "rank", index, a)
    return Parts(
        place=rank,
        params=(*params, *cumulative(p, system, "rank")),
        scratch=order_cells(system),
        columns=("queue" if system.read_interval is None else "read", "speed"),
    )
