"""`theory.exact` reproduces every known value of systems small enough, and refuses the rest."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from baselines.reference import VALUES as CASE_VALUES
from baselines.reference import Case, cases
from lbgym import Pool, System, theory
from lbgym.simulate import simulate

VALUES = json.loads((Path(__file__).parent / "data" / "theory_values.json").read_text())
CASE_SECTIONS = json.loads(CASE_VALUES.read_text(encoding="utf-8"))
RELATIVE = 1e-6

SLOW = (  # more than a second
    "PULL_K3_hom_07_withdraw_vs_n n24 R2",
    "PULL_K3_hom_07_withdraw_vs_n n16 R2",
    "PULL_K3_hom_07_stale1_vs_n n8 R2",
    "PULL_n3_hom_06_R2_stale1",
    "PULL_n3_hom_07_R3_withdraw",
    "PULL_n3_het_1_1.5_2_05_R2_withdraw",
    "JSQ2_n4_hom_08",
    "JSQ_n4_hom_09",
    "JSQ2_n3_hom_09",
    "JSQ_n3_hom_09",
    "JSQ_n4_hom_08",
    "JSEDqmu_n2_12_0.98",
    "SED_n3_het123_tierandom_07",
)


def row(name, value):
    return pytest.param(value, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


def found_in(result, case):
    """The result's numbers, named as a case names them."""
    messages = result.messages_per_job
    if case.policy.startswith("pull"):
        messages -= result.withdrawals_per_job
    return {
        "EN": result.jobs_in_system,
        "P_wait": result.waiting_probability,
        "P_block": result.blocking_probability,
        "messages": messages,
        "withdrawals": result.withdrawals_per_job,
        "migrations": result.migrations_per_job * case.system.arrival_rate,
        "cost": result.cost,
    }


def truncation_of(case: Case) -> float:
    """How far the value itself may be off, absolutely."""
    if case.source == "jsq_sed.heavy_traffic_scaled":
        return 1e-5 * case.values["EN"]  # its box leaves out a mass of up to 2e-8 at 1000 jobs
    section = CASE_SECTIONS.get(case.source, {})
    entry = section.get(case.name, {})
    errors = [v for k, v in entry.items() if k.startswith(("trunc_err", "diff_cut_err"))]
    return max(errors, default=0.0)


@pytest.mark.parametrize("case", [row(case.name, case) for case in cases()])
def test_exact_reproduces_the_known_value(case):
    result = theory.exact(case.system, case.policy)
    found = found_in(result, case)
    for quantity, value in case.values.items():
        allowed = max(RELATIVE * abs(value), truncation_of(case), 1e-9)
        assert found[quantity] == pytest.approx(value, abs=allowed, rel=0), quantity
    assert result.truncation_error <= 1e-6 * result.jobs_in_system
    assert result.residual < 1e-12


@pytest.mark.parametrize("row", [k for k in VALUES["rls_open"] if "mu=" in k])
def test_local_search_splits_the_jobs_between_servers_as_known(row):
    for key, entry in VALUES["rls_open"][row].items():
        if "EN_per_server" not in entry:
            continue
        rule, beta = re.match(r"(\w+),beta=([\d.]+)", key).groups()
        rates = (1.2, 0.6) if "1.2" in row else (0.9, 0.5)
        speeds = (1, 2) if "mu=(1,2)" in row else (1, 1)
        system = System(
            [Pool(1, speed=mu, discipline="ps") for mu in speeds],
            arrival_rate=sum(rates),
            migration_rate=float(beta),
        )
        way = {"RLS": "strict", "RLO": "oblivious"}[rule]
        place = f"static({rates[0]}, {rates[1]})"
        result = theory.exact(system, f"local-search(rule={way}, place={place})")
        assert result.jobs_per_server == pytest.approx(entry["EN_per_server"], rel=RELATIVE)
        idle = [1 - tail[1] for tail in result.queue_tail["pools"]]
        assert idle == pytest.approx(entry["P_idle_per_server"], rel=RELATIVE)


