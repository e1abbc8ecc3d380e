"""What a running daemon takes over of a changed config, and what it reads."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from channels.settings import Seconds, Secret
from gateway import reload
from gateway.app import channel_types
from gateway.config import Config, load
from gateway.errors import ConfigErrors
from gateway.options import TABLES, Access, Backend, Http, Log, Sessions, Shutdown
from gateway.reload import TAKEN, plan

TYPES = channel_types()
TELEGRAM, WEB = TYPES["telegram"], TYPES["web"]
PACING = {"telegram": {"sends_per_second", "chat_per_second"}}


def config(**changes: object) -> Config:
    base = Config(
        path="config.toml",
        data_dir=Path("/data"),
        backend=Backend(model="a"),
        channels={"telegram": TELEGRAM(), "web": WEB()},
        tokens={"telegram": Secret("1:x"), "web": Secret("")},
        hidden=(Secret("1:x"),),
    )
    return msgspec.structs.replace(base, **changes)


def test_the_same_config_changes_nothing() -> None:
    """No key is named, and the config stays."""
    assert plan(config(), config(), PACING) == (config(), (), ())


def test_what_can_change_is_taken_over() -> None:
    """One of each table; the keys are named as the file has them."""
    wanted = config(
        log=Log(level="debug"),
        access=Access(allow=("telegram:1",), turns_per_day=5),
        sessions=Sessions(history_messages=7),
        backend=Backend(model="b", system_prompt="Be brief.", api_key=Secret("k"), idle_timeout=Seconds(9)),
        shutdown=Shutdown(budget=Seconds(5)),
        channels={"telegram": TELEGRAM(sends_per_second=3), "web": WEB()},
    )
    made, taken, restart = plan(config(), wanted, PACING)
    assert made == wanted
    assert set(taken) == {
        "log.level",
        "access.allow",
        "access.turns_per_day",
        "sessions.history_messages",
        "backend.model",
        "backend.api_key",
        "backend.system_prompt",
        "backend.idle_timeout",
        "shutdown.budget",
        "channels.telegram.sends_per_second",
    }
    assert restart == ()


def test_what_cannot_is_named_and_stays_as_it_runs() -> None:
    """Also when it is asked again: it is told until the restart comes. What can be taken over beside it is."""
    wanted = config(
        data_dir=Path("/elsewhere"),
        log=Log(format="json", level="error"),
        http=Http(listen="127.0.0.1:1"),
        sessions=Sessions(durability="power"),
        backend=Backend(model="a", max_concurrent_turns=3),
        channels={"telegram": TELEGRAM(streaming="off"), "console": TYPES["console"]()},
        tokens={"telegram": Secret("1:y"), "console": Secret("")},
    )
    first = plan(config(), wanted, PACING)
    assert first.taken == ("log.level",)
    assert set(first.restart) == {
        "data_dir",
        "log.format",
        "http.listen",
        "sessions.durability",
        "backend.max_concurrent_turns",
        "channels.telegram.streaming",
        "channels.telegram.token",
        "channels.console",
        "channels.web",
    }
    assert first.config == config(log=Log(level="error"))
    again = plan(first.config, wanted, PACING)
    assert (again.taken, set(again.restart)) == ((), set(first.restart))


def test_another_kind_of_backend_brings_no_address_to_this_one() -> None:
    """What stands beside the new kind is meant for it; what any kind needs is taken over."""
    wanted = config(backend=Backend(kind="echo", system_prompt="Be brief."))
    made, taken, restart = plan(config(), wanted, PACING)
    assert taken == ("backend.system_prompt",)
    assert set(restart) == {"backend.kind", "backend.model"}
    assert (made.backend.kind, made.backend.model) == ("openai", "a")


def test_secrets_of_both_stay_hidden() -> None:
    """A key that was, and a key that is to be, may still come up in a line of the log."""
    made = plan(config(), config(hidden=(Secret("new"), Secret("1:x"))), PACING).config
    assert [secret.reveal() for secret in made.hidden] == ["1:x", "new"]


def test_the_table_names_what_there_is() -> None:
    """No key of an option that has gone, and every table is the daemon's own."""
    for name, keys in TAKEN.items():
        assert keys <= set(TABLES[name].__struct_fields__)


