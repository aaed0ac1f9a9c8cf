"""TOML as text: values written, files read with every fault in one sentence."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any


def toml_value(value: object) -> str:
    """A plain value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml_value(x)}" for key, x in value.items()) + " }"
    return repr(value)  # an int or a finite float: Python's text is TOML's


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file says; ValueError that names the file and the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a text file in UTF-8") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column \d+\)| \(at end of document\)", str(error))
        line = (place and place[1]) or max(1, len(text.splitlines()))
        said = str(error).replace(place[0], "") if place else str(error)
        raise ValueError(f"{path}, line {line}: not valid TOML: {said}") from None
