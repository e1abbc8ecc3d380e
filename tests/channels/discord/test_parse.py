"""channels.discord.parse: what of a message or an interaction reaches the gateway, by literal payloads."""

from __future__ import annotations

from typing import Any

import pytest

from channels.base import TICKET, Address, Attachment, Inbound, Sender
from channels.discord import parse
from channels.discord.parse import Names
from channels.discord.payloads import EPOCH_MS, Channel, Interaction, Message, convert, made_at, snowflake_at
from channels.discord.places import Place, place_of

BOT = "600"
DM, ROOM, THREAD = Place("9"), Place("5", "800"), Place("920", "800", "5")
NAMES = Names(lambda one: {"333": "general", "334": "\u202eevil"}.get(one, ""), lambda one: {"444": "mods"}.get(one, ""))
ANA = {"id": "42", "username": "ana", "global_name": "Ana"}


def raw(content: str = "hello", **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"id": "1000", "channel_id": "5", "guild_id": "800", "author": ANA, "content": content, "type": 0}
    body |= {"mentions": [], "mention_roles": [], "attachments": [], "embeds": [], "edited_timestamp": None, "flags": 0}
    return body | more


def heard(content: str = "hello", place: Place = DM, **more: Any) -> Inbound | None:
    return parse.message(convert(raw(content, **more), Message), BOT, place, NAMES)


def text(content: str, place: Place = ROOM, **more: Any) -> str:
    inbound = heard(content, place, **more)
    assert inbound is not None
    return inbound.text


def mention(user: dict[str, Any]) -> dict[str, Any]:
    return user | {"public_flags": 0}


# ------------------------------------------------------------------------------------------------------------------------ who and where


def test_a_direct_message() -> None:
    """Everything of it that the gateway wants; the time is that of its id."""
    number = str(((1_700_000_000_000 - EPOCH_MS) << 22) + 7)
    assert heard("hello", id=number) == Inbound(
        id=f"discord:600:9:{number}",
        address=Address("discord", "9"),
        sender=Sender("42", "Ana"),
        text="hello",
        sent_at=1_700_000_000.0,
    )


def test_times_of_ids() -> None:
    """An id tells its millisecond, and the other way round."""
    assert made_at(str(snowflake_at(1_700_000_000.125) + 99)) == 1_700_000_000.125
    assert (made_at("x"), snowflake_at(0)) == (0.0, 0)


def test_a_mention_in_a_server() -> None:
    """The server is the group, the answer refers to the message, the nick in the server is the name."""
    inbound = heard("<@600> hello", ROOM, member={"nick": "Ana of the Hill", "roles": []})
    assert inbound is not None
    assert (inbound.id, inbound.address) == ("discord:600:5:1000", Address("discord", "5"))
    assert (inbound.sender, inbound.text) == (Sender("42", "Ana of the Hill"), "hello")
    assert (inbound.direct, inbound.group, inbound.reply_to) == (False, "800", "1000")


def test_a_thread_is_a_place_of_its_own_in_its_channel() -> None:
    """C12: the address holds channel and thread, whichever way it is known where the thread is."""
    inbound = heard("<@600> and why?", THREAD)
    assert inbound is not None
    assert inbound.address == Address("discord", "5", "920")
    assert place_of(Channel("920", 11, "800", "5")) == place_of(Channel("920", 11, None, "5"), "800") == THREAD
    assert place_of(Channel("5", 0, "800", "77")) == ROOM  # what a channel is in is a category
    assert place_of(Channel("9", 1)) == DM


@pytest.mark.parametrize(
    "content",
    ["hello", "<@601> hello", "<@&600> hello", "@everyone hello", "@OurBot hello", "<@6000>", "/reset"],
)
def test_other_peoples_talk_is_none_of_ours(content: str) -> None:
    """In a server only a mention of the bot itself, an answer to it or a slash command is meant for it."""
    assert heard(content, ROOM, mentions=[mention(ANA)], mention_everyone=True, mention_roles=["600"]) is None


def test_an_answer_to_us_is_meant_for_us() -> None:
    """Also where it does not ping; an answer to somebody else is not, nor what forwards our words."""
    ours = raw("my words", author={"id": BOT, "username": "OurBot", "bot": True})
    theirs = raw("their words", author={"id": "43", "username": "Bo"})
    assert text("and why?", type=19, referenced_message=ours, message_reference={"type": 0, "message_id": "1"}) == "and why?"
    assert heard("and why?", ROOM, type=19, referenced_message=theirs) is None
    assert heard("and why?", ROOM, type=19, referenced_message=None) is None
    assert heard("see", ROOM, referenced_message=ours, message_reference={"type": 1}) is None


@pytest.mark.parametrize(
    "more",
    [
        {"author": ANA | {"bot": True}},
        {"author": ANA | {"system": True}},
        {"webhook_id": "77"},
        {"type": 21},
        {"type": 7},
        {"type": 18},
        {"type": 20},
    ],
)
def test_bots_webhooks_and_the_service_are_not_heard(more: dict[str, Any]) -> None:
    """C06, C11: two bots never talk to each other, and a thread's first line is no second question."""
    assert heard("<@600> hello", ROOM, **more) is None
    assert heard("hello", DM, **more) is None


