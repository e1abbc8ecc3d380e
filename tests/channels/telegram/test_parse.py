"""`channels.telegram.parse` and `updates`: from raw JSON to inputs. Updates are made by the fake service's own helpers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.base import Address, Attachment, Inbound, Sender
from channels.telegram import updates
from channels.telegram.parse import Me, Parsed, merge_albums, parse
from tests.fakes.telegram import FakeTelegram

ME = Me(7, "ourbot")
GROUP, FORUM = -42, -1001
Json = dict[str, Any]


@pytest.fixture
def tg() -> FakeTelegram:
    return FakeTelegram(token="7:T")


def read(update: Json) -> Parsed | None:
    return parse(updates.decode(json.dumps({"update_id": 1} | update).encode()), ME)


def inbound(message: Json, kind: str = "message") -> Inbound | None:
    parsed = read({kind: message})
    return parsed.inbound if parsed else None


def text_of(message: Json) -> str | None:
    found = inbound(message)
    return found.text if found else None


# ------------------------------------------------------------------------------------------------------------------------ plain cases


def test_a_message_of_a_direct_chat(tg: FakeTelegram) -> None:
    """Everything that the gateway needs is there, under the id that stays the same however often the message comes."""
    sender = {"id": 12345, "is_bot": False, "first_name": "Ana\u202e", "last_name": "Lopez", "username": "ana"}
    message = tg.message(12345, "hello", user=sender, date=1700000000)
    assert inbound(message) == Inbound(
        id="telegram:7:12345:1",
        address=Address("telegram", "12345"),
        sender=Sender("12345", "Ana Lopez"),
        text="hello",
        sent_at=1700000000.0,
    )


def test_a_message_of_a_group_can_be_referred_to(tg: FakeTelegram) -> None:
    """In groups the answer names the message that it answers."""
    found = inbound(tg.message(GROUP, "@OurBot hi", user=5))
    assert found is not None
    assert (found.direct, found.reply_to, found.sender.id, found.text) == (False, "1", "5", "hi")


def test_everything_else_that_telegram_can_send_is_passed_over(tg: FakeTelegram) -> None:
    """B11, B12: reactions, polls, members, channel posts, an update with a number alone: nothing to do, and no exception."""
    post = {"message_id": 3, "date": 1, "chat": {"id": -1009, "type": "channel"}, "sender_chat": {"id": -1009, "type": "channel"}}
    for update in (
        {},
        {"my_chat_member": {"chat": {"id": 1}}},
        {"message_reaction": {"chat": {"id": 1}, "message_id": 2}},
        {"poll_answer": {"poll_id": "1"}},
        {"channel_post": post | {"text": "hello"}},
        {"edited_channel_post": post | {"text": "hello"}},
        {"message": post | {"text": "hello"}},
        {"some_future_thing": {"x": [1, 2]}},
    ):
        assert read(update) is None, update


def test_no_loop_with_bots_and_linked_channels(tg: FakeTelegram) -> None:
    """B12: bots, Telegram's own account and automatic forwards of a channel's posts are never answered, even where they name us."""
    assert inbound(tg.message(GROUP, "@OurBot hi", user={"id": 8, "is_bot": True, "first_name": "B"})) is None
    assert inbound(tg.message(GROUP, "@OurBot hi", user=777000)) is None
    assert inbound(tg.message(GROUP, "@OurBot hi", is_automatic_forward=True)) is None
    message = tg.message(GROUP, "@OurBot hi")
    del message["from"]
    assert inbound(message) is None


def test_lone_surrogates_cost_no_message(tg: FakeTelegram) -> None:
    """A half character in a text or a name is marked and the message is read."""
    found = inbound(tg.message(42, "a\ud83db\0", user={"id": 42, "first_name": "\udc00N"}))
    assert found is not None
    assert (found.text, found.sender.name) == ("a\ufffdb", "\ufffdN")


# -------------------------------------------------------------------------------------------------------------------------- topics


@pytest.mark.parametrize(
    "fields",
    [
        {"message_thread_id": 7777},
        {"message_thread_id": 1},
        {"message_thread_id": 1, "is_topic_message": True},
        {"is_topic_message": True},
        {},
    ],
)
@pytest.mark.parametrize("is_forum", [True, False])
def test_general_and_reply_chains_have_no_thread(tg: FakeTelegram, fields: Json, is_forum: bool) -> None:
    """B06, B07, B08: a thread id that is not a topic's, or General's, is none, in a forum and in any other group: one group, one place."""
    if is_forum:
        tg.chat(FORUM, is_forum=True)
    found = inbound(tg.message(FORUM, "@OurBot hi", **fields))
    assert found is not None
    assert found.address == Address("telegram", "-1001")


def test_a_topic_is_a_place_of_its_own(tg: FakeTelegram) -> None:
    """B09: a real topic's id is part of the address."""
    found = inbound(tg.message(FORUM, "@OurBot hi", thread=36))
    assert found is not None
    assert found.address == Address("telegram", "-1001", "36")


