"""What is counted, in plain numbers: one object, handed to the parts that count.

A count costs what a dict costs, so that it is always on; nothing here knows Prometheus. `gateway.httpd.exposition` shows it, where the HTTP
server runs at all. What can be looked up when somebody asks (queue lengths, the cache, the disk) is not counted: it is a `Gauge` that
`gateway.overview` reads.

Names are Prometheus' way: base units, `_total` for what only grows. Values of labels come from the config and from our own words alone
(channels, outcomes, reasons), never from people or networks, so that there are few of them. Counted on the loop, but for `Damage`.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple


class Counter:
    """A number that only grows, for each combination of label values."""

    __slots__ = ("labels", "name", "text", "values")

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        """`by` more; 0 makes the series be there before anything happens, which is what a rate needs."""
        self.values[labels] = self.values.get(labels, 0) + by


class Damage(Counter):
    """What of our files cannot be read. From any thread: it is met where files are read."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__("parlour_damaged_lines_total", "Lines of our files that were torn or cannot be read: torn, bad.", "kind")
        self._lock = threading.Lock()
        for kind in ("torn", "bad"):
            self.add(kind, by=0)

    def torn(self) -> None:
        """The end of a file was no whole line, and was set aside."""
        with self._lock:
            self.add("torn")

    def bad(self, lines: int) -> None:
        """Lines were passed over."""
        with self._lock:
            self.add("bad", by=lines)


class Histogram:
    """How often a measured value fell into which range. `bounds`: the upper ends, rising; above the last there is one more range."""

    __slots__ = ("bounds", "counts", "name", "sum", "text")

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name, self.text, self.bounds = name, text, tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """A value that stands on a bound belongs below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Gauge(NamedTuple):
    """Something that is looked up when somebody asks."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"


class Reading(NamedTuple):
    """What a gauge shows now."""

    gauge: Gauge
    value: float
    labels: tuple[str, ...] = ()


_TURN = (0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600)
_LOOP = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """All counters and histograms of a daemon."""

    def __init__(self) -> None:
        self.inputs = Counter(
            "parlour_inputs_total", "What came in, by what became of it: accepted, duplicate, refused.", "channel", "result"
        )
        self.refused = Counter("parlour_inputs_refused_total", "Inputs that were not taken, by reason.", "channel", "reason")
        self.turns = Counter("parlour_turns_total", "Questions to the model that ended: answered, cut, stopped, failed, broken.", "outcome")
        self.aside = Counter("parlour_inputs_set_aside_total", "Inputs over which the daemon died too often.", "channel")
        self.retries = Counter("parlour_model_retries_total", "Tries after the first one to get an answer from the model.")
        self.tokens = Counter("parlour_model_tokens_total", "Tokens as the model's server counts them: input, output.", "direction")
        self.first_token = Histogram(
            "parlour_turn_first_token_seconds", "From the beginning of a turn, a wait for its slot included, to the first word.", _TURN
        )
        self.turn = Histogram("parlour_turn_seconds", "From the beginning of a turn to its last word.", _TURN)
        self.calls = Counter(
            "parlour_calls_total",
            "Calls to a network (send, edit, delete, typing): ok, retry (asked to wait), not_sent, unknown, refused, rejected, gone, lost, "
            "denied, fault.",
            "channel",
            "call",
            "result",
        )
        self.flood = Counter("parlour_flood_wait_seconds_total", "Seconds that a network asked us to wait.", "channel")
        self.damage = Damage()
        self.loop_delay = Histogram("parlour_event_loop_delay_seconds", "How late the event loop came to a task that was due.", _LOOP)
        self.restarts = Counter(
            "parlour_restarts_total",
            "Parts of the daemon that hung or failed and were started anew: a channel, lane, runner, call, turn, writer, pulse, and the "
            "watches.",
            "part",
        )
        self.reloads = Counter("parlour_config_reloads_total", "Reloads of the config: taken, refused.", "result")
        self.removed = Counter("parlour_retention_removed_total", "What retention has deleted: media, session.", "kind")
        self.freed = Counter("parlour_retention_freed_bytes_total", "Bytes that retention has deleted.")

    def counters(self) -> Iterator[Counter]:
        return (each for each in vars(self).values() if isinstance(each, Counter))

    def histograms(self) -> Iterator[Histogram]:
        return (each for each in vars(self).values() if isinstance(each, Histogram))


BUILD = Gauge("parlour_build_info", "1, with the version that runs.", ("version",))
CHANNEL_UP = Gauge("parlour_channel_up", "1 while the channel reads from its network.", ("channel",))
CHANNEL_SILENCE = Gauge("parlour_channel_silence_seconds", "Since the network last answered the channel.", ("channel",))
BACKEND_UP = Gauge("parlour_backend_up", "1 if the model answered the last time that anybody asked.", ("backend",))
WAITING = Gauge("parlour_inputs_waiting", "Inputs that wait behind a running turn or for a slot.")
OLDEST = Gauge("parlour_inputs_oldest_waiting_seconds", "How long the oldest of them waits; 0 if none does.")
UNFINISHED = Gauge("parlour_inputs_unfinished", "Inputs on record whose answer is not yet delivered, the running ones included.")
TURNS = Gauge("parlour_turns_running", "Turns that run.")
LONGEST = Gauge("parlour_turns_longest_seconds", "How long the one of them runs that began first; 0 if none does.")
COMMANDS = Gauge("parlour_commands_running", "Commands that are being answered past the queue.")
LANES = Gauge("parlour_lanes", "Chats to which something goes out, or that have to be waited for.")
UNSENT = Gauge("parlour_deliveries_unsent", "Texts that wait for a network.", ("channel",))
REPEATS = Gauge("parlour_call_repeats_total", "Calls to a network that were made again after a failure.", ("channel",), "counter")
CACHED = Gauge("parlour_sessions_cached", "Sessions in memory.")
CACHED_BYTES = Gauge("parlour_sessions_cached_bytes", "Memory that they take, an estimate.")
HELD = Gauge("parlour_keys_held", "Conversations that a turn or a command is at work on.")
SEGMENTS = Gauge("parlour_journal_segments", "Files of the inbox's journal.")
DISK_FREE = Gauge("parlour_disk_free_bytes", "Free space where the data folder is.")
DISK_WRITABLE = Gauge("parlour_disk_writable", "1 if the last try to write there worked.")
MEMORY = Gauge("process_resident_memory_bytes", "Resident memory size in bytes.")
CPU = Gauge("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", (), "counter")
FILES = Gauge("process_open_fds", "Number of open file descriptors.")
FILES_MOST = Gauge("process_max_fds", "Maximum number of open file descriptors.")
STARTED = Gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")

GAUGES: tuple[Gauge, ...] = tuple(each for each in list(globals().values()) if isinstance(each, Gauge))
"""All of them."""
