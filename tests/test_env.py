"""The environment keeps Gymnasium's contract, and one step is one decision of the engine."""

import itertools
import json
import os
import pickle
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

import lbgym
from lbgym import Pool, System
from lbgym.engine import State
from lbgym.engine.layout import DONE, PAUSE
from lbgym.engine.run import run_until
from lbgym.envs import DispatchEnv, TimeDiscount
from lbgym.policies import make

ID = "lbgym/MultiRouter-v0"
BUSY = System([Pool(3, 1.0, limit=4), Pool(2, 2.0, limit=6)], routers=2, load=1.5)
MOVING = System([Pool(3, 1.0, limit=4), Pool(2, 2.0)], routers=2, load=0.9, migration_rate=1.0)
WIDE = System([Pool(1, speed=1 + k / 700) for k in range(700)], routers=3, load=0.9)
NAMED = [s.name for s in lbgym.scenarios.SCENARIOS.values() if isinstance(s.system, System)]
INFO = ["dt", "time", "router", "kind", "action_mask", "state", "counts"]

SETTINGS = {
    "default": {},
    "all": {
        "observe": [
            "message", "message_order", "message_age", "sent", "sent_age", "speed", "limit",
            "queue", "queue_order", "queue_probed", "candidate(3)", "server", "router", "class",
        ],
        "info": INFO,
    },
    "candidates": {"action": "candidate(3)", "observe": ["queue_probed", "server", "message_age"]},
    "candidates by default": {"action": "candidate"},
    "pools": {"action": "pool"},
    "lossless": {"observe": ["queue", "speed"], "lossless": True, "info": INFO},
    "warm": {"start": "warm", "reward": {"base": "holding", "messages": 0.1}},
}  # fmt: skip


def play(env, steps, seed=0, pick=None):
    """Random actions (allowed ones if masks are asked for); yields what `step` returns."""
    rng = np.random.default_rng(seed)
    obs, info = env.reset(seed=seed)
    yield obs, 0.0, False, False, info
    for _ in range(steps):
        mask = env.get_wrapper_attr("action_masks")()
        action = int(rng.choice(np.flatnonzero(mask))) if pick is None else pick(obs)
        out = env.step(action)
        obs = out[0]
        yield out
        if out[3]:
            obs, _ = env.reset()


