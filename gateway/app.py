"""The composition root: the only place that names concrete channels, stores and backends.

`Daemon` is built whole, then runs through `start`, `serve` and `stop`, in this order. Called by `gateway.cli`. Everything is handed what it
needs; nothing here is global.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import math
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog
from aiofiles.os import wrap

from channels.base import Channel, Context, Denied
from gateway import __version__, sdnotify
from gateway.access import Access
from gateway.attachments import Attachments
from gateway.backends.base import Backend
from gateway.commands.table import MENU
from gateway.config import Config
from gateway.control import ControlServer, Handler, socket_path
from gateway.desk import SessionDesk
from gateway.disk import lock_folder, tighten
from gateway.diskwatch import DiskWatch
from gateway.errors import ConfigError, ConfigErrors, StartError
from gateway.groups import GroupAdmins
from gateway.health import Watch
from gateway.httpd.report import SetAside, Status, memory
from gateway.httpd.token import web_token
from gateway.inbox import Inbox
from gateway.ledger import JournalLedger
from gateway.logging import mask
from gateway.message import SessionKey
from gateway.metrics import Damage, Metrics
from gateway.operations import Operations
from gateway.outbox import Outbox
from gateway.outbox.counted import counted
from gateway.overtime import end_by_force, end_without_threads
from gateway.overview import Overview
from gateway.power import PowerLog, begin
from gateway.pulse import Farewell, Pulse
from gateway.retention import Retention
from gateway.router import Router
from gateway.runner import Runners
from gateway.secrets import key_name, token_name
from gateway.sessions import SessionManager
from gateway.store.base import SessionLog
from gateway.supervisor import Supervisor
from gateway.takeover import Takeover, model
from gateway.tasks import Restarts, Tasks
from gateway.turn import run as ask
from gateway.unstored import Unstored
from gateway.words import counted as quantity
from gateway.writer import Writer

log = structlog.get_logger(__name__)

CALM = 60.0
"""Seconds between two looks at what still has to be done before a daemon without input ends."""
MOMENT = 1.0
"""Seconds that each part has to close when the budget is used up."""
FIRST_CONTACT = 10.0
"""Seconds that the start waits for the networks' first word; after that the daemon counts as started and goes on trying."""

WELCOME = """
Parlour runs. Open this page and write:

    {link}

To get onto Telegram: make a bot with @BotFather, copy config.example.toml to config.toml, take the # off [channels.telegram], say in
[backend] where your model is, then: PARLOUR_TELEGRAM_TOKEN=... ./dev run. The README has it step by step. Ctrl-C ends this.
"""
"""What the demonstration prints."""


class Place(NamedTuple):
    """Where an implementation lives. Imported only when it is configured."""

    settings: str
    module: str
    check: str = ""
    """Where `check(settings, token)` is; "" for a channel without a network (see `channels.base.Contact`)."""


CHANNELS: Mapping[str, Place] = {
    "telegram": Place("channels.telegram.settings", "channels.telegram.channel", "channels.telegram.check"),
    "discord": Place("channels.discord.settings", "channels.discord.channel", "channels.discord.check"),
    "web": Place("channels.web.settings", "channels.web.channel"),
    "console": Place("channels.console", "channels.console"),
}
BACKENDS: Mapping[str, str] = {
    "openai": "gateway.backends.openai",
    "local": "gateway.backends.local",
    "echo": "gateway.backends.echo",
}
STORE = "gateway.store.jsonl"


def channel_types() -> dict[str, type[msgspec.Struct]]:
    """Channel name -> the type of its config table."""
    return {name: importlib.import_module(place.settings).Settings for name, place in CHANNELS.items()}


def open_store(folder: Path, writer: Writer, damage: Damage | None = None) -> SessionLog:
    """The sessions of a data folder, not opened yet."""
    store: SessionLog = importlib.import_module(STORE).JsonlStore(folder / "sessions", writer, damage=damage)
    return store


def local_model() -> str:
    """Why the embedded model cannot be used, in one line; "" if it can."""
    said: str = importlib.import_module(BACKENDS["local"]).available()
    return said


