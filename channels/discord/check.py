"""Whether Discord knows the bot and would let it work: two questions over REST. No login at the gateway (they are counted, a thousand a
day), no commands registered; a daemon that runs with the same token does not notice. Called for `parlour check --online`, `init` and
`doctor` (`gateway.online`).
"""

from __future__ import annotations

import discord
import msgspec
from discord.http import Route

from channels.base import Amiss, ChannelError, Contact, Unknown
from channels.discord.errors import translate
from channels.discord.settings import Settings
from channels.discord.transport import Http

_INTENT = Amiss(
    "the Message Content intent is not switched on for this bot, and without it Discord refuses the connection",
    "switch it on in the Discord developer portal (your application, Bot, Privileged Gateway Intents); a daemon that runs needs a restart",
    fatal=True,
)


class _User(msgspec.Struct):
    username: str
    bot: bool = False


class _Application(msgspec.Struct):
    flags: int = 0


async def check(settings: Settings, token: str, *, seconds: float = 8.0) -> Contact:
    """At most `seconds` for each question. Raises Denied where the token is refused, any other ChannelError where nobody can say."""
    Route.BASE = settings.api_base.rstrip("/")  # discord.py has it in one place
    http = Http(proxy=settings.proxy, read_seconds=seconds)
    http.token = token
    await http.open()
    try:
        me = msgspec.convert(await http.request(Route("GET", "/users/@me")), _User)
        ours = msgspec.convert(await http.request(Route("GET", "/applications/@me")), _Application)
    except ChannelError as error:
        raise translate(error) from None
    except msgspec.ValidationError:
        raise Unknown("the answer is not what Discord sends") from None
    finally:
        await http.close()
    flags = discord.ApplicationFlags._from_value(ours.flags)
    read = flags.gateway_message_content or flags.gateway_message_content_limited
    return Contact(me.username, () if read else (_INTENT,), http.ahead())
