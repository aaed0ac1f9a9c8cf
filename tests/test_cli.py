"""The command line: what it prints, and one clear line with status 2 for every mistake."""

import json
import subprocess
import sys

import pytest

from lbgym import cli, scenarios
from lbgym._version import __version__
from lbgym.cli import main, seeds
from lbgym.policies import families


def without_bars(err):
    """What stays on the terminal: a slow or cold machine shows bars, and wipes them again."""
    return "".join(line.rpartition("\r")[2] for line in err.splitlines(keepends=True))


def run(capsys, *arguments):
    """Status, stdout and stderr of a command, run here."""
    try:
        status = main(list(arguments))
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    return status, out, without_bars(err)


def command(*arguments, **options):
    """The same in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "lbgym", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


SMALL = ("--jobs", "5000", "--seeds", "0-1")


# --- help and list --------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["list", "simulate", "bench", "optimal", "report"])
def test_help_teaches_with_examples(capsys, name):
    status, out, _ = run(capsys, name, "--help")
    assert status == 0
    assert "examples:" in out
    assert f"  lbgym {name}" in out
    assert "--json" in out


# --- optimal --------------------------------------------------------------------------------------
def test_optimal_prints_the_optimum_and_the_rules_beside_it(capsys, tmp_path):
    """Speeds (1, 10) at load .7: 2.7470 jobs, threshold(4) 2.7513, SED 3.0121 (MODELS 11)."""
    status, out, _ = run(capsys, "optimal", "pair-1-10")
    assert status == 0
    assert "  jobs in system         2.746954\n" in out
    assert "truncation error" in out
    lines = [line.split() for line in out.splitlines()]
    order = [line[0] for line in lines if line and line[-1] == "%"]
    assert order[0] == "threshold(4)"
    assert order[-1] == "jsq"
    assert [line[-2] for line in lines if line and line[0] == "sed"] == ["9.651"]


def test_optimal_as_json(capsys):
    status, out, _ = run(capsys, "optimal", "two-class-loss", "--lossless", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["value"] == pytest.approx(0.2039133, rel=1e-6)
    assert found["states"] == 900
    fit = next(rule for rule in found["rules"] if rule["policy"] == "best-fit")
    assert fit["value"] == pytest.approx(0.2272953, rel=1e-6)
    assert fit["gap_percent"] == pytest.approx(100 * (fit["value"] / found["value"] - 1))


@pytest.mark.parametrize(
    ("name", "what", "value", "rule"),
    [
        ("cars", "accepted", 0.6126, "least-per-demand"),
        ("flow-routes", "jobs_in_system", 2.3562, "join-least-loaded"),
    ],
)
def test_optimal_of_other_kinds(capsys, name, what, value, rule):
    """MODELS section 11."""
    status, out, err = run(capsys, "optimal", name)
    assert (status, err) == (0, "")
    assert f"{'most' if name == 'cars' else 'least'} {what.replace('_', ' ')}" in out
    status, out, _ = run(capsys, "optimal", name, "--json")
    found = json.loads(out)
    assert found["objective"] == what
    assert found["value"] == pytest.approx(value, abs=1e-4)
    assert found["rules"][0]["policy"] == rule
    assert all(x["gap_percent"] >= -1e-6 for x in found["rules"])
    for option in ("--lossless", "--move-cost=1", "--loss-charge=2"):
        status, _, err = run(capsys, "optimal", name, option)
        assert status == 2
        assert f"{option[2:].partition('=')[0].replace('-', '_')} means nothing" in err


def test_optimal_takes_every_option(capsys):
    system = '{"pools": [{"servers": 2, "limit": 3}], "load": 0.9, "migration_rate": 0.5}'
    options = "--load 0.8 --loss-charge 4 --move-cost 0.5 --lossless --objective cost --cap 3"
    status, out, _ = run(capsys, "optimal", system, *options.split(), "--json")
    found = json.loads(out)
    assert status == 0
    assert (found["loss_charge"], found["move_cost"], found["states"]) == (4, 0.5, 16)
    assert found["rules"][0]["gap_percent"] >= 0
    assert found["rules"][0]["policy"].startswith("local-search(place=")


def test_optimal_draws_the_switching_curve(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.png"
    status, _, err = run(capsys, "optimal", "pair-1-10", "--plot", str(path))
    assert status == 0
    assert f"written: {path}" in err
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("flagship", "states, at most 60,000 can be solved"),
        ("nowhere", "unknown scenario 'nowhere'"),
        ("mm1 --load 1.5", "no policy keeps load 1.5 stable"),
        ("triple --plot x.png", "--plot: needs two servers"),
        ("pair-1-10 --plot x.gif", "--plot: must end in .png, .pdf or .svg"),
        ("pair-1-10 --loss-charge -1", "loss_charge: must be a finite number >= 0, got -1.0"),
        ("pair-1-10 --move-cost nan", "move_cost: must be a finite number >= 0, got nan"),
        ("pair-1-10 --objective speed", "objective: must be one of cost"),
        ("pair-1-10 --cap 0", "must be a whole number >= 1"),
        ("local-search-closed", "no long-run cost"),
    ],
)
def test_optimal_says_what_is_wrong_in_one_line(capsys, arguments, said):
    status, out, err = run(capsys, "optimal", *arguments.split())
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_the_command_itself_imports_nothing_heavy():
    heavy = "('scipy', 'matplotlib', 'numba', 'tqdm', 'torch')"
    code = (
        "import sys, lbgym; before = set(sys.modules)\n"
        "from lbgym import cli\n"
        "try: cli.main(['bench', '--help'])\n"
        "except SystemExit: pass\n"
        f"print('heavy:', [m for m in {heavy} if m in sys.modules and m not in before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
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
    assert "error" not in err  # a cold machine may say that it compiles
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
        timeout=300,
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


@pytest.mark.parametrize(("after", "shown"), [(1e9, False), (0.0, True)])
def test_a_bar_is_shown_only_for_long_work(capsys, monkeypatch, after, shown):
    monkeypatch.setattr(cli, "BAR_AFTER", after)
    assert main(["simulate", "mm1", "random", "--jobs", "1000"]) == 0
    err = capsys.readouterr().err
    assert ("simulate" in err) == shown
    assert without_bars(err) == ""
