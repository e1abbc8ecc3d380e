"""The operator's command line beside a running daemon, and on the same folder without one: processes, a socket, a lock, nothing inside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fakes.openai import FakeModel, Reply, delta, says
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN, Daemon
from tests.flow.people import config, session_lines
from tests.gateway.core import until

ANA, BO = 42, 43


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Parlour:
    """The command line in the daemon's folder, as its operator calls it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    async def begin(self, *args: str, stderr: int = asyncio.subprocess.PIPE) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", *args),
            cwd=self.daemon.folder,
            env=self.daemon.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )

    async def __call__(self, *args: str) -> Done:
        process = await self.begin(*args)
        out, err = await asyncio.wait_for(process.communicate(), 40)
        done = Done(process.returncode or 0, out.decode(), err.decode())
        for secret in (TOKEN, TOKEN.partition(":")[2], KEY):
            assert secret not in done.out + done.err
        assert "Traceback" not in done.err
        return done


@pytest.fixture
def parlour(daemon: Daemon) -> Parlour:
    return Parlour(daemon)


async def hello(tg: FakeTelegram, chat: int, *texts: str) -> None:
    for text in texts:
        tg.say(chat, text)
        await tg.wait_for(lambda text=text: f"Heard: {text}" in tg.visible(chat)[-1:], 15, chat=chat)  # type: ignore[misc]


def rows(done: Done) -> dict[tuple[str, str], dict[str, Any]]:
    assert done.code == 0, done
    return {(row["key"], row["name"]): row for row in done.json}


# ------------------------------------------------------------------------------------------------------- the same with and without


@pytest.fixture(params=["daemon", "alone"])
async def either(request: pytest.FixtureRequest, daemon: Daemon, tg: FakeTelegram) -> Parlour:
    """A folder with conversations of two chats, whose daemon runs or has ended."""
    await hello(tg, ANA, "one", "two")
    tg.say(ANA, "/fork west")
    await tg.wait_for(lambda: "west" in tg.visible(ANA)[-1], 15, chat=ANA)
    await hello(tg, ANA, "three")
    await hello(tg, BO, "hi")
    if request.param == "alone":
        assert await daemon.stop() == 0
    return Parlour(daemon)


async def test_list_show_export(either: Parlour, tmp_path: Path) -> None:
    """The same answers whether a daemon gives them or the folder does."""
    listed = rows(await either("sessions", "list", "--json"))
    assert set(listed) == {("telegram:42", "main"), ("telegram:42", "west"), ("telegram:43", "main")}
    west = listed["telegram:42", "west"]
    assert (west["current"], west["parent"]) == (True, "main")
    assert west["lines"] == session_lines(either.daemon.data, ANA, "west")[-1]["seq"]
    assert set(rows(await either("sessions", "list", "--json", "--key", "telegram:43"))) == {("telegram:43", "main")}

    text = (await either("sessions", "list")).out.splitlines()
    assert text[0].split() == ["NAME", "LINES", "SIZE", "LAST", "USED", "TITLE"]
    assert [line.split()[0] for line in text[1:]] == ["telegram:42", "main", "*", "telegram:43", "*"]

    shown = (await either("sessions", "show", "telegram:42", "--json", "--last", "3")).json
    assert (shown["name"], shown["turns"]) == ("west", 3)
    assert [(m["role"], m["text"]) for m in shown["messages"]] == [
        ("assistant", "Heard: two"),
        ("user", "three"),
        ("assistant", "Heard: three"),
    ]
    text = (await either("sessions", "show", "telegram:42", "main")).out.splitlines()
    assert text[0] == "telegram:42 main"
    assert "    Heard: two" in text
    assert "    Heard: three" not in text

    file = tmp_path / "west.jsonl"
    assert (await either("sessions", "export", "telegram:42", "-o", str(file))).code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == (either.daemon.data / "sessions" / "telegram" / "42" / "west.jsonl").read_bytes()
    assert (await either("sessions", "export", "telegram:42", "west")).out == file.read_text()
    again = await either("sessions", "export", "telegram:43", "-o", str(file))
    assert (again.code, "is there already" in again.err) == (1, True)
    assert "three" in file.read_text()
    assert (await either("sessions", "export", "telegram:43", "--format", "md", "--force", "-o", str(file))).code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = file.read_text()
    assert told.startswith("# main\n\n`telegram:43`, session `main`, made ")
    assert told.index("\nhi\n") < told.index("\nHeard: hi\n")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


