"""PPO in plain PyTorch on the native vector environments, for tasks of the suite.

    python -m training.torch_ppo --settings training/settings/pair-1-10.toml
    python -m training.torch_ppo --task cars --timesteps 2e6 --seed 1
    python -m training.torch_ppo --task cars --seed 1 --resume
    python -m training.torch_ppo --task stale-20 --imitate "sed(own-sends=1)"

Decisions are not equally far apart, so the discount of a step that takes dt is exp(-dt / scale)
(`discount_scale`; 0: none, the average-reward form), and a running estimate of the reward per unit
time is subtracted, times dt, from every reward: it shifts all values alike and makes them smaller.

A training may begin by imitating a rule (`imitate`): for that many decisions the rule acts, the
network learns which action it takes, and the critic what comes of it.

Everything lands in OUT/NAME: the model (model.zip and settings.json, the policy model:OUT/NAME of
`lbgym bench` and `lbgym.simulate`) and, in its subfolder "training", arguments and checkpoint.
"""

# J. Schulman, F. Wolski, P. Dhariwal, A. Radford, O. Klimov, Proximal policy optimization
# algorithms, arXiv:1707.06347; S. Bradtke, M. Duff, Reinforcement learning methods for
# continuous-time Markov decision problems, 1994.

import argparse
import math
import os
import pickle
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym import policies, suite
from lbgym.cli import Parser, progress_bar
from lbgym.envs.observation import share
from lbgym.suggest import unknown
from training.arguments import argument, check_counts, check_environment, missing, read, resumed

try:
    import torch

    from lbgym import torch_agent
except ImportError as error:
    raise missing(__name__, f"needs PyTorch ({error}): pip install lbgym[train]") from None

Floats = NDArray[np.float32]


@dataclass
class Args:
    """What a training is."""

    task: str = argument("pair-1-10", "of the suite")
    environment: Mapping[str, Any] = argument({}, "arguments of the environment, over the task's")
    name: str = argument("", "of the run; default: the task and the seed")
    out: str = argument("runs", "folder of all runs")
    seed: int = argument(0, "of the training (default: 0)")
    timesteps: int = argument(2_000_000, "decisions in all")
    n_envs: int = argument(64, "environments side by side")
    n_steps: int = argument(128, "decisions in each between two updates")
    batch_size: int = argument(2048, "decisions in a gradient step; divides n_envs x n_steps")
    epochs: int = argument(4, "passes over the data of an update")
    learning_rate: float = argument(1e-3, "at the beginning; falls linearly to 0")
    discount_scale: float = argument(20.0, "of exp(-dt / scale), in time units; 0: no discount")
    gae_lambda: float = argument(0.95, "decay of the advantage estimator (GAE) per decision")
    clip_range: float = argument(0.2, "bound on the change of an action's probability")
    ent_coef: float = argument(0.0, "weight of the entropy bonus at the beginning; falls linearly")
    ent_end: float = argument(0.0, "share of it that is left at the end")
    value_coef: float = argument(0.5, "weight of the critic's loss")
    max_grad_norm: float = argument(0.5, "of the gradient")
    network: str = argument("mlp", "table (any number of rows) or mlp")
    width: int = argument(64, "of each hidden layer")
    steps: int = argument(0, "how many unit steps of each amount the network is shown")
    critic: str = argument("observation", "what the critic reads; state: every queue besides")
    imitate: str = argument("", "rule to be imitated first; default: none")
    imitate_timesteps: int = argument(200_000, "decisions of that, of all")
    smoothing: float = argument(
        0.0, "share of the training that saved weights average; 0: the last"
    )
    average_rate: float = argument(0.05, "weight of an update's data in the average reward")
    threads: int = argument(1, "of PyTorch")
    checkpoint: float = argument(30.0, "seconds between checkpoints")

    def __post_init__(self) -> None:
        self.name = self.name or f"{self.task}-{self.seed}"

    @property
    def folder(self) -> Path:
        return Path(self.out) / self.name

    @property
    def saved(self) -> Path:
        return self.folder / "training" / "checkpoint.pickle"


FREE = ("timesteps", "learning_rate", "checkpoint", "threads", "out", "name")  # when it goes on


