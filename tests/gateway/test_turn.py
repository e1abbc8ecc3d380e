from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from itertools import pairwise

import pytest

from channels.settings import Secret
from gateway import turn
from gateway.backends.base import Done, Part, Reasoning, Text
from gateway.backends.openai import OpenAI
from gateway.errors import BackendError
from gateway.message import ChatMessage, Request, ToolCall, Usage
from gateway.turn import Outcome, blank, run
from tests.fakes.openai import DONE, End, FakeModel, Reply, delta, event, nobody, plain, refuses, says

ASK = Request((ChatMessage("user", "How are you?"),))
KEY = "sk-proj-secret-0123456789abcdef"


class Script:
    """A backend that answers each question with the next list of parts; an exception in it is raised."""

    name = "script"

    def __init__(self, *answers: list[Part | BackendError]) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.closed = 0

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        self.asked += 1
        try:
            for part in self.answers.pop(0):
                if isinstance(part, BackendError):
                    raise part
                yield part
        finally:
            self.closed += 1

    async def check(self) -> None: ...

    async def close(self) -> None: ...


class Waits:
    """A sleep that takes no time and remembers."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def ask(*answers: list[Part | BackendError], chars: int = 1000, waits: Waits | None = None) -> tuple[Outcome, str, Script]:
    backend, seen = Script(*answers), list[str]()
    outcome = await run(backend, ASK, on_text=seen.append, max_chars=chars, sleep=waits or Waits(), chance=lambda: 0.5)
    assert bool(outcome.text) != bool(outcome.failed)
    assert backend.closed == backend.asked
    assert not seen or not blank(seen[0])
    return outcome, "".join(seen), backend


def stop(reason: str = "stop", calls: tuple[ToolCall, ...] = ()) -> Done:
    return Done(reason=reason, tool_calls=calls, model="m", usage=Usage(1, 2))  # type: ignore[arg-type]


def passing(after: float | None = None) -> BackendError:
    return BackendError("The server is busy.", retryable=True, after=after)


FINAL = BackendError("The server does not accept our key.", retryable=False)


async def test_a_whole_answer() -> None:
    """Text as it grows, then what it came to."""
    outcome, seen, _ = await ask([Text("Fine, "), Reasoning("hm"), Text("thanks.\n"), stop()])
    assert outcome == Outcome(text="Fine, thanks.", reason="stop", reasoning="hm", model="m", usage=Usage(1, 2))
    assert seen == "Fine, thanks.\n"


@pytest.mark.parametrize(
    ("error", "problem", "lasting"),
    [
        (BackendError("No such model.", retryable=False, lasting=True), "No such model.", True),
        (BackendError("Nobody is there.", retryable=True), "Nobody is there.", False),
        (BackendError("Too long.", retryable=False, overflow=True), "", False),
    ],
)
async def test_what_is_wrong_with_the_backend_is_told_apart_from_advice(error: BackendError, problem: str, lasting: bool) -> None:
    """For the daemon's picture of it: the fault without "try again", whether it lasts, and nothing where the question was at fault."""
    answers: list[list[Part | BackendError]] = [[error]] * turn.TRIES
    outcome, _, _ = await ask(*answers)
    assert (outcome.problem, outcome.lasting) == (problem, lasting)
    assert error.said in outcome.failed


# --------------------------------------------------------------------------------------------------------------------- nothing is said


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [Text("")],
        [Text(""), Text(" \n\n ")],
        [Text("\u200b")],
        [Text("\ufeff"), Text("\u2060\u00a0\u3164")],
        [Text("**"), Text("**")],
        [Text("* "), Text("*\n"), Text("**")],
        [Text("\u202e\u200f\ufe0f\u2800")],
    ],
)
async def test_an_answer_that_nobody_could_see_is_told(parts: list[Part]) -> None:
    """A15: empty, blank, zero-width or bare marks: one sentence, nothing shown, nothing to store, no second question."""
    outcome, seen, backend = await ask([*parts, stop()])
    assert outcome.failed == turn.EMPTY
    assert (outcome.text, seen, backend.asked) == ("", "", 1)


@pytest.mark.parametrize("text", ["**", "-", "\U0001f44d", "0", "`**`", "#", "\u200d\U0001f469", "---", "\u4f60"])
async def test_an_answer_of_one_sign_is_an_answer(text: str) -> None:
    """What can be seen is not called empty."""
    assert (await ask([Text(text), stop()]))[0].text == text