def test_a_thread_that_begins_at_a_message_says_it_once() -> None:
    """C11: the starter that is told of in the channel and in the thread has one id; a forum's post is heard in its thread."""
    asked = heard("<@600> why?", Place("5", "800"), id="910")
    again = heard("<@600> why?", Place("910", "800", "5"), id="910", channel_id="910")
    assert asked is not None
    assert again is not None
    assert asked.id == again.id == "discord:600:5:910"
    assert again.address == Address("discord", "5", "910")


# ------------------------------------------------------------------------------------------------------------------------ the words


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("<@600> hello", "hello"),
        ("<@!600> hello", "hello"),
        ("hello <@600>", "hello"),
        ("hello <@600>, how are you", "hello , how are you"),
        ("<@600>, <@600>: hello", "hello"),
        ("<@600>\nhello", "hello"),
        ("<@600> /reset", "/reset"),
        ("<@600>/fork x", "/fork x"),
        ("/reset <@600>", "/reset"),
        ("see <@600> there", "see there"),
    ],
)
def test_our_own_mention_goes(content: str, words: str) -> None:
    """C16, C17: both forms, wherever it stands, so that a command behind it is one; no list of mentions is needed."""
    assert text(content) == words


def test_other_mentions_are_names() -> None:
    """C15: people, channels, roles and emoji in words; what is not known stays as it is written."""
    people = [
        mention({"id": "222", "username": "bob", "global_name": "Bob"}),
        mention({"id": "223", "username": "cy"} | {"member": {"nick": "C"}}),
    ]
    said = "<@600> ask <@222>, <@!223> and <@224> about <#333> <#335> <@&444> <@&445> <:wave:1> <a:dance:2> </fork now:3> <t:1>"
    assert text(said, mentions=people) == "ask @Bob, @C and <@224> about #general <#335> @mods <@&445> :wave: :dance: /fork now <t:1>"


def test_names_are_harmless() -> None:
    """A27: marks that turn the writing direction, line breaks and control characters are in no name."""
    inbound = heard(author={"id": "42", "username": "x", "global_name": "a\u202eb\n\x00c"})
    assert inbound is not None
    assert inbound.sender.name == "ab c"
    assert text("<@600> <#334>") == "#evil"


@pytest.mark.parametrize("content", ["<@600>", "<@!600>", "  <@600>  ", "<@600>, <@600>"])
def test_a_bare_ping_has_no_words(content: str) -> None:
    """C16: it is heard, and empty: the front door has a hint for it, the model never sees it."""
    assert text(content) == ""
    assert text(content, DM) == ""


def test_words_are_clean() -> None:
    """Lone surrogates and NUL do not get in, a split pair is one character."""
    assert text("a\ud800b\x00 \ud83d\ude00", DM) == "a\ufffdb \U0001f600"


def test_an_answer_quotes_what_it_answers() -> None:
    """Bounded, our own words shorter, mentions in words."""
    theirs = raw("x" * 2000 + "<@600>", author={"id": "43", "username": "Bo"})
    ours = raw("y" * 2000, author={"id": BOT, "username": "OurBot", "bot": True})
    quotes = [
        inbound.quote if (inbound := heard("why?", DM, type=19, referenced_message=answered)) else None
        for answered in (theirs, ours, raw("see <#333>"))
    ]
    assert [len(quote or "") for quote in quotes] == [1000, 300, 12]
    assert quotes[2] == "see #general"


def test_forwarded_words_are_words() -> None:
    """What is forwarded without words of one's own is what is said."""
    snapshots = [{"message": {"content": "the news", "attachments": []}}]
    assert text("", DM, message_reference={"type": 1}, message_snapshots=snapshots) == "the news"


# -------------------------------------------------------------------------------------------------------------- what is not words


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"attachments": [{"id": "1", "filename": "a.png", "content_type": "image/png", "size": 5}]}, "a picture without words"),
        ({"attachments": [{"id": "1", "filename": "a", "content_type": None}]}, "a file without words"),
        ({"attachments": [{"id": "1", "content_type": "audio/ogg"}], "flags": 1 << 13}, "a voice message"),
        ({"sticker_items": [{"id": "1", "name": "Wave", "format_type": 1}]}, "a sticker"),
        ({"poll": {"question": {"text": "?"}}}, "a poll"),
        ({"message_snapshots": [{"message": {"content": ""}}], "message_reference": {"type": 1}}, "a forwarded message without words"),
    ],
)
def test_what_cannot_be_read_is_named(more: dict[str, Any], words: str) -> None:
    """A message without words says what it is."""
    inbound = heard("", DM, **more)
    assert inbound is not None
    assert (inbound.text, inbound.unsupported) == ("", words)


def test_a_message_of_nothing_is_nothing() -> None:
    """An embed alone, or a blank."""
    assert heard("", DM, embeds=[{}]) is None
    assert heard("  ", DM) is None