class Daemon:
    """One process: its parts, and the order in which they begin and end."""

    def __init__(self, config: Config) -> None:
        folder = config.data_dir
        options = config.sessions
        self.metrics = Metrics()
        self.restarts = Restarts(self.metrics.restarts)
        damage = self.metrics.damage
        self.writer = Writer(PowerLog(folder) if options.durability == "power" else None, self.restarts)
        self.inbox = Inbox(folder / "journal", self.writer, clock=time.time, damage=damage)
        self.store = open_store(folder, self.writer, damage)
        self.sessions = SessionManager(
            self.store,
            cache_bytes=options.cache,
            history_messages=options.history_messages,
            history_tokens=options.history_tokens,
            clock=time.time,
        )
        self.access = Access(config.access, folder / "access.jsonl", self.writer, clock=time.time, damage=damage)
        self.backend: Backend = importlib.import_module(BACKENDS[config.backend.kind]).make(config.backend)
        self.web_token = web_token(folder, config.http.token) if config.http.listen else ""
        mask.add([self.web_token])
        desk = SessionDesk(self.sessions, self.access, group_scope=options.group_scope)
        tokens = {name: secret.reveal() for name, secret in config.tokens.items()} | {"web": self.web_token}
        self.channels: dict[str, Channel] = {
            name: importlib.import_module(CHANNELS[name].module).make(
                settings,
                Context(token=tokens.get(name, ""), folder=folder / name, desk=desk, hosts=(config.http.listen, *config.http.hosts)),
            )
            for name, settings in config.channels.items()
        }
        counting = {name: counted(channel, self.metrics, self.restarts) for name, channel in self.channels.items()}
        self.outbox = Outbox(counting, JournalLedger(self.inbox, self.sessions), restarts=self.restarts)
        admins = GroupAdmins(self.channels, self.access, time.monotonic)
        key = key_name(os.environ, config.backend.api_key)
        self.watch = Watch(self.backend, address=config.backend.address, key=key)
        self.runners = Runners(
            house=self,
            inbox=self.inbox,
            sessions=self.sessions,
            outbox=self.outbox,
            access=self.access,
            admins=admins,
            attachments=Attachments(self.channels),
            model=model(config, self.backend),
            asking=ask,
            slots=config.backend.max_concurrent_turns,
            heard=self.watch.heard,
            metrics=self.metrics,
            restarts=self.restarts,
        )
        self.router = Router(
            channels=self.channels,
            house=self,
            inbox=self.inbox,
            sessions=self.sessions,
            runners=self.runners,
            outbox=self.outbox,
            access=self.access,
            admins=admins,
            group_scope=options.group_scope,
            waiting=options.waiting,
            turns_per_day=config.access.turns_per_day,
            clock=time.time,
            metrics=self.metrics,
        )
        networks = {name: channel for name, channel in self.channels.items() if CHANNELS[name].check}
        self.unstored = Unstored(self.router.accept, networks, access=self.access, inbox=self.inbox, clock=time.monotonic)
        self.supervisors = [
            Supervisor(channel, self.unstored.accept, MENU, secret=token_name(os.environ, name), restarts=self.restarts)
            for name, channel in self.channels.items()
        ]
        self.disk = DiskWatch(folder)
        self.retention = Retention(config.retention, folder, self.sessions, self.inbox, self.metrics)
        self.overview = Overview(
            supervisors=self.supervisors,
            watch=self.watch,
            disk=self.disk,
            inbox=self.inbox,
            sessions=self.sessions,
            runners=self.runners,
            router=self.router,
            outbox=self.outbox,
            restarts=self.restarts,
        )
        self._takeover = Takeover(
            config,
            channel_types,
            access=self.access,
            backend=self.backend,
            channels=self.channels,
            metrics=self.metrics,
            outbox=self.outbox,
            retention=self.retention,
            router=self.router,
            runners=self.runners,
            sessions=self.sessions,
            watch=self.watch,
        )
        self.pulse = Pulse(
            stuck=lambda: "" if self._ending.is_set() else self.overview.stuck(),
            line=lambda: self._farewell.line if self._ending.is_set() else self.overview.line(),
            delay=self.metrics.loop_delay,
            feed_every=sdnotify.watchdog_interval(),
        )
        self._farewell = Farewell(left=lambda: self._deadline - time.monotonic())
        self._deadline = math.inf
        self._tasks = Tasks(self.restarts)
        self._reading: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()
        self._denied: ConfigError | None = None
        self._failed = ""
        self._started = False
        self._reload_wanted = False
        self._page = ""
        self._closers: list[Callable[[], Awaitable[object]]] = []

    @property
    def config(self) -> Config:
        """As it is now, after reloads."""
        return self._takeover.config

    # ------------------------------------------------------------------------------------------------------ what commands may use

    def status(self, key: SessionKey) -> list[str]:
        """Lines for `/status`."""
        lines = [f"Model: {self.watch.said()}"]
        if waiting := self.runners.waiting(str(key)):
            lines.append(f"Waiting here: {waiting}")
        return [*lines, f"Parlour {__version__}, up for {_span(time.monotonic() - self.watch.began)}"]

    async def forget_inputs(self, key: SessionKey) -> None:
        """Blank what the journal holds of this key."""
        await self.inbox.forget(str(key))

    # --------------------------------------------------------------------------------------------------------------------- phases

    async def start(self) -> None:
        """Take the folder, read what is on record, queue what a crash left, open the doors. Raises StartError, ConfigErrors (a token that
        is refused)."""
        lock = lock_folder(self.config.data_dir)

        async def unlock() -> None:
            lock.close()

        self._closers.append(unlock)
        self._closers.append(self.writer.close)
        await wrap(begin)(self.config.data_dir, self.metrics.damage, durable=self.writer.durable)
        for kept in map(self.config.data_dir.joinpath, CHANNELS):  # whoever else keeps files looks after its own
            if kept.is_dir():
                await wrap(tighten)(kept, lambda path: None)
        await self.access.open()
        await self.store.open()
        self._closers.append(self.store.close)
        self._closers.append(self.sessions.close)
        left = await self.inbox.open()
        self._closers.append(self.inbox.close)
        self._closers.append(self.backend.close)
        self._closers += [channel.close for channel in self.channels.values()]
        self._closers.append(self.unstored.close)
        await self._serve_http()
        control = ControlServer(socket_path(self.config.data_dir), self._control_handlers(), self.config.data_dir)
        await control.start()
        self._closers.append(control.close)
        if left:
            log.info("going on with what was left", inputs=len(left))
        await self.router.resume(left)
        self._tasks.keep(self.watch.run, "backend watch")
        self._closers.append(self.disk.close)
        self._tasks.keep(self.disk.run, "disk watch")
        self._closers.append(self.retention.close)
        self._tasks.keep(self.retention.run, "retention")
        self._reading = [
            asyncio.create_task(supervisor.run(), name=f"channel {supervisor.channel.name}") for supervisor in self.supervisors
        ]
        for task in self._reading:
            task.add_done_callback(self._channel_ended)
        await self._first_contact()

    async def _first_contact(self) -> None:
        """Wait a while for the networks' first word, or for a signal; a refusal is known when it returns.

        What it means to be ready (READY=1): the folder is ours, what was left is queued, the doors are open, no token was refused, and each
        network has had its chance to answer. Not that each did: a start that hangs as long as a network is away would be killed by systemd,
        and the other channels with it. Nor that Discord's gateway is connected: its first word is the answer to the token; who connects
        later, and who is refused for an intent then, is a channel that is down or stopped, and told as such."""
        waits = [asyncio.ensure_future(supervisor.contacted.wait()) for supervisor in self.supervisors]
        ending = asyncio.ensure_future(self._ending.wait())
        everyone = asyncio.ensure_future(asyncio.wait(waits))
        await asyncio.wait([everyone, ending], timeout=FIRST_CONTACT, return_when=asyncio.FIRST_COMPLETED)
        for wait in (everyone, ending, *waits):
            wait.cancel()
        await asyncio.gather(everyone, ending, *waits, return_exceptions=True)
        if stopped := [task for task, each in zip(self._reading, self.supervisors, strict=True) if each.state == "stopped"]:
            await asyncio.wait(stopped)

    async def _serve_http(self) -> None:
        http = self.config.http
        if not http.listen:
            return
        from gateway.httpd.exposition import Exposition  # noqa: PLC0415  # not needed where the server is off
        from gateway.httpd.server import HttpServer  # noqa: PLC0415

        metrics = Exposition(self.metrics, self.overview.readings)
        routes = [route for channel in self.channels.values() for route in channel.routes()]
        server = HttpServer(
            http.listen,
            routes,
            self.overview.health,
            hosts=http.hosts,
            token=self.web_token,
            metrics=metrics.render,
            look=self.disk.fresh,
        )
        await server.start()
        self._page = server.address
        self._closers.append(server.close)

    async def serve(self) -> None:
        """Until a signal or the end of every channel. Raises ConfigErrors where a token was refused at the first contact, and StartError
        where something of ours gave way that nothing can go on without."""
        if not self._ending.is_set():
            self._ready()
        await self._ending.wait()
        if self._denied is not None:
            raise ConfigErrors([self._denied])
        if self._failed:
            raise StartError(self._failed)  # with a status that has us started again

    def _ready(self) -> None:
        sdnotify.notify(sdnotify.READY, sdnotify.status(self.overview.line()))
        self._started = True
        self._tasks.keep(self.pulse.run, "pulse")
        if self.config.demo:
            print(WELCOME.format(link=self._link()), flush=True)
        elif "web" in self.channels and self._page and sys.stdout.isatty():
            print(f"The web page: {self._link()}", flush=True)
        log.info("started", version=__version__, channels=sorted(self.channels), backend=self.backend.name)
        if self._reload_wanted:
            self.reload()
        # What was built at start lives as long as the process: the collector need not walk through it again and again.
        gc.collect()
        gc.freeze()

    def reload(self) -> None:
        """Read the config again, and take over what a running daemon can. Asked before the start is through, it is done behind it."""
        if self._started and not self._ending.is_set():
            self._tasks.start(self._takeover.run(), name="reload")
        self._reload_wanted = not self._started

    def _link(self) -> str:
        """Where the page is, with the token behind a #: so it gets into no server's log."""
        return f"{self._page}/#token={self.web_token}"

    def _channel_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            if isinstance(error, Denied):
                name = task.get_name().removeprefix("channel ")
                problem = next(each.problem for each in self.supervisors if each.channel.name == name)
                self._denied = ConfigError(self.config.path or "demo", 0, f"channels.{name}", problem)
            else:
                log.error("supervisor failed", task=task.get_name(), exc_info=error)
                self._failed = f"{task.get_name()} is not supervised any more ({type(error).__name__}), the log says why"
            self._ending.set()
        elif all(task.done() for task in self._reading) and all(supervisor.state == "ended" for supervisor in self.supervisors):
            self._tasks.start(self._finish(), name="finish")

    async def _finish(self) -> None:
        """All input has ended: what is there is answered before the daemon ends, however long it takes. A signal still ends it."""
        await self.router.settle(CALM)
        await self.runners.idle()
        await self.outbox.drain(math.inf)
        self._ending.set()

    def end(self) -> None:
        """Ask for the end. Asked again, the process ends at once: what is acknowledged is with the kernel already."""
        if self._ending.is_set():
            log.warning("ended at once")
            os._exit(130)
        self.inbox.ended()
        self._ending.set()

    async def stop(self) -> None:
        """In phases, with one deadline: no more input, turns end or are cut, lanes drain, everything closes. What is cut or not sent is on
        record, and the next start goes on with it. An end that takes its time says what it waits for."""
        waiting = asyncio.create_task(self._farewell.run(), name="farewell")
        try:
            await self._stop()
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})

    async def _stop(self) -> None:
        began = time.monotonic()
        budget = float(self.config.shutdown.budget)
        self.inbox.ended()
        self._deadline = began + budget
        sdnotify.notify(sdnotify.STOPPING, sdnotify.status("finishing"))

        def left(part: float = 1.0) -> float:
            return max(0.0, budget * part - (time.monotonic() - began))

        for task in self._reading:
            task.cancel()
        waits = self._farewell.waits_for
        waits(self._reads)
        if self._reading:
            await asyncio.wait(self._reading, timeout=left(0.2))
        waits(lambda: some(self.router.busy, "command"))
        await self.router.settle(left(0.2))
        waits(lambda: some(self.runners.turns(), "answer under way", "answers under way"))
        cut = await self.runners.settle(left(0.7))
        waits(lambda: "what was cut to be put on record")
        hanging = await self.runners.close(max(MOMENT, left(0.8)))
        hanging += await self.router.close(max(MOMENT, left(0.8)))
        with suppress(TimeoutError):  # a delivery that cannot be put on record is waited for
            await asyncio.wait_for(self.disk.fresh(), max(MOMENT, left(0.8)))
        waits(self._sends)
        unsent = await self.outbox.drain(left(0.9))
        hanging += await self.outbox.close(max(MOMENT, left(0.95)))
        hanging += await self._tasks.close(max(MOMENT, left(0.95)))
        for close in reversed(self._closers):
            waits(partial(getattr, close, "__qualname__", ""))
            try:
                await asyncio.wait_for(close(), max(MOMENT, left()))
            except TimeoutError:
                hanging += 1
                log.error("does not close", what=getattr(close, "__qualname__", repr(close)))
            except Exception:
                log.exception("cannot close", what=getattr(close, "__qualname__", repr(close)))
        self._closers.clear()
        if self._started:
            log.info("stopped", turns_cut=cut, unsent=unsent, hanging=hanging, seconds=round(time.monotonic() - began, 1))

    def _reads(self) -> str:
        """Which channels have not ended to read yet."""
        return " and ".join(each.channel.name for task, each in zip(self._reading, self.supervisors, strict=False) if not task.done())

    def _sends(self) -> str:
        """What is not sent yet, and what may be the reason."""
        what = some(self.outbox.waiting(), "message", "messages") or "calls under way"
        where = ", ".join(f"{name} {count}" for name, count in self.outbox.unsent().items() if count)
        why = f"; the disk {self.disk.said()}" if self.disk.said() else ""
        return f"{what} to be sent and put on record{f' ({where})' if where else ''}{why}"

    # ---------------------------------------------------------------------------------------------------------- what can be asked

    def status_report(self) -> Status:
        """For `parlour status`."""
        loaded, stubs, size = self.sessions.cached
        up = time.monotonic() - self.watch.began
        return Status(
            version=__version__,
            pid=os.getpid(),
            since=round(time.time() - up, 1),
            up=round(up, 1),
            config=os.path.abspath(self.config.path) if self.config.path else "",
            data_dir=str(self.config.data_dir),
            page=self._page,
            health=self.overview.health(),
            unfinished=len(self.inbox.unfinished()),
            busy=self.sessions.keys_held,
            cached=loaded,
            stubs=stubs,
            cached_bytes=size,
            memory=memory(),
            set_aside=tuple(SetAside(one.id, one.key, one.at, one.deaths) for one in self.inbox.set_aside),
            needs_restart=self._takeover.restart,
        )

    def _control_handlers(self) -> Mapping[str, Handler]:
        async def pairs(args: Mapping[str, str]) -> object:
            return self.access.listed()

        async def approve(args: Mapping[str, str]) -> object:
            return f"{await self.access.approve(args.get('code', ''), by='operator')} may chat now"

        async def revoke(args: Mapping[str, str]) -> object:
            await self.access.revoke(args.get("id", ""), by="operator")
            return f"{args.get('id', '')} is shut out"

        async def status(args: Mapping[str, str]) -> object:
            await self.disk.fresh()
            return self.status_report()

        async def differs(args: Mapping[str, str]) -> object:
            return self._takeover.differs(args.get("salt", ""), args.get("digests", ""))

        conversations = Operations(self.sessions, self.store, self.inbox).handlers()
        pairing = {"pair.list": pairs, "pair.approve": approve, "pair.revoke": revoke}
        return {**conversations, **pairing, "status": status, "config.differs": differs}


def some(count: int, word: str, words: str = "") -> str:
    """ "2 turns", and "" for none."""
    return quantity(count, word, words) if count else ""


def _span(seconds: float) -> str:
    minutes = int(seconds // 60)
    days, hours = divmod(minutes // 60, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"


# ------------------------------------------------------------------------------------------------------------- what the CLI calls


def main(config: Config) -> int:
    """Run the daemon; the exit code. Raises StartError and ConfigErrors. May end the process, where threads hang that Python waits for."""
    return asyncio.run(_run(config))


async def _run(config: Config) -> int:
    daemon = Daemon(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.end)
    terminal = os.isatty(sys.stderr.fileno())

    def hang_up() -> None:
        """A reload, unless there is nothing to read, or the terminal in which we run was closed."""
        if config.demo or (terminal and not os.isatty(sys.stderr.fileno())):
            daemon.end()
        else:
            daemon.reload()

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        await daemon.start()
        await daemon.serve()
    finally:
        end_by_force(float(daemon.config.shutdown.budget))
        await daemon.stop()
    end_without_threads(0)
    return 0
