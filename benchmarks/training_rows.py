"""Lines about training: the environment's share of PPO of Stable-Baselines3 (SB3), 16 rows.

The time of each `step` while PPO collects its rollouts, over the time of `learn`. Rows that live in
this process are measured in CPU time, those of SubprocVecEnv, which SB3 waits for, in wall time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.measure import Effort, Line

ENV = "lbgym/MultiRouter-v0"
ROWS = 16
NATIVE = "lbgym.sb3.make_vec"


def _single() -> gym.Env[Any, Any]:
    import lbgym  # noqa: F401 (a process of its own must register)

    return gym.make(ENV)


def share(vec: Any, rollouts: int, n_steps: int | None, clock: Callable[[], float]) -> float:
    """Share of `learn` that stepping takes; n_steps: of a rollout, default SB3's."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecEnvWrapper

    class Stopwatch(VecEnvWrapper):
        """Adds up the time of steps."""

        seconds = 0.0

        def reset(self) -> Any:
            return self.venv.reset()

        def step_async(self, actions: Any) -> None:
            begun = clock()
            self.venv.step_async(actions)
            self.seconds += clock() - begun

        def step_wait(self) -> Any:
            begun = clock()
            result = self.venv.step_wait()
            self.seconds += clock() - begun
            return result

    vec.reset()
    vec.step(np.zeros(ROWS, np.int64))  # what is compiled is loaded now
    watched = Stopwatch(vec)
    more = {} if n_steps is None else {"n_steps": n_steps}
    model = PPO("MlpPolicy", watched, seed=1, device="cpu", **more)  # type: ignore[arg-type]
    begun = clock()
    model.learn(rollouts * model.n_steps * ROWS)
    total = clock() - begun
    vec.close()
    return watched.seconds / total


def ppo(effort: Effort) -> Iterator[Line]:
    """Native rows against DummyVecEnv and SubprocVecEnv, SB3's default settings."""
    try:
        import torch
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

        from lbgym.sb3 import make_vec
    except ImportError as error:
        print(f"ppo: needs Stable-Baselines3 ({error}): pip install lbgym[train]")
        return
    torch.set_num_threads(1)
    cpu, wall = time.process_time, time.perf_counter
    kinds: dict[str, tuple[Callable[[], Any], Callable[[], float]]] = {
        NATIVE: (lambda: make_vec(ENV, ROWS), cpu),
        "DummyVecEnv": (lambda: DummyVecEnv([_single] * ROWS), cpu),
        "SubprocVecEnv": (lambda: SubprocVecEnv([_single] * ROWS), wall),
    }
    n_steps = 128 if effort.quick else None
    for name, (make, clock) in kinds.items():
        must, aim = (5, 3) if name == NATIVE else (None, None)
        yield Line(
            f"environment's share of PPO, {ROWS} rows, {name}",
            100 * share(make(), 2, n_steps, clock),
            "%",
            must,
            aim,
            detail="CPU time" if clock is cpu else "wall time",
        )
