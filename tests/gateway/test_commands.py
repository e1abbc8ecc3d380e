"""What people type behind a slash: what is a command, what each says, and that an odd argument does no harm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.access import GROUP_ADMIN_COMMANDS
from gateway.commands.base import When, parse
from gateway.commands.table import BY_NAME, COMMANDS, MENU, find
from gateway.inbox import Entry, Input
from gateway.options import Access as Rules
from tests.gateway.core import Core


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    async with Core(tmp_path) as core:
        yield core


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("/help", ("help", "")),
        ("  /HELP  ", ("help", "")),
        ("/fork West Side", ("fork", "West Side")),
        ("/fork\nWest\nSide ", ("fork", "West\nSide")),
        ("/forget yes", ("forget", "yes")),
        ("/what_ever", ("what_ever", "")),
        ("//help", None),
        ("/ 2", None),
        ("/2", None),
        ("/etc/passwd", None),
        ("/help, please", None),
        ("say /help", None),
        ("/", None),
        ("", None),
        ("/" + "a" * 33, None),
    ],
)
def test_what_is_a_command(text: str, parsed: tuple[str, str] | None) -> None:
    """A slash, a word, and what follows after a space; anything else is words for the model."""
    assert parse(text) == parsed


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_parsing_never_raises(text: str) -> None:
    """Whatever is typed; and a name that is found is one of the table's."""
    found = find("/" + text)
    assert found is None or found[0] in COMMANDS


def test_the_table_is_sound() -> None:
    """No name twice, every name in the menu one that networks take, every hint short; whoever steers a group is on the list of access."""
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names)) == len(BY_NAME)
    assert all(info.name.isascii() and info.name.islower() and 0 < len(info.hint) <= 100 for info in MENU)
    assert {command.name for command in COMMANDS if command.admin}.isdisjoint(info.name for info in MENU)
    steering = {name for name in names if BY_NAME[name].when("yes") is not When.NOW and not BY_NAME[name].asks}
    assert steering == GROUP_ADMIN_COMMANDS


@pytest.mark.parametrize(
    ("argument", "when"), [("", When.NOW), ("west", When.NOW), ("no", When.NOW), ("yes", When.CUT), ("west YES", When.CUT)]
)
def test_forget_asks_at_once_and_deletes_in_its_place(argument: str, when: When) -> None:
    """Only the word at the end makes it one that cuts the running turn."""
    assert BY_NAME["forget"].when(argument) is when


async def test_help_shows_what_one_may_use(tmp_path: Path) -> None:
    """Every command, with /approve for admins only."""
    async with Core(tmp_path, rules=Rules(direct="open", admins=("net:9",))) as core:
        everybody, admins = await core.ask("/help"), await core.ask("/help", chat="9", who="9")
        assert all(f"/{command.name}" in admins for command in COMMANDS)
        assert [line for line in admins.splitlines() if line not in everybody.splitlines()] == [
            "- /approve CODE: let a person in by their code"
        ]
        assert await core.ask("/approve", chat="9", who="9") == "Which code? /approve CODE."
        assert "no such code" in await core.ask("/approve NOPE", chat="9", who="9")


async def test_whoami_and_status(core: Core) -> None:
    """An id for the operator's lists, and where the conversation stands, also before there is one."""
    assert await core.ask("/whoami") == "You are `net:1`, a user of this bot. This chat is `net:1`."
    assert "Session: none yet" in await core.ask("/status")
    await core.ask("hi")
    assert "Session: `main`" in await core.ask("/status")
    assert await core.ask("/sessions") == "- `main` (here)"


@pytest.mark.parametrize("text", ["/reset", "/new", "/fork", "/fork West"])
@pytest.mark.parametrize("current", [False, True], ids=["another", "the current one"])
async def test_a_session_that_cannot_be_read_keeps_its_name(core: Core, text: str, current: bool) -> None:
    """It is in no list, and its name is not free all the same: a new session has another one, whoever names it."""
    await core.ask("one")
    folder = core.folder / "sessions" / "net" / "1"
    for name in ("chat-2", "chat-3", "main-2", "west"):
        (folder / f"{name}.jsonl").write_bytes(b"no header\n")
    if current:
        with (folder / "_chat.jsonl").open("ab") as chat:
            chat.write(b'{"at":"2030-01-01T00:00:00Z","current":"chat-2"}\n')
        await core.restart()
    said = await core.ask(text)
    if not current:
        assert said.startswith(
            "There is a session `west` already." if "West" in text else ("You are now in `main-3`", "A new conversation.")
        )
    elif "fork" not in text:
        assert said.startswith("A new conversation.")
    assert "went wrong" not in said
    assert {(folder / f"{name}.jsonl").read_bytes() for name in ("chat-2", "chat-3", "main-2", "west")} == {b"no header\n"}


