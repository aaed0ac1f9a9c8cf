"""`critical_load`: up to which load a policy keeps a system stable; `growth`: how fast it fails.

A system without limits fails along a *direction*: some servers (U) hold endlessly many jobs while
the others go on as a stable system of their own, in which U always serves and never asks for work.
It is unstable when the servers of U then get more than they serve. So

- random, weighted, static: U is one server: arrival_rate p_i >= speed_i;
- JSQ(d), SED(d): U is hit only when all d samples fall into it, so U are the k slowest:
  rho* = min_k (mu_1 + .. + mu_k) / (P(all d in U) sum mu) (MODELS section 2; Luo and Zubeldia,
  arXiv 2510.14284); with all servers looked at it is 1;
- rank(p1, ..., pn) with p1 >= ... >= pn: U are the k slowest, which get the k last ranks:
  arrival_rate (p_n + ... + p_{n-k+1}) >= mu_1 + .. + mu_k; with other p that is only sufficient for
  stability, so it is refused; how often the queues are read plays no part (Luo and Zubeldia);
- local search: 1, for any rate of resampling (Ganesh et al. 2012, shown for static placement);
- PULL, JIQ, threshold: each U in turn, the other servers as an exact chain without U (one
  dimension less than `exact`; PULL's critical load, MODELS section 1).

Servers with a limit never hold endlessly many jobs; without any other the critical load is inf.
Cost: nothing for formulas; for PULL on two servers .2 s, on three 2 s; four must be alike.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from lbgym.kinds import by_kind
from lbgym.system import System

from .chain import Floats, TooLarge
from .cutting import OVERLOADED, Solution, affordable, crowded, settle
from .dispatch import Cut, DispatchModel
from .rules import Least, Placement, Plan, Pull, Ranked, Static, Table, Threshold, plan

_PRECISION = 1e-6  # of a critical arrival rate, relative
_BEYOND = 1e-8  # what the cut of the other servers may leave out
_PATIENCE = 150  # jobs: see `settle`
_CLEAR = 1e-3  # of the arrival rate: a bound that far below 0 tells the sign, a nearer one does not
_PARTS = (0.5, 0.75, 1.0)  # of the highest rate, where a set's margin is looked at
_HALVINGS = 7  # in search of the highest rate at which the other servers are stable
_SHORT, _STATES = 12, 2_000  # of the largest chain beside a saturated server
_SETS = 64  # most sets of saturated servers that are tried
_HIGHEST = 2.0**20  # arrival rates beyond this many capacities are not tried


def _capacities(system: System) -> Floats:
    """(servers,) jobs per unit time; inf where a limit keeps the queue from growing."""
    slots = np.array([p.slots for p in system.pools])[system.pool_of_server]
    served = system.speeds / system.mean_size * slots
    return np.asarray(np.where(np.isinf(system.limits), served, np.inf), dtype=np.float64)


# --- formulas -------------------------------------------------------------------------------------
def _lines(system: System, the_plan: Plan) -> list[tuple[float, float]] | None:
    """(share, capacity) of each set of servers that can fail by itself; None: no formula.

    A set grows by share * arrival_rate - capacity.
    """
    capacity = _capacities(system)
    endless = capacity[np.isfinite(capacity)]
    if len(endless) == 0:
        return []
    if the_plan.search is not None:
        return [(1.0, float(endless.sum()))]
    if isinstance(the_plan.place, Static):
        rows = zip(the_plan.place.p, capacity, strict=True)
        return [(float(p), float(c)) for p, c in rows if p > 0 and math.isfinite(c)]
    if isinstance(the_plan.place, Least):
        return _slowest(the_plan.place, endless, system.servers)
    if isinstance(the_plan.place, Ranked):
        last, served = np.cumsum(the_plan.place.p[::-1]), np.cumsum(np.sort(endless))
        return [(float(p), float(c)) for p, c in zip(last, served, strict=True) if p > 0]
    return None


def _hit(place: Least, k: int, n: int) -> float:
    """The probability that every server a job looks at is one of k that are saturated."""
    if place.d is None:
        return float(k == n)
    return (k / n) ** place.d if place.replace else math.comb(k, place.d) / math.comb(n, place.d)


def _slowest(place: Least, endless: Floats, n: int) -> list[tuple[float, float]]:
    """The k slowest servers, k = 1, 2, ..."""
    served = np.cumsum(np.sort(endless))
    found = [(_hit(place, k, n), float(c)) for k, c in enumerate(served, start=1)]
    return [(hit, capacity) for hit, capacity in found if hit > 0]


# --- saturated servers, the others as a chain -----------------------------------------------------
def _number_of_sets(system: System, the_plan: Plan) -> int:
    sizes = [len(g) for g in the_plan.groups if math.isinf(system.limits[g[0]])]
    return math.prod(size + 1 for size in sizes)


def _sets(system: System, the_plan: Plan) -> list[frozenset[int]]:
    """Every set of servers without a limit, up to order within groups; few and slow ones first."""
    choices = [
        [group[:k] for k in range(len(group) + 1)]
        for group in the_plan.groups
        if math.isinf(system.limits[group[0]])
    ]
    found = (frozenset(itertools.chain(*parts)) for parts in itertools.product(*choices))
    return sorted((u for u in found if u), key=lambda u: (len(u), sum(system.speeds[i] for i in u)))


def _largest_chain(system: System, the_plan: Plan) -> int:
    """The most states of the servers beside one that is saturated, if their queues are short."""
    sizes = [len(group) for group in the_plan.groups]
    caps = [min(float(system.limits[group[0]]), _SHORT) for group in the_plan.groups]
    found = []
    for g, group in enumerate(the_plan.groups):
        if math.isinf(system.limits[group[0]]):
            left = [size - (k == g) for k, size in enumerate(sizes)]
            found.append(
                math.prod(
                    math.comb(int(cap) + n, n) for cap, n in zip(caps, left, strict=True) if n > 0
                )
            )
    return max(found, default=0)


def _balances(place: Placement) -> bool:
    """Whether jobs that reach saturated servers even them out."""
    return isinstance(place, Least) or (isinstance(place, Pull) and _balances(place.fallback))


def _ceiling(system: System, place: Placement, saturated: frozenset[int]) -> float:
    """A bound on a set's margin: what it would get if no job found a message."""
    capacity = _capacities(system)
    arrivals = system.arrival_rate
    if isinstance(place, Pull):
        return _ceiling(system, place.fallback, saturated)
    if isinstance(place, Static):
        return min(arrivals * float(place.p[i]) - float(capacity[i]) for i in saturated)
    if isinstance(place, Least):
        hit = _hit(place, len(saturated), system.servers)
        return arrivals * hit - float(capacity[list(saturated)].sum())
    if isinstance(place, Threshold) and 1 - place.fast in saturated:
        return -float(capacity[1 - place.fast])  # the slow server never holds two jobs
    return arrivals - float(capacity[list(saturated)].sum())


