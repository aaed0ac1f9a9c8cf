"""The environments of dispatching systems: one step is one decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lbgym.engine import layout
from lbgym.engine.access import (
    Variants,
    any_world,
    call_rule,
    call_with,
    candidate_of,
    code_address,
    flags,
    held,
    inner,
    lean_world,
    message_list,
    pool,
    record_reader,
    world,
)
from lbgym.engine.events import advance, apply, is_balanced
from lbgym.engine.layout import (
    ARRIVAL,
    BALANCED,
    DECIDE,
    GROW,
    INVALID,
    NETWORK,
    NOTHING,
    PAUSE,
    RESAMPLE,
)
from lbgym.engine.queues import is_full
from lbgym.engine.random import below
from lbgym.engine.run import balanced, fill_servers, restart
from lbgym.engine.state import State
from lbgym.policies import Policy, make
from lbgym.suggest import unknown
from lbgym.system import System

from . import rendering
from .desk import MASKED, Functions, desk_at, desk_entry, fresh_streams, is_done
from .observation import (
    ENDS,
    POOLS,
    ROWS,
    SERVERS,
    Observation,
    count_asked,
    describe_columns,
    observe,
    view_at,
    with_count,
)
from .reward import TOTALS, note, prices, prices_at, totals_at
from .reward import reward as reward_since
from .shell import DecisionEnv
from .task import (
    Row,
    Task,
    horizons,
    info_keys,
    model_system,
    options_given,
    start_given,
    whole,
)

DEFAULT_ARRIVALS = 2000
_PLACEMENTS = 1 << 20  # by rule in one step, after which Python may look for Ctrl-C

# --- compiled: one step ---------------------------------------------------------------------------
TABLE = np.dtype(  # at the desk's `at_task`
    [
        ("at_view", "i8"),  # see `observation`
        ("at_prices", "i8"),  # see `reward`
        ("at_totals", "i8"),
        ("acts_on", "i8"),  # what an action names: SERVERS, CANDIDATES, POOLS or ENDS
        ("choices", "i8"),  # how many of them
        ("lossless", "i8"),  # 1: full servers are masked while another has room
        ("at_place", "i8"),  # the compiled rule that places new jobs, 0: the agent does
        ("closed", "i8"),  # 1: the episode ends at balance
    ],
    align=True,
)
table_at = record_reader(TABLE)


@inner
def _chosen_server(w, table, action):
    """The server that an action names at an arrival; a pool's is not drawn here."""
    return action if table.acts_on == SERVERS else candidate_of(w, action).server


@inner
def _has_room_elsewhere(w, table):
    """Whether some choice leads to a server that is not full."""
    for k in range(table.choices):
        if not is_full(w, _chosen_server(w, table, k)):
            return True
    return False


@inner
def _allowed(w, table, action):
    """Whether the mask lets an action of the space pass."""
    if table.acts_on == ENDS:
        return True
    if w.kind == RESAMPLE:
        return action == w.source or action == w.target
    if table.lossless and is_full(w, _chosen_server(w, table, action)):
        return not _has_room_elsewhere(w, table)
    return True


@inner
def _server_in_pool(w, j):
    """A server of pool j whose message the acting router holds, else any; network stream."""
    records = message_list(w, w.router * w.n_pools + j)
    if records.count > 0:
        k = records.begin + below(w, NETWORK, records.count)
        return held(w, k).server
    this = pool(w, j)
    return this.first + below(w, NETWORK, this.servers)


@inner
def _choose(w, table, action, masked):
    """Turn an action into `w.action`, the server; DECIDE, INVALID or MASKED."""
    if action < 0 or action >= table.choices:
        return INVALID
    if masked and not _allowed(w, table, action):
        return MASKED
    if table.acts_on == ENDS:
        w.action = w.target if action == 1 else w.source
    elif table.acts_on == POOLS:
        w.action = _server_in_pool(w, action)
    elif w.kind == RESAMPLE and action != w.target:
        w.action = w.source
    else:
        w.action = _chosen_server(w, table, action)
    w.chosen = 1
    return DECIDE


@inner
def _to_next_decision(w, table, action, masked):
    """Carry out what is pending and go on to what the agent decides next; a status."""
    for _ in range(_PLACEMENTS):
        if w.kind != NOTHING:
            if not w.chosen:
                if table.at_place and w.kind == ARRIVAL:
                    w.action = call_rule(table.at_place, any_world(w))
                    w.chosen = 1
                else:
                    status = _choose(w, table, action, masked)
                    if status != DECIDE:
                        return status
                    count_asked(w, view_at(table.at_view))
            status = apply(w, w.action)
            if status != DECIDE:
                return status
            w.chosen = 0
        if table.closed and is_balanced(w):
            return BALANCED
        status = advance(w)
        if status != DECIDE or not table.at_place or w.kind == RESAMPLE:
            return status
    return PAUSE


