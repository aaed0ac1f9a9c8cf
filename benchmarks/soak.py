"""One very long run, watched: `python -m benchmarks.soak --jobs 1e9`.

What must hold at every look, however long the run:

- the integral of the number in system is the sum of the times that jobs have spent in it, those
  still present included, and the sum of the integrals of the queue-length tails (1e-9 relative);
- the clock never goes back, and no job is lost count of;
- the resident memory stays as it was after the first look.

Prints a line at each look, stores ``benchmarks/results/soak.json``, and exits with 1 if something
did not hold.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import machine, resident_bytes
from lbgym import as_system
from lbgym.engine import State
from lbgym.policies import make
from lbgym.simulate import RuleRun
from lbgym.track import TOTALS, Track, tail_areas

RESULTS = Path(__file__).with_name("results") / "soak.json"
TOLERANCE = 1e-9  # relative
GROWTH = 8 << 20  # bytes of resident memory
GLANCES = 20  # looks at the clock from one line to the next


def time_of_present(state: State) -> float:
    """Time spent so far by the jobs in the system, one by one."""
    clock, jobs = float(state.world[0]["clock"]), state.arrays["jobs"]
    spent = []
    for j in state.arrays["servers"]["head"].tolist():
        while j >= 0:
            spent.append(clock - float(jobs["arrived"][j]))
            j = int(jobs["next"][j])
    return math.fsum(spent)


def differences(state: State) -> dict[str, float]:
    """How far the integral of the number in system is from its two witnesses, relative."""
    track = Track()
    track.note(state)
    totals = dict(zip(TOTALS, track.totals[0], strict=True))
    area = totals["area"]
    levels = math.fsum(float(tail[1:].sum()) for tail in tail_areas(state))
    spent = totals["response_sum"] + time_of_present(state)
    return {"times": abs(area - spent) / area, "tails": abs(area - levels) / area}


def lost_jobs(state: State) -> int:
    """Jobs that neither left nor are there nor were blocked; 0 if all is well."""
    w = state.world[0]
    came = int(w["arrivals"]) + int(w["started"])
    return came - int(w["blocked"]) - int(w["departed"]) - int(w["present"])


def soak(system: Any, policy: str, jobs: int, looks: int, seed: int) -> dict[str, Any]:
    """Run so many arrivals and look so many times; what was seen, JSON-able."""
    bound = make(policy, as_system(system))
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    run = RuleRun(bound, generator, {"max_jobs": 10_000_000, "start": "empty"})
    begun, cpu = time.perf_counter(), time.process_time()
    seen: list[dict[str, Any]] = []
    clock, monotone = 0.0, True
    for k in range(1, looks * GLANCES + 1):
        run.run_to(jobs * k // (looks * GLANCES), lambda _: None)
        now = float(run.state.world[0]["clock"])
        monotone, clock = monotone and now >= clock, now
        if k % GLANCES == 0:
            look = {"jobs": int(run.state.world[0]["arrivals"]), "clock": clock}
            look |= {"resident": resident_bytes(), "lost": lost_jobs(run.state)}
            seen.append({**look, "monotone": monotone, **differences(run.state)})
            print(_line(seen[-1]), flush=True)
    return {
        "system": as_system(system).to_dict(),
        "policy": policy,
        "jobs": jobs,
        "seed": seed,
        "seconds": time.perf_counter() - begun,
        "cpu_seconds": time.process_time() - cpu,
        "holds": holds(seen),
        "looks": seen,
    }


def holds(seen: Sequence[dict[str, Any]]) -> dict[str, bool]:
    """Which of the claims hold at all looks."""
    grown = max(look["resident"] for look in seen) - seen[0]["resident"]
    return {
        "times": all(look["times"] <= TOLERANCE for look in seen),
        "tails": all(look["tails"] <= TOLERANCE for look in seen),
        "clock": all(look["monotone"] for look in seen),
        "jobs": all(look["lost"] == 0 for look in seen),
        "memory": grown <= GROWTH,
    }


def _line(look: dict[str, Any]) -> str:
    return (
        f"{look['jobs']:15,} jobs, time {look['clock']:.6g}: integral of N off by "
        f"{look['times']:.1e} from times spent, {look['tails']:.1e} from tails; "
        f"{look['resident'] / 2**20:.1f} MiB"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--jobs", type=float, default=1e9, help="arrivals (default 1e9)")
    parser.add_argument("--system", default="flagship", help="a scenario or a .toml file")
    parser.add_argument("--policy", default="pull")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--looks", type=int, default=20)
    given = parser.parse_args(arguments)
    if not 1 <= given.looks <= given.jobs / GLANCES:
        parser.error(f"--looks: must be from 1 to jobs / {GLANCES}, got {given.looks}")
    found = soak(given.system, given.policy, int(given.jobs), given.looks, given.seed)
    for claim, good in found["holds"].items():
        print(f"{claim}: {'holds' if good else 'DOES NOT HOLD'}")
    print(f"{found['cpu_seconds']:.0f} s of CPU time")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")
    return 0 if all(found["holds"].values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
