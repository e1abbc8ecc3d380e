"""The config, its secrets, the daemon and those it speaks to: what is told of each, and what is not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from channels.base import Amiss
from channels.settings import Secret
from gateway import __version__
from gateway.app import channel_types
from gateway.config import Config, load
from gateway.doctor import house
from gateway.doctor.findings import Finding
from gateway.errors import ConfigErrors
from gateway.httpd.report import ChannelHealth, Health, SetAside, Status
from gateway.leftovers import Left
from gateway.online import Tried
from gateway.options import Access, Backend
from gateway.reload import Differs

TOKEN = "123456:TESTTOKEN_of-35-characters-in-all-x"


def told(found: object) -> list[tuple[str, str]]:
    assert TOKEN not in repr(found)
    return [(one.area, one.level) for one in found if isinstance(one, Finding)]  # type: ignore[attr-defined]


def config(path: Path, **access: object) -> Config:
    path.touch()
    telegram = channel_types()["telegram"]()
    return Config(
        path=str(path),
        data_dir=path.parent / "data",
        access=Access(**access),  # type: ignore[arg-type]
        backend=Backend(kind="echo"),
        channels={"telegram": telegram},
        tokens={"telegram": Secret(TOKEN)},
    )


def status(*, version: str = __version__, unfinished: int = 0, **health: object) -> Status:
    return Status(
        version=version,
        pid=7,
        since=0.0,
        up=100.0,
        config="",
        data_dir="/data",
        page="",
        health=Health(ready=True, **health),  # type: ignore[arg-type]
        unfinished=unfinished,
        busy=0,
        cached=0,
        stubs=0,
        cached_bytes=0,
        memory=0,
    )


def test_faults_of_a_config(tmp_path: Path) -> None:
    """F10: each fault is a finding with file, line and key, all at once; no secret that stands in the wrong place is in one."""
    path = tmp_path / "config.toml"
    path.write_text(f'[telegran]\n[access]\nallow_form = 1\n[backend]\nidle_timeout = "{TOKEN}"\n')
    with pytest.raises(ConfigErrors) as caught:
        load(path, channel_types(), {})
    found = list(house.faults(caught.value))
    assert {one.level for one in found} == {"wrong"}
    said = " ".join(one.text for one in found)
    for word in ("config.toml:1: telegran", "config.toml:3: access.allow_form", "config.toml:5: backend.idle_timeout"):
        assert word in said
    assert TOKEN not in said


def test_a_config_that_others_may_change(tmp_path: Path) -> None:
    """Whoever may change it may let himself in."""
    loaded = config(tmp_path / "config.toml")
    Path(loaded.path).chmod(0o600)
    assert told(list(house.config(loaded))) == [("config", "ok")]
    Path(loaded.path).chmod(0o622)
    assert told(list(house.config(loaded))) == [("config", "wrong")]


@pytest.mark.parametrize(
    ("access", "notes"),
    [
        ({}, 0),
        ({"direct": "closed"}, 1),
        ({"direct": "allowlist", "allow": ("telegram:1",)}, 0),
        ({"direct": "open"}, 1),
        ({"direct": "open", "turns_per_day": 9}, 0),
    ],
)
def test_access(tmp_path: Path, access: dict[str, object], notes: int) -> None:
    """A door that nobody or everybody can pass is worth a word."""
    assert [one.level for one in house.config(config(tmp_path / "config.toml", **access))].count("note") == notes


def test_secret_files(tmp_path: Path) -> None:
    """A file that others may read or that is not there; what is in it is not looked at."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    for path, mode in ((good, 0o600), (bad, 0o640)):
        path.write_text(TOKEN)
        path.chmod(mode)
    env = {
        "PARLOUR_TELEGRAM_TOKEN_FILE": str(good),
        "PARLOUR_BACKEND_API_KEY_FILE": str(bad),
        "PARLOUR_DISCORD_TOKEN_FILE": str(tmp_path / "nowhere"),
        "PARLOUR_WEB_TOKEN": TOKEN,
    }
    found = list(house.secret_files(env))
    assert sorted(told(found)) == [("secrets", "ok"), ("secrets", "ok"), ("secrets", "wrong"), ("secrets", "wrong")]
    assert {one.remedy for one in found if one.level == "wrong"} == {f"chmod 600 {bad}", "put the secret there, or take the variable away"}


@pytest.mark.parametrize(
    ("left", "levels"),
    [
        (Left(False), [("daemon", "note")]),
        (Left(True, "process 12"), [("daemon", "wrong")]),
        (Left(True, "", 3, 100.0), [("daemon", "note"), ("inputs", "wrong")]),
    ],
)
def test_no_daemon(left: Left, levels: list[tuple[str, str]]) -> None:
    """None runs, one hangs, or none runs and people wait."""
    found = list(house.daemon(None, "no daemon listens", left, now=7300.0))
    assert told(found) == levels
    assert not left.unfinished or "3 messages wait for an answer, the oldest for 2 h" in found[-1].text


