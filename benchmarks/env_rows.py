"""Lines about the environments: single steps, and steps of many rows.

CPU time with actions drawn beforehand, resets included; CartPole-v1, single or as its native vector
environment, beside them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.measure import Effort, Line, alternate, flagship_like

ENV = "lbgym/MultiRouter-v0"
CART = "CartPole-v1"
STEPS = 200_000  # of a single environment in a turn
DECISIONS = 500_000  # of many rows in a turn
ROWS = 1024
MANY_ROWS = 4096  # shared by threads

Turn = Callable[[], float]


# --- gym.make -------------------------------------------------------------------------------------
def step_turn(env: gym.Env[Any, Any], steps: int) -> Turn:
    """A function that makes steps and returns the CPU seconds of each."""
    generator = np.random.default_rng(0)
    actions = generator.integers(env.action_space.n, size=steps).tolist()  # type: ignore[attr-defined]

    def turn() -> float:
        env.reset(seed=1)
        begun = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return (time.process_time() - begun) / steps

    return turn


def steps(effort: Effort) -> Iterator[Line]:
    """Steps of a single environment."""
    number = effort.of(STEPS)
    sides = {CART: step_turn(gym.make(CART), number)}
    goals = {10: (600, 900), 1000: (350, 500)}
    for n in goals:
        env = gym.make(ENV, system=flagship_like(n).to_dict(), info=["dt"])
        sides[f"n = {n:,}"] = step_turn(env, number)
    best = alternate(effort.turns, sides)
    for n, (must, aim) in goals.items():
        rate = 1e-3 / best[f"n = {n:,}"]
        yield Line(
            f'gym.make(..., info=["dt"]).step, n = {n:,}',
            rate,
            "k steps/s",
            must,
            aim,
            more=True,
            detail=f"{1e3 * rate * best[CART]:.2f} x CartPole-v1",
            numbers={"seconds_per_step": {name: best[name] for name in (f"n = {n:,}", CART)}},
        )


# --- gym.make_vec ---------------------------------------------------------------------------------
def vector_turn(env: Any, decisions: int, clock: Callable[[], float]) -> Turn:
    """A function that steps all rows, and returns the seconds of a decision."""
    generator, rows = np.random.default_rng(0), int(env.num_envs)
    choices = int(env.single_action_space.n)
    actions = [generator.integers(choices, size=rows) for _ in range(16)]
    number = max(1, decisions // rows)
    env.reset(seed=1)
    for k in range(max(16, 200_000 // rows)):  # towards the stationary law, and compiled
        env.step(actions[k % 16])

    def turn() -> float:
        begun = clock()
        for k in range(number):
            env.step(actions[k % 16])
        return (clock() - begun) / (number * rows)

    return turn


def vector(effort: Effort) -> Iterator[Line]:
    """Decisions of 1,024 rows on one thread, beside CartPole-v1's and SyncVectorEnv."""
    decisions, clock = effort.of(DECISIONS), time.process_time
    sides = {CART: vector_turn(gym.make_vec(CART, ROWS), decisions, clock)}
    # the columns of the default observation, and one number, as good as none
    asked = {(10, None): (5, 8), (100, None): (3, 4), (10, "router"): (8, 12)}
    named = {}
    for n, column in asked:
        observe = None if column is None else [column]
        env = gym.make_vec(ENV, ROWS, system=flagship_like(n).to_dict(), observe=observe)
        width = env.single_observation_space.shape[0]  # type: ignore[index]
        named[n, column] = f"n = {n}, {width} floats" if column is None else "no observation"
        sides[named[n, column]] = vector_turn(env, decisions, clock)
    sync = gym.make_vec(ENV, ROWS, system=flagship_like(10).to_dict(), vectorization_mode="sync")
    sides["SyncVectorEnv"] = vector_turn(sync, decisions // 10, clock)
    best = alternate(effort.turns, sides)
    for key, (must, aim) in asked.items():
        rate = 1e-6 / best[named[key]]
        told = f"{1e6 * rate * best[CART]:.2f} x CartPole-v1"
        if key == (10, None):
            told += f", {1e6 * rate * best['SyncVectorEnv']:.0f} x SyncVectorEnv"
        yield Line(
            f"gym.make_vec, {ROWS:,} rows, {named[key]}",
            rate,
            "M decisions/s",
            must,
            aim,
            more=True,
            detail=told,
            numbers={"seconds_per_decision": {name: best[name] for name in (named[key], CART)}},
        )


def vector_threads(effort: Effort) -> Iterator[Line]:
    """Many rows of 100 servers, on two threads over on one: wall time.

    Only two free cores can halve it; so the CPU time of the busier thread, and of the one that
    waits for them, is told too.
    """
    rows, decisions = MANY_ROWS, effort.of(2 * DECISIONS)
    sides, critical = {}, {}
    for count in (1, 2):
        env = gym.make_vec(ENV, rows, system=flagship_like(100).to_dict(), threads=count)
        name = f"{count} threads"
        sides[name] = vector_turn(env, decisions, time.perf_counter)
        critical[name] = vector_turn(env, decisions, _critical_clock(env))
    best, least = alternate(effort.turns, sides), alternate(effort.turns, critical)
    one, two = best.values()
    alone, shared = least.values()
    yield Line(
        f"gym.make_vec, {rows:,} rows, n = 100, 2 threads over 1, wall time (2 free cores)",
        one / two,
        "x",
        1.5,
        1.9,
        more=True,
        detail=f"by the CPU time of the busier thread {alone / shared:.2f} x",
        numbers={"wall_seconds": best, "busiest_thread_cpu_seconds": least},
    )


def _critical_clock(env: Any) -> Callable[[], float]:
    """CPU time of this thread and of the busiest of the environment's own, since now."""
    pool = env.unwrapped._pool
    threads = [] if pool is None else [thread.ident for thread in pool._threads]
    clocks = [time.pthread_getcpuclockid(ident) for ident in threads]
    before = [time.clock_gettime(clock) for clock in clocks]

    def now() -> float:
        spent = [time.clock_gettime(c) - b for c, b in zip(clocks, before, strict=True)]
        return time.thread_time() + max(spent, default=0.0)

    return now
