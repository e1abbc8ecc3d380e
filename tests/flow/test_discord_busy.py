"""Discord's clock runs on whatever the daemon has to do: heartbeats, and the first word to a slash command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import CALLBACK
from tests.fakes.openai import DONE, Asked, FakeModel, Reply, Step, delta
from tests.flow.daemon import KEY
from tests.flow.on_discord import ANA, BEN, EVE, alone, asks, check_log, daemon_of, told, until

MIB = 2**20
BEAT = 0.5
LONGEST = 2.5
"""Seconds between two heartbeats, and until a command is acknowledged: Discord gives up on a command after three."""


def huge(path: Path) -> None:
    """Twenty megabytes of conversation, with no `state` line to begin from."""
    lines = path.read_bytes().splitlines(keepends=True)
    seq = max(json.loads(line).get("seq", 0) for line in lines)
    with path.open("ab") as file:
        while file.tell() < 20 * MIB:
            for role in ("user", "assistant"):
                seq += 1
                file.write(json.dumps({"seq": seq, "at": "", "for": f"x{seq}", "role": role, "content": "word " * 600}).encode() + b"\n")


@pytest.mark.timeout(120)
async def test_a_fast_model_and_huge_conversations_hold_up_no_heartbeat(tmp_path: Path) -> None:
    """An answer of 30,000 parts as fast as they come, and two conversations of 20 MB that are read, forked and answered meanwhile:
    heartbeats keep their time, and commands in all three chats are acknowledged in time and answered."""
    bursts: list[Step] = [b"".join(delta("tick ") for _ in range(100)), 0.0]

    def answer(asked: Asked) -> Reply | None:
        if asked.words != "fast":
            return None
        return Reply([delta("", role="assistant"), *(bursts * 300), delta("END"), delta(finish="stop"), DONE])

    async with FakeDiscord() as dc, FakeModel(api_key=KEY) as model:
        model.script(answer)
        dc.gateway.heartbeat_interval = BEAT
        chats = [dc.dm(person) for person in (ANA, BEN, EVE)]
        daemon = daemon_of(tmp_path, alone(dc, model).replace("[backend]", "[backend]\nmax_answer_chars = 200_000"), dc)
        async with daemon:
            await dc.online(25)
            for chat in chats:
                await asks(dc, chat, "hello")
            assert await daemon.stop() == 0
            for chat in chats[1:]:
                huge(daemon.data / "sessions" / "discord" / str(chat) / "main.jsonl")
            await daemon.start()
            await dc.online(25)
            beats = len(dc.gateway.heartbeats)
            dc.say(chats[0], "fast")
            await until(dc, chats[0], lambda seen: "tick" in seen[-1])
            items = [dc.slash(chat, "fork", {"name": "west"}) for chat in chats[1:]]
            items += [dc.slash(chat, name) for chat in chats for name in ("status", "sessions")]
            for chat in chats[1:]:
                dc.say(chat, "and now?")
            await dc.wait_for(lambda: all(item.acknowledged for item in items), 25)
            for chat in chats[1:]:
                await told(dc, chat, "Heard: and now?")
            await until(dc, chats[0], lambda seen: seen[-1].endswith("END"), 60)
            await dc.wait_for(lambda: len(dc.gateway.heartbeats) >= beats + 4, 25)
            assert await daemon.stop() == 0
        assert max(item.delay or 9.0 for item in items) < LONGEST
        assert max(dc.gateway.gaps) < LONGEST
        assert not [call for call in dc.calls_of(CALLBACK) if not call.ok]
        assert "blocked" not in daemon.text()
        assert "".join(dc.visible(chats[0])).count("tick") == 30_000
        check_log(daemon, dc)
