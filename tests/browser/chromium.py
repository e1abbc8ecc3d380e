"""A headless Chromium and as much of its DevTools protocol as the tests need. No driver, no package: a WebSocket of aiohttp's."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0
        self._waiting: dict[int, asyncio.Future[dict[str, object]]] = {}
        self.complaints: list[str] = []
        """What the page's console and its policy complained of."""
        self.requested: list[str] = []

    async def read(self) -> None:
        """Take what the browser says until it ends."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                waiter = self._waiting.pop(said["id"], None)
                if waiter is not None and not waiter.done():
                    waiter.set_result(said)
            elif said["method"] == "Log.entryAdded":
                self.complaints.append(said["params"]["entry"]["text"])
            elif said["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(said["params"]["exceptionDetails"]))
            elif said["method"] == "Network.requestWillBeSent":
                self.requested.append(said["params"]["request"]["url"])

    async def call(self, method: str, params: Mapping[str, object] | None = None) -> dict[str, object]:
        """One DevTools command; its result."""
        self._last += 1
        waiter = self._waiting[self._last] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._last, "method": method, "params": params or {}})
        answer = await asyncio.wait_for(waiter, 15)
        assert "error" not in answer, answer
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    async def run(self, expression: str) -> object:
        """The value of a JavaScript expression, promises awaited."""
        result = await self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        assert "exceptionDetails" not in result, result
        value = result["result"]
        assert isinstance(value, dict)
        return value.get("value")

    async def until(self, expression: str, timeout: float = 10.0) -> None:
        """Wait until an expression is true in the page, over reloads."""
        deadline = asyncio.get_running_loop().time() + timeout
        while asyncio.get_running_loop().time() < deadline:
            with suppress(AssertionError):
                if await self.run(expression):
                    return
            await asyncio.sleep(0.02)
        raise AssertionError(f"never true: {expression}\n{await self.run('document.body.innerText')}\n{self.complaints}")

    async def open(self, url: str) -> None:
        """Go to an address."""
        await self.call("Page.navigate", {"url": url})

    async def type(self, text: str) -> None:
        """Type into what has the focus."""
        await self.call("Input.insertText", {"text": text})

    async def key(self, key: str, *, shift: bool = False) -> None:
        """Press and let go of a key, "Enter" or "Tab" or the like."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38}
        event: dict[str, object] = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
        text = {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", {"type": "keyDown", **event, **text})
        await self.call("Input.dispatchKeyEvent", {"type": "keyUp", **event})

    async def picture(self, path: Path, width: int = 1100, height: int = 760, *, dark: bool = False) -> None:
        """A screenshot."""
        await self.size(width, height)
        await self.call(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]}
        )
        await asyncio.sleep(0.3)
        shot = await self.call("Page.captureScreenshot", {"format": "png"})
        path.write_bytes(base64.b64decode(str(shot["data"])))

    async def size(self, width: int, height: int) -> None:
        """The window's size; below 600 wide it counts as a phone."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", metrics)


class Browser:
    """The process. Started once for many tests: each gets a profile of its own by `tab`."""

    def __init__(self) -> None:
        assert PROGRAM is not None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [PROGRAM, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"], stdin=nothing, stdout=nothing, stderr=nothing
        )
        self._address = self._found(Path(self._profile.name, "DevToolsActivePort"))

    def _found(self, path: Path) -> str:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with suppress(FileNotFoundError):
                port, _, rest = path.read_text().partition("\n")
                if rest:
                    return f"ws://127.0.0.1:{port}{rest.strip()}"
            time.sleep(0.05)
        self.close()
        raise AssertionError("Chromium did not start")

    def close(self) -> None:
        """End the process and remove what it wrote."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Page]:
        """A tab with cookies of its own, gone afterwards."""
        async with aiohttp.ClientSession() as http, _connected(http, self._address) as whole:
            context = (await whole.call("Target.createBrowserContext"))["browserContextId"]
            target = (await whole.call("Target.createTarget", {"url": "about:blank", "browserContextId": context}))["targetId"]
            async with _connected(http, f"{self._address.partition('/devtools/')[0]}/devtools/page/{target}") as page:
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.call(f"{domain}.enable")
                yield page
            await whole.call("Target.disposeBrowserContext", {"browserContextId": context})


@asynccontextmanager
async def _connected(http: aiohttp.ClientSession, address: str) -> AsyncIterator[Page]:
    async with http.ws_connect(address, max_msg_size=0) as socket:
        page = Page(socket)
        reading = asyncio.create_task(page.read())
        try:
            yield page
        finally:
            await socket.close()
            await reading
