"""The environments of car sharing and flow networks, and their rules as agents."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common import env_checker as sb3

from lbgym import CarSharing, Flow, FlowNetwork, policies, simulate, theory

CARS, FLOWS = "lbgym/CarSharing-v0", "lbgym/FlowNetwork-v0"
TREE = FlowNetwork((Flow(routes=((0, 2), (1, 2)), arrival_rate=1.0),), (1.0, 1.0, 1.5))
CASES = [
    (CARS, {}),
    (CARS, {"action": "incentive", "reward": "problematic"}),
    (CARS, {"observe": ["space", "capacity", "from_here", "wanted", "offered", "arrival_rate"]}),
    (FLOWS, {}),
    (FLOWS, {"system": "flow-routes", "observe": ["route_flows", "route_load", "kind", "class"]}),
    (FLOWS, {"observe": ["flows", "access_rate", "level"]}),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("env_id", "arguments"), CASES)
def test_both_checkers_are_content(env_id, arguments):
    for mode in (None, "ansi", "rgb_array"):
        check_env(gym.make(env_id, render_mode=mode, **arguments).unwrapped)
    sb3.check_env(gym.make(env_id, **arguments).unwrapped)


@pytest.mark.parametrize(("env_id", "arguments"), CASES)
def test_every_action_is_accepted_and_observations_stay_in_the_box(env_id, arguments):
    env = gym.make(env_id, horizon_time=1e5, info=["state"], **arguments)
    obs, _ = env.reset(seed=1)
    rng = np.random.default_rng(0)
    for action in rng.integers(env.action_space.n, size=3000):
        assert obs in env.observation_space
        obs, reward, terminated, _, _ = env.step(action)
        assert type(reward) is float
        assert terminated is False


def played(env, rule, seed, decisions):
    """Observed states and rewards under a rule's agent."""
    agent = policies.agent(rule, env) if isinstance(rule, str) else rule.agent(env)
    obs, info = env.reset(seed=seed)
    states, total, time = [info["state"]], 0.0, 0.0
    for _ in range(decisions):
        action, _ = agent.predict(obs)
        obs, reward, _, _, info = env.step(action)
        states.append(info["state"])
        total += reward
        time = info["time"]
    return states, total, time


def run(system, rule, seed, decisions):
    """The same states by the engine and the compiled rule, without an environment."""
    bound = policies.make(rule, system)
    env = gym.make(CARS if isinstance(system, CarSharing) else FLOWS, system=system)
    machine = type(env.unwrapped._state).under(bound)
    machine.seed(np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))))
    machine.begin("empty")
    states = []
    for _ in range(decisions + 1):
        machine.advance()
        if isinstance(system, CarSharing):
            stations = machine.arrays["stations"]
            states.append(np.stack([stations["reserved"], stations["parked"]], axis=-1))
        else:
            states.append(machine.arrays["classes"]["flows"].copy())
        machine.apply(int(bound.ready()(machine.world.view(np.recarray)[0])))
    return states


WIDE = ["reserved", "parked", "origin", "requested", "offered"]


@pytest.mark.parametrize(
    ("env_id", "system", "rule", "observe"),
    [
        *((CARS, CarSharing(5, capacity=(4, 3, 2, 3, 5), cars=8, arrival_rate=(2, 1, 1, 0.5, 1)),
           rule, WIDE if rule == "two-choice" else ["reserved", "parked", "origin", "requested"])
          for rule in policies.names("cars")),
        (FLOWS, TREE, "join-least-loaded", ["link_load"]),
        (FLOWS, TREE, "static(1, 2)", ["flows"]),
        (FLOWS, FlowNetwork.linear([0.3, 0.3, 0.3], access_rates=(0.25, 1, 2)), "fixed-rate(2)",
         ["flows"]),
    ],
)  # fmt: skip
def test_an_agent_follows_the_trajectory_of_its_rule(env_id, system, rule, observe):
    env = gym.make(env_id, system=system, observe=observe, info=["state", "time"])
    states, *_ = played(env, rule, 7, 1500)
    for k, (one, other) in enumerate(zip(states, run(system, rule, 7, 1500), strict=True)):
        assert np.array_equal(one, other), k


def test_incentive_sends_to_the_emptier_of_wish_and_offer():
    env = gym.make(CARS, action="incentive", observe=WIDE, info=["state", "counts"]).unwrapped
    obs, info = env.reset(seed=3)
    moved = 0
    for _ in range(500):
        seen, before = env.table(obs), info["state"].copy()
        wish, origin = int(seen["requested"]), int(seen["origin"])
        offer = int(np.flatnonzero(seen["offered"] == 1)[0])
        taken = before.sum(axis=1)
        goal = offer if taken[offer] < taken[wish] else wish
        moved += goal != wish
        accepted = info["counts"]["accepted"]
        obs, reward, _, _, info = env.step(1)
        fits = taken[goal] < env.system.capacities[goal]
        assert reward == info["counts"]["accepted"] - accepted == fits
        assert before[origin, 1] > 0
    assert moved > 20


