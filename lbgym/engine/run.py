"""The compiled entries: begin a trajectory, step it, or run it with a rule in one loop.

`Variants` are compiled once for every system and once more for each sort of plain systems
(`layout.PLAIN`), which drops what these never need.
"""

from numba import types

from .access import Variants, any_world, entry, inner, lean_world, rule_type, sized_world, world
from .events import advance, apply, begin, fill, is_balanced
from .layout import ARRIVAL, BALANCED, DECIDE, DONE, GROW, NOTHING, PAUSE
from .messages import note_room
from .start import clear, has_start_room

_EVENTS_PER_CALL = 4_000_000


@inner
def restart(w, address):
    """Clear a running system and draw the first times and the queue lengths of time 0."""
    clear(w, address)
    begin(w)


@inner
def fill_servers(w):
    """Put the jobs of time 0 into the servers and send the first messages; GROW without room."""
    if not has_start_room(w):
        return GROW
    fill(w)
    return DONE


@entry(types.void(types.int64))
def clear_world(address):
    """`clear`."""
    clear(world(address), address)


@entry(types.void(types.int64))
def _restart_any(address):
    restart(world(address), address)


@entry(types.void(types.int64))
def _restart_lean(address):
    restart(lean_world(address), address)


@entry(types.void(types.int64))
def _restart_sized(address):
    restart(sized_world(address), address)


@entry(types.int64(types.int64))
def _fill_any(address):
    return fill_servers(world(address))


@entry(types.int64(types.int64))
def _fill_lean(address):
    return fill_servers(lean_world(address))


@entry(types.int64(types.int64))
def _fill_sized(address):
    return fill_servers(sized_world(address))


@entry(types.void(types.int64))
def note_message_room(address):
    """`note_room`."""
    note_room(world(address))


@entry(types.boolean(types.int64))
def balanced(address):
    """Whether no job of a closed system could gain by moving."""
    return is_balanced(world(address))


@entry(types.int64(types.int64))
def next_decision(address):
    """Run events until the next decision."""
    return advance(world(address))


@entry(types.int64(types.int64, types.int64))
def carry_out(address, action):
    """Carry out the pending decision."""
    return apply(world(address), action)


@entry(types.int64(types.int64, rule_type))
def ask(address, rule):
    """What a rule says to the pending decision."""
    return rule(world(address))


@entry(types.int64(types.int64, rule_type))
def run_to_balance(address, move_rule):
    """Move jobs of a closed system until none could gain: BALANCED, or GROW, INVALID, PAUSE."""
    w = world(address)
    last_event = w.events + _EVENTS_PER_CALL
    while not is_balanced(w):
        if w.kind == NOTHING:
            status = advance(w)
            if status != DECIDE:
                return status
        if not w.chosen:
            w.action = move_rule(w)
            w.chosen = 1
        status = apply(w, w.action)
        if status != DECIDE:
            return status
        w.chosen = 0
        if w.events > last_event:
            return PAUSE
    return BALANCED


@inner
def _run(w, place_rule, move_rule, arrivals):
    """Advance, decide and apply until so many jobs have been placed or lost.

    DONE, GROW, INVALID or PAUSE; call again to go on. A run rests at its next decision, as an
    environment does. A decision that is made but cannot be carried out for want of room is kept
    (`w.chosen`) and not made twice.
    """
    last_event = w.events + _EVENTS_PER_CALL
    while True:
        if w.kind == NOTHING:
            status = advance(w)
            if status != DECIDE:
                return status
        if w.arrivals >= arrivals:
            return DONE
        if not w.chosen:
            if w.kind == ARRIVAL:
                w.action = place_rule(any_world(w))
            else:
                w.action = move_rule(any_world(w))
            w.chosen = 1
        status = apply(w, w.action)
        if status != DECIDE:
            return status
        w.chosen = 0
        if w.events > last_event:
            return PAUSE


@entry(types.int64(types.int64, rule_type, rule_type, types.int64))
def _run_any(address, place_rule, move_rule, arrivals):
    return _run(world(address), place_rule, move_rule, arrivals)


@entry(types.int64(types.int64, rule_type, rule_type, types.int64))
def _run_lean(address, place_rule, move_rule, arrivals):
    return _run(lean_world(address), place_rule, move_rule, arrivals)


@entry(types.int64(types.int64, rule_type, rule_type, types.int64))
def _run_sized(address, place_rule, move_rule, arrivals):
    return _run(sized_world(address), place_rule, move_rule, arrivals)


restart_trajectory = Variants((_restart_any, _restart_lean, _restart_sized))  # (address)
fill_trajectory = Variants((_fill_any, _fill_lean, _fill_sized))  # (address): `fill_servers`
run_until = Variants((_run_any, _run_lean, _run_sized))  # (address, two rules, arrivals): `_run`
