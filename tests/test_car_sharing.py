"""Car sharing: data, engine, rules, exact solutions, the optimum and the limit agree."""

import dataclasses
import json
import math
import os
import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest

from lbgym import CarSharing, compare, simulate
from lbgym.engine.layout import DECIDE, DONE, INVALID
from lbgym.models import car_engine
from lbgym.models.car_engine import CarState, even_start, make
from lbgym.system import as_system
from lbgym.theory import car_sharing as theory
from lbgym.theory import fleet

# other.json, carsharing.exact_small: no_car, no_space, both, problematic, cars_on_road, accepted
NAMES = ("no_car", "no_space", "both", "problematic", "cars_on_road", "accepted")
EXACT = [
    (
        (2, 3, 3, 1.0, 0.8, True),
        "requested",
        (0.437498568787, 0.160852462454, 0.00804632551736, 0.590304705724, 1.21524590686)
        + (0.486098362745,),
    ),
    (
        (2, 4, 5, 1.0, 0.5, True),
        "requested",
        (0.285723065227, 0.198522993159, 0.00894013960618, 0.47530591878, 2.29919939367)
        + (0.574799848417,),
    ),
    (
        (2, 4, 5, 1.0, 0.5, False),
        "requested",
        (0.265949936855, 0.208132225187, 0.0166924768621, 0.45738968518, 2.47824416288)
        + (0.61956104072,),
    ),
    (
        (3, 3, 5, 1.0, 0.8, False),
        "requested",
        (0.359491467879, 0.217510327786, 0.0174271166321, 0.559574679032, 2.01339279957)
        + (0.536904746552,),
    ),
    (
        (3, 4, 6, 1.2, 0.7, True),
        "requested",
        (0.389405342234, 0.113600742539, 0.00477749561871, 0.498228589155, 2.79889247447)
        + (0.544229092259,),
    ),
    # other.json, carsharing.exact_two_choice_destination
    (
        (3, 3, 5, 1.0, 0.8, True),
        "two-choice",
        (0.378159863041, 0.148341464896, 0.0125355270394, 0.513965800898, 2.22276132984)
        + (0.592736354623,),
    ),
    (
        (4, 3, 7, 1.0, 0.8, True),
        "two-choice",
        (0.357325141239, 0.196427105294, 0.0164056738762, 0.537346572657, 3.02368294726)
        + (0.604736589451,),
    ),
]
# other.json, carsharing.convergence_K=2,s=1,lam=1,mu=0.8: no_car, no_space, accepted
CONVERGENCE = {
    2: (0.55460385439, 0.261360932667, 0.334047109208),
    4: (0.54288518227, 0.277541722494, 0.332213077229),
    5: (0.541129657461, 0.282718324105, 0.330418348868),
    math.inf: (0.537562979324, 0.308038709094, 0.31998851779),
}
# other.json, carsharing.mean_field_fixed_point: park, drive, then as NAMES
LIMITS = [
    (
        CarSharing(3, 3, 5, 1.0, 0.8),
        (0.874068021128, 0.798357321445, 0.361314142844, 0.269295018559, 0.0139167322334)
        + (0.616692429169, 0.58336367175, 0.4666909374),
    ),
    (
        CarSharing(2, 4, 5, 1.0, 0.5),
        (0.982143658672, 1.4338573245, 0.283071337748, 0.270036866887, 0.0120735403321)
        + (0.541034664303, 1.04666298503, 0.523331492516),
    ),
    (
        CarSharing(1, 10, 6, 1.0, 1.0),
        (1.07218353313, 0.929372241619, 0.0706277583809, 0.133196684238, 3.69392543377e-09)
        + (0.203824438925, 0.805582940613, 0.805582940613),
    ),
]
# other.json, carsharing.mean_field_optimal_fleet_per_station: s, then as NAMES (the values at the
# minimum of P_problematic and at the maximum of P_user_accepted agree to 1e-7)
FLEETS = [
    (
        CarSharing(1, 4, 1, 1.0, 0.8),
        (2.35556544, 0.24574228, 0.24574228, 0.00316058512446, 0.488323972634, 0.711130887338)
        + (0.56890470987,),
    ),
    (
        CarSharing(1, 10, 1, 1.0, 0.2),
        (6.81611219, 0.14768265, 0.14768265, 0.00113884509256, 0.294226451505, 3.63222434006)
        + (0.726444868011,),
    ),
    (
        CarSharing(1, 20, 1, 1.0, 0.5),
        (10.89805345, 0.05234317808, 0.05234317808, 1.15673264853e-15, 0.104686356149)
        + (1.79610690428, 0.898053452142),
    ),
]
ALIKE = CarSharing(4, 3, 7, 1.0, 0.8)
UNLIKE = CarSharing(4, 3, 6, [2.0, 1.0, 0.7, 0.3], 0.8)
# MODELS section 11: acceptance of the rules (4 decimals)
RULES = [
    (ALIKE, "requested", 0.4973),
    (ALIKE, "two-choice", 0.6047),
    (ALIKE, "least-occupied", 0.6678),
    (ALIKE, "least-parked", 0.6715),
    (UNLIKE, "requested", 0.3463),
    (UNLIKE, "least-occupied", 0.5010),
    (UNLIKE, "least-parked", 0.5425),
    (UNLIKE, "least-per-demand", 0.6018),
]
# other.json, mdp_headroom.carsharing, and MODELS section 11 (last)
OPTIMA = [
    (CarSharing(3, 3, 5, 1.0, 0.8), 0.505416392, 0.651189845, 1e-6),
    (ALIKE, 0.497312932, 0.675952271, 1e-6),
    (UNLIKE, 0.3463, 0.6126, 5e-5),
]
VARIED = CarSharing(
    3,
    [2, 3, 1],
    3,
    [1.0, 0.5, 2.0],
    [[0.5, 1.0, 2.0], [0.7, 0.9, 1.1], [1.5, 0.4, 0.8]],
    [[0, 1, 1], [2, 1, 0], [1, 1, 3]],
)
STUDENT = 2.04  # Student's t of 31 degrees: half-widths to standard errors