@inner
def _go_on(desk, w, action):
    """Go on to the next decision and note at the desk what came of it."""
    table = table_at(desk.at_task)
    desk.status = _to_next_decision(w, table, action, desk.masked)
    if not is_done(desk.status):
        return
    totals = totals_at(table.at_totals)
    desk.dt = w.clock - totals.clock
    desk.reward = reward_since(w, prices_at(table.at_prices), totals)
    desk.truncated = w.arrivals >= desk.horizon_arrivals or w.clock >= desk.horizon_time
    note(w, totals)
    observe(w, view_at(table.at_view), desk.at_row)


@inner
def _begin(address, desk, w, afresh):
    """A new trajectory up to its first decision."""
    if afresh:
        fresh_streams(desk, w)
        restart(w, desk.at_world)
        desk.beginning = 2
    if desk.beginning == 2:
        if fill_servers(w) == GROW:
            desk.status = GROW
            return
        desk.beginning = 1
    call_with(desk.at_step, address, 0)  # not compiled a second time
    if is_done(desk.status):
        desk.beginning, desk.reward, desk.dt, desk.truncated = 0, 0.0, 0.0, 0


@desk_entry
def _step_any(address, action):
    desk = desk_at(address)
    _go_on(desk, world(desk.at_world), action)


@desk_entry
def _step_lean(address, action):
    desk = desk_at(address)
    _go_on(desk, lean_world(desk.at_world), action)


@desk_entry
def _begin_any(address, afresh):
    desk = desk_at(address)
    _begin(address, desk, world(desk.at_world), afresh)


@desk_entry
def _begin_lean(address, afresh):
    desk = desk_at(address)
    _begin(address, desk, lean_world(desk.at_world), afresh)


@inner
def _show(desk, w):
    """Write the observation of the pending decision."""
    observe(w, view_at(table_at(desk.at_task).at_view), desk.at_row)


@desk_entry
def _show_any(address, _):
    desk = desk_at(address)
    _show(desk, world(desk.at_world))


@desk_entry
def _show_lean(address, _):
    desk = desk_at(address)
    _show(desk, lean_world(desk.at_world))


@inner
def _mask(desk, w, at_mask):
    """1 for each action that is allowed now."""
    table = table_at(desk.at_task)
    allowed = flags(at_mask)
    for action in range(table.choices):
        allowed[action] = 1 if _allowed(w, table, action) else 0


@desk_entry
def _mask_any(address, at_mask):
    desk = desk_at(address)
    _mask(desk, world(desk.at_world), at_mask)


@desk_entry
def _mask_lean(address, at_mask):
    desk = desk_at(address)
    _mask(desk, lean_world(desk.at_world), at_mask)


step = Variants((_step_any, _step_lean))  # carry out an action and go on to the next decision
begin = Variants((_begin_any, _begin_lean))  # `_begin`
show = Variants((_show_any, _show_lean))  # `_show`
mask = Variants((_mask_any, _mask_lean))  # `_mask`