@pytest.mark.parametrize("thoughts", [[Reasoning("hm")] * 40, [Reasoning("hm"), Text(" ")]])
async def test_an_answer_of_thoughts_only_is_told(thoughts: list[Part]) -> None:
    """E12, D26: no empty turn; the thoughts are not shown."""
    outcome, seen, _ = await ask([*thoughts, stop()])
    assert (outcome.failed, outcome.text, seen) == (turn.ONLY_THOUGHT, "", "")
    outcome, _, _ = await ask([Reasoning(""), stop()])
    assert (outcome.failed, outcome.reasoning) == (turn.EMPTY, "")


@pytest.mark.parametrize(
    ("reason", "failed", "note"),
    [
        ("length", turn.NOTHING_WITHIN_LENGTH, turn.CUT_BY_LENGTH),
        ("content_filter", turn.FILTERED, turn.CUT_BY_FILTER),
        ("tool_calls", turn.TOOL, f"({turn.TOOL})"),
    ],
)
async def test_the_reason_for_stopping_is_told(reason: str, failed: str, note: str) -> None:
    """D26, E15: with text it is a mark under the answer, without it is the sentence; a call that was not offered is not handed on."""
    calls = (ToolCall("a", "rm", {}),) if reason == "tool_calls" else ()
    outcome, _, _ = await ask([stop(reason, calls)])
    assert (outcome.failed, outcome.tool_calls) == (failed, ())
    outcome, _, _ = await ask([Text("Well"), stop(reason, calls)])
    assert (outcome.text, outcome.note, outcome.interrupted, outcome.tool_calls) == ("Well", note, True, ())


# -------------------------------------------------------------------------------------------------------------------------- limits


async def test_an_answer_without_end_is_cut() -> None:
    """E21: at the limit exactly, with a mark, and the stream is closed; what is shown is what is kept."""
    backend, seen = Script([Text("Done. ")] * 200_000), list[str]()
    outcome = await run(backend, ASK, on_text=seen.append, max_chars=1000)
    assert outcome.text == ("Done. " * 200)[:1000].rstrip()
    assert (outcome.note, outcome.interrupted) == (turn.CUT_BY_US, True)
    assert "".join(seen) == ("Done. " * 200)[:1000]
    assert backend.closed == 1
    exact, _, _ = await ask([Text("x" * 1000), stop()], chars=1000)
    assert (exact.note, exact.interrupted) == ("", False)


async def test_thinking_without_end_is_cut() -> None:
    """E21: thoughts have a limit too, before the first word and behind it, and blank text as well."""
    outcome, _, _ = await ask([Reasoning("hm ")] * 200_000, chars=100)
    assert outcome.failed == turn.THOUGHT_TOO_LONG
    outcome, _, _ = await ask([Text("Well"), *[Reasoning("hm ")] * 200_000], chars=100)
    assert (outcome.text, outcome.note) == ("Well", turn.CUT_BY_US)
    outcome, seen, _ = await ask([Text("\n")] * 200_000, chars=100)
    assert (outcome.failed, seen) == (turn.EMPTY, "")


async def test_a_long_answer_costs_time_by_its_length_only() -> None:
    """Thirty thousand deltas are handed on one by one, never as the whole text again."""
    sizes: list[int] = []
    backend = Script([*[Text("word ")] * 30_000, stop()])
    began = time.perf_counter()
    outcome = await run(backend, ASK, on_text=lambda text: sizes.append(len(text)), max_chars=1_000_000)
    assert time.perf_counter() - began < 3
    assert (sum(sizes), max(sizes), len(outcome.text)) == (150_000, 5, 149_999)


# -------------------------------------------------------------------------------------------------------------------------- failures


async def test_what_may_pass_is_tried_again() -> None:
    """E03: before the first word, three times in all, with growing pauses; thoughts and blanks are no word."""
    waits = Waits()
    outcome, seen, backend = await ask([passing()], [Reasoning("x"), Text("\n"), passing()], [Text("Hi"), stop()], waits=waits)
    assert (outcome.text, outcome.failed, outcome.reasoning, seen) == ("Hi", "", None, "Hi")
    assert waits.seconds == [0.75, 1.5]
    outcome, _, backend = await ask([passing()], [passing()], [passing()], [Text("never")])
    assert backend.asked == 3
    assert outcome.failed == "The server is busy. Please try again a little later."


