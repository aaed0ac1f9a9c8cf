"""The benchmarks do what they say; nothing here depends on how fast the machine is."""

import json
import time

import gymnasium as gym
import numpy as np
import pytest

import lbgym
from benchmarks import (
    env_rows,
    measure,
    process_rows,
    reference,
    simulate_rows,
    soak,
    speed,
    training_rows,
)
from benchmarks.measure import Effort, Line, alternate, flagship_like

SHORT = Effort(turns=1, scale=0.002, quick=True)
needs_compiler = pytest.mark.skipif(reference.program() is None, reason="no C++ compiler")


# --- the table ------------------------------------------------------------------------------------
def test_lines_know_what_is_missed_and_how_far_the_aim_is():
    slow = Line("cost", 3.0, "x", must=2.0, aim=1.5)
    assert slow.missed
    assert slow.to_aim == pytest.approx(2.0)
    fast = Line("rate", 9.0, "M/s", must=8.0, aim=12.0, more=True)
    assert not fast.missed
    assert fast.to_aim == pytest.approx(4 / 3)
    assert (Line("shown", 1.0).missed, Line("shown", 1.0).to_aim) == (False, None)


def test_sides_take_turns_and_show_their_best():
    said = []

    def side(name, times):
        def turn():
            said.append(name)
            return times.pop(0)

        return turn

    best = alternate(3, {"a": side("a", [3.0, 1.0, 2.0]), "b": side("b", [4.0, 5.0, 6.0])})
    assert best == {"a": 1.0, "b": 4.0}
    assert said == ["a", "b"] * 3


@pytest.fixture
def table(monkeypatch, tmp_path):
    """A table of two made-up groups, and where it is stored."""
    groups = {
        "rates": lambda effort: iter([Line("rate", 9.0, "M/s", 8.0, 12.0, more=True)]),
        "costs": lambda effort: iter([Line("cost", 3.0, "x", 2.0, 1.5, detail="6 over 2")]),
    }
    monkeypatch.setattr(speed, "GROUPS", groups)
    monkeypatch.setattr(speed, "RESULTS", tmp_path / "results" / "speed.json")
    monkeypatch.setattr(speed, "PAGE", tmp_path / "speed.md")
    speed.PAGE.write_text(f"before\n{speed.BEGIN}| old |\n{speed.END}\nafter\n")
    return speed.RESULTS


def test_the_whole_table_is_printed_stored_and_compared_with_the_last(table, capsys):
    assert speed.main([]) == 0
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert words[0][:5] == ["what", "measured", "must", "aim", "to"]
    assert words[1] == ["rate", "9", "M/s", "8", "12", "1.33", "x"]
    assert words[2] == ["cost", "3", "x", "MISSED", "2", "1.5", "2.00", "x", "6", "over", "2"]
    stored = json.loads(table.read_text())
    assert stored["machine"]["numpy"] == np.__version__
    assert [row["what"] for row in stored["lines"]] == ["rate", "cost"]
    page = speed.PAGE.read_text()
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")
    assert "| rate | 9 M/s | 8 | 12 | 1.33 x |  |\n| cost | 3 x MISSED | 2 |" in page
    assert "old" not in page
    stored["lines"][1]["measured"] = 4.5
    table.write_text(json.dumps(stored))
    speed.main([])
    assert "2.00 x       4.5  6 over 2" in capsys.readouterr().out


def test_quick_tables_are_not_stored(table, capsys):
    assert speed.main(["--quick"]) == 0
    assert not table.exists()
    assert "cost" in capsys.readouterr().out


def test_some_lines_replace_theirs_on_the_same_machine(table):
    speed.main([])
    stored = json.loads(table.read_text())
    for row in stored["lines"]:
        row["measured"] = 7.0
    table.write_text(json.dumps(stored))
    speed.main(["--only", "costs"])
    stored = json.loads(table.read_text())
    assert [(row["what"], row["measured"]) for row in stored["lines"]] == [("rate", 7), ("cost", 3)]
    stored["machine"]["cpu"] = "another"
    table.write_text(json.dumps(stored))
    speed.main(["--only", "costs"])
    assert [row["what"] for row in json.loads(table.read_text())["lines"]] == ["cost"]


def test_unknown_groups_are_refused(table, capsys):
    with pytest.raises(SystemExit) as stopped:
        speed.main(["--only", "cost"])
    assert stopped.value.code == 2
    assert "choose from" in capsys.readouterr().err


# --- the groups, for a moment ---------------------------------------------------------------------
@pytest.mark.parametrize(
    "group",
    [
        env_rows.steps,
        env_rows.vector_threads,
        simulate_rows.threads,
        pytest.param(simulate_rows.laws, marks=needs_compiler),
        pytest.param(simulate_rows.simulate, marks=needs_compiler),
    ],
)
def test_groups_measure_something(group, monkeypatch):
    monkeypatch.setattr(env_rows, "MANY_ROWS", 64)
    lines = list(group(SHORT))
    assert lines
    assert len({line.what for line in lines}) == len(lines)
    for line in lines:
        assert 0 < line.measured < float("inf")
        json.dumps(line.numbers)


def test_groups_without_what_they_need_say_so(monkeypatch, capsys):
    monkeypatch.setattr(reference.shutil, "which", lambda name: None)
    reference.program.cache_clear()
    try:
        assert list(simulate_rows.laws(SHORT)) == []
        assert "no C++ compiler" in capsys.readouterr().out
        assert reference.run("pull", "lists", 10, 100, 1) is None
    finally:
        reference.program.cache_clear()


