"""A question to the model, as a turn asks it: the window, the answer that grows, what is counted of it. It commits nothing.

Called by `gateway.work`, under the key's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from gateway.message import STOPPED, Request
from gateway.metrics import Metrics
from gateway.outbox import Stream
from gateway.running import Model, Running, unless_cancelled
from gateway.session import Session
from gateway.tasks import Restarts
from gateway.turn import Asking, Outcome
from gateway.window import TooLong, build

log = structlog.get_logger(__name__)

BROKEN = "Something went wrong in here, and your message was not answered. It is in the log."
BROKEN_OFF = "Something went wrong in here. The answer is not complete."


class Questions:
    """`model` may be replaced at any time; a turn goes on with the one that it began with."""

    def __init__(self, model: Model, asking: Asking, heard: Callable[[Outcome], None], metrics: Metrics, restarts: Restarts) -> None:
        self.model = model
        self._asking, self._heard, self._metrics, self._restarts = asking, heard, metrics, restarts

    async def ask(self, session: Session, running: Running, stream: Stream, *, names: bool) -> Outcome | None:
        """What came of it, counted; None where the turn was stopped before a word was said."""
        began = asyncio.get_running_loop().time()
        outcome = await self._outcome(session, running, stream, began, names=names)
        self._count(outcome, began)
        if outcome is not None:
            self._heard(outcome)
        return outcome

    async def _outcome(self, session: Session, running: Running, stream: Stream, began: float, *, names: bool) -> Outcome | None:
        """Ask the model; None where the turn was stopped before a word was said. A request that is too long for the model is tried again
        with half the history, twice."""
        model = self.model
        outcome = Outcome(failed=BROKEN)
        for tokens in (model.history_tokens, model.history_tokens // 2, model.history_tokens // 4):
            try:
                request = build(session, system=model.system, messages=model.history_messages, tokens=tokens, names=names)
            except TooLong as error:
                return Outcome(failed=error.said, overflow=True)  # which says nothing about how the model is
            said: list[str] = []
            if running.stopped():
                return None
            running.asking = asyncio.create_task(self._stream(model, request, said, stream, began))
            try:
                outcome = await running.asking
            except (Exception, asyncio.CancelledError) as error:
                running.asking.cancel()
                await asyncio.wait({running.asking})
                unless_cancelled()
                text = "".join(said)
                if running.stopped() and running.asking.cancelled():
                    return Outcome(text=text, interrupted=True, note=STOPPED) if text.strip() else None
                self._restarts.note("turn", type(error).__name__)
                log.error("the model's adapter failed", backend=model.backend.name, key=str(session.key), exc_info=error)
                return Outcome(text=text, interrupted=True, note=f"({BROKEN_OFF})") if text.strip() else Outcome(failed=BROKEN)
            finally:
                running.asking = None
            if not outcome.overflow:
                break
        return outcome

    async def _stream(self, model: Model, request: Request, said: list[str], stream: Stream, began: float) -> Outcome:
        loop = asyncio.get_running_loop()
        soon = loop.time() + 0.1 * model.patience

        def grow(text: str) -> None:
            nonlocal soon
            now = loop.time()
            if not said:
                self._metrics.first_token.observe(now - began)
            said.append(text)
            stream.grow(text)
            if now > soon:  # not for every word
                alarm.reschedule(now + model.patience)
                soon = now + 0.1 * model.patience

        async with asyncio.timeout(model.patience) as alarm:
            return await self._asking(model.backend, request, on_text=grow, max_chars=model.max_chars)

    def _count(self, outcome: Outcome | None, began: float) -> None:
        if outcome is None or outcome.note == STOPPED:
            kind = "stopped"
        else:
            kind = "failed" if outcome.failed else "cut" if outcome.interrupted else "answered"
        self._metrics.turns.add(kind)
        self._metrics.turn.observe(asyncio.get_running_loop().time() - began)
        if outcome is not None:
            self._metrics.retries.add(by=outcome.tries - 1)
            if outcome.usage is not None:
                self._metrics.tokens.add("input", by=max(0, outcome.usage.input))
                self._metrics.tokens.add("output", by=max(0, outcome.usage.output))
