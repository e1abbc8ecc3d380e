"""gateway.keylocks: one FIFO lock a key, there only while it is used."""

from __future__ import annotations

import asyncio
import random

from gateway.keylocks import KeyLocks
from gateway.message import SessionKey

KEY = SessionKey("telegram", "1")


def locks() -> KeyLocks:
    return KeyLocks(lambda: None)


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_order_is_the_order_of_asking() -> None:
    """D20: whoever asked first holds first, and nobody beside them."""
    held, order, inside = locks(), [], 0

    async def one(n: int) -> None:
        nonlocal inside
        async with held.hold(KEY):
            inside += 1
            assert inside == 1
            order.append(n)
            await asyncio.sleep(0)
            inside -= 1

    async with asyncio.TaskGroup() as tasks:
        for n in range(20):
            tasks.create_task(one(n))
    assert order == list(range(20))
    assert len(held) == 0


async def test_two_keys_do_not_wait_for_each_other() -> None:
    """One chat's long turn does not hold up another chat."""
    held = locks()
    async with held.hold(KEY), asyncio.timeout(1), held.hold(SessionKey("telegram", "2")):
        assert len(held) == 2


async def test_ten_thousand_keys_leave_nothing() -> None:
    """F13: a lock is there while somebody holds it or waits for it, and not a moment longer."""
    held = locks()

    async def one(n: int) -> None:
        async with held.hold(SessionKey("telegram", str(n))):
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for n in range(10_000):
            tasks.create_task(one(n % 5000))
    assert len(held) == 0


async def test_who_stops_waiting_disturbs_nobody() -> None:
    """A cancelled waiter leaves the lock to the next in line, whether it was still waiting or had just been given it."""
    dice = random.Random(7)
    for _ in range(200):
        held = locks()
        done: list[int] = []

        async def one(n: int, held: KeyLocks = held, done: list[int] = done) -> None:
            async with held.hold(KEY):
                await asyncio.sleep(0)
                done.append(n)

        tasks = [asyncio.create_task(one(n)) for n in range(8)]
        for _ in range(dice.randrange(12)):
            await asyncio.sleep(0)
        for task in dice.sample(tasks, 3):
            task.cancel()
        async with asyncio.timeout(5):
            await asyncio.wait(tasks)
        assert done == [n for n, task in enumerate(tasks) if not task.cancelled()]
        assert len(held) == 0


async def test_an_error_inside_lets_go() -> None:
    """A turn that fails does not keep its key."""
    held = locks()
    for _ in range(2):
        try:
            async with asyncio.timeout(1), held.hold(KEY):
                raise KeyError
        except KeyError:
            pass
    assert KEY not in held
