"""How the benchmarks measure: turns, memory, lines of the table, the machine."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import lbgym
from lbgym import Pool, System

PACKAGES = ("numpy", "numba", "gymnasium", "stable-baselines3", "torch", "simpy")


# --- lines ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Line:
    """One line of the table.

    must, aim : what is to be reached, in the same unit; None: the line is only shown
    more : whether more is better
    detail : what the number is made of, for people; numbers: the same, for programs
    """

    what: str
    measured: float
    unit: str = ""
    must: float | None = None
    aim: float | None = None
    more: bool = False
    detail: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def missed(self) -> bool:
        """Whether what must be reached is not."""
        return self.must is not None and beyond(self.measured, self.must, self.more) > 1

    @property
    def to_aim(self) -> float | None:
        """The factor still to be gained; at most 1 if the aim is reached."""
        return None if self.aim is None else beyond(self.measured, self.aim, self.more)


def beyond(measured: float, wanted: float, more: bool) -> float:
    """By what factor a number misses the wanted one; at most 1 if it does not."""
    return wanted / measured if more else measured / wanted


@dataclass(frozen=True)
class Effort:
    """How long to measure: `scale` multiplies the work of a turn."""

    turns: int = 5
    scale: float = 1.0
    quick: bool = False

    def of(self, amount: int) -> int:
        """So much work, scaled."""
        return max(1, int(amount * self.scale))


# --- measuring ------------------------------------------------------------------------------------
def alternate(turns: int, sides: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The least that each side measured; the sides take turns, so that what disturbs the machine
    disturbs all alike."""
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(turns):
        for name, measure in sides.items():
            best[name] = min(best[name], measure())
    return best


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU time of this process that some work takes."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def resident_bytes() -> int:
    """Memory of this process now; its peak where the system does not say."""
    pages = Path("/proc/self/statm")
    if pages.exists():
        return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# --- what is measured -----------------------------------------------------------------------------
def flagship_like(n: int, **more: Any) -> System:
    """Half the servers at speed 1, half at speed 2, limit 10, four routers, load 0.9."""
    pools = [Pool(n // 2, 1.0, 10), Pool(n - n // 2, 2.0, 10)]
    return System(pools, routers=4, load=0.9, **more)


# --- the machine ----------------------------------------------------------------------------------
def machine() -> dict[str, Any]:
    """What the numbers were measured on, and how busy it was."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.system(),
        "python": platform.python_version(),
        "lbgym": lbgym.__version__,
        **{name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
