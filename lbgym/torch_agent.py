"""Agents of the package's own PPO in plain PyTorch (``training/torch_ppo.py``): networks and files.

A saved agent is a folder with ``model.zip``, the network's weights as PyTorch writes them, and
``settings.json``, whose "algorithm" is `ALGORITHM`: the environment it was trained in, the network,
and how it was trained. Its name as a policy is ``model:FOLDER``. Nothing in the folder is a pickle
of code: weights are read with ``weights_only=True``.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym import ENVIRONMENTS
from lbgym._version import __version__

try:
    import torch
    from torch import nn
except ImportError as error:
    raise ImportError(f"trained models need PyTorch ({error}): pip install lbgym[train]") from None

__all__ = ["ALGORITHM", "Network", "Shape", "TorchAgent", "is_torch_agent", "load", "save"]

ALGORITHM, FORMAT = "lbgym:torch-ppo", 1
WEIGHTS, SETTINGS = "model.zip", "settings.json"
KEYS: dict[str, type] = {  # of settings.json
    "format": int,
    "algorithm": str,
    "env": str,
    "environment": dict,
    "columns": list,
    "context": list,
    "observation_shape": list,
    "action": str,
    "actions": int,
    "deterministic": bool,
}
SHARES = {  # shown as x / (1 + x)
    *("message_age", "sent", "sent_age", "sent_since_read", "limit", "capacity", "queue"),
    *("backlog", "last_probe", "sent_since_probe", "probe_age"),
    *("queue_probed", "read", "vacancy", "neighbours", "work", "size", "read_age"),
    *("class_jobs_0", "class_jobs_1", "reserved", "parked", "space"),
    *("flows", "link_load", "access_rate", "route_load"),
}
LOGARITHMS = {"speed", "arrival_rate"}
_LEAST = 1e-4  # of 1 - share: a share of 1 (never, unlimited) becomes log 10,000


# --- networks -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Shape:
    """What a network reads and decides.

    kind : "table": rows of the observation are scored by one shared network; "mlp"
    parts : (name, how many numbers) of the observation, in order; 1 for a single context value
    highs : largest value of each part
    rows : of the table; parts so long are its columns if the kind is "table"
    actions : those beyond the rows (of a table) are scored from what all rows have in common
    width : of each hidden layer
    steps : how many unit steps of each amount are shown (`spread`)
    """

    kind: str
    parts: tuple[tuple[str, int], ...]
    highs: tuple[float, ...]
    rows: int
    actions: int
    width: int
    steps: int = 0

    @classmethod
    def of(cls, env: Any, kind: str, width: int, steps: int = 0) -> Shape:
        """The shape for an environment, vector or not."""
        space = getattr(env, "single_observation_space", env.observation_space)
        actions = int(getattr(env, "single_action_space", env.action_space).n)
        task = env.unwrapped.task
        rows = _rows(task)
        if kind == "table" and not rows:
            raise ValueError("network: 'table' needs an observation with a row for each choice")
        parts = tuple(getattr(task.shown, "parts", ())) or tuple(
            [(name, rows) for name in task.columns] + [(name, 0) for name in task.context]
        )
        parts = tuple((name, max(int(length), 1)) for name, length in parts)
        starts = np.cumsum([0, *(length for _, length in parts)])[:-1]
        highs = tuple(float(space.high[start]) for start in starts)
        return cls(kind, parts, highs, rows, actions, width, steps)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Shape:
        """From settings.json."""
        parts = tuple((str(name), int(length)) for name, length in data["parts"])
        return cls(**{**data, "parts": parts, "highs": tuple(data["highs"])})

    def with_state(self, columns: int, amounts: int) -> Shape:
        """The same with so many further amounts, x / (1 + x), after the first `columns` parts.

        Raises
        ------
        ValueError
            The rows of a table are others.
        """
        if self.kind == "table" and amounts != self.rows:
            raise ValueError(
                f"critic: a table of {self.rows} rows cannot show a state of {amounts} numbers"
            )
        parts, highs = list(self.parts), list(self.highs)
        parts.insert(columns, ("queue", amounts))
        highs.insert(columns, 1.0)
        return replace(self, parts=tuple(parts), highs=tuple(highs))

    def with_rows(self, rows: int) -> Shape:
        """The same table with another number of rows."""
        parts = tuple(
            (name, rows if length == self.rows else length) for name, length in self.parts
        )
        return replace(self, parts=parts, rows=rows, actions=self.actions + rows - self.rows)


def _rows(task: Any) -> int:
    """Rows of a task's table, one for each choice; 0 if its observation is none."""
    rows = getattr(task.shown, "rows", 0)
    if not rows and getattr(task, "context", None) is not None and len(task.columns):
        lengths = {length for name, length in task.shown.parts if name in task.columns}
        rows = lengths.pop() if len(lengths) == 1 else 0
    return int(rows) if rows and rows <= int(task.action_space.n) else 0


