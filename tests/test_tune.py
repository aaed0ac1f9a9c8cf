"""The search for settings."""

import sys

import pytest

pytest.importorskip("torch")

from training import torch_ppo, tune
from training.arguments import from_file

BRIEF = ["--timesteps=1", "--jobs=1000", "--replications=2", "--task=pair-1-10"]


def test_a_search_goes_on_where_it_stood(tmp_path, capsys):
    pytest.importorskip("optuna")
    words = [*BRIEF, "--out", str(tmp_path)]
    assert tune.main([*words, "--trials=1"]) == 0
    assert tune.main([*words, "--trials=1"]) == 2
    assert "--resume goes on with it" in capsys.readouterr().err
    assert tune.main([*words, "--trials=2", "--resume"]) == 0
    said = capsys.readouterr().out
    assert "trial 1: " in said
    assert "trial 0: " not in said
    best = tmp_path / "tune-pair-1-10" / "best.toml"
    settings = torch_ppo.Args(**from_file(str(best), torch_ppo.Args))
    torch_ppo.check(settings)
    assert settings.n_envs == 256  # from the task's own settings
    assert len(list(best.parent.glob("trial-*"))) == 2


@pytest.mark.parametrize("n_envs", [64, 256])
@pytest.mark.parametrize("n_steps", [32, 64, 128])
@pytest.mark.parametrize("batches", [2, 4, 8])
def test_whatever_is_searched_is_a_valid_setting(n_envs, n_steps, batches):
    found = tune.settings_of({"n_envs": n_envs}, {"n_steps": n_steps, "batches": batches})
    torch_ppo.check(torch_ppo.Args(**found))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "flagshop"], "did you mean 'flagship'?"),
        (["--trials", "0"], "trials: must be at least 1"),
        (["--base", "nowhere.toml"], "settings nowhere.toml: cannot be read"),
        (["--resume"], "no search was begun"),
    ],
)
def test_bad_arguments_end_with_one_line(words, message, tmp_path, capsys):
    pytest.importorskip("optuna")
    assert tune.main(["--out", str(tmp_path), *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1


def test_without_optuna_the_command_that_installs_it_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert tune.main(["--out", str(tmp_path)]) == 2
    assert "pip install 'lbgym[train,tune]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
