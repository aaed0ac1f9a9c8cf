"""Sizes and arrivals of any law: against closed forms, a plain recursion and themselves."""

import gzip
import math

import numpy as np
import pytest
from numba import njit, types

from lbgym import JobClass, Pool, System, simulate
from lbgym.engine import layout
from lbgym.engine.access import COMPILED, finish, job, work_of, world
from lbgym.engine.draws import draw
from lbgym.engine.events import arrive, complete, place
from lbgym.engine.queues import has_room
from lbgym.engine.run import ask, carry_out, next_decision
from lbgym.engine.service import job_in
from lbgym.laws import as_law, as_process
from lbgym.policies import make
from tests import digests

LARGEST_Z = 4.5
T_QUANTILE = 2.04  # of half-widths, 32 batches

# The five laws of M/G/1 and their second moments.
FIVE = {
    "exponential": ({"law": "erlang", "k": 1}, 2.0),
    "deterministic": ("deterministic", 1.0),
    "erlang": ({"law": "erlang", "k": 2}, 1.5),
    "hyperexponential": ({"law": "hyperexponential", "scv": 4.0}, 5.0),
    "uniform": ("uniform", 4.0 / 3.0),
}
LAWS = {
    **{name: size for name, (size, _) in FIVE.items()},
    "memoryless": "exponential",
    "erlang of 7": {"law": "erlang", "k": 7},
    "three phases": {
        "law": "hyperexponential",
        "probabilities": [1, 2, 1],
        "means": [5, 1, 0.1],
    },
    "lognormal": {"law": "lognormal", "scv": 1.5},
    "narrow": {"law": "uniform", "low": 2, "high": 3},
    "pareto": {"law": "bounded-pareto", "alpha": 3.5},
    "bounded pareto": {"law": "bounded-pareto", "alpha": 1.2, "low": 2, "high": 50},
    "empirical": {"law": "empirical", "values": [3, 1, 1, 7, 0.5]},
}


def z_score(estimate, exact):
    return (estimate.mean - exact) / (estimate.half_width / T_QUANTILE)


# --- laws -----------------------------------------------------------------------------------------
@njit(types.void(types.int64, types.float64[::1]))
def draw_many(address, found):
    w = world(address)
    for k in range(len(found)):
        found[k] = draw(w, layout.SIZES, layout.SERVICE)


@pytest.mark.skipif(not COMPILED, reason="many draws need compiled code")
@pytest.mark.parametrize("name", LAWS)
def test_samples_follow_the_law(name):
    law = as_law(LAWS[name])
    state = make("random", System(Pool(1), load=0.5, size=law)).state()
    state.seed(np.random.default_rng(list(LAWS).index(name)))
    x = np.empty(400_000)
    draw_many(state.address, x)
    n = len(x)
    if law.atoms is None:
        counts = np.histogram(law.cdf(x), 200, (0, 1))[0]
        expected = np.full(200, n / 200)
    else:
        assert set(x) <= set(law.atoms)
        counts = np.array([(x == atom).sum() for atom in law.atoms])
        expected = n * np.diff(law.cdf(law.atoms), prepend=0.0)
    chi2, freedom = ((counts - expected) ** 2 / expected).sum(), len(counts) - 1
    assert chi2 <= freedom + LARGEST_Z * math.sqrt(2 * freedom)
    moments = {1.0: lambda y: y, law.inverse_mean: lambda y: 1 / y, law.second_moment: np.square}
    moments[float(law.work_below(0.8))] = lambda y: np.where(y <= 0.8, y, 0.0)
    for value, function in moments.items():
        if math.isfinite(value):
            each = function(x)
            assert abs(each.mean() - value) <= LARGEST_Z * each.std() / math.sqrt(n) + 1e-9


