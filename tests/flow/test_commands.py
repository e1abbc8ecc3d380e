"""Steering conversations by commands, as a person on Telegram sees it, with the files and the model's requests looked at behind."""

from __future__ import annotations

import asyncio
import json

from tests.fakes.openai import End, FakeModel, Reply, delta, says
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import session_lines

ANA = 42


async def ask(tg: FakeTelegram, text: str, answer: str | None = None, chat: int = ANA) -> str:
    """Say something and wait for the next message that settles; gives its text."""
    before = len(tg.visible(chat))
    tg.say(chat, text)
    want = answer

    def there() -> str:
        new = tg.visible(chat)[before:]
        if want is not None:
            return next((text for text in new if text == want), "")
        return next((text for text in new if text != "…"), "")

    return await tg.wait_for(there, 10, chat=chat)


def last_request(model: FakeModel) -> list[tuple[str, str]]:
    return [(m.role, str(m.content)) for m in model.asked[-1].messages if m.role != "system"]


async def test_reset_starts_anew_and_keeps_the_old_session(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """After /reset the model sees nothing of before; /switch main brings it back."""
    await ask(tg, "my code is 4711", "Heard: my code is 4711")
    said = await ask(tg, "/reset")
    assert "main" in said
    await ask(tg, "what is my code?", "Heard: what is my code?")
    assert "4711" not in str(model.asked[-1].raw)
    assert "main" in await ask(tg, "/switch main")
    await ask(tg, "and now?", "Heard: and now?")
    assert last_request(model)[0] == ("user", "my code is 4711")
    assert "/reset" not in str([asked.raw for asked in model.asked])


async def test_a_fork_and_its_parent_are_independent(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """A fork begins equal to its parent; afterwards neither sees the other."""
    await ask(tg, "one", "Heard: one")
    parent = daemon.data / "sessions" / "telegram" / str(ANA) / "main.jsonl"
    assert "west" in await ask(tg, "/fork West!")
    before = parent.read_bytes()
    await ask(tg, "two", "Heard: two")
    assert last_request(model) == [("user", "one"), ("assistant", "Heard: one"), ("user", "two")]
    assert parent.read_bytes() == before
    await ask(tg, "/switch main")
    await ask(tg, "three", "Heard: three")
    assert last_request(model) == [("user", "one"), ("assistant", "Heard: one"), ("user", "three")]
    fork = session_lines(daemon.data, ANA, "west")
    assert fork[0]["parent"] == {"key": f"telegram:{ANA}", "name": "main", "seq": fork[0]["parent"]["seq"]}
    assert fork[0]["title"] == "West!"
    assert "three" not in json.dumps(fork)


async def test_names_are_names_and_never_paths(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Whatever is given to /fork and /switch, nothing appears outside the chat's own folder."""
    await ask(tg, "one", "Heard: one")

    def outside() -> set[str]:
        ours = daemon.data / "sessions" / "telegram" / str(ANA)
        journal = daemon.data / "journal"
        return {str(p) for p in daemon.folder.rglob("*") if ours not in p.parents and journal not in p.parents}

    before = outside()
    for name in ("../../evil", "/tmp/evil", "a/../../b", ".hidden", "CON", "x" * 300, "a\nb\0c", "..", "_chat", "Ünïcödé ☃"):
        await ask(tg, f"/fork {name}")
        await ask(tg, f"/switch {name}")
    assert outside() == before
    assert not (daemon.folder.parent / "evil").exists()


async def test_undo_and_retry(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """/undo takes the newest exchange out of what the model sees; /retry has the question answered again in place of the old answer."""
    await ask(tg, "one", "Heard: one")
    await ask(tg, "two", "Heard: two")
    await ask(tg, "/undo")
    await ask(tg, "three", "Heard: three")
    assert last_request(model) == [("user", "one"), ("assistant", "Heard: one"), ("user", "three")]
    model.then(says("A better one."))
    assert await ask(tg, "/retry") == "A better one."
    assert last_request(model) == [("user", "one"), ("assistant", "Heard: one"), ("user", "three")]
    await ask(tg, "four", "Heard: four")
    assert ("assistant", "A better one.") in last_request(model)
    assert ("assistant", "Heard: three") not in last_request(model)


async def test_stop_ends_the_running_turn_at_once_and_keeps_what_was_seen(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """/stop passes the queue, closes the model's connection, and the next message is answered."""
    model.then(Reply([delta("", role="assistant"), delta("A long "), delta("story"), End.HANG]))
    tg.say(ANA, "tell me")
    await tg.wait_for(lambda: "A long story" in tg.visible(ANA), 10, chat=ANA)
    assert await ask(tg, "/stop", "Stopped.") == "Stopped."
    await asyncio.wait_for(model.asked[0].done.wait(), 3)
    assert model.asked[0].ended == "left"
    await tg.wait_for(lambda: any(text.startswith("A long story") and "stopped" in text for text in tg.visible(ANA)), 5, chat=ANA)
    await ask(tg, "hello", "Heard: hello")
    assert last_request(model) == [("user", "tell me"), ("assistant", "A long story"), ("user", "hello")]


async def test_stop_before_the_first_word_says_it_once(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """The one message is the command's; the model is told that the question is off the table, and answers the next one only."""
    model.then(Reply([End.HANG]))
    tg.say(ANA, "tell me")
    await model.wait(1)
    await ask(tg, "/stop", "Stopped.")
    await ask(tg, "hello", "Heard: hello")
    assert tg.visible(ANA) == ["Stopped.", "Heard: hello"]
    assert last_request(model) == [("user", "tell me"), ("assistant", "(stopped)"), ("user", "hello")]


async def test_reset_during_a_turn_acts_at_once(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """The running turn is cut; its late result goes to the old session, never into the new one."""
    model.then(Reply([delta("old answer"), End.HANG]))
    tg.say(ANA, "old question")
    await tg.wait_for(lambda: "old answer" in tg.visible(ANA), 10, chat=ANA)
    await ask(tg, "/reset")
    await tg.wait_for(lambda: any("new conversation" in text for text in tg.visible(ANA)), 3, chat=ANA)
    await ask(tg, "new question", "Heard: new question")
    assert last_request(model) == [("user", "new question")]
    new = next(p for p in (daemon.data / "sessions/telegram/42").glob("chat-*.jsonl"))
    assert "old" not in "".join(new.read_text().splitlines()[1:])


async def test_forget_asks_first_and_then_deletes_for_good(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Only the word or the button deletes; afterwards no file holds the words any more."""
    await ask(tg, "a secret word: heron", "Heard: a secret word: heron")
    assert "for good" in await ask(tg, "/forget")
    tg.press(ANA, "Keep")
    await tg.wait_for(lambda: "Nothing was deleted." in tg.visible(ANA), 5, chat=ANA)
    await ask(tg, "/forget")
    tg.press(ANA, "Delete everything")
    await tg.wait_for(lambda: "All conversations of this chat are deleted." in tg.visible(ANA), 5, chat=ANA)
    found = [p for p in daemon.data.rglob("*") if p.is_file() and b"heron" in p.read_bytes()]
    assert found == []
    await ask(tg, "who am I?", "Heard: who am I?")
    assert last_request(model) == [("user", "who am I?")]


async def test_sessions_lists_the_tree_with_buttons(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """/sessions shows which session is which, and a press on a button goes there."""
    await ask(tg, "one", "Heard: one")
    await ask(tg, "/fork west")
    said = await ask(tg, "/sessions")
    assert "main" in said
    assert "west (here)" in said
    tg.press(ANA, "main")
    await tg.wait_for(lambda: any("in main" in text for text in tg.visible(ANA)[-1:]), 5, chat=ANA)
    assert all(len(answers) == 1 for answers in tg.answered.values())


async def test_unknown_and_odd_commands(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """An unknown command gets a hint; what only looks like one is words for the model; commands never reach the model."""
    assert "/help" in await ask(tg, "/foo bar")
    assert "/help" in await ask(tg, "/resetx")
    await ask(tg, "//not a command", "Heard: //not a command")
    await ask(tg, "/help")
    await ask(tg, "hi", "Heard: hi")
    assert [m for m in last_request(model) if m[0] == "user"] == [("user", "//not a command"), ("user", "hi")]


async def test_answers_are_in_order_when_people_do_not_wait(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Five messages in a row: five answers in that order; commands among them act in their place."""
    for n in range(5):
        tg.say(ANA, f"n{n}")
    await tg.wait_for(lambda: tg.visible(ANA) == [f"Heard: n{n}" for n in range(5)], 10, chat=ANA)
    assert [m for role, m in last_request(model) if role == "user"] == [f"n{n}" for n in range(5)]


async def test_a_reset_of_a_new_conversation_makes_no_other(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """Said twice it does no more than once."""
    await ask(tg, "one", "Heard: one")
    assert "main" in await ask(tg, "/reset")
    assert "already" in await ask(tg, "/reset")
    assert sorted(p.stem for p in (daemon.data / "sessions/telegram/42").glob("[!_]*.jsonl")) == ["chat-2", "main"]


async def test_an_unknown_command_in_a_group_is_another_bots(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """No word about it, and the next command of ours is answered."""
    tg.say(-100, "/weather today")
    tg.say(-100, "/whoami")
    await tg.wait_for(lambda: len(tg.visible(-100)) == 1 and "telegram:42" in tg.visible(-100)[0], 10, chat=-100)
