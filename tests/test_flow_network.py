"""Flow networks: data, engine, rules, exact solutions, stability and the optimum agree."""

import dataclasses
import json
import os
import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest

from lbgym import Flow, FlowNetwork, compare, simulate
from lbgym.engine.layout import DECIDE, DONE, INVALID
from lbgym.models import flow_engine
from lbgym.models.flow_engine import FlowState, make
from lbgym.system import as_system
from lbgym.theory import flow_network as theory

LINEAR = FlowNetwork.linear([0.2, 0.25, 0.3])
SLOW = FlowNetwork.linear([0.15, 0.35, 0.2], access_rate=[1.0, 0.5, 0.25])
TREE = FlowNetwork.tree([2, 2, None], [0.6, 0.4], capacities=[1.0, 1.0, 1.5])
UNEVEN = FlowNetwork.tree(
    [2, 2, None], [0.5, 0.7], capacities=[0.8, 1.2, 1.6], access_rate=[0.5, 1.0]
)
# other.json, flowlevel.linear_2_links_exact and .upstream_tree_2_leaves_exact:
# flows, durations, useful rates, P(empty)
EXACT = [
    (
        LINEAR,
        (0.601180865545, 0.525211739789, 0.551005772184),
        (3.00590432773, 2.10084695915, 1.83668590728),
        (0.2, 0.25, 0.3),
        0.336029240567,
    ),
    (
        SLOW,
        (0.306981293748, 1.00653370223, 0.845266651791),
        (2.04654195832, 2.87581057779, 4.22633325896),
        (0.15, 0.35, 0.2),
        0.160064082889,
    ),
    (
        TREE,
        (2.28594754156, 0.976034972294),
        (3.80991256926, 2.44008743074),
        (0.6, 0.4),
        0.181263018635,
    ),
    (
        UNEVEN,
        (2.79397975576, 2.16829967182),
        (5.58795951151, 3.09757095974),
        (0.5, 0.7),
        0.0766869798283,
    ),
]
# other.json, flowlevel.linear_2_links_max_rho0: (rho1, rho2), critical load by access rate of
# class 2, the full region and that of an infinite access rate
MAX_RHO0 = [
    (
        (0.4, 0.4),
        {2.0: 0.394099871893, 1.0: 0.423354738524, 0.5: 0.469985214992, 0.2: 0.514848883049}
        | {0.1: 0.536742616913, 0.02: 0.570029772819},
        (0.6, 0.36),
    ),
    (
        (0.3, 0.5),
        {2.0: 0.382312385315, 1.0: 0.407664168999, 0.5: 0.443160628756, 0.2: 0.478026775105}
        | {0.1: 0.49280902397, 0.02: 0.499950794517},
        (0.5, 0.35),
    ),
    (
        (0.6, 0.2),
        {2.0: 0.340950800101, 1.0: 0.36098715015, 0.5: 0.386889709967, 0.2: 0.397905759162}
        | {0.1: 0.399741650958, 0.02: 0.399999999055},
        (0.4, 0.32),
    ),
]
# other.json, flowlevel.tree_2_leaves_C=1,1,C0=1.5_max_rho1_given_rho2, by access rate of class 2
MAX_RHO1 = {
    0.3: {1.0: 0.9, 0.5: 0.95, 0.2: 0.972727272727, 0.1: 0.989897876892, 0.02: 0.999816684793},
    0.7: {1.0: 0.766666666667, 0.5: 0.777272727273, 0.2: 0.784363388033}
    | {0.1: 0.791925799302, 0.02: 0.799723771392},
}
# other.json, flowlevel.linear_2_links_unstable_example(_2): rho, v0, v1
UNSTABLE = [
    ((0.45, 0.4, 0.4), 0.0199692198468, 0.0126268379951),
    ((0.55, 0.4, 0.4), 0.0992524937571, 0.0527908377603),
]
# other.json, mdp_headroom.flowlevel_route_choice: network, cut, static, join the smaller load,
# optimum
ROUTES = [
    (
        FlowNetwork([Flow(routes=[[0, 2], [1, 2]])], [1.0, 1.0, 1.5]),
        90,
        ("static(1, 1)", 3.0),
        2.35617592,
        2.35617592,
    ),
    (
        FlowNetwork([Flow(routes=[[0, 2], [1, 2]], access_rate=0.5)], [0.5, 1.0, 2.0]),
        110,
        ("static(1/3, 2/3)", 4.4),
        3.00610662,
        3.00610661,
    ),
]
LEVELS = (0.25, 0.5, 1.0, 2.0)
# other.json, mdp_headroom.flowlevel: rho, cut, fixed access rates, optimum
RATES = [
    (
        (0.2, 0.25, 0.3),
        30,
        (2.24959562, 1.82657532, 1.67739677, 1.71830144),
        1.58244397,
    ),
    (
        (0.3, 0.3, 0.3),
        34,
        (3.85501492, 3.2479154, 3.08719229, 3.22637853),
        2.68034011,
    ),
]
TUNED = FlowNetwork.linear([0.3, 0.3, 0.3], access_rates=LEVELS)
MIXED = FlowNetwork(
    [
        Flow(routes=[[0, 3], [1, 3], [2]], arrival_rate=0.7, access_rate=0.5, mean_size=1.2),
        Flow([0, 1, 3], 0.2, 0.8, 0.7),
        Flow(routes=[[2, 3], [1]], arrival_rate=0.3),
    ],
    [1.0, 0.7, 0.9, 1.2],
)
THREE_LINKS = FlowNetwork(
    [Flow([0, 1, 2], 0.1, 1.0, 2.0), Flow([0, 1], 0.2, 0.5), Flow([2], 0.3, 1.0, 0.5)],
    [1.0, 0.8, 0.6],
)
STUDENT = 2.04  # Student's t of 31 degrees: half-widths to standard errors


