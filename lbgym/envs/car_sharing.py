"""The environment of car sharing: one step is one user who finds a car."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lbgym.checks import finite, number
from lbgym.engine.access import flags, floats, inner, integers, record_reader
from lbgym.engine.layout import DECIDE, INVALID, NOTHING
from lbgym.models import car_engine
from lbgym.models.car_engine import (
    CarState,
    advance,
    apply,
    has_space,
    occupied,
    offer,
    restart,
    station,
    world,
)
from lbgym.models.car_sharing import CarSharing
from lbgym.suggest import unknown

from . import rendering
from .desk import Functions, desk_at, desk_entry, fresh_streams, is_done
from .shell import DecisionEnv
from .task import (
    Row,
    Segments,
    Task,
    horizons,
    info_keys,
    meaningless,
    model_system,
    observed,
    options_given,
    start_given,
)

OPERATOR, INCENTIVE = 0, 1
FORMS = {"operator": OPERATOR, "incentive": INCENTIVE}
ACCEPTED, PROBLEMATIC = 0, 1
REWARDS = {"accepted": ACCEPTED, "problematic": PROBLEMATIC}
DEFAULT_TIME = 200.0

(
    RESERVED,
    PARKED,
    SPACE,
    CAPACITY,
    RATE,
    FROM_HERE,
    WANTED,
    OFFERED,
    ORIGIN,
    REQUESTED,
) = range(10)
COLUMNS = {
    "reserved": (RESERVED, "r / (1 + r), r the reserved spaces of the station"),
    "parked": (PARKED, "v / (1 + v), v the cars parked there"),
    "space": (SPACE, "s / (1 + s), s the spaces neither reserved nor taken"),
    "capacity": (CAPACITY, "K / (1 + K), K the spaces"),
    "arrival_rate": (RATE, "users per unit time"),
    "from_here": (FROM_HERE, "1 at the station where the user is"),
    "wanted": (WANTED, "1 at the station where the user wants to go"),
    "offered": (OFFERED, "k at the k-th station sampled for the user, else 0"),
}
CONTEXT = {
    "origin": (ORIGIN, "number of the station where the user is"),
    "requested": (REQUESTED, "number of the station where the user wants to go"),
}
DEFAULT_SHOWN = ("reserved", "parked", "arrival_rate", "origin", "requested")


# --- compiled: one step ---------------------------------------------------------------------------
CARS = np.dtype(  # at the desk's `at_task`
    [
        ("at_codes", "i8"),  # int64 codes of the columns, then of the context
        ("columns", "i8"),
        ("contexts", "i8"),
        ("form", "i8"),  # what an action means: OPERATOR or INCENTIVE
        ("choices", "i8"),
        ("pays", "i8"),  # ACCEPTED or PROBLEMATIC
        ("lost", "f8"),  # charge for a lost user
        ("baseline", "f8"),
        ("clock", "f8"),  # as they stood at the last decision
        ("accepted", "i8"),
        ("users", "i8"),
        ("area", "f8"),
    ],
    align=True,
)
cars_at = record_reader(CARS)


@inner
def _share(x):
    y = np.float32(x)
    return y / (y + np.float32(1))


@inner
def _cell(w, code, k):
    """A column of station k."""
    s = station(w, k)
    if code == RESERVED:
        return _share(s.reserved)
    if code == PARKED:
        return _share(s.parked)
    if code == SPACE:
        return _share(s.capacity - s.reserved - s.parked)
    if code == CAPACITY:
        return _share(s.capacity)
    if code == RATE:
        return np.float32(s.rate)
    if code == FROM_HERE:
        return np.float32(k == w.origin)
    if code == WANTED:
        return np.float32(k == w.requested)
    for place in range(w.size_offers):  # of a station sampled twice the first counts
        if offer(w, place).station == k:
            return np.float32(place + 1)
    return np.float32(0)


@inner
def observe(w, cars, address):
    """Write the observation of the pending decision to an address."""
    codes, p = integers(cars.at_codes), floats(address)
    n = w.n_stations
    for c in range(cars.columns):
        for k in range(n):
            p[c * n + k] = _cell(w, codes[c], k)
    for c in range(cars.contexts):
        code = codes[cars.columns + c]
        p[cars.columns * n + c] = np.float32(w.origin if code == ORIGIN else w.requested)


@inner
def _problematic(w):
    """Time integral of the number of stations without a car or without a space."""
    return w.area_empty + w.area_full - w.area_both


@inner
def _station(w, cars, action):
    """The station that an action means, N to refuse; -1 outside the space."""
    if action < 0 or action >= cars.choices:
        return -1
    if cars.form == OPERATOR:
        return action
    wish, other = w.requested, offer(w, 0).station
    if action == 1 and occupied(w, other) < occupied(w, wish):
        return other
    return wish


@inner
def _go_on(desk, action):
    """Go on to the next decision and note at the desk what came of it."""
    w, cars = world(desk.at_world), cars_at(desk.at_task)
    if w.kind != NOTHING:
        place = _station(w, cars, action)
        if place < 0:
            desk.status = INVALID
            return
        apply(w, place)
    desk.status = advance(w)
    if desk.status != DECIDE:
        return
    desk.dt = w.clock - cars.clock
    accepted = w.accepted - cars.accepted
    lost = w.arrivals - cars.users - accepted
    paid = float(accepted)
    if cars.pays == PROBLEMATIC:
        paid = -(_problematic(w) - cars.area) / w.n_stations
    desk.reward = paid - cars.lost * lost + cars.baseline * desk.dt
    desk.truncated = w.arrivals >= desk.horizon_arrivals or w.clock >= desk.horizon_time
    _note(w, cars)
    observe(w, cars, desk.at_row)


@inner
def _note(w, cars):
    """Note the totals at a decision."""
    cars.clock, cars.accepted, cars.users = w.clock, w.accepted, w.arrivals
    cars.area = _problematic(w)


@desk_entry
def step(address, action):
    """Carry out an action, if a decision is pending, and go on to the next decision."""
    _go_on(desk_at(address), action)


@desk_entry
def begin(address, afresh):
    """A new trajectory up to its first decision."""
    desk = desk_at(address)
    w, cars = world(desk.at_world), cars_at(desk.at_task)
    if afresh:
        fresh_streams(desk, w)
        restart(desk.at_world)
        _note(w, cars)
        desk.beginning = 1
    _go_on(desk, 0)
    if is_done(desk.status):
        desk.beginning, desk.reward, desk.dt, desk.truncated = 0, 0.0, 0.0, 0


@desk_entry
def show(address, _):
    """Write the observation of the pending decision."""
    desk = desk_at(address)
    observe(world(desk.at_world), cars_at(desk.at_task), desk.at_row)


@desk_entry
def mask(address, at_mask):
    """1 for each action that does not lose the user for want of space; refusing is allowed."""
    desk = desk_at(address)
    w, cars = world(desk.at_world), cars_at(desk.at_task)
    allowed = flags(at_mask)
    for action in range(cars.choices):
        fits = cars.form == INCENTIVE or action == w.n_stations or has_space(w, action)
        allowed[action] = 1 if fits else 0


# --- the task -------------------------------------------------------------------------------------
class CarSharingTask(Task):
    """What the arguments of `CarSharingEnv` say."""

    FUNCTIONS = Functions(step, begin, show, mask)
    FACTS: ClassVar[Mapping[str, Any]] = {
        "time": lambda w, arrays: w["clock"],
        "router": lambda w, arrays: w["origin"],
        "kind": lambda w, arrays: 0 * w["kind"],
        "state": lambda w, arrays: np.stack(
            [arrays["stations"]["reserved"], arrays["stations"]["parked"]], axis=-1
        ),
        "counts": {name: name for name in car_engine.COUNTS},
    }

    def __init__(
        self,
        defaults: Mapping[str, Any],
        system: Any = None,
        observe: Sequence[str] | None = None,
        action: str | None = None,
        reward: str | None = None,
        loss_charge: float | None = None,
        move_cost: float = 0.0,
        baseline: float = 0.0,
        horizon_arrivals: int | None = None,
        horizon_time: float | None = None,
        start: str | Sequence[int] = "empty",
        info: Sequence[str] = (),
    ) -> None:
        self.system = model_system(defaults["system"] if system is None else system, CarSharing)
        self.action = _word("action", action, FORMS)
        self.reward = _word("reward", reward, REWARDS)
        meaningless("move_cost", move_cost, 0.0)
        charge = 0.0 if loss_charge is None else loss_charge
        self.loss_charge = number("loss_charge", charge, zero=True)
        self.baseline = finite("baseline", baseline)
        self.start = start_given(start)
        names = DEFAULT_SHOWN if observe is None else observed(observe, [*COLUMNS, *CONTEXT])
        self.samples = 1 if self.action == "incentive" else 2 if "offered" in names else 0
        self.columns = tuple(name for name in names if name in COLUMNS)
        self.context = tuple(name for name in names if name in CONTEXT)
        self.shown = self._segments()
        self.observation_space, self.width = self.shown.space, self.shown.width
        choices = self.system.stations + 1 if self.action == "operator" else 2
        self.action_space = spaces.Discrete(choices)
        self.info_keys = info_keys(info, self.FACTS)
        self.masked = "action_mask" in self.info_keys
        if horizon_arrivals is None and horizon_time is None:
            horizon_time = DEFAULT_TIME
        self.horizon_arrivals, self.horizon_time = horizons(horizon_arrivals, horizon_time, 1)

    def _segments(self) -> Segments:
        n = self.system.stations
        highs = {"arrival_rate": float(self.system.arrival_rates.max()), "offered": 2.0}
        last = max(1.0, n - 1.0)
        return Segments(
            [(name, n, max(1.0, highs.get(name, 1.0))) for name in self.columns]
            + [(name, 0, last) for name in self.context]
        )

    def new_state(self, system: CarSharing, light: bool = False) -> CarState:
        """A running copy."""
        return CarState(system, samples=self.samples)

    def new_record(self, row: Row) -> CarsRecord:
        """What the compiled step reads."""
        return CarsRecord(self)

    def start_of(self, options: Mapping[str, Any]) -> Any:
        """``parked``: cars parked at each station; or the start of the arguments."""
        options = options_given(options, "parked")
        return start_given(options["parked"]) if options else self.start

    def shape(self) -> tuple[Any, ...]:
        """Stations, and what is shown and asked."""
        return self.system.stations, self.columns, self.context, self.action

    def describe_shape(self) -> str:
        """The stations."""
        return f"{self.system.stations} stations"

    def picture(self, row: Row, last_action: int | None) -> str:
        """Stations as bars: v a parked car, r a reserved space."""
        w, stations = row.state.world[0], row.state.arrays["stations"]
        lines = [
            f"time {w['clock']:.3f}   users {w['arrivals']}   accepted {w['accepted']}   "
            f"on the road {w['on_road']}"
        ]
        for k, s in enumerate(stations):
            free = s["capacity"] - s["parked"] - s["reserved"]
            bar = "v" * s["parked"] + "r" * s["reserved"] + "." * free
            lines.append(f"  station {k} |{bar}| demand {s['rate']:g}")
        lines.append(f"decide: a user at station {w['origin']} wants to go to {w['requested']}")
        if last_action is not None:
            lines.append(f"last action {last_action}")
        return "\n".join(lines) + "\n"

    def drawing(self, row: Row) -> NDArray[np.uint8]:
        """Stations as columns: parked cars dark, reserved spaces pale, a line at the capacity."""
        stations = row.state.arrays["stations"]
        w = row.state.world[0]
        return rendering.columns(
            stations["parked"],
            stations["reserved"],
            stations["capacity"],
            {int(w["origin"]): rendering.SOURCE, int(w["requested"]): rendering.TARGET},
        )


class CarsRecord:
    """The `CARS` record of a row."""

    OWN = ("record",)

    def __init__(self, task: CarSharingTask) -> None:
        shown = [COLUMNS[name][0] for name in task.columns]
        self.codes = np.array([*shown, *(CONTEXT[name][0] for name in task.context)], np.int64)
        self.record = np.zeros(1, CARS)
        this = self.record[0]
        this["columns"], this["contexts"] = len(task.columns), len(task.context)
        this["form"], this["choices"] = FORMS[task.action], task.action_space.n
        this["pays"], this["lost"] = REWARDS[task.reward], task.loss_charge
        this["baseline"] = task.baseline

    def link(self) -> int:
        """Write the addresses; returns the record's own."""
        self.record[0]["at_codes"] = self.codes.ctypes.data
        return int(self.record.ctypes.data)