def system_of(key):
    stations, capacity, cars, rate, trips, self_trips = key
    return CarSharing(stations, capacity, cars, rate, trips, None, self_trips)


def agrees(estimate, value):
    """Within 4.5 standard errors."""
    return abs(estimate.mean - value) <= 4.5 * estimate.half_width / STUDENT + 1e-12


def same_numbers(result, expected):
    names = ("accepted", "no_car", "no_space", "problematic", "cars_on_road")
    wrong = [n for n in names if not agrees(getattr(result, n), getattr(expected, n))]
    assert not wrong, (result, expected)


# --- theory ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("key", "policy", "values"), EXACT)
def test_exact_reproduces_the_reference(key, policy, values):
    found = theory.exact(system_of(key), policy)
    for name, value in zip(NAMES, values, strict=True):
        assert getattr(found, name) == pytest.approx(value, rel=1e-6), name
    assert found.cost == pytest.approx(1 - found.accepted)
    assert found.cars_on_road * key[4] == pytest.approx(found.accepted * key[0] * key[3])  # Little


@pytest.mark.parametrize("stations", CONVERGENCE)
def test_more_stations_come_nearer_the_limit(stations):
    if math.isinf(stations):
        found = theory.mean_field(CarSharing(1, 2, 1, 1.0, 0.8))
    else:
        found = theory.exact(CarSharing(stations, 2, stations, 1.0, 0.8))
    values = (found.no_car, found.no_space, found.accepted)
    assert values == pytest.approx(CONVERGENCE[stations], rel=1e-6)


@pytest.mark.parametrize(("capacity", "value"), [(4, 0.342493530724), (5, 0.347851481018)])
def test_without_blocking_it_is_a_closed_jackson_network(capacity, value):
    """other.json, carsharing.check_no_blocking_product_form: K = M + 1 = 5 never blocks."""
    assert theory.exact(CarSharing(2, capacity, 4, 1.0, 0.8)).no_car == pytest.approx(
        value, rel=1e-9
    )
    # two queues of rate 1 and a delay of rate .8 with two visits a round
    weight = {
        (v, r): (2 / 0.8) ** r / math.factorial(r)
        for v in range(5)
        for w in range(5)
        for r in range(5)
        if v + w + r == 4
    }
    empty = sum(x for (v, _), x in weight.items() if v == 0) / sum(weight.values())
    assert empty == pytest.approx(0.347851481018, rel=1e-9)


@pytest.mark.parametrize(("system", "values"), LIMITS)
def test_mean_field_reproduces_the_fixed_points(system, values):
    found = theory.mean_field(system)
    assert (found.park, found.drive) == pytest.approx(values[:2], rel=1e-6)
    for name, value in zip(NAMES, values[2:], strict=True):
        assert getattr(found, name) == pytest.approx(value, rel=1e-6), name
    assert found.cars_per_station == pytest.approx(system.cars / system.stations, rel=1e-10)


