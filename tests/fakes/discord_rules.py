"""What Discord refuses, with its codes and words: texts, nonces, mentions, buttons, slash commands; and how permissions add up.

Pure; used by the fake of Discord alone. The limits are those of the API's documentation, version 10. A text is refused above 2000 by code
points and above 2000 by UTF-16 units: sources disagree, so what either of them refuses is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]
Path = tuple[str | int, ...]
"""Where in a body something is wrong."""

TEXT_LIMIT = 2000
NONCE_LIMIT = 25
CUSTOM_ID_LIMIT = 100
COMMAND_LIMIT = 100
CHOICE_LIMIT = 25
EPOCH_MS = 1_420_070_400_000
"""Discord's: ids count milliseconds from here."""

WORDS: dict[int, tuple[int, str]] = {
    10003: (404, "Unknown Channel"),
    10004: (404, "Unknown Guild"),
    10007: (404, "Unknown Member"),
    10008: (404, "Unknown Message"),
    10013: (404, "Unknown User"),
    10015: (404, "Unknown Webhook"),
    10062: (404, "Unknown interaction"),
    20028: (429, "The write action you are performing on the channel has hit the write rate limit."),
    30032: (400, "Maximum number of application commands reached (100)"),
    30046: (429, "Maximum number of edits to messages older than 1 hour reached. Try again later."),
    40060: (400, "Interaction has already been acknowledged."),
    50001: (403, "Missing Access"),
    50003: (403, "Cannot execute action on a DM channel"),
    50005: (403, "Cannot edit a message authored by another user"),
    50006: (400, "Cannot send an empty message"),
    50007: (403, "Cannot send messages to this user"),
    50008: (400, "Cannot send messages in a non-text channel"),
    50013: (403, "Missing Permissions"),
    50027: (401, "Invalid Webhook Token"),
    50035: (400, "Invalid Form Body"),
    50083: (400, "Thread is archived"),
    50109: (400, "The request body contains invalid JSON."),
    160002: (400, "Cannot reply without permission to read message history"),
    160004: (400, "A thread has already been created for this message"),
}
"""code -> HTTP status and message."""

PERMISSIONS: dict[str, int] = {
    "administrator": 1 << 3,
    "manage_channels": 1 << 4,
    "add_reactions": 1 << 6,
    "view_channel": 1 << 10,
    "send_messages": 1 << 11,
    "manage_messages": 1 << 13,
    "embed_links": 1 << 14,
    "attach_files": 1 << 15,
    "read_message_history": 1 << 16,
    "mention_everyone": 1 << 17,
    "manage_guild": 1 << 5,
    "use_application_commands": 1 << 31,
    "manage_threads": 1 << 34,
    "create_public_threads": 1 << 35,
    "create_private_threads": 1 << 36,
    "send_messages_in_threads": 1 << 38,
}
EVERYONE = sum(bit for name, bit in PERMISSIONS.items() if not name.startswith(("administrator", "manage")))
"""What members may do where a test does not say."""
ALL = (1 << 53) - 1

INTENTS: dict[str, int] = {
    "guilds": 1 << 0,
    "members": 1 << 1,
    "presences": 1 << 8,
    "guild_messages": 1 << 9,
    "guild_typing": 1 << 11,
    "dm_messages": 1 << 12,
    "dm_typing": 1 << 14,
    "message_content": 1 << 15,
}
KNOWN_INTENTS = (1 << 17) - 1 | 1 << 20 | 1 << 21 | 1 << 24 | 1 << 25
PRIVILEGED = frozenset({"members", "presences", "message_content"})

_OBJECTS = frozenset({"allowed_mentions", "message_reference", "data"})
_LISTS_OF_OBJECTS = frozenset({"components", "embeds", "attachments", "options", "choices"})
_LISTS = frozenset({"parse", "users", "roles", "sticker_ids"})
_NUMBERS = frozenset({"flags", "type"})

