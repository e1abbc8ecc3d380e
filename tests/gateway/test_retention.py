"""Retention: what goes and what stays, decided on values; and that nothing which is in use is touched."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from channels.settings import Bytes, Seconds
from gateway.message import SessionKey
from gateway.options import Retention as Rules
from gateway.retention import DAY, FIRST, RECENT, Retention, decide
from gateway.store.names import key_folder
from gateway.store.upkeep import File, Kept, delete_media, look, occupied, survey
from tests.gateway.core import Core, Place

NOW = 1_800_000_000.0
ANA, BEN = SessionKey("net", "1"), SessionKey("net", "2")


def chat(key: SessionKey, current: str, sessions: dict[str, float], media: dict[str, float] | None = None, *, used: float = 1e9) -> Kept:
    """Ages in days; each file takes up 1000 bytes. `used`: days since the chat was used, if nothing of it is younger."""
    kept = [File(name, 1000, NOW - age * DAY) for name, age in sessions.items()]
    came = [File(name, 1000, NOW - age * DAY) for name, age in (media or {}).items()]
    newest = max([NOW - used * DAY, *(file.used for file in kept + came)])
    return Kept(key, current, newest, tuple(kept), tuple(came))


def rules(*, media: float = 0, sessions: float = 0, disk: int = 0, protect: tuple[str, ...] = ()) -> Rules:
    return Rules(media=Seconds(media * DAY), sessions=Seconds(sessions * DAY), disk=Bytes(disk), protect=protect, dry_run=False)


def names(kept: list[Kept], asked: Rules, *, taken: int = 0, busy: tuple[SessionKey, ...] = ()) -> list[str]:
    return [f"{one.key}/{one.name}" for one in decide(kept, asked, now=NOW, taken=taken, busy=busy)]


# ------------------------------------------------------------------------------------------------------------------------ the decision

OLD = chat(ANA, "main", {"main": 100, "chat-2": 200}, {"a": 100, "b": 8})
BUSY = chat(BEN, "main", {"main": 1, "west": 90, "east": 40}, {"c": 90})


def test_nothing_goes_unless_it_is_asked_for() -> None:
    """The defaults delete nothing, however old and large it all is."""
    assert names([OLD, BUSY], Rules(), taken=10**15) == []


def test_files_go_by_their_age() -> None:
    """Of all chats, and nothing but files."""
    assert names([OLD, BUSY], rules(media=30)) == ["net:1/a", "net:2/c"]


def test_sessions_go_by_their_age() -> None:
    """The current one, too, of a chat that nobody uses."""
    assert names([OLD, BUSY], rules(sessions=60)) == ["net:1/chat-2", "net:1/main", "net:2/west"]


def test_the_current_conversation_of_a_chat_in_use_stays() -> None:
    """Somebody went back to an old conversation yesterday and has not said anything yet: the pointer is younger than all."""
    back = chat(ANA, "old", {"old": 300, "main": 90}, used=1)
    assert names([back], rules(sessions=60)) == ["net:1/main"]
    assert names([back], rules(sessions=0.5)) == ["net:1/main", "net:1/old"]
    assert names([chat(ANA, "old", {"old": 300}, used=RECENT / DAY + 1)], rules(sessions=60)) == ["net:1/old"]


def test_what_is_protected_stays() -> None:
    """A chat, with all that is in it; a conversation, with the chat's files, since nobody knows which are its own."""
    assert names([OLD], rules(media=1, sessions=1, disk=1, protect=("net:1",)), taken=10**9) == []
    assert names([OLD], rules(media=1, sessions=1, disk=1, protect=("net:1/chat-2",)), taken=10**9) == ["net:1/main"]
    assert names([OLD], rules(media=30, protect=("net:11", "net:2", "net:1/gone"))) == ["net:1/a"]


def test_what_is_busy_stays() -> None:
    """However old it is."""
    assert names([OLD, BUSY], rules(media=1, sessions=1, disk=1), taken=10**9, busy=(ANA, BEN)) == []


def test_above_the_limit_the_oldest_goes_first_and_no_more_than_needed() -> None:
    """Files before conversations; never what was used within the last day, never the current conversation of a chat in use."""
    all_of_it = ["net:1/a", "net:2/c", "net:1/b", "net:1/chat-2", "net:1/main", "net:2/west", "net:2/east"]
    for count in range(len(all_of_it) + 1):
        went = names([OLD, BUSY], rules(disk=100_000), taken=100_000 + 1000 * count)
        assert sorted(went) == sorted(all_of_it[:count])
    assert sorted(names([OLD, BUSY], rules(disk=1), taken=10**9)) == sorted(all_of_it)
    assert names([OLD, BUSY], rules(disk=100_000), taken=99_999) == []


def test_what_is_too_old_counts_towards_the_limit() -> None:
    """What goes anyway makes room: nothing more goes than is needed behind it."""
    assert names([OLD, BUSY], rules(media=30, disk=100_000), taken=102_000) == ["net:1/a", "net:2/c"]
    assert names([OLD, BUSY], rules(media=30, disk=100_000), taken=102_001) == ["net:1/a", "net:1/b", "net:2/c"]


