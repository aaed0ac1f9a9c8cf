"""Estimates and their intervals: exact on made-up data, covering the truth on queues."""

import dataclasses
import itertools
import json
import math
import pickle

import numpy as np
import pytest

from baselines.coverage import LEAST, QUEUES, cover, mm1, mm1k
from lbgym import stats
from lbgym.engine.layout import BINS
from lbgym.simulate import simulate
from lbgym.stats import Estimate, probability, quantile, ratio, stable
from lbgym.system import Pool, System

BATCHES = 32


# --- an estimate ----------------------------------------------------------------------------------
def test_an_estimate_is_a_number_with_an_interval():
    estimate = Estimate(2.0, 1.5, 3.0)
    assert estimate == 2.0
    assert (estimate.mean, estimate.low, estimate.high) == (2.0, 1.5, 3.0)
    assert estimate.half_width == 0.75
    assert pickle.loads(pickle.dumps(estimate)).high == 3.0
    assert estimate.to_dict() == {"mean": 2.0, "low": 1.5, "high": 3.0}


def test_estimates_become_plain_json():
    plain = stats.as_plain({"a": Estimate(1.0, math.nan, math.inf), "b": (np.int64(3), np.ones(2))})
    assert json.loads(json.dumps(plain)) == {
        "a": {"mean": 1.0, "low": None, "high": None},
        "b": [3, [1.0, 1.0]],
    }


# --- ratios ---------------------------------------------------------------------------------------
def test_ratio_by_hand():
    """Four batches of 2: residuals 1, -1, -1, 1 (uncorrelated enough to leave the error alone)."""
    above, below = np.array([3.0, 1.0, 3.0, 1.0]), np.full(4, 2.0)
    estimate = ratio(above, below)
    assert estimate.mean == 1.0
    error = math.sqrt(4 / 3 / 4) / 2  # standard deviation of the mean of residuals, over 2
    assert estimate.half_width == pytest.approx(3.1824463 * error)  # Student's t, 3 degrees


def test_ratio_without_spread_or_without_data():
    assert ratio(np.full(8, 3.0), np.full(8, 2.0)).half_width == 0
    single = ratio(np.ones(1), np.ones(1))
    assert single.mean == 1
    assert math.isnan(single.low)
    assert math.isnan(ratio(np.zeros(3), np.zeros(3)))


def test_ratio_does_not_depend_on_units():
    rng = np.random.default_rng(1)
    above, below = rng.exponential(size=BATCHES), rng.exponential(size=BATCHES)
    one, other = ratio(above, below), ratio(above * 1e6, below * 1e-6)
    assert other.low == pytest.approx(one.low * 1e12)
    assert other.high == pytest.approx(one.high * 1e12)


def coverage(draw, interval, truth, runs=1000):
    """Share of the intervals that contain the truth."""
    hits = 0
    for seed in range(runs):
        estimate = interval(*draw(np.random.default_rng(seed)))
        hits += estimate.low <= truth <= estimate.high
    return hits / runs


def test_ratio_covers_independent_batches():
    def draw(rng):
        below = rng.gamma(20, size=BATCHES)
        return 2 * below + rng.normal(size=BATCHES), below

    assert 0.93 < coverage(draw, ratio, 2.0) < 0.98


def test_ratio_covers_correlated_batches():
    """A first-order autoregression with correlation .3; ignored, 95 % would be 85 %."""

    def draw(rng):
        x = np.empty(BATCHES)
        x[0] = rng.normal() / math.sqrt(1 - 0.09)
        for k in range(1, BATCHES):
            x[k] = 0.3 * x[k - 1] + rng.normal()
        return x + 10, np.ones(BATCHES)

    assert coverage(draw, ratio, 10.0) > 0.90


