"""PPO and its kin from Stable-Baselines3 and sb3-contrib on any of lbgym's environments.

    python -m training.ppo --settings training/settings/flagship.toml
    python -m training.ppo --system split-80-20 --timesteps 500_000 --name split
    python -m training.ppo --name split --resume
    python -m training.ppo --algorithm dqn --env lbgym/Loss-v0 --start empty

Algorithms: ppo; maskable-ppo, which takes only what the environment's mask allows; recurrent-ppo,
whose memory is each router's own (lbgym.recurrent); dqn.

Everything lands in one folder, OUT/NAME: the model (model.zip and settings.json, together the
policy model:OUT/NAME of `lbgym bench` and `lbgym.simulate`), and in its subfolder "training" the
checkpoint, TensorBoard's log, the arguments and the evaluation.
"""

# J. Schulman, F. Wolski, P. Dhariwal, A. Radford, O. Klimov, Proximal policy optimization
# algorithms, arXiv:1707.06347; S. Huang, S. Ontanon, A closer look at invalid action masking in
# policy gradient algorithms, arXiv:2006.14171; M. Hausknecht, P. Stone, Deep recurrent Q-learning
# for partially observable MDPs, arXiv:1507.06527; V. Mnih et al., Human-level control through deep
# reinforcement learning, 2015.

import argparse
import math
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym

import lbgym
from lbgym.agent_runs import as_agent
from lbgym.cli import Parser
from lbgym.suggest import unknown
from training.arguments import argument, check_counts, check_environment, from_file, read, resumed

ALGORITHMS = {
    "ppo": "stable_baselines3:PPO",
    "maskable-ppo": "sb3_contrib:MaskablePPO",
    "recurrent-ppo": "sb3_contrib:RecurrentPPO",
    "dqn": "stable_baselines3:DQN",
}
WITH_TABLES = ("ppo", "maskable-ppo")
FREE = (  # when a training goes on
    *("timesteps", "learning_rate", "checkpoint", "threads", "out", "name"),
    *("evaluate", "replications", "against"),
)


@dataclass
class Args:
    """What a training is."""

    algorithm: str = argument("ppo", "ppo, maskable-ppo, recurrent-ppo or dqn")
    env: str = argument("lbgym/MultiRouter-v0", "id of a registered environment")
    system: str = argument("", "scenario's name or TOML file; default: the environment's own")
    environment: Mapping[str, Any] = argument({}, "further arguments of the environment")
    start: str = argument("warm", "state in which episodes start: warm or empty")
    name: str = argument("", "of the run; default: from environment or system, and seed")
    out: str = argument("runs", "folder of all runs")
    seed: int = argument(0, "of the training (default: 0)")
    timesteps: int = argument(500_000, "decisions in all")
    n_envs: int = argument(16, "environments side by side")
    n_steps: int = argument(256, "decisions in each between two updates")
    batch_size: int = argument(1024, "decisions in a gradient step; divides n_envs x n_steps")
    epochs: int = argument(4, "passes over the data of an update; dqn: samples per decision made")
    learning_rate: float = argument(1e-3, "at the beginning; falls linearly to 0")
    gamma: float = argument(0.98, "discount per decision")
    gae_lambda: float = argument(0.9, "decay of the advantage estimator (GAE)")
    clip_range: float = argument(0.2, "bound on the change of an action's probability")
    ent_coef: float = argument(0.0, "weight of the entropy bonus")
    reward_scale: float = argument(0.1, "factor on the rewards that the learner sees")
    buffer_size: int = argument(200_000, "decisions that dqn remembers")
    exploration: float = argument(0.2, "share of the training in which dqn comes to act greedily")
    policy: str = argument(
        "", "network: table (any number of servers) or mlp; default: table for ppo, maskable-ppo"
    )
    width: int = argument(32, "of each hidden layer")
    threads: int = argument(1, "of PyTorch")
    checkpoint: int = argument(50_000, "decisions between checkpoints")
    evaluate: int = argument(20_000, "jobs a replication at the end; 0: no evaluation")
    replications: int = argument(64, "of the evaluation")
    against: Sequence[str] = argument(
        ["pull(fallback=weighted-random, choice=fastest)", "pull(fallback=wrr, choice=fastest)"],
        "policies to compare with; of another kind of system none",
    )

    def __post_init__(self) -> None:
        if not self.name:
            kind = self.env.rpartition("/")[2].rpartition("-v")[0]
            self.name = f"{Path(self.system).stem or kind.lower()}-{self.seed}"

    @property
    def network(self) -> str:
        """The policy's network, said or not."""
        return self.policy or ("table" if self.algorithm in WITH_TABLES else "mlp")

    @property
    def folder(self) -> Path:
        return Path(self.out) / self.name

    @property
    def notes(self) -> Path:
        """What is not part of the model."""
        return self.folder / "training"

    @property
    def agent(self) -> str:
        """The trained policy's name."""
        return f"model:{self.folder}"


