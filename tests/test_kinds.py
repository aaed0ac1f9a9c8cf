"""The front doors take every kind of system, and say what there is where nothing is known."""

import csv
import io
import json

import pytest

import lbgym
from lbgym import CarSharing, FlowNetwork, System, as_system, compare, policies, simulate, theory
from lbgym.benchmark import Settings, plan, run_benchmark
from lbgym.cli import main
from lbgym.kinds import KINDS, kind_of
from lbgym.records import load_rows
from lbgym.report import draw, result_text, table_text, to_csv
from lbgym.tables import tables

ONE_OF_EACH = {"dispatch": "small", "car-sharing": "cars", "flow-network": "flow-rate"}
CLASSES = {"dispatch": System, "car-sharing": CarSharing, "flow-network": FlowNetwork}
QUICK = Settings(jobs=5_000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_system_of_each_kind_is_found_in_every_form(kind, tmp_path):
    system = as_system(ONE_OF_EACH[kind])
    assert isinstance(system, CLASSES[kind])
    assert kind_of(system).name == kind
    assert as_system(system) is system
    assert as_system(json.loads(json.dumps(system.to_dict()))) == system
    path = tmp_path / "system.toml"
    path.write_text(system.to_toml())
    assert as_system(path) == as_system(str(path)) == system


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_names_its_policies(kind):
    system = as_system(ONE_OF_EACH[kind])
    names = policies.names(system)
    assert names == sorted(names)
    assert {row.name for row in policies.families(system)} <= set(names) <= set(policies.names())
    for name in kind_of(system).part("rules").usual(system):
        policy = policies.make(name, ONE_OF_EACH[kind])
        assert policies.make(policy, system) == policy
        assert policy.information in {row.information for row in policies.families(system)} or (
            kind == "dispatch"
        )


@pytest.mark.parametrize(
    ("system", "policy", "accepted"),
    [  # MODELS section 11
        ("cars", "requested", 0.3463),
        ("cars", "least-per-demand", 0.6018),
        ("cars-equal", "two-choice", 0.6047),
        ("cars-equal", "least-parked", 0.6715),
    ],
)
def test_exact_of_car_sharing(system, policy, accepted):
    assert theory.exact(system, policy).accepted == pytest.approx(accepted, abs=5.1e-5)


@pytest.mark.parametrize(("system", "accepted"), [("cars", 0.6126), ("cars-equal", 0.6760)])
def test_optimum_of_car_sharing_is_attained(system, accepted):
    found = theory.optimal(system)
    assert found.accepted == pytest.approx(accepted, abs=5.1e-5)
    assert theory.exact(system, found.policy).accepted == pytest.approx(found.accepted, abs=1e-8)
    result = simulate(system, found.policy, jobs=200_000, seed=1)
    assert abs(result.accepted - found.accepted) < 2.5 * result.accepted.half_width


def test_optimum_of_access_rates():
    """MODELS section 11, with at most 34 flows: 3.08719229 and 2.68034011."""
    fixed = [theory.exact("flow-rate", f"fixed-rate({a})", cap=34) for a in (0.25, 0.5, 1, 2)]
    assert min(x.jobs_in_system for x in fixed) == pytest.approx(3.08719229, rel=1e-6)
    found = theory.optimal("flow-rate", cap=34)
    assert found.jobs_in_system == pytest.approx(2.68034011, rel=1e-6)
    assert "policy" in json.dumps(found.to_dict())
    assert "jobs_in_system" in repr(found)


def test_joining_the_less_loaded_route_is_the_best_there_is():
    """MODELS section 11: 2.3562."""
    joined = theory.exact("flow-routes", "join-least-loaded").jobs_in_system
    assert joined == pytest.approx(2.35617592, rel=1e-6)
    assert theory.optimal("flow-routes").jobs_in_system == pytest.approx(joined, rel=1e-6)


def test_critical_load_of_a_class_at_each_access_rate():
    """Of the class itself the access rate plays no part; 1 - .3 - .3 .7^1.7."""
    limit = 0.7 - 0.3 * 0.7**1.7
    for rate in (0.25, 2):
        found = theory.critical_load("flow-rate", f"fixed-rate({rate})", flow=0)
        assert found == pytest.approx(limit, abs=1e-6)
    assert theory.growth("flow-rate", "fixed-rate", flow=0) == (0.0, 0.0, 0.0)


def test_mean_field_of_car_sharing():
    found = theory.mean_field("cars-equal", "requested")
    assert found.cars_per_station == pytest.approx(7 / 4)
    assert found.accepted == pytest.approx(0.4973, abs=0.03)  # four stations, exactly


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: theory.mean_field("flow-rate", "fixed-rate"), "none is known for flow networks; "),
        (lambda: theory.lower_bound("cars"), "lower_bound: none is known for car sharing; use "),
        (lambda: theory.critical_load("cars", "requested"), "critical_load: none is known for car"),
        (lambda: theory.exact("cars", "requested", cap=3), "exact: cap means nothing for car"),
        (lambda: theory.optimal("cars", lossless=True), "lossless means nothing for car sharing"),
        (lambda: theory.critical_load("small", "pull", flow=1), "flow: only for flow networks"),
        (lambda: theory.critical_load("flow-routes", "join-least-loaded"), "known for fixed rout"),
        (lambda: theory.critical_load("flow-rate", "fixed-rate", flow=5), "flow: must be a class"),
        (lambda: theory.optimal(CarSharing(12, 3, 20)), "12 stations and 20 cars have up to"),
        (lambda: policies.make("jsq", "cars"), "unknown policy of a car-sharing system 'jsq'"),
        (lambda: policies.make("requested", "small"), "unknown policy 'requested'"),
        (lambda: as_system({"kind": "car-sharin"}), "unknown kind of system 'car-sharin', did you"),
        (lambda: as_system({"kind": ["dispatch"]}), "unknown kind of system"),
        (lambda: as_system({"kind": "car-sharing", "stations": 2}), "capacity: required"),
    ],
)
def test_a_mistake_gets_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_what_is_known_is_named():
    with pytest.raises(ValueError, match="lower_bound: none is known for flow networks") as caught:
        theory.lower_bound("flow-rate")
    words = str(caught.value).partition("use ")[2].replace(" or ", ", ").split(", ")
    assert set(words) == {"exact", "optimal", "critical_load", "growth", "simulate"}


