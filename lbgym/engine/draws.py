"""Random sizes, gaps and arrival epochs (the laws as data: `lbgym.laws`).

Sizes come from the service stream, everything about arrivals from the arrival stream, one job after
another: policies that start from one seed see the same jobs, whatever they do with them.
"""

import math

from .access import batch_below, inner, jump, law_of, law_value, phase_of, special, trace_of
from .layout import (
    ARRIVALS,
    DETERMINISTIC,
    ERLANG,
    EXPONENTIAL,
    GAPS,
    HYPEREXPONENTIAL,
    LOGNORMAL,
    MMPP,
    PARETO,
    PIECEWISE,
    RENEWAL,
    SINUSOIDAL,
    TRACE,
    UNIFORM,
)
from .random import below, exponential, uniform

_TURN = 2.0 * math.pi


@inner
def _phases(w, s, count, scale):
    """Sum of exponential phases, scaled (Erlang)."""
    total = 0.0
    for _ in range(count):
        total += exponential(w, s)
    return total * scale


@inner
def _one_phase(w, s, law):
    """Exponential with one of several means (hyperexponential)."""
    u = uniform(w, s)
    k = law.begin
    while u >= law_value(w, k).x:
        k += 1
    return exponential(w, s) * law_value(w, k).y


@inner
def _normal(w, s):
    """Standard normal (Box and Muller)."""
    radius = math.sqrt(2.0 * exponential(w, s))
    return radius * math.cos(_TURN * uniform(w, s))


@special("drawn", 0.0)
def draw(w, k, s):
    """A variate of mean 1 by row k of `laws`, from stream s."""
    law = law_of(w, k)
    code = law.code
    if code == EXPONENTIAL:
        return exponential(w, s)
    if code == DETERMINISTIC:
        return 1.0
    if code == ERLANG:
        return _phases(w, s, int(law.a), law.b)
    if code == HYPEREXPONENTIAL:
        return _one_phase(w, s, law)
    if code == LOGNORMAL:
        return math.exp(law.b + law.a * _normal(w, s))
    if code == UNIFORM:
        return law.a + law.b * uniform(w, s)
    if code == PARETO:
        return law.a * (1.0 - uniform(w, s) * law.b) ** law.c
    return law_value(w, law.begin + below(w, s, law.count)).x


# --- arrivals -----------------------------------------------------------------------------------
@inner
def _choose_phase(w, row, u):
    """The phase that u falls on in a row of `jumps`."""
    k = 0
    while k < w.n_phases - 1 and u >= jump(w, row * w.n_phases + k).below:
        k += 1
    return k


@inner
def _modulated(w):
    """Next epoch of a Markov-modulated Poisson process."""
    t = w.epoch
    while True:
        this = phase_of(w, w.phase)
        total = this.rate + this.leave
        t += exponential(w, ARRIVALS) / total
        x = uniform(w, ARRIVALS) * total
        if x < this.rate:
            return t
        w.phase = _choose_phase(w, w.phase, (x - this.rate) / this.leave)


@inner
def _piecewise(w):
    """Next epoch at rates that change at given times: a unit of hazard is used up."""
    t = w.epoch
    hazard = exponential(w, ARRIVALS)
    while True:
        this = phase_of(w, w.phase)
        end = w.cycle * w.period + this.until
        whole = (end - t) * this.rate
        if hazard < whole:
            return t + hazard / this.rate
        hazard -= whole
        t = end
        w.phase += 1
        if w.phase == w.n_phases:
            w.phase = 0
            w.cycle += 1


@inner
def _sinusoidal(w):
    """Next epoch at a rate that swings, by thinning."""
    t = w.epoch
    most = 1.0 + w.amplitude
    while True:
        t += exponential(w, ARRIVALS) * w.arrival_gap / most
        rate = 1.0 + w.amplitude * math.sin(_TURN * (t / w.period) + w.angle)
        if uniform(w, ARRIVALS) * most < rate:
            return t


@inner
def _recorded(w):
    """Time of the trace's next job, which becomes `w.phase`; after the last the first again."""
    w.phase += 1
    if w.phase == w.n_trace:
        w.phase = 0
        w.cycle += 1
    return w.cycle * w.period + trace_of(w, w.phase).time


@inner
def _next_epoch(w):
    """When jobs arrive next, in continuous time."""
    code = w.process
    if code == RENEWAL:
        return w.epoch + draw(w, GAPS, ARRIVALS) * w.arrival_gap
    if code == MMPP:
        return _modulated(w)
    if code == PIECEWISE:
        return _piecewise(w)
    if code == SINUSOIDAL:
        return _sinusoidal(w)
    if code == TRACE:
        return _recorded(w)
    return w.epoch + exponential(w, ARRIVALS) * w.arrival_gap


@inner
def _batch(w):
    """How many jobs arrive at once."""
    if w.batch_fixed > 0:
        return w.batch_fixed
    u = uniform(w, ARRIVALS)
    if w.batch_log < 0.0:
        return 1 + int(math.log(1.0 - u) / w.batch_log)
    k = 0
    while k < w.n_batches - 1 and u >= batch_below(w, k).p:
        k += 1
    return k + 1


@special("plain_arrivals")
def schedule_arrival(w):
    """When the next job arrives: at once if it belongs to the batch, else at the next epoch."""
    if w.batch_left > 0:
        w.batch_left -= 1
        return
    w.epoch = _next_epoch(w)
    w.batch_left = _batch(w) - 1
    w.next_arrival = float(math.floor(w.epoch)) if w.slotted else w.epoch


@special("plain_arrivals")
def begin_arrivals(w):
    """The first arrival."""
    if w.process == MMPP:
        w.phase = _choose_phase(w, w.n_phases, uniform(w, ARRIVALS))
    elif w.process == TRACE:
        w.phase = -1
    schedule_arrival(w)
