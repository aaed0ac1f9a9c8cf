"""`optimal` attains every known optimum, its policy runs everywhere, nothing beats the bound."""

import json
import math
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from lbgym import JobClass, Pool, System, as_system, policies, theory
from lbgym.simulate import simulate

VALUES = json.loads((Path(__file__).parent / "data" / "theory_values.json").read_text())
OPTIMUM = 1e-5


def servers(*speeds, load=0.7, **same):
    return System([Pool(1, speed=mu) for mu in speeds], load=load, **same)


KNOWN = [
    pytest.param(key, marks=[pytest.mark.slow] if key.startswith(("n3", "n2_14")) else [])
    for key in VALUES["optimal"]
]


@pytest.mark.parametrize("key", KNOWN)
def test_optimum_of_dispatch(key):
    entry = VALUES["optimal"][key]
    best = theory.optimal(System([Pool(1, speed=mu) for mu in entry["mu"]], load=entry["rho"]))
    assert best.jobs_in_system == pytest.approx(entry["EN_opt"], rel=OPTIMUM)
    assert best.cost_per_time == pytest.approx(entry["EN_opt"], rel=OPTIMUM)
    assert best.response_time == pytest.approx(entry["ER_opt"], rel=OPTIMUM)
    assert best.truncation_error < OPTIMUM
    shown = next((v for k, v in entry.items() if k.startswith("action_table")), None)
    if shown is not None:
        table = best.table[: len(shown), : len(shown[0])]
        assert (table == np.array(shown)[: table.shape[0], : table.shape[1]]).all()


@pytest.mark.parametrize(
    "key", ["n2_12_07", "n2_1_10_07", pytest.param("n2_14_09", marks=pytest.mark.slow)]
)
def test_named_policies_are_as_far_from_the_optimum_as_known(key):
    entry = VALUES["optimal"][key]
    system = System([Pool(1, speed=mu) for mu in entry["mu"]], load=entry["rho"])
    for name, known in entry["cmp"].items():
        rule, ties = name.replace("JSEDqmu", "JSED").lower().split("_tie")
        ties = {"fast": "fastest", "random": "random"}[ties]
        found = theory.exact(system, f"{rule}(ties={ties})").jobs_in_system
        assert found == pytest.approx(known["EN"], rel=1e-5)
        assert found >= entry["EN_opt"] * (1 - 1e-9)


# MODELS section 11: where an agent has room.
ROOM = [
    ((1.0, 10.0), 2.7470, {"sed": 3.0121, "jsed(ties=fastest)": 3.0058, "fpi": 2.8342}, "n"),
    ((1.0, 10.0), 2.7470, {"threshold(4)": 2.7513}, "n"),
    ((1.0, 2.0, 4.0), 3.3818, {"sed": 3.6244, "fpi": 3.4445, "index(1/2)": 3.3857}, "slow"),
    (
        (0.2, 0.2, 2.6),
        3.1320,
        {"jsed(ties=fastest)": 3.7502, "sed": 3.6802, "fpi": 3.3104, "index(1/4)": 3.1987},
        "slow",
    ),
]


@pytest.mark.parametrize(
    ("speeds", "best", "rules"),
    [pytest.param(*r[:3], marks=[pytest.mark.slow] if r[3] == "slow" else []) for r in ROOM],
)
def test_the_room_between_rules_and_the_optimum(speeds, best, rules):
    system = servers(*speeds)
    for policy, known in rules.items():
        assert theory.exact(system, policy).jobs_in_system == pytest.approx(known, abs=6e-5)
    assert theory.optimal(system).jobs_in_system == pytest.approx(best, abs=6e-5)


def test_jsq_is_optimal_for_equal_servers():
    best = theory.optimal(servers(1.0, 1.0))
    q0, q1 = np.indices(best.table.shape)
    differ = q0 != q1
    assert (best.table == (q1 < q0))[differ].all()
    exact = theory.exact(servers(1.0, 1.0), "jsq").jobs_in_system
    assert best.jobs_in_system == pytest.approx(exact, rel=1e-8)


# --- Migration. -----------------------------------------------------------------------------------
def open_search(rates, speeds, beta):
    pools = [Pool(1, speed=mu, discipline="ps") for mu in speeds]
    return System(pools, arrival_rate=sum(rates), migration_rate=beta)


SEARCHES = [
    pytest.param(key, marks=[pytest.mark.slow] if "S=60" in key else [])
    for key in VALUES["rls_open_optimal"]
]


