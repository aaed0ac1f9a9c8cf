"""Classical policies by name: `make(name, system)`, `agent(name, env)`, `names()`."""

from typing import Any

from lbgym.engine.vocabulary import (
    candidate,
    coin,
    jobs_of_class,
    message_server,
    messages_held,
    param,
    pick,
    probe,
    probe_all,
    recall,
    remember,
    seen,
    sent_age,
    speed,
)

from . import (
    jsq,
    local_choice,
    local_search,
    loss,
    order_based,
    pull,
    remembering,
    static,
)
from .registry import Family, Policy, custom, families, make, names, parse

__all__ = [
    "Family",
    "Policy",
    "agent",
    "candidate",
    "coin",
    "custom",
    "families",
    "jobs_of_class",
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
    "remembering",
    "seen",
    "sent_age",
    "speed",
    "static",
]


def agent(name: str, env: Any) -> Any:
    """The agent of a policy, acting on what `env` shows.

    Raises ValueError that names the columns which the environment lacks.
    """
    from lbgym.agents import acting_in

    return make(name, acting_in(env)[0].system).agent(env)
