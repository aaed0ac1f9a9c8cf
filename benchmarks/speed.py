"""How fast and how large, in one table: `python -m benchmarks.speed` or `make bench`.

    python -m benchmarks.speed --quick               # two minutes instead of about ten
    python -m benchmarks.speed --only simulate step  # some groups of lines

Each line: what, measured, what must be reached, what is aimed at, the factor still to be gained to
the aim, and the same of the stored table. All that are compared alternate in short turns in one
run, and each shows its best turn in CPU time: what other programs on the machine do disturbs a
ratio little, an absolute number more. (Lines on threads and on SubprocVecEnv are in wall time and
want free cores.) Without ``--quick`` the lines replace theirs in the stored table,
``benchmarks/results/speed.json``, and in ``docs/speed.md``; another machine begins a new one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import env_rows, process_rows, simulate_rows, training_rows
from benchmarks.measure import Effort, Line, machine

RESULTS = Path(__file__).with_name("results") / "speed.json"
PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"
GROUPS: dict[str, Callable[[Effort], Iterator[Line]]] = {
    "simulate": simulate_rows.simulate,
    "laws": simulate_rows.laws,
    "growth": simulate_rows.growth,
    "memory": process_rows.memory,
    "vector": env_rows.vector,
    "vector-threads": env_rows.vector_threads,
    "step": env_rows.steps,
    "start": process_rows.start,
    "ppo": training_rows.ppo,
    "threads": simulate_rows.threads,
    "simpy": simulate_rows.simpy,
}
FULL, QUICK = Effort(), Effort(turns=2, scale=0.2, quick=True)
WIDTHS = (76, 25, 6, 6, 8, 8)
HEADINGS = ("what", "measured", "must", "aim", "to aim", "last", "made of")


def cells(line: Line, last: float | None) -> list[str]:
    """The columns of a line; `last` is what the stored table has there."""
    measured = f"{line.measured:.3g} {line.unit}".strip()
    return [
        line.what,
        f"{measured} MISSED" if line.missed else measured,
        "" if line.must is None else f"{line.must:g}",
        "" if line.aim is None else f"{line.aim:g}",
        "" if line.to_aim is None else "reached" if line.to_aim <= 1 else f"{line.to_aim:.2f} x",
        "" if last is None else f"{last:.3g}",
        line.detail,
    ]


def show(row: Sequence[str]) -> None:
    """Print a row, the first column to the left."""
    first, *rest = (cell.rjust(width) for cell, width in zip(row, WIDTHS, strict=False))
    print("  ".join([first.strip().ljust(WIDTHS[0]), *rest, row[-1]]).rstrip(), flush=True)


def measure(groups: Sequence[str], effort: Effort, last: Mapping[str, Any]) -> list[Line]:
    """Measure groups of lines and print each line as soon as it is known."""
    stored = {row["what"]: row["measured"] for row in last.get("lines", [])}
    show(HEADINGS)
    lines = []
    for group in groups:
        for line in GROUPS[group](effort):
            show(cells(line, stored.get(line.what)))
            lines.append(line)
    return lines


def updated(last: Mapping[str, Any], lines: Sequence[Line]) -> dict[str, Any]:
    """The stored table with new lines; each knows how busy the machine was."""
    here = machine()
    load = here.pop("load")
    kept = last["lines"] if last.get("machine") == here else []
    rows = {row["what"]: row for row in kept}
    rows |= {line.what: {**asdict(line), "load": load} for line in lines}
    return {"machine": here, "lines": list(rows.values())}


def page(text: str, record: Mapping[str, Any]) -> str:
    """The page with the stored table in the place of its own."""
    rows = [HEADINGS, ["---"] * len(HEADINGS)]
    for stored in record["lines"]:
        line = Line(**{name: value for name, value in stored.items() if name != "load"})
        rows.append(cells(line, None))
    kept = [k for k, name in enumerate(HEADINGS) if name != "last"]
    table = "".join(f"| {' | '.join(row[k] for k in kept)} |\n" for row in rows)
    where = ", ".join(f"{name} {value}" for name, value in record["machine"].items())
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{table}\nMachine: {where}.\n{END}{rest.partition(END)[2]}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS)
    )
    parser.add_argument(
        "--quick", action="store_true", help="less work in each turn; stores nothing"
    )
    given = parser.parse_args(arguments)
    last = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    lines = measure(given.only or list(GROUPS), QUICK if given.quick else FULL, last)
    if not given.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        record = updated(last if given.only else {}, lines)
        RESULTS.write_text(json.dumps(record, indent=1) + "\n")
        PAGE.write_text(page(PAGE.read_text(), record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
