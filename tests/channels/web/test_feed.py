"""The ring that pages are fed from: `channels.web.feed`."""

from __future__ import annotations

import asyncio

import pytest

from channels.base import BEGUN, Button
from channels.web.feed import Feed, Feeds, History, Item, Typing, ref

ASK = "m00000000-one"


def texts(feed: Feed, seen: int = 0) -> list[str]:
    return [change.text for change in feed.since(seen) if isinstance(change, Item) and not change.deleted]


def test_an_edit_takes_the_place_of_what_was_there() -> None:
    """A long streamed answer is one item, in its newest state, behind whatever changed before."""
    feed = Feed()
    one = feed.placed("…", 1.0)
    feed.placed("other", 2.0)
    for n in range(1000):
        assert feed.edited(one, f"text {n}", 3.0)
    assert texts(feed) == ["other", "text 999"]
    items = [change for change in feed.since(0) if isinstance(change, Item)]
    assert [item.n for item in items] == [2, 1]
    assert items[1].at == 1.0


def test_a_reader_that_was_away_gets_what_it_missed_and_nothing_twice() -> None:
    """From any feed id on, exactly what changed behind it comes."""
    feed = Feed()
    first = feed.placed("one", 1.0)
    seen = feed.last
    feed.placed("two", 1.0)
    feed.edited(first, "one more", 1.0)
    assert texts(feed, seen) == ["two", "one more"]
    assert texts(feed, feed.last) == []
    assert not feed.gap(feed.epoch, seen)


def test_the_same_content_is_no_change() -> None:
    """An edit to what is shown already wakes nobody."""
    feed = Feed()
    one = feed.placed("one", 1.0, buttons=[Button("b", "/b")])
    last = feed.last
    assert feed.edited(one, "one", 2.0, buttons=[Button("b", "/b")])
    assert feed.last == last
    assert feed.edited(one, "one", 2.0)
    assert feed.last > last


def test_the_ring_is_bounded_and_tells_a_gap() -> None:
    """Too many or too large items push the oldest out; a reader that has not seen those is told, another is not."""
    feed = Feed(max_items=3, max_chars=10_000)
    for n in range(3):
        feed.placed(f"{n}", 1.0)
    seen = feed.last
    assert not feed.gap(feed.epoch, 0)
    feed.placed("3", 1.0)
    assert texts(feed) == ["1", "2", "3"]
    assert feed.gap(feed.epoch, 0)
    assert not feed.gap(feed.epoch, seen)
    feed.placed("x" * 50_000, 1.0)
    assert texts(feed) == ["x" * 50_000]
    feed.placed("y", 1.0)
    assert texts(feed) == ["y"]


def test_another_epoch_is_a_gap() -> None:
    """Ids of an earlier process mean nothing here, nor do ids that were never given."""
    feed = Feed()
    feed.placed("one", 1.0)
    assert feed.gap("", 0)
    assert feed.gap("0123456789ab", 1)
    assert feed.gap(feed.epoch, 99)


def test_a_message_of_an_earlier_process_is_shown_under_its_old_id() -> None:
    """After a restart the gateway goes on editing what it placed: the page sees it once, as the answer of the same input."""
    before = Feed()
    message_id = before.placed("half", 1.0, reply_to=ASK)
    after = Feed()
    assert after.edited(message_id, "whole", 2.0)
    assert after.edited(message_id, "whole!", 3.0)
    (item,) = after.since(0)
    assert isinstance(item, Item)
    assert (item.key, item.text, item.input) == (message_id, "whole!", ASK[1:])


def test_what_is_not_ours_or_deleted_is_not_there() -> None:
    """An edit of a deleted message, or of an id that we never made, finds nothing."""
    feed = Feed()
    one = feed.placed("one", 1.0)
    feed.deleted(one)
    feed.deleted(one)
    feed.deleted("never")
    assert not feed.edited(one, "again", 2.0)
    for strange in ("", "7", "x.y.z", f"{feed.epoch}.1.<script>", one + "\n"):
        assert not feed.edited(strange, "x", 2.0)
    (mark,) = feed.since(0)
    assert isinstance(mark, Item)
    assert mark.deleted
    assert mark.text == ""


def test_a_repeated_send_is_one_message() -> None:
    """The same nonce gives the same message back, even after an edit."""
    feed = Feed()
    one = feed.placed("one", 1.0, nonce="n1")
    feed.edited(one, "two", 1.0)
    assert feed.placed("one", 1.0, nonce="n1") == one
    assert feed.placed("one", 1.0, nonce="n2") != one
    assert len(feed.since(0)) == 2