def rate_with_interval(rewards, times):
    """Mean reward per unit time over batches, and three standard errors."""
    rates = np.asarray(rewards) / np.asarray(times)
    return rates.mean(), 3.5 * rates.std(ddof=1) / np.sqrt(len(rates))


@pytest.mark.parametrize(
    ("env_id", "system", "observe", "exact"),
    [
        (CARS, "cars", ["reserved", "parked", "origin"], ("accepted", 4.0)),
        (FLOWS, "flow-rate", ["flows"], ("jobs_in_system", -1.0)),
        (FLOWS, "flow-routes", ["route_flows"], ("jobs_in_system", -1.0)),
    ],
)
def test_the_exact_optimum_as_an_agent_attains_its_value(env_id, system, observe, exact):
    best = theory.optimal(system)
    name, factor = exact
    env = gym.make(env_id, system=system, observe=observe, info=["state", "time"],
                   horizon_time=1e6)  # fmt: skip
    rewards, times = [], []
    for seed in range(12):
        _, total, time = played(env, best.policy, seed, 4000)
        rewards.append(total)
        times.append(time)
    mean, margin = rate_with_interval(rewards, times)
    assert abs(mean - factor * getattr(best, name)) < margin
    assert margin < 0.15 * abs(mean)


@pytest.mark.parametrize("system", ["cars", "flow-rate"])
def test_simulating_an_agent_gives_the_estimates_of_its_rule(system):
    best = theory.optimal(system)
    kind = CARS if system == "cars" else FLOWS
    observe = {"cars": ["reserved", "parked", "origin"], "flow-rate": ["flows"]}[system]
    agent = best.policy.agent(gym.make(kind, system=system, observe=observe))
    found = simulate(system, agent, jobs=20_000, seed=1)
    same = simulate(system, best.policy, jobs=20_000, seed=1)
    assert found.cost == pytest.approx(same.cost, rel=2e-3)
    assert type(found) is type(same)


@pytest.mark.parametrize(
    ("env_id", "arguments", "message"),
    [
        (CARS, {"system": "flagship"}, "system: must be a CarSharing"),
        (CARS, {"action": "teleport"}, "action: unknown form 'teleport'"),
        (CARS, {"move_cost": 1.0}, "move_cost: means nothing"),
        (CARS, {"observe": ["cars"]}, "observe: unknown column 'cars'"),
        (CARS, {"start": [1, 2]}, "start: must be 4 whole numbers of cars"),
        (CARS, {"horizon_time": 0}, "horizon_time: must be positive"),
        (FLOWS, {"system": "cars"}, "system: must be a FlowNetwork"),
        (FLOWS, {"action": "route"}, "action: this network's choices are 'level's"),
        (FLOWS, {"system": {"kind": "flow-network", "capacities": [1.0],
                            "flows": [{"route": [0], "arrival_rate": 0.2}]}},
         "system: nothing is to be decided"),
        ("lbgym/MultiRouter-v0", {"system": "cars"}, "system: must be a System"),
    ],
)  # fmt: skip
def test_wrong_arguments(env_id, arguments, message):
    with pytest.raises(ValueError, match=message):
        gym.make(env_id, **arguments)


@pytest.mark.parametrize(("rule", "action"), [("requested", 0), ("two-choice", 1)])
def test_the_rules_of_accepting_and_offering_are_exact(rule, action):
    """Users accepted per unit time of four stations alike, 3 spaces each, 7 cars."""
    system = CarSharing(4, 3, 7)
    env = gym.make(CARS, system=system, action="incentive", horizon_arrivals=-1, info=["time"])
    agent = policies.agent(rule, env)
    obs, _ = env.reset(seed=4)
    paid, times = np.zeros(31), np.zeros(31)
    for k in range(31):
        for _ in range(400):
            chosen, _ = agent.predict(obs)
            assert chosen == action
            obs, reward, _, _, info = env.step(chosen)
            paid[k] += reward
        times[k] = info["time"]
    rates = paid[1:] / np.diff(times)
    exact = theory.exact(system, rule).accepted * 4
    assert abs(rates.mean() - exact) < 3.5 * rates.std(ddof=1) / np.sqrt(30)


def test_an_agent_says_what_it_must_see():
    env = gym.make(CARS, observe=["reserved", "parked"])
    with pytest.raises(ValueError, match="least-parked: the environment must also show origin"):
        policies.agent("least-parked", env)
    with pytest.raises(ValueError, match="use action='operator'"):
        policies.agent("least-parked", gym.make(CARS, action="incentive"))
    drawn = CarSharing(3, 2, 3, destinations=(2.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="wishes are not uniform"):
        policies.agent("two-choice", gym.make(CARS, system=drawn, action="incentive"))


def test_an_overloaded_network_is_cut_off_with_a_reason():
    system = FlowNetwork((Flow(routes=((0,), (1,)), arrival_rate=9.0),), (1.0, 1.0))
    env = gym.make(FLOWS, system=system, max_jobs=30, horizon_time=1e5)
    env.reset(seed=0)
    truncated = False
    for _ in range(200):
        *_, truncated, info = env.step(0)
        if truncated:
            break
    assert truncated
    assert "30" in info["overload"]