# --- arguments ------------------------------------------------------------------------------------
def check(args: Args) -> None:
    """Raise ValueError, one sentence, for a value out of range."""
    ones = ("timesteps", "n_envs", "n_steps", "epochs", "width", "threads", "checkpoint")
    ones = (*ones, "buffer_size", "replications")
    check_counts(args, {"batch_size": 2, "evaluate": 0} | dict.fromkeys(ones, 1))
    for name in ("learning_rate", "clip_range", "reward_scale"):
        if not 0 < getattr(args, name) < math.inf:
            raise ValueError(f"{name}: must be positive, got {getattr(args, name)}")
    for name in ("gamma", "gae_lambda", "exploration"):
        if not 0 <= getattr(args, name) <= 1:
            raise ValueError(f"{name}: must be between 0 and 1, got {getattr(args, name)}")
    if args.algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm: {unknown('algorithm', args.algorithm, ALGORITHMS)}")
    if args.network not in ("table", "mlp"):
        raise ValueError(f"policy: {unknown('network', args.policy, ('table', 'mlp'))}")
    if args.network == "table" and args.algorithm not in WITH_TABLES:
        raise ValueError(f"policy: 'table' is for {' and '.join(WITH_TABLES)}; take 'mlp'")
    if (data := args.n_envs * args.n_steps) % args.batch_size:
        raise ValueError(
            f"batch_size: must divide n_envs x n_steps = {data}, got {args.batch_size}"
        )
    if 0 < args.evaluate < 1000:
        raise ValueError(f"evaluate: must be 0 or at least 1000 jobs, got {args.evaluate}")
    if args.env not in lbgym.ENVIRONMENTS:
        raise ValueError(f"env: {unknown('environment', args.env, lbgym.ENVIRONMENTS)}")
    check_environment(args.env, args.environment, own=("system",) if args.system else ())


def from_words(words: Sequence[str] | None) -> Args:
    """Arguments from the command line; unless a training resumes, its folder is free then."""
    parser = Parser(
        prog="python -m training.ppo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--resume", action="store_true", help="go on with OUT/NAME")
    parser.add_argument("--fresh", action="store_true", help="replace what is in OUT/NAME")
    given = read(parser, Args, words)
    resume, fresh = given.pop("resume"), given.pop("fresh")
    args = Args(**given)
    if resume:
        given |= {"out": args.out, "name": args.name}
        args = Args(**resumed(stored_arguments(args.notes), given, FREE))
    check(args)
    system: Any = make_env(args).unwrapped.system  # type: ignore[attr-defined]
    if "against" not in given and not isinstance(system, lbgym.System):
        args.against = []  # the rules of the default are for servers
    for policy in args.against if args.evaluate else ():
        _ = as_agent(policy) or lbgym.policies.make(policy, system)
    if not resume and args.folder.exists():
        if not fresh:
            raise ValueError(
                f"{args.folder}: is there already; --resume goes on with it, --fresh replaces it"
            )
        remove(args)
    return args


def remove(args: Args) -> None:
    """Remove a training; ValueError if the folder is something else."""
    if not (args.notes / "arguments.json").is_file():
        raise ValueError(f"{args.folder}: is not the folder of a training, so it is left alone")
    shutil.rmtree(args.folder)


def stored_arguments(folder: Path) -> dict[str, Any]:
    """The arguments of a training that was begun."""
    file = folder / "arguments.json"
    if not file.is_file():
        raise ValueError(f"resume: no training was begun in {folder.parent}")
    return from_file(str(file), Args)


# --- training -------------------------------------------------------------------------------------
class Linear:
    """A learning rate that falls linearly to 0."""

    def __init__(self, start: float) -> None:
        self.start = start

    def __call__(self, remaining: float) -> float:
        return self.start * remaining


def env_arguments(args: Args) -> dict[str, Any]:
    """Keyword arguments of the environment; a memory must be told whose it is."""
    kwargs = {"start": args.start, **args.environment}
    if args.system:
        kwargs["system"] = args.system
    if args.algorithm == "recurrent-ppo":
        env = gym.make(args.env, **kwargs).unwrapped
        if getattr(env.system, "router_count", 1) > 1 and "router" not in env.context:
            kwargs["observe"] = [*kwargs.get("observe", (*env.columns, *env.context)), "router"]
    return kwargs


def make_env(args: Args) -> gym.Env[Any, Any]:
    """One environment."""
    return gym.make(args.env, **env_arguments(args))


def make_envs(args: Args) -> Any:
    """All environments; their monitor sees the rewards before they are scaled."""
    from stable_baselines3.common.vec_env import VecMonitor

    from lbgym.sb3 import make_vec
    from training.watch import ScaledRewards

    vec = VecMonitor(make_vec(args.env, args.n_envs, **env_arguments(args)))
    return ScaledRewards(vec, args.reward_scale)


