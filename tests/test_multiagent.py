"""Routers as agents, by PettingZoo's own tests and against the single-agent environment."""

import subprocess
import sys
import types
import warnings
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from pettingzoo import test as pettingzoo_tests

from lbgym.envs import multiagent

SMALL = {"system": "small", "start": "warm", "horizon_arrivals": 300}
ONE_ROUTER = {"pools": [{"servers": 3, "limit": 4}], "load": 0.8}
LIVE = ["queue_probed", "queue", "candidate", "message", "sent", "speed", "class"]


# --- PettingZoo's tests ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        SMALL,
        {**SMALL, "reward": "holding", "observe": LIVE},
        {**SMALL, "action": "candidate(2)"},
        {**SMALL, "observe": ["queue"], "lossless": True, "info": ["action_mask"]},
        {"system": "stale-20", "observe": ["read", "sent_since_read", "speed", "read_age"]},
    ],
)
def test_the_api(arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Observation numpy array is all zeros")
        pettingzoo_tests.api_test(multiagent.env(**arguments), num_cycles=400)


def test_seeds():
    pettingzoo_tests.seed_test(partial(multiagent.env, **SMALL), num_cycles=200)
    pettingzoo_tests.parallel_seed_test(partial(multiagent.parallel_env, **SMALL), num_cycles=200)


def test_max_cycles():
    """Where turns are no chance: with one router."""
    module = types.SimpleNamespace(
        env=partial(multiagent.env, system=ONE_ROUTER),
        parallel_env=partial(multiagent.parallel_env, system=ONE_ROUTER),
    )
    pettingzoo_tests.max_cycles_test(module)
    routers = multiagent.env(system="flagship", max_cycles=10)
    routers.reset(seed=1)
    for _ in play(routers, lambda agent, obs: 0):
        pass
    assert routers.unwrapped.single._state.world[0]["arrivals"] == 40


def test_rendering():
    def make(render_mode):
        return multiagent.env(
            **SMALL, render_mode="ansi" if render_mode == "human" else render_mode
        )

    pettingzoo_tests.render_test(make)


# --- the same system ------------------------------------------------------------------------------
def play(env, act):
    """All turns of an episode: (agent, observation, reward since its last turn, truncated)."""
    for agent in env.agent_iter():
        obs, reward, _, truncated, info = env.last()
        yield agent, obs, reward, truncated, info
        env.step(None if truncated else act(agent, obs))


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("reward", ["response", "holding"])
def test_the_trajectory_is_that_of_the_single_agent(reward, look):
    arguments = {**SMALL, "observe": [*LIVE, "message_order", "router"], "reward": reward}
    env, single = multiagent.env(**arguments), gym.make("lbgym/MultiRouter-v0", **arguments)
    expected, _ = single.reset(seed=4)
    env.reset(seed=4)
    coins, rewards, paid = np.random.default_rng(1), [], dict.fromkeys(env.agents, 0.0)
    turns = []

    def act(agent, obs):
        nonlocal expected
        action = int(coins.integers(4))
        expected, one, *_ = single.step(action)
        rewards.append((agent, one))
        if look:
            for other in env.agents:
                env.observe(other)
        return action

    over = []
    for agent, obs, since, truncated, _ in play(env, act):
        paid[agent] += since
        if truncated:
            over.append(agent)
        else:
            turns.append(agent)
            assert np.array_equal(obs, expected)
            assert agent == f"router_{int(obs[-1])}"
    assert len(turns) == 300
    assert sorted(over) == sorted(paid)
    for agent, total in paid.items():
        own = sum(one for who, one in rewards if reward == "holding" or who == agent)
        assert total == pytest.approx(own, rel=1e-12)


def test_at_the_end_the_acting_router_sees_the_last_observation():
    env, single = multiagent.env(**SMALL), gym.make("lbgym/MultiRouter-v0", **SMALL)
    env.reset(seed=4)
    single.reset(seed=4)
    last = None
    for agent, obs, _, truncated, _ in play(env, lambda agent, obs: 1):
        if not truncated:
            last, *_ = single.step(1)
        elif agent == f"router_{int(single.unwrapped._state.world[0]['router'])}":
            assert np.array_equal(obs, last)
            return
    pytest.fail("nobody saw the last observation")


def test_between_its_turns_a_router_knows_its_own_and_no_more():
    """Its messages and memory up to date; what only an arrival tells is hidden."""
    env = multiagent.RouterEnv(**{**SMALL, "observe": LIVE})
    env.reset(seed=2)
    held = set()
    for k in range(200):
        for agent in env.agents:
            table = env.single.table(env.observe(agent))
            if agent != env.agent_selection:
                assert not any(table[name].any() for name in ("queue", "queue_probed", "candidate"))
                assert table["class"] == 0
                held |= {(agent, i) for i in np.flatnonzero(table["message"])}
            assert table["speed"].tolist() == [1, 1, 2, 2]
        messages = [env.single.table(env.observe(a))["message"] for a in env.agents]
        assert np.sum(messages, axis=0).max() <= 1  # a server's message lies with one router
        env.step(k % 4)
    assert {agent for agent, _ in held} == set(env.agents)


def test_a_router_is_not_paid_for_the_jobs_of_others():
    env = multiagent.env(**SMALL)
    env.reset(seed=0)
    for agent in env.agent_iter(50):
        env.step(0)
        assert {one for one, reward in env.rewards.items() if reward} == {agent}


# --- what can go wrong ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"system": "flagship-migrating"}, "jobs migrate, and a resampling is no router's"),
        ({"max_cycles": 0}, "max_cycles: must be a whole number >= 1, got 0"),
        ({"max_cycles": 5, "horizon_arrivals": 3}, "give one of the two"),
        ({"system": "flagshop"}, "did you mean 'flagship'?"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        multiagent.env(**arguments)


def test_wrong_agents():
    routers = multiagent.env(**SMALL)
    routers.reset(seed=1)
    for ask in (routers.observe, routers.observation_space, routers.action_space):
        with pytest.raises(ValueError, match="agent: unknown agent 'router_99', did you mean 'rou"):
            ask("router_99")


def test_wrong_actions():
    env = multiagent.env(**SMALL)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action: must be an integer from 0 to 3, got 4"):
        env.step(4)


def test_a_missing_extra_says_how_to_install_it():
    code = "import sys; sys.modules['pettingzoo'] = None; import lbgym.envs.multiagent"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "pip install lbgym[multiagent]" in ended.stderr.splitlines()[-1]


def test_routers_that_share_a_network_learn():
    pytest.importorskip("torch")
    from training import multiagent as example

    means = example.train(example.Args(episodes=60))
    assert np.mean(means[-15:]) > np.mean(means[:15]) + 0.15
