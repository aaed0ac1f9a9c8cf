"""`simulate`: one run is one trajectory, a result depends on the seed alone, mistakes are told."""

import math
import pickle

import gymnasium as gym
import numpy as np
import pytest

import lbgym
from lbgym import Pool, System, compare, simulate
from lbgym.simulate import paired_difference


def same(one, other):
    assert one.counts == other.counts
    for name, totals in one.batches.items():
        assert np.array_equal(totals, other.batches[name]), name
    assert np.array_equal(one.histograms, other.histograms)


def test_one_seed_is_one_result():
    one, two = (simulate("flagship", "pull", jobs=20_000, seed=3) for _ in range(2))
    same(one, two)
    assert simulate("flagship", "pull", jobs=20_000, seed=4).cost != one.cost


def test_threads_change_nothing():
    settings = {"jobs": 5_000, "seed": 2, "replications": 4}
    same(
        simulate("flagship", "jsq(2)", threads=1, **settings),
        simulate("flagship", "jsq(2)", threads=3, **settings),
    )


AGENTS = {
    "pull(fallback=wrr, choice=fastest)": ["message_order", "speed", "router"],
    "jsq": ["queue", "queue_order"],
    "sed(2)": ["candidate(2)", "queue_probed", "speed"],
    "static(1,2,3,4)": ["speed"],
}


@pytest.mark.parametrize("policy", AGENTS)
@pytest.mark.parametrize("replications", [None, 3])
def test_an_agent_in_the_environment_yields_the_same_result(policy, replications):
    system = System([Pool(2, 1.0, 4), Pool(2, 2.0, 4)], routers=2, load=0.9)
    env = gym.make("lbgym/MultiRouter-v0", system=system.to_dict(), observe=AGENTS[policy])
    settings = {"jobs": 3_000, "seed": 5, "replications": replications}
    by_rule = simulate(system, policy, **settings)
    by_agent = simulate(system, lbgym.policies.agent(policy, env), **settings)
    same(by_rule, by_agent)
    assert by_rule.cost == by_agent.cost


def test_an_agent_that_moves_jobs_yields_the_same_result():
    system = System([Pool(2, 1.0, 4), Pool(2, 2.0, 4)], routers=2, load=0.9, migration_rate=0.7)
    policy = "local-search(rule=strict, place=weighted-random)"
    observe = ["speed", "queue_probed", "source", "target", "kind"]
    env = gym.make("lbgym/MultiRouter-v0", system=system.to_dict(), observe=observe)
    settings = {"jobs": 3_000, "seed": 5, "move_cost": 0.1}
    same(
        simulate(system, policy, **settings),
        simulate(system, lbgym.policies.agent(policy, env), **settings),
    )


