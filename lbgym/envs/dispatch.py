"""The single-agent environment of dispatching systems: one step is one decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from numba import types
from numpy.typing import NDArray

from lbgym.engine import layout
from lbgym.engine.access import (
    call_rule,
    candidate_of,
    entry,
    entry_of,
    held,
    inner,
    message_list,
    pool,
    record_reader,
    rule_address,
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
    POLICY,
    RESAMPLE,
)
from lbgym.engine.queues import is_full
from lbgym.engine.random import below
from lbgym.engine.state import Overload, State
from lbgym.policies import Policy, make
from lbgym.suggest import unknown
from lbgym.system import System, as_system

from . import rendering
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
from .reward import TOTALS, finite, note, prices, prices_at, totals_at
from .reward import reward as reward_since

Obs = NDArray[np.float32]

INFO = ("dt", "time", "router", "kind", "action_mask", "state", "counts")
DEFAULT_ARRIVALS = 2000
_NEVER = 1 << 62
_BLOCK_BYTES, _BLOCK_ROWS = 1 << 16, 256  # observations are cut from blocks of fresh memory
_PLACEMENTS = 1 << 20  # by rule in one step, after which Python may look for Ctrl-C

# --- compiled: one step ---------------------------------------------------------------------------
DESK = np.dtype(
    [
        ("at_world", "i8"),
        ("at_view", "i8"),  # see `observation`
        ("at_prices", "i8"),  # see `reward`
        ("at_totals", "i8"),
        ("at_row", "i8"),  # where the next observation goes
        ("row_bytes", "i8"),
        ("acts_on", "i8"),  # what an action names: SERVERS, CANDIDATES, POOLS or ENDS
        ("choices", "i8"),  # how many of them
        ("masked", "i8"),  # 1: a masked action is an error
        ("lossless", "i8"),  # 1: full servers are masked while another has room
        ("at_place", "i8"),  # the compiled rule that places new jobs, 0: the agent does
        ("closed", "i8"),  # 1: the episode ends at balance
        ("horizon_arrivals", "i8"),
        ("horizon_time", "f8"),
    ],
    align=True,
)
MASKED = 5  # status: the action is masked
desk_at = record_reader(DESK)


@inner
def _chosen_server(w, desk, action):
    """The server that an action names at an arrival; a pool's is not drawn here."""
    return action if desk.acts_on == SERVERS else candidate_of(w, action).server


@inner
def _has_room_elsewhere(w, desk):
    """Whether some choice leads to a server that is not full."""
    for k in range(desk.choices):
        if not is_full(w, _chosen_server(w, desk, k)):
            return True
    return False


@inner
def _allowed(w, desk, action):
    """Whether the mask lets an action of the space pass."""
    if desk.acts_on == ENDS:
        return True
    if w.kind == RESAMPLE:
        return action == w.source or action == w.target
    if desk.lossless and is_full(w, _chosen_server(w, desk, action)):
        return not _has_room_elsewhere(w, desk)
    return True


@inner
def _server_in_pool(w, j):
    """A server of pool j whose message the acting router holds, else any; network stream."""
    records = message_list(w, w.router * w.n_pools + j)
    if records.count > 0:
        k = records.begin + below(w, NETWORK, records.count)
        return entry_of(w, held(w, k).entry).server
    this = pool(w, j)
    return this.first + below(w, NETWORK, this.servers)


@inner
def _choose(w, desk, action):
    """Turn an action into `w.action`, the server; DECIDE, INVALID or MASKED."""
    if action < 0 or action >= desk.choices:
        return INVALID
    if desk.masked and not _allowed(w, desk, action):
        return MASKED
    if desk.acts_on == ENDS:
        w.action = w.target if action == 1 else w.source
    elif desk.acts_on == POOLS:
        w.action = _server_in_pool(w, action)
    elif w.kind == RESAMPLE and action != w.target:
        w.action = w.source
    else:
        w.action = _chosen_server(w, desk, action)
    w.chosen = 1
    return DECIDE


