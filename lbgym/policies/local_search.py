"""Random local search: jobs that move (Ganesh et al. 2012; Berenbrink et al. 2017).

Every job has its own clock of rate beta (the system's `migration_rate`). When it rings the job
looks at a uniformly drawn server and moves if its rule says so:

| rule | moves if | messages per resampling |
|---|---|---|
| ``strict`` (RLS, Ganesh) | mu_j / (q_j + 1) > mu_i / q_i | 2 |
| ``weak`` (RLS, Berenbrink) | mu_j / (q_j + 1) >= mu_i / q_i | 2 |
| ``oblivious`` (RLO) | always | 0 |

``place=`` is the rule for new jobs, any policy (default ``random``). Speeds are known.
"""

from __future__ import annotations

from lbgym.engine.access import inner, rule
from lbgym.engine.vocabulary import probe, seen, speed
from lbgym.system import System

from .comparing import compare
from .registry import Parts, as_call, family, one_of, parts_of, stay

__all__ = ["oblivious", "stay", "strict", "weak"]


@inner
def _gain(w):
    """Sign of what the move would gain: the job's share of speed there against here."""
    there = speed(w, w.target) * seen(w, w.source)
    here = speed(w, w.source) * (probe(w, w.target) + 1)
    return compare(there, here)


@rule
def strict(w):
    """Move if that is strictly better."""
    return w.target if _gain(w) > 0 else w.source


@rule
def weak(w):
    """Move if that is no worse."""
    return w.target if _gain(w) >= 0 else w.source


@rule
def oblivious(w):
    """Always move."""
    return w.target


_RULES = {"strict": strict, "weak": weak, "oblivious": oblivious}


@family("local-search", information="placement's, queue at a sampled server", columns=())
def build_local_search(system: System, *, rule: str = "strict", place: object = "random") -> Parts:
    """Jobs move by random local search; new ones are placed by another policy."""
    if system.migration_rate <= 0:
        raise ValueError(
            "local-search: needs a system whose jobs resample; set migration_rate above 0"
        )
    one_of(rule, dict.fromkeys(_RULES), "local-search: rule")
    call = as_call(place, "local-search: place")
    if call.name == "local-search":
        raise ValueError("local-search: place must be a policy for new jobs, got local-search")
    placement = parts_of(call, system)
    looks = () if rule == "oblivious" else ("queue_probed", "speed")
    asks = "" if rule == "oblivious" else " + one probe a resampling"
    columns = (*(placement.columns or ()), "kind", "source", "target", *looks)
    return placement.but(
        move=_RULES[rule],
        ring_asks=rule != "oblivious",
        information=f"{placement.information}{asks}",
        columns=tuple(dict.fromkeys(columns)),
    )
