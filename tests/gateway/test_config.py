"""The config: what is right is read as written, what is wrong is told with file, line and key, all of it at once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.settings import Bytes, Seconds, Secret
from gateway import config, secrets
from gateway.config import Config
from gateway.errors import ConfigErrors
from gateway.options import Backend
from gateway.tomllines import Lines
from gateway.validate import seconds, size

TOKEN = "123456:TESTTOKEN-abcdefgh"


class Telegram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: str = "polling"
    token: Secret = Secret("")
    backlog: Seconds = Seconds(86400)
    sends_per_second: float = 30
    chat_per_second: float = 1
    webhook_url: str = ""
    proxy: str = ""

    def __post_init__(self) -> None:
        if self.mode == "webhook":
            raise ValueError("webhook_url: must be set in webhook mode\nwhat concerns no key")


class Web(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str = "Parlour"


TYPES: Mapping[str, type[msgspec.Struct]] = {"telegram": Telegram, "discord": Web, "web": Web, "console": Web}
MODEL = '[backend]\nmodel = "m"\n'
PLAIN = MODEL + "[channels.console]\n"

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to(text: str, mode: int = 0o600) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text, newline="")
        path.chmod(mode)
        return path

    return to


def load(path: Path, **env: str) -> Config:
    return config.load(path, TYPES, env)


def faults(path: Path, **env: str) -> list[tuple[int, str, str]]:
    with pytest.raises(ConfigErrors) as caught:
        load(path, **env)
    return [(fault.line, fault.key, fault.text) for fault in caught.value.faults]


def one_fault(path: Path, **env: str) -> tuple[int, str, str]:
    found = faults(path, **env)
    assert len(found) == 1, found
    return found[0]


# ------------------------------------------------------------------------------------------------------------------------ what is right


def test_defaults(write: Write, tmp_path: Path) -> None:
    """A file with a model and a channel is enough; everything else has the documented default."""
    loaded = load(write(PLAIN))
    assert (loaded.log.level, loaded.log.format) == ("info", "auto")
    assert (loaded.http.listen, loaded.http.hosts, loaded.http.token) == ("127.0.0.1:8787", (), "")
    assert (loaded.access.direct, loaded.access.groups, loaded.access.turns_per_day) == ("pairing", "allowlist", 0)
    assert (loaded.sessions.cache, loaded.sessions.history_messages, loaded.sessions.history_tokens) == (64 * 2**20, 200, 16000)
    assert (loaded.sessions.durability, loaded.sessions.group_scope, loaded.sessions.waiting) == ("process", "chat", 50)
    assert (loaded.backend.kind, loaded.backend.base_url, loaded.backend.model) == ("openai", "http://127.0.0.1:11434/v1", "m")
    assert (loaded.backend.max_concurrent_turns, loaded.backend.max_answer_chars) == (256, 30000)
    assert (loaded.backend.first_token_timeout, loaded.backend.idle_timeout, loaded.shutdown.budget) == (
        Seconds(120),
        Seconds(60),
        Seconds(25),
    )
    assert loaded.channels == {"console": Web()}
    assert loaded.tokens == {"console": ""}
    assert loaded.hidden == ()


def test_everything_said(write: Write) -> None:
    """What is said is read: tables, lists over several lines, units, inline tables and dotted keys."""
    text = """
        log.level = "debug"
        [access]
        allow = [
          "telegram:42",   # Ana
          "telegram:-7",
        ]
        admins = ["web:abc.d-e_f"]
        [sessions]
        cache = "10MB"
        [shutdown]
        budget = "1.5m"
        [http]
        listen = "[::1]:0"
        hosts = ["chat.example.org", "chat.example.org:8443"]
        [backend]
        kind = "echo"
        [channels]
        web = { title = "Ours" }
        telegram.backlog = 0
        telegram.chat_per_second = 2
    """
    loaded = load(write(text), PARLOUR_TELEGRAM_TOKEN=TOKEN)
    assert loaded.log.level == "debug"
    assert loaded.access.allow == ("telegram:42", "telegram:-7")
    assert loaded.access.admins == ("web:abc.d-e_f",)
    assert loaded.sessions.cache == 10_000_000
    assert loaded.shutdown.budget == Seconds(90)
    assert loaded.http.listen == "[::1]:0"
    assert loaded.channels["web"] == Web(title="Ours")
    assert loaded.channels["telegram"] == Telegram(token=Secret(TOKEN), backlog=Seconds(0), chat_per_second=2.0)


def test_bom_and_crlf(write: Write) -> None:
    """A file as a Windows editor saves it is read like any other."""
    assert load(write("\ufeff" + PLAIN.replace("\n", "\r\n"))).backend.model == "m"


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("10m", 600), ("24h", 86400), ("7d", 604800), ("250ms", 0.25), ("0s", 0), (0, 0), ("1.5h", 5400)]
)
def test_durations(text: object, value: float) -> None:
    """Durations are written with a unit; zero may be bare."""
    result = seconds(text)
    assert isinstance(result, Seconds)
    assert math.isclose(result, value)


@pytest.mark.parametrize(
    "text", ["off", "5x", "-1", -1, "-1s", "", "s", "5", 5, 1.5, True, "1h30m", "٣s", "1e3s", "99999999999d", [], None, " 5s"]
)
def test_no_durations(text: object) -> None:
    """E20: what is no duration is refused, and not taken for a default or for "no limit"."""
    with pytest.raises(ValueError, match=r"duration|ten years"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "value"), [("64MiB", 64 * 2**20), ("10MB", 10**7), ("4096", 4096), (4096, 4096), ("1.5 KiB", 1536), ("2gib", 2**31)]
)
def test_sizes(text: object, value: int) -> None:
    """Sizes are written with a unit, or in bytes."""
    result = size(text)
    assert isinstance(result, Bytes)
    assert result == value


@pytest.mark.parametrize("text", ["64M", "-1", -1, True, 1.5, "", "MiB", 2**64])
def test_no_sizes(text: object) -> None:
    """What is no size, or could be meant in two ways, is refused."""
    with pytest.raises(ValueError, match="expected a size"):
        size(text)


# ------------------------------------------------------------------------------------------------------------------------ what is wrong


def test_all_faults_at_once(write: Write) -> None:
    """One start shows everything there is to correct, in the order of the lines."""
    text = """cache = "1MiB"
