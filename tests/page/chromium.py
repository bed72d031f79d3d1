"""A headless Chromium for tests, driven over a pair of pipes by its DevTools protocol; nothing but the standard library.

See https://chromedevtools.github.io/devtools-protocol: one JSON object a message, each ended by a zero byte.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import zlib


def find_chromium() -> str | None:
    """The program, or None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """A browser with one page. Errors of the page (exceptions, console errors, failed requests) are kept in `errors`, what it loads
    in `loaded`."""

    def __init__(self, program: str, width: int = 1440, height: int = 900) -> None:
        self.errors: list[str] = []
        self.loaded: list[str] = []
        self._profile = tempfile.mkdtemp(prefix="minfer-chromium-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--remote-debugging-pipe", f"--user-data-dir={self._profile}", f"--window-size={width},{height}",
                     "about:blank"]
        # The browser reads commands from descriptor 3 and writes answers to descriptor 4.
        command = ["sh", "-c", f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}', program, *arguments]
        self._process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._last_id = 0
        self._session: str | None = None
        targets = self.command("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.command("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")
        self.resize(width, height)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)
        # Its helpers outlive it for a moment, and write into the profile until they end.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        end = time.monotonic() + 60.0
        while os.path.exists(self._profile):
            try:
                shutil.rmtree(self._profile)
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def command(self, method: str, timeout: float = 120.0, **parameters) -> dict:
        """Sends a command and waits for its result. Raises RuntimeError if the browser refuses it."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + timeout
        while True:
            reply = self._receive(end)
            if reply.get("id") != self._last_id:
                continue
            if "error" in reply:
                raise RuntimeError(f"{method}: {reply['error']['message']}")
            return reply["result"]

    def _receive(self, end: float) -> dict:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            received = os.read(self._read, 1 << 20)
            if not received:
                raise RuntimeError("the browser has ended")
            self._buffer += received
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        self._note_error(message.get("method"), message.get("params", {}))
        return message

    def _note_error(self, method: str | None, parameters: dict) -> None:
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.loaded.append(parameters["request"]["url"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
            self.errors.append(json.dumps(parameters["args"]))

    def open(self, url: str) -> None:
        self.command("Page.navigate", url=url)

    def evaluate(self, expression: str):
        """The value of a JavaScript expression in the page."""
        result = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']['exception']['description']}")
        return result["result"].get("value")

    def wait_for(self, expression: str, timeout: float = 60.0) -> None:
        """Waits until an expression is true; one that fails, in a page that is still being loaded say, is not. Raises
        TimeoutError naming it."""
        end = time.monotonic() + timeout
        while not self.evaluate(f"(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"):
            if time.monotonic() > end:
                raise TimeoutError(f"not within {timeout:.0f} s: {expression}")
            time.sleep(0.05)

    def resize(self, width: int, height: int = 900) -> None:
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def press(self, key: str) -> None:
        """Presses a key on what has the focus, by its name in KeyboardEvent.key."""
        codes = {"Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"text": "\r"} if key == "Enter" else {}
        self.command("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=codes[key], **text)
        self.command("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=codes[key])

    def set_dark(self, dark: bool) -> None:
        value = "dark" if dark else "light"
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def screenshot(self, path: str | None = None, scale: float = 1.0) -> bytes:
        """A PNG of the whole page."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": scale}
        reply = self.command("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        image = base64.b64decode(reply["data"])
        if path is not None:
            with open(path, "wb") as file:
                file.write(image)
        return image


def png_rows(image: bytes) -> list[list[tuple[int, ...]]]:
    """The pixels of an 8-bit RGB or RGBA PNG without interlacing, a list a row."""
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(image):
        length = int.from_bytes(image[at:at + 4], "big")
        kind = image[at + 4:at + 8]
        chunks[kind] = chunks.get(kind, b"") + image[at + 8:at + 8 + length]
        at += 12 + length
    width = int.from_bytes(chunks[b"IHDR"][0:4], "big")
    depth, colour, _, _, interlace = chunks[b"IHDR"][8:13]
    if depth != 8 or colour not in (2, 6) or interlace:
        raise ValueError("expected an 8-bit RGB or RGBA PNG without interlacing")
    step = 3 if colour == 2 else 4
    data = zlib.decompress(chunks[b"IDAT"])
    rows = []
    before = bytearray(width * step)
    for begin in range(0, len(data), width * step + 1):
        row = bytearray(data[begin + 1:begin + 1 + width * step])
        _unfilter(data[begin], row, before, step)
        rows.append([tuple(row[i:i + step]) for i in range(0, len(row), step)])
        before = row
    return rows


def _unfilter(kind: int, row: bytearray, before: bytearray, step: int) -> None:
    for i in range(len(row)) if kind else ():
        left = row[i - step] if i >= step else 0
        up = before[i]
        if kind == 1:
            predicted = left
        elif kind == 2:
            predicted = up
        elif kind == 3:
            predicted = (left + up) // 2
        else:
            corner = before[i - step] if i >= step else 0
            predicted = min((left, up, corner), key=lambda value: abs(left + up - corner - value))
        row[i] = (row[i] + predicted) & 255
