"""What a lone router may believe of the queues, from its messages and its own sendings.

With one router, a server is idle exactly while the router holds its message, and every job comes
from that router. So the law of a busy server's queue is known exactly:

- a job sent to an idle server: q = 1;
- a time A without a message: the server has served n jobs with weight Poisson(n; mu A), and not all
  q of them: q -> q - n for n < q, renormalised;
- a job sent to a busy server: q -> q + 1; at its limit K the job is lost and the router learns
  nothing, so q -> min(q + 1, K).

Memory: of each server the law as it was after the last job sent there, and how long it is. Without
a limit it ends at 255 jobs; chances below 1e-15 at its end are dropped. A server that was busy
before the first job sent there is taken to hold one job. O(q) a server to ask for the mean, O(q^2)
to send.

Source: a Bayesian filter of a death process; Poisson thinning as in uniformisation (Jensen 1953).
"""

from __future__ import annotations

from lbgym.engine.access import inner
from lbgym.engine.vocabulary import recall, remember, sent_age, speed
from lbgym.system import System

from .comparing import least_so_far

LONGEST = 255  # jobs in a queue without a limit
_NOTHING = 1e-15  # chances that are dropped

# Memory: for each server the longest queue it may have (0: none known) and the chances of
# 1 .. longest; after all servers the weights of 0, 1, ... jobs served.


@inner
def _law(w, i):
    """Where the law of server i begins in memory."""
    return i * (w.n_scratch // (w.n_servers + 1))


@inner
def _longest(w, i):
    """The longest queue that server i may have had after the last job sent to it."""
    return max(int(recall(w, _law(w, i))), 1)


@inner
def _chance(w, i, q):
    """The chance of q jobs then."""
    if recall(w, _law(w, i)) == 0:
        return 1.0
    return recall(w, _law(w, i) + q)


@inner
def _weigh(w, i):
    """Weights of n = 0, 1, ... jobs served since, up to a factor; returns where they begin."""
    first, longest = _law(w, w.n_servers), _longest(w, i)
    mean = speed(w, i) * sent_age(w, i)
    mode = int(min(mean, longest - 1.0))
    remember(w, first + mode, 1.0)
    for n in range(mode, 0, -1):
        remember(w, first + n - 1, recall(w, first + n) * n / mean)
    for n in range(mode + 1, longest):
        remember(w, first + n, recall(w, first + n - 1) * mean / n)
    return first


@inner
def mean_queue(w, i):
    """E[q] of busy server i now."""
    weights = _weigh(w, i)
    upto, left, mass, total = 0.0, 0.0, 0.0, 0.0
    for q in range(1, _longest(w, i) + 1):
        upto += recall(w, weights + q - 1)  # weight of n < q
        left += upto  # the same, times what is left then
        mass += _chance(w, i, q) * upto
        total += _chance(w, i, q) * left
    return total / mass


@inner
def believe_alone(w, i):
    """A job has been sent to idle server i."""
    remember(w, _law(w, i), 1)
    remember(w, _law(w, i) + 1, 1.0)


@inner
def _age_law(w, i):
    """Bring the law of busy server i up to now; returns the sum of its chances."""
    weights, law, longest = _weigh(w, i), _law(w, i), _longest(w, i)
    mass = 0.0
    for q in range(1, longest + 1):
        chance = 0.0
        for n in range(longest - q + 1):
            chance += _chance(w, i, q + n) * recall(w, weights + n)
        remember(w, law + q, chance)
        mass += chance
    remember(w, law, longest)
    return mass


@inner
def believe_one_more(w, i, limit):
    """A job has been sent to busy server i, which holds no more than `limit`."""
    mass, law, longest = _age_law(w, i), _law(w, i), _longest(w, i)
    lost = 0.0
    if longest == limit:
        lost = recall(w, law + limit)
        longest -= 1
    for q in range(longest, 0, -1):
        remember(w, law + q + 1, recall(w, law + q) / mass)
    remember(w, law + 1, 0.0)
    longest += 1
    if lost > 0.0:
        remember(w, law + longest, recall(w, law + longest) + lost / mass)
    while recall(w, law + longest) < _NOTHING:
        longest -= 1
    remember(w, law, longest)


@inner
def least_believed(w):
    """The busy server of least E[q] / mu, ties uniform."""
    best, least, tied = 0, 0.0, 0
    for i in range(w.n_servers):
        value = mean_queue(w, i) / speed(w, i)
        best, least, tied = least_so_far(w, i, value, best, least, tied)
    return best


def belief_cells(system: System) -> int:
    """Memory cells of the laws and the weights."""
    return (system.servers + 1) * (longest_queue(system) + 1)


def longest_queue(system: System) -> int:
    """The most jobs that a law reckons with."""
    return max(LONGEST if p.limit is None else min(p.limit, LONGEST) for p in system.pools)


def refuse_belief(system: System) -> None:
    """Raise ValueError where the router does not know what the law needs."""
    if system.router_count > 1:
        raise ValueError(
            f"pull: fallback belief needs a system with one router, got {system.router_count}"
        )
    if system.migrates or system.has_units or any(p.slots > 1 for p in system.pools):
        raise ValueError(
            "pull: fallback belief needs servers of one slot, without units, whose jobs stay"
        )
    if system.draws_sizes or system.slotted:
        raise ValueError("pull: fallback belief needs exponential sizes and continuous time")