@pytest.mark.parametrize("checker", ["gymnasium.utils", "stable_baselines3.common"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("system", [BUSY, MOVING], ids=["busy", "moving"])
def test_a_checker_passes_without_a_warning(system, setting, checker):
    check_env = pytest.importorskip(f"{checker}.env_checker").check_env
    arguments = SETTINGS[setting]
    if system.migrates and str(arguments.get("action", "server")) != "server":
        pytest.skip("only servers can answer a resampling")
    if arguments.get("lossless") or "action_mask" in arguments.get("info", ()):
        # Checkers act without looking at masks, so nothing may be masked: no resampling, no limit.
        system = System(Pool(5), routers=2, load=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(ID, system=system, render_mode="rgb_array", **arguments)
        check_env(env.unwrapped)


@pytest.mark.parametrize("setting", SETTINGS)
def test_observations_stay_in_their_space_under_overload(setting):
    env = gym.make(ID, system=BUSY, horizon_arrivals=3000, **SETTINGS[setting])
    space = env.observation_space
    assert space.dtype == np.float32
    assert space.low.dtype == space.high.dtype == np.float32
    assert np.isfinite(space.low).all()
    assert np.isfinite(space.high).all()
    for obs, reward, terminated, truncated, info in play(env.unwrapped, 10_000):
        assert obs.dtype == np.float32
        assert obs in space
        assert type(terminated) is bool
        assert type(truncated) is bool
        assert type(reward) is float
        assert not terminated
        assert np.isfinite(reward)
        assert_plain_numbers(info)


def test_observations_stay_in_their_space_without_limits():
    system = System([Pool(2), Pool(1, speed=2.0)], load=1.5, migration_rate=0.2)
    env = gym.make(
        ID, system=system, observe=["queue", "sent", "source", "target", "kind", "router"]
    )
    for obs, *_ in play(env.unwrapped, 10_000):
        assert obs in env.observation_space


def assert_plain_numbers(info):
    for key, value in info.items():
        if isinstance(value, dict):
            assert_plain_numbers(value)
        else:
            assert type(value) in (int, float, np.ndarray), key
            assert np.isfinite(value).all(), key


def share_memory(one, other):
    """Whether two observations or infos hold the same array or dict."""
    if isinstance(one, dict):
        return one is other or any(share_memory(one[key], other[key]) for key in one)
    return isinstance(one, np.ndarray) and np.shares_memory(one, other)


def test_no_two_observations_or_infos_share_memory():
    env = gym.make(ID, system=BUSY, info=INFO, observe=["queue", "message"]).unwrapped
    kept = [(obs, info) for obs, _, _, _, info in play(env, 600)]
    copies = [obs.copy() for obs, _ in kept]
    for (obs, info), (following, next_info) in itertools.pairwise(kept):
        assert not share_memory(obs, following)
        assert not share_memory(info, next_info)
    for (obs, _), copy in zip(kept, copies, strict=True):
        assert np.array_equal(obs, copy)
        assert obs.flags.writeable
    spans = sorted((obs.ctypes.data, obs.nbytes) for obs, _ in kept)
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("wrap", [int, np.int64, np.int32, np.array, lambda a: np.int64(a)[()]])
def test_integers_of_every_kind_act_alike(wrap):
    plain, other = gym.make(ID), gym.make(ID)
    plain.reset(seed=5)
    other.reset(seed=5)
    for k in range(200):
        a, b = plain.step(k % 20), other.step(wrap(k % 20))
        assert np.array_equal(a[0], b[0])
        assert a[1:] == b[1:]


@pytest.mark.parametrize(
    "action",
    [-1, 20, 10**30, 1.0, float("nan"), True, np.array([1]), "1", None, np.float32(1), [1]],
)
def test_an_action_outside_the_space_is_one_clear_error_and_changes_nothing(action):
    env = gym.make(ID).unwrapped
    env.reset(seed=1)
    before = env._state.world.copy()
    with pytest.raises(ValueError, match="action: must be an integer from 0 to 19, got"):
        env.step(action)
    assert np.array_equal(env._state.world, before)
    env.step(0)


def test_masked_actions_raise_only_if_masks_were_asked_for():
    for info in ([], ["action_mask"]):
        env = gym.make(ID, system=MOVING, info=info, horizon_arrivals=-1).unwrapped
        refused = 0
        env.reset(seed=0)
        for _ in range(2000):
            mask = env.action_masks()
            if mask.all():
                env.step(0)
                continue
            w = env._state.world[0]
            assert set(np.flatnonzero(mask)) == {w["source"], w["target"]}
            other = int(np.flatnonzero(~mask)[0])
            moved = int(w["migrations"])
            if info:
                with pytest.raises(ValueError, match="is masked, allowed now"):
                    env.step(other)
                env.step(int(w["source"]))
                refused += 1
            else:
                env.step(other)
            assert w["migrations"] == moved  # any other server is a stay
        assert refused > 50 or not info


def test_action_mask_equals_action_masks():
    env = gym.make(ID, system=MOVING, info=["action_mask", "kind"]).unwrapped
    kinds = set()
    for _, _, _, _, info in play(env, 1000):
        mask = info["action_mask"]
        assert mask.dtype == np.int8
        if env._state.world[0]["arrivals"] < 2000:
            assert np.array_equal(mask.astype(bool), env.action_masks())
        assert mask.any()
        assert env.action_space.sample(mask=mask) in env.action_space
        kinds.add(info["kind"])
    assert kinds == {0, 1}


@pytest.mark.parametrize("action", ["server", "candidate(2)"])
def test_lossless_masks_full_servers_while_another_has_room(action):
    env = gym.make(
        ID, system=BUSY, action=action, lossless=True, observe=["queue"], info=["state", "counts"]
    ).unwrapped
    limits, some = BUSY.limits, 0
    for _, _, _, _, info in play(env, 3000):
        full = info["state"] >= limits
        if action != "server":
            full = full[env._state.arrays["candidates"]["server"]]
        if env._state.world[0]["arrivals"] != 2000:
            mask = env.action_masks()
            assert np.array_equal(mask, ~full if not full.all() else np.ones_like(full))
            some += not mask.all()
    assert some > 100


def test_horizon_in_arrivals_truncates_with_the_true_last_observation():
    env = gym.make(ID, horizon_arrivals=50, info=["counts", "time"], observe=["queue"]).unwrapped
    outs = list(play(env, 50))
    assert [out[3] for out in outs] == [False] * 50 + [True]
    assert outs[-1][4]["counts"]["arrivals"] == 50
    longer = gym.make(ID, horizon_arrivals=51, info=["counts", "time"], observe=["queue"]).unwrapped
    again = list(play(longer, 50))
    assert np.array_equal(outs[-1][0], again[-1][0])
    assert outs[-1][4] == again[-1][4]


def test_horizon_in_time_truncates_at_the_first_decision_at_or_after_it():
    env = gym.make(ID, horizon_time=10.0, info=["time"]).unwrapped
    env.reset(seed=3)
    last = 0.0
    for _ in range(10_000):
        _, _, _, truncated, info = env.step(0)
        if truncated:
            break
        assert info["time"] < 10
        last = info["time"]
    assert last < 10 <= info["time"]


def test_a_horizon_beyond_every_integer_is_never():
    env = gym.make(ID, horizon_arrivals=10**30).unwrapped
    env.reset(seed=0)
    assert not any(env.step(0)[3] for _ in range(3000))


@pytest.mark.parametrize("steps", [None, -1, 7])
def test_max_episode_steps_is_gymnasiums(steps):
    env = gym.make(ID, max_episode_steps=steps, horizon_arrivals=20)
    env.reset(seed=0)
    taken = 0
    truncated = False
    while not truncated:
        _, _, _, truncated, _ = env.step(0)
        taken += 1
    assert taken == (7 if steps == 7 else 20)


def test_overload_truncates_and_says_why():
    system = System(Pool(2), load=3.0)
    env = gym.make(ID, system=system, max_jobs=100, observe=["queue"], horizon_arrivals=-1)
    env.reset(seed=0)
    for _ in range(1000):
        obs, reward, terminated, truncated, info = env.step(0)
        if truncated:
            break
    assert "max_jobs" in info["overload"]
    assert (reward, terminated) == (0.0, False)
    assert obs in env.observation_space
    assert env.unwrapped._state.world[0]["present"] == 100
    obs, info = env.reset(seed=0)
    assert "overload" not in info


# --- seeds ----------------------------------------------------------------------------------------
def trajectory(env, steps=300, seed=11):
    return [(obs.tobytes(), reward) for obs, reward, *_ in play(env, steps, seed)]


def test_one_seed_gives_one_trajectory():
    first = trajectory(gym.make(ID).unwrapped)
    np.random.seed(3)  # noqa: NPY002 (it must not matter)
    assert trajectory(gym.make(ID).unwrapped) == first
    a, b = gym.make(ID).unwrapped, gym.make(ID).unwrapped
    both = list(zip(play(a, 300, 11), play(b, 300, 11), strict=True))
    assert [(x[0].tobytes(), x[1]) for x, _ in both] == first
    assert [(x[0].tobytes(), x[1]) for _, x in both] == first
    assert trajectory(gym.make(ID).unwrapped, seed=12) != first


def test_reset_without_a_seed_goes_on_with_the_generator():
    env = gym.make(ID, horizon_arrivals=50).unwrapped
    env.reset(seed=123)
    second = env.reset()[0]
    env.step(0)
    env.reset(seed=123)
    for _ in range(10):
        env.step(1)
    assert np.array_equal(env.reset()[0], second)
    assert not np.array_equal(env.reset()[0], second)


def test_reset_does_not_seed_the_action_space():
    env = gym.make(ID)
    env.action_space.seed(4)
    first = [env.action_space.sample() for _ in range(5)]
    env.action_space.seed(4)
    env.reset(seed=0)
    assert [env.action_space.sample() for _ in range(5)] == first


def engine_run(policy, seed, arrivals, start="empty"):
    """The engine alone: a rule for so many arrivals, at rest at the next decision."""
    state = policy.state()
    state.seed(np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))))
    state.begin(start)
    place, move = policy.rules()
    while (status := run_until.of(state)(state.address, place, move, arrivals)) != DONE:
        if status != PAUSE:
            state.grow()
    return state


