"""What concerns every test of the suite."""

from __future__ import annotations

import asyncio


def pytest_configure() -> None:
    """No loop until a test brings its own: looptime asks the policy before a plain test, and would make it create one that nobody closes
    (it is reported, as an error, in whatever test the garbage collector happens to run)."""
    asyncio.set_event_loop(None)