LOSS = [
    entry
    for table in ("JSQd_loss_exact", "JSQd_loss_vs_N_C3", "JSQd_loss_vs_N_C5")
    for entry in VALUES["loss"][table]
]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(
            e,
            id=f"C{e['C']} N{e['N']} d{e['d']} lam{e['lam']} replace{int(e['replace'])}",
            marks=[pytest.mark.slow] if e["states"] > 2_000 else [],
        )
        for e in LOSS
    ],
)
def test_jsq_d_erlang_loss(entry):
    n, c = entry["N"], entry["C"]
    system = System(
        Pool(n, slots=c, limit=c), arrival_rate=n * entry["lam"], replace=bool(entry["replace"])
    )
    result = theory.exact(system, f"jsq({entry['d']})")
    assert result.blocking_probability == pytest.approx(entry["P_block"], rel=RELATIVE)
    assert result.queue_tail["all"][1:] == pytest.approx(entry["u"], rel=RELATIVE)
    assert result.states == entry["states"]
    assert result.truncation_error == 0


def test_static_routing_to_servers_of_two_capacities():
    for entry in VALUES["loss"]["het_capacity_exact"]:
        pools = [Pool(1, slots=c, limit=c) for c in entry["caps"]]
        result = theory.exact(System(pools, arrival_rate=entry["lam"][0]), "random")
        assert result.blocking_probability == pytest.approx(entry["P_block_avg"], rel=RELATIVE)


LOCAL = VALUES["local_choice"]


def laws(result):
    """Fraction of servers with 0 .. 4 jobs."""
    return -np.diff(np.pad(result.queue_tail["all"], (0, 6)))[:5]


@pytest.mark.parametrize("load", ["rho=0.1", "rho=0.5", "rho=0.7"])
def test_jsq2_on_four_servers(load):
    entry = LOCAL["JSQ2_N=4_distinct_pair_exact"][load]
    result = theory.exact(System(Pool(4), load=float(load[4:])), "jsq(2)")
    assert laws(result) == pytest.approx(entry["P"], rel=RELATIVE, abs=1e-9)
    assert result.response_time == pytest.approx(entry["ET"], rel=RELATIVE)


@pytest.mark.parametrize("key", LOCAL["JSQ2_with_replacement_exact"])
def test_jsq2_with_replacement(key):
    entry = LOCAL["JSQ2_with_replacement_exact"][key]
    n, load = re.match(r"N=(\d),rho=([\d.]+)", key).groups()
    result = theory.exact(System(Pool(int(n)), load=float(load), replace=True), "jsq(2)")
    assert laws(result) == pytest.approx(entry["P"], rel=RELATIVE, abs=1e-9)


@pytest.mark.parametrize("key", LOCAL["JSQ_two_queues_finite_capacity"])
def test_two_short_queues(key):
    entry = LOCAL["JSQ_two_queues_finite_capacity"][key]
    limit, load = re.match(r"K=(\d+),rho=([\d.]+)", key).groups()
    result = theory.exact(System(Pool(2, limit=int(limit)), load=float(load)), "jsq")
    assert result.blocking_probability == pytest.approx(entry["P_both_full_exact"], rel=RELATIVE)
    assert result.jobs_in_system / 2 == pytest.approx(entry["mean_per_queue"], rel=RELATIVE)


