"""Whether the networks and the model are there and know us: each asked once, all at the same time, each with its own time limit.

Nothing is started and nothing is changed over there, so that it runs beside a daemon with the same tokens. Called by `parlour check
--online`, `parlour init` and `gateway.doctor`.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from channels.base import Amiss, ChannelError, Contact, Denied
from gateway import options
from gateway.app import BACKENDS, CHANNELS
from gateway.backends.base import Sight
from gateway.config import Config
from gateway.errors import BackendError, StartError

T = TypeVar("T")

LIMIT = 10.0
"""Seconds for each."""
_LISTED = 8


class Tried(msgspec.Struct, frozen=True):
    """What came of asking one of them."""

    name: str
    """"telegram", or "backend"."""
    ok: bool
    text: str
    """As whom we are known, or what is wrong."""
    seconds: float = 0.0
    denied: bool = False
    """The credentials are refused: no wait and no repeat mends that."""
    amiss: tuple[Amiss, ...] = ()
    ahead: float | None = None
    """Seconds that the other clock is ahead of ours."""
    models: tuple[str, ...] = ()


async def ask_all(config: Config, *, limit: float = LIMIT) -> list[Tried]:
    """The channels that have a network, in the order of the config, then the backend."""
    asked = [ask_channel(config, name, limit) for name in config.channels if CHANNELS[name].check]
    return list(await asyncio.gather(*asked, ask_backend(config.backend, limit)))


async def ask_channel(config: Config, name: str, limit: float = LIMIT) -> Tried:
    """Whether the network of this channel knows us."""
    check = importlib.import_module(CHANNELS[name].check).check
    began = time.monotonic()
    try:
        contact: Contact = await _within(limit, check(config.channels[name], config.tokens[name].reveal()))
    except ChannelError as error:
        return Tried(name, False, str(error), _since(began), denied=isinstance(error, Denied))
    except TimeoutError:
        return Tried(name, False, f"no answer within {limit:g} s", _since(began))
    fatal = [amiss.text for amiss in contact.amiss if amiss.fatal]
    text = fatal[0] if fatal else f"we are {contact.who}" if contact.who else "fine"
    return Tried(name, not fatal, text, _since(began), amiss=contact.amiss, ahead=contact.ahead)


async def ask_backend(settings: options.Backend, limit: float = LIMIT) -> Tried:
    """Whether the model's server is there and lists the model. Not every server has a list, and some answer to any name."""
    survey = importlib.import_module(BACKENDS[settings.kind]).survey
    began = time.monotonic()
    try:
        sight: Sight = await _within(limit, survey(settings))
    except BackendError as error:
        return Tried("backend", False, error.said, _since(began))
    except StartError as error:
        return Tried("backend", False, str(error), _since(began), denied=True)
    except TimeoutError:
        return Tried("backend", False, f"no answer within {limit:g} s", _since(began))
    amiss: tuple[Amiss, ...] = ()
    text: str = settings.kind
    if settings.kind == "openai":
        text = f"has {settings.model}"
        if not sight.models:
            text = "is there, and does not say which models it has"
        elif not {settings.model, f"{settings.model}:latest"} & set(sight.models):
            text = f"is there, and does not list the model {settings.model}"
            amiss = (Amiss(text, f"set [backend] model to one that it lists: {some(sight.models)}"),)
    return Tried("backend", True, text, _since(began), amiss=amiss, ahead=sight.ahead, models=sight.models)


def some(names: tuple[str, ...]) -> str:
    """The first few of a long list."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


async def _within(limit: float, work: Awaitable[T]) -> T:
    async with asyncio.timeout(limit):
        return await work


def _since(began: float) -> float:
    return round(time.monotonic() - began, 2)