@pytest.mark.parametrize("start", ["empty", "warm", [3] * 20])
def test_reset_seeds_and_begins_as_the_engine_does(start):
    weights = ",".join(["1"] + ["0"] * 19)  # everything to server 0, as the environment below
    reference = engine_run(make(f"static({weights})", "flagship"), 21, 100, start)
    env = gym.make(ID, start=start, observe=["speed"]).unwrapped
    env.reset(seed=21)
    for _ in range(100):
        env.step(0)
    w, v = env._state.world[0], reference.world[0]
    for name in ("clock", "moment", "arrivals", "blocked", "departed", "response_sum", "present"):
        assert w[name] == v[name], name


def test_reset_options_set_the_queue_lengths_once():
    env = gym.make(ID, info=["state"], observe=["queue"]).unwrapped
    lengths = list(range(10)) * 2
    _, info = env.reset(seed=0, options={"queue_lengths": lengths})
    assert abs(info["state"] - lengths).sum() <= 3  # up to the first arrival a few may have left
    _, info = env.reset(seed=0)
    assert info["state"].sum() == 0
    with pytest.raises(ValueError, match="unknown key 'queues', did you mean 'queue_lengths'"):
        env.reset(options={"queues": lengths})
    with pytest.raises(ValueError, match="options: must be a dict, got 3"):
        env.reset(options=3)


