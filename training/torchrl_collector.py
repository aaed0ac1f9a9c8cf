"""TorchRL's collector on a native vector environment, with a policy that knows its columns.

    python -m training.torchrl_collector --system flagship

Collects decisions of speed-weighted random dispatch (a TorchRL policy), and checks that each
episode has exactly its length. TorchRL wants SAME_STEP vector environments.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

import lbgym
from lbgym.cli import Parser
from training.arguments import argument, check_counts, missing, read

try:
    import torch
    from tensordict.nn import ProbabilisticTensorDictModule, TensorDictModule, TensorDictSequential
    from torchrl.collectors import Collector
    from torchrl.envs import GymWrapper
except ImportError as error:
    said = f"needs TorchRL ({error}): pip install torchrl==0.14.1"
    raise missing(__name__, said) from None


@dataclass
class Args:
    """What is collected."""

    system: str = argument("flagship", "scenario's name or TOML file")
    rows: int = argument(16, "environments side by side")
    horizon: int = argument(200, "arrivals of an episode")
    batches: int = argument(10, "batches")
    frames: int = argument(3200, "decisions of a batch")
    seed: int = argument(0, "of environments and policy (default: 0)")


def make_env(args: Args) -> Any:
    """A native vector environment as TorchRL's."""
    inner = gym.make_vec(
        "lbgym/MultiRouter-v0",
        num_envs=args.rows,
        autoreset_mode="SameStep",
        system=args.system,
        start="warm",
        horizon_arrivals=args.horizon,
    )
    env = GymWrapper(inner, categorical_action_encoding=True)
    env.set_seed(args.seed)
    return env


def make_policy(speeds: Any) -> Any:
    """Servers in proportion to their speeds."""
    logits = torch.log(torch.as_tensor(speeds, dtype=torch.float32))
    scores = TensorDictModule(
        lambda obs: logits.expand(*obs.shape[:-1], -1), in_keys=["observation"], out_keys=["logits"]
    )
    draw = ProbabilisticTensorDictModule(
        in_keys=["logits"],
        out_keys=["action"],
        distribution_class=torch.distributions.Categorical,
        default_interaction_type="random",
    )
    return TensorDictSequential(scores, draw)


def collect(args: Args) -> dict[str, Any]:
    """Lengths and returns of the episodes that ended."""
    torch.manual_seed(args.seed)
    env = make_env(args)
    policy = make_policy(lbgym.as_system(args.system).speeds)
    total = args.batches * args.frames
    collector = Collector(env, policy, frames_per_batch=args.frames, total_frames=total)
    steps, paid = torch.zeros(args.rows, dtype=torch.long), torch.zeros(args.rows)
    lengths: list[int] = []
    returns: list[float] = []
    for batch in collector:
        for step in batch["next"].unbind(-1):
            steps += 1
            paid += step["reward"].squeeze(-1)
            done = step["done"].squeeze(-1)
            lengths += steps[done].tolist()
            returns += paid[done].tolist()
            steps[done], paid[done] = 0, 0.0
    collector.shutdown()
    mean = sum(returns) / max(len(returns), 1)
    return {"episodes": len(lengths), "lengths": sorted(set(lengths)), "mean_return": mean}


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0 if all episodes had their length, 1 if not, 2 for bad arguments."""
    parser = Parser(
        prog="python -m training.torchrl_collector",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    try:
        args = Args(**read(parser, Args, words))
        check_counts(args, dict.fromkeys(("rows", "horizon", "batches", "frames"), 1))
        found = collect(args)
    except ValueError as error:
        print(f"training.torchrl_collector: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("training.torchrl_collector: interrupted", file=sys.stderr)
        return 130
    print(f"{found['episodes']} episodes, lengths {found['lengths']}", end=", ")
    print(f"mean return {found['mean_return']:.1f}, per decision", end=" ")
    print(f"{found['mean_return'] / args.horizon:.3f}")
    return 0 if found["lengths"] == [args.horizon] else 1


if __name__ == "__main__":
    sys.exit(main())
