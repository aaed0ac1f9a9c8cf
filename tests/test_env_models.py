"""The environments of models 2 to 6: the contract, the papers' rules as agents, exact numbers."""

import json
import os
import pickle
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from lbgym import JobClass, Pool, System, policies, scenarios, simulate
from lbgym.engine.layout import ARRIVAL, GROW, RESAMPLE
from lbgym.engine.run import ask, carry_out, next_decision
from lbgym.envs import DispatchEnv, LocalSearchOpenEnv
from lbgym.envs.observation import share, whole
from lbgym.policies import make
from tests.test_agents import act, differing
from tests.test_env import engine_run, play

STALE, LOSS, CHOICE, OPEN, CLOSED = IDS = (
    "lbgym/StaleInformation-v0",
    "lbgym/Loss-v0",
    "lbgym/LocalChoice-v0",
    "lbgym/LocalSearchOpen-v0",
    "lbgym/LocalSearchClosed-v0",
)
PAIR = System([Pool(1), Pool(1, speed=2.0)], load=0.7)
READ = System([Pool(3), Pool(2, speed=2.0)], routers=3, load=0.8, read_interval=2.0)
UNEQUAL = System([Pool(3), Pool(3, speed=2.0)], load=0.8, graph="ring")
GRID = System(Pool(6), load=0.8, graph=("torus", 2, 3))
ERLANG = System(Pool(4, slots=3, limit=3), arrival_rate=10.0)
MOVING = System([Pool(3, limit=4), Pool(2, speed=2.0)], routers=2, load=0.9, migration_rate=1.0)
TWO = System(Pool(2, discipline="ps"), load=0.8, migration_rate=1.0)
THREE_CLOSED = System(Pool(3), closed_jobs=6, migration_rate=1.0)
UNEQUAL_CLOSED = System([Pool(1, speed=k) for k in (1, 2, 3)], closed_jobs=7, migration_rate=1.0)

SETTINGS = [
    *((name, {}) for name in IDS),
    (STALE, {"system": READ, "action": "candidate(2)", "observe": ["read", "server"]}),
    (STALE, {"system": READ, "action": "pool"}),
    (LOSS, {"action": "candidate(2)"}),
    (LOSS, {"action": "pool"}),
    (LOSS, {"system": ERLANG, "reward": {"messages": 0.1}}),
    (CHOICE, {"system": UNEQUAL, "observe": ["queue_probed", "neighbours", "server", "speed"]}),
    (CHOICE, {"system": GRID, "reward": "holding"}),
    (OPEN, {"system": MOVING, "place": "pull(fallback=wrr)", "move_cost": 0.5}),
    (OPEN, {"system": MOVING, "place": "jsq(2)", "observe": ["server", "limit", "capacity"]}),
    (OPEN, {"system": MOVING, "action": "server", "observe": ["queue", "source", "target"]}),
    (CLOSED, {"system": UNEQUAL_CLOSED, "start": [3, 0, 4]}),
    (CLOSED, {"action": "server", "observe": ["queue", "source", "target"]}),
]
EVERY = pytest.mark.parametrize(("env_id", "arguments"), SETTINGS)


# --- the contract ---------------------------------------------------------------------------------
@EVERY
def test_both_checkers_pass_without_a_warning(env_id, arguments):
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(env_id, **arguments)
        check_env(env.unwrapped)
        sb3.check_env(env.unwrapped)


@EVERY
@pytest.mark.parametrize("load", [None, 1.5])
def test_observations_stay_in_their_space_under_overload_too(env_id, arguments, load):
    system = gym.make(env_id, **arguments).unwrapped.system
    if load is not None and system.closed_jobs is None:
        arguments = {**arguments, "system": system.with_load(load)}
    env = gym.make(env_id, **arguments).unwrapped
    space, ended = env.observation_space, 0
    assert space.dtype == np.float32
    rng = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    for action in rng.integers(env.action_space.n, size=5000):
        assert obs in space
        obs, reward, terminated, truncated, _ = env.step(action)
        assert type(reward) is float
        assert type(terminated) is type(truncated) is bool
        assert np.isfinite(reward)
        assert not terminated or system.closed_jobs is not None
        if terminated or truncated:
            ended += 1
            assert obs in space
            obs, _ = env.reset()


