"""Simulating an agent: many environments side by side, one batched `predict` for all of them."""

from __future__ import annotations

from typing import Any


def as_agent(policy: Any) -> Any:
    """The agent meant by `policy`, or None when it is a rule."""
    return policy if hasattr(policy, "predict") else None


class AgentGroup:
    pass
