"""Formulas: one queue, one limit, one split. Plain floats in and out, no system needed.

Every function takes rates (`arrival_rate`, `speed` of a server for jobs of mean size 1) and gives
a `Queue` or an array. Notation: a = arrival_rate / speed, rho the load. Time and memory are those
of the formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

__all__ = [
    "Queue",
    "best_split",
    "birth_death",
    "bounded_queue",
    "erlang_b",
    "erlang_c",
    "mg1",
    "mg1_ps",
    "mg1_ps_response",
    "mm1",
    "mm1k",
    "mmc",
    "mmsk",
    "pull_busy",
    "split",
    "supermarket",
    "unequal_routers",
]


@dataclass(frozen=True)
class Queue:
    """What is known of one queue; names as in `simulate`'s Result.

    waiting_time : mean time of an accepted job before its service starts (FCFS)
    """

    jobs_in_system: float
    response_time: float
    waiting_time: float
    waiting_probability: float
    blocking_probability: float = 0.0


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name}: must be a finite number > 0, got {value!r}")


def _whole(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: must be a whole number >= {least}, got {value!r}")


def _stable(load: float) -> None:
    if load >= 1:
        raise ValueError(f"load: must be below 1 for a queue without a limit, got {load:g}")


# --- one queue ------------------------------------------------------------------------------------
def birth_death(births: Sequence[float] | Floats, deaths: Sequence[float] | Floats) -> Floats:
    """Stationary law of a birth-death chain on 0 .. m: births[k] from k, deaths[k] from k + 1."""
    with np.errstate(divide="ignore"):
        steps = np.log(np.asarray(births, float)) - np.log(np.asarray(deaths, float))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def mm1(arrival_rate: float, speed: float = 1.0) -> Queue:
    """M/M/1: N = rho / (1 - rho)."""
    return mmc(arrival_rate, 1, speed)


def mmc(arrival_rate: float, servers: int, speed: float = 1.0) -> Queue:
    """M/M/c: Erlang's delay formula (Erlang 1917)."""
    _positive(arrival_rate=arrival_rate, speed=speed)
    waits = erlang_c(servers, arrival_rate / speed)
    waiting = waits / (servers * speed - arrival_rate)
    response = waiting + 1 / speed
    return Queue(arrival_rate * response, response, waiting, waits)


def bounded_queue(arrival_rate: float, slots: int, limit: int, speed: float = 1.0) -> Floats:
    """Law of the number of jobs in M/M/s/K: shape (limit + 1,)."""
    _positive(arrival_rate=arrival_rate, speed=speed)
    _whole("slots", slots, 1)
    _whole("limit", limit, slots)
    served = speed * np.minimum(np.arange(1, limit + 1), slots)
    return birth_death(np.full(limit, float(arrival_rate)), served)


def mmsk(arrival_rate: float, slots: int, limit: int, speed: float = 1.0) -> Queue:
    """M/M/s/K: at most `limit` jobs, those in service included."""
    law = bounded_queue(arrival_rate, slots, limit, speed)
    accepted = arrival_rate * (1 - law[-1])
    jobs = float(law @ np.arange(limit + 1))
    response = jobs / accepted
    waits = float(law[slots:-1].sum() / (1 - law[-1]))
    return Queue(jobs, response, response - 1 / speed, waits, float(law[-1]))


def mm1k(arrival_rate: float, limit: int, speed: float = 1.0) -> Queue:
    """M/M/1/K."""
    return mmsk(arrival_rate, 1, limit, speed)


def erlang_b(servers: int, offered: float) -> float:
    """Erlang's loss formula: the fraction of calls lost; offered = arrival rate / service rate.

    B(0) = 1, B(c) = a B(c-1) / (c + a B(c-1)); Erlang 1917. Insensitive to the law of sizes.
    """
    _whole("servers", servers, 0)
    _positive(offered=offered)
    lost = 1.0
    for c in range(1, servers + 1):
        lost = offered * lost / (c + offered * lost)
    return lost


def erlang_c(servers: int, offered: float) -> float:
    """Erlang's delay formula: the fraction of jobs that wait in M/M/c."""
    _whole("servers", servers, 1)
    _stable(offered / servers)
    lost = erlang_b(servers, offered)
    return lost / (1 - offered / servers * (1 - lost))


def mg1(arrival_rate: float, mean_service: float, scv: float) -> Queue:
    """M/G/1 FCFS, by Pollaczek and Khinchine (1930); scv = variance / mean^2 of the service times.

    Waiting time = rho (1 + scv) mean / (2 (1 - rho)).
    """
    _positive(arrival_rate=arrival_rate, mean_service=mean_service)
    if not 0 <= scv < math.inf:
        raise ValueError(f"scv: must be a finite number >= 0, got {scv!r}")
    load = arrival_rate * mean_service
    _stable(load)
    waiting = load * (1 + scv) * mean_service / (2 * (1 - load))
    response = waiting + mean_service
    return Queue(arrival_rate * response, response, waiting, load)


def mg1_ps(arrival_rate: float, mean_service: float) -> Queue:
    """M/G/1 processor sharing: the numbers of M/M/1, whatever the law (Sakata et al. 1971).

    A job "waits" if it finds the server busy; nobody waits to begin: waiting_time is what sharing
    adds to the service time.
    """
    return mm1(arrival_rate, 1 / mean_service)


