"""The keys of `[channels.web]`."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where the server listens, its names and the token are `[http]`'s; here is what the page itself is like."""

    title: str = "Parlour"
    """Stands above the page and in the browser's tab."""
    max_chars: int = 50_000
    """Longest message that the page takes, in code points."""
    history_lines: int = 300
    """How many lines of a conversation the page shows; older ones stay in the file."""
