"""The native vector environments as Stable-Baselines3's `VecEnv`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from lbgym import ENVIRONMENTS
from lbgym.envs.task import whole
from lbgym.suggest import unknown

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise ImportError(
        f"make_vec needs Stable-Baselines3 ({error}): pip install lbgym[train]"
    ) from None


def make_vec(env_id: str, num_envs: int, *, seed: int | None = None, **arguments: Any) -> VecEnv:
    """A native vector environment for Stable-Baselines3 (SB3).

    >>> from stable_baselines3 import PPO
    >>> PPO("MlpPolicy", make_vec("lbgym/MultiRouter-v0", 16)).learn(10_000)  # doctest: +SKIP

    Equal seeds give the training that SB3's `DummyVecEnv` of single environments gives, sooner.

    Parameters
    ----------
    env_id : str
        Of a registered environment of lbgym.
    num_envs : int
        Rows.
    seed : int, optional
        Row k is seeded by ``seed + k`` at the first reset. (An algorithm's own seed replaces it.)
    arguments
        As for ``gymnasium.make_vec``.

    Raises
    ------
    ValueError
        The environment is none of lbgym's, an argument is wrong, or another autoreset mode than
        ``"SameStep"`` was asked for.
    """
    if env_id not in ENVIRONMENTS:
        raise ValueError(f"env_id: {unknown('environment', env_id, ENVIRONMENTS)}")
    if seed is not None:
        seed = whole("seed", seed, 0)
    mode = arguments.pop("autoreset_mode", AutoresetMode.SAME_STEP)
    if mode not in (AutoresetMode.SAME_STEP, "SameStep", "SAME_STEP"):
        raise ValueError(f"autoreset_mode: SB3 needs 'SameStep', got {mode!r}")
    inner = gym.make_vec(env_id, num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **arguments)
    vec = NativeVecEnv(inner)
    if seed is not None:
        vec.seed(seed)
    return vec


class NativeVecEnv(VecEnv):
    """SB3's view of a native vector environment; `make_vec` makes one.

    `env_method` and `get_attr` answer with one value a row. What changes while rows run
    (``action_masks``, ``render``, ``system``) comes from the rows; everything else, ``unwrapped``
    too, from a single environment made with the same arguments.
    """

    def __init__(self, inner: Any) -> None:
        mode = getattr(inner, "autoreset_mode", None)
        if mode is not AutoresetMode.SAME_STEP:
            raise ValueError(
                f"autoreset_mode: SB3 needs 'SameStep', this environment has {_word(mode)!r}"
            )
        self.inner = inner
        self._alike: dict[int, Any] = {}  # single environments by row
        super().__init__(inner.num_envs, inner.single_observation_space, inner.single_action_space)
        self.metadata = inner.metadata

    # --- stepping ---------------------------------------------------------------------------------
    def reset(self) -> NDArray[np.float32]:
        """Begin all rows; seeds and options given before are used once."""
        options = self._options[0]
        if any(other != options for other in self._options):
            raise ValueError("set_options: must be the same for all rows")
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        obs: NDArray[np.float32]
        obs, infos = self.inner.reset(seed=seeds, options=options or None)
        self.reset_infos = [_of_row(infos, k) for k in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Step all rows; (observations, rewards in float32, dones, infos)."""
        obs, rewards, terminated, truncated, batch = self.inner.step(self._actions)
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in range(self.num_envs)]
        dones = terminated | truncated
        ended = batch.pop("final_info", {})
        final = batch.pop("final_obs", None)
        if batch:
            for k, info in enumerate(infos):
                info |= _of_row(batch, k)
        for k in np.flatnonzero(dones).tolist():
            begun = {key: x for key, x in infos[k].items() if key != "TimeLimit.truncated"}
            self.reset_infos[k] = begun
            infos[k] = _of_row(ended, k)
            infos[k]["TimeLimit.truncated"] = bool(truncated[k] and not terminated[k])
            infos[k]["terminal_observation"] = final[k]
        return obs, rewards.astype(np.float32), dones, infos

    def close(self) -> None:
        """End the rows; may be called twice."""
        self.inner.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """A picture of each row."""
        return list(self.inner.render() or [None] * self.num_envs)

    # --- what else can be asked -------------------------------------------------------------------
    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of rows, by default of all."""
        rows = self._chosen(indices)
        if attr_name == "system":
            systems = self.inner.systems
            return [systems[k] for k in rows]
        if attr_name == "render_mode":
            return [self.inner.render_mode for _ in rows]
        if attr_name == "unwrapped":
            return [self._single(k) for k in rows]
        return [getattr(self._single(k), attr_name) for k in rows]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: what a row is stands in its arguments."""
        raise AttributeError(f"{attr_name}: cannot be set in rows; give it to make_vec")

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of rows, by default of all; only what leaves them as they are."""
        rows = self._chosen(indices)
        if method_name == "action_masks":
            masks = self.inner.action_masks(*method_args, **method_kwargs)
            return [masks[k] for k in rows]
        if method_name == "render":
            pictures = self.inner.render() or [None] * self.num_envs
            return [pictures[k] for k in rows]
        if method_name in ("reset", "step", "close"):
            raise AttributeError(f"{method_name}: rows are stepped together; call it on the VecEnv")
        return [getattr(self._single(k), method_name)(*method_args, **method_kwargs) for k in rows]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Never: rows have no wrappers of their own."""
        return [False for _ in self._chosen(indices)]

    def _chosen(self, indices: Any) -> list[int]:
        chosen: Iterable[int] = self._get_indices(indices)
        return list(chosen)

    def _single(self, k: int) -> Any:
        """An environment like row k, made when first asked for; one for all of an equal system.

        Of systems that are drawn it has the row's present one, and is made anew each time.
        """
        spec = self.inner.spec
        if spec is None:
            raise ValueError("make_vec: needs an environment made by make_vec, which knows its id")
        system = spec.kwargs.get("system")
        several = isinstance(system, Sequence) and not isinstance(system, str)
        drawn = spec.kwargs.get("randomize") is not None
        key = k if several or drawn else 0
        if key not in self._alike or drawn:
            kept = {name: x for name, x in spec.kwargs.items() if name not in _OF_VECTORS}
            if several:
                kept["system"] = system[k]
            if drawn:
                kept["system"] = self.inner.systems[k].to_dict()
            self._alike[key] = gym.make(spec.id, **kept).unwrapped
        return self._alike[key]


# Arguments that single environments do not take.
_OF_VECTORS = ("autoreset_mode", "threads", "num_envs", "vectorization_mode", "randomize")


def _word(mode: Any) -> Any:
    return mode.value if isinstance(mode, AutoresetMode) else mode


def _of_row(infos: Mapping[str, Any], k: int) -> dict[str, Any]:
    """What infos of many rows say of row k, in Python's numbers."""
    found: dict[str, Any] = {}
    for key, value in infos.items():
        if f"_{key}" in infos and infos[f"_{key}"][k]:
            found[key] = _of_row(value, k) if isinstance(value, Mapping) else _plain(value[k])
    return found


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
