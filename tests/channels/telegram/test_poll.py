"""`channels.telegram.poll`, over the real transport, against the fake service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from structlog.testing import capture_logs
from telegram.error import TelegramError

from channels.base import Denied
from channels.telegram import updates
from channels.telegram.poll import CONFLICT_OVER, LIMIT, LONGEST_PAUSE, Poller
from channels.telegram.transport import Flood, Transport
from tests.channels.telegram.support import Pauses
from tests.fakes.telegram import FakeTelegram


class Reader:
    """A poller with its transport, and a `take` that keeps texts."""

    def __init__(self, tg: FakeTelegram, *, seconds: float = 2.0, wait: int = 1) -> None:
        self.transport = Transport(tg.base_url, tg.token)
        self.pauses = Pauses()
        self.texts: list[str] = []
        self.full = 0
        self.broken = False
        self.gate = asyncio.Event()
        self.gate.set()
        self._seconds, self._wait = seconds, wait
        self.later = 0.0
        """By how much its clock is ahead of the real one."""
        self.poller = Poller(self._fetch, self._take, pause=self.pauses, spread=lambda: 0.5, clock=lambda: time.monotonic() + self.later)

    async def _fetch(self, offset: int | None) -> bytes:
        params = {"timeout": self._wait} | ({} if offset is None else {"offset": offset})
        return await self.transport.call("getUpdates", params, seconds=self._seconds)

    async def _take(self, batch: Sequence[bytes]) -> None:
        await self.gate.wait()
        if batch and self.full:
            self.full -= 1
            raise OSError(28, "No space left on device")
        if batch and self.broken:
            raise KeyError("a fault of ours")
        for raw in batch:
            if updates.number(raw) is not None:
                message = updates.decode(raw).message
                self.texts.append(message.text if message else "?")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        await self.transport.initialize()
        task = asyncio.create_task(self.poller.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.transport.shutdown()


async def test_what_came_while_we_were_away_is_all_read_in_order() -> None:
    """B03: nothing that waits is thrown away: no offset -1, no dropping, everything in the order in which it was written."""
    async with FakeTelegram() as tg:
        for chat, text in ((1, "a"), (2, "b"), (1, "c")):
            tg.say(chat, text)
        reader = Reader(tg)
        async with reader.running():
            await tg.wait_for(lambda: reader.texts == ["a", "b", "c"])
        assert "offset" not in tg.calls_of("getUpdates")[0].params
        assert tg.resets == []


async def test_nothing_is_confirmed_before_it_is_safe() -> None:
    """B02: while the batch is being written no request says that we have it; afterwards the next one does."""
    async with FakeTelegram() as tg:
        reader = Reader(tg)
        reader.gate.clear()
        update = tg.push({"message": tg.message(1, "a")})
        async with reader.running():
            await tg.wait_for(lambda: tg.calls and tg.calls[0].ok)
            with pytest.raises(AssertionError):
                await tg.wait_for(lambda: len(tg.calls) > 1, timeout=0.1)
            assert tg.pending == 1
            reader.gate.set()
            await tg.wait_for(lambda: tg.offset == update + 1)
        assert reader.texts == ["a"]


async def test_what_was_not_confirmed_comes_again_after_a_restart() -> None:
    """B01: a poller that dies between reading and confirming loses nothing: the next one gets the same updates."""
    async with FakeTelegram() as tg:
        tg.say(1, "a")
        for _ in range(2):
            reader = Reader(tg)
            reader.gate.clear()
            async with reader.running():
                seen = len(tg.calls)
                await tg.wait_for(lambda seen=seen: len(tg.calls) > seen and tg.calls[-1].ok)  # type: ignore[misc]
        reader = Reader(tg)
        async with reader.running():
            await tg.wait_for(lambda: reader.texts == ["a"] and not tg.pending)


async def test_a_full_disk_makes_it_ask_again() -> None:
    """A batch that could not be written is asked for again, with pauses, until it can be; it is told once."""
    async with FakeTelegram() as tg:
        reader = Reader(tg)
        reader.full = 3
        tg.say(1, "a")
        with capture_logs() as lines:
            async with reader.running():
                await tg.wait_for(lambda: reader.texts == ["a"] and not tg.pending)
        assert len(reader.pauses.asked) >= 3
        assert [line["event"] for line in lines] == ["polling has a problem", "polling works again"]


async def test_a_hung_request_is_given_up_for_a_fresh_connection() -> None:
    """B17: one 502, then a request that is taken and never answered: it ends by itself, and a new connection reads on."""
    async with FakeTelegram() as tg:
        tg.fail("getUpdates", 502, b"<html>Bad Gateway</html>")
        hung = tg.hold("getUpdates", before=True)
        reader = Reader(tg, seconds=0.3, wait=0)
        async with reader.running():
            await asyncio.wait_for(hung.reached.wait(), 5)
            tg.say(1, "after")
            await tg.wait_for(lambda: reader.texts == ["after"])
            first, second, third = tg.calls_of("getUpdates")[:3]
            assert third.peer != second.peer
            assert (first.status, second.status) == (502, -1)
            hung.release()


async def test_an_outage_has_no_last_try() -> None:
    """B18: while connections are refused it goes on trying, with pauses that grow to a limit, and reads on when the service is back."""
    async with FakeTelegram() as tg:
        reader = Reader(tg)
        await tg.stop()
        with capture_logs() as lines:
            async with reader.running() as task:
                await tg.wait_for(lambda: len(reader.pauses.asked) >= 30)
                assert not task.done()
                pauses = reader.pauses.asked[:30]
                assert all(a <= b for a, b in pairwise(pauses))
                assert pauses[0] <= 1.0
                assert pauses[-1] <= LONGEST_PAUSE
                await tg.start()
                tg.say(1, "back")
                await tg.wait_for(lambda: reader.texts == ["back"])
        assert [line["event"] for line in lines] == ["polling has a problem", "polling works again"]


async def test_another_poller_is_met_with_patience() -> None:
    """B19: under 409 at most one request in five seconds and one line in the log; when the other is gone, it reads on."""
    async with FakeTelegram() as tg:
        tg.fail("getUpdates", 409, times=20)
        reader = Reader(tg)
        tg.say(1, "a")
        with capture_logs() as lines:
            async with reader.running():
                await tg.wait_for(lambda: reader.texts == ["a"])
                assert reader.poller.problem
                reader.later += CONFLICT_OVER
                await tg.wait_for(lambda: not reader.poller.problem)
        assert len(reader.pauses.asked) >= 20
        assert min(reader.pauses.asked[:20]) >= 5
        assert [line["event"] for line in lines] == ["polling has a problem", "polling works again"]
        assert lines[0]["problem"] == "another program is reading this bot's messages"


async def test_two_that_take_turns_are_one_trouble() -> None:
    """B19: with answers between the 409s, some of them with messages, there is one line, the trouble stays named, and the pauses grow to
    half a minute; none of the messages is lost."""
    async with FakeTelegram() as tg:
        reader = Reader(tg)
        with capture_logs() as lines:
            async with reader.running():
                for turn in range(6):
                    tg.fail("getUpdates", 409, times=2)
                    tg.say(1, f"{turn}")
                    await tg.wait_for(lambda turn=turn: f"{turn}" in reader.texts)  # type: ignore[misc]
                    await tg.wait_for(lambda turn=turn: [c.status for c in tg.calls_of("getUpdates")].count(409) == 2 * turn + 2)  # type: ignore[misc]
                    assert reader.poller.problem
                    reader.later += CONFLICT_OVER / 2
                assert reader.texts == ["0", "1", "2", "3", "4", "5"]
                assert max(reader.pauses.asked) > 20
                heard = len(tg.calls_of("getUpdates"))
                await tg.wait_for(lambda: len(tg.calls_of("getUpdates")) > heard + 1)  # the last 409 has been dealt with
                reader.later += CONFLICT_OVER
                await tg.wait_for(lambda: not reader.poller.problem)
        assert [line["event"] for line in lines] == ["polling has a problem", "polling works again"]


async def test_a_webhook_set_meanwhile_is_named() -> None:
    """B19: the other kind of 409 is told apart, and is left alone."""
    async with FakeTelegram() as tg:
        tg.webhook_url = "https://elsewhere.example/"
        reader = Reader(tg)
        async with reader.running():
            await tg.wait_for(lambda: len(reader.pauses.asked) > 2)
            assert reader.poller.problem == "a webhook is set on this bot"
        assert tg.webhook_url == "https://elsewhere.example/"


@pytest.mark.parametrize("token", ["123456:WRONG", "nonsense"])
async def test_a_refused_token_ends_it(token: str) -> None:
    """401 and 404 are for good."""
    async with FakeTelegram() as tg:
        reader = Reader(tg)
        reader.transport = Transport(tg.base_url, token)
        async with reader.running() as task:
            with pytest.raises(Denied):
                await asyncio.wait_for(task, 5)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>Welcome to the hotel</html>"),
        (200, b'{"ok":true}'),
        (200, b'{"ok":true,"result":[{"no":"number"}]}'),
        (302, b""),
        (401, b"<html>Proxy login</html>"),
        (403, b"Forbidden by policy"),
        (404, b"<html>nginx</html>"),
        (500, b""),
        (503, b'{"ok":false,"error_code":503,"description":"Service Unavailable"}'),
    ],
)
async def test_what_stands_between_us_and_telegram_decides_nothing(status: int, body: bytes) -> None:
    """A portal's or a proxy's page is a problem of the network, whatever its status: neither a tight loop nor the end."""
    async with FakeTelegram() as tg:
        tg.fail("getUpdates", status, body, times=3)
        reader = Reader(tg)
        tg.say(1, "a")
        async with reader.running():
            await tg.wait_for(lambda: reader.texts == ["a"])
        assert len(reader.pauses.asked) >= 3


async def test_it_waits_as_long_as_it_is_asked_to() -> None:
    """A 429 on reading is obeyed to the second."""
    async with FakeTelegram() as tg:
        tg.fail("getUpdates", 429, {"parameters": {"retry_after": 47}})
        reader = Reader(tg)
        async with reader.running():
            await tg.wait_for(lambda: reader.pauses.asked)
        assert reader.pauses.asked[0] == 47


async def test_a_server_that_does_not_wait_is_not_hammered() -> None:
    """Empty answers that come at once (a Bot API server that is going down gives them) are followed by a pause."""
    async with FakeTelegram() as tg:
        reader = Reader(tg, wait=0)
        async with reader.running():
            await tg.wait_for(lambda: len(tg.calls) > 5)
        assert len(reader.pauses.asked) >= len([call for call in tg.calls if call.ok]) - 1


async def test_a_fault_of_ours_is_not_swallowed() -> None:
    """What `take` raises besides OSError reaches the supervisor, and the batch is not confirmed."""
    async with FakeTelegram() as tg:
        tg.say(1, "a")
        reader = Reader(tg)
        reader.broken = True
        async with reader.running() as task:
            with pytest.raises(KeyError):
                await asyncio.wait_for(task, 5)
        assert tg.pending == 1


async def test_the_last_answer_is_its_sign_of_life() -> None:
    """It moves with each answer, and stands still while nothing comes."""
    async with FakeTelegram() as tg:
        reader = Reader(tg)
        async with reader.running():
            tg.say(1, "a")
            await tg.wait_for(lambda: reader.texts)
            before = reader.poller.last
            assert before > 0
            tg.say(1, "b")
            await tg.wait_for(lambda: reader.poller.last > before)
            await tg.stop()
            still = reader.poller.last
            await tg.wait_for(lambda: reader.pauses.asked)
            assert reader.poller.last == still


async def test_a_step_without_end_is_known_and_a_pause_is_none() -> None:
    """What hangs past its limit shows as overdue, be it the request or the storing; waiting as the network asks, however long, does not."""
    now = 1000.0
    steps: asyncio.Queue[str] = asyncio.Queue()
    go: asyncio.Queue[bytes | TelegramError] = asyncio.Queue()

    async def fetch(offset: int | None) -> bytes:
        steps.put_nowait("fetch")
        answer = await go.get()
        if isinstance(answer, TelegramError):
            raise answer
        return answer

    async def take(batch: Sequence[bytes]) -> None:
        steps.put_nowait("take")
        await go.get()

    async def pause(seconds: float) -> None:
        steps.put_nowait(f"pause {seconds:g}")
        await go.get()

    poller = Poller(fetch, take, pause=pause, spread=lambda: 0.5, clock=lambda: now)
    assert poller.overdue() == 0.0
    task = asyncio.create_task(poller.run())
    assert await steps.get() == "fetch"
    now += LIMIT + 5
    assert poller.overdue() == 5
    go.put_nowait(b'{"ok":true,"result":[{"update_id":1}]}')
    assert await steps.get() == "take"
    assert poller.overdue() == 0.0
    now += LIMIT + 7
    assert poller.overdue() == 7
    go.put_nowait(b"")
    assert await steps.get() == "fetch"
    assert poller.overdue() == 0.0
    go.put_nowait(Flood(3600))
    assert await steps.get() == "pause 3600"
    now += 3600
    assert poller.overdue() == 0.0
    task.cancel()
    await asyncio.wait({task})
    now += 86400
    assert poller.overdue() == 0.0
