"""`critical_load` finds every known threshold, and `growth` every known rate beyond."""

import json
import math
from pathlib import Path

import pytest

from lbgym import Pool, System, theory
from lbgym.simulate import simulate

VALUES = json.loads((Path(__file__).parent / "data" / "theory_values.json").read_text())
THRESHOLD = 1e-4
FATES = {"withdraw": "withdraw", "stale1": "keep", "resend": "resend"}


def servers(*speeds, load=0.5, **same):
    return System([Pool(1, speed=mu) for mu in speeds], load=load, **same)


@pytest.mark.parametrize("routers", [1, 2, 3, 5, 100])
def test_critical_load_of_pull_by_routers(routers):
    known = VALUES["critical_load_PULL_withdraw_n2_het12"][f"R={routers}"]
    found = theory.critical_load(servers(1.0, 2.0, routers=routers), "pull")
    assert found == pytest.approx(known, abs=THRESHOLD)


@pytest.mark.parametrize("entry", VALUES["stability"]["PULL_n2_critical"])
def test_critical_load_of_pull_by_message_fate(entry):
    system = servers(*entry["mu"], routers=entry["R"], message_fate=FATES[entry["variant"]])
    assert theory.critical_load(system, "pull") == pytest.approx(entry["rho_star"], abs=THRESHOLD)


@pytest.mark.parametrize(
    ("fate", "known"), [("withdraw", 0.790760), ("keep", 0.807773), ("resend", 0.818527)]
)
def test_critical_load_of_pull_on_two_routers(fate, known):  # MODELS section 1
    system = servers(1.0, 2.0, routers=2, message_fate=fate)
    assert theory.critical_load(system, "pull") == pytest.approx(known, abs=5e-6)


@pytest.mark.parametrize("entry", VALUES["stability"]["JSQd_rho_star"])
def test_critical_load_of_jsq_d(entry):
    known = pytest.approx(entry["rho_star"], rel=1e-12)
    assert theory.critical_load(servers(*entry["mu"]), f"jsq({entry['d']})") == known
    assert theory.critical_load(servers(*entry["mu"]), f"sed({entry['d']})") == known


@pytest.mark.parametrize(
    ("policy", "known"),
    [
        ("random", 2 / 3),
        ("weighted-random", 1.0),
        ("static(1, 3)", 8 / 9),
        ("jsq", 1.0),
        ("sed(ties=fastest)", 1.0),
        ("jsed", 1.0),
        ("index(1/2)", 1.0),
        ("fpi", 1.0),
        ("threshold(3)", (2 + math.sqrt(12)) / 6),  # lambda^2 = mu_fast (lambda + mu_slow)
        ("pull(fallback=weighted-random)", 1.0),
        ("pull(fallback=jsq(2))", 1.0),
        ("jiq-sq(1)", 0.853851),
    ],
)
def test_critical_load_of_two_servers(policy, known):
    assert theory.critical_load(servers(1.0, 2.0), policy) == pytest.approx(known, abs=1e-5)


# MODELS section 2: arrival_rate (p_n + ... + p_{n-k+1}) < mu_(1) + ... + mu_(k), speeds ascending.
RANKED = [
    ((0.2, 0.2, 2.6), "rank(2, 1, 0)", 0.4),  # power of two of three: p = (2/3, 1/3, 0)
    ((1.0, 2.0), "rank(1, 0)", 1.0),
    ((1.0, 2.0), "rank(0.6, 0.4)", 1 / (0.4 * 3)),
    ((3.0, 1.0, 2.0), "rank(0.5, 0.3, 0.2)", 1 / (0.2 * 6)),
    ((3.0, 1.0, 2.0), "rank(0.4, 0.3, 0.3)", 1 / (0.3 * 6)),
    ((5.0, 1.0, 1.0), "rank(1/3, 1/3, 1/3)", 3 / 7),
]


@pytest.mark.parametrize("order", ["jsq", "jsed"])
@pytest.mark.parametrize(("speeds", "policy", "known"), RANKED)
def test_critical_load_of_rank_policies(speeds, policy, known, order):
    name = policy.replace(")", f", order={order})")
    for interval in (None, 0.5, 100.0):
        system = servers(*speeds, read_interval=interval)
        expected = pytest.approx(min(known, 1.0), rel=1e-12)
        assert theory.critical_load(system, name) == expected


def test_reads_play_no_part_in_stability():
    for policy in ("jsq", "jsq(2)", "sed(2)", "jsed", "random", "rank(3, 2, 1)"):
        loads = {
            theory.critical_load(servers(0.2, 0.2, 2.6, read_interval=t), policy)
            for t in (None, 1.0, 20.0)
        }
        assert len(loads) == 1


def test_stability_of_rank_policies_in_simulation():
    """Speeds (3, 1, 2), p = (.4, .3, .3): critical load .5556, whatever the interval."""
    for load, stable in ((0.5, True), (0.65, False)):
        system = servers(3.0, 1.0, 2.0, load=load, read_interval=2.0)
        policy = "rank(0.4, 0.3, 0.3)"
        run = simulate(system, policy, jobs=1_000_000, seed=4)
        assert run.stable is stable
        grows = theory.growth(system, policy)
        assert (grows == 0) == stable
        assert stable or run.growth.mean == pytest.approx(grows, rel=0.1)


@pytest.mark.parametrize(
    ("policy", "same", "said"),
    [
        ("rank(0.3, 0.7)", {}, "only if p1 >= p2"),
        ("threshold(3)", {"read_interval": 1.0}, "go by their order"),
        ("sed(own-sends=1)", {"read_interval": 1.0}, "its memory"),
        ("lsq(1)", {}, "its memory"),
    ],
)
def test_what_is_only_sufficient_is_refused(policy, same, said):
    with pytest.raises(ValueError, match=said):
        theory.critical_load(servers(1.0, 2.0, **same), policy)


