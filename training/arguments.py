"""A script's arguments: one dataclass is its command line and its settings file.

Each field is made by `argument(default, help)` and is an int, float, str, Mapping (JSON on the
command line, a table in TOML) or Sequence (of texts).
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any, get_origin

from gymnasium.envs.registration import load_env_creator

import lbgym
from lbgym.cli import whole
from lbgym.suggest import arguments_of, unknown

NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    Mapping: "a table",
    Sequence: "a list of texts",
}
LAST_SEED = 2**32 - 1
# More would exhaust the memory, crash PyTorch or blow the weights up.
MOST = {"threads": 256, "width": 16_384, "steps": 1_000, "n_envs": 65_536, "learning_rate": 1}


def argument(default: Any, help: str) -> Any:
    """A field with its help."""
    told = {"help": help, "default": default}
    if isinstance(default, dict | list):
        return field(default_factory=default.copy, metadata=told)
    return field(default=default, metadata=told)


def _fields(kind: type) -> list[Field[Any]]:
    """Those made by `argument`."""
    return [f for f in fields(kind) if f.metadata]


def kind_of(f: Field[Any]) -> Any:
    """One of `NAMES`."""
    return get_origin(f.type) or f.type


# --- command line ---------------------------------------------------------------------------------
def read(
    parser: argparse.ArgumentParser, kind: type, words: Sequence[str] | None
) -> dict[str, Any]:
    """Values from the command line over those of a settings file, and the parser's own options."""
    for f in _fields(kind):
        _add_option(parser, f)
    parser.add_argument("--settings", metavar="FILE", help="TOML file with any of the above")
    given = vars(parser.parse_args(words))
    settings = given.pop("settings")
    return {**(from_file(settings, kind) if settings else {}), **given}


def _add_option(parser: argparse.ArgumentParser, f: Field[Any]) -> None:
    """The option of a field; if it is not given, it stays out of the result."""
    takes, default = kind_of(f), f.metadata["default"]
    shown = "; ".join(default) if takes is Sequence else default
    text = f.metadata["help"] + (f" (default: {shown})" if shown not in ("", {}) else "")
    parser.add_argument(
        "--" + f.name.replace("_", "-"),
        dest=f.name,
        type=_reader(takes),
        nargs="*" if takes is Sequence else None,
        default=argparse.SUPPRESS,
        metavar={int: "N", float: "X", Mapping: "JSON"}.get(takes, f.name.upper()),
        help=text.replace("%", "%%"),
    )


def _reader(takes: Any) -> Callable[[str], Any]:
    if takes is int:
        return whole(0)
    if takes is Mapping:
        return _json_object
    return float if takes is float else str


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object, got {text!r}")
    return value


# --- files ----------------------------------------------------------------------------------------
def from_file(path: str, kind: type) -> dict[str, Any]:
    """Values from a TOML or JSON file; ValueError if it is broken or does not fit `kind`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        values = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ValueError(f"settings {path}: cannot be read ({error})") from None
    known = {f.name: kind_of(f) for f in _fields(kind)}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"settings {path}: {unknown('argument', name, known)}")
        if not _fits(value, known[name]):
            raise ValueError(f"settings {path}: {name} must be {NAMES[known[name]]}, got {value!r}")
    return dict(values)


def _fits(value: Any, takes: Any) -> bool:
    if takes is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if takes is Sequence:
        return isinstance(value, list) and all(isinstance(x, str) for x in value)
    return isinstance(value, takes) and not isinstance(value, bool)


# --- what does not fit ----------------------------------------------------------------------------
def check_counts(args: Any, least: Mapping[str, int]) -> None:
    """Raise ValueError for a field below what is its least or above `MOST`, and for a seed that is
    none."""
    for name, bound in least.items():
        if getattr(args, name) < bound:
            raise ValueError(f"{name}: must be at least {bound}, got {getattr(args, name)}")
    for name, bound in MOST.items():
        if getattr(args, name, 0) > bound:
            raise ValueError(f"{name}: must be at most {bound:,}, got {getattr(args, name)}")
    seed = getattr(args, "seed", 0)
    if not 0 <= seed <= LAST_SEED:
        raise ValueError(f"seed: must be between 0 and {LAST_SEED}, got {seed}")


def check_environment(env_id: str, given: Mapping[str, Any], own: Sequence[str] = ()) -> None:
    """Raise ValueError for an argument that an environment lacks or that the script says itself."""
    kind: Any = load_env_creator(lbgym.ENVIRONMENTS[env_id])
    known = [x for x in arguments_of(kind.TASK.__init__) if x not in ("defaults", *own)]
    for name in given:
        if name not in known:
            raise ValueError(f"environment: {unknown('argument', name, known)}")


def resumed(stored: Mapping[str, Any], given: Mapping[str, Any], free: Sequence[str]) -> Any:
    """The arguments of a training that goes on: its own, with new values of those in `free`.

    Raises ValueError for a new value of any other: what was trained so far was trained by the old.
    """
    for name, value in given.items():
        if name not in free and value != stored.get(name, value):
            raise ValueError(
                f"resume: {name} was {stored[name]!r} and must stay so, got {value!r} "
                f"(free: {', '.join(free)})"
            )
    return {**stored, **given}


def missing(module: str, said: str) -> BaseException:
    """What to raise for an extra that is not there: a command ends with one line and status 2."""
    if module != "__main__":
        return ImportError(said)
    print(f"training.{Path(sys.argv[0]).stem}: error: {said}", file=sys.stderr)
    return SystemExit(2)
