"""The reading half while it runs: what the gateway brings is read, ordered, handed over; what was missed is fetched; how far all is well is
noted. One `Reading` is one run of the channel; `client` is the connection, `intake` the order, `backfill` the past. Called by `channel`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import discord
import msgspec
import structlog

from channels.base import Accept, ChannelError, Denied, Gone, Inbound, Refused, Retry
from channels.discord import parse
from channels.discord.backfill import Backfill
from channels.discord.client import MISSING_INTENT, Client
from channels.discord.errors import translate
from channels.discord.intake import Intake, Item
from channels.discord.interactions import Interactions
from channels.discord.marks import Marks
from channels.discord.parse import Names
from channels.discord.payloads import COMMAND, COMPLETE, COMPONENT, FAULTS, Interaction, Message, convert, made_at
from channels.discord.places import Place, Places, place_of
from channels.discord.transport import Http

log = structlog.get_logger(__name__)

MOST_TASKS = 2000
"""First answers and look-ups under way; what comes beyond them goes without."""
WORKERS = 2
PULSE = 2.0
_SHUT_SECONDS = 1.0


class Reading:
    """`clock` gives seconds since the epoch, as Discord counts them."""

    def __init__(
        self,
        http: Http,
        client: Client,
        me: str,
        accept: Accept,
        places: Places,
        marks: Marks,
        interactions: Interactions,
        *,
        backlog: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._http, self._client, self._me = http, client, me
        self._places, self._marks, self._interactions, self._clock = places, marks, interactions, clock
        self.intake = Intake(accept, self._taken)
        self.backfill = Backfill(self._history, self._read, self.intake, marks, backlog=backlog, clock=clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._warned = False
        self.bad = 0
        """Messages and interactions that could not be read, and were passed over."""

    # --------------------------------------------------------------------------------------------------------------------- run

    async def run(self) -> None:
        """Until cancelled. Raises Denied where Discord does not want us any more, and whatever is unexpected."""
        places = self._places
        places.client = self._client
        work = [self._client.listen(), self.intake.run(), self._pulse(), self._marks.run()]
        work += [self.backfill.work() for _ in range(WORKERS)]
        try:
            async with asyncio.TaskGroup() as group:
                for one in work:
                    group.create_task(one)
        except BaseExceptionGroup as group:
            raise _weightiest(group) from None
        finally:
            await self._shut()
            self._note()
            await self._marks.save()

    async def _shut(self, seconds: float = _SHUT_SECONDS) -> None:
        """What is under way gets a moment, then it ends."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _pulse(self) -> None:
        while True:
            await asyncio.sleep(PULSE)
            self._note()
            if self.intake.lost is not None and not len(self.intake):
                # What there was no room for is fetched like what nobody heard.
                self._note()
                self.intake.lost = None
                await self._client.renew()

    def _note(self) -> None:
        """Up to when nothing is missing: the newest sign of life, less what is not accepted yet."""
        if self._client.synced and self.backfill.complete and self._marks.alive is not None:
            at = self._clock() - max(0.0, time.monotonic() - self._client.heard)
            oldest = self.intake.oldest()
            self._marks.live(at if oldest is None else min(at, oldest))

    # ------------------------------------------------------------------------------------------------------------ what is heard

    def hear(self, event: str, data: Mapping[str, Any]) -> None:
        """Called by the client for each event, in order. Does not raise and does not wait."""
        try:
            match event:
                case "MESSAGE_CREATE":
                    self._message(convert(data, Message), edited=False)
                case "MESSAGE_UPDATE":
                    if data.get("edited_timestamp"):  # otherwise Discord only added a preview, and may leave out all else
                        self._message(convert(data, Message), edited=True)
                case "INTERACTION_CREATE":
                    self._interaction(convert(data, Interaction))
                case "READY":
                    self.backfill.begin([str(guild.get("id")) for guild in data.get("guilds") or ()])
                case "GUILD_CREATE":
                    self.backfill.guild(data, lambda channel: self._may_read(str(data.get("id")), channel))
                case _:
                    pass
        except FAULTS as fault:
            self._pass_over(event, fault)

    def _pass_over(self, event: str, fault: Exception) -> None:
        self.bad += 1
        why = type(fault).__name__  # and not its text, which may have a person's words in it
        log.warning("event passed over", channel="discord", event_type=event, reason=why, count=self.bad)

    def _message(self, message: Message, *, edited: bool) -> None:
        channel, guild = message.channel_id, message.guild_id or ""
        place = self._places.known(channel, guild)
        inbound = self._parsed(message, place or Place(channel, guild), edited=edited)
        if inbound is None:
            return
        number = 0 if edited else int(message.id)
        item = self.intake.add(channel, made_at(message.id), inbound if place else None, number)
        if item is not None and place is None:
            self._start(self._place(item, message, edited=edited), "discord place", sure=True)
        if self.intake.waits(channel):
            self.backfill.hurry(channel)

    def _parsed(self, message: Message, place: Place, *, edited: bool = False) -> Inbound | None:
        if parse.withheld(message, self._me):
            self._warn()
            return None
        guild = place.guild
        names = Names(lambda one: self._places.channel_name(guild, one), lambda one: self._places.role_name(guild, one))
        return (parse.edit if edited else parse.message)(message, self._me, place, names)

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning("messages in servers come without their words: " + MISSING_INTENT, channel="discord")

    async def _place(self, item: Item, message: Message, *, edited: bool) -> None:
        """Ask where a channel is, and go on with what was said there."""
        inbound: Inbound | None = None
        try:
            place = await self._patiently(lambda: self._places.find(message.channel_id, message.guild_id or ""))
            inbound = self._parsed(message, place, edited=edited)
        except Refused as error:
            log.info("a message in a place that is not shown to us", channel="discord", chat=message.channel_id, problem=str(error))
        except FAULTS as fault:
            self._pass_over("MESSAGE_CREATE", fault)
        self.intake.settle(item, inbound)

    async def _patiently(self, ask: Callable[[], Awaitable[Place]]) -> Place:
        """Until it is answered: yes or no. Raises Refused."""
        pause = 1.0
        while True:
            try:
                return await ask()
            except ChannelError as error:
                fault = translate(error)
                if isinstance(fault, Denied):
                    raise Gone(str(fault)) from None
                if isinstance(fault, Refused):
                    raise fault from None
                await asyncio.sleep(max(pause, fault.after) if isinstance(fault, Retry) else pause)
                pause = min(30.0, pause * 2)

    def _interaction(self, interaction: Interaction) -> None:
        if interaction.channel is not None:
            place = place_of(interaction.channel, interaction.guild_id or "")
            self._places.learn(place)
        elif interaction.channel_id:
            place = self._places.known(interaction.channel_id, interaction.guild_id or "") or Place(
                interaction.channel_id, interaction.guild_id or ""
            )
        else:
            return
        at = made_at(interaction.id)
        if interaction.type == COMMAND:
            if inbound := parse.command(interaction, self._me, place):
                item = self.intake.add(place.channel, at, number=int(interaction.id))
                if item is not None:
                    self._start(self._defer(item, interaction, inbound), "discord command", sure=True)
        elif interaction.type == COMPONENT:
            self._start(self._interactions.acknowledge(interaction), "discord press")
            if inbound := parse.button(interaction, self._me, place):
                self.intake.add(place.channel, at, inbound, int(interaction.id))
        elif interaction.type == COMPLETE:
            self._start(self._interactions.complete(interaction, place), "discord completion")

    async def _defer(self, item: Item, interaction: Interaction, inbound: Inbound) -> None:
        try:
            await self._interactions.defer(interaction)
        finally:
            self.intake.settle(item, inbound)

    def _start(self, work: Coroutine[Any, Any, None], name: str, *, sure: bool = False) -> None:
        """Beside the reading. What has an item in the intake is `sure`: without it the item would never be settled."""
        if len(self._tasks) >= MOST_TASKS and not sure:
            work.close()
            log.warning("too much to answer at once, left out", channel="discord", what=name)
            return
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("reading failed", channel="discord", what=task.get_name(), exc_info=error)

    def _taken(self, channel: str, inbound: Inbound) -> None:
        """The gateway has it."""
        said = inbound.id.rpartition(":")[2].removeprefix("i")
        if inbound.direct and said.isdecimal():
            self._marks.heard(channel, int(said))

    # ---------------------------------------------------------------------------------------------------------------- the past

    async def _history(self, channel: str, after: int) -> object:
        return await self._http.logs_from(int(channel), 100, after=after)

    def _read(self, raw: object, place: Place) -> Inbound | None:
        try:
            message = convert(raw, Message)
            # The history does not say the server.
            return self._parsed(msgspec.structs.replace(message, guild_id=place.guild or None), place)
        except FAULTS as fault:
            self._pass_over("history", fault)
            return None

    def _may_read(self, guild_id: str, channel_id: str) -> bool:
        """As far as it is known; asking where we may not would be held against us."""
        try:
            guild = self._client.get_guild(int(guild_id))
            channel = guild.get_channel_or_thread(int(channel_id)) if guild else None
            if guild is None or channel is None or guild.me is None:
                return True
            may = channel.permissions_for(guild.me)
        except (discord.ClientException, AttributeError, ValueError):
            return True
        return may.read_messages and may.read_message_history


def _weightiest(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of what came together, what says most about how to go on."""
    leaves: list[BaseException] = []
    groups = [group]
    while groups:
        for error in groups.pop().exceptions:
            if isinstance(error, BaseExceptionGroup):
                groups.append(error)
            else:
                leaves.append(error)
    return min(leaves, key=lambda error: (not isinstance(error, Denied), isinstance(error, ChannelError)))
