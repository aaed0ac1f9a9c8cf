"""`exact`: the stationary numbers of a small system under a named policy, without simulation.

The chain (`dispatch`) is found and solved as sparse equations (`chain`). Its size is the number of
ways to fill the servers, up to the order of those that the policy cannot tell apart. Measured on
one core:

| servers without limit | most states | time | memory |
|---|---|---|---|
| 0, 1, 2 | 250,000 | 10 to 60 s | .5 GB |
| 3 | 120,000 | 10 to 25 s | .4 GB |
| 4 | 80,000 | 15 s | .3 GB |
| 5 and more | 60,000 | 10 s | .3 GB |

Examples: JSQ on 2 servers at load .9 takes 2,700 states and .4 s, on 4 servers 38,000 and 3 s, on
20 servers at load .5 1,600 and 1 s; PULL on 24 servers with limit 3 and 2 routers 20,000 and 3 s.
Under policies that look at nothing the servers are independent: any number is instant.

Queues without a limit are cut where the solution itself says that what lies beyond matters less
than 1e-11, or as far out as is affordable (`cutting`). `truncation_error` is the difference of the
mean number in system from that of a box 15 % smaller, so it is an upper estimate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lbgym.checks import charges
from lbgym.kinds import by_kind
from lbgym.system import System

from .chain import Floats, TooLarge
from .closed import exact_closed
from .closed_form import birth_death
from .cutting import (
    OVERLOADED,
    SMALLER,
    Solution,
    affordable,
    crowded,
    endless,
    given_cut,
    longest,
    settle,
    shrunk,
    solve,
)
from .dispatch import Cut, DispatchModel
from .graph import Ends, graph_plan, model_of, possible_on_graph, refuse_unstable_graph
from .loss import exact_loss
from .result import Exact, Totals, result_of, totals_of
from .rules import Plan, Static, plan
from .stability import growth_of, say_growth
from .stale import exact_slotted, exact_stale

_SHORT, _HOPELESS = 6, 100  # so many times too many states up to so short queues: do not begin
_SPREAD = 8  # ways in which two queues share a large number of jobs, at the least
_TINY = 1e-18  # what is left out of the law of a single server


# --- exact ----------------------------------------------------------------------------------------
@by_kind
def exact(
    system: Any,
    policy: Any,
    cap: int | Sequence[int] | None = None,
    *,
    loss_charge: float | None = None,
    move_cost: float = 0.0,
    start: Any = None,
) -> Exact:
    """Solve a small system under a policy.

    Parameters
    ----------
    system
        A system of any kind, its dict, a scenario's name or the path of a TOML file.
    policy
        The name of any policy without a memory of its own, or the policy of an `optimal`.
    cap : int or one a pool, optional
        Where to cut queues without a limit, or the flows in all. Default: where it does not matter.
    loss_charge, move_cost
        As `simulate` takes them.
    start : queue lengths, optional
        Of a closed system. Default: all jobs in the first server.

    Returns
    -------
    Exact
        Dispatching systems. `ExactLoss` where servers have units, an `ExactClosed` of balancing
        times for closed systems.
    CarSharingNumbers
        Car sharing (see `lbgym.theory.car_sharing`): no further arguments; up to 60,000 states, as
        5 stations of 4 spaces with 10 cars.
    FlowNumbers
        Flow networks (see `lbgym.theory.flow_network`): `cap` is the most flows in all.

    Raises
    ------
    ValueError
        If the system is too large (with the number of its states), unstable (with its growth), or
        the policy is not a chain on queue lengths and messages.
    """
    begun = time.perf_counter()
    loss_charge, move_cost = charges(system, loss_charge, move_cost)
    if system.slotted:
        return exact_slotted(system, policy, cap, loss_charge)
    system.require_memoryless("exact")
    if start is not None and system.closed_jobs is None:
        raise ValueError("start: only a closed system has one; long-run means forget it")
    if system.closed_jobs is not None:
        return exact_closed(system, policy, start, move_cost)
    if system.graph is not None and (system.has_units or system.read_interval is not None):
        raise ValueError("exact: a graph with units or a read_interval has no chain here; simulate")
    if system.has_units:
        return exact_loss(system, policy, loss_charge)
    if system.read_interval is not None:
        stale = exact_stale(system, policy, cap, loss_charge)
        if stale is not None:
            return stale
    if system.graph is not None:
        refuse_unstable_graph(system)
        the_plan = graph_plan(system, policy)
    else:
        the_plan = plan(system, policy)
    if system.graph is None or isinstance(the_plan.place, Static):
        _refuse_unstable(system, the_plan)
    if isinstance(the_plan.place, Static) and the_plan.allowed is None and cap is None:
        totals, error = _independent(system, the_plan.place), 0.0
    else:
        totals, error = _by_chain(system, the_plan, cap)
    result = result_of(system, the_plan.name, totals, loss_charge, move_cost)
    return replace(result, truncation_error=error, seconds=time.perf_counter() - begun)


def _by_chain(
    system: System, the_plan: Plan, cap: int | Sequence[int] | None
) -> tuple[Totals, float]:
    """The numbers of the chain and their truncation error."""
    try:
        solution, smaller = _solutions(system, the_plan, cap)
    except TooLarge as refused:
        raise ValueError(_too_large(system, the_plan, refused.states)) from None
    if cap is None:
        _refuse_crowded(solution)
    error = 0.0 if smaller is None else abs(smaller.jobs - solution.jobs)
    return totals_of(solution), error


def _independent(system: System, place: Static) -> Totals:
    """Servers fed at fixed rates do not see each other: one birth-death chain each."""
    jobs = waits = blocked = 0.0
    laws: dict[tuple[int, float], tuple[Floats, int]] = {}
    for pool, p in zip(system.pool_of_server.tolist(), place.p.tolist(), strict=True):
        law, servers = laws.get((pool, p), (None, 0))
        laws[pool, p] = (_one_server(system, pool, p) if law is None else law, servers + 1)
    for (pool, p), (law, servers) in laws.items():
        rate, spec = p * system.arrival_rate * servers, system.pools[pool]
        full = float(law[-1]) if spec.limit is not None else 0.0
        jobs += servers * float(law @ np.arange(len(law)))
        waits += rate * max(float(law[spec.slots :].sum()) - full, 0.0)
        blocked += rate * full
    tails = [
        np.cumsum(laws[key][0][::-1])[::-1]
        for key in zip(system.pool_of_server.tolist(), place.p.tolist(), strict=True)
    ]
    return Totals(
        jobs=jobs,
        rates={"waits": waits, "blocked": blocked},
        tails=tails,
        states=sum(len(law) for law, _ in laws.values()),
        cut=tuple(len(tail) - 1 for tail in tails),
        residual=0.0,
    )


def _one_server(system: System, pool: int, p: float) -> Floats:
    """The law of a server's queue; without a limit up to where its tail is below 1e-18."""
    spec, rate = system.pools[pool], p * system.arrival_rate
    service = spec.speed / system.mean_size
    last = spec.limit
    if last is None:
        load = rate / (service * spec.slots)
        last = spec.slots + (math.ceil(math.log(_TINY) / math.log(load)) if load > 0 else 0)
    deaths = service * np.minimum(np.arange(1, last + 1), spec.slots)
    if rate == 0:
        return np.ones(1)
    return birth_death(np.full(last, rate), deaths)