@pytest.mark.parametrize("name", LAWS)
def test_a_law_is_what_its_distribution_says(name):
    """Mean 1, the second moment and the work below x, by summing the distribution."""
    law = as_law(LAWS[name])
    x = np.concatenate([[0.0], np.geomspace(1e-6, 1e4, 400_001)])
    beyond = 1.0 - law.cdf(x)
    if law.atoms is not None:
        p = np.diff(law.cdf(law.atoms), prepend=0.0)
        assert p @ law.atoms == pytest.approx(1.0)
        assert p @ law.atoms**2 == pytest.approx(law.second_moment)
        assert np.cumsum(p * law.atoms) == pytest.approx(law.work_below(law.atoms))
        return
    assert np.trapezoid(beyond, x) == pytest.approx(1.0, rel=1e-4)
    assert np.trapezoid(2 * x * beyond, x) == pytest.approx(law.second_moment, rel=2e-3)
    steps = np.diff(law.cdf(x)) * (x[1:] + x[:-1]) / 2
    assert np.cumsum(steps)[::1000] == pytest.approx(law.work_below(x[1:])[::1000], abs=1e-4)


@pytest.mark.parametrize(
    ("alpha", "low", "high", "second", "below"),
    [
        # E[X^n] = a low^n (1 - h^(n-a)) / ((a-n) (1 - h^-a)), h = high / low
        (500, 5, 10, (500 / 498) / (500 / 499) ** 2, 0.0),
        (200, 1e-3, 10, (200 / 198) / (200 / 199) ** 2, 0.0),
        (3.5, 1e-100, 1e-50, (3.5 / 1.5) / (3.5 / 2.5) ** 2, 1 - (0.8 * 1.4) ** -2.5),
        (1.5, 1, 1 + 1e-15, 1.0, 0.0),
        (1 + 1e-12, 1, 10, 9 * 0.9 / math.log(10) ** 2, math.log(8 * math.log(10) / 9, 10)),
    ],
)
def test_bounded_pareto_in_any_unit(alpha, low, high, second, below):
    law = as_law({"law": "bounded-pareto", "alpha": alpha, "low": low, "high": high})
    assert law.second_moment == pytest.approx(second, rel=1e-6)
    assert law.work_below(math.inf) == pytest.approx(1.0)
    assert law.work_below(0.8) == pytest.approx(below, abs=1e-6)


# --- M/G/1 ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("load", [0.7, 0.9])
@pytest.mark.parametrize("name", FIVE)
def test_pollaczek_and_khinchine(name, load):
    size, second = FIVE[name]
    result = simulate(System(Pool(1), load=load, size=size), "random", jobs=500_000, seed=1)
    response = 1.0 + load * second / (2 * (1 - load))
    assert abs(z_score(result.response_time, response)) < LARGEST_Z
    assert abs(z_score(result.waiting_probability, load)) < LARGEST_Z


def test_pollaczek_and_khinchine_at_another_speed_and_mean_size():
    """Speed 2, two classes of mean sizes 1 and 3, uniform: service takes 1 on average."""
    system = System(
        Pool(1, speed=2.0), load=0.8, size="uniform", classes=[JobClass(1, 1.0), JobClass(1, 3.0)]
    )
    second = (4 / 3) * (1 + 9) / 2 / 4  # of the service time
    result = simulate(system, "random", jobs=500_000, seed=2)
    assert abs(z_score(result.response_time, 1 + 0.8 * second / (2 * 0.2))) < LARGEST_Z


@njit(types.int64(types.int64, types.int64, types.float64[::1], types.float64[:, ::1]))
def watch(address, jobs, edges, found):
    """A single server: per bin of size the number of departures, their response and its square."""
    w = world(address)
    while w.arrivals < jobs:
        if w.next_tick < w.next_arrival:
            w.clock = w.next_tick
            j = job_in(finish(w, 1).who)
            size, response = work_of(w, j).brought, w.clock - job(w, j).arrived
            k = 0
            while size > edges[k]:
                k += 1
            found[k, 0] += 1.0
            found[k, 1] += response / size
            complete(w)
        else:
            if not has_room(w, 0):
                return 0
            w.clock = w.next_arrival
            arrive(w)
            place(w, 0)
    return 1


