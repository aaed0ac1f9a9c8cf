"""The Gymnasium environment around one row of a task: what every environment of lbgym does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from numpy.typing import NDArray

from lbgym.engine import layout

from .desk import MASKED, mask_rows, step_once
from .task import Row, Task

Obs = NDArray[np.float32]

_BLOCK_BYTES, _BLOCK_ROWS = 1 << 16, 256  # observations are cut from blocks of fresh memory


class DecisionEnv(gym.Env[Obs, np.int64]):
    """One step is one decision; subclasses name their `Task` and say what it means."""

    metadata = {  # noqa: RUF012 (Gymnasium's own form)
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 4,
    }
    action_space: spaces.Discrete
    TASK: ClassVar[Any]
    # Arguments that an id sets where the user gives none.
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self, system: Any = None, *, render_mode: str | None = None, **arguments: Any
    ) -> None:
        self.task: Task = self.TASK.of(self.defaults, system, arguments)
        self.render_mode = render_mode_given(render_mode, self.metadata["render_modes"])
        self.observation_space = self.task.observation_space
        self.action_space = self.task.action_space
        self.info_keys = self.task.info_keys
        self._row = Row(self.task)
        self._status = "new"
        self.episodes = 0  # begun so far
        self._last_action: int | None = None
        self._link()
        self._try_start()

    def _link(self) -> None:
        """Bind the compiled step; nothing is ready to be stepped."""
        self._rows: list[Obs] = []
        self._at = self._row.address
        self.policy_stream_address = int(self.policy_stream.ctypes.data)
        self._step_once = step_once.direct()
        self._only_dt = self.info_keys == ("dt",)
        self._block = max(8, min(_BLOCK_ROWS, _BLOCK_BYTES // (4 * self.task.width)))

    def _try_start(self) -> None:
        """Raise now what an impossible start would raise at the first reset."""
        self._row.seed(np.random.default_rng(0))
        self._begin(self.task.start)
        self._row.seeded, self._rows = False, []

    def _begin(self, start: Any) -> Obs:
        self._row.prepare(start)
        rows = self._rows or self._new_rows()
        self._row.begin()
        self.task.check_start(self._row.state)
        return rows.pop()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but addresses and compiled code: environments can be copied and pickled."""
        bound = ("_rows", "_at", "_step_once", "policy_stream_address")
        return {key: value for key, value in self.__dict__.items() if key not in bound}

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self._link()

    # --- Gymnasium's four ---
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """A new trajectory; without a seed its randomness follows from that of the last one."""
        super().reset(seed=seed)
        if self._status == "closed":
            raise ClosedEnvironmentError("reset after close: make a new environment")
        start = self.task.start_of(options or {}) if options else self.task.start
        if seed is not None or not self._row.seeded:
            self._row.seed(self.np_random)
        try:
            obs = self._begin(start)
        except ValueError:  # the old trajectory is gone
            self._status, self._rows = "new", []
            raise
        self._status, self._last_action = "running", None
        self.episodes += 1
        return obs, self._information(0.0)

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
            raise self.task.action_error(action) from None
        terminated = False
        if status:
            if status != layout.BALANCED:
                status, truncated, reward, dt, reason = self._settle(status, action)
                if reason:
                    info = self._information(0.0) | {"overload": reason}
                    return rows.pop(), 0.0, False, True, info
            terminated = status == layout.BALANCED
        self._last_action = action
        info = {"dt": dt} if self._only_dt else self._information(dt)
        return rows.pop(), reward, terminated, truncated, info

    def render(self) -> Any:
        """The system and what is to be decided: text ("ansi") or pixels ("rgb_array")."""
        if self.render_mode is None:
            gym.logger.warn(
                "render needs render_mode='ansi' or 'rgb_array', given to the constructor or "
                "gym.make"
            )
            return None
        self._must_run("render")
        if self.render_mode == "rgb_array":
            return self.task.drawing(self._row)
        return self.task.picture(self._row, self._last_action)

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
        return self._new_rows()

    def _new_rows(self) -> list[Obs]:
        block = np.empty((self._block, self.task.width), np.float32)
        self._row.desk[0]["at_row"] = block.ctypes.data
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
        raise self.task.action_error(action)

    def _settle(self, status: int, action: int) -> tuple[int, bool, float, float, str]:
        """Finish a step that needs room or time, or raise; the last value tells an overload."""
        if status == MASKED:
            allowed = np.flatnonzero(self.action_masks()).tolist()
            raise ValueError(f"action: {action} is masked, allowed now: {allowed}")
        reason = self._row.settle(status, action)
        desk = self._row.desk[0]
        outcome = bool(desk["truncated"]), float(desk["reward"]), float(desk["dt"])
        return int(desk["status"]), *outcome, reason

    # --- what else can be seen ---
    def _information(self, dt: float) -> dict[str, Any]:
        state = self._row.state
        info: dict[str, Any] = {}
        for key in self.info_keys:
            if key == "dt":
                info[key] = dt
            elif key == "action_mask":
                info[key] = self._mask()
            else:
                info[key] = _plain(self.task.facts(key, state.world[0], state.arrays))
        return info

    def _mask(self) -> NDArray[np.int8]:
        mask = np.empty((1, int(self.action_space.n)), np.int8)
        mask_rows(self._at, mask, 0)
        return mask[0]

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are allowed now; bool, shape (choices,). At least one is."""
        self._must_run("action_masks")
        return self._mask().astype(np.bool_)

    def table(self, observation: NDArray[np.float32]) -> dict[str, Any]:
        """An observation by name: column -> array (rows,), context -> number."""
        table: dict[str, Any] = self.task.shown.table(observation)
        if np.ndim(observation) == 1:
            table |= {name: float(x) for name, x in table.items() if np.ndim(x) == 0}
        return table

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the table's columns."""
        return self.task.columns

    @property
    def context(self) -> tuple[str, ...]:
        """Names of the values behind the table."""
        return self.task.context

    @property
    def action(self) -> str:
        """What actions name."""
        return self.task.action

    @property
    def system(self) -> Any:
        """What is simulated."""
        return self._row.state.system

    @property
    def _state(self) -> Any:
        """The running system."""
        return self._row.state

    @property
    def policy_stream(self) -> NDArray[np.uint64]:
        """The random stream that only policies use: its four words, to read and to write."""
        streams = self._row.state.arrays["streams"]
        words: NDArray[np.uint64] = streams.view(np.uint64).reshape(-1, 4)
        return words[layout.POLICY]

    @property
    def spec(self) -> Any:
        """Gymnasium's specification; a system in it is plain data, so that it turns into JSON."""
        return self.__dict__.get("_spec")

    @spec.setter
    def spec(self, spec: Any) -> None:
        if spec is not None and hasattr(spec.kwargs.get("system"), "to_dict"):
            spec.kwargs["system"] = spec.kwargs["system"].to_dict()
        self.__dict__["_spec"] = spec


def _plain(value: Any) -> Any:
    """Python's numbers, and arrays of their own."""
    if isinstance(value, dict):
        return {name: _plain(x) for name, x in value.items()}
    return np.array(value) if isinstance(value, np.ndarray) else value.item()


def render_mode_given(mode: Any, modes: list[str]) -> str | None:
    """A render mode; ValueError if there is no such one."""
    if mode is not None and mode not in modes:
        raise ValueError(f"render_mode: must be None or one of {', '.join(modes)}, got {mode!r}")
    return None if mode is None else str(mode)
