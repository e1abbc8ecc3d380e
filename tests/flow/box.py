"""A real systemd in a box: its own mounts, processes and cgroups, over a root that is thrown away. Nothing is written to the machine.

`async with Box(folder, prepare)`; skips the test where that is not possible: not root, no systemd, a machine that systemd runs already.
The network is the machine's, so that the fakes can be reached.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

import pytest

SYSTEMD = "/lib/systemd/systemd"

_BOOT = r"""#!/bin/bash
# In new mount, pid, ipc, uts and cgroup namespaces.
set -e
mount --make-rprivate /
box="$1" root="$1/root"
mount -t tmpfs tmpfs "$box"
mkdir "$box/up" "$box/work" "$root"
mount -t overlay overlay -o lowerdir=/,upperdir="$box/up",workdir="$box/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for place in run tmp dev; do mount -t tmpfs tmpfs "$root/$place"; done
for node in null zero full random urandom tty; do cp -a "/dev/$node" "$root/dev/"; done
mknod -m 666 "$root/dev/ptmx" c 5 2
mkdir "$root/dev/shm" "$root/dev/pts" "$root/run/lock"
ln -s /proc/self/fd "$root/dev/fd"
mkdir -p "$root$2"
mount --bind "$2" "$root$2"
# Nothing of the machine's own is started: no devices, no clean-up, no network.
rm -rf "$root"/etc/systemd/system/*
cat >"$root/etc/systemd/system/box.target" <<'UNIT'
[Unit]
DefaultDependencies=no
Requires=sysinit.target systemd-journald.socket
After=sysinit.target
UNIT
for unit in systemd-udevd systemd-udev-trigger systemd-tmpfiles-setup systemd-tmpfiles-setup-dev systemd-tmpfiles-clean systemd-sysctl \
    systemd-modules-load systemd-random-seed systemd-update-utmp systemd-remount-fs systemd-hwdb-update systemd-binfmt; do
    ln -s /dev/null "$root/etc/systemd/system/$unit.service"
done
for unit in systemd-udevd-control systemd-udevd-kernel; do ln -s /dev/null "$root/etc/systemd/system/$unit.socket"; done
[ ! -e "$2/prepare.sh" ] || chroot "$root" /bin/bash -e "$2/prepare.sh"
cd "$root"
mkdir oldroot
pivot_root . oldroot
cd /
umount -l /oldroot
mount --make-rshared /
export container=box
exec /lib/systemd/systemd --system --log-target=journal --show-status=no --unit=box.target
"""


class Box:
    """`folder` is seen inside under the same path; `prepare` is a shell script that is run inside before systemd starts."""

    def __init__(self, folder: Path, prepare: str) -> None:
        self._folder = folder
        self._prepare = prepare
        self._process: asyncio.subprocess.Process | None = None
        self._pid = 0

    async def __aenter__(self) -> Box:
        if os.geteuid() != 0 or not os.path.exists(SYSTEMD) or not shutil.which("nsenter"):
            pytest.skip("needs root and systemd")
        if os.path.isdir("/run/systemd/system"):
            pytest.skip("systemd runs this machine: no second one beside it")
        (self._folder / "prepare.sh").write_text(self._prepare)
        (self._folder / "boot.sh").write_text(_BOOT)
        (self._folder / "box").mkdir()
        with (self._folder / "boot.log").open("wb") as out:
            self._process = await asyncio.create_subprocess_exec(
                *("unshare", "--mount", "--pid", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child=KILL"),
                *("/bin/bash", self._folder / "boot.sh", self._folder / "box", self._folder),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            async with asyncio.timeout(40):
                while not await self._is_up():  # noqa: ASYNC110  # a boot has no event to wait for
                    await asyncio.sleep(0.1)
        except TimeoutError:
            await self.close()
            pytest.skip(f"systemd does not come up in a box here: {(self._folder / 'boot.log').read_text()[-500:]}")
        return self

    async def _is_up(self) -> bool:
        assert self._process is not None
        if self._process.returncode is not None:
            pytest.skip(f"no box can be made here: {(self._folder / 'boot.log').read_text()[-500:]}")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        if not children or Path(f"/proc/{children[0]}/comm").read_text().strip() != "systemd":
            return False
        self._pid = int(children[0])
        return "box.target" in (await self.run("systemctl list-units --state=active --plain --no-legend box.target"))[1]

    async def run(self, script: str) -> tuple[int, str]:
        """A shell script inside; its exit code and all that it said."""
        process = await asyncio.create_subprocess_exec(
            *("nsenter", "-t", str(self._pid), "-m", "-p", "-i", "-u", "-C", "-r", "-w", "/bin/bash", "-c", script),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode(errors="replace")

    async def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()  # and with it everything inside
            await self._process.wait()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and self._pid:
            print((await self.run("journalctl --no-pager -o cat | tail -60"))[1])
        await self.close()
