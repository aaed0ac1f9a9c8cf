"""The training scripts as commands: bad values, missing extras, Ctrl-C, going on."""

import os
import signal
import subprocess
import sys
from dataclasses import asdict
from importlib import import_module, util

import pytest

torch = pytest.importorskip("torch")

from training import ppo, torch_ppo, tune  # noqa: E402
from training.arguments import check_environment, resumed  # noqa: E402

TINY = {"n_envs": 4, "n_steps": 8, "batch_size": 16, "width": 8, "timesteps": 64}
WITHOUT = """
import runpy, sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def words(out, *more, **others):
    named = {"out": out, **TINY, **others}
    return [f"--{k.replace('_', '-')}={v}" for k, v in named.items()] + list(more)


def ended(module, given, capsys):
    """Exit status and the one line on stderr."""
    status = module.main(given)
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    return status, line


@pytest.mark.parametrize(
    ("script", "extra", "install"),
    [
        ("torch_ppo", "torch", "lbgym[train]"),
        ("tune", "torch", "lbgym[train]"),
        ("tune", "stable_baselines3", "lbgym[train]"),
        ("rllib", "ray", "lbgym[distributed]"),
        ("multiagent", "pettingzoo", "lbgym[train,multiagent]"),
        ("minari_dataset", "minari", "minari[hdf5,create]"),
        ("torchrl_collector", "torchrl,tensordict", "torchrl=="),
    ],
)
def test_a_command_without_its_extra_says_in_one_line_how_to_install_it(script, extra, install):
    name = f"training.{script}"
    command = [sys.executable, "-c", WITHOUT, extra, name]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 2, found.stderr
    (line,) = found.stderr.splitlines()
    assert line.startswith(f"{name}: error: ")
    assert "pip install" in line
    assert install in line


def test_a_module_without_its_extra_raises_an_import_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    sys.modules.pop("training.minari_dataset", None)
    with pytest.raises(ImportError, match="pip install"):
        import_module("training.minari_dataset")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("seed = -1", "seed: must be between 0 and 4294967295, got -1"),
        ("seed = 4294967296", "seed: must be between 0 and 4294967295, got 4294967296"),
        ("threads = 100000", "threads: must be at most 256, got 100000"),
        ("width = 1000000000", "width: must be at most 16,384, got 1000000000"),
        ("learning_rate = 1e30", "learning_rate: must be at most 1, got 1e+30"),
        ('environment = {observ = ["queue"]}', "environment: unknown argument 'observ', did you"),
        ('environment = {render_mode = "ansi"}', "environment: unknown argument 'render_mode'"),
    ],
)
@pytest.mark.parametrize("script", [ppo, torch_ppo])
def test_wrong_values_in_a_file_are_one_line(script, lines, said, tmp_path, capsys):
    file = tmp_path / "settings.toml"
    file.write_text(lines + "\n")
    given = ["--settings", str(file), "--out", str(tmp_path / "runs")]
    status, line = ended(script, given, capsys)
    assert status == 2
    assert said in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("steps = -1", "steps: must be at least 0, got -1"),
        ('environment = {info = ["dt"]}', "environment: unknown argument 'info'"),
        ("environment = {num_envs = 3}", "environment: unknown argument 'num_envs'"),
    ],
)
def test_what_torch_ppo_says_itself_cannot_be_said_again(lines, said, tmp_path, capsys):
    file = tmp_path / "settings.toml"
    file.write_text(lines + "\n")
    status, line = ended(torch_ppo, ["--settings", str(file), "--out", str(tmp_path)], capsys)
    assert status == 2
    assert said in line


def test_arguments_of_an_environment_are_its_own():
    check_environment("lbgym/CarSharing-v0", {"observe": ["parked"], "start": "empty"})
    with pytest.raises(ValueError, match="'max_jobs'"):
        check_environment("lbgym/CarSharing-v0", {"max_jobs": 3})


# --- going on -------------------------------------------------------------------------------------
def test_what_a_training_has_begun_with_stays():
    stored = {"timesteps": 10, "seed": 0}
    assert resumed(stored, {"timesteps": 20, "seed": 0}, ["timesteps"]) == stored | {
        "timesteps": 20
    }
    with pytest.raises(ValueError, match=r"resume: seed was 0 and must stay so, got 1 \(free: t"):
        resumed(stored, {"seed": 1}, ["timesteps"])


@pytest.mark.parametrize("script", [ppo, torch_ppo])
def test_more_decisions_may_be_asked_of_a_training_that_goes_on(script, tmp_path, capsys):
    others = {"system": "small", "evaluate": 0} if script is ppo else {}
    assert script.main(words(tmp_path, name="a", **others)) == 0
    where = [f"--out={tmp_path}", "--name=a", "--resume"]
    status, line = ended(script, [*where, "--width=16"], capsys)
    assert status == 2
    assert "resume: width was 8 and must stay so, got 16" in line
    assert script.main([*where, "--timesteps=128"]) == 0
    from lbgym.sb3 import load_agent

    assert load_agent(tmp_path / "a").settings["training"]["timesteps"] == 128


def test_a_fresh_training_leaves_nothing_of_the_old_one(tmp_path, capsys):
    assert torch_ppo.main(words(tmp_path, name="a", seed=1)) == 0
    given = {**TINY, "out": str(tmp_path), "name": "a", "seed": 2}
    torch_ppo.begun(given, resume=False, fresh=True)  # and killed before its first checkpoint
    status, line = ended(torch_ppo, [f"--out={tmp_path}", "--name=a", "--resume"], capsys)
    assert status == 2
    assert "no checkpoint" in line


def test_fresh_leaves_other_folders_alone(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.txt").write_text("years of work")
    status, line = ended(torch_ppo, words(tmp_path, "--fresh", name="a"), capsys)
    assert status == 2
    assert "not the folder of a training" in line
    assert (tmp_path / "a" / "thesis.txt").is_file()


@pytest.mark.parametrize("data", [b"", b"x", b"\x80\x04."])
def test_a_broken_checkpoint_is_one_line(data, tmp_path, capsys):
    saved = tmp_path / "a" / "training" / "checkpoint.pickle"
    saved.parent.mkdir(parents=True)
    saved.write_bytes(data)
    status, line = ended(torch_ppo, [f"--out={tmp_path}", "--name=a", "--resume"], capsys)
    assert status == 2
    assert "checkpoint.pickle cannot be read" in line


def test_after_ctrl_c_a_training_is_an_uninterrupted_one(tmp_path):
    """Wherever it comes, within an update too."""
    given = {**TINY, "out": str(tmp_path), "name": "a", "timesteps": 160}
    whole = torch_ppo.Learner(torch_ppo.Args(**given))
    whole.run()
    cut = torch_ppo.Learner(torch_ppo.Args(**given))
    step, steps = cut.envs.step, []

    def interrupting(actions):
        steps.append(actions)
        if len(steps) == 13:  # of 8 in an update
            os.kill(os.getpid(), signal.SIGINT)
        return step(actions)

    cut.envs.step = interrupting
    with pytest.raises(KeyboardInterrupt):
        cut.run()
    del cut.envs.step
    assert cut.steps == 64
    cut.write(cut.args.saved)
    rest = torch_ppo.begun(given, resume=True, fresh=False)
    rest.run()
    for one, other in zip(whole.network.parameters(), rest.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_ctrl_c_before_the_first_decision_is_one_line(tmp_path, monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("lbgym.vec_env.NativeVecEnv.reset", interrupted)
    status, line = ended(ppo, words(tmp_path, name="a"), capsys)
    assert status == 130
    assert "--name a --resume" in line
    monkeypatch.undo()
    assert ppo.main([f"--out={tmp_path}", "--name=a", "--resume", "--evaluate=0"]) == 0


# --- every kind of system -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("env", "rule"),
    [("lbgym/CarSharing-v0", "least-parked"), ("lbgym/FlowNetwork-v0", "fixed-rate(1)")],
)
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_stations_and_flows_are_trained_saved_and_compared(env, rule, algorithm, tmp_path, capsys):
    others = {"env": env, "start": "empty", "policy": "mlp", "algorithm": algorithm, "name": "a"}
    sizes = {"evaluate": 1000, "replications": 2}
    assert ppo.main(words(tmp_path, "--against", rule, **others, **sizes)) == 0
    assert f"{rule}; the model's minus it" in capsys.readouterr().out
    assert ppo.main([f"--out={tmp_path}", "--name=a", "--resume"]) == 0  # no rule of servers


def test_an_unknown_rival_is_told_before_the_training(tmp_path, capsys):
    given = words(tmp_path, "--against", "jsqq", system="small")
    status, line = ended(ppo, given, capsys)
    assert status == 2
    assert "did you mean 'jsq'?" in line
    assert not list(tmp_path.iterdir())


# --- search ---------------------------------------------------------------------------------------
@pytest.mark.skipif(util.find_spec("optuna") is None, reason="needs Optuna")
def test_a_search_is_of_one_task_and_its_file_may_break(tmp_path, capsys):
    base = tmp_path / "base.toml"
    base.write_text('name = "mine"\nout = "elsewhere"\nwidth = 8\n')
    sizes = [f"--out={tmp_path}", "--name=s", "--jobs=1000", "--replications=2", "--trials=1"]
    assert tune.main([*sizes, f"--base={base}", "--timesteps=64"]) == 0
    status, line = ended(tune, [*sizes, "--resume", "--task=cars"], capsys)
    assert status == 2
    assert "is of pair-1-10, got 'cars'" in line
    (tmp_path / "s" / "study.db").write_text("hello")
    status, line = ended(tune, [*sizes, "--resume"], capsys)
    assert status == 2
    assert "study.db cannot be read" in line


def test_arguments_of_both_trainings_can_go_on():
    for script in (ppo, torch_ppo):
        assert set(script.FREE) <= set(asdict(script.Args()))
