"""Where everything is: the table of every array and field of a running system.

A running system is a handful of structured arrays, one record per thing, and one record, the
*world* ``w``, that holds every scalar and the addresses of the arrays. Compiled functions take
``w`` alone and reach a record through an accessor (`lbgym.engine.access`): ``server(w, 3).length``.

Times are in units of the mean service time of a speed-1 server; ``-1`` marks "none" in an index.
"""

from __future__ import annotations

import numpy as np

# --- arrays: name -> (accessor, length, fields) ------------------------------------------------
# Each field is (name, dtype, meaning).
ARRAYS: dict[str, tuple[str, str, list[tuple[str, str, str]]]] = {
    "servers": (
        "server",
        "n_servers",
        [
            ("length", "i4", "queue length: jobs in the server, those in service included"),
            ("pool", "i4", "its pool"),
            ("head", "i4", "its first job, -1 if idle"),
            ("tail", "i4", "its last job, -1 if idle"),
            ("holder", "i4", "router that holds its first pull-message, -1 if none is out"),
            ("place", "i4", "where that stands in the router's list"),
            ("waiting", "f8", "work of its jobs that wait; sharing: sum of `left` of all its jobs"),
        ],
    ),
    # What few systems need to know of a server lies apart, so that a record above has 32 bytes.
    "standings": (
        "standing",
        "n_servers",
        [
            ("position", "i4", "where it stands in `order` (only if `sorted_on`)"),
            ("used", "i4", "units its jobs occupy (only if `units_on`)"),
        ],
    ),
    "asides": (
        "aside",
        "n_servers",
        [
            ("reading", "i4", "queue length at the last read (only with a read interval)"),
            ("further", "i4", "first entry of its further messages, -1 none (only fate resend)"),
        ],
    ),
    "pools": (
        "pool",
        "n_pools",
        [
            ("first", "i8", "its first server"),
            ("servers", "i8", "number of servers"),
            ("speed", "f8", "jobs per unit time of each slot: speed over mean size"),
            ("mean_service", "f8", "1 / speed"),
            ("per_slot", "f8", "1 / slots"),
            ("limit", "i8", "most jobs a server may hold (NO_LIMIT: infinite)"),
            ("slots", "i8", "jobs served at once by a server"),
            ("shares", "i8", "1: processor sharing, 0: first come first served"),
            ("units", "i8", "units a server has (only if `units_on`)"),
            ("speed_to", "f8", "sum of speeds over the servers up to and with this pool"),
            ("tails", "i8", "its row in `tails`"),
            ("levels", "i8", "room of that row: queue lengths 0 .. levels - 1"),
            ("shortest", "i8", "smallest queue length in the pool (only if `sorted_on`)"),
            ("longest", "i8", "largest queue length in the pool (only if `sorted_on`)"),
            ("warm", "i8", "its row in `warm`"),
            ("warm_levels", "i8", "length of that row"),
            ("pace", "f8", "work per unit time of each slot"),
            ("seats", "i8", "jobs served at once that have a clock of their own (sharing: 1)"),
            ("first_seat", "i8", "seat 0 of its first server"),
        ],
    ),
    "ticks": (
        "tick_row",
        "n_ticks",
        [
            ("rate_from", "f8", "potential completions per unit time of earlier rows"),
            ("per_rate", "f8", "servers per unit of that rate within the row"),
            ("pool", "i8", "whose servers tick"),
            ("klass", "i8", "whose jobs complete, -1 any"),
            ("seats", "i8", "potential completions of a server come from so many seats"),
        ],
    ),
    "classes": (
        "job_class",
        "n_classes",
        [
            ("share_to", "f8", "share of the arrivals of classes up to and with this one"),
            ("units", "i8", "units a job needs"),
            ("weight", "f8", "what losing a job counts"),
            ("mean_size", "f8", "mean size of a job"),
            ("arrivals", "i8", "jobs that arrived"),
            ("blocked", "i8", "jobs lost"),
        ],
    ),
    "class_jobs": (  # index server * n_classes + class; only with units
        "class_jobs",
        "n_servers * n_classes",
        [
            ("jobs", "i8", "jobs of the class in the server"),
            ("moment", "f8", "times of departures less times of arrivals, summed: see `tails`"),
        ],
    ),
    "edges": ("edge", "n_edges", [("a", "i4", "one end"), ("b", "i4", "the other")]),
    "routers": (
        "router",
        "n_routers",
        [
            ("held", "i8", "pull-messages it holds"),
            ("weight_to", "f8", "share of the arrivals of routers up to and with this one"),
        ],
    ),
    "lists": (  # index router * n_pools + pool
        "message_list",
        "n_routers * n_pools",
        [
            ("begin", "i8", "where it starts in `held`"),
            ("count", "i8", "messages in it"),
            ("room", "i8", "messages it has room for"),
        ],
    ),
    "held": (
        "held",
        "room",
        [
            ("time", "f8", "when it came"),
            ("server", "i4", "who sent it"),
            ("entry", "i4", "its entry, -1 if it is the server's first"),
        ],
    ),
    "entries": (  # a server's pull-messages beyond its first
        "entry",
        "room",
        [
            ("router", "i4", "the router that holds it"),
            ("place", "i4", "where it stands in its list"),
            ("next", "i4", "next entry of the same server, or next free entry"),
        ],
    ),
    "jobs": (
        "job",
        "room",
        [
            ("arrived", "f8", "when it arrived"),
            ("next", "i4", "the job behind it in its server, or the next free job"),
            ("klass", "i4", "its class"),
        ],
    ),
    "remains": (  # index as jobs; only if jobs may be partly served: see `service.parts`
        "remains_of",
        "room",
        [
            ("left", "f8", "work left when its service last began; sharing: attained when done"),
            ("first", "i4", "a child in its server's heap, ordered by `left` (sharing)"),
            ("second", "i4", "the other child"),
            ("above", "i4", "its parent, -1 the root"),
        ],
    ),
    "services": (  # only if `drawn` and some server shares or has several seats
        "service_of",
        "n_servers",
        [
            ("attained", "f8", "service each job got since the server was idle (sharing)"),
            ("changed", "f8", "when that was brought up to date"),
            ("line", "i4", "the first job that waits, -1 if none (several seats)"),
        ],
    ),
    "seats": (  # only if some server has none or several
        "seat_of",
        "n_seats",
        [("server", "i4", "its server")],
    ),
    "finishes": (  # a tournament: node k has children 2k and 2k + 1, seats are the last n_seats;
        "finish",  # a server's seats that are taken come first
        "2 * n_seats",
        [
            ("time", "f8", "earliest completion below, inf if none"),
            ("who", "i8", "its seat + 2^32 x the job served there (sharing: the next to be done)"),
        ],
    ),
    "laws": (  # SIZES, GAPS
        "law_of",
        "2",
        [
            ("code", "i8", "which law: a key of LAW_CODES"),
            ("a", "f8", "parameters: see `draws.draw`"),
            ("b", "f8", ""),
            ("c", "f8", ""),
            ("begin", "i8", "its part of `law_values`"),
            ("count", "i8", "length of that part"),
        ],
    ),
    "law_values": ("law_value", "any", [("x", "f8", "value or P(<= it)"), ("y", "f8", "mean")]),
    "phases": (  # of the arrival process
        "phase_of",
        "n_phases",
        [
            ("rate", "f8", "arrival epochs per unit time"),
            ("leave", "f8", "rate at which the phase ends (MMPP)"),
            ("until", "f8", "time within the period at which it ends (piecewise)"),
        ],
    ),
    "jumps": (  # index phase * n_phases + next phase; row n_phases: the first phase
        "jump",
        "any",
        [("below", "f8", "probability of a jump to this or an earlier phase")],
    ),
    "batch_below": ("batch_below", "n_batches", [("p", "f8", "P(batch of at most k + 1 jobs)")]),
    "trace": (
        "trace_of",
        "n_trace",
        [
            ("time", "f8", "from the trace's first job"),
            ("work", "f8", "its size, of mean 1"),
            ("klass", "i4", "its class"),
            ("router", "i4", "its router"),
        ],
    ),
    "tails": (
        "tail",
        "room",
        [
            ("servers", "i8", "servers of the pool that hold at least k jobs"),
            (
                "moment",
                "f8",
                "times at which it fell less times at which it rose, summed: its "
                "time integral is servers x clock + moment",
            ),
        ],
    ),
    "order": ("order", "n_servers", [("server", "i4", "servers of a pool, longest first")]),
    # What routers remember, index router * n_servers + server; one array a fact, so that an
    # observation reads a router's row in one sweep.
    "sent_at": (
        "sent_at",
        "n_routers * n_servers",
        [("time", "f8", "when this router last sent a job there, -inf if never")],
    ),
    "sent_since": (
        "sent_since",
        "n_routers * n_servers",
        [("jobs", "f4", "jobs sent there since the server's message last came or was used")],
    ),
    "sent_since_read": (
        "sent_since_read",
        "n_routers * n_servers",
        [("jobs", "f4", "jobs sent there since the last read (only if `read_memory_on`)")],
    ),
    "backlog": (
        "backlog",
        "n_routers * n_servers",
        [("jobs", "f4", "`backlog_now` after the last job sent there (only if `backlog_on`)")],
    ),
    "probed_at": (
        "probed_at",
        "n_routers * n_servers",
        [("time", "f8", "when this router last probed it, -inf if never (if `probe_memory_on`)")],
    ),
    "last_probe": (
        "last_probe",
        "n_routers * n_servers",
        [("jobs", "f4", "its queue length then, 0 if never")],
    ),
    "sent_since_probe": (
        "sent_since_probe",
        "n_routers * n_servers",
        [("jobs", "f4", "jobs sent there since then")],
    ),
    "candidates": ("candidate", "samples", [("server", "i4", "a server sampled for this job")]),
    "histogram": ("bin", "BINS", [("count", "i8", "departed jobs with such a response time")]),
    "streams": (
        "stream",
        "STREAMS",
        [("a", "u8", "xoshiro256++"), ("b", "u8", ""), ("c", "u8", ""), ("d", "u8", "")],
    ),
    "layers": (
        "layer",
        "257",
        [("edge", "f8", "right edge of a layer of the ziggurat"), ("density", "f8", "e^-edge")],
    ),
    "params": ("param", "any", [("value", "f8", "an argument of the rule")]),
    "scratch": ("scratch", "any", [("value", "f8", "memory of the rule, zero at the start")]),
    "start": ("start", "n_servers", [("length", "i4", "queue length at time 0")]),
    "warm": ("warm", "any", [("below", "f8", "P(stationary queue length <= k)")]),
}