# --- the task -------------------------------------------------------------------------------------
class DispatchTask(Task):
    """What the arguments of `DispatchEnv` say; `defaults` stand for those that are None."""

    FUNCTIONS = Functions(step, begin, show, mask)
    FACTS: ClassVar[Mapping[str, Any]] = {
        "time": lambda w, arrays: w["clock"],
        "router": lambda w, arrays: w["router"],
        "kind": lambda w, arrays: (w["kind"] == RESAMPLE) * 1,
        "state": lambda w, arrays: arrays["servers"]["length"].astype(np.int64),
        "counts": layout.COUNTS,
    }

    def __init__(
        self,
        defaults: Mapping[str, Any],
        system: Any = None,
        observe: Sequence[str] | None = None,
        action: str | None = None,
        reward: str | Mapping[str, Any] | None = None,
        loss_charge: float | None = None,
        move_cost: float = 0.0,
        baseline: float = 0.0,
        horizon_arrivals: int | None = None,
        horizon_time: float | None = None,
        start: str | Sequence[int] = "empty",
        info: Sequence[str] = (),
        lossless: bool = False,
        router_samples: int = 1,
        max_jobs: int = 10_000_000,
        place: str | None = None,
    ) -> None:
        def given(name: str, value: Any) -> Any:
            return defaults.get(name) if value is None else value

        self.system: System = model_system(given("system", system), System)
        self.action, samples = _action(given("action", action), self.system)
        self.shown = Observation(self.system, given("observe", observe), self.action, samples)
        self._view: Any = None
        self.columns, self.context = self.shown.columns, self.shown.context
        self.samples = self.shown.samples
        self.placement = _placement(place, self.action, self.system)
        self.place = None if self.placement is None else self.placement.name
        self.router_samples = _router_samples(router_samples, self.system)
        self.observation_space, self.width = self.shown.space, self.shown.width
        self.action_space = spaces.Discrete(self.shown.rows)
        self.info_keys = info_keys(info, self.FACTS)
        self.max_jobs = whole("max_jobs", max_jobs, 1)
        self.start = start_given(start)
        if isinstance(reward, Mapping) and "base" not in reward:
            reward = {"base": defaults.get("reward"), **reward}
        self._priced = (given("reward", reward), loss_charge, move_cost, baseline)
        prices(self.system, *self._priced)
        self.lossless = _lossless(lossless, self.action, self.shown)
        self.masked = self.lossless or "action_mask" in self.info_keys
        if horizon_arrivals is None and horizon_time is None:
            horizon_time = defaults.get("horizon_time")
        self.horizon_arrivals, self.horizon_time = horizons(
            horizon_arrivals, horizon_time, DEFAULT_ARRIVALS
        )
        self.closed = self.system.closed_jobs is not None
        if self.system.closed_jobs == self.system.limits.sum():
            raise ValueError("closed_jobs: fill every place, so that no job can move")

    def new_state(self, system: System, light: bool = False) -> State:
        """A running copy that keeps what the observation and the placement need."""
        shown = self.shown
        kept: dict[str, Any] = {
            "messages": shown.messages,
            "memory": shown.memory,
            "read_memory": shown.read_memory,
            "backlog": shown.backlog,
            "probe_memory": shown.probe_memory,
            "ordered": shown.ordered,
            "samples": shown.samples,
            "router_samples": self.router_samples,
            "watched": True,
        }
        if self.placement is not None:  # its rule runs in the engine, and acts for all routers
            kept |= self.placement.parts.needs()
        asks = "queue_probed" in shown.columns
        return State(
            system, **kept | {"ring_asks": asks, "max_jobs": self.max_jobs}, histogram=not light
        )

    def new_record(self, row: Row) -> TableRecord:
        """Observation, prices and the rest."""
        return TableRecord(self, row.state)

    def view_of(self, state: State) -> Any:
        """The compiled description of the observation, one for all rows of a system."""
        if self._view is None:
            self._view = self.shown.record(state)
        return self._view

    def prices(self, system: System) -> NDArray[Any]:
        """The `PRICES` record, shape (1,)."""
        return prices(system, *self._priced)

    def choices(self, state: State) -> NDArray[Any] | None:
        """Servers, if these are what actions name."""
        return state.arrays["servers"] if self.action == "server" else None

    def start_of(self, options: Mapping[str, Any]) -> Any:
        """``queue_lengths``, or the start of the arguments."""
        options = options_given(options, "queue_lengths")
        return start_given(options["queue_lengths"]) if options else self.start

    def check_start(self, state: State) -> None:
        """A closed system must not be balanced yet."""
        if self.closed and balanced(state.address):
            raise ValueError("start: is balanced already, nothing is to be decided")

    def shape(self) -> tuple[Any, ...]:
        """Servers by pool, routers, what is shown and what actions name."""
        pools = tuple(pool.servers for pool in self.system.pools)
        shown = (self.shown.columns, self.shown.context)
        return pools, self.system.router_count, shown, self.action, self.shown.rows

    def describe_shape(self) -> str:
        """Servers and routers."""
        pools = " + ".join(str(pool.servers) for pool in self.system.pools)
        return f"{pools} servers, {self.system.router_count} routers, {self.shown.rows} choices"

    def picture(self, row: Row, last_action: int | None) -> str:
        """Queues as bars."""
        return rendering.picture(row.state.system, row.state, last_action)

    def drawing(self, row: Row) -> NDArray[np.uint8]:
        """Queues as bars."""
        return rendering.drawing(row.state.system, row.state)


