"""Named systems, as data. A new scenario is one entry of `SCENARIOS`; its system carries its name.

>>> from lbgym import scenarios
>>> scenarios.get("flagship").servers
20
"""

from dataclasses import dataclass
from typing import Any

from lbgym.models import CarSharing, Flow, FlowNetwork
from lbgym.suggest import unknown
from lbgym.system import JobClass, Pool, System

__all__ = ["SCENARIOS", "Scenario", "describe", "get", "names"]

STOLYAR = "A. Stolyar, Pull-based load distribution among heterogeneous parallel servers: the case of multiple routers, arXiv:1512.07873"  # noqa: E501
GANESH = "A. Ganesh, S. Lilienthal, D. Manjunath, A. Proutiere, F. Simatos, Load balancing via random local search in closed and open systems, 2012"  # noqa: E501
LUO = "Y. Luo, M. Zubeldia, Stability and heavy-traffic delay optimality of general load balancing policies in heterogeneous service systems, arXiv:2510.14284"  # noqa: E501
MUKHOPADHYAY = "A. Mukhopadhyay, A. Karthik, R. Mazumdar, F. Guillemin, Mean field and propagation of chaos in multi-class heterogeneous loss models, Performance Evaluation 91, 2015"  # noqa: E501
BERENBRINK = "P. Berenbrink, P. Kling, C. Liaw, A. Mehrabian, Tight load balancing via randomized local search, 2017"  # noqa: E501
DESTER = "P. Dester, C. Fricker, H. Mohamed, Stationary distribution analysis of a queueing model with local choice, 2018"  # noqa: E501
FRICKER = "C. Fricker, H. Mohamed, C. Bourdais, A stochastic model for car-sharing systems"
FEUILLET = "M. Feuillet, On the flow-level stability of data networks without congestion control: the case of linear networks and upstream trees, 2012"  # noqa: E501
CROVELLA = "M. Crovella, M. Harchol-Balter, C. Murta, Task assignment in a distributed system: improving performance by unbalancing load, 1998"  # noqa: E501
HARCHOL = "M. Harchol-Balter, M. Crovella, C. Murta, On choosing a task assignment policy for a distributed server system, 1999"  # noqa: E501
CLASSIC = "classical"

AnySystem = System | CarSharing | FlowNetwork


@dataclass(frozen=True)
class Scenario:
    """A system with a name, what it is good for, and where it comes from."""

    system: AnySystem
    description: str
    source: str

    @property
    def name(self) -> str:
        return self.system.name


FLAGSHIP_POOLS = (Pool(10, speed=1.0, limit=10), Pool(10, speed=2.0, limit=10))

