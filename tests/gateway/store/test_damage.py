"""Session files as crashes, bad disks, editors and other versions leave them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.errors import Corrupt, SessionExists
from gateway.message import Chat, Header, Message, SessionKey, decode_event, encode_line
from gateway.store.jsonl import JsonlStore
from gateway.store.names import key_folder
from gateway.writer import Writer

KEY = SessionKey("telegram", "12345")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[JsonlStore]:
    writer = Writer()
    store = JsonlStore(tmp_path / "sessions", writer)
    await store.open()
    yield store
    await store.close()
    await writer.close()


def said(seq: int) -> bytes:
    return encode_line(Message(seq=seq, at="t", role="user", content=f"line {seq} é"))


def head(key: SessionKey = KEY) -> bytes:
    return encode_line(Header(v=1, key=str(key), name="main", created="t"))


def put(tmp_path: Path, content: bytes, key: SessionKey = KEY, name: str = "main.jsonl") -> Path:
    path = key_folder(tmp_path / "sessions", key) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


WHOLE = [said(1), said(2), said(3)]


class TestDamage:
    """For each kind: good lines are used, bad bytes are somewhere still, one warning names the place, and the next line stands alone."""

    @pytest.mark.parametrize("lines", [(3, 1, 2), (2, 3, 1), (1, 2, 1), (3, 2)], ids=str)
    async def test_a_newest_line_that_is_not_the_greatest(self, store: JsonlStore, tmp_path: Path, lines: tuple[int, ...]) -> None:
        """Out of order, twice, or with a digit that changed: who reads the session builds on what it reads, and the session goes on."""
        put(tmp_path, head() + b"".join(map(said, lines)))
        last = (await store.tail(KEY, "main", 10)).last
        assert last == max(lines)
        assert await store.append(KEY, "main", [said(last + 1)], last, last + 1) == last + 1

    @pytest.mark.parametrize(
        ("content", "good", "bad"),
        [
            pytest.param([*WHOLE, b'{"role":"assis'], 3, 0, id="torn"),
            *(
                pytest.param([*WHOLE, said(3).replace(b'"seq":3', b'"seq":%d' % seq)], 3, 1, id=f"seq {str(seq)[:5]}")
                for seq in (-1, 2**53, 2**64, 10**400)
            ),
            pytest.param([*WHOLE, b'{"role":"assis\n', b"\n"], 3, 1, id="torn and an empty line"),
            pytest.param([said(1), b"{not json}\n", said(2), said(3)], 3, 1, id="in the middle"),
            pytest.param(
                [said(1), b"42\n", b"[]\n", b'{"role":"wizard"}\n', b"null\n", b'""\n', b"{}\n", said(2), said(3)], 3, 6, id="shapes"
            ),
            pytest.param([*WHOLE, b"\x00" * 5000], 3, 0, id="NULs at the end"),
            pytest.param([said(1), b"\0" * 5000 + b"\n", said(2), said(3)], 3, 1, id="NULs in the middle"),
            pytest.param([said(1), b'{"seq":9,"role":"user","content":"\xff\xfe"}\n', said(2), said(3)], 3, 1, id="no UTF-8"),
            pytest.param([said(1), b'{"seq":9,"role":"user","content":"\\ud800"}\n', said(2), said(3)], 3, 1, id="half a pair"),
            pytest.param([said(1), b"[" * 100_000 + b"\n", said(2), said(3)], 3, 1, id="deep"),
            pytest.param(
                [said(1), b'{"seq":' + b"9" * 5000 + b',"role":"user","content":""}\n', said(2), said(3)], 3, 1, id="a huge number"
            ),
            pytest.param([said(1), said(2) + b"\r\n", said(3)], 3, 0, id="a blank line"),
            pytest.param([said(1), said(2)[:-1] + b"\r\n", said(3)], 3, 0, id="another line end"),
            pytest.param([said(1), said(2)[:20] + said(2), said(2), said(3)], 3, 1, id="two fused"),
        ],
    )
    async def test_lines(self, store: JsonlStore, tmp_path: Path, content: list[bytes], good: int, bad: int) -> None:
        """Damage in the lines."""
        path = put(tmp_path, head() + b"".join(content))
        with capture_logs() as logs:
            tail = await store.tail(KEY, "main", 100)
            assert await store.tail(KEY, "main", 100) == tail
        assert [decode_event(line) for line in tail.lines] == [decode_event(said(seq)) for seq in range(1, good + 1)]
        assert (tail.last, tail.bad) == (good, bad)
        warnings = [entry for entry in logs if entry["log_level"] == "warning"]
        torn = path.with_suffix(".torn")
        assert len(warnings) == (1 if bad or torn.exists() else 0)
        assert all(entry["file"] == str(path) and entry["offset"] > 0 for entry in warnings)
        assert not any("line 1" in str(value) for entry in warnings for value in entry.values())
        kept = path.read_bytes() + (torn.read_bytes() if torn.exists() else b"")
        assert all(piece.rstrip(b"\n") in kept for piece in content)
        assert await store.append(KEY, "main", [said(good + 1)], good, good + 1) == good + 1
        assert path.read_bytes().endswith(b"\n" + said(good + 1))
        again = await store.read(KEY, "main")
        assert [decode_event(line).seq for line in again.lines] == list(range(1, good + 2))

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"\n", id="an empty line"),
            pytest.param(b"\0" * 100, id="NULs"),
            pytest.param(b"null\n" + said(1), id="null"),
            pytest.param(head()[:30], id="torn header"),
            pytest.param(head()[:30] + b"\n" + said(1) + b'{"torn', id="torn header, more behind it"),
            pytest.param(said(1) + said(2), id="no header"),
            pytest.param(b"x" * 3_000_000, id="no line at all"),
            pytest.param(b"[" * 100_000 + b"\n", id="deep"),
            pytest.param(head(SessionKey("telegram", "999")) + said(1), id="somebody else's"),
            pytest.param(head().replace(b'"telegram:12345"', b'"nonsense"') + said(1), id="not a key"),
            pytest.param(head().replace(b'"v":1', b'"v":99') + said(1) + b'{"torn', id="a newer version"),
            pytest.param(b'{"type":"session","v":2,"key":"telegram:12345","who":[1]}\n', id="a newer shape"),
        ],
    )
    async def test_headers(self, store: JsonlStore, tmp_path: Path, content: bytes) -> None:
        """A file that is no session of ours is Corrupt for everybody, listed nowhere, and stays byte for byte; the others go on."""
        path = put(tmp_path, content)
        await store.create(KEY, "west", Header(v=1, key=str(KEY), name="west", created="t"))
        for _ in range(2):
            with pytest.raises(Corrupt) as caught:
                await store.tail(KEY, "main", 1)
            assert (caught.value.path, caught.value.line) == (str(path), 1)
            with pytest.raises(Corrupt):
                await store.append(KEY, "main", [said(2)], 1, 2)
        with pytest.raises(Corrupt):
            await store.read(KEY, "main")
        with pytest.raises(Corrupt):
            await store.fork(KEY, "main", KEY, "east", 1, Header(v=1, key=str(KEY), name="east", created="t"))
        with pytest.raises(SessionExists):
            await store.create(KEY, "main", Header(v=1, key=str(KEY), name="main", created="t"))
        assert [listed.header.name for listed in await store.sessions(KEY)] == ["west"]
        assert await store.keys() == [KEY]
        assert path.read_bytes() == content
        assert sorted(each.name for each in path.parent.iterdir()) == ["main.jsonl", "west.jsonl"]

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"\xef\xbb\xbf" + head() + said(1), id="a byte order mark"),
            pytest.param(head().replace(b'"v":1,', b"") + said(1), id="no version"),
            pytest.param(head().replace(b'"v":1', b'"v":0') + said(1), id="version 0"),
            pytest.param(head().replace(b'"v":1', b'"v":1,"mood":{"x":1}') + said(1), id="an unknown field in the header"),
            pytest.param(head() + said(1)[:-2] + b',"mood":{"x":[1,2]}}\n', id="an unknown field in a line"),
            pytest.param(head() + b'{"seq":1,"role":"user","content":"no time"}\n', id="no time"),
            pytest.param(head() + b'{"seq":1,"at":"t","type":"mood","value":3}\n', id="an unknown type"),
            pytest.param(head().replace(b'"name":"main"', b'"name":"old"') + said(1), id="renamed by hand"),
            pytest.param((head() + said(1))[:-1], id="no newline at the end"),
        ],
    )
    async def test_other_versions(self, store: JsonlStore, tmp_path: Path, content: bytes) -> None:
        """An older or slightly odd file is read with defaults, appended to, forked, listed, and loses nothing of what it has."""
        path = put(tmp_path, content)
        tail = await store.tail(KEY, "main", 10)
        assert (tail.header.key, tail.header.name, tail.last, tail.whole, tail.bad) == (str(KEY), "main", 1, True, 0)
        assert await store.append(KEY, "main", [said(2)], 1, 2) == 2
        assert path.read_bytes() == content.rstrip(b"\n") + b"\n" + said(2)
        await store.fork(KEY, "main", KEY, "west", 2, Header(v=1, key=str(KEY), name="west", created="u"))
        assert (await store.read(KEY, "west")).lines == (await store.read(KEY, "main")).lines
        assert [listed.header.name for listed in await store.sessions(KEY)] == ["main", "west"]

    async def test_a_header_without_its_newline(self, store: JsonlStore, tmp_path: Path) -> None:
        """A session of a header alone that lacks its newline gets it."""
        path = put(tmp_path, head()[:-1])
        assert await store.append(KEY, "main", [said(1)], 0, 1) == 1
        assert path.read_bytes() == head() + said(1)

    async def test_foreign_files(self, store: JsonlStore, tmp_path: Path) -> None:
        """Whatever else lies in the folders hinders no list and is left alone."""
        put(tmp_path, head() + said(1))
        root = tmp_path / "sessions"
        names = ["main.jsonl.bak", "main.jsonl~", ".main.jsonl.swp", "UPPER.jsonl", "a b.jsonl", "notes.txt", "main.torn", "é.jsonl"]
        foreign = [put(tmp_path, b"x", name=name) for name in names]
        (root / "README").write_text("hello")
        (root / "telegram" / "file").write_text("hello")
        (root / "telegram" / "12345" / "folder.jsonl").mkdir()
        (root / "telegram" / "empty").mkdir()
        (root / ".git").mkdir()
        copy = root / "telegram" / "copy of 12345"
        copy.mkdir()
        (copy / "main.jsonl").write_bytes(head() + said(1))
        assert [listed.header.name for listed in await store.sessions(KEY)] == ["main"]
        assert await store.keys() == [KEY]
        assert all(path.read_bytes() == b"x" for path in foreign)


class TestPrefixes:
    async def test_of_a_session(self, store: JsonlStore, tmp_path: Path) -> None:
        """Cut anywhere behind its header, a session opens with every line that was whole, and the next append stands on its own line."""

        async def check(cut: int) -> None:
            key = SessionKey("telegram", f"cut-{cut}")
            lines = [head(key), *WHOLE]
            content = b"".join(lines)[: len(head(key)) + cut]
            path = put(tmp_path, content, key)
            whole = [line for line in WHOLE if line[:-1] in content]
            tail = await store.tail(key, "main", 100)
            assert tail.lines == whole, cut
            assert (tail.last, tail.bad) == (len(whole), 0)
            await store.append(key, "main", [said(len(whole) + 1)], len(whole), len(whole) + 1)
            assert path.read_bytes() == b"".join([head(key), *whole, said(len(whole) + 1)])
            torn = path.with_suffix(".torn")
            assert content in path.read_bytes() or content.endswith(torn.read_bytes()[:-1])

        await asyncio.gather(*(check(cut) for cut in range(len(b"".join(WHOLE)) + 1)))

    async def test_of_a_pointer(self, store: JsonlStore, tmp_path: Path) -> None:
        """Cut anywhere, a pointer file gives its last whole change, and takes the next."""
        changes = [Chat(at=str(n), for_=f"i{n}", current=f"s{n}") for n in range(4)]
        lines = [encode_line(change) for change in changes]

        async def check(cut: int) -> None:
            key = SessionKey("telegram", f"cut-{cut}")
            content = b"".join(lines)[:cut]
            path = put(tmp_path, content, key, "_chat.jsonl")
            whole = [change for change, line in zip(changes, lines, strict=True) if line[:-1] in content]
            assert await store.chat(key) == (whole[-1] if whole else None)
            await store.set_chat(key, Chat(at="9", current="new"))
            assert await store.chat(key) == Chat(at="9", current="new")
            assert path.read_bytes() == b"".join([*lines[: len(whole)], encode_line(Chat(at="9", current="new"))])

        await asyncio.gather(*(check(cut) for cut in range(len(b"".join(lines)) + 1)))

    async def test_bad_lines_in_a_pointer(self, store: JsonlStore, tmp_path: Path) -> None:
        """A line that is no change is passed over, with a warning that names the file, and left."""
        content = encode_line(Chat(at="1", current="a")) + b"{nonsense}\nnull\n" + b'{"at":"2","for":"i2","mood":1}\n'
        path = put(tmp_path, content, name="_chat.jsonl")
        with capture_logs() as logs:
            assert await store.chat(KEY) == Chat(at="2", for_="i2", current="a")
        assert [(entry["file"], entry["lines"]) for entry in logs] == [(str(path), 2)]
        assert path.read_bytes() == content
