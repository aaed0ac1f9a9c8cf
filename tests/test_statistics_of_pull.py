"""PULL as theory says: waiting vanishes as n grows, unless routers are unequal; stability."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from baselines import pull
from baselines.pull import CRITICAL, at_size, exact_waiting, limit_of_waiting, near_critical
from lbgym.simulate import simulate
from lbgym.system import Pool, System

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("weights", "load", "waiting"),
    [
        ((0.8, 0.2), 0.7, 0.3231),
        ((0.8, 0.2), 0.5, 0.2000),
        ((0.6, 0.2, 0.2), 0.8, 0.2909),
        ((0.4, 0.3, 0.3), 0.8, 0.0727),
        ((0.5, 0.5), 0.7, 0.0),
        ((1.0,), 0.9, 0.0),
    ],
)
def test_limit_of_waiting_with_unequal_routers(weights, load, waiting):
    assert limit_of_waiting(weights, load) == pytest.approx(waiting, abs=5e-5)


@pytest.mark.parametrize(
    ("weights", "load"), [((0.6, 0.2, 0.2), 0.8), ((0.4, 0.3, 0.3), 0.8), ((0.8, 0.2), 0.5)]
)
def test_many_servers_wait_as_the_limit_says(weights, load):
    result = simulate(System(Pool(2000), weights, load=load), "pull", jobs=1_000_000, seed=2)
    assert result.waiting_probability == pytest.approx(limit_of_waiting(weights, load), abs=0.01)


def test_waiting_falls_as_servers_are_added():
    rows = [at_size("equal", n, 0.3, 1, seed=n) for n in (2, 8, 24, 100, 500)]
    for fewer, more in itertools.pairwise(rows):
        assert more.high < fewer.low
        assert more.messages > fewer.messages
    assert rows[-1].waiting + rows[-1].blocking < 0.01
    assert rows[-1].messages == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("n", [2, 16])
def test_few_servers_wait_as_the_exact_chain_says(n):
    row = at_size("equal", n, 0.3, 1, seed=5)
    assert row.exact is not None
    assert row.waiting == pytest.approx(row.exact, rel=0.02)


def test_exact_values_are_found_by_system():
    assert exact_waiting(pull.equal_routers(24)) == pytest.approx(0.115697, abs=1e-6)
    assert exact_waiting(pull.unequal_routers(2)) == pytest.approx(0.623550, abs=1e-6)
    assert exact_waiting(pull.equal_routers(25)) is None


@pytest.mark.parametrize("case", CRITICAL, ids=lambda case: f"{case.name}, {case.system.load}")
def test_stability_near_the_critical_load(case):
    row = near_critical(case, jobs=1_000_000, seed=1)
    assert row.passes, row.cells()


@pytest.mark.parametrize(
    ("fate", "stable_at", "unstable_at"),
    [("withdraw", 0.75, 0.83), ("keep", 0.77, 0.85), ("resend", 0.78, 0.86)],
)
def test_critical_load_depends_on_the_fate_of_messages(fate, stable_at, unstable_at):
    """Two servers, speeds 1 and 2, R = 2: .790760, .807773 and .818527."""

    def found(load):
        system = System([Pool(1), Pool(1, speed=2.0)], routers=2, load=load, message_fate=fate)
        return simulate(system, "pull", jobs=1_000_000, seed=3).stable

    assert found(stable_at) is True
    assert found(unstable_at) is False


def test_command_prints_both_tables():
    done = subprocess.run(
        [sys.executable, "-m", "baselines.pull", "--quick", "--threads", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0.3231" in done.stdout
    assert "WRONG" not in done.stdout


def test_picture_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(pull, "PICTURE", tmp_path / "pull.png")
    rows = [at_size(routers, n, 0.02, 1, 1) for routers in ("equal", "unequal") for n in (2, 16)]
    pull.draw(rows)
    assert pull.PICTURE.read_bytes().startswith(b"\x89PNG")
