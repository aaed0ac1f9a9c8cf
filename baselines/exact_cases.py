"""Cases of every further model whose exact values the theory of lbgym itself gives.

`baselines.reference` holds values that others computed; here `lbgym.theory.exact` solves the chain
of a small system, and the simulation, which shares no code with it, must agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from baselines.reference import Case
from lbgym import CarSharing, Flow, FlowNetwork, JobClass, Pool, System
from lbgym.theory import exact

# Quantity -> the field of an exact result; `loss` is the weight lost per arrival.
QUEUES = {"EN": "jobs_in_system", "P_wait": "waiting_probability"}
BLOCKING = {"P_block": "blocking_probability"}
LOSS = {"P_block": "blocking_probability", "loss": "cost"}
CARS = {name: name for name in ("accepted", "no_car", "no_space", "problematic")}
FLOWS = {"EN": "jobs_in_system"}
CLOSED = {"T": "balancing_time"}
_NOTHING = 1e-12  # what cannot happen, up to rounding


def exact_cases() -> list[Case]:
    """Every case; solving them takes some seconds."""
    return [*_stale(), *_slotted(), *_loss(), *_closed(), *_graphs(), *_cars(), *_flows()]


def _solved(
    label: str, system: Any, policies: Iterable[str], fields: dict[str, str], **options: Any
) -> Iterable[Case]:
    for policy in policies:
        found = exact(system, policy, **options)
        solved = {name: float(getattr(found, field)) for name, field in fields.items()}
        values = {name: 0.0 if x < _NOTHING else x for name, x in solved.items()}
        yield Case(f"{label}, {policy}", system, policy, values, "theory.exact")


def _two(*speeds: float, **others: Any) -> System:
    return System([Pool(1, speed=mu) for mu in speeds], **others)


def _stale() -> Iterable[Case]:
    """Model 2: two servers whose queues are read every T."""
    for interval in (0.5, 2.0):
        system = _two(1.0, 2.0, load=0.7, read_interval=interval)
        rules = ("jsq", "jsed", "rank(.7, .3)", "rank(.9, .1, order=jsed)")
        yield from _solved(f"stale T {interval}", system, rules, {"EN": "jobs_in_system"})


def _slotted() -> Iterable[Case]:
    for load in (0.6, 0.8):
        system = _two(0.3, 0.6, load=load, read_interval=1.0, slotted=True)
        yield from _solved(f"slotted {load}", system, ("jsq", "jsed"), {"EN": "jobs_in_system"})


def _loss() -> Iterable[Case]:
    """Models 3 and 4."""
    erlang = System([Pool(4, slots=3, limit=3)], load=0.9)
    rules = ("random", "jsq(2)", "jsq(3)", "jsq")
    yield from _solved("loss 4 x 3", erlang, rules, BLOCKING)
    replaced = System([Pool(4, slots=3, limit=3)], load=0.9, replace=True)
    yield from _solved(
        "loss 4 x 3 replaced", replaced, ("jsq(2)",), {"P_block": "blocking_probability"}
    )
    classes = [
        JobClass(share=0.8, units=1, weight=1.0, name="small"),
        JobClass(share=0.2, units=4, weight=4.0, name="large"),
    ]
    pools = [Pool(1, units=units) for units in (4, 6, 8)]
    mixed = System(pools, classes=classes, arrival_rate=7.5)
    rules = ("random", "max-vacancy", "max-vacancy(2)", "best-fit")
    yield from _solved("loss two classes", mixed, rules, LOSS)


def _closed() -> Iterable[Case]:
    """Model 5, closed."""
    for servers, jobs in ((3, 6), (4, 9)):
        system = System([Pool(servers)], closed_jobs=jobs, migration_rate=1.0)
        for rule in ("strict", "weak"):
            yield from _solved(
                f"closed {servers}, {jobs}", system, (f"local-search(rule={rule})",), CLOSED
            )
    unequal = System([Pool(2), Pool(1, speed=2.0)], closed_jobs=7, migration_rate=1.0)
    yield from _solved("closed unequal", unequal, ("local-search(rule=strict)",), CLOSED)


def _graphs() -> Iterable[Case]:
    """Model 6."""
    for servers, graph, load in ((3, "ring", 0.7), (4, "ring", 0.6), (3, "complete", 0.7)):
        system = System([Pool(servers)], load=load, graph=graph)
        yield from _solved(f"{graph} {servers}", system, ("local-choice", "random"), QUEUES)


def _cars() -> Iterable[Case]:
    """Model 7."""
    alike = CarSharing(4, capacity=3, cars=7, trip_rate=0.8)
    rates = (2, 1, 0.7, 0.3)
    unlike = CarSharing(4, capacity=3, cars=6, arrival_rate=rates, trip_rate=0.8)
    away = CarSharing(3, capacity=(2, 3, 4), cars=5, arrival_rate=(1, 2, 1), self_trips=False)
    rules = ("requested", "two-choice", "least-occupied", "least-parked", "least-per-demand")
    for label, system in (("alike", alike), ("unlike", unlike), ("away", away)):
        yield from _solved(f"cars {label}", system, rules, CARS)


def _flows() -> Iterable[Case]:
    """Model 8."""
    rates = FlowNetwork.linear([0.3, 0.3, 0.3], access_rates=(0.25, 0.5, 1, 2))
    rules = [f"fixed-rate({a})" for a in (0.25, 0.5, 1, 2)]
    yield from _solved("flows rates", rates, rules, FLOWS, cap=40)
    routes = FlowNetwork((Flow(routes=((0, 2), (1, 2)), arrival_rate=1.0),), (1.0, 1.0, 1.5))
    yield from _solved("flows routes", routes, ("join-least-loaded", "static(1, 1)"), FLOWS, cap=40)
    fair = FlowNetwork.linear([0.3, 0.3, 0.3], drop="fair")
    yield from _solved("flows fair", fair, ("fixed-rate",), FLOWS, cap=40)
