"""A system says what it is, remembers what it was given, and refuses what makes no sense."""

import copy
import dataclasses
import json
import math
import pickle
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbgym import scenarios
from lbgym.suggest import nearest, unknown
from lbgym.system import JobClass, Pool, System, as_system

FLAGSHIP = System([Pool(10, 1.0, 10), Pool(10, 2.0, 10)], routers=4, load=0.9)

# --- Random systems. ---

positive = st.floats(1e-6, 1e6)
labels = st.text(max_size=12).filter(str.isprintable)


@st.composite
def pools(draw):
    discipline = draw(st.sampled_from(["fcfs", "ps"]))
    slots = 1 if discipline == "ps" else draw(st.integers(1, 5))
    limit = draw(st.none() | st.integers(slots, 1000))
    return Pool(draw(st.integers(1, 1000)), draw(positive), limit, slots, discipline)


SIZES = [
    "exponential",
    "deterministic",
    {"law": "erlang", "k": 2},
    {"law": "hyperexponential", "scv": 4.0},
    {"law": "hyperexponential", "probabilities": [0.2, 0.8], "means": [3, 1]},
    {"law": "lognormal", "scv": 2.0},
    {"law": "uniform", "low": 0.5, "high": 1.5},
    {"law": "bounded-pareto", "alpha": 1.5, "high": 100.0},
    {"law": "empirical", "values": [0.0, 1.0, 3.5]},
]
ARRIVALS = [
    "poisson",
    {"process": "poisson", "batch": 3},
    {"process": "poisson", "batch": [1, 0, 2]},
    {"process": "renewal", "law": "deterministic", "batch": {"geometric": 2.5}},
    {"process": "renewal", "law": {"law": "erlang", "k": 2}},
    {"process": "mmpp", "rates": [0, 2], "generator": [[-1, 1], [0.5, -0.5]]},
    {"process": "piecewise", "breakpoints": [0, 2], "rates": [1, 3], "period": 5},
    {"process": "sinusoidal", "amplitude": 0.5, "period": 24},
    {"process": "trace", "times": [-1, 2.5, 2.5], "classes": [0, 0, 0], "routers": [0, 0, 0]},
]


@st.composite
def systems(draw):
    size = draw(positive)
    job_class = st.builds(
        JobClass,
        share=positive,
        mean_size=st.just(size),
        weight=st.just(0.0) | positive,
        name=labels,
    )
    arrivals = draw(st.sampled_from(ARRIVALS))
    rate = {draw(st.sampled_from(["load", "arrival_rate"])): draw(positive)}
    if "mmpp" in str(arrivals) or "piecewise" in str(arrivals):
        rate = {"arrival_rate": draw(st.floats(0.01, 1e6))}  # few changes of the rate for each job
    return System(
        draw(st.lists(pools(), min_size=1, max_size=4)),
        draw(st.integers(1, 50) | st.lists(positive, min_size=1, max_size=5)),
        message_fate=draw(st.sampled_from(["withdraw", "keep", "resend"])),
        migration_rate=draw(st.just(0.0) | positive),
        replace=draw(st.booleans()),
        classes=draw(st.none() | st.lists(job_class, min_size=1, max_size=3)),
        name=draw(labels),
        size=draw(st.sampled_from(SIZES)),
        arrivals=arrivals,
        **rate,
    )


@given(systems())
def test_every_form_gives_the_same_system_back(system):
    data = system.to_dict()
    assert data["kind"] == "dispatch"
    forms = [
        System.from_dict(data),
        as_system(data),
        System.from_dict(json.loads(system.to_json())),
        pickle.loads(pickle.dumps(system)),
        copy.deepcopy(system),
        eval(repr(system)),
        dataclasses.replace(system),
    ]
    for form in forms:
        assert form == system
        assert hash(form) == hash(system)
        assert repr(form) == repr(system)
        assert (form.load, form.arrival_rate) == (system.load, system.arrival_rate)
    assert json.loads(json.dumps(data)) == data


