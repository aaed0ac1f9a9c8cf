"""Rules that know sizes: least work left is one common queue, size intervals load all alike."""

import math

import gymnasium as gym
import numpy as np
import pytest

from lbgym import JobClass, Pool, System, policies, simulate
from lbgym.policies.sized import size_cutoffs

LARGEST_Z = 4.5
T_QUANTILE = 2.04  # of half-widths, 32 batches


def z_score(estimate, exact):
    return (estimate.mean - exact) / (estimate.half_width / T_QUANTILE)


def common_queue(gaps, sizes, servers):
    """Waiting times of FCFS with one queue: each job takes the server that is free first."""
    free, now, waits = np.zeros(servers), 0.0, []
    for gap, size in zip(gaps, sizes, strict=True):
        now += gap
        k = int(np.argmin(free))
        start = max(now, free[k])
        waits.append(start - now)
        free[k] = start + size
    return np.array(waits)


def test_least_work_of_equal_servers_is_one_common_queue():
    """Erlang's C: M/M/3 at load .7, also where sizes would be memoryless."""
    offered, servers = 2.1, 3
    below = [offered**k / math.factorial(k) for k in range(servers)]
    full = offered**servers / math.factorial(servers) / (1 - offered / servers)
    waits = full / (sum(below) + full)
    result = simulate(System(Pool(servers), load=0.7), "lwl", jobs=400_000, seed=1)
    assert abs(z_score(result.waiting_probability, waits)) < LARGEST_Z
    assert abs(z_score(result.response_time, 1 + waits / (servers - offered))) < LARGEST_Z


@pytest.mark.parametrize("size", ["deterministic", {"law": "empirical", "values": [1, 1, 6]}])
def test_least_work_is_the_common_queue_of_general_sizes(size):
    """M/D/3 and another against a plain recursion of its own random numbers."""
    rng = np.random.default_rng(0)
    jobs = 200_000
    values = np.ones(1) if size == "deterministic" else np.array([1, 1, 6]) * 3 / 8
    waits = common_queue(rng.exponential(1 / 2.4, jobs), rng.choice(values, jobs), 3)[jobs // 10 :]
    batches = waits[: len(waits) // 32 * 32].reshape(32, -1).mean(axis=1)
    result = simulate(System(Pool(3), load=0.8, size=size), "lwl", jobs=400_000, seed=2)
    error = math.hypot(batches.std(ddof=1) / 32**0.5, result.response_time.half_width / T_QUANTILE)
    assert abs(result.response_time.mean - 1 - batches.mean()) < LARGEST_Z * error


TWO = [JobClass(1, 1.0), JobClass(1, 3.0)]


@pytest.mark.parametrize("classes", [None, TWO])
@pytest.mark.parametrize(
    "size",
    [
        "exponential",
        "deterministic",
        {"law": "lognormal", "scv": 3.0},
        {"law": "empirical", "values": [0, 1, 1, 5]},
    ],
)
def test_size_intervals_load_all_servers_alike(size, classes):
    system = System(
        [Pool(2), Pool(1, speed=2.0), Pool(1, slots=3)], load=0.6, size=size, classes=classes
    )
    result = simulate(system, "sita", jobs=300_000, seed=3)
    assert result.utilization_per_pool == pytest.approx([0.6] * 3, rel=0.03)


def test_cutoffs_of_uniform_sizes():
    """Uniform on (0, 2): the work below x is x^2 / 4, so the half lies below sqrt(2)."""
    cut = size_cutoffs(System(Pool(2), load=0.5, size="uniform"))
    assert cut == pytest.approx((math.sqrt(2), 0.5, 0.5, 0.5))
    atoms = size_cutoffs(System(Pool(2), load=0.5, size={"law": "empirical", "values": [1, 3]}))
    assert atoms == pytest.approx((1.5, 0.25, 1.0, 0.5))


@pytest.mark.parametrize("policy", ["lwl", "sita"])
def test_agents_that_see_work_and_size_do_the_same(policy):
    system = System([Pool(2), Pool(1, speed=2.0)], load=0.7, size={"law": "lognormal", "scv": 2.0})
    env = gym.make("lbgym/MultiRouter-v0", system=system, observe=["work", "speed", "size"])
    agent = policies.agent(policy, env)
    mine = simulate(system, policy, jobs=3000, seed=5)
    its = simulate(system, agent, jobs=3000, seed=5)
    assert its.cost.mean == pytest.approx(mine.cost.mean, rel=0.02)


def test_what_does_not_know_sizes_is_refused():
    slots = System(Pool(2, speed=0.5), load=0.5, slotted=True)
    with pytest.raises(ValueError, match="lwl: is not for slotted time"):
        policies.make("lwl", slots)
    with pytest.raises(ValueError, match="lwl: needs live queues"):
        policies.make("lwl", System(Pool(2), load=0.5, read_interval=1.0))
    with pytest.raises(ValueError, match="'work' needs a system whose sizes are drawn"):
        gym.make("lbgym/MultiRouter-v0", system=System(Pool(2), load=0.5), observe=["work"])


def test_the_reward_of_a_drawn_size_is_its_response_time():
    """One slot, FCFS: work left plus size over speed, which the job then takes."""
    system = System([Pool(2), Pool(1, speed=2.0)], load=0.8, size="uniform")
    env = gym.make("lbgym/MultiRouter-v0", system=system, horizon_arrivals=4000)
    env.reset(seed=0)
    rng, total, done = np.random.default_rng(0), 0.0, False
    while not done:
        _, reward, _, done, _ = env.step(int(rng.integers(3)))
        total -= reward
    w = env.unwrapped._state.world[0]
    jobs = env.unwrapped._state.arrays
    ahead = 0.0  # what the jobs still present will have spent
    for i, server in enumerate(jobs["servers"]):
        j, end = server["head"], jobs["finishes"][3 + i]["time"]
        while j >= 0:
            ahead += end - jobs["jobs"][j]["arrived"]
            j = jobs["jobs"][j]["next"]
            if j >= 0:
                end += jobs["jobs"][j]["brought"] / system.speeds[i]
    assert total == pytest.approx(w["response_sum"] + ahead, rel=1e-9)
