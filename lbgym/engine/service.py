"""Service of jobs whose sizes are drawn: who is served, until when, and how much work is left.

Every slot of a server is a *seat*, and a tournament tree over all seats knows the next completion;
the seats that are taken come first. A server that shares its speed has one seat, for the job that
will be done next: each of its jobs has received the same service since the server was last idle
(`attained`), so it is done when that reaches a value fixed when it joined, and a skew heap keeps
the least of these (Sleator and Tarjan 1986). Joining, leaving and moving cost O(log).
"""

import math

from .access import (
    finish,
    inner,
    job,
    pool,
    prefetch_finish,
    prefetch_job,
    prefetch_server,
    remains_of,
    seat_of,
    server,
    service_of,
    special,
    work_of,
)
from .queues import shorten

# Of many servers all lies far apart in memory. What a completion will touch is asked for as soon as
# it wins its part of the tournament, one of 2^_SOON; the job behind, which the record of the job
# done names, when it wins one of 2^_NEXT.
_SOON, _NEXT = 7, 4
_FAR_NODES = 5  # above a leaf: those nearer to the root are in use all the time


# --- the tournament -------------------------------------------------------------------------------
@inner
def seat_in(who):
    """The seat that a node names."""
    return who & 0xFFFFFFFF


@inner
def job_in(who):
    """The job that a node names, -1 if none."""
    return who >> 32


@inner
def server_at(w, seat):
    """Whose seat it is."""
    return int(seat_of(w, seat).server) if w.size_seats > 0 else seat


@inner
def _leaf(w, seat):
    """The node of a seat."""
    return finish(w, w.n_seats + seat)


@inner
def _ask_for_job(w, who):
    """Ask for what the completion that a node names will touch."""
    seat = seat_in(who)
    prefetch_server(w, server_at(w, seat))
    prefetch_job(w, job_in(who))
    for up in range(_FAR_NODES):
        prefetch_finish(w, (w.n_seats + seat) >> up)


@inner
def _ask_for_next(w, who):
    """Ask for the job that is behind the one that a node names."""
    if who >= 0:
        prefetch_job(w, job(w, job_in(who)).next)


@inner
def _set_finish(w, seat, time, j):
    """The completion at a seat comes at `time`, that of job j."""
    k = w.n_seats + seat
    leaf = finish(w, k)
    leaf.time = time
    leaf.who = int(j) << 32 | int(seat)  # one number, so that it is copied without a branch
    while k > 1:
        left, right = finish(w, k & -2), finish(w, k | 1)
        later = right.time < left.time  # at equal times the left comes first
        best = right.time if later else left.time
        who = right.who if later else left.who
        k >>= 1
        parent = finish(w, k)
        if parent.time == best and parent.who == who:
            break
        parent.time = best
        parent.who = who
        if k >> _SOON == 1:
            _ask_for_job(w, who)
        elif k >> _NEXT == 1:
            _ask_for_next(w, who)
    w.next_tick = finish(w, 1).time


@inner
def parts(w):
    """Whether a job may be partly served and then wait: in a shared server, or when it moves."""
    return w.shared > 0 or w.migration_rate > 0.0


@inner
def bring(w, j, size):
    """The new job j is of that size."""
    work_of(w, j).brought = size
    if parts(w):
        remains_of(w, j).left = size


@inner
def _begun_with(w, j):
    """Work left of job j when its service last began, or will begin."""
    return remains_of(w, j).left if parts(w) else work_of(w, j).brought


@inner
def _occupy(w, seat, j, pace):
    """Job j is served at a seat from now on; returns until when."""
    work_of(w, j).seat = seat
    return w.clock + _begun_with(w, j) / pace


# --- sharing --------------------------------------------------------------------------------------
@inner
def _merged(w, a, b):
    """The root of two heaps made one."""
    root, last = -1, -1
    while a >= 0 and b >= 0:
        if remains_of(w, b).left < remains_of(w, a).left:
            a, b = b, a
        this = remains_of(w, a)
        this.above = last
        if last < 0:
            root = a
        else:
            remains_of(w, last).first = a
        last = a
        a = this.second
        this.second = this.first
    if a < 0:
        a = b
    if last < 0:
        return a
    remains_of(w, last).first = a
    if a >= 0:
        remains_of(w, a).above = last
    return root


