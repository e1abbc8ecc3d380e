"""What an operator meets: faults at start and later, one line each, and nothing that others on the machine could read."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from gateway.router import WELCOME
from tests.fakes.openai import FakeModel, nobody
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, REPO, TOKEN, Daemon, free_port
from tests.flow.people import config
from tests.gateway.core import until

ANA = 42


async def refused(daemon: Daemon, code: int) -> str:
    """Start a daemon that must not start; gives its last line."""
    await daemon.start(ready=False)
    assert await daemon.ended() == code
    lines = daemon.text().strip().splitlines()
    assert "Traceback" not in daemon.text()
    return lines[-1] if lines else ""


async def parlour(daemon: Daemon, *args: str) -> tuple[int, str]:
    """Run the command line beside the daemon."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", *args, cwd=daemon.folder, env=daemon.env, stdout=-1, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def test_a_wrong_token_is_one_line_and_exit_78(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """The unit does not restart on 78, the network is asked once, and the line says which secret it is."""
    daemon = Daemon(tmp_path, config(tg, model), env={"PARLOUR_TELEGRAM_TOKEN": "8:WRONG-wrong-WRONG-wrong-WRONG-wrongwr"})
    said = await refused(daemon, 78)
    assert "channels.telegram: Telegram does not accept the bot token (it is PARLOUR_TELEGRAM_TOKEN)" in said
    assert len(tg.calls_of("getMe")) <= 2


async def test_a_broken_config_is_one_line_a_fault_and_exit_78(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """File, line and key of each, all at once; nothing is contacted."""
    daemon = Daemon(tmp_path, config(tg, model, access='direkt = "open"\nturns_per_day = "many"', more="[channels.telegran]"))
    await refused(daemon, 78)
    said = daemon.text()
    for key in ("direkt", "turns_per_day", "telegran"):
        assert re.search(rf"config\.toml:\d+: .*{key}", said), said
    assert tg.calls == []


async def test_a_missing_config_says_what_to_do(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """No config: exit 78, and the way to the demonstration."""
    daemon = Daemon(tmp_path, config(tg, model))
    daemon.config.unlink()
    assert "./dev run" in await refused(daemon, 78)


async def test_a_second_daemon_harms_nothing(daemon: Daemon, tg: FakeTelegram, model: FakeModel, tmp_path: Path) -> None:
    """It says who holds the folder and exits 1; the first goes on (D24)."""
    code, said = await parlour(daemon, "run", "--config", str(daemon.config))
    assert code == 1
    assert daemon.process is not None
    assert str(daemon.process.pid) in said
    tg.say(ANA, "hello")
    await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: hello"], 10, chat=ANA)


@pytest.mark.parametrize("left", [b"", b"garbage\0\xff", b"1\n", b"%d\n" % os.getpid()], ids=["empty", "garbage", "init", "ours"])
async def test_a_lock_file_that_was_left_stops_nobody(tmp_path: Path, tg: FakeTelegram, model: FakeModel, left: bytes) -> None:
    """Only the kernel's lock counts, not what a file says (D25)."""
    daemon = Daemon(tmp_path, config(tg, model))
    daemon.data.mkdir(mode=0o700)
    (daemon.data / "lock").write_bytes(left)
    async with daemon:
        tg.say(ANA, "hello")
        await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: hello"], 10, chat=ANA)


async def test_a_port_that_is_taken_is_one_line_and_exit_1(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """The line names the address."""
    daemon = Daemon(tmp_path, config(tg, model).replace('listen = ""', f'listen = "127.0.0.1:{tg.port}"'))
    assert f"127.0.0.1:{tg.port}" in await refused(daemon, 1)


async def test_a_data_folder_that_cannot_be_used_is_one_line_and_exit_1(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """The line names the folder."""
    daemon = Daemon(tmp_path, config(tg, model))
    daemon.data.write_text("a file is in the way")
    assert str(daemon.data) in await refused(daemon, 1)


async def test_a_token_that_is_refused_later_stops_that_channel_only(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """The daemon goes on; the log and /readyz say what stopped."""
    port = free_port()
    text = config(tg, model, more="[channels.web]").replace('listen = ""', f'listen = "127.0.0.1:{port}"')
    async with Daemon(tmp_path, text) as daemon, aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {daemon.env['PARLOUR_WEB_TOKEN']}"}

        async def readyz() -> tuple[int, dict[str, dict[str, dict[str, str]]]]:
            async with http.get(f"http://127.0.0.1:{port}/readyz", headers=headers) as response:
                return response.status, await response.json()

        assert (await readyz())[0] == 200
        tg.token = "9:another"
        tg.say(ANA, "wake the poll")

        async with asyncio.timeout(15):
            while (await readyz())[1]["channels"]["telegram"]["state"] != "stopped":
                pass  # each look is a request
        status, body = await readyz()
        assert status == 503
        assert body["channels"]["web"]["state"] == "up"
        assert "channel stopped" in daemon.text()
        async with http.get(f"http://127.0.0.1:{port}/healthz") as response:
            assert response.status == 200


async def test_a_model_that_is_down_is_told_and_comes_back(tmp_path: Path, tg: FakeTelegram) -> None:
    """The daemon starts without it, says so in the chat, and answers when it is there, without a restart."""
    async with nobody() as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        offline = FakeModel(api_key=KEY, port=port)
        offline.base_url = url
        text = config(tg, offline)
        daemon = Daemon(tmp_path, text)
        await daemon.start()
    try:
        tg.say(ANA, "anybody?")
        await tg.wait_for(lambda: len(tg.visible(ANA)) == 1 and "model" in tg.visible(ANA)[0].lower(), 20, chat=ANA)
        assert "Traceback" not in daemon.text()
        async with offline:
            tg.say(ANA, "and now?")
            await tg.wait_for(lambda: "and now?" in tg.visible(ANA)[-1], 10, chat=ANA)
        assert await daemon.stop() == 0
    finally:
        if daemon.process is not None and daemon.process.returncode is None:
            await daemon.kill()


async def test_what_is_wrong_with_the_backend_is_named(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """A refused key, then a server that is not there: the log, `status` and `doctor` have the address and what to change; no key is shown,
    and the person in the chat is told none of it."""
    wrong_key = "sk-WRONG-9876543210"
    async with Daemon(tmp_path, config(tg, model), env={"PARLOUR_BACKEND_API_KEY": wrong_key}) as daemon, AsyncExitStack() as server:
        server.push_async_exit(model)

        async def told(problem: str, remedy: str) -> None:
            await until(lambda: problem in daemon.text(), 20)
            line = next(line for line in reversed(daemon.text().splitlines()) if problem in line)
            _, status = await parlour(daemon, "status", "--json")
            code, doctor = await parlour(daemon, "doctor", "--offline", "--json")
            assert code == 1
            (found,) = [one["text"] + one["remedy"] for one in json.loads(doctor)["findings"] if one["level"] == "wrong"]
            for text in (line, status, found):
                assert model.base_url in text
                assert problem in text
                assert remedy in text
                assert wrong_key not in text

        await told("does not accept our key", "PARLOUR_BACKEND_API_KEY")
        tg.say(ANA, "anybody?")
        await tg.wait_for(lambda: "key" in "".join(tg.visible(ANA)), 20, chat=ANA)
        await server.aclose()
        tg.say(ANA, "and now?")
        await tg.wait_for(lambda: "reached" in tg.visible(ANA)[-1], 20, chat=ANA)
        await told("cannot be reached", "start the model's server")
        assert "127.0.0.1" not in "".join(tg.visible(ANA))


async def test_a_stranger_is_let_in_by_the_operator_and_shut_out_again(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Pairing, from the first message to the first answer, with `parlour pair` while the daemon runs; and by an admin's /approve."""
    async with Daemon(tmp_path, config(tg, model, access='admins = ["telegram:1"]')) as daemon:
        tg.say(ANA, "let me in")
        said = await tg.wait_for(lambda: "".join(tg.visible(ANA)), 10, chat=ANA)
        code = re.search(r"\b[A-Z0-9]{8}\b", said)
        assert code is not None
        assert f"telegram:{ANA}" in said
        tg.say(ANA, "/status")
        tg.say(ANA, "hello?")
        exit_code, listed = await parlour(daemon, "pair", "list", "--config", str(daemon.config))
        assert exit_code == 0
        assert code[0] in listed
        exit_code, _ = await parlour(daemon, "pair", "approve", code[0], "--config", str(daemon.config))
        assert exit_code == 0
        tg.say(ANA, "hello")
        await tg.wait_for(lambda: tg.visible(ANA) == [said, WELCOME, "Heard: hello"], 10, chat=ANA)
        exit_code, _ = await parlour(daemon, "pair", "revoke", f"telegram:{ANA}", "--config", str(daemon.config))
        assert exit_code == 0
        tg.say(ANA, "still there?")
        tg.say(43, "me too")
        said = await tg.wait_for(lambda: "".join(tg.visible(43)), 10, chat=43)
        second = re.search(r"\b[A-Z0-9]{8}\b", said)
        assert second is not None
        tg.say(1, f"/approve {second[0]}")
        await tg.wait_for(lambda: "telegram:43" in "".join(tg.visible(1)), 10, chat=1)
        tg.say(43, "hello")
        await tg.wait_for(lambda: tg.visible(43)[-1:] == ["Heard: hello"], 10, chat=43)
        assert "Heard: still there?" not in tg.visible(ANA)
        assert len(model.asked) == 2


async def test_a_daily_quota_is_kept_over_a_restart(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """The turns of a person are counted from the journal; commands do not count."""
    async with Daemon(tmp_path, config(tg, model, access='direct = "open"\nturns_per_day = 2')) as daemon:
        tg.say(ANA, "one")
        tg.say(ANA, "/status")
        await tg.wait_for(lambda: "Heard: one" in tg.visible(ANA) and len(tg.visible(ANA)) == 2, 10, chat=ANA)
        await daemon.kill()
        await daemon.start()
        tg.say(ANA, "two")
        tg.say(ANA, "three")
        await tg.wait_for(lambda: any("today's 2" in text for text in tg.visible(ANA)), 10, chat=ANA)
        await tg.wait_for(lambda: "Heard: two" in tg.visible(ANA), 10, chat=ANA)
        assert [asked.words for asked in model.asked] == ["one", "two"]


@pytest.mark.parametrize("umask", [0o022, 0o000])
async def test_nothing_in_the_data_folder_is_open_to_others(tmp_path: Path, tg: FakeTelegram, model: FakeModel, umask: int) -> None:
    """Files 0600, folders 0700, whatever the umask, also what was there before with wider rights (F12)."""
    old = os.umask(umask)
    try:
        daemon = Daemon(tmp_path, config(tg, model))
        (daemon.data / "sessions").mkdir(parents=True)
        (daemon.data / "access.jsonl").write_text("")
        await daemon.start()
    finally:
        os.umask(old)
    open_ones: set[str] = set()

    def look() -> bool:
        for path in [daemon.data, *daemon.data.rglob("*")]:
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue
            if stat.S_IMODE(mode) & 0o077 and not stat.S_ISLNK(mode):
                open_ones.add(f"{path} {oct(mode)}")
        return False

    async with asyncio.timeout(30):
        for text in ("one", "/fork west", "two", "/reset", "three", "/switch west", "/forget main yes"):
            before = len(tg.visible(ANA))
            tg.say(ANA, text)
            await tg.wait_for(lambda before=before: look() or len(tg.visible(ANA)) > before, 10, chat=ANA)  # type: ignore[misc]
    look()
    assert await daemon.stop() == 0
    assert open_ones == set()


@pytest.mark.parametrize("level", ["info", "debug"])
async def test_no_secret_and_nobodys_words_in_the_log(tmp_path: Path, tg: FakeTelegram, model: FakeModel, level: str) -> None:
    """Through refusals, errors and restarts, at every level: no half of a token, no key; at info no word of a chat (F01, F02)."""
    text = config(tg, model).replace('level = "info"', f'level = "{level}"')
    async with Daemon(tmp_path, text) as daemon:
        tg.fail("sendMessage", 500, b"<html>oops</html>")
        tg.drop("getUpdates", times=2)
        tg.drop("editMessageText", times=1)
        tg.say(ANA, "heronwords one")
        await tg.wait_for(lambda: "Heard: heronwords one" in tg.visible(ANA), 20, chat=ANA)
        await tg.stop()
        tg.say(ANA, "heronwords two")
        await daemon.kill()
        await daemon.start(ready=False)
        await tg.start()
        await tg.wait_for(lambda: "Heard: heronwords two" in tg.visible(ANA), 40, chat=ANA)
        assert await daemon.stop() == 0
    everything = daemon.log.read_bytes() + b"".join(p.read_bytes() for p in daemon.data.rglob("*") if p.is_file())
    for secret in (TOKEN, TOKEN.partition(":")[2], KEY):
        assert secret.encode() not in everything
    if level == "info":
        assert b"heronwords" not in daemon.log.read_bytes()


async def test_the_daemon_refuses_a_foreign_package_of_the_same_name(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """`channels` is Django Channels' name, too: one line instead of a failure in the middle."""
    foreign = tmp_path / "site" / "channels"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("")
    daemon = Daemon(tmp_path, config(tg, model), env={"PYTHONPATH": f"{foreign.parent}:{REPO}"})
    assert "channels" in await refused(daemon, 1)


async def test_what_channels_keep_is_closed_to_others_again(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """After a restore with wide rights a start takes them back, from what channels keep, too, and touches nothing foreign (F12)."""
    daemon = Daemon(tmp_path, config(tg, model))
    kept = daemon.data / "telegram" / "deep"
    kept.mkdir(parents=True)
    (kept / "state").write_text("")
    for path in (daemon.data, kept.parent, kept, kept / "state"):
        path.chmod(0o755)
    foreign = daemon.data / "tool"
    foreign.write_text("")
    foreign.chmod(0o755)
    async with daemon:
        open_ones = [path for path in (daemon.data, *daemon.data.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077]
        assert open_ones == [foreign]


async def test_a_turn_that_fails_inside_is_logged_at_once_and_told(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """A folder where a session's file should be: the person hears of it, the log has the chat and the fault, and others go on (F08)."""
    tg.say(ANA, "one")
    await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: one"], 10, chat=ANA)
    path = daemon.data / "sessions" / "telegram" / str(ANA) / "main.jsonl"
    await tg.wait_for(lambda: '"type":"sent"' in path.read_text(), 10)
    path.rename(path.with_name("away"))
    path.mkdir()
    tg.say(ANA, "hello")
    await tg.wait_for(lambda: len(tg.visible(ANA)) == 2 and "…" not in tg.visible(ANA), 10, chat=ANA)
    told = [line for line in daemon.text().splitlines() if '"level":"error"' in line and f"telegram:{ANA}" in line]
    assert told
    assert "main.jsonl" in told[0]
    tg.say(43, "hello")
    await tg.wait_for(lambda: tg.visible(43) == ["Heard: hello"], 10, chat=43)
    assert "never retrieved" not in daemon.text()


async def test_no_task_is_lost_to_the_garbage_collector(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Five hundred messages of a hundred people while the collector runs all the time: each is answered (F09)."""
    (tmp_path / "sitecustomize.py").write_text("import gc\ngc.set_threshold(50, 2, 2)\n")
    model.delay = 0.01
    async with Daemon(tmp_path, config(tg, model), env={"PYTHONPATH": f"{tmp_path}:{REPO}"}) as daemon:
        for n in range(500):
            tg.say(1 + n % 100, f"m{n // 100}")
        answers = [f"Heard: m{n}" for n in range(5)]
        await tg.wait_for(lambda: all(tg.visible(chat) == answers for chat in range(1, 101)), 50)
        assert await daemon.stop() == 0
        assert "destroyed" not in daemon.text()
