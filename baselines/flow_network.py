"""Flow networks without congestion control: links below capacity, and yet unstable.

    python -m baselines.flow_network            # four minutes
    python -m baselines.flow_network --quick    # under 20 seconds, no files

M. Feuillet, *On the flow-level stability of data networks without congestion control: the case of
linear networks and upstream trees* (2012). Every flow sends at its access rate whatever the
congestion; an overloaded link drops the same share of everybody's input (tail drop). Shown:

1. *boundary*: class 0 crosses two links, classes 1 and 2 one each. Its critical load, by theory,
   lies below what the links leave free, and nears it as the access rate a_2 of class 2 falls;
   simulated 10 % below it nothing grows, 10 % above it the flows grow as the fluid limit says;
2. *tree*: the same of a class of an upstream tree of two leaves: rho_1 < 1 - rho_2 / 3 at a_2 = 1;
3. *unstable*: every link loaded to .85 or .95 only, and two classes grow at the stated rates;
4. *rates*: the access rate of class 0 chosen by the exact optimum attains its value, well below
   that of the best fixed rate;
5. *drop*: if the links share fairly among flows instead, the network of 3. is stable, and there
   are fewer flows where both are.

Writes ``baselines/results/flow_network.json`` and ``.png``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from baselines import study as shared
from baselines.study import Row, part_of, row
from lbgym import FlowNetwork, as_system, simulate, theory
from lbgym.stats import Estimate
from lbgym.theory.flow_network import two_link_limit, with_load

ACCESS = (2.0, 1.0, 0.5, 0.2, 0.1)  # a_2
OTHERS = 0.4  # load of classes 1 and 2
TREE = (0.3, 0.5, 0.7)  # rho_2
BESIDE = (0.9, 1.1)  # of the critical load
# Loads of the three classes of two links, and the growth of classes 0 and 1 in the fluid limit.
UNSTABLE = {
    (0.55, 0.4, 0.4): (0.0992524937571, 0.0527908377603),
    (0.45, 0.4, 0.4): (0.0199692198468, 0.0126268379951),
}
FAIR = (0.1, 0.2, 0.3)  # load of class 0 where both ways of dropping are compared
QUICK_CUT = 34  # flows; beyond there is 2e-4 of the mean
RATE = "fixed-rate"


def two_links(load: float, access: float = 1.0, drop: Any = "tail") -> FlowNetwork:
    """Class 0 on both links of capacity 1, the others at load .4; class 2 sends at a_2."""
    rates = (load, OTHERS, OTHERS)
    return FlowNetwork.linear(rates, access_rate=(1.0, 1.0, access), drop=drop)


def tree(load: float, other: float) -> FlowNetwork:
    """Two leaves of capacity 1 that lead into a root of capacity 1.5."""
    return FlowNetwork.tree([2, 2, None], [load, other], capacities=[1.0, 1.0, 1.5])


def beside(
    part: str, name: str, network: FlowNetwork, x: float, jobs: int, seed: int
) -> Iterator[Row]:
    """The growth of class 0 just below and above its critical load."""
    critical = theory.critical_load(network, RATE, flow=0)
    for k, factor in enumerate(BESIDE):
        loaded = with_load(network, 0, factor * critical)
        predicted: Any = theory.growth(loaded, RATE, flow=0)
        found: Any = simulate(loaded, RATE, jobs=jobs, seed=seed + k)
        yield row(
            part,
            f"{name}, critical {critical:.4f}",
            "below" if factor < 1 else "above",
            f"growth of class 0 at {factor:g} of it",
            found.growth_by_class[0],
            predicted[0],
            x=x,
            within=0.001,
            jobs=jobs,
            seed=seed + k,
        )


def boundary(jobs: int, seed: int) -> Iterator[Row]:
    """Two links, against a_2."""
    for k, access in enumerate(ACCESS):
        name = f"two links, rho = (., {OTHERS}, {OTHERS}), a_2 = {access:g}"
        yield from beside("boundary", name, two_links(0.1, access), access, jobs, seed + 2 * k)


def upstream(jobs: int, seed: int) -> Iterator[Row]:
    """A tree of two leaves, against the load of the other class."""
    for k, other in enumerate(TREE):
        name = f"two leaves, rho_2 = {other:g}"
        yield from beside("tree", name, tree(0.1, other), other, jobs, seed + 2 * k)


def unstable(jobs: int, seed: int) -> Iterator[Row]:
    """Growth, and how many flows there are as time goes on."""
    for k, (loads, growth) in enumerate(UNSTABLE.items()):
        network = FlowNetwork.linear(loads)
        name = f"two links, both at {network.link_loads[0]:g}"
        found: Any = simulate(network, RATE, jobs=jobs, seed=seed + k)
        said: dict[str, Any] = {"jobs": jobs, "seed": seed + k}
        for c, value in enumerate(growth):
            what = f"growth of class {c}, stable: {found.stable}"
            slack = {"within": 0.05 * value, "x": c}
            yield row(
                "unstable", name, RATE, what, found.growth_by_class[c], value, **said, **slack
            )
        times = np.cumsum(found.batches["clock"])
        flows = np.cumsum(found.batches["flows_by_class"], axis=0)
        for i in range(3, len(times), 7):
            for c in (0, 1):
                value = Estimate(flows[i, c], flows[i, c], flows[i, c])
                what = f"flows gained by t = {times[i]:.0f}"
                yield row("path", name, f"class {c}", what, value, x=float(times[i]), **said)


def rates(jobs: int, seed: int, cap: int | None = None) -> Iterator[Row]:
    """Fixed access rates and the best policy, beside their exact chains (cut at `cap` flows)."""
    network = as_system("flow-rate")
    levels = network.flows[0].levels
    named = {f"fixed-rate({a:g})": f"fixed-rate({a:g})" for a in levels}
    exact = {name: theory.exact(network, p, cap).jobs_in_system for name, p in named.items()}
    best = theory.optimal(network, cap)
    for k, name in enumerate([*named, "optimal"]):
        policy = named.get(name, best.policy)
        found = simulate(network, policy, jobs=jobs, seed=seed + k)
        value = exact.get(name, best.jobs_in_system)
        said: dict[str, Any] = {"x": k, "jobs": jobs, "seed": seed + k}
        yield row("rates", "flow-rate", name, "E[flows]", found.jobs_in_system, value, **said)
    best_fixed = min(exact.values())
    what, flows = "E[flows], below the best fixed rate", found.jobs_in_system
    yield row("rates", "flow-rate", "optimal", what, flows, best_fixed, "below", **said)


def drops(loads: Sequence[float], jobs: int, seed: int, cap: int | None = None) -> Iterator[Row]:
    """Tail drop and fair drop."""
    for k, load in enumerate(loads):
        for drop in ("tail", "fair"):
            network = two_links(load, drop=drop)
            exact = theory.exact(network, RATE, cap).jobs_in_system
            found = simulate(network, RATE, jobs=jobs, seed=seed + k)
            name = f"two links, rho = ({load:g}, {OTHERS}, {OTHERS})"
            said: dict[str, Any] = {"x": load, "jobs": jobs, "seed": seed + k}
            yield row("drop", name, drop, "E[flows]", found.jobs_in_system, exact, **said)
    for k, shares in enumerate(UNSTABLE):
        network = dataclasses.replace(FlowNetwork.linear(shares), drop="fair")
        found = simulate(network, RATE, jobs=jobs, seed=seed + 10 + k)
        what = f"growth, stable: {found.stable}"
        said = {"x": shares[0], "jobs": jobs, "seed": seed + 10 + k, "within": 0.001}
        name = f"two links, both at {network.link_loads[0]:g}"
        yield row("fair", name, "fair", what, found.growth, 0.0, **said)


def study(quick: bool, seed: int) -> list[Row]:
    """All rows."""
    jobs = 200_000 if quick else 10_000_000
    cap = QUICK_CUT if quick else None
    return [
        *boundary(jobs, seed),
        *upstream(jobs, seed + 20),
        *unstable(2 * jobs, seed + 30),
        *rates(2 * jobs, seed + 40, cap),
        *drops(FAIR[:2] if quick else FAIR, jobs, seed + 50, cap),
    ]


def draw(rows: list[Row]) -> Any:
    """The boundary, the growth of an unstable network, the access rates."""
    figure, ((edge, path, few),) = shared.figure(3)
    access = np.geomspace(ACCESS[-1] / 2, 2 * ACCESS[0], 60)
    limits = [theory.critical_load(two_links(0.1, float(a)), RATE, flow=0) for a in access]
    edge.plot(access, limits, color="C3", label="critical load, by the chain")
    wide = access[access >= OTHERS]
    formula = [two_link_limit(OTHERS, OTHERS, float(a)) for a in wide]
    edge.plot(wide, formula, ":", color="black", lw=2.5, label="closed form, a_2 >= rho_1")
    edge.axhline(1 - OTHERS, color="gray", ls="--", label="all links below capacity")
    for policy, factor, mark in (("below", BESIDE[0], "o"), ("above", BESIDE[1], "x")):
        some = part_of(rows, "boundary", policy)
        loads = [factor * float(r.system.rpartition(" ")[2]) for r in some]
        grows = [r.low > 0 for r in some]
        verdict = "all grow" if all(grows) else "none grows" if not any(grows) else "?"
        edge.plot([r.x for r in some], loads, mark, color="C0", label=f"simulated: {verdict}")
    edge.set(
        xscale="log",
        xlabel="access rate of class 2",
        ylabel="load of class 0",
        title=f"two links, classes 1 and 2 at load {OTHERS}",
    )
    names = list(dict.fromkeys(r.system for r in rows if r.part == "path"))
    for k, (name, growth) in enumerate(zip(names, UNSTABLE.values(), strict=True)):
        for c in (0, 1):
            some = [r for r in part_of(rows, "path", f"class {c}") if r.system == name]
            x = np.array([0.0, *(r.x for r in some)])
            label = f"class {c}: {name}"
            path.plot(x[1:], [r.simulated for r in some], "os"[c], color=f"C{k}", ms=4, label=label)
            path.plot(x, growth[c] * x, color=f"C{k}", ls=("-", "--")[c], lw=1)
    path.set(xlabel="time", ylabel="flows gained", title="unstable; lines: the fluid limit")
    some = [r for r in part_of(rows, "rates") if r.kind == "exact"]
    shared.plot(few, some, "simulated (rings: exact)", "C2", "s")
    few.set_xticks([r.x for r in some], [r.policy for r in some], rotation=20, ha="right")
    few.set(ylabel="mean number of flows", title="the access rate of class 0")
    for axis in (edge, path, few):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    return figure


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status is 0 if every prediction holds."""
    words = "Flow networks without congestion control: stability, access rates, fair drop."
    return shared.run("flow_network", words, study, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
