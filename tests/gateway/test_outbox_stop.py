"""What is left of an answer is taken back while it is being sent; and a shutdown waits for nothing that cannot go out."""

from __future__ import annotations

import asyncio
import math

import pytest

from channels.base import Address, Gone, NotSent, Retry, Unknown
from gateway.outbox import Delivery, Outbox
from tests.gateway.outbox_net import CHAT, HANG, Book, Landed, Net, Slow

pytestmark = pytest.mark.looptime

OTHER = Address("net", "2")
KEY = "net:1"


def build(net: Net) -> tuple[Outbox, Book]:
    book = Book()
    return Outbox({"net": net}, book, spread=lambda: 0.0), book


def answer(text: str, input_id: str = "i1", **more: object) -> Delivery:
    return Delivery(input_id, KEY, CHAT, text, answer=("main", 2), **more)  # type: ignore[arg-type]


def now() -> float:
    return asyncio.get_running_loop().time()


async def take_back(outbox: Outbox) -> None:
    sending = outbox.sending(CHAT, KEY)
    assert sending is not None
    sending.stop()
    await sending.over()


@pytest.mark.parametrize("streams", [False, True])
async def test_pieces_that_are_not_sent_are_dropped_and_recorded_so(streams: bool) -> None:
    """The piece on its way arrives and is recorded, nothing of those behind it is sent, no placeholder stays, and what waits goes on."""
    net = Net(units=4, streams=streams, latency=1.0)
    outbox, book = build(net)
    done = outbox.put(answer("aaaabbbbccccdddd"))
    behind = outbox.put(Delivery("i2", KEY, CHAT, "next"))
    await asyncio.sleep(3.5 if streams else 1.5)  # in the second piece's send, or the edit that follows its placeholder
    await take_back(outbox)
    await done
    assert net.visible() == ["aaaa", "bbbb"]
    assert book.sent_of("i1")[-1][:2] == ((4, 8), ("m2",))
    assert [line for line in book.lines if line[1] == "i1"][-2:] == [("stopped", "i1", 8), ("finished", "i1", "stopped")]
    await behind
    assert net.visible() == ["aaaa", "bbbb", "next"]
    assert outbox.sending(CHAT, KEY) is None
    await outbox.close()


@pytest.mark.parametrize("error", [Retry(7200), NotSent("refused"), Unknown("502")])
async def test_a_wait_is_cut_short(error: Exception) -> None:
    """An answer that waits for hours, or for a network that is away, is taken back at once; its empty message goes when it may."""
    net = Net(units=4, judge=lambda call: error if call.op == "edit" else None)
    outbox, book = build(net)
    outbox.put(answer("aaaabbbb"))
    await asyncio.sleep(100)
    sending = outbox.sending(CHAT, KEY)
    assert sending is not None
    sending.stop()
    await sending.over()
    assert now() < 101
    assert ("stopped", "i1", 0) in book.lines
    await asyncio.sleep(7200)
    assert (net.visible(), book.reason("i1")) == ([], "stopped")
    assert not net.faults
    await outbox.close()


async def test_what_is_seen_already_is_brought_to_its_end() -> None:
    """A piece whose words stand in the chat is not taken away or left in the middle; the one behind it is not begun."""
    net = Net(units=10)
    outbox, book = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.grow("abcdefghijkl")
    await asyncio.sleep(5)
    assert net.visible() == ["abcdefghij", "kl"]
    net.fail("edit", Slow(5))
    outbox.put(answer("abcdefghijklmnopqrstuvwxyz"), stream)
    await asyncio.sleep(1)
    await take_back(outbox)
    assert net.visible() == ["abcdefghij", "klmnopqrst"]
    assert ("stopped", "i1", 20) in book.lines
    await outbox.close()


async def test_nobody_knows_whether_a_send_arrived_and_it_is_not_repeated() -> None:
    """Taken back while a plain send hangs: its outcome is recorded as ever, and what is behind it is not sent."""
    net = Net(units=4, streams=False, latency=1.0)
    net.fail("send", None, Landed(Unknown("timeout")))
    outbox, book = build(net)
    done = outbox.put(answer("aaaabbbbcccc"))
    await asyncio.sleep(1.5)
    await take_back(outbox)
    await done
    assert net.visible() == ["aaaa", "bbbb"]
    assert book.sent_of("i1")[-1] == ((4, 8), (), True)
    assert book.reason("i1") == "stopped"
    await outbox.close()


async def test_an_answer_that_is_out_cannot_be_taken_back() -> None:
    """The last piece is on its way: it arrives, and the books say that all is well."""
    net = Net(latency=2.0)
    outbox, book = build(net)
    outbox.put(answer("all of it"))
    await asyncio.sleep(3)
    await take_back(outbox)
    assert (net.visible(), book.reason("i1")) == (["all of it"], "")
    await outbox.close()


async def test_whoever_came_with_a_ticket_does_not_see_the_bot_think_for_ever() -> None:
    """Taken back before a word of it was out: one word takes the place of the sign."""
    net = Net(streams=False)
    net.fail("send", Retry(60))
    outbox, book = build(net)
    done = outbox.put(answer("words", reply_to="ticket:t7"))
    await asyncio.sleep(1)
    await take_back(outbox)
    await done
    assert [(call.text, call.reply_to) for call in net.of("send")][1:] == [("(stopped)", "ticket:t7")]
    assert book.reason("i1") == "stopped"
    await outbox.close()


