"""The command line: what it prints, and one clear line with status 2 for every mistake."""

import json
import subprocess
import sys

import pytest

from lbgym import scenarios
from lbgym._version import __version__
from lbgym.cli import main, seeds
from lbgym.policies import families


def run(capsys, *arguments):
    """Status, stdout and stderr of a command, run here."""
    try:
        status = main(list(arguments))
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    return status, out, err


def command(*arguments, **options):
    """The same in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "lbgym", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


SMALL = ("--jobs", "5000", "--seeds", "0-1")


# --- help and list --------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["list", "simulate", "bench", "report"])
def test_help_teaches_with_examples(capsys, name):
    status, out, _ = run(capsys, name, "--help")
    assert status == 0
    assert "examples:" in out
    assert f"  lbgym {name}" in out
    assert "--json" in out


def test_the_command_itself_imports_nothing_heavy():
    heavy = "('scipy', 'matplotlib', 'numba', 'tqdm', 'torch')"
    code = (
        "import sys, lbgym; before = set(sys.modules)\n"
        "from lbgym import cli\n"
        "try: cli.main(['bench', '--help'])\n"
        "except SystemExit: pass\n"
        f"print('heavy:', [m for m in {heavy} if m in sys.modules and m not in before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "heavy: []", done.stderr


def test_version(capsys):
    status, out, _ = run(capsys, "--version")
    assert (status, out) == (0, f"lbgym {__version__}\n")


def test_list_shows_systems_policies_and_environments(capsys):
    status, out, err = run(capsys, "list")
    assert (status, err) == (0, "")
    for name in scenarios.names():
        assert f"  {name}\n" in out
    for row in families():
        assert f"  {row.usage}\n" in out
        assert f"knows: {row.information}" in out
    assert "lbgym/MultiRouter-v0" in out


def test_list_as_json_holds_systems_that_can_be_read_back(capsys):
    _, out, _ = run(capsys, "list", "systems", "--json")
    found = {entry["name"]: entry["system"] for entry in json.loads(out)["systems"]}
    assert found == {name: scenarios.get(name).to_dict() for name in scenarios.names()}


# --- simulate -------------------------------------------------------------------------------------
def test_simulate_prints_estimates(capsys):
    status, out, err = run(capsys, "simulate", "mm1", "random", "--jobs", "2e4", "--load", "0.5")
    assert status == 0
    assert "error" not in err  # a cold machine may say that it compiles, and show a bar
    assert "load 0.5" in out
    for name in ("cost", "response time p99", "waiting probability", "utilization", "stable"):
        assert f"  {name} " in out
    assert "±" in out


@pytest.mark.parametrize("form", ["name", "toml", "json"])
def test_a_system_is_a_name_a_file_or_json(capsys, tmp_path, form):
    system = scenarios.get("small")
    path = tmp_path / "small.toml"
    path.write_text(system.to_toml())
    text = {"name": "small", "toml": str(path), "json": system.to_json()}[form]
    status, out, _ = run(capsys, "simulate", text, "jsq", "--jobs", "1000", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["system"] == system.to_dict()
    assert 0 < found["cost"]["low"] <= found["cost"]["mean"] <= found["cost"]["high"]


def test_simulate_takes_every_option(capsys):
    options = "--jobs 2000 --warmup 100 --seed 3 --replications 2 --threads 2 --loss-charge 5"
    more = "--move-cost 1 --max-jobs 5000 --start 1,0,2,1"
    _, out, _ = run(capsys, "simulate", "small", "pull", *options.split(), *more.split(), "--json")
    found = json.loads(out)
    assert (found["seed"], found["replications"], found["warmup"]) == (3, 2, 100)
    assert (found["loss_charge"], found["move_cost"]) == (5.0, 1.0)
    assert found["counts"]["started"] == 8


# --- mistakes -------------------------------------------------------------------------------------
MISTAKES = [
    ("", "required: COMMAND"),
    ("simulat mm1 random", "simulat"),
    ("list everything", "everything"),
    ("list --jason", "--jason"),
    ("simulate mm1", "POLICY"),
    ("simulate mm2 random", "did you mean 'mm1'"),
    ("simulate mm1 randon", "did you mean 'random'"),
    ("simulate mm1 jsq(", "closing bracket"),
    ("simulate triple jsq(5)", "jsq"),
    ("simulate mm1 local-search", "migration_rate"),
    ("simulate mm1 model:nowhere", "model"),
    ("simulate no-such.toml random", "no such file"),
    ('simulate {"pools":3 random', "not valid JSON"),
    ('simulate {"pools":[{"servers":0}],"load":1} random', "servers"),
    ("simulate mm1 random --load -1", "load"),
    ("simulate mm1 random --load much", "--load"),
    ("simulate mm1 random --jobs 0", "--jobs"),
    ("simulate mm1 random --jobs 1.5e2.5", "--jobs"),
    ("simulate mm1 random --jobs 1000 --warmup 1000", "warmup"),
    ("simulate mm1 random --seed -1", "--seed"),
    ("simulate mm1 random --precision 2", "precision"),
    ("simulate mm1 random --threads 2", "threads"),
    ("simulate mm1 random --loss-charge nan", "loss_charge"),
    ("simulate mm1 random --start busy", "--start"),
    ("simulate mm1 random --start 1,2", "start"),
    ("bench --systems flagshop", "did you mean 'flagship'"),
    ("bench --policies pull pul", "did you mean 'pull'"),
    ("bench --policies pull local-search", "local-search"),
    ("bench --policies pull model:nowhere", "no such file"),
    ("bench --against jsqq", "did you mean 'jsq'"),
    ("bench --seeds 3-1", "--seeds"),
    ("bench --seeds 0-99999999999999", "--seeds"),
    ("bench --workers 0", "--workers"),
    ("bench --jobs many", "--jobs"),
    ("bench --plot picture.gif", ".png"),
    ("bench --plot no-such-folder/picture.png", "no such folder"),
    ("bench --plot a.png --no-plot", "--no-plot"),
    ("report no-such-folder", "no results here"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES)
def test_a_mistake_is_status_2_and_one_line(capsys, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *arguments.split())
    assert status == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert err.startswith("lbgym")
    assert said in err
    assert not (tmp_path / "lbgym-results").exists(), "nothing was begun"


def test_a_broken_toml_file_is_one_line(capsys, tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text("load = 0.5\npools = [[\n")
    status, _, err = run(capsys, "simulate", str(path), "random")
    assert status == 2
    assert len(err.splitlines()) == 1
    assert "broken.toml, line" in err


def test_a_process_ends_with_status_2_and_no_traceback():
    done = command("simulate", "mm1", "randon")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "randon" in done.stderr


def test_a_folder_that_cannot_be_written_is_said_before_anything_runs(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    done = command("bench", "--policies", "pull", "--jobs", "1e12", "--out", str(file / "below"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be written" in done.stderr


def test_a_reader_that_leaves_is_no_error():
    lbgym = f"{sys.executable} -m lbgym list"
    done = subprocess.run(
        ["sh", "-c", f"{{ {lbgym}; echo status $? >&2; }} | true"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == "status 0\n"


# --- bench and report -----------------------------------------------------------------------------
def test_bench_then_report_show_one_table(capsys, tmp_path):
    folder = tmp_path / "results"
    asked = ("--policies", "random", "pull", "sed", "--against", "jsq( 2 )", "--out", str(folder))
    status, first, err = run(capsys, "bench", *asked, *SMALL, "--no-plot")
    assert status == 0
    assert err.startswith("written: ")
    assert "results.csv" in err
    assert "- jsq(2)" in first
    assert "[messages]" in first
    for name in ("random", "pull", "jsq(2)", "sed"):
        assert f"\n  {name} " in first
    status, again, err = run(capsys, "bench", *asked, *SMALL, "--no-plot")
    assert again == first
    assert "8 of 8 rows" in err
    status, reported, _ = run(capsys, "report", str(folder), "--no-plot")
    assert (status, reported) == (0, first)


def test_bench_prints_json_or_csv_and_writes_both(capsys, tmp_path):
    asked = ("--systems", "mm1", "small", "--policies", "random", "--out", str(tmp_path), *SMALL)
    _, out, _ = run(capsys, "bench", *asked, "--json", "--no-plot")
    assert json.loads(out) == json.loads((tmp_path / "results.json").read_text())
    _, out, _ = run(capsys, "bench", *asked, "--csv", "--no-plot")
    assert out == (tmp_path / "results.csv").read_text()
    assert len(out.splitlines()) == 3


def test_bench_on_a_migrating_system_has_local_search(capsys, tmp_path):
    asked = ("--systems", "local-search", "--out", str(tmp_path), *SMALL, "--no-plot", "--csv")
    status, out, _ = run(capsys, "bench", *asked)
    assert status == 0
    assert out.count("local-search(") >= 3


def test_pictures_go_where_they_are_wanted(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    asked = ("--systems", "small", "--policies", "random", "jsq", "--out", str(tmp_path), *SMALL)
    _, _, err = run(capsys, "bench", *asked)
    assert (tmp_path / "results.png").stat().st_size > 10_000
    assert "results.png" in err
    picture = tmp_path / "price.svg"
    run(capsys, "report", str(tmp_path), "--plot", str(picture))
    assert picture.read_text().lstrip().startswith("<?xml")


def test_without_matplotlib_bench_says_how_to_get_the_picture(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    asked = ("--systems", "mm1", "--policies", "random", "--out", str(tmp_path), *SMALL)
    status, out, err = run(capsys, "bench", *asked)
    assert status == 0
    assert "random" in out
    assert "pip install lbgym[report]" in err
    status, _, err = run(capsys, "bench", *asked, "--plot", str(tmp_path / "a.png"))
    assert status == 2
    assert len(err.splitlines()) == 1


def test_seeds_are_ranges_and_lists():
    assert seeds("0-3") == [0, 1, 2, 3]
    assert seeds("5") == [5]
    assert seeds("0,2,7-9,2") == [0, 2, 7, 8, 9]


def test_a_bar_is_shown_only_for_long_work():
    command("simulate", "mm1", "random", "--jobs", "1000")  # compiles, which may take long
    done = command("simulate", "mm1", "random", "--jobs", "1000")
    assert (done.returncode, done.stderr) == (0, "")
