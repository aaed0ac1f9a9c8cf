"""Service of jobs whose sizes are drawn: who is served, until when, and how much work is left.

Every slot of a server is a *seat*, and a tournament tree over all seats knows the next completion;
the seats that are taken come first. A server that shares its speed has one seat, for the job that
will be done next: each of its jobs has received the same service since the server was last idle
(`attained`), so it is done when that reaches a value fixed when it joined, and a skew heap keeps
the least of these (Sleator and Tarjan 1986). Joining, leaving and moving cost O(log).
"""

import math

from .access import finish, inner, job, pool, seat_of, server, service_of, special, work_of
from .queues import shorten


# --- the tournament -------------------------------------------------------------------------------
@inner
def _set_finish(w, seat, time):
    """The completion at a seat comes at `time`."""
    k = w.n_seats + seat
    leaf = finish(w, k)
    leaf.time = time
    leaf.seat = seat
    while k > 1:
        left, right = finish(w, k & -2), finish(w, k | 1)
        later = right.time < left.time  # at equal times the left comes first
        best = right.time if later else left.time
        which = right.seat if later else left.seat
        k >>= 1
        parent = finish(w, k)
        if parent.time == best and parent.seat == which:
            break
        parent.time = best
        parent.seat = which
    w.next_tick = finish(w, 1).time


@inner
def _occupy(w, seat, j, pace):
    """Job j is served at a seat from now on."""
    this = work_of(w, j)
    this.seat = seat
    seat_of(w, seat).job = j
    _set_finish(w, seat, w.clock + this.left / pace)


# --- sharing --------------------------------------------------------------------------------------
@inner
def _merged(w, a, b):
    """The root of two heaps made one."""
    root, last = -1, -1
    while a >= 0 and b >= 0:
        if work_of(w, b).left < work_of(w, a).left:
            a, b = b, a
        this = work_of(w, a)
        this.above = last
        if last < 0:
            root = a
        else:
            work_of(w, last).first = a
        last = a
        a = this.second
        this.second = this.first
    if a < 0:
        a = b
    if last < 0:
        return a
    work_of(w, last).first = a
    if a >= 0:
        work_of(w, a).above = last
    return root


@inner
def _without(w, root, j):
    """The root of a heap once job j has left it."""
    this = work_of(w, j)
    rest = _merged(w, this.first, this.second)
    if rest >= 0:
        work_of(w, rest).above = this.above
    if this.above < 0:
        return rest
    parent = work_of(w, this.above)
    if parent.first == j:
        parent.first = rest
    else:
        parent.second = rest
    return root


@inner
def _attain(w, i, jobs):
    """Bring the service attained up to date; so many jobs have shared the server."""
    mine = service_of(w, i)
    if jobs > 0:
        mine.attained += (w.clock - mine.changed) * pool(w, server(w, i).pool).pace / jobs
    mine.changed = w.clock


@inner
def _next_of_shared(w, i, seat, root):
    """The root is the next job done."""
    seat_of(w, seat).job = root
    time = math.inf
    if root >= 0:
        s = server(w, i)
        ahead = max(work_of(w, root).left - service_of(w, i).attained, 0.0)
        time = w.clock + ahead * s.length / pool(w, s.pool).pace
    _set_finish(w, seat, time)


@special("shared")
def _enter_shared(w, i, j, seat):
    _attain(w, i, server(w, i).length - 1)
    mine, this = service_of(w, i), work_of(w, j)
    this.left += mine.attained
    this.first = -1
    this.second = -1
    this.above = -1
    mine.waiting += this.left
    root = _merged(w, seat_of(w, seat).job, j)
    work_of(w, root).above = -1
    _next_of_shared(w, i, seat, root)


@special("shared")
def _exit_shared(w, i, j, seat):
    length = server(w, i).length
    _attain(w, i, length + 1)
    mine, this = service_of(w, i), work_of(w, j)
    root = _without(w, seat_of(w, seat).job, j)
    mine.waiting -= this.left
    this.left = max(this.left - mine.attained, 0.0)
    if length == 0:  # sums and differences begin afresh: no rounding piles up
        mine.waiting = 0.0
        mine.attained = 0.0
    _next_of_shared(w, i, seat, root)