def test_paired_differences_cancel_what_is_common():
    rng = np.random.default_rng(3)
    common, below = rng.normal(size=BATCHES), np.ones(BATCHES)
    one, other = common + 1 + 0.01 * rng.normal(size=BATCHES), common
    difference = stats.difference(one, other, below)
    linear = stats.difference(one, other, below, below + 1e-9)
    assert (linear.mean, linear.low) == pytest.approx((difference.mean, difference.low), abs=1e-6)
    assert difference.low < 1 < difference.high
    assert difference.half_width < 0.1 * ratio(one, below).half_width


# --- probabilities --------------------------------------------------------------------------------
def test_an_event_never_seen_has_the_exact_bound():
    estimate = probability(np.zeros(BATCHES), np.full(BATCHES, 100.0))
    assert (estimate.mean, estimate.low) == (0, 0)
    assert (1 - estimate.high) ** 3200 == pytest.approx(0.025)


def test_probabilities_stay_between_0_and_1():
    rare = np.zeros(BATCHES)
    rare[3] = 1
    estimate = probability(rare, np.full(BATCHES, 2.0))
    assert estimate.low == 0 < estimate.mean < estimate.high
    sure = probability(np.full(BATCHES, 2.0) - rare, np.full(BATCHES, 2.0))
    assert sure.low < sure.mean < sure.high == 1
    always = probability(np.full(BATCHES, 2.0), np.full(BATCHES, 2.0))
    assert (always.low, always.mean, always.high) == (1, 1, 1)
    assert math.isnan(probability(np.zeros(3), np.zeros(3)))


@pytest.mark.parametrize("expected", [10, 40, 1000])
def test_probability_covers_rare_events(expected):
    """Events that come in clusters of 1 to 5, as losses do."""

    def draw(rng):
        clusters = rng.poisson(expected / BATCHES, size=BATCHES)
        events = np.array([rng.integers(1, 6, size=k).sum() for k in clusters])
        return events.astype(float), np.full(BATCHES, 1e6)

    truth = 3 * expected / BATCHES / 1e6
    assert 0.915 < coverage(draw, probability, truth) < 0.985


# --- quantiles ------------------------------------------------------------------------------------
def histogram(samples):
    """By batch, as the engine keeps it; samples of shape (batches, n)."""
    edges = stats.bin_edges()
    return np.array([np.histogram(batch, edges)[0] for batch in samples])


def test_bins_are_64_an_octave():
    edges = stats.bin_edges()
    assert len(edges) == BINS + 1
    assert (np.diff(edges) > 0).all()
    assert (np.diff(edges) / edges[:-1]).max() == pytest.approx(1 / 64)
    assert {0.5, 1.0, 2.0, 4096.0} <= set(edges)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 0.99, 0.999])
def test_quantiles_are_those_of_the_sample(p):
    samples = np.random.default_rng(4).lognormal(size=(BATCHES, 2000))
    estimate = quantile(histogram(samples), p)
    assert estimate == pytest.approx(np.quantile(samples, p), rel=0.016)
    assert estimate.low <= estimate <= estimate.high
    assert estimate.low < math.exp(0) if p == 0.5 else True


def test_quantiles_rise_with_p():
    counts = histogram(np.random.default_rng(5).exponential(size=(BATCHES, 50)))
    found = [quantile(counts, p) for p in np.linspace(0.001, 0.999, 200)]
    for one, next_one in itertools.pairwise(found):
        assert one <= next_one
        assert one.low <= next_one.low
        assert one.high <= next_one.high


def test_a_quantiles_interval_ends_at_the_longest_seen():
    samples = np.random.default_rng(6).exponential(size=(BATCHES, 10))
    assert quantile(histogram(samples), 0.9999).high <= samples.max() * 65 / 64


@pytest.mark.parametrize("p", [0, 1, -0.1, 1.5, math.nan])
def test_quantile_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match="p: must be between 0 and 1"):
        quantile(np.ones((2, BINS), np.int64), p)


def test_quantile_without_data():
    assert math.isnan(quantile(np.zeros((4, BINS), np.int64), 0.5))
    single = quantile(histogram(np.ones((1, 10))), 0.5)
    assert 1 <= single <= 65 / 64
    assert math.isnan(single.low)


