"""From nothing to a first result: classical policies and a dispatcher that learns, in one table.

    python -m training.quickstart

Benchmarks the classical policies on `flagship` and local search on `flagship-migrating`, trains PPO
on `flagship` for a moment, and puts all of them into one table and one picture. What is finished is
kept: a second run, or one after Ctrl-C, does only what is missing.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lbgym import report, stats
from lbgym.benchmark import DEFAULT_POLICIES, run_benchmark
from lbgym.cli import Parser, progress_bar
from lbgym.records import Row, Settings
from lbgym.tables import Line, Table, tables
from training import ppo
from training.arguments import argument, check_counts, from_file, read

SYSTEM, MIGRATING = "flagship", "flagship-migrating"
AGAINST = "pull(fallback=weighted-random, choice=fastest)"
LOCAL_SEARCH = (
    "wrr",
    "local-search",
    "local-search(place=wrr)",
    "local-search(place=pull(fallback=wrr, choice=fastest))",
)
MARK = " [jobs migrate]"
SETTINGS = Path(__file__).parent / "settings" / "flagship.toml"


@dataclass
class Args:
    """How much is to be done."""

    out: str = argument("results/quickstart", "folder of the results")
    jobs: int = argument(20_000, "arrivals a replication")
    replications: int = argument(32, "independent runs of a seed")
    seeds: int = argument(4, "seeds")
    timesteps: int = argument(250_000, "decisions of the training")
    fresh: bool = False  # do again what is finished

    @property
    def folder(self) -> Path:
        return Path(self.out)

    @property
    def settings(self) -> Settings:
        return Settings(jobs=self.jobs, replications=self.replications)


def say(text: str) -> None:
    """What is going on, on stderr."""
    print(text, file=sys.stderr, flush=True)


# --- the three parts ------------------------------------------------------------------------------
def bench(args: Args, system: str, policies: Sequence[str]) -> list[Row]:
    """Rows of policies on a system; finished ones come from the folder."""
    with progress_bar(system) as progress:
        return run_benchmark(
            [system],
            policies,
            seeds=range(args.seeds),
            settings=args.settings,
            folder=args.folder,
            fresh=args.fresh,
            progress=progress,
        )


def trained(args: Args) -> str:
    """The name of the learned policy, trained unless it is there already."""
    from training.evaluation import choose_how_to_act

    told = from_file(str(SETTINGS), ppo.Args)
    told |= {"out": args.out, "name": "ppo", "timesteps": args.timesteps}
    training = ppo.Args(**told)
    ppo.check(training)
    if training.folder.exists() and (args.fresh or _stored(training) != vars(training)):
        ppo.remove(training)
    if not _is_finished(training.folder):
        ppo.train(training, "python -m training.quickstart")
        choose_how_to_act(training.folder, max(1000, args.jobs // 4), args.replications)
    return training.agent


def _stored(training: ppo.Args) -> dict[str, Any]:
    """The arguments of the training that is there."""
    try:
        return ppo.stored_arguments(training.notes)
    except ValueError:
        return {}


def _is_finished(folder: Path) -> bool:
    try:
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "cost_by_action" in settings["training"]


def one_table(rows: Sequence[Row], migrating: Sequence[Row]) -> Table:
    """Both systems in one table: costs compare, for servers, arrivals and charges are the same."""
    (table,) = tables(rows, AGAINST)
    (other,) = tables(migrating)
    base = {row.seed: row for row in rows if row.policy == table.against}
    lines = [
        replace(line, policy=line.policy + MARK, difference=_difference(line, migrating, base))
        for line in other.lines
    ]
    return replace(table, lines=(*table.lines, *lines))


def _difference(line: Line, rows: Sequence[Row], base: dict[int, Row]) -> stats.Estimate:
    """Cost of a policy with migration minus the base policy's without, paired by batch."""
    mine = [row.batch_costs() for row in rows if row.policy == line.policy]
    theirs = [base[row.seed].batch_costs() for row in rows if row.policy == line.policy]
    cost, arrivals = (np.concatenate(parts) for parts in zip(*mine, strict=True))
    other, _ = (np.concatenate(parts) for parts in zip(*theirs, strict=True))
    return stats.difference(cost, other, arrivals)


# --- the command ----------------------------------------------------------------------------------
def run(args: Args) -> None:
    """All of it."""
    begun = time.perf_counter()
    say(f"1/3 classical policies on {SYSTEM} and {MIGRATING}")
    rows = bench(args, SYSTEM, DEFAULT_POLICIES)
    migrating = bench(args, MIGRATING, LOCAL_SEARCH)
    say(f"2/3 PPO learns on {SYSTEM}: {args.timesteps:,} decisions")
    agent = trained(args)
    say("3/3 the learned policy on the same random numbers")
    rows += bench(args, SYSTEM, [agent])
    table = one_table(rows, migrating)
    report.write_results([table], args.folder)
    picture = report.draw([table], args.folder / "results.png")
    print(report.table_text(table))
    print(f"{MARK.strip()}: the same system with jobs that go on looking, at rate 1 ({MIGRATING})")
    print(f"\npicture: {picture}   ({time.perf_counter() - begun:.0f} s)")


def main(words: Sequence[str] | None = None) -> int:
    """The command; 0 if all went well, 2 for bad arguments, 130 after Ctrl-C."""
    parser = Parser(
        prog="python -m training.quickstart",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--fresh", action="store_true", help="do again what is finished")
    try:
        given = read(parser, Args, words)
        args = Args(**given)
        check_counts(args, {"jobs": 100, "replications": 2, "seeds": 1, "timesteps": 1})
        run(args)
    except (ValueError, ImportError, OSError) as error:
        say(f"training.quickstart: error: {' '.join(str(error).split())}")
        return 2
    except KeyboardInterrupt:
        say("training.quickstart: interrupted; the same command goes on from there")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
