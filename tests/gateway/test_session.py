"""gateway.session: what the events of a conversation amount to."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.message import Event, Foreign, State, decode_event, encode_line
from gateway.session import MOST_RANGES, MOST_SENT, Keep, Session
from gateway.window import TooLong, build, cost
from tests.gateway.histories import (
    ALL,
    KEY,
    again,
    answer,
    calls,
    folded,
    garbage,
    header,
    histories,
    numbered,
    result,
    sent,
    session_of,
    summary,
    turns,
    undo,
    user,
)

SMALL = Keep(5, 120, cost)


def texts(session: Session) -> list[str]:
    return [message.content or "" for message in session.messages]


# ------------------------------------------------------------------------------------------------------------------------ what counts


def test_undo_takes_back_what_stands_behind_its_seq() -> None:
    """After an undo the newest turn counts no more, its line included, and the one before it does."""
    session = session_of(user("q1"), answer("a1"), user("q2"), answer("a2"), undo(2))
    assert (texts(session), session.turns, session.last) == (["q1", "a1"], 1, 5)


def test_undo_again_and_again_reaches_the_first_line() -> None:
    """`undo_target` names the turn before, until there is none."""
    session = session_of(user("q1"), answer("a1"), user("q2"), answer("a2"))
    targets = []
    while (to := session.undo_target()) is not None:
        targets.append(to)
        session.apply(numbered([undo(to)], session.last + 1)[0])
    assert (targets, texts(session), session.question()) == ([2, 0], [], None)


def test_retry_keeps_the_question_and_takes_back_its_answer() -> None:
    """After a retry the same user line is the newest that counts, and the next answer is the only one."""
    session = session_of(user("q1", "i1"), answer("a1", "i1"), again(1), answer("better", "i2"))
    assert texts(session) == ["q1", "better"]
    assert session.answer_for("i1") is None
    found = session.answer_for("i2")
    assert found is not None
    assert found.seq == 4


def test_an_undo_after_a_retry_takes_back_the_question_too() -> None:
    """Undo means the newest turn, whichever way it was answered."""
    session = session_of(user("q0"), answer("a0"), user("q1"), answer("a1"), again(3), answer("b1"))
    assert session.undo_target() == 2


def test_an_answer_for_several_inputs_is_found_by_each() -> None:
    """`answers` names all inputs that were answered at once."""
    session = session_of(user("q1", "i1"), user("q2", "i2"), answer("both", "i2", answers=["i1", "i2"]))
    assert [bool(session.answer_for(each)) for each in ("i1", "i2", "i3")] == [True, True, False]


def test_calls_without_results_are_told() -> None:
    """The newest turn's calls that hang in the air are named; answered ones and those of older turns are not."""
    session = session_of(user(), calls("old"), user(), calls("c1", "c2", "c3"), result("c2"))
    assert [call.id for call in session.unanswered()] == ["c1", "c3"]


def test_sent_adds_up_to_the_furthest_piece() -> None:
    """An answer is recorded as sent up to the end of its last piece; another answer is not touched by that."""
    session = session_of(user(), answer(), sent(2, 0, 1800), sent(2, 1800, 2400), user(), answer())
    assert [session.sent_to(seq) for seq in (2, 6)] == [2400, 0]


def test_what_is_remembered_of_deliveries_is_bounded() -> None:
    """A long session does not grow by its `sent` lines; the newest answers are the ones that are known."""
    session = session_of(user(), *(sent(seq, 0, seq) for seq in range(1, MOST_SENT + 50)))
    assert session.sent_to(1) == 0
    assert session.sent_to(MOST_SENT + 49) == MOST_SENT + 49


def test_a_summary_falls_with_what_it_tells_of() -> None:
    """An undo that reaches behind a summary's end takes the summary along; one that does not, leaves it."""
    lines: list[Event] = [user("q1"), answer(), user("q2"), answer(), summary(2), user("q3"), answer()]
    kept, fallen = session_of(*lines, undo(5)), session_of(*lines, undo(1))
    assert kept.summary is not None
    assert fallen.summary is None


def test_a_summary_cannot_tell_of_what_comes_after_it() -> None:
    """A summary up to a seq that is not there yet does not hide later messages."""
    session = session_of(user("q1"), answer(), summary(10**9), user("q2"), answer("a2"))
    assert [m.content for m in build(session, system="", messages=9, tokens=999).messages][1:] == ["q2", "a2"]


def test_a_summary_without_a_word_stands_for_nothing() -> None:
    """An empty summary takes the place of the one before and hides no message."""
    session = session_of(user("q1"), answer("a1"), summary(2), user("q2"), answer("a2"), summary(4, " "), user("q3"))
    assert session.summary is None
    assert len(build(session, system="", messages=9, tokens=999).messages) == 5


