"""Models' servers as they are, end to end: odd chunks, errors inside a good answer, answers that break off; and what a person reads."""

from __future__ import annotations

import json

from tests.fakes.openai import DONE, End, FakeModel, Reply, Step, delta, event, plain, refuses
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import session_lines
from tests.flow.seen import BOTH, PATIENCE, check_texts, replies, shown, told, until

SAID = "The answer is forty-two."
PARTS = ("The answer", " is forty", "-two.")


def usage(said: int = 7) -> dict[str, int]:
    return {"prompt_tokens": 12, "completion_tokens": said}


def bare(content: object) -> bytes:
    return event({"choices": [{"delta": {"content": content}}]})


def pieces(*more: bytes) -> list[Step]:
    return [*map(delta, PARTS), *more]


GOOD: dict[str, list[Step]] = {
    "usage last": pieces(delta(finish="stop"), event({"choices": [], "usage": usage()}), DONE),
    "usage without choices": pieces(delta(finish="stop"), event({"usage": usage()}), DONE),
    "usage with null choices": pieces(delta(finish="stop"), event({"choices": None, "usage": usage()}), DONE),
    "usage in the last chunk": [
        *map(delta, PARTS[:2]),
        event({"choices": [{"delta": {"content": PARTS[2]}, "finish_reason": "stop"}], "usage": usage()}),
        DONE,
    ],
    "usage in every chunk": [
        *(event({"choices": [{"delta": {"content": part}}], "usage": usage(n)}) for n, part in enumerate(PARTS, 5)),
        delta(finish="stop"),
        DONE,
    ],
    "filter preamble": [event({"choices": [], "prompt_filter_results": [{}]}), *pieces(delta(finish="stop"), DONE)],
    "no choices first": [event({"id": "x"}), event({"choices": []}), *pieces(delta(finish="stop"), DONE)],
    "null deltas": [event({"choices": [{"delta": None}]}), event({"choices": [{}]}), *pieces(delta(finish="stop"), DONE)],
    "null choice": [event({"choices": [None]}), *pieces(delta(finish="stop"), DONE)],
    "null content": [bare(None), bare(""), *map(bare, PARTS), event({"choices": [{"delta": {}, "finish_reason": "stop"}]}), DONE],
    "content in parts": [*(bare([{"type": "text", "text": part}]) for part in PARTS), delta(finish="stop"), DONE],
    "no done": pieces(delta(finish="stop")),
    "done alone": pieces(DONE),
    "more behind the end": pieces(delta(finish="stop"), DONE, delta(" and more")),
    "comments between": [b": ping\n\n", *(part for one in PARTS for part in (delta(one), b": ping\n\n")), delta(finish="stop"), DONE],
    "a second choice": [
        *(event({"choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": part}}]}) for part in PARTS),
        delta(finish="stop"),
        DONE,
    ],
}
COUNTED = [name for name in GOOD if name.startswith("usage")]


