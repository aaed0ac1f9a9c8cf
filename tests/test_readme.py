"""What the README shows works: its Python runs in order, its commands exist."""

import re
import shlex
from pathlib import Path

import pytest

from lbgym.cli import _parser

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PYTHON = [code for language, code in BLOCKS if language == "python"]
LINES = [line for language, code in BLOCKS if language == "" for line in code.splitlines()]


def test_the_python_blocks_run_in_order(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    # Numba looks a rule's source up in a file, so each block is one.
    space: dict[str, object] = {"__name__": "readme"}
    for k, code in enumerate(PYTHON):
        path = tmp_path / f"block_{k}.py"
        path.write_text(code)
        exec(compile(code, str(path), "exec"), space)
    out = capsys.readouterr().out
    assert out.splitlines()[1] == "True"  # the cost promised in the first block
    assert "100 servers (50 x 1, 50 x 2), limit 10" in out
    assert "('message', 'message_age', 'sent', 'sent_age', 'speed', 'limit')" in out
    assert "shorter_of_two on 20 servers" in out
    assert space["env"].action_space.contains(space["action"])


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("lbgym ")])
def test_a_command_can_be_read(line):
    _, *arguments = shlex.split(line, comments=True)
    assert callable(_parser().parse_args(arguments).run)


def test_make_targets_and_modules_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    wanted = re.findall(r"^make ([a-z]+)", "\n".join(LINES), re.MULTILINE)
    wanted += re.findall(r"`make ([a-z]+)`", README)
    assert {"run", "test"} <= set(wanted) <= set(targets)
    modules = re.findall(r"python -m ([\w.]+)", README)
    assert modules
    for module in modules:
        assert (ROOT / (module.replace(".", "/") + ".py")).is_file(), module
