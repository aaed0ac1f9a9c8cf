"""Estimates with intervals, from batches of one run or of several replications.

A run is cut, after its warm-up, into batches of equally many arrivals; in each batch every quantity
is a ratio of two totals (jobs lost / jobs arrived, integral of N / time, ...). Batches long against
the system's memory are nearly independent, so the spread of the ratio's residuals gives the
interval (ratio estimator; Law, Simulation Modeling and Analysis, 9.5.3). Two corrections keep its
coverage near 95 % when a run is short for its load (`baselines.coverage` measures it): one for
correlation between neighbouring batches, and, for probabilities, one for skewness (Johnson 1978;
both as in Skart: Tafazzoli, Wilson, Lada and Steiger, INFORMS J. Computing 23, 2011). Quantiles
come from a histogram with 64 bins an octave (relative error < 1.6 %).
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
_MOST_CORRELATED = 0.8  # neighbouring batches; more cannot be told from a few dozen of them


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


def _spread(above: Floats, below: Floats) -> tuple[Floats, Floats, Floats]:
    """Ratio of the totals, its standard error and the skewness of the batches, by column.

    Shapes (batches, columns) and (batches,). Neighbouring batches may be positively correlated: a
    first-order autoregression multiplies the variance by (1 + r)/(1 - r), r their correlation.
    """
    batches, total = len(above), below.sum()
    mean = above.sum(axis=0) / total
    residuals = (above - np.multiply.outer(below, mean)) * (batches / total)
    squares = (residuals**2).sum(axis=0)
    safe = np.where(squares > 0, squares, 1.0)
    correlation = (residuals[1:] * residuals[:-1]).sum(axis=0) / safe
    correlation = np.clip(correlation, 0.0, _MOST_CORRELATED)
    variance = squares / (batches - 1)
    error = np.sqrt(variance / batches * (1 + correlation) / (1 - correlation))
    third = (residuals**3).sum(axis=0) * batches / ((batches - 1) * max(batches - 2, 1))
    return mean, error, third / (safe / (batches - 1)) ** 1.5


def _reach(batches: int, confidence: float) -> float:
    """The quantile of Student's t."""
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit(batches - 1, (1 + confidence) / 2))


def ratio(above: Floats, below: Floats, confidence: float = CONFIDENCE) -> Estimate:
    """Long-run ratio of two totals given by batch, with its interval; shapes (batches,).

    Fewer than two batches give an interval that is not a number.
    """
    total = float(below.sum())
    if total == 0:
        return Estimate(math.nan, math.nan, math.nan)
    if len(above) < 2:
        return Estimate(float(above.sum()) / total, math.nan, math.nan)
    mean, error, _ = (float(x[0]) for x in _spread(above[:, None], below))
    reach = _reach(len(above), confidence) * error
    return Estimate(mean, mean - reach, mean + reach)


def _fractions(events: Floats, trials: Floats) -> tuple[Floats, Floats, Floats]:
    """Estimates and limits of several probabilities; shapes (batches, columns) and (batches,).

    The rarer an event, the more skewed the batches: Student's t is replaced by Johnson's
    transformation of it, which makes the interval reach further on the side of the long tail.
    """
    mean, error, skewness = _spread(events, trials)
    batches = len(trials)
    beta = skewness / (6 * math.sqrt(batches))
    safe = np.where(np.abs(beta) > 1e-9, beta, 1.0)

    def transformed(quantile: float) -> Floats:
        bent = (np.cbrt(1 + 6 * safe * (quantile - safe)) - 1) / (2 * safe)
        return np.where(np.abs(beta) > 1e-9, bent, quantile)

    reach = _reach(batches, CONFIDENCE)
    low, high = mean - transformed(reach) * error, mean - transformed(-reach) * error
    return mean, np.clip(low, 0.0, mean), np.clip(high, mean, 1.0)


