"""How a daemon says that it is: /readyz, /metrics and the status line, from a whole one in this process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.app import Daemon
from gateway.metrics import CHANNEL_UP, GAUGES
from gateway.options import Backend
from gateway.overview import GRACE
from gateway.supervisor import Supervisor
from tests.fakes.openai import End, FakeModel, Reply, delta, nobody, refuses
from tests.gateway.core import until
from tests.gateway.outbox_net import Net
from tests.gateway.test_app import config, said


@asynccontextmanager
async def living(folder: Path, **changes: object) -> AsyncIterator[Daemon]:
    daemon = Daemon(msgspec.structs.replace(config(folder), **changes))
    await daemon.start()
    serving = asyncio.create_task(daemon.serve())
    await asyncio.sleep(0)
    try:
        yield daemon
    finally:
        daemon.end()
        await serving
        await daemon.stop()


async def get(daemon: Daemon, path: str, accept: str = "") -> tuple[int, str, str]:
    headers = {"Authorization": f"Bearer {daemon.web_token}", "Accept": accept}
    async with aiohttp.ClientSession() as http, http.get(f"{daemon._page}{path}", headers=headers) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Name and label values -> value."""
    families = text_string_to_metric_families(text)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


async def test_metrics_tell_what_happened(tmp_path: Path) -> None:
    """After three inputs, one of them twice, and a command: each is counted where it belongs, and nothing is where it does not."""
    async with living(tmp_path) as daemon:
        await daemon.router.accept([said("one", 1), said("two", 2), said("one", 1), said("/help", 3)])
        await until(lambda: not daemon.inbox.unfinished())
        await daemon.disk.look()
        status, kind, text = await get(daemon, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        found = samples(text)
        assert found["parlour_inputs_total", "web", "accepted"] == 3
        assert found["parlour_inputs_total", "web", "duplicate"] == 1
        assert found["parlour_inputs_total", "web", "refused"] == 0
        assert found["parlour_turns_total", "answered"] == 2
        assert found[("parlour_turn_seconds_count",)] == found[("parlour_turn_first_token_seconds_count",)] == 2
        assert found["parlour_model_tokens_total", "input"] > 0
        assert found["parlour_model_tokens_total", "output"] > 0
        assert found["parlour_calls_total", "send", "web", "ok"] >= 3
        assert found["parlour_channel_up", "web"] == found["parlour_backend_up", "echo"] == 1
        assert found[("parlour_sessions_cached",)] == 1
        assert found[("parlour_journal_segments",)] == 1
        assert found[("parlour_disk_writable",)] == 1
        assert found[("process_resident_memory_bytes",)] > 10**7
        assert found[("parlour_inputs_unfinished",)] == found[("parlour_turns_running",)] == 0
        assert {family.name for family in text_string_to_metric_families(text)} >= {gauge.name.removesuffix("_total") for gauge in GAUGES}
        _, kind, text = await get(daemon, "/metrics", "application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")


async def test_metrics_need_the_token(tmp_path: Path) -> None:
    """As /readyz does."""
    async with living(tmp_path) as daemon, aiohttp.ClientSession() as http:
        for headers in ({}, {"Authorization": "Bearer x"}):
            async with http.get(f"{daemon._page}/metrics", headers=headers) as answer:
                assert answer.status == 401
                assert "parlour_" not in await answer.text()


async def test_outcomes_and_refusals_are_told_apart(tmp_path: Path) -> None:
    """A model that is gone, one that breaks off, one that is stopped: failed, cut, stopped; what waits too long is refused."""
    async with FakeModel() as model:
        backend = Backend(kind="openai", base_url=model.base_url, model="fake", max_concurrent_turns=1)
        async with living(tmp_path, backend=backend) as daemon:
            model.then(refuses(401, "no"))
            await daemon.router.accept([said("a", 1)])
            await until(lambda: not daemon.inbox.unfinished(), 20)
            model.then(Reply([delta("so far"), End.RST]))
            await daemon.router.accept([said("b", 2)])
            await until(lambda: not daemon.inbox.unfinished(), 20)
            model.then(Reply([delta("on and on"), End.HANG]))
            await daemon.router.accept([said("c", 3)])
            await until(lambda: (turn := daemon.runners.running("web:c1")) and turn.asking)
            await until(lambda: len(model.asked) >= 3)
            readings = {reading.gauge.name: reading.value for reading in daemon.overview.readings()}
            assert readings["parlour_turns_running"] == 1
            assert daemon.overview.health().turns == 1
            await daemon.router.accept([said("waits", 4)])
            await until(lambda: daemon.overview.health().oldest_waiting is not None)
            assert daemon.overview.health().waiting == 1
            await daemon.router.accept([said("/stop", 5)])
            await until(lambda: not daemon.inbox.unfinished(), 20)
            turns = {labels[0]: count for labels, count in daemon.metrics.turns.values.items()}
            assert turns == {"failed": 1, "cut": 1, "stopped": 1, "answered": 1}


async def test_not_ready_is_said_with_its_reason(tmp_path: Path) -> None:
    """A model that is down, a disk that is full, a channel that is away: 503 each, and the report names it. Then ready again."""
    async with nobody() as url:
        backend = Backend(kind="openai", base_url=url, model="fake")
        async with living(tmp_path / "a", backend=backend) as daemon:
            await until(lambda: "not asked yet" not in daemon.watch.said())
            status, _, text = await get(daemon, "/readyz")
            assert (status, "openai" in text) == (503, True)
            assert "fine" not in daemon.overview.line()
    async with living(tmp_path / "b") as daemon:
        await until(lambda: daemon.watch.ready and daemon.disk.disk.free)
        assert (await get(daemon, "/readyz"))[0] == 200
        (tmp_path / "b" / "data" / ".probe").mkdir()  # in the way of what is written to try it
        status, _, text = await get(daemon, "/readyz")
        assert status == 503
        assert '"disk":"cannot be written to: Is a directory"' in text
        assert "disk: cannot be written to" in daemon.overview.line()
        (tmp_path / "b" / "data" / ".probe").rmdir()
        daemon.supervisors[0].state = "down"
        assert (await get(daemon, "/readyz"))[0] == 503
        daemon.supervisors[0].state = "up"
        assert (await get(daemon, "/readyz"))[0] == 200
        assert daemon.overview.line() == "web up; echo, fine; 0 turns, 0 unsent"


class Away(Net):
    """A channel that goes on by itself while its network is away."""

    words, heard = "", 0.0

    def trouble(self) -> str:
        return self.words

    def last_sign_of_life(self) -> float:
        return self.heard


@pytest.mark.parametrize(("silence", "state"), [(1.0, "up"), (GRACE + 1, "down"), (None, "down")])
async def test_a_network_that_stays_away_makes_its_channel_down(tmp_path: Path, silence: float | None, state: str) -> None:
    """The trouble is told at once; the channel counts as down when it lasts, or if nothing was ever heard."""
    channel = Away()
    channel.heard = time.monotonic() - silence if silence is not None else 0.0
    async with living(tmp_path) as daemon:
        supervisor = Supervisor(channel, daemon.router.accept, [])
        supervisor.state = "up"
        daemon.supervisors.append(supervisor)
        assert daemon.overview.health().channels["net"].state == "up"
        channel.words = "the connection broke"
        health = daemon.overview.health().channels["net"]
        assert (health.state, health.problem) == (state, "the connection broke")
        assert f"net {state} (the connection broke)" in daemon.overview.line()
        shown = [reading.value for reading in daemon.overview.readings() if reading[0] == CHANNEL_UP and reading.labels == ("net",)]
        assert shown == [state == "up"]
        daemon.supervisors.remove(supervisor)


async def test_a_channel_that_is_not_run_any_more_is_stuck(tmp_path: Path) -> None:
    """Its task was cancelled by whoever: nothing will start it again, so the watchdog has to."""
    async with living(tmp_path) as daemon:
        assert daemon.overview.stuck() == ""
        daemon._reading[0].cancel()
        await until(daemon.overview.stuck)
        assert daemon.overview.stuck() == "web is not run any more"


async def test_damage_is_counted(tmp_path: Path) -> None:
    """A torn tail and a bad line in each kind of file that we write: four and four."""
    async with living(tmp_path) as daemon:
        await daemon.router.accept([said("one", 1), said("/fork west", 2)])
        await until(lambda: not daemon.inbox.unfinished())
    data = tmp_path / "data"
    (folder,) = (data / "sessions" / "web").iterdir()
    (data / "access.jsonl").touch(mode=0o600)
    for path in (data / "journal" / "000001.jsonl", folder / "west.jsonl", folder / "_chat.jsonl", data / "access.jsonl"):
        path.write_bytes(path.read_bytes() + b'not json\n{"torn":')
    async with living(tmp_path) as daemon:
        await daemon.router.accept([said("two", 3)])
        await until(lambda: not daemon.inbox.unfinished())
        assert daemon.metrics.damage.values == {("torn",): 4, ("bad",): 4}


def test_what_is_not_served_is_not_imported() -> None:
    """The library for metrics comes with the HTTP server, and not without it."""
    code = "import sys, gateway.app, gateway.overview; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


async def test_a_daemon_without_http_imports_nothing_of_it(tmp_path: Path) -> None:
    """A whole start without a server."""
    code = (
        "import asyncio, sys; from pathlib import Path; from gateway.app import Daemon, channel_types; from gateway.config import Config;"
        "from gateway.options import Backend, Http\n"
        "async def life():\n"
        f"    daemon = Daemon(Config(path='', data_dir=Path({str(tmp_path)!r}), http=Http(listen=''), backend=Backend(kind='echo'),"
        " channels={'console': channel_types()['console']()}, tokens={}))\n"
        "    await daemon.start()\n"
        "    await daemon.stop()\n"
        "    sys.exit('prometheus_client' in sys.modules or 'gateway.httpd.server' in sys.modules)\n"
        "asyncio.run(life())"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=-1)
    out, err = await process.communicate()
    assert process.returncode == 0, (out + err).decode()[-2000:]
