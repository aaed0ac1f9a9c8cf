"""Pull-messages: who holds one, and what becomes of it (Stolyar, arXiv 1512.07873).

An idle server sends a message to a router. A message is an *entry*, chained to its server and
standing in the list of its router and pool. A job that router r sends to a server uses up r's
message of it, whatever rule chose the server. What becomes of messages held elsewhere when their
idle server gets a job is the system's `message_fate`:

- ``withdraw``: taken back at once; idle <=> exactly one message out;
- ``keep``: it stays; a server has at most one out, so idling again meanwhile sends nothing;
- ``resend``: it stays; every idling sends; a router that already holds one absorbs the new one.
"""

from .access import entry_of, held, inner, message_list, router, sent_since, server, since
from .layout import ENTRIES, HELD, KEEP, NETWORK, WITHDRAW
from .random import below


@inner
def room_for_message(w):
    """Whether storage has room for one more message; else says what must grow."""
    if w.held_used + w.held_spare > w.held_room:
        w.need = HELD
        return False
    if w.entries_free < 0 and w.entries_used == w.entries_room:
        w.need = ENTRIES
        return False
    return True


@inner
def _lengthen(w, records):
    """Move a full list to fresh places, twice as many."""
    room = 2 * records.room
    begin = w.held_used
    for k in range(records.count):
        here, there = held(w, records.begin + k), held(w, begin + k)
        there.entry, there.server = here.entry, here.server
    records.begin = begin
    records.room = room
    w.held_used += room
    if 2 * room > w.held_spare:
        w.held_spare = 2 * room


@inner
def entry_at(w, r, i):
    """The message of server i that router r holds, -1 if none."""
    e = server(w, i).message
    while e >= 0 and entry_of(w, e).router != r:
        e = entry_of(w, e).next
    return e


@inner
def _poorest_router(w):
    """Of some routers sampled afresh the one that holds fewest messages, ties uniform."""
    d = w.router_samples
    if d <= 1:
        return below(w, NETWORK, w.n_routers)
    # Selection sampling keeps each d-subset equally likely without storing it.
    best, fewest, ties, wanted = -1, 0, 0, d
    for r in range(w.n_routers):
        if below(w, NETWORK, w.n_routers - r) < wanted:
            wanted -= 1
            count = router(w, r).held
            if best < 0 or count < fewest:
                best, fewest, ties = r, count, 1
            elif count == fewest:
                ties += 1
                if below(w, NETWORK, ties) == 0:
                    best = r
    w.probes += d
    return best


@inner
def send(w, i):
    """Server i has become idle: it sends its message. Storage must have room."""
    s = server(w, i)
    if w.fate == KEEP and s.message >= 0:
        return
    r = _poorest_router(w)
    w.sent += 1
    if s.message >= 0 and entry_at(w, r, i) >= 0:
        w.absorbed += 1
        return
    records = message_list(w, r * w.n_pools + s.pool)
    if records.count == records.room:
        _lengthen(w, records)
    e = w.entries_free
    if e >= 0:
        w.entries_free = entry_of(w, e).next
    else:
        e = w.entries_used
        w.entries_used += 1
    record = entry_of(w, e)
    record.server, record.router, record.position = i, r, records.count
    record.next = s.message
    s.message = e
    place = held(w, records.begin + records.count)
    place.entry, place.server = e, i
    records.count += 1
    router(w, r).held += 1
    w.outstanding += 1
    if w.memory_on:
        since(w, r * w.n_servers + i).time = w.clock
        sent_since(w, r * w.n_servers + i).jobs = 0


@inner
def drop(w, e):
    """Message e leaves its router's list and its server's chain."""
    record = entry_of(w, e)
    s = server(w, record.server)
    records = message_list(w, record.router * w.n_pools + s.pool)
    records.count -= 1
    last, place = held(w, records.begin + records.count), held(w, records.begin + record.position)
    place.entry, place.server = last.entry, last.server
    entry_of(w, last.entry).position = record.position
    if s.message == e:
        s.message = record.next
    else:
        before = s.message
        while entry_of(w, before).next != e:
            before = entry_of(w, before).next
        entry_of(w, before).next = record.next
    record.next = w.entries_free
    w.entries_free = e
    router(w, record.router).held -= 1
    w.outstanding -= 1


@inner
def use(w, r, i):
    """Router r sends a job to server i: its message of i, if it holds one, is used up."""
    e = server(w, i).message
    if e >= 0:
        e = entry_at(w, r, i)
        if e >= 0:
            drop(w, e)
            w.used += 1
            if w.memory_on:
                sent_since(w, r * w.n_servers + i).jobs = 0


@inner
def fills_idle(w, i):
    """A job has come to idle server i by other means than the use of its message."""
    if w.fate == WITHDRAW and server(w, i).message >= 0:
        drop(w, server(w, i).message)
        w.withdrawn += 1


@inner
def sender_at(w, r, position):
    """Who sent the message at a position of router r's list (its pools' lists one after another);
    -1 if there is none."""
    first = r * w.n_pools
    for p in range(w.n_pools):
        records = message_list(w, first + p)
        if position < records.count:
            return held(w, records.begin + position).server
        position -= records.count
    return -1