[acces]
[access]
allow_form = ["telegram:42"]
direct = "opne"
admins = ["telegram:@ana", "telegran:42", "42"]
turns_per_day = -1
turns_per_day = 2
[sessions]
waiting = "10s"
history_tokens = 0
data_dir = "x"
[backend]
idle_timeout = "5x"
[shutdown]
budget = "0s"
[channels.telegran]
[channels.telegram]
token = ""
"""
    assert faults(write(text)) == [
        (1, "cache", "unknown key: it belongs in [sessions]"),
        (2, "acces", 'unknown table: did you mean "access"?'),
        (4, "access.allow_form", 'unknown key: did you mean "allow"?'),
        (5, "access.direct", 'there is no "opne": did you mean "open"?'),
        (
            6,
            "access.admins",
            '"telegram:@ana": expected the number that the network knows them by, since names change hands (/whoami tells it)',
        ),
        (6, "access.admins", '"telegran:42": unknown channel: did you mean "telegram"?'),
        (6, "access.admins", '"42": expected "channel:id" like "telegram:42"'),
        (7, "access.turns_per_day", "must not be negative, and is -1"),
        (8, "access.turns_per_day", "stands twice, first on line 7"),
        (10, "sessions.waiting", 'expected a whole number, not the text "10s"'),
        (11, "sessions.history_tokens", "must be at least 1, and is 0"),
        (12, "sessions.data_dir", "unknown key: it belongs above the first table"),
        (14, "backend.idle_timeout", 'expected a duration like "90s", "10m", "24h", "7d" or "250ms", not "5x"'),
        (16, "shutdown.budget", "must be more than 0"),
        (17, "channels.telegran", 'unknown channel: did you mean "telegram"?'),
        (
            19,
            "channels.telegram.token",
            "is empty: set PARLOUR_TELEGRAM_TOKEN, or PARLOUR_TELEGRAM_TOKEN_FILE to a file that holds it "
            '(the unit has it in /etc/parlour/secrets/TELEGRAM_TOKEN), or token = "..." here',
        ),
    ]


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("[telegran]\n" + PLAIN, 1, "telegran", 'did you mean "channels.telegram"?'),
        ("[telegram]\n" + PLAIN, 1, "telegram", 'did you mean "channels.telegram"?'),
        (PLAIN + "titel = 3\n", 4, "channels.console.titel", 'did you mean "title"?'),
        (PLAIN + "listen = 3\n", 4, "channels.console.listen", "it belongs in [http]"),
        (PLAIN + '[access]\nallow = "telegram:42"', 5, "access.allow", 'expected a list like ["telegram:42"], not "telegram:42"'),
        (PLAIN + "[access]\nallow = [42]", 5, "access.allow", "expected a text in quotes, not 42"),
        (PLAIN + "[access]\nturns_per_day = true", 5, "access.turns_per_day", "expected a whole number, not true"),
        (PLAIN + "[access]\nturns_per_day = 1.0", 5, "access.turns_per_day", "expected a whole number, not 1.0"),
        (PLAIN + "[access]\nturns_per_day = 99999999999999999999", 5, "access.turns_per_day", "makes sense"),
        (PLAIN + "[channels.telegram]\nsends_per_second = " + "9" * 400, 5, "channels.telegram.sends_per_second", "makes sense"),
        (PLAIN + "[channels.telegram]\nsends_per_second = inf", 5, "channels.telegram.sends_per_second", "makes sense"),
        (PLAIN + "[channels.telegram]\nsends_per_second = nan", 5, "channels.telegram.sends_per_second", "makes sense"),
        (PLAIN + "[channels.telegram]\nsends_per_second = -1", 5, "channels.telegram.sends_per_second", "must not be negative"),
        (MODEL + "[channels]\nconsole = true", 4, "channels.console", "expected a table [channels.console], not true"),
        (MODEL, 0, "", "no channel is configured"),
        ("channels = 3\n" + MODEL, 1, "channels", "expected tables"),
        ("log = 3\n" + PLAIN, 1, "log", "expected a table [log], not 3"),
        ("[[log]]\n" + PLAIN, 1, "log", "expected a table [log], not a list"),
        ("[channels.console]", 0, "backend.model", "say which model"),
        ('[backend]\nmodel = " "\n[channels.console]', 2, "backend.model", "say which model"),
        ('[backend]\nkind = "opanai"\n[channels.console]', 2, "backend.kind", 'did you mean "openai"?'),
        (MODEL + 'base_url = "localhost:1/v1"\n[channels.console]', 3, "backend.base_url", "expected an address"),
        (MODEL + 'base_url = "http://h:99999/"\n[channels.console]', 3, "backend.base_url", "expected an address"),
        (PLAIN + '[http]\nlisten = "8787"', 5, "http.listen", "expected an address and a port"),
        (PLAIN + '[http]\nlisten = ":8787"', 5, "http.listen", "expected an address and a port"),
        (PLAIN + '[http]\nlisten = "::1:8787"', 5, "http.listen", "expected an address and a port"),
        (PLAIN + '[http]\nlisten = "unix:web.sock"', 5, "http.listen", "expected an address and a port"),
        (PLAIN + '[http]\nlisten = "h:70000"', 5, "http.listen", "expected an address and a port"),
        (PLAIN + '[http]\nhosts = ["https://a.example"]', 5, "http.hosts", "without"),
        (PLAIN + '[channels.web]\n[http]\nlisten = ""', 4, "channels.web", "needs the HTTP server"),
        (PLAIN + '[sessions]\ncache = "0"', 5, "sessions.cache", "must be more than 0"),
        (PLAIN + '[sessions]\ndurability = "disk"', 5, "sessions.durability", "there is power, process"),
        ("data_dir = 3\n" + PLAIN, 1, "data_dir", "expected the path of a folder"),
        ('data_dir = ""\n' + PLAIN, 1, "data_dir", "expected the path of a folder"),
        (PLAIN + "[log]\n[log]\nlevel = 3\n[http]", 5, "log", "stands twice, first on line 4"),
        (PLAIN + "[access]\nallow = [\n 'telegram:42',\n 'telegran:42',\n]", 5, "access.allow", 'did you mean "telegram"?'),
        ('"a\\nb" = 1\n' + PLAIN, 1, '"a\\nb"', "unknown key"),
        ("x = [1,\n" + PLAIN, 2, "x", "not TOML"),
        ("[log\n" + PLAIN, 1, "", "not TOML"),
        ("level = \n" + PLAIN, 1, "level", "not TOML: invalid value"),
        (PLAIN + "[log]\nlevel = 'info", 5, "log.level", "not TOML"),
        ("x = " + "9" * 5000 + "\n" + PLAIN, 0, "", "not TOML"),
        ("x" + ".x" * 3000 + " = 1\n" + PLAIN, 1, "x", "unknown table"),
        ("x = " + "[" * 50_000, 0, "", "nested too deeply"),
    ],
)
def test_fault(write: Write, text: str, line: int, key: str, says: str) -> None:
    """F10: a misspelt table or key, a value of a wrong kind, a duplicate: refused with line, key and the nearest valid name."""
    found = one_fault(write(text), PARLOUR_TELEGRAM_TOKEN=TOKEN)
    assert found[:2] == (line, key)
    assert says in found[2]


def test_faults_of_a_whole_table(write: Write) -> None:
    """What a channel's settings find wrong about several keys together is told key by key."""
    assert faults(write(PLAIN + '[channels.telegram]\nmode = "webhook"'), PARLOUR_TELEGRAM_TOKEN=TOKEN) == [
        (4, "channels.telegram.webhook_url", "must be set in webhook mode"),
        (4, "channels.telegram", "what concerns no key"),
    ]