@EVERY
def test_a_spec_survives_json_and_pickle(env_id, arguments):
    def trajectory(env):
        return [(obs.tobytes(), reward) for obs, reward, *_ in play(env.unwrapped, 40, seed=3)]

    env = gym.make(env_id, **arguments)
    expected = trajectory(env)
    for spec in (EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        assert trajectory(gym.make(spec)) == expected


@EVERY
def test_a_pickled_environment_goes_on_alike(env_id, arguments):
    env = gym.make(env_id, horizon_time=1e6, **arguments).unwrapped
    env.reset(seed=1)
    for _ in range(20):
        env.step(0)
    other = pickle.loads(pickle.dumps(env))
    for k in range(200):
        a, b = env.step(k % env.action_space.n), other.step(k % env.action_space.n)
        assert np.array_equal(a[0], b[0])
        assert a[1:] == b[1:]


@pytest.mark.parametrize("env_id", IDS)
def test_text_tells_the_decision(env_id):
    env = gym.make(env_id, render_mode="ansi", info=["kind"])
    _, info = env.reset(seed=0)
    text = env.render()
    assert "pool 0" in text
    assert ("may move to server" in text) == bool(info["kind"])
    if env_id == CHOICE:
        assert "among servers" in text
    if env_id == LOSS:
        assert "pool 1: 1 x 6 units" in text
    if env_id == STALE:
        assert "queues read 0.0" in text


@pytest.mark.parametrize("env_id", IDS)
def test_no_argument_and_none_are_the_same(env_id):
    nothing = dict.fromkeys(
        ("system", "observe", "action", "reward", "horizon_arrivals", "horizon_time", "place")
    )
    one, other = gym.make(env_id).unwrapped, gym.make(env_id, **nothing).unwrapped
    assert one.reset(seed=4)[0].tobytes() == other.reset(seed=4)[0].tobytes()
    assert one.task.horizon_time == other.task.horizon_time
    assert one._row.record.prices == other._row.record.prices


_DIGEST = """
import gymnasium as gym, hashlib, json, sys
import lbgym
for env_id, arguments in json.loads(sys.argv[1]):
    env = gym.make(env_id, **arguments).unwrapped
    digest = hashlib.sha256(env.reset(seed=3)[0].tobytes())
    for k in range(60):
        obs, reward, ended, *_ = env.step(k % int(env.action_space.n))
        digest.update(obs.tobytes())
        digest.update(repr((float(reward), bool(ended))).encode())
    print(digest.hexdigest())
"""


def test_plain_python_mode_gives_the_same_bytes():
    cases = [
        (env_id, {k: v.to_dict() if k == "system" else v for k, v in arguments.items()})
        for env_id, arguments in SETTINGS
    ]
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


# --- what is shown --------------------------------------------------------------------------------
def test_reads_and_own_sends_are_shown():
    env = gym.make(STALE, system=READ, observe=["read", "sent_since_read", "read_age", "router"],
                   info=["state", "time"], horizon_arrivals=-1).unwrapped  # fmt: skip
    obs, info = env.reset(seed=2)
    state, sent, read_at = env._state, np.zeros((3, 5), int), 0.0
    rng = np.random.default_rng(0)
    for _ in range(2000):
        table, r = env.table(obs), int(env.table(obs)["router"])
        assert np.array_equal(whole(table["read"]), state.arrays["asides"]["reading"])
        assert np.array_equal(whole(table["sent_since_read"]), sent[r])
        assert table["read_age"] == pytest.approx(share(info["time"] - read_at), abs=1e-6)
        action = int(rng.integers(5))
        sent[r, action] += 1
        obs, _, _, _, info = env.step(action)
        if info["time"] // 2.0 > read_at // 2.0:
            read_at, sent[:] = info["time"] // 2.0 * 2.0, 0
    assert state.world[0]["reads"] == info["time"] // 2.0 + 1
    assert state.world[0]["probes"] == 5 * state.world[0]["reads"]


def test_vacancies_are_shown():
    env = gym.make(LOSS, info=["state"]).unwrapped
    obs, _ = env.reset(seed=2)
    classes, rng = set(), np.random.default_rng(0)
    for _ in range(2000):
        table = env.table(obs)
        used = env._state.arrays["standings"]["used"]
        assert np.array_equal(whole(table["vacancy"]), [4, 6, 8] - used)
        assert np.array_equal(whole(table["capacity"]), [4, 6, 8])
        assert table["class"] == env._state.world[0]["klass"]
        classes.add(table["class"])
        obs, *_ = env.step(int(rng.integers(3)))
    assert classes == {0.0, 1.0}
    assert env._state.world[0]["probes"] == 2000 * 3


def test_places_stand_for_units():
    env = gym.make(LOSS, system=ERLANG, info=["state"]).unwrapped
    assert env._row.record.prices[0]["form"] == 2
    assert env._row.record.prices[0]["lost"] == 1
    obs, info = env.reset(seed=2)
    for k in range(500):
        table = env.table(obs)
        assert np.array_equal(whole(table["vacancy"]), 3 - info["state"])
        assert np.array_equal(whole(table["capacity"]), [3] * 4)
        full = info["state"][k % 4] == 3
        obs, reward, _, _, info = env.step(k % 4)
        assert reward == -float(full)


@pytest.mark.parametrize("system", [UNEQUAL, GRID, System(Pool(2), load=0.5, graph="ring")])
def test_ends_and_neighbours_are_shown(system):
    env = gym.make(
        CHOICE, system=system, info=["state"], observe=["queue_probed", "neighbours", "server"]
    ).unwrapped
    obs, info = env.reset(seed=2)
    around = [[] for _ in range(system.servers)]
    for a, b in system.edges:
        around[a].append(b)
        around[b].append(a)
    pairs, asked = set(), 0
    for k in range(1000):
        table = env.table(obs)
        ends = table["server"].astype(int)
        pairs.add(tuple(ends))
        assert np.array_equal(whole(table["queue_probed"]), info["state"][ends])
        means = [info["state"][around[i]].mean() for i in ends]
        assert table["neighbours"] == pytest.approx(share(means), rel=1e-6)
        asked += 2 + sum(len(around[i]) for i in ends)
        assert env._state.world[0]["probes"] + 2 + sum(len(around[i]) for i in ends) == asked
        obs, _, _, _, info = env.step(k % 2)
    assert pairs == set(system.edges)


def test_source_and_target_are_shown():
    env = gym.make(OPEN, system=MOVING, observe=["queue_probed", "speed", "server", "limit"],
                   info=["state", "kind"], place="jsq", horizon_time=1e6).unwrapped  # fmt: skip
    obs, info = env.reset(seed=2)
    for k in range(2000):
        table, w = env.table(obs), env._state.world[0]
        ends = [w["source"], w["target"]]
        assert info["kind"] == 1
        assert np.array_equal(table["server"], ends)
        assert np.array_equal(whole(table["queue_probed"]), info["state"][ends])
        assert np.array_equal(table["speed"], MOVING.speeds[ends])
        assert table["limit"] == pytest.approx(share(MOVING.limits[ends]))
        moved, before = int(w["migrations"]), info["state"]
        obs, _, _, _, info = env.step(k % 2)
        assert w["migrations"] == moved + k % 2
        assert before[ends[0]] > 0
    assert w["arrivals"] > 300


# --- what is paid ---------------------------------------------------------------------------------
def test_a_lost_job_costs_its_weight():
    env = gym.make(LOSS, loss_charge=2.0).unwrapped
    obs, _ = env.reset(seed=0)
    lost = [0, 0]
    for k in range(3000):
        table = env.table(obs)
        klass = int(table["class"])
        fits = whole(table["vacancy"])[k % 3] >= (1, 4)[klass]
        obs, reward, *_ = env.step(k % 3)
        assert reward == (0 if fits else -2.0 * (1, 4)[klass])
        lost[klass] += not fits
    assert min(lost) > 20


def test_weights_count_in_other_systems_too():
    system = System(Pool(2, limit=1), load=2.0, classes=[JobClass(2.0), JobClass(1.0, weight=3.0)])
    env = gym.make("lbgym/MultiRouter-v0", system=system, observe=["class"], loss_charge=5.0)
    obs, _ = env.reset(seed=0)
    seen = set()
    for _ in range(300):
        klass = int(obs[-1])
        obs, reward, *_ = env.step(0)
        seen.add((klass, reward))
    assert seen == {(0, -1.0), (1, -1.0), (0, -5.0), (1, -15.0)}


def test_a_closed_system_pays_for_time_and_moves():
    env = gym.make(CLOSED, info=["time", "counts"], move_cost=0.25, render_mode="ansi")
    agent = policies.agent("local-search", env)
    obs, info = env.reset(seed=0)
    begun, total, terminated = info["time"], 0.0, False
    while not terminated:
        obs, reward, terminated, truncated, info = env.step(agent.predict(obs)[0])
        assert not truncated
        total += reward
    assert total == pytest.approx(begun - info["time"] - 0.25 * info["counts"]["migrations"])
    assert env.step(0)[2]  # it stays ended
    assert "nothing to decide" in env.render()
    assert set(env.unwrapped._state.arrays["servers"]["length"]) == {4}


def test_holding_sums_over_the_placements_between():
    env = gym.make(OPEN, move_cost=0.5, horizon_time=1e6).unwrapped
    env.reset(seed=0)
    w = env._state.world[0]

    def totals():
        return np.array([w["present"] * w["clock"] + w["moment"], w["migrations"]])

    before = totals()
    total = sum(env.step(k % 2)[1] for k in range(2000))
    area, moved = totals() - before
    assert total == pytest.approx(-area - 0.5 * moved)


def test_truncation_by_time_is_at_the_first_decision_after_it():
    for env_id, end in ((OPEN, 200.0), (CLOSED, 1000.0)):
        env = gym.make(env_id, info=["time"])
        env.reset(seed=1)
        truncated, last = False, 0.0
        while not truncated:
            assert last < end
            _, _, terminated, truncated, info = env.step(0)
            assert not terminated
            last = info["time"]
        assert last >= end
    env = gym.make(OPEN, horizon_arrivals=50, info=["counts", "time"])
    env.reset(seed=1)
    while not env.step(0)[3]:
        pass
    assert env.unwrapped._state.world[0]["arrivals"] >= 50
    assert env.unwrapped._state.world[0]["clock"] < 30


def test_overload_while_placing_truncates_and_says_why():
    system = System(Pool(3), load=3.0, migration_rate=0.01)
    env = gym.make(OPEN, system=system, max_jobs=200, horizon_time=1e6)
    env.reset(seed=0)
    truncated = False
    while not truncated:
        obs, _, _, truncated, info = env.step(0)
    assert "max_jobs" in info["overload"]
    assert obs in env.observation_space


# --- agents ---------------------------------------------------------------------------------------
TWENTY = ",".join(str(20 - k) for k in range(20))
# environment, arguments, rule, whether the environment asks servers that the rule does not
DISPATCHING = [
    (STALE, {}, f"rank({TWENTY})", False),
    (STALE, {}, f"rank({TWENTY}, order=jsed)", False),
    (STALE, {}, "jsq", False),
    (STALE, {}, "jsed(ties=lowest)", False),
    (STALE, {}, "index(1/2)", False),
    (STALE, {}, "fpi", False),
    (STALE, {}, "sed(own-sends=1)", False),
    (STALE, {"system": READ}, "sed(own-sends=1)", False),
    (STALE, {"observe": ["read", "sent_since_read", "speed", "candidate(2)"]}, "sed(2)", False),
    (STALE, {"system": PAIR, "observe": ["queue", "speed"]}, "rank(2, 1)", False),
    (LOSS, {}, "max-vacancy", False),
    (LOSS, {}, "best-fit", False),
    (LOSS, {"system": ERLANG}, "best-fit", False),
    (LOSS, {"observe": ["vacancy", "candidate(2)"]}, "max-vacancy(2)", True),
    (LOSS, {"action": "candidate(2)", "observe": ["vacancy", "server"]}, "max-vacancy(2)", False),
    (LOSS, {"action": "candidate(2)", "system": ERLANG}, "max-vacancy(2)", False),
    (CHOICE, {"observe": ["queue_probed"]}, "local-choice", False),
    (CHOICE, {}, "local-choice", True),
    (CHOICE, {"system": UNEQUAL, "observe": ["queue_probed", "server"]}, "local-choice", False),
    (CHOICE, {"system": UNEQUAL, "observe": ["queue_probed", "server", "speed"]}, "sed", False),
    (CHOICE, {"observe": ["queue_probed", "server"]}, "jsq(ties=lowest)", False),
]


@pytest.mark.parametrize(("env_id", "arguments", "name", "more"), DISPATCHING)
def test_an_agent_goes_the_way_of_the_engine(env_id, arguments, name, more):
    env = gym.make(env_id, horizon_arrivals=2000, **arguments)
    acted = act(policies.agent(name, env), env, 2000, seed=7)
    ran = engine_run(make(name, env.unwrapped.system), 7, 2000)
    assert set(differing(acted, ran)) <= ({"probes"} if more else set())
    assert acted.world[0]["arrivals"] == 2000


def moves_run(policy, seed, horizon):
    """The engine alone, at rest at the first resampling after the horizon."""
    state = policy.state()
    state.seed(np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))))
    state.begin("empty")
    place, move = policy.rules()
    w = state.world[0]
    while True:
        while next_decision(state.address) == GROW:
            state.grow()
        if w["kind"] == RESAMPLE and w["clock"] >= horizon:
            return state
        w["action"] = ask(state.address, place if w["kind"] == ARRIVAL else move)
        while carry_out(state.address, w["action"]) == GROW:
            state.grow()