_COMMAND_NAME = re.compile(r"[-_\w]{1,32}")
_USER = re.compile(r"<@!?(\d+)>")
_ROLE = re.compile(r"<@&(\d+)>")
_EVERYONE = re.compile(r"@(everyone|here)")


class Refusal(Exception):
    """An answer that is an error: HTTP status, Discord's code and message, more fields of the body."""

    def __init__(self, code: int, *, status: int = 0, message: str = "", **more: Any) -> None:
        usual_status, usual_message = WORDS.get(code, (400, "Error"))
        self.code, self.status, self.message, self.more = code, status or usual_status, message or usual_message, more
        super().__init__(f"{self.status} {code} {self.message}")

    def body(self) -> Json:
        return {"message": self.message, "code": self.code} | self.more


def form_refusal(errors: Mapping[Path, tuple[str, str]]) -> Refusal:
    """50035 with the nested `errors`: path -> (code, message)."""
    nested: Json = {}
    for path, (code, message) in errors.items():
        place = nested
        for part in path:
            place = place.setdefault(str(part), {})
        place.setdefault("_errors", []).append({"code": code, "message": message})
    return Refusal(50035, errors=nested)


def units(text: str) -> int:
    """Length in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def snowflake(at: float, low: int = 0) -> int:
    """The first id of the millisecond of `at` (epoch seconds), plus `low`."""
    return (int(at * 1000) - EPOCH_MS << 22) + low


def snowflake_time(snowflake_id: int) -> float:
    """Epoch seconds at which the id was made."""
    return ((snowflake_id >> 22) + EPOCH_MS) / 1000


def integer(value: object) -> int | None:
    """An id or a number, as a path, a query or a body has it."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def check_shape(body: object, *, path: Path = (), listed: bool = False) -> None:
    """That what must be an object, a list or a number is one, however deep; `listed`: the body is a list of objects. The rest of this
    module counts on it."""
    if listed:
        if not isinstance(body, list):
            raise form_refusal({path: ("LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")})
        for n, item in enumerate(body):
            check_shape(item, path=(*path, n))
        return
    if not isinstance(body, dict):
        raise form_refusal({path: ("MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType")})
    for name, value in body.items():
        place = (*path, name)
        if value is None:
            continue
        if name in _OBJECTS or name in _LISTS_OF_OBJECTS:
            check_shape(value, path=place, listed=name in _LISTS_OF_OBJECTS)
        elif name in _LISTS and not (isinstance(value, list) and all(isinstance(item, (str, int)) for item in value)):
            raise form_refusal({place: ("LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")})
        elif name in _NUMBERS and "embeds" not in path and (not isinstance(value, int) or not 0 <= value < 1 << 63):
            raise form_refusal({place: ("NUMBER_TYPE_COERCE", f"Value {str(value)[:20]!r} is not int.")})


def checked_content(body: Json) -> str:
    """The text as Discord keeps it: without the blanks around it. "" where there is none."""
    content = body.get("content")
    if content is None:
        return ""
    if not isinstance(content, (str, int, float)):
        raise form_refusal({("content",): ("BASE_TYPE_BAD_TYPE", "Could not interpret value as string.")})
    content = str(content)
    if units(content) > TEXT_LIMIT:  # never fewer than its code points
        raise form_refusal({("content",): ("BASE_TYPE_MAX_LENGTH", f"Must be {TEXT_LIMIT} or fewer in length.")})
    return content.strip()


def checked_nonce(body: Json) -> str | int | None:
    nonce = body.get("nonce")
    if nonce is None:
        return None
    if not isinstance(nonce, (str, int)) or isinstance(nonce, bool):
        raise form_refusal({("nonce",): ("NONCE_TYPE_INVALID", "Nonce must be a string or an integer.")})
    if len(str(nonce)) > NONCE_LIMIT:
        raise form_refusal({("nonce",): ("BASE_TYPE_MAX_LENGTH", f"Must be {NONCE_LIMIT} or fewer in length.")})
    return nonce


