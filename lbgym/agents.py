"""Classical policies as agents: they act on observations alone, with SB3's `predict`.

One definition of a rule serves simulation and agent: an agent owns a *shadow* of the system, fills
it from an observation - queue lengths, live or last read, the acting router's messages, the sampled
servers, source and target of a move - and asks the same compiled rule. It therefore knows what the
observation shows, nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from lbgym.engine import layout
from lbgym.engine.access import (
    Entry,
    aside,
    call_rule,
    candidate_of,
    class_jobs,
    code_address,
    edge,
    entry,
    floats,
    held,
    inner,
    last_probe,
    message_list,
    order,
    pool,
    record_reader,
    router,
    scratch,
    sent_at,
    sent_since_probe,
    sent_since_read,
    server,
    standing,
    stream,
    tail,
    world,
)
from lbgym.engine.layout import ARRIVAL, LEVELS, POLICY, RESAMPLE
from lbgym.envs.observation import CLASS_COLUMNS, SHOWN_CLASSES
from lbgym.policies import Policy

_LONGEST = 65_535  # queue lengths beyond are shown too coarsely to tell them apart anyway

# Where things stand in an observation: offsets, -1 if not shown or not needed.
EYES = np.dtype(
    [
        ("width", "i8"),  # numbers in an observation
        ("rows", "i8"),
        ("candidates", "i8"),  # 1: a row is a sampled server
        ("ends", "i8"),  # 1: the rows are source and target of a move; else a row is a server
        ("sorts", "i8"),  # 1: the rule needs servers sorted by length
        ("message", "i8"),
        ("message_order", "i8"),
        ("queue", "i8"),
        ("queue_order", "i8"),
        ("candidate", "i8"),
        ("server", "i8"),
        ("source", "i8"),
        ("target", "i8"),
        ("kind", "i8"),
        ("router", "i8"),
        ("speed", "i8"),
        ("vacancy", "i8"),
        ("klass", "i8"),
        ("read", "i8"),
        ("sent_since_read", "i8"),
        ("last_probe", "i8"),
        ("sent_since_probe", "i8"),
        ("work", "i8"),
        ("size", "i8"),
        ("sent_age", "i8"),
        ("neighbours", "i8"),
        ("class_jobs", "i8", (SHOWN_CLASSES,)),  # of these the first `shown_classes`
        ("shown_classes", "i8"),
    ],
    align=True,
)
_NAMES: tuple[str, ...] = EYES.names or ()
COLUMNS_SEEN = _NAMES[_NAMES.index("message") : _NAMES.index("class_jobs")]
eyes_at = record_reader(EYES)


# --- compiled: from an observation to the shadow --------------------------------------------------
@inner
def _whole(shown):
    """The whole number shown as x / (1 + x)."""
    y = float(shown)
    return min(max(int(y / max(1.0 - y, 2.0**-24) + 0.5), 0), _LONGEST)


@inner
def _amount(shown):
    """The number shown as x / (1 + x)."""
    y = float(shown)
    return y / max(1.0 - y, 2.0**-24)


@inner
def _see_work(w, eyes, address):
    """Work left in all servers, and the size of the arriving job."""
    if eyes.size >= 0:
        w.job_size = _amount(floats(address + 4 * eyes.size)[0])
    if eyes.work >= 0:
        p = floats(address + 4 * eyes.work)
        for i in range(w.n_servers):
            server(w, i).length = 0
            server(w, i).waiting = _amount(p[i])


@inner
def _index(shown, n):
    """A number shown exactly, brought into 0 .. n - 1."""
    return min(max(int(float(shown) + 0.5), 0), n - 1)


@inner
def _marked(p, n):
    """Where a mark stands; 0 if nowhere."""
    for i in range(n):
        if float(p[i]) > 0.5:
            return i
    return 0


@inner
def _see_lengths(w, p):
    """Queue lengths of all servers."""
    for i in range(w.n_servers):
        s = server(w, i)
        s.length = min(_whole(p[i]), pool(w, s.pool).limit)


@inner
def _sort_pool(w, this):
    """Count the servers of a pool that hold at least k jobs, for each k; False without room."""
    longest, shortest = 0, _LONGEST
    for i in range(this.first, this.first + this.servers):
        longest = max(longest, server(w, i).length)
        shortest = min(shortest, server(w, i).length)
    if longest + 2 >= this.levels:
        return False
    for k in range(this.levels):
        tail(w, this.tails + k).servers = 0
    for i in range(this.first, this.first + this.servers):
        tail(w, this.tails + server(w, i).length).servers += 1
    for k in range(longest - 1, -1, -1):
        tail(w, this.tails + k).servers += tail(w, this.tails + k + 1).servers
    this.shortest = shortest
    return True


@inner
def _see_order(w, eyes, address):
    """Servers sorted by length: as shown, else in index order among equals. False without room."""
    for j in range(w.n_pools):
        this = pool(w, j)
        if not _sort_pool(w, this):
            w.need, w.need_pool = LEVELS, j
            return False
        if eyes.queue_order >= 0:
            p = floats(address + 4 * eyes.queue_order)
            for i in range(this.first, this.first + this.servers):
                k = this.first + _index(float(p[i]) - this.first, this.servers)
                order(w, k).server = i
        else:  # counting sort: each level's next place is kept in `moment`
            for k in range(this.shortest, this.levels - 1):
                tail(w, this.tails + k).moment = tail(w, this.tails + k + 1).servers
            for i in range(this.first, this.first + this.servers):
                level = tail(w, this.tails + server(w, i).length)
                order(w, this.first + int(level.moment)).server = i
                level.moment += 1
    return True


@inner
def _see_messages(w, eyes, address):
    """The acting router's messages: in its own order if shown, else in index order."""
    ordered = eyes.message_order >= 0
    p = floats(address + 4 * (eyes.message_order if ordered else eyes.message))
    before = 0
    for j in range(w.n_pools):
        this = pool(w, j)
        count = 0
        for i in range(this.first, this.first + this.servers):
            if float(p[i]) > 0.5:
                count += 1
        records = message_list(w, w.router * w.n_pools + j)
        records.begin, records.room, records.count = this.first, this.servers, count
        k = 0
        for i in range(this.first, this.first + this.servers):
            if float(p[i]) > 0.5:
                place = _index(float(p[i]) - 1 - before, count) if ordered else k
                message = held(w, this.first + place)
                message.server = i
                k += 1
        before += count
    router(w, w.router).held = before


