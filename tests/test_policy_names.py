"""Policies by name: what can be written, what it means, and one clear sentence for the rest."""

import re

import pytest

from lbgym import JobClass, Pool, System, policies
from lbgym.policies import make, names

PAIR = System([Pool(1), Pool(1, speed=2.0)], load=0.7)
LIMITED = System([Pool(1, limit=2), Pool(1, limit=3)], load=0.7)
RING = System([Pool(3)], load=0.7, graph="ring")
READ = System([Pool(1), Pool(1, speed=2.0)], load=0.7, read_interval=2.0)
UNITS = System(
    [Pool(1, units=4), Pool(1, units=6)],
    load=0.9,
    classes=[JobClass(share=4), JobClass(share=1, units=3)],
)
MOVING = System([Pool(1), Pool(1, speed=2.0)], load=0.7, migration_rate=1.0)
TWO_ROUTERS = System([Pool(1), Pool(1, speed=2.0)], routers=2, load=0.7)

# name, information, columns its agent needs to see (one router)
NAMES = [
    ("random", "none", ()),
    ("weighted-random", "speeds", ("speed",)),
    ("static(1, 2)", "none", ()),
    ("round-robin", "own memory", ()),
    ("wrr", "speeds, own memory", ("speed",)),
    ("pull", "messages", ("message_order",)),
    ("jiq", "messages", ("message_order",)),
    ("jiq-sq(1)", "messages", ("message_order",)),
    ("pull(fallback=wrr, choice=fastest)", "messages, speeds, own memory",
     ("message_order", "speed")),
    ("pull(fallback=static(1/2, 1/2))", "messages", ("message_order",)),
    ("pull(fallback=jsq(2))", "messages, d probes", ("message_order", "candidate", "queue_probed")),
    ("pull(fallback=belief)", "messages, speeds, own memory",
     ("message_order", "sent_age", "speed")),
    ("lsq(2)", "d probes, own memory", ("candidate", "queue_probed")),
    ("sed(2, own-sends=1)", "d probes, own memory",
     ("candidate", "last_probe", "sent_since_probe", "speed")),
    ("index(1/2, 1, own-sends=1)", "d probes, own memory",
     ("candidate", "last_probe", "sent_since_probe", "speed")),
    ("index(1/2, 2)", "d probes", ("candidate", "queue_probed", "speed")),
    ("jsq(1, memory=1)", "d probes, own memory", ("candidate", "queue")),
    ("fastest-idle", "live queue lengths, speeds", ("queue", "speed")),
    ("fastest-shortest", "live queue lengths, speeds", ("queue", "speed")),
    ("jsq", "live queue lengths", ("queue",)),
    ("jsq(2)", "d probes", ("candidate", "queue_probed")),
    ("sed(2, ties=lowest)", "d probes", ("candidate", "queue_probed", "speed")),
    ("sed", "live queue lengths, speeds", ("queue", "speed")),
    ("jsed(ties=fastest)", "live queue lengths, speeds", ("queue", "speed")),
    ("index(1/2)", "live queue lengths, speeds", ("queue", "speed")),
    ("threshold(3)", "live queue lengths, speeds", ("queue", "speed")),
    ("fpi", "live queue lengths, speeds, load", ("queue", "speed")),
    ("lwl(ties=fastest)", "work left, speeds", ("work", "speed")),
    ("sita", "own size, law of sizes, speeds", ("size",)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "information", "columns"), NAMES)
def test_each_name_says_what_it_needs(name, information, columns):
    policy = make(name, PAIR)
    assert policy.information == information
    assert policy.columns == columns
    assert make(policy.name, PAIR) == policy


# The same on systems of their own kind.
ELSEWHERE = [
    ("max-vacancy", LIMITED, "live occupancies", ("vacancy",)),
    ("max-vacancy(2)", LIMITED, "d probes", ("vacancy", "candidate")),
    ("best-fit", UNITS, "live occupancies", ("vacancy", "class")),
    ("trunk-reservation(2, 0)", UNITS, "live occupancies", ("vacancy", "class")),
    ("local-choice", RING, "the edge's two queues", None),
    ("rank(2, 1)", READ, "order of the queues at the last read", ("read", "speed")),
    ("jsed", READ, "order of the queues at the last read", ("read", "speed")),
    ("sed(own-sends=1)", READ, "last read, own sends since", None),
    ("index(0.5, own-sends=1)", READ, "last read, own sends since", None),
]


@pytest.mark.parametrize(("name", "system", "information", "columns"), ELSEWHERE)
def test_each_name_says_what_it_needs_on_its_own_kind_of_system(name, system, information, columns):
    policy = make(name, system)
    assert policy.information == information
    assert columns is None or policy.columns == columns
    assert make(policy.name, system) == policy