def _word(field: str, value: Any, known: Mapping[str, int]) -> str:
    """One of a few words, the first if none is given."""
    if value is None:
        return next(iter(known))
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{field}: {unknown('form', value, known)}")
    return value


class CarSharingEnv(DecisionEnv):
    """Users take a car at one station and reserve a space at another; the agent says at which.

    ## Description
    Users arrive at stations, each wants to go to another station, or to the same. A user who finds
    no car is lost without a decision; otherwise the agent decides where the trip goes: a space is
    reserved there while the car is on the road (C. Fricker, H. Mohamed, C. Bourdais). The paper's
    rule is ``requested``; ``two-choice``, ``least-occupied``, ``least-parked`` and
    ``least-per-demand`` do better. Default: 4 stations with 3 spaces and demands 2, 1, 0.7, 0.3,
    6 cars, trip rate 0.8: 34.6 % of the users are accepted where they want to go, at best 61.3 %.

    ## Observation
    A flat float32 Box: a table with one row per station, column after column, then context values;
    ``env.unwrapped.table(obs)`` gives them by name. Default reserved, parked, arrival_rate, origin,
    requested; choose with ``observe=[...]`` among

    {columns}

    ## Action
    - ``"operator"`` (default), Discrete(N + 1): the station where the trip goes, N refuses the
      user. A station without space (or the own one where trips to it are not allowed) loses the
      user.
    - ``"incentive"``, Discrete(2): 0 accepts the user's wish, 1 sends the user to the emptier of
      the wish and one uniformly drawn station (fewer spaces taken; ties: the wish).

    `action_masks()` and the info key ``action_mask`` tell which stations have space.

    ## Reward
    ``"accepted"`` (default): 1 for each accepted user. ``"problematic"``: minus the time integral
    of the share of stations without a car or without a space. Both subtract ``loss_charge``
    (default 0) for each lost user, those who found no car included, and add ``baseline`` times the
    elapsed time.

    ## Starting state
    All cars parked, evenly over the stations; ``start=[...]`` or
    ``reset(options={"parked": [...]})``: cars parked at each.

    ## Episode end
    Never terminated; truncated at the first decision at or after 200 time units
    (``horizon_time``), or once ``horizon_arrivals`` users have come.

    ## Arguments
    ``system, observe, action, reward, loss_charge, baseline, horizon_arrivals, horizon_time,
    start`` as above; ``info``: keys wanted: dt, time, router (the user's station), kind (0),
    action_mask, state (reserved and parked by station), counts; ``render_mode``: ``"ansi"``,
    ``"rgb_array"`` or None.

    ## Version history
    - v0: first version.
    """

    TASK = CarSharingTask
    task: CarSharingTask
    defaults: ClassVar[Mapping[str, Any]] = {"system": "cars"}


if CarSharingEnv.__doc__:  # python -OO has none
    _lines = [f"- `{name}`: {text}" for name, (_, text) in COLUMNS.items()]
    _lines += [f"- `{name}`: {text} (context)" for name, (_, text) in CONTEXT.items()]
    CarSharingEnv.__doc__ = CarSharingEnv.__doc__.replace("{columns}", "\n    ".join(_lines))