# --- comparing ------------------------------------------------------------------------------------
def test_compare_pairs_car_sharing_policies():
    found = compare("cars", ["requested", "least-parked"], jobs=20_000, seed=1)
    exact = [theory.exact("cars", p).cost for p in ("requested", "least-parked")]
    difference = found.differences[1]
    assert abs(difference - (exact[1] - exact[0])) < 2.5 * difference.half_width
    assert difference.high < 0


def test_a_loss_charge_counts():
    one = simulate("cars", "requested", jobs=5_000, seed=1)
    three = simulate("cars", "requested", jobs=5_000, seed=1, loss_charge=3)
    assert three.cost == pytest.approx(3 * one.cost)
    assert three.accepted == one.accepted


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    rows = run_benchmark(ONE_OF_EACH.values(), seeds=[0, 1], settings=QUICK, folder=folder)
    return folder, rows


def test_rows_of_every_kind_survive_and_are_not_run_again(kept):
    folder, rows = kept
    again = {row.key: row for row in load_rows(folder)}
    for row in rows:
        for name, values in row.batches.items():
            assert (again[row.key].batches[name] == values).all()
            assert again[row.key].batches[name].shape == values.shape
    said = []
    planned = plan(ONE_OF_EACH.values(), None, [0, 1], QUICK)
    assert [task.key for task in planned] == [row.key for row in rows]
    resumed = run_benchmark(
        ONE_OF_EACH.values(), seeds=[0, 1], settings=QUICK, folder=folder, say=said.append
    )
    assert said == [f"{len(rows)} of {len(rows)} rows are in the results folder already"]
    assert [row.key for row in resumed] == [row.key for row in rows]


