"""Finished rows of a benchmark on disk: one JSON line for each system, policy and seed.

A row holds the totals of its batches, not their estimates, so that rows of several seeds pool and
pair exactly. The file is only ever appended to; each line is on the disk before the next one is
written, a last line torn by a crash is cut off, and of two lines with one key the later counts.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lbgym.kinds import kind_of
from lbgym.measures import Totals
from lbgym.system import as_system

FILE = "rows.jsonl"


@dataclass(frozen=True)
class Settings:
    """What all rows of one table share, besides the system."""

    jobs: int = 1_000_000
    warmup: int | None = None
    replications: int | None = None
    loss_charge: float | None = None
    move_cost: float = 0.0
    max_jobs: int = 10_000_000


@dataclass(frozen=True)
class Row:
    """One simulated system, policy and seed.

    key : hash of everything that decides the numbers
    version : of the package and its sources; model : hash of a trained model's files
    batches : totals by name; each of shape (batches,) or (batches, classes), replications one after
        another
    packed : histograms of the response time, compressed; unpacked by `histograms`
    complete : False if the run ended early (more than `max_jobs` in the system)
    """

    key: str
    system: dict[str, Any]
    policy: str
    information: str
    seed: int
    settings: Settings
    loss_charge: float
    version: str
    model: str
    stable: bool | None
    complete: bool
    jobs: int
    seconds: float
    batches: dict[str, NDArray[np.float64]] = field(repr=False)
    packed: dict[str, Any] = field(repr=False)

    @property
    def histograms(self) -> NDArray[np.int64]:
        """Response times by batch, shape (batches, bins)."""
        return unpack(self.packed)

    def batch_costs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Total cost and number of arrivals of each batch."""
        totals = totals_of([self])
        costs: NDArray[np.float64] = kind_of(totals.system).part("measures").costs(totals)
        return costs, self.batches["arrivals"]

    def to_line(self) -> str:
        """One line of JSON, without the newline."""
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        data["settings"] = vars(self.settings)
        data["batches"] = {k: _short(v.tolist()) for k, v in self.batches.items()}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> Row:
        """The row that `to_line` wrote; ValueError, KeyError or TypeError if it is not one."""
        data = json.loads(line)
        data["settings"] = Settings(**data["settings"])
        data["batches"] = {k: np.array(v, dtype=float) for k, v in data["batches"].items()}
        return cls(**data)


def totals_of(rows: Sequence[Row]) -> Totals:
    """The totals of rows of one system and setting, one after another."""
    first = rows[0]
    return Totals(
        system=as_system(first.system),
        batches={k: np.concatenate([row.batches[k] for row in rows]) for k in first.batches},
        loss_charge=first.loss_charge,
        move_cost=first.settings.move_cost,
        histograms=np.concatenate([row.histograms for row in rows]),
    )


def _short(x: Any) -> Any:
    """Whole numbers without their point, lists all the way down."""
    if isinstance(x, list):
        return [_short(item) for item in x]
    return int(x) if x.is_integer() else x


def pack(counts: NDArray[np.int64]) -> dict[str, Any]:
    """Histograms by batch as JSON-able data: the bins in use, compressed to some kilobytes."""
    used = np.flatnonzero(counts.any(axis=0))
    first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
    data = zlib.compress(np.ascontiguousarray(counts[:, first:last].T, dtype="<i8").tobytes())
    return {
        "shape": list(counts.shape),
        "bins": [first, last],
        "zlib": base64.b64encode(data).decode(),
    }


def unpack(packed: dict[str, Any]) -> NDArray[np.int64]:
    """The histograms that `pack` made smaller."""
    counts = np.zeros(packed["shape"], dtype=np.int64)
    first, last = packed["bins"]
    data = zlib.decompress(base64.b64decode(packed["zlib"]))
    counts[:, first:last] = np.frombuffer(data, dtype="<i8").reshape(last - first, len(counts)).T
    return counts


def key_of(parts: dict[str, Any]) -> str:
    """Hash of JSON-able data, the order of its keys aside."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# --- reading --------------------------------------------------------------------------------------
def _read(path: Path) -> tuple[dict[str, Row], int]:
    """Rows by key and how many lines could not be read; a torn last line is passed over."""
    rows: dict[str, Row] = {}
    unreadable = 0
    *lines, _torn = path.read_bytes().split(b"\n")
    for line in lines:
        try:
            row = Row.from_line(line.decode())
        except (ValueError, KeyError, TypeError, zlib.error):
            unreadable += 1
            continue
        rows[row.key] = row
    return rows, unreadable


def load_rows(folder: str | os.PathLike[str]) -> list[Row]:
    """All finished rows of a results folder, in the order in which they finished.

    Raises ValueError if there are none.
    """
    path = Path(folder) / FILE
    try:
        rows, unreadable = _read(path)
    except FileNotFoundError:
        raise ValueError(f"{folder}: no results here ({FILE} is missing)") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    if not rows:
        why = f" ({unreadable} unreadable lines)" if unreadable else ""
        raise ValueError(f"{path}: no finished row{why}")
    return list(rows.values())


# --- writing --------------------------------------------------------------------------------------
class Records:
    """A results folder open for writing, by one process at a time."""

    def __init__(self, file: IO[bytes], rows: dict[str, Row], unreadable: int) -> None:
        self.rows, self.unreadable = rows, unreadable
        self._file = file

    def append(self, row: Row) -> None:
        """Write a finished row and wait until it is on the disk; all of it or nothing."""
        file, data = self._file.fileno(), row.to_line().encode() + b"\n"
        before = os.fstat(file).st_size
        try:
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        except BaseException:  # a full disk, Ctrl-C
            os.ftruncate(file, before)
            raise
        self.rows[row.key] = row


@contextlib.contextmanager
def open_records(folder: str | os.PathLike[str]) -> Iterator[Records]:
    """Open a results folder, made if need be.

    Raises ValueError if it cannot be written or another process writes to it.
    """
    path = Path(folder) / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"results folder {folder}: cannot be written ({reason})") from None
    with file:
        _lock(file, folder)
        _cut_torn_line(file, path)
        yield Records(file, *_read(path))


def _lock(file: IO[bytes], folder: str | os.PathLike[str]) -> None:
    """Keep others out until the file is closed, where the system can."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(
            f"results folder {folder}: in use by another benchmark; name another one"
        ) from None
    except OSError:
        return


def _cut_torn_line(file: IO[bytes], path: Path) -> None:
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        file.truncate(whole)
