"""Stable-Baselines3 (SB3): models as agents, a policy network made for tables, `make_vec`.

A saved agent is a folder with ``model.zip`` (SB3's own file) and ``settings.json`` (the environment
it was trained in). Its name as a policy is ``model:FOLDER``:

>>> import lbgym
>>> lbgym.simulate("flagship", "model:runs/flagship")  # doctest: +SKIP

An SB3 file is a pickle: load only what you trust.
"""

from __future__ import annotations

import os
import platform
import zlib
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lbgym import torch_agent
from lbgym._version import __version__
from lbgym.torch_agent import check_alike, described, listed, read_settings, write_settings

try:
    import torch
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import nn
except ImportError as error:
    raise ImportError(
        f"trained models need Stable-Baselines3, sb3-contrib and PyTorch ({error}): "
        "pip install lbgym[train]"
    ) from None

from lbgym.recurrent import RouterMemoryPolicy, router_memory_kwargs
from lbgym.vec_env import make_vec

__all__ = [
    "Agent",
    "MaskableTablePolicy",
    "RouterMemoryPolicy",
    "TablePolicy",
    "load_agent",
    "make_vec",
    "router_memory_kwargs",
    "save_agent",
    "table_policy_kwargs",
]

MODEL, SETTINGS, FORMAT = "model.zip", "settings.json", 1
PACKAGES = ("gymnasium", "stable-baselines3", "sb3-contrib", "numpy", "torch")


# --- a network for tables -------------------------------------------------------------------------
SHARES = ("message_age", "sent", "sent_age", "limit", "queue", "queue_probed")  # x / (1 + x)
_LEAST = 1e-4  # of 1 - share: a share of 1 (never, unlimited) becomes log 10,000


