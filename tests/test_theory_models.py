"""Theory of the other models: closed local search, classes with units, graphs, reads.

The values were computed for this project by other programs (linear solves, fixed points, rational
arithmetic); they hold to 1e-6 relative or better. Models: MODELS.md, sections 2 and 4 to 6.
"""

import json
import math
import re

import numpy as np
import pytest

from lbgym import Pool, System, theory
from lbgym.simulate import simulate
from lbgym.system import JobClass

RELATIVE = 1e-6
SECONDS = pytest.mark.slow


def near(value):
    return pytest.approx(value, rel=RELATIVE, abs=1e-12)


# --- closed local search --------------------------------------------------------------------------
def closed(jobs, speeds):
    return System([Pool(1, speed=s) for s in speeds], closed_jobs=jobs, migration_rate=1.0)


# servers, jobs, all in one server at first: E[T], its standard deviation, E[moves], E[T] exactly
CLOSED = [
    (2, 4, 1.16666666667, 0.833333333333, 2.0, "7/6"),
    (3, 6, 2.025, 1.16966875653, 4.3, "81/40"),
    (3, 7, 1.46369047619, 0.754918443659, 4.73214285714, "2459/1680"),
    (4, 10, 1.76945041184, 0.715037133535, 8.19242389739, "235208503969/132927434640"),
    (5, 15, 3.13873393219, 1.39081348372, 14.474121282, None),
    (4, 4, 2.94444444444, 2.10891698846, 3.33333333333, None),
    (16, 16, 13.2945791946, 8.32957808079, 20.4566904915, None),
    (8, 32, 4.18347728229, 1.71313379084, 35.5331549294, None),
    (16, 32, 10.0025177874, 5.56282201313, 40.620535684, None),
    (10, 40, 4.95774892504, 2.11574005086, 46.4872165905, None),
]


CLOSED_ROWS = [pytest.param(*row, "strict") for row in CLOSED] + [
    pytest.param(*row, "weak", marks=[SECONDS] if row[1] >= 32 else []) for row in CLOSED
]


@pytest.mark.parametrize(("n", "m", "mean", "std", "moves", "fraction", "rule"), CLOSED_ROWS)
def test_balancing_time_from_one_server(n, m, mean, std, moves, fraction, rule):
    system = System(Pool(n), closed_jobs=m, migration_rate=1.0)
    result = theory.exact(system, f"local-search(rule={rule})")
    assert result.balancing_time == pytest.approx(mean, abs=1e-9)
    assert result.balancing_time_std == pytest.approx(std, abs=1e-9)
    if rule == "strict":
        assert result.moves == pytest.approx(moves, abs=1e-9)
    else:  # moves that only swap two lengths take no time
        assert result.moves >= moves - 1e-9
    if fraction is not None:
        assert str(result.balancing_time_fraction) == fraction


@pytest.mark.parametrize(("n", "m"), [(4, 8), (8, 16), (8, 8), (5, 20)])
def test_one_over_and_one_under_take_n_over_k_plus_1(n, m):
    k = m // n
    system = System(Pool(n), closed_jobs=m, migration_rate=1.0)
    start = [k + 1] + [k] * (n - 2) + [k - 1]
    result = theory.exact(system, "local-search", start=start)
    assert result.balancing_time_fraction * (k + 1) == n


@pytest.mark.parametrize(
    ("speeds", "start", "fraction", "std", "ends"),
    [
        ((1, 2, 3), (7, 0, 0), "124115711/39639600", 1.44011487473, {(1, 2, 4): 1}),
        ((1, 1, 4), (9, 0, 0), "835437217/180999000", 1.97025717717, {(1, 1, 7): 1}),
        (
            (2, 3, 5),
            (11, 0, 0),
            "25766686317037/8864740684800",
            1.11543595209,
            {(2, 3, 6): 1},
        ),
        ((1, 2), (0, 5), "2/5", 0.4, {(1, 4): 1}),
        (
            (1, 2, 2),
            (3, 0, 5),
            "1539/1120",
            0.78878408025,
            {(1, 3, 4): 0.345238095238, (2, 3, 3): 0.654761904762},
        ),
    ],
)
def test_time_until_nash_with_unequal_speeds(speeds, start, fraction, std, ends):
    result = theory.exact(closed(sum(start), speeds), "local-search", start=list(start))
    assert str(result.balancing_time_fraction) == fraction
    assert result.balancing_time_std == pytest.approx(std, abs=1e-9)
    assert result.ends == pytest.approx(ends, abs=1e-9)
    json.dumps(result.to_dict())