def test_what_a_summary_tells_of_need_not_be_read() -> None:
    """A session of which only the end was read is not short where the summary stands for the rest; where the summary itself was not read,
    it is."""
    lines = with_states([user(f"q{n}") for n in range(6)], 0)
    lines += numbered([summary(6), user("now")], 7)
    state = folded(lines).state(9, "t")
    told_of = msgspec.structs.replace(summary(6), seq=10)
    assert not folded([*lines[-2:], state, told_of], SMALL, whole=False, replay=True).short
    assert folded([*lines[-2:], state], SMALL, whole=False, replay=True).short
    assert folded([*lines[-2:], state, msgspec.structs.replace(told_of, upto=5)], SMALL, whole=False, replay=True).short


# --------------------------------------------------------------------------------------------------------------------- settled (D17)


def test_settled_is_the_point_before_an_unfinished_turn() -> None:
    """A turn that has not come to its answer is not settled: neither its lone question nor its calls and results."""
    done: list[Event] = [user(), answer(), sent(2)]
    unfinished: list[list[Event]] = [
        [user()],
        [user(), calls("c1")],
        [user(), calls("c1"), result("c1")],
        [again(1)],
        [user(), sent(2, 10, 20)],
    ]
    for running in unfinished:
        assert session_of(*done, *running).settled == 3, running
        assert session_of(*done, *running, answer()).settled == 3 + len(running) + 1


def test_a_failed_question_is_not_settled_by_the_next_one_alone() -> None:
    """Two questions without an answer: what is settled ends before the first."""
    assert session_of(user(), answer(), user("failed"), user("running")).settled == 2


def test_an_undo_settles() -> None:
    """After an undo a fork has what is left, not what was taken back."""
    assert session_of(user(), answer(), user(), answer(), undo(2)).settled == 5
    assert session_of(user("failed"), user(), answer(), undo(1)).settled == 4


def test_what_is_settled_is_not_guessed() -> None:
    """Where an undo leaves nothing of what was read, the end alone cannot say where the settled point is."""
    lines = numbered([user(), calls("c1"), result("c1"), undo(3), undo(3)])
    assert folded(lines).settled == 0
    assert folded(lines[4:], whole=False, replay=True).settled is None


def test_an_empty_session_is_settled() -> None:
    """A fork of nothing is an empty session."""
    assert session_of().settled == 0


# ---------------------------------------------------------------------------------------------------------------- one fold (rule 4)


def told(session: Session) -> list[Any]:
    """All that anybody can see of a session, its window in several sizes included."""
    windows: list[Any] = []
    for messages, tokens in ((1, 120), (3, 60), (4, 120), (5, 120)):
        try:
            windows.append(build(session, system="s", messages=messages, tokens=tokens, names=True))
        except (TooLong, ValueError) as error:
            windows.append(repr(error))
    question, standing = session.question(), session.summary
    return [
        session.last,
        session.turns,
        session.undo_target(),
        session.unanswered(),
        question,
        (standing.upto, standing.content) if standing is not None else None,
        windows,
    ]


def with_states(events: list[Event], every: int) -> list[Event]:
    """The lines as the manager writes them: a `state` line now and then, with the summary that stands behind it."""
    lines: list[Event] = []
    # Seqs move when lines come between: undo and the like must keep pointing to the same lines.
    moved = {0: 0}
    for event in events:
        changes: dict[str, Any] = {"seq": len(lines) + 1}
        for field in ("to", "of", "upto"):
            if hasattr(event, field):
                changes[field] = moved.get(getattr(event, field), len(lines) + 1)
        moved[event.seq] = len(lines) + 1
        put = [msgspec.structs.replace(event, **changes)]
        if every and len(lines) % every == every - 1:
            ahead = folded([*lines, *put])
            put.append(ahead.state(len(lines) + 2, "t"))
            if ahead.summary is not None:
                put.append(msgspec.structs.replace(ahead.summary, seq=len(lines) + 3))
        lines += put
    return lines


@settings(max_examples=80, deadline=None)
@given(histories, st.integers(3, 12), st.booleans())
def test_the_end_of_a_file_tells_the_same_as_all_of_it(events: list[Event], every: int, encoded: bool) -> None:
    """Rule 4: a session read from any end of its lines that holds a `state` line either says that it is short, or nobody can tell it from
    the one that was read from the first line, its window included."""
    lines = with_states(events, every)
    if encoded:
        lines = [line if isinstance(line, Foreign) else decode_event(encode_line(line)) for line in lines]
    whole = folded(lines)
    newest_state = max((index for index, line in enumerate(lines) if isinstance(line, State)), default=-1)
    for start in range(newest_state + 1):
        end = folded(lines[start:], SMALL, whole=start == 0, replay=True)
        assert start or not end.short
        if end.short:
            continue
        assert told(end) == told(whole)
        assert end.settled in {whole.settled, None}
        assert list(end.messages) == list(whole.messages)[len(whole.messages) - len(end.messages) :]


@settings(max_examples=80, deadline=None)
@given(histories, st.integers(0, 12))
def test_a_session_that_lived_is_the_one_that_is_read(events: list[Event], every: int) -> None:
    """Rule 4: whoever lived through all events with bounded memory, and was read again where it had become short, cannot be told from
    whoever read them all; and it holds at any moment what a window needs."""
    lines = with_states(events, every)
    live = folded([], SMALL)
    for count, line in enumerate(lines, 1):
        live.apply(line)
        if live.short:
            live.become(folded(lines[:count], SMALL, replay=True))
        assert told(live) == told(folded(lines[:count]))
    assert live.settled == folded(lines).settled


