from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import aiohttp
import pytest

from channels.settings import Secret
from gateway.backends.base import Done, Part, Reasoning, Text
from gateway.backends.openai import OpenAI
from gateway.errors import BackendError
from gateway.message import ChatMessage, Request, ToolCall, Usage
from tests.fakes.openai import DONE, End, FakeModel, Reply, Step, delta, event, nobody, plain, refuses, says

ASK = Request((ChatMessage("system", "Be brief."), ChatMessage("user", "How are you?")))
SOURCE = "naive -> \u4f60\u597d \U0001f680 \u05e9\u05dc\u05d5\u05dd"
KEY = "sk-proj-secret-0123456789abcdef"


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel() as fake:
        yield fake


@pytest.fixture
async def make(model: FakeModel) -> AsyncIterator[Callable[..., OpenAI]]:
    made: list[OpenAI] = []

    def build(base_url: str = "", **settings: object) -> OpenAI:
        defaults: dict[str, object] = {"model": "fake", "first_token_timeout": 5.0, "idle_timeout": 5.0, "env": {}}
        made.append(OpenAI(base_url=base_url or model.base_url, **(defaults | settings)))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for backend in made:
        await backend.close()


async def read(backend: OpenAI, request: Request = ASK) -> list[Part]:
    async with aclosing(backend.stream(request)) as stream:
        return [part async for part in stream]


