"""kill -9 at chosen points: between a message's acceptance and the network's hearing of it; at each network call that a turn or a command
makes, before and after its effect; in each state of the model's answer; then again at the calls by which the next life goes on.

Every story at every point has a chat of its own, all stand still at the same time, and one kill strikes them all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from tests.crash.audit import Audit
from tests.crash.networks import Held, OnTelegram, Place
from tests.crash.records import unfinished
from tests.crash.talk import Talk
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN, Daemon, free_port
from tests.flow.people import config


@dataclass(frozen=True)
class Point:
    """A call of one chat: which one of its kind, and whether its effect is done. Or the model's first answer after `number` steps."""

    method: str
    """As `tests.crash.networks` calls it; or "model"."""
    number: int
    before: bool = False


SENDS = [Point("send", number, before) for number in range(4) for before in (True, False)]
EDITS = [Point("edit", number, before) for number in (0, 1, 2, 3, 5, 8, 11) for before in (True, False)]
MODEL = [Point("model", number) for number in (0, 1, 3, 5, 23, 24)]
"""Of the 25 steps of a long answer: asked, begun, a paragraph, two, all words, the reason to stop."""
AGAIN = [Point(method, 0, before) for method in ("any", "send", "edit", "delete") for before in (True, False)]
"""Where the second life is struck."""

LONG, SHORT, FAILS = "long", "short", "fails"
STORIES: dict[str, list[Point]] = {
    LONG: SENDS + EDITS + MODEL,
    SHORT: SENDS[:4] + EDITS[:8] + MODEL[:3],
    f"{LONG} /reset": SENDS + EDITS[:6],
    f"{LONG} /stop": SENDS[:4] + EDITS[:6],
    f"{SHORT} | /fork_west": SENDS[:2],
    f"{SHORT} | /reset": SENDS[:2],
    f"{SHORT} | /undo": SENDS[:2],
    f"{SHORT} | /switch_nowhere": SENDS[:2],
    f"{SHORT} | /forget_yes": SENDS[:2],
    f"{SHORT} | /retry": SENDS[:2] + EDITS[:8],
    f"{SHORT} | {LONG} {FAILS}": SENDS + EDITS[:4],
    f"{SHORT} | /fork_west {SHORT} /undo /switch_main {SHORT}": SENDS + EDITS[:8],
    f"{SHORT} | {LONG} {SHORT} /fork_west /retry": SENDS + EDITS + MODEL,
}
"""What is said in a row; what stands before a bar is said and answered before. "_" is a blank."""
PLAYS = [(story, point) for story, points in STORIES.items() for point in points]
PLAYS += [(LONG, MODEL[-2]) for _ in AGAIN]
"""All of a long answer is visible and none of it on record; so the second life, whose answer is shorter, has messages to take away."""
CHATS = [(number, *play) for number, play in enumerate(PLAYS, 1)]


def speak(talk: Talk, chat: int, words: str, point: Point | None = None) -> None:
    place = Place("telegram", chat)
    for word in words.split():
        if word in {LONG, SHORT, FAILS}:
            said = talk.ask(place, long=word == LONG, fails=word == FAILS)
            if point is not None and point.method == "model":
                talk.hang[said.tag], point = point.number, None
        else:
            talk.say(place, word.replace("_", " "))


class Stage:
    """The daemon, and the points at which chats stand still."""

    def __init__(self, daemon: Daemon, tg: FakeTelegram, talk: Talk) -> None:
        self.daemon, self.tg, self.talk = daemon, tg, talk
        self.struck: Counter[str] = Counter()
        """How many calls of which kind were struck, and "effect": how many of them with their effect done and not told."""
        self._held: dict[int, tuple[str, Held]] = {}

    def hold(self, chat: int, point: Point) -> None:
        if point.method != "model":
            held = self.talk.networks["telegram"].hold(point.method, chat=chat, before=point.before, skip=point.number)
            self._held[chat] = point.method, held

    async def still(self) -> None:
        """Until each chat stands at its point, or has gone past it and is finished."""

        def look() -> bool:
            waiting = unfinished(self.daemon.data)
            open_ones = {said.place.chat for said in self.talk.said if said.id in waiting}
            silent = {said.place.chat for said in self.talk.said if said.tag in self.talk.silent}
            return not self.tg.pending and not open_ones - silent - {
                chat for chat, (_, held) in self._held.items() if held.reached.is_set()
            }

        await self.tg.wait_for(look, 60)

    async def strike(self, *points: Point) -> None:
        """Kill and start; the chats stand still at these points then. What was held stays undone, as in a process that is gone."""
        await self.daemon.kill()
        for method, held in self._held.values():
            held.times = 0
            if held.reached.is_set():
                self.struck[method] += 1
                self.struck["effect"] += held.after
        self.struck["model"] += len(self.talk.silent)
        self.talk.silent.clear()
        self._held.clear()
        for chat, _, _ in CHATS if points else []:
            self.hold(chat, points[chat % len(points)])
        await self.daemon.start()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("streaming", ["edit", "off"])