@pytest.mark.parametrize("filename", ["x/../../CONFIG.md", "..\\..\\a", "/etc/cron.d/x", "a\x00.txt", "n" * 300, ".env", "a\u202etxt.exe"])
def test_a_files_name_is_only_shown(filename: str) -> None:
    """C18: what is kept of a file is where it was said; its name is data, on one line, of bounded length."""
    inbound = heard("look", DM, attachments=[{"id": "77", "filename": filename, "content_type": "text/plain", "size": 6000}])
    assert inbound is not None
    (file,) = inbound.attachments
    assert file == Attachment("file", "5/1000/77", file.name, "text/plain", 6000)
    assert file.name.isprintable()
    assert len(file.name) <= 128


@pytest.mark.parametrize("mime", ["text/plain; charset=utf-8", "video/mp2t", None])
def test_a_text_file_needs_no_words(mime: str | None) -> None:
    """The message.txt of a long paste is the question, whatever Discord takes the file for; a forwarded one too."""
    file = {"id": "77", "filename": "message.ts", "content_type": mime, "size": 6000}
    for more in ({"attachments": [file]}, {"message_snapshots": [{"message": {"content": "", "attachments": [file]}}]}):
        inbound = heard("", DM, **more)
        assert inbound is not None
        assert (inbound.text, inbound.unsupported, inbound.attachments[0].kind) == ("", "", "file")


def test_withheld_words_are_noticed() -> None:
    """C05: a message to us in a server with nothing in it at all; not a direct one, not a bot's, not one with a file or not to us."""

    def is_withheld(**more: Any) -> bool:
        return parse.withheld(convert(raw(**({"content": "", "mentions": [mention({"id": BOT, "username": "x"})]} | more)), Message), BOT)

    assert is_withheld()
    assert not is_withheld(guild_id=None)
    assert not is_withheld(author=ANA | {"bot": True})
    assert not is_withheld(mentions=[])
    assert not is_withheld(content="<@600>")
    assert not is_withheld(sticker_items=[{}])
    assert not is_withheld(poll={})


# ----------------------------------------------------------------------------------------------------------------------------- edits


def test_an_edit_carries_the_id_of_its_message() -> None:
    """With its new words; a preview that Discord adds is none, nor what would be a command or nothing."""

    def edited(content: str, **more: Any) -> Inbound | None:
        at = {"edited_timestamp": "2026-11-29T10:00:00.000000+00:00"}
        return parse.edit(convert(raw(content, **(at | more)), Message), BOT, DM, NAMES)

    inbound = edited("other words")
    assert inbound is not None
    assert (inbound.id, inbound.kind, inbound.text) == ("discord:600:9:1000", "edit", "other words")
    assert edited("other words", edited_timestamp=None) is None
    assert edited("/reset") is None
    assert edited("<@600>") is None


# ----------------------------------------------------------------------------------------------------------------------- interactions


def interaction(kind: int, data: dict[str, Any], **more: Any) -> Interaction:
    body: dict[str, Any] = {
        "id": "2000",
        "application_id": "601",
        "type": kind,
        "token": "tok:en",
        "channel_id": "5",
        "data": data,
        "version": 1,
    }
    return convert(body | more, Interaction)


def test_a_slash_command_is_the_line_that_says_the_same() -> None:
    """With its ticket, from whoever asks, in a server as in a direct chat."""
    asked = interaction(2, {"name": "switch", "options": [{"name": "name", "type": 3, "value": "west"}]}, member={"user": ANA, "nick": "A"})
    inbound = parse.command(asked, BOT, THREAD)
    assert inbound is not None
    assert (inbound.id, inbound.text, inbound.ticket) == ("discord:600:920:i2000", "/switch west", f"{TICKET}2000:42:tok:en")
    assert (inbound.address, inbound.sender, inbound.direct, inbound.group) == (
        Address("discord", "5", "920"),
        Sender("42", "A"),
        False,
        "800",
    )
    bare = parse.command(interaction(2, {"name": "status"}, user=ANA), BOT, DM)
    assert bare is not None
    assert (bare.text, bare.direct, bare.sender) == ("/status", True, Sender("42", "Ana"))


def test_a_press_is_the_line_that_the_button_carries() -> None:
    """It needs no ticket: what it says goes into the chat."""
    pressed = parse.button(interaction(3, {"custom_id": "/switch west", "component_type": 2}, user=ANA), BOT, DM)
    assert pressed is not None
    assert (pressed.kind, pressed.text, pressed.ticket) == ("button", "/switch west", "")


def test_an_interaction_of_nobody_is_nothing() -> None:
    """Without a person, of a bot, or without what was pressed."""
    assert parse.command(interaction(2, {"name": "status"}), BOT, DM) is None
    assert parse.command(interaction(2, {"name": "status"}, user=ANA | {"bot": True}), BOT, DM) is None
    assert parse.button(interaction(3, {}, user=ANA), BOT, DM) is None