# --- What has no published value agrees with simulation. ------------------------------------------
TWO = [Pool(1, limit=3), Pool(2, speed=2.0, limit=4, slots=2)]
MIGRATING = {"migration_rate": 0.7, "load": 0.9}
SIMULATED = [
    (System(TWO, [0.7, 0.3], 0.9), "pull(fallback=weighted-random, choice=fastest)"),
    (System(TWO, 2, 0.9, message_fate="keep"), "pull(fallback=static(1, 2, 3))"),
    (System(TWO, 3, 0.9, message_fate="resend"), "pull(fallback=jsq(2), choice=fastest)"),
    (System(TWO, 3, 0.7), "jiq-sq(2)"),
    (System(TWO, 3, 0.7, message_fate="keep"), "jiq-sq(3)"),
    (System(TWO, 3, 0.7, message_fate="resend"), "jiq-sq(2)"),
    (System(TWO, load=0.9), "sed(2, ties=fastest)"),
    (System(TWO, load=0.9, replace=True), "sed(2, ties=lowest)"),
    (System(TWO, load=0.9), "jsq(ties=lowest)"),
    (System(TWO, load=0.9), "index(1/2, ties=fastest)"),
    (System([Pool(1), Pool(1, speed=3.0)], load=0.7), "fpi"),
    (System([Pool(1), Pool(1, speed=3.0)], load=0.7), "threshold(2)"),
    (System(TWO, **MIGRATING), "local-search(rule=weak, place=jsq(2))"),
    (System(TWO, **MIGRATING), "local-search(rule=oblivious, place=random)"),
    (System(TWO, 2, **MIGRATING), "local-search(place=pull)"),
    (System(TWO, 2, **MIGRATING, message_fate="keep"), "local-search(place=pull)"),
    (System(TWO, 2, **MIGRATING, message_fate="resend"), "local-search(rule=weak, place=pull)"),
    (System(Pool(3, discipline="ps"), load=0.6), "jsq(2)"),
]


@pytest.mark.parametrize(("system", "policy"), SIMULATED, ids=[policy for _, policy in SIMULATED])
def test_exact_agrees_with_simulation(system, policy):
    result = theory.exact(system, policy)
    seed = next(k for k, (s, p) in enumerate(SIMULATED) if s is system and p is policy)
    run = simulate(system, policy, jobs=400_000, seed=seed)
    for name in (
        "cost",
        "response_time",
        "waiting_probability",
        "blocking_probability",
        "jobs_in_system",
        "messages_per_job",
        "withdrawals_per_job",
        "migrations_per_job",
    ):
        estimate, value = getattr(run, name), getattr(result, name)
        allowed = 4.5 / 1.96 * estimate.half_width + 1e-9
        assert estimate.mean == pytest.approx(value, abs=allowed), name
    assert run.utilization == pytest.approx(result.utilization, rel=0.02)
    assert run.jobs_per_pool == pytest.approx(result.jobs_per_pool, rel=0.06)
    for simulated, exact in zip(run.queue_tail["pools"], result.queue_tail["pools"], strict=True):
        assert simulated[:3] == pytest.approx(exact[: len(simulated[:3])], abs=0.02)


# --- Consistency. ---------------------------------------------------------------------------------
def test_pools_that_are_alike_may_be_written_as_one_or_two():
    one = theory.exact(System(Pool(3, limit=4), 2, 0.9), "pull")
    two = theory.exact(System([Pool(1, limit=4), Pool(2, limit=4)], 2, 0.9), "pull")
    assert one.states < two.states
    assert one.cost == pytest.approx(two.cost, rel=1e-12)
    assert one.messages_per_job == pytest.approx(two.messages_per_job, rel=1e-12)


def test_with_one_router_the_fates_of_messages_are_one():
    costs = [
        theory.exact(System(TWO, 1, 0.9, message_fate=fate), "pull").cost
        for fate in ("withdraw", "keep", "resend")
    ]
    assert costs == pytest.approx([costs[0]] * 3, rel=1e-12)


@pytest.mark.parametrize("fate", ["withdraw", "keep", "resend"])
def test_messages_balance(fate):
    system = System(TWO, 3, 0.8, message_fate=fate)
    r = theory.exact(system, "pull")
    sent = r.messages_per_job - r.withdrawals_per_job
    found_idle = 1 - sum(
        tail[1] * p.servers for tail, p in zip(r.queue_tail["pools"], TWO, strict=True)
    ) / sum(p.servers for p in TWO)
    assert 0 < found_idle < 1
    if fate != "keep":  # every idling sends: one message an idle period
        plain = System([Pool(3, limit=3)], 3, 0.8, message_fate=fate)
        r = theory.exact(plain, "pull")
        sent = r.messages_per_job - r.withdrawals_per_job
        accepted = (1 - r.blocking_probability) * (1 - r.waiting_probability)
        assert sent == pytest.approx(accepted, rel=1e-10)