@pytest.mark.parametrize("rule", ["strict", "weak", "oblivious"])
@pytest.mark.parametrize(
    ("system", "place"),
    [
        ("local-search", "random"),
        ("local-search", "static(1,2,3,4,5,6,7,8,9,10)"),
        (TWO, "random"),
        ("flagship-migrating", "pull(fallback=wrr, choice=fastest)"),
        (MOVING, "jsq"),
        (MOVING, "jsq(2)"),
    ],
)
def test_an_agent_of_moves_goes_the_way_of_the_engine(system, place, rule):
    observe = ["speed", "server"] if rule == "oblivious" else ["queue_probed", "speed"]
    env = gym.make(OPEN, system=system, place=place, observe=observe, horizon_time=30.0)
    name = f"local-search(rule={rule}, place={place})"
    acted = act(policies.agent(name, env), env, 0, seed=5)
    ran = moves_run(make(name, system), 5, 30.0)
    assert differing(acted, ran) == []
    assert acted.world[0]["migrations"] > 0


@pytest.mark.parametrize("system", ["local-search-closed", THREE_CLOSED, UNEQUAL_CLOSED])
def test_an_agent_balances_as_simulate_does(system):
    simulated = simulate(system, "local-search", jobs=100, seed=9)
    env = gym.make(CLOSED, system=system, info=["time", "counts"])
    agent = policies.agent("local-search", env)
    obs, info = env.reset(seed=9)
    terminated = False
    while not terminated:
        obs, _, terminated, _, info = env.step(agent.predict(obs)[0])
    assert info["time"] == simulated.batches["balancing_time"][0]
    assert info["counts"]["migrations"] == simulated.batches["migrations"][0]