@pytest.mark.skipif(not COMPILED, reason="many jobs need compiled code")
@pytest.mark.parametrize("name", FIVE)
def test_sharing_is_insensitive_and_fair(name):
    """M/G/1-PS: E[R] = 1 / (1 - rho) whatever the law, and E[R | size x] = x / (1 - rho)."""
    size, _ = FIVE[name]
    system = System(Pool(1, discipline="ps"), load=0.7, size=size)
    result = simulate(system, "random", jobs=500_000, seed=3)
    assert abs(z_score(result.response_time, 1 / 0.3)) < LARGEST_Z
    edges = np.array([0.3, 0.9, 1.5, math.inf])
    runs = []
    for seed in range(12):
        state = make("random", system).state()
        state.seed(np.random.default_rng(seed))
        state.begin()
        found = np.zeros((4, 2))
        while not watch(state.address, 100_000, edges, found):
            state.grow()
        runs.append(found)
    for k in range(4):
        if sum(run[k, 0] for run in runs) == 0:
            continue
        ratios = np.array([run[k, 1] / run[k, 0] for run in runs])
        error = ratios.std(ddof=1) / math.sqrt(len(runs))
        assert abs(ratios.mean() - 1 / 0.3) < 6 * error, f"sizes up to {edges[k]}"


def test_slowdown_has_a_mean_where_short_jobs_are_rare():
    """FCFS: E[R / S] = 1 + E[W] E[1 / S]; Erlang of 3: E[1 / S] = 3 / 2, E[W] = .7 (4/3) / .6."""
    system = System(Pool(1), load=0.7, size={"law": "erlang", "k": 3})
    result = simulate(system, "random", jobs=500_000, seed=4)
    exact = 1 + 1.5 * 0.7 * (4 / 3) / 0.6
    assert abs(z_score(result.slowdown, exact)) < LARGEST_Z
    for size in ("exponential", "uniform", {"law": "erlang", "k": 1}):
        assert simulate(System(Pool(1), load=0.5, size=size), "random", jobs=1000).slowdown is None


@pytest.mark.parametrize("size", ["deterministic", {"law": "hyperexponential", "scv": 4.0}])
def test_loss_is_insensitive(size):
    """Erlang B, 5 circuits and 4 erlang: .199067, whatever the law; and with units, also beside a
    server that is too small for any job."""
    blocking = (4**5 / 120) / sum(4**k / math.factorial(k) for k in range(6))
    slots = System(Pool(1, slots=5, limit=5), arrival_rate=4.0, size=size)
    units = System(Pool(1, units=5), arrival_rate=4.0, size=size, classes=[JobClass()])
    too_small = System(
        [Pool(1, units=1), Pool(1, units=10)],
        arrival_rate=4.0,
        size=size,
        classes=[JobClass(units=2)],
    )
    for system in (slots, units, too_small):
        result = simulate(
            system, "max-vacancy" if system is too_small else "random", jobs=300_000, seed=5
        )
        assert abs(z_score(result.blocking_probability, blocking)) < LARGEST_Z


# --- arrivals -------------------------------------------------------------------------------------
def renewal_root(transform):
    """sigma = A*(1 - sigma), the chance that an arrival at G/M/1 (mu = 1) finds the server busy."""
    sigma = 0.5
    for _ in range(10_000):
        sigma = transform(1 - sigma)
    return sigma


@pytest.mark.parametrize(
    ("law", "transform"),
    [
        ("deterministic", lambda s: math.exp(-s / 0.8)),
        ({"law": "erlang", "k": 2}, lambda s: (1 + s / 1.6) ** -2),
        ({"law": "hyperexponential", "probabilities": [1, 1], "means": [1, 3]},
         lambda s: 0.5 / (1 + s / 1.6) + 0.5 / (1 + 3 * s / 1.6)),
    ],
)  # fmt: skip
def test_renewal_arrivals_at_one_exponential_server(law, transform):
    system = System(Pool(1), load=0.8, arrivals={"process": "renewal", "law": law})
    result = simulate(system, "random", jobs=500_000, seed=6)
    sigma = renewal_root(transform)
    assert abs(z_score(result.response_time, 1 / (1 - sigma))) < LARGEST_Z
    assert abs(z_score(result.waiting_probability, sigma)) < LARGEST_Z


def mmpp_jobs(rates, generator, service):
    """E[N] of MMPP/M/1 by the matrix-geometric method (Neuts 1981): R = -A0 (A1 + R A2)^-1."""
    up, q, down = np.diag(rates), np.array(generator), service * np.eye(len(rates))
    same = q - up - down
    r = np.zeros_like(up)
    for _ in range(100_000):
        new = -up @ np.linalg.inv(same + r @ down)
        if np.abs(new - r).max() < 1e-14:
            break
        r = new
    size = len(rates)
    # Level 0 moves without service; x_0 (q - up + R down) = 0, x_0 (1 - R)^-1 1 = 1.
    rest = np.linalg.inv(np.eye(size) - r)
    equations = np.vstack([(q - up + r @ down).T, rest.sum(axis=1)])
    first = np.linalg.lstsq(equations, np.array([0.0] * size + [1.0]), rcond=None)[0]
    return float(first @ r @ rest @ rest @ np.ones(size))


