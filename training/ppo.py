"""PPO of Stable-Baselines3 on any of lbgym's environments.

    python -m training.ppo --settings training/settings/flagship.toml
    python -m training.ppo --system split-80-20 --timesteps 500_000 --name split
    python -m training.ppo --name split --resume

Everything lands in one folder, OUT/NAME: the model (model.zip and settings.json, together the
policy model:OUT/NAME of `lbgym bench` and `lbgym.simulate`), checkpoint.zip, tensorboard/,
arguments.json and evaluation.json.
"""

# J. Schulman, F. Wolski, P. Dhariwal, A. Radford, O. Klimov, Proximal policy optimization
# algorithms, arXiv:1707.06347.

import argparse
import json
import math
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
from tqdm import tqdm

import lbgym
from lbgym.simulate import Comparison, paired_difference, simulate
from lbgym.suggest import unknown
from training.arguments import argument, checked, read

CHOICE_SEED, SEED = 2_000_003, 1_000_003  # random numbers that no training uses


@dataclass
class Args:
    """What a training is."""

    env: str = argument("lbgym/MultiRouter-v0", "id of a registered environment")
    system: str = argument("", "scenario's name or TOML file; default: the environment's own")
    environment: dict[str, Any] = argument({}, "further arguments of the environment")
    start: str = argument("warm", "state in which episodes start: warm or empty")
    name: str = argument("", "of the run; default: from environment or system, and seed")
    out: str = argument("runs", "folder of all runs")
    seed: int = argument(0, "of the training; 0 is one too")
    timesteps: int = argument(500_000, "decisions in all")
    n_envs: int = argument(16, "environments side by side")
    n_steps: int = argument(256, "decisions in each between two updates")
    batch_size: int = argument(1024, "decisions in a gradient step; divides n_envs x n_steps")
    epochs: int = argument(4, "passes over the data of an update")
    learning_rate: float = argument(1e-3, "at the beginning; falls linearly to 0")
    gamma: float = argument(0.98, "discount per decision")
    gae_lambda: float = argument(0.9, "decay of the advantage estimator (GAE)")
    clip_range: float = argument(0.2, "bound on the change of an action's probability")
    ent_coef: float = argument(0.0, "weight of the entropy bonus")
    reward_scale: float = argument(0.1, "factor on the rewards that the learner sees")
    policy: str = argument("table", "network: table (any number of servers) or mlp")
    width: int = argument(32, "of each hidden layer")
    threads: int = argument(1, "of PyTorch")
    checkpoint: int = argument(50_000, "decisions between checkpoints")
    evaluate: int = argument(20_000, "jobs a replication at the end; 0: no evaluation")
    replications: int = argument(64, "of the evaluation")
    against: list[str] = argument(
        ["pull(fallback=weighted-random, choice=fastest)", "pull(fallback=wrr, choice=fastest)"],
        "policies to compare with",
    )

    def __post_init__(self) -> None:
        if not self.name:
            kind = self.env.rpartition("/")[2].rpartition("-v")[0]
            self.name = f"{Path(self.system).stem or kind.lower()}-{self.seed}"

    @property
    def folder(self) -> Path:
        return Path(self.out) / self.name

    @property
    def agent(self) -> str:
        """The trained policy's name."""
        return f"model:{self.folder}"