def _others(system: System, the_plan: Plan, saturated: frozenset[int]) -> Solution | None:
    """The chain of the other servers; None if they are not stable."""

    def build(cut: Cut) -> DispatchModel:
        return DispatchModel(system, the_plan, cut, saturated)

    most = affordable(system, len(saturated))
    solution, _ = settle(system, build, the_plan.groups, most, _BEYOND, _PATIENCE)
    return None if crowded(solution) > OVERLOADED else solution


def _drift(system: System, the_plan: Plan, saturated: frozenset[int]) -> tuple[float, float] | None:
    """Margin (the set grows iff it is > 0) and growth of the whole set; None: cannot be."""
    ceiling = _ceiling(system, the_plan.place, saturated)
    if ceiling < -_CLEAR * system.arrival_rate:
        return ceiling, ceiling
    others = _others(system, the_plan, saturated)
    if others is None:
        return None
    capacity = _capacities(system)
    gains = [others.rate(f"joined {i}") - capacity[i] for i in saturated]
    total = math.fsum(gains)
    return (total if _balances(the_plan.place) else min(gains)), total


def _at_rate(system: System, arrival_rate: float) -> System:
    return system.with_load(arrival_rate * system.mean_size / system.capacity)


def _drifts(system: System, policy: Any, arrival_rate: float) -> Iterator[tuple[float, float]]:
    """Margin and growth of each set of servers at an arrival rate."""
    there = _at_rate(system, arrival_rate)
    the_plan = plan(there, policy)
    for saturated in _sets(there, the_plan):
        drift = _drift(there, the_plan, saturated)
        if drift is not None:
            yield drift


def _root(system: System, policy: Any, saturated: frozenset[int], high: float) -> float:
    """The arrival rate at which a set begins to grow; `high` if that is not below `high`."""
    from scipy.optimize import brentq

    def margin(rate: float) -> float | None:
        there = _at_rate(system, rate)
        drift = _drift(there, plan(there, policy), saturated)
        return None if drift is None else drift[0]

    low = 0.0
    for part in _PARTS:  # upwards: the nearer the others come to failing, the longer it takes
        top = part * high
        at_top = margin(top)
        if at_top is None or at_top > 0:
            break
        low = top
    else:
        return high
    for _ in range(_HALVINGS):
        if at_top is not None:
            break
        middle = (low + top) / 2  # the others fail first, perhaps
        at_middle = margin(middle)
        if at_middle is not None and at_middle <= 0:
            low = middle
        else:
            top, at_top = middle, at_middle
    if at_top is None:
        return high
    while low == 0 or (at_low := margin(low)) is None or at_low > 0:
        low = 0.5 * (low or top)
    return float(brentq(lambda rate: margin(rate) or 0.0, low, top, rtol=_PRECISION))


def _by_sets(system: System, policy: Any, the_plan: Plan) -> float:
    """The lowest arrival rate at which some set of servers grows."""
    sets = _sets(system, the_plan)
    highest = system.capacity / system.mean_size
    if not np.isinf(system.limits).all():  # jobs are lost, so it may be beyond the capacity
        while not any(m > 0 for m, _ in _drifts(system, policy, highest)):
            highest *= 2
            if highest > _HIGHEST * system.capacity:
                return math.inf
    for saturated in sets:
        highest = _root(system, policy, saturated, highest)
    return highest


