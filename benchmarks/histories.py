"""Session files of any length, made quickly. Called by the benchmarks."""

from __future__ import annotations

from pathlib import Path

from gateway.message import FORMAT_VERSION, Header, Message, Sent, SessionKey, encode_line, timestamp
from gateway.options import Sessions
from gateway.session import Keep, Session
from gateway.sessions import STATE_BYTES, STATE_LINES
from gateway.store.names import session_file
from gateway.window import cost

QUESTION = "What is the light on the pier for, and who looks after it when the nights are long and the harbour sleeps?"
ANSWER = (
    "It turns so that ships find the harbour. Somebody from the village winds it up every evening, and comes back at dawn to put it out. "
    * 2
)


def write_session(root: Path, key: SessionKey, lines: int, name: str = "main") -> Path:
    """A session of about `lines` lines (question, answer, delivery) under `root`/sessions, as the daemon would have written it."""
    options = Sessions()
    session_header = Header(v=FORMAT_VERSION, key=str(key), name=name, created=timestamp(1.8e9))
    session = Session(key, name, session_header, Keep(options.history_messages, options.history_tokens, cost))
    path = session_file(root / "sessions", key, name)
    path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    at = timestamp(1.8e9)
    count = size = seq = 0
    with path.open("wb") as file:
        path.chmod(0o600)
        file.write(encode_line(session_header))
        while seq < lines:
            question = Message(seq=seq + 1, at=at, for_=f"i{seq}", role="user", content=QUESTION)
            answer = Message(seq=seq + 2, at=at, for_=f"i{seq}", role="assistant", content=ANSWER, model="bench")
            for event in (question, answer, Sent(seq=seq + 3, at=at, of=seq + 2, span=(0, len(ANSWER)), ids=("1",))):
                line = encode_line(event)
                session.apply(event)
                file.write(line)
                count, size, seq = count + 1, size + len(line), event.seq
            if count >= STATE_LINES or size >= STATE_BYTES:
                state = session.state(seq + 1, at)
                session.apply(state)
                file.write(encode_line(state))
                count, size, seq = 0, 0, seq + 1
    return path
