"""The messages and threads of the fake of Discord: what happens to them, whom they notify, how they read in JSON; no HTTP in here.

Extended by `tests.fakes.discord_service.Service`.
"""

from __future__ import annotations

from typing import Any

from tests.fakes.discord_rules import Json, mentioned, pinged
from tests.fakes.discord_state import PRIVATE_THREAD, PUBLIC_THREAD, Channel, Message, Person
from tests.fakes.discord_world import DEFAULT_USER, World, stamp


class Messages(World):
    """The world with what is said in it."""

    def add(
        self,
        channel: int,
        author: Person,
        content: str,
        *,
        reply_to: int | None = None,
        allowed: Json | None = None,
        silent: bool = False,
        **fields: Any,
    ) -> Message:
        """A new message in a channel, told to the gateway unless `silent`. Keywords that `Message` has are set, others (and `mentions`,
        which is found in the text otherwise) go into its JSON."""
        place = self.channels[channel]
        if place.archived and not place.locked:
            place.archived = False
            self.emit("THREAD_UPDATE", self.channel_json(place), place.id)
        message = Message(self.new_id(), channel, author, content, stamp(self.clock()), reply_to=reply_to, allowed_mentions=allowed)
        if reply_to is not None:
            message.type = 19
        for name in [name for name in fields if name in Message.__slots__ and not name.startswith("mention")]:
            setattr(message, name, fields.pop(name))
        message.fields = fields
        self._mention(message)
        place.messages[message.id] = message
        if not message.ephemeral:
            place.last_message = message.id
        if not silent:
            self.tell("MESSAGE_CREATE", message)
        return message

    def tell(self, event: str, message: Message) -> None:
        """Emit an event about a message."""
        self.emit(event, self.message_json(message) | self._where(message), message.channel)

    def change(self, message: Message, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(message, name, value)
        self._mention(message)
        self.tell("MESSAGE_UPDATE", message)

    def remove(self, message: Message) -> None:
        place = self.channels[message.channel]
        del place.messages[message.id]
        data: Json = {"id": str(message.id), "channel_id": str(place.id)}
        if not message.ephemeral:
            self.emit("MESSAGE_DELETE", data | ({"guild_id": str(place.guild)} if place.guild else {}), place.id)

    def _mention(self, message: Message) -> None:
        answered = self.channels[message.channel].messages.get(message.reply_to or 0)
        pings = pinged(message.content, message.allowed_mentions, answered.author.id if answered else None)
        users, message.mention_roles, everyone = mentioned(message.content)
        if answered and str(answered.author.id) in pings and answered.author.id not in users:
            users.append(answered.author.id)
        message.mentions = [user for user in users if user in self.people]
        message.mention_everyone = everyone and "everyone" in pings
        message.pings = pings

    def _where(self, message: Message) -> Json:
        """What an event says about a message beyond the message. Ephemeral ones pass for direct messages (discord-api-docs #4557)."""
        place = self.channels[message.channel]
        if place.guild is None or message.ephemeral:
            return {}
        member = self.guilds[place.guild].members.get(message.author.id)
        return {"guild_id": str(place.guild)} | ({"member": member.json()} if member else {})

    def thread(
        self, parent: int, name: str = "thread", *, user: int = DEFAULT_USER, private: bool = False, message: int | None = None
    ) -> int:
        """A new thread; with `message` the one that starts at it, whose id it then has."""
        place = self.channels[parent]
        thread = Channel(
            message or self.new_id(), PRIVATE_THREAD if private else PUBLIC_THREAD, name, place.guild, parent=parent, owner=user
        )
        self.channels[thread.id] = thread
        self.emit("THREAD_CREATE", self.channel_json(thread) | {"newly_created": True}, thread.id)
        if message is None:
            if not private:
                self.add(parent, self.user(user), name, type=18)
            return thread.id
        start = place.messages[message]
        start.flags |= 32
        self.tell("MESSAGE_UPDATE", start)
        reference = {"type": 0, "message_id": str(message), "channel_id": str(parent), "guild_id": str(place.guild)}
        quoted = self.message_json(start, nested=True)
        self.add(thread.id, self.user(user), "", type=21, message_reference=reference, referenced_message=quoted)
        return thread.id

    def message_json(self, message: Message, *, nested: bool = False) -> Json:
        body: Json = {
            "id": str(message.id),
            "type": message.type,
            "channel_id": str(message.channel),
            "author": message.author.json(),
            "content": message.content,
            "timestamp": message.timestamp,
            "edited_timestamp": message.edited,
            "tts": False,
            "mention_everyone": message.mention_everyone,
            "mentions": [self.people[user].json() for user in message.mentions],
            "mention_roles": [str(role) for role in message.mention_roles],
            "attachments": message.attachments,
            "embeds": message.embeds,
            "components": message.components,
            "pinned": False,
            "flags": message.flags,
        }
        if message.nonce is not None:
            body["nonce"] = message.nonce
        place = self.channels[message.channel]
        if message.reply_to is not None and not nested:
            answered = place.messages.get(message.reply_to)
            body["message_reference"] = {"type": 0, "message_id": str(message.reply_to), "channel_id": str(place.id)}
            if place.guild:
                body["message_reference"]["guild_id"] = str(place.guild)
            body["referenced_message"] = self.message_json(answered, nested=True) if answered else None
        if message.interaction is not None:
            body |= {"webhook_id": str(self.application_id), "application_id": str(self.application_id)}
            asked = self._by_id.get(message.interaction)
            if asked and asked.type == 2:
                body["interaction_metadata"] = {
                    "id": str(asked.id),
                    "type": 2,
                    "user": self.user(asked.user).json(),
                    "authorizing_integration_owners": {},
                }
        if message.flags & 32 and message.id in self.channels:
            body["thread"] = self.channel_json(self.channels[message.id])
        return body | message.fields

    def withheld(self, body: Json, intents_hold: bool) -> Json:
        """A message's JSON without its content, where the bot may not read it: in guilds, others' messages that do not mention it."""
        place = self.channels[int(body["channel_id"])]
        own = body["author"]["id"] == str(self.bot.id)
        named = any(user["id"] == str(self.bot.id) for user in body["mentions"])
        if intents_hold or place.guild is None or own or named:
            return body
        blank: Json = {"content": "", "attachments": [], "embeds": [], "components": []}
        answered = body.get("referenced_message")
        return body | blank | ({"referenced_message": self.withheld(answered, intents_hold)} if answered else {})
