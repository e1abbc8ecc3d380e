from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import aiohttp
import pytest

from channels.settings import Secret
from gateway.backends.base import Done, Text
from gateway.backends.openai import OpenAI
from gateway.errors import BackendError
from gateway.message import ChatMessage, Request, ToolCall, Usage
from tests.fakes.openai import DONE, End, FakeModel, Reply, delta, nobody, plain, refuses
from tests.gateway.backends.asking import KEY, fault, read, text

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


async def test_a_long_conversation_is_sent_whole(model: FakeModel, make: Callable[..., OpenAI]) -> None:
    """D30: megabytes go out without a warning; what the server says to them is told as what it is."""
    long = Request((ChatMessage("user", "\u00e9" * 2_000_000),))
    assert len(text(await read(make(), long))) == 2_000_007
    model.max_context = 8192
    error = await fault(make(), long)
    assert (error.overflow, error.retryable) == (True, False)


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
