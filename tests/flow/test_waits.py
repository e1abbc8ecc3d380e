"""A network that asks the whole bot to wait: it is left alone for that long, in all its chats, and the other network does not notice."""

from __future__ import annotations

import time
from pathlib import Path

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_state import CALLBACK, SEND
from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import KEY, TOKEN
from tests.flow.on_discord import ANA, BEN, PATIENCE, both, check_log, daemon_of, until
from tests.flow.seen import shown as shown_on_telegram
from tests.flow.seen import until as until_on_telegram

WAIT = 3.0


async def test_a_wait_of_the_whole_bot_holds_its_network_and_no_other(tmp_path: Path) -> None:
    """Discord says so in words, Telegram by refusing three chats up to the same moment. No call by which anything is said is made there
    until it is over, in chats that were never refused neither, while the other network answers and a slash command is acknowledged; then
    everything comes, once."""
    async with FakeDiscord() as dc, FakeTelegram(token=TOKEN) as tg, FakeModel(api_key=KEY) as model:
        first, second = dc.dm(ANA), dc.dm(BEN)
        async with daemon_of(tmp_path, both(dc, tg, model, streaming="off"), dc) as daemon:
            await dc.online(PATIENCE)
            refused = dc.fail(SEND, 429, {"retry_after": WAIT, "global": True})
            dc.say(first, "one")
            await dc.wait_for(lambda: refused.hits, PATIENCE)
            began, before = time.monotonic(), len(dc.calls)
            dc.say(second, "two")
            command = dc.slash(second, "whoami", user=BEN)
            tg.say(1, "hello")
            await shown_on_telegram(tg, 1, "Heard: hello")
            await dc.wait_for(lambda: command.acknowledged, PATIENCE)
            await until(dc, first, lambda seen: seen == ["Heard: one"])
            await until(dc, second, lambda seen: len(seen) == 2 and "Heard: two" in seen)
            early = [call for call in dc.calls[before:] if call.at < began + WAIT - 0.5 and call.route != CALLBACK]
            assert [call.route for call in early if call.channel in (first, second)] == []

            for chat in (2, 3, 4):
                tg.flood(chat, WAIT)
                tg.say(chat, "three")
            await tg.wait_for(lambda: all(tg.chats[chat].flood_told for chat in (2, 3, 4)), PATIENCE)
            began, before = time.monotonic(), len(tg.calls)
            tg.say(1, "again")
            dc.say(first, "four")
            await until(dc, first, lambda seen: seen[-1] == "Heard: four")
            over = max(tg.chats[chat].flood_until for chat in (2, 3, 4))
            await shown_on_telegram(tg, 1, "Heard: hello", "Heard: again")
            for chat in (2, 3, 4):
                await until_on_telegram(tg, chat, lambda seen: seen == ["Heard: three"])
            assert [call.method for call in tg.calls[before:] if call.chat and call.at < over] == []
            assert tg.impatient == []
            assert await daemon.stop() == 0
        check_log(daemon, dc)
