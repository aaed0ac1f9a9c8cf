"""Pictures of policies on two servers. Needs matplotlib (``pip install 'lbgym[report]'``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.checks import integer
from lbgym.system import System, as_system

from .result import Exact
from .rules import plan

_LONGEST = 2_000  # queue on a picture


def switching_curve(system: Any, policy: Any, longest: int = 20) -> NDArray[np.int64]:
    """For q_1 = 0 .. longest, the least q_0 at which a job goes to server 1; longest + 1 if none.

    Shape (longest + 1,), longest at most 2,000. A random tie counts as going to server 1.
    """
    share = shares_of_second(as_system(system), policy, longest)
    goes = share > 0
    return np.where(goes.any(axis=0), goes.argmax(axis=0), longest + 1)


def shares_of_second(system: System, policy: Any, longest: int) -> NDArray[np.float64]:
    """The probability of server 1 at each (q_0, q_1) up to `longest`; shape (longest + 1,) * 2."""
    longest = integer("longest", longest, most=_LONGEST)
    if system.servers != 2:
        raise ValueError(f"a switching curve needs two servers, the system has {system.servers}")
    the_plan = plan(system, policy.policy if isinstance(policy, Exact) else policy)
    if the_plan.messages:
        raise ValueError(
            f"{the_plan.name} has no switching curve: it goes by messages, not by queue lengths"
        )
    grid = np.indices((longest + 1, longest + 1)).reshape(2, -1).T
    shares, _ = the_plan.place.shares(grid, None)
    return np.asarray(shares[:, 1].reshape(longest + 1, longest + 1))


def plot_switching_curve(system: Any, *policies: Any, longest: int = 20, axes: Any = None) -> Any:
    """Draw where policies send a job on two servers: to server 1 above the curve, below to 0.

    policies : names, or results of `optimal`; returns the matplotlib axes.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError(
            "plotting needs matplotlib; install it with: pip install 'lbgym[report]'"
        ) from None
    system = as_system(system)
    axes = pyplot.subplots()[1] if axes is None else axes
    for k, policy in enumerate(policies):
        shown = policy.policy if isinstance(policy, Exact) else policy
        curve = switching_curve(system, policy, longest) - 0.5
        steps = np.append(curve, curve[-1])
        name = getattr(shown, "name", str(shown))
        edges = np.arange(longest + 2) - 0.5
        axes.step(edges, steps, where="post", label=name, linewidth=2 - 0.3 * min(k, 4))
    speeds = system.speeds
    axes.set_xlabel(f"queue of server 1 (speed {speeds[1]:g})")
    axes.set_ylabel(f"queue of server 0 (speed {speeds[0]:g})")
    axes.set_xlim(-0.5, longest + 0.5)
    axes.set_ylim(-0.5, longest + 0.5)
    axes.legend()
    return axes