@settings(max_examples=50)
@given(system=systems())
def test_toml_gives_the_same_system_back(system, tmp_path_factory):
    path = tmp_path_factory.mktemp("toml") / "system.toml"
    path.write_text(system.to_toml(), encoding="utf-8")
    assert System.from_toml(path) == system
    assert as_system(path) == system
    assert as_system(str(path)) == system


@given(systems())
def test_load_is_the_offered_work_over_the_capacity(system):
    capacity = sum(p.servers * p.slots * p.speed for p in system.pools)
    assert system.capacity == pytest.approx(capacity)
    assert type(system.load) is type(system.arrival_rate) is float
    assert system.load == pytest.approx(system.arrival_rate * system.mean_size / capacity)
    assert sum(system.router_weights) == pytest.approx(1)
    assert sum(system.class_shares) == pytest.approx(1)
    assert len(system.router_weights) == system.router_count
    assert system.describe().isprintable()


# --- What it says. ---


def test_flagship_in_numbers():
    assert FLAGSHIP.servers == 20
    assert FLAGSHIP.capacity == 30
    assert FLAGSHIP.load == 0.9
    assert FLAGSHIP.arrival_rate == 27
    assert FLAGSHIP.mean_size == 1
    assert FLAGSHIP.router_count == 4
    assert FLAGSHIP.router_weights == (0.25,) * 4
    assert not FLAGSHIP.migrates
    assert FLAGSHIP.default_loss_charge == 20  # 2 * 10 jobs at speed 1


def test_values_per_server():
    system = System([Pool(2, 1, 2), Pool(3, 2.5)], load=0.5)
    assert system.speeds.tolist() == [1, 1, 2.5, 2.5, 2.5]
    assert system.limits.tolist() == [2, 2, math.inf, math.inf, math.inf]
    assert system.pool_of_server.tolist() == [0, 0, 1, 1, 1]
    assert system.speeds.dtype == system.limits.dtype == np.float64
    assert system.pool_of_server.dtype == np.int64
    system.speeds[0] = 99  # a copy: the system does not change
    assert system.speeds[0] == 1


@pytest.mark.parametrize(
    ("pool", "classes", "charge"),
    [
        (Pool(3), None, 0.0),  # no limit: nothing is ever lost
        (Pool(3, limit=1), None, 2.0),
        (Pool(3, speed=2.0, limit=6, slots=3), None, 2 * (1 + 3 / 3) / 2),
        (Pool(3, limit=4, slots=4), None, 2.0),  # Erlang loss
        (Pool(3, limit=10), [JobClass(mean_size=3.0)], 60.0),
        ([Pool(1), Pool(1, speed=4.0, limit=2)], None, 1.0),  # only the limited server counts
    ],
)
def test_default_loss_charge(pool, classes, charge):
    assert System(pool, load=0.5, classes=classes).default_loss_charge == pytest.approx(charge)


def test_router_weights_are_normalised_but_kept_as_given():
    system = System(Pool(2), routers=np.array([4, 1]), load=0.5)
    assert system.routers == (4.0, 1.0)
    assert system.router_weights == (0.8, 0.2)
    assert system.to_dict()["routers"] == [4.0, 1.0]


def test_mean_size_enters_the_load():
    system = System(Pool(4), arrival_rate=1.0, classes=[{"mean_size": 2.0}, JobClass(3.0, 2.0)])
    assert system.mean_size == pytest.approx(2.0)
    assert system.load == pytest.approx(0.5)
    assert system.class_shares == (0.25, 0.75)


@pytest.mark.parametrize(
    ("system", "text"),
    [
        (FLAGSHIP, "20 servers (10 x 1, 10 x 2), limit 10, 4 routers, load 0.9"),
        (System(Pool(1), load=0.8), "1 server of speed 1, no limit, 1 router, load 0.8"),
        (
            System([Pool(2, 1, 2), Pool(2, 2)], [4, 1], arrival_rate=3, message_fate="keep"),
            "4 servers (2 x 1, 2 x 2), limits 2, none, 2 routers (0.8 : 0.2), "
            "arrival rate 3 (load 0.5), message fate keep",
        ),
        (
            System(
                [Pool(1, discipline="ps"), Pool(1, slots=3)],
                load=2,
                migration_rate=0.5,
                replace=True,
                classes=[JobClass(), JobClass()],
            ),
            "2 servers (1 x 1, 1 x 1), slots 1, 3, disciplines ps, fcfs, no limit, 1 router, "
            "load 2, migration rate 0.5, sampling with replacement, 2 classes",
        ),
    ],
)
def test_describe(system, text):
    assert system.describe() == text


