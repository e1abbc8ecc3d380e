"""The config, its secrets, the daemon and those that it speaks to. Called by `gateway.doctor`."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from channels.base import Amiss
from gateway import __version__, secrets
from gateway.config import Config
from gateway.doctor.findings import Finding, note, ok, wrong
from gateway.errors import ConfigErrors
from gateway.httpd.report import Status
from gateway.leftovers import Left
from gateway.logging import mask
from gateway.online import Tried
from gateway.reload import Differs
from gateway.words import counted, span

OLD = 600.0
"""Seconds that an input may wait before it is told."""
MANY = 100
"""Messages that may wait for a network."""
_LONE = 1
"""A server that lists one model most often answers to any name."""


def faults(errors: ConfigErrors) -> Iterator[Finding]:
    """A config that does not load, fault by fault; each says itself what to write instead."""
    for fault in errors.faults:
        remedy = "or let `parlour init` write one" if "config.example.toml" in fault.text else ""
        yield wrong("config", mask(str(fault)), remedy)


def config(loaded: Config) -> Iterator[Finding]:
    """What is no fault of the file's content."""
    path = Path(loaded.path)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        yield wrong("config", f"{path} cannot be looked at: {error.strerror}")
        return
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield wrong("config", f"others may change {path}", f"chmod go-w {path}")
    else:
        yield ok("config", f"{path}: {', '.join(loaded.channels)}; {loaded.backend.kind}")
    rules = loaded.access
    chats = [name for name in loaded.channels if name in secrets.CHANNELS]
    if chats and rules.direct in {"allowlist", "closed"} and not (rules.allow or rules.admins or rules.allow_groups):
        yield note("access", f'nobody is let in: direct is "{rules.direct}", and allow is empty', "name somebody in [access] allow")
    if chats and rules.direct == "open" and not rules.turns_per_day:
        yield note("access", "everybody may write, without a limit, on your bill", "set [access] turns_per_day")


def secret_files(env: Mapping[str, str]) -> Iterator[Finding]:
    """Files that hold secrets and that others may read. Their content is not looked at."""
    names = (*secrets.CHANNELS.values(), secrets.WEB, *secrets.BACKEND)
    found = 0
    for name in names:
        said = env.get(f"{name}_FILE", "")
        if not said:
            continue
        path = Path(os.path.expanduser(said))
        try:
            mode = path.stat().st_mode
        except OSError as error:
            yield wrong("secrets", f"{name}_FILE: {path}: {error.strerror}", "put the secret there, or take the variable away")
            continue
        found += 1
        if mode & 0o077:
            yield wrong("secrets", f"others may read {path}", f"chmod 600 {path}")
    if given := [name for name in names if env.get(name)]:
        yield ok("secrets", f"from the environment: {', '.join(given)}")
    if found:
        yield ok("secrets", f"from {counted(found, 'file')}")


def tokens(loaded: Config, env: Mapping[str, str], known: Collection[str]) -> Iterator[Finding]:
    """Tokens that do not look like one, by the name of their secret. `known`: channels whose network has taken theirs, or was asked and
    has refused it: it knows better."""
    for name, token in loaded.tokens.items():
        if name not in known and (form := secrets.misshapen(name, token)):
            yield wrong("secrets", f"the token of {name} has not the form of one ({secrets.token_name(env, name)})", f"it is {form}")


def running(loaded: Config, differs: Differs | None, status: Status) -> Iterator[Finding]:
    """What the running daemon does not know yet of this config. `differs`: what it says about it; None where it runs with another file."""
    if differs is None:
        if status.config:
            yield note("config", f"the daemon runs with another one, {status.config}", "--config says which one is meant")
        return
    if differs.restart:
        yield wrong("config", f"the daemon does not run with {', '.join(differs.restart)} as the file has it", "restart it")
    if differs.reload:
        yield wrong("config", f"the daemon has not taken over {', '.join(differs.reload)} yet", "reload it (systemctl reload parlour)")


