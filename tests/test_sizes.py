"""One network at several numbers of servers."""

import json

import pytest

pytest.importorskip("torch")

from baselines import sizes


def test_a_model_and_the_rules_are_compared_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sizes, "RUNS", {20: (4, 1000), 200: (2, 1000)})
    monkeypatch.setattr(sizes, "RESULTS", tmp_path / "sizes.json")
    assert sizes.main(["--servers", "200"]) == 0
    assert sizes.main(["--servers", "20"]) == 0
    assert "model minus pull(fallback=wrr, choice=fastest)" in capsys.readouterr().out
    rows = json.loads((tmp_path / "sizes.json").read_text())["rows"]
    assert [row["servers"] for row in rows] == [20, 200]
    for row in rows:
        for rule in sizes.RULES:
            minus = row["cost"]["mean"] - row["rules"][rule]["mean"]
            assert row["differences"][rule]["mean"] == pytest.approx(minus, abs=1e-6)


def test_a_missing_model_is_one_clear_line(tmp_path, capsys):
    assert sizes.main(["--servers", "20", "--model", str(tmp_path / "none")]) == 2
    assert "is not the folder of a saved model" in capsys.readouterr().err


def test_the_stored_network_is_better_at_200_servers_and_no_worse_at_2000():
    stored = json.loads(sizes.RESULTS.read_text(encoding="utf-8"))
    rows = {row["servers"]: row for row in stored["rows"] if row["model"] == "flagship-0"}
    rule = "pull(fallback=weighted-random, choice=fastest)"
    assert rows[200]["differences"][rule]["high"] < 0
    assert rows[2000]["differences"][rule]["high"] < 0.01 * rows[2000]["rules"][rule]["mean"]
