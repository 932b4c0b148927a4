"""Headless Chromium through its WebDriver: what a page is like for who looks at it."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMANDS = ("chromium", "chromedriver")
"""Debian's packages are called ``chromium`` and ``chromium-driver``."""

_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--hide-scrollbars",
]
_START = 60
"""Seconds until the driver listens."""


def missing() -> list[str]:
    """What is not installed."""
    return [command for command in COMMANDS if shutil.which(command) is None]


class Browser:
    """One window.

    Args:
        session: address of the driver's session.
    """

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, page: Path) -> None:
        """Load a file."""
        self._post("url", {"url": page.absolute().as_uri()})

    def run(self, script: str) -> Any:
        """What a script returns."""
        return self._post("execute/sync", {"script": script, "args": []})

    def emulate(self, width: int, height: int, scheme: str = "light", media: str = "") -> None:
        """A window of a size, in light or dark, on a screen or (``media`` = ``print``) on paper."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._devtools("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._devtools("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})

    def tab(self) -> str:
        """Press the key, and say what has the focus then: its tag, and where it leads."""
        for kind in ("keyDown", "keyUp"):
            key = {"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
            self._devtools("Input.dispatchKeyEvent", key)
        script = (
            "const e = document.activeElement; return e.tagName + (e.getAttribute('href') || '')"
        )
        return str(self.run(script))

    def picture(self, file: Path) -> None:
        """Write what is seen as a PNG."""
        shown = self._devtools("Page.captureScreenshot", {"format": "png"})
        file.write_bytes(base64.b64decode(shown["data"]))

    def _devtools(self, command: str, given: dict[str, Any]) -> Any:
        return self._post("goog/cdp/execute", {"cmd": command, "params": given})

    def _post(self, path: str, data: dict[str, Any]) -> Any:
        return _post(f"{self._session}/{path}", data)


@contextmanager
def browser(folder: Path) -> Generator[Browser]:
    """A browser with an empty profile, gone when it is left.

    Args:
        folder: for the profile and the driver's log.
    """
    with (folder / "driver.log").open("w+b") as log:
        driver = subprocess.Popen([COMMANDS[1], "--port=0"], stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{_port(folder / 'driver.log')}/session"
            flags = [*_FLAGS, f"--user-data-dir={folder / 'profile'}"]
            wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": flags}}
            made = _post(address, {"capabilities": {"alwaysMatch": wanted}})
            session = f"{address}/{made['sessionId']}"
            try:
                yield Browser(session)
            finally:
                _ask(urllib.request.Request(session, method="DELETE"))
        finally:
            driver.terminate()
            driver.wait()


def _port(log: Path) -> int:
    """Which one the driver has chosen, as it says in its log."""
    until = time.monotonic() + _START
    while time.monotonic() < until:
        _, found, rest = log.read_text(errors="replace").partition("successfully on port ")
        if found and "." in rest:
            return int(rest.partition(".")[0])
        time.sleep(0.1)
    raise TimeoutError(f"chromedriver does not listen: {log.read_text(errors='replace')}")


def _post(address: str, data: dict[str, Any]) -> Any:
    body = json.dumps(data).encode()
    return _ask(urllib.request.Request(address, body, {"Content-Type": "application/json"}))


def _ask(request: urllib.request.Request) -> Any:
    local = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with local.open(request, timeout=120) as answer:
        return json.loads(answer.read())["value"]