@pytest.mark.parametrize(
    ("env_id", "name"),
    [(STALE, "sed(own-sends=1)"), (LOSS, "best-fit"), (CHOICE, "local-choice")],
)
def test_simulating_an_agent_is_simulating_its_rule(env_id, name):
    observe = ["queue_probed"] if env_id == CHOICE else None  # neighbours are asked for, too
    env = gym.make(env_id, observe=observe)
    system = env.unwrapped.system
    acted = simulate(system, policies.agent(name, env), jobs=2000, seed=3)
    ran = simulate(system, name, jobs=2000, seed=3)
    assert acted.cost == ran.cost
    assert acted.counts == ran.counts


def test_an_agent_of_moves_can_be_simulated():
    env = gym.make(OPEN, system=TWO, place="jsq")
    agent = policies.agent("local-search(place=jsq)", env)
    assert agent.environment["place"] == "jsq"
    acted = simulate(TWO, agent, jobs=2000, seed=3)
    ran = simulate(TWO, "local-search(place=jsq)", jobs=2000, seed=3)
    assert acted.cost == pytest.approx(ran.cost, rel=0.05)  # it rests at resamplings only


@pytest.mark.parametrize("hands_back", [True, False])
@pytest.mark.parametrize(
    "name", ["jsq", "jsed", "sed", "rank(0.9, 0.1)", "jsq(1)", "sed(own-sends=1)"]
)
def test_ties_are_drawn_once_per_read(name, hands_back):
    """Job for job what `simulate` does, whether the memory is handed back or not."""
    read = System(Pool(2), load=0.4, read_interval=20.0)
    observe = ["read", "sent_since_read", "speed", "candidate(1)"]
    env = gym.make(STALE, system=read, observe=observe, horizon_arrivals=3000, info=["counts"])
    agent = policies.agent(name, env)
    obs, _ = env.reset(seed=6)
    memory, truncated = None, False
    while not truncated:
        action, given = agent.predict(obs, memory)
        memory = given if hands_back else None
        obs, _, _, truncated, info = env.step(action)
    acted, ran = env.unwrapped._state.world[0], simulate(read, name, jobs=3000, seed=6)
    assert info["counts"]["waited"] == ran.counts["waited"]
    assert info["counts"]["departed"] == ran.counts["departed"]
    assert acted["arrivals"] == 3000