def probability(events: Floats, trials: Floats) -> Estimate:
    """Long-run share of the trials, given by batch; shapes (batches,).

    An event never seen has the exact upper limit for independent trials.
    """
    total, seen = float(trials.sum()), float(events.sum())
    if total == 0:
        return Estimate(math.nan, math.nan, math.nan)
    if seen == 0:
        return Estimate(0.0, 0.0, 1 - ((1 - CONFIDENCE) / 2) ** (1 / total))
    if len(events) < 2:
        return Estimate(seen / total, math.nan, math.nan)
    mean, low, high = (float(x[0]) for x in _fractions(events[:, None], trials))
    return Estimate(mean, low, high)


def difference(one: Floats, other: Floats, below: Floats, others: Floats | None = None) -> Estimate:
    """Paired difference of two ratios, by batch, with a common denominator or (`others`) two.

    Of two ratios each is made linear about its mean: a batch of an agent that decides at other
    moments than arrivals ends a few arrivals later.
    """
    if others is None or np.array_equal(below, others):
        return ratio(one - other, below)
    linear = []
    for above, under in ((one, below), (other, others)):
        mean = above.sum() / under.sum()
        linear.append(mean + (above - mean * under) / under.mean())
    return ratio(linear[0] - linear[1], np.ones(len(one)))


def pairable(below: Floats, others: Floats) -> bool:
    """Whether two runs have the same batches, but for some arrivals at their ends."""
    return len(below) == len(others) and bool(np.isclose(below.sum(), others.sum(), rtol=0.1))


def total_cost(
    totals: Mapping[str, Floats], loss_charge: float, move_cost: float, holding: bool = True
) -> Floats:
    """What each batch cost: time of the jobs (if `holding`), charges of the lost, moves."""
    charged = loss_charge * totals["lost_weight"] + move_cost * totals["migrations"]
    return totals["area"] + charged if holding else charged


def per_job(
    totals: Mapping[str, Floats], loss_charge: float, move_cost: float, holding: bool = True
) -> dict[str, Estimate]:
    """Everything that is a ratio of two totals of a run, by name; totals by batch.

    Names as in `Result`; `loss_charge` is that of a lost job of weight 1, `move_cost` of a
    migration; without `holding` (loss systems with units) the time of the jobs costs nothing.
    """
    b = totals
    accepted = b["arrivals"] - b["blocked"]
    cost = total_cost(b, loss_charge, move_cost, holding)
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


def quantile(histograms: NDArray[np.int64], p: float) -> Estimate:
    """The p-quantile of the response time, histograms by batch of shape (batches, BINS).

    Its interval: the values x for which p lies in the interval of the probability of a response
    time below x. No further than the longest that was seen.
    """
    if not isinstance(p, int | float | np.number) or not 0 < p < 1:
        raise ValueError(f"p: must be between 0 and 1, got {p!r}")
    seen = np.flatnonzero(histograms.any(axis=0))
    if len(seen) == 0:
        return Estimate(math.nan, math.nan, math.nan)
    first, last = int(seen[0]), int(seen[-1])
    edges = bin_edges()[first : last + 2]
    below = np.zeros((len(histograms), len(edges)))
    np.cumsum(histograms[:, first : last + 1], axis=1, out=below[:, 1:])
    trials = below[:, -1]
    if len(histograms) < 2:
        return Estimate(_crossing(edges, below[0] / trials[0], p), math.nan, math.nan)
    share, low, high = _fractions(below, trials)
    value = _crossing(edges, share, p)
    rising = np.maximum.accumulate(high)
    falling = np.minimum.accumulate(low[::-1])[::-1]
    return Estimate(
        value, min(_crossing(edges, rising, p), value), max(_crossing(edges, falling, p), value)
    )


def _crossing(edges: Floats, levels: Floats, p: float) -> float:
    """Where rising levels, one for each edge and linear between them, first reach p."""
    k = int(np.searchsorted(levels, p))
    if k == 0 or k == len(levels):
        return float(edges[max(k - 1, 0)])
    inside = (p - levels[k - 1]) / (levels[k] - levels[k - 1])
    return float(edges[k - 1] + inside * (edges[k] - edges[k - 1]))


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
