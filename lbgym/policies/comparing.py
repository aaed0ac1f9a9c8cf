"""The index (q + a) / c by which rules compare queues, and how ties are told.

Params of a rule that compares: how to break ties, then a and c of each pool.
"""

from __future__ import annotations

import math

from lbgym.engine.access import inner
from lbgym.engine.vocabulary import param, pick
from lbgym.system import System

from .registry import one_of

RANDOM, FASTEST, LOWEST = 0, 1, 2
TIES = {"random": RANDOM, "fastest": FASTEST, "lowest": LOWEST}
_SAME = 1e-12  # relative; indices closer than this tie


@inner
def compare(x, y):
    """-1, 0 or 1: x less than, as good as equal to, or greater than y."""
    if abs(x - y) <= _SAME * abs(y):
        return 0
    return -1 if x < y else 1


@inner
def least_so_far(w, i, value, best, least, tied):
    """The server of least value, that value and how many tie, once server i is looked at too; ties
    uniform, nothing looked at yet: tied = 0."""
    order = -1 if tied == 0 else compare(value, least)
    if order < 0:
        return i, value, 1
    if order == 0:
        tied += 1
        if pick(w, tied) == 0:
            best = i
    return best, least, tied


@inner
def index_value(w, p, q):
    """(q + a) / c of pool p; params: ties, then a and c of each pool."""
    return (q + param(w, 1 + 2 * p)) / param(w, 2 + 2 * p)


def index_params(system: System, ties: str, name: str, index: str, a: float = 1.0) -> list[float]:
    """Params of `least_of_all`: ties, then a and c of each pool."""
    params = [float(one_of(ties, TIES, f"{name}: ties"))]
    rates = best_split(system) if index == "fpi" else None
    for k, spec in enumerate(system.pools):
        mu = spec.speed / system.mean_size
        if index == "jsq":
            params += [0.0, 1.0]
        elif rates is not None:
            params += [1.0, mu - rates[k]]
        else:
            params += [a, mu]
    return params


def best_split(system: System) -> list[float]:
    """Arrival rate to each server of a pool that minimises E[N] over Bernoulli splits.

    For parallel M/M/1 queues, lambda_i = (mu_i - x sqrt(mu_i))^+ with x such that the rates sum to
    the arrival rate (Bell and Stidham 1983).
    """
    total = system.arrival_rate
    mus = [(spec.speed / system.mean_size, spec.servers) for spec in system.pools]
    by_speed = sorted(mus, reverse=True)
    x = 0.0
    for k in range(len(by_speed), 0, -1):
        speeds = math.fsum(mu * n for mu, n in by_speed[:k])
        roots = math.fsum(math.sqrt(mu) * n for mu, n in by_speed[:k])
        x = (speeds - total) / roots
        if x < math.sqrt(by_speed[k - 1][0]):
            break
    return [max(mu - x * math.sqrt(mu), 0.0) for mu, _ in mus]