@inner
def _see_candidates(w, eyes, address):
    """The sampled servers of a table of servers; one sampled twice is shown once."""
    for k in range(w.samples):
        candidate_of(w, k).server = -1
    p = floats(address + 4 * eyes.candidate)
    first = 0
    for i in range(w.n_servers):
        if float(p[i]) > 0.5:
            k = _index(float(p[i]) - 1, w.samples)
            candidate_of(w, k).server = i
            if k == 0:
                first = i
    for k in range(w.samples):
        if candidate_of(w, k).server < 0:
            candidate_of(w, k).server = first


@inner
def _see_vacancy(w, i, shown):
    """Free units, or places, of server i."""
    s = server(w, i)
    this = pool(w, s.pool)
    if w.units_on:
        standing(w, i).used = max(this.units - _whole(shown), 0)
    else:
        s.length = max(this.limit - _whole(shown), 0)


@inner
def _see_classes(w, eyes, address):
    """The jobs of each class in every server."""
    for k in range(eyes.shown_classes):
        shown = floats(address + 4 * eyes.class_jobs[k])
        for i in range(w.n_servers):
            class_jobs(w, i * w.n_classes + k).jobs = _whole(shown[i])


@inner
def _see_neighbours(w, i, other, shown):
    """The queue of the one neighbour that end i has besides the other end, from their mean."""
    edges, known, behind, times = 0, 0, -1, 0
    for e in range(w.n_edges):
        a, b = edge(w, e).a, edge(w, e).b
        if i not in (a, b):
            continue
        edges += 1
        j = b if a == i else a
        if j == other:
            known += server(w, j).length
        else:
            behind = j
            times += 1
    if behind >= 0:
        y = float(shown)
        total = edges * y / max(1.0 - y, 2.0**-24)
        server(w, behind).length = min(max(int((total - known) / times + 0.5), 0), _LONGEST)


