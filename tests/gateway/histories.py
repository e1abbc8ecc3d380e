"""Session lines for tests: short builders, and random histories in good and in garbage order.

Used by the tests of session, window and manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from hypothesis import strategies as st

from gateway.message import (
    Again,
    ChatMessage,
    Event,
    Foreign,
    Header,
    Media,
    Message,
    Person,
    Sent,
    SessionKey,
    Summary,
    ToolCall,
    Undo,
)
from gateway.session import Keep, Session
from gateway.window import cost
from tests.fakes.openai_strict import AskedMessage, Call, Function, fault

KEY = SessionKey("telegram", "1")
ALL = Keep(10**9, 10**9, cost)
"""Holds everything."""


def header(name: str = "main") -> Header:
    return Header(v=1, key=str(KEY), name=name, created="2026-11-29T10:00:00.000Z")


def user(text: str = "q", for_: str = "", by: Person | None = None, **more: object) -> Message:
    line = msgspec.convert({"seq": 0, "at": "", "for": for_, "role": "user", "content": text, **more}, Message)
    return msgspec.structs.replace(line, from_=by)


def answer(text: str = "a", for_: str = "", **more: object) -> Message:
    return msgspec.convert({"seq": 0, "at": "", "for": for_, "role": "assistant", "content": text, **more}, Message)


def calls(*ids: str, text: str | None = None) -> Message:
    return Message(seq=0, at="", role="assistant", content=text, tool_calls=tuple(ToolCall(each, "look", {"at": each}) for each in ids))


def result(call: str, text: str = "seen") -> Message:
    return Message(seq=0, at="", role="tool", content=text, tool_call_id=call, name="look")


def undo(to: int) -> Undo:
    return Undo(seq=0, at="", to=to)


def again(of: int) -> Again:
    return Again(seq=0, at="", of=of)


def summary(upto: int, text: str = "they met") -> Summary:
    return Summary(seq=0, at="", upto=upto, content=text)


def sent(of: int, start: int = 0, end: int = 10) -> Sent:
    return Sent(seq=0, at="", of=of, span=(start, end), ids=("5",))


def numbered(events: Iterable[Event], start: int = 1) -> list[Event]:
    """The events as lines have them: each with its seq."""
    return [
        msgspec.structs.replace(event, seq=seq, **({} if isinstance(event, Foreign) else {"at": "t"}))
        for seq, event in enumerate(events, start)
    ]


def folded(events: Iterable[Event], keep: Keep = ALL, *, whole: bool = True, replay: bool = False) -> Session:
    session = Session(KEY, "main", header(), keep, whole=whole, replay=replay)
    for event in events:
        session.apply(event)
    if replay:
        session.settle()
    return session


def session_of(*events: Event, keep: Keep = ALL) -> Session:
    return folded(numbered(events), keep)


# ------------------------------------------------------------------------------------------------------------------- random histories

_texts = st.sampled_from(["", " ", "hm", "Wörter, viele", "東京" * 5, "x" * 60, "line\nline"])
_ids = st.sampled_from(["c1", "c2", "c3", ""])
_people = st.sampled_from([None, Person("1", "Ana"), Person("2", "Ana"), Person("3", ""), Person("4", "Bob [x]")])
_questions = st.builds(
    lambda text, person, quote, media, n: Message(
        seq=0, at="", for_=f"i{n}", role="user", content=text, from_=person, quote=quote, media=(Media("photo", "a\nb"),) * media
    ),
    _texts,
    _people,
    st.sampled_from(["", "", "said\nbefore"]),
    st.sampled_from([0, 0, 1]),
    st.integers(0, 9),
)
_answers = st.builds(
    lambda text, cut, n, more: Message(
        seq=0, at="", for_=f"i{n}", role="assistant", content=text, interrupted=cut, note="cut" if cut else "", answers=more
    ),
    _texts,
    st.booleans(),
    st.integers(0, 9),
    st.sampled_from([(), (), ("i1", "i2")]),
)
_calls = st.builds(
    lambda ids, text, why: Message(
        seq=0,
        at="",
        role="assistant",
        content=text,
        tool_calls=tuple(ToolCall(each, "look", {"n": [1.5, None, "é"]}) for each in ids),
        reasoning=why,
    ),
    st.lists(_ids, min_size=1, max_size=3),
    st.one_of(st.none(), _texts),
    st.sampled_from([None, "because"]),
)
_results = st.builds(result, _ids, st.one_of(_texts, st.just("r" * 700)))


@st.composite
def garbage(draw: st.DrawFn, most: int = 40) -> list[Event]:
    """Lines in any order: orphans, lone users, calls without results, undo and retry of anything, summaries of anything."""
    events: list[Event] = []
    for _ in range(draw(st.integers(0, most))):
        at = st.integers(0, len(events) + 1)
        events.append(
            draw(
                st.one_of(
                    _questions,
                    _questions,
                    _answers,
                    _answers,
                    _calls,
                    _results,
                    _results,
                    st.builds(undo, at),
                    st.builds(again, at),
                    st.builds(summary, at, _texts),
                    st.builds(sent, at, st.just(0), st.integers(1, 99)),
                    st.just(Foreign(seq=0, type="later")),
                )
            )
        )
    return numbered(events)


@st.composite
def turns(draw: st.DrawFn, most: int = 12) -> list[Event]:
    """Histories as the runner makes them: questions, tool groups, answers, failures, kills, undo of the newest turn, retry, summaries."""
    live = folded([])
    events: list[Event] = []

    def put(event: Event) -> None:
        line = numbered([event], len(events) + 1)[0]
        events.append(line)
        live.apply(line)

    for _ in range(draw(st.integers(0, most))):
        what = draw(st.sampled_from(["ask", "ask", "ask", "tools", "fail", "kill", "undo", "retry", "summary", "sent"]))
        question = live.question()
        if what in {"ask", "tools", "fail", "kill"}:
            put(draw(_questions))
            if what in {"tools", "kill"}:
                ids = [f"k{len(events)}-{n}" for n in range(draw(st.integers(1, 3)))]
                put(calls(*ids))
                done = len(ids) if what == "tools" else draw(st.integers(0, len(ids) - 1))
                for each in ids[:done]:
                    put(result(each, draw(_texts)))
            if what in {"ask", "tools"}:
                put(draw(_answers))
        elif what == "undo" and (to := live.undo_target()) is not None:
            put(undo(to))
        elif what == "retry" and question is not None:
            put(again(question.seq))
            put(draw(_answers))
        elif what == "summary" and live.last:
            put(summary(draw(st.integers(0, live.last)), draw(_texts)))
        elif what == "sent" and live.last:
            put(sent(draw(st.integers(1, live.last)), 0, draw(st.integers(1, 99))))
    return events


histories = st.one_of(garbage(), turns())


# --------------------------------------------------------------------------------------------------------------------- strict checking


def complaint(messages: Sequence[ChatMessage]) -> str:
    """What the strictest model server would say to this request; "" if nothing. That it ends with an answer is not held against it."""
    body = [
        AskedMessage(
            role=message.role,
            content=message.content,
            tool_calls=[Call(call.id, Function(call.name, msgspec.json.encode(call.arguments).decode())) for call in message.tool_calls]
            or None,
            tool_call_id=message.tool_call_id or None,
        )
        for message in messages
    ]
    if body and body[-1].role == "assistant" and not body[-1].tool_calls:
        body.append(AskedMessage(role="user", content="go on"))
    return fault(body)
