"""What happens next, and what it does.

`advance` runs events until the next decision: an arrival to place, or a resampling that has a
choice. `apply` carries a decision out.

Which completion is next depends on the sizes, what it does does not. Exponential sizes come from a
*uniformised* clock: every slot of every server has a potential completion at the rate of its speed,
whether it serves a job or not, and one at an empty slot is no event. Two policies with one seed
therefore see the same arrivals and the same service opportunities. Sizes that are *drawn* at
arrival are the same for all policies, and a tournament tree over the slots finds the next
completion (`service`). In *slotted* time each server completes a job in each slot with a fixed
probability. At equal times reads come first, then arrivals, then completions.
"""

import math

from .access import (
    aside,
    backlog,
    bin_of,
    bits,
    candidate_of,
    edge,
    finish,
    inner,
    job,
    job_class,
    last_probe,
    order,
    pool,
    prefetch_server,
    probed_at,
    router,
    sent_at,
    sent_since,
    sent_since_probe,
    sent_since_read,
    server,
    special,
    start_of,
    stream,
    tail,
    tick_row,
    trace_of,
    warm_of,
    work_of,
)
from .draws import begin_arrivals, draw, schedule_arrival
from .layout import (
    ARRIVAL,
    ARRIVALS,
    BINS,
    BINS_PER_OCTAVE_BITS,
    DECIDE,
    GIVEN,
    GROW,
    INVALID,
    LOWEST_OCTAVE,
    MIGRATION,
    NETWORK,
    NOTHING,
    PAUSE,
    RESAMPLE,
    SERVICE,
    SIZES,
    WARM,
)
from .messages import fills_idle, send, use
from .queues import append, backlog_now, count_present, free_job, has_room, is_full, new_job, remove
from .random import below, exponential, uniform
from .service import bring, enter, expected_response, job_at, job_in, seat_in, server_at, take_out

_BIN_SHIFT = 52 - BINS_PER_OCTAVE_BITS
_BIN_OFFSET = (1023 + LOWEST_OCTAVE) << BINS_PER_OCTAVE_BITS
_FAR = 50_000  # servers whose records do not fit a near cache
_PATIENCE = 4_000_000  # events after which `advance` lets Python look for Ctrl-C


# --- departures ---------------------------------------------------------------------------------
@inner
def depart(w, i, j):
    """Job j, just taken out of server i, is done."""
    arrived = job(w, j).arrived
    response = w.clock - arrived
    if w.drawn:
        size = work_of(w, j).brought
        if size > 0.0:
            w.slowdown_sum += response / size
    free_job(w, j)
    count_present(w, -1)
    w.departed += 1
    w.response_sum += response
    w.arrived_sum -= arrived
    if w.size_histogram > 0:
        k = (bits(response) >> _BIN_SHIFT) - _BIN_OFFSET
        bin_of(w, min(max(k, 0), BINS - 1)).count += 1
    if w.messages_on and server(w, i).length == 0:
        send(w, i)


@special("units_on", -1)
def seated(w, i, klass, seat):
    """Place in server i of its seat-th job of a class, -1 if it has no more than `seat` of them."""
    j = server(w, i).head
    place = 0
    while j >= 0:
        if job(w, j).klass == klass:
            if seat == 0:
                return place
            seat -= 1
        j = job(w, j).next
        place += 1
    return -1


@inner
def schedule_tick(w):
    """When the next potential completion comes, and where: row, server and place within it."""
    w.next_tick = w.clock + exponential(w, SERVICE) * w.tick_gap
    x = uniform(w, SERVICE) * w.tick_rate
    k = 0
    for other in range(1, w.n_ticks):
        k += x >= tick_row(w, other).rate_from
    row = tick_row(w, k)
    p = pool(w, row.pool)
    y = (x - row.rate_from) * row.per_rate
    i = min(int(y), p.servers - 1)
    w.tick_row = k
    w.tick_server = p.first + i
    prefetch_server(w, w.tick_server)
    w.tick_part = y - i


@inner
def tick(w):
    """A potential completion: does it complete a job?"""
    i, part = w.tick_server, w.tick_part
    row = tick_row(w, w.tick_row)
    schedule_tick(w)
    length = server(w, i).length
    if length == 0:
        return
    p = pool(w, row.pool)
    if w.shared and p.shares:
        depart(w, i, remove(w, i, min(int(part * length), length - 1)))
    elif w.units_on and row.klass >= 0:
        place = seated(w, i, row.klass, min(int(part * row.seats), row.seats - 1))
        if place >= 0:
            depart(w, i, remove(w, i, place))
    elif row.seats == 1:
        depart(w, i, remove(w, i, 0))
    else:
        place = min(int(part * row.seats), row.seats - 1)
        if place < length:
            depart(w, i, remove(w, i, place))


