"""The slow, plain witness: heterogeneous servers, several routers, pull-messages, migrations.

One event-driven simulator in pure Python, written from the specification alone. It imports
nothing of ``lbgym`` and shares no idea with its engine: every job carries its own remaining
work, every server its next completion and every job its migration clock, all of them in one
heap. Memorylessness is used nowhere, so ``size`` may be any function of a ``random.Random``.

    system = {
        "pools": [{"servers": 5, "speed": 1.0, "limit": 10, "slots": 1, "discipline": "fcfs"}],
        "arrival_rate": 4.5,            # total, Poisson
        "routers": [0.8, 0.2],          # weights, or the number of equal routers (default 1)
        "message_fate": "withdraw",     # or keep, resend
        "messages": True,               # default: only if the rule is pull, jiq or jiq-sq
        "migration": {"rate": 1.0, "rule": "strict"},      # or weak, oblivious; default none
        "replace": False,               # whether sampled servers may repeat
        "size": None,                   # function of random.Random, mean 1; default exponential
    }
    policy = {"rule": "pull", "fallback": {"rule": "wrr"}, "choice": "fastest"}
    result = simulate(system, policy, jobs=100_000, seed=1)

Rules (keys in brackets): random, weighted-random, static [weights], round-robin, wrr,
pull / jiq [fallback, choice = uniform | fastest], jiq-sq [d, fallback, choice], threshold [k]
and, each with an optional sample size [d] and [ties = random | fastest | lowest]: jsq, sed,
jsed, index [a], fpi. A rule without keys may be given by its name alone.
"""

import heapq
import itertools
import math
import random

BATCHES = 40
TIE = 1e-12  # scores closer than this, relatively, are equal: 3 * 0.1 against 0.3


class Job:
    """A job, its remaining work and the server where it is (None once it has left)."""

    def __init__(self, arrival, work):
        self.arrival = arrival
        self.work = work
        self.server = None


class Server:
    """A queue, in order of arrival: the first ``slots`` jobs are served, under PS all share."""

    def __init__(self, index, pool):
        self.index = index
        self.speed = pool.get("speed", 1.0)
        self.limit = math.inf if pool.get("limit") is None else pool["limit"]
        self.slots = pool.get("slots", 1)
        self.sharing = pool.get("discipline", "fcfs") == "ps"
        self.jobs = []
        self.clock = 0.0  # the work is accounted for up to here
        self.version = 0  # a completion scheduled under an older version is void
        self.area = 0.0  # integral of the queue length
        self.idle_time = 0.0

    def __len__(self):
        return len(self.jobs)

    @property
    def full(self):
        return len(self.jobs) >= self.limit

    def served(self):
        return self.jobs if self.sharing else self.jobs[: self.slots]

    def rate_per_job(self):
        return self.speed / len(self.jobs) if self.sharing else self.speed

    def advance(self, now):
        """Do the work of the time since the last event here."""
        elapsed = now - self.clock
        self.clock = now
        if not self.jobs:
            self.idle_time += elapsed
            return
        self.area += elapsed * len(self.jobs)
        done = elapsed * self.rate_per_job()
        for job in self.served():
            job.work -= done

    def next_completion(self):
        return self.clock + max(0.0, min(job.work for job in self.served())) / self.rate_per_job()

    def would_wait(self):
        return bool(self.jobs) if self.sharing else len(self.jobs) >= self.slots


class Router:
    """A router, the servers whose messages it holds and what its own rules remember."""

    def __init__(self, servers):
        self.messages = []
        self.credit = [0.0] * servers  # smooth weighted round robin
        self.turn = 0  # round robin


# --- rules: function of (simulation, router, policy) -> server ---------------------------------


def as_rule(policy):
    return {"rule": policy} if isinstance(policy, str) else policy


def choose(simulation, router, policy):
    return RULES[policy["rule"]](simulation, router, policy)


def send_at_random(simulation, router, policy):
    return simulation.random.choice(simulation.servers)


def send_by_speed(simulation, router, policy):
    weights = [server.speed for server in simulation.servers]
    return simulation.random.choices(simulation.servers, weights)[0]


def send_by_static_weights(simulation, router, policy):
    return simulation.random.choices(simulation.servers, policy["weights"])[0]


def send_round_robin(simulation, router, policy):
    server = simulation.servers[router.turn]
    router.turn = (router.turn + 1) % len(simulation.servers)
    return server


def send_smooth_round_robin(simulation, router, policy):
    """Weighted by speed: all gain their speed, the richest pays the sum and gets the job."""
    for server in simulation.servers:
        router.credit[server.index] += server.speed
    chosen = max(simulation.servers, key=lambda s: (router.credit[s.index], -s.index))
    router.credit[chosen.index] -= sum(server.speed for server in simulation.servers)
    return chosen