# --- arguments ------------------------------------------------------------------------------------
def check(args: Args) -> None:
    """Raise ValueError, one sentence, for a value out of range."""
    least = dict.fromkeys(("seed", "evaluate"), 0) | {"batch_size": 2}
    ones = ("timesteps", "n_envs", "n_steps", "epochs", "width", "threads", "checkpoint")
    for name, bound in (least | dict.fromkeys((*ones, "replications"), 1)).items():
        if getattr(args, name) < bound:
            raise ValueError(f"{name}: must be at least {bound}, got {getattr(args, name)}")
    for name in ("learning_rate", "clip_range", "reward_scale"):
        if not 0 < getattr(args, name) < math.inf:
            raise ValueError(f"{name}: must be positive, got {getattr(args, name)}")
    for name in ("gamma", "gae_lambda"):
        if not 0 <= getattr(args, name) <= 1:
            raise ValueError(f"{name}: must be between 0 and 1, got {getattr(args, name)}")
    if args.policy not in ("table", "mlp"):
        raise ValueError(f"policy: {unknown('network', args.policy, ('table', 'mlp'))}")
    if (data := args.n_envs * args.n_steps) % args.batch_size:
        raise ValueError(
            f"batch_size: must divide n_envs x n_steps = {data}, got {args.batch_size}"
        )
    if 0 < args.evaluate < 1000:
        raise ValueError(f"evaluate: must be 0 or at least 1000 jobs, got {args.evaluate}")
    if args.env not in lbgym.ENVIRONMENTS:
        raise ValueError(f"env: {unknown('environment', args.env, lbgym.ENVIRONMENTS)}")


def from_words(words: Sequence[str] | None) -> tuple[Args, bool]:
    """Arguments from the command line, and whether to resume; the folder is made free or kept."""
    parser = argparse.ArgumentParser(
        prog="python -m training.ppo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--resume", action="store_true", help="go on with OUT/NAME")
    parser.add_argument("--fresh", action="store_true", help="replace what is in OUT/NAME")
    given = read(parser, Args, words)
    resume, fresh = given.pop("resume"), given.pop("fresh")
    args = Args(**given)
    if resume:
        args = Args(**{**stored_arguments(args.folder), **given})
    check(args)
    make_env(args).close()  # says now what is wrong with it
    if not resume and args.folder.exists():
        if not fresh:
            raise ValueError(
                f"{args.folder}: is there already; --resume goes on with it, --fresh replaces it"
            )
        shutil.rmtree(args.folder)
    return args, resume


