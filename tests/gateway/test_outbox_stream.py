"""Answers that grow: one visible copy, few edits, in order, and a typing sign that ends with the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from channels.base import Address, Button, Gone, Lost, NotSent, Pacing, Rejected, Retry, Unknown
from gateway.outbox import Stream
from tests.gateway.outbox_net import CHAT, HANG, Book, Fate, Landed, Net, Slow
from tests.gateway.test_outbox import OTHER, PLACED, answer, build, now, reply

pytestmark = pytest.mark.looptime


async def grow(stream: Stream, text: str, *, chunk: int = 1, pause: float = 0.1) -> None:
    for start in range(0, len(text), chunk):
        stream.grow(text[start : start + chunk])
        await asyncio.sleep(pause)


# -------------------------------------------------------------------------------------------------------------------- placing and edits


async def test_an_instant_answer_is_a_placeholder_and_one_edit() -> None:
    """Two calls, whether the model streams or not, and the message is on record before content goes in."""
    for early in (True, False):
        net = Net(latency=0.1)
        outbox, book = build(net)
        stream = outbox.stream(CHAT, "i1", reply_to="q1")
        if early:
            stream.grow("Hello")
        await outbox.put(answer("Hello", reply_to="q1"), stream)
        assert [(c.op, c.text, c.reply_to) for c in net.calls] == [("send", PLACED, "q1"), ("edit", "Hello", "")]
        assert book.lines == [("placed", "i1", 0, "m1"), ("sent", "i1", (0, 5), ("m1",), False), ("finished", "i1", "")]
        await outbox.close()


async def test_growing_text_is_shown_by_few_edits() -> None:
    """C23: 2,000 deltas in 10 s under one call a second: coalesced, the final at once, none after it, other chats unaffected."""
    net = Net(units=5000, pacing=Pacing(chat_per_second=1.0), latency=0.1)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    await grow(stream, "x" * 2000, pause=0.005)
    end = now()
    await outbox.put(answer("x" * 2000 + "!"), stream)
    assert now() - end < 0.5
    assert len(net.ops()) <= 2 + 12
    assert net.renders <= 16
    assert net.calls[-1].text.endswith("!")
    await asyncio.sleep(60)
    assert net.shown() == "x" * 2000 + "!"
    assert len(net.ops()) <= 14
    await outbox.close()


async def test_thirty_thousand_deltas_do_not_cost_as_many_renders() -> None:
    """Even without a pace of the channel's own, text is rendered when an edit can be sent and not before."""
    net = Net(units=40_000)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    for _ in range(30):
        for _ in range(1000):
            stream.grow("x")
        await asyncio.sleep(0.05)
    await outbox.put(answer("x" * 30_000), stream)
    assert net.renders < 25
    assert net.shown() == "x" * 30_000
    await outbox.close()


@pytest.mark.parametrize("deltas", [["Analysis", "\n", " continues to the end."], ["Analysis", "\n\n", "", " "], ["", " ", "\n"]])
async def test_an_edit_that_changes_nothing_visible_is_not_sent(deltas: list[str]) -> None:
    """A17: deltas that render to the same text make no call, and the stream goes on behind them."""

    class Trimming(Net):
        def render(self, markdown: str):  # type: ignore[no-untyped-def]
            return super().render(markdown.rstrip())

    net = Trimming()
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    for delta in deltas:
        stream.grow(delta)
        await asyncio.sleep(0.3)
    await outbox.put(answer("".join(deltas)), stream)
    texts = [c.text for c in net.calls if c.op != "typing"]
    assert all(a != b for a, b in pairwise(texts))
    assert net.shown() == "".join(deltas).rstrip()
    await outbox.close()


async def test_a_final_that_shows_already_makes_no_call() -> None:
    """A16: the last edit showed it all; the final is recorded without another edit, and not sent again."""
    net = Net()
    outbox, book = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.grow("Hello")
    await asyncio.sleep(0.5)
    await outbox.put(answer("Hello"), stream)
    assert net.ops() == ["send", "edit"]
    assert book.sent_of("i1") == [((0, 5), ("m1",), False)]
    await outbox.close()