@inner
def _without(w, root, j):
    """The root of a heap once job j has left it."""
    this = remains_of(w, j)
    rest = _merged(w, this.first, this.second)
    if rest >= 0:
        remains_of(w, rest).above = this.above
    if this.above < 0:
        return rest
    parent = remains_of(w, this.above)
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
    time = math.inf
    if root >= 0:
        s = server(w, i)
        ahead = max(remains_of(w, root).left - service_of(w, i).attained, 0.0)
        time = w.clock + ahead * s.length / pool(w, s.pool).pace
    _set_finish(w, seat, time, root)


@special("shared")
def _enter_shared(w, i, j, seat):
    s = server(w, i)
    _attain(w, i, s.length - 1)
    this = remains_of(w, j)
    this.left += service_of(w, i).attained
    this.first = -1
    this.second = -1
    this.above = -1
    s.waiting += this.left
    root = _merged(w, job_in(_leaf(w, seat).who), j)
    remains_of(w, root).above = -1
    _next_of_shared(w, i, seat, root)


@special("shared")
def _exit_shared(w, i, j, seat):
    s = server(w, i)
    _attain(w, i, s.length + 1)
    mine, this = service_of(w, i), remains_of(w, j)
    root = _without(w, job_in(_leaf(w, seat).who), j)
    s.waiting -= this.left
    this.left = max(this.left - mine.attained, 0.0)
    if s.length == 0:  # sums and differences begin afresh: no rounding piles up
        s.waiting = 0.0
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
        seat += s.length - 1
        _set_finish(w, seat, _occupy(w, seat, j, p.pace), j)
    else:
        work_of(w, j).seat = -1
        s.waiting += _begun_with(w, j)
        if p.seats > 1 and service_of(w, i).line < 0:
            service_of(w, i).line = j


@inner
def _stop_waiting(w, i, j, behind):
    """Job j, with `behind` behind it, waits no longer."""
    s = server(w, i)
    seats = pool(w, s.pool).seats
    if seats > 1 and service_of(w, i).line == j:
        service_of(w, i).line = behind
    s.waiting -= _begun_with(w, j)
    if s.length <= seats:  # nobody waits
        s.waiting = 0.0


@inner
def _free_seat(w, i, seat, p):
    """A seat of server i is free: the first that waits takes it, else the last seat moves there."""
    s = server(w, i)
    if s.length >= p.seats:
        j = service_of(w, i).line if p.seats > 1 else s.head
        _stop_waiting(w, i, j, job(w, j).next)
        time = _occupy(w, seat, j, p.pace)
    else:
        last = _first_seat(p, i) + s.length
        if last != seat:
            moved = _leaf(w, last)
            j = job_in(moved.who)
            work_of(w, j).seat = seat
            _set_finish(w, seat, moved.time, j)
        seat, time, j = last, math.inf, -1
    _set_finish(w, seat, time, j)


@special("drawn")
def take_out(w, i, j):
    """Job j leaves server i, done or not; `left` becomes its work left."""
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
    seat = work_of(w, j).seat
    if w.shared and p.shares:
        _exit_shared(w, i, j, _first_seat(p, i))
    elif seat < 0:
        _stop_waiting(w, i, j, behind)
    else:
        if parts(w):
            remains_of(w, j).left = max((_leaf(w, seat).time - w.clock) * p.pace, 0.0)
        _free_seat(w, i, seat, p)


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
    total = s.waiting
    if w.shared and p.shares:
        if s.length > 0:
            mine = service_of(w, i)
            since = (w.clock - mine.changed) * p.pace
            total = max(total - s.length * mine.attained - since, 0.0)
        return total
    first = _first_seat(p, i)
    for k in range(min(s.length, p.seats)):
        total += max((_leaf(w, first + k).time - w.clock) * p.pace, 0.0)
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
