"""What stands around a training: progress, checkpoints, the mean cost, scaled rewards."""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnvWrapper
from tqdm import tqdm


class ScaledRewards(VecEnvWrapper):
    """Environments whose rewards are multiplied by a factor."""

    def __init__(self, venv: Any, scale: float) -> None:
        super().__init__(venv)
        self.scale = scale

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        return obs, rewards * np.float32(self.scale), dones, infos


class Watch(BaseCallback):
    """Shows how far a training is and saves a checkpoint now and then, with the decisions that
    the learner remembers (DQN) in a file beside it.

    Parameters
    ----------
    checkpoint : Path
        The file; it is replaced at once, so that a crash leaves the one before.
    every : int
        Decisions between checkpoints.
    total : int
        Decisions in all, for the progress bar.
    scale : float
        By which rewards were multiplied: what is shown is the reward as the environment gives it.
    """

    def __init__(self, checkpoint: Path, every: int, total: int, scale: float) -> None:
        super().__init__()
        self.checkpoint, self.every, self.total, self.scale = checkpoint, every, total, scale
        self.saved_at, self.paid, self.steps = 0, 0.0, 0
        self.begun = 0.0  # a time; 0 while there is nothing to save

    def _on_training_start(self) -> None:
        before = self.num_timesteps
        self.saved_at = before
        self.begun = time.perf_counter() - getattr(self.model, "seconds", 0.0)
        self.bar: Any = tqdm(
            desc="train",
            total=self.total,
            initial=before,
            unit=" decisions",
            unit_scale=True,
            mininterval=0.2 if sys.stderr.isatty() else 10.0,
            dynamic_ncols=True,
        )

    def _on_step(self) -> bool:
        self.paid += float(self.locals["rewards"].sum())
        self.steps += self.training_env.num_envs
        self.bar.update(self.training_env.num_envs)
        return True

    def _on_rollout_end(self) -> None:
        mean = self.paid / self.steps / self.scale
        self.logger.record("rollout/reward_per_decision", mean)
        self.bar.set_postfix_str(f"reward {mean:.3f}", refresh=False)
        self.paid, self.steps = 0.0, 0

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.saved_at + self.every:
            self.save()

    def _on_training_end(self) -> None:
        self.save()
        self.bar.close()

    def save(self) -> None:
        """Write the checkpoint."""
        self.saved_at = self.num_timesteps
        self.model.seconds = time.perf_counter() - self.begun  # type: ignore[attr-defined]
        new = self.checkpoint.with_name("checkpoint.new.zip")
        self.model.save(new)
        if getattr(self.model, "replay_buffer", None) is not None:
            seen = self.checkpoint.with_name("replay.new.pkl")
            self.model.save_replay_buffer(seen)  # type: ignore[attr-defined]
            seen.replace(self.checkpoint.with_name("replay.pkl"))
        new.replace(self.checkpoint)