# What the record of a job has besides if sizes are drawn (`jobs` then is of the type `works`).
WORK = [
    ("brought", "f8", "its size"),
    ("previous", "i4", "the job before it in its server, -1 the head"),
    ("seat", "i4", "the seat where it is served, -1 while it waits"),
]

SCALARS: list[tuple[str, str, str]] = [
    # the system
    ("n_servers", "i8", "servers"),
    ("n_pools", "i8", "pools"),
    ("n_routers", "i8", "routers"),
    ("n_params", "i8", "arguments of the rule"),
    ("n_scratch", "i8", "memory cells of the rule"),
    ("arrival_gap", "f8", "mean time between arrivals, all routers"),
    ("plain_arrivals", "i8", "1: Poisson arrivals one by one in continuous time"),
    ("process", "i8", "how arrival epochs come: a value of PROCESS_CODES"),
    ("period", "f8", "of the arrival process or trace, inf: none"),
    ("amplitude", "f8", "of a sinusoidal rate"),
    ("angle", "f8", "phase of a sinusoidal rate at time 0"),
    ("n_phases", "i8", "phases of the arrival process"),
    ("batch_fixed", "i8", "jobs at each epoch, 0: their number is random"),
    ("batch_log", "f8", "log of the ratio of geometric batches, 0: by `batch_below`"),
    ("n_batches", "i8", "largest batch in `batch_below`"),
    ("n_trace", "i8", "jobs of the trace"),
    ("trace_sizes", "i8", "1: the trace has sizes"),
    ("trace_classes", "i8", "1: the trace has classes"),
    ("trace_routers", "i8", "1: the trace has routers"),
    ("drawn", "i8", "1: sizes are drawn at arrival, 0: memoryless"),
    ("slotted", "i8", "1: time runs in slots"),
    ("shared", "i8", "1: some pool shares its speed among its jobs"),
    ("n_seats", "i8", "seats of all servers, 0 unless `drawn`"),
    ("n_ticks", "i8", "rows of `ticks`"),
    ("n_classes", "i8", "classes of jobs"),
    ("n_edges", "i8", "edges of the graph, 0: a job may go to any server"),
    ("units_on", "i8", "1: servers hold units, jobs need units (loss with classes)"),
    ("read_interval", "f8", "time between reads of all queues, inf: queues are seen live"),
    ("tick_rate", "f8", "sum of slots x speed: potential completions per unit time"),
    ("tick_gap", "f8", "mean time between potential completions"),
    ("speed_sum", "f8", "sum of the servers' speeds"),
    ("migration_rate", "f8", "resamplings per job and unit time"),
    ("equal_routers", "i8", "1: every router receives the same share of arrivals"),
    ("fate", "i8", "what becomes of a message held elsewhere: WITHDRAW, KEEP, RESEND"),
    ("start_mode", "i8", "how a trajectory begins: EMPTY, WARM, GIVEN"),
    # what the rule or the observer wants kept
    ("messages_on", "i8", "1: idle servers send pull-messages"),
    ("sorted_on", "i8", "1: servers are kept sorted by queue length within their pool"),
    ("memory_on", "i8", "1: routers remember messages and sendings"),
    ("read_memory_on", "i8", "1: routers remember what they sent since the last read"),
    ("backlog_on", "i8", "1: routers reckon what is left of the jobs they sent"),
    ("probe_memory_on", "i8", "1: routers remember what sampled servers answered, and since"),
    ("watched", "i8", "1: `expected_response` is read even if sizes are drawn"),
    ("samples", "i8", "servers sampled for each job (0: none)"),
    ("replace", "i8", "1: sampled with replacement"),
    ("ring_asks", "i8", "1: a resampling job asks the server it draws"),
    ("router_samples", "i8", "routers an idle server samples to send to the poorest (JIQ-SQ)"),
    # time
    ("clock", "f8", "now"),
    ("next_arrival", "f8", "when the next job arrives"),
    ("next_tick", "f8", "when the next potential completion comes; sizes drawn: completion"),
    ("epoch", "f8", "when the last arrival epoch came or will come, in continuous time"),
    ("batch_left", "i8", "jobs still to come at `next_arrival` after its first"),
    ("phase", "i8", "phase of the arrival process, or the next job of the trace"),
    ("cycle", "i8", "periods of the arrival process completed"),
    ("slot_server", "i8", "the server whose completion in this slot comes next"),
    ("tick_row", "i8", "row of `ticks` of the next potential completion"),
    ("tick_server", "i8", "the server where it comes"),
    ("tick_part", "f8", "uniform on [0, 1): which of its jobs or seats"),
    ("next_ring", "f8", "when the next job resamples"),
    ("next_read", "f8", "when all queues are read next"),
    ("next_other", "f8", "the earlier of the two"),
    ("reads", "i8", "reads so far"),
    ("read_at", "f8", "time of the last read"),
    ("ring_hazard", "f8", "unit-rate hazard left until then"),
    ("ring_from", "f8", "when that hazard was last consumed"),
    # the pending decision
    ("kind", "i8", "NOTHING, ARRIVAL or RESAMPLE"),
    ("router", "i8", "router of the arriving job (-1 at a resampling)"),
    ("klass", "i8", "class of the arriving job"),
    ("job_size", "f8", "size of the arriving job, 0 unless `drawn`"),
    ("source", "i8", "server of the resampling job (-1 at an arrival)"),
    ("target", "i8", "server it sampled (-1 at an arrival)"),
    ("height", "i8", "place of the resampling job in its server, 0 the head"),
    ("action", "i8", "the server chosen"),
    ("chosen", "i8", "1: `action` is chosen but not yet carried out"),
    # the last decision
    ("found", "i8", "jobs the placed job found in its server"),
    ("lost", "i8", "1: the job was blocked"),
    ("lost_weight", "f8", "sum of the weights of the lost jobs, since time 0"),
    ("expected_response", "f8", "expected response time of the placed job, 0 if lost"),
    # counters since time 0
    ("moment", "f8", "of the number in system: its time integral is present x clock + moment"),
    ("present", "i8", "jobs in the system"),
    ("idle", "i8", "idle servers"),
    ("arrivals", "i8", "jobs that arrived and were placed or lost"),
    ("blocked", "i8", "jobs lost"),
    ("waited", "i8", "accepted jobs that did not start service at once"),
    ("found_idle", "i8", "accepted jobs that found their server idle"),
    ("moved_to_idle", "i8", "migrants that found their server idle"),
    ("started", "i8", "jobs present at time 0"),
    ("started_busy", "i8", "servers busy at time 0"),
    ("departed", "i8", "jobs served"),
    ("response_sum", "f8", "sum of the response times of departed jobs"),
    ("slowdown_sum", "f8", "sum of response time over size of departed jobs, if `drawn`"),
    ("arrived_sum", "f8", "sum of the arrival times of the jobs present"),
    ("sent", "i8", "pull-messages sent, the initial ones included"),
    ("used", "i8", "pull-messages used"),
    ("withdrawn", "i8", "pull-messages withdrawn"),
    ("absorbed", "i8", "pull-messages sent to a router that held one of that server"),
    ("outstanding", "i8", "pull-messages held by routers"),
    ("probes", "i8", "questions asked, each answered"),
    ("empty_handed", "i8", "arrivals at a router that held no message"),
    ("migrations", "i8", "jobs moved"),
    ("resamplings", "i8", "resamplings that were decisions"),
    ("events", "i8", "events: arrivals, ticks, resamplings"),
    # room
    ("need", "i8", "what must grow before going on: NOTHING, JOBS, LEVELS, HELD, ENTRIES"),
    ("need_pool", "i8", "the pool whose levels must grow"),
    ("jobs_room", "i8", "jobs the array has room for"),
    ("jobs_used", "i8", "jobs ever used in it"),
    ("jobs_free", "i8", "first free job, -1 if none"),
    ("held_room", "i8", "places in `held`"),
    ("held_used", "i8", "places given to lists"),
    ("held_spare", "i8", "places one more message may take"),
    ("entries_room", "i8", "entries there is room for"),
    ("entries_used", "i8", "entries ever used"),
    ("entries_free", "i8", "first free entry, -1 if none"),
]

