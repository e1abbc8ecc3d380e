from __future__ import annotations

import pytest
from aiohttp import encode_basic_auth
from yarl import URL

from gateway.backends.proxy import find
from gateway.errors import StartError

FAR = URL("https://api.example.org/v1")
PLAIN = URL("http://model.example.org:8000/v1")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.8.8.8", "0.0.0.0", "ollama.localhost", "localhost."])
@pytest.mark.parametrize(
    "env",
    [
        {"ALL_PROXY": "socks://127.0.0.1:1"},
        {"HTTP_PROXY": "127.0.0.1:7890"},
        {"HTTP_PROXY": "http://user:secret@10.0.0.1:3128", "https_proxy": "http://10.0.0.1:1"},
    ],
)
def test_a_model_on_this_machine_is_asked_directly(host: str, env: dict[str, str]) -> None:
    """F21: whatever the variables say, and even if they say nonsense."""
    assert find(URL(f"http://{host}:8000/v1"), env) is None


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        (FAR, {}, None),
        (FAR, {"HTTPS_PROXY": ""}, None),
        (FAR, {"HTTPS_PROXY": "http://10.0.0.1:3128"}, "http://10.0.0.1:3128"),
        (FAR, {"HTTP_PROXY": "http://10.0.0.1:3128"}, None),
        (PLAIN, {"HTTP_PROXY": "10.0.0.1:7890"}, "http://10.0.0.1:7890"),
        (PLAIN, {"HTTP_PROXY": "proxy.lan"}, "http://proxy.lan"),
        (PLAIN, {"HTTP_PROXY": "http://a:1", "http_proxy": "http://b:2", "all_proxy": "http://c:3"}, "http://b:2"),
        (PLAIN, {"ALL_PROXY": "http://c:3/"}, "http://c:3"),
        (FAR, {"ALL_PROXY": "http://c:3", "NO_PROXY": "example.org"}, None),
        (FAR, {"ALL_PROXY": "http://c:3", "NO_PROXY": ".example.org, x"}, None),
        (FAR, {"ALL_PROXY": "http://c:3", "no_proxy": "*"}, None),
        (FAR, {"ALL_PROXY": "http://c:3", "NO_PROXY": "ple.org"}, "http://c:3"),
        (PLAIN, {"ALL_PROXY": "http://c:3", "NO_PROXY": "model.example.org:8000"}, None),
        (PLAIN, {"ALL_PROXY": "http://c:3", "NO_PROXY": "model.example.org:9"}, "http://c:3"),
        (URL("http://10.1.2.3/v1"), {"ALL_PROXY": "http://c:3", "NO_PROXY": "10.0.0.0/8"}, None),
        (URL("http://[fd00::1]:80/v1"), {"ALL_PROXY": "http://c:3", "NO_PROXY": "fd00::1"}, None),
    ],
)
def test_the_order_of_the_variables(url: URL, env: dict[str, str], proxy: str | None) -> None:
    """F21: no_proxy, then the scheme's variable, then all_proxy; lower case first; a bare host:port is an HTTP proxy."""
    found = find(url, env)
    assert (str(found.url).rstrip("/") if found else None) == proxy


def test_user_and_password_are_taken_out_of_the_address() -> None:
    """F02: the address can be shown, the authorization is apart and not in the repr."""
    found = find(FAR, {"HTTPS_PROXY": "http://user:s%40cret@10.0.0.1:3128"})
    assert found
    assert str(found.url) == "http://10.0.0.1:3128"
    assert found.authorization == encode_basic_auth("user", "s@cret")
    assert found.authorization not in repr(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks://user:secret@127.0.0.1:1"),
        ("ALL_PROXY", "socks5h://secret:1"),
        ("https_proxy", "http://user:secret@:99999999"),
        ("HTTPS_PROXY", "http://"),
        ("HTTPS_PROXY", "http://user:secret@[::1"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_without_its_value(name: str, value: str) -> None:
    """F21: the start fails with the variable's name, and its password stays out."""
    with pytest.raises(StartError, match=name) as caught:
        find(FAR, {name: value})
    assert "secret" not in str(caught.value)
