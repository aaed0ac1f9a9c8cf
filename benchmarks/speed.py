"""How fast it is, as ratios measured in one run: `python -m benchmarks.speed` or `make bench`.

- `simulate` beside a bare C++ loop of the same model (`reference.cpp`), jobs per second;
- ``gym.make("lbgym/MultiRouter-v0").step`` beside CartPole-v1, steps per second;
- ``gym.make_vec("lbgym/MultiRouter-v0").step`` with 1,024 rows beside CartPole-v1's native vector
  environment and beside SyncVectorEnv, decisions per second.

Both sides of a ratio alternate in short turns and each shows its best turn, in CPU time of its own
process: what other programs on the machine do disturbs a ratio little, an absolute number more.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import lbgym
from benchmarks import reference
from lbgym import Pool, System
from lbgym.policies import make
from lbgym.simulate import RuleRun

RESULTS = Path(__file__).with_name("results") / "speed.json"
POLICIES = {"pull": "pull", "jsq(2)": "jsq2"}  # ours -> the C++ program's
MEASURED_STEPS = 200_000


def flagship_like(n: int) -> System:
    """Half the servers at speed 1, half at speed 2, limit 10, four routers, load 0.9."""
    return System([Pool(n // 2, 1.0, 10), Pool(n - n // 2, 2.0, 10)], routers=4, load=0.9)


# --- simulate -----------------------------------------------------------------------------------
def engine_turn(policy: str, n: int, jobs: int) -> Callable[[], float]:
    """A function that simulates more jobs and returns the CPU nanoseconds of each."""
    generator = np.random.default_rng(1)
    system = flagship_like(n)
    run = RuleRun(make(policy, system), generator, {"max_jobs": 10**8, "start": "empty"})
    run.run_to(jobs // 10 + 5 * n, lambda more: None)

    def turn() -> float:
        goal = int(run.state.world[0]["arrivals"]) + jobs
        begun = time.process_time()
        run.run_to(goal, lambda more: None)
        return 1e9 * (time.process_time() - begun) / jobs

    return turn


def simulate_rows(sizes: list[int], jobs: int, turns: int) -> list[dict[str, Any]]:
    """Nanoseconds a job of our engine and of both C++ loops, by policy and number of servers."""
    rows = []
    for policy, their_name in POLICIES.items():
        for n in sizes:
            ours, theirs = [], {variant: [math.nan] for variant in reference.VARIANTS}
            turn = engine_turn(policy, n, jobs)
            for k in range(turns):
                ours.append(turn())
                for variant in reference.VARIANTS:
                    done = reference.run(their_name, variant, n, jobs, k + 1)
                    if done is not None:
                        theirs[variant].append(1e9 * done["cpu_seconds"] / done["jobs"])
            row = {"policy": policy, "servers": n, "lbgym": min(ours)}
            row |= {variant: float(np.nanmin(t)) for variant, t in theirs.items()}
            row["ratio"] = row["lbgym"] / min(row[v] for v in reference.VARIANTS)
            rows.append(row)
            print(
                f"{policy:8} {n:9,} servers: {1e3 / row['lbgym']:6.2f} M jobs/s, "
                f"{row['lbgym']:6.1f} ns a job; C++ {row['uniformised']:6.1f} uniformised, "
                f"{row['lists']:6.1f} lists; ratio {row['ratio']:.2f}",
                flush=True,
            )
    return rows


# --- gym.make(...).step -------------------------------------------------------------------------
def steps_per_second(env: gym.Env[Any, Any], steps: int) -> float:
    """Steps per CPU second with actions drawn beforehand, resets included."""
    actions = [int(a) for a in np.random.default_rng(0).integers(env.action_space.n, size=steps)]
    env.reset(seed=1)
    begun = time.process_time()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return steps / (time.process_time() - begun)


def step_rows(turns: int) -> list[dict[str, Any]]:
    """Steps per second of our environment at 10 and 1,000 servers and of CartPole-v1."""
    envs = {"CartPole-v1": gym.make("CartPole-v1")}
    for n in (10, 1000):
        system = flagship_like(n).to_dict()
        envs[f"MultiRouter-v0, {n} servers"] = gym.make(
            "lbgym/MultiRouter-v0", system=system, info=["dt"]
        )
    best = dict.fromkeys(envs, 0.0)
    for _ in range(turns):
        for name, env in envs.items():
            best[name] = max(best[name], steps_per_second(env, MEASURED_STEPS))
    rows = []
    for name, rate in best.items():
        ratio = rate / best["CartPole-v1"]
        rows.append({"environment": name, "steps_per_second": rate, "ratio": ratio})
        print(f"{name:28} {rate:11,.0f} steps/s, {ratio:5.2f} x CartPole-v1", flush=True)
    return rows


# --- gym.make_vec(...).step ---------------------------------------------------------------------
def vector_turn(env: gym.vector.VectorEnv[Any, Any, Any], decisions: int) -> Callable[[], float]:
    """A function that steps all rows for so many decisions; returns decisions per CPU second."""
    generator, rows = np.random.default_rng(0), env.num_envs
    choices = int(env.single_action_space.n)  # type: ignore[attr-defined]
    actions = [generator.integers(choices, size=rows) for _ in range(16)]
    steps = max(1, decisions // rows)
    env.reset(seed=1)
    for k in range(max(16, 20_000 // rows)):  # towards the stationary law, and compiled
        env.step(actions[k % 16])

    def turn() -> float:
        begun = time.process_time()
        for k in range(steps):
            env.step(actions[k % 16])
        return steps * rows / (time.process_time() - begun)

    return turn


def vector_rows(turns: int, rows: int = 1024) -> list[dict[str, Any]]:
    """Decisions per CPU second, one thread: our rows with the default observation and with one
    number, SyncVectorEnv of the same environments, and CartPole-v1's native vector environment."""
    ours, cart = "lbgym/MultiRouter-v0", "CartPole-v1 native"
    made: dict[str, tuple[Any, int]] = {cart: (gym.make_vec("CartPole-v1", num_envs=rows), 500_000)}
    for n, observe in ((10, None), (100, None), (10, ["router"])):
        kwargs = {"system": flagship_like(n).to_dict(), "observe": observe}
        env = gym.make_vec(ours, num_envs=rows, **kwargs)
        made[f"{n} servers, {env.single_observation_space.shape[0]} numbers"] = (env, 500_000)
    few = {"system": flagship_like(10).to_dict()}
    sync = gym.make_vec(ours, num_envs=rows, vectorization_mode="sync", **few)
    made["10 servers, SyncVectorEnv"] = (sync, 40_000)
    ready = {name: vector_turn(env, decisions) for name, (env, decisions) in made.items()}
    best = dict.fromkeys(ready, 0.0)
    for _ in range(turns):
        for name, turn in ready.items():
            best[name] = max(best[name], turn())
    found = []
    for name, rate in best.items():
        ratio = rate / best[cart]
        row = {"environment": name, "rows": rows, "decisions_per_second": rate, "ratio": ratio}
        found.append(row)
        print(f"{name:28} {rate:11,.0f} decisions/s, {ratio:5.2f} x CartPole-v1", flush=True)
    return found


# --- the record ---------------------------------------------------------------------------------
def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    packages = ("numpy", "numba", "gymnasium")
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "lbgym": lbgym.__version__,
        **{name: version(name) for name in packages},
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def show_change(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Print how the ratios moved since the stored table."""
    old = {(row["policy"], row["servers"]): row["ratio"] for row in before["simulate"]}
    for row in now["simulate"]:
        was = old.get((row["policy"], row["servers"]))
        if was is not None:
            print(f"{row['policy']:8} {row['servers']:9,}: ratio {was:.2f} -> {row['ratio']:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--servers", type=int, nargs="+", default=[100, 1_000, 100_000])
    parser.add_argument("--jobs", type=int, default=3_000_000, help="arrivals in a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--store", action="store_true", help="replace the stored table")
    given = parser.parse_args()
    found = {
        "machine": machine(),
        "simulate": simulate_rows(given.servers, given.jobs, given.turns),
        "steps": step_rows(given.turns),
        "vector": vector_rows(given.turns),
    }
    if RESULTS.exists():
        print("against the stored table:")
        show_change(json.loads(RESULTS.read_text()), found)
    if given.store:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
