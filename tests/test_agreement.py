"""Theory and simulation agree: the short version of ``python -m baselines.agreement``."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from baselines import agreement
from baselines.agreement import QUICK, Row, Settings, judge
from baselines.exact_cases import exact_cases
from baselines.reference import Case, blind_cost, cases, pools, static
from lbgym.simulate import simulate
from lbgym.system import Pool, System, as_system

ROOT = Path(__file__).parent.parent


# --- the agreement itself -------------------------------------------------------------------------
def test_every_exact_value_is_met():
    settings = dataclasses.replace(QUICK, threads=1)
    rows = agreement.study(cases(), settings, {}, resumable=False)
    wrong = [agreement.cells(row) for row in rows if not row.passes]
    assert not wrong
    verdict = judge(rows)
    assert verdict.passes, str(verdict)
    assert verdict.runs == 98
    assert verdict.values > 300


def test_every_further_model_meets_its_exact_values():
    settings = dataclasses.replace(QUICK, threads=1)
    further = exact_cases()
    rows = agreement.study(further, settings, {}, resumable=False)
    wrong = [agreement.cells(row) for row in rows if not row.passes]
    assert not wrong
    verdict = judge(rows)
    assert verdict.passes, str(verdict)
    assert (verdict.runs, verdict.values) == (len(further), 109)


@pytest.mark.parametrize("policy", agreement.FLAGSHIP_COSTS)
def test_flagship_costs_are_near_what_was_published(policy):
    settings = dataclasses.replace(QUICK, threads=1)
    row = agreement.near(policy, settings, precision=0.01)
    assert abs(row.difference) < agreement.WITHIN + row.half_width / row.published


def test_blind_policies_on_the_flagship_cost_what_the_closed_form_says():
    known = {case.policy: case.values["cost"] for case in cases() if "cost" in case.values}
    assert known["random"] == pytest.approx(6.2723, abs=5e-5)
    assert known["weighted-random"] == pytest.approx(3.9566, abs=5e-5)


@pytest.mark.parametrize("rule", ["strict", "oblivious"])
def test_local_search_is_stable_where_staying_is_not(rule):
    """Server 1 gets 1.2 jobs per unit time and serves 1; jobs that move make up for it."""
    servers = [Pool(1, speed=1.0, discipline="ps"), Pool(1, speed=2.0, discipline="ps")]
    moving = System(servers, arrival_rate=1.8, migration_rate=0.5)
    policy = f"local-search(rule={rule}, place=static(1.2, 0.6))"
    assert simulate(moving, policy, jobs=200_000).stable is True
    staying = simulate(System(servers, arrival_rate=1.8), "static(1.2, 0.6)", jobs=100_000)
    assert staying.stable is False
    assert staying.growth.low < 0.2 < staying.growth.high


# --- the table of cases ---------------------------------------------------------------------------
def test_cases_have_names_of_their_own_and_values():
    table = cases()
    assert len({case.name for case in table}) == len(table)
    assert all(case.values for case in table)


def test_a_case_of_each_kind_is_read_right():
    table = {case.name: case for case in cases()}
    case = table["PULL_n3_K_2_3_4_het123_09_R2_stale1"]
    assert case.system.message_fate == "keep"
    assert case.system.limits.tolist() == [2, 3, 4]
    assert case.system.load == pytest.approx(0.9)
    case = table["PULL_K2_pools_mu1_mu2_07_withdraw_vs_n n8 R2"]
    assert case.system.pools == (Pool(4, speed=1.0, limit=2), Pool(4, speed=2.0, limit=2))
    assert case.system.arrival_rate == pytest.approx(0.7 * 12)
    case = table["PULL_n2_hom_07_R2_withdraw_split82"]
    assert case.system.router_weights == pytest.approx((0.8, 0.2))
    case = table["RLS_n=2,lam=(1.2,0.6),mu=(1,2)_beta=0.5"]
    assert case.policy == "local-search(rule=strict, place=static(1.2, 0.6))"
    assert (case.system.migration_rate, case.system.arrival_rate) == pytest.approx((0.5, 1.8))
    assert table["M/M/5/5 load 0.8"].system.pools == (Pool(1, slots=5, limit=5),)
    assert table["JSQ2_n4_hom_08"].policy == "jsq(2)"
    assert table["JSEDqmu_n2_het12_tiefast_07"].policy == "jsed(ties=fastest)"


def test_pools_and_static_take_the_simplest_form():
    assert pools([1, 1, 2], [3, 4, 4]) == [Pool(1, 1, 3), Pool(1, 1, 4), Pool(1, 2, 4)]
    assert pools([1, 1, 2]) == [Pool(2, 1), Pool(1, 2)]
    assert static([0.5, 0.5], [1, 2]) == "random"
    assert static([1 / 3, 2 / 3], [1, 2]) == "weighted-random"
    assert static([0.3, 0.7], [1, 2]) == "static(0.3, 0.7)"


def test_blind_cost_of_one_place_is_erlangs():
    """M/M/1/1 at load a: blocking a / (1 + a); accepted jobs stay 1."""
    system = System(Pool(1, limit=1), load=0.5)
    assert blind_cost(system, [1.0], 2.0) == pytest.approx(1 / 1.5 + 2 * 0.5 / 1.5)


# --- the judgement --------------------------------------------------------------------------------
def row(**changes):
    values = {
        "case": "a",
        "policy": "random",
        "quantity": "EN",
        "theory": 1.0,
        "simulated": 1.0,
        "error": 0.1,
        "z": 0.0,
        "test": "normal",
        "jobs": 1000,
        "seconds": 0.1,
        "seed": 1,
        "attempt": 1,
        "source": "test",
    }
    return Row(**values | changes)


def test_verdict_on_normal_scores_and_on_wrong_ones():
    scores = np.random.default_rng(0).normal(size=200)
    rows = [row(case=str(k), z=z) for k, z in enumerate(scores)]
    assert judge(rows).passes
    assert not judge([*rows, row(case="far", z=4.6)]).passes
    assert not judge([dataclasses.replace(r, z=r.z + 0.5) for r in rows]).passes
    assert not judge([dataclasses.replace(r, z=1.3 * r.z) for r in rows]).passes
    assert not judge([dataclasses.replace(r, z=0.7 * r.z) for r in rows]).passes
    assert not judge([*rows, row(case="0", quantity="P_wait", z=math.inf, test="constant")]).passes


def test_scores():
    assert agreement.normal_score(0.2, 0.1, 10_000) == pytest.approx(2.0, abs=1e-3)
    assert agreement.normal_score(-0.3, 0.1, 5) > -3.0  # few replications: heavier tails
    assert agreement.poisson_score(10, 10.0) == pytest.approx(0.0, abs=0.15)
    assert agreement.poisson_score(0, 20.0) < -5
    assert agreement.poisson_score(30, 10.0) > 4.5


def test_a_rare_event_is_judged_by_its_count():
    case = Case("rare", System(Pool(1, limit=12), load=0.2), "random", {"P_block": 3.3e-9}, "test")
    assert agreement.is_rare(case, "P_block", 1e9)
    assert not agreement.is_rare(case, "P_block", 1e12)
    (only,) = agreement.compare(case, simulate(case.system, "random", jobs=10_000), QUICK, 1)
    assert only.test == "poisson"
    assert only.passes


def test_a_failure_is_done_once_more_with_four_times_the_jobs():
    wrong = Case("wrong", System(Pool(1), load=0.5), "random", {"EN": 1.2}, "test")
    settings = Settings(error=0.02, replications=30, relaxations=20, threads=1, seed=1)
    (again,) = agreement.run(wrong, settings)
    right = dataclasses.replace(wrong, values={"EN": 1.0})
    (once,) = agreement.run(right, settings)
    assert (again.attempt, once.attempt) == (2, 1)
    assert again.jobs > 2 * once.jobs
    assert again.seed != once.seed
    assert not again.passes


def test_cases_do_not_share_seeds():
    seeds = {agreement.seed_of(case, QUICK, stage) for case in cases() for stage in ("a", "b")}
    assert len(seeds) == 2 * len(cases())


# --- the command ----------------------------------------------------------------------------------
def test_command_prints_an_aligned_table_and_a_verdict():
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "baselines.agreement",
            "--quick",
            "--only",
            "M/M/1/",
            "--threads",
            "1",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    for heading in agreement.HEADINGS:
        assert heading in head
    assert lines[0].index("random") == head.index("policy")
    assert "AGREE" in done.stdout


def test_command_refuses_what_matches_no_case(capsys):
    with pytest.raises(SystemExit) as stop:
        agreement.main(["--only", "nothing like it"])
    assert stop.value.code == 2
    assert "nothing like it" in capsys.readouterr().err


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(agreement, "PARTIAL", tmp_path / "partial.jsonl")
    settings = Settings(error=0.1, replications=4, relaxations=5, threads=1, seed=1)
    two = agreement.selected("M/M/1/1")
    rows = agreement.study(two[:1], settings, agreement.finished(settings), resumable=True)
    done = agreement.finished(settings)
    assert list(done) == [two[0].name]
    assert agreement.study(two, settings, done, resumable=True)[: len(rows)] == rows
    assert agreement.finished(dataclasses.replace(settings, seed=2)) == {}


def test_files_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(agreement, "RESULTS", tmp_path / "results" / "agreement.json")
    monkeypatch.setattr(agreement, "PAGE", tmp_path / "docs" / "agreement.md")
    near = agreement.NearRow("pull", 2.676, 2.68, 0.01, 1000, 0.1, 3)
    agreement.write([row(), row(case="b", z=1.0)], [near], QUICK)
    record = json.loads(agreement.RESULTS.read_text())
    assert record["rows"][0]["case"] == "a"
    assert record["settings"]["seed"] == 1
    page = agreement.PAGE.read_text()
    assert "| a | random | EN | 1 |" in page
    assert "+0.15%" in page


def test_flagship_is_what_the_published_costs_are_of():
    system = as_system("flagship")
    assert (system.servers, system.load, system.default_loss_charge) == (20, 0.9, 20.0)