def check(args: Args) -> None:
    """Raise ValueError, one sentence, for a value out of range."""
    check_environment(suite.get(args.task).env, args.environment, own=("info",))
    counts = ("timesteps", "n_envs", "n_steps", "batch_size", "epochs", "width", "threads")
    check_counts(args, {"steps": 0} | dict.fromkeys((*counts, "imitate_timesteps"), 1))
    for name in ("learning_rate", "clip_range", "max_grad_norm"):
        if not 0 < getattr(args, name) < math.inf:
            raise ValueError(f"{name}: must be positive, got {getattr(args, name)}")
    for name in ("discount_scale", "ent_coef", "value_coef", "checkpoint"):
        if not 0 <= getattr(args, name) < math.inf:
            raise ValueError(f"{name}: must not be negative, got {getattr(args, name)}")
    for name in ("gae_lambda", "average_rate", "smoothing", "ent_end"):
        if not 0 <= getattr(args, name) <= 1:
            raise ValueError(f"{name}: must be between 0 and 1, got {getattr(args, name)}")
    for name, allowed in (("network", ("table", "mlp")), ("critic", ("observation", "state"))):
        if getattr(args, name) not in allowed:
            raise ValueError(f"{name}: {unknown(name, getattr(args, name), allowed)}")
    if (data := args.n_envs * args.n_steps) % args.batch_size:
        raise ValueError(
            f"batch_size: must divide n_envs x n_steps = {data}, got {args.batch_size}"
        )


# --- data -----------------------------------------------------------------------------------------
@dataclass
class Rollout:
    """Decisions between two updates; arrays (steps, envs), observations with the numbers last.

    known : what the critic reads
    next_values : of what the step led to, the last observation of an episode included
    elapsed : time that the step took; ended : whether it was an episode's last (by its horizon:
        the system goes on, so its value counts)
    """

    observations: Floats
    known: Floats
    actions: NDArray[np.int64]
    logs: Floats
    rewards: Floats
    elapsed: Floats
    values: Floats
    next_values: Floats
    ended: NDArray[np.bool_]
    taught: bool = False  # whether the actions are a rule's, to be imitated


def advantages(
    rewards: Floats,
    values: Floats,
    next_values: Floats,
    discounts: Floats,
    ended: NDArray[np.bool_],
    decay: float,
) -> Floats:
    """Generalised advantage estimates with a discount for each step; all (steps, envs).

    A_t = d_t + discount_t decay A_{t+1}, d_t = r_t + discount_t V(s_{t+1}) - V(s_t); an episode's
    last step has no A_{t+1}.
    """
    found = np.zeros_like(rewards)
    last = np.zeros_like(rewards[0])
    errors = rewards + discounts * next_values - values
    for t in range(len(rewards) - 1, -1, -1):
        last = errors[t] + discounts[t] * decay * np.where(ended[t], 0.0, last)
        found[t] = last
    return found


def _rows(infos: Mapping[str, Any], chosen: NDArray[np.int64]) -> dict[str, Any]:
    """The last infos of chosen environments, whose episodes are over."""
    return {name: x[chosen] for name, x in infos["final_info"].items() if name[0] != "_"}


