"""One definition of a rule: an agent in the environment goes the way of the engine, bit for bit."""

import gymnasium as gym
import numpy as np
import pytest

from lbgym import Pool, System, policies
from lbgym.engine import State, layout
from lbgym.policies import custom, make
from tests.test_env import engine_run

ID = "lbgym/MultiRouter-v0"
PAIR = System([Pool(1), Pool(1, speed=10.0)], load=0.7)
REPLACING = System([Pool(2), Pool(2, speed=2.0)], load=0.8, replace=True)
LOOKING = ["kind", "source", "target", "queue_probed", "speed"]

# policy, system, columns: every rule with exactly what it needs to see
CASES = [
    ("random", "flagship", ["limit"]),
    ("weighted-random", "flagship", ["speed"]),
    (f"static({','.join(map(str, range(1, 21)))})", "flagship", ["limit"]),
    ("round-robin", "flagship", ["router"]),
    ("wrr", "flagship", ["speed", "router"]),
    ("pull", "flagship", ["message_order"]),
    ("pull", "split-80-20", ["message_order"]),
    ("pull(fallback=weighted-random)", "flagship", ["message_order", "speed"]),
    ("pull(choice=fastest)", "flagship", ["message_order", "speed"]),
    ("pull(fallback=wrr, choice=fastest)", "flagship", ["message_order", "speed", "router"]),
    ("pull(fallback=static(1,2))", "pull-pair", ["message_order"]),
    ("pull(fallback=jsq(2))", "flagship", ["message_order", "candidate(2)", "queue_probed"]),
    ("jiq-sq(2)", "flagship", ["message_order"]),
    ("pull(fallback=belief)", "pull-pair", ["message_order", "sent_age", "speed"]),
    ("lsq(2)", "flagship", ["candidate(2)", "queue_probed", "router"]),
    ("lsq(2, ties=fastest)", REPLACING, ["candidate(2)", "queue_probed", "speed"]),
    (
        "sed(2, own-sends=1)",
        "flagship",
        ["candidate(2)", "last_probe", "sent_since_probe", "speed"],
    ),
    (
        "index(0.5, 1, own-sends=1)",
        REPLACING,
        ["candidate(1)", "last_probe", "sent_since_probe", "speed"],
    ),
    ("jsq(2, memory=1)", "flagship", ["candidate(2)", "queue", "router"]),
    ("fastest-idle", "flagship", ["queue", "speed", "queue_order"]),
    ("fastest-shortest", "flagship", ["queue", "speed", "queue_order"]),
    ("jsq", "flagship", ["queue", "queue_order"]),
    ("jsq(ties=fastest)", "flagship", ["queue", "queue_order"]),
    ("jsq(ties=lowest)", "flagship", ["queue"]),
    ("sed", "flagship", ["queue", "speed", "queue_order"]),
    ("jsed", "thousand", ["queue", "speed", "queue_order"]),
    ("jsq(2)", "flagship", ["candidate(2)", "queue_probed"]),
    ("jsq(2)", REPLACING, ["candidate(2)", "queue_probed"]),
    ("jsq(3, ties=fastest)", "flagship", ["candidate(3)", "queue_probed", "speed"]),
    ("sed(3)", "flagship", ["candidate(3)", "queue_probed", "speed"]),
    ("threshold(4)", PAIR, ["queue", "speed"]),
    ("index(1/2)", "triple", ["queue", "speed", "queue_order"]),
    ("fpi", "triple", ["queue", "speed", "queue_order"]),
    ("local-search", "flagship-migrating", LOOKING),
    ("local-search(rule=weak)", "flagship-migrating", LOOKING),
    ("local-search(rule=oblivious)", "flagship-migrating", ["kind", "source", "target"]),
    ("local-search", "local-search", LOOKING),
    ("local-search(place=pull)", "flagship-migrating", [*LOOKING, "message_order"]),
    ("local-search(place=jsq)", "flagship-migrating", [*LOOKING, "queue", "queue_order"]),
    ("local-search(place=jsq(2))", "flagship-migrating", [*LOOKING, "candidate(2)"]),
    ("jsq", "flagship-migrating", ["queue", "queue_order", "kind", "source", "target"]),
]
MOVING = layout.SCALARS[[name for name, *_ in layout.SCALARS].index("clock") :]
ROOM = {"jobs_room", "jobs_used", "jobs_free", "held_room", "held_used", "held_spare", "need_pool"}


def act(agent, env, arrivals, seed):
    """Let an agent act until so many jobs have arrived."""
    obs, _ = env.reset(seed=seed)
    memory, truncated = None, False
    while not truncated:
        action, memory = agent.predict(obs, memory)
        obs, _, _, truncated, _ = env.step(action)
    return env.unwrapped._state


def differing(one: State, other: State):
    """Names of what differs between two running systems."""
    w, v = one.world[0], other.world[0]
    names = [f for f, *_ in MOVING if f not in ROOM and w[f] != v[f]]
    for array, field in (("servers", "length"), ("histogram", "count"), ("streams", "d")):
        if not np.array_equal(one.arrays[array][field], other.arrays[array][field]):
            names.append(array)
    return names


