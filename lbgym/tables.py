"""Tables from rows: the seeds of each policy pooled, its cost paired with one chosen policy's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbgym import stats
from lbgym.benchmark import canonical
from lbgym.kinds import kind_of
from lbgym.measures import flat
from lbgym.records import Row, Settings, totals_of
from lbgym.stats import Estimate
from lbgym.suggest import unknown
from lbgym.system import as_system

__all__ = ["Line", "Table", "excludes_zero", "tables"]


@dataclass(frozen=True)
class Line:
    """One policy on one system, all seeds pooled.

    estimates : by name, as in the result of `simulate`; of class k as "name_k"; jobs at servers
        have `p50` and `p99` too
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

    system: Any
    settings: Settings
    loss_charge: float
    version: str
    against: str
    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        """The system's name and description."""
        name = f"{self.system.name}: " if self.system.name else ""
        return f"{name}{self.system.describe()}"


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
    system = as_system(rows[0].system)
    lines = (_line(name, of_seed, by_policy[base]) for name, of_seed in by_policy.items())
    return Table(
        system=system,
        settings=rows[0].settings,
        loss_charge=rows[0].loss_charge,
        version=rows[0].version,
        against=base,
        lines=tuple(lines),
    )


def _line(policy: str, of_seed: dict[int, Row], base: dict[int, Row]) -> Line:
    rows = [of_seed[seed] for seed in sorted(of_seed)]
    first, totals = rows[0], totals_of(rows)
    measures = kind_of(totals.system).part("measures")
    runs = len(rows) * (first.settings.replications or 1)
    is_stable = measures.stable(totals, runs) if measures.stable else True
    return Line(
        policy=policy,
        information=first.information,
        seeds=tuple(sorted(of_seed)),
        estimates=flat(measures.estimates(totals)),
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
    if not stats.pairable(arrivals, others):  # one of them ended early
        return None
    return stats.difference(one, other, arrivals, others)


def excludes_zero(difference: Estimate | None) -> bool:
    """Whether a difference is significant at 95 %."""
    return difference is not None and (difference.low > 0 or difference.high < 0)