def test_fault_is_one_line(write: Write, tmp_path: Path) -> None:
    """A fault is one line that begins with file, line and key, as editors and terminals jump to it."""
    with pytest.raises(ConfigErrors) as caught:
        load(write(PLAIN + 'a = "x\\ny"\n"b\\u001b\\n" = 1\n'))
    told = str(caught.value).split("\n")
    assert len(told) == 2
    assert told[0].startswith(f"{tmp_path}/config.toml:4: channels.console.a: ")
    assert all(line.isprintable() for line in told)


def test_a_duplicate_hides_no_other_fault(write: Write) -> None:
    """TOML ends at the first duplicate; the check goes on."""
    found = faults(write(PLAIN + "[log]\nlevel = 1\nlevel = 2\n[http]\nhosts = 3\n[http]\nlisten = 4\n"))
    assert [fault[:2] for fault in found] == [(5, "log.level"), (6, "log.level"), (8, "http.hosts"), (9, "http")]


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00", b"x = '\xe9'\n"])
def test_no_text(tmp_path: Path, raw: bytes) -> None:
    """A file in another encoding is a fault with its line."""
    path = tmp_path / "c.toml"
    path.write_bytes(b"\n" + raw)
    assert one_fault(path) == (2, "", "is not UTF-8 text")