def make_model(args: Args, vec: Any) -> Any:
    """A new learner, or that of the last checkpoint."""
    package, _, name = ALGORITHMS[args.algorithm].partition(":")
    kind = getattr(import_module(package), name)
    rate = Linear(args.learning_rate)
    saved = args.notes / "checkpoint.zip"
    if saved.is_file():
        model = kind.load(saved, vec, "cpu", custom_objects={"learning_rate": rate})
        model.set_random_seed(args.seed + model.num_timesteps)
        if (seen := saved.with_name("replay.pkl")).is_file():
            model.load_replay_buffer(seen)
        return model
    policy, policy_kwargs = network_of(args, vec)
    return kind(
        policy,
        vec,
        learning_rate=rate,
        batch_size=args.batch_size,
        gamma=args.gamma,
        policy_kwargs=policy_kwargs,
        tensorboard_log=str(args.notes / "tensorboard"),
        seed=args.seed,
        device="cpu",
        **(settings_of_dqn(args) if args.algorithm == "dqn" else settings_of_ppo(args)),
    )


def network_of(args: Args, vec: Any) -> tuple[Any, dict[str, Any]]:
    """SB3's `policy` and `policy_kwargs`."""
    from lbgym import sb3

    if args.algorithm == "recurrent-ppo":
        return sb3.RouterMemoryPolicy, sb3.router_memory_kwargs(vec, width=args.width)
    if args.network == "mlp":
        return "MlpPolicy", {"net_arch": [args.width, args.width]}
    table = sb3.TablePolicy if args.algorithm == "ppo" else sb3.MaskableTablePolicy
    return table, sb3.table_policy_kwargs(vec, width=args.width)


def settings_of_ppo(args: Args) -> dict[str, Any]:
    """What PPO and its kin want to know besides."""
    return {
        "n_steps": args.n_steps,
        "n_epochs": args.epochs,
        "gae_lambda": args.gae_lambda,
        "clip_range": args.clip_range,
        "ent_coef": args.ent_coef,
    }


def settings_of_dqn(args: Args) -> dict[str, Any]:
    """What DQN wants to know besides."""
    data = args.n_envs * args.n_steps
    return {
        "buffer_size": max(args.buffer_size, data),
        "learning_starts": data,
        "train_freq": args.n_steps,
        "gradient_steps": max(args.epochs * data // args.batch_size, 1),
        "target_update_interval": data,
        "exploration_fraction": args.exploration,
        "exploration_final_eps": 0.02,
    }


def train(args: Args, command: str = "") -> None:
    """Train, or go on from the checkpoint, and save the model; Ctrl-C leaves a checkpoint."""
    import torch

    from lbgym.sb3 import save_agent
    from training.evaluation import write
    from training.watch import Watch

    torch.set_num_threads(args.threads)
    args.notes.mkdir(parents=True, exist_ok=True)
    write(args.notes / "arguments.json", asdict(args))
    vec = make_envs(args)
    model = make_model(args, vec)
    done = model.num_timesteps
    if done < args.timesteps:
        watch = Watch(
            args.notes / "checkpoint.zip", args.checkpoint, args.timesteps, args.reward_scale
        )
        try:
            model.learn(args.timesteps - done, watch, reset_num_timesteps=not done)
        except KeyboardInterrupt:
            if watch.begun:
                watch.on_training_end()
            raise
    training = {
        "command": command,
        "seed": args.seed,
        "timesteps": model.num_timesteps,
        "seconds": round(getattr(model, "seconds", 0.0), 1),
        "arguments": asdict(args),
    }
    save_agent(model, args.folder, training=training)
    vec.close()


def evaluate(args: Args) -> str:
    """Settle how the model acts, compare it, and return what is to be printed."""
    from training import evaluation

    ways = evaluation.choose_how_to_act(args.folder, args.evaluate // 2, args.replications)
    found = evaluation.evaluate(args.folder, args.against, args.evaluate, args.replications)
    evaluation.write(args.notes / "evaluation.json", found.to_dict())
    costs = ", ".join(f"{way} {cost:.4g}" for way, cost in ways.items())
    return f"{found}\naction of the model, cost on other random numbers: {costs}"


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0 if all went well, 2 for bad arguments, 130 after Ctrl-C."""
    args = None
    try:
        args = from_words(words)
        train(args, shlex.join(["python", "-m", "training.ppo", *(words or sys.argv[1:])]))
        if args.evaluate:
            print(evaluate(args))
        print(f"saved: {args.agent}")
    except (ValueError, ImportError, OSError) as error:
        print(f"training.ppo: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = f"; goes on with --out {args.out} --name {args.name} --resume" if args else ""
        print(f"training.ppo: interrupted{goes_on}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