def test_a_destructive_move_never_shortens_the_time():
    times = {}

    def time(q):
        q = tuple(sorted(q))
        if q not in times:
            system = System(Pool(3), closed_jobs=7, migration_rate=1.0)
            times[q] = theory.exact(system, "local-search", start=list(q)).balancing_time_fraction
        return times[q]

    for a in range(8):
        for b in range(8 - a):
            q = [a, b, 7 - a - b]
            for i in range(3):
                for j in range(3):
                    if i != j and q[i] and q[i] <= q[j] + 1:  # from the shorter to the longer
                        after = list(q)
                        after[i] -= 1
                        after[j] += 1
                        assert time(after) >= time(q)


@pytest.mark.parametrize(("speeds", "rule"), [((1, 1, 1), "oblivious"), ((1, 2, 3), "weak")])
def test_rules_that_go_round_in_circles_agree_with_simulation(speeds, rule):
    system = closed(7, speeds)
    policy = f"local-search(rule={rule})"
    result = theory.exact(system, policy)
    assert sum(result.ends.values()) == pytest.approx(1)
    found = simulate(system, policy, jobs=10_000, seed=1)
    error = float(np.std(found.batches["balancing_time"])) / 100
    assert abs(found.balancing_time.mean - result.balancing_time) < 4 * error
    moves = float(found.batches["migrations"].mean())
    assert moves == pytest.approx(result.moves, rel=0.05)


@pytest.mark.parametrize(
    ("speeds", "jobs", "policy"),
    [
        ((1, 1, 1, 1), 9, "local-search"),
        ((1, 2, 2), 7, "local-search"),
        ((1, 1, 1), 6, "local-search(rule=oblivious)"),
    ],
)
def test_distribution_of_the_balancing_time(speeds, jobs, policy):
    system = closed(jobs, speeds)
    exact = theory.exact(system, policy)
    times = np.linspace(0, 40 * exact.balancing_time, 20_001)
    chance = exact.balancing_time_cdf(times)
    assert chance[0] == 0
    assert (np.diff(chance) >= -1e-13).all()
    mean = np.trapezoid(1 - chance, times)
    square = 2 * np.trapezoid(times * (1 - chance), times)
    assert mean == pytest.approx(exact.balancing_time, rel=1e-6)
    assert math.sqrt(square - mean**2) == pytest.approx(exact.balancing_time_std, rel=1e-5)
    run = np.sort(simulate(system, policy, jobs=20_000, seed=6).batches["balancing_time"])
    theirs = exact.balancing_time_cdf(run)
    steps = np.arange(1, len(run) + 1) / len(run)
    distance = max((steps - theirs).max(), (theirs - steps + 1 / len(run)).max())
    assert distance < 2.2 / math.sqrt(len(run))  # Kolmogorov: 1 in 8,000


def test_distribution_of_the_balancing_time_in_a_case_by_hand():
    """From (2, 0): two jobs of rate 1 that each look at the other server half the time: Exp(1)."""
    exact = theory.exact(closed(2, (1, 1)), "local-search")
    assert exact.balancing_time_cdf(0.7) == pytest.approx(1 - math.exp(-0.7), rel=1e-11)
    assert exact.balancing_time_cdf([[0.0, 3.0]]).shape == (1, 2)
    assert theory.exact(closed(1, (1, 1)), "local-search").balancing_time_cdf(0) == 1
    for t in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="balancing_time_cdf: t must be finite"):
            exact.balancing_time_cdf(t)


def test_closed_systems_that_are_refused():
    system = System(Pool(20), closed_jobs=200, migration_rate=1.0)
    with pytest.raises(ValueError, match=r"340,131,780,324 configurations.*simulate"):
        theory.exact(system, "local-search")
    with pytest.raises(ValueError, match="must hold the 4 jobs"):
        theory.exact(closed(4, (1, 1)), "local-search", start=[1, 1])
    with pytest.raises(ValueError, match="start: must be 2 whole"):
        theory.exact(closed(4, (1, 1)), "local-search", start=[4])
    with pytest.raises(ValueError, match="only a closed system"):
        theory.exact(System(Pool(2), load=0.5), "jsq", start=[1, 1])
    limited = System([Pool(1), Pool(1, limit=1)], closed_jobs=6, migration_rate=1.0)
    with pytest.raises(ValueError, match="limits keep"):
        theory.exact(limited, "local-search")
    balanced = theory.exact(closed(3, (1, 1)), "local-search", start=[1, 2])
    assert balanced.balancing_time == 0
    assert balanced.ends == {(1, 2): 1.0}


