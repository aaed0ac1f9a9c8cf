"""The two systems that are not jobs at servers: car sharing and flow networks.

`CarSharing` and `FlowNetwork` are data, as `System` is; `car_engine` and `flow_engine` move them
from decision to decision, `runs` puts them behind `lbgym.simulate`.
"""

from .car_sharing import CarSharing
from .flow_network import Flow, FlowNetwork

__all__ = ["CarSharing", "Flow", "FlowNetwork"]