def mg1_ps_response(size: float, load: float) -> float:
    """Mean response time under PS of a job that takes `size` alone: size / (1 - rho)."""
    _stable(load)
    return size / (1 - load)


# --- many servers ---------------------------------------------------------------------------------
def split(arrival_rate: float, speeds: Sequence[float], shares: Sequence[float]) -> list[Queue]:
    """Parallel M/M/1 queues fed by a Bernoulli split: one Queue a server with arrivals."""
    if len(shares) != len(speeds):
        raise ValueError(f"shares: needs one for each of {len(speeds)} speeds, got {len(shares)}")
    total = math.fsum(shares)
    parts = [arrival_rate * p / total for p in shares]
    return [mm1(rate, mu) for rate, mu in zip(parts, speeds, strict=True) if rate > 0]


def best_split(arrival_rate: float, speeds: Sequence[float]) -> list[float]:
    """The shares of a Bernoulli split over M/M/1 queues that minimise the mean number of jobs.

    lambda_i = (mu_i - x sqrt(mu_i))^+, x such that they sum to the arrival rate (Bell and Stidham
    1983; a Lagrange multiplier): the fastest servers take all until the next pays.
    """
    _positive(arrival_rate=arrival_rate, **{f"speeds[{k}]": mu for k, mu in enumerate(speeds)})
    _stable(arrival_rate / math.fsum(speeds))
    fastest_first = sorted(speeds, reverse=True)
    x = 0.0
    for used in range(1, len(speeds) + 1):
        part = fastest_first[:used]
        spare = math.fsum(part) - arrival_rate
        x = spare / math.fsum(map(math.sqrt, part))
        slower = fastest_first[used] if used < len(speeds) else 0.0
        if spare > 0 and x >= math.sqrt(slower):
            break
    return [max(mu - x * math.sqrt(mu), 0.0) / arrival_rate for mu in speeds]


def supermarket(load: float, d: int, levels: int | None = None) -> Floats:
    """Fraction of servers with at least k jobs, k = 0, 1, ..., under JSQ(d) as n -> infinity.

    s_k = load^((d^k - 1) / (d - 1)) (Vvedenskaya, Dobrushin and Karpelevich 1996; Mitzenmacher
    1996). Without `levels`, up to the first below 1e-18. The mean number a server is the sum over
    k >= 1; a job waits with probability load^d.
    """
    _positive(load=load)
    _stable(load)
    _whole("d", d, 1)
    tails = [1.0]
    power = 0.0
    while len(tails) <= levels if levels is not None else tails[-1] >= 1e-18:
        power = 1.0 + d * power
        tails.append(load**power)
    return np.array(tails)


def pull_busy(arrival_rate: float, speeds: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Busy fraction of each pool under PULL, equal routers, n -> infinity.

    a / (a + mu_j), a solving sum_j beta_j mu_j a / (a + mu_j) = lambda: every job finds an idle
    server and all idle servers are equally likely (Stolyar, arXiv 1512.07873). arrival_rate is
    that per server, shares beta_j those of the servers.
    """
    _positive(arrival_rate=arrival_rate)
    total = math.fsum(shares)
    weighted = [(b / total, mu) for b, mu in zip(shares, speeds, strict=True)]
    capacity = math.fsum(b * mu for b, mu in weighted)
    _stable(arrival_rate / capacity)

    def spare(a: float) -> float:  # capacity not used, beyond what should be left
        return math.fsum(b * mu * mu / (a + mu) for b, mu in weighted) - (capacity - arrival_rate)

    low, high = 0.0, 1.0
    while spare(high) > 0:
        low, high = high, 2 * high
    for _ in range(200):
        a = (low + high) / 2
        low, high = (a, high) if spare(a) > 0 else (low, a)
    return [high / (high + mu) for mu in speeds]


def unequal_routers(load: float, weights: Sequence[float]) -> float:
    """Fraction of jobs that wait under PULL with unequal routers, n -> infinity.

    Equal servers without limits, fate `withdraw`. Let E be the routers that run out of messages,
    w_r > x / R, of total weight w_E and number e; x = P(no wait) = (1 - load w_E) / (1 - load
    e / R). Derived: the servers send their messages evenly, so router r gets x / R of the jobs'
    worth; E's other jobs go to random servers and find a fraction `load` of them busy.
    """
    _positive(load=load)
    _stable(load)
    if not weights:
        raise ValueError("weights: must hold the share of at least one router, got none")
    for k, weight in enumerate(weights):
        _positive(**{f"weights[{k}]": weight})
    total, number = math.fsum(weights), len(weights)
    heaviest_first = sorted((w / total for w in weights), reverse=True)
    for e in range(number + 1):
        x = (1 - load * math.fsum(heaviest_first[:e])) / (1 - load * e / number)
        if all(w * number > x for w in heaviest_first[:e]) and all(
            w * number <= x * (1 + 1e-12) for w in heaviest_first[e:]
        ):
            return max(1 - x, 0.0)
    raise ArithmeticError(f"no consistent set of routers for weights {list(weights)}")
