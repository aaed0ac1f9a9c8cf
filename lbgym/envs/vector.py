"""The native vector environments: many rows, one compiled call a step.

They do what `gymnasium.vector.SyncVectorEnv` does with the single environments, value for value, in
all three autoreset modes, tens of times faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from lbgym.checks import listed
from lbgym.engine import layout

from .car_sharing import CarSharingEnv
from .desk import begin_rows, mask_rows, show_rows, step_rows
from .dispatch import DispatchEnv
from .flow_network import FlowNetworkEnv
from .models import (
    LocalChoiceEnv,
    LocalSearchClosedEnv,
    LocalSearchOpenEnv,
    LossEnv,
    StaleInformationEnv,
)
from .randomize import Randomizer
from .shell import DecisionEnv, render_mode_given
from .task import Row, Task, gather, move, whole

Bools = NDArray[np.bool_]


class DecisionVectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """Many rows of an environment; made by ``gymnasium.make_vec(id, num_envs=...)``.

    Parameters
    ----------
    num_envs : int
        Number of rows.
    autoreset_mode : AutoresetMode or its name
        ``"NextStep"`` (default): the step after the end of an episode begins the next one;
        ``"SameStep"``: the ending step does, and leaves ``final_obs`` and ``final_info`` in infos;
        ``"Disabled"``: ``reset(options={"reset_mask": ...})`` does. `reset_mask` works in all.
    threads : int
        Threads that share the rows; results do not depend on their number. More than one pays if a
        step of all rows takes longer than about 0.3 ms.
    max_episode_steps : int, optional
        Steps after which an episode is truncated; None or -1: none but the horizon's.
    system
        As for the single environment; or a list of `num_envs` systems of equal shape (servers by
        pool, routers), one for each row.
    randomize : dict, optional
        Values of the system that each row draws anew, from a generator of its own, whenever it is
        reset, for example ``{"load": [0.5, 0.95], "pools[0].speed": [1, 4], "routers": {"values":
        [[0.5, 0.5], [0.8, 0.2]]}}`` (see `lbgym.envs.randomize`). The shape must stay as it is.
        Drawing takes about a millisecond a row; `systems` are those of the running episodes.
    others
        As for the single environment.

    Seeding, spaces, rewards (float64), flags and infos are those of SyncVectorEnv: row i is seeded
    by ``seed + i``; infos hold an array for each key, and one that tells which rows have it.
    """

    env_class: ClassVar[type[DecisionEnv]]
    _pool: ThreadPoolExecutor | None = None  # some Gymnasium closes what could not be made
    metadata: dict[str, Any]
    single_action_space: spaces.Discrete

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        threads: int = 1,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        system: Any = None,
        randomize: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        self.num_envs = whole("num_envs", num_envs, 1)
        self.autoreset_mode = _mode(autoreset_mode)
        self.metadata = {**self.env_class.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = render_mode_given(render_mode, self.metadata["render_modes"])
        self._limit = _step_limit(max_episode_steps)
        self._arguments = arguments
        tasks = self._tasks(system)
        self.task = tasks[0]
        self._randomizer = None
        shown = tasks
        if randomize is not None:
            self._randomizer = self._randomizer_of(system, randomize)
            shown = [*tasks, *self._extreme_tasks(self._randomizer)]
        self.single_observation_space = _common_space(shown)
        self.single_action_space = self.task.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.threads = min(whole("threads", threads, 1), self.num_envs)
        self._rows = [Row(tasks[k % len(tasks)], light=True) for k in range(self.num_envs)]
        self._generators: list[Any] = [None] * self.num_envs
        self._seeds: list[Any] = [None] * self.num_envs
        self._draws: list[Any] = [None] * self.num_envs  # generators of the rows' systems
        self._steps = np.zeros(self.num_envs, np.int64)
        self._status = "new"
        self._told_starts = False  # whether a reset's options ever said how rows are to begin
        self._try_start()
        self._gather()

    def _task(self, system: Any) -> Task:
        """What the arguments mean for a system."""
        return self.env_class.TASK.of(self.env_class.defaults, system, self._arguments)

    def _tasks(self, system: Any) -> list[Task]:
        """One task for all rows, or one for each."""
        if not _several(system):
            return [self._task(system)]
        if len(system) != self.num_envs:
            raise ValueError(
                f"system: must be one system or {self.num_envs} of them (num_envs), "
                f"got {len(system)}"
            )
        tasks: list[Task] = []
        for k, one in enumerate(system):
            try:
                tasks.append(self._task(one))
            except ValueError as error:
                told = str(error).removeprefix("system: ")
                raise ValueError(f"system[{k}]: {told}") from None
            if tasks[k].shape() != tasks[0].shape():
                first, this = _told_apart(tasks[0], tasks[k])
                raise ValueError(
                    f"system[{k}]: rows must be of equal shape; system[0] has {first}, "
                    f"this one {this}"
                )
        return tasks

    # --- drawing systems --------------------------------------------------------------------------
    def _randomizer_of(self, system: Any, ranges: Mapping[str, Any]) -> Randomizer:
        if _several(system):
            raise ValueError("randomize: needs one system for all rows, got a list of them")
        return Randomizer(self.task.system, ranges)

    def _extreme_tasks(self, randomizer: Randomizer) -> list[Task]:
        """Tasks at the ends of the ranges; ValueError if a row of one could not run."""
        tasks = []
        for system in randomizer.extremes():
            task = self._task(system)
            if task.shape() != self.task.shape():
                first, this = _told_apart(self.task, task)
                raise ValueError(
                    f"randomize: must not change the shape of the rows; the system has {first}, "
                    f"one in the ranges {this}"
                )
            Row(task, light=True).prepare(task.start)
            tasks.append(task)
        return tasks

    def _redraw(self, chosen: Bools) -> None:
        """New systems, if they are drawn, for rows that are about to begin."""
        if self._randomizer is None:
            return
        for k in np.flatnonzero(chosen).tolist():
            row = Row(self._task(self._randomizer.draw(self._draws[k])), light=True)
            row.take_over(self._rows[k])
            move(row, self._arrays, k)
            self._rows[k] = row

    def _renew(self, chosen: Bools) -> None:
        """Ready rows that begin without being told how: their own start, new systems if drawn."""
        if self._told_starts:
            for k in np.flatnonzero(chosen).tolist():
                self._rows[k].prepare(self._rows[k].task.start)
        self._redraw(chosen)

    def _try_start(self) -> None:
        """Raise now what an impossible start would raise at the first reset."""
        for row in {id(row.task): row for row in self._rows}.values():
            memory = np.empty(self.task.width, np.float32)
            row.desk[0]["at_row"] = memory.ctypes.data
            row.seed(np.random.default_rng(0))
            row.prepare(row.task.start)
            row.begin()
            row.task.check_start(row.state)
            row.seeded = False

    def _gather(self) -> None:
        """Lay the rows one after another in memory, and bind the compiled steps."""
        self._arrays = gather(self._rows)
        self._desks, self._worlds = self._arrays["desk"][:, 0], self._arrays["world"][:, 0]
        self._size = self._desks.strides[0]
        self._at = int(self._desks.ctypes.data)
        self._step_rows, self._begin_rows = step_rows.direct(), begin_rows.direct()
        bounds = np.linspace(0, self.num_envs, self.threads + 1).astype(int)
        self._parts = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self._shape = (self.num_envs, self.task.width)

    def __getstate__(self) -> dict[str, Any]:
        bound = ("_desks", "_worlds", "_arrays", "_at", "_step_rows", "_begin_rows", "_pool")
        return {key: value for key, value in self.__dict__.items() if key not in bound}

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self._gather()

    # --- seeding ----------------------------------------------------------------------------------
    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """What each row was seeded with; -1 if nobody knows."""
        return tuple(self._seeds)

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """The generators of the rows, which seed their streams."""
        return tuple(self._generator(k) for k in range(self.num_envs))

    def _generator(self, k: int) -> np.random.Generator:
        if self._generators[k] is None:
            self._generators[k], self._seeds[k] = gym.utils.seeding.np_random(None)
        generator: np.random.Generator = self._generators[k]
        return generator

    def _seed(self, chosen: Bools, seed: int | Sequence[int | None] | None) -> None:
        """Seed the chosen rows as SyncVectorEnv would, those not yet seeded in any case."""
        seeds = _seeds_of_rows(seed, self.num_envs)
        rows = np.flatnonzero(chosen).tolist()
        # all before any is used: a wrong one leaves the rows alone
        made = {k: gym.utils.seeding.np_random(seeds[k]) for k in rows if seeds[k] is not None}
        for k in rows:
            if k in made:
                self._generators[k], self._seeds[k] = made[k]
            elif self._rows[k].seeded:
                continue
            self._rows[k].seed(self._generator(k))
            self._draws[k] = np.random.default_rng(
                np.random.SeedSequence(self._seeds[k], spawn_key=(1,))
            )

    # --- Gymnasium's methods ----------------------------------------------------------------------
    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin the episodes of all rows, or of those under ``options["reset_mask"]``."""
        if self._status == "closed":
            raise ClosedEnvironmentError("reset after close: make a new environment")
        if not isinstance(options, Mapping | None):
            raise ValueError(f"options: must be a dict, got {options!r}")
        rest = dict(options or {})
        chosen = np.ones(self.num_envs, np.bool_)
        masked = "reset_mask" in rest
        if masked:
            chosen = _reset_mask(rest.pop("reset_mask"), self.num_envs)
        if masked and self._status == "new" and not chosen.all():
            raise ResetNeeded("reset of some rows before all were reset: reset all first")
        starts = [row.task.start_of(rest) if rest else row.task.start for row in self._rows]
        self._seed(chosen, seed)
        self._status = "new"  # should one of the rows fail to begin
        self._redraw(chosen)
        for k in np.flatnonzero(chosen):
            self._rows[k].prepare(starts[k])
        self._told_starts |= bool(rest)
        obs = np.empty(self._shape, np.float32)
        if not chosen.all():
            show_rows(self._at, self._size, ~chosen, obs.ctypes.data)
        self._begin(chosen, obs)
        for k in np.flatnonzero(chosen):
            self._rows[k].task.check_start(self._rows[k].state)
        self._status = "running"
        return obs, self._infos(chosen, np.zeros(self.num_envs))

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Carry out an action in each row, integers of shape (num_envs,)."""
        if self._status != "running":
            self._must_run("step")
        actions = self._checked(actions)
        ended = self._desks["ended"] != 0
        if self.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            raise ValueError(
                f"step: the episodes of rows {np.flatnonzero(ended).tolist()} are over; reset "
                "these with options={'reset_mask': ...}"
            )
        n = self.num_envs
        obs = np.empty(self._shape, np.float32)
        rewards, elapsed = np.empty(n), np.empty(n)
        terminated, truncated = np.empty(n, np.bool_), np.empty(n, np.bool_)
        outcome = rewards, terminated, truncated, elapsed
        resets = self.autoreset_mode is AutoresetMode.NEXT_STEP
        if resets:
            self._renew(ended)
        later = self._in_parts(self._step_part, resets, actions, int(obs.ctypes.data), *outcome)
        reasons: dict[int, str] = {}
        if later:
            reasons = self._settle(actions, outcome)
        if self._limit:
            self._count_steps(ended if resets else np.zeros(n, np.bool_), truncated)
        infos = self._infos(np.ones(n, np.bool_), elapsed)
        _add_reasons(infos, reasons, n)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            infos = self._same_step(obs, terminated | truncated, infos, elapsed)
        return obs, rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """A picture of each row."""
        if self.render_mode is None:
            gym.logger.warn("render needs render_mode='ansi' or 'rgb_array'")
            return None
        self._must_run("render")
        if self.render_mode == "rgb_array":
            return tuple(row.task.drawing(row) for row in self._rows)
        return tuple(row.task.picture(row, None) for row in self._rows)

    def close_extras(self, **_: Any) -> None:
        """End the threads."""
        self._status = "closed"
        if self._pool is not None:
            self._pool.shutdown()

    # --- one step ---------------------------------------------------------------------------------
    def _in_parts(self, part: Any, *arguments: Any) -> int:
        """Do something with all rows, on the threads; the sum of what it returns."""
        if self._pool is None:
            return int(part(0, self.num_envs, *arguments))
        work = [self._pool.submit(part, first, last, *arguments) for first, last in self._parts]
        return sum(int(done.result()) for done in work)

    def _step_part(self, first: int, last: int, resets: bool, actions: Any, *memory: Any) -> Any:
        return self._step_rows(self._at, self._size, first, last, int(resets), actions, *memory)

    def _begin_part(self, first: int, last: int, chosen: Bools, at_rows: int) -> Any:
        return self._begin_rows(self._at, self._size, first, last, chosen, at_rows)

    def _begin(self, chosen: Bools, obs: NDArray[np.float32]) -> None:
        """Begin the chosen rows anew, their observations in place."""
        self._steps[chosen] = 0
        if self._in_parts(self._begin_part, chosen, int(obs.ctypes.data)):
            for k in np.flatnonzero(chosen):
                self._rows[k].finish_beginning(int(self._desks[k]["status"]))

    def _settle(self, actions: NDArray[np.int64], outcome: Sequence[Any]) -> dict[int, str]:
        """Finish the rows that need room or time; the reasons of overloads by row."""
        reasons = {}
        done = (layout.DECIDE, layout.BALANCED)
        for k in np.flatnonzero(~np.isin(self._desks["status"], done)):
            row, desk = self._rows[k], self._desks[k]
            if desk["beginning"]:
                row.finish_beginning(int(desk["status"]))
            elif reason := row.settle(int(desk["status"]), int(actions[k])):
                reasons[int(k)] = reason
            over = desk["truncated"] != 0 or desk["status"] == layout.BALANCED
            desk["ended"] = over
            found = (desk["reward"], desk["status"] == layout.BALANCED, desk["truncated"] != 0)
            for array, value in zip(outcome, (*found, desk["dt"]), strict=True):
                array[k] = value
        return reasons

    def _count_steps(self, begun: Bools, truncated: Bools) -> None:
        """Truncate the episodes that have taken all their steps."""
        self._steps += 1
        self._steps[begun] = 0
        late = self._steps >= self._limit
        truncated |= late
        self._desks["ended"] |= late

    def _same_step(self, obs: Any, over: Bools, infos: dict[str, Any], elapsed: Any) -> Any:
        """Begin the rows whose episode is over; what they ended with goes into infos."""
        if not over.any():
            return infos
        final = np.full(self.num_envs, None, dtype=object)
        for k in np.flatnonzero(over):
            final[k] = obs[k].copy()
        ended: dict[str, Any] = {"final_obs": final, "_final_obs": over.copy()}
        ended |= {"final_info": _only(infos, over), "_final_info": over.copy()}
        self._renew(over)
        self._begin(over, obs)
        return ended | self._infos(np.ones(self.num_envs, np.bool_), np.where(over, 0.0, elapsed))

    def _checked(self, actions: Any) -> NDArray[np.int64]:
        """Actions as the compiled step takes them; ValueError says which row's is wrong."""
        try:
            given = np.asarray(actions)
        except ValueError:  # lists of unequal length
            given = np.array(None)
        if given.shape != (self.num_envs,) or not np.issubdtype(given.dtype, np.integer):
            raise ValueError(
                f"actions: must be {self.num_envs} integers (num_envs), got "
                f"{given.dtype} of shape {given.shape}"
            )
        choices = int(self.single_action_space.n)
        if given.min() < 0 or given.max() >= choices:
            k = int(np.flatnonzero((given < 0) | (given >= choices))[0])
            raise ValueError(
                f"actions[{k}]: must be an integer from 0 to {choices - 1}, got {given[k]}"
            )
        if self.task.masked:
            self._check_masks(given)
        return np.ascontiguousarray(given, np.int64)

    def _check_masks(self, actions: Any) -> None:
        live = np.ones(self.num_envs, np.bool_)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:  # the others' actions are ignored
            live = self._desks["ended"] == 0
        masks = self._masks()
        wrong = live & (masks[np.arange(self.num_envs), actions] == 0)
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            allowed = np.flatnonzero(masks[k]).tolist()
            raise ValueError(f"actions[{k}]: {actions[k]} is masked, allowed now: {allowed}")

    def _must_run(self, what: str) -> None:
        if self._status == "new":
            raise ResetNeeded(f"{what} before reset: call reset first")
        if self._status == "closed":
            raise ClosedEnvironmentError(f"{what} after close: make a new environment")

    # --- what else can be seen --------------------------------------------------------------------
    def _masks(self) -> NDArray[np.int8]:
        masks = np.empty((self.num_envs, int(self.single_action_space.n)), np.int8)
        mask_rows(self._at, masks, self._size)
        return masks

    def action_masks(self) -> Bools:
        """Which actions are allowed now, shape (num_envs, choices)."""
        self._must_run("action_masks")
        return self._masks().astype(np.bool_)

    def _infos(self, rows: Bools, elapsed: NDArray[np.float64]) -> dict[str, Any]:
        """What the keys of info say of some rows; zeros for the others."""
        infos: dict[str, Any] = {}
        for key in self.task.info_keys:
            if key == "dt":
                value: Any = elapsed
            elif key == "action_mask":
                value = self._masks()
            else:
                value = self.task.facts(key, self._worlds, self._arrays)
            infos |= _masked(key, value, rows)
        return infos

    @property
    def systems(self) -> list[Any]:
        """What each row simulates now."""
        return [row.state.system for row in self._rows]


