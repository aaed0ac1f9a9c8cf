"""What an unknown word was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches


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