@special("drawn")
def complete(w):
    """The next completion, sizes being drawn."""
    who = finish(w, 1).who
    i, j = server_at(w, seat_in(who)), job_in(who)
    take_out(w, i, j)
    depart(w, i, j)


@special("slotted")
def slot(w):
    """In slotted time: does the next server complete a job in this slot? One server an event."""
    i = w.slot_server
    u = uniform(w, SERVICE)
    w.slot_server += 1
    if w.slot_server == w.n_servers:
        w.slot_server = 0
        w.next_tick = w.clock + 1.0
    s = server(w, i)
    if s.length > 0 and u < pool(w, s.pool).speed:
        depart(w, i, remove(w, i, 0))


@inner
def serve(w):
    """What happens at `next_tick`."""
    if w.drawn:
        complete(w)
    elif w.slotted:
        slot(w)
    else:
        tick(w)


# --- reads --------------------------------------------------------------------------------------
@inner
def schedule_other(w):
    """The earlier of the next resampling and the next read."""
    w.next_other = min(w.next_ring, w.next_read)


@special("read_interval")
def read_all(w):
    """All queues are read (2 n messages)."""
    for i in range(w.n_servers):
        aside(w, i).reading = server(w, i).length
    if w.read_memory_on:
        for k in range(w.n_routers * w.n_servers):
            sent_since_read(w, k).jobs = 0
    w.reads += 1
    w.read_at = w.clock
    w.probes += w.n_servers
    w.next_read = w.reads * w.read_interval
    schedule_other(w)


# --- resamplings --------------------------------------------------------------------------------
@special("migration_rate")
def schedule_ring(w):
    """When the next job resamples, the number in system being what it is now."""
    if w.present > 0:
        w.next_ring = w.clock + w.ring_hazard / (w.migration_rate * w.present)
    else:
        w.next_ring = math.inf
    w.ring_from = w.clock
    schedule_other(w)


@special("migration_rate")
def consume_ring(w):
    """Use up the hazard that has passed at the rate in force; call before `present` changes."""
    w.ring_hazard -= (w.clock - w.ring_from) * w.migration_rate * w.present
    w.ring_from = w.clock


@special("migration_rate", False)
def ring(w):
    """A uniformly chosen job resamples; True if that is a decision.

    The k-th job of each server that has k jobs: tails count them, so a uniform job is a uniform
    (server, height), found by height first.
    """
    w.ring_hazard = exponential(w, MIGRATION)
    left = below(w, MIGRATION, w.present)
    target = below(w, MIGRATION, w.n_servers)
    for p in range(w.n_pools):
        this = pool(w, p)
        for k in range(1, this.levels):
            count = tail(w, this.tails + k).servers
            if count == 0:
                break
            if left < count:
                w.source = order(w, this.first + left).server
                w.height = k - 1
                w.target = target
                if target == w.source:
                    return False
                there = server(w, target)
                if there.length < pool(w, there.pool).limit:
                    return True
                w.probes += w.ring_asks  # it is full: asked in vain
                return False
            left -= count
    return False


@special("migration_rate")
def migrate(w):
    """The resampling job moves from its source to its target, with its remaining work."""
    if w.drawn:
        j = job_at(w, w.source, w.height)
        take_out(w, w.source, j)
    else:
        j = remove(w, w.source, w.height)
    if server(w, w.target).length == 0:
        w.moved_to_idle += 1
        if w.messages_on:
            fills_idle(w, w.target)
    append(w, w.target, j)
    if w.drawn:
        enter(w, w.target, j)
    w.migrations += 1
    if w.messages_on and server(w, w.source).length == 0:
        send(w, w.source)


# --- arrivals -----------------------------------------------------------------------------------
@inner
def sample_candidates(w):
    """Servers sampled for this job, distinct unless the system replaces; an edge's two ends."""
    if w.n_edges > 0:
        ends = edge(w, below(w, ARRIVALS, w.n_edges))
        candidate_of(w, 0).server = ends.a
        candidate_of(w, 1).server = ends.b
        return
    for k in range(w.samples):
        fresh = False
        while not fresh:
            i = below(w, NETWORK, w.n_servers)
            fresh = True
            if not w.replace:
                for other in range(k):
                    if candidate_of(w, other).server == i:
                        fresh = False
            candidate_of(w, k).server = i