@inner
def _see_sampled(w, eyes, address):
    """The sampled servers of a table of candidates (without numbers: any), and their queues."""
    numbers = floats(address + 4 * eyes.server)
    lengths = floats(address + 4 * eyes.queue)
    vacancies = floats(address + 4 * eyes.vacancy)
    for k in range(w.samples):
        i = k if eyes.server < 0 else _index(float(numbers[k]), w.n_servers)
        candidate_of(w, k).server = i
        s = server(w, i)
        if eyes.vacancy >= 0:
            _see_vacancy(w, i, vacancies[k])
        elif eyes.queue >= 0:
            s.length = min(_whole(lengths[k]), pool(w, s.pool).limit)
    if eyes.neighbours >= 0:
        shown = floats(address + 4 * eyes.neighbours)
        for k in range(2):
            i, other = candidate_of(w, k).server, candidate_of(w, 1 - k).server
            _see_neighbours(w, i, other, shown[k])


@inner
def _see_reads(w, eyes, address):
    """The last read of all queues; it is a new one if this router has sent nothing since."""
    lengths = floats(address + 4 * eyes.read)
    sent = floats(address + 4 * eyes.sent_since_read)
    total = 0
    for i in range(w.n_servers):
        aside(w, i).reading = _whole(lengths[i])
        total += _whole(sent[i])
        if w.read_memory_on:
            sent_since_read(w, w.router * w.n_servers + i).jobs = _whole(sent[i])
    if total == 0 or w.reads == 0:
        w.reads += 1


@inner
def _see_probes(w, eyes, address):
    """What the acting router's last probes found, and what it has sent since."""
    lengths = floats(address + 4 * eyes.last_probe)
    sent = floats(address + 4 * eyes.sent_since_probe)
    for i in range(w.n_servers):
        k = w.router * w.n_servers + i
        last_probe(w, k).jobs = _whole(lengths[i])
        sent_since_probe(w, k).jobs = _whole(sent[i])


@inner
def _see_ages(w, p):
    """When the acting router last sent a job to each server."""
    for i in range(w.n_servers):
        y = float(p[i])
        age = y / (1.0 - y) if y < 1.0 else np.inf
        sent_at(w, w.router * w.n_servers + i).time = w.clock - max(age, 0.0)


@inner
def _of_speed(w, speed, taken):
    """A server of about that speed, other than the one taken."""
    best, least = 1 if taken == 0 else 0, np.inf
    for p in range(w.n_pools):
        this = pool(w, p)
        i = this.first
        if i == taken:
            i += 1
        gap = abs(this.speed - speed)
        if gap < least and i < this.first + this.servers:
            best, least = i, gap
    return best


@inner
def _see_ends(w, eyes, address):
    """Source and target of a move; without numbers any two servers of these speeds."""
    w.kind = RESAMPLE
    w.router = -1
    if eyes.server >= 0:
        numbers = floats(address + 4 * eyes.server)
        w.source = _index(float(numbers[0]), w.n_servers)
        w.target = _index(float(numbers[1]), w.n_servers)
    else:
        speeds = floats(address + 4 * eyes.speed)
        one = pool(w, 0).speed
        w.source = _of_speed(w, one if eyes.speed < 0 else float(speeds[0]), -1)
        w.target = _of_speed(w, one if eyes.speed < 0 else float(speeds[1]), w.source)
    if eyes.queue >= 0:
        lengths = floats(address + 4 * eyes.queue)
        server(w, w.source).length = _whole(lengths[0])
        server(w, w.target).length = _whole(lengths[1])


