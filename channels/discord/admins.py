"""Whether a person administers a server, as its roles have it. Called by `channel`."""

from __future__ import annotations

from channels.discord.payloads import Guild, Member, convert
from channels.discord.transport import Http, Refusal

_ADMINISTRATOR, _MANAGE_GUILD = 1 << 3, 1 << 5
_NO_MEMBER = frozenset({10007, 10013})


async def administers(http: Http, guild_id: str, user_id: str) -> bool:
    """Its owner, and who may manage it. Two questions, since nobody's roles are kept in memory. Raises ChannelError, and what
    `payloads.FAULTS` names where the answers make no sense."""
    try:
        member = convert(await http.get_member(int(guild_id), int(user_id)), Member)
    except Refusal as error:
        if error.code in _NO_MEMBER:
            return False
        raise
    guild = convert(await http.get_guild(int(guild_id), with_counts=False), Guild)
    held = {guild.id, *member.roles}
    granted = 0
    for role in guild.roles:
        if role.id in held and role.permissions.isdecimal():
            granted |= int(role.permissions)
    return guild.owner_id == user_id or bool(granted & (_ADMINISTRATOR | _MANAGE_GUILD))
