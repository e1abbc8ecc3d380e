"""What goes out, as the API takes it: texts with their mention policy, buttons, and the tickets by which slash commands are answered. Pure.
Called by `channel` and `interactions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from channels.base import FOLLOWS, TICKET, Button
from channels.discord.render import LIMITS
from channels.split import units

log = structlog.get_logger(__name__)

NO_MENTIONS: dict[str, Any] = {"parse": [], "replied_user": False}
"""Goes with every text: whatever is in it, nobody is pinged."""
_NO_PREVIEWS = 4
_DATA_LIMIT = 100
_LABEL_LIMIT = 80
_ROW, _ROWS = 5, 5


@dataclass(frozen=True, slots=True)
class Ticket:
    """What an answer to a slash command needs."""

    interaction: str
    user: str
    token: str = field(repr=False)


def ticket_of(reply_to: str) -> Ticket | None:
    """None for a message's id, and for a ticket that was blanked."""
    parts = reply_to.removeprefix(FOLLOWS).removeprefix(TICKET).split(":", 2)
    return Ticket(*parts) if TICKET in reply_to and len(parts) == 3 and parts[2] else None


def compose(text: str, buttons: Sequence[Button]) -> dict[str, Any]:
    """A create or an edit."""
    return {"content": text, "allowed_mentions": NO_MENTIONS, "components": rows(buttons), "flags": _NO_PREVIEWS}


def rows(buttons: Sequence[Button]) -> list[dict[str, Any]]:
    """Rows of buttons, five at most of five. One whose data is too long or stands twice would cost the whole message, so it is left out."""
    fit: dict[str, Button] = {}
    for button in buttons:
        if button.label.strip() and 1 <= units(button.data) <= _DATA_LIMIT:
            fit.setdefault(button.data, button)
    if len(fit) < len(buttons) or len(fit) > _ROW * _ROWS:
        log.warning("buttons left out", channel="discord", count=len(buttons) - min(len(fit), _ROW * _ROWS))
    keys = [
        {"type": 2, "style": 2, "label": label(button.label), "custom_id": button.data} for button in list(fit.values())[: _ROW * _ROWS]
    ]
    return [{"type": 1, "components": keys[at : at + _ROW]} for at in range(0, len(keys), _ROW)]


def label(text: str) -> str:
    while units(text) > _LABEL_LIMIT:
        text = text[:-2].rstrip() + "…"
    return text


def naming(user: str, text: str) -> str | None:
    """A text that names whom it is for; None where there is no room for it."""
    named = f"<@{user}>\n{text}"
    return named if units(named) <= LIMITS.units else None
