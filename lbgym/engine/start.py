"""Time 0: a running system is cleared, and room is made for the jobs that it begins with."""

import math

from .access import (
    aside,
    backlog,
    finish,
    inner,
    integers,
    job_class,
    last_probe,
    message_list,
    order,
    pool,
    probed_at,
    router,
    sent_at,
    sent_since,
    sent_since_probe,
    sent_since_read,
    server,
    service_of,
    standing,
    start_of,
)
from .layout import (
    FIRST_MOVING,
    JOBS,
    LEVELS,
    LIST_ROOM,
    NOBODY,
    NOTHING,
    PAST_MOVING,
    RECORDS,
    RESEND,
)

_TAIL, _BIN, _CELL, _CLASS = (
    RECORDS[name].itemsize for name in ("tails", "histogram", "scratch", "class_jobs")
)


@inner
def zero(address, size):
    """Set that many bytes to 0."""
    p = integers(address)
    for k in range(size >> 3):
        p[k] = 0


@inner
def clear(w, address):
    """Back to time 0, nobody in; streams, parameters and room stay. `address` is the world's."""
    zero(address + FIRST_MOVING, PAST_MOVING - FIRST_MOVING)
    zero(w.at_tails, w.size_tails * _TAIL)
    zero(w.at_histogram, w.size_histogram * _BIN)
    zero(w.at_scratch, w.size_scratch * _CELL)
    for i in range(w.n_servers):
        s = server(w, i)
        s.length, s.waiting = 0, 0.0
        s.head, s.tail, s.holder = -1, -1, -1
        if w.fate == RESEND:
            aside(w, i).further = -1
        if w.read_interval < math.inf:
            aside(w, i).reading = 0
        if w.sorted_on:
            order(w, i).server = i
            standing(w, i).position = i
        if w.units_on:
            standing(w, i).used = 0
    for p in range(w.n_pools):
        pool(w, p).shortest, pool(w, p).longest = 0, 0
    for k in range(w.n_classes):
        job_class(w, k).arrivals, job_class(w, k).blocked = 0, 0
    for r in range(w.n_routers):
        router(w, r).held = 0
    for k in range(w.size_sent_at):
        sent_at(w, k).time = -math.inf
        sent_since(w, k).jobs = 0
    for k in range(w.size_sent_since_read):
        sent_since_read(w, k).jobs = 0
    for k in range(w.size_backlog):
        backlog(w, k).jobs = 0
    for k in range(w.size_probed_at):
        probed_at(w, k).time = -math.inf
        last_probe(w, k).jobs = 0
        sent_since_probe(w, k).jobs = 0
    for k in range(w.size_lists):
        records = message_list(w, k)
        records.begin, records.count, records.room = LIST_ROOM * k, 0, LIST_ROOM
    zero(w.at_class_jobs, w.size_class_jobs * _CLASS)
    clear_service(w)
    w.held_used, w.held_spare = LIST_ROOM * w.size_lists, 2 * LIST_ROOM
    w.entries_used, w.entries_free = 0, -1
    w.jobs_used, w.jobs_free = 0, -1
    w.need = NOTHING
    w.idle = w.n_servers
    w.router, w.source, w.target = -1, -1, -1


@inner
def clear_service(w):
    """Nobody is served (drawn sizes)."""
    for i in range(w.size_services):
        this = service_of(w, i)
        this.line, this.attained, this.changed = -1, 0.0, 0.0
    for k in range(w.size_finishes):
        node = finish(w, k)
        node.time, node.who = math.inf, NOBODY


@inner
def has_start_room(w):
    """Whether storage has room for the queue lengths of time 0; else says what must grow."""
    total = 0
    for p in range(w.n_pools):
        this = pool(w, p)
        longest = 0
        for i in range(this.first, this.first + this.servers):
            total += start_of(w, i).length
            longest = max(longest, start_of(w, i).length)
        if longest + 2 >= this.levels:
            w.need, w.need_pool = LEVELS, p
            return False
    if total > w.jobs_room:
        w.need = JOBS
        return False
    return True