# --- classes with units ---------------------------------------------------------------------------
def classes(units, rates, served):
    rows = zip(units, rates, served, strict=True)
    return [JobClass(share=r, units=a, mean_size=1 / mu) for a, r, mu in rows]


# units of each server, units of each class, arrival rates, rates of departure, d: blocking by
# class, mean numbers of jobs
LOSS = [
    ([2, 4], [1], [4.0], [1.0], 2, [0.11716247139588098], [3.531350114416476]),
    ([2, 2, 4, 4], [1], [9.0], [1.0], 1, [0.27995715503390645], [6.480385604694842]),
    (
        [4, 4],
        [1, 2],
        [2.0, 1.0],
        [1.0, 1.0],
        2,
        [0.029771694218348202, 0.15476700341662433],
        [1.9404566115633035, 0.8452329965833761],
    ),
    (
        [4, 4],
        [1, 2],
        [3.0, 2.0],
        [1.0, 1.0],
        1,
        [0.21539871677360223, 0.457378551787351],
        [2.3538038496791933, 1.0852428964252978],
    ),
    (
        [3, 5],
        [1, 2],
        [3.0, 1.5],
        [1.0, 0.5],
        2,
        [0.157899376213078, 0.49130224567623226],
        [2.5263018713607654, 1.5260932629713022],
    ),
    (
        [4, 4, 4],
        [1, 2],
        [4.5, 3.0],
        [1.0, 1.0],
        3,
        [0.06661341713251749, 0.3464430121771922],
        [4.200239622903673, 1.9606709634684236],
    ),
    (
        [3, 4, 5],
        [1, 2],
        [4.5, 3.0],
        [1.0, 1.0],
        2,
        [0.09560503409506912, 0.3777307981276289],
        [4.069777346572189, 1.8668076056171121],
    ),
    (
        [3, 4, 5],
        [1, 2],
        [4.5, 1.5],
        [1.0, 0.5],
        2,
        [0.0971847339503674, 0.3793829424421219],
        [4.062668697223347, 1.8618511726736333],
    ),
]


@pytest.mark.parametrize(("caps", "needs", "rates", "served", "d", "blocked", "jobs"), LOSS)
def test_blocking_of_each_class_under_max_vacancy(caps, needs, rates, served, d, blocked, jobs):
    pools = [Pool(caps.count(c), units=c) for c in sorted(set(caps))]
    system = System(pools, arrival_rate=sum(rates), classes=classes(needs, rates, served))
    result = theory.exact(system, f"max-vacancy({d})")
    assert result.blocking_by_class == near(blocked)
    assert result.jobs_by_class == near(jobs)
    assert result.jobs_in_system == near(sum(result.jobs_per_server))
    assert result.messages_per_job == 2 * d
    assert theory.exact(
        System(**{**fields(system), "pools": [Pool(1, units=c) for c in caps]}), f"max-vacancy({d})"
    ).blocking_by_class == near(blocked)


def fields(system):
    return {"arrival_rate": system.arrival_rate, "classes": list(system.classes)}


