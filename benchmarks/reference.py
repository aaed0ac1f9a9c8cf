"""Compile and run the bare C++ loops of ``reference.cpp``, the yardstick for the engine's speed.

    from benchmarks.reference import run
    run("pull", "uniformised", n=1000, jobs=10_000_000, seed=1)

or, for a table of the CPU time per job (best of three): ``python benchmarks/reference.py``.
"""

import argparse
import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("reference.cpp")
FLAGS = ["-std=c++17", "-O3", "-march=native"]
POLICIES = ("pull", "jsq2")
VARIANTS = ("uniformised", "lists")


@functools.cache
def program():
    """The compiled program in a temporary folder, or None without a compiler."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        print("reference: no C++ compiler (c++ or g++) found, so there is nothing to compare with")
        return None
    folder = temporary_folder()
    path = Path(folder.name) / "reference"
    subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(path)], check=True)
    return path


@functools.cache
def temporary_folder():
    """Lives, and is removed, with the process."""
    return tempfile.TemporaryDirectory(prefix="reference-")


def run(policy, variant, n, jobs, seed):
    """Run one loop of ``jobs`` arrivals, the first tenth of them an untimed warm-up.

    Returns a dict: ``seconds`` (wall), ``cpu_seconds``, ``jobs`` (timed arrivals),
    ``ns_per_job`` (wall), ``mean_response``, ``p_wait``, ``p_block``, ``jobs_in_system``,
    ``p50`` and ``p99`` of the response time - or None if there is no compiler. On a machine
    shared with others compare CPU times, each the least of several alternating runs.
    """
    path = program()
    if path is None:
        return None
    command = [str(path), policy, variant, str(n), str(jobs), str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def cpu_ns_per_job(policy, variant, n, jobs, repeats=3):
    """The least CPU time per job of several runs, in nanoseconds."""
    runs = [run(policy, variant, n, jobs, seed) for seed in range(1, repeats + 1)]
    return min(1e9 * done["cpu_seconds"] / done["jobs"] for done in runs)


def main():
    parser = argparse.ArgumentParser(description="CPU time per job of the C++ loops, in ns.")
    parser.add_argument("servers", type=int, nargs="*", default=[100, 1000, 10**4, 10**5, 10**6])
    parser.add_argument("--jobs", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if program() is None:
        return
    size = {"jobs": arguments.jobs, "repeats": arguments.repeats}
    columns = [(policy, variant) for policy in POLICIES for variant in VARIANTS]
    print(f"{'servers':>9}", *(f"{' '.join(column):>17}" for column in columns))
    for n in arguments.servers:
        times = [cpu_ns_per_job(*column, n, **size) for column in columns]
        print(f"{n:>9}", *(f"{time:17.1f}" for time in times), flush=True)


if __name__ == "__main__":
    main()