def _masked(key: str, value: Any, rows: Bools) -> dict[str, Any]:
    """A key of infos: the values, fresh, 0 in other rows, and which rows have it."""
    if isinstance(value, Mapping):
        inner: dict[str, Any] = {}
        for name, one in value.items():
            inner |= _masked(name, one, rows)
        return {key: inner, f"_{key}": rows.copy()}
    array = np.array(value)
    if not rows.all():
        array[~rows] = 0
    return {key: array, f"_{key}": rows.copy()}


def _only(infos: Mapping[str, Any], rows: Bools) -> dict[str, Any]:
    """Infos of some rows alone."""
    kept: dict[str, Any] = {}
    for key, value in infos.items():
        if isinstance(value, dict):
            kept[key] = _only(value, rows)
        elif key.startswith("_") and key[1:] in infos:
            kept[key] = value & rows
        else:
            kept[key] = value.copy()
            kept[key][~rows] = None if value.dtype == object else 0
    gone = [key for key in kept if f"_{key}" in kept and not kept[f"_{key}"].any()]
    return {key: value for key, value in kept.items() if key.removeprefix("_") not in gone}


def _add_reasons(infos: dict[str, Any], reasons: Mapping[int, str], n: int) -> None:
    """Overloads, where there are any."""
    if reasons:
        words, rows = np.full(n, None, dtype=object), np.zeros(n, np.bool_)
        for k, reason in reasons.items():
            words[k], rows[k] = reason, True
        infos["overload"], infos["_overload"] = words, rows