# share and units of each pool, units of each class, arrival rates per server, d: blocking by class,
# mean numbers of jobs per server
LIMITS = [
    ([[0.5, 2], [0.5, 4]], [1], [2.25], 1, [0.2799571550339056], [1.6200964011737071]),
    ([[0.5, 5], [0.5, 10]], [1], [6.75], 1, [0.2393180606684227], [5.134603090488108]),
    ([[0.5, 5], [0.5, 10]], [1], [6.75], 2, [0.09420660718407456], [6.114105401507418]),
    ([[0.5, 5], [0.5, 10]], [1], [7.5], 2, [0.15000005971753316], [6.374999552118415]),
    ([[0.5, 10], [0.5, 20]], [1], [13.5], 1, [0.19161768439195603], [10.9131612607085]),
    ([[0.5, 10], [0.5, 20]], [1], [15.0], 1, [0.22796687877412813], [11.580496818387951]),
    ([[0.5, 10], [0.5, 20]], [1], [15.0], 2, [0.09970433752145884], [13.50443493717793]),
    ([[0.2, 20], [0.8, 5]], [1], [7.2], 2, [0.16775910740821792], [5.992134426660769]),
    (
        [[1.0, 4]],
        [1, 2],
        [1.5, 1.0],
        1,
        [0.21539871677361563, 0.4573785517873622],
        [1.1769019248396115, 0.5426214482126496],
    ),
    (
        [[0.5, 5], [0.5, 10]],
        [1, 2],
        [3.0, 1.5],
        1,
        [0.1692444205017651, 0.33894173098689895],
        [2.492266738494726, 0.9915874035196683],
    ),
    (
        [[0.5, 5], [0.5, 10]],
        [1, 2],
        [3.0, 1.5],
        2,
        [0.030444516024087126, 0.1841014888158575],
        [2.908666451927682, 1.2238477667761922],
    ),
    (
        [[1.0, 10]],
        [1, 2],
        [4.0, 3.0],
        2,
        [0.052156008773172446, 0.2605229733790988],
        [3.7913759649071443, 2.218431079862615],
    ),
]


@pytest.mark.parametrize(("types", "needs", "rates", "d", "blocked", "jobs"), LIMITS)
def test_limit_of_max_vacancy(types, needs, rates, d, blocked, jobs):
    system = System(
        [Pool(round(10 * share), units=units) for share, units in types],
        arrival_rate=10 * sum(rates),
        classes=classes(needs, rates, [1.0] * len(needs)),
    )
    result = theory.mean_field(system, f"max-vacancy({d})")
    assert result.blocking_by_class == near(blocked)
    assert result.jobs_by_class == near(jobs)
    assert result.error < 1e-11
    if d == 1:
        assert theory.mean_field(system, "random").blocking_by_class == near(blocked)


@pytest.mark.parametrize(
    ("policy", "lost"), [("best-fit", 0.2273), ("max-vacancy", 0.3378), ("max-vacancy(3)", 0.3378)]
)
def test_weighted_loss_of_the_scenario(policy, lost):
    result = theory.exact("two-class-loss", policy)
    assert result.weighted_loss == pytest.approx(lost, abs=5e-5)
    assert result.cost == pytest.approx(result.weighted_loss)
    shares = np.array([0.8, 0.2])
    assert shares @ np.array(result.blocking_by_class) == pytest.approx(result.blocking_probability)
    assert "blocking_by_class" in repr(result)


@pytest.mark.parametrize(
    "policy", ["random", "static(1, 2, 3)", "jsq", "jsq(2)", "trunk-reservation(2, 0)", "best-fit"]
)
def test_loss_policies_agree_with_simulation(policy):
    result = theory.exact("two-class-loss", policy)
    found = simulate("two-class-loss", policy, jobs=300_000, seed=2)
    assert found.blocking_by_class == pytest.approx(result.blocking_by_class, rel=0.03, abs=0.002)
    assert found.cost.mean == pytest.approx(result.cost, rel=0.02)
    assert found.jobs_in_system.mean == pytest.approx(result.jobs_in_system, rel=0.01)
    assert found.messages_per_job.mean == pytest.approx(result.messages_per_job)


def test_loss_systems_that_are_refused():
    many = System(Pool(10, units=10), load=0.5, classes=classes([1, 2], [1, 1], [1, 1]))
    with pytest.raises(ValueError, match=r"has 3,190,187,286 states.*mean_field"):
        theory.exact(many, "best-fit")
    with pytest.raises(ValueError, match="no loss system"):
        theory.exact("two-class-loss", "pull")
    with pytest.raises(ValueError, match=r"known for max-vacancy\(d\)"):
        theory.mean_field("two-class-loss", "best-fit")
    wide = System(Pool(10, units=300), load=0.5, classes=classes([1, 2], [1, 1], [1, 1]))
    with pytest.raises(ValueError, match=r"in 22,801 ways"):
        theory.mean_field(wide, "max-vacancy(2)")


