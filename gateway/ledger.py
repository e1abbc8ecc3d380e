"""Where lanes record what they did: an answer's `sent` stands in its session, everything else in the journal (architecture, section 3).

Called by `gateway.outbox` alone, without any key lock, in tasks that nobody cancels (`outbox.wire.Records`).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

import structlog

from channels.failpoints import reach
from gateway.errors import Conflict, Corrupt, NoSession
from gateway.inbox import Inbox
from gateway.message import SessionKey
from gateway.outbox import Delivery
from gateway.sessions import SessionManager

log = structlog.get_logger(__name__)


class JournalLedger:
    """`outbox.Ledger` over the inbox and the sessions."""

    def __init__(self, inbox: Inbox, sessions: SessionManager) -> None:
        self._inbox = inbox
        self._sessions = sessions

    def placed(self, input_id: str, piece: int, message_id: str) -> asyncio.Future[None]:
        reach("placed before")
        recorded = self._inbox.placed(input_id, piece, message_id)
        recorded.add_done_callback(lambda _: reach("placed after"))
        return recorded

    async def sent(self, delivery: Delivery, span: tuple[int, int], ids: Sequence[str], unknown: bool, last: bool) -> None:
        # The last `sent` and `finished` go to the disk in one batch, in this order.
        reach("sent before")
        if delivery.answer is None:
            recorded = self._inbox.sent(delivery.input_id, span, ids, unknown)
            finishing = self._finishing(delivery, "") if last else None
            await recorded
        else:
            committed = self._commit(delivery, span, ids, unknown=unknown)
            finishing = self._finishing(delivery, "") if last else None
            await self._committed(delivery, committed)
        reach("sent after")
        if finishing is not None:
            await self._finished(delivery, finishing)

    async def stopped(self, delivery: Delivery, start: int) -> None:
        reach("sent before")
        await self._committed(delivery, self._commit(delivery, (start, len(delivery.text)), (), stopped=True))
        reach("sent after")

    def _commit(
        self, delivery: Delivery, span: tuple[int, int], ids: Sequence[str], *, unknown: bool = False, stopped: bool = False
    ) -> asyncio.Future[int]:
        assert delivery.answer is not None
        name, seq = delivery.answer
        key, for_ = SessionKey.parse(delivery.key), delivery.input_id
        return self._sessions.commit_sent(key, name, seq, span, ids, unknown, stopped=stopped, for_=for_)

    async def _committed(self, delivery: Delivery, committed: asyncio.Future[int]) -> None:
        name = delivery.answer[0] if delivery.answer is not None else ""
        try:
            await committed
        except NoSession:
            return  # deleted for good while its last answer was on the way: there is nothing left to keep books on
        except PermissionError as error:  # no waiting helps, and the chat's other messages would wait with it
            log.error("delivery cannot be recorded", key=delivery.key, session=name, fault=error.strerror)
        except Conflict as error:
            # A commit before this one failed. The session is read again when the lane repeats the record.
            raise OSError(errno.EAGAIN, "the session is to be read again") from error
        except Corrupt as error:
            log.error("delivery cannot be recorded", key=delivery.key, path=error.path, line=error.line, fault=error.text)

    async def finished(self, delivery: Delivery, reason: str) -> None:
        await self._finished(delivery, self._finishing(delivery, reason))

    def _finishing(self, delivery: Delivery, reason: str) -> asyncio.Future[None]:
        reach("finished before")
        return self._inbox.finished(delivery.input_id, reason)

    async def _finished(self, delivery: Delivery, finishing: asyncio.Future[None]) -> None:
        await finishing
        reach("finished after")
        if delivery.answer is not None:
            self._sessions.unpin(SessionKey.parse(delivery.key), delivery.answer[0])
