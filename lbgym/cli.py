"""The command `lbgym list | simulate | bench | optimal | fleet | report`: arguments and text.

A user's mistake ends with status 2 and one line on stderr; Ctrl-C with 130. Everything heavy is
imported when a command needs it, so that help comes at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING, Any, NoReturn

from lbgym._version import __version__

if TYPE_CHECKING:
    from lbgym.tables import Table

FOLDER = "lbgym-results"
DISPATCH = "dispatching systems"
MOST_LISTED = 10_000
SYSTEM_HELP = "a scenario's name (lbgym list systems), a path.toml, or a system as JSON text"
Report = Callable[[int, int], None]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


# --- arguments ------------------------------------------------------------------------------------
def whole(least: int) -> Callable[[str], int]:
    """A whole number of at least so much; 1e6 and 1_000_000 are welcome."""

    def read(text: str) -> int:
        try:
            value = float(text)
            exact = int(text) if value.is_integer() and "e" not in text.lower() else int(value)
        except (ValueError, OverflowError):
            value, exact = float("nan"), 0
        if not value.is_integer() or exact < least:
            raise argparse.ArgumentTypeError(f"must be a whole number >= {least}, got {text!r}")
        return exact

    return read


def several(what: str) -> Callable[[str], list[int]]:
    """Whole numbers: "5", "0-3", "0,2,7-9"."""

    def read(text: str) -> list[int]:
        try:
            found: list[int] = []
            for part in text.split(","):
                first, dash, last = part.strip().partition("-")
                found += range(int(first), int(last if dash else first) + 1)[: MOST_LISTED + 1]
        except ValueError:
            found = []
        if not 1 <= len(found) <= MOST_LISTED:
            raise argparse.ArgumentTypeError(
                f"must be such as 0-3, 5 or 0,2,7 (at most {MOST_LISTED} {what}), got {text!r}"
            )
        return list(dict.fromkeys(found))

    return read


seeds, cars = several("seeds"), several("fleets")


def start(text: str) -> Any:
    """ "empty", "warm" or queue lengths "1,0,2"."""
    if text in ("empty", "warm"):
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be empty, warm or queue lengths such as 1,0,2, got {text!r}"
        ) from None


def read_system(text: str, load: float | None = None) -> Any:
    """The system meant by an argument: a name, a TOML path or JSON."""
    from lbgym.system import as_system

    thing: Any = text
    if text.lstrip().startswith("{"):
        try:
            thing = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"system: not valid JSON: {error}") from None
    system = as_system(thing)
    if load is None:
        return system
    if not hasattr(system, "with_load"):
        raise ValueError(f"--load: {system.describe()} has no load of its own; give its rates")
    return system.with_load(load)


def _parser() -> Parser:
    parser = Parser(
        prog="lbgym",
        description="Load balancing: simulate systems, compare policies.",
        epilog="lbgym COMMAND --help explains a command, with examples.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"lbgym {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (
        _list_arguments,
        _simulate_arguments,
        _bench_arguments,
        _fleet_arguments,
        _optimal_arguments,
        _report_arguments,
    ):
        add(commands)
    return parser


def _command(commands: Any, name: str, summary: str, text: str, examples: str) -> Parser:
    parser: Parser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.dedent(text).strip(),
        epilog="examples:\n" + textwrap.indent(textwrap.dedent(examples).strip(), "  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


def _list_arguments(commands: Any) -> None:
    parser = _command(
        commands,
        "list",
        "what there is: systems, policies, environments",
        "Lists the named systems, the policies with what they know, and the environments.",
        """
        lbgym list
        lbgym list policies
        lbgym list systems --json
        """,
    )
    parser.add_argument(
        "what", nargs="?", choices=("systems", "policies", "envs"), help="only these"
    )
    parser.set_defaults(run=_list)


def _measure_arguments(parser: Parser) -> None:
    """What `simulate` and `bench` have in common."""
    parser.add_argument(
        "--jobs",
        type=whole(100),
        default=1_000_000,
        metavar="N",
        help="arrivals of a run, warm-up included (default 1000000)",
    )
    parser.add_argument(
        "--warmup", type=whole(0), metavar="N", help="arrivals discarded first (default: a tenth)"
    )
    parser.add_argument(
        "--replications", type=whole(1), metavar="R", help="independent runs of a seed (default: 1)"
    )
    parser.add_argument(
        "--loss-charge",
        type=float,
        metavar="C",
        help="cost of a lost job (default: the system's, twice the longest response time)",
    )
    parser.add_argument(
        "--move-cost", type=float, default=0.0, metavar="C", help="cost of a migration (default 0)"
    )
    parser.add_argument(
        "--max-jobs",
        type=whole(1),
        default=10_000_000,
        metavar="N",
        help="end a run early when more jobs are in the system (default 10000000)",
    )


def _simulate_arguments(commands: Any) -> None:
    parser = _command(
        commands,
        "simulate",
        "one policy on one system",
        """
        Simulates a policy on a system and prints estimates with 95 % intervals: cost, response
        time, waiting and blocking probability, messages, ...; of car sharing the users accepted
        and the stations without a car or space; of a flow network the flows of each class.
        """,
        """
        lbgym simulate flagship pull
        lbgym simulate flagship "pull(fallback=wrr, choice=fastest)" --jobs 1e7 --seed 1
        lbgym simulate flagship "jsq(2)" --load 0.95 --precision 0.01
        lbgym simulate my-system.toml sed --replications 8 --threads 2 --json
        lbgym simulate cars least-per-demand
        lbgym simulate flow-rate "fixed-rate(0.5)"
        lbgym simulate '{"pools": [{"servers": 2}], "load": 0.5}' jsq
        """,
    )
    parser.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    parser.add_argument("policy", metavar="POLICY", help="a policy's name, quoted, or model:PATH")
    parser.add_argument("--load", type=float, metavar="RHO", help="another load for the system")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="S", help="default 0")
    _measure_arguments(parser)
    parser.add_argument(
        "--precision",
        type=float,
        metavar="P",
        help="go on until the half-width of the cost is at most P times the cost",
    )
    parser.add_argument(
        "--threads",
        type=whole(1),
        default=1,
        metavar="T",
        help="replications side by side; results never depend on it (default 1)",
    )
    parser.add_argument(
        "--start",
        type=start,
        default="empty",
        metavar="WHERE",
        help="empty (default), warm, or queue lengths (parked cars, flows by class) such as 1,0,2",
    )
    parser.set_defaults(run=_simulate)


def _bench_arguments(commands: Any) -> None:
    parser = _command(
        commands,
        "bench",
        "policies x systems x seeds: one table, one picture",
        f"""
        Compares policies on common random numbers and prints a table for each system: cost,
        response time, messages, ..., each with its 95 % interval, and the paired difference of
        cost to one chosen policy. The results folder gets results.json, results.csv and
        results.png (cost against messages per job: the price of information).

        Every finished row is kept at once in rows.jsonl there: after Ctrl-C or a crash the same
        command goes on where it was. Without --systems and --policies: classical policies on the
        flagship. On a system whose jobs migrate the default list has local-search too; car
        sharing and flow networks have policies of their own.

        With --suite: the rules of the twelve tasks of the suite, scored between blind choice (0)
        and the least cost known to be possible (100); --policies adds to the tasks named.

        Folder: ./{FOLDER}.
        """,
        """
        lbgym bench
        lbgym bench --systems flagship flagship-migrating --jobs 200000 --seeds 0-1
        lbgym bench --systems thousand --policies pull "jsq(2)" sed --against pull
        lbgym bench --systems cars flow-rate
        lbgym bench --suite --quick
        lbgym bench --suite --tasks pair-1-10 cars
        lbgym bench --suite --tasks cars --policies model:runs/cars-0
        lbgym bench --policies pull model:runs/ppo --replications 16 --jobs 100000 --out ppo
        """,
    )
    parser.add_argument(
        "--systems", nargs="+", metavar="SYSTEM", help=f"{SYSTEM_HELP} (default flagship)"
    )
    parser.add_argument("--suite", action="store_true", help="the tasks of the suite, scored")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these of the suite")
    parser.add_argument(
        "--quick", action="store_true", help="the suite with 100000 jobs and 2 seeds"
    )
    parser.add_argument(
        "--policies",
        nargs="+",
        metavar="POLICY",
        help="names, quoted, or model:PATH (default: classical policies that the system takes)",
    )
    parser.add_argument(
        "--seeds", type=seeds, default=[0, 1, 2, 3], metavar="S", help="0-3 (default), 5, 0,2,7"
    )
    parser.add_argument(
        "--against",
        metavar="POLICY",
        help="policy to which differences are formed, added if not among them (default: the first)",
    )
    _measure_arguments(parser)
    parser.add_argument(
        "--out", default=FOLDER, metavar="DIR", help=f"results folder (default {FOLDER})"
    )
    parser.add_argument(
        "--workers", type=whole(1), metavar="W", help="rows side by side (default: processors)"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="run again what the folder already has"
    )
    _output_arguments(parser)
    parser.set_defaults(run=_bench)


def _fleet_arguments(commands: Any) -> None:
    parser = _command(
        commands,
        "fleet",
        "how many cars a car-sharing system should have",
        """
        Finds the number of cars for which most users are accepted, or fewest stations have no car
        or no space, and prints the curve: exactly if the system is small, by the mean field if it
        has many stations alike, else by simulation. The system's own number of cars plays no part.
        """,
        """
        lbgym fleet cars
        lbgym fleet cars least-per-demand --metric problematic
        lbgym fleet cars-equal two-choice --method simulation --jobs 1e6 --json
        """,
    )
    parser.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    parser.add_argument(
        "policy", metavar="POLICY", nargs="?", default="requested", help="default: requested"
    )
    parser.add_argument(
        "--metric",
        choices=("accepted", "problematic"),
        default="accepted",
        help="users accepted (default), or problematic stations",
    )
    parser.add_argument(
        "--method",
        choices=("exact", "mean-field", "simulation"),
        help="default: what the size allows",
    )
    parser.add_argument(
        "--cars", type=cars, metavar="M", help="fleets to try: 5-9, 6,8 (default: a search)"
    )
    parser.add_argument(
        "--jobs",
        type=whole(100),
        default=200_000,
        metavar="N",
        help="users of each simulation (default 200000)",
    )
    parser.add_argument("--seed", type=whole(0), default=0, metavar="S", help="default 0")
    parser.set_defaults(run=_fleet)


def _optimal_arguments(commands: Any) -> None:
    parser = _command(
        commands,
        "optimal",
        "the best that any policy can do on a small system",
        """
        Solves for the least long-run cost of any policy that sees every queue, and prints it beside
        the exact values of rules that theory can solve, with the gap of each to the optimum in
        percent: how much room there is for a learned policy.

        For 2 or 3 servers, more with small limits; loss systems with units and small graphs too;
        car sharing (the most users accepted) and flow networks (the fewest flows).
        Queues without a limit are cut where it does not matter; the truncation error says how
        little. On two servers --plot draws from which queue lengths on jobs go to which server.
        """,
        """
        lbgym optimal pair-1-10
        lbgym optimal pair-1-10 --load 0.9 --plot curve.png
        lbgym optimal two-class-loss --lossless
        lbgym optimal cars
        lbgym optimal '{"pools": [{"servers": 3, "limit": 5}], "load": 0.9}' --loss-charge 10 --json
        """,
    )
    parser.add_argument("system", metavar="SYSTEM", help=SYSTEM_HELP)
    parser.add_argument("--load", type=float, metavar="RHO", help="another load for the system")
    parser.add_argument(
        "--objective",
        metavar="WHAT",
        help="what is least: cost (default), jobs_in_system, blocking_probability, weighted_loss",
    )
    parser.add_argument(
        "--loss-charge",
        type=float,
        metavar="C",
        help="cost of a lost job (default: the system's, twice the longest response time)",
    )
    parser.add_argument(
        "--move-cost", type=float, default=0.0, metavar="C", help="cost of a migration (default 0)"
    )
    parser.add_argument(
        "--lossless", action="store_true", help="never lose a job while some server has room"
    )
    parser.add_argument(
        "--cap", type=whole(1), metavar="N", help="cut queues without a limit at N jobs"
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="switching curve on two servers: png, pdf or svg"
    )
    parser.set_defaults(run=_optimal)


def _report_arguments(commands: Any) -> None:
    parser = _command(
        commands,
        "report",
        "table, CSV and picture again, from a results folder",
        """
        Rebuilds the tables, results.json, results.csv and results.png from all finished rows of a
        results folder of lbgym bench, an unfinished one included. Rows of unlike systems, jobs,
        charges or versions come into different tables.
        """,
        f"""
        lbgym report {FOLDER}
        lbgym report {FOLDER} --against "jsq(2)" --plot price.pdf
        lbgym report {FOLDER} --csv > all.csv
        """,
    )
    parser.add_argument("folder", metavar="DIR", help="results folder of lbgym bench")
    parser.add_argument(
        "--against", metavar="POLICY", help="policy to which differences are formed"
    )
    _output_arguments(parser)
    parser.set_defaults(run=_report)


def _output_arguments(parser: Parser) -> None:
    parser.add_argument("--csv", action="store_true", help="print CSV instead of text")
    picture = parser.add_mutually_exclusive_group()
    picture.add_argument(
        "--plot", metavar="FILE", help="picture: png, pdf or svg (default DIR/results.png)"
    )
    picture.add_argument("--no-plot", action="store_true", help="no picture")


# --- list -----------------------------------------------------------------------------------------
def _list(options: argparse.Namespace) -> None:
    kinds = {"systems": _systems, "policies": _policies, "envs": _environments}
    chosen = [options.what] if options.what else list(kinds)
    found = {what: kinds[what]() for what in chosen}
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    parts = [f"{what}\n\n{_entries(rows)}" for what, rows in found.items()]
    print("\n\n".join(parts))


def _systems() -> list[dict[str, Any]]:
    from lbgym.scenarios import SCENARIOS

    return [
        {
            "name": s.name,
            "is": s.system.describe(),
            "help": s.description,
            "source": s.source,
            "system": s.system.to_dict(),
        }
        for s in SCENARIOS.values()
    ]


def _policies() -> list[dict[str, Any]]:
    from lbgym.kinds import KINDS

    return [
        {
            "name": row.name,
            "for": kind.words,
            "usage": row.usage,
            "information": row.information,
            "help": " ".join(row.help.split("\n\n")[0].split()),
        }
        for kind in KINDS.values()
        for row in kind.part("rules").families()
    ]


def _environments() -> list[dict[str, Any]]:
    import gymnasium

    import lbgym  # noqa: F401  (registers them)

    specs = [spec for name, spec in gymnasium.registry.items() if name.startswith("lbgym/")]
    return [{"name": spec.id, "help": f'gymnasium.make("{spec.id}")'} for spec in specs]


def _entries(rows: Sequence[dict[str, Any]]) -> str:
    """Each entry as its name (or usage) and indented lines."""
    lines = []
    for row in rows:
        lines.append(f"  {row.get('usage', row['name'])}")
        said = [row[key] for key in ("is", "help") if row.get(key)]
        if "information" in row:
            said.append(f"knows: {row['information']}")
        if row.get("for", DISPATCH) != DISPATCH:
            said.append(f"for: {row['for']}")
        for text in said:
            lines += textwrap.wrap(text, 96, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


# --- simulate -------------------------------------------------------------------------------------
def _simulate(options: argparse.Namespace) -> None:
    from lbgym.report import result_text
    from lbgym.simulate import simulate

    system = read_system(options.system, options.load)
    with progress_bar("simulate") as progress:
        result = simulate(
            system,
            options.policy,
            jobs=options.jobs,
            warmup=options.warmup,
            seed=options.seed,
            replications=options.replications,
            precision=options.precision,
            threads=options.threads,
            loss_charge=options.loss_charge,
            move_cost=options.move_cost,
            max_jobs=options.max_jobs,
            start=options.start,
            progress=progress,
        )
    print(json.dumps(result.to_dict(), indent=1) if options.json else result_text(result))


# --- fleet ----------------------------------------------------------------------------------------
def _fleet(options: argparse.Namespace) -> None:
    from lbgym.report import fleet_text
    from lbgym.theory import fleet

    system = read_system(options.system)
    with progress_bar("fleet", " fleets") as progress:
        found = fleet(
            system,
            options.policy,
            options.metric,
            options.cars,
            options.method,
            jobs=options.jobs,
            seed=options.seed,
            progress=progress,
        )
    print(json.dumps(found.to_dict(), indent=1) if options.json else fleet_text(found))


# --- optimal --------------------------------------------------------------------------------------
def _optimal(options: argparse.Namespace) -> None:
    from lbgym.theory import optimal
    from lbgym.theory.headroom import gaps

    _check_picture(options)
    system = read_system(options.system, options.load)
    _check_curve(system, options)
    with progress_bar("optimal", " rules") as progress:
        best = optimal(
            system,
            cap=options.cap,
            objective=options.objective,
            loss_charge=options.loss_charge,
            move_cost=options.move_cost,
            lossless=options.lossless,
        )
        rules = gaps(best, progress)
    if options.json:
        print(json.dumps(_optimum_data(best, rules), indent=1, ensure_ascii=False))
    else:
        print(_optimum_text(best, rules))
    if options.plot is not None:
        _draw_curve(best, rules, options.plot)


def _check_curve(system: Any, options: argparse.Namespace) -> None:
    """A curve that cannot be drawn is said before the work."""
    if options.plot is None:
        return
    from lbgym.system import System

    plain = isinstance(system, System) and not system.has_units and system.graph is None
    if not plain or system.servers != 2:
        raise ValueError(
            f"--plot: needs two servers without units or a graph, got {system.describe()}"
        )


_OPTIMUM = (  # of jobs at servers; of other kinds all numbers but those about the solution
    "jobs_in_system",
    "response_time",
    "waiting_probability",
    "blocking_probability",
    "migrations_per_job",
    "utilization",
)
_SOLUTION = ("states", "truncation_error", "iterations", "seconds", "residual", "error", "cut")


def _optimum_numbers(best: Any) -> dict[str, Any]:
    """What is said of an optimum."""
    from lbgym.theory.result import Exact

    if isinstance(best, Exact):
        return {name: getattr(best, name) for name in _OPTIMUM}
    numbers = {k: x for k, x in best.__dict__.items() if k not in _SOLUTION}
    return {k: x for k, x in numbers.items() if isinstance(x, float | tuple)}


def _optimum_data(best: Any, rules: Sequence[Any]) -> dict[str, Any]:
    from lbgym.theory.headroom import value_of

    charged = ("loss_charge", "move_cost", "cost", "cost_per_time")
    return {
        "system": best.system.to_dict(),
        "objective": best.objective,
        "value": value_of(best, best.objective),
        **{name: getattr(best, name) for name in charged if hasattr(best, name)},
        **_optimum_numbers(best),
        **{name: getattr(best, name) for name in _SOLUTION[:4]},
        "rules": [rule.to_dict() for rule in rules],
    }


def _optimum_text(best: Any, rules: Sequence[Any]) -> str:
    from lbgym.theory.headroom import is_most, value_of

    what = best.objective.replace("_", " ")
    most = is_most(best)
    numbers = {best.objective: value_of(best, best.objective), **_optimum_numbers(best)}
    best_is = f"{'most' if most else 'least'} {what}"
    lines = [f"the optimum on {best.system.describe()}, full information, {best_is}"]
    for name, value in numbers.items():
        if value != 0:
            each = value if isinstance(value, tuple) else (value,)
            shown = ", ".join(f"{x:.7g}" for x in each)
            lines.append(f"  {name.replace('_', ' '):22} {shown}")
    lines.append(
        f"  {best.states:,} states, truncation error {best.truncation_error:.1e}, "
        f"{best.iterations} iterations, {best.seconds:.2f} s"
    )
    beside = "below" if most else "above"
    lines += ["", f"{'rules beside it, exact':36} {what:>20} {beside:>10}"]
    lines.append(f"{'  optimum':36} {value_of(best, best.objective):20.7g}")
    lines += [
        f"  {rule.policy:34} {rule.value:20.7g} {100 * max(rule.gap, 0.0):8.3f} %" for rule in rules
    ]
    return "\n".join(lines)


def _draw_curve(best: Any, rules: Sequence[Any], path: str) -> None:
    """The switching curves of the optimum and of the best rules that look at queues."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from lbgym.theory import plot_switching_curve

    names = [r.policy for r in rules if "random" not in r.policy and "idle" not in r.policy][:3]
    axes = plot_switching_curve(best.system, best, *names)
    axes.figure.savefig(path)
    pyplot.close(axes.figure)
    print(f"written: {path}", file=sys.stderr)