@inner
def _show(w, desk):
    """Write the observation of the pending decision into the next row."""
    observe(w, view_at(desk.at_view), desk.at_row)
    desk.at_row += desk.row_bytes


@inner
def _to_next_decision(w, desk, action):
    """Carry out what is pending and go on to what the agent decides next; a status."""
    for _ in range(_PLACEMENTS):
        if w.kind != NOTHING:
            if not w.chosen:
                if desk.at_place and w.kind == ARRIVAL:
                    w.action = call_rule(desk.at_place, w)
                    w.chosen = 1
                else:
                    status = _choose(w, desk, action)
                    if status != DECIDE:
                        return status
                    count_asked(w, view_at(desk.at_view))
            status = apply(w, w.action)
            if status != DECIDE:
                return status
            w.chosen = 0
        if desk.closed and is_balanced(w):
            return BALANCED
        status = advance(w)
        if status != DECIDE or not desk.at_place or w.kind == RESAMPLE:
            return status
    return PAUSE


_outcome = types.Tuple((types.int64, types.boolean, types.float64, types.float64))


@entry(_outcome(types.int64, types.int64))
def step_once(address, action):
    """Carry out an action, if a decision is pending, and go on to the next decision.

    Returns (status, truncated, reward, dt). DECIDE: done, the observation is written; BALANCED: the
    same, and a closed system has come to its end. GROW or PAUSE: call again, with the same action,
    after making room. INVALID or MASKED: nothing happened.
    """
    desk = desk_at(address)
    w = world(desk.at_world)
    status = _to_next_decision(w, desk, action)
    if status != DECIDE and status != BALANCED:
        return status, False, 0.0, 0.0
    totals = totals_at(desk.at_totals)
    dt = w.clock - totals.clock
    paid = reward_since(w, prices_at(desk.at_prices), totals)
    note(w, totals)
    _show(w, desk)
    truncated = w.arrivals >= desk.horizon_arrivals or w.clock >= desk.horizon_time
    return status, truncated, paid, dt


@entry(types.void(types.int64))
def show_again(address):
    """Write the observation of the pending decision once more."""
    desk = desk_at(address)
    _show(world(desk.at_world), desk)


@entry(types.boolean(types.int64))
def balanced(address):
    """Whether no job of a closed system could gain by moving; takes the world's address."""
    return is_balanced(world(address))


@entry(types.void(types.int64, types.int8[::1]))
def fill_mask(address, mask):
    """1 for each action that is allowed now; shape (choices,)."""
    desk = desk_at(address)
    w = world(desk.at_world)
    for action in range(desk.choices):
        mask[action] = _allowed(w, desk, action)


