"""Exact counts: what holds at every decision, whatever the system and the rule."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lbgym.engine import layout
from lbgym.engine.run import ask, carry_out, next_decision
from lbgym.policies import custom, make
from lbgym.system import Pool, System
from tests import digests

ROOT = Path(__file__).parent.parent


# --- random systems and policies ------------------------------------------------------------------
@st.composite
def pools(draw):
    discipline = draw(st.sampled_from(["fcfs", "fcfs", "ps"]))
    slots = 1 if discipline == "ps" else draw(st.integers(1, 3))
    limit = draw(st.none() | st.integers(slots, slots + 4))
    speed = draw(st.sampled_from([0.5, 1.0, 2.0, 3.7]))
    return Pool(draw(st.integers(1, 4)), speed, limit, slots, discipline)


@st.composite
def systems(draw):
    weights = st.lists(st.sampled_from([0.1, 1.0, 2.5]), min_size=1, max_size=4)
    return System(
        draw(st.lists(pools(), min_size=1, max_size=3)),
        draw(st.integers(1, 4) | weights),
        load=draw(st.sampled_from([0.1, 0.5, 0.9, 1.3])),
        message_fate=draw(st.sampled_from(["withdraw", "keep", "resend"])),
        migration_rate=draw(st.sampled_from([0.3, 2.0])) if draw(st.booleans()) else 0.0,
    )


@st.composite
def policies(draw, system):
    """Mostly rules with messages, each on a system that allows it."""
    n, routers = system.servers, system.router_count
    sample = draw(st.integers(1, n))
    names = [
        "pull",
        "pull(choice=fastest)",
        "pull(fallback=wrr, choice=fastest)",
        "pull(fallback=weighted-random)",
        f"pull(fallback=static({', '.join(str(k + 1) for k in range(n))}))",
        f"pull(fallback=jsq({sample}))",
        f"jiq-sq({draw(st.integers(1, routers))})",
        "round-robin",
        f"jsq({sample})",
        "jsed(ties=fastest)",
    ]
    if system.migrates:
        rule = draw(st.sampled_from(["strict", "weak", "oblivious"]))
        names += [f"local-search(rule={rule}, place=pull)", f"local-search(rule={rule}, place=sed)"]
    return draw(st.sampled_from(names))


@st.composite
def runs(draw):
    system = draw(systems())
    start = draw(st.sampled_from(["empty", "given"]))
    if start == "given":
        most = np.minimum(system.limits, 5).astype(int)
        start = [draw(st.integers(0, int(limit))) for limit in most]
    return system, draw(policies(system)), start, draw(st.integers(0, 2**32))


# --- what must hold -------------------------------------------------------------------------------
def check_jobs(state):
    """Jobs are conserved and where they should be."""
    w, servers = state.world[0], state.arrays["servers"]
    lengths = servers["length"]
    assert w["arrivals"] + w["started"] == w["blocked"] + w["departed"] + w["present"]
    assert w["present"] == lengths.sum()
    assert w["idle"] == (lengths == 0).sum()
    assert (lengths >= 0).all()
    assert (lengths <= state.system.limits).all()
    jobs = state.arrays["jobs"]
    for server in servers:
        j, length = server["head"], 0
        while j >= 0:
            j, length = jobs["next"][j], length + 1
        assert length == server["length"]
    accepted = w["arrivals"] - w["blocked"]
    assert 0 <= w["waited"] <= accepted - w["found_idle"]


def check_times(state):
    """The integral of the number in system is the sum of the times spent, and of the tails."""
    w = state.world[0]
    area = w["present"] * w["clock"] + w["moment"]
    spent = w["response_sum"] + w["present"] * w["clock"] - w["arrived_sum"]
    assert area == pytest.approx(spent, rel=1e-9, abs=1e-9)
    tails = state.arrays["tails"]
    by_level = tails["servers"] * w["clock"] + tails["moment"]
    rows = state.arrays["pools"]
    of_jobs = sum(by_level[p["tails"] + 1 : p["tails"] + p["levels"]].sum() for p in rows)
    assert area == pytest.approx(of_jobs, rel=1e-9, abs=1e-9)


def check_message_counts(state):
    """The identities of S, B, I, O; a migrant that finds its server idle counts with B."""
    w, fate = state.world[0], state.system.message_fate
    sent, filled = w["sent"], w["found_idle"] + w["moved_to_idle"]
    if fate == "keep":
        assert sent == w["used"] + w["outstanding"]
        assert w["withdrawn"] == w["absorbed"] == 0
        return
    assert sent == filled + w["idle"]
    if fate == "withdraw":
        assert sent == w["used"] + w["withdrawn"] + w["outstanding"]
        assert w["outstanding"] == w["idle"]
        assert filled == w["used"] + w["withdrawn"]
        assert w["absorbed"] == 0
    else:
        assert sent == w["used"] + w["absorbed"] + w["outstanding"]
        assert w["withdrawn"] == 0


def holders(state):
    """(server, router) of every message that stands in a router's list; checks the lists."""
    a = state.arrays
    found = []
    n_pools = len(a["pools"])
    for k, row in enumerate(a["lists"]):
        assert row["count"] <= row["room"]
        for place in range(row["count"]):
            message = a["held"][row["begin"] + place]
            router, i, e = k // n_pools, int(message["server"]), message["entry"]
            sender = a["servers"][i]
            if e < 0:
                assert (sender["holder"], sender["place"]) == (router, place)
            else:
                assert (a["entries"]["router"][e], a["entries"]["place"][e]) == (router, place)
            assert sender["pool"] == k % n_pools
            found.append((i, router))
    held = np.bincount([r for _, r in found], minlength=len(a["routers"]))
    assert (held == a["routers"]["held"]).all()
    assert len(found) == state.world[0]["outstanding"]
    return found


