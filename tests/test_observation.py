"""What the observation shows is what is there: every column against the engine's own arrays."""

import gymnasium as gym
import numpy as np
import pytest

from lbgym import Pool, System
from lbgym.engine.layout import ARRIVAL
from lbgym.envs import DispatchEnv
from lbgym.envs.observation import CLASS_COLUMNS, COLUMNS, READ_ONLY, share, whole

ID = "lbgym/MultiRouter-v0"
SYSTEM = System([Pool(4, 1.0, limit=5), Pool(3, 2.0)], routers=3, load=0.8)
ELSEWHERE = (
    "source",
    "target",
    "kind",
    "candidate",
    *READ_ONLY,
    "neighbours",
    *CLASS_COLUMNS,
)  # tests of their own
EVERY = [name for name in COLUMNS if name not in ELSEWHERE]


def messages(state):
    """Router -> its messages' servers in order, read from the lists."""
    pools = len(state.arrays["pools"])
    held = []
    for r in range(len(state.arrays["routers"])):
        servers = []
        for row in state.arrays["lists"][r * pools : (r + 1) * pools]:
            there = state.arrays["held"]["server"][row["begin"] : row["begin"] + row["count"]]
            servers += there.tolist()
        held.append(servers)
    return held


def times_of_messages(state, r):
    """When each server's message came that router r holds; 0 without."""
    pools, times = len(state.arrays["pools"]), np.zeros(state.system.servers)
    for row in state.arrays["lists"][r * pools : (r + 1) * pools]:
        for message in state.arrays["held"][row["begin"] : row["begin"] + row["count"]]:
            times[message["server"]] = message["time"]
    return times


class Witness:
    """Follows an environment from outside: when messages came, what each router sent where."""

    def __init__(self, env):
        n, routers = env.system.servers, env.system.router_count
        self.env = env
        self.held = [set() for _ in range(routers)]
        self.since = np.zeros((routers, n))
        self.sent = np.zeros((routers, n), int)
        self.sent_at = np.full((routers, n), -np.inf)
        self.backlog = np.zeros((routers, n))

    def left(self, router, time):
        """What is left of the backlogs."""
        worked = self.env.system.speeds * (time - self.sent_at[router])
        return np.maximum(self.backlog[router] - worked, 0)

    def placed(self, router, server, time):
        jobs = self.left(router, time)[server] + 1
        self.backlog[router, server] = min(jobs, self.env.system.limits[server])
        self.sent_at[router, server] = time
        if server in self.held[router]:
            self.held[router].remove(server)
            self.sent[router, server] = 0
        else:
            self.sent[router, server] += 1

    def look(self):
        """After a step: messages that are new have come (sent counts then start again)."""
        now = messages(self.env._state)
        for r, servers in enumerate(now):
            for i in set(servers) - self.held[r]:
                self.sent[r, i] = self.backlog[r, i] = 0
            self.held[r] = set(servers)


def work_in_servers(state):
    """Work left in servers of one slot, job by job; shape (n,)."""
    found = np.zeros(state.system.servers)
    jobs, ends = (state.arrays[name] for name in ("jobs", "finishes"))
    for i, server in enumerate(state.arrays["servers"]):
        j = server["head"]
        if j >= 0:
            served = ends[len(found) + i]["time"] - state.world[0]["clock"]
            found[i] = served * state.system.speeds[i]
            assert 0 <= found[i] <= jobs[j]["brought"]
            while (j := jobs[j]["next"]) >= 0:
                found[i] += jobs[j]["brought"]
    return found


