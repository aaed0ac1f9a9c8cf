"""The studies of ``baselines/``: their short versions show what the papers predict."""

import json
import math

import numpy as np
import pytest

from baselines import (
    car_sharing,
    flow_network,
    jsq_loss,
    local_choice,
    local_search,
    million,
    multi_class_loss,
    order_based,
)
from baselines import study as shared
from baselines.study import Row, mean, part_of, repeated, row
from lbgym import CarSharing, FlowNetwork, theory
from lbgym.stats import Estimate
from lbgym.system import Pool, System

STUDIES = (
    "order_based",
    "local_search",
    "local_choice",
    "million",
    "jsq_loss",
    "multi_class_loss",
    "car_sharing",
    "flow_network",
)


def wrong(rows: list[Row]) -> list[list[str]]:
    return [r.cells() for r in rows if not r.passes]


def one(rows: list[Row], part: str, policy: str, x: float, kind: str | None = None) -> Row:
    """The only row of its kind."""
    (found,) = [r for r in part_of(rows, part, policy) if r.x == x and kind in (None, r.kind)]
    return found


# --- what they show -------------------------------------------------------------------------------
def test_order_based_policies():
    rows = order_based.study(True, 1)
    assert wrong(rows) == []
    for interval in (0.0, 1.0):
        unstable = one(rows, "stability", "jsq(2)", interval)
        assert unstable.simulated == pytest.approx(0.3, abs=0.02)
        assert "False" in unstable.quantity
        for policy in ("jsed", "weighted-random"):
            assert "True" in one(rows, "stability", policy, interval).quantity
    for policy in ("jsq", "jsed"):
        few, many = (one(rows, "collapse", policy, load).simulated for load in (0.8, 0.95))
        assert many < 0.6 * few
        traffic = one(rows, "heavy traffic", policy, 0.95)
        blind = one(rows, "heavy traffic", "weighted-random", 0.95)
        assert traffic.simulated < 1.35 < blind.simulated
    stale = [r.simulated for r in part_of(rows, "staleness")]
    assert stale == sorted(stale)


def test_local_search():
    rows = local_search.study(True, 1)
    assert wrong(rows) == []
    for policy in ("RLS, m = n", "RLS, m = 4 n"):
        ratios = [r.simulated for r in part_of(rows, "bound", policy)]
        assert len(ratios) == 5
        assert max(ratios) < 3 * min(ratios)
    assert "False" in one(rows, "stability", "none", 0.0).quantity
    for rule in ("strict", "oblivious"):
        assert "True" in one(rows, "stability", rule, 0.1).quantity
    for beta in local_search.BETAS:
        selfish, blind = (one(rows, "open", rule, beta).prediction for rule in local_search.OPEN)
        assert 40 / 9 < selfish < blind < 8


def test_local_choice():
    rows = local_choice.study(True, 1)
    assert wrong(rows) == []
    for load in local_choice.LOADS:
        circle = one(rows, "queue", "circle", load, "below").simulated
        none, two = (one(rows, "queue", p, load).simulated for p in ("no choice", "two random"))
        assert two < circle < none
        assert circle - two < 0.15 * (none - two)


def test_jsq_loss():
    rows = jsq_loss.study(True, 1)
    assert wrong(rows) == []
    lost = [r.simulated for r in part_of(rows, "blocking")]
    assert lost[0] > 1.2 * lost[-1]
    for load in (0.5, 0.6, 0.7):
        assert one(rows, "static", "jsq(2)", load).simulated < 0.25 * theory.closed_form.erlang_b(
            5, 5 * load
        )


def test_million():
    for policy in million.POLICIES:
        rows = million.rows_of(policy, 2_000, 100_000, 1, 3)
        assert wrong(rows) == []
        assert {r.part for r in rows} == {"response", "tail 0", "tail 1", "effort"}
        limit = theory.mean_field(million.system_of(2_000), policy)
        queues = million.queues_of(limit).reshape(2, 1_000)
        assert queues.max() <= 10
        assert queues.mean(axis=1) == pytest.approx(np.array(limit.jobs_per_pool) / 1_000, abs=0.01)


def test_multi_class_loss():
    rows = multi_class_loss.study(True, 1)
    assert wrong(rows) == []
    for name, factor in (("narrow", 0.25), ("wide", 0.6)):
        blind, two = (one(rows, "large", f"{name}, max-vacancy(d)", d).simulated for d in (1, 2))
        assert two < factor * blind
    rules = [r.simulated for r in part_of(rows, "room")]
    assert rules[1] < 0.75 * rules[0]


def test_car_sharing():
    rows = car_sharing.study(True, 1)
    assert wrong(rows) == []
    accepted = part_of(rows, "fleet", "accepted")
    best = max(accepted, key=lambda r: r.prediction)
    star = theory.car_sharing.best_fleet_limit(CarSharing(1, 10, 1, 1.0, 0.2)).cars_per_station
    assert best.x == star
    fewest = min(part_of(rows, "fleet", "problematic"), key=lambda r: r.prediction)
    assert fewest.x == star
    for metric, direction in (("no_car", -1), ("no_space", 1)):
        values = [direction * r.simulated for r in part_of(rows, "fleet", metric)]
        assert values == sorted(values)
    for system, gain in (("cars-equal", 0.15), ("cars", 0.24)):
        shares = {r.policy: r.simulated for r in part_of(rows, "rules") if r.system == system}
        assert max(shares.values()) > shares["requested"] + gain
    assert all(r.high < 0.002 for r in part_of(rows, "optimum", "optimal - rule"))