def agrees(estimate, value):
    """Within 4.5 standard errors."""
    return abs(estimate.mean - value) <= 4.5 * estimate.half_width / STUDENT + 1e-12


def same_numbers(result, expected):
    assert agrees(result.jobs_in_system, expected.jobs_in_system), (result, expected)
    assert agrees(result.cost, expected.cost), (result, expected)
    for k, (flows, duration) in enumerate(zip(result.flows, result.flow_duration, strict=True)):
        assert agrees(flows, expected.flows[k]), (k, flows, expected.flows)
        assert agrees(duration, expected.flow_duration[k]), (k, duration, expected.flow_duration)


def with_access(network, rate):
    return theory.with_access(network, len(network.flows) - 1, rate)


# --- theory ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("network", "flows", "durations", "useful", "empty"), EXACT)
def test_exact_reproduces_the_reference(network, flows, durations, useful, empty):
    found = theory.exact(network)
    assert found.flows == pytest.approx(flows, rel=1e-6)
    assert found.flow_duration == pytest.approx(durations, rel=1e-6)
    assert found.useful_rate == pytest.approx(useful, rel=1e-6)
    assert found.empty == pytest.approx(empty, rel=1e-6)
    assert found.jobs_in_system == pytest.approx(sum(flows), rel=1e-6)
    assert found.truncation_error < 1e-7


def test_equal_access_rates_on_one_link_are_erlangs_queue():
    """other.json, flowlevel.single_link: a = 1/4, rho = .7 is M/M/4."""
    found = theory.exact(FlowNetwork([Flow([0], 0.7, 0.25)], [1.0]))
    assert found.jobs_in_system == pytest.approx(3.80019340921, rel=1e-9)


@pytest.mark.parametrize(("network", "bound"), [(LINEAR, 0.566075023544), (SLOW, 0.618559856743)])
def test_the_bound_of_the_examples(network, bound):
    assert theory.critical_load(network) == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize("case", range(3))