# --- graphs ---------------------------------------------------------------------------------------
# graph, servers, load: P(q = 0..4), mean queue
GRAPHS = [
    (
        "ring",
        2,
        0.3,
        [0.7, 0.260874463602, 0.0354130258263, 0.00337631550487, 0.000305916250179],
        0.343207515702,
    ),
    (
        "ring",
        2,
        0.7,
        [0.3, 0.310460327757, 0.193174028017, 0.099607348218, 0.049295626746],
        1.47573809177,
    ),
    (
        "ring",
        2,
        0.9,
        [0.1, 0.141978813926, 0.138114905768, 0.116725344443, 0.0954201226546],
        4.92742153911,
    ),
    (
        "ring",
        3,
        0.1,
        [0.9, 0.0986008087861, 0.00139374341843, 5.43218089598e-06, 1.5573485943e-08],
        0.101404654665,
    ),
    (
        "ring",
        3,
        0.5,
        [0.5, 0.35561495386, 0.117466454502, 0.0228607347181, 0.00350128171661],
        0.676001735941,
    ),
    (
        "ring",
        3,
        0.7,
        [0.3, 0.32877674133, 0.214335313761, 0.0979123325719, 0.03792418801],
        1.31935465307,
    ),
    (
        "ring",
        4,
        0.1,
        [0.9, 0.0986166433311, 0.00137851831495, 4.82569834054e-06, 1.26238213135e-08],
        0.10138820771,
    ),
    (
        "ring",
        4,
        0.5,
        [0.5, 0.357965274574, 0.11829649867, 0.0209003843136, 0.00255726074494],
        0.668918322278,
    ),
    (
        "ring",
        4,
        0.7,
        [0.300000000004, 0.333003379795, 0.222388897799, 0.0979407063117, 0.0333235540873],
        1.27636931526,
    ),
    (
        "complete",
        4,
        0.1,
        [0.9, 0.0987283049172, 0.00126887401827, 2.81735365938e-06, 3.70653533447e-09],
        0.101274519862,
    ),
    (
        "complete",
        4,
        0.5,
        [0.5, 0.361272052098, 0.117607729933, 0.0189358204011, 0.00200125705477],
        0.662230383961,
    ),
    (
        "complete",
        4,
        0.7,
        [0.300000000003, 0.336728330496, 0.225346860967, 0.095668893421, 0.0307605219337],
        1.25885058218,
    ),
]


def _graph_row(row):
    slow = row[:3] in [("ring", 4, 0.7), ("complete", 4, 0.7), ("ring", 2, 0.9)]
    return pytest.param(*row, marks=[SECONDS] if slow else [])


@pytest.mark.parametrize(
    ("graph", "n", "load", "law", "queue"), [_graph_row(row) for row in GRAPHS]
)
def test_local_choice_on_small_graphs(graph, n, load, law, queue):
    result = theory.exact(System(Pool(n), load=load, graph=graph), "local-choice")
    assert result.jobs_in_system / n == near(queue)
    found = -np.diff(result.queue_tail["all"])[:5]
    assert found == pytest.approx(law, rel=RELATIVE, abs=1e-10)
    assert found[0] == pytest.approx(1 - load, abs=1e-9)  # as nothing is lost
    assert result.messages_per_job == pytest.approx(4)
    assert result.truncation_error < 1e-6


# load: P(q = 0..4), mean queue
PAIRS = [
    (
        0.1,
        [0.9, 0.0986175391679, 0.00137764268879, 4.80516173323e-06, 1.29473425139e-08],
        0.101387291991,
    ),
    (0.5, [0.5, 0.358672525858, 0.118608956183, 0.0201808170056, 0.00229797396678], 0.666846694048),
    (0.7, [0.3, 0.3351165122, 0.227112738765, 0.0977260753368, 0.0302121727705], 1.25532396247),
    (
        0.95,
        [0.0500000024105, 0.0864495510197, 0.122838511013, 0.144930146385, 0.145613631039],
        4.5341560035,
    ),
]


@pytest.mark.parametrize(("load", "law", "queue"), PAIRS)
def test_pair_approximation_of_the_ring(load, law, queue):
    result = theory.mean_field(System(Pool(10), load=load, graph="ring"), "local-choice")
    assert result.jobs_per_server == near(queue)
    found = -np.diff(result.queue_tail["all"])[:5]
    assert found == pytest.approx(law, rel=RELATIVE, abs=1e-9)


