"""What aiohttp's servers may say in our log. Used by `channels.telegram.webhook` and `gateway.httpd`."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError


class _Quiet(logging.Filter):
    """Keeps what aiohttp says of requests that do not parse out of the log: it quotes their bytes, which may have a secret in them, and
    anybody may send as many of them as he likes."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return record.levelno >= logging.WARNING and not isinstance(error, HttpProcessingError)


def server_log(name: str) -> logging.Logger:
    """The logger for a server's runner. Asked again, the same one."""
    log = logging.getLogger(name)
    if not any(isinstance(one, _Quiet) for one in log.filters):
        log.addFilter(_Quiet())
    return log
