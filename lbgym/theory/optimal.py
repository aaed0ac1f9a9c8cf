"""`optimal`: the least long-run cost of any policy that sees every queue, and a policy with it.

The system is a Markov decision process on queue lengths: an arriving job joins any server; a job
that looks at another server moves there or stays. Solved by policy iteration (Howard 1960; Puterman
1994, section 8.6): the relative values of a policy are one sparse system of equations (`chain`),
and each decision is then made as they say, until nothing changes.

States: prod (cap_i + 1), queues without a limit cut where the best policy hardly ever is. Cost: 2
servers at load .9 some 10,000 states and 2 s, 3 servers at load .7 some 20,000 and 20 s; at most
60,000 states (some 2 minutes, 1 GB).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.policies.registry import Policy
from lbgym.system import System, as_system

from .chain import Floats, Integers, TooLarge, relative_values
from .dispatch import Cut, DispatchModel
from .exact import Exact, Solution, cuts_wanted, given_cut, result_of, solve
from .rules import Plan, Table, table_moves
from .table import table_policy

MOST_STATES = 60_000
_BEYOND = 1e-9  # what lies beyond the cut may matter so much, relative to the mean
_SMALLER = 0.85  # the box that the truncation error is estimated with
_KEPT = 0.75  # of a cut queue length stands in the policy's table; beyond, the cut can be felt
_BETTER = 1e-9  # a decision changes only if that gains so much, relative to the cost rate
_ITERATIONS = 200
_FIRST_CELLS = 3_000
_ROUNDS = 8

OBJECTIVES = ("cost", "jobs_in_system", "blocking_probability")


@dataclass(frozen=True, repr=False)
class Optimal(Exact):
    """The optimum: every number of `Exact` under the best policy, and the policy itself.

    objective : what is least; cost_per_time : E[N] + charge x losses + cost x moves, per unit time
        (of the terms that the objective counts)
    table : the server for an arriving job, one axis a server: ``table[q_0, q_1]``
    moves : whether a job moves, ``moves[source, target, q_0, q_1]``; None without migration
    best : the policy: `simulate`, agents and `exact` take it (also as `.policy_rule`)
    iterations : of policy iteration
    """

    objective: str
    cost_per_time: float
    table: NDArray[np.int64]
    moves: NDArray[np.bool_] | None
    iterations: int