def test_a_topic_made_by_us_is_no_reply_to_us(tg: FakeTelegram) -> None:
    """In a topic each message "answers" the service message that opened it: that neither names us nor is quoted."""
    opened = {"message_id": 36, "date": 1, "chat": {"id": FORUM, "type": "supergroup"}, "from": {"id": 7, "is_bot": True}}
    for reply in (opened | {"forum_topic_created": {"name": "T"}}, opened):
        assert inbound(tg.message(FORUM, "hi all", thread=36, reply_to_message=reply)) is None
    found = inbound(
        tg.message(FORUM, "@OurBot hi", thread=36, reply_to_message=opened | {"forum_topic_created": {"name": "T"}, "text": "x"})
    )
    assert found is not None
    assert found.quote == ""


# ------------------------------------------------------------------------------------------------------------------ meant for us?


def test_in_groups_only_what_is_meant_for_us(tg: FakeTelegram) -> None:
    """B30: other names, names that ours begins, and mail addresses do not call us; a mention, one in a caption, a text mention and a
    reply to our message do."""
    for text in ("hello all", "hey @OtherBot", "@OurBotX hi", "write to me@OurBot.example", "OurBot hi"):
        assert inbound(tg.message(GROUP, text)) is None, text
    ours = {"message_id": 9, "date": 1, "chat": {"id": GROUP, "type": "group"}, "from": {"id": 7, "is_bot": True}, "text": "said"}
    mention = {"type": "text_mention", "offset": 0, "length": 3, "user": {"id": 7, "is_bot": True, "first_name": "Our"}}
    other = mention | {"user": {"id": 8, "first_name": "Other"}}
    assert text_of(tg.message(GROUP, "and now?", reply_to_message=ours)) == "and now?"
    assert text_of(tg.message(GROUP, caption="@ourBOT what is it", photo=[{"file_id": "p"}])) == "what is it"
    assert text_of(tg.message(GROUP, "Our, hi", entities=[mention])) == "hi"
    assert inbound(tg.message(GROUP, "Our, hi", entities=[other])) is None
    assert inbound(tg.message(GROUP, "ok", reply_to_message=ours | {"from": {"id": 8, "is_bot": True}})) is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("@OurBot hello", "hello"),
        ("@OurBot, hello", "hello"),
        ("@OurBot:\nhello", "hello"),
        ("hey @OurBot what now", "hey what now"),
        ("what now @OurBot", "what now"),
        ("what now, @OurBot?", "what now, ?"),
        ("@OurBot ask @Other and @ourbot", "ask @Other and"),
        ("@OurBot", "@OurBot"),
        ("😀 @OurBot 😀 hi", "😀 😀 hi"),
        ("𝒳𝒴 @OurBot", "𝒳𝒴"),
        ("@OurBot line\n    code", "line\n    code"),
    ],
)
def test_our_own_mention_is_taken_out(tg: FakeTelegram, text: str, kept: str) -> None:
    """The model gets the words without our name; others' names stay; offsets count UTF-16 units; nothing becomes empty."""
    assert text_of(tg.message(GROUP, text)) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/reset@OurBot", "/reset"),
        ("/RESET@ourbot", "/RESET"),
        ("/RESET@ourbot x", "/RESET x"),
        ("/fork@OurBot name", "/fork name"),
        ("/reset", "/reset"),
        ("/fork@OurBot ask @OurBot", "/fork ask"),
        ("/start@OurBot\nx", "/start\nx"),
        ("@OurBot /reset", "/reset"),
        ("@OurBot, /fork@OurBot a b", "/fork a b"),
    ],
)
def test_commands_for_us(tg: FakeTelegram, text: str, kept: str) -> None:
    """B15: a command with our name, in any case, is the bare command; its own words are kept as typed."""
    assert text_of(tg.message(GROUP, text)) == kept
    assert text_of(tg.message(42, text)) == kept


