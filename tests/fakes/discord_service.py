"""Discord's REST API (v10) over the world in memory, with the service's refusals and words; no HTTP in here.

A handler takes the `Call` and gives its JSON, or None for 204. `discord_webhooks.Webhooks` adds what interactions need.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.fakes.discord_messages import Messages
from tests.fakes.discord_rules import (
    Json,
    Refusal,
    checked_components,
    checked_content,
    checked_mentions,
    checked_nonce,
    form_refusal,
    integer,
)
from tests.fakes.discord_state import DM, PRIVATE_THREAD, TEXT, Call, Channel, Guild, Message
from tests.fakes.discord_world import stamp

Answer = Json | list[Any] | None
Handler = Callable[[Call], Answer]

MESSAGE = "/channels/{channel_id}/messages/{message_id}"
UNAUTHORIZED = "401: Unauthorized"


class Service(Messages):
    """One bot's side of the service."""

    def __init__(self, token: str, bot_name: str) -> None:
        super().__init__(token, bot_name)
        self.nonce_life = 300.0
        """Seconds for which a nonce is held against a second message."""
        self._nonces: dict[tuple[int, str], tuple[float, Message]] = {}
        self.routes: dict[str, Handler] = {
            "GET /users/@me": lambda call: self.bot.json() | {"verified": True, "mfa_enabled": True, "flags": 0},
            "GET /users/{user_id}": self._get_user,
            "POST /users/@me/channels": self._open_dm,
            "GET /oauth2/applications/@me": self._get_application,
            "GET /applications/@me": self._get_application,
            "GET /guilds/{guild_id}": self._get_guild,
            "GET /guilds/{guild_id}/channels": self._get_channels,
            "GET /guilds/{guild_id}/threads/active": self._get_threads,
            "GET /guilds/{guild_id}/members": self._get_members,
            "GET /guilds/{guild_id}/members/{user_id}": self._get_member,
            "GET /channels/{channel_id}": lambda call: self.channel_json(self._place(call)),
            "GET /channels/{channel_id}/messages": self._history,
            "POST /channels/{channel_id}/messages": self._send,
            f"GET {MESSAGE}": self._fetch,
            f"PATCH {MESSAGE}": self._edit,
            f"DELETE {MESSAGE}": self._delete,
            f"POST {MESSAGE}/threads": self._start_thread,
            f"PUT {MESSAGE}/reactions/{{emoji}}/@me": self._react,
            "POST /channels/{channel_id}/threads": self._start_thread,
            "PUT /channels/{channel_id}/thread-members/@me": self._join_thread,
            "POST /channels/{channel_id}/typing": self._typing,
        }
        self.open_routes: set[str] = set()
        """Those that need no bot token."""

    def admit(self, call: Call) -> None:
        """The bot's token."""
        if call.route not in self.open_routes and call.authorization != f"Bot {self.token}":
            raise Refusal(0, status=401, message=UNAUTHORIZED)

    # ---------------------------------------------------------------------------------------------------------------- lookups

    def _place(self, call: Call, *permissions: str) -> Channel:
        """The channel of the path; refused where the bot may not see it, or lacks one of these permissions."""
        place = self.channels.get(integer(call.path["channel_id"]) or 0)
        if place is None:
            raise Refusal(10003)
        if not self.may(place, "view_channel"):
            raise Refusal(50001)
        if not self.may(place, *permissions):
            raise Refusal(50013)
        if place.refusal:
            raise Refusal(place.refusal)
        return place

    def _writable(self, call: Call) -> Channel:
        place = self._place(call)
        if place.recipient is not None and self.user(place.recipient).closed:
            raise Refusal(50007)
        if not self.may(place, "send_messages_in_threads" if place.is_thread else "send_messages"):
            raise Refusal(50013)
        if place.is_thread and place.archived and place.locked:
            raise Refusal(50083)
        return place

    def _message(self, call: Call, place: Channel) -> Message:
        message = place.messages.get(integer(call.path["message_id"]) or 0)
        if message is None or message.ephemeral:
            raise Refusal(10008)
        return message

    def _guild(self, call: Call) -> Guild:
        guild = self.guilds.get(integer(call.path["guild_id"]) or 0)
        if guild is None:
            raise Refusal(10004)
        return guild

    def _read(self, message: Message) -> Json:
        body = self.withheld(self.message_json(message), "message_content" in self.privileged)
        return {name: value for name, value in body.items() if name != "nonce"}  # it goes with the event and the answer, and is not kept

    # ------------------------------------------------------------------------------------------------------------------ reads

    def _get_application(self, call: Call) -> Json:
        owner = self.user()
        return {
            "id": str(self.application_id),
            "name": self.bot.name,
            "icon": None,
            "description": "",
            "summary": "",
            "bot_public": True,
            "bot_require_code_grant": False,
            "verify_key": "0" * 64,
            "owner": owner.json(),
            "team": None,
            "flags": self.flags(),
        }

    def flags(self) -> int:
        """The application's: which privileged intents it has, as a bot in fewer than 100 guilds."""
        limited = {"presences": 1 << 13, "members": 1 << 15, "message_content": 1 << 19}
        return sum(limited[name] for name in self.privileged)

    def _get_user(self, call: Call) -> Json:
        person = self.people.get(integer(call.path["user_id"]) or 0)
        if person is None:
            raise Refusal(10013)
        return person.json()

    def _get_guild(self, call: Call) -> Json:
        return self.guild_json(self._guild(call), event=False)

    def _get_channels(self, call: Call) -> list[Json]:
        guild = self._guild(call)
        return [self.channel_json(place) for place in self.channels.values() if place.guild == guild.id and not place.is_thread]

    def _get_threads(self, call: Call) -> Json:
        guild = self._guild(call)
        threads = [place for place in self.channels.values() if place.guild == guild.id and place.is_thread and not place.archived]
        return {"threads": [self.channel_json(place) for place in threads], "members": []}

    def _get_members(self, call: Call) -> list[Json]:
        guild = self._guild(call)
        if "members" not in self.privileged:
            raise Refusal(50001)
        after, limit = integer(call.query.get("after")) or 0, integer(call.query.get("limit")) or 1
        return [self.member_json(guild, user) for user in sorted(guild.members) if user > after][:limit]

    def _get_member(self, call: Call) -> Json:
        guild, user = self._guild(call), integer(call.path["user_id"]) or 0
        if user not in guild.members:
            raise Refusal(10007 if user in self.people else 10013)
        return self.member_json(guild, user)

    def _history(self, call: Call) -> list[Json]:
        place = self._place(call)
        limit = integer(call.query.get("limit", 50))
        if limit is None or not 1 <= limit <= 100:
            raise form_refusal({("limit",): ("NUMBER_TYPE_MAX", "int value should be less than or equal to 100.")})
        if not self.may(place, "read_message_history"):
            return []
        before, after, around = (integer(call.query.get(name)) for name in ("before", "after", "around"))
        found = [message for message in place.messages.values() if not message.ephemeral]
        if around is not None:
            nearest = sorted(found, key=lambda message: abs(message.id - around))[:limit]
            found = sorted(nearest, key=lambda message: message.id)
        elif after is not None:
            found = [message for message in found if message.id > after][:limit]
        elif before is not None:
            found = [message for message in found if message.id < before][-limit:]
        else:
            found = found[-limit:]
        return [self._read(message) for message in reversed(found)]

    def _fetch(self, call: Call) -> Json:
        place = self._place(call)
        if not self.may(place, "read_message_history"):
            raise Refusal(50013)
        return self._read(self._message(call, place))

    # ----------------------------------------------------------------------------------------------------------------- writes

    def _open_dm(self, call: Call) -> Json:
        user = integer(call.body.get("recipient_id"))
        if user is None or user not in self.people:
            raise form_refusal({("recipient_id",): ("USER_UNKNOWN", "Unknown User")}) if user is None else Refusal(10013)
        return self.channel_json(self.channels[self.dm(user)])

    def _send(self, call: Call) -> Json:
        place = self._writable(call)
        draft = self.draft(call)
        if draft["attachments"] and not self.may(place, "attach_files"):
            raise Refusal(50013)
        nonce = checked_nonce(call.body)
        if nonce is not None and call.body.get("enforce_nonce"):
            at, earlier = self._nonces.get((self.bot.id, str(nonce)), (0.0, None))
            if earlier is not None and time.monotonic() - at < self.nonce_life:
                return self.message_json(earlier)
        reply_to = self._reference(call.body, place)
        draft["flags"] &= ~64
        message = self.add(place.id, self.bot, draft.pop("content"), reply_to=reply_to, nonce=nonce, **draft)
        if nonce is not None:
            self._nonces[self.bot.id, str(nonce)] = (time.monotonic(), message)
        return self.message_json(message)

    def _reference(self, body: Json, place: Channel) -> int | None:
        reference = body.get("message_reference")
        if not reference:
            return None
        if not self.may(place, "read_message_history"):
            raise Refusal(160002)
        if (integer(reference.get("channel_id")) or place.id) != place.id:
            raise form_refusal(
                {("message_reference",): ("REPLIES_CANNOT_REFERENCE_OTHER_CHANNEL", "Cannot reply to a message in a different channel")}
            )
        reply_to = integer(reference.get("message_id"))
        if reply_to in place.messages:
            return reply_to
        if reference.get("fail_if_not_exists", True):
            raise form_refusal({("message_reference",): ("MESSAGE_REFERENCE_UNKNOWN_MESSAGE", "Unknown message")})
        return None

    def draft(self, call: Call, body: Json | None = None) -> Json:
        """What a create has to say, checked: the keywords of `add`."""
        body = call.body if body is None else body
        content = checked_content(body)
        embeds, attachments = body.get("embeds") or [], self._attachments(call)
        components = checked_components(body)
        if not content and not embeds and not attachments and not body.get("sticker_ids") and not body.get("poll"):
            raise Refusal(50006)
        return {
            "content": content,
            "embeds": embeds,
            "attachments": attachments,
            "components": components,
            "allowed": checked_mentions(body),
            "flags": int(body.get("flags") or 0) & (4 | 64 | 4096),
        }

    def _attachments(self, call: Call) -> list[Json]:
        return [self.attachment(file["filename"], file["content"], file["content_type"]) for file in call.files]

    def revise(self, message: Message, call: Call, body: Json | None = None) -> Message:
        """An edit, checked and done: what the body does not name stays."""
        body = call.body if body is None else body
        changes: Json = {}
        if "content" in body:
            changes["content"] = checked_content(body)
        if "components" in body:
            changes["components"] = checked_components(body)
        if "embeds" in body:
            changes["embeds"] = body["embeds"] or []
        if "attachments" in body or call.files:
            kept = {item.get("id") for item in body.get("attachments") or message.attachments}
            changes["attachments"] = [item for item in message.attachments if item["id"] in kept] + self._attachments(call)
        changes["allowed_mentions"] = checked_mentions(body)
        left = {name: changes.get(name, getattr(message, name)) for name in ("content", "embeds", "attachments")}
        if not any(left.values()):
            raise Refusal(50006)
        self.change(message, **changes, edited=stamp(self.clock()), edits=message.edits + 1, flags=message.flags & ~128)
        return message

    def _edit(self, call: Call) -> Json:
        place = self._place(call)
        message = self._message(call, place)
        if message.author is not self.bot:
            raise Refusal(50005)
        if place.archived:
            raise Refusal(50083)
        return self.message_json(self.revise(message, call))

    def _delete(self, call: Call) -> None:
        place = self._place(call)
        message = self._message(call, place)
        if message.author is not self.bot:
            if place.type == DM:
                raise Refusal(50003)
            if not self.may(place, "manage_messages"):
                raise Refusal(50013)
        self.remove(message)

    def _typing(self, call: Call) -> None:
        self._writable(call).typing.append(time.monotonic())

    def _react(self, call: Call) -> None:
        place = self._place(call, "add_reactions", "read_message_history")
        self._message(call, place)

    def _start_thread(self, call: Call) -> Json:
        place = self._place(call, "create_public_threads")
        name = str(call.body.get("name") or "")
        if not 1 <= len(name) <= 100:
            raise form_refusal({("name",): ("BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")})
        if place.type != TEXT:
            raise Refusal(50024, message="Cannot execute action on this channel type")
        start = self._message(call, place).id if "message_id" in call.path else None
        if start in self.channels:
            raise Refusal(160004)
        private = start is None and call.body.get("type") == PRIVATE_THREAD
        thread = self.thread(place.id, name, user=self.bot.id, private=private, message=start)
        return self.channel_json(self.channels[thread])

    def _join_thread(self, call: Call) -> None:
        if not self._place(call).is_thread:
            raise Refusal(50024, message="Cannot execute action on this channel type")
