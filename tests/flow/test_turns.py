"""One turn at a time in a chat, many chats at a time: order, limits, /reset at the worst moment, and answers that come late."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.records import unfinished
from tests.fakes.openai import DONE, Asked, End, FakeModel, Reply, Step, delta
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import config, session_lines

ANA, BEN = 42, 43
GROUP, OTHER = -100, -101
FORUM = -1001
BOTH = pytest.mark.parametrize("streaming", ["edit", "off"])


async def passes(turns: int) -> None:
    """Let the loop go round so many times."""
    for _ in range(turns):
        await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------------------------ /reset at the worst moment


class Moment:
    """When /reset is said to a chat whose answer is about to end. `gate` lets the model go on behind its first words."""

    def __init__(self, tg: FakeTelegram, chat: int, number: int) -> None:
        self.tg, self.chat, self.number = tg, chat, number
        self.gate = asyncio.Event()

    def reset(self) -> None:
        self.tg.say(self.chat, "/reset")

    async def taken(self) -> None:
        """Until the gateway has confirmed all that was said."""
        await self.tg.wait_for(lambda: not self.tg.pending, 20)

    async def visible(self, words: str) -> None:
        await self.tg.wait_for(lambda: any(words in text for text in self.tg.visible(self.chat)), 20, chat=self.chat)

    async def then_gate(self, turns: int) -> None:
        """The end of the answer so many rounds of the loop behind the command."""
        await self.visible("old")
        self.reset()
        await passes(turns)
        self.gate.set()

    async def then_reset(self, turns: int) -> None:
        """The command so many rounds of the loop behind the end of the answer."""
        await self.visible("old")
        self.gate.set()
        await passes(turns)
        self.reset()

    async def before_a_word(self, turns: int) -> None:
        self.reset()
        await passes(turns)
        self.gate.set()

    async def when_taken(self, turns: int) -> None:
        await self.visible("old")
        self.reset()
        await self.taken()
        await passes(turns)
        self.gate.set()

    async def when_told(self, turns: int) -> None:
        """The model ends when nobody listens any more."""
        await self.visible("old")
        self.reset()
        await self.visible("new conversation")
        await passes(turns)
        self.gate.set()

    async def at_a_call(self, turns: int) -> None:
        """While the message with the last words is on its way: its effect to come (odd) or done (even)."""
        held = self.tg.hold("editMessageText", chat=self.chat, before=bool(turns % 2), when=lambda params: "END" in str(params.get("text")))
        self.gate.set()
        await asyncio.wait_for(held.reached.wait(), 20)
        self.reset()
        if turns > 1:
            await self.taken()
        held.release()

    async def when_all_is_seen(self, turns: int) -> None:
        self.gate.set()
        await self.visible("END")
        await passes(turns)
        self.reset()


ROUNDS = (0, 1, 3, 10, 30, 100, 300, 1000, 2500, 6000)
MOMENTS: list[tuple[Callable[[Moment, int], object], int]] = [
    *((Moment.then_gate, turns) for turns in ROUNDS),
    *((Moment.then_reset, turns) for turns in ROUNDS),
    *((Moment.before_a_word, turns) for turns in ROUNDS[::2]),
    *((Moment.when_taken, turns) for turns in ROUNDS[::2]),
    *((Moment.when_told, turns) for turns in ROUNDS[::2]),
    *((Moment.at_a_call, turns) for turns in range(4)),
    *((Moment.when_all_is_seen, turns) for turns in ROUNDS[::2]),
]


async def test_a_reset_around_the_end_of_an_answer(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """D16: whenever it comes, nothing old gets into the new session, and the new question is answered soon (44 moments, a chat each)."""
    moments = {chat: Moment(tg, chat, chat) for chat in range(1, len(MOMENTS) + 1)}

    def answer(asked: Asked) -> Reply | None:
        if not asked.words.startswith("old"):
            return None
        gate = moments[int(asked.words.split()[-1])].gate
        return Reply([delta("old answer "), gate, delta("END"), delta(finish="stop"), DONE])

    model.script(answer)

    async def one(chat: int) -> None:
        act, turns = MOMENTS[chat - 1]
        tg.say(chat, f"old question {chat}")
        await tg.wait_for(lambda: any(asked.words.endswith(f" {chat}") for asked in model.asked), 20)
        await act(moments[chat], turns)  # type: ignore[misc]
        await tg.wait_for(lambda: any("new conversation" in text for text in tg.visible(chat)), 20, chat=chat)
        tg.say(chat, f"new question {chat}")
        await tg.wait_for(lambda: f"Heard: new question {chat}" in tg.visible(chat), 5, chat=chat)

    async with Daemon(tmp_path, config(tg, model)) as daemon:
        async with asyncio.TaskGroup() as people:
            for chat in moments:
                people.create_task(one(chat))
        assert await daemon.stop() == 0
    ends: Counter[str] = Counter()
    for chat in moments:
        new = session_lines(daemon.data, chat, "chat-2")
        assert [line["content"] for line in new if "role" in line] == [f"new question {chat}", f"Heard: new question {chat}"]
        old = [line for line in session_lines(daemon.data, chat) if "role" in line]
        assert [line["role"] for line in old] == ["user", "assistant"]
        ends[old[1]["content"].strip()] += 1
        seen = tg.visible(chat)
        taken_back = any(line.get("stopped") for line in session_lines(daemon.data, chat))
        assert sum("old answer" in text for text in seen) == (old[1]["content"] != "(stopped)" and not taken_back), seen
    for asked in model.asked:
        assert len(asked.messages) == 2, asked.messages  # the system text, and the one question
    # Both sides of the edge were met.
    assert ends["old answer END"] >= 5, ends
    assert ends["old answer"] >= 5, ends


# --------------------------------------------------------------------------------------------------------------------- order and overlap


async def test_a_group_has_one_turn_at_a_time_in_order(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """D20: twenty messages of two people at once. Requests of one chat never overlap, those of two chats do."""
    busy: Counter[str] = Counter()
    peaks: Counter[str] = Counter()
    both = asyncio.Event()

    def steps(chat: str, words: str) -> Iterator[Step]:
        busy[chat] += 1
        peaks[chat] = max(peaks[chat], busy[chat])
        if busy["A"] and busy["B"]:
            both.set()
        yield delta("Heard: ")
        yield both  # the first turns of both chats wait for each other
        yield delta(words)
        busy[chat] -= 1
        yield delta(finish="stop")
        yield DONE

    model.script(lambda asked: Reply(steps(asked.words.split()[1][0], asked.words)))
    async with Daemon(tmp_path, config(tg, model)) as daemon:
        for number in range(20):
            for name, chat in (("A", GROUP), ("B", OTHER)):
                tg.say(chat, f"@OurBot {name}{number}", user=(ANA, BEN)[number % 3 == 0])
        await tg.wait_for(lambda: not tg.pending and not unfinished(daemon.data), 30)
        assert await daemon.stop() == 0
    assert peaks == {"A": 1, "B": 1}
    for name, chat in (("A", GROUP), ("B", OTHER)):
        people = [(BEN if number % 3 == 0 else ANA) for number in range(20)]
        said = [f"P{person}: {name}{number}" for number, person in enumerate(people)]
        assert tg.visible(chat) == [f"Heard: {words}" for words in said]
        lines = [line for line in session_lines(daemon.data, chat) if "role" in line]
        assert [line["content"] for line in lines[::2]] == [f"{name}{number}" for number in range(20)]
        assert [line["content"] for line in lines[1::2]] == [f"Heard: {words}" for words in said]
        assert [line["from"]["id"] for line in lines[::2]] == [str(person) for person in people]
        assert all(line["for"] == answer["for"] for line, answer in zip(lines[::2], lines[1::2], strict=True))


async def test_what_waits_is_kept_up_to_a_limit_that_is_told(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """D22: all that came while a turn ran is answered in order; what is over the limit is told, once; a flood takes no memory."""
    gate = asyncio.Event()
    model.then(Reply([delta("slow "), gate, delta("one"), delta(finish="stop"), DONE]))
    tg.say(ANA, "m0")
    await model.wait(1)
    for number in range(1, 56):
        tg.say(ANA, f"m{number}")
    await tg.wait_for(lambda: sum("not taken" in text for text in tg.visible(ANA)) == 1, 10, chat=ANA)
    assert daemon.process is not None
    status = Path(f"/proc/{daemon.process.pid}/status")

    def resident() -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
        assert found is not None
        return int(found[1])

    before = resident()
    for number in range(3000):
        tg.say(ANA, f"flood {number} {'and so on ' * 300}")
    await tg.wait_for(lambda: not tg.pending, 30)
    assert resident() - before < 30_000
    tg.say(BEN, "still there?")
    await tg.wait_for(lambda: tg.visible(BEN) == ["Heard: still there?"], 10, chat=BEN)
    gate.set()
    await tg.wait_for(lambda: "Heard: m50" in tg.visible(ANA), 20, chat=ANA)
    assert sum("not taken" in text for text in tg.visible(ANA)) == 1
    await tg.wait_for(lambda: not unfinished(daemon.data), 20)
    assert [text for text in tg.visible(ANA) if "not taken" not in text] == ["slow one", *(f"Heard: m{n}" for n in range(1, 51))]
    assert [message.content for message in model.asked[-1].messages if message.role == "user"][:3] == ["m0", "m1", "m2"]


@BOTH
async def test_each_answer_goes_where_its_question_came_from(tmp_path: Path, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """D23: private chats, groups and topics, all asking at once, answered in the reverse order."""
    places = [(chat, 0, chat) for chat in range(1, 31)] + [(-chat, 0, 900 + chat) for chat in range(101, 111)]
    places += [(FORUM, thread, 2000 + thread) for thread in (0, *range(11, 20))]
    tg.chat(FORUM, is_forum=True)
    gates = [asyncio.Event() for _ in places]

    def answer(asked: Asked) -> Reply:
        number = int(asked.words.split()[-1])
        return Reply([delta("it is "), gates[number], delta(f"word{number}x"), delta(finish="stop"), DONE])

    model.script(answer)
    async with Daemon(tmp_path, config(tg, model, streaming=streaming)) as daemon:
        for number, (chat, thread, user) in enumerate(places):
            tg.say(chat, f"{'@OurBot ' if chat < 0 else ''}secret {number}", thread=thread or None, user=user)
        await tg.wait_for(lambda: len(model.asked) == len(places), 20)
        for gate in reversed(gates):
            gate.set()
            await passes(3)
        await tg.wait_for(lambda: not tg.pending and not unfinished(daemon.data), 30)
        assert await daemon.stop() == 0
    for number, (chat, thread, _) in enumerate(places):
        assert tg.visible(chat, thread) == [f"it is word{number}x"]
    assert all(len(asked.messages) == 2 for asked in model.asked)


# ----------------------------------------------------------------------------------------------------------------- after a crash, and late


async def test_nothing_counts_as_running_after_a_start(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """D34: a kill in a turn, and the chat is answered again at once; where the model falls silent a second time, /stop still reaches it."""
    model.then(Reply([delta("so far "), End.HANG]), Reply([delta("so far "), End.HANG]))
    tg.say(ANA, "tell me")
    await tg.wait_for(lambda: tg.visible(ANA) == ["so far"], 10, chat=ANA)
    await daemon.kill()
    await daemon.start()
    await model.wait(2)
    tg.say(ANA, "/stop")
    tg.say(ANA, "hello")
    await tg.wait_for(lambda: tg.visible(ANA)[-1] == "Heard: hello", 5, chat=ANA)
    tg.say(ANA, "/stop")
    await tg.wait_for(lambda: tg.visible(ANA)[-1] == "Nothing is running.", 5, chat=ANA)
    assert len(model.asked) == 3


@BOTH
async def test_an_answer_that_is_late_shifts_no_other(tmp_path: Path, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """D38: a final that meets a 429, a lost answer and a failure; each question gets its own answer, in order, /reset included."""
    method = "editMessageText" if streaming == "edit" else "sendMessage"
    async with Daemon(tmp_path, config(tg, model, streaming=streaming)) as daemon:
        tg.fail(method, 429, {"parameters": {"retry_after": 1}}, chat=ANA)
        tg.fail(method, 502, chat=ANA, times=1 if streaming == "edit" else 0)
        tg.drop(method, after=True, chat=ANA, times=1)
        for text in ("t1", "t2", "t3"):
            tg.say(ANA, text)
        await tg.wait_for(lambda: "Heard: t3" in tg.visible(ANA), 20, chat=ANA)
        tg.say(ANA, "/reset")
        tg.say(ANA, "t4")
        await tg.wait_for(lambda: tg.visible(ANA)[-1] == "Heard: t4", 20, chat=ANA)
        assert await daemon.stop() == 0
    seen = tg.visible(ANA)
    assert seen[:3] == ["Heard: t1", "Heard: t2", "Heard: t3"]
    assert len(seen) == 5
    assert tg.impatient == []
    assert [asked.words for asked in model.asked] == ["t1", "t2", "t3", "t4"]