@inner
def _see(w, eyes, address):
    """Fill the shadow from the observation at an address; False without room."""
    if eyes.ends:
        _see_ends(w, eyes, address)
        return True
    w.kind = ARRIVAL
    w.router = 0
    w.klass = 0
    if eyes.klass >= 0:
        w.klass = _index(float(floats(address + 4 * eyes.klass)[0]), w.n_classes)
    if eyes.router >= 0:
        w.router = _index(float(floats(address + 4 * eyes.router)[0]), w.n_routers)
    if eyes.candidates:
        _see_sampled(w, eyes, address)
        return True
    if eyes.work >= 0 or eyes.size >= 0:
        _see_work(w, eyes, address)
    elif eyes.queue >= 0:
        _see_lengths(w, floats(address + 4 * eyes.queue))
    if eyes.vacancy >= 0:
        vacancies = floats(address + 4 * eyes.vacancy)
        for i in range(w.n_servers):
            _see_vacancy(w, i, vacancies[i])
    _see_classes(w, eyes, address)
    if eyes.kind >= 0 and float(floats(address + 4 * eyes.kind)[0]) > 0.5:
        w.kind = RESAMPLE
        w.router = -1
        w.source = _marked(floats(address + 4 * eyes.source), w.n_servers)
        w.target = _marked(floats(address + 4 * eyes.target), w.n_servers)
        return True
    if eyes.read >= 0:
        _see_reads(w, eyes, address)
    if w.probe_memory_on:
        _see_probes(w, eyes, address)
    if eyes.sent_age >= 0:
        _see_ages(w, floats(address + 4 * eyes.sent_age))
    if w.messages_on:
        _see_messages(w, eyes, address)
    if w.samples > 0:
        _see_candidates(w, eyes, address)
    if eyes.sorts:
        return _see_order(w, eyes, address)
    return True


@inner
def _action(w, eyes, i):
    """The action that means server i: itself, its place among the candidates (-1: none), or 1 for
    the target of a move."""
    if eyes.ends:
        return int(i == w.target)
    if not eyes.candidates:
        return i
    for k in range(w.samples):
        if candidate_of(w, k).server == i:
            return k
    return -1


_stream_at = record_reader(layout.RECORDS["streams"])


@inner
def _swap_stream(w, at_stream):
    """Exchange the shadow's policy stream with the four words at an address."""
    mine, theirs = stream(w, POLICY), _stream_at(at_stream)
    mine.a, theirs.a = theirs.a, mine.a
    mine.b, theirs.b = theirs.b, mine.b
    mine.c, theirs.c = theirs.c, mine.c
    mine.d, theirs.d = theirs.d, mine.d


@entry(
    types.int64(
        types.int64,
        types.int64,
        types.float32[:, ::1],
        types.float64[:, ::1],
        types.int64[::1],
        types.int64,
        types.int64,
        types.int64,
        types.int64,
    )
)
def answer(address, eyes_address, observations, memory, actions, row, place, move, at_stream):
    """Answer observations from a row on; returns the row that needs room (call again), or their
    number when all are answered. `memory` holds the rule's cells of each row (and the reads it has
    seen); `place` and `move`
    are the addresses of the compiled rules, `at_stream` that of the policy stream to draw from (0:
    the shadow's own)."""
    w, eyes = world(address), eyes_at(eyes_address)
    first = np.int64(observations.ctypes.data)
    if at_stream:
        _swap_stream(w, at_stream)
    while row < len(observations):
        if eyes.read >= 0:
            w.reads = int(memory[row, w.n_scratch])
        if not _see(w, eyes, first + 4 * eyes.width * row):
            break
        for k in range(w.n_scratch):
            scratch(w, k).value = memory[row, k]
        actions[row] = _action(w, eyes, call_rule(place if w.kind == ARRIVAL else move, w))
        for k in range(w.n_scratch):
            memory[row, k] = scratch(w, k).value
        if eyes.read >= 0:
            memory[row, w.n_scratch] = w.reads
        row += 1
    if at_stream:
        _swap_stream(w, at_stream)
    return row


