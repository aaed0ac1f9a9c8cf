"""Laws of job sizes and arrival processes, as data.

**Sizes.** A law is a name or a dict and is always scaled to mean 1; a class multiplies it by its
`mean_size`.

| law | arguments |
|---|---|
| ``exponential``, ``deterministic`` | |
| ``erlang`` | ``k`` phases |
| ``hyperexponential`` | relative ``probabilities`` and ``means``, or ``scv`` > 1 (balanced means) |
| ``lognormal`` | ``scv``, the squared coefficient of variation |
| ``uniform`` | ``low`` and ``high`` (default 0 and 2) |
| ``bounded-pareto`` | ``alpha``, ``high`` (default infinite), ``low`` (default 1) |
| ``empirical`` | ``values``, or ``file`` with one number a line; all equally likely |

Exponential sizes are memoryless and never drawn by themselves; ``{"law": "erlang", "k": 1}`` is
the same law drawn at arrival. All other sizes are drawn at arrival.

**Arrivals.** ``"poisson"`` or a dict with a ``process``; `System.arrival_rate` is the long-run mean
number of jobs per unit time, to which the rates below are scaled.

| process | arguments |
|---|---|
| ``poisson`` | |
| ``renewal`` | ``law`` of the gaps, as of sizes |
| ``mmpp`` | ``rates`` of each phase (relative), ``generator`` (per unit time); starts stationary |
| ``piecewise`` | ``breakpoints`` from 0 on, ``rates`` from each on (relative), ``period`` |
| ``sinusoidal`` | rate 1 + ``amplitude`` (at most 1) x sin(2 pi t / ``period`` + ``phase``) |
| ``trace`` | ``times`` (and ``sizes``, ``classes``, ``routers``) or ``file``: see `lbgym.traces` |

All but a trace take ``batch``: a number of jobs, a list of weights of 1, 2, ... jobs, or
``{"geometric": mean}``; jobs of a batch arrive at one instant, each is placed by itself. A trace
begins again when it ends, one mean gap after its last job; its times are scaled to the arrival rate
and its sizes to mean 1.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lbgym.checks import LEAST, MAX_COUNT, MOST, integer, listed, number, one_of, quoted, signed
from lbgym.suggest import unknown
from lbgym.traces import TraceData, checked_trace, read_numbers, read_trace

Floats = NDArray[np.float64]
Rows = list[tuple[float, float]]

MAX_BATCH = 1_000_000
MAX_SCV = 1e9  # beyond, no run ever sees the jobs that make up the mean
MAX_ALPHA = 1000.0
_ROW_SUM = 1e-9  # of a generator, relative


# --- laws -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Law(ABC):
    """A law on [0, inf) of mean 1.

    Attributes
    ----------
    second_moment : float
        E[S^2], may be infinite.
    inverse_mean : float
        E[1 / S], infinite where short jobs are too likely (the slowdown then has no mean).
    atoms : array or None
        Every possible value, ascending, if there are finitely many.
    """

    law: ClassVar[str]

    @property
    @abstractmethod
    def second_moment(self) -> float: ...

    @property
    def inverse_mean(self) -> float:
        return math.inf

    @property
    def atoms(self) -> Floats | None:
        return None

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Floats:
        """P(S <= x); shape of x."""

    @abstractmethod
    def work_below(self, x: ArrayLike) -> Floats:
        """E[S; S <= x], the share of the work in jobs up to size x; shape of x."""

    def row(self) -> tuple[float, float, float, Rows]:
        """Three parameters of the sampler and its table."""
        return 0.0, 0.0, 0.0, []

    def to_data(self) -> Any:
        """The name, or a dict with the arguments."""
        return _to_data("law", self.law, self)


@dataclass(frozen=True)
class Exponential(Law):
    """Density e^-x."""

    law = "exponential"

    @property
    def second_moment(self) -> float:
        return 2.0

    def cdf(self, x: ArrayLike) -> Floats:
        return np.asarray(-np.expm1(-np.maximum(x, 0.0)))

    def work_below(self, x: ArrayLike) -> Floats:
        x = np.maximum(x, 0.0)
        return np.asarray(-np.expm1(-x) - x * np.exp(-x))


@dataclass(frozen=True)
class Deterministic(Law):
    """Every size is 1."""

    law = "deterministic"

    @property
    def second_moment(self) -> float:
        return 1.0

    @property
    def inverse_mean(self) -> float:
        return 1.0

    @property
    def atoms(self) -> Floats:
        return np.ones(1)

    def cdf(self, x: ArrayLike) -> Floats:
        return np.where(np.asarray(x, float) >= 1.0, 1.0, 0.0)

    def work_below(self, x: ArrayLike) -> Floats:
        return self.cdf(x)


@dataclass(frozen=True)
class Erlang(Law):
    """The sum of k exponential phases."""

    k: int

    law = "erlang"

    def __post_init__(self) -> None:
        _put(self, "k", integer("k", self.k, most=1_000_000))

    @property
    def second_moment(self) -> float:
        return 1.0 + 1.0 / self.k

    @property
    def inverse_mean(self) -> float:
        return self.k / (self.k - 1) if self.k > 1 else math.inf

    def cdf(self, x: ArrayLike) -> Floats:
        from scipy.special import gammainc

        return np.asarray(gammainc(self.k, self.k * np.maximum(x, 0.0)))

    def work_below(self, x: ArrayLike) -> Floats:
        from scipy.special import gammainc

        return np.asarray(gammainc(self.k + 1, self.k * np.maximum(x, 0.0)))

    def row(self) -> tuple[float, float, float, Rows]:
        return float(self.k), 1.0 / self.k, 0.0, []


@dataclass(frozen=True)
class Hyperexponential(Law):
    """Exponential with one of several means.

    Given by `scv` it has two phases that each carry half the work.
    """

    probabilities: tuple[float, ...] = ()
    means: tuple[float, ...] = ()
    scv: float | None = None

    law = "hyperexponential"

    def __post_init__(self) -> None:
        _put(self, "probabilities", _numbers("probabilities", self.probabilities))
        _put(self, "means", _numbers("means", self.means))
        if self.scv is not None:
            _put(self, "scv", number("scv", self.scv))
            if self.probabilities or self.means:
                raise ValueError("scv: excludes probabilities and means")
            if not 1 < self.scv <= MAX_SCV:
                raise ValueError(
                    f"scv: must be above 1 for hyperexponential and at most {MAX_SCV:g}, "
                    f"got {self.scv:g}"
                )
        elif not self.probabilities or len(self.probabilities) != len(self.means):
            raise ValueError(
                "probabilities and means: must be as many of each, or give scv; got "
                f"{len(self.probabilities)} and {len(self.means)}"
            )

    @cached_property
    def phases(self) -> tuple[Floats, Floats]:
        """Probabilities and means, scaled to sum 1 and mean 1."""
        if self.scv is not None:
            p = 0.5 * (1.0 + math.sqrt((self.scv - 1) / (self.scv + 1)))
            return np.array([p, 1 - p]), np.array([0.5 / p, 0.5 / (1 - p)])
        shares = np.array(self.probabilities) / math.fsum(self.probabilities)
        means = np.array(self.means)
        return shares, means / float(shares @ means)

    @property
    def second_moment(self) -> float:
        p, means = self.phases
        return float(2.0 * p @ means**2)

    def cdf(self, x: ArrayLike) -> Floats:
        p, means = self.phases
        y = np.maximum(np.asarray(x, float), 0.0)[..., None] / means
        return np.asarray(-np.expm1(-y) @ p)

    def work_below(self, x: ArrayLike) -> Floats:
        p, means = self.phases
        y = np.maximum(np.asarray(x, float), 0.0)[..., None] / means
        return np.asarray((-np.expm1(-y) - y * np.exp(-y)) @ (p * means))

    def row(self) -> tuple[float, float, float, Rows]:
        p, means = self.phases
        below = np.cumsum(p)
        below[-1] = 1.0
        return 0.0, 0.0, 0.0, list(zip(below.tolist(), means.tolist(), strict=True))


@dataclass(frozen=True)
class Lognormal(Law):
    """The exponential of a normal variable; `scv` its squared coefficient of variation."""

    scv: float

    law = "lognormal"

    def __post_init__(self) -> None:
        _put(self, "scv", number("scv", self.scv))
        if self.scv > MAX_SCV:
            raise ValueError(f"scv: must be at most {MAX_SCV:g}, got {self.scv:g}")

    @property
    def _sigma(self) -> float:
        return math.sqrt(math.log1p(self.scv))

    @property
    def second_moment(self) -> float:
        return 1.0 + self.scv

    @property
    def inverse_mean(self) -> float:
        return 1.0 + self.scv

    def _standard(self, x: ArrayLike, shift: float) -> Floats:
        from scipy.special import ndtr

        with np.errstate(divide="ignore"):
            logs = np.log(np.maximum(x, 0.0))
        return np.asarray(ndtr(logs / self._sigma + shift * self._sigma))

    def cdf(self, x: ArrayLike) -> Floats:
        return self._standard(x, 0.5)

    def work_below(self, x: ArrayLike) -> Floats:
        return self._standard(x, -0.5)

    def row(self) -> tuple[float, float, float, Rows]:
        return self._sigma, -0.5 * self._sigma**2, 0.0, []


@dataclass(frozen=True)
class Uniform(Law):
    """Uniform between `low` and `high`, scaled to mean 1."""

    low: float = 0.0
    high: float = 2.0

    law = "uniform"

    def __post_init__(self) -> None:
        _put(self, "low", number("low", self.low, zero=True))
        _put(self, "high", number("high", self.high))
        if self.low >= self.high:
            raise ValueError(f"high: must be above low ({self.low:g}), got {self.high:g}")

    @property
    def _ends(self) -> tuple[float, float]:
        middle = 0.5 * (self.low + self.high)
        return self.low / middle, self.high / middle

    @property
    def second_moment(self) -> float:
        low, high = self._ends
        return 1.0 + (high - low) ** 2 / 12

    @property
    def inverse_mean(self) -> float:
        low, high = self._ends
        return math.log(high / low) / (high - low) if low > 0 else math.inf

    def cdf(self, x: ArrayLike) -> Floats:
        low, high = self._ends
        return (np.clip(x, low, high) - low) / (high - low)

    def work_below(self, x: ArrayLike) -> Floats:
        low, high = self._ends
        return (np.clip(x, low, high) ** 2 - low**2) / (2 * (high - low))

    def row(self) -> tuple[float, float, float, Rows]:
        low, high = self._ends
        return low, high - low, 0.0, []


@dataclass(frozen=True)
class BoundedPareto(Law):
    """Density proportional to x^(-alpha - 1) between `low` and `high`, scaled to mean 1."""

    alpha: float
    high: float = math.inf
    low: float = 1.0

    law = "bounded-pareto"

    def __post_init__(self) -> None:
        _put(self, "alpha", number("alpha", self.alpha))
        if not 1 / MAX_ALPHA <= self.alpha <= MAX_ALPHA:
            raise ValueError(
                f"alpha: must be between {1 / MAX_ALPHA:g} and {MAX_ALPHA:g}, got {self.alpha:g}"
            )
        _put(self, "low", number("low", self.low))
        if self.high != math.inf:
            _put(self, "high", number("high", self.high))
        if self.low >= self.high:
            raise ValueError(f"high: must be above low ({self.low:g}), got {self.high:g}")
        if MOST * self.low < self.high < math.inf:
            raise ValueError(
                f"high: must be at most {MOST} times low ({self.low:g}), got {self.high:g}"
            )
        if self.high == math.inf and self.alpha <= 1:
            raise ValueError(
                f"alpha: must be above 1 without a high, else the mean size is infinite, "
                f"got {self.alpha:g}"
            )

    def _moment(self, n: float, x: ArrayLike = math.inf) -> Floats:
        """E[X^n; X <= x] before scaling."""
        a, low = self.alpha, self.low  # in units of low no power leaves the range of floats
        logs = np.log(np.clip(x, low, self.high) / low)
        front = low**n * a / -math.expm1(-a * math.log(self.high / low))
        return np.asarray(front * (logs if n == a else np.expm1((n - a) * logs) / (n - a)))

    @cached_property
    def _raw_mean(self) -> float:
        return float(self._moment(1))

    @property
    def second_moment(self) -> float:
        if self.high == math.inf and self.alpha <= 2:
            return math.inf
        return float(self._moment(2)) / self._raw_mean**2

    @property
    def inverse_mean(self) -> float:
        return float(self._moment(-1)) * self._raw_mean

    def cdf(self, x: ArrayLike) -> Floats:
        return self._moment(0, np.asarray(x, float) * self._raw_mean)

    def work_below(self, x: ArrayLike) -> Floats:
        return self._moment(1, np.asarray(x, float) * self._raw_mean) / self._raw_mean

    def row(self) -> tuple[float, float, float, Rows]:
        beyond = 0.0 if self.high == math.inf else (self.low / self.high) ** self.alpha
        return self.low / self._raw_mean, 1.0 - beyond, -1.0 / self.alpha, []


@dataclass(frozen=True)
class Empirical(Law):
    """Each of the `values`, or of the numbers in a `file`, is equally likely."""

    values: tuple[float, ...] = ()
    file: str | None = None

    law = "empirical"

    def __post_init__(self) -> None:
        if (self.file is None) == (not _has(self.values)):
            raise ValueError("values or file: give one of them")
        if self.file is None:
            values = _numbers("values", self.values, zero=True)
            _put(self, "values", values)
        else:
            _put(self, "file", _path("file", self.file))
        field = "values" if self.file is None else f"file: {self.file}"
        positive = self.scaled[self.scaled > 0]
        if len(positive) == 0:
            raise ValueError(f"{field}: must have a mean above 0")
        if positive.min() < LEAST:
            raise ValueError(f"{field}: must be 0 or at least {LEAST} times the mean")

    @cached_property
    def scaled(self) -> Floats:
        """The values over their mean, in their order."""
        raw = np.array(self.values) if self.file is None else read_numbers(Path(self.file))
        mean = float(raw.mean())
        return raw / mean if mean > 0 else np.zeros(len(raw))

    @property
    def second_moment(self) -> float:
        return float((self.scaled**2).mean())

    @property
    def inverse_mean(self) -> float:
        return float((1.0 / self.scaled).mean()) if self.scaled.all() else math.inf

    @cached_property
    def _sorted(self) -> tuple[Floats, Floats]:
        """Values in order, and the work of all up to each, from 0."""
        values = np.sort(self.scaled)
        return values, np.concatenate([[0.0], np.cumsum(values)]) / values.sum()

    @property
    def atoms(self) -> Floats:
        return np.unique(self.scaled)

    def cdf(self, x: ArrayLike) -> Floats:
        values, _ = self._sorted
        return np.asarray(np.searchsorted(values, x, side="right") / len(values))

    def work_below(self, x: ArrayLike) -> Floats:
        values, work = self._sorted
        return np.asarray(work[np.searchsorted(values, x, side="right")])

    def row(self) -> tuple[float, float, float, Rows]:
        return 0.0, 0.0, 0.0, [(x, 0.0) for x in self.scaled.tolist()]


LAWS: dict[str, type[Law]] = {
    kind.law: kind
    for kind in (
        Exponential,
        Deterministic,
        Erlang,
        Hyperexponential,
        Lognormal,
        Uniform,
        BoundedPareto,
        Empirical,
    )
}


# --- batches --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Batch:
    """How many jobs arrive at once: `given` is a number, weights of 1, 2, ..., or the mean of a
    geometric law on 1, 2, ... (then `geometric`)."""

    given: int | tuple[float, ...] | float = 1
    geometric: bool = False

    @classmethod
    def of(cls, value: Any) -> Batch:
        """From data."""
        if isinstance(value, Batch):
            return value
        if isinstance(value, Mapping):
            if set(value) != {"geometric"}:
                raise ValueError(
                    f"batch: as a dict must be {{'geometric': mean}}, got {quoted(value)}"
                )
            mean = number("batch.geometric", value["geometric"])
            if not 1 <= mean <= MAX_BATCH:
                raise ValueError(
                    f"batch.geometric: must be a mean from 1 to {MAX_BATCH:,}, got {mean:g}"
                )
            return cls(mean, True)
        if listed(value) is not None:
            weights = _numbers("batch", value, zero=True)
            if not any(weights):
                raise ValueError("batch: at least one weight must be positive")
            return cls(weights)
        return cls(integer("batch", value, most=MAX_BATCH))

    def to_data(self) -> Any:
        """As `of` takes it."""
        if self.geometric:
            return {"geometric": self.given}
        return list(self.given) if isinstance(self.given, tuple) else self.given

    @property
    def _law(self) -> tuple[Floats, Floats]:
        """Numbers and their probabilities, unless geometric."""
        if isinstance(self.given, tuple):
            p = np.array(self.given) / math.fsum(self.given)
            return np.arange(1.0, len(p) + 1), p
        return np.array([float(self.given)]), np.ones(1)

    @property
    def mean(self) -> float:
        """Mean number of jobs."""
        if self.geometric:
            return float(self.given)  # type: ignore[arg-type]
        jobs, p = self._law
        return float(jobs @ p)

    @property
    def fixed(self) -> int:
        """The number of jobs if it is always the same, else 0."""
        return self.given if isinstance(self.given, int) and not self.geometric else 0

    @property
    def below(self) -> list[float]:
        """P(at most 1), P(at most 2), ... of weights; else empty."""
        if not isinstance(self.given, tuple):
            return []
        found = np.cumsum(self._law[1])
        found[-1] = 1.0
        return [float(x) for x in found]


# --- arrival processes ----------------------------------------------------------------------------
@dataclass(frozen=True)
class Process:
    """How jobs arrive; the mean rate is the system's. `batch`: how many at once."""

    batch: Any = dataclasses.field(default=Batch(), kw_only=True)

    process: ClassVar[str]

    def __post_init__(self) -> None:
        _put(self, "batch", Batch.of(self.batch))

    @property
    def changes(self) -> float:
        """How often the phase of the rate changes per unit time, each change simulated."""
        return 0.0

    def to_data(self) -> Any:
        """The name, or a dict with the arguments."""
        return _to_data("process", self.process, self)