async def test_fork_and_delete(either: Parlour) -> None:
    """A fork leaves the chat where it is; what is deleted is gone for good; what cannot be is a sentence and exit 1."""
    forked = await either("sessions", "fork", "telegram:42", "main", "third", "--json")
    assert forked.json == {
        "key": "telegram:42",
        "name": "third",
        "parent": "main",
        "lines": rows(await either("sessions", "list", "--json"))["telegram:42", "third"]["lines"],
    }
    listed = rows(await either("sessions", "list", "--json"))
    assert [name for (_, name), row in listed.items() if row["current"]] == ["west", "main"]
    assert (await either("sessions", "fork", "telegram:42", "main", "third")).code == 1
    refused = await either("sessions", "delete", "telegram:42", "third")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert (await either("sessions", "delete", "telegram:42", "third", "--yes")).code == 0
    assert ("telegram:42", "third") not in rows(await either("sessions", "list", "--json"))
    wrong = await either("sessions", "delete", "telegram:42", "third", "--yes")
    assert (wrong.code, wrong.err) == (1, "parlour: telegram:42 has no session 'third'; it has main, west\n")

    gone = await either("sessions", "delete", "telegram:42", "--yes")
    assert gone.out == "telegram:42: everything is deleted, 2 conversations and what the journal held\n"
    assert set(rows(await either("sessions", "list", "--json"))) == {("telegram:43", "main")}
    everything = b"".join(path.read_bytes() for path in either.daemon.data.rglob("*") if path.is_file())
    assert b"three" not in everything
    assert b"Heard: hi" in everything


