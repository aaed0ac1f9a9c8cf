"""Rows resume, pool and pair; tables and pictures say what the rows say."""

import csv
import dataclasses
import io
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from interrupting import heed_interrupts

from lbgym import benchmark, report
from lbgym.benchmark import Settings, Task, load_rows, run_benchmark
from lbgym.measures import DISPATCH
from lbgym.records import FILE, Row, open_records, pack, unpack
from lbgym.simulate import compare, simulate
from lbgym.stats import Estimate
from lbgym.system import as_system
from lbgym.tables import excludes_zero, tables

SMALL = Settings(jobs=20_000, loss_charge=20.0)
POLICIES = ["pull", "random", "jsq(2)", "sed"]


@pytest.fixture(scope="module")
def rows():
    """Four policies on the flagship, two seeds."""
    return run_benchmark(["flagship"], POLICIES, seeds=[3, 4], settings=SMALL, workers=2)


@pytest.fixture(scope="module")
def table(rows):
    (found,) = tables(rows)
    return found


def line_of(table, policy):
    return next(line for line in table.lines if line.policy == policy)


# --- estimates ------------------------------------------------------------------------------------
def test_one_seed_gives_the_estimates_of_simulate(rows):
    (one,) = tables([row for row in rows if row.seed == 3])
    for policy in POLICIES:
        result = simulate("flagship", policy, jobs=20_000, seed=3, loss_charge=20.0)
        line = line_of(one, policy)
        for name in {"cost": "cost", **DISPATCH.columns(one.system)}.values():
            p = {"p50": 0.5, "p99": 0.99}.get(name)
            expected = getattr(result, name) if p is None else result.response_time_quantile(p)
            assert line.estimates[name].to_dict() == expected.to_dict(), name
        assert (line.stable, line.information) == (result.stable, result.information)


def test_differences_of_one_seed_are_those_of_compare(rows):
    (one,) = tables([row for row in rows if row.seed == 3])
    expected = compare("flagship", POLICIES, jobs=20_000, seed=3, loss_charge=20.0)
    for policy, difference in zip(POLICIES[1:], expected.differences[1:], strict=True):
        assert line_of(one, policy).difference.to_dict() == difference.to_dict()


def test_two_seeds_pool_into_a_narrower_interval(rows, table):
    (one,) = tables([row for row in rows if row.seed == 3])
    for policy in POLICIES:
        both = line_of(table, policy)
        costs = [np.sum(row.batch_costs(), axis=1) for row in rows if row.policy == policy]
        total, arrivals = np.sum(costs, axis=0)
        assert both.estimates["cost"].mean == pytest.approx(total / arrivals)
        assert both.seeds == (3, 4)
        narrower = (
            both.estimates["cost"].half_width / line_of(one, policy).estimates["cost"].half_width
        )
        assert 0.4 < narrower < 1.1


def test_a_difference_needs_common_seeds(rows):
    apart = [row for row in rows if (row.policy, row.seed) in (("pull", 3), ("sed", 4))]
    (found,) = tables(apart)
    assert line_of(found, "sed").difference is None


def test_against_chooses_the_row_to_pair_with(rows, table):
    (other,) = tables(rows, "jsq( 2 )")
    assert (table.against, other.against) == ("pull", "jsq(2)")
    back = line_of(table, "jsq(2)").difference
    forth = line_of(other, "pull").difference
    assert forth.mean == pytest.approx(-back.mean)
    with pytest.raises(ValueError, match="did you mean 'sed'"):
        tables(rows, "sedd")


def test_unlike_settings_never_share_a_table(rows):
    more = run_benchmark(["flagship"], ["pull"], seeds=[3], settings=Settings(jobs=10_000))
    assert len(tables([*rows, *more])) == 2


def test_of_a_retrained_model_only_the_new_rows_count(rows):
    old, new = (row for row in rows if row.policy == "sed")
    again = [dataclasses.replace(old, model="old"), dataclasses.replace(new, model="new")]
    (found,) = tables(again)
    assert found.lines[0].seeds == (new.seed,)


