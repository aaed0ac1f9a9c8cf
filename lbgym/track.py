"""What is noted along a run: running totals at the end of each batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lbgym.engine import State

# Running totals noted at the end of each batch.
TOTALS = (
    "clock",
    "area",
    "arrivals",
    "blocked",
    "waited",
    "departed",
    "response_sum",
    "slowdown_sum",
    "sent",
    "withdrawn",
    "probes",
    "migrations",
    "lost_weight",
    "present",
)


@dataclass
class Track:
    """What was noted along one run: totals and histogram at each batch boundary."""

    totals: list[list[float]] = field(default_factory=list)
    histograms: list[NDArray[np.int64]] = field(default_factory=list)
    tails: list[list[NDArray[np.float64]]] = field(default_factory=list)
    classes: list[NDArray[np.int64]] = field(default_factory=list)
    units: list[NDArray[np.float64]] = field(default_factory=list)
    overloaded: bool = False

    def note(self, state: State) -> None:
        """Note where the run stands; the last three keep only the first and the last note."""
        w = state.world[0]
        area = w["present"] * w["clock"] + w["moment"]
        self.totals.append([float(area if name == "area" else w[name]) for name in TOTALS])
        self.histograms.append(state.arrays["histogram"]["count"].copy())
        self.tails = [*self.tails[:1], tail_areas(state)]
        self.classes = [*self.classes[:1], class_counts(state)]
        self.units = [*self.units[:1], unit_areas(state)]

    def note_overload(self, state: State) -> None:
        """The run ends here, with too many jobs; if in its warm-up, all of it counts."""
        self.overloaded = True
        if not self.totals:
            self.totals = [[0.0] * (len(TOTALS) - 1) + [float(state.world[0]["started"])]]
            self.histograms = [np.zeros_like(state.arrays["histogram"]["count"])]
            self.tails = [[np.zeros_like(area) for area in tail_areas(state)]]
            self.classes = [np.zeros_like(class_counts(state))]
            self.units = [np.zeros_like(unit_areas(state))]
        self.note(state)

    def join_pairs(self) -> None:
        """Make batches twice as long (an odd last one stays as it is)."""
        for noted in (self.totals, self.histograms):
            del noted[1:-1:2]


def class_counts(state: State) -> NDArray[np.int64]:
    """Arrivals and losses of each class; shape (classes, 2)."""
    rows = state.arrays["classes"]
    return np.stack([rows["arrivals"], rows["blocked"]], axis=1)


def tail_areas(state: State) -> list[NDArray[np.float64]]:
    """For each pool the time integral, up to now, of the servers with at least k jobs."""
    clock = state.world[0]["clock"]
    areas = []
    for this in state.arrays["pools"]:
        rows = state.arrays["tails"][this["tails"] : this["tails"] + this["levels"]]
        area = rows["servers"] * clock + rows["moment"]
        area[0] = this["servers"] * clock
        areas.append(area)
    return areas


def unit_areas(state: State) -> NDArray[np.float64]:
    """For each pool the time integral, up to now, of the units in use; shape (pools,)."""
    pools = len(state.system.pools)
    rows = state.arrays["class_jobs"]
    if len(rows) == 0:
        return np.zeros(pools)
    area = rows["jobs"] * state.world[0]["clock"] + rows["moment"]
    used = area.reshape(state.system.servers, -1) @ state.arrays["classes"]["units"]
    summed = np.bincount(state.system.pool_of_server, weights=used, minlength=pools)
    return summed.astype(np.float64)
