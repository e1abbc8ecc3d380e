"""Who may speak, who may do more, and how a stranger is let in."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from channels.base import Address, Attachment, Inbound, Sender
from gateway import pairing
from gateway.access import GROUP_ADMIN_COMMANDS, Access, Allow, Pair, Refuse, decide, over_quota
from gateway.errors import StartError, Told
from gateway.options import Access as Rules
from gateway.pairing import ALPHABET, MOST, Pairing
from gateway.writer import Writer

RULES = Rules(allow=("telegram:42",), allow_groups=("telegram:-100",), admins=("telegram:1",))


_ids = count(1)


def direct(person: str = "7", channel: str = "telegram", **more: object) -> Inbound:
    trusted = bool(more.pop("trusted", False))
    name = str(more.pop("name", ""))
    input_id = str(more.pop("id", f"i{next(_ids)}"))
    return Inbound(input_id, Address(channel, person), Sender(person, name, trusted), str(more.pop("text", "Hi")), **more)  # type: ignore[arg-type]


def group(chat: str = "-100", person: str = "7", thread: str = "") -> Inbound:
    return Inbound("i1", Address("telegram", chat, thread), Sender(person), "Hi", direct=False)


# ---------------------------------------------------------------------------------------------------------------------------- the policy

ALLOWED, SILENT, ASKS = Allow(), Refuse("stranger"), Pair()


@pytest.mark.parametrize(
    ("mode", "stranger", "approved", "listed", "admin"),
    [
        ("pairing", ASKS, ALLOWED, ALLOWED, ALLOWED),
        ("allowlist", SILENT, ALLOWED, ALLOWED, ALLOWED),
        ("open", ALLOWED, ALLOWED, ALLOWED, ALLOWED),
        ("closed", SILENT, SILENT, ALLOWED, ALLOWED),
    ],
)
def test_direct_chats_follow_their_rule(mode: str, stranger: object, approved: object, listed: object, admin: object) -> None:
    """Each rule against each kind of person."""
    rules = Rules(direct=mode, allow=RULES.allow, admins=RULES.admins)  # type: ignore[arg-type]
    people = {"7": stranger, "8": approved, "42": listed, "1": admin}
    assert {p: decide(rules, {"telegram:8"}, direct(p)) for p in people} == people


def test_the_config_s_rules_are_all_known_here() -> None:
    """No rule that the config takes is missing in the table above."""
    hints = get_type_hints(Rules)
    assert set(get_args(hints["direct"])) == {"pairing", "allowlist", "open", "closed"}
    assert set(get_args(hints["groups"])) == {"allowlist", "open", "closed"}


@pytest.mark.parametrize(("mode", "listed", "other"), [("allowlist", True, False), ("open", True, True), ("closed", False, False)])
def test_groups_are_let_in_as_a_whole_or_not(mode: str, listed: bool, other: bool) -> None:
    """Members of an allowed group may speak, topics included; nobody else's word counts elsewhere, and nobody there gets a code."""
    rules = Rules(groups=mode, allow=RULES.allow, allow_groups=RULES.allow_groups, admins=RULES.admins)  # type: ignore[arg-type]
    for person in ("7", "42", "1", ""):
        assert isinstance(decide(rules, {"telegram:7"}, group(person=person)), Allow) is listed
        assert isinstance(decide(rules, {"telegram:7"}, group(person=person, thread="36")), Allow) is listed
        assert isinstance(decide(rules, {"telegram:7"}, group("-200", person=person)), Allow) is other
        assert not isinstance(decide(rules, (), group("-200", person=person)), Pair)


def test_what_holds_a_chat_lets_it_in() -> None:
    """A server's id lets all of its channels in, a channel's that one; an empty id is nobody's."""
    rules = Rules(allow_groups=("telegram:800", "telegram:"))
    inside, outside = group("-200"), group("-300")
    assert isinstance(decide(rules, (), msgspec.structs.replace(inside, group="800")), Allow)
    assert isinstance(decide(rules, (), msgspec.structs.replace(outside, group="900")), Refuse)
    assert isinstance(decide(rules, (), outside), Refuse)
    assert isinstance(decide(Rules(groups="closed", allow_groups=rules.allow_groups), (), inside), Refuse)


def test_whoever_the_channel_vouches_for_is_in() -> None:
    """The terminal and the holder of the web token need no list, and are admins."""
    rules = Rules(direct="closed", groups="closed")
    inbound = direct("local", "console", trusted=True)
    assert decide(rules, (), inbound) == Allow()


