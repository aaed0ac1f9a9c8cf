"""The engine against a slow, plain simulator that shares no code and no idea with it."""

import functools
import math

import pytest

from lbgym.laws import as_law
from lbgym.simulate import simulate
from lbgym.stats import ratio
from lbgym.system import Pool, System
from tests import plain_simulator

WITNESS_JOBS = 40_000
JOBS = 400_000
LARGEST_Z = 4.5
T_QUANTILE = 2.04  # of the half-widths of `ratio`, 32 batches

# What the witness calls a quantity -> the totals of the engine's batches whose ratio it is.
RATIOS = {
    "EN": ("area", "clock"),
    "P_wait": ("waited", "accepted"),
    "P_block": ("blocked", "arrivals"),
    "pull_messages": ("sent", "arrivals"),
    "withdrawals": ("withdrawn", "arrivals"),
    "probe_messages": ("probe_messages", "arrivals"),
    "migrations": ("migrations", "arrivals"),
}

ODD = (
    Pool(2, speed=0.7, slots=3, limit=5),
    Pool(1, speed=3.0, limit=9, discipline="ps"),
    Pool(2, speed=1.3, limit=2),
)
FATES = ("withdraw", "keep", "resend")


# Sizes that are drawn: the law, and the same for the witness. Under the second some jobs tie.
HYPER = {"law": "hyperexponential", "probabilities": [0.75, 0.25], "means": [0.5, 2.5]}
DRAWN = {
    "hyperexponential": (HYPER, lambda r: r.expovariate(2.0 if r.random() < 0.75 else 0.4)),
    "empirical": (
        {"law": "empirical", "values": [0.5, 0.5, 2]},
        lambda r: r.choice([0.5, 0.5, 2.0]),
    ),
    "uniform": ("uniform", lambda r: r.uniform(0.0, 2.0)),
}


def odd(load=0.85, **options):
    """Slots, processor sharing, limits, three unequal routers."""
    return System(ODD, routers=[0.6, 0.1, 0.3], load=load, **options)


# name: system, policy's name, the same for the witness
CASES = {
    **{f"pull, {fate}": (odd(message_fate=fate), "pull", {"rule": "pull"}) for fate in FATES},
    "pull with wrr, fastest": (
        odd(),
        "pull(fallback=wrr, choice=fastest)",
        {"rule": "pull", "fallback": {"rule": "wrr"}, "choice": "fastest"},
    ),
    "pull with jsq(2)": (
        odd(message_fate="keep"),
        "pull(fallback=jsq(2))",
        {"rule": "pull", "fallback": {"rule": "jsq", "d": 2}},
    ),
    "pull with static": (
        odd(message_fate="resend"),
        "pull(fallback=static(1, 2, 3, 1, 1))",
        {"rule": "pull", "fallback": {"rule": "static", "weights": [1, 2, 3, 1, 1]}},
    ),
    "pull with weighted-random": (
        odd(),
        "pull(fallback=weighted-random)",
        {"rule": "pull", "fallback": {"rule": "weighted-random"}},
    ),
    "jiq-sq(2)": (odd(), "jiq-sq(2)", {"rule": "jiq-sq", "d": 2}),
    "round-robin": (odd(0.6), "round-robin", "round-robin"),
    "wrr": (odd(), "wrr", "wrr"),
    "sed(3), with replacement": (
        odd(replace=True),
        "sed(3, ties=fastest)",
        {"rule": "sed", "d": 3, "ties": "fastest"},
    ),
    "jsq, lowest": (odd(), "jsq(ties=lowest)", {"rule": "jsq", "ties": "lowest"}),
    "jsed": (odd(), "jsed", {"rule": "jsed"}),
    "index(1/2)": (odd(), "index(1/2)", {"rule": "index", "a": 0.5}),
    "fpi": (
        System([Pool(2, speed=1.0), Pool(1, speed=4.0)], load=0.75),
        "fpi",
        {"rule": "fpi"},
    ),
    "threshold(3)": (
        System([Pool(1, speed=1.0), Pool(1, speed=6.0)], load=0.7),
        "threshold(3)",
        {"rule": "threshold", "k": 3},
    ),
    **{
        f"local search, {rule}": (
            odd(migration_rate=0.8, message_fate=fate),
            f"local-search(rule={rule}, place=pull)",
            {"rule": "pull"},
        )
        for rule, fate in zip(("strict", "weak", "oblivious"), FATES, strict=True)
    },
    **{
        f"sed(2), {name} sizes": (odd(size=law), "sed(2)", {"rule": "sed", "d": 2})
        for name, (law, _) in DRAWN.items()
    },
    **{
        f"pull that moves, {name} sizes": (
            odd(size=law, migration_rate=0.8),
            f"local-search(rule={rule}, place=pull)",
            {"rule": "pull"},
        )
        for (name, (law, _)), rule in zip(
            DRAWN.items(), ("strict", "weak", "oblivious"), strict=True
        )
    },
}


def plainly(system, policy, rule):
    """The system as the witness takes it."""
    plain = {
        "pools": [
            {
                "servers": pool.servers,
                "speed": pool.speed,
                "limit": pool.limit,
                "slots": pool.slots,
                "discipline": pool.discipline,
            }
            for pool in system.pools
        ],
        "arrival_rate": system.arrival_rate,
        "routers": list(system.router_weights),
        "message_fate": system.message_fate,
        "replace": system.replace,
    }
    for law, size in DRAWN.values():
        if system.size == as_law(law):
            plain["size"] = size
    if system.migrates:
        way = policy.split("rule=")[1].split(",")[0]
        plain["migration"] = {"rate": system.migration_rate, "rule": way}
    return plain, rule


@functools.cache
def z_scores(name):
    """By quantity: the difference over its standard error; 0 where both are the same constant."""
    system, policy, rule = CASES[name]
    seed = list(CASES).index(name)
    witness = plain_simulator.simulate(*plainly(system, policy, rule), WITNESS_JOBS, seed)
    batches = simulate(system, policy, jobs=JOBS, seed=seed).batches
    batches["accepted"] = batches["arrivals"] - batches["blocked"]
    batches["probe_messages"] = 2 * batches["probes"]
    scores = {}
    for quantity, (above, below) in RATIOS.items():
        ours = ratio(batches[above], batches[below])
        error = math.hypot(ours.half_width / T_QUANTILE, witness["se"][quantity])
        difference = ours.mean - witness[quantity]
        scores[quantity] = 0.0 if difference == 0 else difference / max(error, 1e-12)
    return scores


@pytest.mark.parametrize("name", CASES)
def test_the_witness_agrees(name):
    for quantity, z in z_scores(name).items():
        assert abs(z) < LARGEST_Z, f"{quantity}: z = {z:.1f}"


def test_the_witness_agrees_on_the_whole():
    """One z a case, the quantities taking turns: their mean and spread are those of a normal."""
    chosen = []
    for k, name in enumerate(CASES):
        varying = [z for z in z_scores(name).values() if z != 0]
        chosen.append(varying[k % len(varying)])
    mean = sum(chosen) / len(chosen)
    spread = math.sqrt(sum((z - mean) ** 2 for z in chosen) / (len(chosen) - 1))
    assert abs(mean) < 3 / math.sqrt(len(chosen))
    assert abs(spread - 1) < 3 / math.sqrt(2 * len(chosen))