class FirstServer:
    """An agent of a user."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.zeros(len(observation), np.int64), state


def test_a_users_agent_acts_in_the_environment():
    result = simulate("flagship", FirstServer(), jobs=2_000, replications=2)
    assert result.policy == "FirstServer"
    assert result.jobs_per_pool[1] == 0
    # a single server of speed 1 and limit 10 under 27 jobs per unit time
    assert result.blocking_probability.mean == pytest.approx(1 - 1 / 27, abs=0.01)


def test_little_and_the_identities_of_a_result():
    r = simulate("split-80-20", "pull", jobs=50_000, seed=1)
    b = r.batches
    assert r.jobs_in_system.mean == pytest.approx(sum(r.jobs_per_pool))
    assert r.response_time.mean == pytest.approx(
        b["area"].sum() / (b["arrivals"] - b["blocked"]).sum()
    )
    assert r.cost.mean == pytest.approx(
        (b["area"].sum() + 20 * b["blocked"].sum()) / b["arrivals"].sum()
    )
    assert r.queue_tail["all"][0] == pytest.approx(1)
    assert r.utilization == pytest.approx(
        np.average([tail[1] for tail in r.queue_tail["pools"]], weights=[10, 20])
    )
    assert r.counts["arrivals"] == r.counts["blocked"] + r.counts["departed"] + r.counts["present"]
    assert r.jobs == 50_000
    assert r.warmup == 5_000


def test_a_result_is_plain_data_and_pickles():
    r = simulate("flagship", "pull", jobs=2_000)
    assert pickle.loads(pickle.dumps(r)).cost == r.cost
    assert r.to_dict()["cost"]["mean"] == r.cost.mean
    assert "pull on 20 servers" in repr(r)


def test_precision_is_reached():
    r = simulate("mm1", "random", jobs=5_000, precision=0.03)
    assert r.cost.half_width <= 0.03 * r.cost
    assert r.jobs > 5_000
    assert abs(r.cost - 5.0) < 4 * r.cost.half_width


def test_the_waiting_of_slots_and_sharing():
    erlang = System([Pool(1, 1.0, limit=None, slots=3)], load=0.7)
    assert simulate(erlang, "random", jobs=200_000).waiting_probability == pytest.approx(
        0.4923, abs=0.02
    )
    shared = System([Pool(1, discipline="ps")], load=0.7)
    assert simulate(shared, "random", jobs=200_000).waiting_probability == pytest.approx(
        0.7, abs=0.02
    )


def test_common_random_numbers_narrow_a_difference():
    found = compare("flagship", ["random", "weighted-random"], jobs=50_000, seed=1)
    assert found.differences[0] == 0
    assert found.differences[1].high < 0
    assert found.shrinkage[1] > 1
    with pytest.raises(ValueError, match="equal jobs and seeds"):
        paired_difference(found.results[0], simulate("flagship", "pull", jobs=20_000))


def test_too_many_jobs_give_a_partial_result():
    r = simulate("pull-pair", "random", jobs=10**6, max_jobs=500)
    assert r.stable is False
    assert r.counts["present"] == 500
    assert r.jobs < 10**6
    early = simulate("pull-pair", "random", jobs=10**6, max_jobs=3)
    assert early.stable is False
    assert early.warmup == 0
    assert math.isnan(early.cost.low)


def test_starts():
    warm = simulate("flagship", "random", jobs=2_000, warmup=0, start="warm")
    assert warm.counts["started"] > 50
    given = simulate("mm1", "random", jobs=2_000, start=[7])
    assert given.counts["started"] == 7
    assert given.counts["arrivals"] + 7 == given.counts["departed"] + given.counts["present"]


BAD = [
    ({"jobs": 10}, "jobs: must be a whole number >= 100, got 10"),
    ({"jobs": 1e6}, "jobs: must be a whole number >= 100, got 1000000.0"),
    ({"jobs": 10**30}, "jobs: must be at most 1,000,000,000,000,000, got 1,000"),
    ({"seed": -1}, "seed: must be a whole number >= 0, got -1"),
    ({"warmup": 10**6}, "warmup: must leave at least 64 of the 1000000 jobs to measure"),
    ({"replications": 0}, "replications: must be a whole number >= 1, got 0"),
    ({"replications": 10**30}, "replications: must be at most 1,000,000, got 1,000"),
    ({"threads": 2}, r"threads: must be at most replications \(1\), got 2"),
    ({"precision": 2}, "precision: must be between 0 and 1, got 2"),
    ({"loss_charge": math.nan}, "loss_charge: must be a finite number >= 0, got nan"),
    ({"move_cost": "x"}, "move_cost: must be a finite number >= 0, got 'x'"),
    ({"max_jobs": 0}, "max_jobs: must be a whole number >= 1, got 0"),
    ({"start": "hot"}, "start: must be 'empty', 'warm' or queue lengths, got 'hot'"),
    ({"start": [1, 2]}, "start: must be 20 whole queue lengths"),
    ({"start": [11] + [0] * 19}, r"start\[0\]: must be between 0 and its server's limit \(10\)"),
]


@pytest.mark.parametrize(("settings", "sentence"), BAD)
def test_a_mistake_gets_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence) as raised:
        simulate("flagship", "pull", **settings)
    assert "\n" not in str(raised.value)


def test_a_warm_start_needs_a_stable_system():
    with pytest.raises(ValueError, match="start: 'warm' needs speed-weighted random dispatch"):
        simulate(System([Pool(2)], load=1.2), "jsq", jobs=1000, start="warm")


def test_a_warm_start_of_long_queues():
    """Mean 9,999 at load .9999: of 200 servers, each geometric; one that loses by a high limit."""
    system = System(Pool(200), load=0.9999)
    long = simulate(system, "random", jobs=100, start="warm").counts["started"] / 200
    assert abs(long - 9999) < 4.5 * 10_000 / math.sqrt(200)
    full = System(Pool(1, limit=100_000), load=1.2)
    assert 99_900 < simulate(full, "random", jobs=100, start="warm").counts["started"] <= 100_000
    with pytest.raises(ValueError, match=r"start: \d+ jobs are more than max_jobs \(1000\)"):
        simulate(system, "random", jobs=100, start="warm", max_jobs=1000)


@pytest.mark.parametrize("policies", ["pull", []])
def test_compare_wants_a_list_of_policies(policies):
    with pytest.raises(ValueError, match="compare: policies must be a list of policies"):
        compare("small", policies)


@pytest.mark.parametrize("p", [0, 1, -0.5, math.nan, "0.5", None])
def test_a_quantile_is_between_0_and_1(p):
    result = simulate("mm1", "random", jobs=1000)
    with pytest.raises(ValueError, match="p: must be between 0 and 1, got"):
        result.response_time_quantile(p)


def test_a_closed_system_balances_as_far_as_its_limits_allow():
    system = System([Pool(1, 1.0), Pool(1, 4.0, limit=2)], closed_jobs=9, migration_rate=1.0)
    r = simulate(system, "local-search", jobs=200, seed=1)
    assert r.jobs_per_pool == (7.0, 2.0)
    assert r.balancing_time > 0
