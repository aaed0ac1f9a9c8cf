"""`fleet`: the best number of cars of a car-sharing system, with the whole curve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from lbgym.checks import listed
from lbgym.kinds import read
from lbgym.models.car_engine import make
from lbgym.models.car_sharing import CarSharing
from lbgym.simulate import simulate
from lbgym.stats import as_plain

from . import car_sharing

Metric = Literal["accepted", "problematic"]
Method = Literal["exact", "mean-field", "simulation"]
Progress = Callable[[int, int], None]

METRICS: dict[str, Callable[..., int]] = {"accepted": max, "problematic": min}
METHODS = ("exact", "mean-field", "simulation")
_SOLVED = 3_000  # states of the largest chain that is solved without being asked for
_FEW = 500  # spaces; more have more states than that
_MANY = 200  # stations from which on the mean field stands for them
_AT_ONCE = 40  # fleets of a sweep; around the best of them others follow


@dataclass(frozen=True, repr=False)
class Fleet:
    """The best fleet and the curve it was found on.

    cars : the best number of cars; value : of the metric there, a share
    method : "exact", "mean-field" or "simulation"
    curve : the metric for every number of cars tried, in rising order; `Estimate`s with intervals
        if simulated
    """

    system: CarSharing
    policy: str
    metric: str
    method: str
    cars: int
    value: float
    curve: Mapping[int, float] = field(repr=False)

    @property
    def cars_per_station(self) -> float:
        """s = M / N of the best fleet."""
        return self.cars / self.system.stations

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        plain: dict[str, Any] = as_plain({**self.__dict__, "system": self.system.to_dict()})
        return plain

    def __repr__(self) -> str:
        which = (
            "most users accepted" if self.metric == "accepted" else "fewest stations problematic"
        )
        return (
            f"{self.cars} cars ({self.cars_per_station:.4g} a station): {which}, {self.value:.6g}, "
            f"under {self.policy} by {self.method}; {len(self.curve)} fleets tried"
        )


def fleet(
    system: Any,
    policy: Any = "requested",
    metric: Metric = "accepted",
    cars: Iterable[int] | None = None,
    method: Method | None = None,
    *,
    jobs: int = 200_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fleet:
    """The number of cars with the most users accepted or the fewest problematic stations.

    Parameters
    ----------
    system
        A `CarSharing`, its dict, a scenario's name or the path of a TOML file; its own number of
        cars plays no part.
    policy
        A name, or a user's compiled rule (simulation only).
    metric : "accepted" or "problematic"
        Share of the users, to be as large as can be; or share of the stations without a car or
        without a space, to be as small as can be.
    cars : whole numbers, optional
        The fleets to try. Default: all of at most 40, else 40 spread evenly, and then ever nearer
        to the best (the curve has one peak), until its neighbours have been tried.
    method : "exact", "mean-field" or "simulation", optional
        Default: exact up to 3,000 states; else the mean field if there are at least 200 stations,
        all alike, and users go where they want; else simulation.
    jobs, seed
        Of each simulation: users, and the seed that all fleets share.
    progress : callable, optional
        Called with (fleets tried, fleets known to be tried).

    Raises
    ------
    ValueError
        For another kind of system, and what `exact`, `mean_field` or `simulate` refuse.
    """
    system = read(system)
    if not isinstance(system, CarSharing):
        raise ValueError(f"fleet: only a car-sharing system has one, got {system.describe()}")
    if metric not in METRICS:
        raise ValueError(f"metric: must be one of {', '.join(METRICS)}, got {metric!r}")
    if method is not None and method not in METHODS:
        raise ValueError(f"method: must be one of {', '.join(METHODS)}, got {method!r}")
    rule = make(policy, system)
    chosen = _method(system, rule.name) if method is None else method
    tell = _Told(progress)

    def value(m: int) -> float:
        found: float = getattr(_found(system.with_cars(m), policy, chosen, jobs, seed), metric)
        tell.one()
        return found

    better = METRICS[metric]
    most = system.spaces - (1 if chosen == "mean-field" else 0)
    curve = _sweep(value, most, better, tell) if cars is None else _tried(value, cars, most, tell)
    best = better(curve, key=curve.__getitem__)
    return Fleet(system, rule.name, metric, chosen, best, float(curve[best]), curve)


def _method(system: CarSharing, policy: str) -> str:
    small = system.spaces <= _FEW and max(car_sharing.number_of_states(system)) <= _SOLVED
    if small and policy in car_sharing.KNOWN:
        return "exact"
    if policy == "requested" and system.alike and system.stations >= _MANY:
        return "mean-field"
    return "simulation"


def _found(system: CarSharing, policy: Any, method: str, jobs: int, seed: int) -> Any:
    if method == "exact":
        return car_sharing.exact(system, policy)
    if method == "mean-field":
        return car_sharing.mean_field(system, policy)
    return simulate(system, policy, jobs=jobs, seed=seed)


class _Told:
    """How far a sweep has come."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress, self.done, self.planned = progress, 0, 0

    def plan(self, more: int) -> None:
        self.planned += more

    def one(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.planned)


def _tried(
    value: Callable[[int], float], cars: Iterable[int], most: int, tell: _Told
) -> dict[int, float]:
    """The curve at the fleets asked for."""
    given = listed(cars)
    if not given:
        raise ValueError(f"cars: must be whole numbers such as range(3, 9), got {cars!r}")
    for m in given:
        if isinstance(m, bool) or not isinstance(m, int | np.integer) or not 1 <= m <= most:
            raise ValueError(f"cars: must be whole numbers from 1 to {most:,}, got {m!r}")
    wanted = sorted({int(m) for m in given})
    tell.plan(len(wanted))
    return {m: value(m) for m in wanted}


def _sweep(
    value: Callable[[int], float], most: int, better: Callable[..., int], tell: _Told
) -> dict[int, float]:
    """The curve from 1 to `most`, ever finer around its best point."""
    curve: dict[int, float] = {}
    low, high = 1, most
    while True:
        spread = np.linspace(low, high, min(_AT_ONCE, high - low + 1)).round().astype(int)
        wanted = [m for m in dict.fromkeys(spread.tolist()) if m not in curve]
        tell.plan(len(wanted))
        curve |= {m: value(m) for m in wanted}
        best, tried = better(curve, key=curve.__getitem__), sorted(curve)
        k = tried.index(best)
        low, high = tried[max(k - 1, 0)], tried[min(k + 1, len(tried) - 1)]
        if high - low <= 2:
            return {m: curve[m] for m in tried}