def test_no_file(tmp_path: Path) -> None:
    """A file that is not there, or none that can be read, is one fault that says what to do."""
    assert "there is no such file" in one_fault(tmp_path / "nope.toml")[2]
    assert "cannot be read" in one_fault(tmp_path)[2]
    assert "cannot be read" in one_fault(tmp_path / "a\0b")[2]
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * 2_000_000)
    assert "over 256 KiB" in one_fault(big)[2]


def test_what_has_no_end_or_no_beginning(tmp_path: Path) -> None:
    """A device that never ends and a pipe that nobody writes into hold nobody up; a pipe that somebody writes into is read."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "over 256 KiB" in one_fault(Path("/dev/zero"))[2]
    assert faults(pipe)
    assert config.guess_data_dir("/dev/zero", {}).name == config.guess_data_dir(str(pipe), {}).name == "data"
    reading, writing = os.pipe()
    os.write(writing, b'data_dir = "/elsewhere"\n')
    os.close(writing)
    assert config.guess_data_dir(f"/dev/fd/{reading}", {}) == Path("/elsewhere")
    os.close(reading)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=80),
        st.lists(
            st.sampled_from(
                [
                    "[",
                    "]",
                    "a",
                    "log",
                    ".",
                    "=",
                    '"',
                    "'",
                    '"""',
                    "'''",
                    "\n",
                    "#",
                    "{",
                    "}",
                    ",",
                    "1",
                    "\\",
                    "channels",
                    " ",
                    "\r",
                    "token",
                ]
            ),
            max_size=25,
        ).map(lambda parts: "".join(parts).encode()),
    )
)
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    """Whatever the file holds, the answer is a config or faults, each in one line; never another error."""
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(raw)
    told: list[str] = []
    try:
        load(path)
    except ConfigErrors as error:
        told = [str(fault) for fault in error.faults] or ["nothing\n"]
    assert not any("\n" in line for line in told)