def test_a_repeated_input_is_one_line() -> None:
    """The same message of the person's, accepted twice, stands there once, where it stood."""
    feed = Feed()
    n = feed.reserve()
    feed.said(ASK, "hello", n, 1.0)
    feed.said(ASK, "hello again", feed.reserve(), 2.0)
    assert texts(feed) == ["hello"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("hello", "m"),
        ("/etc/passwd is what?", "m"),
        ("/ 2", "m"),
        ("//", "m"),
        ("/undo", "o"),
        (" /SWITCH west ", "o"),
        ("/fork\nx", "o"),
        ("/retry", "r"),
        ("/status", "c"),
        ("/whatever", "c"),
    ],
)
def test_inputs_are_told_apart_as_the_gateway_does(text: str, kind: str) -> None:
    """A message, a command, one that changes the history, and /retry, whose reply is an answer."""
    assert ref(text, "00000000")[0] == kind


def test_a_command_that_changes_the_history_settles_the_turns_before_it() -> None:
    """What was asked before /undo is in the history or taken back: its live items go. What comes after, and commands' replies, stay."""
    feed = Feed()
    feed.said(ASK, "one", feed.reserve(), 1.0)
    feed.said("c11111111", "/status", feed.reserve(), 1.0)
    feed.placed("fine", 1.0, reply_to="c11111111")
    feed.said("o22222222", "/undo", feed.reserve(), 1.0)
    feed.placed("late answer of one", 1.0, reply_to=ASK)
    feed.said("m33333333", "three", feed.reserve(), 1.0)
    feed.placed("taken back", 1.0, reply_to="o22222222")
    assert texts(feed) == ["/status", "fine", "/undo", "three", "taken back"]
    (mark,) = [change for change in feed.since(0) if isinstance(change, History)]
    assert (mark.before, mark.notes) == (4, 0)


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        ("main", "west", True),
        ("main", "", True),
        ("main", "main", False),
        ("main", None, False),
        ("", "main", False),
        (None, "main", False),
    ],
)
def test_another_conversation_leaves_the_old_ones_replies_behind(before: str | None, after: str | None, gone: bool) -> None:
    """Where the conversation is another one after a command (or none, after /forget), what commands said before it is gone too, but for
    its own reply. Where it was refused, where it only began one, and where nobody can say, it stays."""
    feed = Feed()
    feed.where = before
    feed.said("c11111111", "/status", feed.reserve(), 1.0)
    feed.placed("fine", 1.0, reply_to="c11111111")
    feed.said("o22222222", "/switch west", feed.reserve(), 1.0)
    feed.placed("done", 1.0, reply_to="o22222222", where=after)
    assert texts(feed) == (["/switch west", "done"] if gone else ["/status", "fine", "/switch west", "done"])
    assert feed.where == (before if after is None else after)


def test_a_retry_keeps_its_own_answer() -> None:
    """What begins empty and grows in reply to /retry is the answer: live, and no note."""
    feed = Feed()
    feed.said(ASK, "one", feed.reserve(), 1.0)
    feed.placed("first", 1.0, reply_to=ASK)
    feed.said("r22222222", "/retry", feed.reserve(), 1.0)
    feed.edited(feed.placed(BEGUN, 1.0, reply_to="r22222222"), "second", 1.0)
    found = [change for change in feed.since(0) if isinstance(change, Item)]
    assert [(item.text, item.note) for item in found] == [("/retry", True), ("second", False)]


def test_a_retry_that_is_refused_gets_a_commands_reply() -> None:
    """What is said to /retry at once is no answer: a note, which another /retry leaves alone, also when it is edited later on."""
    feed = Feed()
    last = ""
    for handle in ("r11111111", "r22222222"):
        feed.said(handle, "/retry", feed.reserve(), 1.0)
        last = feed.placed("nothing", 1.0, reply_to=handle)
    items = [change for change in feed.since(0) if isinstance(change, Item)]
    assert [(item.text, item.note) for item in items] == [("/retry", True), ("nothing", True)] * 2
    after = Feed()
    assert after.edited(last, "nothing at all", 2.0)
    (item,) = after.since(0)
    assert isinstance(item, Item)
    assert item.note


async def test_waiting_ends_with_the_next_change() -> None:
    """A reader sleeps until something changes, whatever it is; one that is cut leaves nothing behind."""
    feed = Feed()
    waiting = [asyncio.create_task(feed.changed(feed.last)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    feed.typing(5.0)
    await asyncio.gather(*waiting[1:])
    assert feed.since(0) == [Typing(1, 5.0)]
    await feed.changed(0)


def test_many_chats_are_bounded() -> None:
    """The rings that nobody reads go first, the least used before the others; one that is read stays."""
    feeds = Feeds(max_chats=3)
    read = feeds.of("read")
    read.readers = 1
    for n in range(10):
        feeds.of(f"{n}")
    assert len(feeds) == 3
    assert feeds.of("read") is read


def test_a_handle_that_is_none_is_left_out() -> None:
    """Whatever stands in `reply_to`, the message goes out."""
    feed = Feed()
    message_id = feed.placed("one", 1.0, reply_to="../../<b>")
    assert feed.edited(message_id, "two", 1.0)