def _solutions(
    system: System, the_plan: Plan, cap: int | Sequence[int] | None
) -> tuple[Solution, Solution | None]:
    """The solution, and that in a smaller box where there is a cut."""
    groups = the_plan.groups

    def build(cut: Cut) -> DispatchModel:
        return model_of(system, the_plan, cut)

    most = affordable(system)
    least = _possible(system, the_plan, _SHORT)
    if cap is not None:
        cut = given_cut(system, groups, cap)
        least = _possible(system, the_plan, max(cut.caps))
    if least > _HOPELESS * most:
        raise TooLarge(least)
    if cap is None:
        _refuse_near_capacity(system, the_plan, most)
    if not any(endless(system, groups)):
        return solve(build(Cut(tuple(longest(system, g, 0) for g in groups))), most), None
    if cap is None:
        solution, cut = settle(system, build, groups, most)
    else:
        solution = solve(build(cut), most)
    return solution, solve(build(shrunk(cut, SMALLER, system, groups)), most)


def _refuse_near_capacity(system: System, the_plan: Plan, most: int) -> None:
    """Refuse a load at which even queues pooled into one would be too long.

    The number in system is at least that of one queue served by all, which is k or more with
    probability about load ** k; and each number comes with several ways to spread it.
    """
    if not np.isinf(system.limits).all() or not 0 < system.load < 1:
        return
    total = math.log(OVERLOADED) / math.log(system.load)
    states = total * _SPREAD ** (system.servers - 1)
    if states > most:
        raise ValueError(
            f"exact: at load {system.load:g} {the_plan.name} on {system.servers} servers often has "
            f"{total:,.0f} jobs and more, that is {states:,.0f} states or more, at most {most:,} "
            "can be solved; lower the load, set limits or simulate"
        )


def _too_large(system: System, the_plan: Plan, states: int) -> str:
    possible = max(states, _possible(system, the_plan, 10))
    size = f"{possible:,}" if possible < 10**15 else f"{float(possible):.1e}"
    what = f"{'up to' if possible > states else 'more than'} {size}"
    return (
        f"exact: {the_plan.name} on {system.servers} servers has {what} states, "
        f"at most {affordable(system):,} can be solved; take fewer servers, smaller limits or "
        "fewer routers, or use simulate or mean_field"
    )


def _possible(system: System, the_plan: Plan, cap: int) -> int:
    """The states with queues without a limit cut at a cap, likely or not."""
    if isinstance(the_plan.place, Ends):
        return possible_on_graph(system, the_plan, cap)
    number = 1
    for group in the_plan.groups:
        kinds = _kinds(system, the_plan, longest(system, group, cap))
        number *= math.comb(kinds + len(group) - 1, len(group))
    return number


def _kinds(system: System, the_plan: Plan, limit: int) -> int:
    """What one server can be: queue length and who holds its messages; idle, somebody does."""
    if not the_plan.messages:
        return limit + 1
    routers = system.router_count
    if system.message_fate == "withdraw":
        return routers + limit
    held = routers if system.message_fate == "keep" else 2**routers - 1
    return held + limit * (held + 1)


def _refuse_unstable(system: System, the_plan: Plan) -> None:
    if int(np.isinf(system.limits).sum()) in (1, 2, 3) or not the_plan.messages:
        rate = growth_of(system, the_plan)
        if rate is not None and rate > -1e-9 * system.arrival_rate:
            raise ValueError(
                f"exact: {the_plan.name} is not stable at load {system.load:g}: "
                f"{say_growth(rate)}; lower the load (critical_load says how far) or set limits"
            )


def _refuse_crowded(solution: Solution) -> None:
    """Refuse what a cut has made of a system whose backlog grows."""
    chance = crowded(solution)
    if chance > OVERLOADED:
        raise ValueError(
            f"exact: {solution.model.plan.name} looks unstable, or too near it: a queue comes "
            f"within 20 % of its cut at {max(solution.model.cut.caps):,} jobs with probability "
            f"{chance:.2g}; lower the load, set limits or give a larger cap"
        )
