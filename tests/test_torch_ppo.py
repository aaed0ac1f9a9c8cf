"""PPO in plain PyTorch: its estimator, its networks, its checkpoints and its saved agents."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from lbgym import compare, simulate, suite, torch_agent  # noqa: E402
from lbgym.envs import DispatchEnv  # noqa: E402
from lbgym.sb3 import load_agent  # noqa: E402
from training import torch_ppo  # noqa: E402
from training.arguments import from_file  # noqa: E402
from training.torch_ppo import Args, Learner, advantages  # noqa: E402

SMALL = {"n_envs": 4, "n_steps": 8, "batch_size": 16, "width": 8, "timesteps": 160}


def arrays(n, m, seed=0):
    rng = np.random.default_rng(seed)
    rewards, values, after = rng.normal(size=(3, n, m))
    return rewards, values, after, rng.uniform(0.5, 1, (n, m)), rng.random((n, m)) < 0.2


def test_advantages_are_the_sums_that_they_stand_for():
    rewards, values, after, discounts, ended = arrays(12, 3)
    found = advantages(rewards, values, after, discounts, ended, 0.9)
    for t in range(12):
        for k in range(3):
            total, weight = 0.0, 1.0
            for s in range(t, 12):
                step = rewards[s, k] + discounts[s, k] * after[s, k] - values[s, k]
                total += weight * step
                weight *= 0.9 * discounts[s, k]
                if ended[s, k]:
                    break
            assert found[t, k] == pytest.approx(total)


def test_without_decay_an_advantage_is_the_discounted_return_less_the_value():
    rewards, values, _, discounts, _ = arrays(6, 1)
    after = np.concatenate([values[1:], [[0.7]]])
    found = advantages(rewards, values, after, discounts, np.zeros((6, 1), bool), 1.0)
    total = 0.7
    for t in range(5, -1, -1):
        total = rewards[t, 0] + discounts[t, 0] * total
    assert found[0, 0] == pytest.approx(total - values[0, 0])


def test_discounts_are_those_of_the_elapsed_time():
    learner = Learner(Args(**SMALL))
    data = learner.collect()
    env = suite.get("pair-1-10").make(start="warm", info=["dt"])
    env.reset(seed=0)
    for t in range(8):
        _, reward, _, _, info = env.step(data.actions[t, 0])
        assert data.elapsed[t, 0] == pytest.approx(info["dt"], rel=1e-6)
        assert data.rewards[t, 0] == pytest.approx(reward, rel=1e-6)


def test_values_after_the_end_of_an_episode_are_of_its_last_observation():
    learner = Learner(Args(**SMALL, environment={"horizon_arrivals": 3}))
    data = learner.collect()
    ends = np.flatnonzero(data.ended[:, 0])
    assert len(ends) >= 2
    inside = ~data.ended[:-1]
    assert np.array_equal(data.next_values[:-1][inside], data.values[1:][inside])
    assert not np.allclose(data.next_values[ends[0], 0], data.values[ends[0] + 1, 0])
    assert (data.elapsed > 0).all()


@pytest.mark.parametrize(("task", "others"), [("flagship", 0), ("cars", 1), ("heavy", 0)])
def test_permuting_rows_permutes_scores(task, others):
    torch.manual_seed(0)
    env = suite.get(task).make_vec(3, vectorization_mode="vector_entry_point")
    shape = torch_agent.Shape.of(env, "table", 8)
    network = torch_agent.Network(shape)
    torch.nn.init.normal_(network.actor.head.weight)
    obs = torch.from_numpy(env.observation_space.sample()).clamp(0, 0.9)
    columns = sum(length == shape.rows for _, length in shape.parts)
    order = torch.randperm(shape.rows)
    end = columns * shape.rows
    table = obs[:, :end].reshape(3, columns, shape.rows)[:, :, order].reshape(3, end)
    permuted = torch.cat((table, obs[:, end:]), dim=1)
    before, after = network.logits(obs), network.logits(permuted)
    assert before.shape == (3, shape.rows + others)
    assert torch.allclose(after[:, : shape.rows], before[:, order], atol=1e-5)
    assert torch.allclose(after[:, shape.rows :], before[:, shape.rows :], atol=1e-5)
    assert torch.allclose(network.value(obs), network.value(permuted), atol=1e-5)
    assert before.std() > 1e-3


def test_a_change_of_scale_leaves_values_as_they_are():
    env = suite.get("pair-1-10").make_vec(3, vectorization_mode="vector_entry_point")
    network = torch_agent.Network(torch_agent.Shape.of(env, "mlp", 8))
    obs = torch.rand(5, 4)
    before = network.value(obs).detach()
    network.restandardise(-7.0, 3.0)
    assert torch.allclose(network.value(obs), before, atol=1e-5)
    assert float(network.deviation) == 3.0


@pytest.mark.parametrize("network", ["mlp", "table"])
def test_a_resumed_training_is_an_uninterrupted_one(tmp_path, network):
    args = Args(**SMALL, network=network, out=str(tmp_path))
    whole = Learner(args)
    whole.run()
    half = Learner(args)
    half.run(64)
    half.write(args.saved)
    rest = torch_ppo.begun(asdict(args), resume=True, fresh=False)
    assert (rest.steps, half.steps) == (64, 64)
    rest.run()
    assert (rest.steps, rest.average) == (whole.steps, whole.average)
    for one, other in zip(whole.network.parameters(), rest.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_rule_is_imitated_first_and_a_resumed_imitation_is_an_uninterrupted_one(tmp_path):
    rule = "threshold(4)"
    sizes = SMALL | {"n_envs": 16, "n_steps": 16, "batch_size": 64, "timesteps": 256 * 60}
    args = Args(**sizes, imitate=rule, imitate_timesteps=256 * 50, out=str(tmp_path))
    whole = Learner(args)
    whole.run(256 * 40)
    assert whole.imitating
    data = whole.collect()
    obs = data.observations.reshape(-1, 4)
    taught = data.actions.ravel()
    learned = whole.network.logits(torch.from_numpy(obs)).argmax(dim=1).numpy()
    assert (learned == taught).mean() > 0.95
    half = Learner(args)
    half.run(256 * 20)
    half.write(args.saved)
    rest = torch_ppo.begun(asdict(args), resume=True, fresh=False)
    rest.run(256 * 40)
    for one, other in zip(whole.network.parameters(), rest.network.parameters(), strict=True):
        assert torch.equal(one, other)
    rest.run(256 * 52)
    assert not rest.imitating


def test_the_learning_rate_falls_to_0():
    learner = Learner(Args(**SMALL))
    learner.run()
    assert learner.steps == 160
    assert learner.optimizer.param_groups[0]["lr"] == 0.0


@pytest.mark.parametrize("task", ["pair-1-10", "two-class-loss", "migrate", "cars", "flow-rate"])
def test_a_saved_agent_simulates_as_it_acts(task, tmp_path, capsys):
    words = ["--task", task, "--out", str(tmp_path), "--name", "one"]
    for key, value in SMALL.items():
        words += [f"--{key.replace('_', '-')}", str(value)]
    assert torch_ppo.main(words) == 0
    assert "saved: model:" in capsys.readouterr().out
    agent = load_agent(tmp_path / "one")
    assert isinstance(agent, torch_agent.TorchAgent)
    given = suite.get(task)
    same = {"jobs": 300, "replications": 2, "move_cost": given.move_cost}
    by_name = simulate(given.system, f"model:{tmp_path / 'one'}", **same)
    assert float(by_name.cost) == float(simulate(given.system, agent, **same).cost)
    assert math.isfinite(by_name.cost)


def saved(folder, network="table"):
    learner = Learner(Args(**SMALL, network=network, out=str(folder), name="one"))
    return learner.save()


def test_a_table_network_acts_on_any_number_of_rows(tmp_path):
    agent = load_agent(saved(tmp_path))
    wide = DispatchEnv("flagship", observe=["queue", "speed"])
    agent.check(wide)
    obs, _ = wide.reset(seed=0)
    assert 0 <= int(agent.predict(obs, deterministic=True)[0]) < 20


def test_another_environment_is_refused_with_what_differs(tmp_path):
    agent = load_agent(saved(tmp_path, "mlp"))
    with pytest.raises(ValueError, match="queue, speed, this environment shows message"):
        agent.check(DispatchEnv("pair-1-10"))
    with pytest.raises(ValueError, match="trained on observations of 4 values, got 40"):
        agent.check(DispatchEnv("flagship", observe=["queue", "speed"]))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"env": "lbgym/MultiRouter-v9"}, "trained in 'lbgym/MultiRouter-v9', which this lbgym"),
        ({"columns": ["tea"]}, "column 'tea' which this lbgym lacks"),
        ({"columns": 3}, "columns must be of type list, got 3"),
        ({"environment": None}, "environment must be of type dict, got None"),
        ({"actions": 3}, r"shape \[4\] for 2 actions, settings.json says \[4\] and 3"),
    ],
)
def test_settings_of_another_version_are_named(changed, said, tmp_path):
    folder = saved(tmp_path)
    settings = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps(settings | changed))
    with pytest.raises(ValueError, match=said):
        load_agent(folder)


@pytest.mark.parametrize("key", torch_agent.KEYS)
def test_settings_that_lack_something_are_named(key, tmp_path):
    folder = saved(tmp_path)
    settings = json.loads((folder / "settings.json").read_text())
    del settings[key]
    (folder / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=f"settings.json lacks {key}"):
        load_agent(folder)


@pytest.mark.parametrize("task", ["cars", "flow-rate", "migrate"])
def test_a_model_that_decides_at_other_moments_than_arrivals_is_compared(task):
    from baselines import leaderboard

    given, rule = suite.get(task), suite.get(task).rules[-1]
    model, sizes = f"model:{leaderboard.MODELS / task}-0", {"jobs": 2000, "replications": 8}
    found = compare(given.system, [rule, model], move_cost=given.move_cost, **sizes)
    first, second = found.results
    gap = second.cost.mean - first.cost.mean
    assert found.differences[1].mean == pytest.approx(gap, rel=1e-9)
    assert 0 < found.differences[1].half_width < first.cost.half_width + second.cost.half_width


@pytest.mark.parametrize(
    ("model", "system", "said"),
    [
        ("cars-0", "pair-1-10", r"cars-0: does not fit 2 servers .*: action: .*'operator'"),
        ("pair-1-10-0", "cars", r"pair-1-10-0: does not fit 4 stations .*: action: .*'server'"),
        ("heavy-0", "pair-1-10", r"heavy-0: does not fit 2 servers .*: observe: 'work' needs"),
        ("flagship-0", "flagship-migrating", r"trained on a system whose jobs do not migrate"),
        ("pair-1-10-0", "flagship", r"trained on observations of 4 values, got 40"),
    ],
)
def test_a_stored_model_says_why_it_does_not_fit_another_system(model, system, said):
    from baselines import leaderboard

    with pytest.raises(ValueError, match=said):
        simulate(system, f"model:{leaderboard.MODELS / model}", jobs=200)


def test_a_damaged_file_is_one_clear_error(tmp_path):
    folder = saved(tmp_path)
    (folder / "model.zip").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_agent(folder)
    settings = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps(settings | {"format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        load_agent(folder)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('taks = "cars"', "'taks'"),
        ('task = "car"', "'cars'"),
        ("batch_size = 1000", "must divide"),
        ("gae_lambda = 2", "between 0 and 1"),
        ('network = "tabel"', "'table'"),
        ('imitate = "thresold(4)"', "'threshold'"),
        ('imitate = "wrr"\ntask = "flagship"', "must also show router"),
    ],
)
def test_wrong_settings_are_one_clear_line(lines, said, tmp_path, capsys):
    file = tmp_path / "settings.toml"
    file.write_text(lines + "\n")
    assert torch_ppo.main(["--settings", str(file), "--out", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("task", suite.SUITE)
def test_the_stored_settings_of_a_task_are_valid(task):
    from baselines import leaderboard

    args = Args(**from_file(str(leaderboard.SETTINGS / f"{task}.toml"), Args))
    torch_ppo.check(args)
    assert args.task == task
    if args.imitate:
        Learner(replace(args, n_envs=2))


def test_entropy_falls_to_what_is_to_be_left():
    learner = Learner(Args(**SMALL, ent_coef=0.4, ent_end=0.25))
    learner.run(80)
    assert learner.ent_coef == pytest.approx(0.4 * (1 - 0.75 * learner.steps / 160), rel=0.3)
    learner.run()
    assert learner.ent_coef == pytest.approx(0.1)


def test_saved_weights_are_an_average_over_the_share_asked_for():
    learner = Learner(Args(**SMALL, smoothing=1.0))
    seen = []
    while learner.steps < 160:
        learner.update(learner.collect())
        seen.append(learner.network.actor.layers[0].weight.detach().clone())
    mean = learner.smooth.actor.layers[0].weight
    assert torch.allclose(mean, torch.stack(seen).mean(dim=0), atol=1e-6)
    last = Learner(Args(**SMALL))
    last.run()
    assert torch.equal(last.smooth.actor.layers[0].weight, last.network.actor.layers[0].weight)


def test_unit_steps_tell_counts_apart():
    spread = torch_agent.Spread(["queue", "speed"], [1.0, 10.0], 3)
    counts = torch.tensor([0.0, 1.0, 2.0, 7.0])
    shown = spread(torch.stack([counts / (1 + counts), torch.ones(4)], dim=-1))
    assert shown.shape == (4, spread.size)
    steps = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert torch.allclose(shown[:, -3:], torch.tensor(steps, dtype=torch.float32), atol=1e-5)


def test_a_second_training_does_not_overwrite_the_first(tmp_path, capsys):
    words = ["--out", str(tmp_path), "--name", "one"]
    (tmp_path / "one").mkdir()
    assert torch_ppo.main(words) == 2
    assert "--resume goes on" in capsys.readouterr().err
    assert torch_ppo.main([*words, "--resume"]) == 2
    assert "no checkpoint" in capsys.readouterr().err


def test_a_stored_model_reproduces_its_row():
    from baselines import leaderboard

    stored = json.loads(leaderboard.RESULTS.read_text(encoding="utf-8"))
    (row,) = (r for r in stored["rows"] if r["policy"] == "model:pair-1-10-0")
    task = suite.get("pair-1-10")
    found = leaderboard.run(task, f"model:{leaderboard.MODELS / 'pair-1-10-0'}", "agent", 300)
    reach = 2.5 * (row["value"]["high"] - row["value"]["low"]) / 2
    reach += 2.5 * found.result.cost.half_width * task.factor
    assert float(found.result.cost) * task.factor == pytest.approx(row["value"]["mean"], abs=reach)
    assert row["training"]["timesteps"] == 3_006_464


def test_the_page_is_made_from_the_stored_results():
    from baselines import leaderboard

    stored = json.loads(leaderboard.RESULTS.read_text(encoding="utf-8"))
    assert leaderboard.PAGE.read_text(encoding="utf-8") == leaderboard.page(stored["rows"])