_ALL = (
    Scenario(
        System(FLAGSHIP_POOLS, routers=4, load=0.9, name="flagship"),
        "Two speeds, short queues, four routers that see only their own pull-messages.",
        STOLYAR,
    ),
    Scenario(
        System(FLAGSHIP_POOLS, routers=4, load=0.9, migration_rate=1.0, name="flagship-migrating"),
        "The flagship with jobs that go on looking for a better server.",
        f"{STOLYAR}; {GANESH}",
    ),
    Scenario(
        System(FLAGSHIP_POOLS, routers=[0.8, 0.2], load=0.9, name="split-80-20"),
        "The flagship's servers behind one busy router and one quiet one; messages go to both "
        "alike, so the busy one runs short of them.",
        STOLYAR,
    ),
    Scenario(
        System([Pool(1, speed=1.0), Pool(1, speed=2.0)], load=0.9, name="pull-pair"),
        "PULL is unstable here although the load is below 1: its critical load is .853851 and the "
        "backlog grows by .0881 jobs per unit time.",
        STOLYAR,
    ),
    Scenario(
        System([Pool(1, speed=1.0), Pool(1, speed=10.0)], load=0.7, name="pair-1-10"),
        "A slow server that does nearly best if left idle until the fast one holds four jobs.",
        CLASSIC,
    ),
    Scenario(
        System(
            [Pool(1, speed=1.0), Pool(1, speed=2.0), Pool(1, speed=4.0)], load=0.7, name="triple"
        ),
        "Three speeds, small enough for the exact optimum.",
        CLASSIC,
    ),
    Scenario(
        System([Pool(2, speed=0.2), Pool(1, speed=2.6)], load=0.7, name="triple-two-probes"),
        "Two slow servers beside a fast one that has most of the capacity; choosing the better of "
        "two sampled servers is unstable, so a router with two probes must remember.",
        CLASSIC,
    ),
    Scenario(
        System(
            [
                Pool(500, speed=1.0, limit=10),
                Pool(300, speed=2.0, limit=10),
                Pool(200, speed=4.0, limit=10),
            ],
            routers=4,
            load=0.9,
            name="thousand",
        ),
        "A thousand servers of three speeds: where the mean field is close to the truth.",
        STOLYAR,
    ),
    Scenario(
        System(Pool(1), load=0.8, name="mm1"),
        "The M/M/1 queue: every estimate has a closed form.",
        CLASSIC,
    ),
    Scenario(
        System([Pool(2, speed=1.0, limit=2), Pool(2, speed=2.0, limit=4)], 2, 0.9, name="small"),
        "Two speeds, two limits, two routers, few enough states for the exact chain.",
        STOLYAR,
    ),
    Scenario(
        System(
            [Pool(5, speed=1.0, discipline="ps"), Pool(5, speed=2.0, discipline="ps")],
            load=0.8,
            migration_rate=1.0,
            name="local-search",
        ),
        "Processor sharing; each job resamples its server at rate 1.",
        GANESH,
    ),
    Scenario(
        System(Pool(2, discipline="ps"), load=0.8, migration_rate=1.0, name="migrate"),
        "Two servers alike; jobs are placed uniformly and may move when their clock rings. At a "
        "price of 2 a move, one that gains little does not pay.",
        GANESH,
    ),
    Scenario(
        System(
            [Pool(50, speed=1.0, limit=10), Pool(50, speed=2.0, limit=10)],
            routers=4,
            load=0.9,
            name="hundred",
        ),
        "The flagship five times as large.",
        STOLYAR,
    ),
    Scenario(
        System(
            [Pool(1, speed=1 + 2 * i / 19) for i in range(20)],
            load=0.9,
            read_interval=5.0,
            name="stale-20",
        ),
        "Twenty speeds from 1 to 3; the queues are read only every 5 units of time.",
        LUO,
    ),
    Scenario(
        System(
            [Pool(1, units=4), Pool(1, units=6), Pool(1, units=8)],
            arrival_rate=7.5,
            classes=[
                JobClass(share=6, units=1, weight=1, name="narrow"),
                JobClass(share=1.5, units=4, weight=4, name="wide"),
            ],
            name="two-class-loss",
        ),
        "Narrow and wide jobs share units; a wide one needs four free on one server and counts "
        "four if lost.",
        MUKHOPADHYAY,
    ),
    Scenario(
        System(
            Pool(2),
            load=0.7,
            size={"law": "bounded-pareto", "alpha": 1.5, "high": 100},
            name="heavy",
        ),
        "Two servers alike, sizes known and of great variance: a few large jobs are most of the "
        "work.",
        f"{CROVELLA}; {HARCHOL}",
    ),
    Scenario(
        System(
            FLAGSHIP_POOLS,
            routers=4,
            load=0.7,
            arrivals={
                "process": "mmpp",
                "rates": (0.3, 1.7),
                "generator": ((-0.2, 0.2), (0.2, -0.2)),
            },
            name="bursts",
        ),
        "The flagship at load .7, the arrival rate switching between .3 and 1.7 of its mean: in a "
        "burst there are more jobs than the servers can serve.",
        STOLYAR,
    ),
    Scenario(
        System(Pool(10), load=0.7, graph="ring", name="ring-10"),
        "Ten queues on a circle; each job goes to one of two neighbours.",
        DESTER,
    ),
    Scenario(
        System(Pool(10), closed_jobs=40, migration_rate=1.0, name="local-search-closed"),
        "Forty jobs, all in one server at first, that move until no server holds two more than "
        "another; 4.958 units of time on average if each moves when it gains.",
        f"{GANESH}; {BERENBRINK}",
    ),
    Scenario(
        CarSharing(
            4, capacity=3, cars=6, arrival_rate=(2, 1, 0.7, 0.3), trip_rate=0.8, name="cars"
        ),
        "Four stations of unequal demand: 34.6 % of the users are accepted where they want to go, "
        "61.3 % if the best station is always found.",
        FRICKER,
    ),
    Scenario(
        CarSharing(4, capacity=3, cars=7, trip_rate=0.8, name="cars-equal"),
        "Four stations alike: 49.7 % of the users are accepted where they want to go, 67.6 % at "
        "best.",
        FRICKER,
    ),
    Scenario(
        FlowNetwork.linear([0.3, 0.3, 0.3], access_rates=(0.25, 0.5, 1, 2), name="flow-rate"),
        "Two links; the flows that cross both have their access rate chosen. The best fixed rate "
        "leaves 3.088 flows on average, the best policy 2.680.",
        FEUILLET,
    ),
    Scenario(
        FlowNetwork(
            (Flow(routes=((0, 2), (1, 2)), arrival_rate=1.0),), (1.0, 1.0, 1.5), name="flow-routes"
        ),
        "Flows choose one of two links that lead into a third; joining the less loaded one is the "
        "best there is, 2.3562 flows on average.",
        FEUILLET,
    ),
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}


def names() -> tuple[str, ...]:
    """The scenarios' names."""
    return tuple(SCENARIOS)


def get(name: str) -> Any:
    """The system of that name; ValueError with the nearest name if there is none."""
    return _find(name).system


def describe(name: str) -> str:
    """Two lines: the system, what it is good for and its source."""
    scenario = _find(name)
    return (
        f"{scenario.name}: {scenario.system.describe()}\n"
        f"  {scenario.description} [{scenario.source}]"
    )


def _find(name: str) -> Scenario:
    try:
        return SCENARIOS[name]
    except (KeyError, TypeError):
        hint = "; a file's name ends in .toml"
        raise ValueError(f"system: {unknown('scenario', name, SCENARIOS)}{hint}") from None