def test_phases_of_very_unequal_lengths_have_their_law():
    """A cycle of three phases that last 1e9, 1e-9 and 1e9: p is proportional to the lengths."""
    generator = [[-1e-9, 1e-9, 0.0], [0.0, -1e9, 1e9], [1e-9, 0.0, -1e-9]]
    process = as_process({"process": "mmpp", "rates": [1, 4e18, 3], "generator": generator})
    assert process.stationary == pytest.approx([0.5, 0.5e-18, 0.5], rel=1e-9)
    assert process.mean_rate == pytest.approx(4.0)
    assert process.changes == pytest.approx(1.5e-9)


def test_modulated_arrivals_at_one_exponential_server():
    generator = [[-0.1, 0.1, 0.0], [0.1, -0.3, 0.2], [0.1, 0.1, -0.2]]
    process = {"process": "mmpp", "rates": [0, 1, 3], "generator": generator}
    system = System(Pool(1), load=0.7, arrivals=process)
    scale = 0.7 / as_process(process).mean_rate
    exact = mmpp_jobs([0.0, scale, 3 * scale], generator, 1.0)
    assert exact > 4  # far from M/M/1's 2.33
    result = simulate(system, "random", jobs=2_000_000, seed=7)
    assert abs(z_score(result.jobs_in_system, exact)) < LARGEST_Z


@pytest.mark.parametrize(
    ("batch", "first", "second"),
    [(3, 3, 9), ([1, 1, 2], 9 / 4, (1 + 4 + 18) / 4), ({"geometric": 2.5}, 2.5, 2.5 * 4)],
)
def test_batches_at_one_exponential_server(batch, first, second):
    """M^X/M/1: E[N] = rho / (1 - rho) x (E[X^2] + E[X]) / (2 E[X])."""
    system = System(Pool(1), load=0.7, arrivals={"process": "poisson", "batch": batch})
    result = simulate(system, "random", jobs=1_000_000, seed=8)
    exact = 0.7 / 0.3 * (second + first) / (2 * first)
    assert abs(z_score(result.jobs_in_system, exact)) < LARGEST_Z


@njit(types.int64(types.int64, types.float64[::1], types.int64))
def note_arrivals(address, times, k):
    w = world(address)
    while k < len(times):
        if w.next_tick < w.next_arrival:
            w.clock = w.next_tick
            complete(w)
        else:
            if not has_room(w, 0):
                return k
            w.clock = w.next_arrival
            times[k] = w.clock
            k += 1
            arrive(w)
            place(w, 0)
    return k


def arrival_times(process, jobs, rate=2.0):
    system = System(Pool(1, speed=4.0), arrival_rate=rate, arrivals=process, size="deterministic")
    state = make("random", system).state()
    state.seed(np.random.default_rng(9))
    state.begin()
    times, k = np.empty(jobs), 0
    while k < jobs:
        k = note_arrivals(state.address, times, k)
        state.grow()
    return times


def test_rates_that_change_at_given_times():
    process = {"process": "piecewise", "breakpoints": [0, 3, 4], "rates": [1, 0, 4], "period": 6}
    times = arrival_times(process, 100_000 if COMPILED else 300)
    place_in_period = times % 6
    counts = np.histogram(place_in_period, [0, 1, 2, 3, 4, 5, 6])[0]
    expected = 2.0 * 6 / 11 * np.array([1, 1, 1, 0, 4, 4]) * times[-1] / 6
    assert counts[3] == 0
    busy = expected > 0
    z = (counts[busy] - expected[busy]) / np.sqrt(expected[busy])
    assert np.abs(z).max() < LARGEST_Z
    assert abs(len(times) - 2.0 * times[-1]) < LARGEST_Z * math.sqrt(len(times))


