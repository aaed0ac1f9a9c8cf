"""The two systems that are not jobs at servers: car sharing and flow networks.

`CarSharing` and `FlowNetwork` are data, as `System` is; `car_engine` and `flow_engine` move them
from decision to decision, `runs` puts them behind `lbgym.simulate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from lbgym.toml_text import read_toml

from .car_sharing import CarSharing
from .flow_network import Flow, FlowNetwork

__all__ = ["KINDS", "CarSharing", "Flow", "FlowNetwork", "as_model"]

KINDS: dict[str, type[CarSharing] | type[FlowNetwork]] = {
    kind.KIND: kind for kind in (CarSharing, FlowNetwork)
}


def as_model(thing: object) -> CarSharing | FlowNetwork | None:
    """The car-sharing system or flow network meant by the object, its dict, a scenario's name or
    the path of a TOML file; None if it is something else (see `lbgym.as_system`)."""
    from lbgym.scenarios import SCENARIOS  # scenarios are made of systems

    if isinstance(thing, CarSharing | FlowNetwork):
        return thing
    if isinstance(thing, str) and thing in SCENARIOS:
        return as_model(SCENARIOS[thing].system)
    if isinstance(thing, Mapping):
        kind = KINDS.get(str(thing.get("kind")))
        return None if kind is None else kind.from_dict(thing)
    if isinstance(thing, PathLike) or (isinstance(thing, str) and thing.lower().endswith(".toml")):
        kind = KINDS.get(str(read_toml(Path(thing)).get("kind")))
        return None if kind is None else kind.from_toml(thing)
    return None