@pytest.mark.parametrize("access", [2.0, 1.0, 0.5, 0.2, 0.1, 0.02])
def test_critical_load_of_two_links(case, access):
    (rho1, rho2), by_access, (full, infinite) = MAX_RHO0[case]
    network = with_access(FlowNetwork.linear([0.1, rho1, rho2]), access)
    found = theory.critical_load(network)
    assert found == pytest.approx(by_access[access], rel=1e-6)
    assert infinite == pytest.approx((1 - rho1) * (1 - rho2))
    assert infinite < found < full == pytest.approx(1 - max(rho1, rho2))
    if access >= rho1:
        assert theory.two_link_limit(rho1, rho2, access) == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("load", MAX_RHO1)
@pytest.mark.parametrize("access", [1.0, 0.5, 0.2, 0.1, 0.02])
def test_critical_load_of_a_tree(load, access):
    tree = FlowNetwork.tree([2, 2, None], [0.1, load], capacities=[1, 1, 1.5])
    found = theory.critical_load(with_access(tree, access))
    assert found == pytest.approx(MAX_RHO1[load][access], rel=1e-6)
    if access == 1.0:
        assert found == pytest.approx(1 - load / 3, rel=1e-9)


@pytest.mark.parametrize(("loads", "v0", "v1"), UNSTABLE)
def test_growth_where_every_link_is_under_capacity(loads, v0, v1):
    network = FlowNetwork.linear(loads)
    assert max(network.link_loads) < 1
    assert theory.growth(network) == pytest.approx((v0, v1, 0.0), rel=1e-6)
    assert theory.growth(LINEAR) == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="looks unstable, or too near it"):
        theory.exact(network)


@pytest.mark.parametrize(("network", "cut", "static", "joined", "best"), ROUTES)
def test_route_choice(network, cut, static, joined, best):
    policy, value = static
    assert theory.exact(network, policy, cut).jobs_in_system == pytest.approx(value, rel=1e-6)
    found = theory.exact(network, "join-least-loaded", cut)
    assert found.jobs_in_system == pytest.approx(joined, rel=1e-6)
    optimum = theory.optimal(network, cut)
    assert optimum.jobs_in_system == pytest.approx(best, rel=1e-5)
    assert optimum.error < 1e-8
    again = theory.exact(network, optimum.policy, cut)
    assert again.jobs_in_system == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize(("loads", "cut", "fixed", "best"), RATES)
def test_access_rates(loads, cut, fixed, best):
    network = FlowNetwork.linear(loads, access_rates=LEVELS)
    for level, value in zip(LEVELS, fixed, strict=True):
        found = theory.exact(network, f"fixed-rate({level})", cut)
        assert found.jobs_in_system == pytest.approx(value, rel=1e-6)
    optimum = theory.optimal(network, cut)
    assert optimum.jobs_in_system == pytest.approx(best, rel=1e-5)
    assert theory.exact(network, optimum.policy, cut).jobs_in_system == pytest.approx(best, 1e-5)


def test_the_optimum_cuts_itself():
    network = ROUTES[0][0]
    found = theory.optimal(network)
    assert found.jobs_in_system == pytest.approx(2.35617592, rel=1e-6)
    assert found.truncation_error < 1e-6
    assert found.cut < 90


def test_the_tuned_rule_is_the_optimum():
    """MODELS section 11: .25 iff both cross classes are present, else 2: 2.6803."""
    flows = np.stack(np.unravel_index(np.arange(35**3), (35,) * 3), axis=1)
    table = np.zeros((len(flows), 4), np.int64)
    table[:, 3] = np.where((flows[:, 1] > 0) & (flows[:, 2] > 0), 0, 3)
    rule = flow_engine.table_rule(TUNED, (35,) * 3, table, "tuned")
    assert theory.exact(TUNED, rule, 34).jobs_in_system == pytest.approx(2.6803, abs=5e-5)


