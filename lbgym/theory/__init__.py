"""Theory: exact solutions, limits, stability and the optimum, to check and to score with.

All take any kind of system and say in one sentence what there is instead, where nothing is known.

- `exact`: the stationary numbers of a small system under a named policy
- `mean_field`: the limit of many servers or stations; `ou_covariance`: fluctuations about it
- `critical_load`: up to which load a policy is stable; `growth`: how fast it fails beyond
- `optimal`: the best policy with full information; `lower_bound`: what none can beat
- `fleet`: how many cars a car-sharing system should have
- `closed_form`: formulas for single queues and limits
- `plot_switching_curve`: where a policy sends jobs on two servers
"""

from . import closed_form
from .bound import LowerBound, lower_bound
from .exact import exact
from .fleet import Fleet, fleet
from .mean_field import Fluctuations, MeanField, mean_field, ou_covariance
from .optimal import Optimal, optimal
from .optimal_loss import OptimalLoss
from .plots import plot_switching_curve, switching_curve
from .result import Exact
from .stability import critical_load, growth

__all__ = [
    "Exact",
    "Fleet",
    "Fluctuations",
    "LowerBound",
    "MeanField",
    "Optimal",
    "OptimalLoss",
    "closed_form",
    "critical_load",
    "exact",
    "fleet",
    "growth",
    "lower_bound",
    "mean_field",
    "optimal",
    "ou_covariance",
    "plot_switching_curve",
    "switching_curve",
]