def text(parts: list[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


async def fault(backend: OpenAI, request: Request = ASK) -> BackendError:
    """How it fails; whatever was said before is passed over."""
    with pytest.raises(BackendError) as caught:
        await read(backend, request)
    assert not any(word in caught.value.said for word in ("<", "http", "127.0.0.1", KEY, "chunk", "Error", "aiohttp"))
    return caught.value


# ---------------------------------------------------------------------------------------------------------------------- what is asked


async def test_a_question_and_its_answer(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """The request carries key, model and messages as the format wants them; the answer comes in deltas, then once Done."""
    model.api_key = KEY
    parts = await read(make(api_key=Secret(KEY)))
    assert text(parts) == "Heard: How are you?"
    assert sum(isinstance(part, Text) for part in parts) == 4
    asked = model.asked[0]
    assert parts[-1] == Done(reason="stop", model="fake", usage=Usage(len(asked.raw) // 4, 4))
    assert json.loads(asked.raw) == {
        "model": "fake",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How are you?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(("setting", "stub"), [("send", "required"), ("drop", "forbidden")])
@pytest.mark.parametrize("thought", [None, "", "because"])
async def test_thoughts_go_back_as_configured(
    model: FakeModel, make: Callable[..., OpenAI], setting: str, stub: str, thought: str | None
) -> None:
    """E23: a server that wants `reasoning_content` back in tool loops, even empty, and one that refuses it are both satisfied."""
    model.reasoning = stub  # type: ignore[assignment]
    call = ToolCall("c1", "look", {"at": "\u00e9"})
    request = Request(
        (
            ChatMessage("user", "Look."),
            ChatMessage("assistant", None, (call,), reasoning=thought),
            ChatMessage("tool", "Nothing.", tool_call_id="c1"),
        )
    )
    assert text(await read(make(reasoning=setting), request)) == "Heard: Look."
    sent = model.asked[0].messages[1]
    assert sent.reasoning_content == (None if setting == "drop" else thought or "")
    assert sent.tool_calls is not None
    assert json.loads(sent.tool_calls[0].function.arguments) == {"at": "\u00e9"}


async def test_a_server_that_does_not_know_stream_options(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """It is asked again without them, once, and from then on without."""
    model.stream_options = False
    backend = make()
    for _ in range(2):
        assert text(await read(backend)) == "Heard: How are you?"
    assert [asked.body.stream_options is None for asked in model.asked] == [False, True, True]
    model.then(refuses(400, "stream_options again"))
    assert not (await fault(backend)).retryable
    assert len(model.asked) == 4


async def test_the_address_may_carry_user_password_query_and_slash(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """F02: they become Basic authorization; a key goes first; none of it is in an error."""
    address = model.base_url.replace("://", "://user:pass%40word@") + "/?api-version=1"
    await read(make(address))
    await read(make(address, api_key=Secret(KEY)))
    assert [asked.headers["Authorization"] for asked in model.asked] == [aiohttp.encode_basic_auth("user", "pass@word"), f"Bearer {KEY}"]
    async with nobody() as url:
        error = await fault(make(url.replace("://", "://user:password@")))
        assert "password" not in str(error) + error.said


async def test_the_key_does_not_follow_a_redirect(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """A server that sends us elsewhere gets one question and no second one."""
    model.then(Reply([], 307, {"Location": f"{model.base_url}/chat/completions"}))
    error = await fault(make(api_key=Secret(KEY)))
    assert "address in the config" in error.said
    assert len(model.asked) == 1


async def test_a_proxy_gets_the_question_and_its_password(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """F21: a model elsewhere is asked through the proxy of the environment; one on this machine is not."""
    proxy = model.base_url.removesuffix("/v1").replace("://", "://user:password@")
    assert text(await read(make("http://model.invalid/v1", env={"HTTP_PROXY": proxy}))) == "Heard: How are you?"
    assert model.asked[0].headers["Host"] == "model.invalid"
    assert model.asked[0].headers["Proxy-Authorization"] == aiohttp.encode_basic_auth("user", "password")
    assert text(await read(make(env={"HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "socks://127.0.0.1:1"}))) == "Heard: How are you?"
    error = await fault(make("http://model.invalid/v1", env={"HTTP_PROXY": "http://user:password@127.0.0.1:1"}))
    assert "proxy" in error.said
    assert "password" not in str(error)


async def test_no_limit_of_connections(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """Two hundred chats are served at once: nobody waits for another's answer."""
    gate = asyncio.Event()
    model.script(lambda asked: Reply([gate, delta("x"), delta(finish="stop"), DONE]))
    backend = make()
    tasks = [asyncio.create_task(read(backend)) for _ in range(200)]
    await model.wait(200)
    gate.set()
    assert [text(parts) for parts in await asyncio.gather(*tasks)] == ["x"] * 200
    assert model.peak == 200


# ------------------------------------------------------------------------------------------------------------------- what is answered


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


# --------------------------------------------------------------------------------------------------------------------------- silence


SILENCES: dict[str, Reply] = {
    "before the status": Reply(before=End.HANG),
    "after the headers": Reply([End.HANG]),
    "after the role": Reply([delta("", role="assistant"), End.HANG]),
    "comments for ever": Reply(step for _ in range(10_000) for step in (b": x\n\n", 0.01)),
    "empty deltas for ever": Reply(step for _ in range(10_000) for step in (delta(""), 0.01)),
    "a flood of comments": Reply(b": x\n\n" * 1000 for _ in range(1_000_000)),
    "a json body that does not come": Reply([b"{", End.HANG]),
}


@pytest.mark.parametrize("way", SILENCES)
async def test_a_model_that_does_not_begin(model: FakeModel, make: Callable[..., OpenAI], way: str) -> None:
    """E19: the first delta has its limit, and nothing but a delta with something in it meets it. Not repeated: who waited is told."""
    model.then(SILENCES[way])
    async with asyncio.timeout(4):
        error = await fault(make(first_token_timeout=0.3))
    assert "begin" in error.said
    assert not error.retryable
    await asyncio.wait_for(model.asked[0].done.wait(), 5)
    assert model.asked[0].ended == "left"


@pytest.mark.parametrize("rest", [[End.HANG], [step for _ in range(500) for step in (b": x\n\n", 0.01)], [delta("")] * 3 + [End.HANG]])
async def test_a_model_that_stops_in_the_middle(model: FakeModel, make: Callable[..., OpenAI], rest: list[Step]) -> None:
    """E19: silence after five deltas, comments included, ends by the idle limit, which is another one than the first."""
    model.then(Reply([*[delta("x")] * 5, *rest]))
    async with asyncio.timeout(4):
        error = await fault(make(first_token_timeout=60.0, idle_timeout=0.3))
    assert "middle" in error.said
    assert not error.retryable


async def test_a_slow_model_is_waited_for(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """E20: the first token may take longer than the idle limit, and an answer longer than both, as long as it goes on."""
    model.then(Reply([*[step for _ in range(10) for step in (b": wait\n\n", 0.05)], *[s for c in SOURCE for s in (delta(c), 0.02)], DONE]))
    assert text(await read(make(first_token_timeout=5.0, idle_timeout=0.4))) == SOURCE


async def test_a_model_that_thinks_is_alive(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """Thoughts count as life, though nobody sees them."""
    thoughts: list[Step] = [step for _ in range(20) for step in (delta(None, reasoning_content="hm"), 0.03)]
    model.then(Reply([*thoughts, delta("x"), delta(finish="stop"), DONE]))
    assert text(await read(make(first_token_timeout=0.4, idle_timeout=0.4))) == "x"


async def test_a_complete_answer_is_not_held_up_by_a_server_that_stays(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """After [DONE], or a while after finish_reason, the connection is ours to close."""
    model.then(Reply([delta("x"), delta(finish="stop"), DONE, End.HANG]), Reply([delta("y"), delta(finish="stop"), End.HANG]))
    model.then(Reply([delta("z"), delta(finish="stop"), *[step for _ in range(1000) for step in (b": z\n\n", 0.02)]]))
    async with asyncio.timeout(2):
        assert text(await read(make())) == "x"
        assert text(await read(make(idle_timeout=0.2))) == "y"
        assert text(await read(make(rest_timeout=0.2))) == "z"


# -------------------------------------------------------------------------------------------------------------------------- refusals


REFUSALS = [
    (refuses(429, "", headers={"Retry-After": "3600"}), True, 3600.0, "too often"),
    (refuses(429, "x", retry_after=10), True, 10.0, "too often"),
    (plain(b"", 429, "text/plain", **{"Retry-After": "-1"}), True, None, "too often"),
    (plain(b"<html><title>502 Bad Gateway</title></html>", 502, "text/html"), True, None, "problem of its own"),
    (refuses(401, f"Incorrect API key provided: {KEY}"), False, None, "key"),
    (refuses(404, "The model `fake` does not exist", code="model_not_found"), False, None, "does not know this model"),
    (refuses(400, "too long", code="context_length_exceeded"), False, None, "too long"),
    (Reply([b"<html>", End.HANG], 503), True, None, "problem of its own"),
    (Reply([b'{"error"', End.RST], 500), True, None, "problem of its own"),
    (Reply((b"x" * 65536 for _ in range(100_000)), 500), True, None, "problem of its own"),
]


@pytest.mark.parametrize(("reply", "retryable", "after", "words"), REFUSALS)
async def test_refusals(
    model: FakeModel,
    make: Callable[..., OpenAI],
    reply: Reply,
    retryable: bool,
    after: float | None,
    words: str,
) -> None:
    """E16, E17, E18: the kind, whether and when it may pass, in plain words; a body that hangs, breaks or floods changes nothing."""
    model.then(reply)
    error = await fault(make(api_key=Secret(KEY), rest_timeout=0.3))
    assert (error.retryable, error.after) == (retryable, after)
    assert words in error.said
    assert KEY not in str(error)


async def test_a_server_that_is_not_there(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """E18: refused, unknown by name, no TLS: each is told apart."""
    async with nobody() as url:
        assert "cannot be reached" in (await fault(make(url))).said
    assert "cannot be found" in (await fault(make("http://model.invalid/v1"))).said
    assert "secure" in (await fault(make(model.base_url.replace("http:", "https:")))).said


async def test_check(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """It asks for the models, which costs nothing; an endpoint without that list is there all the same; a wrong key is told."""
    backend = make()
    await backend.check()
    model.models_status = 404
    await backend.check()
    model.models_status = 500
    with pytest.raises(BackendError):
        await backend.check()
    model.api_key = KEY
    with pytest.raises(BackendError, match="401"):
        await backend.check()
    async with nobody() as url:
        with pytest.raises(BackendError):
            await make(url).check()
    assert not model.asked


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