class TableRecord:
    """The `TABLE` record of a row and the arrays behind its addresses."""

    OWN = ("record", "totals", "prices")

    def __init__(self, task: DispatchTask, state: State) -> None:
        self.view = task.view_of(state)
        self.prices = task.prices(state.system)
        self.totals = np.zeros(1, TOTALS)
        self.placement = task.placement
        self.record = np.zeros(1, TABLE)
        this = self.record[0]
        this["acts_on"], this["choices"] = ROWS[task.action], task.shown.rows
        this["lossless"], this["closed"] = task.lossless, task.closed

    def link(self) -> int:
        """Write the addresses; returns the record's own."""
        this = self.record[0]
        this["at_view"] = self.view.link()
        this["at_prices"] = self.prices.ctypes.data
        this["at_totals"] = self.totals.ctypes.data
        self._rule = None if self.placement is None else self.placement.rules()[0]
        this["at_place"] = 0 if self._rule is None else code_address(self._rule)
        return int(self.record.ctypes.data)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_rule"}


# --- the environment ------------------------------------------------------------------------------
class DispatchEnv(DecisionEnv):
    """Jobs arrive at routers, which must send each to one of several servers at once.

    ## Description
    Poisson arrivals come to one of several routers; the acting router sends the job to a server,
    where it waits and is served, or is lost if the server is full. A router sees only its own
    pull-messages (an idle server sends one to a random router) and what it remembers. With
    ``migration_rate > 0`` every job also looks, at the ring of its own clock, at a uniformly drawn
    server: such a *resampling* is a decision too, if the drawn server is another one and has room.
    One step is one decision. The system is any `lbgym.System`, its dict, a scenario's name or the
    path of a TOML file.

    ## Observation
    A flat float32 Box: a table with one row per choice, column after column, then context values.
    ``env.unwrapped.table(obs)`` gives them by name, ``.columns`` and ``.context`` the names.
    Choose them with ``observe=[...]``; default message, message_age, sent, sent_age, speed, limit,
    and source, target, kind if the system migrates (``action="candidate"``: queue_probed, speed,
    limit; ``action="move"``: queue_probed, speed). All values are bounded; the acting router's own
    columns are 0 at a resampling.

    {columns}

    Messages exist in the system only if a message column is shown or actions are pools. Live
    queues cost messages: `queue` asks all servers at each arrival, `queue_probed` the sampled ones
    at each arrival and the target at each resampling. `queue_order` makes random ties reproduce
    `lbgym.simulate` bit for bit; `message_order` does the same for messages.

    ## Action
    - ``"server"`` (default), Discrete(n): the server. At a resampling the source stays, the target
      moves, any other server is a stay.
    - ``"candidate(d)"``, Discrete(d): one of d sampled servers (not for migrating systems); with a
      graph the only form, d = 2: which end of the job's edge.
    - ``"pool"``, Discrete(pools): a server of that pool whose message the acting router holds,
      else a uniform one of the pool (not for migrating systems).
    - ``"move"``, Discrete(2), for migrating systems: only resamplings are decisions, 0 stays, 1
      moves. A policy places new jobs (``place="random"``, or any other by name) without a step of
      its own; the table has two rows, source and target. The default of closed systems.

    A full server loses the job. `action_masks()` and the info key ``action_mask`` tell what is
    allowed: everything at an arrival, source and target at a resampling; with ``lossless=True``
    servers that the observation shows full are masked while another has room. A masked action
    raises ValueError if ``lossless`` or ``action_mask`` was asked for.

    ## Reward
    ``"response"`` (default; first come first served without migration): minus the expected response
    time of the job just placed. ``"holding"`` (default otherwise): minus the time integral of the
    number in system since the last decision. ``"loss"`` (the only one of systems with units): minus
    the weight of each lost job. ``"time"`` (default of closed systems): minus the elapsed time. All
    subtract ``loss_charge`` times its weight for a lost job (default
    ``system.default_loss_charge``, for "loss" 1) and ``move_cost`` for a move, and add ``baseline``
    times the elapsed time. ``{"base": "response", "messages": 0.01}`` adds prices by name
    (messages, migrations). Unit: mean service time of a speed-1 server.

    ## Starting state
    ``start="empty"``, ``"warm"`` (each queue from its stationary law under speed-weighted random
    dispatch) or a list of queue lengths; ``reset(options={"queue_lengths": [...]})`` once. A closed
    system begins "empty" with all its jobs in server 0.

    ## Episode end
    Never terminated: the task goes on; only a closed system ends, as soon as no job could gain by
    moving. Truncated once ``horizon_arrivals`` jobs have been placed
    (default 2,000 if no horizon is given; -1: never), at the first decision at or after
    ``horizon_time``, or when ``max_jobs`` are in the system (then info has ``overload``, the
    reason).

    ## Arguments
    ``system, observe, action, reward, loss_charge, move_cost, baseline, horizon_arrivals,
    horizon_time, start`` as above, and

    - ``info``: keys wanted: dt (time since the last decision), time, router (-1 at a resampling),
      kind (0 arrival, 1 resampling), action_mask (int8), state (all queue lengths), counts.
    - ``lossless``: see Action; needs `queue` or `vacancy` to be shown (candidates: or
      `queue_probed`).
    - ``place``: the policy that places new jobs, with ``action="move"``.
    - ``router_samples``: routers among which an idle server picks the one with fewest messages.
    - ``max_jobs``: most jobs in the system.
    - ``render_mode``: ``"ansi"`` (text), ``"rgb_array"`` (a picture) or None.

    ## Version history
    - v0: first version.
    """

    TASK = DispatchTask
    task: DispatchTask
    defaults: ClassVar[Mapping[str, Any]] = {"system": "flagship"}

    @property
    def samples(self) -> int:
        """Servers sampled for each job."""
        return self.task.samples

    @property
    def place(self) -> str | None:
        """The policy that places new jobs, if the agent does not."""
        return self.task.place