def test_waiting_probability_of_the_pair_approximation_is_near_that_of_a_ring():
    system = System(Pool(10), load=0.7, graph="ring")
    limit = theory.mean_field(system, "local-choice")
    found = simulate(system, "local-choice", jobs=300_000, seed=3)
    assert limit.waiting_probability == pytest.approx(found.waiting_probability.mean, rel=0.03)


@pytest.mark.parametrize("policy", ["local-choice", "sed", "jsq(ties=fastest)", "random"])
def test_other_graphs_agree_with_simulation(policy):
    pools = [Pool(2, speed=1.0, limit=5), Pool(1, speed=2.0, limit=8)]
    system = System(pools, load=0.8, graph=[[0, 1], [1, 2], [0, 2], [1, 2]])
    result = theory.exact(system, policy)
    found = simulate(system, policy, jobs=300_000, seed=4)
    assert found.jobs_in_system.mean == pytest.approx(result.jobs_in_system, rel=0.02)
    assert found.waiting_probability.mean == pytest.approx(result.waiting_probability, rel=0.02)
    assert found.blocking_probability.mean == pytest.approx(
        result.blocking_probability, rel=0.1, abs=5e-4
    )
    assert found.messages_per_job.mean == pytest.approx(result.messages_per_job)


def test_graphs_that_are_refused():
    ring = System(Pool(10), load=0.7, graph="ring")
    with pytest.raises(ValueError, match=r"up to 1,296,871,230 states"):
        theory.exact(ring, "local-choice")
    parallel = System(Pool(3), load=0.9, graph=[[0, 1], [0, 1], [0, 1], [1, 2]])
    with pytest.raises(ValueError, match=r"not stable .* inside servers \[0, 1\]"):
        theory.exact(parallel, "local-choice")
    with pytest.raises(ValueError, match="only a ring"):
        theory.mean_field(System(Pool(4), load=0.7, graph="complete"), "local-choice")
    with pytest.raises(ValueError, match="load below 1"):
        theory.mean_field(System(Pool(4), load=1.0, graph="ring"), "local-choice")


# --- reads ----------------------------------------------------------------------------------------
# order, speeds, arrival rate, T: E[N], P(wait), E[N] of each server
READS = [
    ("jsq", [1.0, 1.0], 1.8, 5, 13.495278024708334, None, None),
    (
        "jsed",
        [1.0, 2.0],
        2.1,
        10,
        9.498383681951598,
        0.8678804016935155,
        [6.2324916726703785, 3.26589200928122],
    ),
    (
        "jsed",
        [1.0, 2.0],
        2.1,
        5,
        6.3025380620875495,
        0.8092895582606348,
        [3.7476698716001366, 2.5548681904874124],
    ),
    (
        "jsq",
        [1.0, 2.0],
        2.1,
        1,
        3.8837694577773747,
        0.6755293129428006,
        [2.2842973296486537, 1.599472128128721],
    ),
    (
        "jsq",
        [1.0, 2.0],
        2.1,
        5,
        6.683198444742665,
        0.8102040175215564,
        [4.40252714390475, 2.2806713008379145],
    ),
    (
        "jsq",
        [1.0, 1.0],
        1.4,
        0.1,
        2.99780433067855,
        0.5686819723641912,
        [1.498902165339275, 1.498902165339275],
    ),
    (
        "jsq",
        [1.0, 1.0],
        1.4,
        10,
        6.5841786735094425,
        0.8391189600031036,
        [3.292089336754721, 3.2920893367547217],
    ),
    (
        "jsq",
        [1.0, 1.0],
        1.4,
        2,
        3.7876653496603043,
        0.6914010893429153,
        [1.8938326748301522, 1.8938326748301522],
    ),
    (
        "jsq",
        [1.0, 1.0],
        1.4,
        5,
        4.901421626836066,
        0.7735313272390931,
        [2.450710813418033, 2.450710813418033],
    ),
    (
        "jsq",
        [1.0, 1.0],
        1.8,
        1,
        10.551215161823222,
        0.8737366387708474,
        [5.275607580911612, 5.275607580911611],
    ),
]


def _read_row(row):
    return pytest.param(*row, marks=[SECONDS] if row[2] == 1.8 else [])


def read(speeds, rate, interval, **options):
    pools = [Pool(1, speed=mu, **options) for mu in speeds]
    return System(pools, arrival_rate=rate, read_interval=float(interval))