# --- bench and report -----------------------------------------------------------------------------
def _bench(options: argparse.Namespace) -> None:
    from lbgym.benchmark import Settings, run_benchmark
    from lbgym.tables import tables

    if options.suite:
        _suite(options)
        return
    if options.tasks or options.quick:
        raise ValueError("--tasks and --quick: are for --suite")
    _check_picture(options)
    settings = Settings(
        jobs=options.jobs,
        warmup=options.warmup,
        replications=options.replications,
        loss_charge=options.loss_charge,
        move_cost=options.move_cost,
        max_jobs=options.max_jobs,
    )
    with progress_bar("bench") as progress:
        rows = run_benchmark(
            [read_system(text) for text in options.systems or ["flagship"]],
            options.policies,
            seeds=options.seeds,
            settings=settings,
            folder=options.out,
            workers=options.workers,
            against=options.against,
            fresh=options.fresh,
            progress=progress,
            say=lambda line: print(f"lbgym bench: {line}", file=sys.stderr),
        )
    _show(tables(rows, options.against), options.out, options)


def _suite(options: argparse.Namespace) -> None:
    from lbgym import suite
    from lbgym.standings import run_suite, standings_text

    for name in ("systems", "against", "csv", "plot", "warmup", "loss_charge", "move_cost"):
        if getattr(options, name):
            raise ValueError(f"--{name.replace('_', '-')}: means nothing with --suite")
    if options.policies and not options.tasks:
        raise ValueError("--policies: with --suite needs --tasks, the tasks they are for")
    tasks = suite.read(options.tasks)
    with progress_bar("bench") as progress:
        found = run_suite(
            tasks,
            more={task.name: options.policies or () for task in tasks},
            seeds=[0, 1] if options.quick else options.seeds,
            jobs=100_000 if options.quick else options.jobs,
            replications=options.replications,
            folder=options.out,
            workers=options.workers,
            fresh=options.fresh,
            progress=progress,
            say=lambda line: print(f"lbgym bench: {line}", file=sys.stderr),
        )
    if options.json:
        print(json.dumps([x.to_dict() for x in found], indent=1, ensure_ascii=False))
    else:
        print(standings_text(found))