def test_fair_drop_gives_every_flow_the_same_or_all_it_sends():
    network = FlowNetwork([Flow([0], 1, 0.1), Flow([0], 1, 2.0), Flow([0], 1, 1.0)], [2.0], "fair")
    flows = np.array([[4.0, 1.0, 2.0], [1.0, 0.0, 1.0], [0.0, 3.0, 1.0]])
    sending = flows * np.array([0.1, 2.0, 1.0])
    useful, inputs = theory.through(network, [(0,)] * 3, sending, flows)
    f = 1.6 / 3
    assert useful == pytest.approx(np.array([[0.4, f, 2 * f], [0.1, 0.0, 1.0], [0.0, 1.5, 0.5]]))
    assert inputs[:, 0] == pytest.approx(sending.sum(axis=1))


def test_a_small_access_rate_restores_the_full_region():
    network = FlowNetwork.linear([0.55, 0.4, 0.4], access_rate=[1.0, 1.0, 0.05])
    assert theory.growth(network) == (0.0, 0.0, 0.0)


# --- simulation -----------------------------------------------------------------------------------
SIMULATED = [(network, "fixed-rate") for network, *_ in EXACT]
SIMULATED += [(network, policy) for network, _, (policy, _), *_ in ROUTES]
SIMULATED += [(network, "join-least-loaded") for network, *_ in ROUTES]
SIMULATED += [
    (FlowNetwork.linear(loads, access_rates=LEVELS), f"fixed-rate({level})")
    for loads, *_ in RATES
    for level in (0.5, 2.0)
]
SIMULATED += [
    (dataclasses.replace(network, drop="fair"), "fixed-rate") for network in (LINEAR, SLOW, UNEVEN)
]
SIMULATED += [
    (THREE_LINKS, "fixed-rate"),
    (FlowNetwork.tree([2, 2, 3, None], [0.3, 0.4], capacities=[0.6, 1, 1, 0.9]), "fixed-rate"),
]


@pytest.mark.parametrize("k", range(len(SIMULATED)))
def test_simulation_agrees_with_the_exact_chain(k):
    network, policy = SIMULATED[k]
    result = simulate(network, policy, jobs=200_000, seed=200 + k)
    same_numbers(result, theory.exact(network, policy))
    assert result.stable in (True, None)


@pytest.mark.slow
@pytest.mark.parametrize("k", range(len(SIMULATED)))
def test_long_simulation_agrees_with_the_exact_chain(k):
    network, policy = SIMULATED[k]
    result = simulate(network, policy, jobs=5_000_000, seed=600 + k)
    same_numbers(result, theory.exact(network, policy))
    assert result.stable is True


@pytest.mark.parametrize("drop", ["tail", "fair"])
def test_a_mixed_network_agrees(drop):
    network = dataclasses.replace(MIXED, drop=drop, flows=MIXED.flows[:2])
    expected = theory.exact(network, "join-least-loaded", 20)
    assert expected.truncation_error < 1e-3
    result = simulate(network, "join-least-loaded", jobs=200_000, seed=8)
    same_numbers(result, expected)


@pytest.mark.parametrize("network", [ROUTES[1][0], TUNED])
def test_the_optimal_policy_attains_its_value(network):
    best = theory.optimal(network)
    result = simulate(network, best.policy, jobs=400_000, seed=5)
    assert agrees(result.jobs_in_system, best.jobs_in_system)


def test_a_users_rule():
    @numba.njit
    def tuned(w):
        if flow_engine.flows_of(w, 1) > 0 and flow_engine.flows_of(w, 2) > 0:
            return 0
        return 3

    result = simulate(TUNED, tuned, jobs=400_000, seed=6)
    assert agrees(result.jobs_in_system, 2.68034011)

    @numba.njit
    def wrong(w):
        return 4

    with pytest.raises(ValueError, match="policy wrong: chose 4"):
        simulate(TUNED, wrong, jobs=1_000)


def test_an_unstable_network_grows_as_the_fluid_limit_says():
    loads, v0, v1 = UNSTABLE[1]
    result = simulate(FlowNetwork.linear(loads), "fixed-rate", jobs=1_000_000, seed=3)
    assert result.stable is False
    assert agrees(result.growth_by_class[0], v0)
    assert agrees(result.growth_by_class[1], v1)
    assert agrees(result.growth, v0 + v1)