async def test_a_daemon_goes_on_after_work_without_one(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """What was done to the folder while the daemon was down is what it finds, and nothing it needs is in its way."""
    await hello(tg, ANA, "one")
    assert await daemon.stop() == 0
    parlour = Parlour(daemon)
    assert (await parlour("sessions", "fork", "telegram:42", "main", "copy")).code == 0
    assert (await parlour("sessions", "delete", "telegram:42", "main", "--yes")).code == 0
    tg.say(ANA, "two")
    await daemon.start()
    await tg.wait_for(lambda: tg.visible(ANA)[-1:] == ["Heard: two"], 15, chat=ANA)
    assert [m.content for m in model.asked[-1].messages[1:]] == ["one", "Heard: one", "two"]


# ------------------------------------------------------------------------------------------------------------------ a running turn


async def test_a_running_turn_is_not_harmed(parlour: Parlour, tg: FakeTelegram, model: FakeModel) -> None:
    """Deletion waits for the answer that is being written, which comes whole; then everything is gone. An operator who sees on a terminal
    that it waits, and gives up, has deleted nothing."""
    go = asyncio.Event()
    model.then(
        Reply([delta("", role="assistant"), delta("first half, "), go, delta("second half"), delta(finish="stop"), b"data: [DONE]\n\n"])
    )
    tg.say(ANA, "tell me")
    await model.wait()
    ours, theirs = os.openpty()
    giving_up = await parlour.begin("sessions", "delete", "telegram:42", "main", "--yes", stderr=theirs)
    deleting = await parlour.begin("sessions", "delete", "telegram:42", "--yes")

    async def busy() -> int:
        return int((await parlour("status", "--json")).json["busy"])

    async with asyncio.timeout(20):
        while await _connected(parlour.daemon) < 2:
            pass  # each look is a file read off the loop
    assert await busy() == 1
    assert b"the conversation is busy" in await asyncio.wait_for(asyncio.to_thread(os.read, ours, 1000), 20)
    giving_up.terminate()
    await giving_up.wait()
    os.close(ours)
    os.close(theirs)
    async with asyncio.timeout(20):
        while await _connected(parlour.daemon) > 1:
            pass
    assert len(session_lines(parlour.daemon.data, ANA)) == 2
    go.set()
    out, _ = await asyncio.wait_for(deleting.communicate(), 20)
    assert deleting.returncode == 0
    assert b"everything is deleted, 1 conversation" in out
    await tg.wait_for(lambda: tg.visible(ANA) == ["first half, second half"], 10, chat=ANA)
    assert rows(await parlour("sessions", "list", "--json")) == {}
    await hello(tg, ANA, "again")
    assert [m.content for m in model.asked[-1].messages[1:]] == ["again"]
    assert "Traceback" not in parlour.daemon.text()


async def _connected(daemon: Daemon) -> int:
    """How many are connected to the control socket, by the kernel's list."""
    lines = (await asyncio.to_thread(Path("/proc/net/unix").read_text)).splitlines()
    states = [line.split()[5] for line in lines if line.endswith(str(daemon.data / "control.sock"))]
    return states.count("03")


async def test_the_list_is_quick_while_a_hundred_turns_run(parlour: Parlour, tg: FakeTelegram, model: FakeModel) -> None:
    """Operators' work does not wait for turns, nor turns for it."""
    model.script(lambda asked: says(f"Heard: {asked.words}", delay=0.3))
    for chat in range(100, 200):
        tg.say(chat, "hello")
    await model.wait(100, timeout=20)
    done = await parlour("sessions", "list", "--json")
    assert len(done.json) == 100
    assert (await parlour("status", "--json")).json["health"]["turns"] >= 0
    for chat in range(100, 200):
        await tg.wait_for(lambda chat=chat: tg.visible(chat) == ["Heard: hello"], 30, chat=chat)  # type: ignore[misc]


# ----------------------------------------------------------------------------------------------------------------------- the lock


async def test_a_daemon_that_starts_meanwhile_is_refused(daemon: Daemon, tg: FakeTelegram) -> None:
    """Work on the folder holds the daemon's own lock: one that starts meanwhile says who has it and exits 1, and starts afterwards."""
    await hello(tg, ANA, "one")
    assert await daemon.stop() == 0
    last = session_lines(daemon.data, ANA)[-1]["seq"]
    with (daemon.data / "sessions" / "telegram" / "42" / "main.jsonl").open("a") as file:
        for seq in range(last + 1, last + 2001, 2):
            for more, role in enumerate(("user", "assistant")):
                file.write(json.dumps({"seq": seq + more, "at": "2026-11-29T10:00:00.000Z", "role": role, "content": "x" * 1000}) + "\n")
    parlour = Parlour(daemon)
    # The export stands still while nobody reads it, and keeps the lock.
    exporting = await parlour.begin("sessions", "export", "telegram:42")
    assert exporting.stdout is not None
    first = await exporting.stdout.read(1000)
    assert first.startswith(b'{"type":"session"')
    await daemon.start(ready=False)
    assert await daemon.ended() == 1
    assert f"another daemon works in this folder (process {exporting.pid} holds" in daemon.text()
    second = await parlour("sessions", "list")
    assert (second.code, f"process {exporting.pid}" in second.err) == (1, True)
    assert b"hello" not in await exporting.stdout.read()
    assert await exporting.wait() == 0
    await daemon.start()
    await hello(tg, ANA, "two")


async def test_a_folder_that_is_none(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Where no daemon ever worked nothing is made, and the sentence says where was looked."""
    parlour = Parlour(Daemon(tmp_path, config(tg, model)))
    for args in (("sessions", "list"), ("sessions", "delete", "telegram:42", "--yes"), ("status",)):
        done = await parlour(*args)
        assert done.code == 1
        assert str(tmp_path / "data") in done.out + done.err
    assert not (tmp_path / "data").exists()


# ------------------------------------------------------------------------------------------------------------------------- status


async def test_status(parlour: Parlour, tg: FakeTelegram, model: FakeModel) -> None:
    """Who runs, since when, how the channels and the model are, what waits; the same for people within 80 columns."""
    await hello(tg, ANA, "one")
    status = (await parlour("status", "--json")).json
    assert parlour.daemon.process is not None
    assert (status["running"], status["pid"], status["data_dir"]) == (True, parlour.daemon.process.pid, str(parlour.daemon.data))
    assert status["health"]["channels"]["telegram"]["state"] == "up"
    assert (status["unfinished"], status["cached"]) == (0, 1)
    assert status["memory"] > 10**7
    text = (await parlour("status")).out
    for word in ("Up since", "telegram: up", "Backend", "openai, fine", "0 running", "Memory"):
        assert word in text


async def test_status_without_a_daemon(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Exit 1, and what was left unfinished; nothing in the folder is changed by looking."""
    model.then(Reply([delta("half"), asyncio.Event()]))
    tg.say(ANA, "one")
    await tg.wait_for(lambda: tg.visible(ANA) == ["half"], 10, chat=ANA)
    tg.say(ANA, "two")
    journal = daemon.data / "journal"
    async with asyncio.timeout(10):
        while b'"two"' not in await asyncio.to_thread((journal / "000001.jsonl").read_bytes):
            pass
    await daemon.kill()
    with next(journal.glob("*.jsonl")).open("ab") as file:
        file.write(b'{"torn')
    before = {path: path.read_bytes() for path in daemon.data.rglob("*") if path.is_file()}
    parlour = Parlour(daemon)
    done = await parlour("status", "--json")
    assert (done.code, done.json["running"], done.json["unfinished"], done.json["holder"]) == (1, False, 2, "")
    assert 0 <= done.json["oldest"] < 60
    assert "2 unfinished" in (await parlour("status")).out
    assert {path: path.read_bytes() for path in daemon.data.rglob("*") if path.is_file()} == before
    await daemon.start()
    await tg.wait_for(lambda: tg.visible(ANA)[-1:] == ["Heard: two"], 20, chat=ANA)


# ---------------------------------------------------------------------------------------------------------------- check and doctor


async def test_check_online_disturbs_nobody(parlour: Parlour, tg: FakeTelegram, model: FakeModel) -> None:
    """Beside the running daemon: no second poll, no webhook, no menu; one line for each that was asked."""
    await hello(tg, ANA, "one")
    before = len(tg.calls)
    done = await parlour("check", "--online")
    assert done.code == 0
    assert [line.split(":")[0] for line in done.out.splitlines()] == ["telegram", "backend", str(parlour.daemon.config.name)]
    asked = {call.method for call in tg.calls[before:]}
    assert asked <= {"getMe", "getWebhookInfo", "getUpdates"}
    assert [call for call in tg.calls_of("getUpdates") if call.status == 409] == []
    said = (await parlour("check", "--online", "--json")).json
    assert (said["fine"], [one["name"] for one in said["online"]]) == (True, ["telegram", "backend"])
    await hello(tg, ANA, "two")
    model.models_status = 500
    down = await parlour("check", "--online")
    assert (down.code, "backend: NO" in down.out, "telegram: ok" in down.out) == (1, True, True)


async def test_doctor(either: Parlour, model: FakeModel) -> None:
    """With a daemon and without: nothing wrong is exit 0, what is wrong is exit 1 and a line with its remedy; no words of people."""
    done = await either("doctor", "--json")
    assert (done.code, [one for one in done.json["findings"] if one["level"] == "wrong"]) == (0, [])
    areas = {one["area"] for one in done.json["findings"]}
    assert {"python", "config", "secrets", "data", "disk", "daemon", "unit", "files", "telegram", "backend", "clock"} <= areas
    assert "Heard" not in done.out
    model.models_status = 401
    (either.daemon.data / "sessions" / "telegram" / "42").chmod(0o755)
    (either.daemon.data / "journal" / "000001.torn").write_bytes(b"half a line\n")
    done = await either("doctor")
    assert done.code == 1
    wrong = [line for line in done.out.splitlines() if line.startswith("WRONG")]
    assert [line.split()[1] for line in wrong] == ["data", "backend"]
    assert "chmod -R go=" in wrong[0]
    assert any("1 .torn file with 1 piece of lines" in line for line in done.out.splitlines())
    assert done.out.splitlines()[-1] == "2 things to mend"


async def test_doctor_says_what_the_daemon_does_not_know_yet(parlour: Parlour) -> None:
    """A config that was edited: what a reload takes over and what needs a restart, by key; after the reload only the latter, which `status`
    has, too. Back as it was, nothing is told."""
    daemon = parlour.daemon
    text = daemon.config.read_text()

    async def wrong() -> list[str]:
        done = await parlour("doctor", "--offline", "--json")
        return [f"{one['text']}: {one['remedy']}" for one in done.json["findings"] if one["level"] == "wrong"]

    assert await wrong() == []
    changed = text.replace("[sessions]", "[sessions]\nwaiting = 7").replace("[backend]", "[backend]\nmax_concurrent_turns = 3")
    daemon.config.write_text(f"{changed}\n[channels.console]\n")
    assert await wrong() == [
        "the daemon does not run with backend.max_concurrent_turns, channels.console as the file has it: restart it",
        "the daemon has not taken over sessions.waiting yet: reload it (systemctl reload parlour)",
    ]
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    await until(lambda: "config taken over" in daemon.text(), 20)
    assert await wrong() == ["the daemon does not run with backend.max_concurrent_turns, channels.console as the file has it: restart it"]
    assert "needed for backend.max_concurrent_turns, channels.console" in (await parlour("status")).out
    daemon.config.write_text(changed.replace("\nmax_concurrent_turns = 3", ""))
    assert await wrong() == []


async def test_the_disk_is_told_once_and_as_it_is_now(parlour: Parlour) -> None:
    """`doctor` and `status` look at the moment at which they are asked, and say the same."""
    way = parlour.daemon.data / ".probe"  # what is written to try the disk
    for problem in ("Is a directory", ""):
        if problem:
            way.mkdir(mode=0o700)
        else:
            way.rmdir()
        found = [one for one in (await parlour("doctor", "--offline", "--json")).json["findings"] if one["area"] == "disk"]
        assert [one["level"] for one in found] == ["wrong" if problem else "ok"]
        assert problem in found[0]["text"]
        disk = (await parlour("status", "--json")).json["health"]["disk"]
        assert disk == (f"cannot be written to: {problem}" if problem else "")


async def test_doctor_on_a_daemon_that_hangs(parlour: Parlour) -> None:
    """One that holds the folder and does not answer is named."""
    (parlour.daemon.data / "control.sock").unlink()
    done = await parlour("doctor", "--json", "--offline")
    assert done.code == 1
    assert parlour.daemon.process is not None
    (wrong,) = [one for one in done.json["findings"] if one["level"] == "wrong"]
    assert f"process {parlour.daemon.process.pid} holds the folder" in wrong["text"]
    listed = await parlour("sessions", "list")
    assert (listed.code, f"process {parlour.daemon.process.pid}" in listed.err) == (1, True)


# ------------------------------------------------------------------------------------------------------------- names and terminals


async def on_a_terminal(parlour: Parlour, *args: str) -> list[str]:
    """The lines that it writes there."""
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *args),
        cwd=parlour.daemon.folder,
        env={**parlour.daemon.env, "COLUMNS": "200"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=theirs,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(theirs)
    told = b""
    try:
        while data := await asyncio.to_thread(os.read, ours, 65536):
            told += data
    except OSError:
        pass  # Linux says so when the other end is closed
    os.close(ours)
    assert (await process.communicate())[1] == b""
    return told.decode().split("\r\n")


async def test_texts_for_people(parlour: Parlour, tg: FakeTelegram) -> None:
    """On a terminal no line is longer than 80 columns, whatever people wrote; and control characters in titles, names and texts are shown
    as what they are, on a terminal or not."""
    await hello(tg, ANA, f"{'long ' * 60}{'x' * 200}")
    tg.say(ANA, f"/fork {'name-' * 30}")
    await tg.wait_for(lambda: len(tg.visible(ANA)) == 2, 10, chat=ANA)
    await hello(tg, BO, "one")
    tg.say(BO, "/fork \x1b[2J\u202eevil\x9b31m")
    await tg.wait_for(lambda: len(tg.visible(BO)) == 2, 10, chat=BO)
    tg.say(BO, "say \x1b]0;owned\x07 \u202e")
    await tg.wait_for(lambda: len(tg.visible(BO)) == 3, 10, chat=BO)
    commands = [("sessions", "list"), ("sessions", "show", "telegram:42"), ("status",), ("doctor", "--offline"), ("check",)]
    for args in commands:
        lines = await on_a_terminal(parlour, *args)
        assert len(lines) > 1
        assert [line for line in lines if len(line) > 80] == []
    for args in (("sessions", "list"), ("sessions", "show", "telegram:43"), ("sessions", "export", "telegram:43", "--format", "md")):
        assert all(line.isprintable() for line in await on_a_terminal(parlour, *args))
    for args in (("sessions", "list"), ("sessions", "show", "telegram:43")):
        assert all(line.isprintable() for line in (await parlour(*args)).out.split("\n"))