def checked_components(body: Json) -> list[Json]:
    """Rows of buttons. Other components are taken as they are."""
    rows: list[Json] = body.get("components") or []
    errors: dict[Path, tuple[str, str]] = {}
    if len(rows) > 5:
        errors["components",] = ("BASE_TYPE_BAD_LENGTH", "Must be between 1 and 5 in length.")
    seen: set[str] = set()
    for r, row in enumerate(rows):
        at: Path = ("components", r, "components")
        buttons = row.get("components") or []
        if row.get("type") != 1:
            continue
        if not 1 <= len(buttons) <= 5:
            errors[at] = ("BASE_TYPE_BAD_LENGTH", "Must be between 1 and 5 in length.")
        for b, button in enumerate(buttons):
            if button.get("type") == 2:
                errors |= {(*at, b, *path): words for path, words in _button_errors(button, seen).items()}
    if errors:
        raise form_refusal(errors)
    return rows


def _button_errors(button: Json, seen: set[str]) -> dict[Path, tuple[str, str]]:
    errors: dict[Path, tuple[str, str]] = {}
    label, custom_id = str(button.get("label") or ""), button.get("custom_id")
    if units(label) > 80:
        errors["label",] = ("BASE_TYPE_MAX_LENGTH", "Must be 80 or fewer in length.")
    if not label and not button.get("emoji"):
        errors["label",] = ("BUTTON_COMPONENT_LABEL_OR_EMOJI", "A button needs a label or an emoji")
    if button.get("style") == 5:
        return errors
    if not custom_id:
        errors["custom_id",] = ("BUTTON_COMPONENT_CUSTOM_ID_REQUIRED", "A custom id is required")
    elif units(str(custom_id)) > CUSTOM_ID_LIMIT:
        errors["custom_id",] = ("BASE_TYPE_BAD_LENGTH", f"Must be between 1 and {CUSTOM_ID_LIMIT} in length.")
    elif custom_id in seen:
        errors["custom_id",] = ("COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")
    seen.add(str(custom_id))
    return errors


def checked_mentions(body: Json) -> Json | None:
    """`allowed_mentions`, refused where it says two things at once."""
    allowed: Json | None = body.get("allowed_mentions")
    if allowed is None:
        return None
    parse = allowed.get("parse") or []
    for kind in parse:
        if kind not in ("users", "roles", "everyone"):
            raise form_refusal(
                {("allowed_mentions", "parse"): ("BASE_TYPE_CHOICES", "Value must be one of {'users', 'roles', 'everyone'}.")}
            )
    for kind in ("users", "roles"):
        if allowed.get(kind) and kind in parse:
            raise form_refusal(
                {
                    ("allowed_mentions",): (
                        "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE",
                        f'parse:["{kind}"] and {kind}: [ids...] are mutually exclusive.',
                    )
                }
            )
        if len(allowed.get(kind) or []) > 100:
            raise form_refusal({("allowed_mentions", kind): ("BASE_TYPE_MAX_LENGTH", "Must be 100 or fewer in length.")})
    return allowed


def pinged(content: str, allowed: Json | None, replied_to: int | None) -> set[str]:
    """Who is notified by a message: user ids, role ids with a "&", "everyone". `replied_to`: the author of the message that it answers."""
    pings: set[str] = set()
    parse = ("users", "roles", "everyone") if allowed is None else allowed.get("parse") or ()
    for kind, mark, pattern in (("users", "", _USER), ("roles", "&", _ROLE)):
        listed = {str(item) for item in (allowed or {}).get(kind) or ()}
        pings |= {mark + found for found in pattern.findall(content) if kind in parse or found in listed}
    if "everyone" in parse and _EVERYONE.search(content):
        pings.add("everyone")
    if replied_to is not None and (allowed is None or allowed.get("replied_user")):
        pings.add(str(replied_to))
    return pings


def mentioned(content: str) -> tuple[list[int], list[int], bool]:
    """Users and roles that a person's text names, in order, and whether it says everyone."""
    users = list(dict.fromkeys(map(int, _USER.findall(content))))
    return users, list(dict.fromkeys(map(int, _ROLE.findall(content)))), bool(_EVERYONE.search(content))


