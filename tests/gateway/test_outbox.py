"""Deliveries: in order, once, to their own chat, whatever the network answers."""

from __future__ import annotations

import asyncio
import gc
from itertools import pairwise

import pytest

from channels.base import Address, Button, Denied, Gone, Lost, NotSent, Pacing, Piece, Refused, Rejected, Retry, Span, Unknown
from gateway.outbox import MARK, Delivery, Outbox
from gateway.outbox.final import NOT_TAKEN
from tests.gateway.outbox_net import CHAT, HANG, Book, Landed, Net, Slow

pytestmark = pytest.mark.looptime

OTHER = Address("net", "2")
PLACED = "…"


def build(net: Net, book: Book | None = None, *, limit: int = 100) -> tuple[Outbox, Book]:
    book = book or Book()
    return Outbox({"net": net}, book, lane_limit=limit, spread=lambda: 0.0), book


def answer(text: str, input_id: str = "i1", **more: object) -> Delivery:
    return Delivery(input_id, "net:1", more.pop("address", CHAT), text, answer=("main", 2), **more)  # type: ignore[arg-type]


def reply(text: str, input_id: str = "i1", **more: object) -> Delivery:
    return Delivery(input_id, "net:1", more.pop("address", CHAT), text, **more)  # type: ignore[arg-type]


def now() -> float:
    return asyncio.get_running_loop().time()


# ------------------------------------------------------------------------------------------------------------------------- plain sends


async def test_a_reply_goes_out_in_one_call_and_is_recorded() -> None:
    """A reply is one send with reference, buttons and nonce; then `sent`, then `finished`; the lane is gone after it."""
    net = Net()
    outbox, book = build(net)
    await outbox.put(reply("Hello *you*", reply_to="q7", buttons=(Button("Go", "/go"),)))
    (call,) = net.calls
    assert (call.op, call.text, call.reply_to, call.buttons, len(call.nonce)) == ("send", "Hello you", "q7", (Button("Go", "/go"),), 25)
    assert book.lines == [("sent", "i1", (0, 11), ("m1",), False), ("finished", "i1", "")]
    await asyncio.sleep(0)
    assert len(outbox) == 0
    await outbox.close()


async def test_pieces_go_out_in_order_with_their_own_nonces() -> None:
    """Reference on the first piece, buttons on the last, another nonce for each, spans without a gap."""
    net = Net(units=4, streams=False)
    outbox, book = build(net)
    await outbox.put(answer("abcdefghij", reply_to="q7", buttons=(Button("Go", "/go"),)))
    assert net.visible() == ["abcd", "efgh", "ij"]
    assert [c.reply_to for c in net.calls] == ["q7", "", ""]
    assert [bool(c.buttons) for c in net.calls] == [False, False, True]
    assert len({c.nonce for c in net.calls}) == 3
    assert [line[0] for line in book.sent_of("i1")] == [(0, 4), (4, 8), (8, 10)]
    await outbox.close()


@pytest.mark.parametrize("streams", [False, True])
async def test_every_message_goes_by_the_ticket(streams: bool) -> None:
    """Where the answer goes by a ticket, each of its messages does, and those behind the first say so; a placeholder as well."""
    net = Net(units=4, streams=streams)
    outbox, _ = build(net)
    await outbox.put(answer("abcdefghij", reply_to="ticket:t7"))
    assert net.visible() == ["abcd", "efgh", "ij"]
    assert [c.reply_to for c in net.of("send")] == ["ticket:t7", "+ticket:t7", "+ticket:t7"]
    stream = outbox.stream(CHAT, "i2", reply_to="ticket:t8")
    stream.grow("abcdef")
    await asyncio.sleep(5)
    await outbox.put(answer("abcdef", "i2", reply_to="ticket:t8"), stream)
    assert [c.reply_to for c in net.of("send")][3:] == ["ticket:t8", "+ticket:t8"]
    await outbox.close()


async def test_deliveries_of_a_lane_keep_their_order() -> None:
    """First come, first served, even where the first one needs many tries."""
    net = Net()
    net.fail("send", NotSent("x"), Retry(9), NotSent("x"))
    outbox, _ = build(net)
    await asyncio.gather(*(outbox.put(reply(f"word{n}", f"i{n}")) for n in range(5)))
    assert net.visible() == [f"word{n}" for n in range(5)]
    assert not net.faults
    await outbox.close()


