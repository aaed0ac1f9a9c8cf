"""Traces: jobs as they were recorded, from arrays, CSV files and the Standard Workload Format.

CSV: a first line with the names of the columns, ``time`` and optionally ``size``, ``class``,
``router``; then one job a line, times never decreasing.

SWF (D. Feitelson's Parallel Workloads Archive): comment lines ``; Key: value``, then a job a line,
18 blank-separated fields, -1 where unknown. A job's time is its submit time, its size the run time
(or, as "area", times its processors). Real logs have flaws, so: jobs without a known, non-negative
run time (or number of processors, for the area) are skipped, jobs out of order are sorted, bytes
that are no UTF-8 are read as Latin-1. The header is heeded: a file with fewer jobs than its
``MaxRecords`` (or ``MaxJobs``) is cut off and refused, and no job may need more than ``MaxProcs``.

Files that end in ``.gz`` are unpacked.
"""

from __future__ import annotations

import functools
import gzip
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbgym.checks import LEAST, MAX_COUNT, MOST

Floats = NDArray[np.float64]
COLUMNS = ("time", "size", "class", "router")
_SUBMIT, _RUN, _USED, _ASKED = 1, 3, 4, 7  # fields of a line of SWF


@dataclass(frozen=True, eq=False)
class TraceData:
    """A trace as arrays of shape (jobs,); what is not recorded is None.

    `skipped`: jobs of the file left out; `header`: key -> value of an SWF file.
    """

    times: Floats
    sizes: Floats | None = None
    classes: NDArray[np.int64] | None = None
    routers: NDArray[np.int64] | None = None
    skipped: int = 0
    header: dict[str, str] = field(default_factory=dict)

    @property
    def period(self) -> float:
        """From the first job to when the trace begins again: a mean gap after the last."""
        jobs = len(self.times)
        return float(self.times[-1] - self.times[0]) * jobs / (jobs - 1)


def checked_trace(
    times: Sequence[float],
    sizes: Sequence[float] | None,
    classes: Sequence[int] | None,
    routers: Sequence[int] | None,
) -> TraceData:
    """A trace from sequences of checked numbers."""
    for name, values in (("sizes", sizes), ("classes", classes), ("routers", routers)):
        if values is not None and len(values) != len(times):
            raise ValueError(
                f"{name}: must be one for each of the {len(times)} jobs, got {len(values)}"
            )
    for k in range(1, len(times)):
        if times[k] < times[k - 1]:
            raise ValueError(f"times[{k}]: must not decrease, {times[k]:g} after {times[k - 1]:g}")
    return _whole(
        TraceData(
            np.array(times, float),
            None if sizes is None else np.array(sizes, float),
            None if classes is None else np.array(classes, np.int64),
            None if routers is None else np.array(routers, np.int64),
        )
    )


def _whole(trace: TraceData, file: str = "") -> TraceData:
    """Refuse a trace without a rate or without work."""
    if len(trace.times) == 0:
        raise ValueError(f"{file or 'times'}: has no jobs")
    if len(trace.times) < 2 or trace.times[-1] <= trace.times[0]:
        raise ValueError(f"{file or 'times'}: must have jobs at two times at least")
    if trace.sizes is not None and not trace.sizes.any():
        raise ValueError(f"{file or 'sizes'}: every size is 0")
    return trace


# --- files ----------------------------------------------------------------------------------------
def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"file: {path}: no such file") from None
    except OSError as error:
        raise ValueError(f"file: {path}: cannot be read ({error.strerror})") from None
    if path.suffix == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error):
            raise ValueError(f"file: {path}: is not a whole gzip file") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def read_trace(path: Path, work: str = "run-time") -> TraceData:
    """The jobs of a CSV or SWF file; ValueError names the file and the line."""
    stem = path.name.lower().removesuffix(".gz")
    if not stem.endswith((".csv", ".swf")):
        raise ValueError(f"file: must end in .csv or .swf (or these and .gz), got {path}")
    return _read_trace(path, work, _stamp(path))


def read_numbers(path: Path) -> Floats:
    """The numbers of a file, one a line; ValueError names the file and the line."""
    return _read_numbers(path, _stamp(path))


