"""Policies x systems x seeds on common random numbers: rows that are kept, and resumed.

`run_benchmark` simulates what is not yet in the results folder and returns the rows; `lbgym.tables`
pools and pairs them. Classical rules run on threads - their compiled loop lets go of the
interpreter, and a thread shares the compiled engine that a new process would have to load again.
Trained models (``model:PATH``) act through Python, which holds the interpreter, so they get
processes; a script that runs them needs ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from lbgym._version import __version__
from lbgym.kinds import kind_of
from lbgym.policies import make, parse
from lbgym.policies.registry import USUAL, USUAL_MIGRATING
from lbgym.records import Row, Settings, key_of, load_rows, open_records, pack
from lbgym.simulate import simulate
from lbgym.system import Pool, System, as_system

__all__ = [
    "DEFAULT_POLICIES",
    "MIGRATING_POLICIES",
    "Row",
    "Settings",
    "load_rows",
    "run_benchmark",
]

MODEL = "model:"

DEFAULT_POLICIES, MIGRATING_POLICIES = USUAL, USUAL_MIGRATING

Progress = Callable[[int, int], None]  # (arrivals so far, arrivals planned)
Tick = Callable[[int], None]  # (arrivals so far)
Keep = Callable[[Row], None]


@functools.cache
def code_version() -> str:
    """The package's version and a hash of what decides the numbers, so that rows of an edited
    engine never mix with older ones."""
    package = Path(__file__).parent
    folders = ("engine", "models", "policies", "envs")
    files = [file for folder in folders for file in sorted((package / folder).rglob("*.py"))]
    digest = hashlib.sha256()
    for file in [*files, *(package / f"{name}.py" for name in ("simulate", "agent_runs", "track"))]:
        digest.update(file.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:8]}"


# --- what is to be run ----------------------------------------------------------------------------
@dataclass(frozen=True)
class Task:
    """One row still to be simulated; `model` is the hash of a trained model's files."""

    system: Any
    policy: str
    seed: int
    settings: Settings
    model: str = ""

    @property
    def loss_charge(self) -> float:
        given = self.settings.loss_charge
        return float(self.system.default_loss_charge if given is None else given)

    @property
    def key(self) -> str:
        """Hash of everything that decides the numbers."""
        return key_of(
            {
                "system": self.system.to_dict(),
                "policy": self.policy,
                "model": self.model,
                "seed": self.seed,
                "settings": {**vars(self.settings), "loss_charge": self.loss_charge},
                "version": code_version(),
            }
        )

    @property
    def arrivals(self) -> int:
        """Of all replications."""
        return self.settings.jobs * (self.settings.replications or 1)

    def run(self, progress: Progress) -> Row:
        """Simulate it."""
        s = self.settings
        result = simulate(
            self.system,
            self.policy,
            jobs=s.jobs,
            warmup=s.warmup,
            seed=self.seed,
            replications=s.replications,
            loss_charge=s.loss_charge,
            move_cost=s.move_cost,
            max_jobs=s.max_jobs,
            progress=progress,
        )
        return Row(
            key=self.key,
            system=self.system.to_dict(),
            policy=self.policy,
            information=result.information,
            seed=self.seed,
            settings=s,
            loss_charge=result.loss_charge,
            version=code_version(),
            model=self.model,
            stable=result.stable,
            complete=result.jobs >= self.arrivals,
            jobs=result.jobs,
            seconds=result.seconds,
            batches=result.batches,
            packed=pack(result.histograms),
        )


def policies_for(
    system: Any, policies: Sequence[str] | None, against: str | None = None
) -> list[str]:
    """Canonical names, checked on the system, each once; `against` is added if missing.

    Of the default list (None) only what the system takes; a policy asked for that it does not take
    raises ValueError.
    """
    asked = list(policies or ()) + ([] if against is None else [against])
    names = [_checked(name, system) for name in asked]
    if policies is None:
        fitting = []
        for name in kind_of(system).part("rules").usual(system):
            with contextlib.suppress(ValueError):
                fitting.append(_checked(name, system))
        names = fitting + names
    if not names:
        raise ValueError("policies: must not be empty")
    return list(dict.fromkeys(names))