@pytest.mark.parametrize(("system", "values"), FLEETS)
def test_the_best_fleet_of_the_limit(system, values):
    found = theory.best_fleet_limit(system)
    for name, value in zip(("cars_per_station", *NAMES), values, strict=True):
        assert getattr(found, name) == pytest.approx(value, rel=1e-6), name
    capacity = system.capacities[0]
    assert found.cars_per_station == pytest.approx(capacity / 2 + found.cars_on_road / 2)
    for park in (0.98, 1.02):  # the goals are best there
        other = theory._limit_at(system, park)
        assert other.accepted < found.accepted
        assert other.problematic > found.problematic


@pytest.mark.parametrize(
    ("arguments", "values"),
    [  # other.json, carsharing.bike_sharing_mean_field
        ((10, 1.0, 1.0, 1.0), (6.0, 0.0909090909091, 0.0909090909091)),
        ((5, 2.0, 1.0, 1.3), (5.83455259983, 0.0783942966581, 0.291072535891)),
    ],
)
def test_without_reservation(arguments, values):
    assert theory.bike_sharing(*arguments) == pytest.approx(values, rel=1e-9)


@pytest.mark.parametrize(
    ("capacity", "trips", "fleet", "problematic"),
    [(4, 0.8, 3.25, 0.4), (10, 0.2, 10.0, 0.181818181818), (20, 0.5, 12.0, 0.0952380952381)],
)
def test_the_best_fleet_without_reservation(capacity, trips, fleet, problematic):
    """other.json, bike_sharing_optimum_K_over_2_plus_lam_over_mu."""
    found, empty, full = theory.bike_sharing(capacity, 1.0, trips)
    assert (found, empty + full) == pytest.approx((fleet, problematic))


@pytest.mark.parametrize(("system", "policy", "accepted"), RULES)
def test_rules_accept_what_was_published(system, policy, accepted):
    assert theory.exact(system, policy).accepted == pytest.approx(accepted, abs=5.1e-5)


@pytest.mark.parametrize(("system", "baseline", "accepted", "within"), OPTIMA)
def test_optimum(system, baseline, accepted, within):
    found = theory.optimal(system)
    assert found.accepted == pytest.approx(accepted, abs=within)
    assert found.error < 1e-8
    assert theory.exact(system).accepted == pytest.approx(baseline, abs=within)
    assert theory.exact(system, found.policy).accepted == pytest.approx(found.accepted, abs=1e-8)


def test_no_rule_beats_the_optimum_where_stations_differ():
    system = dataclasses.replace(VARIED, trip_rate=0.8)
    best = theory.optimal(system).accepted
    assert all(theory.exact(system, p).accepted < best for p in car_engine.FAMILIES)


def test_best_fleet_of_a_small_system():
    system = CarSharing(3, 3, 1, 1.0, 0.8)
    found = fleet(system)
    assert (found.method, list(found.curve)) == ("exact", list(range(1, 10)))
    assert found.value == max(found.curve.values()) == found.curve[found.cars]
    assert found.curve[5] == pytest.approx(0.505416392, abs=1e-6)
    fewest = fleet(system, "two-choice", "problematic", cars=[4, 6, 5])
    assert list(fewest.curve) == [4, 5, 6]
    assert fewest.value == min(fewest.curve.values())
    exact = theory.exact(system.with_cars(fewest.cars), "two-choice")
    assert fewest.value == exact.problematic


@pytest.mark.parametrize("metric", ["accepted", "problematic"])
def test_best_fleet_of_many_stations(metric):
    """other.json, mean_field_optimal_fleet_per_station: K = 10, mu = .2, s = 6.81611."""
    found = fleet(CarSharing(1000, 10, 1, 1.0, 0.2), metric=metric)
    assert (found.method, found.cars) == ("mean-field", 6816)
    assert {6815, 6816, 6817} <= set(found.curve)
    assert len(found.curve) < 200


def test_best_fleet_by_simulation_is_that_of_the_exact_curve():
    system = CarSharing(3, 3, 1, 1.0, 0.8)
    found = fleet(system, method="simulation", jobs=20_000, seed=3)
    exact = fleet(system)
    for cars, estimate in found.curve.items():
        assert abs(estimate - exact.curve[cars]) < 2.5 * estimate.half_width + 1e-9
    assert abs(found.value - exact.value) < 0.01
    assert math.isclose(found.to_dict()["curve"][str(found.cars)]["mean"], found.value)
    big = CarSharing(30, 4, 1)
    assert fleet(big, "least-parked", cars=[60], jobs=1000).method == "simulation"