# --- joining and leaving --------------------------------------------------------------------------
@inner
def _first_seat(p, i):
    return p.first_seat + (i - p.first) * p.seats


@special("drawn")
def enter(w, i, j):
    """Job j, with its work left, has joined the tail of server i."""
    s = server(w, i)
    p = pool(w, s.pool)
    seat = _first_seat(p, i)
    if w.shared and p.shares:
        _enter_shared(w, i, j, seat)
    elif s.length <= p.seats:
        _occupy(w, seat + s.length - 1, j, p.pace)
    else:
        mine, this = service_of(w, i), work_of(w, j)
        this.seat = -1
        mine.waiting += this.left
        if mine.line < 0:
            mine.line = j


@inner
def _stop_waiting(w, i, j, behind):
    """Job j, with `behind` behind it, waits no longer."""
    mine = service_of(w, i)
    if mine.line == j:
        mine.line = behind
    mine.waiting -= work_of(w, j).left
    if mine.line < 0:
        mine.waiting = 0.0


@inner
def _free_seat(w, i, seat, first, seats, pace):
    """A seat of server i is free: the first that waits takes it, else the last seat moves there."""
    next_one = service_of(w, i).line
    if next_one >= 0:
        _stop_waiting(w, i, next_one, job(w, next_one).next)
        _occupy(w, seat, next_one, pace)
        return
    last = first + server(w, i).length
    if last != seat:
        j = seat_of(w, last).job
        work_of(w, j).seat = seat
        seat_of(w, seat).job = j
        _set_finish(w, seat, finish(w, w.n_seats + last).time)
    seat_of(w, last).job = -1
    _set_finish(w, last, math.inf)


@special("drawn")
def take_out(w, i, j):
    """Job j leaves server i, done or not; `left` is its work left."""
    s = server(w, i)
    before, behind = work_of(w, j).previous, job(w, j).next
    if before < 0:
        s.head = behind
    else:
        job(w, before).next = behind
    if behind < 0:
        s.tail = before
    else:
        work_of(w, behind).previous = before
    shorten(w, i, j)
    p = pool(w, s.pool)
    first = _first_seat(p, i)
    this = work_of(w, j)
    if w.shared and p.shares:
        _exit_shared(w, i, j, first)
    elif this.seat < 0:
        _stop_waiting(w, i, j, behind)
    else:
        this.left = max((finish(w, w.n_seats + this.seat).time - w.clock) * p.pace, 0.0)
        _free_seat(w, i, this.seat, first, p.seats, p.pace)


@special("migration_rate", -1)
def job_at(w, i, place):
    """The job at a place of server i, 0 the head."""
    j = server(w, i).head
    for _ in range(place):
        j = job(w, j).next
    return j


# --- work -----------------------------------------------------------------------------------------
@special("drawn", 0.0)
def work_left(w, i):
    """Work of the jobs in server i that is not yet done."""
    s = server(w, i)
    p = pool(w, s.pool)
    mine = service_of(w, i)
    total = mine.waiting
    if w.shared and p.shares:
        if s.length > 0:
            since = (w.clock - mine.changed) * p.pace
            total = max(total - s.length * mine.attained - since, 0.0)
        return total
    first = w.n_seats + _first_seat(p, i)
    for k in range(min(s.length, p.seats)):
        total += max((finish(w, first + k).time - w.clock) * p.pace, 0.0)
    return total


@special("watched", 0.0)
def expected_response(w, i):
    """Response time of the arriving job in server i by the work left there.

    Exact under first come first served with one slot; with several, work left over slots stands for
    the wait, and sharing is not foreseen.
    """
    s = server(w, i)
    p = pool(w, s.pool)
    ahead = work_left(w, i) / p.seats if s.length >= p.seats else 0.0
    return (ahead + w.job_size) / p.pace