@dataclass(frozen=True)
class Poisson(Process):
    """Exponential gaps."""

    process = "poisson"


@dataclass(frozen=True)
class Renewal(Process):
    """Independent gaps of a law."""

    law: Any

    process = "renewal"

    def __post_init__(self) -> None:
        super().__post_init__()
        _put(self, "law", as_law(self.law, "law"))


@dataclass(frozen=True)
class MMPP(Process):
    """Poisson at a rate that depends on the phase of a Markov chain."""

    rates: tuple[float, ...]
    generator: tuple[tuple[float, ...], ...]

    process = "mmpp"

    def __post_init__(self) -> None:
        super().__post_init__()
        _put(self, "rates", _numbers("rates", self.rates, zero=True))
        _put(self, "generator", _generator(self.generator, len(self.rates)))
        if self.mean_rate <= 0:
            raise ValueError("rates: must have a mean above 0")

    @cached_property
    def stationary(self) -> Floats:
        """Long-run law of the phase; shape (phases,)."""
        return _stationary(np.array(self.generator))

    @property
    def mean_rate(self) -> float:
        """Long-run mean of `rates`."""
        return float(self.stationary @ np.array(self.rates))

    @property
    def changes(self) -> float:
        return float(-self.stationary @ np.diagonal(self.generator))


