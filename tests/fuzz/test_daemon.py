"""A running daemon whose doors are all tried with what no good peer would send; after each handful somebody says something good."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from random import Random

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.telegram.webhook import HEADER
from tests.fakes.openai import Asked, Reply, refuses, says
from tests.flow.daemon import WEB_TOKEN
from tests.fuzz import real
from tests.fuzz.hostile import TIMES, encoded, garbled, spoilt, tried
from tests.fuzz.house import House, opened

UPDATES = real.updates()
EVENTS = asyncio.run(real.events())


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with opened(tmp_path_factory.mktemp("fuzz")) as house:
        yield house


pytestmark = pytest.mark.timeout(60 * TIMES)


HANDFUL = 40
DICE = st.randoms(use_true_random=True)


@tried(8)
@given(DICE)
def test_no_webhook_body_stops_telegram(house: House, dice: Random) -> None:
    """Each is taken, whatever is in it, and what is behind it comes through."""
    bodies = [spoilt(dice, UPDATES) for _ in range(HANDFUL)]
    texts = [encoded({"update_id": 900_000 + n} | body) for n, body in enumerate(bodies)]
    texts += [garbled(dice, texts) for _ in range(HANDFUL // 4)]

    async def case() -> None:
        headers = {HEADER: house.tg.webhook_secret, "Content-Type": "application/json"}
        async with aiohttp.ClientSession() as session:
            for text in texts:
                async with session.post(f"http://127.0.0.1:{house.webhook_port}/telegram", data=text, headers=headers) as response:
                    assert response.status == 200, text
        await house.good()
        house.check()

    house.do(case())


@tried(8)
@given(DICE)
def test_no_event_stops_discord(house: House, dice: Random) -> None:
    """Of whatever shape, in whatever order."""
    events = [(name, spoilt(dice, [data])) for name, data in dice.choices(EVENTS, k=HANDFUL)]

    async def case() -> None:
        for name, data in events:
            house.dc.push(name, data)
        await house.good()
        house.check()

    house.do(case())


async def spoken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, raw: bytes) -> bytes:
    """Send bytes, say that no more come, and read what is answered; nothing where the other side has had enough before."""
    try:
        writer.write(raw)
        await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        async with asyncio.timeout(5):
            return await reader.read(1 << 16)
    except (ConnectionError, TimeoutError):
        return b""
    finally:
        writer.close()


WEB = [
    f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAuthorization: Bearer {WEB_TOKEN}\r\nCookie: parlour_chat={'a' * 20}; x=1\r\n"
    f"Last-Event-ID: 5\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
    for method, path, body in (
        ("POST", "/api/say", '{"id": "abcdefgh-1", "text": "/whoami"}'),
        ("POST", "/api/say", '{"id": "abcdefgh-2", "text": "/fork west", "button": true}'),
        ("GET", "/api/history?name=main&after=3", ""),
        ("GET", "/api/sessions", ""),
        ("GET", "/api/menu", ""),
        ("POST", "/login", "token=x&chat=y"),
        ("GET", "/?token=x", ""),
        ("GET", "/web/page.js", ""),
        ("GET", "/readyz", ""),
        ("GET", "/metrics", ""),
        ("GET", "/healthz", ""),
    )
]
CONTROL = [
    encoded({"name": name, "args": args, "lines": lines}) + b"\n"
    for name, args, lines in (
        ("status", {}, False),
        ("pair.list", {}, False),
        ("pair.approve", {"code": "ABCDEFGH"}, False),
        ("pair.revoke", {"id": "telegram:1"}, False),
        ("sessions.list", {}, True),
        ("sessions.show", {"key": "telegram:5000000", "name": "main"}, True),
        ("sessions.export", {"key": "telegram:5000000", "name": "../main", "format": "jsonl"}, True),
        ("sessions.fork", {"key": "telegram:5000000", "name": "main", "to": "../../x"}, False),
    )
]


@tried(3)
@given(DICE)
def test_no_request_breaks_the_servers(house: House, dice: Random) -> None:
    """Whatever is sent to the port of the page or of the webhook, with what opens them in it or without: an answer below 500, or none."""
    body = encoded({"update_id": 950_000} | UPDATES[0])
    hook = b"POST / HTTP/1.1\r\nHost: x\r\n%b: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        HEADER.encode(),
        house.tg.webhook_secret.encode(),
        len(body),
        body,
    )
    port = str(house.http_port).encode()
    raws = [(house.http_port, garbled(dice, WEB).replace(b"PORT", port)) for _ in range(HANDFUL)]
    raws += [(house.webhook_port, garbled(dice, [hook])) for _ in range(HANDFUL // 2)]

    async def case() -> None:
        for where, raw in raws:
            said = await spoken(*await asyncio.open_connection("127.0.0.1", where), raw)
            assert not said or said[9:10] in (b"2", b"3", b"4") or said[9:12] in (b"501", b"505"), (raw, said[:500])
        await house.good()
        house.check()

    house.do(case())


@tried(3)
@given(DICE)
def test_no_request_breaks_the_control_socket(house: House, dice: Random) -> None:
    """Whatever a caller says there: an answer, or none, and the next caller is served."""
    raws = [
        garbled(dice, CONTROL) if dice.random() < 0.5 else encoded(spoilt(dice, list(map(json.loads, CONTROL)))) + b"\n"
        for _ in range(HANDFUL)
    ]

    async def case() -> None:
        path = house.daemon.data / "control.sock"
        for raw in raws:
            await spoken(*await asyncio.open_unix_connection(path), raw)
        said = await spoken(*await asyncio.open_unix_connection(path), CONTROL[0])
        assert json.loads(said)["result"]["data_dir"] == str(house.daemon.data)
        await house.good()
        house.check()

    house.do(case())


STREAM = [
    b"".join(step for step in reply.steps if isinstance(step, bytes))
    for reply in (
        says("An answer of some words, long enough to be cut.", deltas=5),
        says("```python\nprint(1)\n```\n\n- one\n- two", deltas=9, finish="length"),
        refuses(400, "no"),
    )
]


@tried(1)
@given(DICE)
def test_no_answer_of_a_model_breaks_a_turn(house: House, dice: Random) -> None:
    """Bytes lost, changed, doubled, cut: the person reads one text, and asks on."""
    raws = {f"garbled {n}": garbled(dice, STREAM) for n in range(HANDFUL)}

    def answer(asked: Asked) -> Reply | None:
        raw = raws.get(asked.words.rpartition("\n")[2])
        if raw is None:
            return None
        cuts = sorted(dice.randint(0, len(raw)) for _ in range(3))
        return Reply([part for part in (raw[: cuts[0]], raw[cuts[0] : cuts[1]], raw[cuts[1] : cuts[2]], raw[cuts[2] :]) if part])

    async def case() -> None:
        house.model.script(answer)
        async with asyncio.TaskGroup() as group:
            for words in raws:
                group.create_task(house.asked(words))
        house.model.script(lambda asked: None)
        await house.good()
        house.check()

    house.do(case())