@pytest.mark.parametrize("key", SEARCHES)
def test_optimum_of_moving_or_staying(key):
    entry = VALUES["rls_open_optimal"][key]
    pattern = r"lam=\((.*?)\),mu=\((.*?)\),beta=([\d.]+),S=\d+,move_cost=([\d.]+)"
    lam, mu, beta, cost = re.match(pattern, key).groups()
    rates, speeds = ([float(x) for x in part.split(",")] for part in (lam, mu))
    system = open_search(rates, speeds, float(beta))
    place = f"static({rates[0]}, {rates[1]})"
    best = theory.optimal(system, move_cost=float(cost), place=place)
    # The known values are of systems cut at S jobs, which lowers that with S = 60 by 2e-5.
    near = 3e-5 if "S=60" in key else OPTIMUM
    assert best.cost_per_time == pytest.approx(entry["optimal_move_or_stay"], rel=near)
    search = theory.exact(system, f"local-search(place={place})").jobs_in_system
    assert search == pytest.approx(entry["RLS"], rel=near)
    again = theory.exact(system, best.policy, move_cost=float(cost))
    assert again.cost == pytest.approx(best.cost, rel=1e-6)


def test_optimum_with_a_move_cost():  # MODELS section 11
    system = open_search((0.8, 0.8), (1.0, 1.0), 1.0)
    best = theory.optimal(system, move_cost=2.0, place="random")
    assert best.cost_per_time == pytest.approx(5.4769, abs=2e-4)
    search = theory.exact(system, "local-search", move_cost=2.0)
    assert search.cost * 1.6 == pytest.approx(5.7608, abs=2e-4)
    both = theory.optimal(system, move_cost=2.0)
    assert both.cost_per_time < best.cost_per_time - 0.5  # jobs are placed well, too


# --- Loss with classes. ---------------------------------------------------------------------------
def test_optimum_of_two_classes():
    """MODELS section 11: .2028 of weight is lost per arrival, .2273 by best fit."""
    best = theory.optimal("two-class-loss")
    assert best.weighted_loss == pytest.approx(0.20285, abs=6e-5)
    assert best.states == 900
    assert best.cost_per_time == pytest.approx(7.5 * best.cost, rel=1e-8)
    for rule in ("max-vacancy", "best-fit", "random", "trunk-reservation(3, 0)"):
        assert best.cost < theory.exact("two-class-loss", rule).cost
    assert theory.exact("two-class-loss", best.policy).cost == pytest.approx(best.cost, rel=1e-12)


def test_optimum_of_two_classes_that_loses_no_job_in_vain():
    free = theory.optimal("two-class-loss")
    safe = theory.optimal("two-class-loss", lossless=True)
    fewest = theory.optimal("two-class-loss", objective="blocking_probability")
    assert free.cost < safe.cost < theory.exact("two-class-loss", "best-fit").cost
    assert fewest.blocking_probability < safe.blocking_probability < free.blocking_probability
    twice = theory.optimal("two-class-loss", loss_charge=2.0)
    assert twice.cost == pytest.approx(2 * free.cost, rel=1e-8)


def test_one_class_has_no_room():
    """Erlang servers of one class with a full view: the largest vacancy is best (MODELS 11)."""
    system = System([Pool(1, units=3), Pool(1, units=4)], arrival_rate=6.0, classes=[JobClass()])
    best = theory.optimal(system)
    offered = [6.0**k / math.factorial(k) for k in range(8)]
    assert best.cost == pytest.approx(offered[7] / sum(offered), rel=1e-8)  # Erlang's formula


def test_value_iteration_finds_the_same_for_two_classes():
    """One server of 3 units, classes of 1 and 2 units, written out."""
    classes = [JobClass(share=2, weight=1), JobClass(share=1, units=2, weight=5, mean_size=0.5)]
    system = System(Pool(1, units=3), arrival_rate=3.0, classes=classes)
    states = [(a, b) for a in range(4) for b in range(2) if a + 2 * b <= 3]
    values, gain = dict.fromkeys(states, 0.0), 0.0
    for _ in range(2_000):
        new = {}
        for a, b in states:
            one = values.get((a + 1, b), values[a, b] + 1)
            two = values.get((a, b + 1), values[a, b] + 5)
            done = a * values.get((a - 1, b), 0.0) + 2 * b * values.get((a, b - 1), 0.0)
            stay = 10.0 - 3.0 - a - 2 * b
            new[a, b] = (2 * one + 1 * two + done + stay * values[a, b]) / 10.0
        gain = (new[0, 0] - values[0, 0]) * 10.0
        values = {state: value - new[0, 0] for state, value in new.items()}
    assert theory.optimal(system).cost_per_time == pytest.approx(gain, rel=1e-7)