@dataclass(frozen=True)
class Piecewise(Process):
    """Poisson at rates that change at given times, again and again."""

    breakpoints: tuple[float, ...]
    rates: tuple[float, ...]
    period: float

    process = "piecewise"

    def __post_init__(self) -> None:
        super().__post_init__()
        _put(self, "breakpoints", _numbers("breakpoints", self.breakpoints, zero=True))
        _put(self, "rates", _numbers("rates", self.rates, zero=True))
        _put(self, "period", number("period", self.period))
        edges = [*self.breakpoints, self.period]
        if edges[0] != 0 or any(b <= a for a, b in itertools.pairwise(edges)):
            raise ValueError(
                "breakpoints: must begin with 0, rise, and stay below the period "
                f"({self.period:g}), got {list(self.breakpoints)}"
            )
        if len(self.rates) != len(self.breakpoints):
            raise ValueError(
                f"rates: must be one for each of the {len(self.breakpoints)} breakpoints, "
                f"got {len(self.rates)}"
            )
        if self.mean_rate <= 0:
            raise ValueError("rates: must have a mean above 0")

    @property
    def mean_rate(self) -> float:
        """Mean of `rates` over a period."""
        lengths = np.diff([*self.breakpoints, self.period])
        return float(lengths @ np.array(self.rates)) / self.period

    @property
    def changes(self) -> float:
        return len(self.rates) / self.period