def _unknown(system: System, the_plan: Plan) -> str | None:
    """Why the stability of a policy is not known; None if it is."""
    endless = np.isinf(system.limits)
    if not endless.any():
        return None
    if the_plan.search is not None and not endless.all():
        return "local search is known where no server, or every server, has a limit"
    if isinstance(the_plan.place, Ranked):
        if not endless.all():
            return "rank policies are known where no server has a limit"
        if np.any(np.diff(the_plan.place.p) > 0):
            return (
                "its condition is necessary only if p1 >= p2 >= ... >= pn; give such p, or simulate"
            )
    order_based = isinstance(the_plan.place, Static | Least | Ranked) or the_plan.messages
    if system.read_interval is not None and not order_based:
        return "where queues are read it is known for policies that go by their order, or by none"
    if isinstance(the_plan.place, Table) or (the_plan.allowed and the_plan.search is None):
        return "it is known for named policies only"
    if isinstance(the_plan.place, Pull) and (states := _largest_chain(system, the_plan)) > _STATES:
        return (
            "the servers that stay stable would have to be solved dozens of times, with "
            f"{states:,} states for queues up to {_SHORT}, at most {_STATES:,} can be; take at "
            "most 3 servers, or more that are alike"
        )
    number = _number_of_sets(system, the_plan)
    if isinstance(the_plan.place, Pull) and number > _SETS:
        return (
            f"each of {number:,} sets of servers would have to be tried, at most {_SETS} can; "
            "take fewer servers"
        )
    return None


def _no_flow(flow: int | None) -> None:
    if flow is not None:
        raise ValueError(f"flow: only for flow networks; jobs at servers have none, got {flow!r}")


def _refuse_closed(system: System, what: str) -> None:
    if system.closed_jobs is not None:
        raise ValueError(f"{what}: no job arrives in a closed system, so it has none")


# --- the answers ----------------------------------------------------------------------------------
@by_kind
def critical_load(system: Any, policy: Any, flow: int | None = None) -> float:
    """The load from which on a policy no longer keeps the system stable; inf if none is too high.

    The system's own load does not matter (but for `fpi`, whose rule depends on it and which keeps
    any load below 1). Accuracy: exact for formulas, 1e-5 for PULL, JIQ and threshold.

    Of a flow network: the largest load (arrival rate x mean size) of the class `flow` (default 0)
    at which the network is stable, the other classes as they are; tail drop, fixed routes.

    Raises
    ------
    ValueError
        For policies without a chain (see `exact`), and where the other servers' chain is too large.
    """
    _no_flow(flow)
    _refuse_closed(system, "critical_load")
    system.require_memoryless("critical_load")
    the_plan = plan(system, policy)
    unknown = _unknown(system, the_plan)
    if unknown is not None:
        raise ValueError(f"critical_load of {the_plan.name}: {unknown}")
    lines = _lines(system, the_plan)
    try:
        if lines is None:
            rate = _by_sets(system, policy, the_plan)
        else:
            rate = min((capacity / share for share, capacity in lines), default=math.inf)
    except TooLarge as error:
        raise ValueError(
            f"critical_load: {the_plan.name} on {system.servers} servers needs a chain of more "
            f"than {error.states:,} states; take fewer servers or routers"
        ) from None
    return float(rate * system.mean_size / system.capacity)


@by_kind
def growth(system: Any, policy: Any, flow: int | None = None) -> Any:
    """Jobs in system gained per unit time in the long run; 0 where the system is stable.

    Of a flow network: the flows that each class gains, a tuple, when the class `flow` (default 0)
    is beyond its critical load.
    """
    _no_flow(flow)
    _refuse_closed(system, "growth")
    system.require_memoryless("growth")
    the_plan = plan(system, policy)
    rate = growth_of(system, the_plan)
    if rate is None:
        raise ValueError(f"growth under {the_plan.name}: {_unknown(system, the_plan)}")
    return max(rate, 0.0)


def say_growth(rate: float) -> str:
    """What becomes of a backlog, in words."""
    if rate < 1e-9:
        return "some servers get just what they can serve, so queues have no long-run mean"
    return f"the backlog grows by {rate:.4g} jobs per unit time"


def growth_of(system: System, the_plan: Plan) -> float | None:
    """The growth of an unstable system, else the largest (negative) margin; None if not known."""
    if _unknown(system, the_plan) is not None:
        return None
    lines = _lines(system, the_plan)
    if lines is None:
        found = [_drift(system, the_plan, saturated) for saturated in _sets(system, the_plan)]
        drifts = [drift for drift in found if drift is not None]
        grown = [total for margin, total in drifts if margin > 0]
        return max(grown or [margin for margin, _ in drifts], default=-math.inf)
    gains = [share * system.arrival_rate - capacity for share, capacity in lines]
    if isinstance(the_plan.place, Static) and the_plan.allowed is None:
        positive = [gain for gain in gains if gain > 0]
        return math.fsum(positive) if positive else max(gains, default=-math.inf)
    return max(gains, default=-math.inf)