def test_plans_agree_whatever_changes() -> None:
    """For any two configs: the plan is the wanted one where nothing needs a restart, and every difference is in one of the two lists."""
    logs = [Log(), Log(level="debug"), Log(format="json")]
    access = [Access(), Access(direct="open")]
    channels = [{"web": WEB()}, {"web": WEB(), "telegram": TELEGRAM()}, {"telegram": TELEGRAM(chat_per_second=9)}]
    configs = [config(log=a, access=b, channels=c, tokens={}) for a, b, c in itertools.product(logs, access, channels)]
    for running, wanted in itertools.product(configs, configs):
        made, taken, restart = plan(running, wanted, PACING)
        assert bool(taken or restart) == (running != wanted)
        assert (made == wanted) == (not restart)
        assert not set(taken) & set(restart)


def test_another_config_is_compared_without_showing_it() -> None:
    """What differs is what a reload would name, taken over or not, and no value or secret can be read in what is handed over."""
    running = config(tokens={"telegram": Secret("1:x"), "web": Secret("")})
    wanted = config(
        data_dir=Path("/elsewhere"),
        log=Log(format="json", level="error"),
        access=Access(allow=("telegram:1",)),
        backend=Backend(model="a", api_key=Secret("sk-secret"), max_concurrent_turns=3),
        channels={"telegram": TELEGRAM(streaming="off", sends_per_second=3), "console": TYPES["console"]()},
        tokens={"telegram": Secret("1:y"), "console": Secret("")},
    )
    theirs = reload.digests(wanted, "salt")
    assert not any("sk-secret" in text or "1:y" in text for text in theirs.values())
    found = reload.differs(running, "salt", theirs, PACING)
    made = plan(running, wanted, PACING)
    assert (set(found.reload), set(found.restart)) == (set(made.taken), set(made.restart))
    assert reload.differs(wanted, "salt", theirs, PACING) == reload.Differs()
    assert reload.digests(wanted, "other") != theirs


def test_comparing_agrees_with_planning_whatever_changes() -> None:
    """For any two configs; another kind of backend brings no address to this one."""
    logs = [Log(), Log(level="debug"), Log(format="json")]
    backends = [Backend(model="a"), Backend(model="b"), Backend(kind="echo")]
    channels = [{"web": WEB()}, {"web": WEB(), "telegram": TELEGRAM()}, {"telegram": TELEGRAM(chat_per_second=9)}]
    configs = [config(log=a, backend=b, channels=c, tokens={}) for a, b, c in itertools.product(logs, backends, channels)]
    for running, wanted in itertools.product(configs, configs):
        found = reload.differs(running, "s", reload.digests(wanted, "s"), PACING)
        made = plan(running, wanted, PACING)
        assert (set(found.reload), set(found.restart)) == (set(made.taken), set(made.restart))


# ----------------------------------------------------------------------------------------------------------------------------- reading


def write(folder: Path, model: str, token: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(f'[backend]\nmodel = "{model}"\n[channels.telegram]\n')
    (folder / "PARLOUR_TELEGRAM_TOKEN").write_text(token + "\n")
    return folder / "config.toml"


@pytest.mark.parametrize("put", [True, False])
def test_what_the_unit_puts_aside_for_a_reload_is_read(tmp_path: Path, put: bool) -> None:
    """systemd's own copies are those of the start: the fresh ones count where they are, for the file and the secrets in it alike."""
    handed = write(tmp_path / "handed", "old", "1:old")
    fresh = tmp_path / "fresh"
    if put:
        write(fresh, "new", "1:new")
    env = {"CREDENTIALS_DIRECTORY": str(handed.parent), reload.FRESH: str(fresh), "STATE_DIRECTORY": "/var/lib/parlour"}
    found = reload.read(handed, TYPES, env)
    word = "new" if put else "old"
    assert (found.backend.model, found.tokens["telegram"].reveal(), found.data_dir) == (word, f"1:{word}", Path("/var/lib/parlour"))


def test_without_systemd_the_file_is_read_where_it_is(tmp_path: Path) -> None:
    """The variable alone means nothing."""
    write(tmp_path / "fresh", "new", "1:new")
    path = write(tmp_path / "here", "mine", "1:mine")
    env = {reload.FRESH: str(tmp_path / "fresh"), "PARLOUR_TELEGRAM_TOKEN": "1:env"}
    assert reload.read(path, TYPES, env) == load(path, TYPES, {"PARLOUR_TELEGRAM_TOKEN": "1:env"})


def test_a_broken_file_raises(tmp_path: Path) -> None:
    """As at the start."""
    path = write(tmp_path / "here", "mine", "1:mine")
    path.write_text("[backend]\nmodel = 7\n[channels.nonsense]\n")
    with pytest.raises(ConfigErrors, match=r"nonsense"):
        reload.read(path, TYPES, {})