class Rows(nn.Module):
    """Reads a flat observation as rows and encodes each by one network.

    Shares ``y = x / (1 + x)`` are shown as log(1 + x) too, speeds as logarithms too: differences
    that the environment's bounded columns squeeze together.
    """

    def __init__(self, columns: Sequence[str], context: int, width: int) -> None:
        super().__init__()
        self.columns, self.context = len(columns), context
        self.shares = [k for k, name in enumerate(columns) if name in SHARES]
        self.speeds = [k for k, name in enumerate(columns) if name == "speed"]
        features = self.columns + len(self.shares) + len(self.speeds)
        self.encode = nn.Sequential(
            nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.pooled = 2 * width + context

    def features(self, table: torch.Tensor) -> torch.Tensor:
        """Of a table (..., columns, rows); shape (..., rows, features)."""
        shares = -torch.log((1 - table[..., self.shares, :]).clamp(min=_LEAST))
        speeds = torch.log(table[..., self.speeds, :].clamp(min=_LEAST))
        return torch.cat((table, shares, speeds), dim=-2).transpose(-1, -2)

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Encoded rows (batch, rows, width) and what is common to all (batch, pooled)."""
        end = observation.shape[1] - self.context
        table = observation[:, :end].reshape(len(observation), self.columns, -1)
        rows = self.encode(self.features(table))
        common = (rows.mean(dim=1), rows.amax(dim=1), observation[:, end:])
        return rows, torch.cat(common, dim=1)


class TableNetwork(nn.Module):
    """Actor and critic over tables: SB3's `mlp_extractor`, of which the actor gives the logits.

    The actor scores each row from the row itself and the mean and maximum over all rows, so that
    permuting rows permutes the scores, and any number of rows will do (M. Zaheer et al., Deep Sets,
    2017). The critic sees the pooled rows alone.
    """

    def __init__(self, columns: Sequence[str], context: int, rows: int, width: int) -> None:
        super().__init__()
        self.latent_dim_pi, self.latent_dim_vf = rows, width
        self.actor_rows = Rows(columns, context, width)
        self.actor_row = nn.Linear(width, width)
        self.actor_common = nn.Linear(self.actor_rows.pooled, width)
        self.score = nn.Linear(width, 1)
        self.critic_rows = Rows(columns, context, width)
        self.critic = nn.Sequential(nn.Linear(self.critic_rows.pooled, width), nn.ReLU())

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.forward_actor(observation), self.forward_critic(observation)

    def forward_actor(self, observation: torch.Tensor) -> torch.Tensor:
        """Logits, shape (batch, rows)."""
        rows, common = self.actor_rows(observation)
        mixed = torch.relu(self.actor_row(rows) + self.actor_common(common).unsqueeze(1))
        logits: torch.Tensor = self.score(mixed).squeeze(-1)
        return logits

    def forward_critic(self, observation: torch.Tensor) -> torch.Tensor:
        """What the value is a linear function of, shape (batch, width)."""
        latent: torch.Tensor = self.critic(self.critic_rows(observation)[1])
        return latent


class _OfTables:
    """What makes a policy of SB3 (named beside it as a base) one for tables."""

    mlp_extractor: Any
    action_net: Any

    def __init__(
        self,
        observation_space: spaces.Box,
        action_space: spaces.Discrete,
        lr_schedule: Any,
        *,
        columns: Sequence[str],
        context: Sequence[str] = (),
        width: int = 32,
        **others: Any,
    ) -> None:
        self.columns, self.context, self.width = tuple(columns), tuple(context), width
        self.rows = _rows(observation_space, action_space, self.columns, self.context)
        made: Any = super().__init__
        made(observation_space, action_space, lr_schedule, **others)

    def _build_mlp_extractor(self: Any) -> None:
        self.mlp_extractor = TableNetwork(
            self.columns, len(self.context), self.rows, self.width
        ).to(self.device)

    def _build(self: Any, lr_schedule: Any) -> None:
        super()._build(lr_schedule)  # type: ignore[misc]
        network: Any = self.mlp_extractor
        nn.init.orthogonal_(network.score.weight, gain=0.01)  # begin with all actions alike
        self.action_net = nn.Identity()  # the scores are the logits
        made: Any = self.optimizer_class
        self.optimizer = made(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {"columns": self.columns, "context": self.context, "width": self.width}
        return {**super()._get_constructor_parameters(), **own}  # type: ignore[misc]

    def for_rows(self: Any, rows: int) -> Any:
        """The same network over another number of rows, to act with."""
        width = rows * len(self.columns) + len(self.context)
        space = spaces.Box(0.0, np.inf, (width,), np.float32)
        given = self._get_constructor_parameters()
        given |= {"observation_space": space, "action_space": spaces.Discrete(rows)}
        policy = type(self)(**given)
        policy.load_state_dict(self.state_dict())
        policy.set_training_mode(False)
        return policy


class TablePolicy(_OfTables, ActorCriticPolicy):
    """SB3 policy for flat observations of lbgym's environments: one action per row of the table.

    >>> PPO(TablePolicy, env, policy_kwargs=table_policy_kwargs(env))  # doctest: +SKIP

    Parameters
    ----------
    columns, context : sequences of str
        As the environment names them (`table_policy_kwargs` reads them off).
    width : int
        Of every hidden layer.
    """


class MaskableTablePolicy(_OfTables, MaskableActorCriticPolicy):
    """The same for MaskablePPO of sb3-contrib."""


def _rows(
    observation: spaces.Space[Any],
    action: spaces.Space[Any],
    columns: tuple[str, ...],
    context: tuple[str, ...],
) -> int:
    """Rows of the table; ValueError if the spaces are not those of a table."""
    rows = int(getattr(action, "n", 0))
    width = rows * len(columns) + len(context)
    if not rows or not isinstance(observation, spaces.Box) or observation.shape != (width,):
        raise ValueError(
            f"TablePolicy: needs one action per row and {len(columns)} columns and {len(context)} "
            f"context values in a flat Box; got {observation.shape} values for {action}"
        )
    return rows


def table_policy_kwargs(env: Any, **others: Any) -> dict[str, Any]:
    """``policy_kwargs`` of `TablePolicy` for an environment or a VecEnv of equal ones."""
    inner = _unwrapped(env)
    if not hasattr(inner, "columns"):
        raise ValueError("TablePolicy: needs an lbgym environment, whose observation is a table")
    return {"columns": tuple(inner.columns), "context": tuple(inner.context), **others}


def _unwrapped(env: Any) -> Any:
    """The innermost environment, of a VecEnv the first one."""
    return env.get_attr("unwrapped")[0] if hasattr(env, "get_attr") else env.unwrapped


# --- saving ---------------------------------------------------------------------------------------
def save_agent(
    model: BaseAlgorithm,
    folder: str | os.PathLike[str],
    *,
    env: Any = None,
    deterministic: bool = True,
    training: dict[str, Any] | None = None,
) -> Path:
    """Save a trained SB3 model as an agent, and return the folder.

    Parameters
    ----------
    model : stable_baselines3 algorithm
    folder : path
        Made if need be.
    env : environment, optional
        Made by ``gym.make``; default the one that the model was trained in.
    deterministic : bool
        Whether the agent takes its likeliest action, or draws one.
    training : dict, optional
        JSON-able notes on how it was trained.
    """
    inner = _unwrapped(model.get_env() if env is None else env)
    if inner.spec is None:
        raise ValueError("save_agent: needs an environment made by gym.make, which knows its id")
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    settings = {
        "format": FORMAT,
        "algorithm": f"{type(model).__module__.partition('.')[0]}:{type(model).__name__}",
        **described(inner),
        "deterministic": deterministic,
        "versions": versions(),
        "training": training or {},
    }
    model.save(path / MODEL)
    write_settings(path, settings)
    return path


def versions() -> dict[str, str]:
    """Of everything that a model depends on."""
    found = {"lbgym": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


# --- loading --------------------------------------------------------------------------------------
class Agent:
    """A trained model that acts: SB3's `predict`, and what `lbgym.simulate` asks of an agent.

    Attributes
    ----------
    name : str
        "model:PATH".
    environment : dict
        Keyword arguments of the environment it acts in; the system may be another one.
    information : str
        What it knows, in the words of the classical policies.
    deterministic : bool
        Whether it takes its likeliest action, or draws one. Draws come from the agent's own stream,
        which begins anew, seeded by the observations, where an episode starts: equal seeds give
        equal runs.
    settings : dict
        All of settings.json.
    masked : bool
        Whether it heeds `action_masks`.
    """

    def __init__(self, model: BaseAlgorithm, settings: dict[str, Any], path: str) -> None:
        self.model, self.settings = model, settings
        self.name = f"model:{path}"
        kept = ("system", "info", "render_mode", "start", "horizon_arrivals", "horizon_time")
        self.environment = {k: v for k, v in settings["environment"].items() if k not in kept}
        self.deterministic = bool(settings["deterministic"])
        self.columns, self.context = tuple(settings["columns"]), tuple(settings["context"])
        self.information = _information(self.columns)
        self.masked = isinstance(model.policy, MaskableActorCriticPolicy)
        self._policies: dict[int, Any] = {int(settings["observation_shape"][0]): model.policy}
        self._random = np.random.default_rng(0)

    def check(self, env: Any) -> None:
        """Raise ValueError that says in what `env` differs from the environment of the training."""
        check_alike(self.name, self.settings, env.unwrapped)
        self._policy(int(env.unwrapped.observation_space.shape[0]))

    def predict(
        self,
        observation: NDArray[np.float32],
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Actions for one observation or for a batch; SB3's call. Returns (actions, state)."""
        observation = np.asarray(observation)
        policy = self._policy(observation.shape[-1] if observation.ndim else 0)
        if episode_start is not None and np.all(episode_start):
            self._random = np.random.default_rng(zlib.crc32(observation.tobytes()))
        if not isinstance(policy, ActorCriticPolicy | MaskableActorCriticPolicy):
            chosen: tuple[Any, Any] = policy.predict(observation, deterministic=deterministic)
            return chosen
        batch = observation.reshape(-1, observation.shape[-1])
        if isinstance(policy, RouterMemoryPolicy):
            p, state = self._remembering(policy, batch, state, episode_start)
        else:
            p = self.probabilities(batch, action_masks)
        actions = p.argmax(axis=1) if deterministic else self._draw(p)
        return actions.reshape(observation.shape[:-1]), state

    def probabilities(
        self, observation: NDArray[np.float32], action_masks: Any = None
    ) -> NDArray[np.float64]:
        """Of each action; observations (batch, width) -> (batch, actions)."""
        policy = self._policy(observation.shape[-1])
        masks = {} if action_masks is None else {"action_masks": np.asarray(action_masks)}
        with torch.no_grad():
            shown = torch.as_tensor(observation, device=policy.device)
            return _plain(policy.get_distribution(shown, **masks))

    def _remembering(
        self, policy: RouterMemoryPolicy, batch: NDArray[np.float32], state: Any, starts: Any
    ) -> tuple[NDArray[np.float64], Any]:
        """The same of a policy with a memory, and the memory after it."""
        layers, _, width = policy.lstm_hidden_state_shape
        if state is None:
            state = (np.zeros((layers, len(batch), width), np.float32),) * 2
        starts = np.broadcast_to(False if starts is None else starts, len(batch))
        with torch.no_grad():
            given = tuple(torch.as_tensor(x, device=policy.device) for x in state)
            begun = torch.tensor(starts, dtype=torch.float32, device=policy.device)
            shown = torch.as_tensor(batch, device=policy.device)
            distribution, after = policy.get_distribution(shown, given, begun)  # type: ignore[arg-type]
        return _plain(distribution), tuple(x.cpu().numpy() for x in after)

    def _draw(self, probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
        upper = probabilities.cumsum(axis=1)
        coins = self._random.random((len(upper), 1)) * upper[:, -1:]
        drawn: NDArray[np.int64] = (coins >= upper).sum(axis=1)
        return drawn

    def _policy(self, width: int) -> Any:
        """The network for observations of that many values; made once."""
        if width not in self._policies:
            self._policies[width] = self._other(width)
        return self._policies[width]

    def _other(self, width: int) -> Any:
        rows, rest = divmod(width - len(self.context), len(self.columns))
        if rest or rows < 1:
            raise ValueError(
                f"{self.name}: trained on observations of {self.settings['observation_shape'][0]} "
                f"values ({listed(self.columns, self.context)}), got {width}"
            )
        policy = self.model.policy
        if not isinstance(policy, _OfTables):
            action = self.settings["action"].partition("(")[0]
            was, what = self.settings["actions"], _ROWS.get(action, "choices")
            raise ValueError(
                f"{self.name}: trained on {was} {what}, asked on {rows}; only a TablePolicy takes "
                "another number"
            )
        return policy.for_rows(rows)


def _plain(distribution: Any) -> NDArray[np.float64]:
    """The probabilities of a categorical distribution."""
    found: NDArray[np.float64] = distribution.distribution.probs.cpu().numpy().astype(np.float64)
    return found


_ROWS = {"server": "servers", "candidate": "candidates", "pool": "pools"}
_KNOWS = {
    "live queue lengths": ("queue", "queue_order"),
    "messages": ("message", "message_order", "message_age"),
    "d probes": ("queue_probed", "last_probe"),
    "speeds": ("speed",),
    "own memory": ("sent", "sent_age", "backlog", "last_probe", "sent_since_probe", "probe_age"),
}


def _information(columns: Sequence[str]) -> str:
    known = [what for what, names in _KNOWS.items() if set(names) & set(columns)]
    return ", ".join(known) or "none"


def load_agent(path: str | os.PathLike[str]) -> Any:
    """The agent saved in a folder (or the path of its model.zip).

    Raises
    ------
    ValueError
        One sentence: what is missing, unreadable or of another version.
    """
    given = Path(path)
    folder = given.parent if given.name == MODEL else given
    if torch_agent.is_torch_agent(folder):
        return torch_agent.load(folder)
    if not folder.is_dir() or not (folder / MODEL).is_file():
        what = f"has no {MODEL}" if folder.is_dir() else "is not the folder of a saved model"
        raise ValueError(f"model:{path}: {folder} {what}")
    settings = read_settings(folder, f"model:{path}")
    model = _load_model(folder / MODEL, settings, f"model:{path}")
    return Agent(model, settings, os.fspath(path))


def _no_rate(_progress: float) -> float:
    return 0.0


def _load_model(file: Path, settings: dict[str, Any], name: str) -> BaseAlgorithm:
    package, _, kind = settings["algorithm"].partition(":")
    try:
        algorithm = getattr(import_module(package), kind)
    except (ImportError, AttributeError, ValueError):
        raise ValueError(
            f"{name}: its algorithm {settings['algorithm']} is not here: pip install lbgym[train]"
        ) from None
    # Schedules serve training alone, and pickled functions do not survive a change of Python.
    untold = {"learning_rate": 0.0, "lr_schedule": _no_rate, "clip_range": 0.0}
    try:
        model: BaseAlgorithm = algorithm.load(file, device="cpu", custom_objects=untold)
    except Exception as error:  # whatever a broken zip or pickle raises
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{name}: {file} cannot be loaded ({reason})") from None
    model.policy.set_training_mode(False)
    shape = list(model.observation_space.shape or ())
    if shape != settings["observation_shape"]:
        raise ValueError(
            f"{name}: {MODEL} takes observations of shape {shape}, {SETTINGS} says "
            f"{settings['observation_shape']}"
        )
    return model