def test_an_overloaded_run_is_not_stable_and_not_paired():
    few = Settings(jobs=20_000, warmup=0, max_jobs=200)
    pair = run_benchmark(["pull-pair"], ["random", "sed"], seeds=[0], settings=few)
    (found,) = tables(pair, "sed")
    assert not pair[0].complete
    assert line_of(found, "random").stable is False
    assert line_of(found, "random").difference is None
    assert "NO" in report.table_text(found)


# --- workers --------------------------------------------------------------------------------------
def plain(row):
    return {**json.loads(row.to_line()), "seconds": 0}


def test_rows_do_not_depend_on_workers_threads_or_processes(rows):
    alone = run_benchmark(["flagship"], POLICIES, seeds=[3, 4], settings=SMALL, workers=1)
    assert list(map(plain, alone)) == list(map(plain, rows))
    tasks = [Task(as_system("flagship"), "pull", seed, SMALL) for seed in (3, 4)]
    kept, ticks = [], []
    benchmark._run_processes(tasks, 1, ticks.append, kept.append)
    assert list(map(plain, kept)) == [plain(row) for row in rows if row.policy == "pull"]
    assert max(ticks) == 40_000


def test_rows_come_in_the_order_asked_for(rows):
    assert [(row.seed, row.policy) for row in rows] == [(s, p) for s in (3, 4) for p in POLICIES]


def test_progress_reaches_what_was_planned():
    seen = []
    run_benchmark(
        ["mm1"],
        ["random"],
        seeds=[0, 1],
        settings=Settings(jobs=1000, replications=2),
        progress=lambda *now: seen.append(now),
    )
    assert seen[-1] == (4000, 4000)


# --- what may be asked for ------------------------------------------------------------------------
def test_default_policies_are_at_least_ten_and_fit_the_system():
    plain_names = benchmark.policies_for(as_system("flagship"), None)
    assert len(plain_names) >= 10
    assert not any("local-search" in name for name in plain_names)
    moving = benchmark.policies_for(as_system("flagship-migrating"), None)
    assert len(set(moving) - set(plain_names)) >= 3
    assert "jsq(2)" not in benchmark.policies_for(as_system("mm1"), None)


def test_everything_is_checked_before_anything_runs(tmp_path):
    for policies, said in (
        (["pull", "local-search"], "local-search.*flagship"),
        (["pull", "jqs"], "did you mean 'jsq'"),
        (["pull", f"model:{tmp_path}/nothing"], "no such file"),
        (["pull", f"model:{tmp_path}"], "no model in this folder"),
        ([], "must not be empty"),
    ):
        with pytest.raises(ValueError, match=said):
            run_benchmark(["flagship"], policies, folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_is_known_by_the_contents_of_its_files(tmp_path):
    model = tmp_path / "ppo.zip"

    def key():
        (task,) = benchmark.plan(["mm1"], [f"model:{tmp_path}/ppo"], [0], SMALL)
        return task.key

    model.write_bytes(b"one")
    first = key()
    assert key() == first
    model.write_bytes(b"two")
    assert key() != first


def test_whatever_decides_the_numbers_decides_the_key():
    task = Task(as_system("flagship"), "pull", 0, SMALL)
    others = [
        dataclasses.replace(task, system=as_system("flagship").with_load(0.8)),
        dataclasses.replace(task, policy="jsq"),
        dataclasses.replace(task, seed=1),
        dataclasses.replace(task, model="hash"),
        *(
            dataclasses.replace(task, settings=dataclasses.replace(SMALL, **change))
            for change in (
                {"jobs": 30_000},
                {"warmup": 10},
                {"replications": 2},
                {"loss_charge": 1.0},
                {"move_cost": 1.0},
                {"max_jobs": 100},
            )
        ),
    ]
    assert len({task.key, *(other.key for other in others)}) == 11
    default = dataclasses.replace(task, settings=dataclasses.replace(SMALL, loss_charge=None))
    assert default.key != dataclasses.replace(task, seed=2).key


# --- records --------------------------------------------------------------------------------------
def test_histograms_survive_packing():
    counts = np.zeros((3, 100), dtype=np.int64)
    assert np.array_equal(unpack(pack(counts)), counts)
    counts[1, 7], counts[2, 90] = 5, 2**40
    assert np.array_equal(unpack(pack(counts)), counts)


def test_a_row_survives_its_line(rows):
    again = Row.from_line(rows[0].to_line())
    assert again.to_line() == rows[0].to_line()
    assert np.array_equal(again.histograms, rows[0].histograms)
    assert len(rows[0].to_line()) < 60_000


def test_a_torn_last_line_is_cut_off_and_a_broken_one_passed_over(tmp_path, rows):
    with open_records(tmp_path) as records:
        records.append(rows[0])
    path = tmp_path / FILE
    whole = path.read_bytes()
    path.write_bytes(whole + b"no row\n" + whole[:200])
    assert [row.key for row in load_rows(tmp_path)] == [rows[0].key]
    with open_records(tmp_path) as records:
        assert records.unreadable == 1
        records.append(rows[1])
    assert path.read_bytes().startswith(whole + b"no row\n{")
    assert [row.key for row in load_rows(tmp_path)] == [rows[0].key, rows[1].key]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, rows, monkeypatch):
    with open_records(tmp_path) as records:
        records.append(rows[0])
        monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            records.append(rows[1])
    assert [row.key for row in load_rows(tmp_path)] == [rows[0].key]