def test_a_copied_or_pickled_environment_goes_on_alike():
    env = gym.make(ID, system=MOVING, info=INFO, horizon_arrivals=-1).unwrapped
    env.reset(seed=1)
    for _ in range(100):
        env.step(int(np.flatnonzero(env.action_masks())[0]))
    other = pickle.loads(pickle.dumps(env))
    for k in range(300):
        action = int(np.flatnonzero(env.action_masks())[k % 2])
        a, b = env.step(action), other.step(action)
        assert np.array_equal(a[0], b[0])
        assert a[1] == b[1]
        assert str(a[4]) == str(b[4])


# --- reward ---------------------------------------------------------------------------------------
def test_holding_rewards_sum_to_minus_the_area_and_the_charges():
    env = gym.make(ID, system=MOVING, loss_charge=7.0, move_cost=0.25, baseline=0.5).unwrapped
    env.reset(seed=2)
    w = env._state.world[0]

    def totals():
        area = w["present"] * w["clock"] + w["moment"]
        return np.array([area, w["blocked"], w["migrations"], w["clock"]])

    before = totals()
    rng = np.random.default_rng(0)
    total = sum(env.step(int(rng.integers(5)))[1] for _ in range(3000))
    area, lost, moved, time = totals() - before
    assert lost > 10
    assert moved > 10
    assert total == pytest.approx(-area - 7 * lost - 0.25 * moved + 0.5 * time, rel=1e-9)


def test_named_terms_are_subtracted():
    def total(reward):
        env = gym.make(ID, reward=reward, observe=["queue"], info=["counts"]).unwrapped
        env.reset(seed=2)
        outs = [env.step(k % 20) for k in range(200)]
        return sum(out[1] for out in outs), outs[-1][4]["counts"]

    plain, _ = total("response")
    priced, counts = total({"base": "response", "messages": 0.5})
    assert counts["probes"] == 200 * 20
    assert plain - priced == pytest.approx(0.5 * 2 * counts["probes"])


def test_response_reward_is_the_expected_response_of_the_job_placed():
    env = gym.make(ID, info=["state", "counts"], observe=["queue"]).unwrapped
    _, info = env.reset(seed=4)
    speeds, charge = env.system.speeds, env.system.default_loss_charge
    assert charge == 20
    lost = 0
    rng = np.random.default_rng(1)
    for _ in range(2000):
        action = int(rng.integers(4))
        found = info["state"][action]
        _, reward, _, _, info = env.step(action)
        lost += found == 10
        assert reward == (-(found + 1) / speeds[action] if found < 10 else -charge)
    assert info["counts"]["blocked"] == lost > 0


def test_response_is_holding_plus_a_potential_difference_on_average():
    """Sum of both, and Phi = sum q (q + 1) / (2 mu), over the same trajectory (mean-0 noise)."""
    system = System([Pool(1), Pool(1, speed=2.0)], load=0.6)
    arguments = {"system": system, "horizon_arrivals": -1, "info": ["state"]}
    envs = [gym.make(ID, reward=form, **arguments).unwrapped for form in ("response", "holding")]
    infos = [env.reset(seed=6)[1] for env in envs]

    def potential(q):
        return float(np.sum(q * (q + 1) / (2 * system.speeds)))

    start = potential(infos[0]["state"])
    sums = np.zeros(2)
    steps = 40_000
    rng = np.random.default_rng(0)
    for action in rng.integers(0, 3, steps):
        outs = [env.step(int(action > 0)) for env in envs]
        sums += [out[1] for out in outs]
    gap = (sums[0] - sums[1] + potential(outs[0][4]["state"]) - start) / steps
    assert abs(gap) < 0.05 * abs(sums[1] / steps)