# --- the agent ------------------------------------------------------------------------------------
class _Recalled:
    """A rule's memory before and after its last answer in one environment."""

    def __init__(self) -> None:
        self._at = (0, 0, 0)
        self._before: Any = None
        self._after: Any = None

    @staticmethod
    def _moment(env: Any) -> tuple[int, int, int]:
        """Which episode it is, and the decisions made in it."""
        w = env._state.world[0]
        return env.episodes, int(w["arrivals"]), int(w["resamplings"])

    def before(self, env: Any) -> Any:
        """The memory with which the pending decision is to be made; None: a new episode's."""
        now = self._moment(env)
        if now[0] != self._at[0]:
            return None
        return self._before if now == self._at else self._after  # the same decision once more

    def note(self, env: Any, before: Any, after: NDArray[np.float64]) -> None:
        """An answer has been given."""
        self._at, self._before, self._after = self._moment(env), before, after


class PolicyAgent:
    """The agent of a policy: ``action, state = agent.predict(obs, state, episode_start)``.

    Parameters
    ----------
    policy : Policy
    env
        The environment whose observations it will see (Gymnasium's or SB3's, single or vector).

    A rule that remembers (wrr, round-robin; an order drawn once per read) keeps its memory in
    `state`: hand it back at the next call. With one environment and single observations the agent
    also goes on by itself from one call without `state` to the next, until the environment is
    reset; and the rule's coins come from the environment's policy stream, so that one seed gives
    the trajectory of `lbgym.simulate`, job for job. Otherwise they come from the agent's own stream
    (`seed`).

    ``agent.environment`` holds the arguments (observe, action, router_samples, place) of an
    environment that it can act in.

    Raises
    ------
    ValueError
        Names the columns that the environment would have to show, or what else does not fit.
    """

    def __init__(self, policy: Policy, env: Any = None) -> None:
        if env is None:
            raise ValueError(f"{policy.name}: an agent needs the environment that it will act in")
        view, alone = acting_in(env)
        self.policy = policy
        self.name, self.information = policy.name, policy.information
        _check_fit(policy, view)
        self._view = view
        self._env = alone
        self._shadow = policy.state()
        self._shadow.clear()
        self._cells = policy.parts.scratch + ("read" in policy.columns)
        self._eyes = _eyes(policy, view)
        self.environment = _arguments(view)
        self._recalled = _Recalled()
        self.seed(0)
        self._link()

    def _link(self) -> None:
        self._answer = answer.direct()
        self._at_eyes = int(self._eyes.ctypes.data)
        self._rules = self.policy.rules()
        self._place, self._move = map(code_address, self._rules)

    def __getstate__(self) -> dict[str, Any]:
        bound = ("_answer", "_rules", "_place", "_move", "_at_eyes")
        return {key: value for key, value in self.__dict__.items() if key not in bound}

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self._link()

    def seed(self, seed: int | None = None) -> None:
        """Seed the agent's own stream of coins."""
        self._shadow.seed(np.random.default_rng(seed))

    def predict(
        self,
        observation: Any,
        state: NDArray[np.float64] | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, NDArray[np.float64] | None]:
        """Actions for one observation (width,) or several (rows, width), and the rule's memory.

        `state` is what the last call returned; it is cleared where `episode_start` is true. None
        begins afresh, but for single observations of the agent's own environment: see above.
        `deterministic` changes nothing: a rule's coins are part of it.
        """
        obs = np.ascontiguousarray(observation, np.float32)
        width = self._view.width
        if obs.ndim not in (1, 2) or obs.shape[-1] != width:
            raise ValueError(
                f"observation: must have shape ({width},) or (rows, {width}), got {obs.shape}"
            )
        single = obs.ndim == 1
        if not obs.flags.writeable:
            obs = obs.copy()
        rows = obs.reshape(-1, width)
        alone = single and self._env is not None
        remembers = alone and self._cells > 0
        if remembers and state is None:
            state = self._recalled.before(self._env)
        memory = self._memory(state, episode_start, len(rows))
        actions = np.empty(len(rows), np.int64)
        shadow = self._shadow
        stream = self._env.policy_stream_address if alone else 0
        row = 0
        while True:
            row = self._answer(
                shadow.address,
                self._at_eyes,
                rows,
                memory,
                actions,
                row,
                self._place,
                self._move,
                stream,
            )
            if row == len(rows):
                break
            shadow.grow()
        if not single:
            return actions, (memory if self._cells else None)
        if remembers:
            self._recalled.note(self._env, state, memory[0])
        return actions[0], (memory[0] if self._cells else None)

    def _memory(
        self, state: NDArray[np.float64] | None, episode_start: Any, rows: int
    ) -> NDArray[np.float64]:
        """A copy of the rule's memory, shape (rows, cells), cleared where an episode starts."""
        memory = np.zeros((rows, self._cells))
        if self._cells == 0 or state is None:
            return memory
        if np.size(state) != memory.size:
            raise ValueError(
                f"state: must be what predict returned, {self._cells} values for each of {rows} "
                f"observations, got shape {np.shape(state)}"
            )
        memory[...] = np.reshape(state, memory.shape)
        if episode_start is not None:
            memory[np.broadcast_to(np.asarray(episode_start, bool), rows)] = 0.0
        return memory