@dataclass(frozen=True)
class Sinusoidal(Process):
    """Poisson at a rate that swings about its mean."""

    amplitude: float
    period: float
    phase: float = 0.0

    process = "sinusoidal"

    def __post_init__(self) -> None:
        super().__post_init__()
        _put(self, "amplitude", number("amplitude", self.amplitude, zero=True))
        _put(self, "period", number("period", self.period))
        _put(self, "phase", signed("phase", self.phase))
        if self.amplitude > 1:
            raise ValueError(
                f"amplitude: must be at most 1, else rates are negative, got {self.amplitude:g}"
            )


@dataclass(frozen=True)
class Trace(Process):
    """Jobs as they were recorded: arrays, or a CSV or SWF file (see `lbgym.traces`).

    times : never decreasing, in any unit
    sizes : optional, in any unit; `classes`, `routers` : optional numbers from 0 on
    file : path of ``.csv``, ``.swf``, ``.csv.gz`` or ``.swf.gz``
    work : of an SWF file: a job's size is its "run-time", or its "area" (run time x processors)
    """

    times: tuple[float, ...] = ()
    sizes: tuple[float, ...] | None = None
    classes: tuple[int, ...] | None = None
    routers: tuple[int, ...] | None = None
    file: str | None = None
    work: str = "run-time"

    process = "trace"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch != Batch():
            raise ValueError("batch: a trace says itself when jobs come; leave it out")
        _put(self, "work", one_of("work", self.work, ("run-time", "area")))
        if (self.file is None) == (not _has(self.times)):
            raise ValueError("times or file: give one of them")
        if self.work != "run-time" and ".swf" not in str(self.file).lower():
            raise ValueError(f"work: is for a file of SWF; leave it out, got {self.work!r}")
        if self.file is not None:
            if not (self.sizes is None and self.classes is None and self.routers is None):
                raise ValueError("file: excludes sizes, classes and routers")
            _put(self, "file", _path("file", self.file))
        else:
            self._check_arrays()
        self.data  # noqa: B018  reads the file, so that a wrong one is refused now

    def _check_arrays(self) -> None:
        _put(self, "times", _numbers("times", self.times, any_sign=True))
        if self.sizes is not None:
            _put(self, "sizes", _numbers("sizes", self.sizes, zero=True))
        for field in ("classes", "routers"):
            if getattr(self, field) is not None:
                _put(self, field, _counts(field, getattr(self, field)))

    @cached_property
    def data(self) -> TraceData:
        """The jobs as arrays."""
        if self.file is not None:
            return read_trace(Path(self.file), self.work)
        return checked_trace(self.times, self.sizes, self.classes, self.routers)

    @cached_property
    def size_law(self) -> Empirical | None:
        """Law of the recorded sizes."""
        sizes = self.data.sizes
        return None if sizes is None else Empirical(tuple(sizes.tolist()))


