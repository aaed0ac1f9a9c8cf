"""A script's arguments: one dataclass is its command line and its settings file.

Each field is made by `argument(default, help)`; the class is read by `read`.
"""

import argparse
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import Any, TypeVar

from lbgym.suggest import unknown

T = TypeVar("T")
Values = dict[str, Any]


def argument(default: Any, help: str) -> Any:
    """A field with its help."""
    if isinstance(default, dict | list):
        return field(default_factory=default.copy, metadata={"help": help})
    return field(default=default, metadata={"help": help})


def add_arguments(parser: argparse.ArgumentParser, kind: type) -> None:
    """An option for each field; what is not given stays out of the result."""
    for f in fields(kind):
        default = f.default_factory() if f.default is MISSING else f.default  # type: ignore[misc]
        text = f.metadata["help"] + (f" (default: {_shown(default)})" if default else "")
        parser.add_argument(
            "--" + f.name.replace("_", "-"),
            dest=f.name,
            type=_reader(f),
            nargs="*" if f.type == list[str] else None,
            default=argparse.SUPPRESS,
            metavar={dict: "JSON"}.get(_plain(f), f.name.upper()),
            help=text.replace("%", "%%"),
        )


def _shown(default: Any) -> str:
    return "; ".join(default) if isinstance(default, list) else str(default)


def _plain(f: Field[Any]) -> type:
    """int, float, str, list or dict."""
    plain: type = getattr(f.type, "__origin__", f.type)
    return plain


def _reader(f: Field[Any]) -> Callable[[str], Any]:
    """What turns a word of the command line into the field's value."""
    if _plain(f) is list:
        return str
    return _json_object if _plain(f) is dict else _plain(f)


def _json_object(text: str) -> Values:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object, got {text!r}")
    return value


def from_file(path: str, kind: type) -> Values:
    """Values from a TOML file; ValueError if it is broken or names what `kind` lacks."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        values = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ValueError(f"settings {path}: cannot be read ({error})") from None
    return checked(values, kind, f"settings {path}")


def checked(values: Mapping[str, Any], kind: type, where: str) -> Values:
    """The values, if `kind` has fields of these names and types."""
    known = {f.name: _plain(f) for f in fields(kind)}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"{where}: {unknown('argument', name, known)}")
        takes = int | float if known[name] is float else known[name]
        if isinstance(value, bool) or not isinstance(value, takes):
            raise ValueError(f"{where}: {name} must be {_NAMES[known[name]]}, got {value!r}")
    return dict(values)


_NAMES = {int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "a table"}


def read(parser: argparse.ArgumentParser, kind: type, words: Sequence[str] | None) -> Values:
    """Command line over settings file (option --settings); also the parser's other options."""
    add_arguments(parser, kind)
    parser.add_argument("--settings", metavar="FILE", help="TOML file with any of the above")
    given = vars(parser.parse_args(words))
    settings = given.pop("settings")
    return {**(from_file(settings, kind) if settings else {}), **given}
