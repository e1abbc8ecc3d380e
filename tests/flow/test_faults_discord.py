"""Each kind of request to Discord, met by each way to go wrong: the chat goes on, and nobody else notices.

A send here carries a nonce and may be repeated, so that an answer of which nobody knows whether it arrived comes all the same, once. What a
command says into its place goes by edit; where its token is refused it comes as a message. What stays refused is lost, and what was asked
next is answered, without a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import CALLBACK, EDIT, EDIT_ORIGINAL, FETCH, PUBLIC_THREAD, SEND, TYPING, Call, Channel
from tests.fakes.openai import FakeModel
from tests.flow.daemon import KEY, TOKEN, Daemon
from tests.flow.faults import ALL, PATIENCE, Bystander, Script, Way, beside, chosen, ways
from tests.flow.on_discord import alone, check_bodies, check_log, served, until
from tests.flow.seen import BOTH

BEGUN = "…"
WAYS = ways(
    wait={"retry_after": 1.0},
    no_wait={"retry_after": 0.0},
    nonsense=[("id number", b'{"id": 5}'), ("id null", b'{"id": null}'), ("id word", b'{"id": "x"}')],
)
WALL = ("429 page",)
"""It means the whole bot, and has a test of its own."""
LOOKUP, MEMBER, GUILD = "GET /channels/{channel_id}", "GET /guilds/{guild_id}/members/{user_id}", "GET /guilds/{guild_id}"


@dataclass(frozen=True)
class Request:
    """A kind of request, and how a person brings it about. `said` is what the chat must show of that, once; "" where it is any text."""

    name: str
    route: str
    begin: Callable[[FakeDiscord, int, int], object]
    said: str
    when: Callable[[Call], bool] | None = None
    sends: bool = False
    place: str = "direct"
    streaming: str = "edit"


def press(dc: FakeDiscord, chat: int, user: int) -> None:
    message = dc.add(chat, dc.bot, "press")
    dc.press_raw(chat, "/whoami", message, user)


def attach(dc: FakeDiscord, chat: int, user: int) -> None:
    dc.say(chat, "look", user=user, attachments=[dc.attachment("notes.txt", b"some words", "text/plain")])


REQUESTS = [
    Request("placeholder", SEND, lambda dc, c, u: dc.say(c, "one", user=u), "Heard: one", lambda call: call.content == BEGUN),
    Request("growing", EDIT, lambda dc, c, u: dc.say(c, f"slow {u}", user=u), "One slow ", lambda call: call.content == "One"),
    Request("last edit", EDIT, lambda dc, c, u: dc.say(c, f"slow {u}", user=u), "One slow ", lambda call: call.content != "One"),
    Request("typing", TYPING, lambda dc, c, u: dc.say(c, f"late {u}", user=u), "late "),
    Request("reply", SEND, lambda dc, c, u: dc.say(c, "/whoami", user=u), "discord:", sends=True),
    Request("file", FETCH, attach, "look"),
    Request("command", CALLBACK, lambda dc, c, u: dc.slash(c, "whoami", user=u), "discord:"),
    Request("command's place", EDIT_ORIGINAL, lambda dc, c, u: dc.slash(c, "whoami", user=u), "discord:"),
    Request("press", CALLBACK, press, "discord:"),
    Request("completion", CALLBACK, lambda dc, c, u: dc.autocomplete(c, "switch", "name", "m", u), ""),
    Request("member", MEMBER, lambda dc, c, u: dc.say(c, f"<@{dc.bot.id}> /reset", user=u), "", place="server"),
    Request("server", GUILD, lambda dc, c, u: dc.say(c, f"<@{dc.bot.id}> /reset", user=u), "", place="server"),
    Request("thread", LOOKUP, lambda dc, c, u: dc.say(c, f"<@{dc.bot.id}> one", user=u), "one", place="unknown thread"),
    Request("answer", SEND, lambda dc, c, u: dc.say(c, "one", user=u), "Heard: one", sends=True, streaming="off"),
]
REFUSALS = frozenset({"400", "403", "404", "409", "403 page"})


class World:
    def __init__(self, dc: FakeDiscord) -> None:
        self.dc, self.script, self.people = dc, Script(), count(700_000_000_000_001_000)

    def place(self, kind: str, user: int) -> int:
        dc = self.dc
        if kind == "direct":
            return dc.dm(user)
        channel = dc.channel(dc.guild(f"Home {user}", owner=user + 500_000), "general")
        if kind == "server":
            return channel
        # A thread that the gateway did not tell of: where it is must be asked.
        parent = dc.channels[channel]
        thread = dc.channels[dc.new_id()] = Channel(dc.new_id(), PUBLIC_THREAD, "hidden", parent.guild, channel, owner=user)
        dc.channels[thread.id] = thread
        return thread.id

    async def case(self, request: Request, way: Way, times: int) -> None:
        """One fault in a chat of its own; the next question there is answered, and what was asked before it is answered once."""
        dc, user = self.dc, next(self.people)
        chat = self.place(request.place, user)
        guild = str(dc.channels[chat].guild)

        def strikes(call: Call) -> bool:
            here = call.channel == chat or call.path.get("guild_id") == guild
            return here and (request.when is None or request.when(call))

        fault = way.plan(dc, request.route, times=times, when=strikes)
        case = (request.name, way.name, times)
        try:
            request.begin(dc, chat, user)
            if request.name == "last edit":
                self.script.go_on(f"slow {user}")
            await dc.wait_for(lambda: fault.hits, PATIENCE)
            self.script.go_on(f"{'late' if request.name == 'typing' else 'slow'} {user}")
            question = f"next {user}"
            dc.say(chat, question if request.place == "direct" else f"<@{dc.bot.id}> {question}", user=user)
            lost_place = request.name == "thread" and way.name in REFUSALS
            seen = await until(dc, chat, lambda seen: seen and seen[-1].startswith("Heard:") and question in seen[-1], PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from None
        said = [text for text in seen[:-1] if text not in (BEGUN, "press")]
        copies = sum(request.said in text for text in said)
        refused = way.name in REFUSALS and (times > 1 or request.sends or lost_place)
        if request.name == "completion":
            assert not said, (case, seen)
            return
        assert copies <= 1, (case, seen)
        hung = way.name == "hang" and times > 1 and request.sends  # by then the nonce is not sure any more
        assert copies or refused or hung, (case, seen)


def slash_free(daemon: Daemon) -> None:
    for secret in (TOKEN, KEY):
        assert secret not in daemon.text()


@BOTH
@pytest.mark.timeout(900 if ALL else 60)
async def test_each_request_survives_each_fault(tmp_path: Path, streaming: str) -> None:
    """Sends, edits, signs, first answers to commands and presses, completions, questions about places and admins: refused, delayed,
    unanswered or answered with nonsense, once or three times. Somebody else talks all along and is answered each time."""
    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        world = World(dc)
        model.script(world.script.answer)
        other = dc.dm(7_000)
        async with served(tmp_path, alone(dc, model, streaming=streaming), dc) as daemon:
            await dc.wait_for(lambda: dc.commands, PATIENCE)
            cases = [
                world.case(request, way, times)
                for request in REQUESTS
                if streaming in ("edit", request.streaming) and (ALL or request.streaming == streaming)
                for way in chosen(WAYS, without=WALL, again=streaming == "off")
                # A place that we are said not to see is not spoken in, the next question there included.
                for times in ((1, 3) if ALL and not (request.name == "thread" and way.name in REFUSALS) else (1,))
            ]
            ben = Bystander(
                lambda text: dc.say(other, text),
                lambda text: until(dc, other, lambda seen: seen[-1:] == [f"Heard: {text}"], PATIENCE),
            )
            await beside(ben, cases)
            assert await daemon.stop() == 0
            assert len(dc.visible(other)) == ben.turns
        check_bodies(dc)
        check_log(daemon, dc)
        slash_free(daemon)
