"""Whether the networks and the model are there and know us: each asked once, all at the same time, each with its own time limit.

Nothing is started and nothing is changed over there, so that it runs beside a daemon with the same tokens. Called by `parlour check
--online`, `parlour init` and `gateway.doctor`.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
import os
import time
from collections.abc import Awaitable, Mapping
from typing import TypeVar

import msgspec

from channels.base import Amiss, ChannelError, Contact, Denied
from gateway import options, secrets
from gateway.app import BACKENDS, CHANNELS
from gateway.backends import faults
from gateway.backends.base import Sight
from gateway.config import Config
from gateway.errors import BackendError, StartError

T = TypeVar("T")

LIMIT = 10.0
"""Seconds for each."""
_LISTED = 8
_NETWORK = "see the network, and api_base and proxy of the channel"


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
    remedy: str = ""
    """What to do where it is not `ok`; "" where `amiss` says it, or nobody knows."""
    ahead: float | None = None
    """Seconds that the other clock is ahead of ours."""
    models: tuple[str, ...] = ()


async def ask_all(config: Config, *, limit: float = LIMIT, env: Mapping[str, str] = os.environ) -> list[Tried]:
    """The channels that have a network, in the order of the config, then the backend. `env`: what secrets are named by."""
    asked = [ask_channel(config, name, limit, env) for name in config.channels if CHANNELS[name].check]
    return list(await asyncio.gather(*asked, ask_backend(config.backend, limit, env)))


async def ask_channel(config: Config, name: str, limit: float = LIMIT, env: Mapping[str, str] = os.environ) -> Tried:
    """Whether the network of this channel knows us."""
    check = importlib.import_module(CHANNELS[name].check).check
    began = time.monotonic()
    try:
        contact: Contact = await _within(limit, check(config.channels[name], config.tokens[name].reveal()))
    except Denied as error:
        remedy = f"give it the right token: {secrets.token_name(env, name)}"
        if form := secrets.misshapen(name, config.tokens[name]):
            remedy += f"; this one has not even the form of one ({form})"
        return Tried(name, False, str(error), _since(began), denied=True, remedy=remedy)
    except ChannelError as error:
        return Tried(name, False, str(error), _since(began), remedy=_NETWORK)
    except TimeoutError:
        return Tried(name, False, f"no answer within {limit:g} s", _since(began), remedy=_NETWORK)
    fatal = [amiss.text for amiss in contact.amiss if amiss.fatal]
    text = fatal[0] if fatal else f"we are {contact.who}" if contact.who else "fine"
    return Tried(name, not fatal, text, _since(began), amiss=contact.amiss, ahead=contact.ahead)


async def ask_backend(settings: options.Backend, limit: float = LIMIT, env: Mapping[str, str] = os.environ) -> Tried:
    """Whether the model's server is there and lists the model. Not every server has a list, and some answer to any name."""
    survey = importlib.import_module(BACKENDS[settings.kind]).survey
    at = f"at {settings.address}: " if settings.address else ""
    began = time.monotonic()
    try:
        sight: Sight = await _within(limit, survey(settings))
    except BackendError as error:
        remedy = faults.remedy(error.said, secrets.key_name(env, settings.api_key))
        return Tried("backend", False, f"{at}{error.said}", _since(began), remedy=remedy)
    except StartError as error:
        return Tried("backend", False, str(error), _since(began), denied=True)
    except TimeoutError:
        return Tried("backend", False, f"{at}no answer within {limit:g} s", _since(began), remedy=faults.remedy(faults.UNREACHED, ""))
    amiss: tuple[Amiss, ...] = ()
    text: str = settings.kind
    if settings.kind == "openai":
        text = f"{settings.address} has {settings.model}"
        if sight.none:
            text = f"{settings.address} is there, and has no model yet"
            amiss = (Amiss(text, f"load one there (with Ollama: ollama pull {settings.model})"),)
        elif not sight.models:
            text = f"{settings.address} is there, and does not say which models it has"
        elif not {settings.model, f"{settings.model}:latest"} & set(sight.models):
            text = f"{settings.address} is there, and does not list the model {settings.model}"
            amiss = (Amiss(text, _another(settings.model, sight.models)),)
    return Tried("backend", True, text, _since(began), amiss=amiss, ahead=sight.ahead, models=sight.models)


def _another(model: str, listed: tuple[str, ...]) -> str:
    """What to do about a model that is not listed."""
    if len(listed) == 1:
        return f"set [backend] model to the one that it lists, {listed[0]}, unless it answers to any name (llama.cpp does, Ollama does not)"
    near = difflib.get_close_matches(model, listed, n=1, cutoff=0.6)
    meant = f"{near[0]} perhaps? " if near else ""
    return f"set [backend] model to one that it lists ({meant}it has {some(listed)}), or load {model} there"


def some(names: tuple[str, ...]) -> str:
    """The first few of a long list."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


async def _within(limit: float, work: Awaitable[T]) -> T:
    async with asyncio.timeout(limit):
        return await work


def _since(began: float) -> float:
    return round(time.monotonic() - began, 2)
