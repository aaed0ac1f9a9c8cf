"""Car sharing with a reserved parking space, as data.

C. Fricker, H. Mohamed, C. Bourdais, *A stochastic model for car-sharing systems*.

Users arrive at stations in Poisson streams and take a parked car to another station, where they
reserve a space as they leave. A user who finds no car, or no space at the destination, is lost.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lbgym.checks import MAX_COUNT, flag, integer, label, number, quoted
from lbgym.suggest import explained

from .data import Data, is_list, listed, one_or_each, spread

Floats = NDArray[np.float64]

MAX_STATIONS = 1_000_000
MAX_MATRIX = 5_000  # stations of a system with a matrix

Vector = tuple[float, ...]
Matrix = tuple[Vector, ...]


@explained
@dataclass(frozen=True, repr=False)
class CarSharing(Data):
    """Stations with parking spaces, and a fleet of cars.

    stations : how many, N.
    capacity : spaces of a station, reserved ones included; one value, or one a station.
    cars : how many, M; a car is parked, or on the road to a space reserved for it.
    arrival_rate : users per unit time at a station; one value, or one a station.
    trip_rate : 1 / mean duration of a trip (exponential); one value, or a matrix
        ``trip_rate[i][j]`` for trips from i to j.
    destinations : where users want to go: None (any station alike), weights of the stations, or a
        matrix of weights ``destinations[i][j]``; each row is normalised.
    self_trips : whether a car may return to where it was taken. Its space is looked for before the
        car leaves. If not, the weight of a station for its own users counts as 0.
    name : a label for tables.

    Any wrong value raises ValueError: field, what is allowed, what came.
    """

    KIND: ClassVar[str] = "car-sharing"
    closed_jobs: ClassVar[None] = None  # an endless run, not episodes

    stations: int
    capacity: int | tuple[int, ...]
    cars: int
    arrival_rate: float | Vector = 1.0
    trip_rate: float | Matrix = 1.0
    destinations: Vector | Matrix | None = None
    self_trips: bool = True
    name: str = ""

    def __post_init__(self) -> None:
        def put(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        n = integer("stations", self.stations, most=MAX_STATIONS)
        put("stations", n)
        put("capacity", one_or_each("capacity", self.capacity, _spaces, n, "stations"))
        put("cars", integer("cars", self.cars, most=MAX_COUNT))
        put("arrival_rate", one_or_each("arrival_rate", self.arrival_rate, number, n, "stations"))
        put("self_trips", flag("self_trips", self.self_trips))
        put("name", label("name", self.name))
        put("trip_rate", _trip_rate(self.trip_rate, n))
        put("destinations", _destinations(self.destinations, n, self.self_trips))
        if self.cars > self.spaces:
            raise ValueError(f"cars: must be at most the {self.spaces:,} spaces, got {self.cars:,}")
        if n == 1 and not self.self_trips:
            raise ValueError("self_trips: a single station has no other destination; must be true")

    # --- One value per station; a fresh array at each call. ---

    @property
    def capacities(self) -> NDArray[np.int64]:
        """(stations,) spaces."""
        return np.array(spread(self.capacity, self.stations), dtype=np.int64)

    @property
    def arrival_rates(self) -> Floats:
        """(stations,) users per unit time."""
        return np.array(spread(self.arrival_rate, self.stations), dtype=np.float64)

    @property
    def trip_rates(self) -> Floats:
        """(stations, stations) rate of a trip from i to j."""
        return np.broadcast_to(
            np.array(self.trip_rate, dtype=np.float64), (self.stations, self.stations)
        ).copy()

    @property
    def destination_shares(self) -> Floats:
        """(stations, stations) share of the users at i who want to go to j; rows sum to 1."""
        n = self.stations
        weights = np.ones(n) if self.destinations is None else np.array(self.destinations)
        shares = np.broadcast_to(weights, (n, n)).astype(np.float64)
        if not self.self_trips:
            np.fill_diagonal(shares, 0.0)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    # --- Totals. ---

    @property
    def spaces(self) -> int:
        """Spaces of all stations."""
        if isinstance(self.capacity, tuple):
            return sum(self.capacity)
        return self.stations * self.capacity

    @property
    def total_rate(self) -> float:
        """Users per unit time at all stations."""
        return float(self.arrival_rates.sum())

    @property
    def default_loss_charge(self) -> float:
        """What a lost user costs; nothing else costs."""
        return 1.0

    @property
    def alike(self) -> bool:
        """Whether no station differs from another."""
        per_station = (self.capacity, self.arrival_rate, self.trip_rate, self.destinations)
        return not any(isinstance(x, tuple) for x in per_station)

    def with_cars(self, cars: int) -> Self:
        """The same system with another fleet."""
        return dataclasses.replace(self, cars=cars)

    def describe(self) -> str:
        """One short line: "4 stations of 3 spaces, 7 cars, arrival rate 1, trip rate 0.8"."""
        spaces = f"of {self.capacity} spaces"
        if isinstance(self.capacity, tuple):
            spaces = f"({self.spaces} spaces)"
        said = [
            f"{self.stations} station{'s' if self.stations > 1 else ''} {spaces}",
            f"{self.cars} car{'s' if self.cars > 1 else ''}",
        ]
        for words, value in (("arrival rate", self.arrival_rate), ("trip rate", self.trip_rate)):
            said.append(f"{words}{'s by station' if isinstance(value, tuple) else f' {value:g}'}")
        if self.destinations is not None:
            said.append("weighted destinations")
        if not self.self_trips:
            said.append("no trips to the own station")
        return ", ".join(said)


def _spaces(field: str, value: object) -> int:
    return integer(field, value, most=MAX_COUNT)


def _weight(field: str, value: object) -> float:
    return number(field, value, zero=True)


def _row(n: int, check: Any) -> Any:
    return lambda field, value: listed(field, value, check, n)


def _matrix(field: str, value: Any, n: int, check: Any) -> Matrix:
    if n > MAX_MATRIX:
        raise ValueError(f"{field}: a matrix is for at most {MAX_MATRIX:,} stations, got {n:,}")
    return listed(field, value, _row(n, check), n)


def _trip_rate(value: Any, n: int) -> float | Matrix:
    if not is_list(value):
        return number("trip_rate", value)
    rows = list(value)
    if not rows or not is_list(rows[0]):
        raise ValueError(f"trip_rate: must be one number or a matrix of rates, got {quoted(value)}")
    return _matrix("trip_rate", rows, n, number)


def _destinations(value: Any, n: int, self_trips: bool) -> Vector | Matrix | None:
    if value is None:
        return None
    if not is_list(value):
        raise ValueError(
            "destinations: must be None, one weight a station or a matrix of weights, "
            f"got {quoted(value)}"
        )
    rows = list(value)
    if rows and is_list(rows[0]):
        table = _matrix("destinations", rows, n, _weight)
        for i, row in enumerate(table):
            _has_weight(f"destinations[{i}]", row, None if self_trips else i)
        return table
    weights = listed("destinations", rows, _weight, n)
    wanted = np.flatnonzero(weights)  # the users of a single one would have nowhere to go
    _has_weight(
        "destinations", weights, int(wanted[0]) if len(wanted) == 1 and not self_trips else None
    )
    return weights


def _has_weight(field: str, row: Vector, but: int | None) -> None:
    total = sum(w for j, w in enumerate(row) if j != but)
    if not 0 < total < float("inf"):
        whose = "" if but is None else f" of the stations other than {but}"
        raise ValueError(f"{field}: the weights{whose} must have a positive sum, got {total:g}")
