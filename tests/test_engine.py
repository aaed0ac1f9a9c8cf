"""The engine's storage, streams and compiling: nothing is lost, whatever has to grow."""

import hashlib
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from interrupting import heed_interrupts
from numba import njit, types

import lbgym
from lbgym import Pool, System
from lbgym.engine import Overload, State, layout
from lbgym.engine.access import COMPILED, world
from lbgym.engine.random import exponential, uniform
from lbgym.engine.run import run_until
from lbgym.policies import make

ROOT = Path(__file__).resolve().parent.parent


def digest(state: State) -> str:
    """A fingerprint of everything but addresses."""
    total = hashlib.sha256()
    for name in layout.WORLD.names:
        if not name.startswith("at_"):
            total.update(state.world[name].tobytes())
    for name in sorted(state.arrays):
        array = state.arrays[name]
        for field in array.dtype.names:
            total.update(np.ascontiguousarray(array[field]).tobytes())
    return total.hexdigest()


def started(system: System, policy: str, seed: int = 0, **options: object) -> tuple[State, object]:
    bound = make(policy, system)
    state = bound.state(**options)
    state.seed(np.random.default_rng(seed))
    state.begin()
    return state, bound


def go(state: State, policy: object, arrivals: int) -> None:
    place, move = policy.rules()
    while True:
        status = run_until.of(state)(state.address, place, move, arrivals)
        if status == layout.DONE:
            return
        assert status in (layout.GROW, layout.PAUSE)
        state.grow()


FLAGSHIP = lbgym.as_system("flagship")
UNSTABLE = System([Pool(1, 1.0), Pool(1, 2.0)], routers=2, load=0.95, message_fate="resend")


@pytest.mark.parametrize("policy", ["pull(fallback=wrr)", "jsq", "jsq(2)"])
def test_a_copy_and_a_pickle_go_on_alike(policy):
    state, rule = started(FLAGSHIP, policy)
    go(state, rule, 500)
    twins = [state.copy(), pickle.loads(pickle.dumps(state))]
    go(state, rule, 2000)
    for twin in twins:
        go(twin, rule, 2000)
        assert digest(twin) == digest(state)


def test_infinite_limits_grow_without_loss():
    state, rule = started(UNSTABLE, "random")
    room = len(state.arrays["jobs"])
    go(state, rule, 60_000)
    w = state.world[0]
    assert len(state.arrays["jobs"]) > room
    assert w["arrivals"] == w["departed"] + w["present"]
    assert w["blocked"] == 0
    assert state.arrays["servers"]["length"].sum() == w["present"]
    jobs, server = state.arrays["jobs"], state.arrays["servers"][0]
    walked, j, before = 0, server["head"], -1.0
    while j >= 0:
        assert jobs[j]["arrived"] > before
        walked, before, j = walked + 1, jobs[j]["arrived"], jobs[j]["next"]
    assert walked == server["length"]


def test_growing_does_not_disturb_a_trajectory():
    """A state with ample room and one that must grow all the time are the same in the end."""
    small, rule = started(UNSTABLE, "pull")
    ample, _ = started(UNSTABLE, "pull")
    for _ in range(12):
        ample._grow_jobs()
        ample._grow_levels(0)
        ample._grow_levels(1)
    go(small, rule, 50_000)
    go(ample, rule, 50_000)
    for name in ("clock", "moment", "present", "sent", "used", "absorbed", "response_sum"):
        assert small.world[0][name] == ample.world[0][name]


@pytest.mark.parametrize("fate", ["withdraw", "keep", "resend"])
def test_message_lists_grow_and_stay_consistent(fate):
    system = System([Pool(300, 1.0, 3), Pool(200, 2.0, 3)], routers=3, load=0.4, message_fate=fate)
    state, rule = started(system, "pull")
    for goal in range(2_000, 40_000, 2_000):
        go(state, rule, goal)
        lists, held, entries = (state.arrays[k] for k in ("lists", "held", "entries"))
        assert lists["count"].sum() == state.world[0]["outstanding"]
        assert state.arrays["routers"]["held"].sum() == state.world[0]["outstanding"]
        seen = set()
        for k, row in enumerate(lists):
            for place in range(row["count"]):
                message = held[row["begin"] + place]
                sender, e = state.arrays["servers"][message["server"]], message["entry"]
                router = sender["holder"] if e < 0 else entries["router"][e]
                assert router == k // 2
                assert (sender["place"] if e < 0 else entries["place"][e]) == place
                assert sender["pool"] == k % 2
                seen.add((int(router), int(message["server"])))
        assert len(seen) == state.world[0]["outstanding"]


