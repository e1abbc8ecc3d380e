"""What a session of the gateway gets to see of the fake of Discord: its READY, its guilds, and of each event as much as its intents and the
bot's permissions allow. Extended by `tests.fakes.discord.FakeDiscord`."""

from __future__ import annotations

from tests.fakes.discord_rules import INTENTS, Json, integer
from tests.fakes.discord_state import DM
from tests.fakes.discord_webhooks import Webhooks


class View(Webhooks):
    """The service as the gateway asks it."""

    @property
    def gateway_url(self) -> str:
        raise NotImplementedError

    def ready(self) -> Json:
        return {
            "v": 10,
            "user": self.bot.json() | {"verified": True, "mfa_enabled": True, "flags": 0, "email": None},
            "guilds": [{"id": str(guild), "unavailable": True} for guild in self.guilds],
            "private_channels": [],
            "resume_gateway_url": f"{self.gateway_url}resume",
            "application": {"id": str(self.application_id), "flags": self.flags()},
            "_trace": ["fake"],
        }

    def guilds_json(self) -> list[Json]:
        return [self.guild_json(guild) for guild in self.guilds.values()]

    def for_session(self, event: str, data: Json, channel: int | None, intents: int) -> Json | None:
        """An event as a session with these intents gets it; None where it does not."""
        place = self.channels.get(channel or 0)
        if place is not None and not self.may(place, "view_channel") and event != "INTERACTION_CREATE":
            return None
        if event.startswith("MESSAGE_"):
            direct = place is None or place.type == DM or bool(data.get("flags", 0) & 64)
            if not intents & INTENTS["dm_messages" if direct else "guild_messages"]:
                return None
            return self.withheld(data, bool(intents & INTENTS["message_content"])) if "content" in data else data
        if event.startswith("GUILD_MEMBER_") and not intents & INTENTS["members"]:
            return None
        if event == "GUILD_CREATE" and not intents & INTENTS["members"]:
            data = data | {"members": [member for member in data["members"] if member["user"]["id"] == str(self.bot.id)]}
        if event.startswith(("GUILD_", "CHANNEL_", "THREAD_")) and not intents & INTENTS["guilds"]:
            return None
        return data

    def members_chunk(self, wanted: Json) -> list[Json]:
        guild = self.guilds.get(integer(wanted.get("guild_id")) or 0)
        if guild is None:
            return []
        ids = wanted.get("user_ids")
        ids = {integer(item) for item in (ids if isinstance(ids, list) else [ids])} if ids else None
        query = str(wanted.get("query") or "").lower()
        found = [
            user for user, member in guild.members.items() if (ids is None or user in ids) and member.person.name.lower().startswith(query)
        ]
        return [self.member_json(guild, user) for user in found[: integer(wanted.get("limit")) or None]]