@pytest.mark.parametrize("fate", ["withdraw", "keep", "resend"])
def test_every_column_is_what_the_engine_holds(fate):
    system = System(SYSTEM.pools, routers=3, load=0.8, message_fate=fate, size="uniform")
    env = gym.make(
        ID, system=system, observe=[*EVERY, "candidate(3)"], horizon_arrivals=-1
    ).unwrapped
    obs, _ = env.reset(seed=1)
    state, witness = env._state, Witness(env)
    rng = np.random.default_rng(0)
    witness.look()
    for step in range(1500):
        w = state.world[0]
        r, n = int(w["router"]), system.servers
        table = env.table(obs)
        held = messages(state)[r]
        order = np.zeros(n)
        order[held] = 1 + np.arange(len(held))
        sampled = state.arrays["candidates"]["server"]
        candidate = np.zeros(n)
        candidate[sampled] = 1 + np.arange(3)
        lengths = state.arrays["servers"]["length"]
        assert np.array_equal(table["message"], order > 0)
        assert np.array_equal(table["message_order"], order)
        assert np.array_equal(table["candidate"], candidate)
        assert np.array_equal(whole(table["queue"]), lengths)
        assert np.array_equal(whole(table["queue_probed"]), np.where(candidate > 0, lengths, 0))
        assert np.array_equal(table["queue_order"], state.arrays["standings"]["position"])
        assert np.array_equal(table["speed"], system.speeds)
        assert table["limit"] == pytest.approx([5 / 6] * 4 + [1] * 3)
        assert np.array_equal(table["capacity"], table["limit"])
        assert np.array_equal(table["vacancy"], share(system.limits - lengths))
        assert np.array_equal(table["server"], np.arange(n))
        assert table["router"] == r
        assert table["class"] == 0
        assert table["size"] == pytest.approx(share(w["job_size"]))
        assert table["work"] == pytest.approx(share(work_in_servers(state)), abs=1e-5)
        if fate == "withdraw":  # the witness cannot tell a message that was used and sent again
            ages = np.where(order > 0, w["clock"] - times_of_messages(state, r), 0)
            assert np.allclose(table["message_age"], share(ages), atol=1e-6)
            assert np.array_equal(whole(table["sent"]), witness.sent[r]), step
            ages = w["clock"] - witness.sent_at[r]
            assert np.allclose(table["sent_age"], share(ages), atol=1e-6)
            left = witness.left(r, w["clock"])
            assert np.allclose(table["backlog"], share(left), atol=1e-6), step
        action = int(rng.integers(n)) if rng.random() < 0.5 or not held else held[0]
        witness.placed(r, action, float(w["clock"]))
        obs, *_ = env.step(action)
        witness.look()


def test_each_router_remembers_its_own_probes():
    names = ["last_probe", "sent_since_probe", "probe_age"]
    env = gym.make(ID, system=SYSTEM, observe=[*names, "candidate(2)"], horizon_arrivals=-1)
    env = env.unwrapped
    obs, _ = env.reset(seed=1)
    n, rng = SYSTEM.servers, np.random.default_rng(0)
    found, sent = np.zeros((3, n)), np.zeros((3, n))
    times = np.full((3, n), -np.inf)
    for step in range(1_500):
        w, table = env._state.world[0], env.table(obs)
        r, sampled = int(w["router"]), env._state.arrays["candidates"]["server"]
        found[r, sampled] = env._state.arrays["servers"]["length"][sampled]
        sent[r, sampled], times[r, sampled] = 0, w["clock"]
        assert np.array_equal(whole(table["last_probe"]), found[r]), step
        assert np.array_equal(whole(table["sent_since_probe"]), sent[r]), step
        assert np.allclose(table["probe_age"], share(w["clock"] - times[r]), atol=1e-6)
        assert w["probes"] == 2 * step  # of this job they count once it is sent
        action = int(rng.integers(n))
        sent[r, action] += 1
        obs, *_ = env.step(action)
    assert np.isfinite(times).all()
    assert sent.max() > 0
    table = env.table(env.reset()[0])  # a new episode: nobody remembers anything
    assert not table["last_probe"].any()
    assert (table["probe_age"] < 1).sum() == 2


