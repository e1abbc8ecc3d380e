"""The terminal channel as a process: lines in a pipe, answers out of another."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.flow.daemon import REPO

CONFIG = """
[http]
listen = ""
[backend]
kind = "echo"
[channels.console]
"""


async def test_all_lines_of_a_pipe_are_answered_before_the_end(tmp_path: Path) -> None:
    """The end of the input ends the daemon when everything that was said is answered, in order, and not before."""
    (tmp_path / "config.toml").write_text(CONFIG)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "run", "--config", str(tmp_path / "config.toml")),
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    lines = [f"line {n}" for n in range(20)]
    async with asyncio.timeout(40):
        out, _ = await process.communicate("\n".join([*lines[:10], "/fork west", *lines[10:]]).encode())
    said = [line for line in out.decode().splitlines() if line.startswith("You said:")]
    assert said == [f"You said: {line}" for line in lines]
    assert "west" in out.decode()
    assert process.returncode == 0
