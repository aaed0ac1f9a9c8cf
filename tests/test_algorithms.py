"""Algorithms of Stable-Baselines3 and sb3-contrib on every environment, and memories of routers."""

import json

import gymnasium as gym
import numpy as np
import pytest

import lbgym

torch = pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

from sb3_contrib import MaskablePPO, RecurrentPPO  # noqa: E402
from stable_baselines3 import DQN, PPO  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv  # noqa: E402

from lbgym import sb3  # noqa: E402
from training import ppo  # noqa: E402

IDS = sorted(lbgym.ENVIRONMENTS)
SHORT = {"n_steps": 8, "batch_size": 16, "n_epochs": 1}
SETTINGS = {PPO: SHORT, MaskablePPO: SHORT, DQN: {"learning_starts": 8, "buffer_size": 64}}
SIZES = {"n-envs": 2, "n-steps": 16, "batch-size": 32, "epochs": 1, "width": 8, "evaluate": 0}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("algorithm", SETTINGS, ids=lambda a: a.__name__)
@pytest.mark.parametrize("env_id", IDS)
def test_an_algorithm_runs_through_both_kinds_of_rows(env_id, algorithm):
    singles = DummyVecEnv([lambda: gym.make(env_id) for _ in range(2)])
    for vec in (sb3.make_vec(env_id, 2), singles):
        model = algorithm("MlpPolicy", vec, seed=0, device="cpu", **SETTINGS[algorithm])
        model.learn(32)
        assert model.num_timesteps >= 32
        assert 0 <= int(model.predict(vec.reset())[0][0]) < vec.action_space.n


def words(out, *more):
    return ["--out", str(out), *(f"--{k}={v}" for k, v in SIZES.items()), *more]


