"""Carries a reload out: reads the config again, and has each part take over what a running daemon can (`gateway.reload` says what that is).

A file with faults is refused whole, and what runs stays. Called by `gateway.app`, which owns the task that `run` is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec
import structlog

from channels.base import Adjustable, Channel
from gateway import reload, sdnotify
from gateway.access import Access
from gateway.backends.base import Adjustable as AdjustableBackend
from gateway.backends.base import Backend
from gateway.config import ChannelTypes, Config
from gateway.errors import ConfigErrors, ParlourError, StartError
from gateway.health import Watch
from gateway.logging import mask, threshold
from gateway.metrics import Metrics
from gateway.outbox import Outbox
from gateway.retention import Retention
from gateway.router import Bounds, Router
from gateway.runner import Runners
from gateway.running import Model
from gateway.secrets import key_name
from gateway.sessions import SessionManager

log = structlog.get_logger(__name__)


def model(config: Config, backend: Backend) -> Model:
    """What a turn is asked with."""
    return Model(
        backend=backend,
        system=config.backend.system_prompt,
        history_messages=config.sessions.history_messages,
        history_tokens=config.sessions.history_tokens,
        max_chars=config.backend.max_answer_chars,
        patience=max(1800.0, 5 * (config.backend.first_token_timeout + config.backend.idle_timeout)),
    )


class Takeover:
    """`config` is what the daemon runs with now."""

    def __init__(
        self,
        config: Config,
        channel_types: Callable[[], ChannelTypes],
        *,
        access: Access,
        backend: Backend,
        channels: Mapping[str, Channel],
        metrics: Metrics,
        outbox: Outbox,
        retention: Retention,
        router: Router,
        runners: Runners,
        sessions: SessionManager,
        watch: Watch,
    ) -> None:
        self.config = config
        self.restart: tuple[str, ...] = ()
        """Keys that the last reload found changed, and that only a restart takes over."""
        self._types, self._metrics = channel_types, metrics
        self._access, self._backend, self._outbox, self._retention = access, backend, outbox, retention
        self._router, self._runners, self._sessions, self._watch = router, runners, sessions, watch
        self._adjustable = {name: channel for name, channel in channels.items() if isinstance(channel, Adjustable)}
        self._one = asyncio.Lock()
        """One reload after the other."""

    async def run(self) -> None:
        """One reload. Never raises for what is in the file."""
        async with self._one:
            sdnotify.notify(*sdnotify.reloading())
            try:
                self._take_over(*await asyncio.to_thread(self._read))
            except (ConfigErrors, StartError) as error:
                self._metrics.reloads.add("refused")
                log.error("config not taken over, the one that runs stays", faults=str(error).splitlines())
            finally:
                sdnotify.notify(sdnotify.READY)

    def differs(self, salt: str, digests: str) -> reload.Differs:
        """What is different in a config of which only the digests are known (`reload.digests`, as JSON). Raises ParlourError."""
        try:
            theirs = msgspec.json.decode(digests, type=dict[str, str])
        except msgspec.DecodeError:
            raise ParlourError("these are no digests") from None
        return reload.differs(self.config, salt, theirs, self._keys())

    def _keys(self) -> Mapping[str, Collection[str]]:
        """By channel, the keys that it takes over while it runs."""
        return {name: channel.adjustable for name, channel in self._adjustable.items()}

    def _read(self) -> tuple[Config, str]:
        """The config as it is now, and by which name the operator knows the backend's key. Blocks. Raises ConfigErrors."""
        wanted = reload.read(Path(self.config.path), self._types(), os.environ)
        return wanted, key_name(reload.present(os.environ), wanted.backend.api_key)

    def _take_over(self, wanted: Config, key: str) -> None:
        """All of it or, where it raises StartError, nothing."""
        mask.add(secret.reveal() for secret in wanted.hidden)
        config, taken, restart = reload.plan(self.config, wanted, self._keys())
        if isinstance(self._backend, AdjustableBackend) and any(key.startswith("backend.") for key in taken):
            self._backend.adjust(config.backend)
            self._watch.again(config.backend.address, key)
        self.config, self.restart = config, restart
        self._access.rules = config.access
        self._router.bounds = Bounds(config.sessions.waiting, config.access.turns_per_day)
        self._sessions.remember(config.sessions.history_messages, config.sessions.history_tokens)
        self._runners.model = model(config, self._backend)
        self._retention.rules = config.retention
        for name, channel in self._adjustable.items():
            channel.adjust(config.channels[name])
            self._outbox.repace(name)
        self._metrics.reloads.add("taken")
        threshold.set("info")  # whatever the level was or will be, this line is to be seen
        log.info("config taken over", taken=taken, needs_restart=restart)
        threshold.set(config.log.level)