def test_commands_for_other_bots_are_theirs(tg: FakeTelegram) -> None:
    """B16: a command with another bot's name is nothing to us, even where its words or its reply name us."""
    ours = {"message_id": 9, "date": 1, "chat": {"id": GROUP, "type": "group"}, "from": {"id": 7, "is_bot": True}, "text": "said"}
    for text in ("/reset@OtherBot", "/reset@OtherBot @OurBot", "/reset@OurBotX", "@OurBot /reset@OtherBot"):
        assert inbound(tg.message(GROUP, text, reply_to_message=ours)) is None, text
        assert inbound(tg.message(42, text)) is None


@pytest.mark.parametrize(
    "entities", [[{"type": "mention", "offset": -5, "length": 99}], [{"type": "mention", "offset": 3, "length": 9999}]]
)
def test_entities_out_of_bounds_name_nobody(tg: FakeTelegram, entities: list[Json]) -> None:
    """What no text has cannot call us, and breaks nothing."""
    assert inbound(tg.message(GROUP, "@OurBot", entities=entities)) is None
    assert text_of(tg.message(42, "hi @OurBot 😀", entities=entities)) == "hi @OurBot 😀"


# --------------------------------------------------------------------------------------------------------------------------- edits


def test_an_edit_carries_its_messages_id_and_never_runs_a_command(tg: FakeTelegram) -> None:
    """B10: an edit is told as one, under the edited message's id; a command's edit is nothing."""
    message = tg.message(42, "hello") | {"edit_date": 1700000009}
    found = inbound(message | {"text": "hallo"}, "edited_message")
    assert found is not None
    assert (found.kind, found.id, found.text, found.sent_at) == ("edit", "telegram:7:42:1", "hallo", 1700000009.0)
    for text in ("/reset", " /reset now", "@OurBot /reset"):
        command = tg.message(42, text)
        assert inbound(command | {"edit_date": 2}, "edited_message") is None, text


def test_an_edit_without_words_is_nothing(tg: FakeTelegram) -> None:
    """A moving live location, an edited photo without a caption, an edit in a group that does not name us."""
    assert inbound(tg.message(42, location={"latitude": 1, "longitude": 2}), "edited_message") is None
    assert inbound(tg.message(42, photo=[{"file_id": "p"}]), "edited_message") is None
    assert inbound(tg.message(GROUP, "hello all"), "edited_message") is None


# -------------------------------------------------------------------------------------------------------------------------- quotes


