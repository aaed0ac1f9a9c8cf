"""Simulating agents: environments side by side, and one batched `predict` for all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lbgym.kinds import kind_of
from lbgym.models.runs import ModelTrack
from lbgym.system import System
from lbgym.track import Track

_REPORT_EVERY = 1000  # decisions
_OURS = {"info", "horizon_time", "system"}  # arguments that an agent has no say in


def as_agent(policy: Any) -> Any:
    """The agent meant by an object with `predict` or ``"model:PATH"``; None for a rule."""
    if isinstance(policy, str) and policy.startswith("model:"):
        from lbgym.sb3 import load_agent

        return load_agent(policy.removeprefix("model:"))
    return policy if hasattr(policy, "predict") else None


class AgentRun:
    """One replication of an agent in its own environment."""

    def __init__(self, env: Any, generator: np.random.Generator):
        self.env = env
        env.np_random = generator
        self.observation, _ = env.reset()
        self.state: Any = env._state
        self.track: Any = Track() if isinstance(env.system, System) else ModelTrack()
        self.next_boundary = 0

    def note(self, boundaries: Sequence[int]) -> None:
        """Note every boundary that the run has just reached."""
        arrivals = self.state.world[0]["arrivals"]
        while self.next_boundary < len(boundaries) and arrivals >= boundaries[self.next_boundary]:
            self.track.note(self.state)
            self.next_boundary += 1


class AgentGroup:
    """Replications of an agent.

    An agent of a classical policy acts in each environment on its own, so that it draws from that
    environment's policy stream; any other agent decides for all environments in one call. It may
    say what its environment must be like (``agent.environment``: keyword arguments;
    ``agent.check(env)`` raises ValueError if it does not fit), that it wants to draw its actions
    (``agent.deterministic = False``), that it wants `action_masks` (``agent.masked = True``), and
    its ``name``.
    """

    def __init__(
        self,
        system: Any,
        agent: Any,
        generators: Sequence[np.random.Generator],
        options: dict[str, Any],
    ):
        kind = kind_of(system).part("environment")
        wanted = {**getattr(agent, "environment", {}), **options, "horizon_arrivals": -1}
        known = set(inspect.signature(kind.TASK.__init__).parameters)
        wanted = {
            k: v for k, v in wanted.items() if k in known - {"info", "horizon_time", "system"}
        }
        self.agent = agent
        self.name = str(getattr(agent, "name", type(agent).__name__))
        try:
            self.runs = [AgentRun(kind(system, **wanted), g) for g in generators]
        except ValueError as error:
            raise ValueError(f"{self.name}: does not fit {system.describe()}: {error}") from None
        if hasattr(agent, "check"):
            agent.check(self.runs[0].env)
        self.information = str(getattr(agent, "information", "what its environment shows"))
        self.deterministic = bool(getattr(agent, "deterministic", True))
        policy: Any = getattr(agent, "policy", None)
        self.own = [policy.agent(run.env) for run in self.runs] if hasattr(policy, "agent") else []
        self.memory: Any = [None] * len(self.runs) if self.own else None
        self.starts = np.ones(len(self.runs), dtype=bool)

    def _actions(self) -> Any:
        observations = [run.observation for run in self.runs]
        if self.own:
            actions = []
            for k, agent in enumerate(self.own):
                action, self.memory[k] = agent.predict(observations[k], self.memory[k])
                actions.append(action)
            return actions
        masks = {}
        if getattr(self.agent, "masked", False):
            masks = {"action_masks": np.stack([run.env.action_masks() for run in self.runs])}
        actions, self.memory = self.agent.predict(
            np.stack(observations),
            state=self.memory,
            episode_start=self.starts,
            deterministic=self.deterministic,
            **masks,
        )
        self.starts = np.zeros(len(self.runs), dtype=bool)
        return actions

    def run_batches(self, boundaries: Sequence[int], progress: Callable[[int], None]) -> None:
        """All runs, in step, to all boundaries."""
        reported, decisions = self._arrivals(), 0
        for run in self.runs:
            run.next_boundary = 0
            run.note(boundaries)
        while any(run.next_boundary < len(boundaries) for run in self.runs):
            for run, action in zip(self.runs, self._actions(), strict=True):
                run.observation, _, _, truncated, info = run.env.step(int(action))
                if truncated and "overload" in info:
                    self._overload(run)
                    return
                run.note(boundaries)
            decisions += 1
            if decisions % _REPORT_EVERY == 0:
                progress(self._arrivals() - reported)
                reported = self._arrivals()
        progress(self._arrivals() - reported)

    def _overload(self, overloaded: AgentRun) -> None:
        """One run holds too many jobs: all end here."""
        for run in self.runs:
            if run is overloaded:
                run.track.note_overload(run.state)
            else:
                run.track.note(run.state)

    def _arrivals(self) -> int:
        return sum(int(run.state.world[0]["arrivals"]) for run in self.runs)
