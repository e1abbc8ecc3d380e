"""Asking networks and the model whether they know us, beside a daemon that nobody disturbs."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from channels.settings import Secret
from gateway.app import channel_types
from gateway.config import Config
from gateway.online import Tried, ask_all
from gateway.options import Backend, Http
from tests.fakes.openai import FakeModel, nobody
from tests.fakes.telegram import FakeTelegram

TOKEN = "7:TEST-TOKEN-aaaabbbbccccddddeeeeffff"


def config(folder: Path, backend: Backend, *, api_base: str = "", token: str = TOKEN, mode: str = "polling") -> Config:
    types = channel_types()
    channels = {"web": types["web"]()}
    if api_base:
        hook = {"webhook_url": "https://bot.example.org/t", "webhook_listen": "127.0.0.1:1"} if mode == "webhook" else {}
        channels["telegram"] = types["telegram"](api_base=api_base, mode=mode, **hook)
    return Config(
        path="config.toml",
        data_dir=folder / "data",
        http=Http(listen="127.0.0.1:8787"),
        backend=backend,
        channels=channels,
        tokens={"telegram": Secret(token)},
    )


def backend(model: FakeModel, name: str = "fake", key: str = "") -> Backend:
    return Backend(base_url=model.base_url, model=name, api_key=Secret(key))


def by_name(tried: list[Tried]) -> dict[str, Tried]:
    return {one.name: one for one in tried}


async def test_all_is_well(tmp_path: Path) -> None:
    """Each says as whom it knows us; nothing is changed over there, and nothing is made here."""
    async with FakeTelegram(token=TOKEN) as tg, FakeModel(models=["a", "fake"]) as model:
        found = by_name(await ask_all(config(tmp_path, backend(model), api_base=tg.base_url)))
        assert list(found) == ["telegram", "backend"]
        assert all(one.ok and not one.denied for one in found.values())
        assert "@" in found["telegram"].text
        assert {call.method for call in tg.calls} == {"getMe", "getWebhookInfo"}
        assert found["backend"].models == ("a", "fake")
        assert found["backend"].amiss == ()
        for one in found.values():
            assert one.ahead is not None
            assert abs(one.ahead) < 5
    assert list(tmp_path.iterdir()) == []


async def test_a_token_that_is_refused(tmp_path: Path) -> None:
    """It is told as what no wait mends; the others are asked all the same."""
    async with FakeTelegram(token=TOKEN) as tg, FakeModel(api_key="right") as model:
        found = by_name(
            await ask_all(config(tmp_path, backend(model, key="wrong"), api_base=tg.base_url, token="8:WRONG-wrong-wrong-wrong"))
        )
    assert (found["telegram"].ok, found["telegram"].denied) == (False, True)
    assert "token" in found["telegram"].text
    assert not found["backend"].ok
    assert f"at {model.base_url}" in found["backend"].text
    assert "api_key in [backend]" in found["backend"].remedy
    assert "token in [channels.telegram]" in found["telegram"].remedy
    assert "not even the form" in found["telegram"].remedy
    assert "wrong-wrong" not in repr(found)


async def test_a_model_that_is_not_listed(tmp_path: Path) -> None:
    """It is said, with what is listed; a server without a list, or one that calls it :latest, gives no cause."""
    async with FakeModel(models=["a", "b:latest"]) as model:
        (said,) = await ask_all(config(tmp_path, backend(model, "c")))
        assert said.ok
        assert [("does not list the model c" in one.text, "a, b:latest" in one.remedy) for one in said.amiss] == [(True, True)]
        (said,) = await ask_all(config(tmp_path, backend(model, "b")))
        assert said.amiss == ()
        (said,) = await ask_all(config(tmp_path, backend(model, "b:latst")))
        assert "b:latest perhaps?" in said.amiss[0].remedy
        assert model.base_url in said.text
        model.models_status = 404
        (said,) = await ask_all(config(tmp_path, backend(model, "c")))
        assert (said.ok, said.amiss) == (True, ())


@pytest.mark.parametrize(("listed", "word"), [(["other"], "the one that it lists, other"), ([], "ollama pull c")])
async def test_a_server_with_one_model_or_none(tmp_path: Path, listed: list[str], word: str) -> None:
    """One may answer to any name; one without a model answers nobody, and it is said how it gets one."""
    async with FakeModel() as model:
        model.listed = listed
        (said,) = await ask_all(config(tmp_path, backend(model, "c")))
    assert word in said.amiss[0].remedy


async def test_nobody_there(tmp_path: Path) -> None:
    """One sentence each."""
    async with nobody() as url:
        found = by_name(await ask_all(config(tmp_path, Backend(base_url=url, model="m"), api_base=url.removesuffix("/v1"))))
    assert found["backend"].text == f"at {url}: The model's server cannot be reached."
    assert "base_url" in found["backend"].remedy
    assert found["telegram"].text.startswith("cannot reach 127.0.0.1")


@contextmanager
def silence() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(16)
        yield taken.getsockname()[1]


async def test_each_has_its_time(tmp_path: Path) -> None:
    """Somebody who says nothing costs the time limit, once, whoever else is silent."""
    with silence() as port:
        began = time.monotonic()
        tried = await ask_all(
            config(tmp_path, Backend(base_url=f"http://127.0.0.1:{port}/v1", model="m"), api_base=f"http://127.0.0.1:{port}"), limit=0.3
        )
        assert time.monotonic() - began < 1.5
    assert [one.text for one in tried] == ["no answer within 0.3 s", f"at http://127.0.0.1:{port}/v1: no answer within 0.3 s"]
    assert all(one.remedy for one in tried)


@pytest.mark.parametrize(
    ("mode", "set_to", "fatal"),
    [
        ("polling", "", None),
        ("polling", "https://other.example.org/x", True),
        ("webhook", "", None),
        ("webhook", "https://bot.example.org/t", None),
        ("webhook", "https://other.example.org/x", False),
    ],
)
async def test_webhooks(tmp_path: Path, mode: str, set_to: str, fatal: bool | None) -> None:
    """A webhook that is not ours is told; while it is set, polling brings nothing."""
    async with FakeTelegram(token=TOKEN) as tg, FakeModel() as model:
        tg.webhook_url = set_to
        tg.reads_all = True
        found = by_name(await ask_all(config(tmp_path, backend(model), api_base=tg.base_url, mode=mode)))["telegram"]
        assert tg.webhook_url == set_to
    assert [one.fatal for one in found.amiss if "webhook" in one.text] == ([] if fatal is None else [fatal])
    assert found.ok is not (fatal or False)


async def test_privacy_mode(tmp_path: Path) -> None:
    """Told as something that matters to groups alone."""
    async with FakeTelegram(token=TOKEN) as tg, FakeModel() as model:
        tg.reads_all = False
        found = by_name(await ask_all(config(tmp_path, backend(model), api_base=tg.base_url)))["telegram"]
        assert [(one.groups, one.fatal) for one in found.amiss] == [(True, False)]
        assert found.ok
        tg.reads_all = True
        found = by_name(await ask_all(config(tmp_path, backend(model), api_base=tg.base_url)))["telegram"]
        assert found.amiss == ()


async def test_messages_that_wait_over_there(tmp_path: Path) -> None:
    """Many of them are told: nobody fetches them."""
    async with FakeTelegram(token=TOKEN) as tg, FakeModel() as model:
        tg.reads_all = True
        for _ in range(101):
            tg.say(42, "hello")
        found = by_name(await ask_all(config(tmp_path, backend(model), api_base=tg.base_url)))["telegram"]
        assert [one.text for one in found.amiss] == ["101 messages wait at Telegram to be fetched"]
