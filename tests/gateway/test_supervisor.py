"""One channel's life: started again after anything, with growing pauses, and given up only where the network says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import structlog

from channels.base import Accept, CommandInfo, Denied, Inbound, NotSent, Retry, Unknown
from gateway.metrics import Metrics
from gateway.supervisor import GIVE_UP, LONGEST_PAUSE, LOOK, START_LIMIT, STEADY, Supervisor
from gateway.tasks import Restarts
from tests.gateway.outbox_net import Net

pytestmark = [pytest.mark.looptime, pytest.mark.asyncio]


class Moody(Net):
    """A channel that meets, at each start and in each run, what the script has for it. A number: it works for so long, then ends."""

    def __init__(self, *script: tuple[BaseException | None, BaseException | float]) -> None:
        super().__init__()
        self.script = list(script)
        self.starts: list[float] = []

    async def start(self, menu: Sequence[CommandInfo]) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        fault = self.script[0][0]
        if fault is not None:
            self.script.pop(0)
            raise fault

    async def run(self, accept: Accept) -> None:
        fate = self.script.pop(0)[1]
        if isinstance(fate, BaseException):
            raise fate
        await asyncio.sleep(fate)
        if self.script:
            raise Unknown("cut")

    def pauses(self) -> list[float]:
        return [round(b - a, 3) for a, b in zip(self.starts, self.starts[1:], strict=False)]


async def accept(batch: Sequence[Inbound]) -> None:
    raise AssertionError("nothing comes in")


def supervisor(channel: Moody) -> Supervisor:
    return Supervisor(channel, accept, [], spread=lambda: 0.5)


FAULTS = [NotSent("x"), Unknown("x"), RuntimeError("x"), OSError(5, "x"), KeyError("x"), asyncio.CancelledError()]


class Grouped(Moody):
    """Works in a group of tasks, as a channel may."""

    async def run(self, accept: Accept) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run(accept))


async def test_a_group_of_tasks_that_fails_is_a_failure_and_not_the_end() -> None:
    """It leaves its task marked as cancelled, which is no word of ours; and a real cancellation still ends it, at once."""
    channel = Grouped((None, RuntimeError("x")), (None, RuntimeError("x")), (None, 1000.0))
    one = supervisor(channel)
    task = asyncio.create_task(one.run())
    await asyncio.sleep(10.0)
    assert (one.state, len(channel.starts)) == ("up", 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().time() == 10.0


@pytest.mark.parametrize("when", ["start", "run"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_whatever_happens_it_is_started_again(fault: BaseException, when: str) -> None:
    """Errors of the network, of ours, and a CancelledError that nobody aimed: after a pause the channel is up again."""
    channel = Moody((fault, 0.0) if when == "start" else (None, fault), (None, 5.0))
    running = supervisor(channel)
    await running.run()
    assert channel.pauses() == [1.0]
    assert (running.state, running.problem) == ("ended", "")


async def test_pauses_grow_to_a_limit_and_begin_anew_after_steady_work() -> None:
    """1, 2, 4, ... 30 seconds; a channel that had worked for a minute is started again soon."""
    faults: list[tuple[BaseException | None, BaseException | float]] = [(NotSent("x"), 0.0)] * 7
    channel = Moody(*faults, (None, STEADY + 1), (None, 1.0))
    await supervisor(channel).run()
    assert channel.pauses() == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE, LONGEST_PAUSE, STEADY + 2]


async def test_a_token_that_is_refused_later_is_named() -> None:
    """The log and the health report say which secret it is; a refusal that is not about the token does not name it."""
    for said, told in (("does not accept the bot token", "does not accept the bot token (it is MY_TOKEN)"), ("no intent", "no intent")):
        running = Supervisor(Moody((None, Denied(said))), accept, [], secret="MY_TOKEN")
        with structlog.testing.capture_logs() as logs:
            await running.run()
        assert (running.state, running.problem) == ("stopped", told)
        assert [line["problem"] for line in logs if line["event"] == "channel stopped"] == [told]


async def test_what_the_network_asks_for_is_waited() -> None:
    """A Retry at the first contact is obeyed."""
    channel = Moody((Retry(300), 0.0), (None, 1.0))
    await supervisor(channel).run()
    assert channel.pauses() == [300.0]


async def test_a_token_that_is_wrong_from_the_start_is_raised() -> None:
    """The operator's mistake ends the start; whoever waits for the first contact is told."""
    running = supervisor(Moody((Denied("no such bot"), 0.0)))
    with pytest.raises(Denied, match="no such bot"):
        await running.run()
    assert running.contacted.is_set()
    assert (running.state, running.problem) == ("stopped", "no such bot")