def test_a_batch_of_readers_is_answered_row_by_row():
    env = gym.make(STALE)
    agent = policies.agent("jsed(ties=lowest)", env)
    envs = [gym.make(STALE) for _ in range(4)]
    obs = np.stack([e.reset(seed=k)[0] for k, e in enumerate(envs)])
    memory, memories = None, [None] * 4
    for _ in range(100):
        actions, memory = agent.predict(obs, memory)
        for k in range(4):
            action, memories[k] = agent.predict(obs[k], memories[k])
            assert action == actions[k]
        obs = np.stack([e.step(a)[0] for e, a in zip(envs, actions, strict=True)])


@pytest.mark.parametrize(
    ("env_id", "arguments", "name", "message"),
    [
        (LOSS, {}, "trunk-reservation(0, 2)", "turns jobs away"),
        (LOSS, {"observe": ["vacancy"]}, "best-fit", "must also show class"),
        (LOSS, {"observe": ["class"]}, "max-vacancy", "must also show vacancy"),
        (LOSS, {"action": "candidate(2)"}, "best-fit", "use action='server'"),
        (LOSS, {"action": "candidate(2)"}, "max-vacancy(2)", "must also show server"),
        (STALE, {"observe": ["read", "speed"]}, "jsq", "must also show sent_since_read"),
        (STALE, {"system": READ}, "jsed", "needs a system with one router"),
        (STALE, {"action": "candidate(2)"}, "jsq", "use action='server'"),
        (CHOICE, {"system": UNEQUAL}, "local-choice", "must also show server"),
        (CHOICE, {}, "jsq(ties=lowest)", "must also show server"),
        (CHOICE, {"observe": ["neighbours"]}, "local-choice", "must also show queue_probed"),
        (OPEN, {"observe": ["speed"]}, "local-search", "must also show queue_probed"),
        (OPEN, {"observe": ["queue_probed"]}, "local-search", "must also show speed"),
        (OPEN, {"place": "jsq"}, "local-search", "places new jobs otherwise"),
        (OPEN, {}, "jsq", "places new jobs otherwise"),
    ],
)
def test_what_an_environment_lacks_is_named(env_id, arguments, name, message):
    env = gym.make(env_id, **arguments)
    with pytest.raises(ValueError, match=message):
        policies.agent(name, env)