def _report(options: argparse.Namespace) -> None:
    from lbgym.records import load_rows
    from lbgym.report import last_against
    from lbgym.tables import tables

    _check_picture(options)
    rows = load_rows(options.folder)
    against = options.against
    if against is None:
        last = last_against(options.folder)
        against = last if any(row.policy == last for row in rows) else None
    _show(tables(rows, against), options.folder, options)


def _check_picture(options: argparse.Namespace) -> None:
    """A picture asked for that cannot be drawn is said before the work, not after it."""
    if options.plot is None:
        return
    from lbgym.report import need_matplotlib

    need_matplotlib()
    if not options.plot.lower().endswith((".png", ".pdf", ".svg")):
        raise ValueError(f"--plot: must end in .png, .pdf or .svg, got {options.plot!r}")
    if not os.path.isdir(os.path.dirname(options.plot) or "."):
        raise ValueError(f"--plot: no such folder: {os.path.dirname(options.plot)}")


def _show(found: Sequence[Table], folder: str, options: argparse.Namespace) -> None:
    """Write the results into the folder and print them; paths go to stderr."""
    from lbgym import report

    paths = report.write_results(found, folder)
    if options.json:
        print(json.dumps(report.to_data(found), indent=1, ensure_ascii=False))
    elif options.csv:
        print(report.to_csv(found), end="")
    else:
        print("\n\n".join(report.table_text(table) for table in found), flush=True)
    if not options.no_plot:
        picture = options.plot or os.path.join(folder, "results.png")
        try:
            paths.append(report.draw(found, picture))
        except ImportError as error:
            print(f"lbgym: {error}", file=sys.stderr)
    print(f"written: {', '.join(map(str, paths))}", file=sys.stderr)