@pytest.mark.parametrize("p", [0.5, 0.99])
def test_quantile_covers_an_exponential(p):
    def draw(rng):
        return (histogram(rng.exponential(size=(BATCHES, 200))),)

    truth = -math.log(1 - p)
    covered = coverage(draw, lambda counts: quantile(counts, p), truth, runs=300)
    assert 0.91 < covered < 0.99


# --- growth and stability -------------------------------------------------------------------------
def gains(rng, drift):
    """Gains of batches of 1000 time units: a backlog that drifts and wanders."""
    return drift * 1000 + rng.normal(scale=30, size=BATCHES), np.full(BATCHES, 1000.0)


def test_steady_growth_is_not_stable():
    jobs, time = gains(np.random.default_rng(17), 0.1)
    growth = stats.growth(jobs, time)
    assert growth.low < 0.1 < growth.high
    assert stable(jobs, time, arrival_rate=1.0, replications=1) is False


def test_no_growth_is_stable():
    level = np.random.default_rng(8).exponential(20, size=BATCHES + 1)
    assert stable(np.diff(level), np.full(BATCHES, 1000.0), 5.0, 1) is True


def test_a_filling_system_is_not_called_unstable():
    """Growth that fades: the second half has a tenth of the first."""
    jobs = np.concatenate([np.full(16, 50.0), np.full(16, 5.0)])
    jobs += np.random.default_rng(9).normal(scale=0.1, size=BATCHES)
    assert stable(jobs, np.full(BATCHES, 1000.0), 1.0, 1) is None


def test_stability_needs_batches():
    assert stable(np.ones(3), np.ones(3), 1.0, 1) is None
    assert stable(np.ones(12), np.ones(12), 1.0, 4) is None


def test_halves_are_those_of_each_replication():
    """Two replications that fill up: pooled in order, the second would hide that."""
    one = np.concatenate([np.full(16, 50.0), np.zeros(16)])
    jobs = np.concatenate([one, one]) + np.random.default_rng(2).normal(scale=0.1, size=64)
    assert stable(jobs, np.full(64, 1000.0), 1.0, 2) is not False


def test_mm1_near_saturation_is_not_called_unstable():
    system = System(Pool(1), load=0.999)
    found = [simulate(system, "random", jobs=300_000, seed=seed).stable for seed in range(20)]
    assert False not in found


def test_an_overloaded_queue_is_called_unstable_with_its_growth():
    result = simulate(System(Pool(1), load=1.1), "random", jobs=300_000)
    assert result.stable is False
    assert result.growth.low < 0.1 < result.growth.high


# --- coverage on queues (the whole study: python -m baselines.coverage) ---------------------------
def shortened(queue, jobs):
    return dataclasses.replace(queue, jobs=jobs)


@pytest.mark.parametrize(
    "queue",
    [QUEUES[0], shortened(QUEUES[1], 100_000), shortened(QUEUES[-1], 50_000)],
    ids=lambda queue: f"{queue.name}, {queue.jobs} jobs",
)
def test_intervals_cover_the_truth(queue):
    """100 runs: three standard deviations below what the full study asks for."""
    for row in cover(queue, runs=100, threads=1):
        allowed = row.least - 3 * math.sqrt(LEAST * (1 - LEAST) / row.runs)
        assert row.coverage > allowed, f"{row.quantity}: {row.coverage:.0%}"


def test_closed_forms_of_the_coverage_study():
    queue = mm1k(1e-9, 5, 1000)
    assert queue.truth["response_time"] == pytest.approx(1)
    assert queue.truth["blocking_probability"] < 1e-40
    exponential = mm1(0.8, 1000).truth
    assert exponential["p99"] == pytest.approx(5 * math.log(100))
    assert mm1k(0.8, 500, 1000).truth["cost"] == pytest.approx(exponential["cost"])
