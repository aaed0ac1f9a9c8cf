"""Classical policies by name: `make(name, system)`, `agent(name, env)`, `names()`.

A system of any kind has policies of its own: one name may mean different things to two kinds.
"""

from typing import Any, overload

from lbgym.engine.vocabulary import (
    candidate,
    coin,
    job_size,
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
    work_seen,
)
from lbgym.kinds import KINDS, kind_of
from lbgym.system import System, as_system

from . import (
    jsq,
    local_choice,
    local_search,
    loss,
    order_based,
    pull,
    remembering,
    sized,
    static,
)
from .registry import Family, Policy, custom, parse

__all__ = [
    "Family",
    "Policy",
    "agent",
    "candidate",
    "coin",
    "custom",
    "families",
    "job_size",
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
    "sized",
    "speed",
    "static",
    "work_seen",
]


@overload
def make(policy: Any, system: System) -> Policy: ...
@overload
def make(policy: Any, system: Any) -> Any: ...
def make(policy: Any, system: Any) -> Any:
    """A policy bound to a system: a `Policy`, or the `Rule` of car sharing or a flow network.

    Parameters
    ----------
    policy
        A name, a policy (bound anew), or a user's own rule: a ``@numba.njit`` function ``int64(w)``
        (see `custom` for rules that need messages, samples, arguments or memory).
    system
        A system of any kind, its dict, a scenario's name or the path of a TOML file.

    Raises ValueError for a name that is unknown, or not meant for such a system.
    """
    system = as_system(system)
    return kind_of(system).part("rules").make(policy, system)


def families(system: Any = None) -> list[Family]:
    """The registered policies of a system's kind; None: of all kinds, one kind after another."""
    kinds = KINDS.values() if system is None else [kind_of(as_system(system))]
    return [row for kind in kinds for row in kind.part("rules").families()]


def names(system: Any = None) -> list[str]:
    """The names of the policies of a system's kind, aliases included; None: of all kinds."""
    kinds = KINDS.values() if system is None else [kind_of(as_system(system))]
    return sorted({name for kind in kinds for name in kind.part("rules").names()})


def agent(name: str, env: Any) -> Any:
    """The agent of a policy, acting on what `env` shows.

    Raises ValueError that names the columns which the environment lacks.
    """
    from lbgym.agents import acting_in

    return make(name, acting_in(env)[0].system).agent(env)
