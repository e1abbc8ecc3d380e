"""A small HTTP/1.1 server for loopback that costs as little as may be, so that what is measured is the client. No TLS, no pipelining.

Called by the fake networks of this folder. Not for tests: it refuses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self


class Exchange:
    """One request and the way to answer it: `answer` at once or later, or `begin`, `write` and `end` for a stream."""

    __slots__ = ("_transport", "body", "gone", "method", "path")

    def __init__(self, transport: asyncio.Transport, method: str, path: str, body: bytes) -> None:
        self._transport, self.method, self.path, self.body = transport, method, path, body
        self.gone = False

    def answer(self, payload: bytes, status: str = "200 OK", headers: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}Content-Length: {len(payload)}\r\n\r\n"
        self._transport.write(head.encode() + payload)

    def begin(self, kind: str = "text/event-stream") -> None:
        self._transport.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"0\r\n\r\n")


Handler = Callable[[Exchange], None]


class _Connection(asyncio.Protocol):
    def __init__(self, handler: Handler, all_: set[asyncio.Transport]) -> None:
        self._handler, self._all = handler, all_
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._all.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        while True:
            head = buffer.find(b"\r\n\r\n")
            if head < 0:
                break
            lines = buffer[:head].decode("latin-1").split("\r\n")
            length, chunked = 0, False
            for line in lines[1:]:
                name, _, value = line.partition(":")
                name = name.lower()
                if name == "content-length":
                    length = int(value)
                elif name == "transfer-encoding":
                    chunked = True
            start = head + 4
            if chunked:
                body, end = _chunks(buffer, start)
                if end < 0:
                    break
            else:
                end = start + length
                if len(buffer) < end:
                    break
                body = buffer[start:end]
            method, path, _ = lines[0].split(" ", 2)
            buffer = buffer[end:]
            self._handler(Exchange(self._transport, method, path, body))
        self._buffer = buffer


def _chunks(buffer: bytes, at: int) -> tuple[bytes, int]:
    """The body of a chunked request and where it ends; -1: not yet."""
    parts: list[bytes] = []
    while (line := buffer.find(b"\r\n", at)) >= 0:
        size = int(buffer[at:line], 16)
        if len(buffer) < line + 4 + size:
            return b"", -1
        if size == 0:
            return b"".join(parts), line + 4
        parts.append(buffer[line + 2 : line + 2 + size])
        at = line + 4 + size
    return b"", -1


class Server:
    """`async with Server(handler) as server:` serves on `server.port` of 127.0.0.1."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[asyncio.Transport] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self._handler, self._connections), "127.0.0.1", 0, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for transport in list(self._connections):
            transport.abort()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"