def test_nonsense_in_an_observation_is_survived():
    rng = np.random.default_rng(0)
    for env_id, name in (
        (STALE, "sed(own-sends=1)"), (STALE, "jsq"), (LOSS, "best-fit"), (CHOICE, "local-choice"),
        (OPEN, "local-search"), (CLOSED, "local-search"),
    ):  # fmt: skip
        env = gym.make(env_id)
        agent = policies.agent(name, env)
        for _ in range(100):
            obs = rng.normal(0, 30, env.observation_space.shape).astype(np.float32)
            obs[rng.random(len(obs)) < 0.1] = np.nan
            assert 0 <= agent.predict(obs)[0] < env.action_space.n


# --- wrong arguments ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observe": ["read"]}, "'read' needs a system with a read_interval"),
        ({"observe": ["read_age"]}, "needs a system with a read_interval"),
        ({"observe": ["neighbours"]}, "needs a system with a graph"),
        ({"action": "move"}, "migration_rate above 0"),
        ({"action": "move", "system": System(Pool(1), load=0.5, migration_rate=1)}, "2 servers"),
        ({"action": "move", "system": MOVING, "observe": ["queue"]}, "got 'queue'"),
        ({"action": "moove", "system": MOVING}, "did you mean 'move'"),
        ({"action": "server", "system": "ring-10"}, r"use 'candidate\(2\)'"),
        ({"action": "candidate(3)", "system": "ring-10"}, r"use 'candidate\(2\)'"),
        ({"action": "pool", "system": MOVING}, "use 'server' or 'move'"),
        ({"place": "jsq"}, "the agent's decisions"),
        ({"place": "jsq", "system": "local-search-closed"}, "no jobs arrive"),
        ({"place": "jqs", "action": "move", "system": MOVING}, "did you mean 'jsq'"),
        ({"place": 3, "action": "move", "system": MOVING}, "place: must be a policy's name"),
        ({"place": "local-search", "action": "move", "system": MOVING}, "policy for new jobs"),
        ({"system": "two-class-loss", "reward": "holding"}, "use 'loss'"),
        ({"system": "flagship", "reward": "time"}, "'time' is for closed systems"),
        ({"system": "local-search-closed", "start": [4] * 10}, "balanced already"),
        ({"system": "local-search-closed", "start": [4] * 9 + [3]}, "must hold the 40 jobs"),
        ({"system": System(Pool(2, limit=3), closed_jobs=6, migration_rate=1)}, "every place"),
        ({"lossless": True, "system": "two-class-loss", "observe": ["class"]}, "'vacancy'"),
    ],
)
def test_wrong_arguments_are_one_clear_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        DispatchEnv(**{"observe": ["speed"] if "system" not in arguments else None, **arguments})