async def test_only_answers_of_the_key_are_taken_back_the_oldest_first() -> None:
    """Neither what commands say nor other people's answers."""
    net = Net(judge=lambda call: Retry(50))
    outbox, _ = build(net)
    outbox.put(Delivery("i0", KEY, CHAT, "a reply"))
    assert outbox.sending(CHAT, KEY) is None
    outbox.put(Delivery("x", "net:2", OTHER, "theirs", answer=("main", 2)))
    assert outbox.sending(CHAT, KEY) is None
    outbox.put(answer("first", "i1"))
    outbox.put(answer("second", "i2"))
    sending, second = outbox.sending(CHAT, KEY), outbox.sending(CHAT, KEY, "i2")
    assert sending is not None
    assert second is not None
    sending.stop()
    assert (sending.stopped(), second.stopped()) == (True, False)
    await outbox.close()
    await sending.over()


async def test_recovery_sends_nothing_behind_what_was_taken_back() -> None:
    """Killed between the record and the end: what the session holds is all out, and the empty message that is left goes."""
    net = Net(units=4)
    net.messages[CHAT] = {"p0": "aaaa", "p1": "…"}
    outbox, book = build(net)
    await outbox.put(answer("aaaa", placed={0: "p0", 1: "p1"}, sent_to=16))
    assert (net.visible(), net.ops(), book.reason("i1")) == (["aaaa"], ["delete"], "")
    await outbox.close()


# ---------------------------------------------------------------------------------------------------------------- the end, and the gone


@pytest.mark.parametrize("everywhere", [False, True])
async def test_a_wait_of_hours_does_not_hold_up_the_end(everywhere: bool) -> None:
    """What cannot go out before the deadline is not waited for; what can, is."""
    net = Net(judge=lambda call: None)
    net.fail("send", Retry(3600, everywhere=everywhere))
    outbox, book = build(net)
    outbox.put(Delivery("i1", KEY, CHAT, "late"))
    await asyncio.sleep(1)
    net.fail("send", Slow(4) if not everywhere else None)
    outbox.put(Delivery("i2", "net:2", OTHER, "soon"))
    began = now()
    left = await outbox.drain(20)
    assert now() - began == pytest.approx(0 if everywhere else 4, abs=0.2)
    assert (left, net.visible(OTHER)) == ((2, []) if everywhere else (1, ["soon"]))
    await outbox.close()
    assert book.reason("i1") is None


async def test_who_has_time_waits_for_hours() -> None:
    """Where no deadline is set, everything goes out."""
    net = Net()
    net.fail("send", Retry(7200), NotSent("refused"))
    outbox, _ = build(net)
    outbox.put(Delivery("i1", KEY, CHAT, "late"))
    assert await outbox.drain(math.inf) == 0
    assert (net.visible(), now() > 7200) == (["late"], True)
    await outbox.close()


async def test_a_call_on_its_way_is_waited_for_even_in_a_wait_of_the_whole_bot() -> None:
    """Cutting it would leave an outcome that nobody knows."""
    net = Net()
    net.fail("send", Slow(5), Retry(3600, everywhere=True))
    outbox, book = build(net)
    outbox.put(Delivery("i1", KEY, CHAT, "on its way"))
    await asyncio.sleep(1)
    outbox.put(Delivery("i2", "net:2", OTHER, "held"))
    await asyncio.sleep(1)
    assert await outbox.drain(20) == 1
    assert (net.visible(), book.reason("i1")) == (["on its way"], "")
    await outbox.close()


async def test_a_hung_send_is_cut_at_the_deadline() -> None:
    """As ever."""
    net = Net(judge=lambda call: HANG)
    outbox, _ = build(net)
    outbox.put(Delivery("i1", KEY, CHAT, "hello"))
    await asyncio.sleep(1)
    began = now()
    assert await outbox.drain(7) == 1
    assert now() - began == pytest.approx(7, abs=0.1)
    await outbox.close()


async def test_a_place_that_is_gone_is_named_once_until_it_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    """One warning with the place and the network's words, however many things are said there; another when it shuts again."""
    net = Net(judge=lambda call: Gone("bot was blocked by the user"))
    outbox, _ = build(net)
    for n in range(3):
        await outbox.put(answer("hello", f"i{n}"))
    net.judge = lambda call: None
    await outbox.put(answer("hello", "i4"))
    net.judge = lambda call: Gone("bot was kicked")
    stream = outbox.stream(CHAT, "i5")
    stream.grow("he")
    await asyncio.sleep(1)
    await outbox.put(answer("hello", "i5"), stream)
    said = [line for line in capsys.readouterr().out.splitlines() if "may not speak here" in line]
    assert len(said) == 2
    assert all("chat=1" in line.replace("'", "") for line in said)
    assert "blocked by the user" in said[0]
    assert "kicked" in said[1]
    await outbox.close()