def test_a_rule_that_does_not_suit_the_system_is_refused():
    for name, system, sentence in [
        ("pull", RING, "two ends only"),
        ("local-choice", PAIR, "needs a system with a graph"),
        ("max-vacancy", PAIR, "needs servers with a limit or units"),
        ("trunk-reservation(1)", PAIR, "needs a system with units"),
        ("sed(own-sends=1)", PAIR, "or sampled servers; use sed(d, own-sends=1)"),
        ("index(1, own-sends=1)", PAIR, "or sampled servers; use index(a, d, own-sends=1)"),
        ("sed(2, own-sends=1)", READ, "goes without d on a system with a read_interval, got d = 2"),
        ("sed(2, own-sends=2)", PAIR, "own-sends must be 0 or 1, got 2"),
        ("sed(2, own-sends=1, ties=fastest)", PAIR, "ties must be 'random', got 'fastest'"),
        ("sed(2, own-sends=1)", RING, "not for systems with a graph"),
        ("fastest-idle", READ, "needs live queue lengths"),
        ("jsq(1, memory=1)", READ, "not for systems with a graph or a read_interval"),
        ("lsq(2)", RING, "two ends only"),
        ("pull(fallback=belief)", TWO_ROUTERS, "needs a system with one router, got 2"),
        ("pull(fallback=belief)", MOVING, "whose jobs stay"),
    ]:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            make(name, system)


def test_every_name_is_listed_and_tried():
    tried = {name.partition("(")[0] for name, *_ in NAMES} | {"local-search"}
    tried |= {name.partition("(")[0] for name, *_ in ELSEWHERE}
    assert tried == set(names(PAIR))
    assert names() == sorted({*names(PAIR), *names("cars"), *names("flow-rate")})


def test_jiq_is_pull():
    assert make("jiq", PAIR).parts == make("pull", PAIR).parts


def test_weights_are_normalised_whatever_their_size():
    for weights in ("1, 3", "1e-300, 3e-300", "1e307, 3e307"):
        assert make(f"static({weights})", PAIR).parts.params == pytest.approx((0.25, 1.0))
    assert make("static(1e308, 1e308)", PAIR).parts.params == pytest.approx((0.5, 1.0))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pul", "unknown policy 'pul', did you mean 'pull'?"),
        ("PULL", "did you mean 'pull'?"),
        ("", "must begin with a name such as 'pull' or 'jsq(2)'"),
        (None, "policy: must be a name, got None"),
        ("jsq(2", "a closing bracket is missing"),
        ("jsq(2))", "unexpected ')' after jsq(2)"),
        ("jsq(2);", "cannot read ';'"),
        ("jsq(ties=fastest, 2)", "2 must come before key=value"),
        ("jsq(d=2, d=2)", "d is given twice"),
        ("jsq(1/0)", "a fraction over 0"),
        ("jsq(3)", "d must be at most the number of servers (2)"),
        ("jsq(1.5)", "d must be a whole number >= 1, got 1.5"),
        ("jsq(2, memory=2)", "jsq: memory must be 0 or 1, got 2"),
        ("jsq(memory=1)", "use jsq(d, memory=1)"),
        ("lsq", "wrong arguments; use lsq(d, ties=random)"),
        ("lsq(3)", "lsq: d must be at most the number of servers (2)"),
        ("jsq(2, tie=lowest)", "unknown argument 'tie', did you mean 'ties'?"),
        ("jsq(2, ties=fast)", "random, fastest, lowest, got fast, did you mean 'fastest'?"),
        ("pull(" * 3000, "too many brackets within brackets"),
        ("pull(fallback=weigted-random)", "got weigted-random, did you mean 'weighted-random'?"),
        ("pull(fallback=jsq(3))", "pull: fallback jsq: d must be at most"),
        ("pull(choice=fast)", "did you mean 'fastest'?"),
        ("static(1)", "needs one weight for each of the 2 servers, got 1"),
        ("static(-1, 2)", "weight 1 must be a number >= 0, got -1"),
        ("static(1, jsq(2))", "weight 2 must be a number >= 0, got jsq(2)"),
        ("static(0, 0)", "at least one weight must be positive"),
        ("index(jsq(2))", "index: a must be a number >= 0, got jsq(2)"),
        ("index(1e400)", "index: a must be a number >= 0, got inf"),
        ("jiq-sq(2)", "d must be at most the number of routers (1), got 2"),
        ("local-search", "set migration_rate above 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_clear_sentence(name, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the sentence is looked at below)
        make(name, PAIR)
    said = str(caught.value)
    assert message in said
    assert "\n" not in said
    assert len(said) < 300


def test_local_search_names():
    for rule in ("strict", "weak", "oblivious"):
        policy = make(f"local-search(rule={rule}, place=wrr)", MOVING)
        assert policy.information.startswith("speeds, own memory")
    with pytest.raises(ValueError, match="got strct, did you mean 'strict'"):
        make("local-search(rule=strct)", MOVING)
    with pytest.raises(ValueError, match="place must be a policy for new jobs"):
        make("local-search(place=local-search)", MOVING)


def test_the_words_of_rules_are_public():
    for word in policies.__all__:
        assert hasattr(policies, word)