def test_the_quoted_phrase_goes_before_the_whole_message(tg: FakeTelegram) -> None:
    """B22: the model gets what was quoted; without a quote the answered text or caption, bounded; of our own words less."""
    answered = {"message_id": 9, "date": 1, "chat": {"id": 42, "type": "private"}, "from": {"id": 42}, "text": "x" * 3000}
    found = inbound(tg.message(42, "expand this", reply_to_message=answered, quote={"text": "point 2", "position": 0}))
    assert found is not None
    assert found.quote == "point 2"
    found = inbound(tg.message(42, "expand this", reply_to_message=answered))
    assert found is not None
    assert (len(found.quote), found.quote[-1]) == (1000, "…")
    photo = {key: value for key, value in answered.items() if key != "text"} | {"photo": [{"file_id": "p"}], "caption": "the barn"}
    found = inbound(tg.message(42, "what is it?", reply_to_message=photo))
    assert found is not None
    assert found.quote == "the barn"
    found = inbound(tg.message(42, "why?", reply_to_message=answered | {"from": {"id": 7, "is_bot": True}}))
    assert found is not None
    assert len(found.quote) == 300
    found = inbound(tg.message(42, "and there?", external_reply={"origin": {}}, quote={"text": "elsewhere", "position": 3}))
    assert found is not None
    assert found.quote == "elsewhere"


# ---------------------------------------------------------------------------------------------------------------------------- files

FILE = {"file_id": "F", "file_unique_id": "U"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"sticker": FILE | {"type": "regular", "is_animated": True}}, "a sticker"),
        ({"voice": FILE | {"duration": 3}}, "a voice message"),
        ({"video_note": FILE | {"duration": 3}}, "a video message"),
        ({"location": {"latitude": 1.0, "longitude": 2.0}}, "a location"),
        ({"venue": {"title": "Bar"}, "location": {"latitude": 1.0, "longitude": 2.0}}, "a place"),
        ({"contact": {"phone_number": "1", "first_name": "A"}}, "a contact"),
        ({"poll": {"id": "1", "question": "?"}}, "a poll"),
        ({"dice": {"emoji": "🎲", "value": 3}}, "a dice"),
        ({"photo": [FILE]}, "a photo without a caption"),
        ({"document": FILE}, "a file without a caption"),
        ({"animation": FILE, "document": FILE}, "an animation without a caption"),
        ({"audio": FILE}, "an audio file without a caption"),
        ({"video": FILE}, "a video without a caption"),
        ({"story": {"id": 1}}, "a story"),
        ({"game": {"title": "G"}}, "a game"),
    ],
)
def test_what_we_do_not_understand_is_named(tg: FakeTelegram, content: Json, words: str) -> None:
    """B23: each kind of content has its word, with no text for the model; in groups only where it is meant for us."""
    found = inbound(tg.message(42, **content))
    assert found is not None
    assert (found.unsupported, found.text) == (words, "")
    assert inbound(tg.message(GROUP, **content)) is None


@pytest.mark.parametrize(
    "service",
    [
        {"new_chat_members": [{"id": 5, "first_name": "A"}]},
        {"left_chat_member": {"id": 5}},
        {"pinned_message": {"message_id": 1, "date": 1, "chat": {"id": 42}}},
        {"group_chat_created": True},
        {"forum_topic_created": {"name": "T"}},
        {"video_chat_started": {}},
        {"text": ""},
    ],
)
def test_service_messages_are_nobodys(tg: FakeTelegram, service: Json) -> None:
    """B23: what no person said is not answered."""
    assert inbound(tg.message(42, **service)) is None


def test_a_caption_is_a_text_with_files(tg: FakeTelegram) -> None:
    """B29: the caption counts, the file is named and not fetched, however large it is; of a photo's sizes the largest."""
    photo = [FILE | {"file_id": "small"}, FILE | {"file_id": "large", "file_size": 9}]
    found = inbound(tg.message(42, caption="look", photo=photo))
    assert found is not None
    assert (found.text, found.attachments) == ("look", (Attachment("photo", "large", size=9),))
    document = FILE | {"file_name": "a\nb.pdf", "mime_type": "application/pdf", "file_size": 90_000_000}
    found = inbound(tg.message(42, caption="read", document=document))
    assert found is not None
    assert found.attachments == (Attachment("file", "F", "a b.pdf", "application/pdf", 90_000_000),)


