"""The named systems are what their names say, and are found by name."""

import pytest

from lbgym import scenarios
from lbgym.system import Pool, System, as_system

EXPECTED = {
    "flagship": System([Pool(10, 1, 10), Pool(10, 2, 10)], 4, 0.9, name="flagship"),
    "flagship-migrating": System(
        [Pool(10, 1, 10), Pool(10, 2, 10)], 4, 0.9, migration_rate=1, name="flagship-migrating"
    ),
    "split-80-20": System([Pool(10, 1, 10), Pool(10, 2, 10)], [0.8, 0.2], 0.9, name="split-80-20"),
    "pull-pair": System([Pool(1, 1), Pool(1, 2)], 1, 0.9, name="pull-pair"),
    "pair-1-10": System([Pool(1, 1), Pool(1, 10)], 1, 0.7, name="pair-1-10"),
    "triple": System([Pool(1, 1), Pool(1, 2), Pool(1, 4)], 1, 0.7, name="triple"),
    "mm1": System(Pool(1), 1, 0.8, name="mm1"),
    "small": System([Pool(2, 1, 2), Pool(2, 2, 4)], 2, 0.9, name="small"),
    "hundred": System([Pool(50, 1, 10), Pool(50, 2, 10)], 4, 0.9, name="hundred"),
    "local-search": System(
        [Pool(5, 1, discipline="ps"), Pool(5, 2, discipline="ps")],
        load=0.8,
        migration_rate=1,
        name="local-search",
    ),
    "ring-10": System(Pool(10), load=0.7, graph="ring", name="ring-10"),
    "local-search-closed": System(
        Pool(10), closed_jobs=40, migration_rate=1, name="local-search-closed"
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_scenario_is_the_system_it_names(name):
    assert scenarios.get(name) == EXPECTED[name]


def test_thousand_has_a_thousand_servers_of_three_speeds():
    system = scenarios.get("thousand")
    assert system.servers == 1000
    assert len({p.speed for p in system.pools}) == 3
    assert {p.limit for p in system.pools} == {10}
    assert (system.router_count, system.load) == (4, 0.9)


def test_arrival_rate_of_small_is_that_of_the_exact_chain():
    assert scenarios.get("small").arrival_rate == pytest.approx(5.4)


@pytest.mark.parametrize("name", scenarios.names())
def test_every_scenario_has_its_name_a_purpose_and_a_source(name):
    scenario = scenarios.SCENARIOS[name]
    assert scenario.name == name == scenario.system.name
    assert scenario.description.endswith(".")
    assert scenario.source
    assert as_system(scenario.system.to_dict()) == scenario.system
    text = scenarios.describe(name)
    assert text.startswith(f"{name}: {scenario.system.describe()}\n")
    assert scenario.source in text


def test_no_name_stands_twice():
    assert len(scenarios.SCENARIOS) == len(scenarios._ALL)


def test_unknown_name_gives_the_nearest():
    with pytest.raises(ValueError, match="unknown scenario 'flagshp', did you mean 'flagship'"):
        scenarios.get("flagshp")
    with pytest.raises(ValueError, match="did you mean 'split-80-20'"):
        as_system("Split-80-21")
    with pytest.raises(ValueError, match="unknown scenario"):
        scenarios.describe(["flagship"])