def test_lines() -> None:
    """The line finder is not misled by strings, comments, brackets and quoting."""
    text = '''a = """
[not.a.table]
b = 1 \\"""
""" # "
"c.d" = ['[x]', # ]
  "]",
]
[t . "u v"]
e.f = {g = "}", h = [1]}
[[list]]
k = 1
[[list]]
k = 2
[t]
last = 'it\\'
end = 1
'''
    lines = Lines(text)
    assert {one.path: one.first for one in lines.all} == {
        ("a",): 1,
        ("c.d",): 5,
        ("t", "u v"): 8,
        ("t", "u v", "e", "f"): 9,
        ("list",): 12,
        ("list", "k"): 13,
        ("t",): 14,
        ("t", "last"): 15,
        ("t", "end"): 16,
    }
    assert lines.line(("t", "u v", "e", "f", "g")) == 9
    assert lines.line(("t",)) == 14
    assert lines.line(("nowhere", "x")) == 0
    assert lines.at(6) == ("c.d",)
    assert lines.duplicates() == []


# -------------------------------------------------------------------------------------------------------------------------------- where


def test_data_dir(write: Write, tmp_path: Path) -> None:
    """Explicit wins, and a relative path starts at the config file's folder; then systemd's folder; then ./data."""
    assert load(write('data_dir = "d"\n' + PLAIN), STATE_DIRECTORY="/var/lib/x").data_dir == tmp_path / "d"
    assert load(write('data_dir = "~"\n' + PLAIN)).data_dir == Path.home()
    assert load(write('data_dir = "~nobody-of-this-name/x"\n' + PLAIN)).data_dir == tmp_path / "~nobody-of-this-name" / "x"
    assert load(write('data_dir = "/d/../e"\n' + PLAIN)).data_dir == Path("/e")
    assert load(write(PLAIN), STATE_DIRECTORY="/var/lib/x:/var/lib/y").data_dir == Path("/var/lib/x")
    assert load(write(PLAIN)).data_dir == Path.cwd() / "data"


def test_guess_data_dir(write: Write, tmp_path: Path) -> None:
    """`parlour pair` finds the daemon's folder although the config has faults, or is not there."""
    assert config.guess_data_dir(str(write('data_dir = "d"\nnonsense = 1')), {}) == tmp_path / "d"
    assert config.guess_data_dir(str(write("data_dir = [")), {}) == Path.cwd() / "data"
    assert config.guess_data_dir(str(tmp_path / "nope"), {"STATE_DIRECTORY": "/s"}) == Path("/s")