def stored_arguments(folder: Path) -> dict[str, Any]:
    """The arguments of a training that was begun."""
    try:
        values = json.loads((folder / "arguments.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"resume: no training was begun in {folder}") from None
    return checked(values, Args, f"{folder}/arguments.json")


# --- training -------------------------------------------------------------------------------------
class Linear:
    """A learning rate that falls linearly to 0."""

    def __init__(self, start: float) -> None:
        self.start = start

    def __call__(self, remaining: float) -> float:
        return self.start * remaining


def make_env(args: Args) -> gym.Env[Any, Any]:
    """One environment; its Monitor sees the rewards before they are scaled."""
    from stable_baselines3.common.monitor import Monitor

    kwargs = {"start": args.start, **args.environment}
    if args.system:
        kwargs["system"] = args.system
    env = Monitor(gym.make(args.env, **kwargs))
    return gym.wrappers.TransformReward(env, lambda reward: reward * args.reward_scale)


def make_model(args: Args, vec: Any) -> Any:
    """A new learner, or that of the last checkpoint."""
    from stable_baselines3 import PPO

    from lbgym.sb3 import TablePolicy, table_policy_kwargs

    rate = Linear(args.learning_rate)
    saved = args.folder / "checkpoint.zip"
    if saved.is_file():
        model = PPO.load(saved, vec, "cpu", custom_objects={"learning_rate": rate})
        model.set_random_seed(args.seed + model.num_timesteps)
        return model
    table = args.policy == "table"
    return PPO(
        TablePolicy if table else "MlpPolicy",
        vec,
        learning_rate=rate,
        n_steps=args.n_steps,
        batch_size=args.batch_size,
        n_epochs=args.epochs,
        gamma=args.gamma,
        gae_lambda=args.gae_lambda,
        clip_range=args.clip_range,
        ent_coef=args.ent_coef,
        policy_kwargs=table_policy_kwargs(vec, width=args.width)
        if table
        else {"net_arch": [args.width, args.width]},
        tensorboard_log=str(args.folder / "tensorboard"),
        seed=args.seed,
        device="cpu",
    )


def train(args: Args, command: str = "") -> None:
    """Train, or go on from the checkpoint, and save the model; Ctrl-C leaves a checkpoint."""
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv

    from lbgym.sb3 import save_agent
    from training.watch import Watch

    torch.set_num_threads(args.threads)
    args.folder.mkdir(parents=True, exist_ok=True)
    _write(args.folder / "arguments.json", asdict(args))
    vec = DummyVecEnv([lambda: make_env(args)] * args.n_envs)
    model = make_model(args, vec)
    done = model.num_timesteps
    if done < args.timesteps:
        watch = Watch(
            args.folder / "checkpoint.zip", args.checkpoint, args.timesteps, args.reward_scale
        )
        try:
            model.learn(args.timesteps - done, watch, reset_num_timesteps=not done)
        except KeyboardInterrupt:
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


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


# --- evaluation -----------------------------------------------------------------------------------
def _run(args: Args, policy: Any, jobs: int, seed: int) -> Any:
    """A simulation with progress, of the system as it was in training."""
    from lbgym.sb3 import read_settings

    trained_in = read_settings(args.folder, args.agent)["environment"]
    label = policy if isinstance(policy, str) else policy.label
    with tqdm(total=jobs * args.replications, unit=" jobs", unit_scale=True, desc=label) as bar:
        return simulate(
            trained_in["system"],
            policy,
            jobs=jobs,
            replications=args.replications,
            seed=seed,
            loss_charge=trained_in.get("loss_charge"),
            move_cost=trained_in.get("move_cost", 0.0),
            progress=lambda done, _: bar.update(done - bar.n),
        )


def choose_how_to_act(args: Args) -> dict[str, float]:
    """Take the likeliest action, or draw it? The agent does what costs less, from now on."""
    from lbgym.sb3 import load_agent, read_settings, write_settings

    costs = {}
    for deterministic in (True, False):
        agent = load_agent(args.folder)
        agent.deterministic = deterministic
        agent.label = "likeliest action" if deterministic else "drawn action"
        costs[deterministic] = float(_run(args, agent, args.evaluate // 2, CHOICE_SEED).cost)
    settings = read_settings(args.folder, args.agent)
    settings["deterministic"] = costs[True] <= costs[False]
    write_settings(args.folder, settings)
    return {"likeliest": costs[True], "drawn": costs[False]}


def evaluate(args: Args) -> list[str]:
    """Cost beside other policies' on common random numbers; the lines to print."""
    from lbgym.report import show, show_difference

    acts = choose_how_to_act(args)
    agent = _run(args, args.agent, args.evaluate, SEED)
    lines = [
        f"cost per arrival on {agent.system.name or agent.system.describe()} (95 %, "
        f"{args.replications} x {args.evaluate:,} jobs, loss charge {agent.loss_charge:g})",
        f"  {show(agent.cost):16} {args.agent} ({min(acts, key=lambda k: acts[k])} action)",
    ]
    data = {"acts": acts, args.agent: agent.to_dict()}
    for policy in args.against:
        other = _run(args, policy, args.evaluate, SEED)
        difference = paired_difference(agent, other)
        lines.append(f"  {show(other.cost):16} {policy}; model's minus it {show_difference(difference)}")
        data[policy] = {**other.to_dict(), "difference": vars(difference)}
    _write(args.folder / "evaluation.json", data)
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0 if all went well, 2 for bad arguments, 130 after Ctrl-C."""
    try:
        args, _ = from_words(words)
        train(args, shlex.join(["python", "-m", "training.ppo", *(words or sys.argv[1:])]))
        if args.evaluate:
            print("\n".join(evaluate(args)))
        print(f"saved: {args.agent}")
    except (ValueError, ImportError, OSError) as error:
        print(f"training.ppo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\ninterrupted; go on: --name {args.name} --out {args.out} --resume", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
