"""The environments of single seed papers: `DispatchEnv` with the paper's system and information.

Each class only sets defaults and says what they mean; every argument of `DispatchEnv` still holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from .dispatch import DispatchEnv


class StaleInformationEnv(DispatchEnv):
    """Jobs go to servers whose queues are read only now and then.

    ## Description
    A dispatcher sends each arriving job to one of n queues, first come first served, of known and
    unequal speeds. It reads all queue lengths every T units of time and in between knows only what
    it has sent itself (Y. Luo, M. Zubeldia, arXiv 2510.14284). Who follows the order of the last
    read blindly sends a herd to the shortest queue; how bad that is grows with T, whether it is
    stable does not depend on T. The paper's policies are ``rank(p1, ..., pn)``, ``jsq``, ``jsed``,
    ``jsq(d)``; ``sed(own-sends=1)`` also counts the jobs sent since. Default: 20 servers with
    speeds from 1 to 3, T = 5, load 0.9.

    ## Observation
    A flat float32 Box in [0, 1] (speed: up to the largest), a row per server, column after column:

    - `read`: q / (1 + q), q the queue length at the last read
    - `sent_since_read`: x / (1 + x), x the jobs that this router has sent there since
    - `speed`: jobs per unit time

    then `read_age`: a / (1 + a), a the time since the last read. Other columns as in
    ``lbgym/MultiRouter-v0``; a read of all queues counts 2n messages.

    ## Action
    Discrete(n): the server; ``action="candidate(d)"`` and ``"pool"`` as in MultiRouter.

    ## Reward
    Minus the expected response time of the job just placed, (q + 1) / mu with the true q
    (``"response"``); ``reward="holding"`` as in MultiRouter.

    ## Starting state
    Empty, read at time 0; ``start="warm"`` or queue lengths.

    ## Episode end
    Never terminated; truncated after 2,000 arrivals (``horizon_arrivals``, ``horizon_time``).

    ## Arguments
    Those of ``lbgym/MultiRouter-v0``. The system must have a ``read_interval`` to show `read`.

    ## Version history
    - v0: first version.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "system": "stale-20",
        "observe": ("read", "sent_since_read", "speed", "read_age"),
    }


class LossEnv(DispatchEnv):
    """Jobs of several classes need units of a server and are lost if it has too few.

    ## Description
    Server i has C_i units. A job of class k needs A_k of them for an exponential time, whatever
    the server, and nothing waits: a job sent to a server with fewer free units is lost (A.
    Mukhopadhyay, A. Karthik, R. Mazumdar, F. Guillemin 2015). Small jobs should leave room for
    large ones. The paper's policy is ``max-vacancy(d)``; ``best-fit`` does better here. Default:
    C = (4, 6, 8), A = (1, 4), arrival rates (6, 1.5), mean times 1, weights (1, 4): best fit loses
    a weight of .2273 per job that arrives, the optimum .2028. Erlang loss servers of one class
    (``Pool(n, slots=C, limit=C)``) will do too: a unit is then a place.

    ## Observation
    A flat float32 Box in [0, 1], one row per server, column after column:

    - `vacancy`: v / (1 + v), v the free units
    - `capacity`: C / (1 + C), C the units

    then `class`, the number of the job's class (up to the number of classes less 1). With
    ``class_jobs_0``, ``class_jobs_1``, ... (jobs of each class in the server) and `class` an agent
    sees all there is; the exact optimum (`lbgym.theory.optimal`) needs these. Other columns as in
    ``lbgym/MultiRouter-v0``. Looking at all servers counts 2n messages a job.

    ## Action
    Discrete(n): the server. One without room loses the job; nothing else refuses a job, so rules
    that turn jobs away while there is room (``trunk-reservation``) are for `lbgym.simulate` only.
    ``action="candidate(d)"``: one of d sampled servers, the paper's case. ``lossless=True`` masks
    servers without room while another has room.

    ## Reward
    Minus the weight of each lost job, times ``loss_charge`` (default 1): the only form with units.

    ## Starting state
    Empty.

    ## Episode end
    Never terminated; truncated after 2,000 arrivals (``horizon_arrivals``, ``horizon_time``).

    ## Arguments
    Those of ``lbgym/MultiRouter-v0``.

    ## Version history
    - v0: first version.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "system": "two-class-loss",
        "observe": ("vacancy", "capacity", "class"),
        "reward": "loss",
    }


class LocalChoiceEnv(DispatchEnv):
    """Servers on a graph; each job joins one of the two ends of its edge.

    ## Description
    Every edge of a graph gets an equal share of the arrivals; a job joins one end of its edge, and
    is served there first come first served (P. Dester, C. Fricker, H. Mohamed 2018: the circle).
    The paper's rule ``local-choice`` joins the shorter end, ties by a fair coin. It is nearly best:
    seeing the neighbours too helps a little. Default: a ring of 10, load 0.7.

    ## Observation
    A flat float32 Box in [0, 1], one row per end of the job's edge, column after column:

    - `queue_probed`: q / (1 + q), q the queue length of the end
    - `neighbours`: m / (1 + m), m the mean queue length of the end's neighbours in the graph (the
      other end is one of them)

    On rings of 3 and 4 servers these, with `server`, tell every queue: enough for the exact optimum
    (`lbgym.theory.optimal`). Each queue looked at counts 2 messages. Other columns as in
    ``lbgym/MultiRouter-v0``; `server` tells which servers the ends are, `speed` matters if they
    differ.

    ## Action
    Discrete(2): the end. (``"candidate(2)"`` is the only form on a graph.)

    ## Reward
    Minus the expected response time of the job just placed, (q + 1) / mu (``"response"``);
    ``reward="holding"`` as in MultiRouter.

    ## Starting state
    Empty; ``start="warm"`` or queue lengths.

    ## Episode end
    Never terminated; truncated after 2,000 arrivals (``horizon_arrivals``, ``horizon_time``).

    ## Arguments
    Those of ``lbgym/MultiRouter-v0``. The system's graph: "ring", ["torus", rows, columns],
    "complete" or a list of edges.

    ## Version history
    - v0: first version.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "system": "ring-10",
        "observe": ("queue_probed", "neighbours"),
        "action": "candidate(2)",
    }


