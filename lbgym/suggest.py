"""What an unknown word was probably meant to be."""

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


def nearest(word: object, allowed: Iterable[str]) -> str | None:
    """The allowed word nearest to `word`, or None if none is near. Case is ignored."""
    by_lower = {a.lower(): a for a in allowed}
    matches = get_close_matches(str(word).lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def unknown(what: str, word: object, allowed: Iterable[str]) -> str:
    """One sentence: "unknown <what> 'pul', did you mean 'pull'? (allowed: jsq, pull)"."""
    allowed = list(allowed)
    near = nearest(word, allowed)
    question = f", did you mean {near!r}?" if near is not None else ""
    return f"unknown {what} {word!r}{question} (allowed: {', '.join(allowed)})"


def arguments_of(call: Callable[..., Any]) -> list[str]:
    """Names of the arguments of a method."""
    return [name for name in inspect.signature(call).parameters if name != "self"]


def check_keywords(owner: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    """Raise TypeError for a keyword that there is not, with the nearest that there is."""
    allowed = list(allowed)
    for name in given:
        if name not in allowed:
            shown = [x for x in allowed if not x.startswith("_")]
            raise TypeError(f"{owner}: {unknown('argument', name, shown)}")


def explained(cls: Class) -> Class:
    """A class that says of a misspelt keyword what was probably meant."""
    init = vars(cls)["__init__"]
    allowed = arguments_of(init)

    @functools.wraps(init)
    def explaining(self: Any, *arguments: Any, **keywords: Any) -> None:
        check_keywords(cls.__name__, keywords, allowed)
        init(self, *arguments, **keywords)

    setattr(cls, "__init__", explaining)  # noqa: B010
    return cls
