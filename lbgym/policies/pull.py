"""PULL and JIQ: send the job where a message says that a server is idle.

An idle server sends one pull-message to a uniformly random router. A router with messages takes one
of them - uniformly (``choice=uniform``) or among those of the fastest speed (``choice=fastest``) -
and sends the job there; without messages it falls back (``fallback=``) on a rule that needs none:
``random`` (all servers, busy or not: the paper's), ``weighted-random``, ``static(..)``, ``wrr``
(its turns count fallback jobs only), ``jsq(d)``, or ``belief`` (one router only): the least
E[q | all it has seen] / mu, by the exact filter in `belief`. One message a job at most, plus
withdrawals.

Sources: A. Stolyar, arXiv 1512.07873 (several routers); Lu et al. 2011 (join the idle queue; the
same rule). ``jiq-sq(d)``: an idle server looks at d routers and sends to the one that holds fewest
messages (Lu et al., JIQ-SQ(d)): 2d more messages each.
"""

from __future__ import annotations

from lbgym.engine.access import inner, pool, rule, server
from lbgym.engine.vocabulary import message_server, messages_from, messages_held, param, pick
from lbgym.system import System

from .belief import (
    LONGEST,
    belief_cells,
    believe_alone,
    believe_one_more,
    least_believed,
    refuse_belief,
)
from .comparing import index_params
from .jsq import least_of_sampled, samples
from .registry import Call, Parts, as_call, count, family, meant, one_of
from .static import (
    cumulative,
    server_by_speed,
    server_by_table,
    server_in_turn,
    turn_cells,
    uniform_server,
)

_UNIFORM, _FASTEST = 0, 1
_CHOICES = {"uniform": _UNIFORM, "fastest": _FASTEST}
_RANDOM, _WEIGHTED, _TURN, _TABLE, _SAMPLED = 0, 1, 2, 3, 4
_FALLBACKS = ("random", "weighted-random", "wrr", "static(..)", "jsq(d)", "belief")


@inner
def _fastest_position(w):
    """Position of a uniformly chosen message among those of the fastest speed held."""
    fastest = 0.0
    for p in range(w.n_pools):
        if messages_from(w, p) > 0:
            fastest = max(fastest, pool(w, p).speed)
    eligible = 0
    for p in range(w.n_pools):
        if pool(w, p).speed == fastest:
            eligible += messages_from(w, p)
    k = pick(w, eligible)
    before = 0
    for p in range(w.n_pools):
        count = messages_from(w, p)
        if pool(w, p).speed == fastest:
            if k < count:
                break
            k -= count
        before += count
    return before + k


@inner
def _held_server(w, choice):
    """The server of one of the held messages, of which there are some."""
    if choice == _FASTEST:
        return message_server(w, _fastest_position(w))
    return message_server(w, pick(w, messages_held(w)))


@rule
def pull(w):
    """A message's server, else the fallback.

    Params: at 0 the ties of a ``jsq(d)`` fallback (then a and c of each pool, as that rule has
    them) or the cumulative probabilities of a ``static`` one; the last two are choice and fallback.
    """
    if messages_held(w) > 0:
        return _held_server(w, param(w, w.n_params - 2))
    fallback = param(w, w.n_params - 1)
    if fallback == _RANDOM:
        return uniform_server(w)
    if fallback == _WEIGHTED:
        return server_by_speed(w)
    if fallback == _TURN:
        return server_in_turn(w)
    if fallback == _TABLE:
        return server_by_table(w, 0)
    return least_of_sampled(w, int(param(w, 0)))


@rule
def pull_by_belief(w):
    """A message's server, else the least E[q] / mu. Params: choice."""
    if messages_held(w) > 0:
        i = _held_server(w, param(w, 0))
        believe_alone(w, i)
        return i
    i = least_believed(w)
    believe_one_more(w, i, min(pool(w, server(w, i).pool).limit, LONGEST))
    return i


def _belief(system: System, choice: int) -> Parts:
    """The parts of `pull` whose fallback is belief."""
    refuse_belief(system)
    return Parts(
        place=pull_by_belief,
        params=(float(choice),),
        scratch=belief_cells(system),
        messages=True,
        memory=True,
        information="messages, speeds, own memory",
        columns=("message_order", "sent_age", "speed"),
    )


def _fallback(system: System, call: Call, choice: int) -> Parts:
    """The parts of `pull` for a fallback."""
    columns: tuple[str, ...] = ("message_order",)
    params: tuple[float, ...] = ()
    information, scratch, sampled = "messages", 0, 0
    if call.name == "random" and not call.arguments:
        code = _RANDOM
    elif call.name == "weighted-random" and not call.arguments:
        code, information = _WEIGHTED, "messages, speeds"
    elif call.name == "wrr" and not call.arguments:
        code, scratch, information = _TURN, turn_cells(system), "messages, speeds, own memory"
        columns += ("router",)
    elif call.name == "static" and not call.keywords:
        code = _TABLE
        params = cumulative(tuple(call.positional), system, "pull: fallback static")
    elif call.name == "jsq" and len(call.positional) == 1 and not set(call.keywords) - {"ties"}:
        code, information = _SAMPLED, "messages, d probes"
        ties = call.keywords.get("ties", "random")
        params = tuple(index_params(system, ties, "pull: fallback jsq", "jsq"))
        sampled = samples(call.positional[0], system, "pull: fallback jsq")
        columns += ("candidate", "queue_probed")
    else:
        near = meant(call.name, (name.partition("(")[0] for name in _FALLBACKS))
        words = ", ".join(_FALLBACKS)
        raise ValueError(f"pull: fallback must be one of {words}, got {call}{near}")
    if choice == _FASTEST:
        information = information if "speeds" in information else information + ", speeds"
        columns += ("speed",)
    return Parts(
        place=pull,
        params=(*params, float(choice), float(code)),
        scratch=scratch,
        samples=sampled,
        messages=True,
        information=information,
        columns=columns,
    )


@family("pull", information="messages", columns=("message_order",), aliases=("jiq",))
def build_pull(system: System, *, fallback: object = "random", choice: str = "uniform") -> Parts:
    """The server of a held pull-message, else the fallback."""
    chosen = one_of(choice, _CHOICES, "pull: choice")
    call = as_call(fallback, "pull: fallback")
    if call.name == "belief" and not call.arguments:
        return _belief(system, chosen)
    return _fallback(system, call, chosen)


@family("jiq-sq", information="messages", columns=("message_order",))
def build_jiq_sq(system: System, d: int) -> Parts:
    """JIQ whose idle servers send to the poorest of d routers."""
    number = count(d, "jiq-sq: d")
    if number > system.router_count:
        raise ValueError(
            f"jiq-sq: d must be at most the number of routers ({system.router_count}), got {number}"
        )
    return Parts(
        place=pull,
        params=(float(_UNIFORM), float(_RANDOM)),
        messages=True,
        router_samples=number,
    )
