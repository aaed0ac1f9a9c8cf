"""Classical policies by name: `make(name, system)`, `agent(name, env)`, `names()`."""

from typing import Any

from lbgym.engine.vocabulary import (
    candidate,
    coin,
    job_size,
    message_server,
    messages_held,
    param,
    pick,
    probe,
    probe_all,
    recall,
    remember,
    seen,
    speed,
    work_seen,
)

from . import jsq, local_choice, local_search, loss, order_based, pull, sized, static
from .registry import Family, Policy, custom, families, make, names, parse

__all__ = [
    "Family",
    "Policy",
    "agent",
    "candidate",
    "coin",
    "custom",
    "families",
    "job_size",
    "jsq",
    "local_choice",
    "local_search",
    "loss",
    "make",
    "message_server",
    "messages_held",
    "names",
    "order_based",
    "param",
    "parse",
    "pick",
    "probe",
    "probe_all",
    "pull",
    "recall",
    "remember",
    "seen",
    "sized",
    "speed",
    "static",
    "work_seen",
]


def agent(name: str, env: Any) -> Any:
    """The agent of a policy, acting on what `env` shows.

    Raises ValueError that names the columns which the environment lacks.
    """
    from lbgym.agents import acting_in

    return make(name, acting_in(env)[0].system).agent(env)