@pytest.mark.parametrize(
    "more",
    [
        {"text": "/help"},
        {"text": "", "attachments": (Attachment("photo", "f1"),)},
        {"kind": "button", "text": "/switch west"},
        {"text": "", "unsupported": "a sticker"},
        {"text": "/approve AAAAAAAA"},
    ],
)
def test_one_gate_for_every_kind_of_message(more: dict[str, Any]) -> None:
    """Text, files, commands and buttons of a stranger all end at the gate."""
    assert decide(Rules(direct="allowlist"), (), direct(**more)) == Refuse("stranger")
    assert decide(Rules(), (), direct(**more)) == Pair()


@pytest.mark.parametrize("person", ["", "4", "421", "042", " 42", "42 ", "Telegram:42"])
def test_an_id_counts_as_a_whole_and_on_its_own_channel(person: str) -> None:
    """No part of an id, no other spelling, no name, and no id of another network opens the door."""
    rules = Rules(direct="allowlist", allow=("telegram:42",), admins=("telegram:42",))
    assert isinstance(decide(rules, (), direct(person, name="telegram:42")), Refuse)
    assert isinstance(decide(rules, (), direct("42", channel="web")), Refuse)
    assert decide(rules, (), direct("42")) == Allow()


def test_a_person_without_an_id_is_nobody() -> None:
    """What cannot be told apart cannot be let in, be the door as open as it may."""
    assert decide(Rules(direct="open"), {"telegram:"}, direct("")) == Refuse("nobody")


def test_the_quota_is_full_at_its_number() -> None:
    """0 is no limit."""
    assert [over_quota(0, 10**6), over_quota(3, 2), over_quota(3, 3), over_quota(3, 4)] == [False, False, True, True]


def test_group_commands_that_need_an_admin() -> None:
    """Whatever changes or deletes a conversation that many share."""
    assert {"reset", "new", "forget", "switch", "undo", "fork"} == GROUP_ADMIN_COMMANDS


# --------------------------------------------------------------------------------------------------------------------------- the memory


class Clock:
    def __init__(self) -> None:
        self.now = 1_795_950_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def writer() -> AsyncIterator[Writer]:
    writer = Writer()
    yield writer
    await writer.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def opened(path: Path, writer: Writer, clock: Clock, rules: Rules = RULES) -> Access:
    access = Access(rules, path, writer, clock=clock)
    await access.open()
    return access


def code(decision: object) -> str:
    assert isinstance(decision, Pair)
    found = re.findall(r"`([^`]+)`", decision.said)
    assert re.fullmatch(r"[a-z]+:.+", found[1])  # and their own id, so that they can tell it
    return str(found[0])