def test_dict_and_repr_hold_only_what_is_not_default():
    assert FLAGSHIP.to_dict() == {
        "kind": "dispatch",
        "pools": [{"servers": 10, "limit": 10}, {"servers": 10, "speed": 2.0, "limit": 10}],
        "routers": 4,
        "load": 0.9,
    }
    assert repr(FLAGSHIP) == (
        "System(pools=[Pool(servers=10, limit=10), Pool(servers=10, speed=2.0, limit=10)], "
        "routers=4, load=0.9)"
    )


def test_toml_is_what_a_person_would_write():
    assert FLAGSHIP.to_toml() == (
        'kind = "dispatch"\nrouters = 4\nload = 0.9\n\n'
        "[[pools]]\nservers = 10\nlimit = 10\n\n"
        "[[pools]]\nservers = 10\nspeed = 2.0\nlimit = 10\n"
    )


# --- One of load and arrival_rate. ---


def test_equality_remembers_which_was_given():
    by_load = System(Pool(2), load=0.5)
    by_rate = System(Pool(2), arrival_rate=1.0)
    assert (by_load.load, by_load.arrival_rate) == (by_rate.load, by_rate.arrival_rate)
    assert by_load != by_rate
    assert "load" in by_load.to_dict()
    assert "arrival_rate" not in by_load.to_dict()
    assert "arrival_rate" in by_rate.to_dict()
    assert "load" not in by_rate.to_dict()


def test_replace_and_with_load():
    by_load = System(Pool(2), load=0.5)
    by_rate = System(Pool(2), arrival_rate=1.0)
    for system in (by_load, by_rate):
        expected = System(Pool(2), load=0.8)
        assert system.with_load(0.8) == expected
        assert dataclasses.replace(system, load=0.8) == expected
        assert dataclasses.replace(system, arrival_rate=3) == System(Pool(2), arrival_rate=3)
    # What was given stays given: more servers, same load or same stream.
    assert dataclasses.replace(by_load, pools=Pool(4)).arrival_rate == 2.0
    assert dataclasses.replace(by_rate, pools=Pool(4)).load == 0.25
    with pytest.raises(ValueError, match="give one of them, got both"):
        dataclasses.replace(by_load, load=0.8, arrival_rate=1)
    with pytest.raises(ValueError, match="load: must be"):
        by_load.with_load(0)


def test_systems_are_frozen():
    for thing, field in ((FLAGSHIP, "routers"), (FLAGSHIP.pools[0], "speed"), (FLAGSHIP, "load")):
        with pytest.raises(AttributeError):
            setattr(thing, field, 2)


def test_values_are_stored_as_plain_numbers():
    pool = Pool(np.int32(3), np.float32(0.5), np.int64(4), np.int8(2))
    assert [type(v) for v in dataclasses.astuple(pool)] == [
        int,
        float,
        int,
        int,
        str,
        type(None),
    ]
    assert Pool(1, 2) == Pool(1, 2.0)
    assert Pool(1, Fraction(1, 2)).speed == 0.5
    assert Pool(1, limit=math.inf) == Pool(1, limit=np.inf) == Pool(1)
    assert System(Pool(1), load=1).to_dict()["load"] == 1.0
    assert System({"servers": 1}, load=1) == System([Pool(1)], load=1) == System((Pool(1),), 1, 1)


def test_overload_is_a_system_like_any_other():
    assert System(Pool(1), load=1.5).arrival_rate == 1.5


# --- What it refuses. ---

NOT_POSITIVE = [0, -1, math.nan, math.inf, -math.inf, True, "1", None, [1], 1j, 10**400]
NOT_COUNTS = [0, -1, 1.0, math.nan, math.inf, True, np.True_, "1", None, [1], 2**31]
ONE = [{"servers": 1}]