def test_the_optimum_of_two_classes_in_simulation_and_as_an_agent():
    for lossless in (False, True):
        best = theory.optimal("two-class-loss", lossless=lossless)
        run = simulate("two-class-loss", best.policy, jobs=1_000_000, seed=3)
        assert abs(run.cost.mean - best.cost) < 4.5 / 1.96 * run.cost.half_width
        assert run.blocking_by_class == pytest.approx(best.blocking_by_class, rel=0.02)
    env = gym.make("lbgym/Loss-v0", observe=best.policy.columns)
    agent = simulate("two-class-loss", policies.agent(best.policy, env), jobs=20_000, seed=3)
    assert agent.cost.mean == simulate("two-class-loss", best.policy, jobs=20_000, seed=3).cost.mean
    with pytest.raises(ValueError, match="must also show class_jobs_0, class_jobs_1"):
        policies.agent(best.policy, gym.make("lbgym/Loss-v0"))


# --- Local choice on a graph. ---------------------------------------------------------------------
def ring(n, load, limit=None):
    return System(Pool(n, limit=limit), load=load, graph="ring")


def test_optimum_of_local_choice_on_small_rings():
    """Mean queue per server: N = 4 at load .5, cut at 10 jobs, .661474337, local choice .668918321;
    N = 5 at load .7, limit 8, no loss while there is room, 1.24346868, local choice 1.2623883."""
    four = theory.optimal(ring(4, 0.5), cap=10)
    assert four.jobs_in_system / 4 == pytest.approx(0.661474337, rel=OPTIMUM)
    assert four.cost_per_time == pytest.approx(four.jobs_in_system, rel=1e-7)
    five = theory.optimal(ring(5, 0.7, limit=8), loss_charge=0.0, lossless=True)
    assert five.jobs_in_system / 5 == pytest.approx(1.24346868, rel=OPTIMUM)
    local = theory.exact(ring(5, 0.7, limit=8), "local-choice")
    assert local.jobs_in_system / 5 == pytest.approx(1.2623883, rel=OPTIMUM)


def test_on_the_circle_there_is_hardly_any_room():  # MODELS section 11: 1.2764 against 1.2629
    system = ring(4, 0.7)
    best = theory.optimal(system)
    assert best.jobs_in_system / 4 == pytest.approx(1.2629, abs=5e-5)
    assert best.truncation_error < OPTIMUM
    assert theory.exact(system, "local-choice").jobs_in_system / 4 == pytest.approx(
        1.2764, abs=5e-5
    )


def test_on_three_servers_the_shorter_end_is_best():
    best = theory.optimal(ring(3, 0.7))
    local = theory.exact(ring(3, 0.7), "local-choice")
    assert best.jobs_in_system == pytest.approx(local.jobs_in_system, rel=1e-5)


def test_optimum_on_a_lopsided_graph():
    """A path of three unequal servers: better than local choice, and than all that theory knows."""
    pools = [Pool(1, limit=5), Pool(1, speed=2.0, limit=5), Pool(1, speed=0.5, limit=5)]
    system = System(pools, load=0.7, graph=[[0, 1], [1, 2]])
    best = theory.optimal(system)
    for rule in ("local-choice", "sed", "random"):
        assert best.cost < theory.exact(system, rule).cost * 0.999
    assert theory.exact(system, best.policy).cost == pytest.approx(best.cost, rel=1e-9)
    assert best.cost_per_time == pytest.approx(best.cost * system.arrival_rate, rel=1e-7)
    run = simulate(system, best.policy, jobs=1_000_000, seed=4)
    assert abs(run.cost.mean - best.cost) < 4.5 / 1.96 * run.cost.half_width


@pytest.mark.parametrize("n", [3, 4])
def test_the_optimum_of_local_choice_as_an_agent(n):
    system = ring(n, 0.7)
    policy = theory.optimal(system, cap=12).policy
    env = gym.make(
        "lbgym/LocalChoice-v0", system=system, observe=["server", "queue_probed", "neighbours"]
    )
    rule = simulate(system, policy, jobs=20_000, seed=3)
    agent = simulate(system, policies.agent(policy, env), jobs=20_000, seed=3)
    assert agent.cost.mean == rule.cost.mean
    assert agent.jobs_per_pool == rule.jobs_per_pool


def test_an_agent_of_local_choice_must_see_every_queue():
    policy = theory.optimal(ring(5, 0.5, limit=3)).policy
    columns = ["server", "queue_probed", "neighbours"]
    env = gym.make("lbgym/LocalChoice-v0", system=ring(5, 0.5, limit=3), observe=columns)
    with pytest.raises(ValueError, match="rings of at most 4 servers only"):
        policies.agent(policy, env)


