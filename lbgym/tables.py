"""Tables from rows: the seeds of each policy pooled, its cost paired with one chosen policy's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbgym import stats
from lbgym.benchmark import canonical
from lbgym.records import Row, Settings
from lbgym.stats import Estimate
from lbgym.suggest import unknown
from lbgym.system import System

__all__ = ["Line", "Table", "excludes_zero", "tables"]


@dataclass(frozen=True)
class Line:
    """One policy on one system, all seeds pooled.

    estimates : by name: `cost`, `response_time`, `p50`, `p99`, `waiting_probability`, ...
    difference : its cost minus that of the table's `against`, paired by batch; None for that policy
        itself and where batches do not correspond
    """

    policy: str
    information: str
    seeds: tuple[int, ...]
    estimates: dict[str, Estimate]
    difference: Estimate | None
    stable: bool | None
    jobs: int
    seconds: float


@dataclass(frozen=True)
class Table:
    """All policies of one system under one setting."""

    system: System
    settings: Settings
    loss_charge: float
    version: str
    against: str
    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        """The system's name and description."""
        name = f"{self.system.name}: " if self.system.name else ""
        return name + self.system.describe()


def tables(rows: Iterable[Row], against: str | None = None) -> list[Table]:
    """Pool the seeds and pair every policy with one (default, or where it is missing: the first).

    Rows of unlike systems, settings or versions come into different tables. Raises ValueError if
    no row is of `against`.
    """
    rows = list(rows)
    if against is not None:
        against, present = canonical(against), {row.policy for row in rows}
        if against not in present:
            raise ValueError(f"against: {unknown('policy', against, sorted(present))}")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        same = (row.system, vars(row.settings), row.loss_charge, row.version)
        groups.setdefault(repr(same), []).append(row)
    return [_table(group, against) for group in groups.values()]


def _table(rows: Sequence[Row], against: str | None) -> Table:
    newest = {row.policy: row.model for row in rows}  # a model may have been trained again
    by_policy: dict[str, dict[int, Row]] = {}
    for row in (row for row in rows if row.model == newest[row.policy]):
        by_policy.setdefault(row.policy, {})[row.seed] = row
    base = against if against in by_policy else next(iter(by_policy))
    system = System.from_dict(rows[0].system)
    lines = (_line(name, of_seed, system, by_policy[base]) for name, of_seed in by_policy.items())
    return Table(
        system=system,
        settings=rows[0].settings,
        loss_charge=rows[0].loss_charge,
        version=rows[0].version,
        against=base,
        lines=tuple(lines),
    )


def _pooled(rows: Sequence[Row]) -> dict[str, Any]:
    """Totals by batch, one seed after another."""
    return {k: np.concatenate([row.batches[k] for row in rows]) for k in rows[0].batches}


def _line(policy: str, of_seed: dict[int, Row], system: System, base: dict[int, Row]) -> Line:
    rows = [of_seed[seed] for seed in sorted(of_seed)]
    first = rows[0]
    totals = _pooled(rows)
    charges = first.loss_charge, first.settings.move_cost
    estimates = stats.per_job(totals, *charges, not system.has_units)
    if all(system.limit_of(pool) is None for pool in system.pools):
        estimates["blocking_probability"] = Estimate(0.0, 0.0, 0.0)
    histograms = np.concatenate([row.histograms for row in rows])
    estimates["p50"] = stats.quantile(histograms, 0.5)
    estimates["p99"] = stats.quantile(histograms, 0.99)
    runs = len(rows) * (first.settings.replications or 1)
    is_stable = stats.stable(totals["present"], totals["clock"], system.arrival_rate, runs)
    return Line(
        policy=policy,
        information=first.information,
        seeds=tuple(sorted(of_seed)),
        estimates=estimates,
        difference=None if of_seed is base else _difference(of_seed, base),
        stable=is_stable if all(row.complete for row in rows) else False,
        jobs=sum(row.jobs for row in rows),
        seconds=sum(row.seconds for row in rows),
    )


def _difference(mine: dict[int, Row], base: dict[int, Row]) -> Estimate | None:
    """Paired difference of cost over the seeds that both have."""
    common = sorted(mine.keys() & base.keys())
    if not common:
        return None
    one, arrivals = map(np.concatenate, zip(*(mine[s].batch_costs() for s in common), strict=True))
    other, others = map(np.concatenate, zip(*(base[s].batch_costs() for s in common), strict=True))
    if not np.array_equal(arrivals, others):  # one of them ended early
        return None
    return stats.difference(one, other, arrivals)


def excludes_zero(difference: Estimate | None) -> bool:
    """Whether a difference is significant at 95 %."""
    return difference is not None and (difference.low > 0 or difference.high < 0)
