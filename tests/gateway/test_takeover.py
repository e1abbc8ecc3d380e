"""Parts whose settings are replaced while they are at work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from channels.base import Address, Pacing
from gateway.errors import StartError
from gateway.options import Access, Backend
from gateway.outbox import Delivery, Outbox
from gateway.outbox.pace import Bucket
from gateway.router import Bounds
from gateway.running import Model
from tests.fakes.openai import FakeModel
from tests.gateway.core import Core, until
from tests.gateway.outbox_net import Book, Net

# ---------------------------------------------------------------------------------------------------------------------------- pacing


def test_a_bucket_goes_on_at_another_rate() -> None:
    """What was taken on credit stays owed, at the new rate; tokens above the new cap are gone; an unlimited one begins full."""
    bucket = Bucket(1.0, 2.0)
    assert [bucket.take(0.0) for _ in range(4)] == [0.0, 0.0, 1.0, 2.0]
    bucket.become(Bucket(10.0, 5.0), 0.0)
    assert bucket.take(0.0) == pytest.approx(0.3)
    full = Bucket(1.0, 9.0)
    full.become(Bucket(1.0, 2.0), 100.0)
    assert [full.take(100.0) for _ in range(3)] == [100.0, 100.0, 101.0]
    free = Bucket(0.0, 1.0)
    assert [free.take(5.0) for _ in range(9)] == [5.0] * 9
    free.become(Bucket(1.0, 2.0), 5.0)
    assert [free.take(5.0) for _ in range(3)] == [5.0, 5.0, 6.0]
    free.become(Bucket(0.0, 1.0), 5.0)
    assert free.take(5.0) == 5.0


@pytest.mark.looptime
@pytest.mark.asyncio
async def test_a_new_pace_counts_for_chats_that_are_being_spoken_to() -> None:
    """Slower and faster, from the next call on, direct chats and groups each at theirs; what is queued is not lost."""
    net = Net(streams=False, pacing=Pacing(chat_per_second=1.0))
    outbox = Outbox({"net": net}, Book(), spread=lambda: 0.0)
    loop = asyncio.get_running_loop()

    def put(n: int) -> asyncio.Future[None]:
        return outbox.put(Delivery(f"net:7:1:{n}", "net:1", Address("net", "1"), f"text {n}"))

    waits = [put(n) for n in range(30)]
    await asyncio.sleep(4.5)
    assert len(net.of("send", Address("net", "1"))) == 3 + 4
    net.pacing = Pacing(chat_per_second=10.0)
    outbox.repace("net")
    began = loop.time()
    await asyncio.gather(*waits)
    assert loop.time() - began < 4
    assert net.visible(Address("net", "1")) == [f"text {n}" for n in range(30)]
    net.pacing = Pacing()
    outbox.repace("net")
    began = loop.time()
    await asyncio.gather(*(put(n) for n in range(30, 60)))
    assert loop.time() - began < 0.1
    await outbox.close()


# -------------------------------------------------------------------------------------------------------------------- history and rules


async def test_more_history_is_read_anew(tmp_path: Path) -> None:
    """A conversation in memory that held less is read again: the next request carries what the new limits allow, and no less when they
    shrink again than they say."""
    async with Core(tmp_path) as core:
        small = Model(core.model, "system", 3, 16000, 30000)
        core.runners.model = small
        core.sessions.remember(3, 16000)
        for n in range(60):
            await core.ask(f"word {n}")
        assert len(core.model.asked[-1]) <= 3
        core.runners.model = Model(core.model, "system", 100, 16000, 30000)
        core.sessions.remember(100, 16000)
        await core.ask("more")
        assert 99 <= len(core.model.asked[-1]) <= 100
        core.runners.model = small
        core.sessions.remember(3, 16000)
        await core.ask("less")
        assert len(core.model.asked[-1]) <= 3
        assert core.seen()[-1] == "Heard: less"


async def test_history_that_changes_in_the_middle_of_a_turn_does_no_harm(tmp_path: Path) -> None:
    """The turn that runs commits its answer to the conversation that it began in."""
    async with Core(tmp_path) as core:
        await core.ask("one")
        go = asyncio.Event()
        core.model.then("slow ", go, "answer")
        await core.say("two")
        await core.running()
        core.sessions.remember(500, 50000)
        core.runners.model = Model(core.model, "another", 500, 50000, 5)
        go.set()
        await core.quiet()
        assert core.seen()[-1] == "slow answer"
        cut = await core.ask("three")
        assert cut.startswith("Heard")
        assert "cut here" in cut
        assert [words for role, words in core.model.asked[-1] if role == "user"] == ["one", "two", "three"]


async def test_rules_and_bounds_count_from_the_next_message_on(tmp_path: Path) -> None:
    """Who is taken off the list is not heard any more; fewer may wait."""
    async with Core(tmp_path, rules=Access(direct="allowlist", allow=("net:1", "net:2"))) as core:
        assert await core.ask("hi") == "Heard: hi"
        core.access.rules = Access(direct="allowlist", allow=("net:2",), admins=("net:2",))
        await core.say("still me")
        assert core.refused == {"stranger": 1}
        go = asyncio.Event()
        core.model.then("x", go)
        await core.say("hi", chat="2", who="2")
        await core.running("2")
        core.router.bounds = Bounds(waiting=1, turns_per_day=0)
        for _ in range(3):
            await core.say("more", chat="2", who="2")
        assert core.refused == {"stranger": 1, "waiting": 2}
        go.set()
        await core.quiet()


# --------------------------------------------------------------------------------------------------------------------------- the model


async def test_the_models_server_changes_between_two_questions(tmp_path: Path) -> None:
    """Address, key and model; a request that cannot be made as asked leaves all as it was."""
    from gateway.backends.openai import make

    async with FakeModel(api_key="k1") as one, FakeModel(api_key="k2") as two:
        settings = Backend(base_url=one.base_url, model="fake")
        asked = msgspec.structs.replace(settings, api_key=type(settings.api_key)("k1"))
        backend = make(asked)
        await backend.check()
        backend.adjust(msgspec.structs.replace(asked, base_url=two.base_url, api_key=type(settings.api_key)("k2")))
        await backend.check()
        backend._env = {"http_proxy": "socks5://127.0.0.1:1"}
        with pytest.raises(StartError, match="http_proxy"):
            backend.adjust(msgspec.structs.replace(asked, base_url="http://192.0.2.1/v1"))
        await backend.check()
        await backend.close()


async def test_one_call_that_waits_holds_up_no_other_chat() -> None:
    """A call that has its token already waits for it as long as was said; every other one goes by the new pace."""
    net = Net(streams=False, pacing=Pacing(chat_per_second=0.001))
    outbox = Outbox({"net": net}, Book(), spread=lambda: 0.0)
    for n in range(5):
        outbox.put(Delivery(f"net:7:1:{n}", "net:1", Address("net", "1"), f"text {n}"))
    await until(lambda: len(net.of("send", Address("net", "1"))) == 3)
    net.pacing = Pacing()
    outbox.repace("net")
    outbox.put(Delivery("net:7:2:1", "net:2", Address("net", "2"), "at once"))
    await until(lambda: net.visible(Address("net", "2")) == ["at once"])
    await outbox.close()