@BOTH
async def test_odd_chunks_cost_no_word(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """E01: without choices, with null where something should be, usage anywhere: in every variant the whole text, as a whole answer, and
    the usage where there is any."""
    chats = dict(enumerate(GOOD, 1))
    replies(model, {name: Reply(steps) for name, steps in GOOD.items()})
    for chat, name in chats.items():
        tg.say(chat, name)
    for chat in chats:
        await shown(tg, chat, SAID)
    assert await daemon.stop() == 0
    assert len(model.asked) == len(GOOD)
    for chat, name in chats.items():
        assert tg.visible(chat) == [SAID], name
        (answer,) = (line for line in session_lines(daemon.data, chat) if line.get("role") == "assistant")
        assert (answer["content"], answer.get("interrupted", False)) == (SAID, False)
        assert answer.get("usage") == ({"input": 12, "output": 7} if name in COUNTED else None), name


ERROR = {"message": "quota for sk-abcdef0123456789 at https://api.example.org", "code": 429}
FAILED: dict[str, Reply] = {
    "an error object": Reply([event({"error": ERROR}), DONE]),
    "an error as a string": Reply([event({"error": "quota"}), DONE]),
    "an error event": Reply([b'event: error\ndata: {"message": "quota"}\n\n', DONE]),
    "an error event in plain words": Reply([b"event: error\ndata: out of quota\n\n"]),
    "an error by its type": Reply([event({"object": "error", "message": "quota", "code": 400}), DONE]),
    "an error in a choice": Reply([event({"choices": [{"error": ERROR, "delta": {}}]}), DONE]),
    "an end by an error": Reply([delta("", role="assistant"), delta(finish="error"), DONE]),
    "no stream at all": plain(json.dumps({"error": ERROR}).encode()),
    "no stream and no error": plain(b"{}"),
    "a page": plain(b"<!DOCTYPE html><html>sign in</html>", content_type="text/html"),
    "nothing": Reply([]),
    "a cut before the first word": Reply([delta("", role="assistant"), End.FIN]),
    "a refusal": refuses(500, "KeyError: {'x'} in https://api.example.org/app.py"),
}
BROKEN: dict[str, list[Step]] = {
    "an error object": [event({"error": ERROR}), DONE],
    "an error as a string": [event({"error": "quota"}), DONE],
    "an error event": [b'event: error\ndata: {"message": "quota"}\n\n', DONE],
    "an end by an error": [delta(finish="error"), DONE],
    "a proper end of the connection": [],
    "a cut": [End.FIN],
    "a reset": [0.05, End.RST],
    "half an event": [delta("!")[:30]],
    "half an event and a cut": [delta("!")[:30], End.FIN],
    "the model's limit": [delta(finish="length"), DONE],
    "the provider's filter": [delta(finish="content_filter"), DONE],
}
INNER = ("quota", "sk-", "http", "Traceback", "Error", "{", "aiohttp", "127.0.0.1", "html")
"""What no person is to read."""


@BOTH
async def test_a_failure_is_told_and_is_no_answer(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """E02, E03: an error in whatever form, inside a good answer or instead of one: one plain sentence in the chat, nothing in the history
    that the model would take for its words, and the next question is answered."""
    chats = dict(enumerate(FAILED, 1))
    replies(model, FAILED)
    for chat, name in chats.items():
        tg.say(chat, name)
    for chat, name in chats.items():
        said = await told(tg, chat, "model", ".")
        assert not [word for word in INNER if word in said], (name, said)
    for chat in chats:
        tg.say(chat, "and now?")
        await until(tg, chat, lambda seen: len(seen) == 2 and seen[-1].endswith("and now?"))
    assert await daemon.stop() == 0
    for chat, name in chats.items():
        assert len(tg.visible(chat)) == 2, name
        answers = [line for line in session_lines(daemon.data, chat) if line.get("role") == "assistant"]
        assert [line["content"].startswith("Heard:") for line in answers] == [True], name
    assert "Traceback" not in daemon.text()
    check_texts(tg)


@BOTH
async def test_half_an_answer_is_marked_as_such(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """E02, E03: what was said stands, once, with a mark, in the chat and in the history; the model is not asked again; /retry asks it."""
    chats = dict(enumerate(BROKEN, 1))
    replies(model, {name: Reply([*map(delta, PARTS[:2]), *rest]) for name, rest in BROKEN.items()})
    for chat, name in chats.items():
        tg.say(chat, name)
    for chat, name in chats.items():
        said = await told(tg, chat, "The answer is forty", "(", ")")
        assert said.startswith("The answer is forty\n")
        assert not [word for word in INNER if word in said], (name, said)
    assert len(model.asked) == len(BROKEN)
    model.script(lambda asked: None)
    for chat in chats:
        tg.say(chat, "and then?")
    for chat in chats:
        await until(tg, chat, lambda seen: seen[1:] == ["Heard: and then?"])
    seen = {asked.messages[1].content: [m.content for m in asked.messages[1:]] for asked in model.asked[len(BROKEN) :]}
    for name in BROKEN:
        assert seen[name] == [name, "The answer is forty", "and then?"]
    for chat in chats:
        tg.say(chat, "/undo")
        tg.say(chat, "/retry")
    for chat, name in chats.items():
        await tg.wait_for(lambda chat=chat, name=name: tg.visible(chat)[-1] == f"Heard: {name}", PATIENCE, chat=chat)  # type: ignore[misc]
    assert await daemon.stop() == 0
    for chat, name in chats.items():
        answers = [line for line in session_lines(daemon.data, chat) if line.get("role") == "assistant"]
        assert [(line["content"], line.get("interrupted", False)) for line in answers] == [
            ("The answer is forty", True),
            ("Heard: and then?", False),
            (f"Heard: {name}", False),
        ]


async def test_an_answer_that_broke_off_unseen_comes_whole(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """E03: nothing had been shown, so that it is asked for again, and nobody notices."""
    broken = (Reply(before=End.RST), Reply([delta("", role="assistant"), End.FIN]), Reply([delta(" \n"), End.RST]), Reply([]))
    for n, reply in enumerate(broken):
        model.then(reply)
        tg.say(n + 1, f"q{n}")
        await model.wait(2 * n + 1)
        await shown(tg, n + 1, f"Heard: q{n}")
    assert await daemon.stop() == 0
    assert [tg.visible(n + 1) for n in range(len(broken))] == [[f"Heard: q{n}"] for n in range(len(broken))]
    assert len(model.asked) == 2 * len(broken)
