"""Lines about `simulate`: beside C++ loops, at a million servers, on two threads, beside SimPy.

CPU time per job of a run that has warmed up, the C++ loops likewise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import lbgym
from benchmarks import reference
from benchmarks.measure import Effort, Line, alternate, cpu_seconds, flagship_like
from lbgym.policies import make
from lbgym.simulate import RuleRun

POLICIES = {"pull": "pull", "jsq(2)": "jsq2"}  # ours -> the C++ program's
LAWS: dict[str, tuple[dict[str, Any], Sequence[Any]]] = {
    "Erlang, 4 phases": ({"law": "erlang", "k": 4}, ("erlang", 4)),
    "lognormal, scv 4": ({"law": "lognormal", "scv": 4}, ("lognormal", 4)),
    "bounded Pareto 1.5, 1000": (
        {"law": "bounded-pareto", "alpha": 1.5, "high": 1000},
        ("bounded-pareto", 1.5, 1000),
    ),
}
GOALS = {10**3: (1.5, 1.2), 10**4: (1.5, 1.2), 10**5: (2.2, 1.5), 10**6: (2.5, 1.5)}
JOBS = 2_000_000  # arrivals in a turn

Turn = Callable[[], float]


def warmup(n: int, jobs: int) -> int:
    """Arrivals after which a run that began empty is taken to be stationary."""
    return 5 * n + jobs // 10


def engine_turn(system: lbgym.System, policy: str, jobs: int) -> Turn:
    """A function that simulates more jobs and returns the CPU nanoseconds of each."""
    run = RuleRun(
        make(policy, system), np.random.default_rng(1), {"max_jobs": 10**8, "start": "empty"}
    )
    run.run_to(warmup(system.servers, jobs), lambda _: None)

    def turn() -> float:
        goal = int(run.state.world[0]["arrivals"]) + jobs
        return 1e9 * cpu_seconds(lambda: run.run_to(goal, lambda _: None)) / jobs

    return turn


def reference_turn(policy: str, variant: str, n: int, jobs: int, law: Sequence[Any] = ()) -> Turn:
    """The same of a C++ loop, started anew and warmed up in each turn."""
    begin = warmup(n, jobs)
    return lambda: reference.cpu_ns_per_job(
        POLICIES[policy], variant, n, jobs, 1, warmup=begin, law=law
    )


def _beside(what: str, best: dict[str, float], goals: tuple[float, float], n: int) -> Line:
    """Our nanoseconds a job over those of the fastest loop."""
    ours, loops = best["lbgym"], {name: t for name, t in best.items() if name != "lbgym"}
    told = ", ".join(f"{name} {t:.1f}" for name, t in loops.items())
    return Line(
        what,
        ours / min(loops.values()),
        "x C++",
        *goals,
        detail=f"{1e3 / ours:.2f} M jobs/s, {ours:.1f} ns a job; C++ {told}",
        numbers={"servers": n, "ns_per_job": best},
    )


def simulate(effort: Effort) -> Iterator[Line]:
    """Exponential sizes, over the faster of two C++ loops; and the least rate of small systems."""
    if reference.program() is None:
        return
    floor = float("inf")
    jobs = effort.of(JOBS)
    for policy in POLICIES:
        for n, goals in GOALS.items():
            if effort.quick and n > 10**4:
                continue
            sides = {v: reference_turn(policy, v, n, jobs) for v in reference.VARIANTS}
            sides["lbgym"] = engine_turn(flagship_like(n), policy, jobs)
            best = alternate(effort.turns if n < 10**6 else 3, sides)
            yield _beside(f"simulate, {policy}, n = {n:,}", best, goals, n)
            if n <= 10**4:
                floor = min(floor, 1e3 / best["lbgym"])
    yield Line("simulate, n <= 10,000, the least of the above", floor, "M jobs/s", 8, 12, more=True)


def laws(effort: Effort) -> Iterator[Line]:
    """Sizes of other laws, drawn at arrival, over a C++ loop with a tournament tree."""
    if reference.program() is None:
        return
    jobs = effort.of(JOBS // 2)
    for name, (size, words) in LAWS.items():
        for policy in POLICIES:
            for n in (10**3,) if effort.quick else (10**3, 10**5):
                sides = {"tournament": reference_turn(policy, "tournament", n, jobs, words)}
                sides["lbgym"] = engine_turn(flagship_like(n, size=size), policy, jobs)
                best = alternate(effort.turns, sides)
                yield _beside(f"sizes {name}, {policy}, n = {n:,}", best, (1.3, 1.0), n)


def growth(effort: Effort) -> Iterator[Line]:
    """Cost of a job at a million servers over that at a thousand."""
    large = 10**5 if effort.quick else 10**6
    for policy in POLICIES:
        sides = {
            f"{n:,} servers": engine_turn(flagship_like(n), policy, effort.of(JOBS))
            for n in (1000, large)
        }
        best = alternate(3, sides)
        few, many = best.values()
        yield Line(
            f"cost of a job, {policy}, n = {large:,} over n = 1,000",
            many / few,
            "x",
            6,
            3,
            detail=f"{many:.0f} over {few:.0f} ns a job",
            numbers={"ns_per_job": best},
        )


# --- threads --------------------------------------------------------------------------------------
def threads(effort: Effort) -> Iterator[Line]:
    """Two independent replications, on two threads over on one: wall time.

    Only two free cores can halve it; so the CPU time of the busier thread is told too.
    """
    jobs = effort.of(2 * JOBS)
    busiest: dict[str, float] = {}

    def on(count: int) -> Turn:
        def turn() -> float:
            began: dict[int, float] = {threading.get_ident(): time.thread_time()}
            spent: dict[int, float] = {}

            def note(done: int, planned: int) -> None:  # called by the thread that works
                this = threading.get_ident()
                spent[this] = time.thread_time() - began.get(this, 0.0)

            begun = time.perf_counter()
            lbgym.simulate(
                flagship_like(1000), "pull", jobs=jobs, replications=2, threads=count, progress=note
            )
            taken = time.perf_counter() - begun
            name = f"{count} threads"
            busiest[name] = min(busiest.get(name, float("inf")), max(spent.values()))
            return taken

        return turn

    best = alternate(effort.turns, {f"{count} threads": on(count) for count in (1, 2)})
    one, two = best.values()
    alone, shared = busiest["1 threads"], busiest["2 threads"]
    yield Line(
        "simulate, 2 replications, 2 threads over 1, wall time (2 free cores)",
        one / two,
        "x",
        1.8,
        more=True,
        detail=f"by the CPU time of the busier thread {alone / shared:.2f} x",
        numbers={"wall_seconds": best, "busiest_thread_cpu_seconds": busiest},
    )


# --- SimPy ----------------------------------------------------------------------------------------
def simpy(effort: Effort) -> Iterator[Line]:
    """A plain SimPy model of the same system."""
    try:
        from benchmarks import simpy_model
    except ImportError:
        print("simpy: is not installed, so there is nothing to compare with: pip install simpy")
        return
    n, jobs = 100, effort.of(20_000)
    sides = {
        "lbgym": engine_turn(flagship_like(n), "jsq(2)", effort.of(JOBS)),
        "SimPy": lambda: 1e9 * simpy_model.run(n, jobs // 10, jobs, seed=1).cpu_seconds / jobs,
    }
    best = alternate(effort.turns, sides)
    yield Line(
        f"simulate, jsq(2), n = {n}, times as fast as SimPy",
        best["SimPy"] / best["lbgym"],
        "x",
        more=True,
        detail=f"SimPy {1e6 / best['SimPy']:.1f} k jobs/s",
        numbers={"ns_per_job": best},
    )
