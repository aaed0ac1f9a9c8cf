"""The learning scripts, run as users run them."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest
from interrupting import heed_interrupts

import lbgym

pytest.importorskip("stable_baselines3")

from training import ppo, quickstart
from training.arguments import from_file

ROOT = Path(__file__).parent.parent
SIZES = {"n-envs": 2, "n-steps": 64, "batch-size": 64, "epochs": 1, "width": 8}
BRIEF = ["--system", "small", *(f"--{name}={value}" for name, value in SIZES.items())]
UNJUDGED = [*BRIEF, "--evaluate", "0"]


def command(*words, module="training.ppo", cwd=ROOT):
    return [sys.executable, "-m", module, *map(str, words)]


def call(*words, module="training.ppo"):
    return subprocess.run(command(*words, module=module), cwd=ROOT, capture_output=True, text=True)


def test_help_explains_every_argument():
    ended = call("--help")
    assert ended.returncode == 0
    for f in fields(ppo.Args):
        assert f"--{f.name.replace('_', '-')}" in ended.stdout
        assert f.metadata["help"].split()[0] in ended.stdout


def test_a_short_training_is_saved_evaluated_and_resumed(tmp_path):
    where = ("--out", tmp_path, "--name", "a")
    judged = ("--evaluate=1000", "--replications=4", "--against=pull")
    ended = call(*BRIEF, *where, *judged, "--timesteps=256")
    assert ended.returncode == 0, ended.stderr
    folder = tmp_path / "a"
    assert f"saved: model:{folder}" in ended.stdout
    assert "pull; the model's minus it:" in ended.stdout
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["training"]["timesteps"] == 256
    assert settings["training"]["seed"] == 0
    assert settings["training"]["seconds"] > 0
    assert "--timesteps=256" in settings["training"]["command"]
    assert set(settings["training"]["cost_by_action"]) == {"likeliest", "drawn"}
    assert list((folder / "training" / "tensorboard").rglob("events*"))
    assert json.loads((folder / "training" / "evaluation.json").read_text())["others"]
    assert lbgym.simulate("small", f"model:{folder}", jobs=200).jobs == 200

    more = (*where, "--resume", "--timesteps", 512, "--evaluate", 0)
    assert ppo.main([str(word) for word in more]) == 0
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["training"]["timesteps"] == 512
    assert settings["training"]["arguments"]["width"] == 8


def test_an_interrupted_training_loses_nothing(tmp_path):
    where = ("--out", tmp_path, "--name", "a")
    running = subprocess.Popen(
        command(*UNJUDGED, *where, "--timesteps", 1_000_000, "--checkpoint", 128),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    checkpoint = tmp_path / "a" / "training" / "checkpoint.zip"
    waited = time.monotonic()
    while not checkpoint.exists() and time.monotonic() < waited + 300:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=300)
    assert running.returncode == 130, said
    assert "--name a --resume" in said.splitlines()[-1]
    assert not (tmp_path / "a" / "model.zip").exists()
    # A goal below what was reached: nothing is left to learn, the model is saved as it is.
    assert ppo.main([str(w) for w in (*where, "--resume", "--timesteps", 1)]) == 0
    settings = json.loads((tmp_path / "a" / "settings.json").read_text())
    assert settings["training"]["timesteps"] >= 128


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tea", "1"], "unrecognized arguments: --tea 1"),
        (["--timesteps", "many"], "--timesteps: must be a whole number"),
        (["--timesteps", "0"], "timesteps: must be at least 1, got 0"),
        (["--learning-rate", "0"], "learning_rate: must be positive"),
        (["--gamma", "1.5"], "gamma: must be between 0 and 1, got 1.5"),
        (["--batch-size", "100"], "batch_size: must divide n_envs x n_steps = 4096, got 100"),
        (["--policy", "tabel"], "unknown network 'tabel', did you mean 'table'?"),
        (["--env", "lbgym/MultiRuter-v0"], "did you mean 'lbgym/MultiRouter-v0'?"),
        (["--system", "flagshop"], "did you mean 'flagship'?"),
        (["--environment", "[1]"], "--environment: must be a JSON object"),
        (["--environment", '{"loss_charge": "x"}'], "loss_charge: must be a finite number"),
        (["--evaluate", "5"], "evaluate: must be 0 or at least 1000 jobs"),
        (["--settings", "nowhere.toml"], "settings nowhere.toml: cannot be read"),
        (["--resume", "--name", "nothing"], "resume: no training was begun in"),
    ],
)
def test_bad_arguments_end_with_one_line(words, message, tmp_path, capsys):
    try:
        status = ppo.main(["--out", str(tmp_path), *words])
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr().err
    assert status == 2
    assert message in said
    assert len(said.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_bad_arguments_end_a_process_with_status_2():
    ended = call("--gamma", 2)
    assert ended.returncode == 2
    assert ended.stderr.strip() == "training.ppo: error: gamma: must be between 0 and 1, got 2.0"


def test_a_run_is_not_overwritten_by_accident(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    assert ppo.main([*UNJUDGED, "--out", str(tmp_path), "--name", "a"]) == 2
    assert "--resume goes on with it, --fresh replaces it" in capsys.readouterr().err
    assert ppo.main([*UNJUDGED, "--out", str(tmp_path), "--name", "a", "--fresh"]) == 2
    assert "is not the folder of a training, so it is left alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gama = 0.9", "unknown argument 'gama', did you mean 'gamma'?"),
        ('seed = "one"', "seed must be a whole number, got 'one'"),
        ("against = [1]", "against must be a list of texts"),
        ("environment = 3", "environment must be a table"),
        ("gamma =", "cannot be read"),
    ],
)
def test_a_settings_file_is_checked(text, message, tmp_path):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        from_file(str(tmp_path / "s.toml"), ppo.Args)


@pytest.mark.parametrize("path", sorted((ROOT / "training" / "settings").glob("*.toml")), ids=str)
def test_stored_settings_are_valid(path):
    args = ppo.Args(**from_file(str(path), ppo.Args))
    ppo.check(args)
    ppo.make_env(args).close()


def test_quickstart_makes_one_table_and_one_picture_and_resumes(tmp_path, capsys):
    words = (
        f"--jobs 1000 --replications 2 --seeds 1 --timesteps 4096 --out {tmp_path / 'q'}".split()
    )
    assert quickstart.main(words) == 0
    first = capsys.readouterr().out
    model = f"model:{tmp_path / 'q' / 'ppo'}"
    for name in (model, "jsed(ties=fastest)", "local-search [jobs migrate]"):
        assert name in first
    assert (tmp_path / "q" / "results.png").stat().st_size > 10_000
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "q" / "ppo").glob("model.*")}
    assert kept
    assert quickstart.main(words) == 0
    assert kept == {path: path.stat().st_mtime_ns for path in kept}, "trained again"
    again = capsys.readouterr().out
    assert again.partition("picture:")[0] == first.partition("picture:")[0]