def test_lossless_masks_servers_without_room_for_the_class():
    env = gym.make(LOSS, lossless=True, info=["action_mask"]).unwrapped
    masked = 0
    for obs, *_ in play(env, 2000):
        table = env.table(obs)
        fits = whole(table["vacancy"]) >= (1, 4)[int(table["class"])]
        if fits.any() and env._state.world[0]["arrivals"] < 2000:
            assert np.array_equal(env.action_masks(), fits)
            masked += not fits.all()
    assert masked > 100


# --- exact numbers --------------------------------------------------------------------------------
def z_score(values, times, expected):
    """Of the ratio of sums over batches."""
    values, times = np.asarray(values), np.asarray(times)
    ratio = values.sum() / times.sum()
    spread = values - ratio * times
    return (ratio - expected) / (np.sqrt(np.sum(spread**2)) / times.sum())


def batches(env, agent, seed, count, steps, per_time):
    """Cost and time (or steps) of batches of an agent's steps, after one to warm up."""
    obs, _ = env.reset(seed=seed)
    costs, times = np.zeros(count + 1), np.zeros(count + 1)
    for k in range(count + 1):
        for _ in range(steps):
            obs, reward, _, _, info = env.step(agent.predict(obs)[0])
            costs[k] -= reward
            times[k] += info["dt"] if per_time else 1
    return costs[1:], times[1:]