def test_a_clock_that_was_ahead_deletes_nothing() -> None:
    """Times in the future are young."""
    assert names([chat(ANA, "main", {"main": -400, "x": -400}, {"a": -400})], rules(media=1, sessions=1)) == []


ages = st.floats(min_value=-10, max_value=1000)
limits = st.sampled_from([0.0, 0.5, 30, 500])
chats = st.builds(
    chat,
    st.sampled_from([ANA, BEN]),
    st.sampled_from(["main", "west", ""]),
    st.dictionaries(st.sampled_from(["main", "west", "east"]), ages, min_size=1),
    st.dictionaries(st.sampled_from("abc"), ages),
    used=ages,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(chats, max_size=2, unique_by=lambda kept: kept.key), limits, limits, st.sampled_from([0, 5000]), st.integers(0, 20000))
def test_whatever_there_is(kept: list[Kept], media: float, sessions: float, disk: int, taken: int) -> None:
    """No reason, nothing goes; what goes is there, goes once and for a reason; a stricter rule never spares what a laxer one took."""
    asked = rules(media=media, sessions=sessions, disk=disk)
    went = decide(kept, asked, now=NOW, taken=taken)
    assert len(set(went)) == len(went)
    there = {(k.key, kind, *file) for k in kept for kind, files in (("media", k.media), ("session", k.sessions)) for file in files}
    assert set(map(tuple, went)) <= there
    if not (media or sessions or (disk and taken > disk)):
        assert went == []
    for one in went:
        old = {"media": media, "session": sessions}[one.kind]
        assert (old and NOW - one.used > old * DAY) or (disk and taken > disk)
    if media:
        assert {one for one in went if one.kind == "media"} >= {
            one for one in decide(kept, rules(media=media * 2), now=NOW, taken=0) if one.kind == "media"
        }


# --------------------------------------------------------------------------------------------------------------------------- the folder


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    async with Core(tmp_path) as running:
        yield running


def age(core: Core, key: SessionKey, days: float) -> None:
    """Make everything of a chat look as if it had been used then."""
    for path in key_folder(core.folder / "sessions", key).rglob("*"):
        os.utime(path, (NOW - days * DAY,) * 2)


def attach(core: Core, key: SessionKey, name: str, days: float) -> Path:
    path = key_folder(core.folder / "sessions", key) / "media" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(10_000))
    os.utime(path, (NOW - days * DAY,) * 2)
    return path


def retention(core: Core, asked: Rules) -> Retention:
    return Retention(asked, core.folder, core.sessions, core.inbox, core.metrics, clock=lambda: NOW)


async def test_a_survey_finds_what_is_there(core: Core) -> None:
    """Sessions, their torn tails, files, the current one; nothing that is foreign, hidden or a link."""
    for text in ("hi", "/fork west", "there"):
        await core.ask(text)
    await core.ask("hello", chat="2")
    root = core.folder / "sessions"
    folder = key_folder(root, ANA)
    (folder / "main.torn").write_bytes(bytes(5000))
    (folder / ".new-x").write_bytes(b"x")
    (folder / "link.jsonl").symlink_to(folder / "main.jsonl")
    (root / "net" / "foreign").mkdir()
    (root / "net" / "foreign" / "notes.txt").write_text("x")
    attach(core, ANA, "abc", 0)
    found = {kept.key: kept for kept in survey(root)}
    assert set(found) == {ANA, BEN}
    assert found[ANA].current == "west"
    assert [file.name for file in found[ANA].sessions] == ["main", "west"]
    assert [file.name for file in found[ANA].media] == ["abc"]
    assert found[ANA].sessions[0].size > 5000
    assert found[ANA].used == max(path.stat().st_mtime for path in folder.rglob("*") if not path.is_symlink() and path.is_file())
    assert occupied(core.folder) > sum(file.size for kept in found.values() for file in kept.sessions + kept.media)
    assert look(root, SessionKey("net", "nobody")) == Kept(SessionKey("net", "nobody"), "", 0.0, (), ())


@pytest.mark.parametrize("name", ["", ".", "..", "../main.jsonl", "a/b"])
def test_a_file_is_named_not_pathed(tmp_path: Path, name: str) -> None:
    """Nothing outside of the folder of attachments is ever deleted."""
    with pytest.raises(ValueError, match="name"):
        delete_media(tmp_path, ANA, name)


async def test_a_dry_run_says_it_and_does_nothing(core: Core) -> None:
    """One line, with what would go; every byte is still there."""
    await core.ask("hi")
    attach(core, ANA, "abc", 300)
    age(core, ANA, 300)
    before = {path: path.read_bytes() for path in core.folder.rglob("*") if path.is_file()}
    asked = Rules(media=Seconds(DAY), sessions=Seconds(DAY))
    assert asked.dry_run
    with capture_logs() as logs:
        await retention(core, asked).once()
    (line,) = [line for line in logs if line["event"].startswith("retention")]
    assert line["event"] == "retention (dry run, nothing was deleted)"
    assert (line["sessions"], line["media"], line["names"]) == (1, 1, ["net:1/abc", "net:1/main"])
    assert {path: path.read_bytes() for path in core.folder.rglob("*") if path.is_file()} == before
    assert core.metrics.removed.values == {}