PROCESSES: dict[str, type[Process]] = {
    kind.process: kind for kind in (Poisson, Renewal, MMPP, Piecewise, Sinusoidal, Trace)
}


# --- from data ------------------------------------------------------------------------------------
def as_law(value: Any, field: str = "size") -> Law:
    """A law from its name, its dict or itself; ValueError that names the field."""
    if isinstance(value, Law):
        return value
    return _parse(field, "law", LAWS, value)


def as_process(value: Any, field: str = "arrivals") -> Process:
    """An arrival process from its name, its dict or itself; ValueError that names the field."""
    if isinstance(value, Process):
        return value
    return _parse(field, "process", PROCESSES, value)


Made = TypeVar("Made", Law, Process)


def _parse(field: str, key: str, kinds: Mapping[str, type[Made]], value: Any) -> Made:
    given = {key: value} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or key not in given:
        raise ValueError(f"{field}: must be a name or a dict with {key!r}, got {quoted(value)}")
    arguments = dict(given)
    word = arguments.pop(key)
    nested: Any = None
    if key == "process" and word == "renewal":  # its law may be a name or a dict
        nested = arguments.pop("law", None)
    if not isinstance(word, str) or word not in kinds:
        raise ValueError(f"{field}: {unknown(key, word, kinds)}")
    kind = kinds[word]
    known: dict[str, Any] = {f.name: f for f in dataclasses.fields(kind)}
    for name in arguments:
        if name not in known:
            raise ValueError(f"{field}: {unknown('argument', name, (key, *known))}")
    if nested is not None:
        arguments["law"] = nested
    for name, one in known.items():
        if one.default is MISSING and name not in arguments:
            raise ValueError(f"{field}.{name}: required for {word}")
    try:
        return kind(**arguments)
    except ValueError as error:
        raise ValueError(f"{field}.{error}") from None