def canonical(name: str) -> str:
    """A policy's name as `make` writes it."""
    text = name.strip() if isinstance(name, str) else name
    return text if isinstance(text, str) and text.startswith(MODEL) else str(parse(text))


def _checked(name: str, system: Any) -> str:
    whole = canonical(name)
    if whole.startswith(MODEL):
        _model_files(whole.removeprefix(MODEL))
        return whole
    try:
        name_of: str = make(whole, system).name
        return name_of
    except ValueError as error:
        raise ValueError(f"{error} (system {label(system)})") from None


def label(system: Any) -> str:
    """Its name, or else what it is."""
    return str(system.name or system.describe())


def _model_files(path: str) -> list[Path]:
    """The files of a saved model: those of its folder (logs aside), or one file."""
    folder = Path(path)
    if folder.is_dir():
        files = sorted(file for file in folder.iterdir() if file.suffix in (".json", ".zip"))
        if not files:
            raise ValueError(f"policy {MODEL}{path}: no model in this folder")
        return files
    for file in (folder, Path(path + ".zip")):
        if file.is_file():
            return [file]
    raise ValueError(f"policy {MODEL}{path}: no such file or folder")


def _model_hash(policy: str) -> str:
    if not policy.startswith(MODEL):
        return ""
    digest = hashlib.sha256()
    for file in _model_files(policy.removeprefix(MODEL)):
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def plan(
    systems: Iterable[Any],
    policies: Sequence[str] | None,
    seeds: Iterable[int],
    settings: Settings,
    against: str | None = None,
) -> list[Task]:
    """Every row asked for, all names checked; policies vary fastest."""
    each = list(dict.fromkeys(as_system(system) for system in systems))
    named = [(system, policies_for(system, policies, against)) for system in each]
    seeds = list(dict.fromkeys(seeds))
    models = {name: _model_hash(name) for _, names in named for name in names}
    return [
        Task(system, name, seed, settings, models[name])
        for system, names in named
        for seed in seeds
        for name in names
    ]


# --- running --------------------------------------------------------------------------------------
class Stopped(Exception):
    """A row was given up because the benchmark is being stopped."""


class Counter:
    """Arrivals simulated so far by all workers, and the wish to stop.

    `cells` is shared by them: arrivals and, when it is to end, 1; `lock` guards it.
    """

    def __init__(self, cells: Any, lock: Any) -> None:
        self.cells, self.lock = cells, lock

    def follow(self) -> Progress:
        """A progress function for one row."""
        before = 0

        def progress(done: int, _planned: int) -> None:
            nonlocal before
            if self.cells[1]:
                raise Stopped
            with self.lock:
                self.cells[0] += done - before
            before = done

        return progress


_counter_here: Counter | None = None  # of a worker process


def _begin_worker(cells: Any, lock: Any) -> None:
    """Set up a worker process: it stops when told, and never outlives the benchmark."""
    global _counter_here
    _counter_here = Counter(cells, lock)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers are the parallelism
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        while not cells[1] and not connection.wait([parent.sentinel], timeout=0.2):
            pass
        os._exit(1)  # at once, whatever is being loaded

    threading.Thread(target=watch, daemon=True).start()


def _run_in_worker(task: Task) -> Row:
    assert _counter_here is not None
    return task.run(_counter_here.follow())


def _run_processes(tasks: Sequence[Task], workers: int, tick: Tick, keep: Keep) -> None:
    spawn = multiprocessing.get_context("spawn")
    counter = Counter(spawn.Array("q", 2, lock=False), spawn.Lock())
    pool = ProcessPoolExecutor(
        min(workers, len(tasks)),
        mp_context=spawn,
        initializer=_begin_worker,
        initargs=(counter.cells, counter.lock),
    )
    with _without_ctrl_c():
        futures = [pool.submit(_run_in_worker, task) for task in tasks]
    _collect(pool, futures, counter, tick, keep)


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Processes started here never see Ctrl-C, which reaches this one a moment later."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_threads(tasks: Sequence[Task], workers: int, tick: Tick, keep: Keep) -> None:
    _compile(tasks)
    counter = Counter([0, 0], threading.Lock())
    pool = ThreadPoolExecutor(min(workers, len(tasks)))
    _collect(pool, [pool.submit(t.run, counter.follow()) for t in tasks], counter, tick, keep)