# --- the learner ----------------------------------------------------------------------------------
class Learner:
    """Network, optimiser, environments, and where the training stands.

    `average` is the running estimate of the reward per unit time; `smooth` the network with weights
    averaged over the last updates, which is what is saved: where two actions are nearly worth the
    same, the last network's choice is chance.
    """

    def __init__(self, args: Args) -> None:
        torch.set_num_threads(args.threads)
        torch.manual_seed(args.seed)
        self.args, self.task = args, suite.get(args.task)
        self.envs = self.task.make_vec(
            args.n_envs,
            vectorization_mode="vector_entry_point",
            **{"start": "warm", **self._given()},
            info=["dt", "state"] if args.critic == "state" else ["dt"],
            autoreset_mode="SameStep",
        )
        self.shape = torch_agent.Shape.of(self.envs, args.network, args.width, args.steps)
        self.observation, infos = self.envs.reset(seed=args.seed)
        self.columns = len(self.envs.unwrapped.task.columns)
        self.critic = None
        if args.critic == "state":
            self.critic = self.shape.with_state(self.columns, infos["state"][0].size)
        self.known = self._known(self.observation, infos)
        self.network = torch_agent.Network(self.shape, self.critic)
        self.smooth = deepcopy(self.network)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=args.learning_rate)
        self.steps, self.seconds, self.updates = 0, 0.0, 0
        self.average = 0.0
        self.ent_coef = args.ent_coef
        self.teacher = policies.agent(args.imitate, self.envs) if args.imitate else None
        self.memory: Any = None  # the teacher's, of all environments

    def _given(self) -> dict[str, Any]:
        """Arguments of the environment; a start that its kind does not know stays out."""
        given = dict(self.args.environment)
        if not self.task.env.startswith("lbgym/MultiRouter") and "start" not in given:
            given["start"] = "empty"
        return given

    @property
    def imitating(self) -> bool:
        """Whether the teacher acts still."""
        return self.teacher is not None and self.steps < self.args.imitate_timesteps

    def _known(self, observations: Floats, infos: Mapping[str, Any]) -> Floats:
        """What the critic reads: the observations, with the state after the columns if it may."""
        if self.critic is None:
            return observations
        cut = sum(length for _, length in self.shape.parts[: self.columns])
        state = share(infos["state"]).reshape(len(observations), -1)
        return np.concatenate([observations[:, :cut], state, observations[:, cut:]], axis=1)

    # --- acting -----------------------------------------------------------------------------------
    @torch.no_grad()
    def collect(self) -> Rollout:
        """Act for `n_steps` in all environments."""
        n, m = self.args.n_steps, self.args.n_envs
        data = Rollout(
            np.empty((n, *self.observation.shape), np.float32),
            np.empty((n, *self.known.shape), np.float32),
            np.empty((n, m), np.int64),
            *(np.empty((n, m), np.float32) for _ in range(5)),
            np.zeros((n, m), np.bool_),
        )
        finals: list[tuple[int, int, Floats]] = []
        for t in range(n):
            shown = torch.from_numpy(self.observation)
            logs = torch.log_softmax(self.network.logits(shown), dim=1)
            noise = -torch.log(-torch.log(torch.rand_like(logs).clamp(1e-10, 1 - 1e-7)))
            actions = (logs + noise).argmax(dim=1, keepdim=True)
            if self.imitating:
                actions = self._taught(data.ended[t - 1] if t else np.zeros(m, bool))
            data.observations[t], data.known[t] = self.observation, self.known
            data.actions[t] = actions[:, 0].numpy()
            data.logs[t] = logs.gather(1, actions)[:, 0].numpy()
            self.observation, rewards, terminated, truncated, infos = self.envs.step(
                data.actions[t]
            )
            data.rewards[t], data.elapsed[t] = rewards, infos["dt"]
            self.known = self._known(self.observation, infos)
            data.ended[t] = terminated | truncated
            if data.ended[t].any():
                over = np.flatnonzero(data.ended[t])
                data.elapsed[t, over] = infos["final_info"]["dt"][over]
                known = self._known(np.stack(infos["final_obs"][over]), _rows(infos, over))
                finals += [(t, int(k), row) for k, row in zip(over, known, strict=True)]
        self._value(data, finals)
        data.taught = self.imitating
        self.steps += n * m
        return data

    def _taught(self, begun: NDArray[np.bool_]) -> torch.Tensor:
        """The teacher's actions, (envs, 1); `begun`: where an episode has just begun."""
        assert self.teacher is not None
        actions, self.memory = self.teacher.predict(self.observation, self.memory, begun)
        return torch.from_numpy(np.asarray(actions, np.int64))[:, None]

    def _value(self, data: Rollout, finals: Sequence[tuple[int, int, Floats]]) -> None:
        """Fill in the values of all observations, and of what each step led to."""
        flat = np.concatenate([data.known, self.known[None]])
        values = self.network.value(torch.from_numpy(flat.reshape(-1, flat.shape[-1]))).numpy()
        values = values.reshape(flat.shape[:2])
        data.values, data.next_values = values[:-1], values[1:].copy()
        if finals:
            last = self.network.value(torch.from_numpy(np.stack([f[2] for f in finals]))).numpy()
            for (t, k, _), value in zip(finals, last, strict=True):
                data.next_values[t, k] = value

    # --- learning ---------------------------------------------------------------------------------
    def update(self, data: Rollout) -> dict[str, float]:
        """One update of the network from what was collected."""
        args = self.args
        self._average(data)
        scale = args.discount_scale
        discounts = np.exp(-data.elapsed / scale) if scale else np.ones_like(data.elapsed)
        found = advantages(
            data.rewards - np.float32(self.average) * data.elapsed,
            data.values,
            data.next_values,
            discounts,
            data.ended,
            args.gae_lambda,
        )
        targets = found + data.values
        if not scale:  # values are known up to a constant only
            targets = targets - targets.mean()
        self._restandardise(targets)
        left = max(1 - self.steps / args.timesteps, 0.0)
        self.ent_coef = args.ent_coef * (left + args.ent_end * (1 - left))
        for group in self.optimizer.param_groups:
            group["lr"] = args.learning_rate * left
        flat = {
            "observations": data.observations.reshape(-1, data.observations.shape[-1]),
            "known": data.known.reshape(-1, data.known.shape[-1]),
            "actions": data.actions.ravel(),
            "logs": data.logs.ravel(),
            "advantages": found.ravel(),
            "targets": targets.ravel(),
        }
        tensors = {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in flat.items()}
        said: dict[str, float] = {}
        for _ in range(args.epochs):
            for chosen in torch.randperm(found.size).split(args.batch_size):
                batch = {name: x[chosen] for name, x in tensors.items()}
                said = self._gradient_step(batch, data.taught)
        self.updates += 1
        self._smoothen(found.size)
        return said

    def _average(self, data: Rollout) -> None:
        """Move the reward per unit time towards that of the data."""
        now = float(data.rewards.sum() / max(data.elapsed.sum(), 1e-9))
        weight = max(self.args.average_rate, 1 / (self.updates + 1))
        self.average += weight * (now - self.average)

    @torch.no_grad()
    def _smoothen(self, decisions: int) -> None:
        """Move the averaged weights towards those of the network, after so many decisions."""
        span = self.args.smoothing * self.args.timesteps
        weight = max(1 / self.updates, min(decisions / span, 1.0)) if span else 1.0
        for mean, now in zip(self.smooth.parameters(), self.network.parameters(), strict=True):
            mean.lerp_(now, weight)
        for kept, now in zip(self.smooth.buffers(), self.network.buffers(), strict=True):
            kept.copy_(now)

    def _restandardise(self, targets: Floats) -> None:
        """Follow the mean and the deviation of the values."""
        weight = max(0.1, 1 / (self.updates + 1))
        mean, deviation = float(self.network.mean), float(self.network.deviation)
        self.network.restandardise(
            mean + weight * (float(targets.mean()) - mean),
            max(deviation + weight * (float(targets.std()) - deviation), 1e-3),
        )

    def _gradient_step(self, batch: Mapping[str, torch.Tensor], taught: bool) -> dict[str, float]:
        args, network = self.args, self.network
        logs = torch.log_softmax(network.logits(batch["observations"]), dim=1)
        chosen = logs.gather(1, batch["actions"][:, None])[:, 0]
        entropy = -(logs.exp() * logs).sum(dim=1).mean()
        wanted = (batch["targets"] - network.mean) / network.deviation
        value_loss = (network.standard_value(batch["known"]) - wanted).square().mean()
        if taught:
            policy_loss = -chosen.mean()
        else:
            policy_loss = self._policy_loss(chosen, batch) - self.ent_coef * entropy
        self.optimizer.zero_grad()
        (policy_loss + args.value_coef * value_loss).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), args.max_grad_norm)
        self.optimizer.step()
        return {"value_loss": float(value_loss.detach()), "entropy": float(entropy.detach())}

    def _policy_loss(self, logs: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """PPO's, of the actions that were taken."""
        ratio = (logs - batch["logs"]).exp()
        gains = batch["advantages"]
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        clipped = ratio.clamp(1 - self.args.clip_range, 1 + self.args.clip_range)
        return -torch.minimum(ratio * gains, clipped * gains).mean()

    # --- checkpoints ------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """All that the rest of the training depends on."""
        return {
            "arguments": asdict(self.args),
            "network": self.network.state_dict(),
            "smooth": self.smooth.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "envs": self.envs,
            "observation": (self.observation, self.known),
            "teacher": (self.teacher, self.memory),
            "counts": (self.steps, self.seconds, self.updates, self.average),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.network.load_state_dict(state["network"])
        self.smooth.load_state_dict(state["smooth"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self.envs = state["envs"]
        self.observation, self.known = state["observation"]
        self.teacher, self.memory = state["teacher"]
        self.steps, self.seconds, self.updates, self.average = state["counts"]

    def write(self, file: Path) -> None:
        """A checkpoint, replaced at once."""
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_bytes(pickle.dumps(self.state()))
        os.replace(new, file)

    # --- the whole --------------------------------------------------------------------------------
    def run(self, until: int | None = None) -> None:
        """Train to the end, or until so many decisions were made."""
        goal = min(until or self.args.timesteps, self.args.timesteps)
        kept = time.perf_counter()
        with progress_bar(f"train {self.args.name}", " decisions") as progress:
            while self.steps < goal:
                begun = time.perf_counter()
                with held_back():
                    self.update(self.collect())
                now = time.perf_counter()
                self.seconds += now - begun
                progress(self.steps, goal)
                if now - kept > self.args.checkpoint:
                    self.write(self.args.saved)
                    kept = now

    def save(self) -> Path:
        """The agent, in the run's folder."""
        env = self.task.make(**self.args.environment)
        training = {
            "command": f"python -m training.torch_ppo (seed {self.args.seed})",
            "seed": self.args.seed,
            "timesteps": self.steps,
            "seconds": round(self.seconds, 1),
            "steps_per_second": round(self.steps / max(self.seconds, 1e-9)),
            "reward_per_time": self.average,
            "arguments": {k: v for k, v in asdict(self.args).items() if k not in ("out", "name")},
        }
        return torch_agent.save(
            self.smooth,
            self.shape,
            self.args.folder,
            env,
            critic=self.critic,
            training=training,
        )


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C waits until what is within is done: what is saved then is never half an update."""
    came: list[int] = []
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # somebody else's
        yield
        return
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


# --- the command ----------------------------------------------------------------------------------
def begun(given: Mapping[str, Any], resume: bool, fresh: bool) -> Learner:
    """A new learner, or that of the checkpoint; --fresh removes an old one once the new is made."""
    args = Args(**given)
    if resume:
        state = stored(args)
        given = {**given, "out": args.out, "name": args.name}
        args = Args(**resumed(state["arguments"], given, FREE))
        check(args)
        learner = Learner(args)
        learner.restore(state)
        return learner
    check(args)
    if args.folder.exists() and not fresh:
        raise ValueError(
            f"{args.folder}: is there already; --resume goes on with it, --fresh replaces it"
        )
    if args.folder.exists() and not args.saved.parent.is_dir():
        raise ValueError(f"{args.folder}: is not the folder of a training, so it is left alone")
    learner = Learner(args)
    if args.folder.exists():
        shutil.rmtree(args.folder)
    return learner


def stored(args: Args) -> dict[str, Any]:
    """The state in the checkpoint."""
    if not args.saved.is_file():
        raise ValueError(f"resume: no checkpoint in {args.folder}")
    try:
        state: dict[str, Any] = pickle.loads(args.saved.read_bytes())
    except Exception as error:  # whatever a broken pickle raises
        raise ValueError(f"resume: {args.saved} cannot be read ({error})") from None
    return state


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0 if all went well, 2 for bad arguments, 130 after Ctrl-C."""
    learner = None
    parser = Parser(
        prog="python -m training.torch_ppo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--resume", action="store_true", help="go on with OUT/NAME")
    parser.add_argument("--fresh", action="store_true", help="replace what is in OUT/NAME")
    try:
        given = read(parser, Args, words)
        resume, fresh = given.pop("resume"), given.pop("fresh")
        learner = begun(given, resume, fresh)
        learner.run()
        learner.write(learner.args.saved)
        folder = learner.save()
        rate = learner.steps / max(learner.seconds, 1e-9)
        print(
            f"saved: model:{folder} ({learner.steps:,} decisions in {learner.seconds:.0f} s, "
            f"{rate:,.0f} a second; average reward {learner.average:.5g} per unit time)"
        )
    except (ValueError, ImportError, OSError) as error:
        print(f"training.torch_ppo: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = ""
        if learner is not None:
            learner.write(learner.args.saved)
            where = f"--out {learner.args.out} --name {learner.args.name}"
            goes_on = f"; goes on with {where} --resume"
        print(f"training.torch_ppo: interrupted{goes_on}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
