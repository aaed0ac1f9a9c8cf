"""Rewards mean what they should in the long run: both forms alike, and losing jobs does not pay."""

import math

import gymnasium as gym
import numpy as np
import pytest

from lbgym import Pool, System, scenarios, simulate
from lbgym.benchmark import DEFAULT_POLICIES, MIGRATING_POLICIES

ID = "lbgym/MultiRouter-v0"


@pytest.mark.parametrize("form", ["response", "holding"])
def test_both_forms_have_the_mean_response_time_as_their_mean(form):
    """Speeds 1 and 2, each served by its share of the load .6: two M/M/1 queues, 5/3 exactly."""
    system = System([Pool(1, speed=1.0), Pool(1, speed=2.0)], load=0.6)
    arguments = {"reward": form, "start": "warm", "horizon_arrivals": -1}
    env = gym.make(ID, system=system, **arguments).unwrapped
    env.reset(seed=8)
    batches, steps = 40, 5000
    actions = (np.random.default_rng(2).random((batches, steps)) < 2 / 3).astype(int).tolist()
    means = np.array([-sum(env.step(a)[1] for a in batch) / steps for batch in actions])
    error = means.std(ddof=1) / math.sqrt(batches)
    assert error < 0.03
    assert abs(means.mean() - 5 / 3) < 4.5 * error


def _limited(system):
    jobs_at_servers = isinstance(system, System)
    return jobs_at_servers and np.isfinite(system.limits).all() and not system.has_units


LIMITED = [s for s in scenarios.names() if _limited(scenarios.get(s))]


@pytest.mark.parametrize("name", LIMITED)
def test_sending_everything_to_one_slowest_server_loses(name):
    """To every policy that loses less than 1 - 2 s mu / Lambda of the jobs."""
    system = scenarios.get(name)
    slowest = min(system.pools, key=lambda spec: spec.speed * spec.slots)
    first = sum(p.servers for p in system.pools[: system.pools.index(slowest)])
    weights = ["0"] * system.servers
    weights[first] = "1"
    alone = simulate(system, f"static({','.join(weights)})", jobs=20_000)
    bound = 1 - 2 * slowest.slots * slowest.speed / (system.mean_size * system.arrival_rate)
    policies = [*DEFAULT_POLICIES, "jsed", "index(1/2)", "jiq-sq(2)", "pull(fallback=jsq(2))"]
    beaten = 0
    for policy in policies + list(MIGRATING_POLICIES if system.migrates else ()):
        result = simulate(system, policy, jobs=20_000)
        if result.blocking_probability.high < bound:
            assert result.cost.high < alone.cost.low, policy
            beaten += 1
    assert beaten >= 13