def check_messages(state):
    """An idle server has a message out; how many others may have is the fate's affair."""
    found = holders(state)
    assert len(set(found)) == len(found)  # a router holds at most one of a server
    senders = np.bincount([i for i, _ in found], minlength=state.system.servers)
    idle = state.arrays["servers"]["length"] == 0
    assert (senders[idle] >= 1).all()
    if state.system.message_fate == "withdraw":
        assert (senders == idle).all()
    elif state.system.message_fate == "keep":
        assert (senders <= 1).all()
    chained, further = np.zeros_like(senders), state.arrays["asides"]["further"]
    for i, sender in enumerate(state.arrays["servers"]):
        e = further[i] if state.system.message_fate == "resend" else -1
        chained[i] = sender["holder"] >= 0
        while e >= 0:
            assert chained[i]
            chained[i] += 1
            e = state.arrays["entries"]["next"][e]
    assert (chained == senders).all()


def check(state):
    """Everything that must hold between two events."""
    check_jobs(state)
    check_times(state)
    if state.world[0]["messages_on"]:
        check_message_counts(state)
        check_messages(state)


# --- tests ----------------------------------------------------------------------------------------
quiet = settings(
    max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@quiet
@given(runs())
def test_counts_are_exact_after_a_run(given_run):
    system, policy, start, seed = given_run
    bound = make(policy, system)
    place, move = bound.rules()
    state = bound.state()
    state.seed(np.random.default_rng(seed))
    state.begin(start)
    check(state)
    clock = 0.0
    for arrivals in (1, 2, 10, 100, 1000, 3000):
        digests.proceed(state, place, move, arrivals)
        assert state.world[0]["arrivals"] == arrivals
        assert state.world[0]["clock"] >= clock
        clock = state.world[0]["clock"]
        check(state)
    if policy.startswith(("pull", "jiq")):  # such a rule uses a message whenever it has one
        w = state.world[0]
        assert w["used"] == w["arrivals"] - w["empty_handed"]


@settings(quiet, max_examples=25)
@given(runs())
def test_counts_are_exact_at_every_decision(given_run):
    system, policy, start, seed = given_run
    bound = make(policy, system)
    rules = dict(zip((layout.ARRIVAL, layout.RESAMPLE), bound.rules(), strict=True))
    state = bound.state()
    state.seed(np.random.default_rng(seed))
    state.begin(start)
    clock = 0.0
    for _ in range(60):
        while next_decision(state.address) == layout.GROW:
            state.grow()
        w = state.world[0]
        assert w["clock"] >= clock
        clock = w["clock"]
        if w["kind"] == layout.RESAMPLE:  # only resamplings with a choice are decisions
            assert w["source"] != w["target"]
            assert state.arrays["servers"]["length"][w["target"]] < system.limits[w["target"]]
        action = ask(state.address, rules[int(w["kind"])])
        while carry_out(state.address, action) == layout.GROW:
            state.grow()
        check(state)


@numba.njit
def first_server(w):
    """Sends everything to server 0, whatever messages say."""
    return 0


@pytest.mark.parametrize("fate", ["withdraw", "keep", "resend"])
def test_counts_are_exact_when_a_rule_ignores_messages(fate):
    system = System([Pool(2, limit=3), Pool(1)], routers=3, load=0.6, message_fate=fate)
    bound = custom(first_server, messages=True)(system)
    place, move = bound.rules()
    state = bound.state()
    state.seed(np.random.default_rng(5))
    state.begin()
    for arrivals in range(1, 400, 7):
        digests.proceed(state, place, move, arrivals)
        check(state)
    w = state.world[0]
    assert w["blocked"] > 0
    assert w["used"] > 0  # the router that happened to hold the message of server 0
    if fate == "withdraw":
        assert w["withdrawn"] > 0
    if fate == "resend":
        assert w["absorbed"] > 0


@pytest.mark.parametrize("fate", ["withdraw", "keep", "resend"])
def test_messages_used_up_by_jobs_that_are_then_lost(fate):
    """A stale message of a full server counts as used although its job is blocked."""
    system = System(Pool(2, limit=1), routers=5, load=1.5, message_fate=fate)
    state = digests.run(system, "pull", 5000, seed=3)
    check(state)
    w = state.world[0]
    stale = w["used"] - (w["found_idle"] - w["withdrawn"])
    assert (stale == 0) == (fate == "withdraw")


# --- the same in every mode -----------------------------------------------------------------------
def digests_in(**environment):
    """`digests.digests` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.digests"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["NUMBA_DISABLE_JIT", "LBGYM_CHECKED"])
def test_plain_python_and_checked_code_leave_the_same_bytes(mode):
    assert digests_in(**{mode: "1"}) == digests.digests()
