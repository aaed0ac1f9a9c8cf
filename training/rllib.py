"""PPO of RLlib on Ray, on the native vector environments: one machine, or a cluster of them.

    python -m training.rllib --iterations 20
    ray start --head; ray start --address HEAD:6379 (on the others); python -m training.rllib \\
        --address auto --runners 16
    python -m training.rllib --trials 8             # search of learning rate and discount

A node that is lost takes its runners with it: the others go on, and Ray starts the lost ones anew
where there is room. OUT/NAME holds the checkpoint, from which --resume goes on.
"""

# RLlib steps vector environments that begin an episode in the step after the end of the last
# (NEXT_STEP, the default of lbgym): in another mode it counts one step too few an episode.

import argparse
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lbgym
from lbgym.cli import Parser
from lbgym.suggest import unknown
from training.arguments import argument, check_counts, check_environment, missing, read

try:
    import ray
    from ray import tune
    from ray.rllib.algorithms.ppo import PPOConfig
except ImportError as error:
    said = f"training.rllib needs RLlib ({error}): pip install lbgym[distributed]"
    raise missing(__name__, said) from None


@dataclass
class Args:
    """What a training is."""

    env: str = argument("lbgym/MultiRouter-v0", "id of a registered environment")
    system: str = argument("", "scenario's name or TOML file; default: the environment's own")
    environment: Mapping[str, Any] = argument({}, "further arguments of the environment")
    start: str = argument("warm", "state in which episodes start: warm or empty")
    horizon: int = argument(500, "arrivals of an episode")
    address: str = argument("", "of a Ray cluster, auto: the one of this machine; default: none")
    runners: int = argument(2, "processes that step environments")
    envs: int = argument(16, "environments in each of them")
    fragment: int = argument(128, "decisions of each environment between two updates")
    batch_size: int = argument(1024, "decisions in a gradient step")
    epochs: int = argument(4, "passes over the data of an update")
    learning_rate: float = argument(1e-3, "of the optimiser")
    gamma: float = argument(0.98, "discount per decision")
    gae_lambda: float = argument(0.9, "decay of the advantage estimator (GAE)")
    width: int = argument(64, "of each of two hidden layers")
    iterations: int = argument(10, "updates")
    trials: int = argument(0, "trainings of a search by Ray Tune; 0: no search")
    patience: float = argument(60.0, "seconds after which an answer of a runner is given up")
    seed: int = argument(0, "of the training (default: 0)")
    name: str = argument("rllib", "of the run")
    out: str = argument("runs", "folder of all runs")

    @property
    def checkpoint(self) -> Path:
        return (Path(self.out) / self.name / "checkpoint").absolute()


def check(args: Args) -> None:
    """Raise ValueError, one sentence, for a value out of range."""
    counts = ("horizon", "envs", "fragment", "batch_size", "epochs", "width", "iterations")
    check_counts(args, {"runners": 0, "trials": 0} | dict.fromkeys(counts, 1))
    for name in ("learning_rate", "patience"):
        if not 0 < getattr(args, name) < math.inf:
            raise ValueError(f"{name}: must be positive, got {getattr(args, name)}")
    for name in ("gamma", "gae_lambda"):
        if not 0 <= getattr(args, name) <= 1:
            raise ValueError(f"{name}: must be between 0 and 1, got {getattr(args, name)}")
    if args.env not in lbgym.ENVIRONMENTS:
        raise ValueError(f"env: {unknown('environment', args.env, lbgym.ENVIRONMENTS)}")
    if args.system:
        lbgym.as_system(args.system)
    check_environment(args.env, args.environment)


# --- training -------------------------------------------------------------------------------------
def settings(args: Args) -> PPOConfig:
    """RLlib's own description of the training."""
    arguments = {"start": args.start, "horizon_arrivals": args.horizon, **args.environment}
    if args.system:
        arguments["system"] = lbgym.as_system(args.system).to_dict()
    return (
        PPOConfig()
        .environment(f"lbgym:{args.env}", env_config=arguments)
        .env_runners(
            num_env_runners=args.runners,
            num_envs_per_env_runner=args.envs,
            gym_env_vectorize_mode="vector_entry_point",
            rollout_fragment_length=args.fragment,
            sample_timeout_s=args.patience,
        )
        .training(
            lr=args.learning_rate,
            gamma=args.gamma,
            lambda_=args.gae_lambda,
            train_batch_size_per_learner=max(args.runners, 1) * args.envs * args.fragment,
            minibatch_size=args.batch_size,
            num_epochs=args.epochs,
            vf_clip_param=math.inf,
            use_kl_loss=False,
        )
        .rl_module(model_config={"fcnet_hiddens": [args.width, args.width]})
        .fault_tolerance(
            restart_failed_env_runners=True, env_runner_health_probe_timeout_s=args.patience / 4
        )
        .debugging(seed=args.seed, log_level="ERROR")
    )


