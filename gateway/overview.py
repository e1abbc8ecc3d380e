"""How the daemon is at this moment, put together from its parts: for `/readyz`, for the gauges of `/metrics`, for systemd's status line.

Looks only, at what is in memory already: nothing here waits, reads a file of ours or changes anything. Called by `gateway.app`.
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from channels.base import Telling
from gateway import __version__, metrics
from gateway.diskwatch import DiskWatch
from gateway.health import Watch
from gateway.httpd.report import ChannelHealth, Health, memory
from gateway.inbox import Inbox
from gateway.metrics import Reading
from gateway.outbox import Outbox
from gateway.router import Router
from gateway.runner import Runners
from gateway.sessions import SessionManager
from gateway.supervisor import Supervisor
from gateway.tasks import Restarts
from gateway.words import counted

GRACE = 60.0
"""Seconds without a word from the network after which a channel that has trouble is down."""
_WELL = frozenset({"up", "ended"})


class Overview:
    """See the module."""

    def __init__(
        self,
        *,
        supervisors: Sequence[Supervisor],
        watch: Watch,
        disk: DiskWatch,
        inbox: Inbox,
        sessions: SessionManager,
        runners: Runners,
        router: Router,
        outbox: Outbox,
        restarts: Restarts,
    ) -> None:
        self._restarts = restarts
        self._supervisors, self._watch, self._disk = supervisors, watch, disk
        self._inbox, self._sessions, self._runners, self._router, self._outbox = inbox, sessions, runners, router, outbox
        self._began = time.time()

    def health(self) -> Health:
        """For `/readyz`. Ready is who can take a message and have it answered."""
        states: dict[str, ChannelHealth] = {}
        for supervisor in self._supervisors:
            silence = _silence(supervisor)
            state, problem = _state(supervisor)
            states[supervisor.channel.name] = ChannelHealth(
                state=state, problem=problem, last_sign_of_life=None if silence is None else round(silence, 1)
            )
        oldest = self._runners.oldest()
        longest, stuck = self._runners.longest(), self.stuck()
        well = all(state.state in _WELL for state in states.values())
        return Health(
            ready=well and self._watch.ready and not stuck and not self._disk.disk.problem,
            channels=states,
            backend=self._watch.told(),
            backend_problem=self._watch.problem,
            backend_remedy=self._watch.remedy,
            disk=self._disk.said(),
            disk_free=self._disk.disk.free,
            turns=self._runners.turns(),
            waiting=self._runners.backlog(),
            lanes=len(self._outbox),
            unsent=self._outbox.waiting(),
            oldest_waiting=None if oldest is None else round(oldest, 1),
            longest_turn=None if longest is None else round(longest, 1),
            restarted=self._restarts.recent(),
            stuck=stuck,
        )

    def line(self) -> str:
        """For `systemctl status`."""
        channels: list[str] = []
        for supervisor in self._supervisors:
            state, problem = _state(supervisor)
            channels.append(f"{supervisor.channel.name} {state}" + (f" ({problem})" if problem else ""))
        parts = [", ".join(channels), self._watch.told(), f"{counted(self._runners.turns(), 'turn')}, {self._outbox.waiting()} unsent"]
        if disk := self._disk.said():
            parts.append(f"disk: {disk}")
        if restarted := self._restarts.recent():
            parts.append(f"started again: {', '.join(restarted)}")
        return "; ".join(parts)

    def stuck(self) -> str:
        """Which channel does not move any more, and why; "" if all do."""
        return "; ".join(filter(None, (supervisor.stuck() for supervisor in self._supervisors)))

    def readings(self) -> Iterator[Reading]:
        """For `/metrics`."""
        yield Reading(metrics.BUILD, 1, (__version__,))
        for supervisor in self._supervisors:
            name = (supervisor.channel.name,)
            yield Reading(metrics.CHANNEL_UP, _state(supervisor)[0] in _WELL, name)
            if (silence := _silence(supervisor)) is not None:
                yield Reading(metrics.CHANNEL_SILENCE, silence, name)
        yield Reading(metrics.BACKEND_UP, self._watch.ready, (self._watch.name,))
        yield Reading(metrics.WAITING, self._runners.backlog())
        yield Reading(metrics.OLDEST, self._runners.oldest() or 0.0)
        yield Reading(metrics.UNFINISHED, self._inbox.open_inputs)
        yield Reading(metrics.TURNS, self._runners.turns())
        yield Reading(metrics.LONGEST, self._runners.longest() or 0.0)
        yield Reading(metrics.COMMANDS, self._router.busy)
        yield Reading(metrics.LANES, len(self._outbox))
        for channel, count in self._outbox.unsent().items():
            yield Reading(metrics.UNSENT, count, (channel,))
        for channel, count in self._outbox.repeats().items():
            yield Reading(metrics.REPEATS, count, (channel,))
        loaded, _, size = self._sessions.cached
        yield Reading(metrics.CACHED, loaded)
        yield Reading(metrics.CACHED_BYTES, size)
        yield Reading(metrics.HELD, self._sessions.keys_held)
        yield Reading(metrics.SEGMENTS, self._inbox.segments)
        if self._disk.disk.free is not None:
            yield Reading(metrics.DISK_FREE, self._disk.disk.free)
            yield Reading(metrics.DISK_WRITABLE, not self._disk.disk.problem)
        yield Reading(metrics.STARTED, self._began)
        yield from _process()


def _state(supervisor: Supervisor) -> tuple[str, str]:
    """A channel's state and what is wrong. One that goes on by itself while its network is away counts as down when that lasts."""
    state, problem, channel = supervisor.state, supervisor.problem, supervisor.channel
    if state == "up" and isinstance(channel, Telling) and (problem := channel.trouble()):
        return ("down" if (_silence(supervisor) or math.inf) > GRACE else "up"), problem
    return state, problem


def _silence(supervisor: Supervisor) -> float | None:
    """Seconds since the network last answered; None if it never did."""
    seen = supervisor.channel.last_sign_of_life()
    return max(0.0, time.monotonic() - seen) if seen else None


def _process() -> Iterator[Reading]:
    """Of this process. Not by the library's collector: that one shows nothing under `ProcSubset=pid`, where our unit runs."""
    yield Reading(metrics.CPU, time.process_time())
    yield Reading(metrics.MEMORY, memory())
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield Reading(metrics.FILES_MOST, math.inf if most == resource.RLIM_INFINITY else most)
    with suppress(OSError):
        yield Reading(metrics.FILES, len(os.listdir("/proc/self/fd")))