def _compile(tasks: Sequence[Task]) -> None:
    """Have everything compiled or loaded before threads ask for it at once."""
    for task in {kind_of(task.system).name: task for task in tasks}.values():
        if isinstance(task.system, System):  # which may be large, or closed
            simulate(System(Pool(1), load=0.5), "pull", jobs=100)
        else:
            simulate(task.system, task.policy, jobs=100)
    named = {(kind_of(task.system).name, task.policy): task for task in tasks}
    for task in named.values():
        make(task.policy, task.system).rules()


def _collect(
    pool: Executor, futures: Sequence[Future[Row]], counter: Counter, tick: Tick, keep: Keep
) -> None:
    """Keep each row as it finishes. On Ctrl-C or an error the others are told to end, and rows
    that finished meanwhile are kept too."""
    pending, kept = set(futures), set()
    try:
        while pending:
            done, pending = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
            tick(counter.cells[0])
            for future in done:
                keep(future.result())
                kept.add(future)
    except BaseException:
        counter.cells[1] = 1
        pool.shutdown(cancel_futures=True)
        for future in futures:
            if future not in kept and not future.cancelled() and future.exception() is None:
                keep(future.result())
        raise
    pool.shutdown()


def run_benchmark(
    systems: Iterable[Any],
    policies: Sequence[str] | None = None,
    *,
    seeds: Iterable[int] = range(4),
    settings: Settings | None = None,
    folder: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    against: str | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Row]:
    """Simulate every policy on every system with every seed.

    Parameters
    ----------
    systems : iterable
        Each a system of any kind, its dict, a scenario's name or the path of a TOML file.
    policies : list of str, optional
        Names. Default: `DEFAULT_POLICIES` that fit the system, and `MIGRATING_POLICIES` where jobs
        migrate; of car sharing and flow networks those of their own.
    seeds : iterable of int
        All policies share each seed's random numbers.
    settings : Settings, optional
        Jobs, warm-up, charges.
    folder : path, optional
        Finished rows are kept there at once, and rows found there are not run again.
    workers : int, optional
        Rows side by side; default one a processor. Results do not depend on it.
    against : str, optional
        One more policy, if it is not among them.
    fresh : bool
        Run again what the folder has; the new rows replace the old ones.
    progress : callable, optional
        Called with (arrivals so far, arrivals to simulate).
    say : callable, optional
        Called with a line on what was found in the folder.

    Returns
    -------
    list of Row
        All rows asked for, in the order system, seed, policy.

    Raises
    ------
    ValueError
        Before anything runs, for a name or a folder that does not do.
    """
    tasks = plan(systems, policies, seeds, settings or Settings(), against)
    workers = workers or _processors()
    if folder is None:
        return _run_missing(tasks, {}, lambda row: None, workers, progress)
    with open_records(folder) as records:
        known = {} if fresh else dict(records.rows)
        if say is not None:
            _say_found(tasks, known, records.unreadable, say)
        return _run_missing(tasks, known, records.append, workers, progress)


def _processors() -> int:
    """Those this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _say_found(
    tasks: Sequence[Task], known: dict[str, Row], unreadable: int, say: Callable[[str], None]
) -> None:
    if unreadable:
        say(f"{unreadable} unreadable lines in the results folder are ignored")
    found = sum(task.key in known for task in tasks)
    if found:
        say(f"{found} of {len(tasks)} rows are in the results folder already")


def _run_missing(
    tasks: Sequence[Task],
    known: dict[str, Row],
    keep: Keep,
    workers: int,
    progress: Progress | None,
) -> list[Row]:
    missing = [task for task in tasks if task.key not in known]
    total = sum(task.arrivals for task in missing)
    before = 0

    def tick(done: int) -> None:
        if progress is not None:
            progress(before + done, total)

    def note(row: Row) -> None:
        known[row.key] = row
        keep(row)

    for run, is_model in ((_run_threads, False), (_run_processes, True)):
        part = [task for task in missing if task.policy.startswith(MODEL) == is_model]
        if part:
            run(part, workers, tick, note)
            before += sum(task.arrivals for task in part)
    return [known[task.key] for task in tasks]
