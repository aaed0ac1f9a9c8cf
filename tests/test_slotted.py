"""Slotted time: exact values, the heavy-traffic limit, and the engine slot by slot."""

import math

import numpy as np
import pytest

from lbgym import Pool, System, simulate, theory
from tests import digests

PAIR = [Pool(1, speed=0.3), Pool(1, speed=0.6)]
PAIRS = {"process": "poisson", "batch": 2}
LARGEST_Z = 4.5
T_QUANTILE = 2.04  # of half-widths, 32 batches

# E[N] over the slots' ends, arrivals Poisson of .63: an exact chain solved elsewhere.
KNOWN = {
    (1, "jsed"): 2.1003875320029133,
    (10, "jsed"): 3.9395085643982837,
    (10, "jsq"): 4.144565062448236,
}


def pair(load=0.7, **options):
    return System(PAIR, load=load, slotted=True, **options)


@pytest.mark.parametrize(("interval", "policy"), KNOWN)
def test_two_servers_are_solved_and_simulated(interval, policy):
    system, known = pair(read_interval=interval), KNOWN[interval, policy]
    exact = theory.exact(system, policy)
    assert exact.jobs_in_system == pytest.approx(known, rel=1e-8)
    result = simulate(system, policy, jobs=400_000, seed=1)
    for name in ("jobs_in_system", "waiting_probability", "response_time"):
        found = getattr(result, name)
        error = found.half_width / T_QUANTILE
        assert abs(found.mean - getattr(exact, name)) < LARGEST_Z * error, name


def test_heavy_traffic():
    """(1 - rho) E[N] -> 1 - sum mu^2 / (2 sum mu) = .75, from below and ever nearer."""
    one, other = (
        (1 - rho) * theory.exact(pair(rho, read_interval=1), "jsed").jobs_in_system
        for rho in (0.85, 0.925)
    )
    assert one < other < 0.75
    assert 2 * other - one == pytest.approx(0.75, abs=0.01)


def test_one_server_is_the_chain_of_its_slots():
    """q' = max(q + a - s, 0), a Poisson and s Bernoulli, iterated to its stationary law."""
    mu, rate = 0.5, 0.35
    levels = 200
    arrivals = [math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(levels)]
    law = np.zeros(levels)
    law[0] = 1.0
    for _ in range(3000):
        after = np.convolve(law, arrivals)[:levels]
        law = (1 - mu) * after
        law[:-1] += mu * after[1:]
        law[0] += mu * after[0]
    chain = float(law @ np.arange(levels))
    result = simulate(
        System(Pool(1, speed=mu), arrival_rate=rate, slotted=True), "random", jobs=300_000, seed=2
    )
    error = result.jobs_in_system.half_width / T_QUANTILE
    assert abs(result.jobs_in_system.mean - chain) < LARGEST_Z * error


@pytest.mark.parametrize("policy", ["pull", "jsq", "wrr"])
def test_times_are_whole_and_jobs_are_conserved(policy):
    w = digests.run(pair(routers=2), policy, 3000, seed=4).world[0]
    assert w["clock"] == int(w["clock"])
    assert w["response_sum"] == int(w["response_sum"])
    assert w["arrivals"] == w["departed"] + w["present"]
    area = w["present"] * w["clock"] + w["moment"]
    assert area == w["response_sum"] + w["present"] * w["clock"] - w["arrived_sum"]


def test_what_theory_cannot_solve_is_refused():
    for system, policy, sentence in [
        (pair(), "jsq", "slotted time needs a read_interval"),
        (pair(read_interval=2), "random", "slotted time is for rules that read the queues"),
        (
            pair(read_interval=2, arrivals={"process": "poisson", "batch": 2}),
            "jsq",
            "needs Poisson",
        ),
    ]:
        with pytest.raises(ValueError, match=f"exact: .*{sentence}"):
            theory.exact(system, policy)
    laws = System(PAIR, load=0.5, size="uniform")
    for solve in (theory.exact, theory.mean_field, theory.critical_load):
        with pytest.raises(ValueError, match="needs exponential sizes of one mean"):
            solve(laws, "jsq")
    with pytest.raises(ValueError, match="lower_bound: needs Poisson arrivals"):
        theory.lower_bound(System(PAIR, load=0.5, arrivals=PAIRS))
