"""`gateway.attachments`: what becomes of attached files, without a session."""

from __future__ import annotations

import asyncio

import pytest

from channels.base import Address, Attachment, ChannelError, Denied, Inbound, NotSent, Refused, Retry, Sender, TooLarge, Unknown
from gateway.attachments import EMPTY, FAILED, MOST, NO_ROOM, NOT_TEXT, PAUSES, TOO_LARGE, Attachments, decoded, note, room
from gateway.message import Media
from tests.gateway.outbox_net import Net


def file(ref: str, name: str = "a.txt") -> Attachment:
    return Attachment("file", ref, name)


def message(*attachments: Attachment) -> Inbound:
    return Inbound("net:7:1:1", Address("net", "1"), Sender("1"), "look", attachments=attachments)


async def read(net: Net, *attachments: Attachment, limit: int = 100, seconds: float = 10.0) -> tuple[list[Media], list[float]]:
    """What is kept of them, and the pauses that were made."""
    pauses: list[float] = []

    async def pause(length: float) -> None:
        pauses.append(length)

    return list(await Attachments({"net": net}, seconds=seconds, pause=pause).read(message(*attachments), limit)), pauses


async def test_a_text_is_kept_whole_up_to_the_limit() -> None:
    """To the last byte; one byte is asked for beyond the limit, by which a longer file is known."""
    net = Net(files={"r": b"x" * 99 + b"!"})
    (media,), _ = await read(net, file("r"))
    assert media == Media("file", "a.txt", ref="r", text="x" * 99 + "!")
    assert net.fetches == [("r", 101)]


async def test_a_longer_one_is_cut_between_characters_and_marked() -> None:
    """Never within a character, which would be no text any more."""
    (media,), _ = await read(Net(files={"r": ("x" * 99 + "ä" * 50).encode()}), file("r"))
    assert (media.text, media.cut, media.unread) == ("x" * 99, True, "")
    (media,), _ = await read(Net(files={"r": "\ufeff".encode("utf-16-le") + ("€" * 80).encode("utf-16-le")}), file("r"))
    assert (media.text, media.cut) == ("€" * 33, True)  # two bytes there, three here


async def test_the_files_of_a_message_share_the_room() -> None:
    """Ten files do not take up ten times the room: what does not fit any more is not even fetched."""
    net = Net(files={"1": b"x" * 60, "2": b"y" * 60, "3": b"z"})
    kept, _ = await read(net, file("1"), file("2"), file("3"))
    assert [(len(one.text), one.cut, one.unread) for one in kept] == [(60, False, ""), (40, True, ""), (0, False, NO_ROOM)]
    assert net.fetches == [("1", 101), ("2", 41)]


async def test_what_is_no_text_file_is_not_fetched() -> None:
    """A picture is mentioned, no more."""
    net = Net()
    kept, _ = await read(net, Attachment("photo", "p"), file("r", "a.pdf"))
    assert kept == [Media("photo", ref="p"), Media("file", "a.pdf", ref="r")]
    assert net.fetches == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"PK\x03\x04\x00\x00", NOT_TEXT),
        (b"caf\xe9", NOT_TEXT),
        (b"caf\xc3", NOT_TEXT),
        (b"", EMPTY),
        (b"\xef\xbb\xbf \r\n", EMPTY),
        (TooLarge("file is too big"), TOO_LARGE),
        (Refused("no"), FAILED),
        (Denied("no"), FAILED),
    ],
)
async def test_what_cannot_be_read_says_why(content: bytes | ChannelError, why: str) -> None:
    """Once, without a second try; the others of the message are read."""
    net = Net(files={"r": content, "s": b"fine"})
    kept, pauses = await read(net, file("r"), file("s"))
    assert [(one.text, one.unread) for one in kept] == [("", why), ("fine", "")]
    assert (len(net.fetches), pauses) == (2, [])


@pytest.mark.parametrize("fault", [NotSent("down"), Unknown("timeout"), Retry(2)], ids=["away", "lost", "flood"])
async def test_a_network_that_is_away_is_asked_again_and_then_no_more(fault: ChannelError) -> None:
    """A hiccup costs nobody their file, an outage holds nobody up for long."""
    net = Net(files={"r": fault})
    (media,), pauses = await read(net, file("r"))
    assert media.unread == FAILED
    assert len(net.fetches) == len(PAUSES) + 1
    assert pauses == [max(pause, 2.0) if isinstance(fault, Retry) else pause for pause in PAUSES]


async def test_who_is_asked_to_wait_for_long_does_not() -> None:
    """The chat stands still meanwhile."""
    net = Net(files={"r": Retry(3600)})
    (media,), pauses = await read(net, file("r"))
    assert (media.unread, len(net.fetches), pauses) == (FAILED, 1, [])


@pytest.mark.looptime
async def test_what_hung_is_not_asked_for_again() -> None:
    """A download that stalled until its own limit is given up at once."""

    class Slow(Net):
        async def fetch(self, attachment: Attachment, most: int) -> bytes:
            self.fetches.append((attachment.ref, most))
            await asyncio.sleep(10)
            raise Unknown("the file does not come in time")

    net = Slow()
    (media,), pauses = await read(net, file("r"), seconds=40)
    assert (media.unread, len(net.fetches), pauses) == (FAILED, 1, [])


async def test_all_files_together_have_a_time_limit() -> None:
    """One that never comes is given up, and what is behind it with it."""
    kept, _ = await read(Net(files={"r": asyncio.Event(), "s": asyncio.Event()}), file("r"), file("s"), seconds=0.05)
    assert [one.unread for one in kept] == [FAILED, FAILED]


def test_text_is_utf_8_or_marked_utf_16() -> None:
    """What Windows programs write is read as well; NUL is in no text."""
    assert decoded("äb\r\n".encode()) == "äb\r\n"
    assert decoded("ä".encode("utf-8-sig")) == "ä"
    assert decoded("ä€".encode("utf-16")) == "ä€"
    assert decoded(b"\xfe\xff" + "ä€".encode("utf-16-be")) == "ä€"
    assert decoded("a\0b".encode("utf-16")) is None
    assert decoded("a€".encode()[:-1]) is None
    assert decoded("a€".encode()[:-1], whole=False) == "a"


def test_there_is_room_for_a_question_beside_the_files() -> None:
    """Neither takes a small model all of its window, nor a large one without end."""
    assert room(16000) == 36000
    assert room(10**6) == MOST == 65536


def test_the_person_is_told_of_what_is_missing_alone() -> None:
    """One sentence for each file that is not all there; its name cannot become markup."""
    assert note([Media("photo"), Media("file", "a.txt", text="x")]) == ""
    cut = Media("file", "a`*b*.txt", text="x" * 2048, cut=True)
    assert note([cut]) == "(I read only the first 2 KiB of `a'*b*.txt`.)"
    assert note([Media("file", unread=TOO_LARGE), cut]) == (
        "(I did not read the file: it is too large for me to get. I read only the first 2 KiB of `a'*b*.txt`.)"
    )
