"""Bad input of theory, `simulate` and constructors: one clear sentence, at once."""

import math

import gymnasium as gym
import pytest

import lbgym
from lbgym import CarSharing, Flow, FlowNetwork, Pool, System, simulate, theory
from lbgym.theory import closed_form

PAIR = System([Pool(1), Pool(1, speed=2.0)], load=0.7)
SHORT = System(Pool(2, limit=3), load=0.7)
BATCHES = System(Pool(2), load=0.5, arrivals={"process": "poisson", "batch": 500})
CLOSED = System(Pool(3), closed_jobs=6, migration_rate=1.0)
CARS = CarSharing(30, 20, 300)
HOT = FlowNetwork((Flow(routes=((0, 2), (1, 2)), arrival_rate=1.2),), (1.0, 1.0, 1.0))


def read(load, interval):
    return System(Pool(2), load=load, read_interval=interval)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: theory.exact(CARS, "requested"), "have up to 2.7e.66 states, at most 60,000"),
        (lambda: theory.optimal(CARS), "states, at most 10,000 can be solved"),
        (lambda: theory.lower_bound(CLOSED), "lower_bound: no job arrives in a closed system"),
        (lambda: theory.critical_load(CLOSED, "local-search"), "no job arrives in a closed"),
        (lambda: theory.growth(CLOSED, "local-search"), "growth: no job arrives in a closed"),
        (lambda: theory.ou_covariance(2.0, 100_000, 2), "capacity: must be an integer from 1 to"),
        (lambda: theory.ou_covariance(2.0, 3, 2, math.nan), "beta: must be a finite number"),
        (lambda: theory.switching_curve(PAIR, "sed", longest=10**7), "longest: must be an integer"),
        (lambda: theory.exact(read(0.7, 1e9), "jsq"), "may grow by 400,000,000 jobs, at most 320"),
        (lambda: theory.exact(read(0.99, 50.0), "jsq"), "queues of 687 jobs matter, at most 320"),
        (lambda: theory.exact(read(1.0, 5.0), "jsq"), "get just what they can serve, so queues"),
        (lambda: theory.fleet("cars", cars=5), r"cars: must be whole numbers such as .*, got 5"),
        (lambda: theory.fleet("cars", cars=[]), "cars: must be whole numbers such as"),
        (lambda: theory.fleet("cars", cars=["2", 3]), "cars: must be whole numbers from 1"),
        (lambda: closed_form.unequal_routers(0.7, [1.0, -1.0]), r"weights\[1\]: must be a finite"),
        (lambda: closed_form.unequal_routers(0.7, []), "weights: must hold the share"),
        (lambda: theory.exact(SHORT, "jsq", loss_charge=-5), "loss_charge: must be a finite"),
        (lambda: theory.exact(SHORT, "jsq", loss_charge=math.nan), "loss_charge: must be a finite"),
        (lambda: theory.exact(PAIR, "jsq", move_cost=-1), "move_cost: must be a finite"),
        (lambda: theory.optimal(SHORT, loss_charge=-1), "loss_charge: must be a finite number"),
        (lambda: theory.optimal(SHORT, loss_charge=math.nan), "loss_charge: must be a finite"),
        (lambda: theory.optimal(PAIR, move_cost=-1), "move_cost: must be a finite"),
        (lambda: theory.optimal(SHORT, lossless="yes"), "lossless: must be true or false"),
        (lambda: theory.optimal(PAIR, objective="blocking_probability"), "nothing is lost where"),
        (lambda: simulate(PAIR, "jsq", jobs=100, move_cost=-1), "move_cost: must be a finite"),
        (lambda: simulate(PAIR, "jsq", jobs=100, loss_charge=-1), "loss_charge: must be a finite"),
        (lambda: simulate("cars", "requested", jobs=100, move_cost=1), "nothing for car sharing"),
        (lambda: simulate(BATCHES, "jsq", jobs=200), "jobs: all that are measured come at one"),
        (lambda: lbgym.compare(PAIR, 3), "compare: policies must be a list of policies, got 3"),
        (lambda: simulate("flow-rate", "fixed-rate", jobs=100, loss_charge=1), "for flow networks"),
        (lambda: theory.exact(PAIR, "jsq", cap=10**9), "more than 1.0e.18 states"),
        (lambda: theory.exact(PAIR, "pull", cap=10**9), "more than 1.0e.18 states"),
        (lambda: theory.exact(PAIR.with_load(0.9999), "jsq"), "often has 39,118 jobs and more"),
        (lambda: theory.exact(PAIR.with_load(1.0), "jsq"), "get just what they can serve"),
        (lambda: theory.optimal(HOT), "some link has load 1.2 or more; no policy keeps it stable"),
        (lambda: theory.exact(HOT, "join-least-loaded"), "some link has load 1.2 or more"),
    ],
)  # fmt: skip
def test_one_sentence_at_once(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Pool(2, speeds=3), "Pool: unknown argument 'speeds', did you mean 'speed'"),
        (lambda: System(Pool(2), laod=0.5), "System: unknown argument 'laod', did you mean 'load'"),
        (lambda: Flow(rout=[0]), "Flow: unknown argument 'rout', did you mean 'route'"),
        (lambda: gym.make("lbgym/MultiRouter-v0", strt="warm"), "'strt', did you mean 'start'"),
        (lambda: gym.make("lbgym/FlowNetwork-v0", strt="warm"), "'strt', did you mean 'start'"),
        (lambda: gym.make_vec("lbgym/Loss-v0", 2, strt="warm"), "'strt', did you mean 'start'"),
        (lambda: theory.exact(PAIR), "exact: needs a policy, one of .* jsq, "),
    ],
)
def test_a_misspelt_keyword_names_the_nearest(call, said):
    with pytest.raises(TypeError, match=said):
        call()


def test_a_route_that_some_split_makes_stable_is_not_refused():
    """One class of rate 1.2 over two links of capacity 1: .6 each."""
    split = FlowNetwork((Flow(routes=((0,), (1,)), arrival_rate=1.2),), (1.0, 1.0))
    assert theory.optimal(split).jobs_in_system > 1.2


def test_other_kinds_have_a_default_policy():
    assert theory.exact("cars").policy == "requested"


def test_two_runs_of_one_policy_are_the_same():
    assert "minus jsq 0: the same" in repr(lbgym.compare("small", ["jsq", "jsq"], jobs=2_000))


def test_the_picture_of_a_loss_system_tells_units_and_the_class():
    env = gym.make("lbgym/Loss-v0", render_mode="ansi")
    env.reset(seed=1)
    for k in range(12):
        env.step(k % 3)
    text = env.render()
    assert "  0 |##..| 2 of 4 units free, jobs 2\n" in text
    assert "a job of class 0 (narrow), which needs 1 unit, at router 0" in text
