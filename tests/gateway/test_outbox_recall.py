"""Deliveries that an earlier life of the process may have begun: the one send that may have happened is looked for first."""

from __future__ import annotations

import pytest

from channels.base import Denied, NotSent, Retry
from gateway.outbox import Delivery, Outbox
from tests.gateway.outbox_net import CHAT, Book, Net

pytestmark = pytest.mark.looptime


def left(text: str, **more: object) -> Delivery:
    """What a restart finds."""
    return Delivery("i1", "net:1", CHAT, text, since=100.0, **more)  # type: ignore[arg-type]


async def deliver(net: Net, delivery: Delivery) -> Book:
    book = Book()
    outbox = Outbox({"net": net}, book, spread=lambda: 0.0)
    await outbox.put(delivery)
    await outbox.close()
    return book


def earlier(*texts: str, units: int = 4) -> Net:
    """A network in which an earlier life said this."""
    messages = {f"e{number}": text for number, text in enumerate(texts)}
    return Net(units=units, streams=False, messages={CHAT: messages}, before=set(messages))


async def test_what_is_there_is_recorded_and_not_sent() -> None:
    """Rule 13: by the id that it has there."""
    net = earlier("abcd")
    book = await deliver(net, left("abcd"))
    assert net.ops() == ["recall"]
    assert book.lines == [("sent", "i1", (0, 4), ("e0",), False), ("finished", "i1", "")]


async def test_only_one_piece_can_be_in_doubt() -> None:
    """The first without a record: a later one is sent only when that is on record. What is not there is sent."""
    net = earlier("abcd", "efgh")
    await deliver(net, left("abcdefghij", sent_to=4))
    assert net.ops() == ["recall", "send"]
    net = earlier("abcd")
    await deliver(net, left("abcdefghij", sent_to=4))
    assert net.ops() == ["recall", "send", "send"]
    assert net.visible() == ["abcd", "efgh", "ij"]


async def test_a_piece_like_an_earlier_one_is_sent() -> None:
    """The earlier one would be taken for it; rather a repeat than a hole."""
    net = earlier("abcd")
    await deliver(net, left("abcdabcd", sent_to=4))
    assert net.ops() == ["send"]


async def test_what_this_life_put_on_record_is_not_looked_for() -> None:
    """It costs no call."""
    net = earlier("abcd")
    await deliver(net, Delivery("i1", "net:1", CHAT, "abcd"))
    assert net.ops() == ["send"]


@pytest.mark.parametrize("fault", [NotSent("outage"), Retry(7.0)], ids=["outage", "wait"])
async def test_while_nobody_can_say_nothing_is_sent(fault: Exception) -> None:
    """It is asked again, and then decided."""
    net = earlier("abcd")
    net.fail("recall", fault, fault)
    book = await deliver(net, left("abcd"))
    assert net.ops() == ["recall"] * 3
    assert book.lines[0] == ("sent", "i1", (0, 4), ("e0",), False)


async def test_a_refused_token_sends_nothing() -> None:
    """All of it stays on record."""
    net = earlier("abcd")
    net.fail("recall", Denied("no"))
    book = Book()
    outbox = Outbox({"net": net}, book, spread=lambda: 0.0)
    outbox.put(left("abcd"))
    await outbox.drain(1.0)
    await outbox.close()
    assert (net.ops(), book.lines) == (["recall"], [])


async def test_what_is_edited_into_a_placed_message_needs_no_look() -> None:
    """An edit may be repeated."""
    net = Net(units=4, messages={CHAT: {"m0": "…"}})
    await deliver(net, left("abcd", answer=("main", 2), placed={0: "m0"}))
    assert net.ops() == ["edit"]