@pytest.mark.parametrize(("name", "system", "observe"), CASES)
def test_an_agent_goes_the_way_of_the_engine(name, system, observe):
    arrivals = 500 if system == "thousand" else 2000
    routers = 2 if name == "jiq-sq(2)" else 1
    env = gym.make(
        ID, system=system, observe=observe, horizon_arrivals=arrivals, router_samples=routers
    )
    acted = act(policies.agent(name, env), env, arrivals, seed=7)
    ran = engine_run(make(name, system), 7, arrivals)
    allowed = set()
    if name in ("pull(fallback=jsq(2))", "jsq(2, memory=1)"):
        allowed = {"probes"}  # the environment asks more servers than the rule
    assert set(differing(acted, ran)) <= allowed
    assert acted.world[0]["arrivals"] == arrivals


@pytest.mark.parametrize(
    ("name", "system", "observe"),
    [
        ("pull", "flagship", ["message"]),
        ("pull(fallback=wrr, choice=fastest)", "flagship", ["message", "speed", "router"]),
        ("jsq", "flagship", ["queue"]),
        ("sed", "flagship", ["queue", "speed"]),
    ],
)
def test_without_the_order_columns_an_agent_agrees_in_law(name, system, observe):
    arrivals = 20_000
    env = gym.make(ID, system=system, observe=observe, horizon_arrivals=arrivals)
    acted = act(policies.agent(name, env), env, arrivals, seed=7).world[0]
    ran = engine_run(make(name, system), 7, arrivals).world[0]
    assert acted["clock"] == ran["clock"]  # the same arrivals
    area, expected = (w["present"] * w["clock"] + w["moment"] for w in (acted, ran))
    assert area == pytest.approx(expected, rel=0.06)
    assert acted["waited"] == pytest.approx(ran["waited"], rel=0.06)


@pytest.mark.parametrize("name", ["jsq(2)", "sed(2)", "jsq(2, ties=lowest)"])
def test_agents_of_candidates_return_the_candidate(name):
    observe = ["queue_probed", "server", "speed"]
    env = gym.make(ID, action="candidate(2)", observe=observe, horizon_arrivals=1000)
    acted = act(policies.agent(name, env), env, 1000, seed=2)
    assert differing(acted, engine_run(make(name, "flagship"), 2, 1000)) == []


def test_a_users_own_rule_is_an_agent_too():
    import numba

    from lbgym.policies import candidate, probe

    @numba.njit
    def second(w):
        probe(w, candidate(w, 0))
        return candidate(w, 1)

    policy = custom(second, samples=2)("flagship")
    env = gym.make(ID, observe=["candidate(2)", "queue_probed"], horizon_arrivals=500)
    acted = act(policy.agent(env), env, 500, seed=2)
    assert set(differing(acted, engine_run(policy, 2, 500))) <= {"probes"}


# --- what the agent may see -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("jsq", {}, r"jsq: the environment must also show queue; use observe=\[.*'queue'\]"),
        ("local-search", {"system": "flagship-migrating"},
         r"the environment must also show queue_probed; use observe=.*'queue_probed'"),
        ("pull", {"observe": ["speed"]}, "must also show message_order"),
        ("wrr", {}, "must also show router"),
        ("jsq(2)", {}, r"needs 2 sampled servers, .* samples 0; show 'candidate\(2\)'"),
        ("jsq(2)", {"observe": ["candidate(3)", "queue"]}, "samples 3"),
        ("jsq(2)", {"observe": ["candidate(2)"]}, "must also show queue_probed"),
        ("jsq", {"action": "pool"}, "actions are pools"),
        ("pull", {"action": "candidate"}, "use action='server'"),
        ("jsq(2)", {"action": "candidate", "observe": ["queue_probed"]}, "must also show server"),
        ("jiq-sq(2)", {"observe": ["message"]}, "router_samples=2"),
        ("lsq(2)", {"action": "candidate"}, "may choose any server"),
        ("pull(fallback=belief)", {"system": "pull-pair", "observe": ["message"]},
         "must also show sent_age, speed"),
        ("random", {"system": "flagship-migrating", "observe": ["speed"]}, "kind, source, target"),
    ],
)  # fmt: skip
def test_what_an_environment_lacks_is_named(name, arguments, message):
    env = gym.make(ID, **arguments)
    with pytest.raises(ValueError, match=message):
        policies.agent(name, env)


def test_the_suggested_columns_suffice():
    for name in ("jsq", "sed", "wrr", "pull(fallback=wrr)", "local-search(place=jsq)"):
        system = "flagship-migrating" if name.startswith("local") else "flagship"
        with pytest.raises(ValueError, match="observe=") as lacking:
            policies.agent(name, gym.make(ID, system=system))
        observe = eval(str(lacking.value).split("observe=")[1])
        env = gym.make(ID, system=system, observe=observe)
        agent = policies.agent(name, env)
        action, _ = agent.predict(env.reset(seed=1)[0])
        assert env.action_space.contains(action)