def test_a_daemon() -> None:
    """What is not well with it, and an installed version that it does not run yet."""
    assert told(list(house.daemon(status(), "", Left(True)))) == [("daemon", "ok")]
    channels = {
        "telegram": ChannelHealth("down", "no network"),
        "web": ChannelHealth("up"),
        "discord": ChannelHealth("starting"),
        "console": ChannelHealth("stopped"),
        "other": ChannelHealth("up", "another program is reading this bot's messages"),
    }
    ill = status(version="0.0.1", unfinished=3, channels=channels, disk="full", unsent=101, oldest_waiting=601.0)
    assert told(list(house.daemon(ill, "", Left(True)))) == [
        ("daemon", "wrong"),
        ("console", "wrong"),
        ("discord", "note"),
        ("other", "wrong"),
        ("telegram", "wrong"),
        ("web", "ok"),
        ("inputs", "wrong"),
        ("outbox", "wrong"),
    ]


def test_the_daemons_own_view_of_the_backend() -> None:
    """What it met is repeated, with its remedy: a look from here may find the server well, and the daemon does not."""
    (_, found) = house.daemon(status(backend="openai, fine"), "", Left(True))
    assert (found.area, found.level, found.text) == ("backend", "ok", "the daemon says: openai, fine")
    ill = status(backend="openai at x: No.", backend_problem="openai at x: No.", backend_remedy="mend it")
    (_, found) = house.daemon(ill, "", Left(True))
    assert (found.area, found.level, found.text, found.remedy) == ("backend", "wrong", "the daemon says: openai at x: No.", "mend it")


def test_others() -> None:
    """What was asked: a refused token, a server that is not there, a webhook in the way, privacy mode where groups are let in."""
    privacy, webhook, model = (
        Amiss("privacy", "do", groups=True),
        Amiss("webhook", "remove it", fatal=True),
        Amiss("no such model", "set it"),
    )
    fine = Tried("telegram", True, "we are @x", amiss=(privacy,))
    assert told(list(house.others([fine], groups=False))) == [("telegram", "ok")]
    assert told(list(house.others([fine], groups=True))) == [("telegram", "wrong")]
    (found,) = house.others([Tried("telegram", False, "webhook", amiss=(privacy, webhook))], groups=True)
    assert (found.level, found.remedy) == ("wrong", "remove it")
    (found,) = house.others([Tried("telegram", False, "refused", denied=True, remedy="give it the right one")], groups=True)
    assert (found.level, found.remedy) == ("wrong", "give it the right one")
    ill = status(backend_problem="openai at x: No key.", channels={"telegram": ChannelHealth("stopped", "refused (it is X)")})
    twice = [Tried("telegram", False, "refused"), Tried("backend", False, "at x: No key.")]
    assert list(house.others(twice, groups=True, known=house.troubles(ill))) == []
    assert len(list(house.others(twice, groups=True, known=house.troubles(None)))) == 2
    several = Tried("backend", True, "x", amiss=(model,), models=("a", "b"))
    lone = Tried("backend", True, "x", amiss=(model,), models=("a",))
    empty = Tried("backend", True, "x", amiss=(model,))
    assert told(list(house.others([several, lone, empty], groups=True))) == [
        ("backend", "wrong"),
        ("backend", "note"),
        ("backend", "wrong"),
    ]


@pytest.mark.parametrize(
    ("channel", "token", "good"),
    [
        ("telegram", "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0", True),
        ("telegram", "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", False),
        ("telegram", "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0", False),
        ("telegram", "bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0", False),
        ("discord", "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs", True),
        ("discord", "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ", False),
        ("discord", "3ac9b8f3c8e44c5f9e6f1f2a3b4c5d6e", False),
        ("discord", "Bot.MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs", False),
    ],
)
def test_a_token_that_does_not_look_like_one(tmp_path: Path, channel: str, token: str, good: bool) -> None:
    """Told by the name of its secret and without it, and only where its network has not said what it thinks of it."""
    loaded = msgspec.structs.replace(config(tmp_path / "config.toml"), tokens={channel: Secret(token), "web": Secret("short")})
    found = list(house.tokens(loaded, {}, ()))
    assert [(one.area, one.level) for one in found] == ([] if good else [("secrets", "wrong")])
    assert all(f"token in [channels.{channel}]" in one.text and token not in repr(one) for one in found)
    assert list(house.tokens(loaded, {}, {channel})) == []


def test_what_the_running_daemon_does_not_know_yet(tmp_path: Path) -> None:
    """Keys that a reload takes over, keys that need a restart, and a daemon that runs with another file."""
    loaded = config(tmp_path / "config.toml")
    assert list(house.running(loaded, Differs(), status())) == []
    found = list(house.running(loaded, Differs(("access.allow",), ("http.listen", "channels.web")), status()))
    assert [(one.level, one.remedy) for one in found] == [("wrong", "restart it"), ("wrong", "reload it (systemctl reload parlour)")]
    assert "http.listen, channels.web" in found[0].text
    (other,) = house.running(loaded, None, msgspec.structs.replace(status(), config="/elsewhere/config.toml"))
    assert (other.level, "/elsewhere/config.toml" in other.text) == ("note", True)


def test_what_was_set_aside_is_told() -> None:
    """How many, and where to find the newest."""
    aside = (SetAside("telegram:7:42:11", "telegram:42", 0.0, 4), SetAside("telegram:7:43:12", "telegram:43", 1.0, 4))
    (found,) = [one for one in house.daemon(msgspec.structs.replace(status(), set_aside=aside), "", Left(True)) if "set aside" in one.text]
    assert found.level == "note"
    assert "2 messages" in found.text
    assert "telegram:7:43:12 in telegram:43" in found.text