@pytest.mark.parametrize("algorithm", ppo.ALGORITHMS)
def test_a_training_is_saved_and_resumed(algorithm, tmp_path):
    given = words(tmp_path, "--algorithm", algorithm, "--system", "small", "--name", "a")
    assert ppo.main([*given, "--timesteps", "64"]) == 0
    where = ["--out", str(tmp_path), "--name", "a", "--resume"]
    assert ppo.main([*where, "--timesteps", "128"]) == 0
    settings = json.loads((tmp_path / "a" / "settings.json").read_text())
    assert settings["training"]["timesteps"] == 128
    assert settings["algorithm"] == ppo.ALGORITHMS[algorithm]
    assert (tmp_path / "a" / "training" / "replay.pkl").exists() == (algorithm == "dqn")
    same = {"jobs": 400, "replications": 2}
    first = lbgym.simulate("small", f"model:{tmp_path / 'a'}", **same)
    assert first.cost == lbgym.simulate("small", f"model:{tmp_path / 'a'}", **same).cost


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--algorithm", "maskable_ppo"], "did you mean 'maskable-ppo'?"),
        (["--algorithm", "dqn", "--policy", "table"], "'table' is for ppo and maskable-ppo"),
        (["--exploration", "2"], "exploration: must be between 0 and 1"),
    ],
)
def test_bad_arguments_end_with_one_line(given, message, tmp_path, capsys):
    assert ppo.main(words(tmp_path, *given)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1


# --- masks ----------------------------------------------------------------------------------------
def test_a_masked_agent_does_what_the_mask_allows(tmp_path):
    env = gym.make("lbgym/MultiRouter-v0", system="small", observe=["queue", "speed", "limit"])
    kwargs = sb3.table_policy_kwargs(env, width=8)
    model = MaskablePPO(sb3.MaskableTablePolicy, env, policy_kwargs=kwargs, seed=0, **SHORT)
    agent = sb3.load_agent(sb3.save_agent(model, tmp_path / "a"))
    assert agent.masked
    obs, _ = env.reset(seed=0)
    for allowed in range(4):
        masks = np.arange(4) == allowed
        assert agent.predict(obs, action_masks=masks, deterministic=True)[0] == allowed
        assert agent.predict(obs, action_masks=masks)[0] == allowed
    many = np.repeat(obs[None], 4, axis=0)
    assert agent.predict(many, action_masks=np.eye(4, dtype=bool))[0].tolist() == [0, 1, 2, 3]


def test_simulate_shows_an_agent_its_masks(tmp_path):
    lossless = {"system": "small", "observe": ["queue", "speed", "limit"], "lossless": True}
    env = gym.make("lbgym/MultiRouter-v0", **lossless)
    kwargs = sb3.table_policy_kwargs(env, width=8)
    model = MaskablePPO(sb3.MaskableTablePolicy, env, policy_kwargs=kwargs, seed=0, **SHORT)
    folder = sb3.save_agent(model, tmp_path / "a", deterministic=False)
    assert lbgym.simulate("small", f"model:{folder}", jobs=1000).jobs == 1000


# --- memories -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    """An agent of four routers with a memory each, briefly trained."""
    observe = ["message", "sent", "speed", "router"]
    vec = sb3.make_vec("lbgym/MultiRouter-v0", 2, system="flagship", observe=observe)
    kwargs = sb3.router_memory_kwargs(vec, width=8)
    model = RecurrentPPO(sb3.RouterMemoryPolicy, vec, policy_kwargs=kwargs, seed=0, **SHORT)
    model.learn(64)
    folder = sb3.save_agent(model, tmp_path_factory.mktemp("models") / "a")
    return sb3.load_agent(folder)


def decisions(count=40):
    """Observations of random play, one decision after another, and whose they are."""
    env = gym.make(
        "lbgym/MultiRouter-v0", system="flagship", observe=["message", "sent", "speed", "router"]
    )
    obs, _ = env.reset(seed=3)
    actions = np.random.default_rng(3).integers(20, size=count - 1)
    found = np.stack([obs, *(env.step(action)[0] for action in actions)])
    return found, found[:, -1].astype(int)


def told(agent, observations):
    """Probabilities at each of a router's or many routers' decisions, in turn."""
    policy, state, found = agent.model.policy, None, []
    for obs in observations:
        p, state = agent._remembering(policy, obs[None], state, None)
        found.append(p[0])
    return np.stack(found)


def test_a_router_knows_nothing_of_what_the_others_saw(recurrent):
    shown, routers = decisions()
    assert set(routers) == {0, 1, 2, 3}
    together = told(recurrent, shown)
    for k in range(4):
        alone = told(recurrent, shown[routers == k])
        np.testing.assert_allclose(together[routers == k], alone, atol=1e-6)
    other = told(recurrent, shown[::-1])  # and it does remember: another past, another answer
    assert np.abs(other[::-1] - together).max() > 1e-6


def test_a_decision_changes_the_deciding_routers_memory_alone(recurrent):
    shown, routers = decisions()
    state = None
    for obs, router in zip(shown, routers, strict=True):
        before = np.zeros((1, 1, 32)) if state is None else state[0]
        _, state = recurrent.predict(obs[None], state)
        changed = (state[0] != before).reshape(4, 8).any(axis=1)
        assert changed.tolist() == [k == router for k in range(4)]


def test_what_was_learned_from_a_sequence_is_what_acting_saw(recurrent):
    shown, _ = decisions(12)
    policy = recurrent.model.policy
    zeros = (torch.zeros(1, 1, 32),) * 2
    starts = torch.zeros(12)
    with torch.no_grad():
        at_once, _ = policy.get_distribution(torch.as_tensor(shown), zeros, starts)
    np.testing.assert_allclose(
        at_once.distribution.probs.numpy(), told(recurrent, shown), atol=1e-6
    )


def test_a_memory_must_be_told_whose_it_is():
    with pytest.raises(ValueError, match="which of the 4 routers decides; use observe="):
        sb3.router_memory_kwargs(gym.make("lbgym/MultiRouter-v0"))
    with pytest.raises(ValueError, match="jobs migrate"):
        sb3.router_memory_kwargs(gym.make("lbgym/MultiRouter-v0", system="flagship-migrating"))
    assert sb3.router_memory_kwargs(gym.make("lbgym/CarSharing-v0")) == {
        "routers": 1,
        "router_at": None,
    }
