"""Each router is an agent: a PettingZoo environment in which they take turns as jobs arrive.

>>> from lbgym.envs import multiagent
>>> env = multiagent.env(system="flagship")  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lbgym.suggest import unknown
from lbgym.system import System, as_system

from .desk import show_once
from .dispatch import DispatchEnv
from .reward import RESPONSE
from .task import whole

try:
    from pettingzoo import AECEnv, ParallelEnv
    from pettingzoo.utils.conversions import turn_based_aec_to_parallel
    from pettingzoo.utils.wrappers import OrderEnforcingWrapper
except ImportError as error:
    raise ImportError(
        f"routers as agents need PettingZoo ({error}): pip install lbgym[multiagent]"
    ) from None

Obs = NDArray[np.float32]

# What a router knows when it has no job: its messages and memory, the last read, fixed properties.
_KNOWN = (
    *("message", "message_order", "message_age", "sent", "sent_age", "backlog"),
    *("sent_since_read", "last_probe", "sent_since_probe", "probe_age"),
    *("read", "read_age", "speed", "limit", "capacity", "server", "router"),
)


def env(**arguments: Any) -> AECEnv[str, Obs, int]:
    """`RouterEnv` that also says when it is called in the wrong order."""
    return OrderEnforcingWrapper(RouterEnv(**arguments))


def parallel_env(**arguments: Any) -> ParallelEnv[str, Obs, int]:
    """`RouterEnv` by PettingZoo's turn-based conversion: of all actions the turn's one counts."""
    return turn_based_aec_to_parallel(RouterEnv(**arguments))


class RouterEnv(AECEnv[str, Obs, int]):  # type: ignore[misc]
    """The routers of `lbgym/MultiRouter-v0` as agents; equal actions give an equal trajectory.

    ## Turns
    `agent_selection` is the router whose job has arrived: who acts is chance, not a cycle. An
    episode ends for all at once; each agent then gets its last view, and None is its last action.

    ## Observation
    That router's own view, as in ``lbgym/MultiRouter-v0``. Between its turns `observe` shows what a
    router without a job knows: what only an arrival tells (live or sampled queues, the job's
    class) is 0.

    ## Reward
    With ``reward="response"`` (the default) a router is paid for its own jobs alone, at once. With
    any other form the reward since the last decision, of whomever, is paid to every agent: they
    share the cost. `last` gives what has added up since the agent's last turn, as always in
    PettingZoo.

    ## Arguments
    max_cycles : int, optional
        Turns of an episode per router, on average: an episode has ``max_cycles`` times the number
        of routers arrivals. Instead of ``horizon_arrivals``.
    others
        Those of ``lbgym/MultiRouter-v0``. Jobs must not migrate: a resampling is no router's.
        `reset` takes the option ``queue_lengths``; PettingZoo lets it ignore others.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "lbgym_routers_v0",
        "render_modes": DispatchEnv.metadata["render_modes"],
        "render_fps": DispatchEnv.metadata["render_fps"],
        "is_parallelizable": True,
    }

    def __init__(self, *, max_cycles: int | None = None, **arguments: Any) -> None:
        super().__init__()
        if max_cycles is not None:
            arguments["horizon_arrivals"] = _arrivals(max_cycles, arguments)
        self.single = DispatchEnv(**arguments)
        system: System = self.single.system
        if system.migrates:
            raise ValueError("system: its jobs migrate, and a resampling is no router's decision")
        self.render_mode = self.single.render_mode
        self.possible_agents = [f"router_{k}" for k in range(system.router_count)]
        self.agents: list[str] = []
        self._spaces = {
            agent: (deepcopy(self.single.observation_space), deepcopy(self.single.action_space))
            for agent in self.possible_agents
        }
        self._shared = self.single.task.prices(system)["form"][0] != RESPONSE
        self._hidden = _hidden(self.single)

    def observation_space(self, agent: str) -> Any:
        """The same for all, each with random numbers of its own."""
        return self._spaces[self._named(agent)][0]

    def action_space(self, agent: str) -> Any:
        """The same for all, each with random numbers of its own."""
        return self._spaces[self._named(agent)][1]

    # --- PettingZoo's methods -----------------------------------------------------------------
    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """A new trajectory, up to the first job."""
        known = {k: v for k, v in (options or {}).items() if k == "queue_lengths"}
        self._seen, info = self.single.reset(seed=seed, options=known)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._skip_agent_selection = None
        self._turn(info)

    def step(self, action: Any) -> None:
        """Place the job of the router whose turn it is; None once the episode is over."""
        agent = self.agent_selection
        if self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._seen, reward, _, truncated, info = self.single.step(action)
        self._cumulative_rewards[agent] = 0.0
        paid = self.agents if self._shared else (agent,)
        self.rewards = {one: reward if one in paid else 0.0 for one in self.agents}
        self._accumulate_rewards()
        if truncated:
            self.truncations = dict.fromkeys(self.agents, True)
        self._turn(info)

    def observe(self, agent: str) -> Obs:
        """What a router knows now."""
        acting = self._acting
        self._named(agent)
        if agent == self.possible_agents[acting]:
            return self._seen.copy()
        world, desk = self.single._state.world[0], self.single._row.desk[0]
        seen, place = np.empty(self.single.task.width, np.float32), int(desk["at_row"])
        world["router"], desk["at_row"] = self.possible_agents.index(agent), seen.ctypes.data
        show_once(self.single._row.address)
        world["router"], desk["at_row"] = acting, place
        seen[self._hidden] = 0.0
        return seen

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions the router whose turn it is may take."""
        return self.single.action_masks()

    def render(self) -> Any:
        """As the single environment."""
        return self.single.render()

    def close(self) -> None:
        """No further steps; may be called twice."""
        self.single.close()

    def _named(self, agent: str) -> str:
        """The agent itself; ValueError if there is none of that name."""
        if agent not in self._spaces:
            raise ValueError(f"agent: {unknown('agent', agent, self.possible_agents)}")
        return agent

    def _turn(self, info: dict[str, Any]) -> None:
        """It is the turn of the router whose job waits; the others are told nothing."""
        self._acting = int(self.single._state.world[0]["router"])
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = self.possible_agents[self._acting]
        self.infos[self.agent_selection] = info


def _arrivals(max_cycles: Any, arguments: Mapping[str, Any]) -> int:
    """The horizon that `max_cycles` means."""
    if arguments.get("horizon_arrivals") is not None:
        raise ValueError("max_cycles: means horizon_arrivals too; give one of the two")
    system = arguments.get("system")
    system = as_system(DispatchEnv.defaults["system"] if system is None else system)
    return whole("max_cycles", max_cycles, 1) * int(system.router_count)


def _hidden(single: DispatchEnv) -> NDArray[np.bool_]:
    """The numbers of an observation that only an arriving job tells."""
    rows = int(single.action_space.n)
    by_row = "candidate" not in single.action  # a table of sampled servers is about one job
    known = [np.full(rows, by_row and name in _KNOWN) for name in single.columns]
    return ~np.concatenate([*known, np.array([name in _KNOWN for name in single.context], bool)])