# --- Limits. --------------------------------------------------------------------------------------
SHORT = System([Pool(1, limit=3), Pool(1, speed=2.0, limit=4), Pool(1, limit=2)], load=0.9)


def test_with_limits_no_rule_costs_less_and_the_bound_is_below():
    best = theory.optimal(SHORT)
    bound = theory.lower_bound(SHORT)
    for policy in ("jsq", "sed", "jsed(ties=fastest)", "jsq(2)", "pull", "weighted-random"):
        assert best.cost < theory.exact(SHORT, policy).cost
    assert bound.cost < best.cost
    assert theory.exact(SHORT, best.policy).cost == pytest.approx(best.cost, rel=1e-10)
    assert best.cost_per_time == pytest.approx(best.cost * SHORT.arrival_rate, rel=1e-10)
    assert best.truncation_error == 0


def test_lossless_and_other_objectives():
    free = theory.optimal(SHORT, loss_charge=3.0)
    safe = theory.optimal(SHORT, loss_charge=3.0, lossless=True)
    fewest = theory.optimal(SHORT, objective="blocking_probability")
    assert free.cost < safe.cost
    assert free.blocking_probability > safe.blocking_probability >= fewest.blocking_probability
    full = np.array(SHORT.limits, dtype=int)
    for state in np.ndindex(safe.table.shape):
        chosen = safe.table[state]
        assert state[chosen] < full[chosen] or state == tuple(full)


def test_value_iteration_finds_the_same():
    system = System([Pool(1, limit=2), Pool(1, speed=2.0, limit=2)], load=0.8)
    charge, arrivals = system.default_loss_charge, system.arrival_rate
    fastest = arrivals + 3.0
    values = np.zeros((3, 3))
    for _ in range(5_000):
        new = np.zeros((3, 3))
        for a, b in np.ndindex(3, 3):
            options = [
                values[a + 1, b] if a < 2 else values[a, b] + charge,
                values[a, b + 1] if b < 2 else values[a, b] + charge,
            ]
            served = 1.0 * values[max(a - 1, 0), b] + 2.0 * values[a, max(b - 1, 0)]
            new[a, b] = (a + b + arrivals * min(options) + served) / fastest
        gain = (new - values)[0, 0] * fastest
        values = new - new[0, 0]
    assert theory.optimal(system).cost_per_time == pytest.approx(gain, rel=1e-9)


# --- The policy runs everywhere. ------------------------------------------------------------------
def test_the_optimum_attains_its_value_in_simulation():
    system = servers(1.0, 10.0)
    best = theory.optimal(system)
    run = simulate(system, best.policy, jobs=1_000_000, seed=2)
    assert abs(run.cost.mean - best.cost) < 4.5 / 1.96 * run.cost.half_width
    assert run.messages_per_job.mean == 4


def test_the_optimum_with_moves_attains_its_value_in_simulation():
    system = open_search((0.8, 0.8), (1.0, 1.0), 1.0)
    for place in (None, "random"):
        best = theory.optimal(system, move_cost=2.0, place=place)
        run = simulate(system, best.policy, jobs=500_000, seed=4, move_cost=2.0)
        for name in ("cost", "migrations_per_job", "messages_per_job"):
            estimate = getattr(run, name)
            allowed = 4.5 / 1.96 * estimate.half_width
            assert estimate.mean == pytest.approx(getattr(best, name), abs=allowed), name


def test_the_optimum_acts_as_an_agent():
    system = servers(1.0, 10.0)
    policy = theory.optimal(system).policy
    env = gym.make("lbgym/MultiRouter-v0", system=system, observe=policy.columns)
    rule = simulate(system, policy, jobs=20_000, seed=3)
    agent = simulate(system, policy.agent(env), jobs=20_000, seed=3)
    assert agent.cost.mean == rule.cost.mean
    assert agent.jobs_per_pool == rule.jobs_per_pool