def troubles(status: Status | None) -> dict[str, str]:
    """By name, what the running daemon finds wrong with channels and backend."""
    if status is None:
        return {}
    return {"backend": status.health.backend_problem, **{name: channel.problem for name, channel in status.health.channels.items()}}


def daemon(status: Status | None, missing: str, left: Left, now: float | None = None) -> Iterator[Finding]:
    """`missing`: why there is no status."""
    if status is None:
        if left.holder:
            yield wrong(
                "daemon", f"{left.holder} holds the folder and does not answer: {missing}", "its log says why; if it hangs, kill it"
            )
        else:
            yield note("daemon", "none runs", "parlour run, or systemctl start parlour")
        if left.unfinished:
            age = max(0.0, (time.time() if now is None else now) - left.oldest)
            waits = f"{counted(left.unfinished, 'message waits', 'messages wait')} for an answer, the oldest for {span(age)}"
            yield wrong("inputs", waits, "start the daemon")
        return
    if status.version == __version__:
        yield ok("daemon", f"process {status.pid}, version {status.version}, up for {span(status.up)}")
    else:
        yield wrong("daemon", f"it runs version {status.version}, and {__version__} is installed", "restart it")
    health = status.health
    if health.stuck:
        yield wrong("daemon", f"stuck: {health.stuck}", "restart it, and see its log")
    for part, why in sorted(health.restarted.items()):
        yield note("daemon", f"{part} was started anew within the last two minutes: {why}", "see its log")
    if health.backend_problem:
        yield wrong("backend", f"the daemon says: {health.backend_problem}", health.backend_remedy or "see the log of both")
    elif health.backend:
        yield ok("backend", f"the daemon says: {health.backend}")
    for name, channel in sorted(health.channels.items()):
        if channel.state in {"up", "ended"} and not channel.problem:
            yield ok(name, f"the daemon says: {channel.state}")
        elif channel.state == "starting":
            yield note(name, "the daemon says: starting")
        else:
            remedy = "it keeps trying; docs/operations.md, What to do when, and the log say more"
            if channel.state == "stopped":  # some say themselves what to do
                remedy = "" if "restart" in channel.problem else "mend that, then restart the daemon"
            yield wrong(name, f"the daemon says: {channel.state}{f', {channel.problem}' if channel.problem else ''}", remedy)
    if health.oldest_waiting is not None and health.oldest_waiting > OLD:
        yield wrong("inputs", f"a message waits for {span(health.oldest_waiting)}", "see the backend, and [backend] max_concurrent_turns")
    elif status.unfinished:
        yield ok("inputs", f"{status.unfinished} not finished")
    if status.set_aside:
        one = status.set_aside[-1]
        text = f"{counted(len(status.set_aside), 'message')} set aside, over which the daemon died; the newest: {one.input} in {one.key}"
        yield note("inputs", text, "its log says of what; docs/operations.md, What to do when")
    if health.unsent > MANY:
        yield wrong("outbox", f"{health.unsent} messages wait for a network", "see the channels above, and the log")


def others(tried: Sequence[Tried], *, groups: bool, known: Mapping[str, str] = MappingProxyType({})) -> Iterator[Finding]:
    """What came of asking networks and backend. `groups`: any group is let in; `known`: by name, what the running daemon has said is wrong,
    which is not told twice."""
    for one in tried:
        if not one.ok and one.text in known.get(one.name, ""):
            continue
        if not one.ok:
            amiss = next((each for each in one.amiss if each.fatal), Amiss("", one.remedy))
            yield wrong(one.name, mask(one.text), mask(amiss.remedy))
            continue
        found = [each for each in one.amiss if groups or not each.groups]
        for each in found:
            lenient = one.name == "backend" and len(one.models) == _LONE
            yield (note if lenient else wrong)(one.name, mask(each.text), mask(each.remedy))
        if not found:
            yield ok(one.name, mask(f"{one.text} ({one.seconds:.1f} s)"))