def progress(result: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """What an update brought; None where no episode has ended."""
    seen = result["env_runners"]

    def mean(name: str) -> float | None:
        value = float(seen.get(name, math.nan))
        return None if math.isnan(value) else value

    return {
        "iteration": result["training_iteration"],
        "decisions": int(seen["num_env_steps_sampled_lifetime"]),
        "episode_length": mean("episode_len_mean"),
        "episode_return": mean("episode_return_mean"),
        **others,
    }


def train(args: Args, resume: bool = False, after: Any = None) -> list[dict[str, Any]]:
    """Train and keep a checkpoint of each update; `after` is called with what each brought."""
    algorithm = settings(args).build_algo()
    try:
        if resume:
            algorithm.restore_from_path(str(args.checkpoint))
        found = []
        while algorithm.iteration < args.iterations:
            result = algorithm.train()
            alive = algorithm.env_runner_group.num_healthy_remote_workers()
            found.append(progress(result, runners=alive))
            algorithm.save_to_path(str(args.checkpoint))
            if after is not None:
                after(found[-1])
        return found
    finally:
        algorithm.stop()


def keep_score(*, algorithm: Any, result: dict[str, Any], **_: Any) -> None:
    """Give a result the mean return of the last episodes that ended, be it some updates ago."""
    value = progress(result)["episode_return"]
    if value is not None:
        algorithm.score = value
    result["score"] = getattr(algorithm, "score", -math.inf)


def search(args: Args) -> dict[str, Any]:
    """The best of several trainings, and its settings; ValueError if no trial fits the cluster,
    as Ray would wait for ever."""
    processors = int(ray.cluster_resources().get("CPU", 0))
    if args.runners + 1 > processors:
        raise ValueError(
            f"runners: a trial takes a processor for each and one more, {args.runners + 1} in all, "
            f"of the {processors} that Ray has; use --runners {max(processors - 1, 0)}"
        )
    space = settings(args).callbacks(on_train_result=keep_score)
    space = space.training(lr=tune.loguniform(1e-4, 1e-2), gamma=tune.uniform(0.9, 0.995))
    tuner = tune.Tuner(
        "PPO",
        param_space=space,
        tune_config=tune.TuneConfig(metric="score", mode="max", num_samples=args.trials),
        run_config=tune.RunConfig(
            name=f"{args.name}-search",
            storage_path=str(Path(args.out).absolute()),
            stop={"training_iteration": args.iterations},
            verbose=0,
        ),
    )
    best = tuner.fit().get_best_result()
    told = {"learning_rate": best.config["lr"], "gamma": best.config["gamma"]}
    return {**progress(best.metrics), "episode_return": best.metrics["score"], **told}


# --- the command ----------------------------------------------------------------------------------
def connect(args: Args) -> None:
    """To the cluster, or to a Ray of this machine alone."""
    root = str(Path(__file__).parent.parent)
    where = {"address": args.address} if args.address else {"include_dashboard": False}
    ray.init(
        **where,
        log_to_driver=False,
        ignore_reinit_error=True,
        runtime_env={"env_vars": {"PYTHONPATH": root}},
    )


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0 if all went well, 2 for bad arguments, 130 after Ctrl-C."""
    parser = Parser(
        prog="python -m training.rllib",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--fresh", action="store_true", help="replace the checkpoint")
    try:
        given = read(parser, Args, words)
        resume, fresh = given.pop("resume"), given.pop("fresh")
        args = Args(**given)
        check(args)
        folder = args.checkpoint.parent
        if resume and not args.checkpoint.is_dir():
            raise ValueError(f"resume: no training was begun in {folder}")
        if args.checkpoint.is_dir() and not (resume or fresh or args.trials):
            raise ValueError(
                f"{folder}: is there already; --resume goes on with it, --fresh replaces it"
            )
        connect(args)
        if fresh and args.checkpoint.is_dir():
            shutil.rmtree(args.checkpoint)
        if args.trials:
            print(json.dumps(search(args)))
        else:
            train(args, resume, lambda row: print(json.dumps(row), flush=True))
            (args.checkpoint.parent / "arguments.json").write_text(json.dumps(asdict(args)))
            print(f"saved: {args.checkpoint}")
    except (ValueError, ImportError, OSError) as error:
        print(f"training.rllib: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("training.rllib: interrupted; --resume goes on", file=sys.stderr)
        return 130
    finally:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
