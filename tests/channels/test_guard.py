"""Hosts, origins, tokens: `channels.guard`."""

from __future__ import annotations

import pytest

from channels.guard import Guard, is_loopback, split_host


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8787",
        "127.0.0.1:1",
        "[::1]:8787",
        "[::1]",
        "LOCALHOST.:80",
        "chat.example.org",
        "Chat.Example.ORG:444",
        "10.0.0.9:8787",
    ],
)
def test_known_hosts_are_taken(host: str) -> None:
    """The local names, the listen address and the configured names are us, with any port."""
    assert Guard("t", ["10.0.0.9:8787", "chat.example.org"]).host_ok(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "evil.example#localhost",
        "evil@localhost",
        "localhost@evil.example",
        "10.0.0.8",
        "localhost:x",
        "localhost, evil.example",
        "[::1",
        "[::2]",
        "localhost/",
        "127.0.0.1.nip.io",
        "local host",
        "0.0.0.0",
        ":8787",
        "localhost\\evil",
    ],
)
def test_other_hosts_are_refused(host: str) -> None:
    """A name that is not ours is refused, however it is dressed (DNS rebinding)."""
    assert not Guard("t", ["10.0.0.9:8787"]).host_ok(host)


def test_a_server_on_every_interface_takes_address_literals_only() -> None:
    """A literal cannot be rebound; a name still has to be configured."""
    for listen in ("0.0.0.0:8787", "[::]:8787"):
        guard = Guard("t", [listen])
        assert guard.host_ok("192.168.1.5:8787")
        assert guard.host_ok("[fe80::1]:8787")
        assert not guard.host_ok("evil.example:8787")


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8787", "127.0.0.1:8787"),
        ("http://localhost:8787", "LOCALHOST:8787"),
        ("http://[::1]:8787", "[::1]:8787"),
        ("https://chat.example.org", "chat.example.org"),
        ("https://chat.example.org", "127.0.0.1:8787"),
        ("https://other.example:8443", "127.0.0.1:8787"),
    ],
)
def test_our_own_origin_is_taken(origin: str, host: str) -> None:
    """The origin is the host that was asked, or a configured one where a proxy rewrites Host."""
    assert Guard("t", ["127.0.0.1:8787", "chat.example.org", "other.example:8443"]).origin_ok(origin, host)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://localhost:3000",
        "http://evil.example",
        "file://",
        "http://127.0.0.1:8787.evil.example",
        "http://127.0.0.1:8787/x",
        "https://127.0.0.1",
        "http://evil@127.0.0.1:8787",
        "chrome-extension://abc",
        "http://chat.example.org:3000",
        "http://[::1",
        "http://127.0.0.1:99999",
    ],
)
def test_other_origins_are_refused(origin: str) -> None:
    """Another port of this machine is another program, to which browsers give our cookies all the same."""
    assert not Guard("t", ["127.0.0.1:8787", "chat.example.org"]).origin_ok(origin, "127.0.0.1:8787")


def test_the_cookie_is_not_the_token_and_dies_with_it() -> None:
    """The same token gives the same cookie after a restart; another token another one, under another name."""
    one, again, other = Guard("token-one"), Guard("token-one"), Guard("token-two")
    assert one.cookie == again.cookie
    assert "token-one" not in one.cookie
    assert one.cookie_ok(again.cookie)
    assert not other.cookie_ok(one.cookie)
    assert one.cookie_name != other.cookie_name


def test_an_empty_token_opens_nothing() -> None:
    """Without a token neither an empty one nor the cookie that would stand for it is good."""
    guard = Guard("")
    assert guard.token("") == "wrong"
    assert guard.bearer("Bearer ") == "wrong"
    assert not guard.cookie_ok(guard.cookie)
    assert not guard.cookie_ok("")


def test_strange_tokens_are_only_wrong() -> None:
    """Whatever bytes come in as a token or a cookie, the answer is no and not an error."""
    guard = Guard("töken")
    assert guard.token("t\udcf6ken") == "wrong"
    assert guard.token("x" * 100_000) == "wrong"
    assert not guard.cookie_ok("\udcff€")
    assert guard.token("töken") == "ok"


def test_guessing_is_slowed_down() -> None:
    """After thirty wrong tokens in a minute nobody gets an answer, and later they do."""
    now = [100.0]
    guard = Guard("right", clock=lambda: now[0])
    assert [guard.token(str(n)) for n in range(30)] == ["wrong"] * 30
    assert guard.token("right") == "later"
    now[0] += 61
    assert guard.token("right") == "ok"


def test_only_a_bearer_counts_as_shown() -> None:
    """Other kinds of Authorization are not ours and count as no try."""
    guard = Guard("right", tries=1)
    assert guard.bearer("Basic abc") is None
    assert guard.bearer("") is None
    assert guard.bearer("bearer right") == "ok"


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
        ("::ffff:10.0.0.1", False),
    ],
)
def test_what_only_this_machine_reaches(name: str, local: bool) -> None:
    """Loopback addresses in every form, and nothing else."""
    assert is_loopback(name) is local


def test_a_host_that_is_none_is_said_so() -> None:
    """A configured name with a scheme or a path is a mistake, not a host."""
    for text in ("https://chat.example.org", "a/b", "", "[", "a:b"):
        with pytest.raises(ValueError, match=r"."):
            split_host(text)