class Spread(nn.Module):
    """Numbers (..., k) of that many names, spread out for a network; (..., size).

    Beside each number x / (1 + x) stands log(1 + x), beside a speed its logarithm: differences that
    bounded columns squeeze together. With ``steps`` also how much of the first unit of x is there,
    of the second, and so on: of a count whether it is above 0, above 1, ..., so that no smoothness
    is assumed where one job more or less is everything.
    """

    def __init__(self, names: Sequence[str], highs: Sequence[float], steps: int) -> None:
        super().__init__()
        self.shares = [k for k, name in enumerate(names) if name in SHARES]
        self.speeds = [k for k, name in enumerate(names) if name in LOGARITHMS]
        self.scale = torch.tensor([1 / max(high, 1.0) for high in highs])
        self.steps = torch.arange(steps, dtype=torch.float32)
        self.size = len(names) + len(self.shares) * (1 + steps) + len(self.speeds)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        missing = (1 - values[..., self.shares]).clamp(min=_LEAST)
        rates = torch.log(values[..., self.speeds].clamp(min=_LEAST))
        parts = [values * self.scale, -torch.log(missing), rates]
        if len(self.steps):
            amounts = 1 / missing - 1
            parts.append((amounts[..., None] - self.steps).clamp(0, 1).flatten(-2))
        return torch.cat(parts, dim=-1)


class Flat(nn.Module):
    """All numbers of an observation through two hidden layers; (batch, out)."""

    def __init__(self, shape: Shape, out: int) -> None:
        super().__init__()
        names = [name for name, length in shape.parts for _ in range(length)]
        highs = [
            high for (_, n), high in zip(shape.parts, shape.highs, strict=True) for _ in range(n)
        ]
        self.spread = Spread(names, highs, shape.steps)
        width = shape.width
        self.layers = nn.Sequential(
            nn.Linear(self.spread.size, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, out),
        )

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Observations (batch, numbers)."""
        found: torch.Tensor = self.layers(self.spread(observation))
        return found


def _unzipped(pairs: Sequence[tuple[str, float]]) -> tuple[list[str], list[float]]:
    return [name for name, _ in pairs], [high for _, high in pairs]


class Table(nn.Module):
    """Rows encoded by one network, pooled by mean and maximum.

    Scores: of each row from itself and from what all have in common, so that permuting rows
    permutes scores and any number of rows will do (M. Zaheer et al., Deep Sets, 2017). With
    ``out`` it gives that many numbers of the pooled rows instead.
    """

    def __init__(self, shape: Shape, out: int = 0) -> None:
        super().__init__()
        pairs = list(zip(shape.parts, shape.highs, strict=True))
        columns = [(name, high) for (name, n), high in pairs if n == shape.rows]
        context = [(name, high) for (name, n), high in pairs if n != shape.rows]
        self.columns, self.context = len(columns), len(context)
        self.spread_row = Spread(*_unzipped(columns), shape.steps)
        self.spread_rest = Spread(*_unzipped(context), shape.steps)
        width, self.others = shape.width, shape.actions - shape.rows
        self.encode = nn.Sequential(
            nn.Linear(self.spread_row.size, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.own = nn.Linear(width, width)
        self.common = nn.Linear(2 * width + self.spread_rest.size, width)
        self.out = out
        self.head = nn.Linear(width, out or 1)
        self.rest = nn.Linear(width, self.others) if self.others and not out else None

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Observations (batch, numbers): columns one after another, then the context."""
        end = observation.shape[1] - self.context
        table = observation[:, :end].reshape(len(observation), self.columns, -1)
        rows = self.encode(self.spread_row(table.transpose(1, 2)))
        rest = self.spread_rest(observation[:, end:])
        common = self.common(torch.cat((rows.mean(dim=1), rows.amax(dim=1), rest), dim=1))
        if self.out:
            whole: torch.Tensor = self.head(torch.relu(common))
            return whole
        scores: torch.Tensor = self.head(torch.relu(self.own(rows) + common[:, None])).squeeze(-1)
        if self.rest is not None:
            scores = torch.cat((scores, self.rest(torch.relu(common))), dim=1)
        return scores