def _several(system: Any) -> bool:
    """Whether there is a system for each row."""
    return isinstance(system, Sequence) and not isinstance(system, str)


def _told_apart(one: Task, other: Task) -> tuple[str, str]:
    """Two tasks of unequal shape, in words that differ."""
    if one.describe_shape() != other.describe_shape():
        return one.describe_shape(), other.describe_shape()
    shown = [", ".join((*task.columns, *task.context)) for task in (one, other)]
    return f"the columns {shown[0]}", f"the columns {shown[1]}"


def _seeds_of_rows(seed: Any, n: int) -> list[Any]:
    """A seed for each row, None for those that are not given one."""
    if isinstance(seed, int | np.integer):
        return [int(seed) + k for k in range(n)]
    seeds = [None] * n if seed is None else listed(seed)
    if seeds is None or len(seeds) != n:
        raise ValueError(f"seed: must be one number or num_envs={n} of them, got {seed!r}")
    return [int(x) if isinstance(x, np.integer) else x for x in seeds]


def _mode(mode: Any) -> AutoresetMode:
    if isinstance(mode, AutoresetMode):
        return mode
    known = {one.value: one for one in AutoresetMode} | {one.name: one for one in AutoresetMode}
    if not isinstance(mode, str) or mode not in known:
        raise ValueError(
            f"autoreset_mode: must be one of {[one.value for one in AutoresetMode]}, got {mode!r}"
        )
    return known[mode]