def test_default_rewards():
    assert gym.make(ID).unwrapped._row.record.prices[0]["form"] == 1
    assert gym.make(ID, system=MOVING).unwrapped._row.record.prices[0]["form"] == 0
    assert gym.make(ID, system="local-search").unwrapped._row.record.prices[0]["form"] == 0
    with pytest.raises(ValueError, match="'response' needs jobs that stay"):
        gym.make(ID, system=MOVING, reward="response")


def test_time_discount():
    env = TimeDiscount(gym.make(ID, info=["dt"]), scale=20.0)
    _, info = env.reset(seed=0)
    assert info == {"dt": 0.0, "discount": 1.0}
    total = 0.0
    for _ in range(1000):
        *_, info = env.step(0)
        total += info["dt"]
        assert info["discount"] == pytest.approx(np.exp(-info["dt"] / 20))
    assert total == pytest.approx(1000 / env.unwrapped.system.arrival_rate, rel=0.1)
    with pytest.raises(ValueError, match="info="):
        TimeDiscount(gym.make(ID))


# --- when things are called out of turn -----------------------------------------------------------
def test_step_before_reset_and_after_close():
    env = gym.make(ID).unwrapped
    for call in (lambda: env.step(0), env.action_masks):
        with pytest.raises(ResetNeeded, match="before reset"):
            call()
    env.reset(seed=0)
    env.step(0)
    env.close()
    env.close()
    for call in (lambda: env.step(0), env.reset, env.action_masks):
        with pytest.raises(ClosedEnvironmentError, match="after close"):
            call()


@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_render_before_reset_and_after_close(mode):
    env = DispatchEnv(render_mode=mode)
    with pytest.raises(ResetNeeded, match="render before reset"):
        env.render()
    env.reset(seed=0)
    env.close()
    with pytest.raises(ClosedEnvironmentError, match="render after close"):
        env.render()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"system": "flagshp"}, "did you mean 'flagship'"),
        ({"observe": ["mesage"]}, "did you mean 'message'"),
        ({"observe": ["queue", "queue"]}, "given twice"),
        ({"observe": "queue"}, "must be a list of columns"),
        ({"observe": np.array("queue")}, "must be a list of columns"),
        ({"observe": []}, "at least one column"),
        ({"observe": ["source"]}, "migration_rate above 0"),
        ({"observe": ["queue_probed"]}, r"candidate\(d\)"),
        ({"observe": ["candidate(3)"], "action": "candidate(2)"}, "both must agree"),
        ({"observe": ["candidate(21)"]}, "at most the 20 servers"),
        ({"observe": ["queue_order"], "action": "pool"}, "no average over a pool"),
        ({"action": "candidat"}, "unknown form 'candidat'"),
        ({"action": 3}, "action: must be"),
        ({"action": "pool", "system": MOVING}, "cannot answer resamplings"),
        ({"lossless": True}, "'queue'"),
        ({"lossless": True, "action": "pool"}, "needs action='server'"),
        ({"reward": "hold"}, "did you mean 'holding'"),
        ({"reward": {"message": 1}}, "did you mean 'messages'"),
        ({"loss_charge": float("nan")}, "loss_charge: must be a finite number"),
        ({"horizon_arrivals": 0}, "horizon_arrivals: must be a whole number >= 1"),
        ({"horizon_time": -1.0}, "horizon_time: must be positive"),
        ({"start": "cold"}, "start: must be 'empty', 'warm'"),
        ({"start": [1, 2]}, "20 whole queue lengths"),
        ({"start": [11] + [0] * 19}, r"start\[0\]"),
        ({"info": ["tim"]}, "did you mean 'time'"),
        ({"router_samples": 5}, "at most the number of routers"),
        ({"render_mode": "human"}, "render_mode"),
        ({"max_jobs": 0}, "max_jobs"),
    ],
)
def test_wrong_arguments_are_one_clear_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        DispatchEnv(**arguments)