def test_a_backlog_is_worked_off_by_all_slots_and_no_longer_than_the_limit():
    system = System([Pool(1, 1.0, slots=2), Pool(1, 3.0, limit=4)], load=0.9)
    env = gym.make(ID, system=system, observe=["backlog"], horizon_arrivals=-1).unwrapped
    obs, _ = env.reset(seed=1)
    rng = np.random.default_rng(0)
    jobs, time, highest = np.zeros(2), 0.0, np.zeros(2)
    for _ in range(1_500):
        clock = float(env._state.world[0]["clock"])
        jobs = np.maximum(jobs - np.array([2.0, 3.0]) * (clock - time), 0)
        jobs[env._state.arrays["servers"]["holder"] >= 0] = 0  # its message has come
        assert np.allclose(obs, share(jobs), atol=1e-6)
        action = int(rng.integers(2))
        jobs[action] = min(jobs[action] + 1, (np.inf, 4)[action])
        time, highest = clock, np.maximum(highest, jobs)
        obs, *_ = env.step(action)
    assert highest[0] > highest[1] == 4
    assert not env.reset()[0].any()


def test_router_columns_are_zero_at_a_resampling():
    system = System(SYSTEM.pools, routers=3, load=0.8, migration_rate=1.0)
    observe = ["message", "message_age", "sent", "sent_age", "backlog", "source", "target",
               "queue_probed", "last_probe", "probe_age", "kind", "router", "queue",
               "candidate(2)"]  # fmt: skip
    env = gym.make(ID, system=system, observe=observe, horizon_arrivals=-1).unwrapped
    obs, _ = env.reset(seed=1)
    kinds = []
    for k in range(2000):
        table, w = env.table(obs), env._state.world[0]
        kinds.append(table["kind"])
        lengths = env._state.arrays["servers"]["length"]
        assert np.array_equal(whole(table["queue"]), lengths)
        marks = table["source"] + table["target"]
        if table["kind"]:
            assert table["router"] == -1
            for name in observe[:5] + ["last_probe", "probe_age"]:
                assert not table[name].any()
            assert np.flatnonzero(table["source"]) == [w["source"]]
            assert np.flatnonzero(table["target"]) == [w["target"]]
            assert np.array_equal(whole(table["queue_probed"]), np.where(marks > 0, lengths, 0))
        else:
            assert w["kind"] == ARRIVAL
            assert not marks.any()
            asked = env._state.arrays["candidates"]["server"]
            assert set(np.flatnonzero(table["queue_probed"])) <= set(asked)
        obs, *_ = env.step(k % system.servers)
    assert set(kinds) == {0.0, 1.0}


def test_rows_of_candidates():
    names = ["queue", "queue_probed", "message", "message_order", "message_age", "sent", "sent_age",
             "speed", "limit", "queue_order", "candidate", "server", "last_probe",
             "sent_since_probe", "probe_age", "backlog"]  # fmt: skip
    observe = [name.replace("candidate", "candidate(3)") for name in names]
    few = gym.make(ID, system=SYSTEM, observe=observe, action="candidate(3)").unwrapped
    all_ = gym.make(ID, system=SYSTEM, observe=observe).unwrapped
    obs, _ = few.reset(seed=3)
    other, _ = all_.reset(seed=3)
    for k in range(500):
        table, full = few.table(obs), all_.table(other)
        servers = table["server"].astype(int)
        for name in names:
            assert np.array_equal(table[name], full[name][servers]), name
        obs, *_ = few.step(k % 3)
        other, *_ = all_.step(int(servers[k % 3]))


def test_pools_show_averages_and_send_where_a_message_is():
    observe = ["message", "queue", "speed"]
    env = gym.make(ID, system=SYSTEM, action="pool", observe=observe, info=["state"]).unwrapped
    assert env.action_space.n == 2
    obs, info = env.reset(seed=3)
    with_message = 0
    for k in range(500):
        table, w = env.table(obs), env._state.world[0]
        shown = share(info["state"]).astype(float)
        assert table["queue"] == pytest.approx([shown[:4].mean(), shown[4:].mean()], rel=1e-6)
        assert table["speed"] == pytest.approx([1, 2])
        held = messages(env._state)[w["router"]]
        mine = [i for i in held if (i >= 4) == k % 2]
        assert table["message"] == pytest.approx(
            [sum(i < 4 for i in held) / 4, sum(i >= 4 for i in held) / 3], rel=1e-6
        )
        used = int(w["used"])
        obs, _, _, _, info = env.step(k % 2)
        if mine:
            with_message += 1
            assert w["used"] == used + 1
    assert with_message > 50


