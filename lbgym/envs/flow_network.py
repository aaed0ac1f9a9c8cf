"""The environment of flow networks: one step is a route to choose, or an access rate to set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lbgym.checks import finite
from lbgym.engine.access import flags, floats, inner, integers, record_reader
from lbgym.engine.layout import DECIDE, GROW, INVALID, NOTHING
from lbgym.models import flow_engine
from lbgym.models.flow_engine import (
    ROUTE,
    FlowState,
    advance,
    apply,
    choices,
    group,
    klass_of,
    level_of,
    link,
    restart,
    route_load,
    world,
)
from lbgym.models.flow_network import FlowNetwork

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
    whole,
)

DEFAULT_TIME = 200.0
FLOWS, ROUTE_FLOWS, LINK_LOAD, ACCESS_RATE, ROUTE_LOAD, KIND, CLASS, LEVEL = range(8)
SHOWN = {
    "flows": (FLOWS, "x / (1 + x), x the flows of each class"),
    "route_flows": (ROUTE_FLOWS, "the same of each class and route, class after class"),
    "link_load": (LINK_LOAD, "y / (1 + y), y what reaches each link over its capacity"),
    "access_rate": (ACCESS_RATE, "a / (1 + a), a the access rate of each level"),
    "route_load": (ROUTE_LOAD, "y / (1 + y), y the load of each route of the arriving flow"),
    "kind": (KIND, "0: choose a route, 1: set an access rate (context)"),
    "class": (CLASS, "class of the arriving flow; 0 otherwise (context)"),
    "level": (LEVEL, "the access-rate level in force (context)"),
}
DEFAULT_SHOWN = ("flows", "link_load")


# --- compiled: one step ---------------------------------------------------------------------------
FLOW_TASK = np.dtype(  # at the desk's `at_task`
    [
        ("at_codes", "i8"),  # int64 codes of what is shown
        ("codes", "i8"),
        ("choices", "i8"),
        ("baseline", "f8"),
        ("clock", "f8"),  # as they stood at the last decision
        ("area", "f8"),
    ],
    align=True,
)
flows_at = record_reader(FLOW_TASK)


@inner
def _share(x):
    y = np.float32(x)
    return y / (y + np.float32(1))


@inner
def _show_choices(w, this, code, p, place):
    """Access rates or loads of what there is to choose; 0 beyond."""
    for k in range(this.choices):
        x = np.float32(0)
        if code == ACCESS_RATE and k < w.n_levels and w.n_levels > 1:
            x = _share(level_of(w, k).access)
        elif code == ROUTE_LOAD and w.kind == ROUTE and k < klass_of(w, w.klass).routes:
            x = _share(route_load(w, klass_of(w, w.klass).first + k))
        p[place + k] = x


@inner
def observe(w, this, address):
    """Write the observation of the pending decision to an address."""
    codes, p = integers(this.at_codes), floats(address)
    place = 0
    for c in range(this.codes):
        code = codes[c]
        if code == FLOWS:
            for k in range(w.n_classes):
                p[place + k] = _share(klass_of(w, k).flows)
            place += w.n_classes
        elif code == ROUTE_FLOWS:
            for k in range(w.n_groups):
                p[place + k] = _share(group(w, k).flows)
            place += w.n_groups
        elif code == LINK_LOAD:
            for k in range(w.n_links):
                p[place + k] = _share(link(w, k).input / link(w, k).capacity)
            place += w.n_links
        elif code == ACCESS_RATE or code == ROUTE_LOAD:
            _show_choices(w, this, code, p, place)
            place += this.choices
        else:
            x = w.level
            if code == KIND:
                x = 0 if w.kind == ROUTE else 1
            elif code == CLASS:
                x = w.klass if w.kind == ROUTE else 0
            p[place] = np.float32(x)
            place += 1


@inner
def _go_on(desk, action):
    """Go on to the next decision and note at the desk what came of it."""
    w, this = world(desk.at_world), flows_at(desk.at_task)
    if w.kind != NOTHING:
        if action < 0 or action >= this.choices:
            desk.status = INVALID
            return
        if w.present >= w.most:
            desk.status = GROW
            return
        apply(w, min(action, choices(w) - 1))
    desk.status = advance(w)
    if desk.status != DECIDE:
        return
    desk.dt = w.clock - this.clock
    desk.reward = this.area - w.area + this.baseline * desk.dt
    desk.truncated = w.arrivals >= desk.horizon_arrivals or w.clock >= desk.horizon_time
    this.clock, this.area = w.clock, w.area
    observe(w, this, desk.at_row)


@desk_entry
def step(address, action):
    """Carry out an action, if a decision is pending, and go on to the next decision."""
    _go_on(desk_at(address), action)


@desk_entry
def begin(address, afresh):
    """A new trajectory up to its first decision."""
    desk = desk_at(address)
    w, this = world(desk.at_world), flows_at(desk.at_task)
    if afresh:
        fresh_streams(desk, w)
        restart(desk.at_world)
        this.clock, this.area = 0.0, 0.0
        desk.beginning = 1
    _go_on(desk, 0)
    if is_done(desk.status):
        desk.beginning, desk.reward, desk.dt, desk.truncated = 0, 0.0, 0.0, 0


@desk_entry
def show(address, _):
    """Write the observation of the pending decision."""
    desk = desk_at(address)
    observe(world(desk.at_world), flows_at(desk.at_task), desk.at_row)


@desk_entry
def mask(address, at_mask):
    """1 for each action that the pending decision has."""
    desk = desk_at(address)
    w, this = world(desk.at_world), flows_at(desk.at_task)
    allowed = flags(at_mask)
    for action in range(this.choices):
        allowed[action] = 1 if action < choices(w) else 0


# --- the task -------------------------------------------------------------------------------------
class FlowNetworkTask(Task):
    """What the arguments of `FlowNetworkEnv` say."""

    FUNCTIONS = Functions(step, begin, show, mask)
    FACTS: ClassVar[Mapping[str, Any]] = {
        "time": lambda w, arrays: w["clock"],
        "router": lambda w, arrays: 0 * w["kind"],
        "kind": lambda w, arrays: (w["kind"] != ROUTE) * 1,
        "state": lambda w, arrays: arrays["classes"]["flows"].astype(np.int64),
        "counts": {name: name for name in flow_engine.COUNTS},
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
        max_jobs: int = 10_000_000,
    ) -> None:
        self.system = model_system(defaults["system"] if system is None else system, FlowNetwork)
        has_levels = self.system.level_class is not None
        self.action = "level" if has_levels else "route"
        if not has_levels and not self.system.route_classes:
            raise ValueError(
                "system: nothing is to be decided; give a flow alternative routes or access_rates"
            )
        if action not in (None, self.action):
            raise ValueError(f"action: this network's choices are {self.action!r}s, got {action!r}")
        meaningless("reward", reward, None, "holding")
        meaningless("loss_charge", loss_charge, None, 0, 0.0)
        meaningless("move_cost", move_cost, 0.0)
        self.baseline = finite("baseline", baseline)
        self.max_jobs = whole("max_jobs", max_jobs, 1)
        self.start = start_given(start)
        self.columns = tuple(DEFAULT_SHOWN if observe is None else observed(observe, list(SHOWN)))
        self.context: tuple[str, ...] = ()
        self.action_space = spaces.Discrete(self._choices())
        self.shown = self._segments()
        self.observation_space, self.width = self.shown.space, self.shown.width
        self.info_keys = info_keys(info, self.FACTS)
        self.masked = "action_mask" in self.info_keys
        if horizon_arrivals is None and horizon_time is None:
            horizon_time = DEFAULT_TIME
        self.horizon_arrivals, self.horizon_time = horizons(horizon_arrivals, horizon_time, 1)

    def _choices(self) -> int:
        chooser = self.system.level_class
        if chooser is not None:
            return len(self.system.flows[chooser].levels)
        return max(len(flow.alternatives) for flow in self.system.flows)

    def _segments(self) -> Segments:
        n = int(self.action_space.n)
        sizes = {"flows": self.system.classes, "link_load": self.system.links}
        sizes |= {"route_flows": len(self.system.groups), "access_rate": n, "route_load": n}
        highs = {"class": max(1.0, self.system.classes - 1.0), "level": max(1.0, n - 1.0)}
        return Segments([(name, sizes.get(name, 0), highs.get(name, 1.0)) for name in self.columns])

    def new_state(self, system: FlowNetwork, light: bool = False) -> FlowState:
        """A running copy."""
        return FlowState(system, max_jobs=self.max_jobs)

    def new_record(self, row: Row) -> FlowsRecord:
        """What the compiled step reads."""
        return FlowsRecord(self)

    def start_of(self, options: Mapping[str, Any]) -> Any:
        """``flows``: of each class; or the start of the arguments."""
        options = options_given(options, "flows")
        return start_given(options["flows"]) if options else self.start

    def shape(self) -> tuple[Any, ...]:
        """Classes, links, choices and what is shown."""
        return self.system.classes, self.system.links, int(self.action_space.n), self.columns

    def describe_shape(self) -> str:
        """Classes, links and choices."""
        return (
            f"{self.system.classes} classes, {self.system.links} links and "
            f"{self.action_space.n} {self.action}s"
        )

    def picture(self, row: Row, last_action: int | None) -> str:
        """Flows of each class as bars, and the links."""
        w, arrays = row.state.world[0], row.state.arrays
        lines = [f"time {w['clock']:.3f}   flows {w['present']}   arrivals {w['arrivals']}"]
        for k, c in enumerate(arrays["classes"]):
            lines.append(f"  class {k} |{'#' * min(int(c['flows']), 40)} {c['flows']}")
        for k, x in enumerate(arrays["links"]):
            lines.append(f"  link {k}: input {x['input']:.3g} of capacity {x['capacity']:g}")
        if w["kind"] == ROUTE:
            lines.append(f"decide: the route of a flow of class {w['klass']}")
        else:
            lines.append(f"decide: the access rate of class {w['level_class']}")
        if last_action is not None:
            lines.append(f"last action {last_action}")
        return "\n".join(lines) + "\n"

    def drawing(self, row: Row) -> NDArray[np.uint8]:
        """Flows of each class as columns."""
        flows = row.state.arrays["classes"]["flows"]
        return rendering.columns(flows, np.zeros_like(flows), np.full(len(flows), 20), {})


class FlowsRecord:
    """The `FLOW_TASK` record of a row."""

    OWN = ("record",)

    def __init__(self, task: FlowNetworkTask) -> None:
        self.codes = np.array([SHOWN[name][0] for name in task.columns], np.int64)
        self.record = np.zeros(1, FLOW_TASK)
        this = self.record[0]
        this["codes"], this["choices"] = len(task.columns), task.action_space.n
        this["baseline"] = task.baseline

    def link(self) -> int:
        """Write the addresses; returns the record's own."""
        self.record[0]["at_codes"] = self.codes.ctypes.data
        return int(self.record.ctypes.data)