def cases():
    for bad in NOT_POSITIVE:
        yield {"pools": [{"servers": 1, "speed": bad}], "load": 1}, "pools[0].speed: "
        yield {"pools": ONE, "load": 1, "classes": [{}, {"share": bad}]}, "classes[1].share: "
        yield {"pools": ONE, "load": 1, "classes": {"mean_size": bad}}, "classes[0].mean_size: "
        yield {"pools": ONE, "load": 1, "routers": [1, bad]}, "routers[1]: "
        if bad is not None:
            yield {"pools": ONE, "load": bad}, "load: "
            yield {"pools": ONE, "arrival_rate": bad}, "arrival_rate: "
        if bad != 0:
            yield {"pools": ONE, "load": 1, "migration_rate": bad}, "migration_rate: "
            yield {"pools": ONE, "load": 1, "classes": [{"weight": bad}]}, "classes[0].weight: "
    for bad in NOT_COUNTS:
        yield {"pools": [{"servers": bad}], "load": 1}, "pools[0].servers: "
        yield {"pools": [{"servers": 1, "slots": bad}], "load": 1}, "pools[0].slots: "
        if bad is not None and bad != math.inf:
            yield {"pools": [{"servers": 1}, {"servers": 1, "limit": bad}]}, "pools[1].limit: "
        if not isinstance(bad, list):
            yield {"pools": ONE, "load": 1, "routers": bad}, "routers: "
    for bad in ["FCFS", "lifo", 1, None, ["fcfs"]]:
        yield {"pools": {"servers": 1, "discipline": bad}}, "pools[0].discipline: must be one of"
        yield {"pools": ONE, "load": 1, "message_fate": bad}, "message_fate: must be one of"
    for bad in [0, 1, "yes", None]:
        yield {"pools": ONE, "load": 1, "replace": bad}, "replace: must be true or false"
    for bad in [1, None, "a\nb", "\ud800"]:
        yield {"pools": ONE, "load": 1, "name": bad}, "name: must be printable text"
    for bad in [3, None, "pools", b"pools", [], [3], ["flagship"], {}, np.array(3)]:
        yield {"pools": bad, "load": 1}, "pools"
    for bad in [3, "classes", [], [None], np.array(3)]:
        yield {"pools": ONE, "load": 1, "classes": bad}, "classes"
    for bad in [[], "2", b"2", {"a": 1}, np.array(2.0)]:
        yield {"pools": ONE, "load": 1, "routers": bad}, "routers: "