def send_by_message(simulation, router, policy):
    """PULL, also known as JIQ: one of the held messages, else the fallback."""
    if not router.messages:
        return choose(simulation, router, as_rule(policy.get("fallback", "random")))
    held = router.messages
    if policy.get("choice", "uniform") == "fastest":
        best = max(server.speed for server in held)
        held = [server for server in held if server.speed == best]
    return simulation.random.choice(held)


def send_by_threshold(simulation, router, policy):
    """Two servers: the slow one only if it is empty and the fast one holds at least k."""
    slow, fast = sorted(simulation.servers, key=lambda server: server.speed)
    simulation.totals["probes"] += 2
    return slow if len(slow) == 0 and len(fast) >= policy["k"] else fast


def send_to_least_score(simulation, router, policy):
    """JSQ, SED, JSED, index(a) and FPI, over all servers or over d sampled ones."""
    candidates = simulation.sample(policy.get("d"))
    simulation.totals["probes"] += len(candidates)
    score = SCORES[policy["rule"]]
    scored = [(score(simulation, server, policy), server) for server in candidates]
    least = min(value for value, _ in scored)
    tied = [server for value, server in scored if math.isclose(value, least, rel_tol=TIE)]
    return simulation.break_tie(tied, policy.get("ties", "random"))


SCORES = {
    "jsq": lambda simulation, server, policy: len(server),
    "sed": lambda simulation, server, policy: (len(server) + 1) / server.speed,
    "jsed": lambda simulation, server, policy: len(server) / server.speed,
    "index": lambda simulation, server, policy: (len(server) + policy["a"]) / server.speed,
    "fpi": lambda simulation, server, policy: (len(server) + 1) / simulation.spare[server.index],
}

RULES = {
    "random": send_at_random,
    "weighted-random": send_by_speed,
    "static": send_by_static_weights,
    "round-robin": send_round_robin,
    "wrr": send_smooth_round_robin,
    "pull": send_by_message,
    "jiq": send_by_message,
    "jiq-sq": send_by_message,
    "threshold": send_by_threshold,
} | dict.fromkeys(SCORES, send_to_least_score)

MESSAGE_RULES = ("pull", "jiq", "jiq-sq")


def spare_speed_of_best_split(speeds, arrival_rate):
    """mu_i - lambda_i of the Bernoulli split of M/M/1 queues with the least mean number.

    The fastest servers are used, and there mu_i - lambda_i is proportional to sqrt(mu_i).
    """
    used = sorted(speeds, reverse=True)
    while True:
        factor = (sum(used) - arrival_rate) / sum(math.sqrt(speed) for speed in used)
        if math.sqrt(used[-1]) > factor:
            return [min(speed, math.sqrt(speed) * factor) for speed in speeds]
        used.pop()


# --- the simulation ----------------------------------------------------------------------------


