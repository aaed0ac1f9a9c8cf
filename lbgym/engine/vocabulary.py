"""What a rule may ask and do: the words policies are written in.

A rule is a compiled function ``int64(w)`` that returns the server for the pending decision. It
sees the system through these functions only; looking at queues is counted (a question and an
answer are two messages), coins come from the policy stream, which nothing else uses.
"""

from .access import (
    candidate_of,
    class_jobs,
    inner,
    message_list,
    order,
    param_of,
    pool,
    router,
    sent_at,
    server,
    tail,
)
from .access import scratch as scratch_of
from .layout import POLICY
from .messages import sender_at
from .random import below, uniform
from .service import work_left


# --- coins, arguments, memory ---------------------------------------------------------------------
@inner
def coin(w):
    """Uniform on [0, 1) from the policy stream."""
    return uniform(w, POLICY)


@inner
def pick(w, n):
    """Uniform on 0 .. n - 1 from the policy stream; draws nothing when n is 1."""
    if n <= 1:
        return 0
    return below(w, POLICY, n)


@inner
def param(w, k):
    """The k-th argument of the rule."""
    return param_of(w, k).value


@inner
def recall(w, k):
    """The k-th memory cell of the rule (zero at the start)."""
    return scratch_of(w, k).value


@inner
def remember(w, k, value):
    """Set the k-th memory cell of the rule."""
    scratch_of(w, k).value = value


# --- what is known without asking -----------------------------------------------------------------
@inner
def speed(w, i):
    """Jobs per unit time of each slot of server i."""
    return pool(w, server(w, i).pool).speed


@inner
def sent_age(w, i):
    """Time since the acting router last sent a job to server i, infinite if never (needs
    `memory`)."""
    return w.clock - sent_at(w, w.router * w.n_servers + i).time


@inner
def pool_at_speed(w, x):
    """The pool in which x falls when pools are laid end to end, each as long as its total speed."""
    p = 0
    while p < w.n_pools - 1 and x >= pool(w, p).speed_to:
        p += 1
    return p


@inner
def job_size(w):
    """The size of the arriving job (only for rules that know sizes)."""
    return w.job_size


# --- asking servers -------------------------------------------------------------------------------
@inner
def probe(w, i):
    """The queue length of server i, asked now (two messages)."""
    w.probes += 1
    return server(w, i).length


@inner
def probe_all(w):
    """Ask every server (2 n messages); `shortest` and `seen` may be used for this decision."""
    w.probes += w.n_servers


@inner
def seen(w, i):
    """The queue length of server i after `probe_all`, or of the resampling job's own server."""
    return server(w, i).length


@inner
def work_seen(w, i):
    """The work left in server i, after `probe_all` (only for rules that know sizes)."""
    return work_left(w, i)


@inner
def jobs_of_class(w, i, k):
    """The jobs of class k in server i, after `probe_all` (only with units)."""
    return class_jobs(w, i * w.n_classes + k).jobs


@inner
def shortest(w, p):
    """Smallest queue length in pool p, after `probe_all`."""
    return pool(w, p).shortest


@inner
def shortest_count(w, p):
    """How many servers of pool p have the smallest queue length."""
    this = pool(w, p)
    return this.servers - tail(w, this.tails + this.shortest + 1).servers


@inner
def shortest_server(w, p, k):
    """The k-th of them."""
    this = pool(w, p)
    return order(w, this.first + tail(w, this.tails + this.shortest + 1).servers + k).server


@inner
def candidate(w, k):
    """The k-th server sampled for this job (k < w.samples)."""
    return candidate_of(w, k).server


# --- messages -------------------------------------------------------------------------------------
@inner
def messages_held(w):
    """Pull-messages held by the acting router."""
    return router(w, w.router).held


@inner
def messages_from(w, p):
    """Those of them that come from pool p."""
    return message_list(w, w.router * w.n_pools + p).count


@inner
def message_server(w, position):
    """The server of the message at a position of the acting router's list."""
    return sender_at(w, w.router, position)
