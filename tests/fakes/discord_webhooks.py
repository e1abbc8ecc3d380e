"""Interactions in the fake of Discord: what people do with slash commands and buttons, and the REST side that answers them; no HTTP here.

An interaction is answered once, within three seconds (10062 after that, 40060 the second time); its token then lives for 15 minutes
(50027). The first followup after a deferred response takes that response's place, as the service does it.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from tests.fakes.discord_rules import CHOICE_LIMIT, PERMISSIONS, Json, Refusal, check_commands, choice_errors, form_refusal, integer
from tests.fakes.discord_service import Answer, Service
from tests.fakes.discord_state import DM, Call, Channel, Interaction, Message

HOOK = "/webhooks/{application_id}/{token}"
COMMAND, COMPONENT, AUTOCOMPLETE = 2, 3, 4
REPLY, DEFER, DEFER_UPDATE, UPDATE, CHOICES = 4, 5, 6, 7, 8
_OPTION_TYPES: dict[type, int] = {str: 3, int: 4, bool: 5, float: 10}


class Webhooks(Service):
    """The service with interactions."""

    def __init__(self, token: str, bot_name: str) -> None:
        super().__init__(token, bot_name)
        self.callback_life = 3.0
        """Seconds for the first response."""
        self.token_life = 15 * 60.0
        """Seconds for edits and followups."""
        self.commands: dict[int | None, list[Json]] = {}
        """guild (None: global) -> the registered slash commands."""
        hooks = {
            "POST /interactions/{interaction_id}/{token}/callback": self._callback,
            f"POST {HOOK}": self._followup,
            f"GET {HOOK}/messages/@original": self._get_original,
            f"PATCH {HOOK}/messages/@original": self._edit_original,
            f"DELETE {HOOK}/messages/@original": self._delete_original,
            f"GET {HOOK}/messages/{{message_id}}": self._get_original,
            f"PATCH {HOOK}/messages/{{message_id}}": self._edit_original,
            f"DELETE {HOOK}/messages/{{message_id}}": self._delete_original,
        }
        self.routes |= hooks
        for scope in ("/applications/{application_id}", "/applications/{application_id}/guilds/{guild_id}"):
            self.routes |= {f"GET {scope}/commands": self._get_commands, f"PUT {scope}/commands": self._put_commands}
        self.open_routes |= set(hooks)

    # -------------------------------------------------------------------------------------------------------- what people do

    def slash(
        self, channel: int, name: str, options: dict[str, Any] | None = None, user: int | None = None, *, check: bool = True
    ) -> Interaction:
        """A person sends a slash command; "group sub" is a subcommand. With `check` as a client lets them: registered, and with the
        options that it has."""
        data = self._command_data(channel, name, options or {}, focus=None, check=check)
        return self._interact(COMMAND, channel, data, user)

    def autocomplete(
        self, channel: int, name: str, option: str, text: str, user: int | None = None, *, options: dict[str, Any] | None = None
    ) -> Interaction:
        """A person types `text` into an option that completes; the answer is in `choices` then."""
        data = self._command_data(channel, name, (options or {}) | {option: text}, focus=option, check=True)
        return self._interact(AUTOCOMPLETE, channel, data, user)

    def press(self, channel: int, button: str, user: int | None = None, *, message_id: int | None = None) -> Interaction:
        """A person presses the button with this label or custom id, on the newest message that has one."""
        place = self.channels[channel]
        candidates = [place.messages[message_id]] if message_id is not None else reversed(place.messages.values())
        for message in candidates:
            for label, custom_id in message.buttons:
                if button in (label, custom_id):
                    return self.press_raw(channel, custom_id, message, user)
        raise AssertionError(f"no button {button!r} in channel {channel}")

    def press_raw(self, channel: int, custom_id: str, message: Message, user: int | None = None) -> Interaction:
        """A press with any custom id, also one that the message does not have (any more)."""
        data: Json = {"custom_id": custom_id, "component_type": 2, "id": 1}
        return self._interact(COMPONENT, channel, data, user, message)

    def _command_data(self, channel: int, name: str, options: dict[str, Any], *, focus: str | None, check: bool) -> Json:
        top, *subs = name.split()
        guild = self.channels[channel].guild
        known = [*self.commands.get(guild, []), *(self.commands.get(None, []) if guild is not None else [])]
        command = next((item for item in known if item["name"] == top), None)
        if check and command is None:
            raise AssertionError(f"no command /{top} is registered, only {[item['name'] for item in known]}")
        place: Json = command or {}
        for sub in subs:
            place = next((item for item in place.get("options", ()) if item["name"] == sub), {})
            if check and not place:
                raise AssertionError(f"no command /{name} is registered")
        known_options = {item["name"]: item for item in place.get("options", ())}
        if check:
            missing = {key for key, item in known_options.items() if item.get("required")} - set(options)
            if (missing and focus is None) or set(options) - set(known_options):
                raise AssertionError(f"/{name} has the options {list(known_options)}, not {list(options)}")
        values: list[Json] = [
            {"name": key, "type": known_options.get(key, {}).get("type", _OPTION_TYPES[type(value)]), "value": value}
            | ({"focused": True} if key == focus else {})
            for key, value in options.items()
        ]
        for depth, sub in enumerate(reversed(subs)):
            values = [{"name": sub, "type": 1 if depth == 0 else 2, "options": values}]
        data: Json = {"id": command["id"] if command else str(self.new_id()), "name": top, "type": 1}
        return data | ({"options": values} if values else {}) | ({"guild_id": str(guild)} if command and "guild_id" in command else {})

    def _interact(self, kind: int, channel: int, data: Json, user: int | None, message: Message | None = None) -> Interaction:
        place = self.channels[channel]
        who = self.user(user or place.recipient or self.user().id)
        item = Interaction(self.new_id(), secrets.token_urlsafe(40), kind, channel, who.id, data, message.id if message else None)
        self.interactions.append(item)
        self._by_token[item.token] = self._by_id[item.id] = item
        permissions = self.app_permissions(place, self.bot.id)
        body: Json = {
            "id": str(item.id),
            "application_id": str(self.application_id),
            "type": kind,
            "token": item.token,
            "version": 1,
            "data": data,
            "channel_id": str(channel),
            "channel": self.channel_json(place) | {"permissions": permissions},
            "app_permissions": permissions,
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": {"0": str(place.guild or 0)},
            "attachment_size_limit": 10 * 2**20,
            "context": 1 if place.type == DM else 0,
        }
        if place.guild is None:
            body["user"] = who.json()
        else:
            self.join(place.guild, who.id)
            body |= {"guild_id": str(place.guild), "guild_locale": "en-US"}
            body["guild"] = {"id": str(place.guild), "locale": "en-US", "features": []}
            member = self.member_json(self.guilds[place.guild], who.id)
            body["member"] = member | {"permissions": self.app_permissions(place, who.id)}
        if message is not None:
            body["message"] = self.message_json(message)
        self.emit("INTERACTION_CREATE", body, channel)
        return item

    # -------------------------------------------------------------------------------------------------------------- callbacks

    def interaction_of(self, call: Call) -> Interaction | None:
        return self._by_token.get(call.path.get("token", ""))

    def _callback(self, call: Call) -> Answer:
        item = self.interaction_of(call)
        if item is None or item.id != integer(call.path["interaction_id"]):
            raise Refusal(10062)
        if item.acknowledged is not None:
            raise Refusal(40060)
        if item.age > self.callback_life:
            raise Refusal(10062)
        if item.channel not in self.channels:
            raise Refusal(10003)
        kind, data = call.body.get("type"), call.body.get("data") or {}
        allowed = {COMMAND: (REPLY, DEFER), COMPONENT: (REPLY, DEFER, DEFER_UPDATE, UPDATE), AUTOCOMPLETE: (CHOICES,)}[item.type]
        if kind not in allowed:
            raise form_refusal({("type",): ("BASE_TYPE_CHOICES", f"Value must be one of {allowed}.")})
        message = self._respond(item, kind, data, call)
        item.acknowledged, item.callback = time.monotonic(), call.body
        if call.query.get("with_response", "").lower() not in ("1", "true"):
            return None
        callback: Json = {"id": str(item.id), "type": item.type}
        if message is not None:
            callback |= {
                "response_message_id": str(message.id),
                "response_message_loading": message.loading,
                "response_message_ephemeral": message.ephemeral,
            }
        resource: Json = {"type": kind} | ({"message": self.message_json(message)} if message else {})
        return {"interaction": callback, "resource": resource}

    def _respond(self, item: Interaction, kind: int, data: Json, call: Call) -> Message | None:
        if kind == CHOICES:
            choices = data.get("choices") or []
            errors = choice_errors(choices)
            if len(choices) > CHOICE_LIMIT:
                errors["choices",] = ("BASE_TYPE_MAX_LENGTH", f"Must be {CHOICE_LIMIT} or fewer in length.")
            if errors:
                raise form_refusal({("data", *path): words for path, words in errors.items()})
            item.choices = choices
            return None
        shape = 20 if item.type == COMMAND else 0
        if kind == REPLY:
            draft = self.draft(call, data)
            message = self.add(item.channel, self.bot, draft.pop("content"), interaction=item.id, type=shape, **draft)
        elif kind == DEFER:
            flags = 128 | int(data.get("flags") or 0) & 64
            message = self.add(item.channel, self.bot, "", interaction=item.id, type=shape, flags=flags)
        else:
            pressed = self.channels[item.channel].messages.get(item.message or 0)
            if pressed is None:
                raise Refusal(10008)
            message = self.revise(pressed, call, data) if kind == UPDATE else pressed
        item.original = message.id
        return message

    # --------------------------------------------------------------------------------------------------------------- webhooks

    def _alive(self, call: Call) -> Interaction:
        item = self.interaction_of(call)
        if item is None or integer(call.path["application_id"]) != self.application_id:
            raise Refusal(10015)
        if item.age > self.token_life:
            raise Refusal(50027)
        if item.acknowledged is None:
            raise Refusal(10015)
        if item.channel not in self.channels:
            raise Refusal(10003)
        return item

    def _response(self, call: Call) -> tuple[Interaction, Message]:
        item = self._alive(call)
        wanted = integer(call.path["message_id"]) if "message_id" in call.path else item.original
        message = self.channels[item.channel].messages.get(wanted or 0)
        if message is None or wanted not in (item.original, *item.followups):
            raise Refusal(10008)
        return item, message

    def _followup(self, call: Call) -> Answer:
        item = self._alive(call)
        draft = self.draft(call)
        original = self.channels[item.channel].messages.get(item.original or 0)
        if original is not None and original.loading:
            message = self.revise(original, call)
        else:
            message = self.add(item.channel, self.bot, draft.pop("content"), interaction=item.id, reply_to=item.original, **draft)
            item.followups.append(message.id)
        return self.message_json(message)

    def _get_original(self, call: Call) -> Answer:
        return self.message_json(self._response(call)[1])

    def _edit_original(self, call: Call) -> Answer:
        return self.message_json(self.revise(self._response(call)[1], call))

    def _delete_original(self, call: Call) -> Answer:
        self.remove(self._response(call)[1])
        return None

    # --------------------------------------------------------------------------------------------------------------- commands

    def _get_commands(self, call: Call) -> list[Json]:
        return self.commands.get(self._scope(call), [])

    def _put_commands(self, call: Call) -> list[Json]:
        scope = self._scope(call)
        earlier = {command["name"]: command["id"] for command in self.commands.get(scope, [])}
        defaults: Json = {"type": 1, "options": [], "default_member_permissions": None, "nsfw": False, "dm_permission": True}
        self.commands[scope] = [
            defaults
            | {"contexts": None, "integration_types": [0]}
            | {key: value for key, value in command.items() if value is not None}
            | {"id": earlier.get(command["name"]) or str(self.new_id()), "application_id": str(self.application_id)}
            | {"version": str(self.new_id())}
            | ({"guild_id": str(scope)} if scope else {})
            for command in check_commands(call.body)
        ]
        return self.commands[scope]

    def _scope(self, call: Call) -> int | None:
        if integer(call.path["application_id"]) != self.application_id:
            raise Refusal(20012, status=403, message="You are not authorized to perform this action on this application")
        return self._guild(call).id if "guild_id" in call.path else None

    def app_permissions(self, channel: Channel, user: int) -> str:
        return str(self.permissions(channel, user) & sum(PERMISSIONS.values()))