def test_ansi_picture():
    env = gym.make(ID, system=BUSY, render_mode="ansi")
    env.reset(seed=0)
    for k in range(30):
        env.step(k % 2)
    text = env.render()
    assert isinstance(text, str)
    assert "pool 1: 2 x speed 2, limit 6" in text
    assert "#===" in text
    assert "router" in text
    assert "last action 1" in text


@pytest.mark.parametrize("system", [*NAMED, BUSY, MOVING, WIDE], ids=str)
def test_pixels_have_one_size_and_do_not_touch_the_run(system):
    env = gym.make(ID, system=system, render_mode="rgb_array").unwrapped
    plain = gym.make(ID, system=system).unwrapped
    env.reset(seed=0)
    plain.reset(seed=0)
    shapes = set()
    for k in range(60):
        pixels = env.render()
        assert pixels.dtype == np.uint8
        shapes.add(pixels.shape)
        action = k % 2 % env.action_space.n
        assert np.array_equal(env.step(action)[0], plain.step(action)[0])
    assert len(shapes) == 1
    height, width, colours = shapes.pop()
    assert colours == 3
    assert 100 < height < 400
    assert 400 <= width < 600


def columns_of(env):
    """Colours and rows of each server's column, bottom up, as (colour, rows) runs; and its mark."""
    pixels = env.render()
    n, margin = env.system.servers, 8
    wide = (pixels.shape[1] - 2 * margin) // n
    for k in range(n):
        column = pixels[:, margin + k * wide + wide // 2]
        floor = len(column) - 2 * margin
        upwards = map(tuple, column[floor - 1 :: -1].tolist())
        runs = [(colour, len(list(rows))) for colour, rows in itertools.groupby(upwards)]
        yield runs, tuple(column[floor + 5].tolist())


def test_pixels_show_queues_limits_and_messages():
    env = gym.make(ID, system=BUSY, render_mode="rgb_array").unwrapped
    env.reset(seed=5, options={"queue_lengths": [0, 1, 4, 3, 6]})
    white, dark = (255, 255, 255), (70, 70, 70)
    held = env.table(env.step(0)[0])["message"]
    lengths = env._state.arrays["servers"]["length"].tolist()
    for k, (runs, mark) in enumerate(columns_of(env)):
        jobs = [colour for colour, _ in runs if colour not in (white, dark)]
        assert len(jobs) == lengths[k]
        assert len(set(jobs[1:])) <= 1  # those that wait are pale
        assert len(set(jobs[:2])) == min(len(jobs), 2)
        below = sum(rows for _, rows in runs[: [c for c, _ in runs].index(dark)])
        assert below == 33 * BUSY.limits[k]
        assert (mark == (235, 160, 0)) == (held[k] > 0)


def test_stable_baselines_makes_vectors_of_it():
    vectors = pytest.importorskip("stable_baselines3.common.env_util")
    env = vectors.make_vec_env(ID, 2, seed=1, env_kwargs={"system": BUSY})
    assert env.reset().shape == (2, *env.observation_space.shape)
    assert env.get_images()[0].ndim == 3
    env.close()


# --- the same in plain Python ---------------------------------------------------------------------
_DIGEST = """
import gymnasium as gym, hashlib, json, numpy as np, sys
import lbgym
for system, arguments in json.loads(sys.argv[1]):
    env = gym.make("lbgym/MultiRouter-v0", system=system, **arguments).unwrapped
    digest = hashlib.sha256(env.reset(seed=3)[0].tobytes())
    rng = np.random.default_rng(0)
    for _ in range(150):
        action = int(rng.choice(np.flatnonzero(env.action_masks())))
        obs, reward, _, _, info = env.step(action)
        digest.update(obs.tobytes())
        digest.update(repr((float(reward), {k: str(v) for k, v in info.items()})).encode())
    print(digest.hexdigest())
"""


def test_plain_python_mode_gives_the_same_bytes():
    cases = [(BUSY.to_dict(), s) for s in SETTINGS.values()] + [(MOVING.to_dict(), {"info": INFO})]
    outputs = []
    for disabled in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", _DIGEST, json.dumps(cases)],
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(done.stdout.split())
    assert len(outputs[0]) == len(cases)
    assert outputs[0] == outputs[1]


def test_the_state_of_an_environment_is_the_engines():
    assert isinstance(DispatchEnv()._state, State)