def test_balancing_takes_the_exact_mean_time():
    """n = 3, m = 6, all in one: 81/40 (oracles, rls_closed), by the environment and its agent."""
    env = gym.make(CLOSED, system=THREE_CLOSED, info=["time"]).unwrapped
    agent = policies.agent("local-search", env)
    times = np.zeros(3000)
    env.reset(seed=11)
    for k in range(len(times)):
        obs, _ = env.reset()
        terminated = False
        while not terminated:
            obs, _, terminated, _, info = env.step(agent.predict(obs)[0])
        times[k] = info["time"]
    z = (times.mean() - 2.025) / (1.16966875653 / np.sqrt(len(times)))
    assert abs(z) < 3.5
    assert times.std() == pytest.approx(1.16966875653, rel=0.1)


def test_best_fit_loses_the_exact_weight():
    """Two-class loss (MODELS section 11): weight lost per job that arrives."""
    env = gym.make(LOSS, info=["dt"], horizon_arrivals=-1)
    costs = batches(env, policies.agent("best-fit", env), 12, 60, 2000, per_time=False)
    assert abs(z_score(*costs, 0.2273)) < 3.5


def test_local_search_holds_the_exact_number():
    """n = 2, lambda .8 each, beta 1, strict: E[N] 4.93462597763 (oracles, rls_open)."""
    env = gym.make(OPEN, system=TWO, info=["dt"], horizon_time=1e9)
    costs = batches(env, policies.agent("local-search", env), 13, 40, 5000, per_time=True)
    assert abs(z_score(*costs, 4.93462597763)) < 3.5


def test_the_ring_holds_the_exact_number():
    """N = 4, rho .5: mean queue .668918322278 (oracles, local_choice)."""
    system = System(Pool(4), load=0.5, graph="ring")
    env = gym.make(CHOICE, system=system, reward="holding", info=["dt"], horizon_arrivals=-1)
    costs = batches(env, policies.agent("local-choice", env), 14, 40, 3000, per_time=True)
    assert abs(z_score(*costs, 4 * 0.668918322278)) < 3.5


def test_reads_cost_what_theory_says():
    """Two servers (1, 2), load .7, T = 5, JSED: E[N] 6.3025380620875495 (oracles, stale)."""
    read = System(PAIR.pools, load=0.7, read_interval=5.0)
    env = gym.make(STALE, system=read, reward="holding", info=["dt"], horizon_arrivals=-1)
    agent = policies.agent("jsed", env)
    obs, _ = env.reset(seed=15)
    costs, times, memory = np.zeros(41), np.zeros(41), None
    for k in range(41):
        for _ in range(4000):
            action, memory = agent.predict(obs, memory)
            obs, reward, _, _, info = env.step(action)
            costs[k] -= reward
            times[k] += info["dt"]
    assert abs(z_score(costs[1:], times[1:], 6.3025380620875495)) < 3.5


# --- the defaults ---------------------------------------------------------------------------------
def test_the_default_systems_are_those_of_the_contract():
    stale = scenarios.get("stale-20")
    assert stale.speeds == pytest.approx([1 + 2 * i / 19 for i in range(20)])
    assert (stale.read_interval, stale.load) == (5.0, 0.9)
    loss = scenarios.get("two-class-loss")
    assert [p.units for p in loss.pools] == [4, 6, 8]
    rates = [share * loss.arrival_rate for share in loss.class_shares]
    assert rates == pytest.approx([6, 1.5])
    assert [(c.units, c.weight, c.mean_size) for c in loss.classes] == [(1, 1, 1), (4, 4, 1)]
    ring = scenarios.get("ring-10")
    assert (ring.servers, ring.load, len(ring.edges)) == (10, pytest.approx(0.7), 10)
    closed = scenarios.get("local-search-closed")
    assert (closed.servers, closed.closed_jobs, closed.migration_rate) == (10, 40, 1.0)
    assert gym.make(CLOSED, info=["state"]).reset(seed=0)[1]["state"].tolist() == [40] + [0] * 9
    assert gym.make(OPEN).unwrapped.place == "random"
    assert LocalSearchOpenEnv().system.name == "local-search"