def test_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --config it is ./config.toml; with none anywhere the fault says what to do."""
    monkeypatch.chdir(tmp_path)
    assert config.find("x.toml") == Path("x.toml")
    if not config.PLACES[1].exists():
        with pytest.raises(ConfigErrors, match=r"copy config\.example\.toml .* \./dev run"):
            config.find(None)
    Path("config.toml").touch()
    assert config.find(None) == Path("config.toml")


def test_demo() -> None:
    """The demonstration is the web page on the usual port, with the model or the echo."""
    shown = config.demo(TYPES, local=True, env={"PARLOUR_WEB_TOKEN": "sesame-street"})
    assert (shown.http.listen, shown.backend.kind, shown.demo) == ("127.0.0.1:8787", "local", True)
    assert (shown.channels, shown.tokens) == ({"web": Web()}, {"web": Secret("sesame-street")})
    assert shown.hidden == (Secret("sesame-street"),)
    assert config.demo(TYPES, local=False, env={}).backend.kind == "echo"
    with pytest.raises(ConfigErrors, match=r"^--listen: expected an address and a port"):
        config.demo(TYPES, local=False, listen="nonsense", env={})


# ------------------------------------------------------------------------------------------------------------------------------ secrets

TELEGRAM = MODEL + "[channels.telegram]\n"


def test_order_of_secrets(write: Write, tmp_path: Path) -> None:
    """Credential, then file, then environment, then config: the first that is there counts."""
    path = write(TELEGRAM + 'token = "1:from-config"\n')
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (tmp_path / "token").write_text("1:from-file\n")
    env = {"CREDENTIALS_DIRECTORY": str(credentials)}
    assert load(path, **env).tokens["telegram"] == "1:from-config"
    env["PARLOUR_TELEGRAM_TOKEN"] = "1:from-env"
    assert load(path, **env).tokens["telegram"] == "1:from-env"
    assert load(path, **env).channels["telegram"] == Telegram(token=Secret("1:from-env"))
    env["PARLOUR_TELEGRAM_TOKEN_FILE"] = str(tmp_path / "token")
    assert load(path, **env).tokens["telegram"] == "1:from-file"
    (credentials / "PARLOUR_TELEGRAM_TOKEN").write_text("1:from-credential\r\n")
    loaded = load(path, **env)
    assert loaded.tokens["telegram"] == "1:from-credential"
    assert "from" not in repr(loaded.tokens)


def test_the_operator_is_told_which_secret_it_is(tmp_path: Path) -> None:
    """By the name of the place that counts, never by its value; where there is no key yet, how to give one."""
    (tmp_path / "PARLOUR_TELEGRAM_TOKEN").touch()
    env = {"PARLOUR_TELEGRAM_TOKEN": "1:x"}
    assert secrets.token_name({}, "telegram") == "token in [channels.telegram]"
    assert secrets.token_name({}, "web") == ""
    assert secrets.token_name(env, "telegram") == "PARLOUR_TELEGRAM_TOKEN"
    env["PARLOUR_TELEGRAM_TOKEN_FILE"] = "/etc/token"
    assert secrets.token_name(env, "telegram") == "PARLOUR_TELEGRAM_TOKEN, in /etc/token"
    env["CREDENTIALS_DIRECTORY"] = str(tmp_path)
    assert secrets.token_name(env, "telegram") == "PARLOUR_TELEGRAM_TOKEN, a credential of the unit"
    assert secrets.key_name({"OPENAI_API_KEY": "sk-1"}, Secret("sk-1")) == "OPENAI_API_KEY"
    assert secrets.key_name({}, Secret("sk-1")) == "api_key in [backend]"
    assert secrets.key_name({}, Secret("")) == "there is none; set PARLOUR_BACKEND_API_KEY"


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("http://127.0.0.1:11434/v1/", "http://127.0.0.1:11434/v1"),
        ("https://ana:pa%40ss@[::1]:8/v1?key=abc#x", "https://[::1]:8/v1"),
        ("https://api.example.org", "https://api.example.org"),
    ],
)
def test_the_address_of_the_backend_has_no_secret_in_it(base_url: str, address: str) -> None:
    """User, password and query are left out; what is in this process has no address."""
    assert Backend(model="m", base_url=base_url).address == address
    assert Backend(kind="echo", base_url=base_url).address == ""


def test_key_of_the_backend(write: Write) -> None:
    """Our own name comes before the usual one; the echo has no use for somebody's OPENAI_API_KEY."""
    path = write(PLAIN)
    assert load(path, OPENAI_API_KEY="sk-usual").backend.api_key == "sk-usual"
    assert load(path, OPENAI_API_KEY="sk-usual", PARLOUR_BACKEND_API_KEY="sk-ours").backend.api_key == "sk-ours"
    assert load(path, OPENAI_API_KEY="sk-usual", PARLOUR_BACKEND_API_KEY="").backend.api_key == "sk-usual"
    assert load(write('[backend]\nkind = "echo"\n[channels.console]'), OPENAI_API_KEY="sk-usual").backend.api_key == ""


def test_token_of_the_page(write: Write) -> None:
    """The page's token is [http] token, or PARLOUR_WEB_TOKEN."""
    path = write(MODEL + '[http]\ntoken = "in-config"\n[channels.web]')
    assert load(path).http.token == load(path).tokens["web"] == "in-config"
    assert load(path, PARLOUR_WEB_TOKEN="in-env").tokens["web"] == "in-env"


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644])
@pytest.mark.parametrize(
    ("text", "key"),
    [
        (TELEGRAM + 'token = "1:x"', "channels.telegram.token"),
        (PLAIN + '[http]\ntoken = "x"', "http.token"),
        ('[backend]\nmodel = "m"\napi_key = "x"\n[channels.console]', "backend.api_key"),
        (PLAIN + '[channels.telegram]\nproxy = "http://u:pw@h:1"', "channels.telegram.proxy"),
    ],
)
def test_readable_config(tmp_path: Path, text: str, key: str, mode: int) -> None:
    """A config with a secret in it that others may read is refused, even where the secret then comes from elsewhere."""
    path = tmp_path / "c.toml"
    path.write_text(text)
    path.chmod(mode)
    found = one_fault(path, PARLOUR_TELEGRAM_TOKEN=TOKEN)
    assert found[1:] == (key, f"a secret stands here and others may read this file: chmod 600 {path}")
    path.chmod(0o600)
    load(path, PARLOUR_TELEGRAM_TOKEN=TOKEN)


