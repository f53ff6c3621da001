"""A page in headless Chromium, driven through the DevTools protocol over two pipes: no port, no further package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BINARY = next((path for name in NAMES if (path := shutil.which(name))), None)
SWITCHES = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
            "--no-first-run", "--disable-extensions", "--disable-background-networking")  # fmt: skip


class Page:
    """One tab. Collects its requests over the network and the messages of its console."""

    def __init__(self, commands: int, replies: int) -> None:
        self._commands, self._replies = commands, os.fdopen(replies, "rb")
        self._number = 0
        self._rest = b""
        self._session = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, width: int = 1280, height: int = 900) -> None:
        """Show the file in a window of this size and wait until it is loaded."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self._call("Page.navigate", url=path.resolve().as_uri())
        self.js("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")

    def prefer(self, media: str = "", **features: str) -> None:
        """Set preferences of the reader's system, `prefer(color_scheme="dark")`, and the medium, such as `print`."""
        named = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self._call("Emulation.setEmulatedMedia", media=media, features=named)

    def js(self, expression: str) -> Any:
        """The value of an expression of JavaScript. Waits for a promise."""
        reply = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key: `Enter`, `Tab`."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "")

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._commands, json.dumps(message | self._in_session()).encode() + b"\0")
        while (reply := self._next()).get("id") != self._number:
            self._note(reply)
        assert "error" not in reply, f"{method}: {reply['error']}"
        result: dict[str, Any] = reply["result"]
        return result

    def _in_session(self) -> dict[str, str]:
        return {"sessionId": self._session} if self._session else {}

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._replies.fileno(), 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        reply: dict[str, Any] = json.loads(message)
        return reply

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.complaints.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])


@contextmanager
def browser() -> Iterator[Page]:
    """A browser of its own, which ends with the block."""
    assert BINARY is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        theirs_in, commands = os.pipe()
        replies, theirs_out = os.pipe()
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "browser",
             BINARY, *SWITCHES, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Page(commands, replies)
        finally:
            process.kill()
            process.wait()
            os.close(commands)