def test_tables_say_what_matters_of_each_kind(kept):
    _, cars, flows = tables(kept[1])
    text = table_text(cars)
    head = next(line for line in text.splitlines() if "accepted" in line)
    assert head.split("  ")[-1].strip() == "on road"
    for word in ("no car", "no space", "problematic"):
        assert word in head
    assert "stable" not in text
    assert "5,000 users a seed" in text
    by_policy = {line.policy: line for line in cars.lines}
    assert set(by_policy) == set(policies.names("cars"))
    line = by_policy["least-parked"]
    assert abs(line.estimates["accepted"] - 0.5425) < 2.5 * line.estimates["accepted"].half_width
    assert line.difference.high < 0
    text = table_text(flows)
    for word in ("class 0", "class 2", "stable", "fixed-rate(0.25)"):
        assert word in text
    line = next(line for line in flows.lines if line.policy == "fixed-rate(1)")
    parts = [line.estimates[f"flows_{k}"] for k in range(3)]
    assert sum(parts) == pytest.approx(line.estimates["jobs_in_system"])


def test_a_line_equals_the_simulation_it_is_made_of(kept):
    _, cars, flows = tables([row for row in kept[1] if row.seed == 1])
    for table, name in ((cars, "accepted"), (flows, "jobs_in_system")):
        line = table.lines[-1]
        result = simulate(table.system, line.policy, jobs=QUICK.jobs, seed=1)
        assert line.estimates[name].to_dict() == getattr(result, name).to_dict()
        assert line.estimates["cost"].to_dict() == result.cost.to_dict()


def test_csv_and_picture_of_several_kinds(kept, tmp_path):
    found = tables(kept[1])
    rows = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert {row["system"] for row in rows} == set(ONE_OF_EACH.values())
    assert all(row["accepted"] == "" for row in rows if row["system"] == "small")
    assert all(0 < float(row["accepted"]) < 1 for row in rows if row["system"] == "cars")
    assert draw(found, tmp_path / "all.png").stat().st_size > 10_000


# --- the command ----------------------------------------------------------------------------------
def test_commands_take_every_kind(capsys, tmp_path):
    assert main(["simulate", "cars", "least-parked", "--jobs", "2000", "--json"]) == 0
    assert 0.4 < json.loads(capsys.readouterr().out)["accepted"]["mean"] < 0.7
    assert main(["simulate", "flow-rate", "fixed-rate", "--jobs", "2000"]) == 0
    out = capsys.readouterr().out
    assert "2,000 flows" in out
    assert "flow duration" in out
    arguments = ["--systems", "flow-routes", "--jobs", "2000", "--seeds", "0", "--no-plot"]
    assert main(["bench", *arguments, "--out", str(tmp_path)]) == 0
    assert "join-least-loaded" in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--no-plot"]) == 0
    assert "join-least-loaded" in capsys.readouterr().out
    assert main(["simulate", "cars", "requested", "--load", "0.5"]) == 2
    assert "has no load of its own" in capsys.readouterr().err
    assert main(["simulate", "cars", "pull"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["list", "policies"]) == 0
    out = capsys.readouterr().out
    assert "for: car sharing" in out
    assert "fixed-rate([a])" in out


def test_fleet_command(capsys):
    assert main(["fleet", "cars"]) == 0
    text = capsys.readouterr().out
    assert "by exact" in text
    assert "best: 8 cars, 2 a station" in text
    assert main(["fleet", "cars", "--cars", "6,8", "--metric", "problematic", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["curve"]) == {"6", "8"}
    exact = theory.exact("cars", "requested").problematic
    assert found["curve"]["6"] == pytest.approx(exact)
    assert main(["fleet", "mm1"]) == 2
    assert "only a car-sharing system has one" in capsys.readouterr().err


def test_results_read_well():
    text = result_text(simulate("cars", "requested", jobs=2_000))
    assert "loss charge 1" in text
    assert "utilization" not in text
    assert lbgym.scenarios.describe("flow-rate").startswith("flow-rate: 3 classes of flows")