# --- simulation -----------------------------------------------------------------------------------
SIMULATED = [(system_of(key), policy) for key, policy, _ in EXACT] + [
    (system, policy) for system, policy, _ in RULES
]


@pytest.mark.parametrize("k", range(len(SIMULATED)))
def test_simulation_agrees_with_the_exact_chain(k):
    system, policy = SIMULATED[k]
    result = simulate(system, policy, jobs=200_000, seed=100 + k)
    same_numbers(result, theory.exact(system, policy))


@pytest.mark.parametrize("policy", car_engine.FAMILIES)
@pytest.mark.parametrize("self_trips", [True, False])
def test_simulation_agrees_where_everything_differs(policy, self_trips):
    system = dataclasses.replace(VARIED, self_trips=self_trips)
    result = simulate(system, policy, jobs=200_000, seed=sum(map(ord, policy)) + self_trips)
    same_numbers(result, theory.exact(system, policy))


@pytest.mark.parametrize("k", range(len(OPTIMA)))
def test_the_optimal_policy_attains_its_value(k):
    system = OPTIMA[k][0]
    best = theory.optimal(system)
    result = simulate(system, best.policy, jobs=300_000, seed=k)
    same_numbers(result, best)
    assert result.policy == "optimal"


@pytest.mark.slow
def test_many_stations_come_near_the_limit():
    system = CarSharing(2_000, 10, 12_000)
    limit = theory.mean_field(system)
    result = simulate(system, "requested", jobs=20_000_000, seed=1)
    assert result.accepted.mean == pytest.approx(limit.accepted, abs=2e-3)
    assert result.no_car.mean == pytest.approx(limit.no_car, abs=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("k", range(len(SIMULATED)))
def test_long_simulation_agrees_with_the_exact_chain(k):
    system, policy = SIMULATED[k]
    result = simulate(system, policy, jobs=5_000_000, seed=500 + k)
    same_numbers(result, theory.exact(system, policy))


def test_counts_are_exact():
    result = simulate(VARIED, "least-occupied", jobs=50_000, seed=3)
    c = result.counts
    assert c["arrivals"] == 50_000 == result.jobs
    lost = c["lost_no_car"] + c["lost_no_space"] + c["refused"]
    assert c["arrivals"] == c["accepted"] + lost
    assert c["accepted"] == c["ended"] + c["on_road"]


def test_a_result_is_plain_data_and_pickles():
    result = simulate(ALIKE.to_dict(), "two-choice", jobs=20_000, seed=1, replications=2, threads=2)
    assert json.loads(json.dumps(result.to_dict()))["accepted"]["mean"] == result.accepted.mean
    assert pickle.loads(pickle.dumps(result)).cost == result.cost
    assert "two-choice on 4 stations of 3 spaces" in repr(result)
    again = simulate(ALIKE, "two-choice", jobs=20_000, seed=1, replications=2)
    assert again.cost == result.cost  # whatever the threads
    assert result.cost.mean == pytest.approx(1 - result.accepted.mean)


def test_policies_with_one_seed_see_the_same_users():
    found = compare(ALIKE, ["requested", "least-parked"], jobs=50_000, seed=4)
    assert found.differences[1].high < 0
    clocks = [r.batches["clock"].sum() for r in found.results]
    assert clocks[0] == clocks[1]
    assert found.shrinkage[1] > 1


def test_precision_is_reached():
    result = simulate(ALIKE, "requested", jobs=5_000, precision=0.005)
    assert result.cost.half_width <= 0.005 * result.cost


# --- the engine -----------------------------------------------------------------------------------
def running(system, policy, seed=0):
    rule = make(policy, system)
    state = CarState.under(rule)
    state.seed(np.random.default_rng(seed))
    state.begin()
    return state, rule.ready()


def check(state):
    """What holds at every decision."""
    w, rows = state.world[0], state.arrays["stations"]
    assert rows["parked"].sum() + w["on_road"] == state.system.cars
    assert rows["reserved"].sum() == w["on_road"]
    taken = rows["parked"] + rows["reserved"]
    assert (taken <= rows["capacity"]).all()
    assert w["empty"] == (rows["parked"] == 0).sum()
    assert w["full"] == (taken == rows["capacity"]).sum()
    assert w["both"] == ((rows["parked"] == 0) & (taken == rows["capacity"])).sum()


def test_step_by_step_is_the_run():
    state, rule = running(VARIED, "requested")
    other = state.copy()
    state.rest(2_000)
    assert car_engine.run(state.address, rule) == DONE
    other.rest(2_000)
    while other.advance() == DECIDE:
        check(other)
        w = other.world[0]
        assert other.arrays["stations"]["parked"][w["origin"]] > 0
        assert other.apply(w["requested"]) == DECIDE
    assert other.world[0]["clock"] == state.world[0]["clock"]
    for name in ("stations", "trips", "streams"):
        assert other.arrays[name].tobytes() == state.arrays[name].tobytes()


def test_actions_mean_what_they_say():
    state, _ = running(CarSharing(2, 1, 2), "requested")  # both stations full
    assert state.advance() == DECIDE
    assert state.apply(3) == INVALID
    assert state.apply(-1) == INVALID
    assert state.apply(0) == DECIDE  # no space there
    assert state.advance() == DECIDE
    assert state.apply(2) == DECIDE  # refused
    w = state.world[0]
    assert (w["lost_no_space"], w["refused"], w["accepted"], w["arrivals"]) == (1, 1, 0, 2)
    state.rest(None, horizon=float(w["clock"]) + 1e-9)
    assert state.advance() == DONE
    assert state.apply(0) == INVALID  # nobody is there


def test_a_copy_and_a_pickle_go_on_alike():
    state, rule = running(VARIED, "two-choice")
    state.rest(500)
    car_engine.run(state.address, rule)
    others = [state.copy(), pickle.loads(pickle.dumps(state))]
    for each in (state, *others):
        each.rest(1_000)
        car_engine.run(each.address, rule)
    assert all(o.world["clock"] == state.world["clock"] for o in others)


PLAIN = """
import numpy as np
from tests.test_car_sharing import VARIED, running
from lbgym.models import car_engine
state, rule = running(VARIED, {policy!r}, seed=2)
state.rest(150)
car_engine.run(state.address, rule)
print(state.arrays["stations"].tobytes().hex(), state.arrays["streams"].tobytes().hex(),
      float(state.world[0]["clock"]).hex())
"""


@pytest.mark.parametrize("policy", ["two-choice", "least-per-demand"])
def test_plain_python_does_the_same(policy):
    def printed(**variables):
        command = [sys.executable, "-c", PLAIN.format(policy=policy)]
        env = os.environ | variables
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    assert printed(NUMBA_DISABLE_JIT="1") == printed()


def test_a_users_rule():
    @numba.njit
    def first_with_space(w):
        for j in range(w.n_stations):
            if car_engine.has_space(w, j):
                return j
        return w.n_stations

    found = simulate(ALIKE, first_with_space, jobs=20_000)
    assert found.policy == "first_with_space"
    assert 0.5 < found.accepted < 0.6047  # two-choice does better

    @numba.njit
    def wrong(w):
        return 17

    with pytest.raises(ValueError, match="policy wrong: chose 17"):
        simulate(ALIKE, wrong, jobs=1_000)

    @numba.njit
    def half(w):
        return 0.5

    with pytest.raises(ValueError, match=r"rule half: must return an integer .*, returns float64"):
        simulate(ALIKE, half, jobs=1_000)


def test_starts():
    assert even_start(CarSharing(3, [1, 5, 5], 6)).tolist() == [1, 3, 2]
    assert even_start(CarSharing(3, 4, 12)).tolist() == [4, 4, 4]
    given = simulate(ALIKE, "requested", jobs=1_000, start=[3, 3, 1, 0])
    assert given.jobs == 1_000


# --- data -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("system", [ALIKE, UNLIKE, VARIED, system_of((2, 4, 5, 1.0, 0.5, False))])
def test_data_survives(system, tmp_path):
    assert as_system(system) is system
    assert as_system(json.loads(json.dumps(system.to_dict()))) == system
    path = tmp_path / "cars.toml"
    path.write_text(system.to_toml())
    assert CarSharing.from_toml(path) == system == as_system(path)
    assert eval(repr(system)) == system
    assert pickle.loads(pickle.dumps(system)) == system
    assert hash(system) == hash(CarSharing.from_dict(system.to_dict()))
    assert "\n" not in system.describe()


def test_shares_of_destinations():
    assert VARIED.destination_shares[0].tolist() == [0, 0.5, 0.5]
    assert not dataclasses.replace(VARIED, self_trips=False).destination_shares.diagonal().any()
    weighted = CarSharing(3, 2, 1, destinations=np.array([1, 1, 2]))
    assert weighted.destination_shares.tolist() == [[0.25, 0.25, 0.5]] * 3


BAD = [
    ({"stations": 0}, "stations: must be an integer from 1 to 1,000,000, got 0"),
    ({"capacity": [1, 2]}, "capacity: must be one value or one for each of the 3 stations, got 2"),
    ({"capacity": [1, 2, 0]}, r"capacity\[2\]: must be an integer from 1"),
    ({"cars": 7}, "cars: must be at most the 6 spaces, got 7"),
    ({"arrival_rate": 0}, "arrival_rate: must be a finite number > 0, got 0"),
    ({"arrival_rate": [1, -1, 1]}, r"arrival_rate\[1\]: must be a finite number > 0, got -1"),
    ({"trip_rate": math.inf}, "trip_rate: must be a finite number > 0, got inf"),
    ({"trip_rate": [1, 2, 3]}, "trip_rate: must be one number or a matrix of rates"),
    ({"trip_rate": [[1, 1, 1]]}, "trip_rate: must have 3 values, got 1"),
    ({"destinations": "far"}, "destinations: must be None, one weight a station or a matrix"),
    ({"destinations": [0, 0, 0]}, "destinations: the weights must have a positive sum, got 0"),
    ({"destinations": [[1, 1, 1], [0, 0, 0], [1, 1, 1]]}, r"destinations\[1\]: the weights must"),
    ({"destinations": [[1, -1, 1]] * 3}, r"destinations\[0\]\[1\]: must be a finite number >= 0"),
    (
        {"destinations": [0, 1, 0], "self_trips": False},
        "destinations: the weights of the stations other than 1 must have a positive sum",
    ),
    ({"self_trips": 1}, "self_trips: must be true or false, got 1"),
]


@pytest.mark.parametrize(("change", "sentence"), BAD)
def test_a_wrong_value_gets_one_sentence(change, sentence):
    with pytest.raises(ValueError, match=sentence) as raised:
        CarSharing(**({"stations": 3, "capacity": 2, "cars": 3} | change))
    assert "\n" not in str(raised.value)


def test_other_mistakes_get_one_sentence():
    with pytest.raises(ValueError, match="unknown field 'car', did you mean 'cars'"):
        CarSharing.from_dict({"stations": 3, "capacity": 2, "car": 3})
    with pytest.raises(ValueError, match="capacity: required"):
        CarSharing.from_dict({"stations": 3, "cars": 3})
    with pytest.raises(ValueError, match="single station"):
        CarSharing(1, 2, 1, self_trips=False)
    with pytest.raises(ValueError, match="unknown policy of a car-sharing system 'jsq'"):
        simulate(ALIKE, "jsq")
    with pytest.raises(ValueError, match=r"policy two-choice\(3\): wrong arguments"):
        simulate(ALIKE, "two-choice(3)")
    with pytest.raises(ValueError, match="start: must hold all 7 cars, got 6"):
        simulate(ALIKE, "requested", start=[3, 3, 0, 0])
    with pytest.raises(ValueError, match="start: must be 'empty' or parked cars"):
        simulate(ALIKE, "requested", start="warm")
    with pytest.raises(ValueError, match="12 stations and 20 cars have up to"):
        theory.exact(CarSharing(12, 3, 20))
    with pytest.raises(ValueError, match="stations that are all alike"):
        theory.mean_field(UNLIKE)
    with pytest.raises(ValueError, match="known for the policy requested only"):
        theory.mean_field(ALIKE, "two-choice")
    with pytest.raises(ValueError, match="a fleet that fills every space never moves"):
        theory.mean_field(CarSharing(2, 3, 6))
    with pytest.raises(ValueError, match="trip rates must not depend on where"):
        theory.optimal(VARIED)
    with pytest.raises(ValueError, match="metric: must be one of accepted, problematic, got"):
        fleet(ALIKE, metric="cost")
    with pytest.raises(ValueError, match="cars: must be whole numbers from 1 to 12, got 13"):
        fleet(ALIKE, cars=[3, 13])
    with pytest.raises(ValueError, match="method: must be one of exact, mean-field, simulation"):
        fleet(ALIKE, method="guess")
    with pytest.raises(ValueError, match="fleet: only a car-sharing system has one, got 1 server"):
        fleet("mm1")
