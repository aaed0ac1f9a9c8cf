"""Systems drawn anew for each episode of each row (`randomize`)."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import lbgym
from lbgym import CarSharing, FlowNetwork, Pool, System
from lbgym.envs.randomize import Randomizer

ROUTERS = "lbgym/MultiRouter-v0"
SMALL = {
    "pools": [{"servers": 3, "limit": 4}, {"servers": 2, "speed": 2.0, "limit": 6}],
    "routers": [0.5, 0.5],
    "load": 0.9,
}
RANGES = {
    "load": [0.5, 0.95],
    "pools[0].speed": [1, 4],
    "pools[1].limit": [2, 9],
    "routers": {"values": [[0.5, 0.5], [0.8, 0.2]]},
}
CARS = CarSharing(4, 5, 8).to_dict()
FLOWS = FlowNetwork.linear([0.2, 0.3, 0.3]).to_dict()
CASES = [
    (ROUTERS, {"system": SMALL, "randomize": RANGES, "start": "warm"}),
    (ROUTERS, {"system": SMALL, "randomize": RANGES, "observe": ["queue", "speed", "limit"]}),
    ("lbgym/StaleInformation-v0", {"randomize": {"read_interval": [0.5, 4.0]}}),
    ("lbgym/Loss-v0", {"randomize": {"load": [0.5, 1.5], "classes[1].weight": [1, 9]}}),
    ("lbgym/LocalChoice-v0", {"randomize": {"arrival_rate": [3.0, 9.0]}}),
    ("lbgym/LocalSearchOpen-v0", {"randomize": {"migration_rate": [0.1, 3.0]}}),
    ("lbgym/LocalSearchClosed-v0", {"randomize": {"closed_jobs": [15, 60]}}),
    ("lbgym/CarSharing-v0", {"system": CARS, "randomize": {"cars": [3, 15], "trip_rate": [1, 3]}}),
    (
        "lbgym/FlowNetwork-v0",
        {"randomize": {"flows[0].arrival_rate": [0.1, 0.4], "capacities[1]": [1, 2]}},
    ),
]
MODES = list(AutoresetMode)


def rows_of(env_id, mode=AutoresetMode.NEXT_STEP, rows=3, **arguments):
    return gym.make_vec(env_id, num_envs=rows, autoreset_mode=mode, **arguments)


def steps(env, number, seed=0):
    """Observations, rewards, flags and clocks of some steps; ended rows are reset if need be."""
    generator = np.random.default_rng(seed)
    for _ in range(number):
        actions = generator.integers(env.single_action_space.n, size=env.num_envs)
        *outcome, infos = env.step(actions)
        yield (*outcome, infos)
        over = outcome[2] | outcome[3]
        if env.metadata["autoreset_mode"] is AutoresetMode.DISABLED and over.any():
            yield env.reset(options={"reset_mask": over})


def assert_same(one, other):
    """Equal all the way down."""
    if isinstance(other, dict):
        assert set(one) == set(other)
        one, other = ([x[key] for key in sorted(other)] for x in (one, other))
    if isinstance(other, list | tuple) or (isinstance(other, np.ndarray) and other.dtype == object):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        np.testing.assert_array_equal(one, other)


# --- what is drawn --------------------------------------------------------------------------------
def test_values_lie_in_their_ranges_and_reach_all_of_them():
    randomizer = Randomizer(System.from_dict(SMALL), RANGES)
    generator = np.random.default_rng(1)
    drawn = [randomizer.draw(generator) for _ in range(300)]
    loads, speeds = np.array([(s.load, s.pools[0].speed) for s in drawn]).T
    assert 0.5 <= loads.min() < 0.52 < 0.93 < loads.max() <= 0.95
    assert 1 <= speeds.min() < 1.1 < 3.9 < speeds.max() <= 4
    assert {s.pools[1].limit for s in drawn} == set(range(2, 10))
    assert {s.routers for s in drawn} == {(0.5, 0.5), (0.8, 0.2)}
    assert abs(np.corrcoef(loads, speeds)[0, 1]) < 0.2
    assert {(s.pools[0].limit, s.pools[1].speed) for s in drawn} == {(4, 2.0)}


def test_the_order_of_the_dict_does_not_matter():
    turned = dict(reversed(RANGES.items()))
    one, other = (Randomizer(System.from_dict(SMALL), r) for r in (RANGES, turned))
    assert one.draw(np.random.default_rng(3)) == other.draw(np.random.default_rng(3))


@pytest.mark.parametrize("given", ["load", "arrival_rate"])
def test_load_and_arrival_rate_stand_for_each_other(given):
    system = System(Pool(4), **{given: 0.5})
    for place in ("load", "arrival_rate"):
        drawn = Randomizer(system, {place: [0.7, 0.7]}).draw(np.random.default_rng(0))
        assert getattr(drawn, place) == pytest.approx(0.7)


def test_equal_seeds_draw_equal_systems_row_by_row():
    one, other = (rows_of(ROUTERS, system=SMALL, randomize=RANGES) for _ in range(2))
    one.reset(seed=5)
    first = one.unwrapped.systems
    assert len({system.load for system in first}) == 3
    one.reset()
    second = one.unwrapped.systems
    assert all(a != b for a, b in zip(first, second, strict=True))
    other.reset(seed=[6, 7, 5])
    assert [other.unwrapped.systems[k] for k in (2, 0, 1)] == first
    one.reset(seed=5)
    assert one.unwrapped.systems == first
    one.reset()
    assert one.unwrapped.systems == second


# --- the rows that come of it ---------------------------------------------------------------------
@pytest.mark.parametrize(("env_id", "arguments"), CASES)
def test_rows_are_single_environments_of_the_drawn_systems(env_id, arguments):
    native = rows_of(env_id, info=["dt"], **arguments)
    begun = native.reset(seed=11)
    rest = {key: x for key, x in arguments.items() if key not in ("system", "randomize")}
    drawn = [system.to_dict() for system in native.unwrapped.systems]

    def making(system):
        return lambda: gym.make(env_id, system=system, info=["dt"], **rest)

    plain = SyncVectorEnv([making(system) for system in drawn], observation_mode="different")
    expected = plain.reset(seed=11)
    assert_same((begun[0],), (np.stack(expected[0]),))
    for one, other in zip(steps(native, 60), steps(plain, 60), strict=True):
        over = other[2] | other[3]
        assert_same(one[1:], other[1:])
        assert_same((one[0],), (np.stack(other[0]),))
        assert all(row in native.single_observation_space for row in one[0])
        if over.any():
            break


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", ["empty", "warm"])
def test_ranges_of_one_value_change_nothing(mode, start):
    arguments = {"system": SMALL, "horizon_arrivals": 17, "start": start, "info": ["time"]}
    fixed = {"load": [0.9, 0.9], "pools[1].limit": [6, 6]}
    plain = rows_of(ROUTERS, mode, **arguments)
    drawn = rows_of(ROUTERS, mode, randomize=fixed, **arguments)
    assert_same(drawn.reset(seed=2), plain.reset(seed=2))
    for one, other in zip(steps(drawn, 70), steps(plain, 70), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("mode", MODES)
def test_each_episode_of_a_row_has_a_system_of_its_own(mode):
    env = rows_of(ROUTERS, mode, system=SMALL, randomize=RANGES, horizon_arrivals=10)
    env.reset(seed=4)
    seen = []
    for _ in steps(env, 45):
        now = [system.load for system in env.unwrapped.systems]
        if not seen or now != seen[-1]:
            seen.append(now)
    assert len(seen) == 5
    assert len({load for loads in seen for load in loads}) == 15


def test_reset_mask_draws_for_its_rows_alone():
    env = rows_of(ROUTERS, AutoresetMode.DISABLED, system=SMALL, randomize=RANGES)
    env.reset(seed=4)
    before = env.unwrapped.systems
    env.reset(options={"reset_mask": np.array([False, True, False])})
    after = env.unwrapped.systems
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]


def test_limits_beyond_the_arrays_of_the_first_system():
    """Tails have as many levels as the limit asks for: such rows keep memory of their own."""
    env = rows_of(
        ROUTERS, system=SMALL, randomize={"pools[0].limit": [1, 40]}, max_episode_steps=30
    )
    obs, _ = env.reset(seed=0)
    for obs, *_ in steps(env, 200):
        assert obs in env.observation_space


def test_copies_and_threads_draw_alike():
    arguments = {"system": SMALL, "randomize": RANGES, "horizon_arrivals": 9}
    one, threaded = rows_of(ROUTERS, **arguments), rows_of(ROUTERS, threads=2, **arguments)
    assert_same(one.reset(seed=1), threaded.reset(seed=1))
    twin = copy.deepcopy(one.unwrapped)
    for a, b, c in zip(steps(one, 40), steps(threaded, 40), steps(twin, 40), strict=True):
        assert_same(a, b)
        assert_same(a, c)
    assert one.unwrapped.systems == threaded.unwrapped.systems == twin.systems
    threaded.close()


def test_stable_baselines_sees_the_drawn_systems():
    pytest.importorskip("stable_baselines3")
    from lbgym.sb3 import make_vec

    vec = make_vec(ROUTERS, 3, system=SMALL, randomize=RANGES, seed=8)
    vec.reset()
    systems = vec.get_attr("system")
    assert systems == vec.inner.unwrapped.systems
    assert [env.system for env in vec.get_attr("unwrapped")] == systems
    vec.step(np.zeros(3, np.int64))


# --- what is refused ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({}, "randomize: must be a dict"),
        (["load"], "randomize: must be a dict"),
        ({"load": [0.9, 0.5]}, "low <= high, got [0.9, 0.5]"),
        ({"load": [0.5]}, "randomize['load']: must be [low, high], finite numbers"),
        ({"load": [0.5, float("inf")]}, "finite numbers"),
        ({"load": [0.5, "1"]}, "finite numbers"),
        ({"load": [0.0, 0.5]}, "randomize: with load = 0.0: load: must be a finite number > 0"),
        ({"load": {"values": []}}, "{'values': [...]}, got {'values': []}"),
        ({"load": {"low": 1}}, "{'values': [...]}, got {'low': 1}"),
        ({"load": [0.5, 0.9], "arrival_rate": [1, 2]}, "has both load and arrival_rate"),
        ({"pools[0].limit": [1.5, 3]}, "whole numbers"),
        ({"pools[2].speed": [1, 2]}, "'pools[2].speed' is no value of the system"),
        ({"pools.speed": [1, 2]}, "'pools.speed' is no value of the system"),
        ({"pools[0]speed!": [1, 2]}, "is no value of the system"),
        ({3: [1, 2]}, "3 is no value of the system"),
        ({"load.real": [1, 2]}, "'load.real' is no value of the system"),
        ({"size.law": {"values": ["erlang"]}}, "'size.law' is no value of the system"),
        ({"size": [1, 2]}, "no number; must be {'values': [...]}, got [1, 2]"),
        ({"servers": [5, 6]}, "unknown field 'servers'"),
        ({"pools[0].servers": [3, 4]}, "must not change the shape of the rows; the system has 3 +"),
        ({"routers": {"values": [2, 3]}}, "must not change the shape of the rows"),
    ],
)
def test_bad_ranges_are_refused_in_one_sentence(ranges, words):
    with pytest.raises(ValueError, match=r"^randomize") as caught:
        rows_of(ROUTERS, system=SMALL, randomize=ranges)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_of_systems_is_not_randomised():
    with pytest.raises(ValueError, match="randomize: needs one system for all rows"):
        rows_of(ROUTERS, system=[SMALL] * 3, randomize=RANGES)


def test_a_start_must_fit_all_systems():
    start = [4, 4, 4, 6, 6]
    with pytest.raises(ValueError, match=r"start\[3\]: must be between 0 and its server's limit"):
        rows_of(ROUTERS, system=SMALL, randomize={"pools[1].limit": [2, 6]}, start=start)


def test_lbgym_names_its_environments():
    assert {env_id for env_id, _ in CASES} == set(lbgym.ENVIRONMENTS)
