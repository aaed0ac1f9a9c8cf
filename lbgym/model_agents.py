"""Rules of car sharing and flow networks as agents: they act on observations alone.

As in `lbgym.agents`, an agent owns a *shadow* of the system, fills it from an observation and asks
the same compiled rule that `lbgym.simulate` runs; so it knows what the observation shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.agents import acting_in
from lbgym.engine.layout import POLICY
from lbgym.envs.observation import whole
from lbgym.kinds import kind_of
from lbgym.models.car_engine import USER, CarState
from lbgym.models.car_sharing import CarSharing
from lbgym.models.flow_engine import LEVEL, ROUTE, FlowState
from lbgym.models.flow_network import FlowNetwork


# --- from an observation to the shadow --------------------------------------------------------
def _see_cars(shadow: CarState, seen: dict[str, Any]) -> None:
    """Cars and reservations, the user's station and wish, the stations sampled."""
    w, stations = shadow.world[0], shadow.arrays["stations"]
    w["kind"] = USER
    for name in ("reserved", "parked"):
        if name in seen:
            stations[name] = whole(seen[name])
    for name, mark in (("origin", "from_here"), ("requested", "wanted")):
        if name in seen:
            w[name] = round(float(seen[name]))
        elif mark in seen:
            w[name] = int(np.argmax(seen[mark]))
    for k, offer in enumerate(shadow.arrays["offers"]):
        if "offered" in seen:  # of a station sampled twice the first counts
            places = np.flatnonzero(seen["offered"] == k + 1)
            first = np.flatnonzero(seen["offered"] == 1)[0]
            offer["station"] = places[0] if len(places) else first


def _see_flows(shadow: FlowState, seen: dict[str, Any]) -> None:
    """Flows by class or route, loads of links, and what is to be decided."""
    w, system = shadow.world[0], shadow.system
    w["kind"] = LEVEL if system.level_class is not None else ROUTE
    w["klass"] = system.route_classes[0] if system.route_classes else -1
    if "class" in seen:
        w["klass"] = round(float(seen["class"]))
    if "flows" in seen:
        shadow.arrays["classes"]["flows"] = whole(seen["flows"])
        if not system.route_classes:
            shadow.arrays["groups"]["flows"] = shadow.arrays["classes"]["flows"]
    if "route_flows" in seen:
        shadow.arrays["groups"]["flows"] = whole(seen["route_flows"])
    if "link_load" in seen:
        load = np.asarray(seen["link_load"], np.float64)
        links = shadow.arrays["links"]
        links["input"] = links["capacity"] * load / np.maximum(1 - load, 2.0**-24)


_SEE: dict[str, Any] = {CarSharing.KIND: _see_cars, FlowNetwork.KIND: _see_flows}
_STATES: dict[str, Any] = {CarSharing.KIND: CarState, FlowNetwork.KIND: FlowState}
_INSTEAD = {"origin": "from_here", "requested": "wanted", "flows": "route_flows"}


# --- the agent ----------------------------------------------------------------------------------
class ModelAgent:
    """The agent of a rule: ``action, state = agent.predict(obs, state, episode_start)``.

    Parameters
    ----------
    rule : Rule
    env
        The environment whose observations it will see (Gymnasium's or SB3's, single or vector).

    With one environment and single observations the rule's coins come from the environment's policy
    stream, so that one seed gives the trajectory of `lbgym.simulate`; otherwise from the agent's
    own (`seed`). ``agent.environment``: the arguments of an environment that it can act in.

    Under car sharing's ``action="incentive"`` there are two agents: `requested` always accepts the
    wish, `two-choice` always offers, which is the same in law as two stations drawn uniformly.

    Raises
    ------
    ValueError
        Names what the environment would have to show, or what else does not fit.
    """

    def __init__(self, rule: Any, env: Any = None) -> None:
        if env is None:
            raise ValueError(f"{rule.name}: an agent needs the environment that it will act in")
        task, self._env = acting_in(env)
        self.policy, self.name, self.information = rule, rule.name, rule.information
        _check_fit(rule, task)
        self._task = task
        self._see = _SEE[kind_of(rule.system).name]
        self._shadow = _STATES[kind_of(rule.system).name].under(rule)
        self.environment = {"observe": [*task.columns, *task.context], "action": task.action}
        self.seed(0)
        self._shadow.begin("empty")
        self._rule = self.policy.ready()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_rule"}

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self._rule = self.policy.ready()

    def seed(self, seed: int | None = None) -> None:
        """Seed the agent's own stream of coins."""
        self._shadow.seed(np.random.default_rng(seed))

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """Actions for one observation (width,) or several (rows, width); no memory is kept.

        `deterministic` changes nothing: a rule's coins are part of it.
        """
        obs = np.asarray(observation, np.float32)
        if obs.ndim not in (1, 2):
            raise ValueError(f"observation: must have 1 or 2 dimensions, got shape {obs.shape}")
        if obs.ndim == 2:
            return np.array([self._answer(one) for one in obs], np.int64), None
        if self._env is None:
            return np.int64(self._answer(obs)), None
        mine = self._shadow.arrays["streams"].view(np.uint64).reshape(-1, 4)[POLICY]
        theirs = self._env.policy_stream
        own = mine.copy()
        mine[...] = theirs
        action = self._answer(obs)
        theirs[...] = mine
        mine[...] = own
        return np.int64(action), None

    def _answer(self, observation: NDArray[np.float32]) -> int:
        if self._task.action == "incentive":
            return _INCENTIVE[self.name]
        self._see(self._shadow, self._task.shown.table(observation))
        return int(self._rule(self._shadow.world.view(np.recarray)[0]))


# Where an action accepts the user's wish or sends the user to the emptier of the wish and an offer.
_INCENTIVE = {"requested": 0, "two-choice": 1}


def _check_incentive(rule: Any, system: CarSharing) -> None:
    """Raise ValueError unless the rule can be said by accepting and offering."""
    if rule.name not in _INCENTIVE:
        raise ValueError(
            f"{rule.name}: may name any station, the environment's actions accept or offer; use "
            f"action='operator', or one of {', '.join(_INCENTIVE)}"
        )
    if rule.name == "two-choice" and system.destinations is not None:
        raise ValueError(
            "two-choice: takes two uniform stations, but here the users' wishes are not uniform "
            "(destinations), and offers go beside a wish; use action='operator'"
        )


def _check_fit(rule: Any, task: Any) -> None:
    """Raise ValueError unless the environment lets this rule act."""
    if type(task.system) is not type(rule.system):
        raise ValueError(
            f"{rule.name}: was made for {rule.system.describe()}, the environment has "
            f"{task.system.describe()}"
        )
    if task.action == "incentive":
        _check_incentive(rule, task.system)
        return
    shown = (*task.columns, *task.context)
    missing = [c for c in rule.columns if c not in shown and _INSTEAD.get(c) not in shown]
    if rule.information == "user's":
        missing = []
    if missing:
        raise ValueError(
            f"{rule.name}: the environment must also show {', '.join(missing)}; use "
            f"observe={[*shown, *missing]}"
        )
