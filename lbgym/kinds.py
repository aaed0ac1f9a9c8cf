"""The kinds of systems in one table: what each is called, and where its parts are.

Whatever takes any system asks here which functions answer for its kind, so a new kind is one entry.
Places are ``module:name``, imported when first asked for.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from lbgym.checks import quoted
from lbgym.suggest import unknown
from lbgym.toml_text import read_toml

__all__ = ["KINDS", "Kind", "by_kind", "kind_of", "read"]

Front = TypeVar("Front", bound=Callable[..., Any])


@dataclass(frozen=True)
class Kind:
    """A row of the table.

    name : the value of "kind" in a system's dict
    words : its name in a sentence
    system : its class, with ``from_dict`` and ``from_toml``
    rules : module of its policies: ``make(policy, system)``, ``families()``, ``names()`` and, for
        comparisons, ``usual(system)``
    theory : module of its theory: functions named as in `lbgym.theory`
    environment : its environment
    measures : what tables say of it (see `lbgym.measures`)
    """

    name: str
    words: str
    system: str
    rules: str
    theory: str
    environment: str
    measures: str

    def part(self, field: str) -> Any:
        """What stands at the place that a field names."""
        module, _, name = getattr(self, field).partition(":")
        return getattr(import_module(module), name) if name else import_module(module)


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "dispatch",
            "dispatching systems",
            "lbgym.system:System",
            "lbgym.policies.registry",
            "lbgym.theory",
            "lbgym.envs:DispatchEnv",
            "lbgym.measures:DISPATCH",
        ),
        Kind(
            "car-sharing",
            "car sharing",
            "lbgym.models:CarSharing",
            "lbgym.models.car_engine",
            "lbgym.theory.car_sharing",
            "lbgym.envs:CarSharingEnv",
            "lbgym.measures:CARS",
        ),
        Kind(
            "flow-network",
            "flow networks",
            "lbgym.models:FlowNetwork",
            "lbgym.models.flow_engine",
            "lbgym.theory.flow_network",
            "lbgym.envs:FlowNetworkEnv",
            "lbgym.measures:FLOWS",
        ),
    )
}


def kind_of(system: Any) -> Kind:
    """The kind of a system."""
    return KINDS[system.KIND]


def _class_of(data: Mapping[str, Any]) -> Any:
    name = data.get("kind", "dispatch")
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"kind: {unknown('kind of system', name, KINDS)}")
    return KINDS[name].part("system")


def read(thing: object) -> Any:
    """The system meant by an object, its dict, a scenario's name or the path of a TOML file."""
    from lbgym import scenarios  # scenarios are made of systems

    if isinstance(thing, tuple(kind.part("system") for kind in KINDS.values())):
        return thing
    if isinstance(thing, Mapping):
        return _class_of(thing).from_dict(thing)
    if isinstance(thing, PathLike) or (isinstance(thing, str) and thing.lower().endswith(".toml")):
        try:
            kind = _class_of(read_toml(Path(thing)))
        except ValueError as error:
            text = str(error)
            raise ValueError(text if text.startswith(str(thing)) else f"{thing}: {text}") from None
        return kind.from_toml(thing)
    if isinstance(thing, str):
        return scenarios.get(thing)
    raise ValueError(
        "system: must be a System, CarSharing or FlowNetwork, its dict, a scenario's name or the "
        f"path of a .toml file, got {quoted(thing)}"
    )


# --- theory ---------------------------------------------------------------------------------------
_FRONTS: dict[str, None] = {}  # names of the functions that `by_kind` has marked


def by_kind(function: Front) -> Front:
    """Mark a function of theory ``(system, ...)`` written for dispatching systems: a system of
    another kind goes to the function of the same name in the theory of its kind.

    Of the other arguments those that are given must be arguments of that function too.
    """
    name, signature = function.__name__, inspect.signature(function)
    _FRONTS[name] = None

    @functools.wraps(function)
    def front(*arguments: Any, **keywords: Any) -> Any:
        given = signature.bind_partial(*arguments, **keywords).arguments
        if "system" not in given:
            raise TypeError(f"{name}: needs a system")
        system = read(given.pop("system"))
        kind = kind_of(system)
        if kind.name == "dispatch":
            if "policy" in signature.parameters and "policy" not in given:
                raise TypeError(f"{name}: needs a policy, one of {_policies(kind)}")
            return function(system, **given)
        answer = getattr(kind.part("theory"), name, None)
        if answer is None:
            raise ValueError(f"{name}: none is known for {kind.words}; {_instead(kind)}")
        defaults = signature.parameters
        wanted = {k: x for k, x in given.items() if not _same(x, defaults[k].default)}
        for key in wanted:
            if key not in inspect.signature(answer).parameters:
                raise ValueError(f"{name}: {key} means nothing for {kind.words}; leave it out")
        return answer(system, **wanted)

    return front  # type: ignore[return-value]


def _same(value: Any, default: Any) -> bool:
    """Whether an argument is its default, written out or not."""
    return value is default or (type(value) is type(default) and bool(value == default))


def _policies(kind: Kind) -> str:
    return ", ".join(kind.part("rules").names())


def _instead(kind: Kind) -> str:
    """What theory there is for a kind."""
    known = [name for name in sorted(_FRONTS) if hasattr(kind.part("theory"), name)]
    return f"use {', '.join(known)} or simulate"