class Network(nn.Module):
    """Actor and critic.

    The critic's output is a standardised value: ``value = mean + deviation * output``. It may read
    more than the actor does (`critic`), as it serves in training only.
    """

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, shape: Shape, critic: Shape | None = None) -> None:
        super().__init__()
        made: Any = Table if shape.kind == "table" else Flat
        self.actor = made(shape) if shape.kind == "table" else made(shape, shape.actions)
        self.critic = made(critic or shape, 1)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("deviation", torch.ones(()))
        last = self.actor.head if shape.kind == "table" else self.actor.layers[-1]
        nn.init.orthogonal_(last.weight, gain=0.01)  # begin with all actions nearly alike
        nn.init.zeros_(last.bias)

    def logits(self, observation: torch.Tensor) -> torch.Tensor:
        """Of each action; (batch, actions)."""
        found: torch.Tensor = self.actor(observation)
        return found

    def standard_value(self, known: torch.Tensor) -> torch.Tensor:
        """The value's standardised form, from what the critic reads; (batch,)."""
        found: torch.Tensor = self.critic(known).squeeze(-1)
        return found

    def value(self, known: torch.Tensor) -> torch.Tensor:
        """The value; (batch,)."""
        return self.mean + self.deviation * self.standard_value(known)

    @torch.no_grad()
    def restandardise(self, mean: float, deviation: float) -> None:
        """Change the scale of the critic's output, its values staying what they are (H. van Hasselt
        et al., Learning values across many orders of magnitude, 2016)."""
        last = self.critic.head if isinstance(self.critic, Table) else self.critic.layers[-1]
        last.weight *= self.deviation / deviation
        last.bias.copy_((self.deviation * last.bias + self.mean - mean) / deviation)
        self.mean.fill_(mean)
        self.deviation.fill_(deviation)


