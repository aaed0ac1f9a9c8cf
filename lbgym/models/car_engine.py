# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
"""Car sharing on the move: from one user who can choose to the next, and the rules that choose.

A *decision* is a user at a station with a car: `advance` stops there, `apply` sends the car to a
station (a space is reserved there) or, station number N, refuses the user. A user who finds no car
is lost without a decision. Trips are exponential: a unit-rate hazard of the service stream is used
up at the rate of the fastest trip times the cars on the road, and a uniformly chosen trip ends (the
slower its rate, the more rarely). Users of equal seeds are the same under every policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from lbgym.engine.access import accessor, entry, inner
from lbgym.engine.layout import (
    ARRIVALS,
    DECIDE,
    DONE,
    INVALID,
    NETWORK,
    NOTHING,
    PAUSE,
    SERVICE,
)
from lbgym.engine.random import below, exponential, uniform
from lbgym.engine.start import zero
from lbgym.engine.vocabulary import pick
from lbgym.policies.registry import Family

from .car_sharing import CarSharing
from .machine import (
    PATIENCE,
    SAME,
    Machine,
    Rule,
    choice_at,
    clear_memory,
    doors,
    families_of,
    make_rule,
    record,
    row_of,
    table_params,
    world_record,
)

USER = 1  # w.kind

STATION = record(  # no gaps between fields: copies are equal byte for byte
    [
        ("parked", "i8", "cars parked"),
        ("reserved", "i8", "spaces reserved for cars on the road"),
        ("capacity", "i8", "spaces"),
        ("rate", "f8", "users per unit time"),
        ("share_to", "f8", "share of the users at stations up to and with this one"),
        ("arrivals", "i8", "users that arrived here"),
        ("accepted", "i8", "users that left from here"),
    ]
)
ARRAYS = {
    "stations": STATION,
    "trips": record([("origin", "i4", "where the car was taken"), ("to", "i4", "where it goes")]),
    # index origin * n_stations + destination, only where they are not all alike
    "goals": record([("share_to", "f8", "share of destinations up to and with this one")]),
    "speeds": record([("rate", "f8", "rate of such a trip")]),
    "offers": record([("station", "i4", "a station sampled for this user")]),
    "start": record([("parked", "i4", "cars parked at a station at time 0")]),
}
WORLD, FIRST_MOVING, PAST_MOVING = world_record(
    [
        ("n_stations", "i8", "stations"),
        ("n_cars", "i8", "cars"),
        ("self_trips", "i8", "1: a car may return to where it was taken"),
        ("fastest", "f8", "rate of the fastest trip"),
    ],
    [
        ("origin", "i8", "station of the user"),
        ("requested", "i8", "station the user wants to go to"),
        ("accepted_last", "i8", "1: the user of the last decision was accepted"),
        ("on_road", "i8", "cars on the road"),
        ("empty", "i8", "stations without a car"),
        ("full", "i8", "stations without a space"),
        ("both", "i8", "stations with neither"),
        ("area_road", "f8", "time integral of `on_road`"),
        ("area_empty", "f8", "time integral of `empty`"),
        ("area_full", "f8", "time integral of `full`"),
        ("area_both", "f8", "time integral of `both`"),
        ("accepted", "i8", "users accepted"),
        ("lost_no_car", "i8", "users lost for want of a car"),
        ("lost_no_space", "i8", "users lost for want of a space"),
        ("refused", "i8", "users refused"),
        ("ended", "i8", "trips ended"),
    ],
    ARRAYS,
)
COUNTS = (
    "arrivals",
    "accepted",
    "lost_no_car",
    "lost_no_space",
    "refused",
    "ended",
    "on_road",
)

station = accessor("stations", ARRAYS["stations"])
trip = accessor("trips", ARRAYS["trips"])
goal = accessor("goals", ARRAYS["goals"])
speed_of = accessor("speeds", ARRAYS["speeds"])
offer = accessor("offers", ARRAYS["offers"])
start_of = accessor("start", ARRAYS["start"])
world, rule_signature, rule_type = doors(WORLD)


# --- events ---------------------------------------------------------------------------------------
@inner
def tally(w, k, by):
    """Count a station in (by = 1) or out (-1) of those without cars and without spaces."""
    s = station(w, k)
    without_car = s.parked == 0
    without_space = s.parked + s.reserved >= s.capacity
    if without_car:
        w.empty += by
    if without_space:
        w.full += by
    if without_car and without_space:
        w.both += by


@inner
def trip_rate(w, i, j):
    """Rate of a trip from i to j."""
    if w.size_speeds == 0:
        return w.fastest
    return speed_of(w, i * w.n_stations + j).rate


@inner
def pass_time(w, t):
    """Nothing happens until t."""
    span = t - w.clock
    w.area_road += span * w.on_road
    w.area_empty += span * w.empty
    w.area_full += span * w.full
    w.area_both += span * w.both
    w.hazard = max(w.hazard - span * w.on_road * w.fastest, 0.0)
    w.clock = t


@inner
def end_trip(w):
    """A potential end of a trip: the car parks in the space reserved for it."""
    w.hazard = exponential(w, SERVICE)
    k = below(w, SERVICE, w.on_road)
    this = trip(w, k)
    if w.size_speeds > 0 and uniform(w, SERVICE) * w.fastest >= trip_rate(w, this.origin, this.to):
        return
    j = this.to
    last = trip(w, w.on_road - 1)
    this.origin, this.to = last.origin, last.to
    w.on_road -= 1
    w.ended += 1
    tally(w, j, -1)
    station(w, j).reserved -= 1
    station(w, j).parked += 1
    tally(w, j, 1)


@inner
def draw_origin(w):
    """The station of an arriving user."""
    x = uniform(w, ARRIVALS)
    low, high = 0, w.n_stations - 1
    while low < high:
        middle = (low + high) >> 1
        if station(w, middle).share_to <= x:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def any_station(w, s, origin):
    """A uniform destination from stream s."""
    if w.self_trips:
        return below(w, s, w.n_stations)
    j = below(w, s, w.n_stations - 1)
    return j + 1 if j >= origin else j


@inner
def draw_goal(w, origin):
    """Where a user at `origin` wants to go."""
    if w.size_goals == 0:
        return any_station(w, ARRIVALS, origin)
    x = uniform(w, ARRIVALS)
    first = origin * w.n_stations
    low, high = 0, w.n_stations - 1
    while low < high:
        middle = (low + high) >> 1
        if goal(w, first + middle).share_to <= x:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def user_arrives(w):
    """A user comes: a decision if there is a car, else the user is lost."""
    w.next_arrival = w.clock + w.arrival_gap * exponential(w, ARRIVALS)
    w.origin = draw_origin(w)
    w.requested = draw_goal(w, w.origin)
    s = station(w, w.origin)
    s.arrivals += 1
    if s.parked == 0:
        w.arrivals += 1
        w.lost_no_car += 1
        return
    for k in range(w.size_offers):
        offer(w, k).station = any_station(w, NETWORK, w.origin)
    w.kind = USER


@inner
def advance(w):
    """Run events until the next user who can choose."""
    last = w.events + PATIENCE
    w.kind = NOTHING
    while w.arrivals < w.rest_at:
        end = np.inf
        if w.on_road > 0:
            end = w.clock + w.hazard / (w.on_road * w.fastest)
        t = min(end, w.next_arrival)
        if t > w.horizon:
            pass_time(w, w.horizon)
            return DONE
        pass_time(w, t)
        w.events += 1
        if end <= w.next_arrival:
            end_trip(w)
        else:
            user_arrives(w)
            if w.kind == USER:
                return DECIDE
        if w.events > last:
            return PAUSE
    return DONE


@inner
def depart(w, i, j):
    """A car leaves i; a space at j is reserved."""
    tally(w, i, -1)
    station(w, i).parked -= 1
    tally(w, i, 1)
    tally(w, j, -1)
    station(w, j).reserved += 1
    tally(w, j, 1)
    this = trip(w, w.on_road)
    this.origin, this.to = i, j
    w.on_road += 1
    w.accepted += 1
    station(w, i).accepted += 1


@inner
def apply(w, action):
    """The user leaves for a station, or is lost: refused (N), or no space there."""
    if action < 0 or action > w.n_stations or w.kind != USER:
        w.action = action
        return INVALID
    w.kind = NOTHING
    w.arrivals += 1
    w.accepted_last = 0
    if action == w.n_stations:
        w.refused += 1
    elif has_space(w, action):
        depart(w, w.origin, action)
        w.accepted_last = 1
    else:
        w.lost_no_space += 1
    return DECIDE


@entry(types.int64(types.int64))
def next_decision(address):
    """Run events until the next decision."""
    return advance(world(address))


@entry(types.int64(types.int64, types.int64))
def carry_out(address, action):
    """Carry out the pending decision."""
    return apply(world(address), action)


@inner
def restart(address):
    """Clear a running system, park the cars of time 0 and draw the first times."""
    w = world(address)
    zero(address + FIRST_MOVING, PAST_MOVING - FIRST_MOVING)
    clear_memory(w)
    w.origin, w.requested = -1, -1
    for k in range(w.n_stations):
        s = station(w, k)
        s.parked, s.reserved = start_of(w, k).parked, 0
        s.arrivals, s.accepted = 0, 0
        tally(w, k, 1)
    w.next_arrival = w.arrival_gap * exponential(w, ARRIVALS)
    w.hazard = exponential(w, SERVICE)


@entry(types.void(types.int64))
def restart_trajectory(address):
    """`restart`."""
    restart(address)


@entry(types.int64(types.int64, rule_type))
def run(address, rule):
    """Advance, decide and apply until the world is to rest: DONE, INVALID or PAUSE."""
    w = world(address)
    while True:
        if w.kind == NOTHING:
            status = advance(w)
            if status != DECIDE:
                return status
        status = apply(w, rule(w))
        if status != DECIDE:
            return status


# --- what rules see -------------------------------------------------------------------------------
@inner
def parked(w, j):
    """Cars parked at station j."""
    return station(w, j).parked


@inner
def occupied(w, j):
    """Spaces of station j that are taken: r + v."""
    s = station(w, j)
    return s.parked + s.reserved


@inner
def has_space(w, j):
    """Whether the user may go to station j (tested before the car leaves)."""
    s = station(w, j)
    return s.parked + s.reserved < s.capacity and (w.self_trips == 1 or j != w.origin)


# --- rules ----------------------------------------------------------------------------------------
_OCCUPIED, _PARKED, _PER_DEMAND = 0, 1, 2


@inner
def _value(w, j, what):
    """What is to be least; the user's own car counts as gone but for `least-occupied`."""
    gone = 1 if j == w.origin else 0
    if what == _PARKED:
        return parked(w, j) - gone + station(w, j).reserved / (1.0 + w.n_cars)
    if what == _PER_DEMAND:
        return (occupied(w, j) - gone) / station(w, j).rate
    return float(occupied(w, j))


