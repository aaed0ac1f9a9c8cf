"""Results as text, CSV, JSON and a picture; `stats` and `tables` made the numbers."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbgym.kinds import kind_of
from lbgym.measures import Measures
from lbgym.stats import Estimate, as_plain
from lbgym.system import System
from lbgym.tables import Line, Table, excludes_zero

if TYPE_CHECKING:
    from lbgym.simulate import Result
    from lbgym.theory import Fleet

STABLE = {True: "yes", False: "NO", None: "?"}

LEGEND = (
    "± 95 % half-width; * differs from {against} at 95 %, paired on common random numbers.\n{words}"
)


# --- numbers --------------------------------------------------------------------------------------
def show(estimate: Estimate | None) -> str:
    """ "2.676 ±.021": two figures of the half-width; "<2e-05" if nothing was seen; "4" if exact."""
    if estimate is None or math.isnan(estimate):
        return "-"
    reach = estimate.half_width
    if math.isnan(reach):
        return f"{estimate:.4g} ±?"
    if reach == 0:
        return f"{estimate:.6g}"
    if estimate.mean == 0 and estimate.low == 0:
        return f"<{estimate.high:.1g}"
    decimals = 1 - math.floor(math.log10(reach))
    if decimals > 6:
        return f"{estimate:.2g} ±{reach:.1g}"
    decimals = max(decimals, 0)
    spread = f"{reach:.{decimals}f}"
    return f"{estimate:z.{decimals}f} ±{spread.removeprefix('0') if '.' in spread else spread}"


def show_difference(difference: Estimate | None) -> str:
    """With its sign, and a star if the interval excludes 0."""
    if difference is None:
        return "-"
    text = show(difference)
    sign = "" if text.startswith("-") else "+"
    return f"{sign}{text}{' *' if excludes_zero(difference) else '  '}"


# --- text -----------------------------------------------------------------------------------------
def grouped(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Lines by information, from few messages to many; in a group the cheapest first."""
    groups: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: _last_if_nan(line.estimates["cost"])):
        groups.setdefault(line.information, []).append(line)

    def price(group: list[Line]) -> tuple[float, float]:
        messages = (line.estimates.get("messages_per_job", 0.0) for line in group)
        return min(map(_last_if_nan, messages)), -_last_if_nan(group[0].estimates["cost"])

    return dict(sorted(groups.items(), key=lambda item: price(item[1])))


def _last_if_nan(x: float) -> float:
    return math.inf if math.isnan(x) else float(x)


def _measures(table: Table) -> Measures:
    found: Measures = kind_of(table.system).part("measures")
    return found


def _shown_columns(table: Table) -> dict[str, str]:
    """Heading and estimate of the columns after the cost; what is 0 in every line is left out."""
    measures = _measures(table)
    return {
        heading: name
        for heading, name in measures.columns(table.system).items()
        if heading in measures.always or any(line.estimates[name].high != 0 for line in table.lines)
    }


def table_text(table: Table) -> str:
    """The table of one system, lines grouped by information."""
    columns, can_grow = _shown_columns(table), _measures(table).stable is not None
    head = ["", "cost", f"- {_clipped(table.against)}  ", *columns]
    cells: list[list[str]] = [head + ["stable"] * can_grow]
    titles = {}
    for information, lines in grouped(table.lines).items():
        titles[len(cells)] = information
        for line in lines:
            own = line.policy == table.against
            cells.append(
                [
                    f"  {line.policy}",
                    show(line.estimates["cost"]),
                    "  " if own else show_difference(line.difference),
                    *(show(line.estimates[name]) for name in columns.values()),
                ]
                + [STABLE[line.stable]] * can_grow
            )
    body = []
    for k, text in enumerate(_aligned(cells)):
        if k in titles:
            body.append(f"[{titles[k]}]")
        body.append(text)
    return "\n".join([table.title, _runs(table), "", *body, "", _legend(table)])


def _clipped(name: str, length: int = 24) -> str:
    return name if len(name) <= length else name[: length - 3] + "..."


def _runs(table: Table) -> str:
    """How much was simulated."""
    s = table.settings
    seeds = sorted({seed for line in table.lines for seed in line.seeds})
    each = f" x {s.replications} replications" if s.replications else ""
    of_each = " of each" if s.replications else ""
    warmup = s.jobs // 10 if s.warmup is None else s.warmup
    return (
        f"{s.jobs:,} {_measures(table).arrivals}{each} a seed, the first {warmup:,}{of_each} "
        f"discarded; seeds {', '.join(map(str, seeds))}"
    )