async def test_what_is_old_goes_and_the_chat_goes_on(core: Core) -> None:
    """The fork and the file go, one line says so, the counters count; the conversation that stays is whole, and so is its next turn."""
    for text in ("one", "/fork west", "/switch main", "two"):
        await core.ask(text)
    folder = key_folder(core.folder / "sessions", ANA)
    os.utime(folder / "west.jsonl", (NOW - 300 * DAY,) * 2)
    file = attach(core, ANA, "abc", 300)
    for path in (folder / "main.jsonl", folder / "_chat.jsonl"):
        os.utime(path, (NOW, NOW))
    with capture_logs() as logs:
        went = await retention(core, rules(media=30, sessions=30)).once()
    assert [one.name for one in went.gone] == ["abc", "west"]
    assert not file.exists()
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == ["_chat.jsonl", "main.jsonl"]
    assert [line["event"] for line in logs if "retention" in line["event"]] == ["retention"]
    assert core.metrics.removed.values == {("media",): 1, ("session",): 1}
    assert core.metrics.freed.values[()] >= 10_000
    assert await core.ask("three") == "Heard: three"
    assert [words for role, words in core.model.asked[-1] if role == "user"] == ["one", "two", "three"]


async def test_a_chat_that_is_gone_leaves_nothing_and_may_come_back(core: Core) -> None:
    """Its folder goes with the last of it; who writes again begins anew."""
    await core.ask("hi")
    attach(core, ANA, "abc", 300)
    age(core, ANA, 300)
    await retention(core, rules(media=30, sessions=30)).once()
    assert not key_folder(core.folder / "sessions", ANA).exists()
    assert await core.ask("again") == "Heard: again"
    assert core.model.asked[-1] == [("user", "again")]


async def test_what_is_in_use_is_not_touched(core: Core) -> None:
    """A turn that runs, one that waits, an answer that is not sent: all three chats stay, and are told of as in use."""
    go = asyncio.Event()
    for number in (1, 2, 3):
        await core.ask("hi", chat=str(number))
        age(core, SessionKey("net", str(number)), 300)
    core.model.then("so far", go)
    await core.say("long", chat="1")
    await core.running("1")
    async with core.sessions.hold(SessionKey("net", "3")):
        for number in (1, 2, 3):
            age(core, SessionKey("net", str(number)), 300)
        went = await retention(core, rules(sessions=30)).once()
    assert [str(one.key) for one in went.gone] == ["net:2"]
    go.set()
    await core.quiet()
    assert [words for role, words in core.model.asked[-1] if role == "user"] == ["hi", "long"]
    assert core.seen("1")[-1] == "so far"


async def test_an_answer_on_its_way_keeps_its_conversation(tmp_path: Path) -> None:
    """While the network is away the answer is not sent, and its `sent` needs the file."""
    async with Core(tmp_path, net=Place(units=4000)) as core:
        await core.ask("hi")
        await core.ask("hi", chat="2")
        key_of_two = SessionKey("net", "2")
        age(core, ANA, 300)
        age(core, key_of_two, 300)
        core.sessions.pin(ANA, "main")
        went = await retention(core, rules(sessions=30)).once()
        assert [str(one.key) for one in went.gone] == ["net:2"]
        core.sessions.unpin(ANA, "main")
        went = await retention(core, rules(sessions=30)).once()
        assert [str(one.key) for one in went.gone] == ["net:1"]


async def test_what_was_used_since_it_was_looked_at_stays(core: Core) -> None:
    """The decision is looked at again under the key's lock."""
    for text in ("hi", "/fork west"):
        await core.ask(text)
    age(core, ANA, 300)
    carrier = retention(core, rules(sessions=30))
    doomed = decide(survey(core.folder / "sessions"), rules(sessions=30), now=NOW, taken=0)
    assert [one.name for one in doomed] == ["main", "west"]
    await core.ask("still here")
    async with core.sessions.hold(ANA):
        gone = await carrier._of(ANA, doomed)
    assert [one.name for one in gone] == ["main"]
    assert await core.ask("and whole") == "Heard: and whole"
    assert [words for role, words in core.model.asked[-1] if role == "user"] == ["hi", "still here", "and whole"]


async def test_it_runs_once_a_day_and_survives_a_bad_one(core: Core, tmp_path: Path) -> None:
    """The first time some minutes after the start; a folder that cannot be looked at is told, and the next day comes."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "sessions").write_text("not a folder")
    pauses: list[float] = []
    days = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            (other / "sessions").unlink()
        if len(pauses) == 4:
            days.set()
            await asyncio.Event().wait()

    carrier = Retention(rules(sessions=30), other, core.sessions, core.inbox, core.metrics, clock=lambda: NOW, pause=pause)
    with capture_logs() as logs:
        task = asyncio.create_task(carrier.run())
        await days.wait()
        task.cancel()
        await asyncio.wait({task})
    assert pauses == [FIRST, DAY, DAY, DAY]
    assert [line["event"] for line in logs] == ["retention failed", "retention", "retention"]
