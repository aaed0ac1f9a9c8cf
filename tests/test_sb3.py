"""Trained models as agents, and the network made for tables."""

import json
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

import lbgym
from lbgym import policies

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402

from lbgym.sb3 import TablePolicy, load_agent, save_agent, table_policy_kwargs  # noqa: E402

ID = "lbgym/MultiRouter-v0"
SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "device": "cpu", "seed": 1}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def make(**kwargs):
    return gym.make(ID, **{"system": "small", "start": "warm", **kwargs})


def table_model(**kwargs):
    """A model that prefers some servers clearly: random weights, not the timid first ones."""
    env = make(**kwargs)
    model = PPO(TablePolicy, env, policy_kwargs=table_policy_kwargs(env, width=8), **SMALL)
    torch.nn.init.normal_(model.policy.mlp_extractor.score.weight, std=3.0)
    return model


@pytest.fixture(scope="module")
def table_folder(tmp_path_factory):
    model = table_model()
    model.learn(64)
    return save_agent(model, tmp_path_factory.mktemp("models") / "table", deterministic=False)


@pytest.fixture(scope="module")
def mlp_folder(tmp_path_factory):
    model = PPO("MlpPolicy", make(), **SMALL)
    return save_agent(model, tmp_path_factory.mktemp("models") / "mlp")


def observations(env, count=20):
    first, _ = env.reset(seed=5)
    actions = np.random.default_rng(5).integers(env.action_space.n, size=count - 1)
    return np.stack([first, *(env.step(action)[0] for action in actions)])


def probabilities(policy, obs):
    with torch.no_grad():
        return policy.get_distribution(torch.as_tensor(obs)).distribution.probs.numpy()


# --- the network ----------------------------------------------------------------------------------
def test_permuting_servers_permutes_the_probabilities():
    env = make(system="flagship")
    policy = table_model(system="flagship").policy
    obs = observations(env)
    order = np.random.default_rng(1).permutation(20)
    permuted = obs.reshape(len(obs), -1, 20)[:, :, order].reshape(len(obs), -1)
    p = probabilities(policy, obs)
    assert p.std(axis=1).min() > 0.01  # it does prefer some
    np.testing.assert_allclose(probabilities(policy, permuted), p[:, order], atol=1e-6)
    values = [policy.predict_values(torch.as_tensor(o)).detach() for o in (obs, permuted)]
    np.testing.assert_allclose(*values, atol=1e-5)


def test_twice_as_many_equal_servers_halve_the_probabilities():
    policy = table_model().policy
    obs = observations(make())
    doubled = obs.reshape(len(obs), -1, 4).repeat(2, axis=2).reshape(len(obs), -1)
    p = probabilities(policy, obs)
    np.testing.assert_allclose(
        probabilities(policy.for_rows(8), doubled), p.repeat(2, axis=1) / 2, atol=1e-6
    )


def test_the_context_is_seen_and_comes_last():
    env = make(observe=["speed", "sent", "router"])
    model = table_model(observe=["speed", "sent", "router"])
    obs = observations(env, 1)
    assert obs.shape == (1, 9)
    other = obs.copy()
    other[0, -1] = 1.0 - other[0, -1]
    hidden = [model.policy.mlp_extractor.actor_rows(torch.as_tensor(o))[1] for o in (obs, other)]
    assert (hidden[0] != hidden[1]).sum() == 1


def test_a_table_policy_needs_a_table():
    with pytest.raises(ValueError, match="lbgym environment"):
        table_policy_kwargs(gym.make("CartPole-v1"))
    env = make()
    wrong = {"columns": ("speed", "limit")}
    with pytest.raises(ValueError, match="one action per row and 2 columns"):
        PPO(TablePolicy, env, policy_kwargs=wrong, **SMALL)


# --- saved and loaded -----------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["table", "mlp"])
def test_a_loaded_agent_predicts_as_the_model_did(kind, tmp_path):
    model = table_model() if kind == "table" else PPO("MlpPolicy", make(), **SMALL)
    model.learn(32)
    agent = load_agent(save_agent(model, tmp_path / "a"))
    obs = observations(make())
    np.testing.assert_array_equal(
        agent.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0]
    )
    np.testing.assert_allclose(agent.probabilities(obs), probabilities(model.policy, obs))
    one, _ = agent.predict(obs[0], deterministic=True)
    assert np.shape(one) == ()
    assert agent.name == f"model:{tmp_path / 'a'}"
    assert load_agent(tmp_path / "a" / "model.zip").settings == agent.settings


def test_settings_say_what_the_model_was_trained_in(table_folder):
    settings = json.loads((table_folder / "settings.json").read_text())
    assert settings["env"] == ID
    assert settings["environment"]["system"] == lbgym.as_system("small").to_dict()
    assert settings["columns"] == list(make().unwrapped.columns)
    assert settings["observation_shape"] == [24]
    assert settings["actions"] == 4
    assert {"lbgym", "gymnasium", "stable-baselines3", "numpy", "torch"} <= set(
        settings["versions"]
    )