@pytest.mark.parametrize(("data", "start"), list(cases()))
def test_wrong_value_is_refused_by_name(data, start):
    with pytest.raises(ValueError, match=f"^{re.escape(start)}") as caught:
        System.from_dict(data)
    assert type(caught.value) is ValueError
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"pools": [{"servers": 1}, {"servers": 1, "slots": 4, "limit": 2}], "load": 1},
            "pools[1].limit: must be at least slots (4), got 2",
        ),
        (
            {"pools": [{"servers": 2.5}], "load": 1},
            "pools[0].servers: must be an integer from 1 to 100,000,000, got 2.5",
        ),
        (
            {"pools": [{"servers": 1, "speed": math.nan}], "load": 1},
            "pools[0].speed: must be a finite number > 0, got nan",
        ),
        (
            {"pools": [{"servers": 1, "slots": 2, "discipline": "ps"}], "load": 1},
            "pools[0].slots: must be 1 with discipline ps, got 2",
        ),
        ({"pools": [{}], "load": 1}, "pools[0].servers: required"),
        ({"load": 1}, "pools: required, a list of pools"),
        ({"pools": [], "load": 1}, "pools: must not be empty"),
        ({"pools": ONE}, "load and arrival_rate: give one of them, got neither"),
        (
            {"pools": ONE, "load": 1, "arrival_rate": 1},
            "load and arrival_rate: give one of them, got both",
        ),
        (
            {"pools": ONE, "load": 1, "message_fate": "widthraw"},
            "message_fate: must be one of withdraw, keep, resend, got 'widthraw', "
            "did you mean 'withdraw'?",
        ),
        (
            {"pools": [{"servers": 1, "speed": 1e60}], "load": 1e60},
            "load: 1e+60 gives an arrival rate of 1e+120 with these speeds and sizes; "
            "must be between 1e-100 and 1e+100",
        ),
        (
            {"pools": [{"servers": 1, "speed": 1e-320}], "load": 1},
            "pools[0].speed: must be between 1e-100 and 1e+100, got 1e-320",
        ),
        (
            {"pools": [{"servers": 60_000_000}, {"servers": 60_000_000}], "load": 1},
            "pools: at most 100,000,000 servers, got 120,000,000",
        ),
        (
            {"pools": [{"servers": 1}, {"servers": 1, "lmit": 3}], "load": 1},
            "pools[1]: unknown field 'lmit', did you mean 'limit'? "
            "(allowed: servers, speed, limit, slots, discipline, units)",
        ),
        (
            {"pools": ONE, "laod": 1},
            "unknown field 'laod', did you mean 'load'? (allowed: kind, pools, routers, load, "
            "arrival_rate, message_fate, migration_rate, replace, classes, graph, read_interval, "
            "closed_jobs, size, arrivals, slotted, name)",
        ),
        ({"kind": "car-sharing", "stations": 3}, "kind: must be 'dispatch', got 'car-sharing'"),
    ],
)
def test_message(data, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        System.from_dict(data)


@pytest.mark.parametrize("field", ["sizes", "drop", 3, "_given"])
def test_field_that_a_system_does_not_have_is_refused(field):
    with pytest.raises(ValueError, match=f"unknown field {field!r}.*allowed: kind, pools, routers"):
        System.from_dict({"pools": ONE, "load": 1, field: 1})


def test_pool_alone_names_its_field_too():
    with pytest.raises(ValueError, match=r"^limit: must be at least slots \(4\), got 2$"):
        Pool(1, slots=4, limit=2)


# --- Files, and whatever takes a system. ---


def test_broken_file_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "system.toml"
    path.write_text("load = 0.9\n[[pools]\nservers = 3\n")
    with pytest.raises(ValueError, match=r"system\.toml, line 2: not valid TOML: "):
        System.from_toml(path)
    path.write_text("load = 0.9\nrouters = ")
    with pytest.raises(ValueError, match=r"system\.toml, line 2: not valid TOML: "):
        System.from_toml(path)
    path.write_text("load = 0.9\n[[pools]]\nservers = 0\n")
    with pytest.raises(ValueError, match=r"system\.toml: pools\[0\]\.servers: must be"):
        as_system(path)
    path.write_bytes(b"name = '\xff'\n")
    with pytest.raises(ValueError, match=r"system\.toml: not a text file in UTF-8"):
        System.from_toml(path)


def test_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"nothing\.toml: no such file"):
        as_system(str(tmp_path / "nothing.toml"))
    with pytest.raises(ValueError, match="cannot be read"):
        System.from_toml(tmp_path)


def test_file_may_say_inf_for_no_limit(tmp_path: Path):
    path = tmp_path / "system.toml"
    path.write_text("load = 0.9\n[[pools]]\nservers = 3\nlimit = inf\n")
    assert System.from_toml(path) == System(Pool(3), load=0.9)


def test_as_system_takes_all_four():
    assert as_system(FLAGSHIP) is FLAGSHIP
    assert as_system(FLAGSHIP.to_dict()) == FLAGSHIP
    assert as_system("flagship") is scenarios.get("flagship")
    for bad in (3, None, [FLAGSHIP]):
        with pytest.raises(ValueError, match=r"system: must be a System, .*, its dict"):
            as_system(bad)


# --- Did you mean. ---


def test_nearest_ignores_case_and_knows_when_nothing_is_near():
    assert nearest("JSQ", ["jsq", "sed"]) == "jsq"
    assert nearest("zzz", ["jsq", "sed"]) is None
    assert unknown("rule", "pul", ["jsq", "pull"]) == (
        "unknown rule 'pul', did you mean 'pull'? (allowed: jsq, pull)"
    )
    assert unknown("rule", 3, ["jsq"]) == "unknown rule 3 (allowed: jsq)"