@pytest.mark.skipif(os.name != "posix", reason="file locks of POSIX")
def test_one_benchmark_at_a_time_writes_to_a_folder(tmp_path):
    with (
        open_records(tmp_path),
        pytest.raises(ValueError, match="in use by another benchmark"),
        open_records(tmp_path),
    ):
        pass


def test_finished_rows_are_not_run_again_unless_fresh(tmp_path, monkeypatch):
    calls = []

    def counted(*args, **kwargs):
        calls.append(args[1])
        return simulate(*args, **kwargs)

    monkeypatch.setattr(benchmark, "simulate", counted)
    monkeypatch.setattr(benchmark, "_compile", lambda tasks: None)

    def run(policies, **options):
        calls.clear()
        run_benchmark(["mm1"], policies, seeds=[0], settings=SMALL, folder=tmp_path, **options)
        return calls.copy()

    said = []
    assert run(["random"]) == ["random"]
    assert run(["random", "jsq"], say=said.append) == ["jsq"]
    assert said == ["1 of 2 rows are in the results folder already"]
    assert run(["random", "jsq"]) == []
    assert sorted(run(["random", "jsq"], fresh=True)) == ["jsq", "random"]
    assert len(load_rows(tmp_path)) == 2


# --- interrupted ----------------------------------------------------------------------------------
def start_bench(folder):
    arguments = ["--policies", "pull", "random", "--seeds", "0-99", "--jobs", "200000"]
    command = [sys.executable, "-m", "lbgym", "bench", *arguments, "--workers", "1"]
    return subprocess.Popen(
        [*command, "--no-plot", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


def stop_after_some_rows(process, path, how):
    end = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < end:
        if path.exists() and path.read_bytes().count(b"\n") >= 3:
            break
        time.sleep(0.02)
    process.send_signal(how)
    return process.communicate(timeout=3000)


def lines_of(path):
    return path.read_bytes().split(b"\n")[:-1]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_kill_9_loses_no_finished_row(tmp_path):
    path = tmp_path / FILE
    process = start_bench(tmp_path)
    stop_after_some_rows(process, path, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    before = lines_of(path)
    assert 3 <= len(before) < 200
    with path.open("ab") as file:
        file.write(before[0][:1000])  # as if killed in the middle of a line
    done = [Row.from_line(line.decode()) for line in before]
    seeds = range(max(row.seed for row in done) + 2)
    settings = Settings(jobs=200_000)
    rows = run_benchmark(
        ["flagship"], ["pull", "random"], seeds=seeds, settings=settings, folder=tmp_path
    )
    after = lines_of(path)
    assert after[: len(before)] == before
    assert len(after) == len(rows) == 2 * len(seeds)
    known = {row.key: row.seconds for row in done}
    assert all(row.seconds == known.get(row.key, row.seconds) for row in rows)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_keeps_finished_rows_and_says_how_to_go_on(tmp_path):
    process = start_bench(tmp_path)
    out, err = stop_after_some_rows(process, tmp_path / FILE, signal.SIGINT)
    assert process.returncode == 130
    assert out == ""
    last = err.splitlines()[-1].rpartition("\r")[2].strip()
    assert last.startswith("lbgym bench: interrupted")
    assert str(tmp_path) in last
    assert "Traceback" not in err
    assert len(load_rows(tmp_path)) >= 3


# --- report ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(2.6761, 2.6551, 2.6971), "2.676 ±.021"),
        (Estimate(40.74, 38.64, 42.84), "40.7 ±2.1"),
        (Estimate(2651.3, 2429.3, 2873.3), "2651 ±222"),
        (Estimate(4.0, 4.0, 4.0), "4"),
        (Estimate(0.0, 0.0, 0.0), "0"),
        (Estimate(0.0, 0.0, 2.4e-5), "<2e-05"),
        (Estimate(-0.0004, -0.1004, 0.0996), "0.00 ±.10"),
        (Estimate(3.1e-8, 1e-8, 5.2e-8), "3.1e-08 ±2e-08"),
        (Estimate(2.5, math.nan, math.nan), "2.5 ±?"),
        (Estimate(math.nan, math.nan, math.nan), "-"),
        (None, "-"),
    ],
)
def test_estimates_are_shown_with_two_figures_of_their_half_width(estimate, text):
    assert report.show(estimate) == text


def test_a_star_marks_a_difference_whose_interval_excludes_zero():
    assert report.show_difference(Estimate(0.30, 0.10, 0.50)) == "+0.30 ±.20 *"
    assert report.show_difference(Estimate(-0.30, -0.70, 0.10)) == "-0.30 ±.40  "
    assert excludes_zero(Estimate(-2.0, -3.0, -1.0))
    assert not excludes_zero(Estimate(-2.0, -3.0, math.nan))


def test_the_table_is_aligned_grouped_and_complete(table):
    text = report.table_text(table)
    head, *body = text.split("\n\n")[1].splitlines()
    assert head.split()[:4] == ["cost", "-", "pull", "mean"]
    assert [line for line in body if line.startswith("[")] == [
        "[none]",
        "[messages]",
        "[d probes]",
        "[live queue lengths, speeds]",
    ]
    named = [line.split()[0] for line in body if not line.startswith("[")]
    assert named == ["random", "pull", "jsq(2)", "sed"]
    assert len({line.index("±") for line in body if "±" in line}) == 1
    assert len({len(line) for line in [head, *body] if not line.startswith("[")}) == 1
    assert "migrations" not in head
    assert "blocking" in head
    assert "seeds 3, 4" in text
    assert "20 a lost job" in text


def test_csv_and_json_hold_every_number_of_the_table(table):
    (data,) = json.loads(json.dumps(report.to_data([table])))
    records = {r["policy"]: r for r in csv.DictReader(io.StringIO(report.to_csv([table])))}
    assert {line["policy"] for line in data["policies"]} == set(records) == set(POLICIES)
    for entry in data["policies"]:
        line, record = line_of(table, entry["policy"]), records[entry["policy"]]
        for name, estimate in line.estimates.items():
            assert entry[name] == estimate.to_dict()
            assert float(record[name]) == estimate.mean
            assert float(record[f"{name}_high"]) == estimate.high
        assert record["system"] == "flagship"
    assert records["pull"]["difference"] == ""
    assert float(records["sed"]["difference"]) == line_of(table, "sed").difference.mean


def test_the_picture_names_every_policy_without_overlaps(table, tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

    kept = []
    original = Figure.savefig
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Figure, "savefig", lambda self, path: kept.append(self) or original(self, path)
        )
        path = report.draw([table], tmp_path / "price.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    (axes,) = kept[0].axes
    texts = [t for t in axes.texts if isinstance(t, Annotation)]
    assert sorted(t.get_text() for t in texts) == sorted(POLICIES)
    boxes = [t.get_window_extent() for t in texts]
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])


def test_a_missing_matplotlib_says_how_to_install_it(table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install lbgym\[report\]"):
        report.draw([table], tmp_path / "price.png")
