"""A Minari dataset of a classical policy: recorded, read back, checked.

    python -m training.minari_dataset --policy "pull(fallback=wrr, choice=fastest)"

Minari keeps the environment's specification with the data, so that `recover_environment` makes it
again; the data lie where Minari keeps them (MINARI_DATASETS_PATH).
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

import lbgym
from lbgym.cli import Parser
from training.arguments import argument, check_counts, missing, read

try:
    import minari
    from minari.dataset.minari_dataset import parse_dataset_id
except ImportError as error:
    said = f"needs Minari ({error}): pip install 'minari[hdf5,create]==0.5.4' pillow"
    raise missing(__name__, said) from None


@dataclass
class Args:
    """What is recorded."""

    system: str = argument("flagship", "scenario's name or TOML file")
    policy: str = argument("pull(fallback=wrr, choice=fastest)", "a policy of lbgym")
    dataset: str = argument("lbgym/flagship/pull-v0", "Minari's id of the data")
    episodes: int = argument(10, "episodes")
    horizon: int = argument(500, "arrivals of an episode")
    seed: int = argument(0, "of the first episode; each later one has the next (default: 0)")


def record(args: Args) -> list[float]:
    """Record the policy's episodes; returns what each was paid."""
    agent = lbgym.policies.make(args.policy, args.system)
    columns = [*agent.columns, *(() if "router" in agent.columns else ("router",))]
    env = gym.make(
        "lbgym/MultiRouter-v0",
        system=lbgym.as_system(args.system).to_dict(),
        observe=columns,
        start="warm",
        horizon_arrivals=args.horizon,
    )
    collector = minari.DataCollector(env, record_infos=False)
    returns = [play(collector, args.policy, args.seed + k) for k in range(args.episodes)]
    if args.dataset in minari.list_local_datasets():  # only now that there is another
        minari.delete_dataset(args.dataset)
    collector.create_dataset(
        dataset_id=args.dataset,
        algorithm_name=args.policy,
        description=f"{args.policy} on {args.system}",
    )
    collector.close()
    return returns


def play(env: Any, policy: str, seed: int) -> float:
    """One episode."""
    agent = lbgym.policies.agent(policy, env.env)
    obs, _ = env.reset(seed=seed)
    paid, over, state, first = 0.0, False, None, np.ones(1, bool)
    while not over:
        action, state = agent.predict(obs, state, first)
        obs, reward, terminated, truncated, _ = env.step(action)
        paid, over, first = paid + reward, terminated or truncated, np.zeros(1, bool)
    return paid


def check(args: Args, returns: Sequence[float]) -> dict[str, Any]:
    """Read the data and play its actions again; ValueError if anything differs."""
    data = minari.load_dataset(args.dataset)
    env = data.recover_environment()
    for k, episode in enumerate(data.iterate_episodes()):
        if len(episode.rewards) != args.horizon or not episode.truncations[-1]:
            raise ValueError(f"episode {k}: has {len(episode.rewards)} steps, not {args.horizon}")
        if not np.isclose(episode.rewards.sum(), returns[k], rtol=1e-12):
            raise ValueError(f"episode {k}: its return is not what was paid")
        obs, _ = env.reset(seed=args.seed + k)
        for t, action in enumerate(episode.actions):
            if not np.array_equal(obs, episode.observations[t]):
                raise ValueError(f"episode {k}: observation {t} does not come again")
            obs, *_ = env.step(action)
    return {"episodes": data.total_episodes, "steps": int(data.total_steps)}


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0 if all went well, 2 for bad arguments, 1 if the data are not what was done."""
    parser = Parser(
        prog="python -m training.minari_dataset",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--replace", action="store_true", help="replace a dataset of this id")
    try:
        given = read(parser, Args, words)
        replace = given.pop("replace")
        args = Args(**given)
        check_counts(args, {"episodes": 1, "horizon": 1})
        parse_dataset_id(args.dataset)  # ValueError if it is none
        if args.dataset in minari.list_local_datasets() and not replace:
            raise ValueError(f"{args.dataset}: is there already; --replace replaces it")
        returns = record(args)
    except ValueError as error:
        print(f"training.minari_dataset: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("training.minari_dataset: interrupted; nothing was changed", file=sys.stderr)
        return 130
    try:
        found = check(args, returns)
    except ValueError as error:
        print(f"training.minari_dataset: {args.dataset}: {error}", file=sys.stderr)
        return 1
    mean = float(np.mean(returns))
    print(f"{args.dataset}: {found['episodes']} episodes, {found['steps']} steps", end=", ")
    print(f"mean return {mean:.1f}, per decision {mean / args.horizon:.3f}; read back and replayed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
