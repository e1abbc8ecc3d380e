"""What Telegram refuses in a text, its entities and its buttons, with the service's words; and the entities it finds in a person's text.

Pure; used by `tests.fakes.telegram` alone. Where sources disagree about a limit, what either of them refuses is refused here.
"""

from __future__ import annotations

import json
import re
from typing import Any

Json = dict[str, Any]

TEXT_LIMIT = 4096
CAPTION_LIMIT = 1024
ENTITY_LIMIT = 100
"""Telegram drops the formatting of those above, without a word."""
DATA_LIMIT = 64

_ENTITY_TYPES = frozenset(
    (
        "mention",
        "hashtag",
        "cashtag",
        "bot_command",
        "url",
        "email",
        "phone_number",
        "bold",
        "italic",
        "underline",
        "strikethrough",
        "spoiler",
        "blockquote",
        "expandable_blockquote",
        "code",
        "pre",
        "text_link",
        "text_mention",
        "custom_emoji",
    )
)
_COMMAND = re.compile(r"(?<![\w/@])/([A-Za-z0-9_]{1,64})(@[A-Za-z0-9_]{3,32})?(?![\w/])")
_MENTION = re.compile(r"(?<![\w@])@[A-Za-z0-9_]{3,32}(?!\w)")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
_MENU_NAME = re.compile(r"[a-z0-9_]{1,32}")


class Refusal(Exception):
    """An answer that is not ok: HTTP status, description, and the `parameters` some of them carry."""

    def __init__(self, status: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.status, self.description, self.parameters = status, description, parameters

    def body(self) -> Json:
        body: Json = {"ok": False, "error_code": self.status, "description": self.description}
        return body | {"parameters": self.parameters} if self.parameters else body


def units(text: str) -> int:
    """Length in UTF-16 units, which is how Telegram counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def checked_text(text: object, *, empty: str, long: str, limit: int = TEXT_LIMIT) -> str:
    """The text as Telegram keeps it: blanks around it are cut off."""
    if not isinstance(text, str):
        raise Refusal(400, empty)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Refusal(400, "Bad Request: strings must be encoded in UTF-8") from None
    kept = text.strip(" \t\r\n\v\f\0")
    if not kept.strip("\u200b\u200c\u200d\u2060\ufeff\u00a0\u2800 \n"):
        raise Refusal(400, empty)
    if len(kept) > limit or units(kept) > limit:
        raise Refusal(400, long)
    return kept


def checked_entities(text: str, entities: object) -> list[Json]:
    """The entities that are shown; refuses those out of bounds, across each other, or cutting a character in two. `text` as it was sent."""
    if entities is None:
        return []
    if not isinstance(entities, list):
        raise Refusal(400, "Bad Request: can't parse entities: expected an Array")
    end = units(text)
    borders = {0}
    position = 0
    for char in text:
        position += 2 if ord(char) > 0xFFFF else 1
        borders.add(position)
    open_until: list[int] = []
    for entity in sorted(entities, key=lambda e: (e.get("offset", 0), -e.get("length", 0))):
        kind, offset, length = entity.get("type"), entity.get("offset"), entity.get("length")
        if kind not in _ENTITY_TYPES:
            raise Refusal(400, "Bad Request: can't parse MessageEntity: Unsupported type specified")
        if not isinstance(offset, int) or not isinstance(length, int) or offset < 0 or length <= 0:
            raise Refusal(400, "Bad Request: receive an entity with incorrect offset or length")
        if offset + length > end:
            raise Refusal(
                400,
                f"Bad Request: entity beginning at UTF-16 offset {offset} ends after the end of the text at UTF-16 offset "
                f"{offset + length}",
            )
        if offset not in borders:
            raise Refusal(400, f"Bad Request: entity begins in a middle of a UTF-16 symbol at byte offset {offset}")
        if offset + length not in borders:
            raise Refusal(
                400,
                f"Bad Request: entity beginning at UTF-16 offset {offset} ends in a middle of a UTF-16 symbol at UTF-16 offset "
                f"{offset + length}",
            )
        if kind == "text_link" and not entity.get("url"):
            raise Refusal(400, "Bad Request: can't parse MessageEntity: Can't find field \"url\"")
        while open_until and open_until[-1] <= offset:
            open_until.pop()
        if open_until and open_until[-1] < offset + length:
            raise Refusal(400, f"Bad Request: can't parse entities: entities cross at UTF-16 offset {offset}")
        open_until.append(offset + length)
    return entities[:ENTITY_LIMIT]


def checked_markup(markup: object) -> Json | None:
    """An inline keyboard with callback buttons."""
    if markup is None:
        return None
    if not isinstance(markup, dict) or not isinstance(markup.get("inline_keyboard"), list):
        raise Refusal(400, "Bad Request: object expected as reply markup")
    rows: list[list[Json]] = markup["inline_keyboard"]
    for button in (button for row in rows for button in row):
        if not button.get("text"):
            raise Refusal(400, "Bad Request: can't parse inline keyboard button: Text must be non-empty")
        if not 1 <= len(str(button.get("callback_data", "")).encode()) <= DATA_LIMIT:
            raise Refusal(400, "Bad Request: BUTTON_DATA_INVALID")
    if sum(map(len, rows)) > 100:
        raise Refusal(400, "Bad Request: REPLY_MARKUP_TOO_LONG")
    return markup if any(rows) else None


def check_menu(commands: object) -> None:
    if not isinstance(commands, list):
        raise Refusal(400, "Bad Request: expected an Array of BotCommand")
    if len(commands) > 100:
        raise Refusal(400, "Bad Request: BOT_COMMANDS_TOO_MUCH")
    for command in commands:
        if not _MENU_NAME.fullmatch(str(command.get("command", ""))):
            raise Refusal(400, "Bad Request: BOT_COMMAND_INVALID")
        if not 1 <= len(str(command.get("description", ""))) <= 256:
            raise Refusal(400, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID")


def found_entities(text: str) -> list[Json]:
    """What Telegram marks in a text that a person typed: commands, mentions, e-mail addresses."""
    found = [("email", m.start(), m.end()) for m in _EMAIL.finditer(text)]
    taken = [range(start, end) for _, start, end in found]
    for kind, pattern in (("bot_command", _COMMAND), ("mention", _MENTION)):
        for m in pattern.finditer(text):
            if not any(m.start() in span for span in taken):
                found.append((kind, m.start(), m.end()))
                taken.append(range(m.start(), m.end()))
    return [
        {"type": kind, "offset": units(text[:start]), "length": units(text[start:end])}
        for kind, start, end in sorted(found, key=lambda item: item[1])
    ]


def integer(value: object) -> int | None:
    try:
        return int(value) if isinstance(value, (int, str)) and value != "" else None
    except ValueError:
        return None


def structure(params: Json, name: str) -> Any:
    """A parameter that is an object or array: as it is in a JSON body, as a string of JSON in a form."""
    value = params.get(name)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise Refusal(400, f"Bad Request: can't parse {name} JSON object") from None
