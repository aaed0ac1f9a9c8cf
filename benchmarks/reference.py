"""Compile and run the bare C++ loops of ``reference.cpp``, the yardstick for the engine's speed.

    from benchmarks.reference import run
    run("pull", "uniformised", n=1000, jobs=10_000_000, seed=1)
    run("pull", "tournament", n=1000, jobs=10_000_000, seed=1, law=("erlang", 4))

or, for a table of the CPU time per job (best of three): ``python -m benchmarks.reference``.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("reference.cpp")
FLAGS = ["-std=c++17", "-O3", "-march=native"]
POLICIES = ("pull", "jsq2")
VARIANTS = ("uniformised", "lists")  # for exponential sizes; for others "tournament"


@functools.cache
def program() -> Path | None:
    """The compiled program in a temporary folder, or None without a compiler."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        print("reference: no C++ compiler (c++ or g++) found, so there is nothing to compare with")
        return None
    path = Path(temporary_folder().name) / "reference"
    subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(path)], check=True)
    return path


@functools.cache
def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Lives, and is removed, with the process."""
    return tempfile.TemporaryDirectory(prefix="reference-")


def run(
    policy: str,
    variant: str,
    n: int,
    jobs: int,
    seed: int,
    *,
    warmup: int | None = None,
    law: Sequence[Any] = (),
) -> dict[str, float] | None:
    """Run one loop: a warm-up (default: a ninth of `jobs`), then `jobs` arrivals, which are timed.

    Returns a dict: ``seconds`` (wall), ``cpu_seconds``, ``jobs`` (timed arrivals),
    ``ns_per_job`` (wall), ``mean_response``, ``p_wait``, ``p_block``, ``jobs_in_system``,
    ``p50`` and ``p99`` of the response time - or None if there is no compiler. On a machine
    shared with others compare CPU times, each the least of several alternating runs.
    """
    path = program()
    if path is None:
        return None
    before = jobs // 9 if warmup is None else warmup
    command = [path, policy, variant, n, before, jobs, seed, *law]
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def cpu_ns_per_job(policy: str, variant: str, n: int, jobs: int, seed: int, **more: Any) -> float:
    """CPU time per job of a run, in nanoseconds; infinite without a compiler."""
    done = run(policy, variant, n, jobs, seed, **more)
    return float("inf") if done is None else 1e9 * done["cpu_seconds"] / done["jobs"]


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time per job of the C++ loops, in ns.")
    parser.add_argument("servers", type=int, nargs="*", default=[100, 1000, 10**4, 10**5, 10**6])
    parser.add_argument("--jobs", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if program() is None:
        return
    columns = [(policy, variant) for policy in POLICIES for variant in VARIANTS]
    print(f"{'servers':>9}", *(f"{' '.join(column):>17}" for column in columns))
    for n in given.servers:
        times = [
            min(cpu_ns_per_job(*column, n, given.jobs, k + 1) for k in range(given.repeats))
            for column in columns
        ]
        print(f"{n:>9}", *(f"{time:17.1f}" for time in times), flush=True)


if __name__ == "__main__":
    main()
