"""What a person hears when not even the journal can be written."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from channels.base import Inbound, NotSent, Retry, Unknown
from gateway.options import Access as Rules
from gateway.unstored import AGAIN, MOST, NOT_YET, Unstored
from gateway.writer import Writer
from tests.gateway.core import Core, until


class FullDisk(Writer):
    """Takes nothing while it is full."""

    full = False

    def _write_batch(self, groups: Sequence[object]) -> list[int | OSError]:
        if self.full:
            return [OSError(errno.ENOSPC, "No space left on device") for _ in groups]
        return super()._write_batch(groups)  # type: ignore[arg-type]


class House:
    """The core with what stands before its door."""

    def __init__(self, core: Core, networks: Sequence[str] = ("net",)) -> None:
        self.core, self.now = core, 1000.0
        self.door = Unstored(
            core.router.accept,
            dict.fromkeys(networks, core.net),
            access=core.access,
            inbox=core.inbox,
            clock=lambda: self.now,
        )

    def disk(self, *, full: bool) -> None:
        assert isinstance(self.core.writer, FullDisk)
        self.core.writer.full = full

    async def refused(self, *batch: Inbound) -> None:
        with pytest.raises(OSError, match="No space"):
            await self.door.accept(batch)


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    async with Core(tmp_path, writer=FullDisk) as core:
        yield core


async def test_once_a_chat(core: Core) -> None:
    """However often the network brings it, each chat hears one sentence; with room the message itself is answered, behind it."""
    house = House(core)
    house.disk(full=True)
    first, other = core.inbound("one", chat="1"), core.inbound("hello", chat="2")
    for _ in range(5):
        await house.refused(first, other)
        await house.refused(core.inbound("two", chat="1"))
    await until(lambda: core.seen("1") == core.seen("2") == [NOT_YET])
    house.disk(full=False)
    await house.door.accept([first, other])
    await core.quiet()
    await until(lambda: core.seen("1") == [NOT_YET, "Heard: one"] and core.seen("2") == [NOT_YET, "Heard: hello"])


async def test_a_disk_that_is_full_again_and_again(core: Core) -> None:
    """A chat does not hear it twice within ten minutes, and does in the next outage after that."""
    house = House(core)
    message = core.inbound("one")
    for passed, count in ((0.0, 1), (AGAIN / 2, 1), (AGAIN, 2)):
        house.now = 1000.0 + passed
        await house.door.accept([core.inbound("fits")])
        await core.quiet()
        house.disk(full=True)
        await house.refused(message, core.inbound("hello", chat=str(passed)))  # who hears it last
        await until(lambda passed=passed: core.seen(str(passed)) == [NOT_YET])  # type: ignore[misc]
        assert core.seen().count(NOT_YET) == count
        house.disk(full=False)


async def test_who_does_not_hear_it(tmp_path: Path) -> None:
    """Strangers, groups that are not let in, edits; and nobody on a channel that tells by itself."""
    async with Core(tmp_path, writer=FullDisk, rules=Rules(direct="pairing", groups="allowlist", allow=("net:1",))) as core:
        house = House(core)
        house.disk(full=True)
        await house.refused(
            core.inbound("hello", chat="5", who="5"),
            core.inbound("hi", chat="-7", direct=False),
            core.inbound("wait", chat="1", edit=True),
            core.inbound("hello", chat="1", who="1"),
        )
        await until(lambda: core.seen("1") == [NOT_YET])
        assert [core.seen(chat) for chat in ("5", "-7")] == [[], []]
        await House(core, networks=()).refused(core.inbound("hello", chat="1"))
        assert len(core.net.calls) == 1


async def test_a_crowd(core: Core) -> None:
    """What is remembered of an outage is bounded: above that number of chats nothing is said."""
    house = House(core)
    house.disk(full=True)
    await house.refused(*(core.inbound("hello", chat=str(n)) for n in range(MOST + 50)))
    await until(lambda: core.seen(str(MOST - 1)), 20)
    assert len(core.net.calls) == MOST


async def test_a_network_that_is_away(core: Core) -> None:
    """What certainly did not arrive is said when the network brings the message again; what may have arrived is not."""
    house = House(core)
    house.disk(full=True)
    fates = [Unknown(), Retry(0.0), NotSent()]
    core.net.judge = lambda call: fates.pop() if call.address.chat == "1" else None
    message = core.inbound("one")
    for tries in range(5):
        await house.refused(message, core.inbound("and others", chat=f"after {tries}"))
        await until(lambda tries=tries: core.seen(f"after {tries}"))  # type: ignore[misc]
    assert len([call for call in core.net.calls if call.address.chat == "1"]) == 3