class FlowNetworkEnv(DecisionEnv):
    """Flows cross links that drop what they cannot carry; routes or access rates are chosen.

    ## Description
    Flows of several classes arrive, each sends at its access rate along its route whatever the
    congestion, and leaves when enough has come through (M. Feuillet 2012). Links drop in proportion
    (tail drop) or fairly. Sending faster than the links carry can make a network unstable in which
    every link could carry its load. The agent chooses the route of each arriving flow of a class
    that has several, or, whenever something has happened while flows of the class with several
    access rates are there, the rate at which these send. Default: two links, one class over both
    (its rate is 0.25, 0.5, 1 or 2) and one over each, loads 0.3: the best fixed rate leaves 3.087
    flows on average, the best policy 2.680.

    ## Observation
    A flat float32 Box in [0, 1] (class, level: whole numbers). Default flows, link_load; choose
    with ``observe=[...]`` among

    {shown}

    ``env.unwrapped.table(obs)`` gives them by name.

    ## Action
    Discrete(alternatives): the access-rate level, or the route. A number beyond the alternatives of
    the pending decision means the last of them; `action_masks()` and the info key ``action_mask``
    tell which there are.

    ## Reward
    Minus the time integral of the number of flows since the last decision (``"holding"``), plus
    ``baseline`` times the elapsed time. Compare policies per unit time, not per step.

    ## Starting state
    Empty; ``start=[...]`` or ``reset(options={"flows": [...]})``: flows of each class.

    ## Episode end
    Never terminated; truncated at the first decision at or after 200 time units (``horizon_time``),
    once ``horizon_arrivals`` flows have come, or when ``max_jobs`` flows are there (then info has
    ``overload``, the reason).

    ## Arguments
    ``system, observe, baseline, horizon_arrivals, horizon_time, start, max_jobs`` as above;
    ``info``: keys wanted: dt, time, router (0), kind (0 route, 1 access rate), action_mask, state
    (flows of each class), counts; ``render_mode``: ``"ansi"``, ``"rgb_array"`` or None.

    ## Version history
    - v0: first version.
    """

    TASK = FlowNetworkTask
    task: FlowNetworkTask
    defaults: ClassVar[Mapping[str, Any]] = {"system": "flow-rate"}


if FlowNetworkEnv.__doc__:  # python -OO has none
    _lines = [f"- `{name}`: {text}" for name, (_, text) in SHOWN.items()]
    FlowNetworkEnv.__doc__ = FlowNetworkEnv.__doc__.replace("{shown}", "\n    ".join(_lines))
