"""Closed forms, mean fields and fluctuations reproduce their known values."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from lbgym import Pool, System, theory
from lbgym.theory import closed_form

VALUES = json.loads((Path(__file__).parent / "data" / "theory_values.json").read_text())
CLOSED = 1e-9


# --- Closed forms. --------------------------------------------------------------------------------
@pytest.mark.parametrize("entry", VALUES["MM1"])
def test_mm1(entry):
    queue = closed_form.mm1(entry["lam"])
    assert queue.jobs_in_system == pytest.approx(entry["EN"], rel=CLOSED)
    assert queue.waiting_time == pytest.approx(entry["EW"], rel=CLOSED)
    assert queue.waiting_probability == pytest.approx(entry["P_wait"], rel=CLOSED)


@pytest.mark.parametrize("entry", VALUES["MMc"])
def test_mmc(entry):
    queue = closed_form.mmc(entry["lam"], entry["c"])
    assert queue.response_time == pytest.approx(entry["ER"], rel=CLOSED)
    assert queue.waiting_probability == pytest.approx(entry["P_wait"], rel=CLOSED)


@pytest.mark.parametrize("entry", VALUES["MM1K"])
def test_mm1k(entry):
    queue = closed_form.mm1k(entry["lam"], entry["K"])
    assert queue.blocking_probability == pytest.approx(entry["P_block"], rel=CLOSED)
    assert queue.response_time == pytest.approx(entry["ER"], rel=CLOSED)
    assert queue.waiting_probability == pytest.approx(entry["P_wait_accepted"], abs=CLOSED)


@pytest.mark.parametrize("entry", VALUES["MMcc"])
def test_erlang_b(entry):
    assert closed_form.erlang_b(entry["c"], entry["a"]) == pytest.approx(
        entry["P_block"], rel=CLOSED
    )
    loss = closed_form.mmsk(entry["a"], entry["c"], entry["c"])
    assert loss.blocking_probability == pytest.approx(entry["P_block"], rel=CLOSED)


SCV = {"det": 0.0, "erlang2": 0.5, "exp": 1.0, "hyperexp2_scv4": 4.0, "uniform02": 1 / 3}


@pytest.mark.parametrize("law", SCV)
def test_pollaczek_khinchine(law):
    for entry in VALUES["MG1FCFS"][law]:
        queue = closed_form.mg1(entry["lam"], 1.0, SCV[law])
        assert queue.jobs_in_system == pytest.approx(entry["EN"], rel=CLOSED)
        assert queue.waiting_time == pytest.approx(entry["EW"], rel=CLOSED)


def test_processor_sharing_does_not_see_the_law():
    assert closed_form.mg1_ps(0.7, 1.0).response_time == pytest.approx(1 / 0.3, rel=CLOSED)
    assert closed_form.mg1_ps_response(2.0, 0.7) == pytest.approx(2 / 0.3, rel=CLOSED)


@pytest.mark.parametrize("key", VALUES["Random"])
def test_bernoulli_splits(key):
    entry = VALUES["Random"][key]
    queues = closed_form.split(entry["lam"], entry["mu"], entry["p"])
    each = [queue.jobs_in_system for queue in queues]
    assert each == pytest.approx(entry["EN_each"], rel=CLOSED)
    best = closed_form.best_split(entry["lam"], entry["mu"])
    assert sum(best) == pytest.approx(1, rel=CLOSED)
    if key.endswith("opt"):
        assert best == pytest.approx(entry["p"], rel=CLOSED)
    optimum = sum(q.jobs_in_system for q in closed_form.split(entry["lam"], entry["mu"], best))
    assert optimum <= sum(each) * (1 + CLOSED)


def test_the_best_split_leaves_slow_servers_out():
    assert closed_form.best_split(1.0, [10.0, 0.1, 10.0]) == pytest.approx([0.5, 0.0, 0.5])


@pytest.mark.parametrize("entry", VALUES["supermarket"])
def test_supermarket(entry):
    tail = closed_form.supermarket(entry["lam"], entry["d"])
    known = entry["s_first6"]
    assert closed_form.supermarket(entry["lam"], entry["d"], levels=len(known))[1:] == (
        pytest.approx(np.array(known), rel=CLOSED)
    )
    assert tail[1:].sum() == pytest.approx(entry["EN_per_server"], rel=CLOSED)


# MODELS section 1: derived limits of PULL with unequal routers.
UNEQUAL = [
    ((0.8, 0.2), 0.7, 0.3231),
    ((0.8, 0.2), 0.5, 0.2000),
    ((0.6, 0.2, 0.2), 0.8, 0.2909),
    ((0.4, 0.3, 0.3), 0.8, 0.0727),
    ((0.5, 0.5), 0.8, 0.0),
]


@pytest.mark.parametrize(("weights", "load", "wait"), UNEQUAL)
def test_pull_with_unequal_routers(weights, load, wait):
    assert closed_form.unequal_routers(load, weights) == pytest.approx(wait, abs=5e-5)
    limit = theory.mean_field(System(Pool(10), routers=weights, load=load), "pull")
    assert limit.waiting_probability == pytest.approx(wait, abs=5e-5)
    assert limit.utilization == pytest.approx(load, rel=CLOSED)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: closed_form.mm1(1.0), "below 1"),
        (lambda: closed_form.mm1(-1.0), "arrival_rate: must be"),
        (lambda: closed_form.mm1k(1.0, 0), "limit: must be"),
        (lambda: closed_form.erlang_b(-1, 1.0), "servers: must be"),
        (lambda: closed_form.mg1(0.5, 1.0, -1.0), "scv: must be"),
        (lambda: closed_form.supermarket(0.5, 0), "d: must be"),
        (lambda: closed_form.best_split(5.0, [1.0, 2.0]), "below 1"),
        (lambda: closed_form.split(1.0, [1.0, 2.0], [1.0]), "one for each"),
    ],
)
def test_formulas_refuse_what_makes_no_sense(call, said):
    with pytest.raises(ValueError, match=said):
        call()


# --- Mean fields. ---------------------------------------------------------------------------------
FIXED_POINT = 1e-6


@pytest.mark.parametrize("entry", VALUES["loss"]["JSQd_loss_meanfield"])
def test_mean_field_of_jsq_d_loss(entry):
    c = entry["C"]
    system = System(Pool(7, slots=c, limit=c), arrival_rate=7 * entry["lam"])
    limit = theory.mean_field(system, f"jsq({entry['d']})")
    tail = np.pad(limit.queue_tail["all"], (0, c))[1 : c + 1]
    assert tail == pytest.approx(np.array(entry["u"]), abs=FIXED_POINT)
    assert limit.blocking_probability == pytest.approx(entry["P_block"], abs=FIXED_POINT)
    assert limit.jobs_per_server == pytest.approx(entry["mean_jobs_per_server"], rel=FIXED_POINT)


def test_mean_field_of_static_routing_to_two_capacities():
    for entry in VALUES["loss"]["het_capacity_meanfield"]:
        pools = [Pool(round(10 * share), slots=c, limit=c) for share, c in entry["types"]]
        limit = theory.mean_field(
            System(pools, arrival_rate=10 * entry["lam_per_server"][0]), "random"
        )
        assert limit.blocking_probability == pytest.approx(entry["P_block_avg"], rel=FIXED_POINT)


@pytest.mark.parametrize("entry", VALUES["supermarket"])
def test_mean_field_of_the_supermarket(entry):
    limit = theory.mean_field(System(Pool(20), load=entry["lam"]), f"jsq({entry['d']})")
    assert limit.jobs_per_server == pytest.approx(entry["EN_per_server"], rel=FIXED_POINT)
    assert limit.waiting_probability == pytest.approx(entry["P_wait"], rel=FIXED_POINT)
    assert limit.messages_per_job == 2 * entry["d"]


SEARCHES = [key for key in VALUES["rls_open_mean_field"] if re.match(r"RL.*beta=\d", key)]


@pytest.mark.parametrize("key", SEARCHES)
def test_mean_field_of_local_search(key):
    entry = VALUES["rls_open_mean_field"][key]
    rule, load, beta = re.match(r"(RL\w),lam=([\d.]+),beta=([\d.]+)", key).groups()
    system = System(Pool(9, discipline="ps"), load=float(load), migration_rate=float(beta))
    way = {"RLS": "strict", "RLO": "oblivious"}[rule]
    limit = theory.mean_field(system, f"local-search(rule={way})")
    assert limit.jobs_per_server == pytest.approx(entry["EN_per_server"], rel=FIXED_POINT)
    law = -np.diff(limit.queue_tail["all"])[:4]
    assert law == pytest.approx([entry[f"P{k}"] for k in range(4)], abs=FIXED_POINT)
    if rule == "RLO":
        moves = float(beta) * entry["EN_per_server"] / float(load)
        assert limit.migrations_per_job == pytest.approx(moves, rel=FIXED_POINT)


@pytest.mark.parametrize("entry", VALUES["PULL_fluid_equilibrium"])
def test_mean_field_of_pull(entry):
    pools = [Pool(5, speed=mu, limit=3) for mu in entry["mu"]]
    system = System(pools, 4, arrival_rate=10 * entry["lam_per_server"])
    limit = theory.mean_field(system, "pull")
    assert limit.utilization_per_pool == pytest.approx(entry["busy_prob"], rel=CLOSED)
    assert (limit.waiting_probability, limit.messages_per_job) == (0, 1)


def test_pull_with_the_fastest_choice_fills_the_fast_servers_first():
    limit = theory.mean_field("flagship", "pull(choice=fastest)")
    assert limit.utilization_per_pool == pytest.approx((0.7, 1.0))
    assert limit.utilization == pytest.approx(0.9)


@pytest.mark.parametrize("policy", ["jsq(2)", "sed(2)", "sed(2, ties=fastest)", "weighted-random"])
def test_limits_of_two_pools_are_approached_as_servers_are_added(policy):
    pools = [(1, 1.0), (1, 2.0)]
    limit = theory.mean_field(
        System([Pool(n, speed=mu, limit=4) for n, mu in pools], load=0.8, replace=True), policy
    )
    gaps = []
    for k in (1, 2, 4):
        system = System([Pool(n * k, speed=mu, limit=4) for n, mu in pools], load=0.8, replace=True)
        gaps.append(abs(theory.exact(system, policy).cost - limit.cost))
    assert gaps[2] <= 0.6 * gaps[1] + 1e-9
    assert gaps[1] <= 0.7 * gaps[0] + 1e-9


def test_the_weak_rule_moves_more_for_nothing():
    system = System(Pool(9), load=0.8, migration_rate=1.0)
    strict = theory.mean_field(system, "local-search(rule=strict)")
    weak = theory.mean_field(system, "local-search(rule=weak)")
    assert weak.jobs_per_server == pytest.approx(strict.jobs_per_server, rel=1e-9)
    assert weak.migrations_per_job > 1.2 * strict.migrations_per_job


@pytest.mark.parametrize(
    ("system", "policy", "said"),
    [
        ("flagship", "jsq", "jsq has none"),
        ("flagship", "fpi", "fpi has none"),
        ("flagship", "jiq-sq(2)", "none is known"),
        ("split-80-20", "pull", "take equal routers"),
        (System(Pool(3), load=1.1), "jsq(2)", "not stable"),
        (System(Pool(3, limit=2), load=1.1), "pull", "lower the load"),
        (System([Pool(1), Pool(1, speed=9.0)], load=0.9), "random", "not stable"),
    ],
)
def test_a_policy_without_a_mean_field_is_refused(system, policy, said):
    with pytest.raises(ValueError, match=said):
        theory.mean_field(system, policy)


# --- Fluctuations. --------------------------------------------------------------------------------
@pytest.mark.parametrize("entry", VALUES["loss"]["OU"])
def test_ou_covariance(entry):
    found = theory.ou_covariance(entry["sigma"], entry["C"], entry["d"], entry["beta"])
    assert np.diag(found.covariance) == pytest.approx(entry["var_u"], rel=1e-5)
    assert found.variance_of_total == pytest.approx(entry["var_total"], rel=1e-5)
    assert found.mean == pytest.approx(entry["mean"], rel=1e-5, abs=1e-12)


# --- local search in the limit, wherever the plain iteration runs away ----------------------------
def followed(system, rule):
    """Jobs per server when the differential equation of MODELS section 5 is followed to its end,
    written once more and integrated by SciPy."""
    from scipy.integrate import solve_ivp

    speeds, beta, levels = [p.speed for p in system.pools], system.migration_rate, 38
    q, n = np.arange(levels + 1), len(speeds)
    share = np.array([[p.servers / system.servers] for p in system.pools])
    offered = system.arrival_rate / system.servers

    def goes(p, k, r):
        there, here = speeds[r] * k, speeds[p] * (q + 1)
        moves = {"strict": there > here + 1e-9, "weak": there > here - 1e-9, "oblivious": q >= 0}
        return moves[rule] & (q < levels)

    moves = np.array(
        [[[goes(p, k, r) for r in range(n)] for k in range(levels + 1)] for p in range(n)]
    ).astype(float)

    def drift(_, flat):
        law = flat.reshape(n, levels + 1)
        up = (offered + beta * np.tensordot(law * share * q, moves, 2)) * law
        down = (np.outer(speeds, q > 0) + beta * q * np.tensordot(moves, law * share, 2)) * law
        up[:, -1] = 0.0
        change = -up - down
        change[:, 1:] += up[:, :-1]
        change[:, :-1] += down[:, 1:]
        return change.ravel()

    empty = np.eye(1, levels + 1).repeat(n, axis=0).ravel()
    ran = solve_ivp(drift, (0, 2_000.0), empty, method="LSODA", rtol=1e-9, atol=1e-12)
    return float((ran.y[:, -1].reshape(n, -1) * share * q).sum())


@pytest.mark.parametrize("rule", ["strict", "weak", "oblivious"])
@pytest.mark.parametrize(
    ("speeds", "load", "beta"),
    [((1.0,), 0.98, 50.0), ((1.0, 3.0), 0.95, 5.0), ((1.0, 3.0), 0.9, 50.0)],
)
def test_local_search_follows_its_differential_equation(speeds, load, beta, rule):
    pools = [Pool(5, speed=s, discipline="ps") for s in speeds]
    system = System(pools, load=load, migration_rate=beta)
    limit = theory.mean_field(system, f"local-search(rule={rule})")
    assert limit.jobs_per_server == pytest.approx(followed(system, rule), rel=1e-7)


@pytest.mark.parametrize("beta", [1.0, 2.0, 5.0, 20.0, 50.0, 500.0])
def test_local_search_converges_at_every_load(beta):
    """1 - load of the servers are idle, whatever the rule (MODELS section 5)."""
    for load in (0.5, 0.9, 0.93, 0.98):
        for servers in (1, 10):
            pool = Pool(servers, discipline="ps")
            system = System(pool, load=load, migration_rate=beta)
            limit = theory.mean_field(system, "local-search")
            assert limit.queue_tail["all"][1] == pytest.approx(load, rel=1e-9)
    system = System(Pool(10, discipline="ps"), load=0.9, migration_rate=5.0)
    limit = theory.mean_field(system, "local-search")
    assert limit.jobs_per_server == pytest.approx(1.33239123659, rel=1e-10)


def test_local_search_with_sampled_placement_converges():
    """Load 1 - s of speed-weighted work is done: busy servers weighted by speed."""
    pools = [Pool(5, discipline="ps"), Pool(5, speed=3.0, discipline="ps")]
    for place in ("jsq(2)", "sed(3)"):
        system = System(pools, load=0.95, migration_rate=20.0)
        limit = theory.mean_field(system, f"local-search(place={place})")
        assert limit.utilization == pytest.approx(0.95, rel=1e-9)
