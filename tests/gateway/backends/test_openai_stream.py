from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing

import pytest

from gateway.backends.base import Done, Reasoning, Text
from gateway.backends.openai import OpenAI
from gateway.message import Usage
from tests.fakes.openai import DONE, End, FakeModel, Reply, Step, delta, event, plain, says
from tests.gateway.backends.asking import ASK, SOURCE, fault, read, text


def spell(text: str) -> list[bytes]:
    return [delta("", role="assistant"), *(delta(letter) for letter in text), delta(finish="stop"), DONE]


WAYS: dict[str, list[Step]] = {
    "crlf": [part.replace(b"\n", b"\r\n") for part in spell(SOURCE)],
    "cr": [part.replace(b"\n", b"\r") for part in spell(SOURCE)],
    "crlf split": [piece for part in spell(SOURCE) for piece in (part.replace(b"\n", b"\r\n")[:-1], b"\n")],
    "byte by byte": [bytes([byte]) for byte in b"".join(spell(SOURCE))],
    "one segment": [b"".join([*(delta(letter) for letter in SOURCE), *[delta("")] * 500, delta(finish="stop"), DONE])],
    "comments": [b": PROCESSING\n\n", *(b": k\n" + part + b"event: message\nid: 1\nretry: 5\n: k\n\n" for part in spell(SOURCE))],
    "bad proxy": [b"data: : PROCESSING\n\n", *(part for part in spell(SOURCE))],
    "no space": [part.replace(b"data: ", b"data:") for part in spell(SOURCE)],
    "no done": [*spell(SOURCE)[:-1]],
    "done only": [*spell(SOURCE)[:-2], DONE],
    "reset when complete": [*spell(SOURCE)[:-1], End.RST],
    "no last blank line": [*spell(SOURCE)[:-1], b"data: [DONE]"],
    "escapes": [b'data: {"choices":[{"delta":{"content":' + json.dumps(SOURCE).encode() + b'},"finish_reason":"stop"}]}\n\n'],
    "usage last": [*spell(SOURCE)[:-1], event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}), DONE],
}


@pytest.mark.parametrize("way", WAYS)
async def test_the_text_is_exact_whatever_the_wire_does(model: FakeModel, make: Callable[..., OpenAI], way: str) -> None:
    """E09, E10, E11: line ends, segments, comments, noise, a missing [DONE]: not a character is lost or added."""
    model.then(Reply(WAYS[way]))
    assert text(await read(make())) == SOURCE


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
async def test_a_whole_answer_instead_of_a_stream(model: FakeModel, make: Callable[..., OpenAI], kind: str) -> None:
    """A server that ignores `stream` is understood; an error in the same form is a failure (E02)."""
    message = {"role": "assistant", "content": SOURCE, "reasoning_content": "hm"}
    body = {"model": "m", "choices": [{"message": message, "finish_reason": "length"}], "usage": {"prompt_tokens": 1}}
    model.then(plain(b" \n" + json.dumps(body, indent=1).encode(), content_type=kind))
    assert await read(make()) == [Reasoning("hm"), Text(SOURCE), Done(reason="length", model="m", usage=Usage(1, 0))]
    for bad in (
        b'{"error":{"message":"quota","code":429}}',
        b'{"error":"x"}',
        b"{}",
        b'{"choices":[]}',
        b'{"choices":[{"mess',
        b"{\n}\n{\n}",
    ):
        model.then(plain(bad, content_type=kind))
        await fault(make())


CUTS: dict[str, Reply] = {
    "fin in chunked": Reply([delta("The answer is "), delta("forty"), End.FIN]),
    "rst": Reply([delta("The answer is "), delta("forty"), 0.02, End.RST]),
    "proper end": Reply([delta("The answer is "), delta("forty")]),
    "half an event": Reply([delta("The answer is "), delta("forty")[:40]]),
    "half a chunk": Reply(
        [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + b"x" * 40], wire=True
    ),
    "close-delimited": Reply([b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + delta("forty")], wire=True),
    "less than announced": Reply([b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + delta("forty")], wire=True),
    "nothing": Reply([]),
    "only comments": Reply([b": a\n\n: b\n\n"]),
    "before the status": Reply(before=End.RST),
    "before the status, politely": Reply(before=End.FIN),
    "not http": Reply([b"SSH-2.0-OpenSSH_9.6\r\n"], wire=True),
    "error after deltas": Reply([delta("a"), delta("b"), delta("c"), event({"error": {"message": "quota", "code": 429}}), DONE]),
    "error event": Reply([b'event: error\ndata: {"message":"boom"}\n\n', DONE]),
    "error string": Reply([event({"error": "boom"}), DONE]),
    "content is a number": Reply([event({"choices": [{"delta": {"content": 42}}]}), delta(finish="stop"), DONE]),
}


@pytest.mark.parametrize("way", CUTS)
async def test_what_is_no_whole_answer_is_a_failure(model: FakeModel, make: Callable[..., OpenAI], way: str) -> None:
    """E02, E03, E04: every way to break off or to report an error inside a 200 raises, may pass, and says so in plain words."""
    model.then(CUTS[way])
    assert (await fault(make())).retryable


async def test_a_page_is_no_answer(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """A login page with status 200 in front of the model."""
    model.then(plain(b"\n<!DOCTYPE html><html>sign in</html>", content_type="text/html"))
    assert not (await fault(make())).retryable


async def test_an_event_without_end_is_not_kept_in_memory(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """The connection is closed at the bound."""
    model.then(Reply(b"data: " + b"x" * 65536 for _ in range(10_000)))
    await fault(make())
    await asyncio.wait_for(model.asked[0].done.wait(), 5)
    assert model.asked[0].sent < 64 << 20


async def test_closing_the_stream_closes_the_connection(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """E21: whoever has heard enough costs the server nothing more."""
    model.then(Reply(delta("Done. ") for _ in range(10_000_000)))
    async with aclosing(make().stream(ASK)) as stream:
        async for _ in stream:
            break
    await asyncio.wait_for(model.asked[0].done.wait(), 5)
    assert model.asked[0].ended == "left"


async def test_a_finished_answer_leaves_its_connection_for_the_next(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """Ten answers in a row need one connection."""
    backend = make()
    for _ in range(10):
        await read(backend)
    assert len({asked.peer for asked in model.asked}) == 1


async def test_two_failures_in_a_row_leave_nothing_behind(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """After any fault the next question is answered."""
    backend = make(first_token_timeout=2.0)
    for way in CUTS.values():
        model.then(way)
        await fault(backend)
        assert text(await read(backend)) == "Heard: How are you?"
    model.then(says("x", hang_after=1))
    task = asyncio.create_task(read(backend))
    await model.wait(len(model.asked) + 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert text(await read(backend)) == "Heard: How are you?"
