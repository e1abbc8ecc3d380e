"""The web token: given by the operator, or made once and kept in the data folder. Called by `gateway.app` at start."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from channels.settings import Secret
from gateway.errors import StartError

FILE = "web-token"
_MOST = 4096


def web_token(folder: Path, configured: str) -> str:
    """The token: `configured` ([http].token), else PARLOUR_WEB_TOKEN, else `folder`/web-token, which is made (0600) if it is not there.

    Raises StartError where the file cannot be read or made. Blocks for a few file calls: for the start only.
    """
    given = configured.reveal() if isinstance(configured, Secret) else configured
    given = given.strip() or os.environ.get("PARLOUR_WEB_TOKEN", "").strip()
    if given:
        return given
    path = folder / FILE
    try:
        return _kept(path) or _made(path)
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"{path}: cannot keep the web token: {getattr(error, 'strerror', None) or 'it is not a text'}") from None


def _kept(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    with open(handle, "rb") as file:
        if os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, 0o600)
        return file.read(_MOST).decode().strip()


def _made(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = secrets.token_urlsafe(24)
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(f"{token}\n".encode())
        fresh.rename(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return token
