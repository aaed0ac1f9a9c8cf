"""The environments are registered well: by id, by text, in every kind of process."""

import importlib
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

import lbgym
from lbgym import System

IDS = sorted(lbgym.ENVIRONMENTS)
ROUTERS, CLOSED = "lbgym/MultiRouter-v0", "lbgym/LocalSearchClosed-v0"
SYSTEM = {"pools": [{"servers": 3}, {"servers": 2, "speed": 2.0, "limit": 4}], "load": 0.8}
ARGUMENTS = {"system": SYSTEM, "observe": ["queue", "speed"], "reward": {"messages": 0.1},
             "start": [1, 0, 0, 2, 0], "info": ["dt"], "horizon_arrivals": 100}  # fmt: skip


def trajectory(env, steps=40, seed=3):
    out = [env.reset(seed=seed)[0].tobytes()]
    for k in range(steps):
        obs, reward, *_ = env.step(k % int(env.action_space.n))
        out += [obs.tobytes(), reward]
    return out


def in_new_process(env_id, queue):
    """Runs in a spawned process, which has imported nothing of lbgym."""
    queue.put(trajectory(gym.make(f"lbgym:{env_id}")))


@pytest.mark.parametrize("env_id", [ROUTERS, CLOSED])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_fresh_process_makes_it_by_its_prefixed_id(env_id, method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=in_new_process, args=(env_id, queue))
    process.start()
    got = queue.get(timeout=300)
    process.join(timeout=3000)
    assert got == trajectory(gym.make(env_id))


def test_importing_twice_and_reloading_register_once():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(lbgym)
        importlib.import_module("lbgym")
        gym.register_envs(lbgym)
    assert sorted(env_id for env_id in gym.registry if env_id.startswith("lbgym/")) == IDS


@pytest.mark.parametrize(("env_id", "arguments"), [*((i, {}) for i in IDS), (ROUTERS, ARGUMENTS)])
def test_a_spec_survives_json_and_pickle(env_id, arguments):
    env = gym.make(env_id, **arguments)
    expected = trajectory(env)
    for spec in (EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        assert trajectory(gym.make(spec)) == expected


def test_a_spec_with_a_system_object_survives_json():
    env = gym.make(ROUTERS, system=System.from_dict(SYSTEM))
    assert trajectory(gym.make(EnvSpec.from_json(env.spec.to_json()))) == trajectory(env)
    assert json.loads(env.spec.to_json())["kwargs"]["system"]["load"] == 0.8


@pytest.mark.parametrize("env_id", [ROUTERS, CLOSED])
def test_sync_and_async_vectors_agree(env_id):
    sync = gym.make_vec(env_id, num_envs=2, vectorization_mode="sync", horizon_arrivals=20)
    apart = gym.make_vec(
        f"lbgym:{env_id}",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"context": "spawn"},
        horizon_arrivals=20,
    )
    try:
        a, b = sync.reset(seed=5)[0], apart.reset(seed=5)[0]
        assert np.array_equal(a, b)
        for k in range(50):
            actions = np.array([k, 1]) % sync.single_action_space.n
            a, b = sync.step(actions), apart.step(actions)
            for x, y in zip(a[:4], b[:4], strict=True):
                assert np.array_equal(x, y)
    finally:
        sync.close()
        apart.close()
    assert not multiprocessing.active_children()


def test_results_do_not_depend_on_numbas_threads():
    code = (
        "import gymnasium as gym, hashlib\n"
        "env = gym.make('lbgym:lbgym/MultiRouter-v0')\n"
        "digest = hashlib.sha256(env.reset(seed=1)[0].tobytes())\n"
        "for k in range(200): digest.update(env.step(k % 20)[0].tobytes())\n"
        "print(digest.hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "NUMBA_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(digests) == 1


_IMPORT = """
import sys, time
import gymnasium
begun = time.process_time()
import lbgym
took = time.process_time() - begun
heavy = ("matplotlib", "torch", "pygame", "stable_baselines3", "scipy.special", "scipy.stats",
         "scipy.sparse", "scipy.linalg", "scipy.optimize")
print(took, *[name for name in heavy if name in sys.modules])
"""


def test_importing_is_quick_and_brings_in_nothing_heavy():
    """(Numba itself imports the top level of scipy, not its parts.)"""
    env = {key: value for key, value in os.environ.items() if key != "DISPLAY"}
    took, *heavy = subprocess.run(
        [sys.executable, "-c", _IMPORT], env=env, capture_output=True, text=True, check=True
    ).stdout.split()
    assert heavy == []
    assert float(took) < 0.7


def test_public_names():
    assert len(set(lbgym.__all__)) == len(lbgym.__all__)
    for name in lbgym.__all__:
        assert hasattr(lbgym, name)
    importlib.import_module("lbgym.simulate")  # the module does not take the function's place
    assert callable(lbgym.simulate)


@pytest.mark.parametrize("env_id", IDS)
def test_documentation_follows_the_schema(env_id):
    doc = type(gym.make(env_id).unwrapped).__doc__
    wanted = ["Description", "Observation", "Action", "Reward", "Starting state", "Episode end",
              "Arguments", "Version history"]  # fmt: skip
    places = [doc.index(f"## {title}") for title in wanted]
    assert places == sorted(places)