@pytest.mark.parametrize(
    ("policy", "speeds", "rate", "interval", "jobs", "waits", "each"),
    [_read_row(row) for row in READS],
)
def test_two_servers_read_now_and_then(policy, speeds, rate, interval, jobs, waits, each):
    result = theory.exact(read(speeds, rate, interval), policy)
    assert result.jobs_in_system == near(jobs)
    if waits is not None:
        assert result.waiting_probability == near(waits)
        assert result.jobs_per_server == near(each)
    assert result.truncation_error < 1e-6
    assert result.messages_per_job == pytest.approx(4 / interval / rate)


@pytest.mark.parametrize(
    "policy", ["rank(0.8, 0.2)", "rank(0.8, 0.2, order=jsed)", "sed", "jsq(2)", "index(1/2)"]
)
def test_read_policies_agree_with_simulation(policy):
    system = read((1.0, 2.0), 2.4, 2.0, slots=2, limit=6)
    result = theory.exact(system, policy)
    found = simulate(system, policy, jobs=300_000, seed=5)
    assert found.jobs_in_system.mean == pytest.approx(result.jobs_in_system, rel=0.02)
    assert found.waiting_probability.mean == pytest.approx(result.waiting_probability, rel=0.03)
    assert found.blocking_probability.mean == pytest.approx(
        result.blocking_probability, rel=0.08, abs=5e-4
    )
    assert found.messages_per_job.mean == pytest.approx(result.messages_per_job, rel=0.02)


def test_what_looks_at_nothing_does_not_mind_reads():
    system = read((1.0, 1.0), 0.8, 2.0)
    assert theory.exact(system, "random").jobs_in_system == near(2 * 0.4 / 0.6)
    assert theory.exact(system, "rank(1, 1)").jobs_in_system == near(2 * 0.4 / 0.6)


def test_read_systems_that_are_refused():
    with pytest.raises(ValueError, match="not stable"):
        theory.exact(read((1.0, 3.0), 2.5, 1.0), "rank(0.5, 0.5)")
    with pytest.raises(ValueError, match="not stable"):
        theory.exact(read((1.0, 1.0), 2.0, 1.0), "jsq")
    with pytest.raises(ValueError, match=r"only two servers.*simulate"):
        theory.exact("stale-20", "jsq")
    with pytest.raises(ValueError, match=r"1,002,001 states"):
        theory.exact(read((1.0, 1.0), 1.0, 1.0, limit=1000), "jsq")
    with pytest.raises(ValueError, match=re.escape("sed(own-sends=1)")):
        theory.exact(read((1.0, 1.0), 1.0, 1.0), "sed(own-sends=1)")
    ring = System(Pool(4), load=0.5, graph="ring", read_interval=1.0)
    for solve in (theory.exact, theory.mean_field):
        with pytest.raises(ValueError, match="read_interval"):
            solve(ring, "local-choice")


# --- units in use ---------------------------------------------------------------------------------
def kaufman_roberts(units, offered):
    """Mean units in use of one server; offered: (jobs offered, units each) by class.

    j P(j) = sum_k a_k A_k P(j - A_k) (Kaufman 1981, Roberts 1981).
    """
    p = [1.0]
    for j in range(1, units + 1):
        p.append(sum(a * need * p[j - need] for a, need in offered if need <= j) / j)
    return sum(j * x for j, x in enumerate(p)) / sum(p)


def test_utilization_with_units_is_the_share_in_use():
    kinds = [JobClass(share=3, units=1), JobClass(share=1, units=4, mean_size=2.0)]
    system = System([Pool(1, units=6), Pool(2, units=9)], arrival_rate=9.0, classes=kinds)
    offered = [(9.0 * 0.75 / 3, 1), (9.0 * 0.25 * 2.0 / 3, 4)]
    known = [kaufman_roberts(6, offered) / 6, kaufman_roberts(9, offered) / 9]
    whole = (6 * known[0] + 18 * known[1]) / 24
    exact = theory.exact(system, "random")
    run = simulate(system, "random", jobs=1_000_000, seed=5)
    assert exact.utilization_per_pool == near(tuple(known))
    assert exact.utilization == near(whole)
    assert run.utilization_per_pool == pytest.approx(known, rel=0.005)
    assert run.utilization == pytest.approx(whole, rel=0.005)
    assert run.utilization < run.queue_tail["all"][1] - 0.2  # not the share of busy servers
