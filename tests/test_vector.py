"""The native vector environments are SyncVectorEnv, value for value."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import lbgym

IDS = sorted(lbgym.ENVIRONMENTS)
ROUTERS = "lbgym/MultiRouter-v0"
MODES = list(AutoresetMode)
INFO = ["dt", "time", "router", "kind", "state", "counts"]
SMALL = {
    "pools": [{"servers": 3, "limit": 4}, {"servers": 2, "speed": 2.0, "limit": 6}],
    "routers": 2,
    "load": 0.9,
}
CASES = [(env_id, {"horizon_time": 4.0}) for env_id in IDS] + [
    (ROUTERS, {"system": SMALL, "horizon_arrivals": 37, "start": "warm"}),
    (ROUTERS, {"system": {**SMALL, "migration_rate": 1.0}, "horizon_arrivals": 23}),
    (ROUTERS, {"system": {"pools": [{"servers": 2}], "load": 3.0}, "max_jobs": 70}),
    (ROUTERS, {"system": SMALL, "action": "candidate(3)", "horizon_arrivals": 29}),
    (ROUTERS, {"system": SMALL, "observe": ["message", "backlog"], "horizon_arrivals": 31}),
]


def native(env_id, rows, mode, **arguments):
    return gym.make_vec(env_id, num_envs=rows, autoreset_mode=mode, **arguments)


def plain(env_id, rows, mode, **arguments):
    def make():
        return gym.make(env_id, **arguments)

    return SyncVectorEnv([make] * rows, autoreset_mode=mode)


def same(one, other, where=""):
    """Equal values, shapes and dtypes, all the way down."""
    if isinstance(other, dict):
        assert set(one) == set(other), where
        for key in other:
            same(one[key], other[key], f"{where}/{key}")
    elif isinstance(other, list | tuple):
        for a, b in zip(one, other, strict=True):
            same(a, b, where)
    elif isinstance(other, np.ndarray) and other.dtype == object:
        assert one.dtype == object, where
        for a, b in zip(one, other, strict=True):
            same(a, b, where)
    elif isinstance(other, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        assert np.array_equal(one, other), where
    else:
        assert one == other, where


def compare(one, other, steps, pick):
    """Step both; an end under DISABLED is followed by a reset of the ended rows."""
    rng = np.random.default_rng(0)
    choices = int(one.single_action_space.n)
    same(one.reset(seed=5), other.reset(seed=5))
    for t in range(steps):
        actions = pick(rng, choices, one.num_envs)
        got, expected = one.step(actions), other.step(actions)
        for k in range(5):
            same(got[k], expected[k], f"step {t}, part {k}")
        over = expected[2] | expected[3]
        if one.autoreset_mode is AutoresetMode.DISABLED and over.any():
            resets = [env.reset(options={"reset_mask": over.copy()}) for env in (one, other)]
            same(*resets, f"reset {t}")


def random_actions(rng, choices, rows):
    return rng.integers(choices, size=rows)


def extreme_actions(rng, choices, rows):
    return np.full(rows, rng.integers(2) * (choices - 1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "arguments"), CASES)
def test_it_is_sync_vector_env_value_for_value(env_id, arguments, mode):
    arguments = {"info": INFO, **arguments}
    for pick in (random_actions, extreme_actions):
        one, other = native(env_id, 5, mode, **arguments), plain(env_id, 5, mode, **arguments)
        assert one.single_observation_space == other.single_observation_space
        assert one.action_space == other.action_space
        compare(one, other, 250, pick)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", IDS)
def test_it_is_sync_vector_env_for_long(env_id, mode):
    arguments = {"info": INFO, "horizon_time": 50.0}
    for pick in (random_actions, extreme_actions):
        one, other = native(env_id, 3, mode, **arguments), plain(env_id, 3, mode, **arguments)
        compare(one, other, 5000, pick)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", IDS)
def test_masks_and_step_limits_are_the_same_too(env_id, mode):
    def allowed(rng, choices, rows):
        masks = one.action_masks()
        assert masks.any(axis=1).all()
        return np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])

    arguments = {"info": ["action_mask"], "max_episode_steps": 7}
    one, other = native(env_id, 4, mode, **arguments), plain(env_id, 4, mode, **arguments)
    compare(one, other, 60, allowed)


@pytest.mark.parametrize("env_id", IDS)
def test_threads_change_nothing(env_id):
    arguments = {"info": INFO, "horizon_time": 5.0}
    one = native(env_id, 6, "NextStep", threads=3, **arguments)
    compare(one, native(env_id, 6, "NextStep", **arguments), 200, random_actions)
    one.close()
    one.close()


def test_rows_may_have_systems_of_their_own():
    systems = [{**SMALL, "load": load, "routers": routers} for load, routers in
               ((0.5, 2), (0.9, [0.9, 0.1]), (1.5, [0.4, 0.6]))]  # fmt: skip
    systems[1]["pools"] = [{"servers": 3, "limit": 9}, {"servers": 2, "speed": 5.0, "limit": 1}]
    arguments = {"info": INFO, "horizon_arrivals": 31}
    one = native(ROUTERS, 3, "SameStep", system=systems, **arguments)
    makes = [lambda s=s: gym.make(ROUTERS, system=s, **arguments) for s in systems]
    other = SyncVectorEnv(makes, observation_mode="different", autoreset_mode="SameStep")
    compare(one, other, 200, random_actions)
    assert one.single_observation_space.high.max() == 5.0
    assert [system.load for system in one.systems] == pytest.approx([0.5, 0.9, 1.5])


def test_a_copy_and_a_pickle_go_on_alike():
    env = native(ROUTERS, 3, "NextStep", system=SMALL, horizon_arrivals=50)
    env.reset(seed=1)
    env.step(np.array([0, 1, 2]))
    others = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    for k in range(120):
        actions = np.full(3, k % 5)
        expected = env.step(actions)
        for other in others:
            same(other.step(actions), expected)


def test_nothing_that_is_returned_is_shared():
    env = native(ROUTERS, 3, "NextStep", info=INFO)
    first, _ = env.reset(seed=1)
    seen = [first]
    for _ in range(5):
        obs, *rest, infos = env.step(np.zeros(3, int))
        for old in seen:
            assert not np.shares_memory(old, obs)
        seen += [obs, *rest, infos["time"], infos["state"], infos["counts"]["arrivals"]]
        now = env._worlds["clock"].copy()
        for array in (infos["time"], infos["state"]):
            array[...] = 99
        assert np.array_equal(env._worlds["clock"], now)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_episode_statistics_see_every_reward(mode):
    env = wrappers.RecordEpisodeStatistics(
        native(ROUTERS, 4, mode, system=SMALL, horizon_arrivals=20)
    )
    env.reset(seed=3)
    lengths, returns, paid = [], [], np.zeros(4)
    found = []
    for _ in range(130):
        _, rewards, _, truncated, infos = env.step(np.zeros(4, int))
        paid += rewards
        if truncated.any():
            returns += paid[truncated].tolist()
            paid[truncated] = 0
            where = infos if "episode" in infos else infos["final_info"]
            lengths += where["episode"]["l"][truncated].tolist()
            found += where["episode"]["r"][truncated].tolist()
    assert len(lengths) >= 20
    assert set(lengths) == {20}
    assert found == pytest.approx(returns)


def test_normalising_wrappers_run():
    env = native(ROUTERS, 4, "NextStep", system=SMALL, horizon_arrivals=20)
    env = wrappers.NormalizeReward(wrappers.NormalizeObservation(env))
    env.reset(seed=0)
    for _ in range(100):
        obs, rewards, *_ = env.step(env.action_space.sample())
    assert np.isfinite(obs).all()
    assert np.isfinite(rewards).all()


def test_what_make_vec_wants():
    env = native(ROUTERS, 2, AutoresetMode.SAME_STEP, max_episode_steps=-1)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP is env.autoreset_mode
    assert env.unwrapped is env
    with pytest.raises(ResetNeeded, match="step before reset"):
        env.step(np.zeros(2, int))
    env.reset(seed=0)
    env.close()
    with pytest.raises(ClosedEnvironmentError, match="step after close"):
        env.step(np.zeros(2, int))


@pytest.mark.parametrize("arguments", [{}, {"randomize": {"load": [0.5, 0.9]}}])
def test_rows_without_a_seed_are_all_random(arguments):
    envs = [native(ROUTERS, 3, "NextStep", system=SMALL, info=["time"], **arguments) for _ in "ab"]
    times = [env.reset()[1]["time"] for env in envs]
    assert len(set(np.concatenate(times))) == 6
    seeds = [seed for env in envs for seed in env.np_random_seed]
    assert len(set(seeds)) == 6
    assert None not in seeds


def test_a_partial_reset_leaves_the_other_rows_alone():
    for mode in MODES:
        env = native(ROUTERS, 3, mode, system=SMALL)
        before, _ = env.reset(seed=2)
        mask = np.array([False, True, False])
        streams = [row.state.arrays["streams"].copy() for row in env._rows]
        obs, infos = env.reset(seed=7, options={"reset_mask": mask})
        assert np.array_equal(obs[[0, 2]], before[[0, 2]])
        assert infos == {}
        for k in (0, 2):
            assert np.array_equal(env._rows[k].state.arrays["streams"], streams[k])
        assert np.array_equal(obs[1], gym.make(ROUTERS, system=SMALL).reset(seed=8)[0])


@pytest.mark.parametrize("mode", MODES)
def test_a_given_start_is_for_one_episode(mode):
    arguments = {"system": SMALL, "horizon_arrivals": 5, "info": ["state"]}
    one, other = native(ROUTERS, 3, mode, **arguments), plain(ROUTERS, 3, mode, **arguments)
    given = {"queue_lengths": [4, 4, 4, 6, 6]}
    same(one.reset(seed=1, options=given), other.reset(seed=1, options=given))
    for _ in range(30):
        got, expected = one.step(np.array([0, 1, 4])), other.step(np.array([0, 1, 4]))
        same(got, expected)
        over = expected[2] | expected[3]
        if mode is AutoresetMode.DISABLED and over.any():
            same(*[env.reset(options={"reset_mask": over.copy()}) for env in (one, other)])


@pytest.mark.parametrize(
    ("env_id", "arguments", "lengths"),
    [
        (ROUTERS, {"system": SMALL}, [9] * 5),
        (ROUTERS, {"system": SMALL, "randomize": {"pools[0].limit": [1, 9]}}, [5, 0, 0, 0, 0]),
        ("lbgym/LocalSearchClosed-v0", {}, [4] * 10),  # balanced already
    ],
)
def test_rows_that_failed_to_begin_are_not_stepped(env_id, arguments, lengths):
    env = native(env_id, 5, "NextStep", **arguments)
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"^start"):
        env.reset(seed=9, options={"queue_lengths": lengths})
    with pytest.raises(ResetNeeded, match="step before reset"):
        env.step(np.zeros(5, int))
    env.reset()
    env.step(np.zeros(5, int))


def test_disabled_refuses_to_step_what_is_over():
    env = native(ROUTERS, 2, "Disabled", system=SMALL, horizon_arrivals=2)
    env.reset(seed=0)
    env.step(np.zeros(2, int))
    env.step(np.zeros(2, int))
    with pytest.raises(ValueError, match=r"episodes of rows \[0, 1\] are over"):
        env.step(np.zeros(2, int))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, "num_envs: must be a whole number >= 1, got 0"),
        ({"autoreset_mode": "Sometimes"}, "autoreset_mode: must be one of"),
        ({"autoreset_mode": ["NextStep"]}, "autoreset_mode: must be one of"),
        ({"loss_charge": -1}, "loss_charge: must be a finite number >= 0, got -1"),
        ({"move_cost": -1}, "move_cost: must be a finite number >= 0, got -1"),
        ({"baseline": 10**400}, "baseline: must be a finite number, got 1000"),
        ({"system": [SMALL, "smal"]}, r"^system\[1\]: unknown scenario 'smal'"),
        (
            {"system": [SMALL, {**SMALL, "migration_rate": 1.0}]},
            r"system\[0\] has the columns message, .*, this one the columns .*kind",
        ),
        ({"threads": 0}, "threads: must be a whole number >= 1, got 0"),
        ({"system": [SMALL] * 3}, "system: must be one system or 2 of them"),
        ({"max_episode_steps": 0}, "max_episode_steps: must be a whole number >= 1"),
        (
            {"system": [SMALL, {**SMALL, "routers": 3}]},
            r"system\[1\]: rows must be of equal shape; system\[0\] has 3 \+ 2 servers, 2 routers",
        ),
        (
            {"system": [SMALL, {"pools": [{"servers": 5}], "routers": 2, "load": 0.5}]},
            r"this one 5 servers, 2 routers, 5 choices",
        ),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        gym.make_vec(ROUTERS, **{"num_envs": 2, **arguments})


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(3, int), r"actions: must be 2 integers \(num_envs\), got int64 of shape \(3,\)"),
        (np.zeros(2), "got float64"),
        ([0, 5], r"actions\[1\]: must be an integer from 0 to 4, got 5"),
        ([-1, 0], r"actions\[0\]: must be an integer from 0 to 4, got -1"),
        ([[0], [0, 1]], r"actions: must be 2 integers \(num_envs\), got object"),
    ],
)
def test_wrong_actions_change_nothing(actions, message):
    env = native(ROUTERS, 2, "NextStep", system=SMALL)
    env.reset(seed=0)
    before = env._worlds.tobytes()
    with pytest.raises(ValueError, match=message):
        env.step(actions)
    assert env._worlds.tobytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": 1.5}, r"seed: must be one number or num_envs=2 of them, got 1.5"),
        ({"seed": [1]}, r"seed: must be one number or num_envs=2 of them, got \[1\]"),
        ({"seed": "12"}, r"seed: must be one number or num_envs=2 of them, got '12'"),
        ({"options": 3}, "options: must be a dict, got 3"),
        ({"options": "x"}, "options: must be a dict, got 'x'"),
        ({"options": {"queue": [1]}}, "options: unknown key 'queue'"),
    ],
)
def test_wrong_resets_change_nothing(arguments, message):
    env, other = (native(ROUTERS, 2, "NextStep", system=SMALL) for _ in range(2))
    env.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.reset(**arguments)
    for _ in range(20):
        same(env.step(np.zeros(2, int)), other.step(np.zeros(2, int)))


def test_a_masked_action_changes_nothing():
    env = native(ROUTERS, 2, "NextStep", system={**SMALL, "migration_rate": 5.0},
                 info=["action_mask", "kind"])  # fmt: skip
    _, infos = env.reset(seed=0)
    while not infos["kind"].any():
        *_, infos = env.step(np.array([np.flatnonzero(m)[0] for m in infos["action_mask"]]))
    k = int(np.flatnonzero(infos["kind"])[0])
    actions = np.array([np.flatnonzero(m)[0] for m in infos["action_mask"]])
    actions[k] = np.flatnonzero(infos["action_mask"][k] == 0)[0]
    before = env._worlds.tobytes()
    with pytest.raises(ValueError, match=rf"actions\[{k}\]: .* is masked, allowed now: "):
        env.step(actions)
    assert env._worlds.tobytes() == before