def _step_limit(steps: Any) -> int:
    """Most steps of an episode, 0 if there is no such limit."""
    if steps is None or (not isinstance(steps, bool) and steps == -1):
        return 0
    return whole("max_episode_steps", steps, 1)


def _reset_mask(mask: Any, n: int) -> Bools:
    """As SyncVectorEnv checks it."""
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        found = mask.dtype if isinstance(mask, np.ndarray) else type(mask).__name__
        raise TypeError(f"reset_mask: must be a NumPy array of bool, got {found}")
    if mask.shape != (n,):
        raise ValueError(f"reset_mask: must have shape ({n},), got {mask.shape}")
    if not mask.any():
        raise ValueError("reset_mask: must choose at least one row")
    return mask.copy()


def _common_space(tasks: Sequence[Task]) -> spaces.Box:
    """The box that holds the observations of all rows."""
    boxes = [task.observation_space for task in tasks]
    low = np.min([box.low for box in boxes], axis=0)
    high = np.max([box.high for box in boxes], axis=0)
    return spaces.Box(low, high, dtype=np.float32)


class MultiRouterVectorEnv(DecisionVectorEnv):
    """Rows of `DispatchEnv`."""

    env_class = DispatchEnv


class StaleInformationVectorEnv(DecisionVectorEnv):
    """Rows of `StaleInformationEnv`."""

    env_class = StaleInformationEnv


class LossVectorEnv(DecisionVectorEnv):
    """Rows of `LossEnv`."""

    env_class = LossEnv


class LocalChoiceVectorEnv(DecisionVectorEnv):
    """Rows of `LocalChoiceEnv`."""

    env_class = LocalChoiceEnv


class LocalSearchOpenVectorEnv(DecisionVectorEnv):
    """Rows of `LocalSearchOpenEnv`."""

    env_class = LocalSearchOpenEnv


class LocalSearchClosedVectorEnv(DecisionVectorEnv):
    """Rows of `LocalSearchClosedEnv`."""

    env_class = LocalSearchClosedEnv


class CarSharingVectorEnv(DecisionVectorEnv):
    """Rows of `CarSharingEnv`."""

    env_class = CarSharingEnv


class FlowNetworkVectorEnv(DecisionVectorEnv):
    """Rows of `FlowNetworkEnv`."""

    env_class = FlowNetworkEnv
