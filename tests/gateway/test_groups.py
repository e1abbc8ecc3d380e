"""Who may steer a group, where the network is asked."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from channels.base import Address, ChannelError, Denied, Inbound, NotSent, Refused, Retry, Sender, Unknown
from gateway.access import Access
from gateway.groups import PAUSES, GroupAdmins
from gateway.options import Access as Rules
from gateway.writer import Writer
from tests.gateway.outbox_net import Net

RESET = Inbound("net:7:-5:1", Address("net", "-5"), Sender("42", "Ana"), "/reset", direct=False)


@dataclass
class Group(Net):
    """A network that says one thing after the other when it is asked, the last one for ever."""

    says: deque[bool | ChannelError] = field(default_factory=deque)

    async def is_admin(self, address: Address, user_id: str) -> bool:
        answer = self.says.popleft() if len(self.says) > 1 else self.says[0]
        if isinstance(answer, ChannelError):
            raise answer
        return answer


def asking(tmp_path: Path, *says: bool | ChannelError) -> tuple[GroupAdmins, list[float]]:
    """The one who asks, and the pauses that it makes."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    access = Access(Rules(direct="open", groups="open"), tmp_path / "access.jsonl", Writer(), clock=lambda: 0.0)
    return GroupAdmins({"net": Group(says=deque(says))}, access, lambda: 0.0, pause=pause), pauses


@pytest.mark.parametrize("fault", [NotSent("the channel is closed"), Unknown("timeout"), Retry(3)], ids=["closed", "lost", "flood"])
async def test_a_network_that_is_not_there_yet_is_asked_again(tmp_path: Path, fault: ChannelError) -> None:
    """A command that a crash left is met before its channel is up: its author is not turned away for that."""
    admins, pauses = asking(tmp_path, fault, fault, True)
    assert not await admins.refuses("reset", RESET)
    assert pauses == ([3, 3] if isinstance(fault, Retry) else list(PAUSES[:2]))


NOES = [NotSent("down"), Refused("chat not found"), Denied("who are you"), Retry(300)]


@pytest.mark.parametrize("fault", NOES, ids=["down", "refused", "denied", "long flood"])
async def test_what_stays_unknown_is_a_no(tmp_path: Path, fault: ChannelError) -> None:
    """A word that will not come, or not for minutes, is not waited for; silence ends in a no, and is not remembered."""
    admins, pauses = asking(tmp_path, *[fault] * (len(PAUSES) + 1), True)
    assert await admins.refuses("reset", RESET)
    assert pauses == (list(PAUSES) if isinstance(fault, NotSent) else [])
    if isinstance(fault, NotSent):
        assert not await admins.refuses("reset", RESET)