async def test_a_failed_connect_is_repeated_with_growing_pauses() -> None:
    """B24, second half: what was certainly not sent is sent again, without end, at most 30 s apart, and exactly one copy arrives."""
    net = Net()
    net.fail("send", *[NotSent("refused")] * 12)
    outbox, book = build(net)
    await outbox.put(reply("Hello"))
    assert net.visible() == ["Hello"]
    gaps = [b.at - a.at for a, b in pairwise(net.calls)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 1
    assert gaps[-1] == 30
    assert len({c.nonce for c in net.calls}) == 1
    assert book.sent_of("i1") == [((0, 5), ("m1",), False)]
    await outbox.close()


@pytest.mark.parametrize("landed", [True, False])
async def test_a_plain_send_of_unknown_outcome_is_not_repeated(landed: bool) -> None:
    """B24: one copy at most; it is recorded as unknown, and what comes behind goes on."""
    net = Net(units=5, streams=False)
    net.fail("send", Landed(Unknown("read timeout")) if landed else Unknown("read timeout"))
    outbox, book = build(net)
    await outbox.put(answer("firstother"))
    assert net.visible() == (["first", "other"] if landed else ["other"])
    assert book.sent_of("i1") == [((0, 5), (), True), ((5, 10), ("m2" if landed else "m1",), False)]
    assert book.reason("i1") == ""
    await outbox.close()


async def test_only_the_refused_piece_goes_out_plain() -> None:
    """A10: parts 1, 2 (plain), 3, each once and in order."""
    net = Net(units=4, streams=False)
    net.fail("send", None, Rejected("can't parse entities"))
    outbox, _ = build(net)
    await outbox.put(answer("a*b*c*d*e*f*"))
    assert net.visible() == ["ab", "c*d*", "ef"]
    await outbox.close()


async def test_the_plain_copy_is_the_source_as_written() -> None:
    """A11: the fallback shows what the model wrote, nothing that a converter made of it."""
    net = Net(judge=lambda call: Rejected("formatted") if call.spans else None)
    outbox, _ = build(net)
    await outbox.put(answer("**Sure!** Step 1 - done. a < b"))
    assert net.visible() == ["**Sure!** Step 1 - done. a < b"]
    await outbox.close()


async def test_a_plain_copy_keeps_to_the_limit() -> None:
    """Where the source slice is longer than a message may be, the visible text goes out instead."""

    class Tight(Net):
        def render(self, markdown: str) -> list[Piece]:
            return [Piece(markdown.replace("*", ""), (Span("bold", 0, 4),), 0, len(markdown))]

    net = Tight(units=8, judge=lambda call: Rejected("formatted") if call.spans else None)
    outbox, _ = build(net)
    await outbox.put(reply("**good**day"))
    assert net.visible() == ["goodday"]
    assert not net.faults
    await outbox.close()


async def test_a_piece_refused_for_good_does_not_stop_the_others() -> None:
    """Refused even as plain text: recorded without an id, and the rest goes on."""
    net = Net(units=4, streams=False, judge=lambda call: Rejected("never") if "c" in call.text else None)
    outbox, book = build(net)
    await outbox.put(answer("aaaaccccbbbb"))
    assert net.visible() == ["aaaa", "bbbb"]
    assert book.sent_of("i1")[1] == ((4, 8), (), False)
    assert book.reason("i1") == ""
    await outbox.close()


@pytest.mark.parametrize("streams", [False, True])
async def test_a_piece_refused_in_every_form_is_not_passed_over_in_silence(streams: bool) -> None:
    """The person reads in its place that something is missing, once; no placeholder stays, and what comes behind goes on."""
    net = Net(streams=streams, judge=lambda call: Rejected("never") if "secret" in call.text else None)
    outbox, book = build(net)
    await outbox.put(answer("the secret of the *house*"))
    await outbox.put(answer("and so on", "i2"))
    assert net.visible() == [NOT_TAKEN, "and so on"]
    assert [line[0] for line in book.sent_of("i1")] == [(0, 25)]
    assert book.reason("i1") == ""
    await outbox.close()


async def test_words_get_through_without_the_buttons_that_the_network_refuses() -> None:
    """Buttons and reference are left out before words are given up."""
    net = Net(judge=lambda call: Refused("bad buttons") if call.buttons else None)
    outbox, _ = build(net)
    await outbox.put(reply("Hello", buttons=(Button("Go", "/go"),)))
    assert net.visible() == ["Hello"]
    await outbox.close()


@pytest.mark.parametrize("text", ["", "  \n "])
async def test_a_text_with_nothing_visible_is_finished_without_a_call(text: str) -> None:
    """No empty message; the books say why."""
    net = Net()
    outbox, book = build(net)
    await outbox.put(reply(text))
    assert (net.calls, book.reason("i1")) == ([], "empty")
    await outbox.close()


# --------------------------------------------------------------------------------------------------------------------------- waiting


async def test_a_flood_wait_holds_this_chat_only() -> None:
    """B20: no call to the chat before the wait ends, the text arrives once, other chats are not delayed."""
    net = Net(judge=lambda call: None)
    net.fail("send", Retry(33))
    outbox, _ = build(net)
    slow = outbox.put(reply("late"))
    await asyncio.sleep(1)
    await outbox.put(reply("quick", "i2", address=OTHER))
    assert now() < 2
    await slow
    assert 33 <= now() < 36
    assert (net.visible(), net.visible(OTHER), net.faults) == (["late"], ["quick"], [])
    await outbox.close()


async def test_a_flood_wait_of_the_whole_bot_holds_all_chats() -> None:
    """The network may mean everybody; then everybody waits, nothing is lost."""
    net = Net()
    net.fail("send", Retry(10, everywhere=True))
    outbox, _ = build(net)
    first = outbox.put(reply("one"))
    await asyncio.sleep(1)
    second = outbox.put(reply("two", "i2", address=OTHER))
    await asyncio.gather(first, second)
    assert now() >= 10
    assert (net.shown(), net.shown(OTHER), net.faults) == ("one", "two", [])
    await outbox.close()


async def test_the_wait_outlives_the_work() -> None:
    """A chat that goes idle in a flood wait is not spoken to before it ends, and is forgotten then."""
    net = Net()
    net.fail("edit", Retry(50))
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.show("words")
    await asyncio.sleep(0.5)
    stream.abandon()
    await asyncio.sleep(0.5)
    await outbox.put(reply("next", "i2"))
    assert now() >= 50
    assert not net.faults
    await asyncio.sleep(0.1)
    assert len(outbox) == 0
    await outbox.close()


async def test_topics_of_one_chat_wait_together_and_never_mix() -> None:
    """B09: each text goes to its topic; the network's wait counts for the chat."""
    first, second = Address("net", "9", "36"), Address("net", "9", "854")
    net = Net(units=10)
    net.fail("send", Retry(5))
    outbox, _ = build(net)
    puts = [outbox.put(answer("A" * 35, "i1", address=first, direct=False))]
    await asyncio.sleep(1)
    puts.append(outbox.put(answer("B" * 25, "i2", address=second, direct=False)))
    await asyncio.gather(*puts)
    assert (net.shown(first), net.shown(second), net.faults) == ("A" * 35, "B" * 25, [])
    await outbox.close()


async def test_threads_that_are_limited_apart_do_not_wait_for_each_other() -> None:
    """On a network where a thread is a channel of its own, its wait and its share are its own."""
    room, thread = Address("net", "9"), Address("net", "9", "36")
    net = Net(pacing=Pacing(group_per_minute=6.0, apart=True))
    net.fail("send", Retry(50))
    outbox, _ = build(net)
    late = outbox.put(reply("in the thread", "i1", address=thread, direct=False))
    await asyncio.sleep(1)
    for n in range(3):
        await outbox.put(reply("in the room", f"r{n}", address=room, direct=False))
    assert now() < 25
    await late
    assert 50 <= now() < 52
    await outbox.close()


async def test_a_hung_send_delays_no_other_chat() -> None:
    """D23: fifty chats at once, one of them stuck: each other chat gets its own word and nothing else."""
    net = Net(judge=lambda call: HANG if call.address.chat == "0" else Slow(int(call.address.chat) % 7))
    outbox, _ = build(net)
    addresses = [Address("net", str(n)) for n in range(50)]
    puts = [outbox.put(answer(f"word{n}", f"i{n}", address=a)) for n, a in enumerate(addresses)]
    await asyncio.gather(*puts[1:])
    assert [net.shown(a) for a in addresses[1:]] == [f"word{n}" for n in range(1, 50)]
    assert now() < 15
    await outbox.close()
    assert puts[0].cancelled()


# ------------------------------------------------------------------------------------------------------------------------- the end


@pytest.mark.parametrize("streams", [True, False])
async def test_a_chat_that_is_gone_ends_its_delivery_at_the_first_call(streams: bool) -> None:
    """B21: no retry, the books say "gone", each waiting delivery gets one try, another chat is answered."""
    net = Net(streams=streams, judge=lambda call: Gone("blocked") if call.address == CHAT else None)
    outbox, book = build(net)
    await asyncio.gather(
        *(outbox.put(answer(f"word{n}", f"i{n}")) for n in range(3)),
        outbox.put(answer("hello", "i9", address=OTHER)),
        return_exceptions=True,
    )
    assert len(net.of("send")) == 3
    assert [book.reason(f"i{n}") for n in range(3)] == ["gone"] * 3
    assert (net.shown(OTHER), book.reason("i9")) == ("hello", "")
    await outbox.close()


async def test_gone_in_mid_answer_ends_it() -> None:
    """After a Gone nothing more of this text is sent, and no spare message is taken away."""
    net = Net(units=4, streams=False)
    net.fail("send", None, Gone("kicked"))
    outbox, book = build(net)
    await outbox.put(answer("aaaabbbbcccc", placed={7: "m99"}))
    assert net.ops() == ["send", "send"]
    assert book.reason("i1") == "gone"
    await outbox.close()


async def test_gone_is_no_matter_of_the_message() -> None:
    """Where an edit or a deletion says that the chat is gone, nothing else is tried either: no plain copy, no mark, no next message."""
    for op in ("edit", "delete"):
        net = Net(units=4, judge=lambda call, op=op: Gone("kicked") if call.op == op else None)  # type: ignore[misc]
        net.messages[CHAT] = {"p0": "old0", "p1": "old1", "p2": "old2"}
        outbox, book = build(net)
        await outbox.put(answer("new", placed={0: "p0", 1: "p1", 2: "p2"}))
        assert net.ops() == (["edit"] if op == "edit" else ["edit", "delete"])
        assert book.reason("i1") == ("gone" if op == "edit" else "")
        await outbox.close()


async def test_a_denied_channel_keeps_everything_on_record() -> None:
    """Our token is refused: no call after the first, nothing finished, and the drain does not wait for it."""
    net = Net()
    net.fail("send", Denied("token revoked"))
    outbox, book = build(net)
    puts = [outbox.put(reply("one"))]
    await asyncio.sleep(1)
    puts.append(outbox.put(reply("two", "i2", address=OTHER)))
    await asyncio.sleep(99)
    assert (len(net.calls), book.lines) == (1, [])
    assert await outbox.drain(50) == 2
    assert now() == 100
    await outbox.close()
    assert all(put.cancelled() for put in puts)


@pytest.mark.parametrize("fault", [ValueError("a bug"), TimeoutError(), asyncio.CancelledError()])
async def test_what_nobody_expected_puts_one_delivery_aside(fault: Exception) -> None:
    """A bug costs the delivery that meets it, not the lane, even where it looks like a cancellation."""
    net = Net()

    def judge(call: object) -> None:
        if "cursed" in str(call):
            raise fault

    net.judge = judge
    outbox, book = build(net)
    await asyncio.gather(outbox.put(reply("cursed", "i1")), outbox.put(reply("blessed", "i2")))
    assert net.visible() == ["blessed"]
    assert (book.reason("i1"), book.reason("i2")) == ("undeliverable", "")
    await outbox.close()


async def test_a_delivery_for_a_channel_that_is_not_configured_stays_on_record() -> None:
    """It is not settled and not lost: the future is cancelled, nothing is recorded."""
    outbox, book = build(Net())
    put = outbox.put(reply("Hello", address=Address("elsewhere", "1")))
    assert put.cancelled()
    assert book.lines == []
    await outbox.close()


async def test_thousands_of_chats_leave_nothing_behind() -> None:
    """A lane and its pace end with its work."""
    net = Net(pacing=Pacing(chat_per_second=1.0, group_per_minute=20.0))
    outbox, _ = build(net)
    for start in range(0, 6_000, 2_000):
        await asyncio.gather(
            *(outbox.put(reply("x", address=Address("net", str(n)), direct=n % 2 == 0)) for n in range(start, start + 2_000))
        )
    await asyncio.sleep(60)
    assert len(outbox) == 0
    assert len(asyncio.all_tasks()) == 1
    assert not outbox._paces["net"].chats
    await outbox.close()


async def test_a_full_lane_holds_up_its_runner_and_takes_what_is_put() -> None:
    """`room` waits while the lane is full and no longer; `put` never does."""
    net = Net(judge=lambda call: Slow(1))
    outbox, _ = build(net, limit=3)
    puts = [outbox.put(reply(str(n), f"i{n}")) for n in range(5)]
    await outbox.room(OTHER)
    assert (now(), outbox.full(CHAT), outbox.full(OTHER)) == (0, True, False)
    await outbox.room(CHAT)
    assert now() == 3
    await asyncio.gather(*puts)
    assert net.shown() == "01234"
    await outbox.close()


async def test_drain_waits_for_deliveries_and_says_what_is_left() -> None:
    """Finals go on until the deadline; what hangs is counted and left."""
    net = Net(judge=lambda call: HANG if call.address == OTHER else Slow(2))
    outbox, _ = build(net)
    outbox.put(reply("one"))
    outbox.put(reply("two", "i2"))
    outbox.put(reply("three", "i3", address=OTHER))
    assert await outbox.drain(10) == 1
    assert (now(), net.shown()) == (10, "onetwo")
    await outbox.close()
    assert len(asyncio.all_tasks()) == 1


async def test_drain_returns_as_soon_as_all_is_settled() -> None:
    """A shutdown is not longer than it must be."""
    net = Net(latency=0.5)
    outbox, _ = build(net)
    outbox.put(reply("one"))
    assert await outbox.drain(60) == 0
    assert now() == 0.5
    assert await outbox.drain(60) == 0
    await outbox.close()
    await outbox.close()


async def test_a_send_cut_by_the_shutdown_is_recorded_as_unknown() -> None:
    """Nobody can say whether it had an effect, so the next start must not repeat it; after close the books are not touched."""
    net = Net(judge=lambda call: HANG)
    outbox, book = build(net)
    outbox.put(reply("one"))
    await asyncio.sleep(5)
    await outbox.close()
    book.closed = True
    assert book.lines == [("sent", "i1", (0, 3), (), True)]
    await asyncio.sleep(100)
    assert not book.faults
    assert outbox.put(reply("late", "i2")).cancelled()
    await outbox.room(CHAT)


async def test_a_record_that_waits_for_its_repeat_is_tried_once_more_at_the_end() -> None:
    """The disk failed a moment ago; the shutdown does not throw away what may work now."""
    book = Book()
    book.fail("sent", *[OSError("disk full")] * 5)
    outbox, _ = build(Net(), book)
    outbox.put(reply("one"))
    await asyncio.sleep(10)
    await outbox.close()
    assert book.sent_of("i1") == [((0, 3), ("m1",), False)]


async def test_a_record_that_fails_after_its_lane_was_cut_is_no_noise() -> None:
    """Nobody waits for it any more; it is in our log, not in the loop's complaints."""
    book = Book(latency=5)
    book.fail("sent", OSError("disk full"))
    outbox, _ = build(Net(judge=lambda call: HANG if call.address == OTHER else None), book)
    outbox.put(reply("one"))
    outbox.put(reply("two", "i2", address=OTHER))  # it keeps the shutdown busy for longer than the first record takes to fail
    await asyncio.sleep(1)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    await outbox.close()
    del outbox
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_a_record_under_way_is_seen_through_before_close_returns() -> None:
    """What went out goes on record even if the deadline falls between the two."""
    book = Book(latency=5)
    outbox, _ = build(Net(), book)
    outbox.put(reply("one"))
    await asyncio.sleep(1)
    await outbox.close()
    book.closed = True
    assert book.sent_of("i1") == [((0, 3), ("m1",), False)]
    await asyncio.sleep(100)
    assert not book.faults


# ------------------------------------------------------------------------------------------------------------------------ the books


async def test_a_record_that_fails_is_repeated_and_the_send_is_not() -> None:
    """A full disk doubles nothing and loses nothing."""
    net = Net()
    book = Book()
    book.fail("sent", *[OSError("disk full")] * 8)
    book.fail("finished", *[OSError("disk full")] * 3)
    outbox, _ = build(net, book)
    await outbox.put(reply("one"))
    assert net.ops() == ["send"]
    assert list(dict.fromkeys(line[0] for line in book.lines)) == ["sent", "finished"]
    await outbox.close()


async def test_no_content_goes_into_a_message_that_is_not_on_record() -> None:
    """The placeholder waits empty until its id could be written; then it is filled, not doubled."""
    net = Net()
    book = Book()
    book.fail("placed", *[OSError("disk full")] * 5)
    outbox, _ = build(net, book)
    put = outbox.put(answer("words"))
    await asyncio.sleep(3)
    assert net.visible() == [PLACED]
    await put
    assert net.ops() == ["send", "edit"]
    assert net.visible() == ["words"]
    await outbox.close()


async def test_a_broken_ledger_does_not_stop_the_lane() -> None:
    """Whatever else the books raise puts that delivery aside."""
    net = Net()
    book = Book()
    book.fail("sent", RuntimeError("a bug"))
    book.fail("finished", RuntimeError("a bug"))
    outbox, _ = build(net, book)
    await asyncio.gather(outbox.put(reply("one")), outbox.put(reply("two", "i2")))
    assert book.reason("i2") == ""
    await outbox.close()


# ------------------------------------------------------------------------------------------------------------------------- recovery


async def test_recovery_goes_on_behind_what_is_sent() -> None:
    """Pieces up to `sent_to` stay as they are; the placed one behind them is edited; the rest is placed."""
    net = Net(units=4)
    net.messages[CHAT] = {"p0": "aaaa", "p1": PLACED}
    outbox, book = build(net)
    await outbox.put(answer("aaaabbbbcccc", placed={0: "p0", 1: "p1"}, sent_to=4))
    assert net.visible() == ["aaaa", "bbbb", "cccc"]
    assert net.ops() == ["edit", "send", "edit"]
    assert [line[0] for line in book.sent_of("i1")] == [(4, 8), (8, 12)]
    await outbox.close()


async def test_recovery_edits_placed_messages_even_where_streaming_is_off_now() -> None:
    """A placed message is used; nothing is said twice because a setting changed."""
    net = Net(units=4, streams=False)
    net.messages[CHAT] = {"p0": "aa"}
    outbox, _ = build(net)
    await outbox.put(answer("aaaabbbb", placed={0: "p0"}))
    assert net.visible() == ["aaaa", "bbbb"]
    assert net.ops() == ["edit", "send"]
    await outbox.close()


async def test_placed_messages_that_the_answer_does_not_need_are_taken_away() -> None:
    """A shorter answer after a restart leaves no stale words."""
    net = Net(units=4)
    net.messages[CHAT] = {"p0": "old1", "p1": "old2", "p2": "old3"}
    outbox, book = build(net)
    await outbox.put(answer("new", placed={0: "p0", 1: "p1", 2: "p2"}))
    assert net.visible() == ["new"]
    assert book.reason("i1") == ""
    await outbox.close()


async def test_a_spare_message_that_cannot_be_deleted_is_marked() -> None:
    """Where deletion is refused, old words are edited away; where that is refused as well, the delivery is settled all the same."""
    net = Net(judge=lambda call: Refused("too old") if call.op == "delete" or call.message_id == "p2" else None)
    net.messages[CHAT] = {"p0": "old1", "p1": "old2", "p2": "old3"}
    outbox, book = build(net)
    await outbox.put(answer("", placed={0: "p0", 1: "p1", 2: "p2"}))
    assert net.visible() == [MARK.text, MARK.text, "old3"]
    assert book.reason("i1") == "empty"
    await outbox.close()


async def test_a_placed_message_that_vanished_is_placed_anew() -> None:
    """The person deleted it, or it was never there: the piece gets a new message, recorded before it is filled."""
    net = Net()
    outbox, book = build(net)
    await outbox.put(answer("words", placed={0: "p0"}, reply_to="q1"))
    assert net.ops() == ["edit", "send", "edit"]
    assert net.visible() == ["words"]
    assert book.known("i1") == {0: "m1"}
    assert net.of("send")[0].reply_to == "q1"
    await outbox.close()


async def test_messages_that_always_vanish_end_in_a_plain_send() -> None:
    """A network that loses every placed message gets the words in one send, and no endless loop."""
    net = Net(judge=lambda call: Lost("where?") if call.op == "edit" else None)
    outbox, book = build(net)
    await outbox.put(answer("words"))
    assert net.visible().count("words") == 1
    assert len(net.calls) < 8
    assert book.reason("i1") == ""
    await outbox.close()


async def test_an_undelivered_answer_shifts_no_other() -> None:
    """D38: the first answer needs two more tries, then each question has its own answer, once, in order."""
    net = Net()
    net.fail("edit", Retry(20), Landed(Unknown("timeout")))
    outbox, _ = build(net)
    for n in range(1, 5):
        await outbox.put(answer(f"word{n}", f"i{n}"))
    assert net.visible() == ["word1", "word2", "word3", "word4"]
    await outbox.close()


async def test_a_placeholder_of_unknown_outcome_is_placed_anew_with_the_same_nonce() -> None:
    """At worst an empty message is doubled, never words."""
    net = Net()
    net.fail("send", Landed(Unknown("timeout")))
    outbox, _ = build(net)
    await outbox.put(answer("words"))
    assert net.visible() == [PLACED, "words"]
    assert len({c.nonce for c in net.of("send")}) == 1
    await outbox.close()


async def test_a_network_that_answers_no_send_gets_the_words_once() -> None:
    """B24, streamed: every send arrives and none is answered. A few empty messages, the words once, and the lane goes on."""
    net = Net(judge=lambda call: Landed(Unknown("read timeout")) if call.op == "send" else None)
    outbox, book = build(net)
    await asyncio.gather(outbox.put(answer("words")), outbox.put(reply("next", "i2")))
    assert [text for text in net.visible() if text != PLACED] == ["words", "next"]
    assert len(net.visible()) <= 7
    assert book.sent_of("i1") == [((0, 5), (), True)]
    await outbox.close()


async def test_content_over_which_the_server_breaks_goes_out_plain() -> None:
    """Each edit with spans ends in a 500: after some minutes the piece is plain text, and what waits behind it goes on."""
    net = Net(judge=lambda call: Unknown("500") if call.spans else None)
    outbox, book = build(net)
    await asyncio.gather(outbox.put(answer("some *words*")), outbox.put(reply("next", "i2")))
    assert net.visible() == ["some *words*", "next"]
    assert 60 < now() < 300
    assert (book.reason("i1"), book.reason("i2")) == ("", "")
    await outbox.close()


async def test_a_spare_message_that_cannot_be_reached_holds_nobody_up_for_ever() -> None:
    """A deletion of unknown outcome is repeated some minutes; then the books are closed."""
    net = Net(judge=lambda call: Unknown("500") if call.op == "delete" or call.text == MARK.text else None)
    net.messages[CHAT] = {"p0": "old0", "p1": "old1"}
    outbox, book = build(net)
    await outbox.put(answer("new", placed={0: "p0", 1: "p1"}))
    assert book.reason("i1") == ""
    await outbox.close()


async def test_a_refused_placeholder_gives_way_to_a_plain_send() -> None:
    """Words do not wait for a placeholder that the network will not take."""
    net = Net(judge=lambda call: Refused("no dots") if call.text == PLACED else None)
    outbox, _ = build(net)
    await outbox.put(answer("words"))
    assert net.visible() == ["words"]
    await outbox.close()