def _to_data(key: str, word: str, made: Any) -> Any:
    arguments = {}
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if value != field.default:
            plain = value.to_data() if hasattr(value, "to_data") else value
            arguments[field.name] = _lists(plain)
    return {key: word, **arguments} if arguments else word


def _lists(value: Any) -> Any:
    """Tuples as lists, all the way down."""
    return [_lists(x) for x in value] if isinstance(value, tuple) else value


# --- checks ---------------------------------------------------------------------------------------
def _put(made: Any, field: str, value: Any) -> None:
    object.__setattr__(made, field, value)


def _has(value: Any) -> bool:
    """Whether anything was given: an empty list was, as its check will say."""
    return not (isinstance(value, tuple) and value == ())


def _path(field: str, value: Any) -> str:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError(f"{field}: must be a path, got {quoted(value)}")
    return str(value)


def _numbers(
    field: str, value: Any, *, zero: bool = False, any_sign: bool = False
) -> tuple[float, ...]:
    """A tuple of numbers > 0 (zero: >= 0; any_sign: any)."""
    items = listed(value)
    if items is None or (not items and value != ()):
        raise ValueError(f"{field}: must be a list of numbers, got {quoted(value)}")
    if any_sign:
        return tuple(signed(f"{field}[{k}]", x) for k, x in enumerate(items))
    return tuple(number(f"{field}[{k}]", x, zero=zero) for k, x in enumerate(items))