@inner
def note_answers(w):
    """The acting router remembers what the sampled servers answer."""
    for c in range(w.samples):
        i = candidate_of(w, c).server
        k = w.router * w.n_servers + i
        probed_at(w, k).time = w.clock
        last_probe(w, k).jobs = server(w, i).length
        sent_since_probe(w, k).jobs = 0


@inner
def expect_candidates(w):
    """Ask for the servers that the next job will sample, as far as the stream can tell."""
    if w.n_edges > 0:
        return
    x = stream(w, NETWORK)
    a, b, c, d = x.a, x.b, x.c, x.d
    for _ in range(w.samples):
        prefetch_server(w, below(w, NETWORK, w.n_servers))
    x.a, x.b, x.c, x.d = a, b, c, d


@inner
def arrive(w):
    """A job arrives: at which router, of which class and size, and when will the next one come?"""
    recorded = w.phase  # the job's place in the trace
    r = 0
    if w.trace_routers:
        r = int(trace_of(w, recorded).router)
    elif w.n_routers > 1:
        u = uniform(w, ARRIVALS)
        if w.equal_routers:
            r = int(u * w.n_routers)
        else:
            while r < w.n_routers - 1 and u >= router(w, r).weight_to:
                r += 1
    if w.plain_arrivals:
        w.next_arrival = w.clock + exponential(w, ARRIVALS) * w.arrival_gap
    else:
        schedule_arrival(w)
    w.router = r
    w.klass = 0
    if w.trace_classes:
        w.klass = trace_of(w, recorded).klass
    elif w.n_classes > 1:
        u = uniform(w, ARRIVALS)
        while w.klass < w.n_classes - 1 and u >= job_class(w, w.klass).share_to:
            w.klass += 1
    if w.drawn:
        unit = trace_of(w, recorded).work if w.trace_sizes else draw(w, SIZES, SERVICE)
        w.job_size = unit * job_class(w, w.klass).mean_size
    w.source = -1
    w.target = -1
    if w.samples > 0:
        sample_candidates(w)
        if w.probe_memory_on:
            note_answers(w)
        if w.n_servers >= _FAR:
            expect_candidates(w)


@inner
def place(w, i):
    """The arriving job is sent to server i."""
    w.arrivals += 1
    s = server(w, i)
    p = pool(w, s.pool)
    q = s.length
    w.found = q
    w.lost = 0
    kind = job_class(w, w.klass)
    kind.arrivals += 1
    if w.backlog_on:
        jobs = min(backlog_now(w, i) + 1.0, p.limit)
        backlog(w, w.router * w.n_servers + i).jobs = jobs
    if w.memory_on:
        k = w.router * w.n_servers + i
        sent_at(w, k).time = w.clock
        sent_since(w, k).jobs += 1
    if w.read_memory_on:
        sent_since_read(w, w.router * w.n_servers + i).jobs += 1
    if w.probe_memory_on:
        sent_since_probe(w, w.router * w.n_servers + i).jobs += 1
    if w.messages_on:
        if router(w, w.router).held == 0:
            w.empty_handed += 1
        use(w, w.router, i)
    if is_full(w, i):
        w.blocked += 1
        kind.blocked += 1
        w.lost = 1
        w.lost_weight += kind.weight
        w.expected_response = 0.0
        return
    if w.drawn:
        w.expected_response = expected_response(w, i)
    else:
        w.expected_response = (1.0 + max(q + 1 - p.slots, 0) * p.per_slot) * p.mean_service
        if w.slotted:  # a job served in its first slot leaves at once
            w.expected_response -= 1.0
    if q == 0:
        w.found_idle += 1
        if w.messages_on:
            fills_idle(w, i)
    elif q >= p.slots:
        w.waited += 1
    count_present(w, 1)
    join(w, i, new_job(w, w.clock, w.klass))
    w.arrived_sum += w.clock


@inner
def join(w, i, j):
    """The new job j, of size `w.job_size`, joins the tail of server i."""
    append(w, i, j)
    if w.drawn:
        bring(w, j, w.job_size)
        enter(w, i, j)


