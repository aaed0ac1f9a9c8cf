"""The final state of short runs, as digests: ``python tests/digests.py`` prints them as JSON.

Run under ``NUMBA_DISABLE_JIT=1`` or ``LBGYM_CHECKED=1`` it must print the same.
"""

import hashlib
import json

import numpy as np

from lbgym.engine import layout
from lbgym.engine.run import run_until
from lbgym.policies import make
from lbgym.system import JobClass, Pool, System

JOBS = 150

TWO_SPEEDS = (Pool(3, speed=1.0, limit=4), Pool(2, speed=2.5, limit=6))
ODD = (
    Pool(2, speed=0.7, slots=3),
    Pool(1, speed=3.0, discipline="ps"),
    Pool(2, speed=1.3, slots=2, limit=3),
)

SYSTEMS = {
    **{
        fate: System(TWO_SPEEDS, routers=3, load=0.9, message_fate=fate)
        for fate in ("withdraw", "keep", "resend")
    },
    "odd": System(ODD, routers=[0.5, 0.2, 0.3], load=0.8),
    "migrating": System(TWO_SPEEDS, routers=[3, 1], load=0.9, migration_rate=1.5),
    "overloaded": System(Pool(2, speed=1.0), routers=2, load=3.0, replace=True),
    "lognormal": System(
        ODD,
        routers=2,
        load=0.8,
        size={"law": "lognormal", "scv": 2.0},
        arrivals={"process": "mmpp", "rates": [3, 1], "generator": [[-0.1, 0.1], [0.2, -0.2]]},
        classes=[JobClass(2.0, 0.5), JobClass(1.0, 2.0)],
    ),
    "hyperexponential": System(
        ODD,
        load=0.8,
        migration_rate=0.5,
        size={"law": "hyperexponential", "scv": 4.0},
        arrivals={"process": "sinusoidal", "amplitude": 0.9, "period": 50.0, "batch": [2, 1, 1]},
    ),
    "pareto": System(
        ODD,
        load=0.8,
        size={"law": "bounded-pareto", "alpha": 1.5},
        arrivals={
            "process": "piecewise",
            "breakpoints": [0, 5],
            "rates": [2, 0],
            "period": 8,
            "batch": {"geometric": 1.5},
        },
    ),
    "erlang": System(
        [Pool(2, units=4), Pool(1, units=6)],
        load=1.2,
        size={"law": "erlang", "k": 3},
        classes=[JobClass(3.0), JobClass(1.0, mean_size=0.5, units=3)],
        arrivals={"process": "renewal", "law": "uniform"},
    ),
    "recorded": System(
        ODD,
        routers=2,
        load=0.7,
        arrivals={
            "process": "trace",
            "times": [0, 1, 1, 2.5, 4, 7],
            "sizes": [1, 3, 0, 2, 2, 5],
            "routers": [0, 1, 1, 0, 0, 1],
        },
    ),
    "slotted": System([Pool(2, speed=0.3), Pool(1, speed=0.6)], load=0.8, slotted=True),
    "pair": System([Pool(1, speed=2.0), Pool(1, speed=1.0)], load=0.7),
}

RUNS = (
    ("withdraw", "pull"),
    ("withdraw", "jiq-sq(2)"),
    ("keep", "pull"),
    ("keep", "jiq-sq(2)"),
    ("resend", "pull"),
    ("resend", "jiq-sq(2)"),
    ("withdraw", "pull(fallback=wrr, choice=fastest)"),
    ("withdraw", "pull(fallback=weighted-random)"),
    ("withdraw", "pull(fallback=static(1, 2, 3, 4, 5))"),
    ("keep", "pull(fallback=jsq(2))"),
    ("odd", "random"),
    ("odd", "weighted-random"),
    ("odd", "static(1, 2, 3, 4, 5)"),
    ("odd", "round-robin"),
    ("odd", "wrr"),
    ("odd", "pull"),
    ("odd", "jsq"),
    ("odd", "jsq(3, ties=lowest)"),
    ("odd", "sed"),
    ("odd", "sed(2, ties=fastest)"),
    ("odd", "jsed(ties=fastest)"),
    ("odd", "index(1/2, ties=lowest)"),
    ("withdraw", "lsq(2)"),
    ("odd", "jsq(2, memory=1)"),
    ("odd", "sed(2, own-sends=1)"),
    ("withdraw", "fastest-idle"),
    ("pair", "pull(fallback=belief)"),
    ("migrating", "local-search"),
    ("migrating", "local-search(rule=weak, place=pull)"),
    ("migrating", "local-search(rule=oblivious, place=jsq)"),
    ("migrating", "pull"),
    ("overloaded", "jsq(3)"),
    ("overloaded", "pull"),
    ("pair", "threshold(3)"),
    ("pair", "fpi"),
    ("lognormal", "pull"),
    ("lognormal", "jsq(2)"),
    ("hyperexponential", "local-search(rule=weak, place=pull)"),
    ("hyperexponential", "local-search(rule=oblivious)"),
    ("pareto", "sed"),
    ("erlang", "max-vacancy"),
    ("recorded", "wrr"),
    ("slotted", "pull"),
    ("slotted", "jsq"),
)


def run(system, policy, jobs, seed, start="empty"):
    """The state after so many arrivals."""
    bound = make(policy, system)
    place, move = bound.rules()
    state = bound.state(memory=True)
    state.seed(np.random.default_rng(seed))
    state.begin(start)
    proceed(state, place, move, jobs)
    return state


def proceed(state, place, move, arrivals):
    """Go on until so many jobs have arrived."""
    advance = run_until.of(state)
    while (status := advance(state.address, place, move, arrivals)) != layout.DONE:
        assert status in (layout.GROW, layout.PAUSE)
        if status == layout.GROW:
            state.grow()


def digest(state):
    """A hash of every field of the state but the addresses."""
    found = hashlib.sha256()
    for array in (state.world, *state.arrays.values()):
        for name in array.dtype.names:
            if not name.startswith("at_"):
                found.update(np.ascontiguousarray(array[name]).tobytes())
    return found.hexdigest()[:16]


def digests():
    """By system and policy."""
    return {
        f"{policy} on {name}": digest(run(SYSTEMS[name], policy, JOBS, seed))
        for seed, (name, policy) in enumerate(RUNS)
    }


if __name__ == "__main__":
    print(json.dumps(digests()))