class LocalSearchOpenEnv(DispatchEnv):
    """Jobs look at other servers now and then; the agent says which of them move.

    ## Description
    Jobs arrive and are placed by a rule without looking (``place="random"``). Each job present has
    its own clock; when it rings, the job draws a server uniformly and may move there (A. Ganesh, S.
    Lilienthal, D. Manjunath, A. Proutiere, F. Simatos 2012). A draw of the job's own server or of
    a full one is no decision. The paper's rules are ``local-search(rule=strict)`` and
    ``rule=oblivious``; with a ``move_cost`` it pays to move only where the gain is large. Default:
    5 servers of speed 1 and 5 of speed 2, processor sharing, load 0.8, rate 1.

    ## Observation
    A flat float32 Box in [0, 1] (speed: up to the largest); two rows, the server where the job is
    and the server that it drew, column after column:

    - `queue_probed`: q / (1 + q), q the queue length
    - `speed`: jobs per unit time

    `limit`, `capacity` and `server` may be shown too. A look counts 2 messages.

    ## Action
    Discrete(2): 0 stay, 1 move. ``action="server"`` makes the placement of new jobs a decision too
    (see ``lbgym/MultiRouter-v0``).

    ## Reward
    Minus the time integral of the number in system since the last decision (``"holding"``), minus
    ``move_cost`` for a move. Compare policies per unit time, not per step: a congested system makes
    more steps.

    ## Starting state
    Empty; ``start="warm"`` or queue lengths.

    ## Episode end
    Never terminated; truncated at the first decision at or after 200 time units (``horizon_time``,
    ``horizon_arrivals``).

    ## Arguments
    Those of ``lbgym/MultiRouter-v0``; ``place`` is any policy that places jobs, by name.

    ## Version history
    - v0: first version.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "system": "local-search",
        "action": "move",
        "horizon_time": 200.0,
    }


class LocalSearchClosedEnv(DispatchEnv):
    """A fixed number of jobs moves about until the servers are balanced.

    ## Description
    There are no arrivals and no service. Each job has its own clock; when it rings, the job draws a
    server uniformly and the agent says whether it moves there (A. Ganesh et al. 2012; P.
    Berenbrink, P. Kling, C. Liaw, A. Mehrabian 2017). A draw of the job's own server or of a full
    one is no decision. Moving whenever that gains, ``local-search``, takes O(ln n + n^2 / m) time
    on average, and a move without a gain never shortens it; with a ``move_cost`` the task is to
    balance soon with few moves. Default: 10 servers of speed 1, 40 jobs.

    ## Observation
    As in ``lbgym/LocalSearchOpen-v0``: queue length and speed of source and target.

    ## Action
    Discrete(2): 0 stay, 1 move. ``action="server"``: the table has a row for each server (see
    ``lbgym/MultiRouter-v0``).

    ## Reward
    Minus the time since the last decision (``"time"``), minus ``move_cost`` for a move. The time
    before the first decision depends on nobody and is not counted.

    ## Starting state
    All jobs in server 0; or ``start=[...]`` queue lengths that are not balanced and hold all jobs.

    ## Episode end
    Terminated as soon as no job could gain by moving: with equal speeds when no server holds two
    more jobs than another. Truncated at the first decision at or after 1,000 time units
    (``horizon_time``).

    ## Arguments
    Those of ``lbgym/MultiRouter-v0``. The system must have ``closed_jobs``.

    ## Version history
    - v0: first version.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "system": "local-search-closed",
        "action": "move",
        "horizon_time": 1000.0,
    }
