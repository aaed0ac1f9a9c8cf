"""One network, trained on the flagship's 20 servers, unchanged at 200 and 2,000 servers.

    python -m baselines.sizes                          # about half an hour
    python -m baselines.sizes --servers 200 --model baselines/models/flagship-0

Half of the servers have speed 1, half 2; 4 routers, load .9, at most 10 jobs a server; a lost job
costs 20. The model and the rules see the same random numbers, which no training used. Results are
kept in baselines/results/sizes.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baselines.agreement import versions
from lbgym import Pool, System, simulate
from lbgym.cli import Parser, progress_bar
from lbgym.report import show
from lbgym.simulate import paired_difference
from lbgym.stats import as_plain

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "sizes.json"
MODEL = HERE / "models" / "flagship-0"
RULES = ("pull(fallback=weighted-random, choice=fastest)", "pull(fallback=wrr, choice=fastest)")
SEED, CHARGE = 5_000_011, 20.0
# Servers: replications, arrivals of each (half of them warm-up).
RUNS = {20: (64, 8_000), 200: (16, 40_000), 2000: (2, 80_000)}


def system_of(servers: int) -> System:
    """The flagship with another number of servers."""
    pools = [Pool(servers // 2, speed=speed, limit=10) for speed in (1.0, 2.0)]
    return System(pools, routers=4, load=0.9)


def compared(servers: int, model: str) -> dict[str, Any]:
    """A model and the rules at one size, JSON-able: costs and paired differences."""
    replications, jobs = RUNS[servers]
    results = {}
    for policy in (*RULES, f"model:{model}"):
        with progress_bar(f"{servers} servers") as progress:
            results[policy] = simulate(
                system_of(servers),
                policy,
                jobs=jobs,
                warmup=jobs // 2,
                replications=replications,
                seed=SEED,
                loss_charge=CHARGE,
                progress=progress,
            )
    agent = results[f"model:{model}"]
    plain: dict[str, Any] = as_plain(
        {
            "servers": servers,
            "model": Path(model).name,
            "cost": agent.cost,
            "jobs": agent.jobs,
            "rules": {rule: results[rule].cost for rule in RULES},
            "differences": {rule: paired_difference(agent, results[rule]) for rule in RULES},
        }
    )
    for policy, result in results.items():
        print(f"{servers:6,} {show(result.cost):16} {Path(policy).name}", flush=True)
    for rule, d in plain["differences"].items():
        share = 100 / plain["rules"][rule]["mean"]
        half = share * (d["high"] - d["low"]) / 2
        print(f"       model minus {rule}: {share * d['mean']:+.2f} ± {half:.2f} %", flush=True)
    return plain


def keep(rows: Sequence[dict[str, Any]]) -> None:
    """Replace the stored rows of these sizes and models."""
    old = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.is_file() else []
    new = {(row["servers"], row["model"]): row for row in [*old, *rows]}
    record = {
        "command": "python -m baselines.sizes",
        "seed": SEED,
        "versions": versions(),
        "rows": [new[key] for key in sorted(new)],
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0, or 2 for bad arguments."""
    parser = Parser(
        prog="python -m baselines.sizes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--servers", type=int, nargs="*", choices=RUNS, default=list(RUNS))
    parser.add_argument("--model", default=str(MODEL), help="folder of a model for tables")
    options = parser.parse_args(words)
    try:
        for servers in options.servers:
            keep([compared(servers, options.model)])
    except (ValueError, ImportError, OSError) as error:
        print(f"baselines.sizes: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)  # small networks gain nothing from more
    sys.exit(main())