def test_a_text_file_needs_no_caption(tg: FakeTelegram) -> None:
    """Its words are the question; in a group it has to be meant for us like any other message."""
    document = FILE | {"file_name": "message.txt", "mime_type": "text/plain"}
    found = inbound(tg.message(42, document=document))
    assert found is not None
    assert (found.text, found.unsupported) == ("", "")
    assert found.attachments == (Attachment("file", "F", "message.txt", "text/plain"),)
    assert inbound(tg.message(GROUP, document=document)) is None


# --------------------------------------------------------------------------------------------------------------------------- albums


def album(tg: FakeTelegram, chat: int, *captions: str) -> list[Parsed]:
    fields: list[Json] = [{"caption": caption} if caption else {} for caption in captions]
    messages = [tg.message(chat, media_group_id="g1", photo=[{"file_id": f"p{n}"}], **more) for n, more in enumerate(fields)]
    return [parsed for message in messages if (parsed := read({"message": message})) is not None]


def test_an_album_is_one_message(tg: FakeTelegram) -> None:
    """B14: three photos of one album in a batch are one input: the caption's, with all three photos."""
    for captions in (("what are these", "", ""), ("", "what are these", "")):
        (one,) = merge_albums(album(tg, 42, *captions))
        assert one.inbound is not None
        assert (one.inbound.text, one.inbound.unsupported) == ("what are these", "")
        assert [file.ref for file in one.inbound.attachments] == ["p0", "p1", "p2"]


def test_an_album_without_words_is_answered_once(tg: FakeTelegram) -> None:
    """B14: one note for all, and none for what comes with a later batch."""
    items = album(tg, 42, "", "", "")
    (one,) = merge_albums(items)
    assert one.inbound is not None
    assert one.inbound.unsupported == "a photo without a caption"
    assert merge_albums(items, {one.album}) == []


def test_text_files_of_an_album_are_the_question(tg: FakeTelegram) -> None:
    """With something else among them, without any caption; one that comes after the others is one of its own, and not lost."""
    names = ("a.pdf", "b.txt", "c.py")
    messages = [tg.message(42, document=FILE | {"file_id": one, "file_name": one}, media_group_id="g") for one in names]
    items = [item for message in messages if (item := read({"message": message}))]
    (one,) = merge_albums(items)
    assert one.inbound is not None
    assert (one.inbound.unsupported, [file.ref for file in one.inbound.attachments]) == ("", list(names))
    (late,) = merge_albums(items[2:], {one.album})
    assert late.inbound is not None
    assert [file.ref for file in late.inbound.attachments] == ["c.py"]


def test_an_album_in_a_group_belongs_to_its_mention(tg: FakeTelegram) -> None:
    """B14: the photos beside the one whose caption calls us come along; an album that does not call us is nothing."""
    (one,) = merge_albums(album(tg, GROUP, "", "@OurBot compare", ""))
    assert one.inbound is not None
    assert (one.inbound.text, len(one.inbound.attachments)) == ("compare", 3)
    assert merge_albums(album(tg, GROUP, "", "ours", "")) == []


def test_others_in_the_batch_keep_their_places(tg: FakeTelegram) -> None:
    """Merging an album moves nobody: order is what the person sees."""
    before, after = read({"message": tg.message(1, "a")}), read({"message": tg.message(2, "b")})
    assert before is not None
    assert after is not None
    merged = merge_albums([before, *album(tg, 42, "", "cap"), after])
    assert [item.inbound.text for item in merged if item.inbound] == ["a", "cap", "b"]


# -------------------------------------------------------------------------------------------------------------------------- buttons


