"""The unit under a real systemd: installed, started, reloaded, watched, stopped, as an operator does it."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.openai import FakeModel
from tests.fakes.telegram import FakeTelegram
from tests.flow.box import Box
from tests.flow.daemon import KEY, REPO, TOKEN
from tests.flow.people import config

ANA = 42
PYTHON = Path("/usr/bin/python3.11")
PACKAGES = sysconfig.get_path("purelib")

PREPARE = """
mkdir -p /src /etc/parlour/secrets
chmod 700 /etc/parlour /etc/parlour/secrets
cd {repo}
cp -r gateway channels docs deploy /src
cp pyproject.toml requirements.lock requirements-local.lock config.example.toml README.md CHANGELOG.md LICENSE /src
cat >/src/dev <<'DEV'
#!/bin/sh
here="$(cd "$(dirname "$0")" && pwd -P)"
mkdir -p "$here/.venv/bin"
ln -sf /bin/true "$here/.venv/bin/python"
printf '#!/bin/sh\\nPYTHONPATH="%s:{packages}" exec {python} -P -m gateway "$@"\\n' "$here" >"$here/.venv/bin/parlour"
chmod 755 "$here/.venv/bin/parlour"
DEV
chmod 755 /src/dev
cp {folder}/config.toml /etc/parlour/config.toml
chmod 600 /etc/parlour/config.toml
umask 077
printf '%s\\n' '{token}' >/etc/parlour/secrets/TELEGRAM_TOKEN
printf '%s\\n' '{key}' >/etc/parlour/secrets/BACKEND_API_KEY
umask 022
PYTHON={python} /src/deploy/install.sh
mkdir -p /etc/systemd/system/parlour.service.d
printf '[Service]\\nWatchdogSec=2\\nRestartSec=1\\n' >/etc/systemd/system/parlour.service.d/quick.conf
"""


def usable() -> bool:
    """The service can run this Python with these packages: of the same version, and not below /root or /home, which it does not see."""
    return PYTHON.exists() and sys.version_info[:2] == (3, 11) and not re.match(r"/(root|home|tmp)/", PACKAGES)


@pytest.mark.slow
@pytest.mark.skipif(not usable(), reason="no Python here that a hardened service can see")
async def test_the_unit_as_an_operator_meets_it(tmp_path: Path, tg: FakeTelegram, model: FakeModel) -> None:
    """Start to a first answer, with secrets from a folder; a reload that changes what can change, one that is refused; the watchdog; a
    fault of the config, which is not restarted; a stop, after which nothing is left in /run."""
    text = config(tg, model).replace('data_dir = "data"', "")
    (tmp_path / "config.toml").write_text(text)
    prepare = PREPARE.format(repo=REPO, packages=PACKAGES, python=PYTHON, folder=tmp_path, token=TOKEN, key=KEY)
    async with Box(tmp_path, prepare) as box:

        async def shows(*names: str) -> dict[str, str]:
            _, out = await box.run(f"systemctl show parlour -p {','.join(names)}")
            return dict(line.split("=", 1) for line in out.splitlines())

        async def ask(words: str) -> str:
            before = len(tg.visible(ANA))
            tg.say(ANA, words)
            await tg.wait_for(lambda: len(tg.visible(ANA)) > before and tg.visible(ANA)[-1] != "…", 15, chat=ANA)
            return tg.visible(ANA)[-1]

        async def log(event: str) -> list[dict[str, Any]]:
            _, out = await box.run("journalctl -u parlour --no-pager -o cat")
            lines = (json.loads(line) for line in out.splitlines() if line.startswith("{"))
            return [line for line in lines if line["event"] == event]

        assert (await box.run("systemctl start parlour"))[0] == 0
        assert await ask("hello") == "Heard: hello"
        found = await shows("ActiveState", "StatusText", "NRestarts", "User")
        assert found["ActiveState"] == "active"
        assert found["StatusText"].startswith("telegram up; openai, fine")
        _, out = await box.run("stat -c %U /proc/$(systemctl show parlour -p MainPID --value); ls -A /var/lib/parlour; parlour status")
        assert out.startswith("parlour\n")
        assert "sessions" in out
        assert "Up since" in out

        _, out = await box.run("cd /; parlour check; parlour check --config /etc/parlour/config.toml; parlour doctor --offline")
        assert out.count("Data: /var/lib/parlour\n") == 2
        assert "nothing is wrong" in out, out
        await box.run("sed -i 's/You are a parrot./You are an owl./' /etc/parlour/config.toml")
        _, out = await box.run("cd /; parlour doctor --offline")
        assert "the daemon has not taken over backend.system_prompt yet: reload it" in out
        await box.run("systemctl reload parlour")
        assert await ask("and now?") == "Heard: and now?"
        assert model.asked[-1].messages[0].content == "You are an owl."
        assert [line["taken"] for line in await log("config taken over")] == [["backend.system_prompt"]]
        await box.run("cp /etc/parlour/config.toml /tmp/good; echo 'nonsense = 1' >>/etc/parlour/config.toml; systemctl reload parlour")
        assert await ask("still there?") == "Heard: still there?"
        (refused,) = await log("config not taken over, the one that runs stays")
        assert "nonsense" in refused["faults"][0]
        await box.run("cp /tmp/good /etc/parlour/config.toml")

        assert (await box.run("kill -STOP $(systemctl show parlour -p MainPID --value)"))[0] == 0
        assert await ask("anybody?") == "Heard: anybody?"
        assert (await shows("NRestarts"))["NRestarts"] == "1"
        _, out = await box.run("journalctl -u parlour --no-pager -o cat")
        assert "Failed with result 'watchdog'" in out
        assert "Fatal Python error: Aborted" in out

        _, out = await box.run("systemctl stop parlour; systemctl show parlour -p Result -p ExecMainStatus; ls -d /run/parlour*")
        assert "Result=success" in out
        assert "ExecMainStatus=0" in out
        assert "/run/parlour\n" not in out
        assert "/run/parlour-fresh\n" not in out
        await box.run("echo 'nonsense = 1' >>/etc/parlour/config.toml; systemctl start parlour")
        found = await shows("ActiveState", "ExecMainStatus", "NRestarts")
        assert (found["ActiveState"], found["ExecMainStatus"], found["NRestarts"]) == ("failed", "78", "0")
