"""What the training libraries rely on, one function a pitfall."""

import multiprocessing
import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import lbgym
from lbgym.envs.vector import MultiRouterVectorEnv

IDS = sorted(lbgym.ENVIRONMENTS)


@pytest.mark.parametrize("env_id", IDS)
def test_reset_does_not_seed_the_action_space(env_id):
    """(Gymnasium#185: scripts must seed it themselves.)"""
    one, other = gym.make(env_id), gym.make(env_id)
    one.action_space.seed(1)
    other.action_space.seed(1)
    one.reset(seed=9)
    assert [int(one.action_space.sample()) for _ in range(20)] == [
        int(other.action_space.sample()) for _ in range(20)
    ]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("env_id", IDS)
def test_the_autoreset_mode_is_told_twice(env_id, mode):
    """RLlib, Gymnasium's wrappers and TorchRL look for it in two places."""
    env = gym.make_vec(env_id, num_envs=2, autoreset_mode=mode)
    assert env.metadata["autoreset_mode"] is mode
    assert env.autoreset_mode is mode


def test_what_could_not_be_made_can_be_closed():
    """As the `__del__` of Gymnasium 1.2 does."""
    env = MultiRouterVectorEnv.__new__(MultiRouterVectorEnv)
    env.close()
    assert env.closed


def test_an_episode_has_exactly_its_length_for_the_monitor():
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    env = monitor.Monitor(gym.make("lbgym/MultiRouter-v0", horizon_arrivals=50))
    for seed in range(3):
        env.reset(seed=seed)
        over, paid, steps = False, 0.0, 0
        while not over:
            _, reward, terminated, over, info = env.step(steps % 20)
            assert not terminated
            paid, steps = paid + reward, steps + 1
        assert info["episode"]["l"] == steps == 50
        assert info["episode"]["r"] == pytest.approx(paid, abs=1e-6)


@pytest.mark.parametrize("env_id", IDS)
def test_closing_twice_is_silent_and_leaves_nothing_running(env_id):
    before = threading.active_count()
    env, rows = gym.make(env_id), gym.make_vec(env_id, num_envs=4, threads=2)
    for one, action in ((env, 0), (rows, np.zeros(4, int))):
        one.reset(seed=0)
        one.step(action)
        one.close()
        one.close()
    assert threading.active_count() == before
    assert not multiprocessing.active_children()