def test_readable_config_without_secrets(tmp_path: Path) -> None:
    """A config without secrets may be read by all, and systemd's copy of one with secrets may have systemd's mode."""
    plain = tmp_path / "plain.toml"
    plain.write_text(TELEGRAM)
    plain.chmod(0o644)
    load(plain, PARLOUR_TELEGRAM_TOKEN=TOKEN)
    copy = tmp_path / "copy.toml"
    copy.write_text(TELEGRAM + 'token = "1:x"')
    copy.chmod(0o440)
    assert load(copy, CREDENTIALS_DIRECTORY=str(tmp_path)).tokens["telegram"] == "1:x"


def test_secret_files_that_do_not_work(write: Write, tmp_path: Path) -> None:
    """A secret file that is named and cannot be used is a fault that names it; the next place is not tried instead."""
    path, secret = write(TELEGRAM + 'token = "1:x"'), tmp_path / "token"

    def told() -> str:
        with pytest.raises(ConfigErrors) as caught:
            load(path, PARLOUR_TELEGRAM_TOKEN_FILE=str(secret), PARLOUR_TELEGRAM_TOKEN="1:y")
        return str(caught.value)

    assert told() == f"{secret}: PARLOUR_TELEGRAM_TOKEN_FILE: cannot be read: No such file or directory"
    for content, says in (
        (b"\n", "is empty"),
        (b"a b\n", "has blanks"),
        (b"a\nb", "has blanks"),
        (b"\xff", "is not a text"),
        (b"x" * 70000, "too long"),
    ):
        secret.write_bytes(content)
        assert told().startswith(f"{secret}: PARLOUR_TELEGRAM_TOKEN_FILE: {says}") or says in told()
    secret.unlink()
    secret.mkdir()
    assert "Is a directory" in told()


def test_secret_that_is_none(write: Write) -> None:
    """A token with a blank or a line break in it is refused where it stands, without being shown."""
    assert "blanks" in one_fault(write(TELEGRAM), PARLOUR_TELEGRAM_TOKEN="1: secret")[2]
    found = one_fault(write(TELEGRAM + 'token = "hidden value"'))
    assert found[:2] == (4, "channels.telegram.token")
    assert "hidden" not in found[2]
    found = one_fault(write(TELEGRAM + "token = 123456789"))
    assert found == (4, "channels.telegram.token", "expected a text in quotes")


def test_what_is_hidden(write: Write) -> None:
    """F02: every secret of the config is known to the log's mask, passwords in addresses included."""
    text = """[backend]
model = "m"
base_url = "https://u:p%40ss@h/v1"
api_key = "sk-1"
[http]
token = "web-token"
[channels.telegram]
proxy = "socks5://me:hunter22@p:1"
"""
    hidden = {secret.reveal() for secret in load(write(text), PARLOUR_TELEGRAM_TOKEN=TOKEN, PARLOUR_BACKEND_API_KEY="sk-2").hidden}
    assert {TOKEN, "sk-1", "sk-2", "web-token", "hunter22", "p%40ss", "p@ss"} <= hidden
    shown = repr(load(write(text.replace("u:p%40ss@", "").replace("me:hunter22@", "")), PARLOUR_TELEGRAM_TOKEN=TOKEN))
    assert not any(secret in shown for secret in hidden)


def test_a_fault_shows_no_secret(write: Write) -> None:
    """Faults quote what was written, but never what is secret."""
    with pytest.raises(ConfigErrors) as caught:
        load(write(PLAIN + '[http]\ntoken = ["deadbeef"]\n[channels.telegram]\ntoken = { a = "deadbeef" }\nkeyy = "deadbeef"\n'))
    assert "deadbeef" not in str(caught.value)