@inner
def _least(w, what):
    """The station with a space and the least value, ties uniform; refused if there is no space."""
    best, least, tied = w.n_stations, np.inf, 0
    for j in range(w.n_stations):
        if has_space(w, j):
            x = _value(w, j, what)
            if tied > 0 and abs(x - least) <= SAME * abs(least):
                tied += 1
                if pick(w, tied) == 0:
                    best = j
            elif x < least:
                best, least, tied = j, x, 1
    return best


@entry(rule_signature)
def requested(w):
    """Where the user wants to go."""
    return w.requested


@entry(rule_signature)
def two_choice(w):
    """Of the two stations sampled, that with fewer spaces taken."""
    i, j = offer(w, 0).station, offer(w, 1).station
    x, y = occupied(w, i), occupied(w, j)
    if x == y and i != j:
        return i if pick(w, 2) == 0 else j
    return i if x <= y else j


@entry(rule_signature)
def least_occupied(w):
    """The fewest spaces taken."""
    return _least(w, _OCCUPIED)


@entry(rule_signature)
def least_parked(w):
    """The fewest cars parked once the car has left; of these the fewest spaces reserved."""
    return _least(w, _PARKED)


@entry(rule_signature)
def least_per_demand(w):
    """The fewest spaces taken, once the car has left, per user and unit time."""
    return _least(w, _PER_DEMAND)