def _counts(field: str, value: Any) -> tuple[int, ...]:
    """A tuple of whole numbers from 0 on."""
    items = listed(value)
    if items is None:
        raise ValueError(f"{field}: must be a list of whole numbers, got {quoted(value)}")
    for k, x in enumerate(items):
        whole = isinstance(x, int | np.integer) and not isinstance(x, bool)
        if not whole or not 0 <= x <= MAX_COUNT:
            raise ValueError(
                f"{field}[{k}]: must be a whole number from 0 to {MAX_COUNT:,}, got {quoted(x)}"
            )
    return tuple(map(int, items))


def _generator(value: Any, phases: int) -> tuple[tuple[float, ...], ...]:
    """Check the matrix of a Markov chain in continuous time with one closed class."""
    rows = listed(value)
    if rows is None or len(rows) != phases:
        raise ValueError(f"generator: must be a {phases} x {phases} matrix, got {quoted(value)}")
    matrix = tuple(_numbers(f"generator[{k}]", row, any_sign=True) for k, row in enumerate(rows))
    for k, row in enumerate(matrix):
        if len(row) != phases:
            raise ValueError(f"generator[{k}]: must have {phases} numbers, got {len(row)}")
        for j, x in enumerate(row):
            if j != k and x < 0:
                raise ValueError(f"generator[{k}][{j}]: must be a rate >= 0, got {x:g}")
        if abs(math.fsum(row)) > _ROW_SUM * max(map(abs, row)):
            raise ValueError(
                f"generator[{k}]: is no row of a generator, it must sum to 0, "
                f"sums to {math.fsum(row):g}"
            )
    if phases > 1 and np.linalg.matrix_rank(_per_move(np.array(matrix))[0]) < phases - 1:
        raise ValueError("generator: phases must reach each other, else there is no mean rate")
    return matrix


def _per_move(generator: Floats) -> tuple[Floats, Floats]:
    """The matrix with each row divided by its rate of leaving, and these rates: phases of very
    unequal lengths are then alike."""
    leaving = -np.diagonal(generator).copy()
    leaving[leaving == 0] = 1.0
    return generator / leaving[:, None], leaving


def _stationary(generator: Floats) -> Floats:
    """The law p with p Q = 0."""
    phases = len(generator)
    moves, leaving = _per_move(generator)
    equations = np.vstack([moves.T, np.ones(phases)])
    right = np.zeros(phases + 1)
    right[-1] = 1.0
    p = np.maximum(np.linalg.lstsq(equations, right, rcond=None)[0], 0.0) / leaving
    return np.asarray(p / p.sum())