async def test_what_will_not_pass_is_told_at_once() -> None:
    """E18: one question, one sentence."""
    outcome, _, backend = await ask([FINAL])
    assert (outcome.failed, backend.asked, outcome.overflow) == (FINAL.said, 1, False)


async def test_too_long_is_marked_for_whoever_can_shorten() -> None:
    """D30: not repeated as it is; the sentence names the cause and a way out."""
    outcome, _, backend = await ask([BackendError("This conversation is too long for the model.", retryable=False, overflow=True)])
    assert (outcome.overflow, backend.asked) == (True, 1)
    assert "too long" in outcome.failed
    assert "/reset" in outcome.failed


async def test_a_wait_that_is_asked_for_is_waited() -> None:
    """E17: at least that long, and a little of our own on top, so that many chats do not return together."""
    waits = Waits()
    outcome, _, _ = await ask([passing(10.0)], [passing(0.0)], [Text("Hi"), stop()], waits=waits)
    assert outcome.text == "Hi"
    assert waits.seconds == [10.75, 1.5]


@pytest.mark.parametrize(
    ("after", "when"),
    [
        (31.0, "in 31 seconds"),
        (120.0, "in 2 minutes"),
        (3600.0, "in 60 minutes"),
        (7200.0, "in 2 hours"),
        (200_000.0, "in some days"),
        (1e9, "much later"),
    ],
)
async def test_a_wait_that_is_too_long_is_told(after: float, when: str) -> None:
    """E16: nobody sits in a locked chat for an hour; the sentence says when to come back."""
    waits = Waits()
    outcome, _, backend = await ask([passing(after)], waits=waits)
    assert outcome.failed == f"The server is busy. Please try again {when}."
    assert (backend.asked, waits.seconds) == (1, [])


@pytest.mark.parametrize("error", [passing(), FINAL, passing(3600.0)])
async def test_what_was_said_stands(error: BackendError) -> None:
    """E03, E04: after the first word nothing is repeated; the text is kept, marked, with the reason in plain words."""
    outcome, seen, backend = await ask([Text("The answer is "), Text("forty"), error])
    assert (outcome.text, outcome.interrupted, seen) == ("The answer is forty", True, "The answer is forty")
    assert outcome.note == f"({error.said} The answer is not complete.)"
    assert backend.asked == 1


async def test_cancelling_passes_and_closes() -> None:
    """/stop ends the stream; what was seen is what was handed on, also while a retry is waited for."""
    seen: list[str] = []

    class Slow(Script):
        began = asyncio.Event()

        async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
            try:
                yield Text("Well, ")
                self.began.set()
                await asyncio.Event().wait()
            finally:
                self.closed += 1

    backend = Slow()
    task = asyncio.create_task(run(backend, ASK, on_text=seen.append, max_chars=100))
    await backend.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (seen, backend.closed) == (["Well, "], 1)
    task = asyncio.create_task(run(Script([passing(20.0)]), ASK, on_text=seen.append, max_chars=100))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ------------------------------------------------------------------------------------------------- with the real client and a real server


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with FakeModel() as fake:
        yield fake


@pytest.fixture
async def openai(model: FakeModel) -> AsyncIterator[Callable[..., OpenAI]]:
    made: list[OpenAI] = []

    def build(base_url: str = "") -> OpenAI:
        address = base_url or model.base_url
        made.append(OpenAI(base_url=address, model="fake", api_key=Secret(KEY), first_token_timeout=0.5, idle_timeout=0.5, env={}))
        return made[-1]

    yield build
    for backend in made:
        await backend.close()


async def turn_of(backend: OpenAI) -> tuple[Outcome, str]:
    seen: list[str] = []
    outcome = await run(backend, ASK, on_text=seen.append, max_chars=5000, sleep=Waits())
    for said in (outcome.failed, outcome.note, outcome.text):
        assert not any(word in said for word in ("<html", "Traceback", "http", "aiohttp", "Error", "incomplete", KEY, "127.0.0.1"))
    return outcome, "".join(seen)