def _legend(table: Table) -> str:
    move_cost = table.settings.move_cost
    if isinstance(table.system, System):
        charges = f" + {table.loss_charge:g} a lost job" if table.loss_charge else ""
        charges += f" + {move_cost:g} a migration" if move_cost else ""
    else:
        charges = f" x {table.loss_charge:g}" if table.loss_charge != 1 else ""
    words = _measures(table).words.format(charges=charges)
    return LEGEND.format(against=table.against, words=words)


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """First column to the left, the others to the right, "±" under "±"."""
    columns = [_column(column, left=k == 0) for k, column in enumerate(zip(*cells, strict=True))]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _column(column: Sequence[str], left: bool) -> list[str]:
    if not left:
        tail = max(len(text.partition(" ±")[2]) for text in column)
        column = [
            text + " " * (tail - len(text.partition(" ±")[2])) if " ±" in text else text
            for text in column
        ]
    width = max(map(len, column))
    return [f"{text:<{width}}" if left else f"{text:>{width}}" for text in column]


def result_text(result: Any) -> str:
    """One simulation's result, readable."""
    lines = [f"{result.policy} on {result.system.describe()}", f"knows: {result.information}", ""]
    named = _shown_estimates(result)
    if isinstance(result.system, System):
        named |= _shown_of_servers(result)
    measures = kind_of(result.system).part("measures")
    if measures.stable is not None:
        named["stable"] = {True: "yes", False: "no", None: "undecided"}[result.stable]
    width = max(map(len, named))
    lines += [f"  {name.replace('_', ' '):{width}}  {text}" for name, text in named.items()]
    many = f" in {result.replications} replications" if result.replications > 1 else ""
    charge = f"loss charge {result.loss_charge:g}; " if result.system.default_loss_charge else ""
    lines += [
        "",
        f"± 95 % half-width; {charge}{result.jobs:,} {measures.arrivals}{many}, the first "
        f"{result.warmup:,} of each discarded; seed {result.seed}; {result.seconds:.2f} s",
    ]
    return "\n".join(lines)


def _shown_estimates(result: Any) -> dict[str, str]:
    """Every estimate of a result; of several classes one after another."""
    named: dict[str, str] = {}
    for name, value in vars(result).items():
        if isinstance(value, Estimate):
            named[name] = show(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Estimate):
            named[name] = ", ".join(map(show, value))
    return named


def _shown_of_servers(result: Result) -> dict[str, str]:
    """What jobs at servers have besides."""
    named = {
        f"response_time p{100 * p:g}": show(result.response_time_quantile(p))
        for p in (0.5, 0.9, 0.99)
    }
    named["utilization"] = f"{result.utilization:.4f}"
    if len(result.utilization_per_pool) > 1:
        named["utilization by pool"] = ", ".join(f"{u:.4f}" for u in result.utilization_per_pool)
        named["jobs by pool"] = ", ".join(f"{n:.4g}" for n in result.jobs_per_pool)
    return named


def fleet_text(found: Fleet) -> str:
    """The curve of a fleet sweep, the best number of cars marked."""
    cells = [["cars", "a station", found.metric, ""]]
    for cars, value in found.curve.items():
        shown = show(value) if isinstance(value, Estimate) else f"{value:.6f}"
        mark = "<- best" if cars == found.cars else ""
        cells.append([f"{cars:,}", f"{cars / found.system.stations:.4g}", shown, mark])
    share = "users" if found.metric == "accepted" else "stations"
    return "\n".join(
        [
            f"{found.policy} on {found.system.describe()}",
            f"{found.metric}: share of the {share}, by {found.method}",
            "",
            *_aligned(cells),
            "",
            f"best: {found.cars:,} cars, {found.cars_per_station:.4g} a station",
        ]
    )