def test_a_press_is_an_input_with_an_id_of_its_own(tg: FakeTelegram) -> None:
    """A button's data comes as its text, from whoever pressed it, in the topic where it stands."""
    message = tg.message(FORUM, "choose", thread=36)
    query = {"id": "99", "from": {"id": 5, "first_name": "Bo"}, "data": "/switch west", "message": message}
    assert read({"callback_query": query}) == Parsed(
        Inbound(
            id="telegram:7:-1001:cb99",
            address=Address("telegram", "-1001", "36"),
            sender=Sender("5", "Bo"),
            text="/switch west",
            kind="button",
            direct=False,
        ),
        callback="99",
    )


def test_a_press_that_belongs_nowhere_has_expired(tg: FakeTelegram) -> None:
    """B28: without its message, with one that Telegram no longer shows, or with data that is no command, there is only the answer that it
    has expired."""
    query = {"id": "99", "from": {"id": 5}, "data": "/switch west"}
    assert read({"callback_query": query}) == Parsed(callback="99", expired=True)
    gone = {"message_id": 3, "date": 0, "chat": {"id": FORUM, "type": "supergroup"}}
    assert read({"callback_query": query | {"message": gone}}) == Parsed(callback="99", expired=True)
    for data in ("old:42", "", "/", "hello model"):
        press = query | {"message": tg.message(42, "choose"), "data": data}
        assert read({"callback_query": press}) == Parsed(callback="99", expired=True)


def test_a_group_that_moved_is_told(tg: FakeTelegram) -> None:
    """B04: the service message that names the new id is no input, and is not lost."""
    assert read({"message": tg.message(-500, migrate_to_chat_id=-1001500)}) == Parsed(moved=("-500", "-1001500"))
    assert read({"message": tg.message(-1001500, migrate_from_chat_id=-500)}) == Parsed(moved=("-500", "-1001500"))


# ------------------------------------------------------------------------------------------------------------------- hostile input

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*updates.Message.__struct_encode_fields__, "x"]), inner),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["message", "edited_message", "callback_query"]), JSON)
def test_whatever_comes_is_read_or_is_a_known_fault(kind: str, value: object) -> None:
    """No JSON at all makes the parser fail in a way that its caller does not expect."""
    raw = json.dumps({"update_id": 1, kind: value}).encode()
    try:
        parse(updates.decode(raw), ME)
    except updates.FAULTS:
        assert updates.number(raw) == 1


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.sampled_from("a @/😀\n,OurBot"), max_size=20),
    st.lists(st.tuples(st.sampled_from(["mention", "bot_command", "text_mention"]), st.integers(-3, 25), st.integers(-3, 25)), max_size=3),
)
def test_no_entities_make_it_fail(text: str, marks: list[tuple[str, int, int]]) -> None:
    """Entities anywhere, over each other or out of bounds, never raise and never make a text empty."""
    entities = [{"type": kind, "offset": at, "length": n, "user": {"id": 7}} for kind, at, n in marks]
    message = FakeTelegram(token="7:T").message(42, text, entities=entities)
    found = inbound(message)
    assert found is None or found.text.strip()


def test_one_bad_update_does_not_cost_the_others() -> None:
    """B11: a batch is taken apart before it is read; bytes that are no UTF-8 spoil one text, not the batch."""
    good = {"update_id": 1, "message": {"message_id": 1, "chat": {"id": 1, "type": "private"}, "from": {"id": 1}, "text": "hi"}}
    payload = json.dumps({"ok": True, "result": [good, "nonsense", {"update_id": 2, "message": []}, {"update_id": 3}]}).encode()
    parts = updates.split(payload)
    assert [updates.number(raw) for raw in parts] == [1, None, 2, 3]
    parts = updates.split(payload.replace(b'"hi"', b'"h\xff"'))
    assert len(parts) == 4
    found = parse(updates.decode(parts[0]), ME)
    assert found is not None
    assert found.inbound is not None
    assert found.inbound.text == "h\ufffd"
    for nonsense in (b"", b"<html>", b"[]", b'{"ok":true}', b'{"ok":true,"result":{}}', b"[" * 100_000):
        with pytest.raises(updates.FAULTS):
            updates.split(nonsense)