async def test_a_stranger_is_let_in_by_the_code(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """Code, approval however it is typed, entry; and all of it is still so after a restart."""
    path = tmp_path / "access.jsonl"
    access = await opened(path, writer, clock)
    said = code(access.decide(direct("7", name="Ana")))
    assert len(said) == 8
    assert set(said) <= set(ALPHABET)
    assert access.listed()[0] | {"since": ""} == {"id": "telegram:7", "name": "Ana", "state": "asks", "code": said, "since": "", "by": ""}
    assert await access.approve(f" {said[:4].lower()}-{said[4:].lower()} ", by="telegram:1") == "telegram:7"
    assert access.decide(direct("7")) == Allow()
    again = await opened(path, writer, clock)
    assert again.decide(direct("7")) == Allow()
    assert [(row["id"], row["state"], row["by"]) for row in again.listed()] == [("telegram:7", "let in", "telegram:1")]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_every_prefix_of_the_file(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """Cut at any byte, the file opens with what was whole, keeps the piece that was not, and the next line stands on its own."""
    path = tmp_path / "access.jsonl"
    access = await opened(path, writer, clock)
    for who in ("7", "8"):
        await access.approve(code(access.decide(direct(who))), by="operator")
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    for cut in range(len(content) + 1):
        path = tmp_path / str(cut) / "access.jsonl"
        path.parent.mkdir()
        path.write_bytes(content[:cut])
        whole = [line for line in lines if line[:-1] in content[:cut]]
        again = await opened(path, writer, clock)
        let_in = {row["id"] for row in again.listed() if row["state"] == "let in"}
        assert let_in == {f"telegram:{who}" for who, line in (("7", lines[1]), ("8", lines[3])) if line in whole}
        again.decide(direct("9"))
        await writer.flush()
        assert path.read_bytes().startswith(b"".join(whole))
        assert path.read_bytes().count(b"\n") == len(whole) + 1
        piece = content[len(b"".join(whole)) : cut]
        torn = path.with_suffix(".torn")
        assert (torn.read_bytes() if torn.exists() else b"") == (piece + b"\n" if piece.strip() else b"")


async def test_a_code_is_good_once_and_for_an_hour(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """A used, old, wrong or empty code lets nobody in, and a refused approval changes nothing."""
    access = await opened(tmp_path / "access.jsonl", writer, clock)
    used, old = code(access.decide(direct("7"))), code(access.decide(direct("8")))
    await access.approve(used, by="operator")
    clock.now += 3600
    for said in (used, old, "AAAAAAAA", "", "`", "x" * 10_000):
        with pytest.raises(Told):
            await access.approve(said, by="operator")
    assert len(access.listed()) == 1


async def test_a_message_that_comes_again_gets_its_code_again(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """A crash after the code was put on record and before the message was: the network repeats the message, and there is no silence."""
    path = tmp_path / "access.jsonl"
    access = await opened(path, writer, clock)
    said = code(access.decide(direct("7", id="m1")))
    await writer.flush()
    access = await opened(path, writer, clock)
    assert code(access.decide(direct("7", id="m1"))) == said
    assert access.decide(direct("7", id="m2")) == Refuse("stranger")


async def test_an_approval_that_is_given_again_is_told_again(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """A crash after the approval and before the word about it: the command is met again, and says what it did. Not once it is undone."""
    path = tmp_path / "access.jsonl"
    access = await opened(path, writer, clock)
    said = code(access.decide(direct("7")))
    await access.approve(said, by="telegram:1")
    written = path.read_bytes()
    access = await opened(path, writer, clock)
    assert await access.approve(said, by="telegram:1") == "telegram:7"
    assert path.read_bytes() == written
    await access.revoke("telegram:7", by="operator")
    with pytest.raises(Told):
        await access.approve(said, by="telegram:1")


def test_a_code_is_on_record_before_it_is_shown(tmp_path: Path) -> None:
    """Its line is written ahead of what the journal writes in the same batch: a code that somebody sees is one that an admin can use."""
    env = {"PATH": os.environ["PATH"], "PARLOUR_FAILPOINT": "append before journal:1"}
    code = f"import asyncio; from tests.gateway.test_access import shows; asyncio.run(shows({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], env=env, check=False)
    assert done.returncode == -9
    assert (tmp_path / "journal" / "000001.jsonl").read_bytes() == b""
    assert b'"code"' in (tmp_path / "access.jsonl").read_bytes()


async def shows(folder: str) -> None:
    """A stranger comes, and what answers them is put into the journal; run in a process of its own."""
    writer = Writer()
    earlier = writer.append(Path(folder, "journal", "000001.jsonl"), b"{}\n", journal=True)
    Access(RULES, Path(folder, "access.jsonl"), writer, clock=time.time).decide(direct("7"))
    await earlier
    await writer.append(Path(folder, "journal", "000001.jsonl"), b"{}\n", journal=True)


async def test_one_code_a_person_an_hour(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """Who writes again hears nothing for an hour, over a restart too; then there is a new code."""
    path = tmp_path / "access.jsonl"
    access = await opened(path, writer, clock)
    first = code(access.decide(direct("7")))
    clock.now += 3599
    assert access.decide(direct("7")) == Refuse("stranger")
    await writer.flush()
    access = await opened(path, writer, clock)
    assert access.decide(direct("7")) == Refuse("stranger")
    assert await access.approve(first, by="operator") == "telegram:7"
    await access.revoke("telegram:7", by="operator")
    assert code(access.decide(direct("7"))) != first
    clock.now += 3600
    code(access.decide(direct("7")))


async def test_a_crowd_of_strangers_ends_in_silence(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """A hundred codes at one time, all different; the next one hears nothing, and writes nothing to the disk."""
    path = tmp_path / "access.jsonl"
    access = await opened(path, writer, clock)
    codes = {code(access.decide(direct(str(1000 + n)))) for n in range(MOST)}
    assert len(codes) == MOST
    for n in range(MOST, 10 * MOST):
        assert access.decide(direct(str(1000 + n))) == Refuse("stranger")
    await writer.flush()
    assert len(path.read_bytes().splitlines()) == MOST
    clock.now += 3600
    code(access.decide(direct("5000")))


async def test_a_revoked_person_is_out_at_once_and_for_good(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """Over a restart too. Those in the config, and those who were never in, are told apart."""
    path = tmp_path / "access.jsonl"
    rules = Rules(direct="allowlist", allow=RULES.allow, admins=RULES.admins)
    pairing_access = await opened(path, writer, clock)
    await pairing_access.approve(code(pairing_access.decide(direct("7"))), by="operator")
    access = await opened(path, writer, clock, rules)
    assert access.decide(direct("7")) == Allow()
    await access.revoke("telegram:7", by="operator")
    for one in (access, await opened(path, writer, clock, rules)):
        assert one.decide(direct("7")) == Refuse("stranger")
    for person in ("telegram:7", "telegram:42", "telegram:1", "", "*"):
        with pytest.raises(Told):
            await access.revoke(person, by="operator")
    assert access.decide(direct("42")) == Allow()


async def test_admins_are_those_of_the_config_and_the_trusted(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """An approval makes nobody an admin, and an id is one channel's."""
    access = await opened(tmp_path / "access.jsonl", writer, clock)
    await access.approve(code(access.decide(direct("7"))), by="operator")
    assert access.is_admin("telegram", Sender("1"))
    assert access.is_admin("console", Sender("local", trusted=True))
    assert not access.is_admin("telegram", Sender("7"))
    assert not access.is_admin("web", Sender("1"))
    assert not access.is_admin("telegram", Sender("", "telegram:1"))


async def test_an_approval_that_cannot_be_written_does_not_count(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """A full or broken disk: the admin is told, the person stays out, and it works once the disk does."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    access = Access(RULES, blocked / "access.jsonl", writer, clock=clock)
    said = code(access.decide(direct("7")))
    with pytest.raises(Told):
        await access.approve(said, by="operator")
    assert access.decide(direct("7")) == Refuse("stranger")
    blocked.unlink()
    await access.approve(said, by="operator")
    assert access.decide(direct("7")) == Allow()


async def test_a_cancelled_approval_is_whole_or_nothing(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """Memory and file agree whatever becomes of whoever asked."""
    path = tmp_path / "access.jsonl"
    access = await opened(path, writer, clock)
    task = asyncio.create_task(access.approve(code(access.decide(direct("7"))), by="operator"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    await writer.flush()
    await asyncio.sleep(0)
    again = await opened(path, writer, clock)
    assert access.decide(direct("7")) == again.decide(direct("7")) == Allow()


async def test_bad_lines_are_passed_over_and_left(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """What cannot be read costs itself alone: the approvals around it hold, and the next one is appended behind."""
    path = tmp_path / "access.jsonl"
    access = await opened(path, writer, clock)
    for person in ("7", "8"):
        await access.approve(code(access.decide(direct(person))), by="operator")
    good = path.read_bytes()
    bad = (
        b'\xff\xfe\n{"type":"knighted","at":"2026-11-29T10:00:00Z"}\n[]\n{}\n'
        + b"[" * 5000
        + b'\n{"type":"approved","at":"never","person":"telegram:9","by":"x"}\n\n'
    )
    path.write_bytes(bad + good + b'{"type":"approved","at":"2026-11-29T10:0')
    access = await opened(path, writer, clock)
    assert [access.decide(direct(person)) for person in ("7", "8")] == [Allow()] * 2
    assert isinstance(access.decide(direct("9")), Pair)
    await writer.flush()
    assert path.read_bytes().startswith(bad + good)
    assert (await opened(path, writer, clock)).decide(direct("8")) == Allow()


async def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """A folder, a pipe or a link in its place: one line for the operator, and no daemon that has forgotten everybody."""
    path = tmp_path / "access.jsonl"
    path.mkdir()
    with pytest.raises(StartError, match=re.escape(str(path))):
        await opened(path, writer, clock)
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(StartError):
        await opened(path, writer, clock)


def test_a_clock_that_is_set_back_makes_no_code_live_longer() -> None:
    """A code from the future is not good."""
    codes = Pairing()
    issued = codes.issue("telegram:7", "", 10_000.0)
    assert issued
    codes.apply(issued)
    assert codes.find(issued.code, 10_100.0) == issued
    assert codes.find(issued.code, 6_000.0) is None


@pytest.mark.parametrize(
    "name", ["A" * 1000, 'x"}\n{"type":"approved","at":"2026-11-29T10:00:00Z","person":"telegram:9","by":"me"}', "\x1b[2J"]
)
def test_a_name_cannot_write_a_line_of_its_own(name: str) -> None:
    """Whatever somebody calls themselves is data, of bounded length."""
    issued = Pairing().issue("telegram:7", name, 10_000.0)
    assert issued
    line = pairing.encode(issued)
    assert line.count(b"\n") == 1
    assert len(line) < 600
    codes = Pairing()
    assert codes.load(line.splitlines(keepends=True)) == 0
    assert not codes.approved