@entry(rule_signature)
def by_table(w):
    """The choice of a table by state and origin; a state that it lacks is refused."""
    key = 0
    for k in range(w.n_stations):
        s = station(w, k)
        base = s.capacity + 1
        key = (key * base + s.reserved) * base + s.parked
    row = row_of(w, float(key))
    if row < 0:
        return w.n_stations
    return choice_at(w, row, w.n_stations, w.origin)


def table_keys(system: CarSharing, r: NDArray[Any], v: NDArray[Any]) -> NDArray[np.int64]:
    """(m,) the keys that `by_table` gives states; r and v: (m, N)."""
    key = np.zeros(len(r), dtype=np.int64)
    for k, capacity in enumerate(system.capacities):
        key = (key * (capacity + 1) + r[:, k]) * (capacity + 1) + v[:, k]
    return key


_STATE = ("reserved", "parked", "origin")  # what a rule sees of the state


def table_rule(
    system: CarSharing, keys: NDArray[np.int64], choices: NDArray[np.int64], name: str
) -> Rule:
    """A rule from a table: ``choices[row, origin]`` in the state of each key, keys rising."""
    params = table_params(keys, choices)
    return Rule(name, system, by_table, "everything", params, table=(keys, choices), columns=_STATE)


def _family(
    name: str, place: Any, information: str, columns: tuple[str, ...], samples: int = 0
) -> Family:
    """A policy without arguments."""

    def build(system: CarSharing) -> Rule:
        return Rule(name, system, place, samples=samples, columns=columns)

    build.__doc__ = place.__doc__
    return Family(name, build, information)


