"""Lines that need a process of their own: importing, first and later use, memory.

Each number is printed by a fresh interpreter. CPU time, because wall time tells how busy the
machine is; on an idle machine they are alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Effort, Line, alternate

ROOT = Path(__file__).parent.parent
MEGABYTE = 1e6

IMPORT = "import time; {}; print(time.process_time())"
USES = {
    "simulate": "lbgym.simulate('flagship', 'pull', jobs=1000)",
    "gym.make, reset, step": "env = gym.make('lbgym/MultiRouter-v0'); env.reset(); env.step(0)",
    "gym.make_vec, reset, step": (
        "env = gym.make_vec('lbgym/MultiRouter-v0', 2); env.reset(); env.step([0, 0])"
    ),
}
USE = """
import time
import gymnasium as gym
import lbgym
begun = time.process_time()
{}
print(time.process_time() - begun)
"""
MEMORY = """
import lbgym
from benchmarks.measure import flagship_like, resident_bytes
import numpy as np
from lbgym.policies import make
from lbgym.simulate import RuleRun

imported = resident_bytes()
options = {{"max_jobs": 10**8, "start": "empty"}}
RuleRun(make("pull", flagship_like(10)), np.random.default_rng(1), options).run_to(
    1000, lambda _: None
)
ready = resident_bytes()
run = RuleRun(make("pull", flagship_like({n})), np.random.default_rng(1), options)
run.run_to({n} * 5, lambda _: None)
arrays = sum(array.nbytes for array in run.state.arrays.values())
print(imported, ready, resident_bytes(), arrays)
"""


def fresh(code: str, cache: str | None = None) -> list[float]:
    """The numbers that code prints in an interpreter of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    if cache is not None:
        env["NUMBA_CACHE_DIR"] = cache
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    return [float(word) for word in done.stdout.split()]


def start(effort: Effort) -> Iterator[Line]:
    """CPU time of the import, and of a first call with and without compiled code on disk."""

    def importing(names: str) -> Callable[[], float]:
        return lambda: fresh(IMPORT.format(f"import {names}"))[0]

    sides = {name: importing(name) for name in ("lbgym", "gymnasium, numba", "time")}
    best = alternate(effort.turns, sides)
    yield Line(
        "import lbgym, CPU time",
        best["lbgym"],
        "s",
        0.7,
        0.4,
        detail=f"gymnasium and numba {best['gymnasium, numba']:.2f}, Python {best['time']:.2f}",
        numbers={"cpu_seconds": best},
    )
    for name, use in USES.items():
        with tempfile.TemporaryDirectory(prefix="cache-") as cache:
            first = fresh(USE.format(use), cache)[0]
            later = min(fresh(USE.format(use), cache)[0] for _ in range(effort.turns))
        yield Line(f"first use ever: {name}, CPU time", first, "s", 15, 7)
        yield Line(f"first use in a later process: {name}, CPU time", later, "s", 1, 0.5)


def memory(effort: Effort) -> Iterator[Line]:
    """Resident memory beyond what the import takes."""
    n = 10**5 if effort.quick else 10**6
    fresh(MEMORY.format(n=1000))  # a process that compiles is larger
    imported, ready, run, arrays = fresh(MEMORY.format(n=n))
    yield Line(
        f"memory beyond import lbgym, pull, n = {n:,}, R = 4",
        (run - imported) / MEGABYTE,
        "MB",
        150,
        detail=f"arrays {arrays / MEGABYTE:.0f}, compiled code {(ready - imported) / MEGABYTE:.0f}",
        numbers={"import": imported, "compiled": ready, "run": run, "arrays": arrays},
    )
