"""What a person sees when the daemon dies or stops in the middle of something, and comes back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.fakes.openai import End, FakeModel, Reply, delta, says
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import config, session_lines

ANA, BEN = 42, 43


async def test_an_answered_update_that_comes_again_is_answered_once(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Killed before the network heard that the update was taken: however often it comes again, there is one answer (B01)."""
    stuck = tg.fail("getUpdates", 502, times=None, when=lambda params: int(params.get("offset") or 0) > 0)
    tg.say(ANA, "hi")
    await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: hi"], 10, chat=ANA)
    for _ in range(5):
        await daemon.kill()
        polls = len(tg.calls_of("getUpdates"))
        await daemon.start()
        await tg.wait_for(lambda polls=polls: len(tg.calls_of("getUpdates")) > polls + 1, 10)  # type: ignore[misc]
    stuck.remove()
    tg.say(ANA, "again")
    await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: hi", "Heard: again"], 30, chat=ANA)
    assert len(model.asked) == 2
    assert [line["content"] for line in session_lines(daemon.data, ANA) if line.get("role") == "user"] == ["hi", "again"]


async def test_a_confirmed_update_survives_a_kill(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Once the network was told that a message is taken it never comes again; it is answered after the kill all the same (B02)."""
    model.then(Reply([End.HANG]))
    tg.say(ANA, "do not lose me")
    await model.wait(1)
    await tg.wait_for(lambda: tg.pending == 0, 10)
    await daemon.kill()
    await daemon.start()
    await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: do not lose me"], 10, chat=ANA)
    lines = [line for line in session_lines(daemon.data, ANA) if "role" in line]
    assert [(line["role"], line["content"]) for line in lines] == [("user", "do not lose me"), ("assistant", "Heard: do not lose me")]


async def test_what_came_while_the_daemon_was_down_is_answered_in_order(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Nothing of the network's queue is thrown away at a start (B03)."""
    assert await daemon.stop() == 0
    for text, chat in (("one", ANA), ("two", BEN), ("three", ANA)):
        tg.say(chat, text)
    await daemon.start()
    await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: one", "Heard: three"] and tg.visible(BEN) == ["Heard: two"], 10)
    assert tg.resets == []


async def test_what_is_too_old_is_not_answered_and_the_chat_is_told_once(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """An age limit that is configured is kept, aloud."""
    async with Daemon(tmp_path, config(tg, model, telegram='backlog = "1h"')):
        for text in ("old one", "old two"):
            tg.say(ANA, text, date=1_700_000_000)
        tg.say(ANA, "new")
        await tg.wait_for(lambda: "Heard: new" in tg.visible(ANA), 10, chat=ANA)
        assert len(tg.visible(ANA)) == 2
        assert "too long" in tg.visible(ANA)[0]
        assert [asked.words for asked in model.asked] == ["new"]


async def test_sigterm_lets_a_turn_end(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """A turn that ends within the budget is delivered whole before the exit (F03 a)."""
    more = asyncio.Event()
    model.then(Reply([delta("", role="assistant"), delta("first "), more, delta("second"), delta(finish="stop")]))
    tg.say(ANA, "tell")
    await tg.wait_for(lambda: "first" in tg.visible(ANA), 10, chat=ANA)
    stopping = asyncio.create_task(daemon.stop())
    await asyncio.wait({stopping}, timeout=0.5)
    more.set()
    assert await stopping == 0
    assert tg.visible(ANA) == ["first second"]


async def test_a_turn_that_sigterm_cut_goes_on_after_the_restart(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """A turn that does not end is cut in time, and resumed by an edit of the message that was placed for it (F03 b, F04)."""
    text = config(tg, model).replace('budget = "8s"', 'budget = "2s"')
    async with Daemon(tmp_path, text) as daemon:
        model.then(Reply([delta("", role="assistant"), delta("first "), End.HANG]))
        tg.say(ANA, "tell")
        await tg.wait_for(lambda: "first" in tg.visible(ANA), 10, chat=ANA)
        assert await daemon.stop(timeout=4) == 0
        await daemon.start()
        await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: tell"], 10, chat=ANA)
        assert len(tg.calls_of("sendMessage")) == 1


async def test_a_placed_message_is_edited_after_a_kill(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Killed while an answer was growing: the same message gets the answer, nothing is left over."""
    model.then(Reply([delta("", role="assistant"), delta("half of "), End.HANG]))
    tg.say(ANA, "tell")
    await tg.wait_for(lambda: "half of" in tg.visible(ANA), 10, chat=ANA)
    await daemon.kill()
    await daemon.start()
    await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: tell"], 10, chat=ANA)
    assert len(tg.calls_of("sendMessage")) == 1


async def test_a_long_answer_goes_on_at_the_piece_where_the_kill_came(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Of an answer in several messages each is there once and in order, although the kill came between them (B32)."""
    answer = "\n\n".join(f"Paragraph {n}: " + "words " * 120 for n in range(20)).strip()
    model.then(says(answer))
    held = tg.hold("editMessageText", times=1, when=lambda params: "Paragraph 12" in str(params.get("text")))
    tg.say(ANA, "tell")
    await asyncio.wait_for(held.reached.wait(), 10)
    await daemon.kill()
    held.release()
    await daemon.start()

    def whole() -> bool:
        return "".join("".join(tg.visible(ANA)).split()) == "".join(answer.split())

    await tg.wait_for(whole, 10, chat=ANA)
    assert len(model.asked) == 1


async def test_a_command_is_not_carried_out_twice(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Killed between a /fork and its confirmation: one fork, one confirmation."""
    tg.say(ANA, "one")
    await tg.wait_for(lambda: tg.visible(ANA) == ["Heard: one"], 10, chat=ANA)
    held = tg.hold("sendMessage", before=True)
    tg.say(ANA, "/fork west")
    await asyncio.wait_for(held.reached.wait(), 10)
    await daemon.kill()
    held.remove()
    await daemon.start()
    await tg.wait_for(lambda: any("west" in text for text in tg.visible(ANA)), 10, chat=ANA)
    tg.say(ANA, "two")
    await tg.wait_for(lambda: tg.visible(ANA)[-1] == "Heard: two", 10, chat=ANA)
    assert sorted(p.stem for p in (daemon.data / "sessions/telegram/42").glob("*.jsonl")) == ["_chat", "main", "west"]
    assert len([text for text in tg.visible(ANA) if "You are now in" in text]) <= 2


@pytest.mark.parametrize(
    "tail",
    [
        b'{"role":"assis',
        b'{"role":"assis\n\n',
        b'{not json}\n{"seq":3,"at":"","role":"user","content":"kept"}\n',
        b'42\n[]\n{"role":"wizard"}\n',
        b"\0\0\0\0",
        b'{"seq":3,"at":"","role":"user","content":"\xff\xfe"}\n',
        b'{"seq":3,"at":"","for":"x","role":"assistant","content":null,"tool_calls":[{"id":"c1","name":"f","arguments":{}}]}\n',
        b'{"seq":3,"at":"","for":"x","role":"assistant","content":""}\n',
        b'{"seq":3,"at":"","role":"user","content":"ab',
    ],
)
async def test_a_damaged_session_goes_on(tmp_path: Path, tg: FakeTelegram, model: FakeModel, tail: bytes) -> None:
    """Whatever a crash or an editor left in a session file: the good lines are used, the first new message is answered, also after another
    start, and no byte is thrown away."""
    daemon = Daemon(tmp_path, config(tg, model))
    folder = daemon.data / "sessions" / "telegram" / str(ANA)
    folder.mkdir(parents=True, mode=0o700)
    head = {"type": "session", "v": 1, "key": f"telegram:{ANA}", "name": "main", "created": "2026-01-01T00:00:00Z"}
    good = [
        {"seq": 1, "at": "2026-01-01T00:00:00Z", "for": "a", "role": "user", "content": "my code is 4711"},
        {"seq": 2, "at": "2026-01-01T00:00:01Z", "for": "a", "role": "assistant", "content": "noted"},
    ]
    path = folder / "main.jsonl"
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in (head, *good)) + tail)
    path.chmod(0o600)
    async with daemon:
        for n, text in enumerate(("hello", "and again")):
            tg.say(ANA, text)
            await tg.wait_for(lambda n=n: len(tg.visible(ANA)) > n and "…" not in tg.visible(ANA), 10, chat=ANA)  # type: ignore[misc]
            assert "Heard:" in tg.visible(ANA)[-1]
            await daemon.kill()
            await daemon.start()
    requests = [[(m.role, m.content) for m in asked.messages if m.role != "system"] for asked in model.asked]
    assert requests[0][:2] == [("user", "my code is 4711"), ("assistant", "noted")]
    assert "hello" in str(requests[1])
    kept = b"".join(p.read_bytes() for p in folder.iterdir())
    assert tail.strip(b"\n") in kept


async def test_a_newer_format_is_refused_and_left_as_it_is(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """A session file of a later version is not written to; /reset starts another one (D32)."""
    daemon = Daemon(tmp_path, config(tg, model))
    folder = daemon.data / "sessions" / "telegram" / str(ANA)
    folder.mkdir(parents=True, mode=0o700)
    path = folder / "main.jsonl"
    path.write_bytes(b'{"type":"session","v":99,"key":"telegram:42","name":"main","created":"2030-01-01T00:00:00Z"}\n{"seq":1}\n')
    (folder / "_chat.jsonl").write_bytes(b'{"at":"2030-01-01T00:00:00Z","current":"main"}\n')
    before = path.read_bytes()
    async with daemon:
        tg.say(ANA, "hello")
        await tg.wait_for(lambda: "/reset" in "".join(tg.visible(ANA)), 10, chat=ANA)
        tg.say(ANA, "/reset")
        await tg.wait_for(lambda: len(tg.visible(ANA)) == 2, 10, chat=ANA)
        tg.say(ANA, "hello")
        await tg.wait_for(lambda: tg.visible(ANA)[-1] == "Heard: hello", 10, chat=ANA)
    assert path.read_bytes() == before


@pytest.mark.parametrize("streaming", ["edit", "off"])
async def test_five_turns_in_flight_survive_a_kill(tmp_path: Path, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """All are answered soon after the restart, and nobody else hears anything."""
    async with Daemon(tmp_path, config(tg, model, streaming=streaming)) as daemon:
        tg.say(99, "idle")
        await tg.wait_for(lambda: tg.visible(99) == ["Heard: idle"], 10, chat=99)
        for _ in range(5):
            model.then(Reply([delta("so far"), End.HANG]))
        for chat in range(1, 6):
            tg.say(chat, f"q{chat}")
        await model.wait(6)
        await daemon.kill()
        before = len(tg.calls)
        await daemon.start()
        for chat in range(1, 6):
            # An empty placeholder may be there twice, where the kill came between its send and its record.
            await tg.wait_for(lambda chat=chat: {*tg.visible(chat)} - {"…"} == {f"Heard: q{chat}"}, 15, chat=chat)  # type: ignore[misc]
            assert tg.visible(chat).count(f"Heard: q{chat}") == 1
        assert all(call.chat != 99 for call in tg.calls[before:])