def test_a_rate_that_swings():
    """E[sin] over the arrivals is half the amplitude, E[cos] 0; the phase shifts both."""
    process = {"process": "sinusoidal", "amplitude": 0.6, "period": 10, "phase": 0.5}
    times = arrival_times(process, 100_000 if COMPILED else 300)
    angles = 2 * math.pi * times / 10 + 0.5
    error = math.sqrt(0.5 / len(times))
    assert abs(np.sin(angles).mean() - 0.3) < LARGEST_Z * error
    assert abs(np.cos(angles).mean()) < LARGEST_Z * error


@pytest.mark.parametrize("turns", [-3, 1e6])
def test_whole_turns_of_the_phase_change_nothing(turns):
    process = {"process": "sinusoidal", "amplitude": 0.6, "period": 10, "phase": 0.5}
    turned = process | {"phase": 0.5 + turns * 2 * math.pi}
    assert arrival_times(turned, 200) == pytest.approx(arrival_times(process, 200))


def test_policies_of_one_seed_see_the_same_jobs():
    system = System(
        [Pool(2), Pool(2, speed=2.0)],
        load=0.8,
        size={"law": "lognormal", "scv": 2.0},
        arrivals={"process": "mmpp", "rates": [1, 3], "generator": [[-1, 1], [1, -1]]},
        classes=[JobClass(1, 1.0), JobClass(2, 3.0)],
        routers=[3, 1],
    )
    runs = [simulate(system, policy, jobs=20_000, seed=1) for policy in ("random", "jsq")]
    one, other = (run.batches["clock"] for run in runs)
    assert np.array_equal(one, other)
    states = []
    for policy in ("random", "sed(2)"):
        bound = make(policy, system)
        state = bound.state()
        state.seed(np.random.default_rng(3))
        state.begin()
        states.append((state, bound.rules()))
    for _ in range(50):
        seen = []
        for state, (rule, _) in states:
            while next_decision(state.address) != layout.DECIDE:
                state.grow()
            w = state.world[0]
            seen.append((w["clock"], w["router"], w["klass"], w["job_size"]))
            while carry_out(state.address, ask(state.address, rule)) != layout.DECIDE:
                state.grow()
        assert seen[0] == seen[1]


# --- traces ---------------------------------------------------------------------------------------
CSV = "time,size\n10,2\n11,3\n11,0\n12.5,1\n13,4\n20,1\n20.5,2\n"


def lindley(times, sizes):
    """Sum of the response times at a single server, job by job: W' = max(W + S - A, 0)."""
    wait, total = 0.0, 0.0
    for k, size in enumerate(sizes):
        if k:
            wait = max(wait + sizes[k - 1] - (times[k] - times[k - 1]), 0.0)
        total += wait + size
    return total