if DispatchEnv.__doc__:  # python -OO has none
    DispatchEnv.__doc__ = DispatchEnv.__doc__.replace("{columns}", describe_columns())


# --- reading the arguments ------------------------------------------------------------------------
_FORMS = ("server", "candidate(d)", "pool", "move")


def _action(action: Any, system: System) -> tuple[str, int]:
    """What actions name, and how many servers are sampled for them."""
    if action is None:
        action = "move" if system.closed_jobs is not None else "server"
        action = "candidate(2)" if system.graph is not None else action
    if not isinstance(action, str):
        forms = f"{', '.join(map(repr, _FORMS[:-1]))} or {_FORMS[-1]!r}"
        raise ValueError(f"action: must be {forms}, got {action!r}")
    samples = with_count(action, "candidate", 2, "action")
    if samples is None and action not in _FORMS:
        raise ValueError(f"action: {unknown('form', action, _FORMS)}")
    if system.graph is not None and samples != 2 and action != "move":
        raise ValueError(
            f"action: with a graph it is which of its edge's two ends a job joins; "
            f"use 'candidate(2)', got {action!r}"
        )
    if action == "move":
        return action, _can_move(system)
    if system.migrates and action != "server":
        raise ValueError(
            f"action: {action!r} cannot answer resamplings, and this system's jobs migrate; "
            "use 'server' or 'move'"
        )
    return (action, 0) if samples is None else ("candidate", samples)


def _can_move(system: System) -> int:
    """No samples; ValueError unless resamplings will be decisions."""
    if not system.migrates:
        raise ValueError("action: 'move' needs a system with migration_rate above 0")
    if system.servers < 2:
        raise ValueError("action: 'move' needs at least 2 servers, the system has 1")
    return 0


def _placement(place: Any, action: str, system: System) -> Policy | None:
    """The policy that places new jobs, if the agent does not."""
    if action != "move" or system.closed_jobs is not None:
        if place is not None:
            why = "no jobs arrive" if action == "move" else "they are the agent's decisions"
            raise ValueError(f"place: is for new jobs, but {why}; got {place!r}")
        return None
    if not isinstance(place, str | None):
        raise ValueError(f"place: must be a policy's name, got {place!r}")
    policy = make("random" if place is None else place, system)
    if policy.name.startswith("local-search"):
        raise ValueError("place: must be a policy for new jobs, got local-search")
    return policy


def _router_samples(value: Any, system: System) -> int:
    number = whole("router_samples", value, 1)
    if number > system.router_count:
        raise ValueError(
            f"router_samples: must be at most the number of routers ({system.router_count}), "
            f"got {number}"
        )
    return number


def _lossless(lossless: Any, action: str, shown: Observation) -> bool:
    """Whether full servers are masked; ValueError if the observation does not show them."""
    if not isinstance(lossless, bool | np.bool_):
        raise ValueError(f"lossless: must be True or False, got {lossless!r}")
    seen = {"server": ("queue", "vacancy"), "candidate": ("queue", "queue_probed", "vacancy")}
    needs = seen.get(action, ())
    if lossless and not set(needs) & set(shown.columns):
        wanted = " or ".join(map(repr, needs)) or "action='server' or 'candidate'"
        raise ValueError(
            f"lossless: masks servers that the observation shows full, so it needs {wanted}"
        )
    return bool(lossless)
