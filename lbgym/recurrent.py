"""A recurrent policy whose memory is each router's own, for RecurrentPPO of sb3-contrib.

An environment shows its routers' decisions one after another. One hidden state for all of them
would hand each router what the others saw; here every router has its own, and only the one that
decides reads its own and writes it.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import nn

try:
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
except ImportError as error:
    raise ImportError(
        f"recurrent policies need sb3-contrib ({error}): pip install lbgym[train]"
    ) from None

__all__ = ["RouterMemoryPolicy", "router_memory_kwargs"]


class RouterLSTM(nn.Module):
    """An LSTM with a state for each router; called as PyTorch's own.

    routers : how many states
    router_at : which number of an observation names the router; it chooses the state and is not an
        input. None: there is one router.
    """

    def __init__(self, numbers: int, routers: int, router_at: int | None, width: int) -> None:
        super().__init__()
        self.routers, self.router_at, self.width = routers, router_at, width
        self.input_size, self.hidden_size, self.num_layers = numbers, routers * width, 1
        inputs = [k for k in range(numbers) if k != router_at]
        self.register_buffer("inputs", torch.tensor(inputs), persistent=False)
        self.cell = nn.LSTMCell(len(inputs), width)

    def forward(
        self, shown: torch.Tensor, states: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Observations (steps, rows, numbers), states (1, rows, routers x width) -> outputs
        (steps, rows, width) and states."""
        rows = shown.shape[1]
        hidden, cell = (state.reshape(rows, self.routers, self.width) for state in states)
        outputs = []
        for step in shown:
            own = self._router(step).view(-1, 1, 1).expand(-1, 1, self.width)
            before = (hidden.gather(1, own).squeeze(1), cell.gather(1, own).squeeze(1))
            output, kept = self.cell(step[:, self.inputs], before)
            hidden = hidden.scatter(1, own, output.unsqueeze(1))
            cell = cell.scatter(1, own, kept.unsqueeze(1))
            outputs.append(output)
        flat = (hidden.reshape(1, rows, -1), cell.reshape(1, rows, -1))
        return torch.stack(outputs), flat

    def _router(self, step: torch.Tensor) -> torch.Tensor:
        if self.router_at is None:
            return torch.zeros(len(step), dtype=torch.long, device=step.device)
        return step[:, self.router_at].long()


class RouterMemoryPolicy(RecurrentActorCriticPolicy):
    """Policy for RecurrentPPO with a memory for each router.

    >>> RecurrentPPO(
    ...     RouterMemoryPolicy, env, policy_kwargs=router_memory_kwargs(env)
    ... )  # doctest: +SKIP

    Parameters
    ----------
    routers, router_at : int
        As `router_memory_kwargs` reads them off an environment.
    width : int
        Of the memory and of the layer after it.
    """

    def __init__(
        self,
        observation_space: spaces.Box,
        action_space: spaces.Discrete,
        lr_schedule: Any,
        *,
        routers: int,
        router_at: int | None,
        width: int = 32,
        **others: Any,
    ) -> None:
        others = {"net_arch": [width], "lstm_hidden_size": width, **others}
        super().__init__(observation_space, action_space, lr_schedule, **others)
        for name in ("lstm_actor", "lstm_critic"):
            memory = RouterLSTM(self.features_dim, routers, router_at, width)
            setattr(self, name, memory.to(self.device))
        self.lstm_hidden_state_shape = (1, 1, routers * width)
        made: Any = self.optimizer_class
        self.optimizer = made(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


def router_memory_kwargs(env: Any, **others: Any) -> dict[str, Any]:
    """``policy_kwargs`` of `RouterMemoryPolicy` for an environment or a VecEnv of equal ones.

    Raises ValueError if several routers decide and the observation does not say which, or if jobs
    migrate, which no router decides.
    """
    inner = env.get_attr("unwrapped")[0] if hasattr(env, "get_attr") else env.unwrapped
    routers = int(getattr(inner.system, "router_count", 1))
    if routers == 1:
        return {"routers": 1, "router_at": None, **others}
    if getattr(inner.system, "migrates", False):
        raise ValueError("RouterMemoryPolicy: jobs migrate, and no router decides on that")
    context = list(inner.context)
    if "router" not in context:
        shown = [*inner.columns, *context, "router"]
        raise ValueError(
            f"RouterMemoryPolicy: must be shown which of the {routers} routers decides; use "
            f"observe={shown}"
        )
    numbers = int(inner.observation_space.shape[0])
    return {
        "routers": routers,
        "router_at": numbers - len(context) + context.index("router"),
        **others,
    }