FAMILIES = families_of(
    _family("requested", requested, "the user's wish", ("requested",)),
    _family("two-choice", two_choice, "spaces of 2 stations", (*_STATE, "offered"), samples=2),
    _family("least-occupied", least_occupied, "spaces of all stations", _STATE),
    _family("least-parked", least_parked, "cars and spaces of all stations", _STATE),
    _family("least-per-demand", least_per_demand, "spaces and demand of all stations", _STATE),
)


def families() -> list[Family]:
    """Every policy of car sharing."""
    return list(FAMILIES.values())


def names() -> list[str]:
    """Their names."""
    return sorted(FAMILIES)


def usual(system: CarSharing) -> tuple[str, ...]:
    """The policies that a comparison begins with: all."""
    return tuple(FAMILIES)


def make(policy: Any, system: CarSharing) -> Rule:
    """A policy's name, a `Rule` or a user's compiled function, bound to a system."""
    return make_rule(policy, system, FAMILIES, rule_signature)


# --- state ----------------------------------------------------------------------------------------
class CarState(Machine):
    """One running copy of a car-sharing system."""

    WORLD, ARRAYS = WORLD, ARRAYS
    _advance, _apply, _restart = next_decision, carry_out, restart_trajectory

    def __init__(self, system: CarSharing, params: Sequence[float] = (), samples: int = 0) -> None:
        super().__init__(system, params)
        n, w = system.stations, self.world[0]
        w["n_stations"], w["n_cars"], w["self_trips"] = n, system.cars, system.self_trips
        rows = self.make("stations", n)
        rows["capacity"], rows["rate"] = system.capacities, system.arrival_rates
        rows["share_to"] = np.cumsum(system.arrival_rates) / system.total_rate
        self.make("trips", system.cars)
        self.make("offers", samples)
        self.make("start", n)
        uniform_goals, equal = system.destinations is None, not isinstance(system.trip_rate, tuple)
        goals = self.make("goals", 0 if uniform_goals else n * n)
        if not uniform_goals:
            goals["share_to"] = np.cumsum(system.destination_shares, axis=1).ravel()
        speeds = self.make("speeds", 0 if equal else n * n)
        if not equal:
            speeds["rate"] = system.trip_rates.ravel()
        w["fastest"] = system.trip_rate if equal else system.trip_rates.max()
        self.link()

    @classmethod
    def under(cls, rule: Rule, **_: Any) -> CarState:
        """A running copy that keeps what a policy needs."""
        return cls(rule.system, rule.params, rule.samples)

    def prepare(self, start: Any) -> None:
        """How trajectories begin: ``"empty"`` (roads: all cars parked, evenly over the stations) or
        the number of cars parked at each station."""
        cars = even_start(self.system) if isinstance(start, str) else _given(self.system, start)
        if isinstance(start, str) and start != "empty":
            raise ValueError(f"start: must be 'empty' or parked cars by station, got {start!r}")
        self.arrays["start"]["parked"] = cars

    def totals(self) -> dict[str, Any]:
        """Running totals, for batches."""
        w = self.world[0]
        return {name: float(w[name]) for name in _TOTALS}


_TOTALS = (
    "clock",
    "arrivals",
    "accepted",
    "area_road",
    "area_empty",
    "area_full",
    "area_both",
)


def even_start(system: CarSharing) -> NDArray[np.int64]:
    """(stations,) all cars parked, one more at each station in turn while there is space."""
    capacity = system.capacities
    low, high = 0, int(capacity.max())
    while low < high:  # the highest level that the fleet reaches everywhere
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if np.minimum(capacity, middle).sum() <= system.cars
            else (low, middle - 1)
        )
    parked = np.minimum(capacity, low)
    left = int(system.cars - parked.sum())
    parked[np.flatnonzero(parked < capacity)[:left]] += 1
    return parked


def _given(system: CarSharing, start: Any) -> NDArray[np.int64]:
    cars = np.asarray(start)
    if cars.shape != (system.stations,) or not np.issubdtype(cars.dtype, np.integer):
        raise ValueError(f"start: must be {system.stations} whole numbers of cars, got {start!r}")
    if (cars < 0).any() or (cars > system.capacities).any():
        raise ValueError(f"start: more cars than spaces at a station, got {start!r}")
    if cars.sum() != system.cars:
        raise ValueError(f"start: must hold all {system.cars} cars, got {cars.sum()}")
    return cars