@settings(max_examples=50, deadline=None)
@given(garbage(), st.integers(0, 30))
def test_apply_takes_whatever_a_file_may_hold(events: list[Event], shift: int) -> None:
    """Lines out of order, twice, or with foreign seqs never raise, and the newest seq stays the newest."""
    mixed = events[shift % (len(events) + 1) :] + events + [msgspec.structs.replace(event, seq=-shift) for event in events]
    for whole in (True, False):
        session = folded(mixed, SMALL, whole=whole)
        assert session.last == len(events)
        told(session)


def test_a_state_line_guards_against_a_lost_undo() -> None:
    """Where the line of an undo cannot be read, the `state` line behind it still says what counts."""
    lines = numbered([user("q0"), answer(), user("q1"), answer("a1"), user("q2"), answer("a2"), undo(4), user("q3"), answer("a3")])
    state = folded(lines).state(10, "t")
    readable = [*lines[2:6], *lines[7:], state]
    assert texts(folded(readable, whole=False, replay=True)) == ["q1", "a1", "q3", "a3"]


def test_ranges_of_a_state_line_are_few() -> None:
    """However often something was taken back, a `state` line stays small."""
    events: list[Event] = []
    for _ in range(200):
        events += [user(), answer(), user(), answer()]
        events += [undo(len(events) - 2)]
    state = session_of(*events).state(9999, "t")
    assert len(state.live) == MOST_RANGES
    assert len(encode_line(state)) < 1000


# -------------------------------------------------------------------------------------------------------------------- bounded memory


def test_memory_is_bounded_and_costs_no_rereading() -> None:
    """A session of 5,000 turns holds a few windows' worth of them, and is never short on the way."""
    session = Session(KEY, "main", header(), Keep(40, 10**6, cost))
    sizes = []
    for turn in range(5000):
        session.apply(numbered([user("q" * 50)], 2 * turn + 1)[0])
        session.apply(numbered([answer("a" * 500)], 2 * turn + 2)[0])
        sizes.append(session.size)
        assert not session.short
    assert len(session.messages) <= 2 * 50 + 2
    assert max(sizes) == max(sizes[:200])
    assert session.turns == 5000


def test_memory_is_bounded_by_tokens_too() -> None:
    """Few huge messages are not held by the number that a window may have."""
    session = Session(KEY, "main", header(), Keep(1000, 4000, cost))
    for turn in range(300):
        session.apply(numbered([user("q" * 9000)], 2 * turn + 1)[0])
        session.apply(numbered([answer("a" * 9000)], 2 * turn + 2)[0])
    assert len(session.messages) < 12
    assert session.size < 12 * 11_000


def test_lines_without_a_question_are_not_held() -> None:
    """Answers and results that belong to no user line cannot be in any window and take no memory."""
    session = Session(KEY, "main", header(), SMALL)
    for seq in range(1, 1000):
        session.apply(numbered([answer("a" * 100) if seq % 2 else result("c1")], seq)[0])
    assert len(session.messages) == 0
    assert not session.short


def test_size_follows_what_is_held() -> None:
    """What is taken back or let go of is no longer counted; an empty session counts as one."""
    empty = session_of().size
    session = session_of(user("q" * 1000), answer("a"), summary(2, "s" * 500), user("q"), undo(0))
    assert session.size == empty


@settings(max_examples=60, deadline=None)
@given(histories, st.integers(3, 12))
def test_size_is_what_a_reading_would_count(events: list[Event], every: int) -> None:
    """The count of bytes does not drift: it depends on what is held, not on the way there."""
    lines = with_states(events, every)
    session = folded(lines, SMALL, replay=True)
    again_read = Session(KEY, "main", header(), ALL)
    for message in session.messages:
        again_read.apply(message)
    standing = session.summary
    assert session.size == again_read.size + (len(standing.content) if standing is not None else 0)


def test_undo_behind_what_is_held_says_that_it_is_short() -> None:
    """Where an undo reaches what was let go of, the session asks to be read again instead of guessing."""
    session = Session(KEY, "main", header(), SMALL)
    lines: list[Event] = []
    for turn in range(40):
        lines += numbered([user(f"q{turn}"), answer()], 2 * turn + 1)
    for line in lines:
        session.apply(line)
    assert not session.short
    lines += numbered([undo(20)], 81)
    session.apply(lines[-1])
    assert session.lost
    session.become(folded(lines, SMALL, replay=True))
    assert (session.turns, texts(session)[-2:]) == (10, ["q9", "a"])


@settings(max_examples=60, deadline=None)
@given(turns())
def test_the_runner_needs_no_second_look_for_one_undo(events: list[Event]) -> None:
    """In histories that the runner makes, the newest turn is always at hand."""
    live = folded(events, Keep(12, 10**6, cost))
    assert (live.question() is None) == (folded(events).question() is None)