def test_a_trace_is_what_a_plain_recursion_says(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(CSV)
    rows = np.array([[float(x) for x in line.split(",")] for line in CSV.split()[1:]])
    times, sizes = rows.T
    rounds, load = 40, 0.8
    jobs = {"process": "trace", "file": str(path)}
    state = digests.run(System(Pool(1), load=load, arrivals=jobs), "random", 7 * rounds, seed=1)
    w = state.world[0]
    period = (times[-1] - times[0]) * 7 / 6
    long = np.concatenate([times + k * period for k in range(rounds)]) * (7 / load / period)
    work = np.tile(sizes / sizes.mean(), rounds)
    departed = int(w["departed"])
    assert 7 * rounds - departed < 10
    assert w["arrivals"] == 7 * rounds
    expected = lindley(long[:departed], work[:departed])
    assert w["response_sum"] == pytest.approx(expected, rel=1e-12)
    assert expected > 1.3 * work.sum()  # jobs did wait


def test_a_trace_scales_to_the_load_and_names_routers_and_classes():
    process = {
        "process": "trace",
        "times": [0, 1, 4],
        "sizes": [1, 2, 3],
        "classes": [0, 1, 1],
        "routers": [1, 0, 1],
    }
    system = System(Pool(1), load=0.5, routers=2, classes=[{}, {}], arrivals=process)
    state = make("random", system).state()
    rows = state.arrays["trace"]
    assert rows["work"].tolist() == [0.5, 1.0, 1.5]
    assert state.world[0]["period"] == pytest.approx(6.0)
    assert rows["time"] == pytest.approx([0.0, 1.0, 4.0])
    result = simulate(system, "random", jobs=300, warmup=0)
    assert result.system.arrival_rate == 0.5
    assert state.arrays["trace"]["klass"].tolist() == [0, 1, 1]


SWF = """; Version: 2.2
; Computer: a caf\xe9's
; MaxJobs: 6
; MaxRecords: 6
; MaxProcs: 8
; Note: submit times are start times
1   0 -1   60  4 -1 -1  4 -1 -1 1 1 1 1 1 -1 -1 -1
2  30 -1   -1  4 -1 -1  4 -1 -1 1 1 1 1 1 -1 -1 -1
3  90 -1    0 -1 -1 -1 -1 -1 -1 1 1 1 1 1 -1 -1 -1
4  50 -1   20 -1 -1 -1  2 -1 -1 1 1 1 1 1 -1 -1 -1
5 100 -1 40.5  8 -1 -1 -1 -1 -1 1 1 1 1 1 -1 -1 -1
6 120 -1  -30  1 -1 -1  1 -1 -1 1 1 1 1 1 -1 -1 -1
"""


@pytest.mark.parametrize("packed", [False, True])
def test_standard_workload_format(tmp_path, packed):
    """Latin-1, unknown and negative run times, jobs out of order, a header."""
    raw = SWF.encode("latin-1")
    path = tmp_path / ("jobs.swf.gz" if packed else "jobs.swf")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    data = as_process({"process": "trace", "file": str(path)}).data
    assert data.times.tolist() == [0, 50, 90, 100]
    assert data.sizes.tolist() == [60, 20, 0, 40.5]
    assert data.skipped == 2
    assert data.header["MaxProcs"] == "8"
    area = as_process({"process": "trace", "file": str(path), "work": "area"}).data
    assert area.sizes.tolist() == [240, 40, 324]
    system = System(Pool(2), load=0.5, arrivals={"process": "trace", "file": str(path)})
    assert simulate(system, "jsq", jobs=1000).jobs_in_system > 0


# --- bad input ------------------------------------------------------------------------------------
FILES = {
    "down.csv": "time,size\n0,1\n2,1\n\n1,1\n",
    "minus.csv": "time,size\n0,1\n2,-3\n",
    "word.csv": "time\n0\nsoon\n",
    "short.csv": "time,size\n0\n",
    "head.csv": "when,size\n0,1\n",
    "none.csv": "time,size\n",
    "empty.csv": "",
    "one.csv": "time\n3\n",
    "part.csv": "time,class\n0,0.5\n1,0\n",
    "class.csv": "time,class\n0,1e30\n1,0\n",
    "late.csv": "time\n0\n1e308\n",
    "cut.swf": "; MaxRecords: 3\n1 0 -1 5 1\n2 1 -1 5 1\n",
    "large.swf": "; MaxProcs: 4\n1 0 -1 5 8\n2 1 -1 5 1\n",
    "few.swf": "1 0\n",
    "unknown.swf": "1 0 -1 -1 1\n",
    "sizes.txt": "1\n-2\n",
    "zeros.txt": "0\n0\n",
    "large.txt": "1e308\n1e308\n",
    "bad.csv.gz": "no gzip",
}
BAD = [
    ({"size": "gamma"}, "size: unknown law 'gamma'"),
    ({"size": {"law": "erlang"}}, "size.k: required for erlang"),
    ({"size": {"law": "erlang", "k": 0}}, "size.k: must be an integer from 1 to 1,000,000, got 0"),
    ({"size": {"law": "erlang", "n": 2}}, "size: unknown argument 'n'"),
    ({"size": {"law": "hyperexponential", "scv": 1}}, "size.scv: must be above 1"),
    ({"size": {"law": "hyperexponential", "scv": 1e16}},
     "size.scv: must be above 1 for hyperexponential and at most 1e+09, got 1e+16"),
    ({"size": {"law": "lognormal", "scv": 1e100}}, "size.scv: must be at most 1e+09, got 1e+100"),
    ({"size": {"law": "bounded-pareto", "alpha": 1e-100, "high": 10}},
     "size.alpha: must be between 0.001 and 1000, got 1e-100"),
    ({"size": {"law": "bounded-pareto", "alpha": 0.1, "low": 1e-90, "high": 1e90}},
     "size.high: must be at most 1e+100 times low (1e-90), got 1e+90"),
    ({"size": {"law": "empirical", "values": [1e100, 1e-100]}},
     "size.values: must be 0 or at least 1e-100 times the mean"),
    ({"size": {"law": "empirical", "values": np.ones((3, 1))}},
     "size.values[0]: must be a finite number >= 0, got array([1.])"),
    ({"size": {"law": "empirical", "file": "zeros.txt"}},
     "size.file: zeros.txt: must have a mean above 0"),
    ({"size": {"law": "empirical", "file": "large.txt"}},
     "size.file: large.txt, line 1: size must be between 1e-100 and 1e+100, got 1e308"),
    ({"size": {"law": "empirical", "file": "a\0b"}}, "size.file: must be a path, got 'a\\x00b'"),
    ({"size": {"law": "bounded-pareto", "alpha": 0.9}},
     "size.alpha: must be above 1 without a high, else the mean size is infinite, got 0.9"),
    ({"size": {"law": "uniform", "low": 2, "high": 1}}, "size.high: must be above low (2), got 1"),
    ({"size": {"law": "empirical", "values": [1, -1]}}, "size.values[1]: must be a finite number"),
    ({"size": {"law": "empirical", "values": []}}, "size.values: must be a list of numbers"),
    ({"size": {"law": "empirical", "file": "sizes.txt"}}, "size.file: sizes.txt, line 2: size "),
    ({"arrivals": {"process": "mmpp", "rates": [1, 2], "generator": [[-1, 1], [1, 1]]}},
     "arrivals.generator[1]: is no row of a generator, it must sum to 0, sums to 2"),
    ({"arrivals": {"process": "mmpp", "rates": [1, 2], "generator": [[1, -1], [1, -1]]}},
     "arrivals.generator[0][1]: must be a rate >= 0, got -1"),
    ({"arrivals": {"process": "mmpp", "rates": [1, 2], "generator": [[0, 0], [0, 0]]}},
     "arrivals.generator: phases must reach each other"),
    ({"arrivals": {"process": "mmpp", "rates": [1, -2], "generator": [[-1, 1], [1, -1]]}},
     "arrivals.rates[1]: must be a finite number >= 0, got -2"),
    ({"arrivals": {"process": "mmpp", "rates": [1, 2], "generator": [[-1, 1], [1, math.nan]]}},
     "arrivals.generator[1][1]: must be a finite number, got nan"),
    ({"arrivals": {"process": "mmpp", "rates": [1, 2], "generator": np.ones((3, 1))}},
     "arrivals.generator: must be a 2 x 2 matrix, got array([[1.], "),
    ({"arrivals": {"process": "mmpp", "rates": [1, 2], "generator": [[-1e9, 1e9], [1e9, -1e9]]}},
     "arrivals: the rate changes 2e+09 times for each job, must be at most 10,000"),
    ({"arrivals": {"process": "piecewise", "breakpoints": [0], "rates": [1], "period": 1e-9}},
     "arrivals: the rate changes 2e+09 times for each job, must be at most 10,000"),
    ({"arrivals": {"process": "poisson", "batch": {"geometric": 1e7}}},
     "arrivals.batch.geometric: must be a mean from 1 to 1,000,000, got 1e+07"),
    ({"arrivals": {"process": "trace", "times": [0, math.nan]}},
     "arrivals.times[1]: must be a finite number, got nan"),
    ({"arrivals": {"process": "trace", "times": [0, 1], "sizes": [0, 0]}},
     "arrivals.sizes: every size is 0"),
    ({"arrivals": {"process": "trace", "times": [0, 1], "sizes": [1]}},
     "arrivals.sizes: must be one for each of the 2 jobs, got 1"),
    ({"arrivals": {"process": "trace", "times": [0, 1], "classes": [0, -1]}},
     "arrivals.classes[1]: must be a whole number from 0 to 2,147,483,647, got -1"),
    ({"arrivals": {"process": "trace", "times": [0, 1], "routers": [0, True]}},
     "arrivals.routers[1]: must be a whole number from 0 to 2,147,483,647, got True"),
    ({"arrivals": {"process": "trace", "times": [0, 1], "classes": "ab"}},
     "arrivals.classes: must be a list of whole numbers, got 'ab'"),
    ({"arrivals": {"process": "trace", "times": [0, 1], "work": "area"}},
     "arrivals.work: is for a file of SWF; leave it out, got 'area'"),
    ({"arrivals": {"process": "trace", "file": "class.csv"}},
     "arrivals.file: class.csv, line 2: class must be at most 2,147,483,647, got 1e30"),
    ({"arrivals": {"process": "trace", "file": "late.csv"}},
     "arrivals.file: late.csv, line 3: time must be between 1e-100 and 1e+100, got 1e308"),
    ({"arrivals": {"process": "piecewise", "breakpoints": [0, 9], "rates": [1, 2], "period": 5}},
     "arrivals.breakpoints: must begin with 0, rise, and stay below the period (5)"),
    ({"arrivals": {"process": "sinusoidal", "amplitude": 2, "period": 5}},
     "arrivals.amplitude: must be at most 1, else rates are negative, got 2"),
    ({"arrivals": {"process": "poisson", "batch": 0}}, "arrivals.batch: must be an integer from 1"),
    ({"arrivals": {"process": "trace", "times": [0, 2, 1]}},
     "arrivals.times[2]: must not decrease, 1 after 2"),
    ({"arrivals": {"process": "trace", "times": [0, 1], "sizes": [1, -1]}},
     "arrivals.sizes[1]: must be a finite number >= 0, got -1"),
    ({"arrivals": {"process": "trace", "times": [0, 1], "routers": [0, 1]}},
     "arrivals: the trace has router 1, must be 0..0"),
    ({"arrivals": {"process": "trace", "file": "no.csv"}}, "arrivals.file: no.csv: no such file"),
    ({"arrivals": {"process": "trace", "file": "down.csv"}},
     "arrivals.file: down.csv, line 5: time must not decrease, 1 after 2"),
    ({"arrivals": {"process": "trace", "file": "minus.csv"}},
     "arrivals.file: minus.csv, line 3: size must be at least 0, got -3"),
    ({"arrivals": {"process": "trace", "file": "word.csv"}},
     "arrivals.file: word.csv, line 3: time must be a number, got soon"),
    ({"arrivals": {"process": "trace", "file": "short.csv"}},
     "arrivals.file: short.csv, line 2: must have 2 values, got 1"),
    ({"arrivals": {"process": "trace", "file": "head.csv"}}, "arrivals.file: head.csv, line 1: "),
    ({"arrivals": {"process": "trace", "file": "none.csv"}}, "arrivals.file: none.csv: has no"),
    ({"arrivals": {"process": "trace", "file": "empty.csv"}}, "arrivals.file: empty.csv: has "),
    ({"arrivals": {"process": "trace", "file": "one.csv"}}, "arrivals.file: one.csv: must "),
    ({"arrivals": {"process": "trace", "file": "part.csv"}},
     "arrivals.file: part.csv, line 2: class must be a whole number, got 0.5"),
    ({"arrivals": {"process": "trace", "file": "cut.swf"}},
     "arrivals.file: cut.swf: is cut off, its header promises 3 jobs, it has 2"),
    ({"arrivals": {"process": "trace", "file": "large.swf"}},
     "arrivals.file: large.swf, line 2: 8 processors are more than the header's MaxProcs (4)"),
    ({"arrivals": {"process": "trace", "file": "few.swf"}}, "arrivals.file: few.swf, line 1: "),
    ({"arrivals": {"process": "trace", "file": "unknown.swf"}},
     "arrivals.file: unknown.swf: has no jobs"),
    ({"arrivals": {"process": "trace", "file": "bad.csv.gz"}},
     "arrivals.file: bad.csv.gz: is not a whole gzip file"),
    ({"arrivals": {"process": "trace", "file": "sizes.txt"}}, "arrivals.file: must end in .csv"),
    ({"slotted": True, "size": "uniform"}, "slotted: service is geometric; leave size out"),
    ({"slotted": True, "pools": Pool(1, speed=2.0)}, "slotted: pools[0].speed over mean size"),
    ({"slotted": True, "read_interval": 1.5}, "read_interval: must be a whole number of slots"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "start"), BAD)
def test_wrong_laws_are_refused_in_one_sentence(fields, start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=r"^\w") as refused:
        System.from_dict({"pools": Pool(1), "load": 0.5} | fields)
    assert str(refused.value).startswith(start)
    assert "\n" not in str(refused.value)
