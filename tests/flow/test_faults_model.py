"""A model's server, met in every way to go wrong, once and each time: the person reads an answer or one plain sentence, and the next
question is answered."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from tests.fakes.openai import DONE, Asked, End, FakeModel, Reply, delta, event, plain, refuses
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, Daemon
from tests.flow.faults import ALL, PAGE, PATIENCE, Bystander, beside
from tests.flow.people import config
from tests.flow.seen import check_texts, until
from tests.flow.test_model import INNER

BEGUN = "…"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def wire(*steps: bytes | float | End) -> Reply:
    return Reply(steps, wire=True)


SILENT = {
    **{str(status): refuses(status, "KeyError in https://api.example.org/v1?key=sk-1") for status in (400, 401, 403, 404, 409, 413, 422)},
    **{str(status): refuses(status, "no") for status in (500, 502, 503, 504, 529)},
    "429 with a wait": refuses(429, "quota", headers={"Retry-After": "1"}),
    "429 without a wait": refuses(429, "quota"),
    "429 long wait": refuses(429, "quota", headers={"Retry-After": "86400"}),
    "429 odd wait": refuses(429, "quota", headers={"Retry-After": "soon"}),
    "429 page": plain(PAGE, 429, "text/html"),
    "401 page": plain(PAGE, 401, "text/html"),
    "502 page": plain(PAGE, 502, "text/html"),
    "200 page": plain(PAGE, 200, "text/html"),
    "redirect": plain(b"", 302, "text/plain", Location="http://127.0.0.1:1/v1"),
    "204": plain(b"", 204),
    **{f"whole {body.decode()}": plain(body) for body in (b"42", b"[]", b"null", b'"x"', b'{"choices": 1}', b'{"choices": [{"mess')},
    **{f"event {body.decode()}": Reply([b"data: " + body + b"\n\n", DONE]) for body in (b"42", b"[]", b"null", b'{"choices": {}}', b"{")},
    "bytes that are no text": Reply([b"\xff\xfe\x00data\xff\n\n"]),
    "long line": Reply([b"data: " + b"x" * (5 << 20)]),
    "nothing": Reply([]),
    "only the end": Reply([DONE]),
    "hang": Reply([End.HANG], before=End.HANG),
    "hang behind the headers": Reply([End.HANG]),
    "comments for ever": Reply([step for _ in range(100) for step in (b": ping\n\n", 0.1)]),
    "close": Reply(before=End.FIN),
    "reset": Reply(before=End.RST),
    "reset behind the headers": Reply([delta("", role="assistant"), 0.05, End.RST]),
    "no HTTP": wire(b"SSH-2.0-OpenSSH_9.2\r\n", End.FIN),
    "headers without end": wire(HEAD, *(b"X-A: " + b"a" * 8000 + b"\r\n" for _ in range(10)), End.FIN),
    "bad chunks": wire(HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\ndata: {}\r\n", End.FIN),
    "short length": wire(HEAD + b"Content-Length: 10000\r\n\r\ndata: ", End.FIN),
    "no gzip": wire(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain", End.FIN),
}
"""Nothing of an answer is in these."""
BEGINS = {
    "hang": Reply([delta("Half an answer"), End.HANG]),
    "reset": Reply([delta("Half an answer"), 0.05, End.RST]),
    "close": Reply([delta("Half an answer"), 0.05, End.FIN]),
    "garbage": Reply([delta("Half an answer"), b"\xff\xfe\n\ndata: {\n\n", End.FIN]),
    "an error": Reply([delta("Half an answer"), event({"error": {"message": "no"}})]),
    "a number": Reply([delta("Half an answer"), event(42)]),
    "a page": Reply([delta("Half an answer"), PAGE]),
}
SMALL = frozenset(
    {
        "400",
        "401",
        "429 with a wait",
        "429 page",
        "502 page",
        "200 page",
        "whole []",
        "event null",
        "hang",
        "comments for ever",
        "reset",
        "no HTTP",
        "bad chunks",
        "no gzip",
        "long line",
    }
)


class World:
    """The questions name the way in which the model fails, how often, and whose they are."""

    def __init__(self, tg: FakeTelegram) -> None:
        self.tg = tg
        self._asked: Counter[str] = Counter()
        self._plans: dict[str, tuple[Reply, int | None]] = {}
        self._chats = count(1000)

    def answer(self, asked: Asked) -> Reply | None:
        reply, times = self._plans.get(asked.words, (None, 0))
        self._asked[asked.words] += 1
        return reply if times is None or self._asked[asked.words] <= times else None

    async def case(self, name: str, reply: Reply, times: int | None, *, begins: bool = False) -> None:
        tg, chat = self.tg, next(self._chats)
        words = f"{name} of {chat}"
        self._plans[words] = (reply, times)
        tg.say(chat, words)
        tg.say(chat, f"next {chat}")
        try:
            # A question that got no answer is told to the model with the next one.
            seen = await until(
                tg, chat, lambda seen: seen and seen[-1].startswith("Heard:") and seen[-1].endswith(f"next {chat}"), PATIENCE
            )
        except AssertionError as error:
            raise AssertionError(f"{name}, {times}: {error}") from None
        (said, _) = seen  # one text for each
        assert said != BEGUN
        if said == f"Heard: {words}":
            assert times is not None, name
        elif begins:
            assert said.startswith("Half an answer\n"), (name, said)
        else:
            assert said.endswith("."), (name, said)
            assert not any(inner in said for inner in INNER), (name, said)


@pytest.mark.timeout(600 if ALL else 60)
async def test_each_fault_of_a_model_ends_in_words(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Refusals, pages, nonsense, silence, cuts and broken HTTP, before and within an answer: one text for each question, in plain words,
    and the conversation goes on. Somebody in another chat is answered all along."""
    world = World(tg)
    model.script(world.answer)
    limits = 'first_token_timeout = "3s"\nidle_timeout = "3s"'
    async with Daemon(tmp_path, config(tg, model, backend=limits)) as daemon:
        cases = [world.case(n, r, t) for n, r in SILENT.items() if ALL or n in SMALL for t in ((1, None) if ALL else (None,))]
        cases += [world.case(n, r, None, begins=True) for n, r in BEGINS.items()]
        ben = Bystander(lambda text: tg.say(7, text), lambda text: until(tg, 7, lambda seen: seen[-1:] == [f"Heard: {text}"], PATIENCE))
        await beside(ben, cases)
        assert await daemon.stop() == 0
    check_texts(tg)
    said = daemon.text()
    for bad in ("Traceback", "never retrieved", "turn failed", KEY, "sk-1"):
        assert bad not in said, said[max(0, said.find(bad) - 1500) :][:4000]


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
async def test_a_list_of_models_that_fails_stops_nothing(tmp_path: Path, tg: FakeTelegram, model: FakeModel, status: int) -> None:
    """What is asked at the start is for the report alone."""
    model.models_status = status
    async with Daemon(tmp_path, config(tg, model)) as daemon:
        tg.say(42, "hi")
        await until(tg, 42, lambda seen: seen == ["Heard: hi"])
        assert await daemon.stop() == 0
    assert "Traceback" not in daemon.text()
