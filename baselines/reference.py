"""Exact values of small systems, as cases that `simulate` must reproduce.

The numbers stand in ``reference_values.json``. Its keys say what the system is; the readers below
turn them into systems and policies, one reader a section.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbgym.system import Pool, System, as_system

VALUES = Path(__file__).with_name("reference_values.json")

# What an entry calls a quantity -> what a case calls it.
QUANTITIES = {
    "EN": "EN",
    "P_wait": "P_wait",
    "P_wait_accepted": "P_wait",
    "P_block": "P_block",
    "pull_msgs_per_arrival": "messages",
    "withdraw_msgs_per_arrival": "withdrawals",
    "migrations_per_time": "migrations",
}
FATES = {"withdraw": "withdraw", "stale1": "keep", "resend": "resend"}

Entry = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A system, a policy and what is exactly known of them.

    values : by quantity: ``EN`` mean number in system, ``P_wait`` of the accepted jobs,
        ``P_block``, ``messages`` (pull-messages) and ``withdrawals`` per arrival, ``migrations``
        per unit time, ``cost`` per arrival (response time, and the loss charge of a lost job)
    """

    name: str
    system: System
    policy: str
    values: dict[str, float]
    source: str


def cases() -> list[Case]:
    """Every case, in the order of the file."""
    values = json.loads(VALUES.read_text(encoding="utf-8"))
    return [
        *_classics(values["classics"]),
        *_queue_length_rules(values["jsq_sed"]),
        *_pull(values["pull"]),
        *_local_search(values["rls_open"]),
        *flagship_cases(),
    ]


def _case(name: str, system: System, policy: str, entry: Entry, source: str) -> Case:
    known = {quantity: entry[key] for key, quantity in QUANTITIES.items() if key in entry}
    return Case(name, system, policy, known, source)


def pools(
    speeds: Iterable[float], limits: Iterable[int | None] | None = None, **same: Any
) -> list[Pool]:
    """Pools from one speed (and limit) a server: neighbours that are alike share one."""
    speeds = list(speeds)
    each = zip(speeds, limits if limits is not None else [None] * len(speeds), strict=True)
    return [
        Pool(len(list(alike)), speed=speed, limit=limit, **same)
        for (speed, limit), alike in itertools.groupby(each)
    ]


def static(weights: Iterable[float], speeds: Iterable[float]) -> str:
    """The policy that sends jobs by these probabilities, by its simplest name."""
    weights, speeds = list(weights), list(speeds)
    if len(set(weights)) == 1:
        return "random"
    if len({round(weight / speed, 9) for weight, speed in zip(weights, speeds, strict=True)}) == 1:
        return "weighted-random"
    return f"static({', '.join(map(repr, weights))})"


# --- sections -------------------------------------------------------------------------------------
def _classics(section: Entry) -> Iterator[Case]:
    """One server (with c slots, or a limit K), and servers chosen blindly."""
    for kind in ("MM1", "MMc", "MM1K", "MMcc"):
        for entry in section[kind]:
            rate, slots = entry.get("lam", entry.get("a")), entry.get("c", 1)
            limit = slots if kind == "MMcc" else entry.get("K")
            server = Pool(1, speed=entry.get("mu", 1.0), slots=slots, limit=limit)
            load = round(rate / (server.speed * slots), 9)
            name = {"MM1": "M/M/1", "MMc": "M/M/c", "MM1K": "M/M/1/K", "MMcc": "M/M/c/c"}[kind]
            name = name.replace("c", str(slots)).replace("K", str(limit))
            yield _case(
                f"{name} load {load:g}",
                System(server, arrival_rate=rate),
                "random",
                entry,
                f"classics.{kind}",
            )
    for key, entry in section["Random"].items():
        system = System(pools(entry["mu"]), arrival_rate=entry["lam"])
        policy = static(entry["p"], entry["mu"])
        yield _case(f"Random_{key}", system, policy, entry, "classics.Random")


def _queue_length_rules(section: Entry) -> Iterator[Case]:
    """JSQ, JSQ(d), SED and JSED; the rule is the key's first word."""
    for key, entry in section.items():
        if key == "heavy_traffic_scaled":
            yield from _heavy_traffic(entry)
            continue
        system = System(pools(entry.get("mu") or [1.0] * entry["n"]), arrival_rate=entry["lam"])
        rule, d = re.match(r"(JSQ|SED|JSED)(\d*)", key).groups()  # type: ignore[union-attr]
        arguments = [d] if d else []
        arguments += ["ties=fastest"] if "tiefast" in key else []
        policy = rule.lower() + (f"({', '.join(arguments)})" if arguments else "")
        yield _case(key, system, policy, entry, "jsq_sed")