def acting_in(env: Any) -> tuple[Any, Any]:
    """The task of an environment (of any of a vector), and the environment if it stands alone."""
    one = getattr(env, "unwrapped", env)
    alone = hasattr(one, "policy_stream_address")
    if not hasattr(one, "task") and hasattr(env, "get_attr"):
        one = env.get_attr("unwrapped")[0]
    if not hasattr(one, "task"):
        raise ValueError(f"agent: the environment must be one of lbgym's, got {env!r}")
    return one.task, one if alone else None


def _arguments(view: Any) -> dict[str, Any]:
    """What the environment must be made with for this agent to act in it."""
    shown = [_written(name, view, view.samples) for name in (*view.columns, *view.context)]
    action = f"candidate({view.samples})" if view.action == "candidate" else view.action
    arguments = {"observe": shown, "action": action, "router_samples": view.router_samples}
    return arguments if view.place is None else {**arguments, "place": view.place}


def _needs(policy: Policy, view: Any) -> list[list[str]]:
    """Columns that an agent must see; any one of each group will do."""
    parts = policy.parts
    if view.action == "move":
        return _needs_for_moves(policy, view)
    wanted = list(policy.columns)
    if "read" in wanted:
        wanted.append("sent_since_read")
    if len(view.system.class_shares) == 1:
        wanted = [name for name in wanted if name != "class"]
    if parts.messages and "message" not in wanted:
        wanted.append("message_order")
    if parts.samples:
        wanted.append("candidate")
        if not {"read", "vacancy", "queue", "last_probe"} & set(wanted):
            wanted.append("queue_probed")
    if parts.ordered:
        wanted.append("queue")
    if view.action == "candidate":  # the table itself says who is sampled
        wanted = [name for name in wanted if name != "candidate"]
        if not parts.anonymous or parts.samples > view.system.servers:
            wanted.append("server")
    if view.system.migrates:
        wanted += ["kind", "source", "target"]
    instead = {"message_order": ["message"], "queue_probed": ["queue"]}
    return [[name, *instead.get(name, [])] for name in dict.fromkeys(wanted)]


def _needs_for_moves(policy: Policy, view: Any) -> list[list[str]]:
    """The same where only moves are decisions: how long and how fast source and target are."""
    built_in = isinstance(policy.parts.move, Entry)
    if not (policy.parts.ring_asks if built_in else "queue_probed" in policy.columns):
        return []
    apart = len(view.system.pools) > 1
    return [["queue_probed"], ["speed", "server"]] if apart else [["queue_probed"]]


