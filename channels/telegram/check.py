"""Whether Telegram knows the bot and would let it work, without touching anything: no getUpdates, no webhook, no menu is changed, so that a
daemon that runs with the same token does not notice. Called for `parlour check --online`, `init` and `doctor` (`gateway.online`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from telegram import Bot, User, WebhookInfo
from telegram.error import TelegramError

from channels.base import Amiss, Contact
from channels.telegram.errors import sane, translate
from channels.telegram.settings import Settings
from channels.telegram.transport import API, FILES, Transport

_RECENT = 3600.0
_MANY = 100
_PRIVACY = Amiss(
    "privacy mode is on: in groups Telegram brings only commands and replies to the bot, no mentions",
    "turn it off with @BotFather (/setprivacy) and add the bot to the group again, or make the bot an admin there",
    groups=True,
)


async def check(settings: Settings, token: str, *, seconds: float = 8.0, clock: Callable[[], float] = time.time) -> Contact:
    """Two questions, of at most `seconds` each. Raises Denied where the token is refused, any other ChannelError where nobody can say."""
    transport = Transport(settings.api_base, token, proxy=settings.proxy, read_seconds=seconds)
    bot = Bot("unused", base_url=lambda _: API, base_file_url=lambda _: FILES, request=transport, get_updates_request=transport)
    await transport.initialize()
    try:
        me = await sane(bot.get_me(), User)
        hook = await sane(bot.get_webhook_info(), WebhookInfo)
    except TelegramError as error:
        raise translate(error) from None
    finally:
        await transport.shutdown()
    amiss = list(_webhook(settings, hook, clock()))
    if me.can_join_groups and not me.can_read_all_group_messages:
        amiss.append(_PRIVACY)
    return Contact(f"@{me.username or me.id}", tuple(amiss), transport.ahead())


def _webhook(settings: Settings, hook: WebhookInfo, now: float) -> Iterator[Amiss]:
    if settings.mode == "polling" and hook.url and hook.url != settings.webhook_url:
        yield Amiss(
            "a webhook that is not ours is set on this bot, and while it is, polling brings nothing",
            "if no other program needs it, remove it with the Bot API's deleteWebhook method",
            fatal=True,
        )
    if settings.mode == "webhook" and hook.url and hook.url != settings.webhook_url:
        yield Amiss(
            "a webhook with another address is set on this bot",
            "see whether another program uses the bot; ours sets its own when it starts",
        )
    if settings.mode == "webhook" and hook.last_error_date and now - hook.last_error_date.timestamp() < _RECENT:
        said = "".join(c if c.isprintable() else " " for c in hook.last_error_message or "no reason")[:120]
        yield Amiss(f"Telegram could not bring its messages lately: {said}", "see what stands between Telegram and webhook_listen")
    if (waiting := hook.pending_update_count) > _MANY:
        yield Amiss(f"{waiting} messages wait at Telegram to be fetched", "see whether the daemon runs, and what its log says")
