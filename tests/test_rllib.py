"""RLlib on the native vector environments; run by `make rllib`, in an environment of its own."""

import json
import time

import pytest

pytest.importorskip("ray", reason="run by `make rllib`")

import ray
from ray.cluster_utils import Cluster

from training import rllib

BRIEF = {"system": "small", "horizon": 40, "envs": 4, "fragment": 50, "batch_size": 100}


@pytest.fixture(autouse=True)
def _no_ray_left():
    yield
    ray.shutdown()


def wait_for_nodes(wanted, seconds=300):
    """Ray takes its time to see that a node is gone."""
    end = time.monotonic() + seconds
    while (alive := sum(node["Alive"] for node in ray.nodes())) != wanted:
        assert time.monotonic() < end, f"{alive} nodes alive, not {wanted}"
        time.sleep(0.5)


def test_a_node_is_lost_on_the_way_and_the_training_ends(tmp_path):
    """Two nodes with one runner each; the second dies after two updates."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    args = rllib.Args(
        **BRIEF, address=cluster.address, iterations=5, out=str(tmp_path), patience=20.0
    )
    rllib.connect(args)
    assert sum(node["Alive"] for node in ray.nodes()) == 2

    def after(row):
        print(json.dumps(row), flush=True)
        if row["iteration"] == 2:
            cluster.remove_node(second, allow_graceful=False)
            wait_for_nodes(1)

    try:
        rows = rllib.train(args, after=after)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["runners"] for row in rows][:2] == [2, 2]
    assert rows[-1]["runners"] == 1
    assert {row["episode_length"] for row in rows} == {40.0}
    assert rows[-1]["decisions"] >= 5 * 400


def test_a_search_that_does_not_fit_is_refused(tmp_path, capsys):
    words = ["--system=small", "--trials=2", "--runners=500", f"--out={tmp_path}"]
    assert rllib.main(words) == 2
    assert (
        "runners: a trial takes a processor for each and one more, 501" in capsys.readouterr().err
    )


def test_a_training_resumes_and_a_search_finds(tmp_path, capsys):
    words = [f"--{k.replace('_', '-')}={v}" for k, v in BRIEF.items()]
    words += ["--runners=1", f"--out={tmp_path}"]
    assert rllib.main([*words, "--iterations=1"]) == 0
    assert rllib.main([*words, "--iterations=2", "--resume"]) == 0
    rows = [json.loads(x) for x in capsys.readouterr().out.splitlines() if x.startswith("{")]
    assert [row["iteration"] for row in rows] == [1, 2]
    assert [row["decisions"] for row in rows] == [200, 400]
    assert rllib.main([*words, "--iterations=1"]) == 2
    assert "--resume goes on with it" in capsys.readouterr().err
    assert rllib.main([*words, "--iterations=1", "--trials=2"]) == 0
    best = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert best["episode_length"] == 40.0
    assert 1e-4 <= best["learning_rate"] <= 1e-2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env=lbgym/MultiRuter-v0"], "did you mean 'lbgym/MultiRouter-v0'?"),
        (["--iterations=0"], "iterations: must be at least 1, got 0"),
        (['--environment={"observ": 1}'], "unknown argument 'observ', did you mean 'observe'?"),
        (["--gamma=2"], "gamma: must be between 0 and 1"),
        (["--system=flagshop"], "did you mean 'flagship'?"),
        (["--resume", "--out=nowhere"], "resume: no training was begun in"),
    ],
)
def test_wrong_arguments(words, message, capsys):
    assert rllib.main(words) == 2
    assert message in capsys.readouterr().err
