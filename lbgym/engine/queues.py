"""Jobs in servers: storage, queue lengths, and who is short or long.

A server's jobs form a linked list in order of arrival. For each pool, ``tails`` counts the servers
with at least k jobs and integrates that count over time: it gives utilisation and the queue-length
distribution exactly, and, when servers are kept sorted (longest first), it is also where each
level begins - so the shortest queue is found, and the order kept, in O(1).
"""

from .access import (
    backlog,
    class_jobs,
    inner,
    job,
    job_class,
    order,
    pool,
    sent_at,
    server,
    special,
    standing,
    tail,
    work_of,
)
from .layout import JOBS, LEVELS


@inner
def has_room(w, i):
    """Whether storage has room for one more job at server i; else says what must grow."""
    if w.jobs_free < 0 and w.jobs_used == w.jobs_room:
        w.need = JOBS
        return False
    s = server(w, i)
    if s.length + 2 >= pool(w, s.pool).levels:  # the level above must exist too
        w.need = LEVELS
        w.need_pool = s.pool
        return False
    return True


@inner
def is_full(w, i):
    """Whether server i would lose a job of the acting class."""
    s = server(w, i)
    p = pool(w, s.pool)
    if w.units_on:
        return standing(w, i).used + job_class(w, w.klass).units > p.units
    return s.length >= p.limit


@inner
def vacancy(w, i):
    """Free units of server i; without units its free places."""
    s = server(w, i)
    p = pool(w, s.pool)
    return p.units - standing(w, i).used if w.units_on else p.limit - s.length


@inner
def backlog_now(w, i):
    """The jobs of the acting router that server i still has, if it works at its full rate."""
    k = w.router * w.n_servers + i
    p = pool(w, server(w, i).pool)
    done = p.slots * p.speed * (w.clock - sent_at(w, k).time)
    return max(backlog(w, k).jobs - done, 0.0)


@inner
def new_job(w, arrived, klass):
    """A fresh job record; storage must have room."""
    j = w.jobs_free
    if j >= 0:
        w.jobs_free = job(w, j).next
    else:
        j = w.jobs_used
        w.jobs_used += 1
    record = job(w, j)
    record.arrived = arrived
    record.klass = klass
    return j


@inner
def free_job(w, j):
    """Give a job record back."""
    job(w, j).next = w.jobs_free
    w.jobs_free = j


@inner
def _swap(w, i, place):
    """Put server i at `place` of the order, and whoever stood there where i stood."""
    mine = standing(w, i)
    other = order(w, place).server
    order(w, mine.position).server = other
    standing(w, other).position = mine.position
    order(w, place).server = i
    mine.position = place


@special("units_on")
def _count_class(w, i, klass, change):
    """The jobs of a class in server i change by `change`, and with them the units in use."""
    standing(w, i).used += change * job_class(w, klass).units
    c = class_jobs(w, i * w.n_classes + klass)
    c.jobs += change
    c.moment -= change * w.clock


@inner
def append(w, i, j):
    """Job j joins the tail of server i."""
    s = server(w, i)
    job(w, j).next = -1
    if w.drawn:
        work_of(w, j).previous = s.tail
    if s.tail < 0:
        s.head = j
    else:
        job(w, s.tail).next = j
    s.tail = j
    if w.units_on:
        _count_class(w, i, job(w, j).klass, 1)
    k = s.length + 1
    s.length = k
    p = pool(w, s.pool)
    t = tail(w, p.tails + k)
    if w.sorted_on:
        _swap(w, i, p.first + t.servers)
        if p.shortest == k - 1 and t.servers + 1 == p.servers:
            p.shortest = k
        if k > p.longest:
            p.longest = k
    t.moment -= w.clock
    t.servers += 1
    if k == 1:
        w.idle -= 1


@inner
def remove(w, i, place):
    """Take the job at `place` (0 the head) out of server i; returns the job. Not if `drawn`."""
    s = server(w, i)
    if place == 0:
        j = s.head
        s.head = job(w, j).next
        if s.head < 0:
            s.tail = -1
    else:
        before = s.head
        for _ in range(place - 1):
            before = job(w, before).next
        j = job(w, before).next
        behind = job(w, j).next
        job(w, before).next = behind
        if behind < 0:
            s.tail = before
    shorten(w, i, j)
    return j


@inner
def shorten(w, i, j):
    """Job j has been taken out of the list of server i: count that."""
    s = server(w, i)
    if w.units_on:
        _count_class(w, i, job(w, j).klass, -1)
    k = s.length
    s.length = k - 1
    p = pool(w, s.pool)
    t = tail(w, p.tails + k)
    t.moment += w.clock
    t.servers -= 1
    if w.sorted_on:
        _swap(w, i, p.first + t.servers)
        if k - 1 < p.shortest:
            p.shortest = k - 1
        if k == p.longest and t.servers == 0:
            p.longest = k - 1
    if k == 1:
        w.idle += 1


@inner
def count_present(w, change):
    """The number in system changes by `change`."""
    w.moment -= change * w.clock
    w.present += change