RECORDS = {
    name: np.dtype([(field, kind) for field, kind, _ in fields], align=True)
    for name, (_, _, fields) in ARRAYS.items()
}
RECORDS["works"] = np.dtype(RECORDS["jobs"].descr + [field[:2] for field in WORK], align=True)
WORLD = np.dtype(
    [(field, kind) for field, kind, _ in SCALARS]
    + [(f"at_{name}", "i8") for name in ARRAYS]
    + [(f"size_{name}", "i8") for name in ARRAYS],
    align=True,
)

# Plain systems: jobs of one class that arrive one by one in a Poisson process, stay where they are
# placed and need no units; queues are seen live; fcfs. For them functions are compiled with these
# scalars as constants: *lean* ones with memoryless sizes, *sized* ones with drawn sizes, unwatched.
LEAN: dict[str, float] = {
    "drawn": 0,
    "slotted": 0,
    "plain_arrivals": 1,
    "trace_routers": 0,
    "trace_classes": 0,
    "n_classes": 1,
    "n_edges": 0,
    "units_on": 0,
    "read_interval": np.inf,
    "migration_rate": 0.0,
    "read_memory_on": 0,
    "router_samples": 1,
    "shared": 0,
}
SIZED: dict[str, float] = {**LEAN, "drawn": 1, "watched": 0}
PLAIN = (LEAN, SIZED)

