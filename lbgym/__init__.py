"""lbgym: load balancing as a learning problem.

>>> import gymnasium as gym
>>> import lbgym
>>> env = gym.make("lbgym/MultiRouter-v0")

A `System` is data; an engine moves it from decision to decision; the environments, the classical
policies and `simulate` are views of those two. In another process ``"lbgym:lbgym/MultiRouter-v0"``
imports the package first.
"""

from gymnasium.envs.registration import register, registry

from lbgym import policies, scenarios
from lbgym._version import __version__
from lbgym.models import CarSharing, Flow, FlowNetwork
from lbgym.simulate import Result, compare, simulate
from lbgym.system import JobClass, Pool, System, as_system

__all__ = [
    "ENVIRONMENTS",
    "CarSharing",
    "Flow",
    "FlowNetwork",
    "JobClass",
    "Pool",
    "Result",
    "System",
    "__version__",
    "as_system",
    "compare",
    "policies",
    "scenarios",
    "simulate",
]

ENVIRONMENTS = {
    "lbgym/MultiRouter-v0": "lbgym.envs.dispatch:DispatchEnv",
    "lbgym/StaleInformation-v0": "lbgym.envs.models:StaleInformationEnv",
    "lbgym/Loss-v0": "lbgym.envs.models:LossEnv",
    "lbgym/LocalChoice-v0": "lbgym.envs.models:LocalChoiceEnv",
    "lbgym/LocalSearchOpen-v0": "lbgym.envs.models:LocalSearchOpenEnv",
    "lbgym/LocalSearchClosed-v0": "lbgym.envs.models:LocalSearchClosedEnv",
    "lbgym/CarSharing-v0": "lbgym.envs.car_sharing:CarSharingEnv",
    "lbgym/FlowNetwork-v0": "lbgym.envs.flow_network:FlowNetworkEnv",
}

for _id, _entry_point in ENVIRONMENTS.items():
    if _id not in registry:
        _name = (
            _entry_point.partition(":")[2].removesuffix("Env").replace("Dispatch", "MultiRouter")
        )
        _vector = f"lbgym.envs.vector:{_name}VectorEnv"
        register(id=_id, entry_point=_entry_point, vector_entry_point=_vector)