# --- the environment ------------------------------------------------------------------------------
class DispatchEnv(gym.Env[Obs, np.int64]):
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

    metadata = {  # noqa: RUF012 (Gymnasium's own form)
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 4,
    }
    action_space: spaces.Discrete
    # Arguments that an id sets where the user gives none.
    defaults: ClassVar[Mapping[str, Any]] = {"system": "flagship"}

    def __init__(
        self,
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
        render_mode: str | None = None,
        lossless: bool = False,
        router_samples: int = 1,
        max_jobs: int = 10_000_000,
        place: str | None = None,
    ) -> None:
        self.system = as_system(self._or_default("system", system))
        self.action, samples = _action(self._or_default("action", action), self.system)
        observe = self._or_default("observe", observe)
        self._shown = Observation(self.system, observe, self.action, samples)
        self.columns, self.context = self._shown.columns, self._shown.context
        self.samples = self._shown.samples
        self.placement = _placement(place, self.action, self.system)
        self.place = None if self.placement is None else self.placement.name
        self.router_samples = _router_samples(router_samples, self.system)
        self.observation_space = self._shown.space
        self.action_space = spaces.Discrete(self._shown.rows)
        self.info_keys = _info(info)
        self.render_mode = _render_mode(render_mode, self.metadata["render_modes"])
        self.max_jobs = _whole("max_jobs", max_jobs, 1)
        self._start = _start(start)
        if isinstance(reward, Mapping) and "base" not in reward:
            reward = {"base": self.defaults.get("reward"), **reward}
        reward = self._or_default("reward", reward)
        self._prices = prices(self.system, reward, loss_charge, move_cost, baseline)
        self._check_lossless(lossless)
        self._totals = np.zeros(1, TOTALS)
        self._state = self._new_state()
        self._view = self._shown.record(self._state)
        if horizon_arrivals is None and horizon_time is None:
            horizon_time = self.defaults.get("horizon_time")
        self._desk = self._new_desk(lossless, horizon_arrivals, horizon_time)
        self._status = "new"
        self._last_action: int | None = None
        self._link()
        self._try_start()

    # --- building ---
    def _or_default(self, name: str, value: Any) -> Any:
        return self.defaults.get(name) if value is None else value

    def _new_state(self) -> State:
        shown = self._shown
        kept: dict[str, Any] = {
            "messages": shown.messages,
            "memory": shown.memory,
            "read_memory": shown.read_memory,
            "ordered": shown.ordered,
            "samples": shown.samples,
            "router_samples": self.router_samples,
        }
        if self.placement is not None:  # its rule runs in the engine, and acts for all routers
            kept |= self.placement.parts.needs()
        asks = "queue_probed" in shown.columns
        return State(self.system, **kept | {"ring_asks": asks, "max_jobs": self.max_jobs})

    def _new_desk(
        self, lossless: bool, horizon_arrivals: int | None, horizon_time: float | None
    ) -> NDArray[Any]:
        record = np.zeros(1, DESK)
        desk = record[0]
        desk["row_bytes"] = 4 * self._shown.width
        desk["acts_on"] = ROWS[self.action]
        desk["closed"] = self.system.closed_jobs is not None
        desk["choices"] = self.action_space.n
        desk["lossless"] = lossless
        desk["masked"] = lossless or "action_mask" in self.info_keys
        arrivals, end = _horizons(horizon_arrivals, horizon_time)
        desk["horizon_arrivals"], desk["horizon_time"] = arrivals, end
        return record

    def _check_lossless(self, lossless: bool) -> None:
        if not isinstance(lossless, bool | np.bool_):
            raise ValueError(f"lossless: must be True or False, got {lossless!r}")
        seen = {"server": ("queue", "vacancy"), "candidate": ("queue", "queue_probed", "vacancy")}
        needs = seen.get(self.action, ())
        if lossless and not set(needs) & set(self.columns):
            wanted = " or ".join(map(repr, needs)) or "action='server' or 'candidate'"
            raise ValueError(
                f"lossless: masks servers that the observation shows full, so it needs {wanted}"
            )

    def _link(self) -> None:
        """Write the addresses and bind the compiled step; nothing is ready to be stepped."""
        self._rows: list[Obs] = []
        desk = self._desk[0]
        desk["at_world"] = self._state.address
        desk["at_view"] = self._view.link()
        desk["at_prices"] = self._prices.ctypes.data
        desk["at_totals"] = self._totals.ctypes.data
        self._rule = None if self.placement is None else self.placement.rules()[0]
        desk["at_place"] = 0 if self._rule is None else rule_address(self._rule)
        self._at = int(self._desk.ctypes.data)
        self.policy_stream_address = int(self.policy_stream.ctypes.data)
        self._step_once = step_once.direct()
        self._only_dt = self.info_keys == ("dt",)
        self._block = max(8, min(_BLOCK_ROWS, _BLOCK_BYTES // (4 * self._shown.width)))

    def _try_start(self) -> None:
        """Raise now what an impossible start would raise at the first reset."""
        if self.system.closed_jobs == self.system.limits.sum():
            raise ValueError("closed_jobs: fill every place, so that no job can move")
        self._state.seed(np.random.default_rng(0))
        self._begin(self._start)

    def _begin(self, start: Any) -> None:
        self._state.begin(start)
        if self._desk[0]["closed"] and balanced(self._state.address):
            raise ValueError("start: is balanced already, nothing is to be decided")

    def __getstate__(self) -> dict[str, Any]:
        """Everything but addresses and compiled code: environments can be copied and pickled."""
        bound = ("_rows", "_at", "_rule", "_step_once", "policy_stream_address")
        return {key: value for key, value in self.__dict__.items() if key not in bound}

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self._link()

    # --- Gymnasium's four ---
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """A new trajectory; ``options={"queue_lengths": [...]}`` begins from these."""
        super().reset(seed=seed)
        if self._status == "closed":
            raise ClosedEnvironmentError("reset after close: make a new environment")
        start = self._start
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(f"options: must be a dict, got {options!r}")
        for key, value in (options or {}).items():
            if key != "queue_lengths":
                raise ValueError(f"options: {unknown('key', key, ('queue_lengths',))}")
            start = _start(value)
        self._state.seed(self.np_random)
        self._begin(start)
        self._status, self._last_action = "running", None
        rows = self._rows or self._more_rows()
        while (status := self._step_once(self._at, 0)[0]) != DECIDE:  # nothing is pending
            if status == GROW:
                self._state.grow()
        return rows.pop(), self._information(0.0)

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """Carry out an action and go on to the next decision.

        Raises ValueError for an action outside the space or under a mask that was asked for.
        """
        if type(action) is not int:
            action = self._number(action)
        rows = self._rows or self._more_rows()
        try:
            status, truncated, reward, dt = self._step_once(self._at, action)
        except OverflowError:  # more than 64 bits
            self._refuse(action)
        terminated = False
        if status:
            if status != BALANCED:
                status, truncated, reward, dt, reason = self._settle(status, action)
                if reason:
                    info = self._information(0.0) | {"overload": reason}
                    return rows.pop(), 0.0, False, True, info
            terminated = status == BALANCED
        self._last_action = action
        info = {"dt": dt} if self._only_dt else self._information(dt)
        return rows.pop(), reward, terminated, truncated, info

    def render(self) -> Any:
        """The queues and what is to be decided: text ("ansi") or pixels ("rgb_array")."""
        if self.render_mode is None:
            gym.logger.warn(
                "render needs render_mode='ansi' or 'rgb_array', given to the constructor or "
                "gym.make"
            )
            return None
        self._must_run("render")
        if self.render_mode == "rgb_array":
            return rendering.drawing(self.system, self._state)
        return rendering.picture(self.system, self._state, self._last_action)

    def close(self) -> None:
        """No further steps; may be called twice."""
        self._status, self._rows = "closed", []

    # --- the rare paths of a step ---
    def _must_run(self, what: str) -> None:
        """Raise unless the environment was reset and is not closed."""
        if self._status == "new":
            raise ResetNeeded(f"{what} before reset: call reset first")
        if self._status == "closed":
            raise ClosedEnvironmentError(f"{what} after close: make a new environment")

    def _more_rows(self) -> list[Obs]:
        """Fresh memory for observations; also where a step that must not be made ends up."""
        self._must_run("step")
        block = np.empty((self._block, self._shown.width), np.float32)
        self._desk[0]["at_row"] = block.ctypes.data
        self._rows = list(block[::-1])
        return self._rows

    def _number(self, action: Any) -> int:
        """A plain integer from a NumPy one or a 0-d array."""
        if isinstance(action, np.integer) or (
            isinstance(action, np.ndarray)
            and action.shape == ()
            and np.issubdtype(action.dtype, np.integer)
        ):
            return int(action)
        self._refuse(action)

    def _refuse(self, action: Any) -> NoReturn:
        raise ValueError(
            f"action: must be an integer from 0 to {self.action_space.n - 1}, got {action!r}"
        )

    def _settle(self, status: int, action: int) -> tuple[int, bool, float, float, str]:
        """Finish a step that needs room or time, or raise; the last value tells an overload."""
        truncated, reward, dt = False, 0.0, 0.0
        while status not in (DECIDE, BALANCED):
            if status == INVALID:
                self._refuse(action)
            if status == MASKED:
                allowed = np.flatnonzero(self.action_masks()).tolist()
                raise ValueError(f"action: {action} is masked, allowed now: {allowed}")
            if status == GROW:
                try:
                    self._state.grow()
                except Overload as overload:
                    self._state.world[0]["chosen"] = 0
                    show_again(self._at)
                    return DECIDE, True, 0.0, 0.0, str(overload)
            elif status != PAUSE:
                raise AssertionError(status)
            status, truncated, reward, dt = self._step_once(self._at, action)
        return status, truncated, reward, dt, ""

    # --- what else can be seen ---
    def _information(self, dt: float) -> dict[str, Any]:
        w = self._state.world[0]
        info: dict[str, Any] = {}
        for key in self.info_keys:
            if key == "dt":
                info[key] = dt
            elif key == "time":
                info[key] = float(w["clock"])
            elif key == "router":
                info[key] = int(w["router"])
            elif key == "kind":
                info[key] = int(w["kind"] == RESAMPLE)
            elif key == "action_mask":
                info[key] = self._mask()
            elif key == "state":
                info[key] = self._state.arrays["servers"]["length"].astype(np.int64)
            else:
                info[key] = {name: int(w[field]) for name, field in layout.COUNTS.items()}
        return info

    def _mask(self) -> NDArray[np.int8]:
        mask = np.ones(int(self.action_space.n), np.int8)
        if self._state.world[0]["kind"] != ARRIVAL or self._desk[0]["lossless"]:
            fill_mask(self._at, mask)
        return mask

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are allowed now; bool, shape (choices,). At least one is."""
        self._must_run("action_masks")
        return self._mask().astype(np.bool_)

    def table(self, observation: NDArray[np.float32]) -> dict[str, Any]:
        """An observation by name: column -> array (rows,), context -> number."""
        table = self._shown.table(observation)
        if np.ndim(observation) == 1:
            table |= {name: float(table[name]) for name in self.context}
        return table

    @property
    def policy_stream(self) -> NDArray[np.uint64]:
        """The random stream that only policies use: its four words, to read and to write."""
        words: NDArray[np.uint64] = self._state.arrays["streams"].view(np.uint64).reshape(-1, 4)
        return words[POLICY]

    @property
    def spec(self) -> Any:
        """Gymnasium's specification; a system in it is plain data, so that it turns into JSON."""
        return self.__dict__.get("_spec")

    @spec.setter
    def spec(self, spec: Any) -> None:
        if spec is not None and isinstance(spec.kwargs.get("system"), System):
            spec.kwargs["system"] = spec.kwargs["system"].to_dict()
        self.__dict__["_spec"] = spec


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
    number = _whole("router_samples", value, 1)
    if number > system.router_count:
        raise ValueError(
            f"router_samples: must be at most the number of routers ({system.router_count}), "
            f"got {number}"
        )
    return number


def _info(info: Any) -> tuple[str, ...]:
    if isinstance(info, str) or not isinstance(info, Sequence):
        raise ValueError(f"info: must be a list of keys, got {info!r}")
    for key in info:
        if key not in INFO:
            raise ValueError(f"info: {unknown('key', key, INFO)}")
    return tuple(info)


def _start(start: Any) -> Any:
    """A word, or queue lengths as a list; the engine checks both."""
    return start if isinstance(start, str) else np.asarray(start).tolist()


def _render_mode(mode: Any, modes: Sequence[str]) -> str | None:
    if mode is not None and mode not in modes:
        raise ValueError(f"render_mode: must be None or one of {', '.join(modes)}, got {mode!r}")
    return None if mode is None else str(mode)


def _horizons(arrivals: Any, time: Any) -> tuple[int, float]:
    """Arrivals and time at which an episode is cut off."""
    end = math.inf
    if time is not None:
        end = finite("horizon_time", time)
        if end <= 0:
            raise ValueError(f"horizon_time: must be positive, got {time!r}")
    if arrivals is None:
        return (DEFAULT_ARRIVALS if time is None else _NEVER), end
    if not isinstance(arrivals, bool) and isinstance(arrivals, int | np.integer) and arrivals == -1:
        return _NEVER, end
    return min(_whole("horizon_arrivals", arrivals, 1), _NEVER), end


def _whole(field: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{field}: must be a whole number >= {least}, got {value!r}")
    return int(value)