def _stamp(path: Path) -> tuple[int, int]:
    """Tells one version of a file from another."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=8)
def _read_trace(path: Path, work: str, stamp: tuple[int, int]) -> TraceData:
    text = _text(path)
    csv = path.name.lower().removesuffix(".gz").endswith(".csv")
    trace = _from_csv(path, text) if csv else _from_swf(path, text, work)
    return _whole(trace, f"file: {path}")


@functools.lru_cache(maxsize=8)
def _read_numbers(path: Path, stamp: tuple[int, int]) -> Floats:
    found = []
    for k, line in enumerate(_text(path).splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            found.append(_number(path, k, "size", line))
    if not found:
        raise ValueError(f"file: {path}: has no numbers")
    return np.array(found)


def _number(path: Path, line: int, what: str, text: str, least: float = 0.0) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"file: {path}, line {line}: {what} must be a number, got {text.strip()}")
    if value < least:
        raise ValueError(
            f"file: {path}, line {line}: {what} must be at least {least:g}, got {text.strip()}"
        )
    if value and not LEAST <= abs(value) <= MOST:
        raise ValueError(
            f"file: {path}, line {line}: {what} must be between {LEAST} and {MOST}, "
            f"got {text.strip()}"
        )
    return value


def _from_csv(path: Path, text: str) -> TraceData:
    lines = [(k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise ValueError(f"file: {path}: has no jobs")
    number, first = lines[0]
    names = [name.strip() for name in first.split(",")]
    if "time" not in names or len(set(names)) < len(names) or set(names) - set(COLUMNS):
        raise ValueError(
            f"file: {path}, line {number}: must name the columns, time and any of "
            f"{', '.join(COLUMNS[1:])}, got {first.strip()!r}"
        )
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for number, line in lines[1:]:
        cells = line.split(",")
        if len(cells) != len(names):
            raise ValueError(
                f"file: {path}, line {number}: must have {len(names)} values, got {len(cells)}"
            )
        for name, cell in zip(names, cells, strict=True):
            least = -math.inf if name == "time" else 0.0
            value = _number(path, number, name, cell, least)
            if name in ("class", "router"):
                where = f"file: {path}, line {number}: {name}"
                if not value.is_integer():
                    raise ValueError(f"{where} must be a whole number, got {cell}")
                if value > MAX_COUNT:
                    raise ValueError(f"{where} must be at most {MAX_COUNT:,}, got {cell}")
            if name == "time" and columns["time"] and value < columns["time"][-1]:
                raise ValueError(
                    f"file: {path}, line {number}: time must not decrease, "
                    f"{value:g} after {columns['time'][-1]:g}"
                )
            columns[name].append(value)

    def column(name: str, dtype: type) -> Any:
        return np.array(columns[name], dtype) if name in columns else None

    return TraceData(
        np.array(columns["time"], float),
        column("size", float),
        column("class", np.int64),
        column("router", np.int64),
    )


def _from_swf(path: Path, text: str, work: str) -> TraceData:
    header: dict[str, str] = {}
    jobs: list[tuple[float, float]] = []
    records = skipped = 0
    for k, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith(";"):
            key, colon, value = bare[1:].partition(":")
            if colon:
                header.setdefault(key.strip(), value.strip())
            continue
        if not bare:
            continue
        records += 1
        job = _swf_job(path, k, bare, work, _header_number(header, "MaxProcs"))
        if job is None:
            skipped += 1
        else:
            jobs.append(job)
    promised = _header_number(header, "MaxRecords") or _header_number(header, "MaxJobs")
    if promised and records < promised:
        raise ValueError(
            f"file: {path}: is cut off, its header promises {promised:g} jobs, it has {records}"
        )
    if not jobs:
        raise ValueError(f"file: {path}: has no jobs")
    table = np.array(jobs)
    table = table[np.argsort(table[:, 0], kind="stable")]
    return TraceData(table[:, 0].copy(), table[:, 1].copy(), skipped=skipped, header=header)


def _header_number(header: dict[str, str], key: str) -> float:
    """A number that the header tells, 0 if it does not."""
    try:
        return float(header.get(key, "0").split()[0])
    except (ValueError, IndexError):
        return 0.0


def _swf_job(
    path: Path, line: int, text: str, work: str, most: float
) -> tuple[float, float] | None:
    """Submit time and size of a job; None if they are unknown."""
    cells = text.split()
    if len(cells) <= _RUN:
        raise ValueError(f"file: {path}, line {line}: must have 18 fields, got {len(cells)}")
    fields = [_number(path, line, f"field {k + 1}", c, -math.inf) for k, c in enumerate(cells)]
    submit, run = fields[_SUBMIT], fields[_RUN]
    if submit < 0 or run < 0:
        return None
    processors = next((x for x in (*fields[_USED : _USED + 1], *fields[_ASKED : _ASKED + 1])
                       if x > 0), 0.0)  # fmt: skip
    if most and processors > most:
        raise ValueError(
            f"file: {path}, line {line}: {processors:g} processors are more than the header's "
            f"MaxProcs ({most:g})"
        )
    if work == "run-time":
        return submit, run
    return (submit, run * processors) if processors else None
