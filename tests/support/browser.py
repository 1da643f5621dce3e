"""A headless Chromium that tests drive through its DevTools protocol: pages, what they say, and what went wrong."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
"""None where there is none: `apt-get install chromium`."""
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"]
FLAGS += ["--disable-background-networking", "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-port=0"]

Result = TypeVar("Result")


class Page:
    """The one tab of a browser. `problems`: errors of the console and of scripts; `requests`: what was asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.loop = loop
        self.socket = socket
        self.calls = 0
        self.problems: list[str] = []
        self.requests: list[str] = []

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState == 'complete'")

    def text(self) -> str:
        """Return what a person reads."""
        return self.evaluate("document.body.innerText")

    def evaluate(self, script: str) -> Any:
        """Return a script's value; RuntimeError where it throws."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 60) -> None:
        """Wait until a script's value is true; TimeoutError with what the page says where it stays false."""
        end = time.monotonic() + seconds
        while not self.evaluate(script):
            if time.monotonic() > end:
                raise TimeoutError(f"{script}: not in {seconds:.0f} s on a page that says: {self.text()[:2000]}")
            time.sleep(0.2)

    def says(self, words: str, seconds: float = 60) -> None:
        """Wait until the page says `words`."""
        self.wait(f"document.body.innerText.includes({json.dumps(words)})", seconds)

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        """Write what the window shows as PNG, or the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the browser's answer to one command; RuntimeError where it refuses."""
        return self.loop.run_until_complete(self._call(method, parameters))

    async def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        await self.socket.send_json({"id": self.calls, "method": method, "params": parameters})
        while True:
            message = await self.socket.receive_json(timeout=60)
            if message.get("id") == self.calls:
                break
            self._note(message.get("method", ""), message.get("params", {}))
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return message["result"]

    def _note(self, event: str, values: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.problems.append(str(details.get("exception", details).get("description", details["text"])))
        elif event == "Runtime.consoleAPICalled" and values["type"] in ("error", "assert"):
            self.problems.append(" ".join(str(part.get("value", part.get("description"))) for part in values["args"]))
        elif event == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.problems.append(f"{values['entry']['text']} {values['entry'].get('url', '')}".strip())
        elif event == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Page]:
    """Yield the page of a browser that keeps its profile in `folder`, and end it."""
    if CHROMIUM is None:
        raise FileNotFoundError("no chromium")
    profile = folder / "profile"
    # pid of what was started: the browser itself, which ends its children
    with (folder / "chromium.log").open("w") as log:
        browser = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"], stdout=log, stderr=subprocess.STDOUT
        )
    loop = asyncio.new_event_loop()
    session = None
    try:
        port = _port(profile / "DevToolsActivePort", browser)
        session = aiohttp.ClientSession(loop=loop)
        page = Page(loop, loop.run_until_complete(_connect(session, port)))
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        yield page
    finally:
        if session is not None:
            loop.run_until_complete(session.close())
        loop.close()
        browser.terminate()
        browser.wait(30)


def _port(file: Path, browser: subprocess.Popen[bytes], seconds: float = 60) -> int:
    """Return the port that the browser writes down once it listens."""
    end = time.monotonic() + seconds
    while not (file.is_file() and file.read_text().count("\n")):
        if browser.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"chromium did not start: see {file.parent.parent / 'chromium.log'}")
        time.sleep(0.1)
    return int(file.read_text().splitlines()[0])


async def _connect(session: aiohttp.ClientSession, port: int) -> aiohttp.ClientWebSocketResponse:
    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
        (tab,) = [tab for tab in await answer.json(content_type=None) if tab["type"] == "page"]
    return await session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)