# --- What it refuses. -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"system": System(Pool(50), load=0.5)}, "states, at most .* take 2 or 3 servers"),
        ({"system": "flagship"}, "states, at most"),
        ({"system": servers(1.0, 2.0, load=1.0)}, "no policy keeps load 1 stable"),
        ({"system": SHORT, "objective": "jobs_in_system"}, "losing them; use cost"),
        ({"system": SHORT, "objective": "speed"}, "objective: must be one of"),
        ({"system": SHORT, "place": "random"}, "only where jobs migrate"),
        (
            {"system": servers(1.0, 2.0, migration_rate=1.0), "place": "jsq"},
            "place: must be random",
        ),
        ({"system": servers(1.0, 2.0), "cap": 1_000}, "states, at most"),
        ({"system": "local-search-closed"}, "no long-run cost"),
        ({"system": servers(1.0, 2.0, read_interval=1.0)}, "full information only"),
        ({"system": "ring-10"}, "on a graph have more than"),
        ({"system": ring(4, 1.0)}, "optimal: not stable at load 1"),
        ({"system": "two-class-loss", "objective": "jobs_in_system"}, "with units must be one of"),
        ({"system": "two-class-loss", "place": "random"}, "place: not with units"),
        (
            {"system": System(Pool(9, units=9), load=0.9, classes=[JobClass()])},
            "1,000,000,000 states, at most 60,000",
        ),
    ],
)
def test_what_has_no_optimum_is_refused_with_a_reason(arguments, said):
    with pytest.raises(ValueError, match=said):
        theory.optimal(**arguments)


def test_an_optimum_belongs_to_its_system():
    best = theory.optimal(SHORT)
    with pytest.raises(ValueError, match="another system"):
        theory.exact(SHORT.with_load(0.5), best.policy)


# --- The bound. -----------------------------------------------------------------------------------
def test_lower_bounds():  # MODELS sections 9 and 11
    assert theory.lower_bound(servers(1.0, 10.0)).jobs_in_system == pytest.approx(2.399, abs=5e-4)
    assert theory.lower_bound("flagship").cost == pytest.approx(0.791, abs=5e-4)
    queue = theory.closed_form.mmc(2.1, 3)
    equal = theory.lower_bound(System(Pool(3), arrival_rate=2.1))
    assert equal.cost == pytest.approx(queue.response_time, rel=1e-12)


def test_the_bound_with_units_is_below_the_optimum():
    """Two-class loss: .2028 is the least weighted loss (MODELS section 11)."""
    for load in (0.3, 1.0, 2.0):
        system = as_system("two-class-loss").with_load(load)
        best, bound = theory.optimal(system).cost, theory.lower_bound(system).cost
        assert 0.85 * best < bound <= best * (1 + 1e-9)
    system = as_system("two-class-loss")
    bound = theory.lower_bound(system).cost
    assert bound == pytest.approx(0.188757, abs=1e-6)
    assert theory.lower_bound(system, 3.0).cost == pytest.approx(3 * bound, rel=1e-9)
    one = System(Pool(2, units=5), arrival_rate=8.0, classes=[JobClass(weight=2.0)])
    pooled = 2 * theory.closed_form.erlang_b(10, 8.0)  # all servers as one
    assert theory.lower_bound(one).cost == pytest.approx(pooled, rel=1e-8)


def test_the_bound_of_many_units_is_of_the_means():
    """1,000 + 2 x 500 units wanted of 1,500: the class that pays less for a unit loses 500."""
    classes = [JobClass(share=2 / 3, weight=1.0), JobClass(share=1 / 3, units=2, weight=4.0)]
    system = System(Pool(150, units=10), arrival_rate=1_500.0, classes=classes)
    assert theory.lower_bound(system).cost == pytest.approx(500 / 1_500)
    assert theory.lower_bound(system.with_load(0.9)).cost == 0


def test_a_closed_system_has_no_bound():
    with pytest.raises(ValueError, match="no job arrives in a closed system"):
        theory.lower_bound(System(Pool(3), closed_jobs=6, migration_rate=1.0))


def test_the_bound_falls_with_the_charge():
    costs = [theory.lower_bound("flagship", charge).cost for charge in (0.0, 1.0, 5.0, 20.0, 1e3)]
    assert costs == sorted(costs)
    assert costs[0] == 0
    with pytest.raises(ValueError, match="load below 1"):
        theory.lower_bound(System(Pool(2), load=1.2))
    with pytest.raises(ValueError, match="loss_charge"):
        theory.lower_bound("flagship", -1.0)


# --- Pictures. ------------------------------------------------------------------------------------
def test_switching_curves():
    system = servers(1.0, 10.0)
    best = theory.optimal(system)
    curve = theory.switching_curve(system, best, longest=9)
    assert curve.tolist() == [int(best.table[:, k].argmax()) for k in range(4)] + [1] * 6
    assert theory.switching_curve(system, "threshold(4)", longest=6).tolist() == [0] * 4 + [1] * 3
    with pytest.raises(ValueError, match="two servers"):
        theory.switching_curve("triple", "sed")
    with pytest.raises(ValueError, match="messages"):
        theory.switching_curve(system, "pull")


def test_switching_curves_are_drawn():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = theory.plot_switching_curve(servers(1.0, 10.0), "sed", "threshold(4)", longest=10)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["sed", "threshold(4)"]
