"""The installed unit, as systemd would read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli import environment, is_units
from gateway.unit import STOP, find, seconds


def put(folder: Path, text: str, name: str = "parlour.service") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_ours() -> None:
    """The unit that we ship is understood."""
    unit = find([Path("deploy")])
    assert unit is not None
    assert 25 < unit.stop < 300
    assert unit.credentials["config.toml"] == Path("/etc/parlour/config.toml")


def test_secrets_and_drop_ins(tmp_path: Path) -> None:
    """The first folder's unit counts; drop-ins of all folders are read in the order of their names; an empty value takes back; comments,
    other sections and joined lines are what they are."""
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    put(etc, "[Unit]\nTimeoutStopSec=1\n[Service]\n#TimeoutStopSec=2\nTimeoutStopSec=30\nLoadCredential=\\\n PARLOUR_TELEGRAM_TOKEN:/t\n")
    put(lib, "[Service]\nTimeoutStopSec=3\n")
    put(lib, "[Service]\nLoadCredential=\nLoadCredential=PARLOUR_WEB_TOKEN:/w\n", "parlour.service.d/20.conf")
    put(etc, "TimeoutStopSec=4\n[Service]\nTimeoutStopSec=1min 30s\n", "parlour.service.d/10.conf")
    unit = find([tmp_path / "nowhere", etc, lib])
    assert unit is not None
    assert (unit.path, unit.stop) == (etc / "parlour.service", 90.0)
    assert unit.environment() == {"PARLOUR_WEB_TOKEN_FILE": "/w"}
    assert find([tmp_path / "nowhere"]) is None


def test_a_folder_of_secrets(tmp_path: Path) -> None:
    """Its files are called as systemd calls them; folders in it are passed over, and so is what is not there."""
    (tmp_path / "secrets" / "more").mkdir(parents=True)
    (tmp_path / "secrets" / "TELEGRAM_TOKEN").touch()
    put(
        tmp_path,
        f"[Service]\nLoadCredential=PARLOUR:{tmp_path}/secrets\nLoadCredential=config.toml:/c\nLoadCredential=odd\nLoadCredential=a:b\n",
    )
    unit = find([tmp_path])
    assert unit is not None
    assert unit.credentials == {"PARLOUR_TELEGRAM_TOKEN": tmp_path / "secrets" / "TELEGRAM_TOKEN", "config.toml": Path("/c")}
    assert unit.environment() == {"PARLOUR_TELEGRAM_TOKEN_FILE": f"{tmp_path}/secrets/TELEGRAM_TOKEN"}


def test_a_unit_that_is_none(tmp_path: Path) -> None:
    """Bytes that are no text are passed over."""
    (tmp_path / "parlour.service").write_bytes(b"\xff\xfe")
    assert find([tmp_path]) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("45", 45.0),
        ("45s", 45.0),
        ("2min", 120.0),
        ("1h 5m", 3900.0),
        ("500ms", 0.5),
        ("infinity", float("inf")),
        ("soon", STOP),
        ("5 fortnights", STOP),
        ("1.2.3", STOP),
    ],
)
def test_seconds(text: str, value: float) -> None:
    """systemd's ways to write a time."""
    assert seconds(text) == value


def test_root_sees_what_the_daemon_sees(tmp_path: Path) -> None:
    """The unit's secrets and the place of its data count for who looks at the unit's config, by any path, and for no other; what is set
    already stays."""
    for name in ("config.toml", "other.toml", "t", "w"):
        (tmp_path / name).touch()
    put(
        tmp_path,
        f"[Service]\nLoadCredential=config.toml:{tmp_path}/config.toml\nLoadCredential=PARLOUR_TELEGRAM_TOKEN:{tmp_path}/t\n"
        f"LoadCredential=PARLOUR_WEB_TOKEN:{tmp_path}/w\nLoadCredential=PARLOUR_DISCORD_TOKEN:{tmp_path}/nowhere\n"
        "StateDirectory=parlour more\n",
    )
    unit = find([tmp_path])
    (tmp_path / "link.toml").symlink_to("config.toml")
    env = {"HOME": "/x", "PARLOUR_WEB_TOKEN": "mine"}
    with_token = {**env, "PARLOUR_TELEGRAM_TOKEN_FILE": f"{tmp_path}/t", "STATE_DIRECTORY": "/var/lib/parlour"}
    assert environment(str(tmp_path / "config.toml"), unit, env) == with_token
    assert environment(str(tmp_path / "link.toml"), unit, env) == with_token
    assert environment(str(tmp_path / "other.toml"), unit, env) == env
    assert environment(str(tmp_path / "nowhere.toml"), unit, env) == env
    assert environment(str(tmp_path / "config.toml"), None, env) == env
    assert environment(str(tmp_path / "config.toml"), unit, {"STATE_DIRECTORY": "/here"})["STATE_DIRECTORY"] == "/here"
    assert [is_units(str(tmp_path / name), unit) for name in ("config.toml", "other.toml", "nowhere.toml")] == [True, False, False]