class Simulation:
    def __init__(self, system, policy, seed):
        self.random = random.Random(seed)
        pools = [pool for pool in system["pools"] for _ in range(pool["servers"])]
        self.servers = [Server(index, pool) for index, pool in enumerate(pools)]
        weights = system.get("routers", 1)
        self.weights = [1.0] * weights if isinstance(weights, int) else list(weights)
        self.routers = [Router(len(self.servers)) for _ in self.weights]
        self.arrival_rate = system["arrival_rate"]
        self.size = system.get("size") or (lambda stream: stream.expovariate(1.0))
        self.migration = system.get("migration") or {"rate": 0.0}
        self.replace = system.get("replace", False)
        self.fate = system.get("message_fate", "withdraw")
        self.policy = as_rule(policy)
        self.messages = system.get("messages", self.policy["rule"] in MESSAGE_RULES)
        if self.policy["rule"] == "fpi":
            speeds = [server.speed for server in self.servers]
            self.spare = spare_speed_of_best_split(speeds, self.arrival_rate)
        self.now = 0.0
        self.present = 0
        self.totals = dict.fromkeys(TOTALS, 0)
        self.response_times = []
        self.heap = []
        self.pushed = 0
        for server in self.servers:
            self.send_message(server)
        self.schedule_arrival()

    def run_until(self, arrivals):
        """Run events until this many jobs have arrived, the last one placed."""
        while self.totals["arrivals"] < arrivals:
            time, _, event, subject, version = heapq.heappop(self.heap)
            if event == self.complete and version != subject.version:
                continue
            self.totals["area"] += self.present * (time - self.now)
            self.totals["time"] = self.now = time
            event(subject)

    def schedule(self, time, event, subject, version=0):
        self.pushed += 1  # the second key, so that equal times compare no further
        heapq.heappush(self.heap, (time, self.pushed, event, subject, version))

    def schedule_arrival(self):
        gap = self.random.expovariate(self.arrival_rate)
        self.schedule(self.now + gap, self.arrive, None)

    def schedule_completion(self, server):
        server.version += 1
        if server.jobs:
            self.schedule(server.next_completion(), self.complete, server, server.version)

    def schedule_ring(self, job):
        if self.migration["rate"] > 0:
            gap = self.random.expovariate(self.migration["rate"])
            self.schedule(self.now + gap, self.ring, job)

    # Events

    def arrive(self, _):
        self.schedule_arrival()
        self.totals["arrivals"] += 1
        router = self.random.choices(self.routers, self.weights)[0]
        self.totals["router_empty"] += not router.messages
        server = choose(self, router, self.policy)
        self.use_message(router, server)
        if server.full:
            self.totals["blocked"] += 1
            return
        self.totals["accepted"] += 1
        self.totals["waited"] += server.would_wait()
        if len(server) == 0:
            self.totals["found_idle"] += 1
            self.withdraw_message(server)
        job = Job(self.now, self.size(self.random))
        self.present += 1
        self.join(job, server)
        self.schedule_ring(job)

    def complete(self, server):
        server.advance(self.now)
        job = min(server.served(), key=lambda job: job.work)
        self.leave(job)
        self.present -= 1
        self.totals["departed"] += 1
        self.totals["response"] += self.now - job.arrival
        self.response_times.append(self.now - job.arrival)

    def ring(self, job):
        """A job's migration clock: look at a uniform server and move there if the rule says so."""
        if job.server is None:
            return
        self.schedule_ring(job)
        source, target = job.server, self.random.choice(self.servers)
        if target is source:
            return
        if self.migration["rule"] != "oblivious":
            self.totals["migration_probes"] += 1
        if target.full:
            return
        self.totals["decisions"] += 1
        if self.wants_to_move(source, target):
            self.totals["migrations"] += 1
            self.leave(job)
            if len(target) == 0:
                self.totals["migrated_to_idle"] += 1
                self.withdraw_message(target)
            self.join(job, target)

    def wants_to_move(self, source, target):
        """Compare the speed shares mu/q that the job has and would have."""
        if self.migration["rule"] == "oblivious":
            return True
        there, here = target.speed * len(source), source.speed * (len(target) + 1)
        if math.isclose(there, here, rel_tol=TIE):
            return self.migration["rule"] == "weak"
        return there > here

    def join(self, job, server):
        server.advance(self.now)
        server.jobs.append(job)
        job.server = server
        self.schedule_completion(server)

    def leave(self, job):
        server = job.server
        server.advance(self.now)
        server.jobs.remove(job)
        job.server = None
        self.schedule_completion(server)
        if len(server) == 0:
            self.send_message(server)

    # Pull-messages

    def outstanding(self, server):
        return any(server in router.messages for router in self.routers)

    def send_message(self, server):
        """A server that has become idle tells one router; under keep, one message at a time."""
        if not self.messages or (self.fate == "keep" and self.outstanding(server)):
            return
        router = self.message_destination()
        self.totals["sent"] += 1
        if server in router.messages:
            self.totals["absorbed"] += 1
        else:
            router.messages.append(server)

    def message_destination(self):
        if self.policy["rule"] != "jiq-sq":
            return self.random.choice(self.routers)
        asked = self.random.sample(self.routers, self.policy["d"])
        self.totals["router_probes"] += len(asked)
        fewest = min(len(router.messages) for router in asked)
        return self.random.choice([r for r in asked if len(r.messages) == fewest])

    def use_message(self, router, server):
        """Sending a job to a server destroys this router's message of it, whatever the rule."""
        if server in router.messages:
            router.messages.remove(server)
            self.totals["used"] += 1
            self.totals["used_stale"] += len(server) > 0

    def withdraw_message(self, server):
        """An idle server has got a job: under withdraw, a message held elsewhere goes."""
        if self.fate != "withdraw":
            return
        for router in self.routers:
            if server in router.messages:
                router.messages.remove(server)
                self.totals["withdrawn"] += 1

    # For the rules

    def sample(self, d):
        if d is None:
            return self.servers
        if self.replace:
            return self.random.choices(self.servers, k=d)
        return self.random.sample(self.servers, d)

    def break_tie(self, tied, ties):
        if ties == "lowest":
            return min(tied, key=lambda server: server.index)
        if ties == "fastest":
            best = max(server.speed for server in tied)
            tied = [server for server in tied if server.speed == best]
        return self.random.choice(tied)


# --- estimates ---------------------------------------------------------------------------------

TOTALS = [
    *("time", "area", "arrivals", "blocked", "accepted", "waited", "departed", "response"),
    *("found_idle", "router_empty", "sent", "used", "used_stale", "withdrawn", "absorbed"),
    *("probes", "router_probes", "migration_probes"),
    *("decisions", "migrations", "migrated_to_idle"),
]

