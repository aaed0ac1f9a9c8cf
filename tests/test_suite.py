"""The suite as data: anchors and references from theory, scores, and the table of rules."""

import json

import gymnasium as gym
import pytest

from lbgym import simulate, suite, theory
from lbgym.cli import main
from lbgym.policies import make
from lbgym.standings import kinds_of, run_suite
from lbgym.suite import SUITE

# Blind choice as a formula or a chain; where there is neither, simulations check.
EXACT_ANCHORS = ("pair-1-10", "triple-two-probes", "pull-pair", "cars", "flow-rate", "flagship")
EXACT_REFERENCES = ("pair-1-10", "two-class-loss", "cars", "flow-rate")


def test_the_suite_has_twelve_tasks_of_its_scenarios():
    assert [task.number for task in SUITE.values()] == list(range(1, 13))
    assert all(name == task.name == task.system.name for name, task in SUITE.items())


@pytest.mark.parametrize("name", SUITE)
def test_anchor_is_worth_0_and_reference_100(name):
    task = suite.get(name)
    assert task.score(task.anchor) == 0
    assert task.score(task.reference) == pytest.approx(100)
    assert task.closed(task.reference, 0.5 * (task.anchor + task.reference)) == pytest.approx(1)
    assert task.reference < task.anchor
    assert task.bound is None or task.bound < task.reference


@pytest.mark.parametrize("name", SUITE)
def test_every_rule_and_environment_of_a_task_can_be_made(name):
    task = suite.get(name)
    assert len(kinds_of(task)) >= 2
    for policy in kinds_of(task):
        make(policy, task.system)
    env = task.make(info=["dt"])
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    assert env.spec.id == task.env
    vec = task.make_vec(2, vectorization_mode="vector_entry_point")
    assert isinstance(vec, gym.vector.VectorEnv)


@pytest.mark.parametrize("name", EXACT_ANCHORS)
def test_anchors_are_those_of_theory(name):
    task = suite.get(name)
    prices = {} if task.loss_charge is None else {"loss_charge": task.loss_charge}
    if name in ("cars", "flow-rate"):
        prices = {}
    found = theory.exact(task.system, task.anchor_rule, **prices)
    value = found.jobs_in_system if task.per_time else found.cost
    assert value == pytest.approx(task.anchor, rel=2e-3)


@pytest.mark.parametrize("name", EXACT_REFERENCES)
def test_exact_references_are_those_of_theory(name):
    task = suite.get(name)
    found = theory.optimal(task.system)
    value = found.jobs_in_system if task.per_time else found.cost
    assert value == pytest.approx(task.reference, rel=4e-4)


def test_migrate_counts_moves_per_unit_time():
    task = suite.get("migrate")
    found = theory.optimal(task.system, move_cost=task.move_cost, place="random")
    assert found.cost_per_time == pytest.approx(task.reference, rel=2e-4)


def test_a_value_of_the_table_is_the_simulated_cost():
    (task,) = suite.read(["cars"])
    found = {x.policy: x for x in run_suite([task], seeds=[3], jobs=20_000, workers=1)}
    one = found["least-parked"]
    assert float(one.value) == float(simulate("cars", "least-parked", jobs=20_000, seed=3).cost)
    assert (one.kind, one.closed, one.difference) == ("rule", 0.0, None)
    assert found["least-per-demand"].kind == "tuned"
    assert found["least-per-demand"].difference.high < 0 < found["two-choice"].difference.low
    assert found["requested"].score == pytest.approx(0, abs=5)


def test_tasks_are_named_one_by_one_or_with_commas():
    for words in (["cars", "migrate"], ["cars,migrate"], ["cars, migrate", "cars"]):
        assert [task.name for task in suite.read(words)] == ["cars", "migrate"]


def test_the_command_scores_and_resumes(tmp_path, capsys):
    words = ["bench", "--suite", "--tasks", "flow-rate", "--jobs", "5000", "--seeds", "0"]
    words += ["--workers", "1", "--out", str(tmp_path), "--json"]
    assert main(words) == 0
    first = capsys.readouterr()
    assert main(words) == 0
    second = capsys.readouterr()
    assert first.out == second.out
    assert "4 of 4 rows are in the results folder already" in second.err
    assert {row["task"] for row in json.loads(first.out)} == {"flow-rate"}
    assert main(words[:-1]) == 0
    assert "reference 2.6803 (exact optimum)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--suite", "--tasks", "pair"], "pair-1-10"),
        (["--quick"], "--suite"),
        (["--suite", "--against", "jsq"], "--against"),
        (["--suite", "--policies", "jsq"], "--tasks"),
    ],
)
def test_wrong_words_are_one_clear_line(words, said, capsys):
    assert main(["bench", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
