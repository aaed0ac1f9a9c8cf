"""Local choice on a graph (P. Dester, C. Fricker, H. Mohamed 2018).

Each edge feeds the shorter of its two ends, ties by a fair coin: `jsq(2)` whose two candidates are
the ends of the job's edge. Four messages a job.
"""

from __future__ import annotations

from lbgym.system import System

from .jsq import build_jsq
from .registry import Parts, family


@family(
    "local-choice",
    information="the edge's two queues",
    columns=("candidate", "queue_probed"),
    on_graph=True,
)
def build_local_choice(system: System) -> Parts:
    """The shorter of the two ends of the job's edge."""
    return build_jsq(system, 2).but(information="the edge's two queues")
