"""Pull-messages: who holds one, and what becomes of it (Stolyar, arXiv 1512.07873).

An idle server sends a message to a router. A message stands in the list of its router and pool; the
server's record says where its first one is, *entries* chained to it say the same of any further
ones. A message of a server is named by its entry, FIRST or NONE. A job that router r sends to a
server uses up r's message of it, whatever rule chose the server. What becomes of messages held
elsewhere when their idle server gets a job is the system's `message_fate`:

- ``withdraw``: taken back at once; idle <=> exactly one message out;
- ``keep``: it stays; a server has at most one out, so idling again meanwhile sends nothing;
- ``resend``: it stays; every idling sends; a router that already holds one absorbs the new one.
"""

from .access import aside, backlog, entry_of, held, inner, message_list, router, sent_since, server
from .layout import ENTRIES, HELD, KEEP, NETWORK, RESEND, WITHDRAW
from .random import below

FIRST, NONE = -1, -2


@inner
def note_room(w):
    """Say what must grow before one more message is sent, if anything."""
    if w.held_used + w.held_spare > w.held_room:
        w.need = HELD
    elif w.fate == RESEND and w.entries_free < 0 and w.entries_used == w.entries_room:
        w.need = ENTRIES


@inner
def _lengthen(w, records):
    """Move a full list to fresh places, twice as many."""
    room = 2 * records.room
    begin = w.held_used
    for k in range(records.count):
        here, there = held(w, records.begin + k), held(w, begin + k)
        there.time, there.server, there.entry = here.time, here.server, here.entry
    records.begin = begin
    records.room = room
    w.held_used += room
    if 2 * room > w.held_spare:
        w.held_spare = 2 * room
    note_room(w)


@inner
def _new_entry(w):
    """A fresh entry; storage must have room."""
    e = w.entries_free
    if e >= 0:
        w.entries_free = entry_of(w, e).next
    else:
        e = w.entries_used
        w.entries_used += 1
    note_room(w)
    return e


@inner
def _free_entry(w, e):
    """Give an entry back."""
    entry_of(w, e).next = w.entries_free
    w.entries_free = e


@inner
def message_at(w, r, i):
    """The message of server i that router r holds: an entry, FIRST or NONE."""
    s = server(w, i)
    if s.holder < 0:
        return NONE
    if s.holder == r:
        return FIRST
    if w.fate != RESEND:
        return NONE
    e = aside(w, i).further
    while e >= 0 and entry_of(w, e).router != r:
        e = entry_of(w, e).next
    return e if e >= 0 else NONE


@inner
def place_of(w, i, e):
    """Where message e of server i stands in its list."""
    return server(w, i).place if e < 0 else entry_of(w, e).place


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
    if w.fate == KEEP and s.holder >= 0:
        return
    r = _poorest_router(w)
    w.sent += 1
    if s.holder >= 0 and message_at(w, r, i) != NONE:
        w.absorbed += 1
        return
    records = message_list(w, r * w.n_pools + s.pool)
    if records.count == records.room:
        _lengthen(w, records)
    e = FIRST
    if s.holder < 0:
        s.holder, s.place = r, records.count
    else:
        e = _new_entry(w)
        record = entry_of(w, e)
        mine = aside(w, i)
        record.router, record.place, record.next = r, records.count, mine.further
        mine.further = e
    message = held(w, records.begin + records.count)
    message.time, message.server, message.entry = w.clock, i, e
    records.count += 1
    router(w, r).held += 1
    w.outstanding += 1
    if w.memory_on:
        sent_since(w, r * w.n_servers + i).jobs = 0
    if w.backlog_on:
        backlog(w, r * w.n_servers + i).jobs = 0


@inner
def _moved(w, message, place):
    """A message has come to another place of its list."""
    if message.entry < 0:
        server(w, message.server).place = place
    else:
        entry_of(w, message.entry).place = place


@inner
def _forget_first(w, i):
    """Server i has lost its first message: a further one, if there is any, becomes the first."""
    s = server(w, i)
    e = aside(w, i).further if w.fate == RESEND else -1
    if e < 0:
        s.holder = -1
        return
    record = entry_of(w, e)
    s.holder, s.place, aside(w, i).further = record.router, record.place, record.next
    records = message_list(w, s.holder * w.n_pools + s.pool)
    held(w, records.begin + s.place).entry = FIRST
    _free_entry(w, e)


@inner
def _forget_further(w, i, e):
    """Entry e leaves the chain of server i."""
    mine = aside(w, i)
    if mine.further == e:
        mine.further = entry_of(w, e).next
    else:
        before = mine.further
        while entry_of(w, before).next != e:
            before = entry_of(w, before).next
        entry_of(w, before).next = entry_of(w, e).next
    _free_entry(w, e)


@inner
def drop(w, i, e):
    """Message e of server i leaves its router's list; the list's last takes its place."""
    s = server(w, i)
    r = s.holder if e < 0 else entry_of(w, e).router
    place = place_of(w, i, e)
    records = message_list(w, r * w.n_pools + s.pool)
    records.count -= 1
    last, here = held(w, records.begin + records.count), held(w, records.begin + place)
    here.time, here.server, here.entry = last.time, last.server, last.entry
    _moved(w, here, place)
    if e < 0:
        _forget_first(w, i)
    else:
        _forget_further(w, i, e)
    router(w, r).held -= 1
    w.outstanding -= 1


@inner
def use(w, r, i):
    """Router r sends a job to server i: its message of i, if it holds one, is used up."""
    e = message_at(w, r, i)
    if e != NONE:
        drop(w, i, e)
        w.used += 1
        if w.memory_on:
            sent_since(w, r * w.n_servers + i).jobs = 0


@inner
def fills_idle(w, i):
    """A job has come to idle server i by other means than the use of its message."""
    if w.fate == WITHDRAW and server(w, i).holder >= 0:
        drop(w, i, FIRST)
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