def test_a_cap_can_be_given_and_its_error_is_reported():
    system = System([Pool(1), Pool(1, speed=2.0)], load=0.7)
    best = theory.exact(system, "jsq").jobs_in_system
    rough = theory.exact(system, "jsq", cap=[12, 12])
    assert rough.cut == (12, 12)
    assert 1e-9 < abs(rough.jobs_in_system - best) <= rough.truncation_error


def test_charges_enter_the_cost():
    system = System([Pool(2, limit=3)], load=1.2, migration_rate=1.0)
    free = theory.exact(system, "local-search", loss_charge=0.0)
    paid = theory.exact(system, "local-search", loss_charge=5.0, move_cost=2.0)
    more = 5 * free.blocking_probability + 2 * free.migrations_per_job
    assert paid.cost == pytest.approx(free.cost + more, rel=1e-12)
    assert paid.to_dict()["cost"] == paid.cost
    assert "states" in repr(paid)


def test_fixed_shares_are_solved_for_any_number_of_servers():
    result = theory.exact("flagship", "weighted-random")
    by_hand = theory.closed_form.mm1k(0.9, 10)
    assert result.blocking_probability == pytest.approx(by_hand.blocking_probability, rel=1e-12)
    chain = theory.exact(System(Pool(2), load=0.7), "random", cap=80)
    assert chain.jobs_in_system == pytest.approx(14 / 3, rel=1e-9)
    assert theory.exact(System(Pool(2), load=0.7), "random").states < chain.states
    partly = theory.exact(System(Pool(2), load=0.3), "static(0, 1)")
    assert partly.jobs_per_server == pytest.approx((0.0, 1.5), rel=1e-12)


# --- What it refuses. -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("system", "policy", "said"),
    [
        ("flagship", "pull", r"states, at most [\d,]+ can be solved; take fewer servers"),
        (System(Pool(50), load=0.5), "jsq", r"states, at most"),
        (System(Pool(2, limit=2), 30, 0.5, message_fate="resend"), "pull", "fewer routers"),
        (System([Pool(1), Pool(1, speed=2.0)], load=0.9), "pull", r"grows by 0\.08806 jobs"),
        (System(Pool(2), load=1.1), "jsq", r"grows by 0\.2 jobs per unit time; lower the load"),
        (System(Pool(2), load=1.0), "random", "not stable"),
        (System(Pool(2), load=0.5), "wrr", "memory"),
        (System(Pool(2), load=0.5), "pull(fallback=wrr)", "memory"),
        (System(Pool(2), load=0.5), "round-robin", "memory"),
        (System(Pool(2), load=0.5), "jsk", "did you mean"),
    ],
)
def test_what_cannot_be_solved_is_refused_with_a_reason(system, policy, said):
    with pytest.raises(ValueError, match=said):
        theory.exact(system, policy)


@pytest.mark.parametrize("cap", [0, [3], 2.5, True])
def test_a_wrong_cap_is_refused(cap):
    with pytest.raises(ValueError, match="cap: must be"):
        theory.exact(System([Pool(1), Pool(1, speed=2.0)], load=0.7), "jsq", cap=cap)


# --- rules of MODELS section 10 -------------------------------------------------------------------
@pytest.mark.parametrize(
    "policy",
    ["fastest-idle", "fastest-shortest", "fastest-shortest(2)", "rank(3, 2, 1, order=jsed)"],
)
def test_more_rules_agree_with_simulation(policy):
    system = System([Pool(1, limit=6), Pool(2, speed=2.0, limit=6)], load=0.9)
    exact = theory.exact(system, policy)
    run = simulate(system, policy, jobs=600_000, seed=8)
    for name in ("cost", "blocking_probability", "messages_per_job", "jobs_in_system"):
        estimate = getattr(run, name)
        allowed = 4.5 / 1.96 * estimate.half_width + 1e-12
        assert getattr(exact, name) == pytest.approx(estimate.mean, abs=allowed), name