@inner
def refuse(w):
    """The arriving job is turned away (loss systems with units)."""
    kind = job_class(w, w.klass)
    w.arrivals += 1
    kind.arrivals += 1
    w.blocked += 1
    kind.blocked += 1
    w.lost = 1
    w.lost_weight += kind.weight
    w.expected_response = 0.0


# --- the two operations -------------------------------------------------------------------------
@inner
def advance(w):
    """Run events until the next decision. DECIDE, GROW (storage) or PAUSE (to look around)."""
    w.kind = NOTHING
    for _ in range(_PATIENCE):
        if w.need != NOTHING:
            return GROW
        w.events += 1
        if w.next_other <= min(w.next_arrival, w.next_tick):
            w.clock = w.next_other
            if w.next_read <= w.next_ring:
                read_all(w)
                continue
            choice = ring(w)
            schedule_ring(w)
            if choice:
                w.kind = RESAMPLE
                w.router = -1
                w.resamplings += 1
                return DECIDE
        elif w.next_tick < w.next_arrival:
            w.clock = w.next_tick
            if w.migration_rate > 0.0:
                consume_ring(w)
                serve(w)
                schedule_ring(w)
            else:
                serve(w)
        else:
            w.clock = w.next_arrival
            arrive(w)
            w.kind = ARRIVAL
            return DECIDE
    return PAUSE


@inner
def apply(w, i):
    """Carry out the decision: server i. DECIDE when done, GROW, or INVALID (no such server)."""
    refused = w.units_on and i == w.n_servers and w.kind == ARRIVAL
    if i < 0 or (i >= w.n_servers and not refused):
        return INVALID
    if refused:
        refuse(w)
        w.kind = NOTHING
        return DECIDE
    if w.kind == ARRIVAL:
        if not has_room(w, i):
            return GROW
        if w.migration_rate > 0.0:
            consume_ring(w)
            place(w, i)
            schedule_ring(w)
        else:
            place(w, i)
    elif w.kind == RESAMPLE:
        if i == w.target:
            if not has_room(w, i):
                return GROW
            migrate(w)
    w.kind = NOTHING
    return DECIDE


@inner
def begin(w):
    """Time 0: queue lengths as `start_mode` says, one message from each idle server.

    Arrays and scalars must be as `clear` leaves them. A start in law (WARM) draws each queue from
    its stationary law under speed-weighted random dispatch.
    """
    w.next_arrival = math.inf
    w.next_tick = math.inf
    if w.arrival_gap < math.inf:  # otherwise the system is closed
        if w.plain_arrivals:
            w.next_arrival = exponential(w, ARRIVALS) * w.arrival_gap
        else:
            begin_arrivals(w)
        if w.slotted:
            w.next_tick = 0.0
        elif not w.drawn:
            schedule_tick(w)
    w.next_read = 0.0 if w.read_interval < math.inf else math.inf
    w.next_ring = math.inf
    schedule_other(w)
    for i in range(w.n_servers):
        length = 0
        if w.start_mode == GIVEN:
            length = start_of(w, i).length
        elif w.start_mode == WARM:
            p = pool(w, server(w, i).pool)
            u = uniform(w, NETWORK)
            while length < p.warm_levels - 1 and u >= warm_of(w, p.warm + length).below:
                length += 1
        start_of(w, i).length = length


@inner
def fill(w):
    """Put the jobs of the start into the servers and send the first messages."""
    for i in range(w.n_servers):
        for _ in range(start_of(w, i).length):
            if w.drawn:
                w.job_size = draw(w, SIZES, SERVICE) * job_class(w, 0).mean_size
            join(w, i, new_job(w, 0.0, 0))
            w.present += 1
            w.started += 1
        if start_of(w, i).length > 0:
            w.started_busy += 1
        elif w.messages_on:
            send(w, i)
    if w.migration_rate > 0.0:
        w.ring_hazard = exponential(w, MIGRATION)
        schedule_ring(w)
    if w.read_interval < math.inf:
        read_all(w)


# --- balance --------------------------------------------------------------------------------------
@inner
def is_balanced(w):
    """Whether no job could gain strictly by moving: equal speeds, longest - shortest <= 1."""
    worst_here = 0.0
    best_there = math.inf
    for p in range(w.n_pools):
        this = pool(w, p)
        worst_here = max(worst_here, this.longest / this.speed)
        if this.shortest < this.limit:  # there is room in the pool
            best_there = min(best_there, (this.shortest + 1) / this.speed)
    return worst_here <= best_there * (1.0 + 1e-12)