def test_questions_behind_the_observation_are_counted():
    def probes(observe, system=SYSTEM, **arguments):
        env = gym.make(ID, system=system, observe=observe, **arguments).unwrapped
        env.reset(seed=0)
        for k in range(100):
            env.step(k % int(env.action_space.n))
        w = env._state.world[0]
        return (
            int(w["probes"]),
            int(w["arrivals"]),
            int(w["resamplings"]),
            int(w["kind"] != ARRIVAL),
        )

    assert probes(["speed"])[0] == 0
    assert probes(["queue"])[0] == 700
    assert probes(["candidate(3)", "queue_probed"])[0] == 300
    assert probes(["queue_probed"], action="candidate(2)")[0] == 200
    moving = System(SYSTEM.pools, load=0.8, migration_rate=1.0)
    count, arrivals, resamplings, pending = probes(["queue_probed", "candidate(2)"], moving)
    assert count == 2 * arrivals + resamplings - pending


def test_messages_exist_only_if_something_needs_them():
    for observe, action, there in (
        (["speed"], "server", False),
        (["sent"], "server", False),
        (["message"], "server", True),
        (["speed"], "pool", True),
    ):
        env = DispatchEnv(SYSTEM, observe=observe, action=action)
        env.reset(seed=0)
        assert bool(env._state.world[0]["sent"]) == there


def test_whole_numbers_come_back_exactly():
    numbers = np.arange(2001)
    assert np.array_equal(whole(share(numbers)), numbers)
    assert share(np.inf) == 1
    assert whole(1.0) == 2**24
    assert np.all(np.diff(share(numbers)) > 0)


def test_long_queues_are_shown_exactly():
    start = [0, 1, 2, 100, 1000, 1999, 2000]
    system = System([Pool(7)], load=0.1)
    env = gym.make(ID, system=system, observe=["queue"], start=start, info=["state"]).unwrapped
    obs, info = env.reset(seed=0)
    assert np.array_equal(whole(obs), info["state"])


def test_table_names_what_is_in_a_batch_too():
    env = DispatchEnv(SYSTEM, observe=["speed", "queue", "router"])
    obs = np.stack([env.reset(seed=k)[0] for k in range(4)])
    table = env.table(obs)
    assert table["speed"].shape == (4, 7)
    assert table["router"].shape == (4,)
    assert env.columns == ("speed", "queue")
    assert env.context == ("router",)
    with pytest.raises(ValueError, match="must have 15 values"):
        env.table(obs[:, :-1])


def test_jobs_by_class():
    env = gym.make("lbgym/Loss-v0", observe=["class_jobs_1", "vacancy", "class_jobs_0", "class"])
    obs, _ = env.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(400):
        table = env.unwrapped.table(obs)
        narrow, wide = (whole(table[f"class_jobs_{k}"]) for k in (0, 1))
        assert np.array_equal(narrow + 4 * wide, [4, 6, 8] - whole(table["vacancy"]))
        lengths = env.unwrapped._state.arrays["servers"]["length"]
        assert np.array_equal(narrow + wide, lengths)
        obs, *_ = env.step(rng.integers(3))
    assert wide.max() > 0
    for name, system in (("class_jobs_2", "two-class-loss"), ("class_jobs_0", "flagship")):
        with pytest.raises(ValueError, match="needs a system with units and a class"):
            gym.make("lbgym/Loss-v0", system=system, observe=[name])


def test_the_documentation_lists_every_column():
    for name, column in COLUMNS.items():
        assert f"- `{name}`: {column.meaning}" in DispatchEnv.__doc__