def test_servers_stay_sorted():
    state, rule = started(FLAGSHIP, "sed")
    for goal in range(500, 5_000, 500):
        go(state, rule, goal)
        order = state.arrays["order"]["server"]
        lengths = state.arrays["servers"]["length"]
        for this in state.arrays["pools"]:
            mine = order[this["first"] : this["first"] + this["servers"]]
            assert sorted(mine) == list(range(this["first"], this["first"] + this["servers"]))
            assert all(np.diff(lengths[mine]) <= 0)
            assert this["shortest"] == lengths[mine].min()
        assert (state.arrays["standings"]["position"][order] == np.arange(len(order))).all()


def test_too_many_jobs_are_an_overload_not_a_loss():
    state, rule = started(UNSTABLE, "random", max_jobs=300)
    with pytest.raises(Overload, match="max_jobs: 300 jobs in the system reach the allowed 300"):
        go(state, rule, 10**6)
    assert state.world[0]["present"] == 300


@njit(types.void(types.int64, types.float64[::1], types.float64[::1]))
def draw(address, uniforms, exponentials):
    w = world(address)
    for k in range(len(uniforms)):
        uniforms[k] = uniform(w, layout.NETWORK)
        exponentials[k] = exponential(w, layout.SERVICE)


@pytest.mark.skipif(not COMPILED, reason="two million draws need compiled code")
def test_uniform_and_exponential_variates_have_their_laws():
    state, _ = started(FLAGSHIP, "random", seed=3)
    n = 2_000_000
    u, x = np.empty(n), np.empty(n)
    draw(state.address, u, x)
    for probabilities in (u, 1 - np.exp(-x)):
        counts = np.histogram(probabilities, 500, (0, 1))[0]
        chi2 = ((counts - n / 500) ** 2 / (n / 500)).sum()
        assert abs(chi2 - 499) < 4.5 * math.sqrt(2 * 499)
    tail = (x > 8.0).sum()  # beyond the ziggurat's base layer
    assert abs(tail - n * math.exp(-8)) < 4.5 * math.sqrt(n * math.exp(-8))
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 4.5 / math.sqrt(n)


def test_streams_depend_on_the_seed_alone():
    states = [started(FLAGSHIP, "pull", seed=seed)[0] for seed in (1, 1, 2)]
    assert digest(states[0]) == digest(states[1]) != digest(states[2])


WARM = System([Pool(4000, 1.0, 10), Pool(3000, 2.0), Pool(2000, 1.0, 6, slots=2)], load=0.7)


def test_a_warm_start_has_the_stationary_law():
    state, _ = started(WARM, "random", seed=5)
    state.begin("warm")
    lengths = state.arrays["servers"]["length"]
    share = WARM.arrival_rate / WARM.speeds.sum()  # offered load of every server
    geometric = share / (1 - share)
    infinite = lengths[4000:7000]
    error = math.sqrt(geometric * (1 + geometric) / len(infinite))
    assert abs(infinite.mean() - geometric) < 4.5 * error
    weights = [share**k / min(math.factorial(k), 2 ** (k - 1) if k else 1) for k in range(7)]
    law = np.array(weights) / sum(weights)
    counts = np.bincount(lengths[7000:], minlength=7)
    chi2 = ((counts - 2000 * law) ** 2 / (2000 * law)).sum()
    assert chi2 < 6 + 4.5 * math.sqrt(12)
    assert state.world[0]["present"] == lengths.sum() == state.world[0]["started"]


CALLER = """
import lbgym, sys
from lbgym import simulate
print(simulate("flagship", "random", jobs=2000, seed=1).cost.mean)
"""


@pytest.mark.skipif(not COMPILED, reason="about the cache of compiled code")
def test_an_edited_callee_takes_effect_although_the_caller_is_cached(tmp_path):
    """numba#1833: the file cache does not see an edit in another module of a cached function."""
    shutil.copytree(
        ROOT / "lbgym", tmp_path / "lbgym", ignore=shutil.ignore_patterns("__pycache__")
    )
    env = dict(os.environ, PYTHONPATH=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "cache"))

    def cost() -> float:
        done = subprocess.run(
            [sys.executable, "-c", CALLER],
            env=env, cwd=tmp_path, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return float(done.stdout)

    first = cost()
    assert cost() == first
    callee = tmp_path / "lbgym" / "engine" / "random.py"
    text = callee.read_text()
    assert "return beyond + x" in text
    callee.write_text(text.replace("return beyond + x", "return beyond + 0.5 * x"))
    assert cost() != first


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_stops_a_simulation_within_seconds():
    code = (
        "import lbgym; lbgym.simulate('mm1', 'random', jobs=10**12, "
        "progress=lambda done, planned: print('on', flush=True))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        preexec_fn=heed_interrupts,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "on\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in errors
    assert time.monotonic() - begun < 60