async def test_a_token_that_is_refused_later_stops_this_channel_only() -> None:
    """Nothing is raised: the daemon goes on, and the health report says it."""
    running = supervisor(Moody((None, Denied("revoked"))))
    await running.run()
    assert (running.state, running.problem) == ("stopped", "revoked")


async def test_it_can_be_ended_in_every_phase() -> None:
    """Cancelled while it starts anew, pauses or reads, it ends at once."""
    for script in (((NotSent("x"), 0.0),), ((None, 1e6),)):
        channel = Moody(*script)
        task = asyncio.create_task(supervisor(channel).run())
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert len(channel.starts) == 1


async def test_one_line_a_change_not_a_try() -> None:
    """A network that is away for long fills no log."""
    faults: list[tuple[BaseException | None, BaseException | float]] = [(NotSent("away"), 0.0)] * 50
    with structlog.testing.capture_logs() as logged:
        await supervisor(Moody(*faults, (None, 1.0))).run()
    assert [line["event"] for line in logged] == ["channel down", "channel up", "channel ended"]


async def test_a_network_that_is_down_is_not_a_dead_channel() -> None:
    """The watchdog is not to kill a daemon because a network is away for an hour."""
    channel = Moody(*[(NotSent("x"), 0.0)] * 200, (None, 1.0))
    running = supervisor(channel)
    task = asyncio.create_task(running.run())
    for _ in range(360):
        assert running.stuck() == ""
        await asyncio.sleep(10)
    assert running.state == "down"
    task.cancel()
    await asyncio.wait({task})


class Hung(Moody):
    """A channel that hangs: in its first contact, or reading; where it is `deaf`, also when it is told to end."""

    def __init__(self, where: str, *, deaf: bool = False) -> None:
        super().__init__((None, 0.0))
        self.where, self.deaf = where, deaf
        self.late = 0.0
        self.ended = asyncio.Event()

    async def start(self, menu: Sequence[CommandInfo]) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        await self._hang("start")

    async def run(self, accept: Accept) -> None:
        await self._hang("run")

    async def _hang(self, where: str) -> None:
        while where == self.where:
            try:
                await self.ended.wait()
                return
            except asyncio.CancelledError:
                if not self.deaf:
                    raise

    def overdue(self) -> float:
        return self.late


async def test_a_first_contact_that_hangs_is_begun_anew() -> None:
    """Each request in it has a limit of its own: one that outlasts all of them hangs. Counted, told, and nothing for the watchdog."""
    metrics = Metrics()
    restarts = Restarts(metrics.restarts)
    channel = Hung("start")
    running = Supervisor(channel, accept, [], restarts=restarts, spread=lambda: 0.5)
    task = asyncio.create_task(running.run())
    await asyncio.sleep(START_LIMIT - 1)
    assert (len(channel.starts), running.state) == (1, "starting")
    await asyncio.sleep(10)
    assert len(channel.starts) == 2
    assert (running.state, running.problem, running.stuck()) == ("down", "it hung", "")
    assert metrics.restarts.values == {("net",): 1}
    channel.where = ""
    channel.ended.set()
    await asyncio.wait({task})
    assert running.state == "ended"


async def test_a_channel_that_reads_and_does_not_move_is_begun_anew() -> None:
    """By its own limits, and again and again, with pauses that grow; as soon as it moves it is up."""
    channel = Hung("run")
    running = Supervisor(channel, accept, [], spread=lambda: 0.5)
    task = asyncio.create_task(running.run())
    await asyncio.sleep(1000)
    assert (len(channel.starts), running.state) == (1, "up")
    channel.late = 7.0
    await asyncio.sleep(LOOK + 8)
    assert len(channel.starts) >= 3
    channel.late = 0.0
    await asyncio.sleep(60)
    assert running.state == "up"
    starts = len(channel.starts)
    await asyncio.sleep(1000)
    assert (len(channel.starts), running.stuck()) == (starts, "")
    task.cancel()
    await asyncio.wait({task})


async def test_what_hangs_and_cannot_be_ended_is_the_watchdogs() -> None:
    """There are never two of it: it is not begun anew before it has ended, and only a restart of the daemon can bring that about."""
    channel = Hung("run", deaf=True)
    running = Supervisor(channel, accept, [], spread=lambda: 0.5)
    task = asyncio.create_task(running.run())
    await asyncio.sleep(10)
    channel.late = 7.0
    await asyncio.sleep(LOOK + GIVE_UP + 1)
    assert running.stuck() == "net hangs and cannot be ended"
    assert len(channel.starts) == 1
    channel.deaf, channel.late = False, 0.0
    channel.ended.set()
    await asyncio.wait({task}, timeout=60)
    assert running.stuck() == ""
    task.cancel()
    await asyncio.wait({task})