async def test_a_kill_at_each_call_loses_and_doubles_nothing(tmp_path: Path, streaming: str) -> None:
    """Where a send had its effect and nobody was told, an empty placeholder may be left over, or a plain message is there twice: at most
    one for each such kill. Everything else is there once, and in order."""
    async with FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        talk = Talk({"telegram": OnTelegram(tg)}, model)
        async with Daemon(tmp_path, config(tg, model, streaming=streaming)) as daemon:
            stage = Stage(daemon, tg, talk)
            for chat, story, _ in CHATS:
                if "|" in story:
                    speak(talk, chat, story.partition("|")[0])
            await stage.still()
            for chat, story, point in CHATS:
                stage.hold(chat, point)
                speak(talk, chat, story.rpartition("|")[2], point)
            await stage.still()
            await stage.strike(*AGAIN)
            await stage.still()
            await stage.strike()
            await stage.still()
            assert await daemon.stop() == 0
        audit = Audit(talk, daemon.data, streamed={"telegram": streaming == "edit"})
        print(streaming, len(CHATS), dict(stage.struck), dict(audit.counts))
        assert not audit.faults, audit.verdict(2)
        assert sum(audit.counts[what] for what in ("placeholder left", "reply doubled", "piece doubled")) <= stage.struck["effect"]
        assert stage.struck["send"] > 30
        if streaming == "edit":
            assert min(stage.struck[what] for what in ("edit", "model")) > 10
            assert stage.struck["delete"] > 0


ROWS = [f"{SHORT} {SHORT} /fork_west {SHORT}", f"{SHORT} /reset {SHORT} /undo", f"{SHORT} /retry /switch_main", f"{LONG} /stop {SHORT}"]


@pytest.mark.parametrize("streaming", ["edit", "off"])
@pytest.mark.parametrize("before", [True, False], ids=["not told", "told"])
async def test_a_kill_around_the_confirmation_of_a_poll(tmp_path: Path, streaming: str, before: bool) -> None:
    """Accepted, worked off, and killed before the network was told, or before it answered: nothing is taken twice, nothing is missed."""
    async with FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        talk = Talk({"telegram": OnTelegram(tg)}, model)
        text = config(tg, model, streaming=streaming).replace('poll_timeout = "5s"', 'poll_timeout = "1s"')
        async with Daemon(tmp_path, text) as daemon:
            stage = Stage(daemon, tg, talk)
            for round_ in range(3):
                told = tg.offset
                held = tg.hold("getUpdates", before=before, when=lambda params, told=told: int(params.get("offset") or 0) > told)  # type: ignore[misc]
                for chat in range(1, 9):
                    speak(talk, chat, ROWS[(chat + round_) % len(ROWS)])
                await tg.wait_for(held.reached.is_set, 20)
                if round_ == 1:  # in the middle of the work; else when all is done
                    await talk.wait(talk.said[-1], 0.1)
                else:
                    await tg.wait_for(lambda: not unfinished(daemon.data), 20)
                assert bool(tg.pending) == before
                await daemon.kill()
                held.remove()
                await daemon.start()
                await stage.still()
            assert await daemon.stop() == 0
        audit = Audit(talk, daemon.data, streamed={"telegram": streaming == "edit"})
        assert not audit.faults, audit.verdict(3)


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "alive"])
async def test_a_webhook_whose_200_is_lost(tmp_path: Path, kill: bool) -> None:
    """The network posts again what it does not know to be taken: it is taken once, whether or not the daemon died in between."""
    outside, inside = free_port(), free_port()
    lost: list[int] = []
    async with FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model, ClientSession() as http:

        async def forward(request: web.Request) -> web.Response:
            """A proxy that loses every first answer."""
            update = await request.json()
            async with http.post(f"http://127.0.0.1:{inside}/", json=update, headers=request.headers) as response:
                if response.status == 200 and update["update_id"] not in lost:
                    lost.append(update["update_id"])
                    if kill and len(lost) % 6 == 1:
                        await daemon.kill()
                        await daemon.start()
                    return web.Response(status=502)
                return web.Response(status=response.status)

        proxy = web.AppRunner(app := web.Application(), access_log=None)
        app.router.add_post("/{path:.*}", forward)
        await proxy.setup()
        await web.TCPSite(proxy, "127.0.0.1", outside).start()
        talk = Talk({"telegram": OnTelegram(tg)}, model)
        text = config(tg, model, webhook_port=inside).replace(
            f'webhook_url = "http://127.0.0.1:{inside}', f'webhook_url = "http://127.0.0.1:{outside}'
        )
        async with Daemon(tmp_path, text) as daemon:
            for chat in range(1, 7):
                speak(talk, chat, ROWS[chat % len(ROWS)])
            await Stage(daemon, tg, talk).still()
            assert await daemon.stop() == 0
        await proxy.cleanup()
        audit = Audit(talk, daemon.data, streamed={"telegram": True})
        assert not audit.faults, audit.verdict(len(lost) // 6)
        assert len(lost) == len(talk.said)
