"""The native vector environments in Stable-Baselines3."""

import threading

import gymnasium as gym
import numpy as np
import pytest

import lbgym

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")

from stable_baselines3 import DQN, PPO  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.vec_env import (  # noqa: E402
    DummyVecEnv,
    SubprocVecEnv,
    VecMonitor,
)

from lbgym.sb3 import TablePolicy, load_agent, make_vec, save_agent  # noqa: E402
from lbgym.sb3 import table_policy_kwargs as table_kwargs  # noqa: E402
from lbgym.vec_env import NativeVecEnv  # noqa: E402

IDS = sorted(lbgym.ENVIRONMENTS)
ROUTERS, CLOSED, CARS = "lbgym/MultiRouter-v0", "lbgym/LocalSearchClosed-v0", "lbgym/CarSharing-v0"
INFO = ["dt", "time", "state"]
BRIEF = {"n_steps": 64, "batch_size": 64, "n_epochs": 1, "device": "cpu", "seed": 3}
PLAIN = {"device": "cpu", "seed": 3, "learning_starts": 50, "buffer_size": 500, "batch_size": 16}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def dummy(env_id, rows, kind=DummyVecEnv, **arguments):
    def make():
        return gym.make(f"lbgym:{env_id}", **arguments)

    return kind([make] * rows)


def ready(env_id):
    """Short episodes of any id."""
    return {"horizon_time": 5.0} if env_id != ROUTERS else {"system": "small", "horizon_time": 5.0}