@pytest.mark.parametrize("use", process_rows.USES.values())
def test_first_uses_run(use):
    names = {"gym": gym, "lbgym": lbgym}
    exec(use, names)
    if "env" in names:  # it has been stepped
        with pytest.raises(ValueError, match="action"):
            names["env"].step(-1 if "vec" not in use else [-1, -1])


def test_numbers_come_from_an_interpreter_of_their_own(tmp_path):
    assert process_rows.fresh("print(1.5, 2)") == [1.5, 2.0]
    code = f"import os; print(int(os.environ['NUMBA_CACHE_DIR'] == {str(tmp_path)!r}))"
    assert process_rows.fresh(code, str(tmp_path)) == [1.0]


def test_memory_of_arrays_is_counted():
    (line,) = process_rows.memory(SHORT)
    numbers = line.numbers
    assert numbers["import"] < numbers["compiled"] < numbers["run"]
    assert numbers["arrays"] > 30 * 10**5  # bytes: tens a server
    assert measure.resident_bytes() > 10**7


def test_the_share_of_the_environment_is_a_share():
    pytest.importorskip("stable_baselines3")
    from lbgym.sb3 import make_vec

    vec = make_vec(training_rows.ENV, training_rows.ROWS)
    assert 0 < training_rows.share(vec, 1, 8, time.perf_counter) < 1


# --- the yardsticks simulate the same system ------------------------------------------------------
@needs_compiler
@pytest.mark.parametrize("policy", simulate_rows.POLICIES)
@pytest.mark.parametrize("law", [None, *simulate_rows.LAWS])
def test_loops_agree_with_the_engine(policy, law):
    size, words = ("exponential", ()) if law is None else simulate_rows.LAWS[law]
    n, jobs = 100, 400_000
    ours = lbgym.simulate(flagship_like(n, size=size), policy, jobs=jobs, seed=2)
    variants = reference.VARIANTS if law is None else ("tournament",)
    for variant in variants:
        loop = reference.run(simulate_rows.POLICIES[policy], variant, n, jobs, 3, law=words)
        width = 5 * ours.response_time.half_width
        assert loop["mean_response"] == pytest.approx(float(ours.response_time), abs=width)
        width = 5 * ours.jobs_in_system.half_width
        assert loop["jobs_in_system"] == pytest.approx(float(ours.jobs_in_system), abs=width)


@needs_compiler
def test_loops_refuse_what_they_do_not_know(capfd):
    for variant, n, law in (
        ("heap", 10, ()),
        ("lists", 11, ()),
        ("tournament", 10, ()),
        ("tournament", 10, ("weibull", 2)),
        ("tournament", 10, ("erlang",)),
    ):
        with pytest.raises(reference.subprocess.CalledProcessError):
            reference.run("pull", variant, n, 100, 1, law=law)
        assert capfd.readouterr().err.startswith("reference: ")


def test_the_simpy_model_agrees_with_the_engine():
    pytest.importorskip("simpy")
    from benchmarks import simpy_model

    n, jobs = 20, 30_000
    theirs = simpy_model.run(n, 2_000, jobs, seed=1)
    ours = lbgym.simulate(flagship_like(n), "jsq(2)", jobs=400_000, seed=1)
    assert theirs.arrivals == jobs
    mean = theirs.response_time / theirs.departed
    assert mean == pytest.approx(float(ours.response_time), rel=0.1)
    assert theirs.blocked / jobs == pytest.approx(float(ours.blocking_probability), abs=0.005)


# --- the soak -------------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", ["pull", "jsq(2)"])
def test_a_short_soak_holds(policy):
    found = soak.soak("flagship", policy, 20_000, 4, seed=3)
    assert found["holds"] == dict.fromkeys(("times", "tails", "clock", "jobs", "memory"), True)
    assert [look["jobs"] for look in found["looks"]] == [5_000, 10_000, 15_000, 20_000]
    assert all(look["times"] < 1e-11 for look in found["looks"])


@pytest.mark.parametrize(
    ("claim", "wrong"),
    [
        ("times", {"times": 2e-9}),
        ("tails", {"tails": 2e-9}),
        ("clock", {"monotone": False}),
        ("jobs", {"lost": 1}),
        ("memory", {"resident": 10**9}),
    ],
)
def test_a_soak_tells_what_does_not_hold(claim, wrong):
    good = {"times": 0.0, "tails": 0.0, "monotone": True, "lost": 0, "resident": 10**8}
    holds = soak.holds([good, good | wrong, good])
    assert [name for name, true in holds.items() if not true] == [claim]


def test_the_soak_command_stores_and_exits_by_what_holds(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(soak, "RESULTS", tmp_path / "results" / "soak.json")
    assert soak.main(["--jobs", "2e3", "--looks", "2"]) == 0
    stored = json.loads(soak.RESULTS.read_text())
    assert stored["jobs"] == 2000
    assert "times: holds" in capsys.readouterr().out
    monkeypatch.setattr(soak, "TOLERANCE", -1.0)
    assert soak.main(["--jobs", "2e3", "--looks", "2"]) == 1
    assert "times: DOES NOT HOLD" in capsys.readouterr().out
