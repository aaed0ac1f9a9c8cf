"""The system of the other benchmarks as one would write it in SimPy: JSQ(2), limit 10."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from random import Random
from typing import Any

import simpy

LIMIT = 10
LOAD = 0.9


@dataclass
class Count:
    """What is counted after the warm-up; `begun` is the CPU time then."""

    arrivals: int = 0
    blocked: int = 0
    departed: int = 0
    response_time: float = 0.0
    begun: float = 0.0
    cpu_seconds: float = 0.0


@dataclass
class Server:
    """One job at a time, first come first served; `jobs` waits or is served here."""

    speed: float
    turn: simpy.Resource
    jobs: int = 0


def run(n: int, warmup: int, jobs: int, seed: int) -> Count:
    """So many timed arrivals after a warm-up, at n servers, half of speed 1, half of speed 2."""
    env, random, count = simpy.Environment(), Random(seed), Count()
    speeds = [1.0] * (n // 2) + [2.0] * (n - n // 2)
    servers = [Server(speed, simpy.Resource(env)) for speed in speeds]
    env.run(until=env.process(_arrivals(env, servers, random, count, warmup, jobs)))
    count.cpu_seconds = time.process_time() - count.begun
    return count


def _arrivals(
    env: simpy.Environment,
    servers: list[Server],
    random: Random,
    count: Count,
    warmup: int,
    jobs: int,
) -> Generator[Any, Any, None]:
    """Poisson arrivals, each to the shorter of two servers, a fair coin on ties."""
    rate = LOAD * sum(server.speed for server in servers)
    for k in range(warmup + jobs):
        yield env.timeout(random.expovariate(rate))
        if k == warmup:
            fresh = Count(begun=time.process_time())
            count.__dict__.update(fresh.__dict__)
        count.arrivals += 1
        one, other = random.sample(servers, 2)  # in random order, so that `min` tosses the coin
        server = min(one, other, key=lambda s: s.jobs)
        if server.jobs == LIMIT:
            count.blocked += 1
        else:
            env.process(_job(env, server, random, count))


def _job(
    env: simpy.Environment, server: Server, random: Random, count: Count
) -> Generator[Any, Any, None]:
    arrived = env.now
    server.jobs += 1
    with server.turn.request() as mine:
        yield mine
        yield env.timeout(random.expovariate(server.speed))
    server.jobs -= 1
    count.departed += 1
    count.response_time += env.now - arrived