@pytest.mark.slow
def test_a_slowly_unstable_network_grows_too():
    loads, v0, v1 = UNSTABLE[0]
    result = simulate(FlowNetwork.linear(loads), "fixed-rate", jobs=20_000_000, seed=3)
    assert result.stable is False
    assert result.growth.mean == pytest.approx(v0 + v1, rel=0.1)


def test_too_many_flows_end_the_run():
    loads = UNSTABLE[1][0]
    result = simulate(FlowNetwork.linear(loads), "fixed-rate", jobs=10**6, max_jobs=100)
    assert result.stable is False
    assert result.counts["present"] == 100
    assert result.jobs < 10**6


def test_counts_are_exact():
    result = simulate(MIXED, "join-least-loaded", jobs=50_000, seed=3, start=[2, 3, 1])
    c = result.counts
    assert c["arrivals"] == 50_000 == result.jobs
    assert c["started"] == 6
    assert c["arrivals"] + c["started"] == c["departed"] + c["present"]
    b = result.batches
    assert b["area_by_class"].sum() == pytest.approx(b["area"].sum())
    assert (b["arrivals_by_class"].sum(axis=1) == b["arrivals"]).all()


def test_a_result_is_plain_data_and_pickles():
    settings = {"jobs": 20_000, "seed": 1, "replications": 2}
    result = simulate(LINEAR.to_dict(), "fixed-rate", threads=2, **settings)
    shown = json.loads(json.dumps(result.to_dict()))
    assert shown["flows"][0]["mean"] == result.flows[0].mean
    assert pickle.loads(pickle.dumps(result)).cost == result.cost
    assert "fixed-rate on 3 classes of flows on 2 links" in repr(result)
    assert simulate(LINEAR, "fixed-rate", **settings).cost == result.cost  # whatever the threads
    assert result.jobs_in_system.mean == pytest.approx(sum(result.flows))


def test_policies_with_one_seed_see_the_same_arrivals():
    found = compare(ROUTES[0][0], ["static(1, 1)", "join-least-loaded"], jobs=50_000, seed=4)
    assert found.differences[1].high < 0
    clocks = [r.batches["clock"].sum() for r in found.results]
    assert clocks[0] == pytest.approx(clocks[1], rel=1e-12)
    assert found.shrinkage[1] > 1


# --- the engine -----------------------------------------------------------------------------------
def running(network, policy, seed=0):
    rule = make(policy, network)
    state = FlowState.under(rule)
    state.seed(np.random.default_rng(seed))
    state.begin()
    return state, rule.ready()


def check(state):
    """What holds at every decision: counts add up, and rates are those of the theory."""
    w, rows, network = state.world[0], state.arrays["groups"], state.system
    assert rows["flows"].sum() == w["present"] == state.arrays["classes"]["flows"].sum()
    access = state.arrays["classes"]["access"][rows["klass"]]
    flows = rows["flows"][None, :].astype(float)
    routes = [route for _, route in network.groups]
    useful, inputs = theory.through(network, routes, flows * access, flows)
    assert rows["sending"] == pytest.approx(useful[0])
    assert state.arrays["links"]["input"] == pytest.approx(inputs[0])
    pace = sum(useful[0] / [network.flows[k].mean_size for k in rows["klass"]])
    assert w["pace"] == pytest.approx(pace)


@pytest.mark.parametrize("drop", ["tail", "fair"])
def test_step_by_step_is_the_run(drop):
    network = dataclasses.replace(MIXED, drop=drop)
    state, rule = running(network, "join-least-loaded")
    other = state.copy()
    state.rest(1_000)
    assert flow_engine.run(state.address, rule) == DONE
    other.rest(1_000)
    decisions = 0
    ask = numba.njit(lambda rule, address: rule(flow_engine.world(address)))
    while other.advance() == DECIDE:
        check(other)
        assert other.world[0]["kind"] == flow_engine.ROUTE
        assert other.apply(ask(rule, other.address)) == DECIDE
        decisions += 1
    assert decisions == other.arrays["classes"]["arrivals"][[0, 2]].sum()
    assert other.world[0]["clock"] == state.world[0]["clock"]
    for name in ("classes", "groups", "streams"):
        assert other.arrays[name].tobytes() == state.arrays[name].tobytes()


