"""A look at Discord that nobody notices: what is asked, and what comes of it."""

from __future__ import annotations

import pytest

from channels.base import ChannelError, Denied, Unknown
from channels.discord.check import check
from channels.discord.settings import Settings
from tests.fakes.discord import FakeDiscord


async def test_all_is_well() -> None:
    """As whom we are known, and the time over there; two questions, no login, nothing changed."""
    async with FakeDiscord() as fake:
        found = await check(Settings(api_base=fake.base_url), fake.token)
        assert [call.route for call in fake.calls] == ["GET /users/@me", "GET /applications/@me"]
        assert fake.gateway.sessions == {}
    assert (found.who, found.amiss) == ("ourbot", ())
    assert found.ahead is None or abs(found.ahead) < 5


async def test_a_missing_intent() -> None:
    """Told with where to switch it on: the gateway would close the connection."""
    async with FakeDiscord() as fake:
        fake.privileged.discard("message_content")
        (amiss,) = (await check(Settings(api_base=fake.base_url), fake.token)).amiss
    assert amiss.fatal
    assert "Message Content" in amiss.text
    assert "developer portal" in amiss.remedy


async def test_a_wrong_token() -> None:
    """Refused for good, and not shown."""
    async with FakeDiscord() as fake:
        with pytest.raises(Denied) as caught:
            await check(Settings(api_base=fake.base_url), "a.WRONG.token")
    assert "WRONG" not in str(caught.value)


async def test_nobody_there() -> None:
    """One sentence."""
    with pytest.raises(ChannelError, match=r"cannot reach 127\.0\.0\.1") as caught:
        await check(Settings(api_base="http://127.0.0.1:9/api"), "x")
    assert not isinstance(caught.value, Denied | Unknown)
