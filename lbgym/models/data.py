"""What the systems of this package have in common as data: checks, dicts and texts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from lbgym.checks import quoted
from lbgym.suggest import unknown
from lbgym.toml_text import read_toml, toml_value

Value = TypeVar("Value")
Check = Callable[[str, object], Value]


# --- checks: the value in plain Python types, or one clear ValueError -----------------------------
def is_list(value: object) -> bool:
    """Whether a value is meant to be several."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def listed(
    field: str, value: Any, check: Check[Value], length: int | None = None
) -> tuple[Value, ...]:
    """A list whose every element passes the check."""
    if not is_list(value):
        raise ValueError(f"{field}: must be a list, got {quoted(value)}")
    found = tuple(check(f"{field}[{k}]", item) for k, item in enumerate(value))
    if length is not None and len(found) != length:
        raise ValueError(f"{field}: must have {length} values, got {len(found)}")
    return found


def one_or_each(
    field: str, value: Any, check: Check[Value], length: int, what: str
) -> Value | tuple[Value, ...]:
    """One value for all, or a list with one for each of `length` things."""
    if not is_list(value):
        return check(field, value)
    found = listed(field, value, check)
    if len(found) != length:
        raise ValueError(
            f"{field}: must be one value or one for each of the {length} {what}, got {len(found)}"
        )
    return found


def spread(value: Value | tuple[Value, ...], length: int) -> tuple[Value, ...]:
    """One value for each."""
    return value if isinstance(value, tuple) else (value,) * length


# --- data -----------------------------------------------------------------------------------------
class Data:
    """A frozen dataclass as a dict and as text: its fields that are not at their defaults."""

    KIND: ClassVar[str] = ""
    TABLES: ClassVar[tuple[str, ...]] = ()  # fields that are lists of dicts

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold: "kind" and every field that is not at its default."""
        data: dict[str, Any] = {"kind": self.KIND} if self.KIND else {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is MISSING or value != field.default:
                data[field.name] = plain(value)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What `to_dict` wrote; "kind" may be left out."""
        if not isinstance(data, Mapping):
            raise ValueError(f"system: must be a dict, got {quoted(data)}")
        given = dict(data)
        kind = given.pop("kind", cls.KIND)
        if kind != cls.KIND:
            raise ValueError(f"kind: must be {cls.KIND!r}, got {quoted(kind)}")
        fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        for name in given:
            if name not in fields:
                raise ValueError(unknown("field", name, ["kind", *fields] if cls.KIND else fields))
        for name, field in fields.items():
            if field.default is MISSING and name not in given:
                raise ValueError(f"{name}: required")
        return cls(**given)

    def to_json(self) -> str:
        """`to_dict` as JSON on one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_toml(self) -> str:
        """`to_dict` as the text of a TOML file, which `from_toml` reads."""
        data = self.to_dict()
        tables = {key: data.pop(key) for key in self.TABLES if key in data}
        lines = [f"{key} = {toml_value(value)}" for key, value in data.items()]
        for key, rows in tables.items():
            for row in rows:
                lines += ["", f"[[{key}]]", *(f"{k} = {toml_value(v)}" for k, v in row.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Self:
        """The system written in a TOML file; every fault in it is a ValueError that names it."""
        try:
            return cls.from_dict(read_toml(Path(path)))
        except ValueError as error:
            text = str(error)
            raise ValueError(text if text.startswith(str(path)) else f"{path}: {text}") from None

    def __repr__(self) -> str:
        data = Data.to_dict(self)
        data.pop("kind", None)
        shown = ((key, getattr(self, key)) for key in data)
        arguments = ", ".join(
            f"{key}={list(x) if isinstance(x, tuple) else x!r}" for key, x in shown
        )
        return f"{type(self).__name__}({arguments})"


def plain(value: Any) -> Any:
    """Tuples as lists and parts as dicts, all the way down."""
    if isinstance(value, Data):
        return value.to_dict()
    return [plain(x) for x in value] if isinstance(value, tuple) else value