async def test_before_the_first_word(core: Core) -> None:
    """Every command says something sensible in a chat that never talked; none of them asks the model."""
    for command in COMMANDS:
        if command.name not in {"approve", "forget"}:
            assert "wrong" not in await core.ask(f"/{command.name}")
    assert core.model.asked == []


ODD = [
    "../../evil",
    "/etc/passwd",
    ".hidden",
    "CON",
    "x" * 300,
    "a\nb",
    "..",
    "_chat",
    "Ünïcödé ☃",
    "-",
    "yes",
    "no",
    "main",
    " ",
    "\u202e",
    "🦉",
]


@pytest.mark.parametrize("name", ODD)
async def test_names_are_names(core: Core, name: str) -> None:
    """Whatever is given for a name: an answer in words, the conversation goes on, nothing appears outside the chat's folder, and the
    session made by it can be gone to and deleted by what was typed."""
    await core.ask("one")
    before = {path for path in core.folder.rglob("*") if "sessions/net/1" not in str(path) and "journal" not in str(path)}
    forked = await core.ask(f"/fork {name}")
    if forked.startswith("You are now") and name.strip():
        await core.ask("/switch main")
        assert (await core.ask(f"/switch {name}")).startswith("You are now in")
        assert (await core.ask(f"/forget {name} yes")).endswith("is deleted.")
    for command in ("switch", "forget", "forget x", "undo", "retry", "reset", "help", "stop", "status", "sessions"):
        assert "wrong" not in await core.ask(f"/{command} {name}")
    assert await core.ask("two") == "Heard: two"
    assert {path for path in core.folder.rglob("*") if "sessions/net/1" not in str(path) and "journal" not in str(path)} == before


async def test_a_deletion_that_a_crash_cut_says_what_is_known(core: Core) -> None:
    """Met again, nobody can say whether there was such a session, and none is said to have been deleted that never was."""
    await core.ask("one")
    inbound = core.inbound("/forget nothing yes")
    await core.inbox.put([Entry(Input(inbound, "net:1", 1.0))])
    await core.inbox.started(inbound.id, "main", 2)
    await core.restart(crash=True)
    await core.quiet()
    assert core.seen()[-1] == "`nothing` is deleted, or was never there."
    assert await core.ask("/forget nothing yes") == "There is no session `nothing`. /sessions lists them."


async def test_no_session_has_a_name_that_forget_takes_for_an_answer(core: Core) -> None:
    """Or "/forget yes", meant for that one, would delete them all."""
    await core.ask("one")
    for name in ("yes", "Yes!", "NO"):
        assert "another name" in await core.ask(f"/fork {name}")
    assert await core.ask("/sessions") == "- `main` (here)"


async def test_fork_without_a_name_finds_one(core: Core) -> None:
    """Numbers, as many as one likes; a name that is taken is refused and changes nothing."""
    await core.ask("one")
    for name in ("main-2", "main-2-2", "main-2-2-2"):
        assert f"You are now in `{name}`" in await core.ask("/fork")
    assert "There is a session `main-2` already" in await core.ask("/fork main-2")
    assert "`main-2-2-2` (here)" in await core.ask("/sessions")


async def test_sessions_lists_a_tree_within_bounds(core: Core) -> None:
    """Forks stand under their parents; a chat with many is told how many are left out, and gets a few buttons."""
    await core.ask("one")
    for n in range(60):
        await core.ask(f"/fork s{n}")
    listed = await core.ask("/sessions")
    assert "11 older ones are not listed." in listed
    assert listed.count("`s") == 50
    assert len(core.net.calls[-1].buttons) == 12


@given(name=st.sampled_from(sorted(BY_NAME)), argument=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_argument_breaks_a_command(core: Core, name: str, argument: str) -> None:
    """One answer each, never the sentence for a fault of ours."""
    said = await core.ask(f"/{name} {argument}")
    assert "Something went wrong" not in said