@pytest.mark.parametrize(
    ("reply", "times", "words"),
    [
        (plain(b"", 429, "text/plain"), 3, "too often"),
        (plain(b"<html><body>boom</body></html>", 500, "text/html"), 3, "problem of its own"),
        (refuses(401, f"Incorrect API key provided: {KEY}"), 1, "key"),
        (refuses(404, "The model `fake` does not exist", code="model_not_found"), 1, "does not know this model"),
        (refuses(429, "", headers={"Retry-After": "3600"}), 1, "in 60 minutes"),
        (refuses(400, "x", code="context_length_exceeded"), 1, "too long"),
        (Reply(before=End.RST), 3, "broke off"),
        (Reply([End.HANG]), 1, "did not begin"),
        (Reply([event({"error": "quota"}), DONE]), 3, "error"),
        (Reply([delta(None, reasoning_content="hm"), delta(finish="stop"), DONE]), 1, "only thought"),
    ],
)
async def test_one_sentence_a_turn(model: FakeModel, openai: Callable[..., OpenAI], reply: Reply, times: int, words: str) -> None:
    """E16, E18, E19, F02: whatever the server does ten times over, the person reads one plain sentence, and the next turn works."""
    model.then(*[reply] * times)
    backend = openai()
    outcome, seen = await turn_of(backend)
    assert words in outcome.failed
    assert (seen, len(model.asked)) == ("", times)
    assert (await turn_of(backend))[0].text == "Heard: How are you?"


async def test_a_server_that_is_not_there(openai: Callable[..., OpenAI]) -> None:
    """E18: told, after three tries."""
    async with nobody() as url:
        outcome, _ = await turn_of(openai(url))
    assert outcome.failed == "The model's server cannot be reached. Please try again a little later."


@pytest.mark.parametrize("end", [End.FIN, End.RST, End.HANG, event({"error": {"message": "quota"}}), delta("x")[:30]])
async def test_a_cut_after_the_first_word(model: FakeModel, openai: Callable[..., OpenAI], end: bytes | End) -> None:
    """E02, E03, E04, E19: the half stands with its mark, once; there is no second question."""
    model.then(Reply([delta("The answer is "), delta("forty"), 0.02, end]))
    outcome, seen = await turn_of(openai())
    assert (outcome.text, seen, outcome.interrupted) == ("The answer is forty", "The answer is forty", True)
    assert outcome.note
    assert len(model.asked) == 1


async def test_a_cut_before_the_first_word_is_made_good(model: FakeModel, openai: Callable[..., OpenAI]) -> None:
    """E03: nothing was shown, so the whole answer is."""
    model.then(Reply([delta("", role="assistant"), End.RST]), Reply([delta("\n\n"), End.FIN]))
    outcome, seen = await turn_of(openai())
    assert (outcome.text, seen, outcome.note) == ("Heard: How are you?", "Heard: How are you?", "")


async def test_a_flood_is_stopped_at_the_source(model: FakeModel, openai: Callable[..., OpenAI]) -> None:
    """E21: at the limit the connection is closed by us."""
    model.then(Reply(delta("Done. ") for _ in range(10_000_000)))
    outcome, _ = await turn_of(openai())
    assert len(outcome.text) <= 5000
    assert outcome.note == turn.CUT_BY_US
    await asyncio.wait_for(model.asked[0].done.wait(), 5)
    assert model.asked[0].ended == "left"


async def test_chats_that_must_wait_come_back_apart(model: FakeModel, openai: Callable[..., OpenAI]) -> None:
    """E17: three chats at once, a server that wants a second of peace: no question within it, and all are answered."""
    first: list[float] = []

    def busy(asked: object) -> Reply | None:
        now = time.monotonic()
        first.append(now)
        return refuses(429, "slow down", retry_after=1, headers={"Retry-After": "1"}) if now < first[0] + 1 else None

    model.script(busy)
    backend = openai()
    outcomes = await asyncio.gather(*(run(backend, ASK, on_text=lambda text: None, max_chars=100) for _ in range(3)))
    assert [outcome.text for outcome in outcomes] == ["Heard: How are you?"] * 3
    again = sorted(at for at in first if at > first[0] + 0.5)
    assert len(first) == 6
    assert again[0] > first[0] + 1
    assert all(later > earlier for earlier, later in pairwise(again))


async def test_an_answer_is_exact(model: FakeModel, openai: Callable[..., OpenAI]) -> None:
    """E11, E14: hidden thoughts are never handed on, the rest is, to the character."""
    source = "naive -> \u4f60\u597d \U0001f680 \u05e9\u05dc\u05d5\u05dd"
    model.then(says(f"<think>secret</think>\n\n{source}", deltas=1000))
    outcome, seen = await turn_of(openai())
    assert (outcome.text, seen) == (source, source)