# --- an agent -------------------------------------------------------------------------------------
class TorchAgent:
    """A trained network that acts: SB3's `predict`, and what `lbgym.simulate` asks of an agent.

    Attributes
    ----------
    name : str
        "model:PATH".
    environment : dict
        Keyword arguments of the environment it acts in; the system may be another one.
    deterministic : bool
        Whether it takes its likeliest action, or draws one from its own stream, which begins anew,
        seeded by the observations, where an episode starts.
    settings : dict
        All of settings.json.
    """

    def __init__(self, network: Network, shape: Shape, settings: dict[str, Any], path: str) -> None:
        self.network, self.shape, self.settings = network, shape, settings
        self.name = f"model:{path}"
        kept = ("system", "info", "render_mode", "start", "horizon_arrivals", "horizon_time")
        self.environment = {k: v for k, v in settings["environment"].items() if k not in kept}
        self.env_id = str(settings["env"])
        self.deterministic = bool(settings["deterministic"])
        self.information = str(settings.get("information", "what its environment shows"))
        self._random = np.random.default_rng(0)
        self._numbers = sum(length for _, length in shape.parts)

    def check(self, env: Any) -> None:
        """Raise ValueError that says in what `env` differs from the environment of the training."""
        check_alike(self.name, self.settings, env.unwrapped)
        self._check_width(int(env.unwrapped.observation_space.shape[0]))

    def _check_width(self, width: int) -> None:
        if width == self._numbers:
            return
        context = sum(length != self.shape.rows for _, length in self.shape.parts)
        columns = len(self.shape.parts) - context
        if self.shape.kind != "table" or width <= context or (width - context) % columns:
            raise ValueError(
                f"{self.name}: trained on observations of {self._numbers} values, got {width}; "
                "only a network of kind 'table' takes another number of rows"
            )

    def predict(
        self,
        observation: NDArray[np.float32],
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """Actions for one observation (numbers,) or a batch (batch, numbers); (actions, state)."""
        observation = np.asarray(observation, np.float32)
        self._check_width(observation.shape[-1] if observation.ndim else 0)
        if episode_start is not None and np.all(episode_start):
            self._random = np.random.default_rng(zlib.crc32(observation.tobytes()))
        batch = observation.reshape(-1, observation.shape[-1])
        with torch.inference_mode():
            logits = self.network.logits(torch.from_numpy(batch)).numpy()
        if not deterministic:
            logits = logits + self._random.gumbel(size=logits.shape)
        return logits.argmax(axis=1).reshape(observation.shape[:-1]), state


def check_alike(name: str, was: Mapping[str, Any], env: Any) -> None:
    """Raise ValueError that says in what `env` differs from what an agent's settings describe."""
    seen, shown = (was["columns"], was["context"]), ([*env.columns], [*env.context])
    if seen != shown:
        raise ValueError(
            f"{name}: trained on the columns {listed(*seen)}, this environment shows "
            f"{listed(*shown)}"
        )
    if env.action != was["action"]:
        raise ValueError(
            f"{name}: trained with action={was['action']!r}, this environment has {env.action!r}"
        )
    moved = was["environment"]["system"].get("migration_rate", 0) > 0
    if getattr(env.system, "migrates", False) != moved:
        raise ValueError(
            f"{name}: trained on a system whose jobs {'' if moved else 'do not '}migrate, "
            f"asked on one whose jobs {'do not' if moved else 'do'}"
        )


def listed(columns: Sequence[str], context: Sequence[str]) -> str:
    """The names of what an observation shows."""
    return ", ".join(columns) + (f"; {', '.join(context)}" if context else "")


# --- files ----------------------------------------------------------------------------------------
def described(env: Any) -> dict[str, Any]:
    """What an agent must know of the environment (made by ``gym.make``) it was trained in."""
    inner = env.unwrapped
    kwargs = dict(inner.spec.kwargs)
    kwargs["system"] = inner.system.to_dict()
    if kwargs.get("observe") is None:
        kwargs["observe"] = [*inner.columns, *inner.context]
    if kwargs.get("action") is None:
        samples = f"({inner.samples})" if inner.action == "candidate" else ""
        kwargs["action"] = inner.action + samples
    return {
        "env": inner.spec.id,
        "environment": json.loads(json.dumps(kwargs, default=list)),
        "columns": list(inner.columns),
        "context": list(inner.context),
        "observation_shape": list(inner.observation_space.shape),
        "action": inner.action,
        "actions": int(inner.action_space.n),
    }


def save(
    network: Network,
    shape: Shape,
    folder: str | os.PathLike[str],
    env: Any,
    *,
    critic: Shape | None = None,
    deterministic: bool = True,
    training: Mapping[str, Any] | None = None,
) -> Path:
    """Save a network as an agent in a folder, made if need be; returns the folder."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    settings = {
        "format": FORMAT,
        "algorithm": ALGORITHM,
        **described(env),
        "network": asdict(shape),
        **({} if critic is None else {"critic": asdict(critic)}),
        "deterministic": deterministic,
        "versions": {"lbgym": __version__, "torch": str(torch.__version__)},
        "training": dict(training or {}),
    }
    torch.save(network.state_dict(), path / WEIGHTS)
    write_settings(path, settings)
    return path


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Replace settings.json at once, so that no reader ever sees half of it."""
    new = folder / f"{SETTINGS}.new"
    new.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    new.replace(folder / SETTINGS)


def read_settings(folder: Path, name: str) -> dict[str, Any]:
    """settings.json of an agent's folder, checked."""
    try:
        settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        missing = [key for key in KEYS if key not in settings]
    except FileNotFoundError:
        raise ValueError(
            f"{name}: {SETTINGS} is missing in {folder}; save models with lbgym.sb3.save_agent"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{name}: {folder / SETTINGS} cannot be read ({error})") from None
    if missing:
        raise ValueError(f"{name}: {folder / SETTINGS} lacks {', '.join(missing)}")
    for key, kind in KEYS.items():
        if not isinstance(settings[key], kind):
            raise ValueError(
                f"{name}: {folder / SETTINGS}: {key} must be of type {kind.__name__}, "
                f"got {settings[key]!r}"
            )
    if settings["format"] != FORMAT:
        raise ValueError(
            f"{name}: saved in format {settings['format']}, this lbgym reads format {FORMAT}"
        )
    if settings["env"] not in ENVIRONMENTS:
        raise ValueError(
            f"{name}: trained in {settings['env']!r}, which this lbgym lacks "
            f"(it has {', '.join(ENVIRONMENTS)})"
        )
    known = _columns()
    for column in (*settings["columns"], *settings["context"]):
        if column not in known:
            raise ValueError(f"{name}: trained on a column {column!r} which this lbgym lacks")
    return settings


def _columns() -> set[str]:
    """All that an environment may show."""
    from lbgym.envs import car_sharing, flow_network, observation

    return {
        *(*observation.COLUMNS, *observation.CLASS_COLUMNS),
        *(*car_sharing.COLUMNS, *car_sharing.CONTEXT, *flow_network.SHOWN),
    }


def is_torch_agent(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of such an agent."""
    try:
        settings = json.loads((Path(path) / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and settings.get("algorithm") == ALGORITHM


def load(path: str | os.PathLike[str]) -> TorchAgent:
    """The agent saved in a folder; ValueError says what is missing, unreadable or of another
    version."""
    folder, name = Path(path), f"model:{path}"
    if not (folder / WEIGHTS).is_file():
        what = f"has no {WEIGHTS}" if folder.is_dir() else "is not the folder of a saved model"
        raise ValueError(f"{name}: {folder} {what}")
    settings = read_settings(folder, name)
    try:
        shape = Shape.from_dict(settings["network"])
        critic = settings.get("critic")
        network = Network(shape, None if critic is None else Shape.from_dict(critic))
        network.load_state_dict(torch.load(folder / WEIGHTS, weights_only=True))
    except Exception as error:  # whatever a broken file raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(f"{name}: {folder} cannot be loaded ({reason})") from None
    numbers = [sum(length for _, length in shape.parts)], shape.actions
    if numbers != (settings["observation_shape"], settings["actions"]):
        raise ValueError(
            f"{name}: its network takes observations of shape {numbers[0]} for {numbers[1]} "
            f"actions, {SETTINGS} says {settings['observation_shape']} and {settings['actions']}"
        )
    return TorchAgent(network.eval(), shape, settings, os.fspath(path))
