"""Routers as agents that share their parameters: PettingZoo and plain PyTorch.

    python -m training.multiagent --system small --episodes 300

One small network acts for every router on that router's own view, and learns by REINFORCE from
what each router is paid for its own jobs.
"""

# R. J. Williams, Simple statistical gradient-following algorithms for connectionist reinforcement
# learning, Machine Learning 8, 1992. The baseline is the running mean reward of a decision.

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lbgym.cli import Parser
from training.arguments import argument, check_counts, missing, read

try:
    import torch
    from torch import nn

    from lbgym.envs import multiagent
except ImportError as error:
    said = f"needs PyTorch and PettingZoo ({error}): pip install lbgym[train,multiagent]"
    raise missing(__name__, said) from None


@dataclass
class Args:
    """What a training is."""

    system: str = argument("small", "scenario's name or TOML file")
    horizon: int = argument(200, "arrivals of an episode, all routers together")
    episodes: int = argument(200, "episodes")
    learning_rate: float = argument(3e-2, "of Adam")
    width: int = argument(32, "of the hidden layer")
    seed: int = argument(0, "of the training (default: 0)")


def play(env: Any, network: nn.Module, seed: int) -> tuple[list[Any], list[float]]:
    """One episode: log-probability of each action, and what its router was paid for it.

    With the reward "response" a router is paid once a turn, for the job it has just placed: what
    `last` tells at its next turn belongs to its last action.
    """
    chosen: dict[str, Any] = {}
    logs, paid = [], []
    env.reset(seed=seed)
    for agent in env.agent_iter():
        obs, reward, _, truncated, _ = env.last()
        if agent in chosen:
            logs.append(chosen.pop(agent))
            paid.append(reward)
        if truncated:
            env.step(None)
            continue
        law = torch.distributions.Categorical(logits=network(torch.as_tensor(obs)))
        action = law.sample()
        chosen[agent] = law.log_prob(action)
        env.step(int(action))
    return logs, paid


def train(args: Args) -> list[float]:
    """Mean reward of a decision in each episode."""
    torch.manual_seed(args.seed)
    env = multiagent.env(system=args.system, start="warm", horizon_arrivals=args.horizon)
    agent = env.possible_agents[0]
    inputs, actions = env.observation_space(agent).shape[0], int(env.action_space(agent).n)
    network = nn.Sequential(
        nn.Linear(inputs, args.width), nn.ReLU(), nn.Linear(args.width, actions)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=args.learning_rate)
    baseline, means = None, []
    for k in range(args.episodes):
        logs, paid = play(env, network, args.seed + k)
        rewards = torch.tensor(paid)
        means.append(float(rewards.mean()))
        baseline = means[-1] if baseline is None else 0.9 * baseline + 0.1 * means[-1]
        advantages = (rewards - baseline) / (rewards.std() + 1e-6)
        loss = -(torch.stack(logs) * advantages).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    env.close()
    return means


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0 if all went well, 2 for bad arguments."""
    parser = Parser(
        prog="python -m training.multiagent",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    try:
        args = Args(**read(parser, Args, words))
        check_counts(args, {"horizon": 2, "episodes": 2, "width": 1})
        if not 0 < args.learning_rate < math.inf:
            raise ValueError(f"learning_rate: must be positive, got {args.learning_rate}")
        means = train(args)
    except ValueError as error:
        print(f"training.multiagent: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("training.multiagent: interrupted", file=sys.stderr)
        return 130
    part = max(1, args.episodes // 10)
    first, last = sum(means[:part]) / part, sum(means[-part:]) / part
    print(f"reward per decision: first {part} episodes {first:.3f}, last {part} {last:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