# The scalars that a trajectory begins anew with lie between these bytes of the world.
FIRST_MOVING, PAST_MOVING = (int(WORLD.fields[name][1]) for name in ("clock", "need"))  # type: ignore[index]
LIST_ROOM = 8  # messages that a router's list has room for at first

# Exact integers since time 0 by the names that users read (S, B, I, O: see `messages`).
COUNTS: dict[str, str] = {
    "S": "sent",
    "B": "found_idle",
    "I": "idle",
    "O": "outstanding",
    "used": "used",
    "withdrawn": "withdrawn",
    "absorbed": "absorbed",
    "empty_handed": "empty_handed",
    "probes": "probes",
    "arrivals": "arrivals",
    "blocked": "blocked",
    "waited": "waited",
    "departed": "departed",
    "present": "present",
    "started": "started",
    "started_busy": "started_busy",
    "migrations": "migrations",
    "moved_to_idle": "moved_to_idle",
    "resamplings": "resamplings",
}

# --- codes --------------------------------------------------------------------------------------
NOTHING = 0
ARRIVAL, RESAMPLE = 1, 2  # w.kind
WITHDRAW, KEEP, RESEND = 0, 1, 2  # w.fate
EMPTY, WARM, GIVEN = 0, 1, 2  # w.start_mode
JOBS, LEVELS, HELD, ENTRIES = 1, 2, 3, 4  # w.need
# Status returned by the compiled entries (5 is an environment's: the action is masked).
DECIDE, GROW, INVALID, PAUSE, DONE, BALANCED = 0, 1, 2, 3, 4, 6

