"""lbgym: load balancing as a learning problem.

>>> import gymnasium as gym, lbgym
>>> env = gym.make("lbgym/MultiRouter-v0")

A `System` is data; an engine moves it from decision to decision; the environments, the classical
policies and `simulate` are views of those two.
"""

from gymnasium.envs.registration import register, registry

from lbgym import policies, scenarios
from lbgym._version import __version__
from lbgym.system import JobClass, Pool, System, as_system

__all__ = [
    "JobClass",
    "Pool",
    "System",
    "__version__",
    "as_system",
    "policies",
    "scenarios",
]

ENVIRONMENTS = {"lbgym/MultiRouter-v0": "lbgym.envs.dispatch:DispatchEnv"}

for _id, _entry_point in ENVIRONMENTS.items():
    if _id not in registry:
        register(id=_id, entry_point=_entry_point)