def test_the_level_is_decided_whenever_something_has_happened_to_its_class():
    state, _ = running(TUNED, "fixed-rate(2)")
    state.rest(300)
    w, seen = state.world[0], 0
    while state.advance() == DECIDE:
        check(state)
        assert w["kind"] == flow_engine.LEVEL
        assert state.arrays["classes"]["flows"][0] > 0
        assert state.apply(seen % 4) == DECIDE
        assert state.arrays["classes"]["access"][0] == LEVELS[seen % 4]
        check(state)
        seen += 1
    assert seen > 100
    assert state.apply(0) == INVALID  # nothing is to be decided


def test_a_copy_and_a_pickle_go_on_alike():
    state, rule = running(MIXED, "join-least-loaded")
    state.rest(500)
    flow_engine.run(state.address, rule)
    others = [state.copy(), pickle.loads(pickle.dumps(state))]
    for each in (state, *others):
        each.rest(1_000)
        flow_engine.run(each.address, rule)
    assert all(o.world["clock"] == state.world["clock"] for o in others)


PLAIN = """
import dataclasses
from tests.test_flow_network import MIXED, TUNED, running
from lbgym.models import flow_engine
fair = dataclasses.replace(MIXED, drop="fair")
for network, policy in ((fair, "join-least-loaded"), (TUNED, "fixed-rate(0.5)")):
    state, rule = running(network, policy, seed=2)
    state.rest(60)
    flow_engine.run(state.address, rule)
    print(state.arrays["classes"].tobytes().hex(), state.arrays["streams"].tobytes().hex())
"""


def test_plain_python_does_the_same():
    def printed(**variables):
        command = [sys.executable, "-c", PLAIN]
        env = os.environ | variables
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    assert printed(NUMBA_DISABLE_JIT="1") == printed()


# --- data -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("network", [LINEAR, UNEVEN, TUNED, MIXED])
def test_data_survives(network, tmp_path):
    assert as_system(network) is network
    assert as_system(json.loads(json.dumps(network.to_dict()))) == network
    path = tmp_path / "flows.toml"
    path.write_text(network.to_toml())
    assert FlowNetwork.from_toml(path) == network == as_system(str(path))
    assert eval(repr(network)) == network
    assert pickle.loads(pickle.dumps(network)) == network
    assert hash(network) == hash(FlowNetwork.from_dict(network.to_dict()))
    assert "\n" not in network.describe()


def test_shapes():
    assert [flow.route for flow in LINEAR.flows] == [(0, 1), (0,), (1,)]
    assert [flow.route for flow in TREE.flows] == [(0, 2), (1, 2)]
    deep = FlowNetwork.tree([3, 3, 4, 4, None], [0.1, 0.1, 0.1])
    assert [flow.route for flow in deep.flows] == [(0, 3, 4), (1, 3, 4), (2, 4)]
    assert deep.link_order == (0, 1, 2, 3, 4)
    assert FlowNetwork([Flow([2, 0]), Flow([1, 2])], [1, 1, 1]).link_order == (1, 2, 0)
    assert MIXED.link_order.index(0) < MIXED.link_order.index(1) < MIXED.link_order.index(3)


def made(**change):
    return FlowNetwork(**({"flows": [{"route": [0]}], "capacities": [1.0]} | change))