# --- the same as DummyVecEnv ----------------------------------------------------------------------
def same(one, other):
    if isinstance(other, dict):
        assert set(one) == set(other)
        for key in other:
            same(one[key], other[key])
    elif isinstance(other, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.array_equal(one, other)
    else:
        assert type(one) is type(other)
        assert one == other


@pytest.mark.parametrize("env_id", IDS)
def test_steps_are_those_of_dummy_vec_env(env_id):
    arguments = {**ready(env_id), "info": [k for k in INFO if k != "state" or env_id != CARS]}
    one, other = make_vec(env_id, 3, seed=7, **arguments), dummy(env_id, 3, **arguments)
    other.seed(7)
    same(one.reset(), other.reset())
    rng, ends = np.random.default_rng(0), 0
    for _ in range(200):
        actions = rng.integers(one.action_space.n, size=3)
        got, expected = one.step(actions), other.step(actions)
        for a, b in zip(got[:3], expected[:3], strict=True):
            same(a, b)
        for a, b in zip(got[3], expected[3], strict=True):
            same(a, b)
        for a, b in zip(one.reset_infos, other.reset_infos, strict=True):
            same(a, b)
        same(np.stack(one.env_method("action_masks")), np.stack(other.env_method("action_masks")))
        ends += got[2].sum()
    assert ends >= 3


class Returns(BaseCallback):
    """Return and length of each episode."""

    def __init__(self):
        super().__init__()
        self.found = []

    def _on_step(self):
        self.found += [
            (info["episode"]["r"], info["episode"]["l"])
            for info in self.locals["infos"]
            if "episode" in info
        ]
        return True


def test_ppo_trains_as_with_dummy_vec_env():
    arguments = {"system": "small", "horizon_arrivals": 40}

    def monitored():
        return Monitor(gym.make(ROUTERS, **arguments))

    weights, seen = [], []
    for vec in (VecMonitor(make_vec(ROUTERS, 4, **arguments)), DummyVecEnv([monitored] * 4)):
        model = PPO(TablePolicy, vec, policy_kwargs=table_kwargs(vec, width=8), **BRIEF)
        told = Returns()
        model.learn(1024, told)
        weights.append(torch.cat([p.detach().flatten() for p in model.policy.parameters()]))
        seen.append(told.found)
    assert torch.equal(*weights)
    assert {length for _, length in seen[0]} == {40}
    np.testing.assert_allclose(*(np.array(found) for found in seen), rtol=1e-6)
    assert len(seen[0]) == 1024 // 40 // 4 * 4


# --- every learner on every id --------------------------------------------------------------------
@pytest.mark.parametrize("kind", [make_vec, dummy])
@pytest.mark.parametrize("env_id", IDS)
def test_ppo_maskable_ppo_and_dqn_learn(env_id, kind):
    arguments = {**ready(env_id), "info": ["action_mask"]}
    vec = kind(env_id, 2, **arguments)
    model = contrib.MaskablePPO("MlpPolicy", vec, **BRIEF)
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(256)
    assert not all(map(torch.equal, before, model.policy.parameters()))
    for algorithm, settings in ((PPO, BRIEF), (DQN, PLAIN)):
        model = algorithm("MlpPolicy", kind(env_id, 2, **ready(env_id)), **settings)
        model.learn(256)
        assert model.num_timesteps >= 256


def test_maskable_ppo_keeps_to_the_masks_in_all_kinds_of_environment():
    """`info=["action_mask"]`: a masked action raises, and random weights would soon choose one."""
    arguments = {"system": "flagship-migrating", "info": ["action_mask"], "horizon_arrivals": 50}
    subprocesses = dummy(ROUTERS, 2, SubprocVecEnv, **arguments)
    for vec in (
        gym.make(ROUTERS, **arguments),
        dummy(ROUTERS, 2, **arguments),
        subprocesses,
        make_vec(ROUTERS, 2, **arguments),
    ):
        contrib.MaskablePPO("MlpPolicy", vec, **BRIEF).learn(128)
        vec.close()
    with pytest.raises(ValueError, match="is masked, allowed now"):
        PPO("MlpPolicy", make_vec(ROUTERS, 2, **arguments), **BRIEF).learn(128)


# --- as an environment ----------------------------------------------------------------------------
def test_balance_is_no_truncation_and_a_cut_is_one():
    vec = make_vec(CLOSED, 4, seed=0, horizon_time=10.0)
    obs = vec.reset()
    ends = {"TimeLimit.truncated": 0, "balance": 0}
    for _ in range(800):
        gains = obs[:, 0] > obs[:, 1]  # the source's queue is longer than the target's
        obs, _, dones, infos = vec.step(
            (gains & (np.arange(4) > 1)).astype(int)
        )  # two rows never move
        for done, info in zip(dones, infos, strict=True):
            assert info["TimeLimit.truncated"] <= done
            if done:
                assert info["terminal_observation"] in vec.observation_space
                ends["TimeLimit.truncated" if info["TimeLimit.truncated"] else "balance"] += 1
    assert min(ends.values()) > 0


def test_a_model_is_saved_and_loaded_from_it(tmp_path):
    vec = VecMonitor(make_vec(ROUTERS, 2, system="small"))
    model = PPO(TablePolicy, vec, policy_kwargs=table_kwargs(vec, width=8), **BRIEF)
    agent = load_agent(save_agent(model, tmp_path / "a"))
    assert agent.settings["env"] == ROUTERS
    assert not {"num_envs", "autoreset_mode"} & set(agent.settings["environment"])
    assert lbgym.simulate("small", agent, jobs=200).jobs == 200


def test_rows_are_asked_one_by_one():
    loads = [0.3, 0.5, 0.7]
    systems = [{**lbgym.as_system("small").to_dict(), "load": load} for load in loads]
    vec = make_vec(ROUTERS, 3, system=systems, render_mode="rgb_array", max_episode_steps=9)
    vec.reset()
    assert [s.load for s in vec.get_attr("system")] == pytest.approx(loads)
    assert [e.system.load for e in vec.get_attr("unwrapped", [2, 0])] == pytest.approx([0.7, 0.3])
    assert vec.get_attr("columns", 1) == [gym.make(ROUTERS).unwrapped.columns]
    assert vec.env_is_wrapped(Monitor) == [False] * 3
    assert vec.has_attr("action_masks")
    assert not vec.has_attr("tea")
    assert [mask.shape for mask in vec.env_method("action_masks", indices=[1])] == [(4,)]
    assert vec.render().shape[2] == 3
    with pytest.raises(AttributeError, match="rows are stepped together"):
        vec.env_method("reset")
    with pytest.raises(AttributeError, match="cannot be set in rows"):
        vec.set_attr("tea", 1)


def test_seeds_and_options_are_used_once():
    vec = make_vec(ROUTERS, 2, seed=5, system="small", observe=["queue"])
    first, second = vec.reset(), vec.reset()
    vec.seed(5)
    vec.set_options({"queue_lengths": [1, 1, 1, 1]})
    full, empty = vec.reset(), vec.reset()
    assert full.max() > 0.4
    assert not np.array_equal(full, first)
    assert np.array_equal(empty, second)
    vec.set_options([{"queue_lengths": [1, 1, 1, 1]}, {}])
    with pytest.raises(ValueError, match="set_options: must be the same for all rows"):
        vec.reset()


@pytest.mark.parametrize("seed", [-1, 1.5, "x"])
def test_wrong_seeds_are_refused(seed):
    with pytest.raises(ValueError, match=f"seed: must be a whole number >= 0, got {seed!r}"):
        make_vec("lbgym/MultiRouter-v0", 2, seed=seed)


def test_closing_leaves_no_threads():
    before = threading.active_count()
    vec = make_vec(ROUTERS, 4, threads=2)
    vec.reset()
    vec.step(np.zeros(4, int))
    vec.close()
    vec.close()
    assert threading.active_count() == before


def test_other_environments_are_refused():
    with pytest.raises(ValueError, match=r"env_id: unknown environment 'CartPole-v1'"):
        make_vec("CartPole-v1", 2)


@pytest.mark.parametrize("mode", ["NextStep", "Disabled", gym.vector.AutoresetMode.NEXT_STEP])
def test_other_autoreset_modes_are_refused(mode):
    with pytest.raises(ValueError, match="autoreset_mode: SB3 needs 'SameStep', got"):
        make_vec(ROUTERS, 2, autoreset_mode=mode)
    with pytest.raises(ValueError, match="SB3 needs 'SameStep', this environment has"):
        NativeVecEnv(gym.make_vec(ROUTERS, num_envs=2, autoreset_mode=mode))
