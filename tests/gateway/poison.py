"""A daemon's core in a process of its own, with things in it that end the process: words that the model's adapter or the rendering of an
answer dies of, a session that cannot be read, commands. Run by `test_trials` as `python -m tests.gateway.poison FOLDER [TEXT ...]`: it
accepts the texts, each as a chat of its own, and ends with 0 when everything that is on record is finished. What its people see is
appended to FOLDER/seen as JSON lines: chat, text."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from channels.base import Address, Button, Piece
from gateway.backends.base import Part
from gateway.message import Header, Request, SessionKey
from gateway.store.base import SessionLog, Tail
from gateway.store.jsonl import JsonlStore
from gateway.trials import Times
from gateway.writer import Writer
from tests.gateway.core import Core, Parrot, Place

DIED = 9
"""The exit code of a death."""
TIMES = Times(quiet=0.1, each=2.0, hold=10.0)


def die() -> None:
    os._exit(DIED)


class Model(Parrot):
    """Dies of the words "model poison"; is slow with "slow" ones."""

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        words = request.messages[-1].content or ""
        if "slow" in words:
            await asyncio.sleep(0.3)
        async for part in super().stream(request):
            if "model poison" in words:
                await asyncio.sleep(0.05)  # others have begun by then
                die()
            yield part


class Network(Place):
    """Dies of an answer with "render poison" in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(units=4000)
        self._seen = folder / "seen"

    def render(self, markdown: str) -> list[Piece]:
        if "render poison" in markdown:
            die()
        return super().render(markdown)

    async def send(self, address: Address, piece: Piece, *, reply_to: str = "", buttons: Sequence[Button] = (), nonce: str = "") -> str:
        message = await super().send(address, piece, reply_to=reply_to, buttons=buttons, nonce=nonce)
        self._note(address, piece)
        return message

    async def edit(self, address: Address, message_id: str, piece: Piece, *, buttons: Sequence[Button] = ()) -> None:
        # Messages of an earlier life are not in this one's memory.
        self.messages.setdefault(address, {}).setdefault(message_id, "…")
        await super().edit(address, message_id, piece, buttons=buttons)
        self._note(address, piece)

    def _note(self, address: Address, piece: Piece) -> None:
        with self._seen.open("a") as seen:
            seen.write(json.dumps([address.chat, piece.text]) + "\n")


class Store(JsonlStore):
    """Dies of reading the session of chat "load"."""

    async def tail(self, key: SessionKey, name: str, n: int) -> Tail:
        if key.chat == "load":
            die()
        return await super().tail(key, name, n)

    async def fork(self, src_key: SessionKey, src: str, dst_key: SessionKey, dst: str, at: int, header: Header) -> None:
        """Dies of every fork."""
        die()


class House(Core):
    """Dies of /status."""

    def status(self, key: SessionKey) -> list[str]:
        die()
        return []


def store(folder: Path, writer: Writer) -> SessionLog:
    return Store(folder, writer)


async def main(folder: Path, texts: Sequence[str]) -> None:
    async with House(folder, net=Network(folder), model=Model(), store=store, times=TIMES) as core:
        parted = [text.partition(" ") for text in texts]
        # In one batch: nobody repeats what did not get in before the death.
        await core.router.accept([core.inbound(words, chat=chat, input_id=f"net:7:{chat}:1") for chat, _, words in parted])
        await core.quiet(40)
        print(json.dumps({"open": core.inbox.open_inputs, "aside": [record.id for record in core.inbox.set_aside]}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