def test_flow_network():
    rows = flow_network.study(True, 1)
    assert wrong(rows) == []
    for part in ("boundary", "tree"):
        assert all(r.low > 0.01 for r in part_of(rows, part, "above"))
        assert all(r.low < 0 < r.high for r in part_of(rows, part, "below"))
    growing = part_of(rows, "unstable")
    assert len(growing) == 4
    assert all(r.low > 0 and r.quantity.endswith("stable: False") for r in growing)
    assert all("True" in r.quantity for r in part_of(rows, "fair"))
    for load in flow_network.FAIR[:2]:
        fair, tail = (one(rows, "drop", drop, load).simulated for drop in ("fair", "tail"))
        assert fair < tail
    optimal = one(rows, "rates", "optimal", 4, "exact")
    assert optimal.prediction == pytest.approx(2.6803, abs=1e-4)
    assert optimal.simulated < 0.9 * min(
        r.simulated for r in part_of(rows, "rates") if r.policy != "optimal"
    )


# --- constants beside theory ----------------------------------------------------------------------
def test_constants_are_those_of_the_exact_chain():
    for rule, value in local_search.OPEN.items():
        system = System(Pool(2, discipline="ps"), load=0.8, migration_rate=1.0)
        found = theory.exact(system, f"local-search(rule={rule})").jobs_in_system
        assert found == pytest.approx(value, rel=1e-6)
    for n, (blocked, *_) in jsq_loss.EXACT.items():
        system = jsq_loss.loss(n, jsq_loss.C, jsq_loss.RATE)
        found = theory.exact(system, jsq_loss.POLICY).blocking_probability
        assert found == pytest.approx(blocked, rel=1e-6)


def test_growth_in_the_fluid_limit_is_that_of_theory():
    for loads, growth in flow_network.UNSTABLE.items():
        found = theory.growth(FlowNetwork.linear(loads), "fixed-rate", flow=0)
        assert found == pytest.approx((*growth, 0.0), rel=1e-6)


@pytest.mark.parametrize("m", local_choice.SERIES)
def test_the_series_agrees_with_the_exact_circle_of_four(m):
    # P(q = 1 .. 3) on a circle of 4 at load .1: the exact chain
    exact = {1: 0.0986166433311, 2: 0.00137851831495, 3: 4.82569834054e-06}
    assert local_choice.series(m, 0.1) == pytest.approx(exact[m], abs=2e-6)


# --- what they share ------------------------------------------------------------------------------
def test_a_row_passes_if_its_prediction_holds():
    estimate = Estimate(1.0, 0.9, 1.1)

    def passes(prediction, kind="exact", **more):
        return row("", "", "", "", estimate, prediction, kind, **more).passes

    assert passes(1.2)
    assert not passes(1.3)
    assert passes(1.3, "limit", within=0.1)
    assert not passes(1.4, "limit", within=0.1)
    assert passes(0.8, "above")
    assert not passes(0.95, "above")
    assert passes(1.2, "below")
    assert not passes(1.05, "below")
    assert passes(None)


def test_repeated_runs_give_intervals():
    system = System(Pool(2), load=0.5)

    def read(result):
        return [result.jobs_in_system, result.queue_tail["all"][1]]

    jobs, busy = repeated(system, "random", read, jobs=20_000, seed=1, runs=4)
    assert jobs.low < 2 < jobs.high
    assert busy.low < 0.5 < busy.high
    assert mean([1.0, 1.0]).half_width == 0


def test_arrivals_find_the_time_average():
    system = System([Pool(1, speed=1.0), Pool(1, speed=2.0)], load=0.5)
    found = shared.found_by_arrivals(system, "weighted-random", jobs=220_000, every=10, seed=1)
    q = np.array(list(found))
    assert q.shape == (19_800, 2)
    assert q.mean(axis=0) == pytest.approx([1.0, 1.0], abs=0.1)


def test_the_command_prints_stores_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shared, "RESULTS", tmp_path)
    rows = [
        row("small", "one", "random", "E[N]", Estimate(1.0, 0.9, 1.1), 1.0, x=1.0, jobs=5, seed=7),
        row("small", "one", "random", "E[N]", Estimate(2.0, 1.9, 2.1), 1.0, x=2.0, jobs=5, seed=8),
    ]

    def draw(rows):
        figure, ((axis,),) = shared.figure(1)
        shared.plot(axis, rows, "one", "C0")
        return figure

    assert shared.run("pull", "", lambda quick, seed: rows[:seed], draw, ["--seed", "1"]) == 0
    record = json.loads((tmp_path / "pull.json").read_text())
    assert record["command"] == "python -m baselines.pull --seed 1"
    assert record["rows"][0]["simulated"] == 1.0
    assert record["rows"][0]["passes"] is True
    assert (tmp_path / "pull.png").stat().st_size > 1000
    assert shared.run("pull", "", lambda quick, seed: rows, draw, ["--quick"]) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "study",
    [
        order_based,
        local_search,
        local_choice,
        jsq_loss,
        multi_class_loss,
        car_sharing,
        flow_network,
    ],
)
def test_quick_commands_succeed(study, capsys):
    assert study.main(["--quick", "--seed", "5"]) == 0
    assert "as predicted" in capsys.readouterr().out


def test_stored_numbers_hold():
    for name in STUDIES:
        record = json.loads((shared.RESULTS / f"{name}.json").read_text())
        assert record["command"] == f"python -m baselines.{name} --seed 1"
        for stored in record["rows"]:
            assert stored.pop("passes")
            assert Row(**stored).passes
        assert all(math.isfinite(r["simulated"]) for r in record["rows"])
        assert (shared.RESULTS / f"{name}.png").exists()