def test_an_agent_knows_what_pull_knows(table_folder):
    pull = policies.make("pull(fallback=wrr, choice=fastest)", "flagship")
    assert load_agent(table_folder).information == pull.information


def test_drawn_actions_have_the_networks_probabilities(table_folder):
    agent = load_agent(table_folder)
    obs = observations(make(), 1)
    drawn, _ = agent.predict(np.repeat(obs, 20_000, axis=0))
    shares = np.bincount(drawn, minlength=4) / 20_000
    np.testing.assert_allclose(shares, agent.probabilities(obs)[0], atol=0.02)


def test_sb3_evaluates_an_agent(table_folder):
    env = make(horizon_arrivals=50)
    mean, _ = evaluate_policy(load_agent(table_folder), env, 2, warn=False)
    assert mean < 0


# --- in simulate ----------------------------------------------------------------------------------
def run(folder, system="small", **others):
    same = {"jobs": 600, "replications": 3, **others}
    return lbgym.simulate(system, f"model:{folder}", **same)


def test_simulate_is_reproducible_though_actions_are_drawn(table_folder):
    first, again, other = run(table_folder), run(table_folder), run(table_folder, seed=1)
    assert not load_agent(table_folder).deterministic
    assert first.counts == again.counts
    assert first.cost == again.cost
    assert first.cost != other.cost
    assert first.policy == f"model:{table_folder}"


def test_one_network_serves_any_number_of_servers(table_folder):
    assert run(table_folder, "hundred", jobs=300).jobs == 900


def test_model_and_rule_share_random_numbers(table_folder):
    one, other = run(table_folder), lbgym.simulate("small", "pull", jobs=600, replications=3)
    np.testing.assert_array_equal(one.batches["arrivals"], other.batches["arrivals"])
    clocks = [np.cumsum(r.batches["clock"]) for r in (one, other)]
    np.testing.assert_allclose(*clocks, atol=3.0)  # arrivals come at the same times


# --- what can go wrong ----------------------------------------------------------------------------
def test_a_plain_network_is_bound_to_its_number_of_servers(mlp_folder):
    with pytest.raises(ValueError, match="trained on 4 servers, asked on 20; only a TablePolicy"):
        run(mlp_folder, "flagship")


def test_a_system_that_migrates_needs_a_model_that_did(table_folder):
    with pytest.raises(ValueError, match="whose jobs do not migrate, asked on one whose jobs do"):
        run(table_folder, "flagship-migrating")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"observe": ["message", "speed"]}, "trained on the columns message, message_age.*shows"),
        ({"action": "pool"}, "trained with action='server', this environment has 'pool'"),
    ],
)
def test_another_environment_is_refused_by_name(table_folder, kwargs, message):
    with pytest.raises(ValueError, match=message):
        load_agent(table_folder).check(make(**kwargs))


def test_observations_of_another_shape_are_refused(table_folder):
    with pytest.raises(ValueError, match=r"observations of 24 values.*got 25"):
        load_agent(table_folder).predict(np.zeros((1, 25), np.float32))


def _copy(folder, to):
    to.mkdir()
    for file in ("model.zip", "settings.json"):
        (to / file).write_bytes((folder / file).read_bytes())
    return to


def _without(key):
    def spoil(folder):
        settings = json.loads((folder / "settings.json").read_text())
        del settings[key]
        (folder / "settings.json").write_text(json.dumps(settings))

    return spoil


def _with(**changed):
    def spoil(folder):
        settings = json.loads((folder / "settings.json").read_text())
        (folder / "settings.json").write_text(json.dumps({**settings, **changed}))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "settings.json").unlink(), "settings.json is missing.*save_agent"),
        (lambda f: (f / "model.zip").unlink(), "has no model.zip"),
        (lambda f: (f / "model.zip").write_bytes(b"PK no zip"), "model.zip cannot be loaded"),
        (lambda f: (f / "settings.json").write_text("{"), "settings.json cannot be read"),
        (lambda f: (f / "settings.json").write_text("[]"), "settings.json lacks format"),
        (_without("columns"), "settings.json lacks columns"),
        (_with(format=99), "saved in format 99, this lbgym reads format 1"),
        (_with(columns=["tea"]), "column 'tea' which this lbgym lacks"),
        (_with(algorithm="stable_baselines3:Nobody"), "Nobody is not here: pip install"),
        (_with(observation_shape=[12]), r"shape \[24\], settings.json says \[12\]"),
    ],
)
def test_a_damaged_model_is_named(table_folder, tmp_path, spoil, message):
    folder = _copy(table_folder, tmp_path / "copy")
    spoil(folder)
    with pytest.raises(ValueError, match=message):
        load_agent(folder)


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere is not the folder of a saved model"):
        lbgym.simulate("small", f"model:{tmp_path / 'nowhere'}", jobs=100)


def test_a_missing_extra_says_how_to_install_it():
    code = "import sys; sys.modules['torch'] = None; import lbgym.sb3"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "pip install lbgym[train]" in ended.stderr.splitlines()[-1]