def check_commands(commands: list[Json]) -> list[Json]:
    """The body of a bulk overwrite."""
    if len([command for command in commands if command.get("type", 1) == 1]) > COMMAND_LIMIT:
        raise Refusal(30032)
    errors: dict[Path, tuple[str, str]] = {}
    seen: set[tuple[int, str]] = set()
    for n, command in enumerate(commands):
        kind, name = command.get("type", 1), str(command.get("name", ""))
        if (kind, name) in seen:
            errors[n, "name"] = ("APPLICATION_COMMANDS_DUPLICATE_NAME", "Application command names must be unique")
        seen.add((kind, name))
        if kind == 1:
            errors |= {(n, *path): words for path, words in _entry_errors(command, depth=0).items()}
            size = _size(command)
            if size > 8000:
                errors[n,] = ("APPLICATION_COMMAND_TOO_LARGE", "Command exceeds maximum size (8000)")
    if errors:
        raise form_refusal(errors)
    return commands


def _entry_errors(entry: Json, depth: int) -> dict[Path, tuple[str, str]]:
    """A command's, or an option's of it: name, description, options, choices."""
    errors: dict[Path, tuple[str, str]] = {}
    name = str(entry.get("name", ""))
    if not 1 <= len(name) <= 32:
        errors["name",] = ("BASE_TYPE_BAD_LENGTH", "Must be between 1 and 32 in length.")
    elif not _COMMAND_NAME.fullmatch(name) or name != name.lower():
        errors["name",] = ("APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")
    if "description" not in entry:
        errors["description",] = ("BASE_TYPE_REQUIRED", "This field is required")
    elif not 1 <= len(str(entry["description"])) <= 100:
        errors["description",] = ("BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
    options = entry.get("options") or []
    if len(options) > 25:
        errors["options",] = ("BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length.")
    optional_seen = False
    for n, option in enumerate(options):
        found = _entry_errors(option, depth + 1)
        if option.get("type") not in range(1, 12):
            found["type",] = ("BASE_TYPE_CHOICES", "Value must be one of (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11).")
        if option.get("required") and optional_seen:
            found[()] = ("APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID", "Required options must be placed before non-required options")
        optional_seen |= not option.get("required") and option.get("type") not in (1, 2)
        errors |= {("options", n, *path): words for path, words in found.items()}
    names = [option.get("name") for option in options]
    if len(set(names)) != len(names):
        errors["options",] = ("APPLICATION_COMMAND_OPTIONS_NAME_ALREADY_EXISTS", "Option name already exists")
    choices = entry.get("choices") or []
    if len(choices) > CHOICE_LIMIT:
        errors["choices",] = ("BASE_TYPE_MAX_LENGTH", f"Must be {CHOICE_LIMIT} or fewer in length.")
    if choices and entry.get("autocomplete"):
        errors["autocomplete",] = ("APPLICATION_COMMAND_AUTOCOMPLETE_CHOICES", "Autocomplete cannot be used with choices")
    return errors | choice_errors(choices)


def choice_errors(choices: Iterable[Json]) -> dict[Path, tuple[str, str]]:
    errors: dict[Path, tuple[str, str]] = {}
    for n, choice in enumerate(choices):
        if not 1 <= len(str(choice.get("name", ""))) <= 100:
            errors["choices", n, "name"] = ("BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
        value = choice.get("value")
        if isinstance(value, str) and not 1 <= len(value) <= 100:
            errors["choices", n, "value"] = ("BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
    return errors


def _size(entry: Json) -> int:
    """Characters of all names, descriptions and values of a command together."""
    own = len(str(entry.get("name", ""))) + len(str(entry.get("description", "")))
    own += sum(len(str(choice.get("name", ""))) + len(str(choice.get("value", ""))) for choice in entry.get("choices") or ())
    return own + sum(map(_size, entry.get("options") or ()))