def _heavy_traffic(entries: list[Entry]) -> Iterator[Case]:
    for entry in entries:
        system = System(pools(entry["mu"]), load=entry["rho"])
        speeds = "".join(f"{mu:g}" for mu in entry["mu"])
        policy = entry["policy"].removesuffix("qmu").lower()
        name = f"{entry['policy']}_n{system.servers}_{speeds}_{entry['rho']:g}"
        yield _case(name, system, policy, entry, "jsq_sed.heavy_traffic_scaled")


def _pull(section: Entry) -> Iterator[Case]:
    """PULL and JIQ in every message fate; tables over n name their system in the key."""
    for key, entry in section.items():
        if key.startswith("critical_load"):
            continue
        if isinstance(entry, list):
            for row in entry:
                yield _pull_case(f"{key} n{row['n']} R{row['R']}", _described(key) | row)
        else:
            yield _pull_case(key, entry)


def _described(key: str) -> Entry:
    """What the name of a table over n says about its systems."""
    limit, load, fate = re.search(r"_K(\d+)_.*_0(\d)_(withdraw|stale1|resend)", key).groups()  # type: ignore[union-attr]
    return {
        "limit": int(limit),
        "pool_speeds": [1.0, 2.0] if "pools_mu1_mu2" in key else [1.0],
        "rho": int(load) / 10,
        "variant": fate,
    }


def _pull_case(name: str, entry: Entry) -> Case:
    if "pool_speeds" in entry:
        share = entry["n"] // len(entry["pool_speeds"])
        servers = [Pool(share, speed=mu, limit=entry["limit"]) for mu in entry["pool_speeds"]]
        rate = {"load": entry["rho"]}
    else:
        servers = pools(entry["mu"], entry["K"])
        rate = {"arrival_rate": entry["lam"]}
    split = entry.get("split", [1.0])
    routers = entry["R"] if len(set(split)) == 1 else split
    fate = FATES[entry["variant"]]
    system = System(servers, routers, message_fate=fate, **rate)  # type: ignore[arg-type]
    return _case(name, system, "pull", entry, "pull")


def _local_search(section: Entry) -> Iterator[Case]:
    """Jobs that migrate, under processor sharing; keys such as "n=2,lam=(1.2,0.6),mu=(1,2)"."""
    for key, rows in section.items():
        n = int(key[2])
        rates, speeds = (_numbers(key, field, n) for field in ("lam", "mu"))
        for row, entry in rows.items():
            rule, _, beta = re.match(r"(\w+)(,beta=|\(beta=)([\w.]+)", row).groups()  # type: ignore[union-attr]
            if beta == "inf":
                continue
            servers = pools(speeds, discipline="ps")
            system = System(servers, arrival_rate=sum(rates), migration_rate=float(beta))
            policy = placement = static(rates, speeds)
            if rule != "none":
                way = {"RLS": "strict", "RLO": "oblivious"}[rule]
                policy = f"local-search(rule={way}, place={placement})"
            name = f"{rule}_{key.split('  ')[0]}_beta={beta}"
            yield _case(name, system, policy, entry, "rls_open")


def _numbers(key: str, field: str, n: int) -> list[float]:
    """One number a server: a list in brackets, or one for all."""
    several, one = re.search(rf"{field}=(?:\(([^)]*)\)|([\d.]+))", key).groups()  # type: ignore[union-attr]
    return [float(x) for x in several.split(",")] if several else [float(one)] * n


# --- blind dispatch with limits -------------------------------------------------------------------
def blind_cost(system: System, shares: Iterable[float], loss_charge: float) -> float:
    """Cost per arrival when server i gets a fixed share of the jobs: parallel M/M/1/K queues."""
    rate = system.arrival_rate
    present = lost = 0.0
    for share, mu, limit in zip(shares, system.speeds, system.limits, strict=True):
        weights = [(share * rate / mu) ** k for k in range(int(limit) + 1)]
        present += sum(k * weight for k, weight in enumerate(weights)) / sum(weights)
        lost += share * weights[-1] / sum(weights)
    return float(present / rate + loss_charge * lost)


def flagship_cases() -> list[Case]:
    """The flagship under the two blind policies, with a loss charge of 20."""
    system = as_system("flagship")
    charge = system.default_loss_charge
    shares = {
        "random": [1 / system.servers] * system.servers,
        "weighted-random": list(system.speeds / system.speeds.sum()),
    }
    return [
        Case(
            f"flagship {policy}", system, policy, {"cost": blind_cost(system, p, charge)}, "M/M/1/K"
        )
        for policy, p in shares.items()
    ]
