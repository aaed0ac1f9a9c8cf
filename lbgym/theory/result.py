"""`Exact`: what an exact solution says, in the words of `simulate`'s Result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbgym.stats import as_plain
from lbgym.system import System

from .chain import Floats
from .cutting import Solution


class Numbers:
    """What answers of theory for systems of other kinds have in common: data and text."""

    system: Any
    policy: Any

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; a policy by its name."""
        said = {"policy": getattr(self.policy, "name", self.policy), "system": self.system}
        return {
            name: value.to_dict() if hasattr(value, "to_dict") else as_plain(value)
            for name, value in {**self.__dict__, **said}.items()
        }

    def __repr__(self) -> str:
        name = getattr(self.policy, "name", self.policy)
        lines = [f"{name} on {self.system.describe()}"]
        for field, value in self.__dict__.items():
            if isinstance(value, float):
                lines.append(f"  {field:22} {value:.9g}")
            elif isinstance(value, tuple):
                lines.append(f"  {field:22} {', '.join(f'{x:.9g}' for x in value)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Exact:
    """Long-run means; names as in `simulate`'s Result, plain floats.

    policy : its name
    cost : response time of the accepted + charge of the lost + move costs, per arrival
    jobs_per_server : mean queue of each server; jobs_per_pool as in Result
    queue_tail : ``{"all": [...], "pools": [[...], ...]}``, fraction of servers with >= k jobs
    truncation_error : of jobs_in_system, absolute, an upper estimate; 0 without a cut
    states, seconds, residual : of the chain; cut : the longest queues kept, by server
    """

    system: System
    policy: Any
    loss_charge: float
    move_cost: float
    cost: float
    response_time: float
    waiting_probability: float
    blocking_probability: float
    jobs_in_system: float
    messages_per_job: float
    withdrawals_per_job: float
    migrations_per_job: float
    utilization: float
    utilization_per_pool: tuple[float, ...]
    jobs_per_server: tuple[float, ...]
    jobs_per_pool: tuple[float, ...]
    queue_tail: dict[str, Any]
    truncation_error: float
    states: int
    cut: tuple[int, ...]
    residual: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {**self.__dict__, "system": self.system.to_dict()}

    def __repr__(self) -> str:
        name = getattr(self.policy, "name", self.policy)
        lines = [f"{name} on {self.system.describe()}, exact"]
        lines += [f"  {name:22} {getattr(self, name):.9g}" for name in _SHOWN]
        lines.append(f"  {self.states:,} states in {self.seconds:.2f} s")
        return "\n".join(lines)


_SHOWN = (
    "cost",
    "response_time",
    "waiting_probability",
    "blocking_probability",
    "jobs_in_system",
    "messages_per_job",
    "migrations_per_job",
    "truncation_error",
)


@dataclass(frozen=True)
class Totals:
    """What a solution says, before it is put per job.

    jobs : mean number in system; rates : events per unit time, by name
    tails : of each server, P(q >= k), k = 0, 1, ...
    """

    jobs: float
    rates: dict[str, float]
    tails: list[Floats]
    states: int
    cut: tuple[int, ...]
    residual: float


def totals_of(solution: Solution) -> Totals:
    """The totals of a solved chain."""
    return Totals(
        jobs=solution.jobs,
        rates={name: solution.rate(name) for name in solution.chain.counts},
        tails=_server_tails(solution),
        states=solution.chain.size,
        cut=tuple(int(c) for c in solution.model.caps),
        residual=solution.residual,
    )


def _server_tails(solution: Solution) -> list[Floats]:
    """For each server, P(q >= k), k = 0, 1, ...; servers of a group share their mean."""
    model = solution.model
    q = solution.chain.states // model.codes.number
    tails: list[Floats] = [np.zeros(0)] * model.system.servers
    for group in model.groups:
        counts = np.bincount(q[:, group].ravel(), weights=np.repeat(solution.pi, len(group)))
        law = counts / len(group)
        tail = np.cumsum(law[::-1])[::-1]
        for k in group:
            tails[model.live[k]] = tail
    return tails


def _mean_tail(tails: Sequence[Floats]) -> list[float]:
    longest = max(map(len, tails))
    total = np.sum([np.pad(tail, (0, longest - len(tail))) for tail in tails], axis=0)
    return [float(x) for x in total / len(tails) if x > 0]


def _summary(system: System, tails: Sequence[Floats]) -> dict[str, Any]:
    """What the tails say of servers and pools."""
    pools = system.pool_of_server
    slots = [system.pools[p].slots for p in pools]
    busy = np.array([t[1 : s + 1].sum() / s for t, s in zip(tails, slots, strict=True)])
    jobs = np.array([t[1:].sum() for t in tails])
    members = [np.flatnonzero(pools == p).tolist() for p in range(len(system.pools))]
    return {
        "utilization": float(np.average(busy, weights=system.speeds * slots)),
        "utilization_per_pool": tuple(float(busy[i].mean()) for i in members),
        "jobs_per_server": tuple(float(x) for x in jobs),
        "jobs_per_pool": tuple(float(jobs[i].sum()) for i in members),
        "queue_tail": {
            "all": _mean_tail(tails),
            "pools": [_mean_tail([tails[k] for k in i]) for i in members],
        },
    }


def result_of(
    system: System, name: str, totals: Totals, loss_charge: float | None, move_cost: float
) -> Exact:
    """Totals per job; the truncation error and the time are not known yet."""
    arrivals, jobs = system.arrival_rate, totals.jobs
    charge = system.default_loss_charge if loss_charge is None else float(loss_charge)

    def rate(what: str) -> float:
        return totals.rates.get(what, 0.0)

    accepted = arrivals - rate("blocked")
    lost, moves = charge * rate("blocked"), move_cost * rate("moved")
    messages = rate("sent") + rate("withdrawn") + 2 * rate("probes")
    return Exact(
        system=system,
        policy=name,
        loss_charge=charge,
        move_cost=float(move_cost),
        cost=(jobs + lost + moves) / arrivals,
        response_time=jobs / accepted,
        waiting_probability=rate("waits") / accepted,
        blocking_probability=rate("blocked") / arrivals,
        jobs_in_system=jobs,
        messages_per_job=messages / arrivals,
        withdrawals_per_job=rate("withdrawn") / arrivals,
        migrations_per_job=rate("moved") / arrivals,
        **_summary(system, totals.tails),
        truncation_error=0.0,
        states=totals.states,
        cut=totals.cut,
        residual=totals.residual,
        seconds=0.0,
    )