def _check_fit(policy: Policy, view: Any) -> None:
    """Raise ValueError unless the environment lets this policy act."""
    parts, system = policy.parts, view.system
    name = policy.name
    if _shape(system) != _shape(policy.system):
        raise ValueError(
            f"{name}: was made for {policy.system.describe()}, "
            f"the environment has {system.describe()}"
        )
    if parts.refuses:
        raise ValueError(
            f"{name}: turns jobs away while there is room, which no action says; only "
            "lbgym.simulate can run it"
        )
    if "read" in policy.columns and not parts.read_memory and system.router_count > 1:
        raise ValueError(
            f"{name}: its order is drawn once per read for all routers, but one router's view does "
            "not tell when that was; its agent needs a system with one router"
        )
    if "neighbours" in policy.columns and not _neighbours_are_all(system):
        raise ValueError(
            f"{name}: its agent needs every queue length; an edge's two ends and their neighbours "
            "tell it on rings of at most 4 servers only"
        )
    if view.action == "move":
        _check_placement(policy, view)
    elif view.action == "pool":
        raise ValueError(f"{name}: chooses servers, the environment's actions are pools")
    everywhere = parts.samples == 0 or parts.messages or parts.ordered or parts.anywhere
    everywhere = everywhere or "read" in policy.columns
    if view.action == "candidate" and everywhere:
        raise ValueError(
            f"{name}: may choose any server, the environment's actions are sampled servers; "
            "use action='server'"
        )
    if view.action != "move" and parts.samples and parts.samples != view.samples:
        use = "use action=" if view.action == "candidate" else "show "
        raise ValueError(
            f"{name}: needs {parts.samples} sampled servers, the environment samples "
            f"{view.samples}; {use}'candidate({parts.samples})'"
        )
    if view.action != "move" and parts.messages and parts.router_samples != view.router_samples:
        raise ValueError(
            f"{name}: needs an environment with router_samples={parts.router_samples}, "
            f"got {view.router_samples}"
        )
    shown = (*view.columns, *view.context)
    missing = [group[0] for group in _needs(policy, view) if not set(group) & set(shown)]
    if missing:
        observe = [_written(column, view, parts.samples) for column in (*shown, *missing)]
        raise ValueError(
            f"{name}: the environment must also show {', '.join(missing)}; use observe={observe}"
        )


def _neighbours_are_all(system: Any) -> bool:
    """Whether each end of every edge has at most one further neighbour, and these are all."""
    near: list[set[int]] = [set() for _ in range(system.servers)]
    for i, j in system.edges:
        near[i].add(j)
        near[j].add(i)
    return all(
        len(near[i] - {j}) <= 1 and len(near[j] - {i}) <= 1 and len(near[i] | near[j]) == len(near)
        for i, j in system.edges
    )


def _shape(system: Any) -> tuple[Any, ...]:
    """What a rule's arguments and memory depend on."""
    return system.pools, system.router_count, tuple(c.units for c in system.classes or ())


def _check_placement(policy: Policy, view: Any) -> None:
    """Raise ValueError unless the environment places new jobs as the policy does."""
    if view.placement is None:
        return
    mine, theirs = policy.parts, view.placement.parts
    asks = {"ring_asks": False}
    if mine.place is not theirs.place or mine.needs() | asks != theirs.needs() | asks:
        raise ValueError(
            f"{policy.name}: places new jobs otherwise than the environment, which has "
            f"place={view.place!r}; give both the same placement, as in local-search(place=jsq)"
        )


def _written(column: str, view: Any, samples: int) -> str:
    """A column as `observe` takes it."""
    return f"candidate({samples or view.samples})" if column == "candidate" else column


def _eyes(policy: Policy, view: Any) -> NDArray[Any]:
    """The `EYES` record, shape (1,), of a policy that acts in an environment."""
    shown = view.shown
    record = np.zeros(1, EYES)
    eyes = record[0]
    eyes["width"], eyes["rows"] = shown.width, shown.rows
    eyes["candidates"], eyes["ends"] = view.action == "candidate", view.action == "move"
    for name in COLUMNS_SEEN:
        eyes[name] = shown.place("class" if name == "klass" else name)
    for name in ("vacancy", "read", "work", "size", "sent_age", "neighbours"):  # if the rule asks
        if name not in policy.columns:
            eyes[name] = -1
    wanted = [name for name in CLASS_COLUMNS if name in policy.columns]
    eyes["shown_classes"] = len(wanted)
    eyes["class_jobs"][: len(wanted)] = [shown.place(name) for name in wanted]
    eyes["sorts"] = policy.parts.ordered
    if eyes["queue"] < 0:
        eyes["queue"] = shown.place("queue_probed")
    return record