# --- running --------------------------------------------------------------------------------------
BAR_AFTER = 1.0  # seconds of work


@contextlib.contextmanager
def progress_bar(what: str, unit: str = " jobs") -> Iterator[Report]:
    """A bar on stderr; nothing of it is seen before ``BAR_AFTER`` seconds."""
    from tqdm import tqdm

    bar = tqdm(
        desc=what,
        unit=unit,
        unit_scale=True,
        delay=BAR_AFTER,
        mininterval=0.2 if sys.stderr.isatty() else 10.0,
        leave=False,
        dynamic_ncols=True,
    )

    def progress(done: int, planned: int) -> None:
        bar.total = planned
        bar.update(max(0, done - bar.n))

    with bar:
        yield progress


def _fail(command: str, error: BaseException) -> int:
    said = " ".join(str(error).split()) or type(error).__name__
    print(f"lbgym {command}: error: {said}", file=sys.stderr)
    return 2


def _interrupted(options: argparse.Namespace) -> int:
    hint = ""
    if options.command == "bench":
        hint = f"; finished rows are in {options.out}: the same command goes on from there"
    print(f"lbgym {options.command}: interrupted{hint}", file=sys.stderr)
    return 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):  # no "±" in the terminal's letters: "?", no error
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _interrupted(options)
    except BrokenPipeError:  # the reader, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return _fail(options.command, MemoryError("not enough memory for this system"))
    except BrokenExecutor:
        return _fail(options.command, RuntimeError("a worker process died; out of memory?"))
    except (ValueError, ArithmeticError, ImportError, OSError) as error:
        return _fail(options.command, error)
    return 0