SIZES, GAPS = 0, 1  # rows of `laws`
(
    EXPONENTIAL,
    DETERMINISTIC,
    ERLANG,
    HYPEREXPONENTIAL,
    LOGNORMAL,
    UNIFORM,
    PARETO,
    EMPIRICAL,
) = range(8)
LAW_CODES = {
    "exponential": EXPONENTIAL,
    "deterministic": DETERMINISTIC,
    "erlang": ERLANG,
    "hyperexponential": HYPEREXPONENTIAL,
    "lognormal": LOGNORMAL,
    "uniform": UNIFORM,
    "bounded-pareto": PARETO,
    "empirical": EMPIRICAL,
}
POISSON, RENEWAL, MMPP, PIECEWISE, SINUSOIDAL, TRACE = range(6)
PROCESS_CODES = {
    "poisson": POISSON,
    "renewal": RENEWAL,
    "mmpp": MMPP,
    "piecewise": PIECEWISE,
    "sinusoidal": SINUSOIDAL,
    "trace": TRACE,
}

# Streams; SEEDS seeds the others at each further episode, so that no action has a part in it.
ARRIVALS, SERVICE, MIGRATION, NETWORK, POLICY, SEEDS = 0, 1, 2, 3, 4, 5
STREAMS = 6

NO_LIMIT = 1 << 60
NOBODY = -1 << 32  # at seat 0
TINY = 1e-300

BINS_PER_OCTAVE_BITS = 6
LOWEST_OCTAVE, OCTAVES = -20, 56
BINS = OCTAVES << BINS_PER_OCTAVE_BITS
