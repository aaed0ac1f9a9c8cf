"""`lower_bound`: no policy whatsoever can cost less."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbgym.checks import charges
from lbgym.kinds import by_kind
from lbgym.system import System

from .chain import Floats
from .closed_form import birth_death

_NEGLIGIBLE = 1e-18  # relative weight of the states left out
_MOST_STATES = 20_000  # of a decision process on the numbers of jobs by class


@dataclass(frozen=True)
class LowerBound:
    """A bound from below on what any policy attains.

    cost : per arrival, as in `Result`
    jobs_in_system : mean number; None where limits let a policy lose jobs instead
    rejects_from : the number in system from which the bounding chain turns jobs away; None: never
    """

    cost: float
    jobs_in_system: float | None
    rejects_from: int | None


def pooled_rate(system: System) -> Floats:
    """Most jobs per unit time that N jobs can be served at, N = 0 .. sum of slots.

    Each of the min(N, slots) fastest slots works on one job.
    """
    slots = np.repeat(
        [p.speed / system.mean_size for p in system.pools],
        [p.servers * p.slots for p in system.pools],
    )
    return np.concatenate([[0.0], np.cumsum(np.sort(slots)[::-1])])


@by_kind
def lower_bound(system: Any, loss_charge: float | None = None) -> LowerBound:
    """What no policy can do better than, whatever it knows and however often jobs move.

    *Chain.* Let N jobs be served at rate D(N) = the sum of the min(N, slots) fastest slots' speeds,
    as if jobs could be shared out anew at every moment, and let any arrival be turned away at the
    loss charge c, or not. The best admission rule costs g(m) = (E_m N + c lambda P_m(N = m)) /
    lambda for some m, where P_m is the birth-death chain with births lambda below m and deaths
    D(N); the bound is the minimum over m up to the sum of the limits.

    *Proof.* With g and h the mean cost and the relative values of that best rule, g <= N +
    (lambda - a) c + a (h(N+1) - h(N)) - d (h(N) - h(N-1)) for every 0 <= a <= lambda and 0 <= d <=
    D(N): for d = D(N) that is its optimality equation, and h is nondecreasing (one job more never
    costs less: it can be carried along and ignored), so smaller d only adds. In the true system, in
    any state with N jobs, jobs are admitted at some rate a <= lambda, depart at a rate d <= D(N),
    and no more than the sum of the limits fit. The expected change of h(N(t)) is therefore at least
    g minus the true cost rate; h is bounded by a quadratic, so in the long run (over which N is
    stable, or the cost infinite) the mean cost is at least g. Moves only add to it.

    Without limits a job is never lost and m is infinite: MODELS section 9, E[N] 2.399 for speeds
    (1, 10) at load .7. Known for jobs at servers only.

    *Units.* Where servers have units only lost weight costs, and a job of class k takes its time at
    rate mu_k wherever it is. So the numbers n_k of jobs by class go up by admitted arrivals and
    down at rates n_k mu_k, and keep to sum A_k n_k <= C (all units) and to n_k <= N_k (the jobs of
    class k that fit, server by server). The bound is the least loss of any admission rule within
    these constraints, a decision process on n alone: every policy of the true system is such a
    rule, and perhaps one more. Beyond 20,000 states only the means are kept to the constraints:
    by Little's law the rate of admission a_k <= lambda_k has mean n_k = a_k / mu_k, and the least
    lost weight is that of the linear programme sum A_k a_k / mu_k <= C, a_k / mu_k <= N_k.

    Cost: O(m) for each m: instantly to 10^5 slots; with units a second at 2,000 states.

    Raises
    ------
    ValueError
        Without limits at load 1 or more; for a closed system, in which no job arrives.
    """
    system.require_memoryless("lower_bound")
    if system.closed_jobs is not None:
        raise ValueError(
            "lower_bound: no job arrives in a closed system, so there is no cost per arrival; "
            "exact knows its balancing time"
        )
    charge, _ = charges(system, loss_charge, 0.0)
    arrivals = system.arrival_rate
    if system.has_units:
        return LowerBound(charge * _least_loss(system) / arrivals, None, None)
    if np.isinf(system.limits).all():
        if system.load >= 1:
            raise ValueError(f"lower_bound: needs a load below 1 or limits, got {system.load:g}")
        jobs = _jobs_without_limit(system)
        return LowerBound(jobs / arrivals, jobs, None)
    best, first = min(_costs(system, charge))
    room = system.limits.sum()
    return LowerBound(best / arrivals, None, None if first >= room else first)


def _jobs_without_limit(system: System) -> float:
    """Mean number with fastest-first service: the chain, then its geometric tail in closed form."""
    deaths = pooled_rate(system)[1:]
    law = birth_death(np.full(len(deaths), system.arrival_rate), deaths)
    ratio = system.arrival_rate / float(deaths[-1])
    last = len(deaths)
    head, top = float(law @ np.arange(last + 1)), float(law[-1])
    beyond = top * ratio / (1 - ratio)
    return (head + beyond * last + beyond / (1 - ratio)) / (1 + beyond)


def _costs(system: System, charge: float) -> Iterator[tuple[float, int]]:
    """(cost per unit time, m) of turning jobs away from m on, m up to the sum of the limits.

    Beyond where the chain practically never comes, or holding alone costs more than losing
    everything, larger m cannot be better.
    """
    deaths = pooled_rate(system)
    room = system.limits.sum()
    arrivals = system.arrival_rate
    # Sums relative to the weight of the present m: weight(m) = 1.
    total, jobs = 1.0, 0.0
    yield charge * arrivals, 0
    m = 0
    best = charge * arrivals
    while m < room:
        m += 1
        down = float(deaths[min(m, len(deaths) - 1)]) / arrivals
        total, jobs = total * down + 1.0, jobs * down + m
        cost = (jobs + charge * arrivals) / total
        yield cost, m
        best = min(best, cost)
        if total > 1 / _NEGLIGIBLE or jobs / total > 2 * best:
            break


# --- units ----------------------------------------------------------------------------------------
def _least_loss(system: System) -> float:
    """Weight lost per unit time at the least, see `lower_bound`."""
    from .loss import Classes  # which needs the compiled policies

    classes = Classes.of(system)
    each = np.array([p.units for p in system.pools])
    servers = np.array([p.servers for p in system.pools])
    most = (servers[:, None] * (each[:, None] // classes.units)).sum(axis=0)
    units = int(servers @ each)
    if math.prod((most + 1).tolist()) <= _MOST_STATES:
        return _least_loss_by_states(classes, units, most)
    return _least_loss_of_means(classes, units, most)


def _least_loss_by_states(classes: Any, units: int, most: Any) -> float:
    """By a decision process on the numbers of jobs by class: each arrival is admitted or not."""
    from scipy.sparse import coo_array

    from .control import Control, least_cost

    shape = tuple((most + 1).tolist())
    grid = np.indices(shape).reshape(len(shape), -1).T
    jobs = grid[grid @ classes.units <= units]
    m, row_of = len(jobs), np.full(shape, -1)
    row_of[tuple(jobs.T)] = np.arange(m)

    def steps(k: int, by: int, rate: Floats) -> Any:
        """Rates of one job of a class more or fewer, where there is such a state."""
        there = jobs + by * (np.arange(len(shape)) == k)
        inside = np.flatnonzero((there[:, k] >= 0) & (there[:, k] < shape[k]))
        target = row_of[tuple(there[inside].T)]
        rows, target = inside[target >= 0], target[target >= 0]
        return coo_array((rate[rows], (rows, target)), shape=(m, m)).tocsr()

    controls = []
    for k, arrivals in enumerate(classes.arrivals):
        admitted = steps(k, +1, np.full(m, arrivals))
        fits = np.asarray(admitted.sum(axis=1)).ravel() > 0
        lost = np.full(m, arrivals * classes.weights[k])
        controls.append(
            Control(
                [admitted, coo_array((m, m)).tocsr()],
                np.stack([np.where(fits, 0.0, lost), lost]),
                np.stack([fits | (arrivals == 0), np.ones(m, dtype=bool)]),
            )
        )
    departures = sum(steps(k, -1, jobs[:, k] * mu) for k, mu in enumerate(classes.served))
    answer = least_cost(departures, np.zeros(m), controls)
    return max(answer.cost - answer.error, 0.0)


def _least_loss_of_means(classes: Any, units: int, most: Any) -> float:
    """By the linear programme of mean numbers: the classes that pay most for a unit come first."""
    lost, left = 0.0, float(units)
    pays = classes.weights * classes.served / classes.units
    for k in np.argsort(-pays):
        jobs = min(classes.arrivals[k] / classes.served[k], float(most[k]), left / classes.units[k])
        left -= jobs * classes.units[k]
        lost += classes.weights[k] * (classes.arrivals[k] - jobs * classes.served[k])
    return max(float(lost), 0.0)