BAD = [
    (lambda: made(flows=[]), "flows: must not be empty"),
    (lambda: made(flows=[{}]), r"flows\[0\].route: required, a list of links"),
    (lambda: made(flows=[{"rout": [0]}]), r"flows\[0\]: unknown field 'rout', did you mean"),
    (lambda: made(flows=[{"route": []}]), r"flows\[0\].route: must have at least one link"),
    (lambda: made(flows=[{"route": [1]}]), r"flows\[0\].route: link 1 does not exist"),
    (lambda: made(flows=[{"route": [-1]}]), r"route\[0\]: must be a link .* got -1"),
    (lambda: made(capacities=[]), "capacities: must be 1 to 10,000 links, got 0"),
    (lambda: made(capacities=[0]), r"capacities\[0\]: must be a finite number > 0, got 0"),
    (lambda: made(drop="red"), "drop: must be one of tail, fair, got 'red'"),
    (lambda: Flow([0], 0), "arrival_rate: must be a finite number > 0, got 0"),
    (lambda: Flow([0, 1, 0]), "route: crosses link 0 twice; a route must not be cyclic"),
    (lambda: Flow([0], routes=[[1]]), r"route: must be one of routes, got \[0\]"),
    (lambda: Flow([0], access_rates=[0.5, 2]), "access_rate: must be one of access_rates, got 1"),
    (lambda: Flow([0], access_rates=[]), "access_rates: must not be empty"),
    (lambda: Flow(routes=[[0], [0]]), "routes: must all be different"),
    (
        lambda: FlowNetwork([Flow([0, 1]), Flow([1, 2]), Flow([2, 0])], [1, 1, 1]),
        r"flows: the routes lead round in a circle over links \[0, 1, 2\]",
    ),
    (
        lambda: FlowNetwork([Flow([0], access_rates=[1, 2]), Flow(routes=[[0], [1]])], [1, 1]),
        "routes and access_rates: a network has alternatives of one sort",
    ),
    (
        lambda: FlowNetwork([Flow([0], access_rates=[1, 2])] * 2, [1]),
        "access_rates: one class at most may have alternatives, got classes 0, 1",
    ),
    (lambda: FlowNetwork.linear([1.0]), r"arrival_rates: must be at least two .* got 1"),
    (lambda: FlowNetwork.tree([1, 0], []), "arrival_rates: must be one for each of the 0 leaves"),
    (lambda: FlowNetwork.tree([1, 2, 1], [1]), "parents: links .* lead round in a circle"),
    (lambda: simulate(LINEAR, "static(1)"), "static: there are no routes to choose among"),
    (lambda: simulate(LINEAR, "fixed-rate(2)"), "no class has access_rates to choose among"),
    (lambda: simulate(TUNED, "fixed-rate(3)"), "must be one of the access_rates 0.25, 0.5, 1, 2"),
    (lambda: simulate(MIXED, "fixed-rate"), "fixed-rate: leaves open which route to take"),
    (lambda: simulate(MIXED, "static(1, 2)"), r"static: needs one weight for each of the \[2, 3\]"),
    (lambda: simulate(ROUTES[0][0], "static(1, -2)"), "static: weights must be >= 0"),
    (lambda: simulate(LINEAR, "pull"), "unknown policy of a flow-network system 'pull'"),
    (lambda: simulate(LINEAR, "fixed-rate", start=[1]), "start: must be 3 whole numbers of flows"),
    (lambda: theory.exact(made(flows=[Flow([0], 2)])), "link 0 has load 2; no policy keeps it"),
    (
        lambda: theory.exact(FlowNetwork([Flow([0], 0.01)] * 30, [1])),
        "exact: 30 groups of flows with only 4 flows in all have 46,376 states",
    ),
    (lambda: theory.exact(LINEAR, cap=300), "exact: 3 groups of flows, 300 in all, have 4,590,"),
    (lambda: theory.optimal(LINEAR), "optimal: nothing to decide"),
    (
        lambda: theory.critical_load(dataclasses.replace(LINEAR, drop="fair")),
        "known for tail drop only",
    ),
    (lambda: theory.critical_load(LINEAR, flow=3), "flow: must be a class from 0 to 2, got 3"),
    (lambda: theory.critical_load(LINEAR, flow=1), "class 0 crosses the first link of class 1"),
    (
        lambda: theory.critical_load(FlowNetwork.tree([2, 2, None], [0.1, 0.9])),
        "the other classes are not stable while class 0 floods",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), BAD)
def test_a_mistake_gets_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as raised:
        call()
    assert "\n" not in str(raised.value)