# --- data -----------------------------------------------------------------------------------------
def to_data(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """The tables as JSON-able data; each estimate as mean, low and high."""
    data: list[dict[str, Any]] = as_plain([_table_data(table) for table in tables])
    return data


def _table_data(table: Table) -> dict[str, Any]:
    lines = [line for group in grouped(table.lines).values() for line in group]
    return {
        "system": table.system.to_dict(),
        "title": table.title,
        **vars(table.settings),
        "loss_charge": table.loss_charge,
        "version": table.version,
        "against": table.against,
        "policies": [
            {
                "policy": line.policy,
                "information": line.information,
                "seeds": line.seeds,
                **line.estimates,
                "difference": line.difference,
                "differs": excludes_zero(line.difference),
                "stable": line.stable,
                "simulated_jobs": line.jobs,
                "seconds": line.seconds,
            }
            for line in lines
        ],
    }


def to_csv(tables: Iterable[Table]) -> str:
    """The tables as one CSV text, a line for each system and policy."""
    records = [record for table in to_data(tables) for record in _flat_records(table)]
    text = io.StringIO()
    columns = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _flat_records(table: dict[str, Any]) -> list[dict[str, Any]]:
    system = table.pop("system")
    lines = table.pop("policies")
    common = {"system": system.get("name", ""), **table}
    return [{**common, **_flat(line)} for line in lines]


def _flat(line: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in line.items():
        if name == "seeds":
            flat[name] = " ".join(map(str, value))
        elif name == "difference" or isinstance(value, dict):
            value = value or {"mean": None, "low": None, "high": None}
            flat[name] = value["mean"]
            flat[f"{name}_low"], flat[f"{name}_high"] = value["low"], value["high"]
        else:
            flat[name] = value
    return flat


def write_results(tables: Sequence[Table], folder: str | os.PathLike[str]) -> list[Path]:
    """Write results.json and results.csv into a folder and return their paths."""
    texts = {
        "results.json": json.dumps(to_data(tables), indent=1, ensure_ascii=False) + "\n",
        "results.csv": to_csv(tables),
    }
    paths = []
    for name, text in texts.items():
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def last_against(folder: str | os.PathLike[str]) -> str | None:
    """The policy that the last results written into a folder were paired with."""
    try:
        text = (Path(folder) / "results.json").read_text(encoding="utf-8")
        return str(json.loads(text)[0]["against"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


# --- picture --------------------------------------------------------------------------------------
def need_matplotlib() -> None:
    """Raises ImportError that says how to install it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("a picture needs matplotlib: pip install lbgym[report]") from None


def draw(tables: Sequence[Table], path: str | os.PathLike[str]) -> Path:
    """The price of information: cost against messages per job, a panel for each system; the cost
    of each policy where nothing is sent (car sharing, flow networks).

    The file's ending decides its kind (png, pdf, svg).
    """
    need_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.5 * len(tables)), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(tables), 1, squeeze=False)[:, 0]
    styles = _styles(tables)
    labels = [_draw_panel(axes, table, styles) for axes, table in zip(panels, tables, strict=True)]
    figure.draw_without_rendering()  # settles the layout, which labels depend on
    figure.set_layout_engine("none")
    for axes, texts in zip(panels, labels, strict=True):
        _place_labels(axes, texts)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"picture {path}: cannot be written ({error})") from None
    return Path(path)


def _styles(tables: Iterable[Table]) -> dict[str, dict[str, str]]:
    """A colour and a marker for each kind of information, the same in all panels."""
    markers = "osD^vP*Xhp<>"
    kinds = dict.fromkeys(kind for table in tables for kind in grouped(table.lines))
    return {
        kind: {"color": f"C{k % 10}", "fmt": markers[k % len(markers)]}
        for k, kind in enumerate(kinds)
    }


def _has_messages(table: Table) -> bool:
    return all("messages_per_job" in line.estimates for line in table.lines)


def _draw_bars(axes: Any, table: Table, styles: dict[str, dict[str, str]]) -> None:
    """The cost of every policy, one below another, where information has no price in messages."""
    names: list[str] = []
    for information, lines in grouped(table.lines).items():
        shown = [line for line in lines if math.isfinite(line.estimates["cost"])]
        costs = [line.estimates["cost"] for line in shown]
        axes.errorbar(
            costs,
            range(len(names), len(names) + len(shown)),
            xerr=[_reach(x) for x in costs],
            markersize=6,
            capsize=3,
            label=information,
            **styles[information],
        )
        names += [line.policy for line in shown]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title(table.title, fontsize=10)
    axes.set_xlabel("cost per arrival (95 % interval)")
    axes.grid(alpha=0.25)
    axes.legend(title="what the policy knows", fontsize=8, title_fontsize=8)


def _draw_panel(
    axes: Any, table: Table, styles: dict[str, dict[str, str]]
) -> list[tuple[str, float, float]]:
    """Markers and error bars; returns the labels still to be placed."""
    labels: list[tuple[str, float, float]] = []
    if not _has_messages(table):
        _draw_bars(axes, table, styles)
        return labels
    for information, lines in grouped(table.lines).items():
        shown = [line for line in lines if math.isfinite(line.estimates["cost"])]
        costs = [line.estimates["cost"] for line in shown]
        messages = [line.estimates["messages_per_job"] for line in shown]
        axes.errorbar(
            messages,
            costs,
            xerr=[_reach(x) for x in messages],
            yerr=[_reach(y) for y in costs],
            markersize=6,
            elinewidth=1.2,
            capsize=3,
            label=information,
            **styles[information],
        )
        labels += [(p.policy, x, y) for p, x, y in zip(shown, messages, costs, strict=True)]
    _dress(axes, table, [y for _, _, y in labels])
    return labels


def _reach(estimate: Estimate) -> float:
    return estimate.half_width if math.isfinite(estimate.half_width) else 0.0


def _dress(axes: Any, table: Table, costs: Sequence[float]) -> None:
    """Scales, titles and room for the labels."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xscale("symlog", linthresh=1.0)
    axes.xaxis.set_major_formatter("{x:g}")
    if costs and min(costs) > 0 and max(costs) > 3 * min(costs):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.06, y=0.1)
    left, right = axes.get_xlim()
    axes.set_xlim(min(left, -0.1), max(right * 4, 2.0))
    axes.set_title(f"The price of information: {table.title}", fontsize=10)
    axes.set_xlabel("messages per job (linear up to 1, then logarithmic)")
    axes.set_ylabel("cost per job (95 % interval)")
    axes.grid(alpha=0.25)
    axes.legend(title="what the policy knows", fontsize=8, title_fontsize=8, loc="upper right")


def _place_labels(axes: Any, labels: Sequence[tuple[str, float, float]]) -> None:
    """Each label beside its marker, at the nearest place free of other labels and markers."""
    from matplotlib.transforms import Bbox

    renderer = axes.figure.canvas.get_renderer()
    points = [axes.transData.transform((x, y)) for _, x, y in labels]
    taken = [Bbox.from_bounds(x - 8, y - 8, 16, 16) for x, y in points]
    taken.append(axes.get_legend().get_window_extent(renderer))
    frame = axes.get_window_extent(renderer)
    for (name, x, y), point in sorted(zip(labels, points, strict=True), key=lambda p: -p[1][1]):
        shown = _wrapped(name)
        probe = axes.text(0, 0, shown, fontsize=7.5)
        size = probe.get_window_extent(renderer).size
        probe.remove()
        box = _nearest_free(point, size, taken, frame)
        taken.append(box)
        axes.annotate(
            shown,
            (x, y),
            xytext=axes.transAxes.inverted().transform((box.x0, (box.y0 + box.y1) / 2)),
            textcoords="axes fraction",
            fontsize=7.5,
            va="center",
            arrowprops={"arrowstyle": "-", "color": "0.7", "linewidth": 0.6, "shrinkB": 4},
        )


def _nearest_free(point: Any, size: Any, taken: Sequence[Any], frame: Any) -> Any:
    """The box of a label at the first free place around its marker; in pixels."""
    from matplotlib.transforms import Bbox

    (x, y), (width, height) = point, size
    for dy in sorted(range(-320, 321, 4), key=abs):
        gap = 14 + abs(dy) / 6
        for left in (x + gap, x - gap - width):
            box = Bbox.from_bounds(left, y + dy - height / 2, width, height)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1
            inside = inside and frame.y0 <= box.y0 and box.y1 <= frame.y1
            if inside and not any(box.overlaps(other) for other in taken):
                return box
    return Bbox.from_bounds(x + 14, y - height / 2, width, height)


def _wrapped(name: str, length: int = 30) -> str:
    """A long name on several lines, broken after a comma or an opening bracket."""
    if len(name) <= length:
        return name
    lines = [""]
    for part in name.replace("(", "(\0").replace(", ", ", \0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(part) > length:
            lines.append("  ")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)
