"""Car sharing with a reserved parking space: how many cars, and where they should go.

    python -m baselines.car_sharing            # a minute or two
    python -m baselines.car_sharing --quick    # under 20 seconds, no files

C. Fricker, H. Mohamed, C. Bourdais, *A stochastic model for car-sharing systems*. A user takes a
parked car at a station and reserves a space at the destination; without a car here or a space there
the user is lost. N stations of K spaces, M cars, s = M / N; r spaces reserved and v cars parked at
a station. Shown:

1. *limit*: many stations behave as the mean field says (one station with a product form);
2. *fleet*: as s grows, more users find a car and fewer find a space. The limit's best fleet, most
   users accepted and fewest stations with a problem, is s* = K/2 + E[r]/2, where P(v = 0) =
   P(r + v = K); one car a station more or less is worse for both;
3. *rules*: on four stations, alike or not, the shares of users accepted under five rules beside
   the exact chain: any look at the stations helps, one at their demand most where they differ;
4. *optimum*: the best policy of the exact chain, simulated, attains its value, above all rules.

Writes ``baselines/results/car_sharing.json`` and ``.png``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from baselines import study as shared
from baselines.study import Row, part_of, row, scaled
from lbgym import CarSharing, as_system, compare, simulate, theory
from lbgym.stats import Estimate
from lbgym.theory import car_sharing

METRICS = ("no_car", "no_space", "problematic", "accepted", "cars_on_road")
SYMBOLS = {
    "no_car": "P(v = 0)",
    "no_space": "P(r + v = K)",
    "problematic": "P(problematic)",
    "accepted": "P(accepted)",
    "cars_on_road": "E[r]",
}
# Capacity, trip rate and cars a station of the large systems; lambda = 1.
LARGE = ((4, 0.5, 2.5), (10, 1.0, 6.0), (10, 0.2, 7.0))
NEAR = 0.5  # how far N stations may be from the limit: at most this / N
CAPACITY, TRIPS = 10, 0.2  # of the sweep
FLEETS = (4.0, 5.0, 6.0, 6.5, 7.0, 7.5, 8.0, 9.0)
SMALL = {"cars-equal": "four stations alike", "cars": "four unequal stations"}
RULES = ("requested", "two-choice", "least-occupied", "least-parked", "least-per-demand")


def by_station(name: str, estimate: Estimate, stations: int) -> Estimate:
    """Cars on the road by station; the others are shares already."""
    return scaled(estimate, 1 / stations) if name == "cars_on_road" else estimate


def limit(stations: int, jobs: int, seed: int) -> Iterator[Row]:
    """All metrics of many stations beside the mean field."""
    for k, (capacity, trips, cars) in enumerate(LARGE):
        system = CarSharing(stations, capacity, round(cars * stations), 1.0, trips)
        predicted = theory.mean_field(system, "requested")
        found = simulate(system, "requested", jobs=jobs, seed=seed + k)
        for name in METRICS:
            yield row(
                "limit",
                f"{stations} stations, K = {capacity}, mu = {trips:g}, s = {cars:g}",
                "requested",
                SYMBOLS[name],
                by_station(name, getattr(found, name), stations),
                getattr(predicted, name),
                "limit",
                within=NEAR / stations,
                x=k,
                jobs=jobs,
                seed=seed + k,
            )


def fleet(stations: int, jobs: int, seed: int) -> Iterator[Row]:
    """Users accepted and problematic stations against s; the balance at the best fleet."""
    system = CarSharing(stations, CAPACITY, stations, 1.0, TRIPS)
    best = car_sharing.best_fleet_limit(system)
    star = best.cars_per_station
    name = f"{stations} stations, K = {CAPACITY}, mu = {TRIPS:g}"
    near = NEAR / stations
    found = {}
    for cars in sorted({*FLEETS, star, star - 1, star + 1}):
        sized = system.with_cars(round(cars * stations))
        predicted = theory.mean_field(sized, "requested")
        found[cars] = simulate(sized, "requested", jobs=jobs, seed=seed)
        for metric in METRICS[:-1]:
            value, said = getattr(found[cars], metric), {"x": cars, "jobs": jobs, "seed": seed}
            limit_ = getattr(predicted, metric)
            what = f"{SYMBOLS[metric]}, s = {cars:.3f}"
            yield row("fleet", name, metric, what, value, limit_, "limit", within=near, **said)
    at = found[star]
    said = {"x": star, "jobs": jobs, "seed": seed}
    road = by_station("cars_on_road", at.cars_on_road, stations)
    half = CAPACITY / 2
    formula = Estimate(half + road / 2, half + road.low / 2, half + road.high / 2)
    cars = round(star * stations) / stations
    yield row("best", name, "s*", "K/2 + E[r]/2", formula, cars, "limit", within=near, **said)
    yield row(
        "best", name, "s*", "P(r + v = K)", at.no_space, float(at.no_car), "limit", within=near,
        **said,
    )  # fmt: skip
    for away in (star - 1, star + 1):
        other = found[away]
        what = f"{{}} at s = {away:.3f}, worse than at s*"
        yield row(
            "best", name, "s* +- 1", what.format("P(accepted)"), other.accepted,
            float(at.accepted), "below", **said,
        )  # fmt: skip
        yield row(
            "best", name, "s* +- 1", what.format("P(problematic)"), other.problematic,
            float(at.problematic), "above", **said,
        )  # fmt: skip


def rules(jobs: int, seed: int) -> Iterator[Row]:
    """The users accepted under each rule beside the exact chain, and under the optimum."""
    for name in SMALL:
        system = as_system(name)
        exact = {rule: theory.exact(system, rule).accepted for rule in RULES}
        for k, (rule, value) in enumerate(exact.items()):
            found = simulate(system, rule, jobs=jobs, seed=seed + k)
            said: dict[str, Any] = {"x": k, "jobs": jobs, "seed": seed + k}
            yield row("rules", name, rule, SYMBOLS["accepted"], found.accepted, value, **said)
        best = theory.optimal(system)
        rival = max(exact, key=exact.__getitem__)
        pair = compare(system, [rival, best.policy], jobs=2 * jobs, seed=seed + 9)
        said = {"x": len(RULES), "jobs": 2 * jobs, "seed": seed + 9}
        attained, less = pair.results[1], pair.differences[1]
        what = SYMBOLS["accepted"]
        yield row("optimum", name, "optimal", what, attained.accepted, best.accepted, **said)
        what = f"P(lost), minus that of {rival}"
        yield row(
            "optimum", name, "optimal - rule", what, less, exact[rival] - best.accepted, **said
        )


def study(quick: bool, seed: int) -> list[Row]:
    """All rows."""
    stations = 200 if quick else 1_000
    jobs = 400_000 if quick else 20_000_000
    return [
        *limit(stations, jobs, seed),
        *fleet(stations, jobs, seed + 10),
        *rules(jobs // 4, seed + 20),
    ]


def draw(rows: list[Row]) -> Any:
    """The sweep of the fleet, and the rules on four stations."""
    figure, ((sweep, balance, few),) = shared.figure(3)
    system = CarSharing(1, CAPACITY, 1, 1.0, TRIPS)
    best = car_sharing.best_fleet_limit(system).cars_per_station
    grid = np.linspace(FLEETS[0] * 100, FLEETS[-1] * 100, 60).round().astype(int)
    curves = [
        theory.mean_field(CarSharing(100, CAPACITY, int(m), 1.0, TRIPS), "requested") for m in grid
    ]
    for axis, metrics in ((sweep, ("accepted", "problematic")), (balance, ("no_car", "no_space"))):
        for k, metric in enumerate(metrics):
            line = [getattr(curve, metric) for curve in curves]
            axis.plot(grid / 100, line, color=f"C{k}", lw=1)
            shared.plot(axis, part_of(rows, "fleet", metric), SYMBOLS[metric], f"C{k}", ".")
        axis.axvline(best, color="gray", ls=":", label="s* = K/2 + E[r]/2")
        axis.set(xlabel="cars a station, s", ylabel="share")
    sweep.set(title=f"K = {CAPACITY}, mu = {TRIPS:g}; lines: mean field")
    balance.set(title="the best fleet balances the two")
    for k, (name, words) in enumerate(SMALL.items()):
        some = [r for r in rows if r.part in ("rules", "optimum") and r.system == name]
        some = sorted((r for r in some if r.policy != "optimal - rule"), key=lambda r: r.x)
        shared.plot(few, some, words, f"C{k + 2}", "s")
    labels = [*RULES, "optimal"]
    few.set(ylabel="users accepted (rings: exact)", title="where the user is sent", ylim=(0.3, 0.7))
    few.set_xticks(range(len(labels)), labels, rotation=20, ha="right", fontsize=8)
    for axis in (sweep, balance, few):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    return figure


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status is 0 if every prediction holds."""
    words = "Car sharing: the best fleet, and where users should take their cars."
    return shared.run("car_sharing", words, study, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