def test_an_agent_needs_its_own_system_and_an_environment():
    env = gym.make(ID, system="small", observe=["queue"])
    with pytest.raises(ValueError, match="was made for 20 servers"):
        make("jsq", "flagship").agent(env)
    with pytest.raises(ValueError, match="needs the environment"):
        make("jsq", "flagship").agent()
    with pytest.raises(ValueError, match="must be one of lbgym's"):
        make("jsq", "flagship").agent(gym.make("CartPole-v1"))


def test_an_agent_knows_only_what_it_is_shown():
    """The same observation, the same answer, whatever the environment's true state is."""
    env = gym.make(ID, observe=["queue"])
    agent = policies.agent("jsq(ties=lowest)", env)
    env.reset(seed=0)
    for k in range(100):
        env.step(k % 3)
    shown = np.full(20, 0.5, np.float32)
    shown[13] = 0.0
    assert agent.predict(shown)[0] == 13


def test_nonsense_in_an_observation_is_survived():
    rng = np.random.default_rng(0)
    observe = ["message_order", "candidate(2)", "queue_probed", "router"]
    env = gym.make(ID, observe=observe)
    agent = policies.agent("pull(fallback=jsq(2))", env)
    sorted_ = policies.agent("jsq", gym.make(ID, observe=["queue", "queue_order"]))
    for _ in range(200):
        obs = rng.normal(0, 30, 61).astype(np.float32)
        assert 0 <= agent.predict(obs)[0] < 20
        assert 0 <= sorted_.predict(rng.normal(0, 30, 40).astype(np.float32))[0] < 20
    with pytest.raises(ValueError, match=r"must have shape \(61,\)"):
        agent.predict(np.zeros(60, np.float32))


# --- several at once ------------------------------------------------------------------------------
def test_a_batch_is_answered_row_by_row():
    env = gym.make(ID, observe=["speed", "router"])
    agent = policies.agent("wrr", env)
    obs = np.stack([env.reset(seed=k)[0] for k in range(6)])
    memories = [None] * 6
    memory = None
    for step in range(30):
        start = np.arange(6) == step % 7
        actions, memory = agent.predict(obs, memory, start)
        for k in range(6):
            action, memories[k] = agent.predict(obs[k], memories[k], start[k])
            assert action == actions[k]
    assert memory.shape == (6, 2 * 4 * 2)


@pytest.mark.parametrize("name", ["wrr", "round-robin", "pull(fallback=wrr)", "jsq(2, memory=1)"])
def test_an_agent_remembers_by_itself_in_its_environment(name):
    observe = ["message_order", "candidate(2)", "queue", "speed", "router"]
    env = gym.make(ID, observe=observe, horizon_arrivals=-1)
    told, alone = policies.agent(name, env), policies.agent(name, env)
    for seed in (1, 2):  # a reset clears what it remembers
        taken = []
        for agent, hands_back in ((told, True), (alone, False)):
            obs, _ = env.reset(seed=seed)
            memory, actions = None, []
            for _ in range(150):
                action, given = agent.predict(obs, memory)
                memory = given if hands_back else None
                obs = env.step(action)[0]
                actions.append(int(action))
            taken.append(actions)
        assert taken[0] == taken[1]


def test_memory_is_returned_not_changed():
    env = gym.make(ID, observe=["speed", "router"])
    agent = policies.agent("wrr", env)
    obs, _ = env.reset(seed=0)
    _, memory = agent.predict(obs)
    kept = memory.copy()
    agent.predict(obs, memory)
    assert np.array_equal(memory, kept)
    with pytest.raises(ValueError, match="state: must be what predict returned"):
        agent.predict(obs, np.zeros(3))


def test_own_coins_are_seeded():
    env = gym.make(ID, observe=["speed"])
    obs = np.stack([env.reset(seed=0)[0]] * 50)
    agent, other = policies.agent("random", env), policies.agent("random", env)
    agent.seed(3)
    other.seed(3)
    first = agent.predict(obs)[0]
    assert np.array_equal(first, other.predict(obs)[0])
    assert not np.array_equal(first, agent.predict(obs)[0])


def test_sb3_evaluates_an_agent():
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    vectors = pytest.importorskip("stable_baselines3.common.vec_env")
    monitor = pytest.importorskip("stable_baselines3.common.monitor")

    def one():
        return monitor.Monitor(gym.make(ID, observe=["message", "speed", "router"]))

    def mean(name, env):
        return evaluation.evaluate_policy(policies.agent(name, env), env, n_eval_episodes=4)[0]

    env = one()
    assert mean("pull(fallback=wrr, choice=fastest)", env) > mean("weighted-random", env)
    several = vectors.DummyVecEnv([one] * 3)
    several.seed(0)
    pull, random = (mean(name, several) for name in ("pull", "random"))
    assert pull > random