def test_critical_load_of_random_is_that_of_the_slowest():
    for key, known in VALUES["stability"]["Random_rho_star"].items():
        speeds = map(float, key.removeprefix("mu"))
        assert theory.critical_load(servers(*speeds), "random") == pytest.approx(known, rel=1e-12)


def test_local_search_is_stable_wherever_that_is_possible():
    system = servers(1.0, 2.0, migration_rate=0.01)
    assert theory.critical_load(system, "local-search(place=static(1, 0))") == 1


def test_servers_with_limits_never_grow():
    assert theory.critical_load("flagship", "pull") == math.inf
    assert theory.critical_load("flagship", "random") == math.inf
    some = System([Pool(1), Pool(1, speed=2.0, limit=3)], load=0.5)
    assert theory.critical_load(some, "jsq") == math.inf
    assert theory.critical_load(some, "random") == pytest.approx(2 / 3)
    assert 2 / 3 < theory.critical_load(some, "pull") < 1


@pytest.mark.slow
def test_critical_load_of_pull_on_three_servers():
    three = theory.critical_load(servers(1.0, 1.5, 2.0, routers=2), "pull")
    assert 0.82 < three < 0.84
    assert theory.growth(servers(1.0, 1.5, 2.0, routers=2, load=three - 0.01), "pull") == 0
    assert theory.growth(servers(1.0, 1.5, 2.0, routers=2, load=three + 0.01), "pull") > 0


@pytest.mark.parametrize("entry", VALUES["stability"]["PULL_n2_het12_growth_slow_at_rho0.95"])
def test_growth_of_pull_beyond_its_critical_load(entry):
    system = servers(1.0, 2.0, load=0.95, routers=entry["R"], message_fate=FATES[entry["variant"]])
    assert theory.growth(system, "pull") == pytest.approx(entry["growth"], rel=1e-6)


def test_growth_of_jsq2_below_load_1():
    known = VALUES["stability"]["JSQ2_n3_mu_.2_.2_2.6"]["growth_total_at_rho07"]
    system = servers(0.2, 0.2, 2.6, load=0.7)
    assert theory.growth(system, "jsq(2)") == pytest.approx(known, rel=1e-12)
    assert theory.growth(system, "jsq") == 0


def test_growth_is_what_simulation_sees():
    system = servers(1.0, 2.0, load=0.9)
    run = simulate(system, "pull", jobs=1_000_000, seed=5)
    known = theory.growth(system, "pull")
    assert known == pytest.approx(0.0881, abs=5e-5)
    assert run.growth.low < known < run.growth.high
    assert run.stable is False


@pytest.mark.parametrize(
    ("system", "policy", "said"),
    [
        (servers(1.0, 2.0), "wrr", "memory"),
        (System(Pool(100), 2, 0.5), "pull", "1 x|sets of servers|states"),
        (System([Pool(9), Pool(9, speed=2.0)], 2, 0.5), "pull", "that stay stable"),
        (System([Pool(1, speed=float(k)) for k in range(1, 6)], load=0.5), "pull", "28,561 states"),
        (
            System([Pool(1), Pool(1, limit=2)], load=0.5, migration_rate=1.0),
            "local-search",
            "no server, or every server, has a limit",
        ),
    ],
)
def test_what_is_not_known_is_refused_with_a_reason(system, policy, said):
    with pytest.raises(ValueError, match=said):
        theory.critical_load(system, policy)


# --- where a server would get just what it serves if no job found a message -----------------------
@pytest.mark.parametrize(
    ("speeds", "rate", "policy", "routers", "jobs"),
    [
        ((1.0, 2.0), 2.0, "pull", 1, 3.70741682),
        ((1.0, 2.0), 2.0, "pull(fallback=static(1, 1))", 1, 3.70741682),
        ((1.0, 2.0), 2.0, "pull", 2, 5.52806265),
        ((1.0, 3.0), 2.0, "jiq", 1, 2.11660901),
        ((0.5, 1.5), 1.0, "fastest-idle", 1, 1.97953600),
    ],
)
def test_a_bound_of_exactly_zero_is_no_verdict(speeds, rate, policy, routers, jobs):
    pools = [Pool(1, speed=s) for s in speeds]
    for there in (rate, rate * (1 - 1e-13), rate * (1 + 1e-13)):
        system = System(pools, routers=routers, arrival_rate=there)
        assert theory.exact(system, policy).jobs_in_system == pytest.approx(jobs, rel=1e-7)


def test_the_critical_load_of_pull_on_three_unlike_servers():
    """The slow server fails long before the load at which the two others do."""
    three = theory.critical_load(servers(1.0, 2.0, 5.0), "pull")
    assert three == pytest.approx(0.707173, abs=1e-5)
    assert theory.growth(servers(1.0, 2.0, 5.0, load=0.75), "pull") == pytest.approx(
        0.13763, rel=1e-4
    )


@pytest.mark.parametrize("speeds", [(1.0, 3.0), (3.0, 1.0), (2.0, 6.0)])
def test_the_critical_load_of_pull_is_smooth_in_the_speeds(speeds):
    """R = 1: (1, 2.999) gives .75009; R = 2: .6515."""
    assert theory.critical_load(servers(*speeds), "pull") == pytest.approx(0.75, abs=1e-6)
    two = theory.critical_load(servers(*speeds, routers=2), "pull")
    assert two == pytest.approx(0.651388, abs=1e-5)
