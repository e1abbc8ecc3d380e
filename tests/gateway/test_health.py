"""How the backend is: what turns met, and what a look at it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from structlog.testing import capture_logs

from gateway.backends.base import Part
from gateway.errors import BackendError
from gateway.health import AGAIN, Watch
from gateway.message import Request
from gateway.turn import Outcome

pytestmark = pytest.mark.looptime


KEY = "The model's server does not accept our key."


class Server:
    """A backend that can be reached, or not."""

    name = "server"
    up = True
    looks = 0
    says = "It cannot be reached."

    async def check(self) -> None:
        self.looks += 1
        if not self.up:
            raise BackendError(self.says, retryable=True)

    def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        raise NotImplementedError

    async def close(self) -> None:
        return None


async def _watched(server: Server) -> tuple[Watch, asyncio.Task[None]]:
    watch = Watch(server)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(1)
    return watch, task


async def test_it_comes_back_by_itself() -> None:
    """A server that was away is asked every half minute, and counts as up when it is there."""
    server = Server()
    server.up = False
    watch, task = await _watched(server)
    seen = [watch.ready]
    server.up = True
    await asyncio.sleep(AGAIN)
    assert [*seen, watch.ready] == [False, True]
    task.cancel()


async def test_a_failure_that_passes_is_over_when_the_server_is_reached() -> None:
    """A turn that failed for a passing reason makes it down until the next look."""
    watch, task = await _watched(Server())
    watch.heard(Outcome(failed="The server is busy."))
    seen = [watch.ready]
    await asyncio.sleep(AGAIN)
    assert [*seen, watch.ready] == [False, True]
    task.cancel()


async def test_what_does_not_pass_by_itself_stays_until_a_turn_or_a_change_mends_it() -> None:
    """A wrong key or model is not mended by a server that can be reached: only by an answer, or by a new config."""
    for mend in ("answer", "config"):
        watch, task = await _watched(Server())
        watch.heard(Outcome(failed="The model does not exist.", lasting=True))
        await asyncio.sleep(3 * AGAIN)
        seen = [watch.ready]
        if mend == "answer":
            watch.heard(Outcome(text="here I am"))
        else:
            watch.again("", "")
            await asyncio.sleep(0.1)
        assert [*seen, watch.ready] == [False, True]
        task.cancel()


async def test_the_operator_is_told_where_it_is_and_what_to_do() -> None:
    """One line of the log has the address and, for a key that is refused, by which name the operator knows the key; people are told
    neither. A server that came back is one line, too, and a new config brings its own names."""
    server = Server()
    server.up, server.says = False, KEY
    watch = Watch(server, address="http://model:1/v1", key="PARLOUR_BACKEND_API_KEY")
    with capture_logs() as logs:
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(3 * AGAIN)
        assert watch.told() == watch.problem == f"server at http://model:1/v1: {KEY}"
        assert watch.said() == f"server, {KEY}"
        watch.again("http://model:2/v1", "api_key in [backend]")
        assert (watch.problem, watch.remedy) == (f"server at http://model:2/v1: {KEY}", "change the key: api_key in [backend]")
        server.up = True
        watch.again("http://model:2/v1", "api_key in [backend]")
        await asyncio.sleep(0.1)
    assert (watch.told(), watch.problem, watch.remedy) == ("server, fine", "", "")
    assert logs == [
        {
            "event": "backend down",
            "log_level": "warning",
            "backend": "server",
            "address": "http://model:1/v1",
            "problem": KEY,
            "remedy": "change the key: PARLOUR_BACKEND_API_KEY",
        },
        {"event": "backend up", "log_level": "info", "backend": "server", "address": "http://model:2/v1"},
    ]
    task.cancel()
