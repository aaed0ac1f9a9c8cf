"""Estimates with intervals, from batches of one run or of several replications.

A run is cut, after its warm-up, into batches of equally many arrivals; in each batch every quantity
is a ratio of two totals (jobs lost / jobs arrived, integral of N / time, ...). Batches long against
the system's memory are nearly independent, so the spread of the ratio's residuals gives the
interval (ratio estimator; Law, Simulation Modeling and Analysis, 9.5.3). Quantiles come from a
histogram with 64 bins an octave (relative error < 1.6 %).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.engine.layout import BINS, BINS_PER_OCTAVE_BITS, LOWEST_OCTAVE

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
GROWTH_CONFIDENCE = 0.999
_CARRIES_ON = 0.7  # growth in the second half must be at least this share of that in the first
_NO_GROWTH = 0.01  # of the arrival rate


class Estimate(float):
    """A number (the mean) with its 95 % interval: ``.mean .low .high .half_width``."""

    low: float
    high: float

    def __new__(cls, mean: float, low: float, high: float) -> Estimate:
        self = super().__new__(cls, mean)
        self.low, self.high = float(low), float(high)
        return self

    def __reduce__(self) -> tuple[type[Estimate], tuple[float, float, float]]:
        return Estimate, (self.mean, self.low, self.high)

    @property
    def mean(self) -> float:
        return float(self)

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def __repr__(self) -> str:
        return f"Estimate({self.mean:.6g}, {self.low:.6g}, {self.high:.6g})"

    def __str__(self) -> str:
        return f"{self.mean:.4g} +- {self.half_width:.2g}"

    def to_dict(self) -> dict[str, float | None]:
        """``{"mean", "low", "high"}``; what is not a number becomes None."""
        values = {"mean": self.mean, "low": self.low, "high": self.high}
        return {key: x if math.isfinite(x) else None for key, x in values.items()}


def ratio(above: Floats, below: Floats, confidence: float = CONFIDENCE) -> Estimate:
    """Long-run ratio of two totals given by batch, with its interval; shapes (batches,).

    Fewer than two batches give an interval that is not a number.
    """
    total, batches = float(below.sum()), len(above)
    if total == 0:
        return Estimate(math.nan, math.nan, math.nan)
    mean = float(above.sum()) / total
    if batches < 2:
        return Estimate(mean, math.nan, math.nan)
    from scipy.special import stdtrit  # quantiles of Student's t; slow to import

    residuals = above - mean * below
    error = math.sqrt(float((residuals**2).sum()) * batches / (batches - 1)) / abs(total)
    reach = float(stdtrit(batches - 1, (1 + confidence) / 2)) * error
    return Estimate(mean, mean - reach, mean + reach)


def probability(events: Floats, trials: Floats) -> Estimate:
    """As `ratio`, kept within [0, 1]; none seen gives the exact upper bound for rare events."""
    value = ratio(events, trials)
    if value.mean == 0 and trials.sum() > 0:
        bound = 1 - ((1 - CONFIDENCE) / 2) ** (1 / float(trials.sum()))
        return Estimate(0.0, 0.0, bound)
    return Estimate(value, max(value.low, 0.0), min(value.high, 1.0))


def difference(one: Floats, other: Floats, below: Floats) -> Estimate:
    """Paired difference of two ratios with a common denominator, by batch."""
    return ratio(one - other, below)


def per_job(
    totals: Mapping[str, Floats], loss_charge: float, move_cost: float
) -> dict[str, Estimate]:
    """Everything that is a ratio of two totals of a run, by name; totals by batch.

    Names as in `Result`; `loss_charge` is that of a lost job, `move_cost` of a migration.
    """
    b = totals
    accepted = b["arrivals"] - b["blocked"]
    cost = b["area"] + loss_charge * b["blocked"] + move_cost * b["migrations"]
    messages = b["sent"] + b["withdrawn"] + 2 * b["probes"]
    return {
        "cost": ratio(cost, b["arrivals"]),
        "response_time": ratio(b["area"], accepted),
        "waiting_probability": probability(b["waited"], accepted),
        "blocking_probability": probability(b["blocked"], b["arrivals"]),
        "jobs_in_system": ratio(b["area"], b["clock"]),
        "messages_per_job": ratio(messages, b["arrivals"]),
        "withdrawals_per_job": ratio(b["withdrawn"], b["arrivals"]),
        "migrations_per_job": ratio(b["migrations"], b["arrivals"]),
        "growth": growth(b["present"], b["clock"]),
    }


# --- quantiles ------------------------------------------------------------------------------------
def bin_edges() -> Floats:
    """Lower edges of the histogram's bins and the upper edge of the last; shape (BINS + 1,)."""
    k = np.arange(BINS + 1)
    per_octave = 1 << BINS_PER_OCTAVE_BITS
    return np.ldexp(1.0 + (k % per_octave) / per_octave, k // per_octave + LOWEST_OCTAVE)


def _histogram_quantile(counts: Floats, p: float) -> float:
    """The p-quantile of a histogram, linear within the bin."""
    below = np.cumsum(counts)
    rank = p * below[-1]
    k = int(np.searchsorted(below, rank))
    edges = bin_edges()
    inside = (rank - (below[k] - counts[k])) / counts[k] if counts[k] > 0 else 0.0
    return float(edges[k] + inside * (edges[k + 1] - edges[k]))


def quantile(histograms: NDArray[np.int64], p: float) -> Estimate:
    """The p-quantile of the response time, histograms by batch of shape (batches, BINS).

    Its interval: where the distribution function, estimated by batch at the quantile, may be p.
    """
    if not 0 < p < 1:
        raise ValueError(f"p: must be between 0 and 1, got {p}")
    counts = histograms.sum(axis=0).astype(float)
    if counts.sum() == 0:
        return Estimate(math.nan, math.nan, math.nan)
    value = _histogram_quantile(counts, p)
    k = int(np.searchsorted(bin_edges(), value, side="right")) - 1
    edges = bin_edges()[k : k + 2]
    inside = (value - edges[0]) / (edges[1] - edges[0])
    below = histograms[:, :k].sum(axis=1) + inside * histograms[:, k]
    reach = ratio(below.astype(float), histograms.sum(axis=1).astype(float)).half_width
    if not math.isfinite(reach):
        return Estimate(value, math.nan, math.nan)
    low = _histogram_quantile(counts, max(p - reach, 0.0))
    high = _histogram_quantile(counts, min(p + reach, 1.0))
    return Estimate(value, low, high)


# --- growth ---------------------------------------------------------------------------------------
def growth(jobs: Floats, time: Floats) -> Estimate:
    """Jobs in system gained per unit time, from the gains and durations of the batches."""
    return ratio(jobs, time)


def stable(jobs: Floats, time: Floats, arrival_rate: float, replications: int) -> bool | None:
    """Whether the number in system stays bounded: True, False, or None when undecided.

    False: the growth in the second half of the run is positive at 99.9 % and at least 0.7 of that
    in the first. True: the 99.9 % interval of the growth contains 0 and ends below 1 % of the
    arrival rate. Batches of the replications come one replication after another.
    """
    if len(jobs) < 4 * replications:
        return None
    of_run = np.arange(len(jobs)) % (len(jobs) // replications)
    late = of_run >= len(jobs) // replications // 2
    first = ratio(jobs[~late], time[~late])
    second = ratio(jobs[late], time[late], GROWTH_CONFIDENCE)
    if second.low > 0 and second >= _CARRIES_ON * first:
        return False
    overall = ratio(jobs, time, GROWTH_CONFIDENCE)
    if overall.low <= 0 <= overall.high < _NO_GROWTH * arrival_rate:
        return True
    return None


def as_plain(value: Any) -> Any:
    """The same value in JSON's types; what is not a number becomes None."""
    if isinstance(value, Estimate):
        return value.to_dict()
    if isinstance(value, dict):
        return {str(key): as_plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [as_plain(x) for x in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