async def test_buttons_come_with_the_final_edit() -> None:
    """Visible text is not enough where buttons are still to come."""
    net = Net()
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.grow("Hello")
    await asyncio.sleep(0.5)
    await outbox.put(answer("Hello", buttons=(Button("Go", "/go"),)), stream)
    assert [bool(c.buttons) for c in net.calls] == [False, False, True]
    await outbox.close()


@pytest.mark.parametrize("length", [300, 9000, 13_000])
async def test_a_long_answer_rolls_over_into_further_messages(length: int) -> None:
    """A26, B32: no call over the limit, the preview goes on in a second message, each part is visible once at the end."""
    text = "".join(f"{n:06d}" for n in range(length // 6))
    net = Net(units=4096, pacing=Pacing(chat_per_second=1.0), latency=0.05)
    net.fail("edit", None, Retry(3))
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1", reply_to="q1")
    await grow(stream, text, chunk=30)
    assert len(net.visible()) >= length // 4096
    net.fail("edit", Retry(7))
    await outbox.put(answer(text), stream)
    assert net.shown() == text
    assert [c.reply_to for c in net.of("send")] == ["q1"] + [""] * (len(net.visible()) - 1)
    assert not net.faults
    await outbox.close()


async def test_a_text_that_begins_anew_is_edited_over_the_old_one() -> None:
    """`reset` and `show`: the latest wins, and a message too many goes at the end."""
    net = Net(units=5)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.grow("one two three")
    await asyncio.sleep(2)
    stream.reset()
    stream.grow("four")
    await asyncio.sleep(2)
    assert net.visible()[0] == "four"
    stream.show("five")
    await asyncio.sleep(2)
    await outbox.put(answer("five"), stream)
    assert net.visible() == ["five"]
    await outbox.close()


async def test_a_failed_turn_says_so_in_the_place_of_its_answer() -> None:
    """The sentence that ends a turn is edited into what was placed; with nothing placed it is one plain send."""
    for early in (True, False):
        net = Net()
        outbox, _ = build(net)
        stream = outbox.stream(CHAT, "i1")
        if early:
            stream.grow("Half an ans")
        await asyncio.sleep(0.5)
        await outbox.put(reply("The model did not answer."), stream)
        assert net.visible() == ["The model did not answer."]
        assert net.ops() == (["send", "edit", "edit"] if early else ["send"])
        await outbox.close()


async def test_a_channel_that_does_not_stream_shows_the_final_only() -> None:
    """Streaming off: typing, then one send a piece."""
    net = Net(streams=False)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    await grow(stream, "Hello", pause=1)
    await outbox.put(answer("Hello"), stream)
    assert net.ops() == ["send"]
    assert [c.at for c in net.of("typing")] == [1, 5]
    await outbox.close()


async def test_a_resumed_turn_edits_the_message_of_its_first_life() -> None:
    """After a restart the growing answer goes into what is placed already."""
    net = Net(units=5)
    net.messages[CHAT] = {"p0": "old"}
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1", placed={0: "p0"})
    await grow(stream, "new text")
    await outbox.put(answer("new text", placed={0: "p0"}), stream)
    assert net.visible() == ["new t", "ext"]
    await outbox.close()


# ----------------------------------------------------------------------------------------------------------------------------- order


async def test_replies_pass_a_stream_and_streams_wait_for_finals() -> None:
    """A stream holds a slot, not the lane: an immediate reply passes it; its own edits wait for what was put before."""
    net = Net(judge=lambda call: Slow(5) if call.text == "first answer" else None)
    outbox, _ = build(net)
    outbox.put(answer("first answer", "i0"))
    stream = outbox.stream(CHAT, "i1")
    stream.grow("second")
    await asyncio.sleep(1)
    assert net.ops() == ["send", "edit"]
    await asyncio.sleep(5)
    assert net.visible() == ["first answer", "second"]
    await outbox.put(reply("status", "i2"))
    assert net.visible() == ["first answer", "second", "status"]
    stream.grow(" answer")
    await outbox.put(answer("second answer"), stream)
    assert net.visible() == ["first answer", "second answer", "status"]
    await outbox.close()


async def test_two_growing_answers_share_a_lane() -> None:
    """Two people of a group at once: each answer in its own message, each with its own question."""
    net = Net(pacing=Pacing(chat_per_second=2.0))
    outbox, _ = build(net)
    one, two = outbox.stream(CHAT, "i1", reply_to="q1"), outbox.stream(CHAT, "i2", reply_to="q2")
    await asyncio.gather(grow(one, "a" * 50), grow(two, "b" * 50))
    assert sorted(len(set(text)) for text in net.visible()) == [1, 1]
    await asyncio.gather(outbox.put(answer("b" * 50, "i2"), two), outbox.put(answer("a" * 50, "i1"), one))
    assert sorted(net.visible()) == ["a" * 50, "b" * 50]
    assert [c.reply_to for c in net.of("send")] == ["q1", "q2"]
    assert not net.faults
    await outbox.close()


async def test_a_final_for_another_chat_is_refused_at_the_door() -> None:
    """D23: where to answer is bound to the turn."""
    outbox, _ = build(Net())
    stream = outbox.stream(CHAT, "i1")
    with pytest.raises(ValueError, match="stream"):
        outbox.put(answer("words", address=OTHER), stream)
    stream.abandon()
    await outbox.close()


async def test_an_abandoned_stream_leaves_its_message_and_nothing_more_happens() -> None:
    """A turn that the shutdown cut: the text stays as it was seen, for the resume to edit; no call after it."""
    net = Net()
    outbox, book = build(net)
    stream = outbox.stream(CHAT, "i1")
    await grow(stream, "Half an ans")
    stream.abandon()
    count = len(net.calls)
    stream.grow("more")
    await asyncio.sleep(60)
    assert (net.visible(), len(net.calls), book.known("i1")) == (["Half an ans"], count, {0: "m1"})
    assert len(outbox) == 0
    await outbox.close()


async def test_what_is_said_after_a_cut_takes_over_a_placeholder_on_its_way() -> None:
    """The placeholder was under way when the turn broke: the sentence goes into it, no empty message stays behind."""
    net = Net(latency=2)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.grow("Half")
    await asyncio.sleep(1)
    stream.abandon()
    await outbox.put(reply("Something went wrong."))
    assert net.visible() == ["Something went wrong."]
    await outbox.close()


async def test_a_second_try_grows_in_the_placeholder_of_the_first() -> None:
    """The turn is begun anew while its first placeholder is on its way: there is no second one."""
    net = Net(latency=2)
    outbox, book = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.grow("Half")
    await asyncio.sleep(1)
    stream.abandon()
    stream = outbox.stream(CHAT, "i1")
    stream.grow("Whole")
    await outbox.put(answer("Whole"), stream)
    assert (net.visible(), book.known("i1")) == (["Whole"], {0: "m1"})
    await outbox.close()


# ---------------------------------------------------------------------------------------------------------------------------- failures

FATES: list[Callable[[], Fate]] = [
    lambda: NotSent("x"),
    lambda: Unknown("x"),
    lambda: Landed(Unknown("x")),
    lambda: Retry(12),
    lambda: Rejected("x"),
    lambda: Lost("x"),
    lambda: RuntimeError("a bug"),
]


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("op", ["send", "edit"])
@pytest.mark.parametrize("times", [1, 3])
async def test_a_failing_preview_never_costs_the_answer(fate: Callable[[], Fate], op: str, times: int) -> None:
    """B20, B32: whatever goes wrong while the text grows, at the end the words are there once."""
    net = Net(units=10, latency=0.1)
    outbox, book = build(net)
    net.fail(op, *(fate() for _ in range(times)))
    stream = outbox.stream(CHAT, "i1")
    await grow(stream, "abcdefghijklmnopqrstuvwxyz", pause=0.5)
    net.fates.clear()
    await outbox.put(answer("abcdefghijklmnopqrstuvwxyz"), stream)
    assert "".join(text for text in net.visible() if text != PLACED) == "abcdefghijklmnopqrstuvwxyz"
    assert not net.faults
    assert book.reason("i1") == ""
    await outbox.close()


async def test_the_first_words_follow_the_placeholder_at_once() -> None:
    """The empty message is not looked at: content goes in as soon as it is on record."""
    net = Net(latency=0.01)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.grow("Hello")
    await asyncio.sleep(0.03)
    assert net.visible() == ["Hello"]
    stream.abandon()
    await outbox.close()


async def test_an_edit_of_unknown_outcome_is_not_taken_for_what_was_shown_before() -> None:
    """The final is the text of two edits ago, and the one between may have arrived: it is edited, not believed."""
    net = Net()
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.show("Hello")
    await asyncio.sleep(0.5)
    net.fail("edit", Landed(Unknown("timeout")))
    stream.show("Hello wor")
    await asyncio.sleep(0.2)
    await outbox.put(answer("Hello"), stream)
    assert net.visible() == ["Hello"]
    await outbox.close()


@pytest.mark.parametrize(("op", "error"), [("send", Unknown("timeout")), ("edit", Lost("where?"))])
async def test_a_preview_places_few_messages_whatever_becomes_of_them(op: str, error: Exception) -> None:
    """A network that answers no send, or loses each message: two tries, then the preview waits for the final."""
    net = Net(units=1000, judge=lambda call: Landed(error) if call.op == op else None)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    await grow(stream, "x" * 900)
    assert len(net.of("send")) == 2
    stream.abandon()
    await outbox.close()


async def test_a_preview_that_is_refused_is_not_tried_again_before_it_changes() -> None:
    """The network said no to this content; the next content may pass."""
    net = Net(judge=lambda call: Rejected("x") if call.text == "Hello" else None)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.grow("Hello")
    await asyncio.sleep(20)
    assert len(net.of("edit")) == 1
    stream.grow(" you")
    await asyncio.sleep(1)
    assert net.visible() == ["Hello you"]
    stream.abandon()
    await outbox.close()


async def test_a_bug_in_the_preview_is_logged_once_and_ends_the_preview() -> None:
    """The same for the typing sign: what nobody expected does not fill the log, and the answer still comes."""
    net = Net(judge=lambda call: RuntimeError("a bug") if call.op == "typing" or call.text == "H" * 9 else None)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    with capture_logs() as logs:
        await grow(stream, "H" * 30, pause=1)
        await outbox.put(answer("Hello"), stream)
    assert sorted(str(line["event"]) for line in logs) == ["growing answer not shown", "typing sign failed"]
    assert all(line["exc_info"] for line in logs)
    assert net.visible() == ["Hello"]
    await outbox.close()


async def test_a_placed_message_is_recorded_even_after_its_turn_was_cut() -> None:
    """Whoever goes on with the input has to find it."""
    net = Net()
    book = Book()
    book.fail("placed", *[OSError("disk full")] * 4)
    outbox, _ = build(net, book)
    stream = outbox.stream(CHAT, "i1")
    stream.grow("Hello")
    await asyncio.sleep(0.2)
    stream.abandon()
    await asyncio.sleep(60)
    assert book.known("i1") == {0: "m1"}
    assert len(outbox) == 0
    await outbox.close()


async def test_a_flood_wait_in_mid_stream_is_kept_by_preview_typing_and_final() -> None:
    """B20: third edit asked to wait 33 s, the final 25 s more: no call within, the text once, the other chat meanwhile."""
    net = Net(units=1000)
    net.fail("edit", None, None, Retry(33), Retry(25))
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    await grow(stream, "x" * 50, pause=0.2)
    put = outbox.put(answer("x" * 50 + "!"), stream)
    await outbox.put(reply("quick", "i2", address=OTHER))
    assert now() < 12
    await put
    assert now() > 33 + 25
    assert (net.shown(), net.faults) == ("x" * 50 + "!", [])
    await outbox.close()


async def test_a_chat_that_is_gone_gets_two_calls_at_most() -> None:
    """B21: blocked before the answer grows, or before the typing sign: at most two calls, and the turn ends."""
    for wait, most in ((0.0, 1), (20.0, 2)):
        net = Net(judge=lambda call: Gone("blocked"))
        outbox, book = build(net)
        stream = outbox.stream(CHAT, "i1")
        await asyncio.sleep(wait)
        await grow(stream, "Hello there", pause=1)
        await outbox.put(answer("Hello there"), stream)
        assert len(net.calls) == most
        assert book.reason("i1") == "gone"
        await outbox.close()


async def test_a_preview_that_cannot_be_recorded_stays_empty_and_lets_replies_pass() -> None:
    """No content without a record; the reply behind it is not held up; the final fills the same message later."""
    net = Net()
    book = Book()
    book.fail("placed", *[OSError("disk full")] * 6)
    outbox, _ = build(net, book)
    stream = outbox.stream(CHAT, "i1")
    await grow(stream, "Hello", pause=0.5)
    await outbox.put(reply("status", "i2"))
    assert net.visible() == [PLACED, "status"]
    await outbox.put(answer("Hello"), stream)
    assert net.visible() == ["Hello", "status"]
    await outbox.close()


# ------------------------------------------------------------------------------------------------------------------------------ pacing


async def test_finals_come_before_intermediate_edits_where_the_pace_is_short() -> None:
    """Twenty growing answers and a channel that takes two calls a second: a reply elsewhere goes out at once all the same."""
    net = Net(units=1000, pacing=Pacing(per_second=2.0))
    outbox, _ = build(net)
    streams = [outbox.stream(Address("net", f"s{n}"), f"i{n}") for n in range(20)]

    async def check() -> None:
        await asyncio.sleep(5)
        for n in range(5):
            at = now()
            await outbox.put(reply("quick", f"r{n}", address=Address("net", f"r{n}")))
            assert now() - at <= 0.6

    await asyncio.gather(check(), *(grow(stream, "x" * 300) for stream in streams))
    for stream in streams:
        stream.abandon()
    calls = [c.at for c in net.calls if c.op != "typing"]
    assert max(sum(at <= other < at + 10 for other in calls) for at in calls) <= 20
    assert {c.address.chat for c in net.calls if c.op == "edit"} >= {f"s{n}" for n in range(10)}
    await outbox.close()


@pytest.mark.parametrize("latency", [0.0, 0.5])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_ten_finals_pass_fifty_growing_answers(elsewhere: bool, latency: float) -> None:
    """Three calls a second for the whole channel: while finals wait, in whichever lanes, each call is theirs; not one edit comes between.
    They are ten edits of what is shown already, or ten answers from nothing (a message and its words each)."""
    net = Net(units=1000, pacing=Pacing(per_second=3.0), latency=latency)
    outbox, _ = build(net)
    streams = [outbox.stream(Address("net", f"s{n}"), f"i{n}") for n in range(50)]
    growing = [asyncio.create_task(grow(stream, "x" * 900, pause=0.1)) for stream in streams]
    await asyncio.sleep(60)
    assert len(net.calls) > 150
    began, before = now(), len(net.calls)
    finals: list[asyncio.Future[None]] = []
    for n in range(10):
        place = Address("net", f"f{n}" if elsewhere else f"s{n}")
        final = answer("the end", f"f{n}" if elsewhere else f"i{n}", address=place)
        finals.append(outbox.put(final, None if elsewhere else streams[n]))
    await asyncio.gather(*finals)
    calls = 20 if elsewhere else 10
    assert now() - began <= calls / 3 + 3 * latency + 0.5
    theirs = [call for call in net.calls[before:] if "the end" in call.text or call.address.chat.startswith("f")]
    assert len(theirs) == calls
    assert len(net.calls) - before - len(theirs) <= 1 + 2 * (latency > 0)  # what had its token when they came
    for task in growing:
        task.cancel()
    await asyncio.gather(*growing, return_exceptions=True)
    for stream in streams:
        stream.abandon()
    await outbox.close()


async def test_many_growing_answers_are_edited_in_turns() -> None:
    """Of forty at once each is edited as soon as the channel has gone once round, also while finals of other chats take their calls in
    between, and no call that the channel has left is wasted."""
    net = Net(units=5000, pacing=Pacing(per_second=12.0, chat_per_second=1.0), latency=0.05)
    outbox, _ = build(net)
    streams = [outbox.stream(Address("net", f"s{n}"), f"i{n}") for n in range(40)]
    growing = [asyncio.create_task(grow(stream, "x" * 900, pause=0.1)) for stream in streams]
    for n in range(80):
        await asyncio.sleep(1)
        outbox.put(reply("quick", f"r{n}", address=Address("net", f"r{n}")))
    edits: dict[str, list[float]] = {}
    for call in net.calls:
        if call.op == "edit" and 20 <= call.at < 80:
            edits.setdefault(call.address.chat, []).append(call.at)
    around = 40 / 9  # ten calls a second in the long run, one of them a reply
    assert len(edits) == 40
    assert max(after - before for times in edits.values() for before, after in pairwise(times)) <= 1.15 * around
    assert sum(map(len, edits.values())) >= 0.97 * 60 * 9
    for task in growing:
        task.cancel()
    await asyncio.gather(*growing, return_exceptions=True)
    for stream in streams:
        stream.abandon()
    await outbox.close()


async def test_no_second_sees_more_than_the_channel_s_share() -> None:
    """Two hundred chats at once, answered, under thirty a second: never more than thirty in any second, and not much less."""
    net = Net(pacing=Pacing(per_second=30.0, chat_per_second=1.0))
    outbox, _ = build(net)
    await asyncio.gather(*(outbox.put(answer("words", f"i{n}", address=Address("net", str(n)))) for n in range(200)))
    calls = [c.at for c in net.calls]
    assert len(calls) == 400
    assert max(sum(at <= other < at + 0.999 for other in calls) for at in calls) <= 30
    assert now() < 17
    await outbox.close()


async def test_a_group_gets_no_more_than_its_share_a_minute() -> None:
    """However fast the text grows, topics together: at most 20 sends and edits in any minute, and the final is not late."""
    net = Net(units=5000, pacing=Pacing(per_second=30.0, chat_per_second=1.0, group_per_minute=20.0))
    outbox, _ = build(net)
    topics = [Address("net", "-100", str(n)) for n in range(2)]
    streams = [outbox.stream(topic, f"i{n}", direct=False) for n, topic in enumerate(topics)]
    await asyncio.gather(*(grow(stream, "x" * 1800) for stream in streams))
    end = now()
    await asyncio.gather(*(outbox.put(answer("x" * 1801, f"i{n}", address=t, direct=False), streams[n]) for n, t in enumerate(topics)))
    assert now() - end < 8
    calls = [c.at for c in net.calls if c.op != "typing"]
    assert max(sum(at <= other < at + 60 for other in calls) for at in calls) <= 20
    assert len(calls) > 40
    await outbox.close()


async def test_a_pace_is_remembered_over_idle_moments() -> None:
    """A chat that has used up its burst is not given another because its lane had nothing to do for a moment."""
    net = Net(pacing=Pacing(chat_per_second=1.0))
    outbox, _ = build(net)
    for n in range(10):
        await outbox.put(reply(f"{n}", f"i{n}"))
        await asyncio.sleep(0.2)
    assert net.calls[-1].at - net.calls[0].at > 6
    await outbox.close()


async def test_a_direct_chat_has_its_own_pace() -> None:
    """Ten replies under one a second: a small burst, then one a second, in order."""
    net = Net(pacing=Pacing(chat_per_second=1.0))
    outbox, _ = build(net)
    await asyncio.gather(*(outbox.put(reply(f"{n}", f"i{n}")) for n in range(10)))
    assert now() == pytest.approx(7, abs=0.01)
    assert net.shown() == "0123456789"
    await outbox.close()


# ------------------------------------------------------------------------------------------------------------------------------ typing


async def test_typing_is_shown_while_nothing_else_is() -> None:
    """C25: after one second, then about every four, through passing errors and flood waits, until the turn ends."""
    net = Net(latency=0.1)
    net.fail("typing", None, Retry(3), Unknown("502"), RuntimeError("a bug"), None, NotSent("x"))
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    await asyncio.sleep(40)
    times = [c.at for c in net.of("typing")]
    assert times[0] == 1
    assert max(b - a for a, b in pairwise(times)) <= 8
    assert times[-1] > 32
    await outbox.put(answer("Done"), stream)
    count = len(net.calls)
    await asyncio.sleep(60)
    assert len(net.calls) == count
    assert not net.faults
    await outbox.close()


async def test_no_typing_for_a_quick_answer() -> None:
    """Within the first second there is nothing to bridge."""
    net = Net()
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    await grow(stream, "Hello", pause=0.15)
    await outbox.put(answer("Hello"), stream)
    assert not net.of("typing")
    await outbox.close()


async def test_typing_takes_what_the_pace_leaves() -> None:
    """A hundred silent turns under twelve calls a second: signs keep to the share as well, and a reply does not wait for them."""
    net = Net(pacing=Pacing(per_second=12.0))
    outbox, _ = build(net)
    streams = [outbox.stream(Address("net", f"s{n}"), f"i{n}") for n in range(100)]
    for n in range(8):
        await asyncio.sleep(3.3)
        at = now()
        await outbox.put(reply("quick", f"r{n}"))
        assert now() - at < 0.2
    calls = [c.at for c in net.calls]
    assert max(sum(at <= other < at + 0.999 for other in calls) for at in calls) <= 12
    assert len(calls) > 150
    for stream in streams:
        stream.abandon()
    await outbox.close()


@pytest.mark.parametrize("how", ["final", "reply", "abandon", "drain", "close"])
@pytest.mark.parametrize("fate", [None, HANG, Slow(3)])
async def test_typing_ends_with_the_turn(how: str, fate: Fate) -> None:
    """C25: after every kind of end, with a typing call that is quick, slow or hung: no typing call from then on, watched for 60 s."""
    net = Net(judge=lambda call: fate if call.op == "typing" else None)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    await asyncio.sleep(9.5)
    end = now()
    if how == "final":
        await outbox.put(answer("Done"), stream)
        assert now() == end
    elif how == "reply":
        await outbox.put(reply("It failed."), stream)
        assert now() == end
    elif how == "abandon":
        stream.abandon()
    elif how == "drain":
        assert await outbox.drain(1) == 0
    else:
        await outbox.close()
    await asyncio.sleep(60)
    assert all(c.at <= end for c in net.of("typing"))
    await outbox.close()
    assert len(asyncio.all_tasks()) == 1


async def test_a_hung_typing_call_is_cut_for_text_and_by_its_own_limit() -> None:
    """A typing call that hangs delays neither the growing text nor the next sign by more than seconds."""
    net = Net(judge=lambda call: HANG if call.op == "typing" else None)
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    await asyncio.sleep(2)
    stream.grow("Hello")
    await asyncio.sleep(0.5)
    assert net.visible() == ["Hello"]
    await asyncio.sleep(40)
    times = [c.at for c in net.of("typing")]
    assert len(times) > 4
    assert max(b - a for a, b in pairwise(times)) <= 10
    await asyncio.sleep(times[-1] + 9 + 2 - now())
    at = now()
    assert net.of("typing")[-1].at == at - 2
    await outbox.put(reply("status", "i2"))
    assert now() == at
    assert not net.faults
    stream.abandon()
    await outbox.close()


async def test_a_turn_that_never_ends_stops_typing_some_time() -> None:
    """A hard life limit, whatever became of the turn."""
    net = Net()
    outbox, _ = build(net)
    outbox.stream(CHAT, "i1")
    await asyncio.sleep(7200)
    assert net.of("typing")[-1].at < 1900
    await outbox.close()


async def test_nothing_is_shown_of_a_turn_while_the_daemon_stops() -> None:
    """Drain: intermediate edits stop first, finals still go out."""
    net = Net()
    outbox, _ = build(net)
    stream = outbox.stream(CHAT, "i1")
    await grow(stream, "Hel")
    await outbox.drain(5)
    await grow(stream, "lo")
    assert net.visible() == ["Hel"]
    await outbox.put(answer("Hello"), stream)
    assert net.visible() == ["Hello"]
    late = outbox.stream(OTHER, "i2")
    await grow(late, "Hello", pause=2)
    assert not net.of("send", OTHER) + net.of("typing", OTHER)
    await outbox.close()


async def test_drain_waits_for_a_placeholder_on_its_way() -> None:
    """Cutting it would leave an empty message that nobody knows of."""
    net = Net(latency=2)
    outbox, book = build(net)
    stream = outbox.stream(CHAT, "i1")
    stream.grow("Hello")
    await asyncio.sleep(0.5)
    assert await outbox.drain(10) == 0
    await outbox.close()
    assert book.known("i1") == {0: "m1"}