RATIOS = {
    "EN": ("area", "time"),
    "ER": ("response", "departed"),
    "P_wait": ("waited", "accepted"),
    "P_block": ("blocked", "arrivals"),
    "P_router_empty": ("router_empty", "arrivals"),
    "P_pop_stale": ("used_stale", "arrivals"),
    "pull_messages": ("sent", "arrivals"),
    "withdrawals": ("withdrawn", "arrivals"),
    "probe_messages": ("probe_messages", "arrivals"),
    "migrations": ("migrations", "arrivals"),
    "migrations_per_time": ("migrations", "time"),
}


def simulate(system, policy, jobs=100_000, seed=0, warmup=None):
    """Run until ``jobs`` arrivals, estimate from those after the first ``warmup`` (10 %).

    Returns a plain dict. Estimates, each with a standard error of batch means in ``se``:
    ``EN`` mean number in system, ``ER`` mean response time of the departed, ``P_wait`` of the
    accepted, ``P_block``, ``P_router_empty``, ``P_pop_stale`` (per arrival: a message is used
    whose server is not idle), per arrival the one-way messages ``pull_messages``,
    ``withdrawals``, ``probe_messages`` (two a probe), ``migrations``, and
    ``migrations_per_time``. Also ``EN_each`` and ``idle_each`` (fraction of time) by server,
    ``response_times`` (sorted, of the jobs departed after the warm-up; see ``quantile``), and
    ``counts``: exact numbers since time 0.
    """
    warmup = jobs // 10 if warmup is None else warmup
    simulation = Simulation(system, policy, seed)
    simulation.run_until(warmup)
    start = server_totals(simulation)
    simulation.response_times.clear()
    snapshots = [snapshot(simulation)]
    for batch in range(1, BATCHES + 1):
        simulation.run_until(warmup + (jobs - warmup) * batch // BATCHES)
        snapshots.append(snapshot(simulation))
    result = estimates(snapshots)
    result |= server_estimates(simulation, start, server_totals(simulation))
    result["response_times"] = sorted(simulation.response_times)
    result["counts"] = counts(simulation)
    return result


def snapshot(simulation):
    totals = dict(simulation.totals)
    probes = totals["probes"] + totals["router_probes"] + totals["migration_probes"]
    return totals | {"probe_messages": 2 * probes}


def estimates(snapshots):
    batches = [{k: b[k] - a[k] for k in b} for a, b in itertools.pairwise(snapshots)]
    pairs = {name: ratio(batches, *keys) for name, keys in RATIOS.items()}
    result = {name: mean for name, (mean, _) in pairs.items()}
    return result | {"se": {name: error for name, (_, error) in pairs.items()}}


def ratio(batches, numerator, denominator):
    """The ratio of two totals and its standard error from the batches."""
    whole = sum(batch[denominator] for batch in batches)
    if whole == 0:
        return math.nan, math.nan
    mean = sum(batch[numerator] for batch in batches) / whole
    squares = sum((batch[numerator] - mean * batch[denominator]) ** 2 for batch in batches)
    return mean, math.sqrt(squares * len(batches) / (len(batches) - 1)) / whole


def server_totals(simulation):
    for server in simulation.servers:
        server.advance(simulation.now)
    return simulation.now, [(server.area, server.idle_time) for server in simulation.servers]


def server_estimates(simulation, start, end):
    time = end[0] - start[0]
    changes = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(start[1], end[1], strict=True)]
    return {
        "EN_each": [area / time for area, _ in changes],
        "idle_each": [idle / time for _, idle in changes],
    }


def counts(simulation):
    """Exact numbers since time 0; S, B, I, O as in the message identities."""
    totals = simulation.totals
    present = [job for server in simulation.servers for job in server.jobs]
    return {
        "S": totals["sent"],
        "B": totals["found_idle"],
        "I": sum(len(server) == 0 for server in simulation.servers),
        "O": sum(len(router.messages) for router in simulation.routers),
        "used": totals["used"],
        "withdrawn": totals["withdrawn"],
        "absorbed": totals["absorbed"],
        "arrivals": totals["arrivals"],
        "blocked": totals["blocked"],
        "departed": totals["departed"],
        "present": len(present),
        "decisions": totals["decisions"],
        "migrations": totals["migrations"],
        "migrated_to_idle": totals["migrated_to_idle"],
        "integral_of_N": totals["area"],
        "time_spent": totals["response"] + sum(simulation.now - job.arrival for job in present),
    }


def quantile(ordered, p):
    """The p-quantile of sorted values."""
    return ordered[min(len(ordered) - 1, int(p * len(ordered)))]
