"""Optuna searches the settings of `training.torch_ppo` for a task of the suite.

    pip install -e ".[tune]"
    python -m training.tune --task two-class-loss --trials 20 --timesteps 500_000
    python -m training.tune --task two-class-loss --trials 40 --resume
    python -m training.torch_ppo --settings runs/tune-two-class-loss/best.toml

Everything lands in OUT/NAME: the study (study.db, SQLite: what is finished stays, so a search that
was interrupted goes on with --resume) and the best settings so far (best.toml). A trial trains an
agent and is worth its cost in simulations on random numbers that no training and no leaderboard
uses. Start several processes with --resume on one study and they share its trials.
"""

# T. Akiba, S. Sano, T. Yanase, T. Ohta, M. Koyama, Optuna: a next-generation hyperparameter
# optimization framework, arXiv:1907.10902.

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbgym import simulate, suite
from lbgym.cli import Parser
from lbgym.toml_text import toml_value
from training.arguments import argument, check_counts, from_file, missing, read

try:
    from training import torch_ppo
    from training.evaluation import CHOICE_SEED
except ImportError as error:
    raise missing(__name__, str(error)) from None

SETTINGS = Path(__file__).parent / "settings" / "suite"


@dataclass
class Args:
    """What a search is."""

    task: str = argument("pair-1-10", "of the suite")
    base: str = argument("", "settings that are not searched: a TOML file; default: the task's own")
    name: str = argument("", "of the search; default: from the task")
    out: str = argument("runs", "folder of all runs")
    seed: int = argument(0, "of the search and of every training (default: 0)")
    trials: int = argument(20, "to be finished in all")
    timesteps: int = argument(0, "decisions of each training; 0: as in the settings")
    jobs: int = argument(4000, "of each of the simulations that judge a trial")
    replications: int = argument(64, "how many simulations")

    def __post_init__(self) -> None:
        self.name = self.name or f"tune-{self.task}"

    @property
    def folder(self) -> Path:
        return Path(self.out) / self.name


def check(args: Args) -> None:
    """Raise ValueError, one sentence, for a value out of range."""
    suite.get(args.task)
    check_counts(args, {"trials": 1, "timesteps": 0, "jobs": 1000, "replications": 2})


def optuna() -> Any:
    """The library; ImportError says how to install it."""
    try:
        import optuna as found
    except ImportError as error:
        raise ImportError(
            f"tune: needs Optuna ({error}): pip install 'lbgym[train,tune]'"
        ) from None
    found.logging.set_verbosity(found.logging.WARNING)
    return found


# --- a trial --------------------------------------------------------------------------------------
def base_of(args: Args) -> dict[str, Any]:
    """The settings that a trial begins with."""
    file = Path(args.base) if args.base else SETTINGS / f"{args.task}.toml"
    given = from_file(str(file), torch_ppo.Args) if args.base or file.is_file() else {}
    given |= {"task": args.task, "seed": args.seed}
    return given | ({"timesteps": args.timesteps} if args.timesteps else {})


def suggested(trial: Any) -> dict[str, Any]:
    """What is searched; `batches`: gradient steps in a pass over an update's data."""
    return {
        "learning_rate": trial.suggest_float("learning_rate", 2e-4, 5e-3, log=True),
        "n_steps": trial.suggest_categorical("n_steps", [32, 64, 128]),
        "batches": trial.suggest_categorical("batches", [2, 4, 8]),
        "discount_scale": trial.suggest_float("discount_scale", 1.0, 100.0, log=True),
        "gae_lambda": trial.suggest_float("gae_lambda", 0.5, 0.98),
        "ent_coef": trial.suggest_float("ent_coef", 1e-3, 0.3, log=True),
        "width": trial.suggest_categorical("width", [32, 64]),
    }


def settings_of(base: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `training.torch_ppo` from what was searched."""
    settings = {**base, **found}
    data = settings.get("n_envs", torch_ppo.Args.n_envs) * settings["n_steps"]
    return settings | {"batch_size": data // settings.pop("batches")}


def worth(settings: dict[str, Any], folder: Path, args: Args) -> float:
    """Train by these settings and simulate: the task's cost."""
    given = torch_ppo.Args(**settings | {"out": str(folder.parent), "name": folder.name})
    torch_ppo.check(given)
    learner = torch_ppo.Learner(given)
    learner.run()
    task = suite.get(args.task)
    result = simulate(
        task.system,
        f"model:{learner.save()}",
        jobs=args.jobs,
        warmup=args.jobs // 4,
        replications=args.replications,
        seed=CHOICE_SEED,
        loss_charge=task.loss_charge,
        move_cost=task.move_cost,
        max_jobs=100_000,
    )
    return float(result.cost) * task.factor


# --- the search -----------------------------------------------------------------------------------
def begun(args: Args, resume: bool) -> Any:
    """The study, new or as it stands."""
    library, file = optuna(), args.folder / "study.db"
    if resume and not file.is_file():
        raise ValueError(f"resume: no search was begun in {args.folder}")
    if file.is_file() and not resume:
        raise ValueError(f"{args.folder}: is there already; --resume goes on with it")
    args.folder.mkdir(parents=True, exist_ok=True)
    study: Any = library.create_study(
        study_name=args.task,
        storage=f"sqlite:///{file}",
        sampler=library.samplers.TPESampler(seed=args.seed + _trials_in(file, args, library)),
        load_if_exists=True,
    )
    return study


def _trials_in(file: Path, args: Args, library: Any) -> int:
    """Trials in a file: a search that goes on must not draw the same ones again."""
    if not file.is_file():
        return 0
    try:
        found = library.get_all_study_summaries(f"sqlite:///{file}")
    except Exception as error:  # whatever SQLAlchemy makes of a broken file
        reason = str(error).partition("\n")[0]
        raise ValueError(f"resume: {file} cannot be read ({reason})") from None
    if others := [s.study_name for s in found if s.study_name != args.task]:
        raise ValueError(f"task: the search in {args.folder} is of {others[0]}, got {args.task!r}")
    return sum(int(summary.n_trials) for summary in found)


def finished(study: Any) -> int:
    """How many trials ended with a cost."""
    return sum(trial.value is not None for trial in study.trials)


def search(args: Args, study: Any) -> None:
    """Trials until there are enough."""
    base = base_of(args)

    def trial_of(trial: Any) -> float:
        settings = settings_of(base, suggested(trial))
        return worth(settings, args.folder / f"trial-{trial.number}", args)

    def note(study: Any, trial: Any) -> None:
        lines = [
            f"# Cost {study.best_value:.6g} on {args.task}: trial {study.best_trial.number} of "
            f"{finished(study)} by training.tune.",
            *(f"{k} = {toml_value(x)}" for k, x in settings_of(base, study.best_params).items()),
        ]
        (args.folder / "best.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"trial {trial.number}: {trial.value:.6g}, best {study.best_value:.6g}", flush=True)

    while finished(study) < args.trials:
        study.optimize(trial_of, n_trials=1, callbacks=[note])


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0 if all went well, 2 for bad arguments, 130 after Ctrl-C."""
    parser = Parser(
        prog="python -m training.tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--resume", action="store_true", help="go on with OUT/NAME")
    try:
        given = read(parser, Args, words)
        resume = given.pop("resume")
        args = Args(**given)
        check(args)
        study = begun(args, resume)
        search(args, study)
        print(f"best: {study.best_value:.6g}, settings in {args.folder / 'best.toml'}")
    except (ValueError, ImportError, OSError) as error:
        print(f"training.tune: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("training.tune: interrupted; goes on with --resume", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
