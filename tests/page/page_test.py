#!/usr/bin/env python3
"""Holds the live page of `minfer serve` against its endpoints in a headless Chromium: what it shows before a request, under
load and afterwards, in light and dark, paused, without its server, and with an API key. Exits with 77 where there is no
Chromium.

    page_test.py --minfer BINARY [--out FOLDER]     keeps the screenshots in FOLDER
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from decimal import ROUND_HALF_UP, Decimal

from chromium import Page, find_chromium, png_rows

SKIPPED = 77


class Server:
    """`minfer serve` with the demo model on a free port of this machine, or the one given."""

    def __init__(self, minfer: str, folder: str, *options: str, port: int = 0) -> None:
        command = [minfer, "serve", "--port", str(port), "--threads", "1", "--no-access-log", "--log-format", "json", *options]
        # A cache folder of its own, for set_ceilings().
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "CUDA_VISIBLE_DEVICES": ""}
        environment.pop("MINFER_CEILINGS", None)
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.url = ""
        for line in self._process.stderr:
            if '"event":"serving"' in line:
                self.url = json.loads(line)["url"]
                break
        if not self.url:
            raise RuntimeError(f"{command}: did not start")
        threading.Thread(target=self._process.stderr.read, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """As a service manager does. Raises RuntimeError if it does not end well."""
        self._process.terminate()
        if self._process.wait(timeout=120) != 0:
            raise RuntimeError(f"minfer serve ended with {self._process.returncode}")

    def get(self, path: str) -> dict:
        with urllib.request.urlopen(self.url + path, timeout=120) as response:
            return json.load(response)

    def complete(self, prompt: str, max_tokens: int) -> None:
        body = json.dumps({"model": "minfer-demo", "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True})
        request = urllib.request.Request(self.url + "/v1/completions", body.encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            response.read()

    @contextlib.contextmanager
    def load(self, clients: int):
        """So many clients inside the context, each with requests of different lengths one after the other."""
        stop = threading.Event()

        def client(number: int) -> None:
            turn = 0
            while not stop.is_set():
                turn += 1
                self.complete("Once upon a time " * (1 + 7 * number + turn % 5), 40 + 10 * number)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def eventually(check, *arguments, timeout_s: float = 60.0, **options) -> None:
    """Repeats a check until it holds. Raises what it raised last if that takes longer than the time."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            return check(*arguments, **options)
        except AssertionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def set_ceilings(minfer: str, folder: str) -> None:
    """Lets the servers to come find ceilings that no machine reaches: those measured beside other tests are too low at times, and
    shares of them too wide for the page."""
    with Server(minfer, folder):  # measures, and keeps what it finds
        pass
    path = os.path.join(folder, "minfer", "ceilings.json")
    with open(path) as file:
        cache = json.load(file)
    for ceilings in cache["machines"].values():
        ceilings.update(read_gbps=5e3, gflops=5e3)
    with open(path, "w") as file:
        json.dump(cache, file)


def expect(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def expect_equal(found, expected, name: str) -> None:
    expect(found == expected, f"{name}: found {found!r}, expected {expected!r}")


def digits(number: float) -> str:
    """A number as digits() of page.js writes it: rounds what is printed of it, halves up."""
    decimals = 0 if number >= 100 else 1 if number >= 10 else 2
    text = f"{Decimal(repr(number)).quantize(Decimal(10) ** -decimals, ROUND_HALF_UP):,}"
    return text.rstrip("0").rstrip(".") if decimals else text


def percent(share: float) -> str:
    """As percent() of page.js: rounds the exact value, halves up."""
    return str(Decimal(100 * share).quantize(Decimal("0.1"), ROUND_HALF_UP))


def figure(page: Page, name: str) -> str:
    return page.evaluate(f"document.querySelector('[data-figure={name}]').textContent")


def rows(page: Page, table: str) -> list[list[str]]:
    """The texts of a table's cells but for its bars."""
    return page.evaluate(f"[...document.getElementById('{table}').tBodies[0].rows].map(row => "
                         "[...row.cells].filter(cell => cell.className !== 'bar').map(cell => cell.textContent))")


def state(page: Page) -> str:
    return page.evaluate("document.getElementById('state').dataset.state")


def wait_for_state(page: Page, name: str) -> None:
    page.wait_for(f"document.getElementById('state').dataset.state === '{name}'")


def check_no_errors(page: Page, allowed: str | None = None) -> None:
    errors = [error for error in page.errors if allowed is None or allowed not in error]
    expect_equal(errors, [], "errors of the page")


def check_empty(page: Page, server: Server) -> None:
    wait_for_state(page, "live")
    expect(page.evaluate("document.getElementById('empty').checkVisibility()"), "nothing says what to do before a request")
    line = page.evaluate("document.getElementById('curl').textContent")
    expect(line.startswith(f"curl {server.url}/v1/completions "), f"the command: {line}")
    body = line[line.index("'") + 1:line.rindex("'")]
    request = urllib.request.Request(server.url + "/v1/completions", body.encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        expect_equal(response.status, 200, "the answer to the request that the page shows")
    page.wait_for("document.getElementById('empty').hidden")


def check_under_load(page: Page, server: Server) -> None:
    with server.load(clients=4):
        for name in ("running", "kv_blocks_used", "generated_tokens_per_s", "prompt_tokens_per_s", "steps_per_s"):
            page.wait_for(f"document.querySelector('[data-figure={name}]').textContent !== '0'")
    summary = server.get("/profile/summary")
    page.wait_for(f"document.querySelector('[data-figure=generated_tokens]').textContent === '{summary['generated_tokens']:,}'")
    page.wait_for("document.querySelector('[data-figure=running]').textContent === '0'")


def check_figures(page: Page, server: Server) -> None:
    """Those that do not change while the engine is idle; the page shows them once it has asked since the last step."""
    summary = server.get("/profile/summary")
    report = summary["report"]
    expected = {
        "generated_tokens": f"{summary['generated_tokens']:,}",
        "kv_blocks_total": f"{summary['engine']['kv_blocks_total']:,}",
        "dropped": f"{summary['dropped']:,}",
        "attributed": percent(report["attributed"]),
        "step_median": digits(report["all"]["step_us"]["median"] / 1e3),
        "report_steps": f"{report['all']['steps']:,}",
        "strip_steps": str(min(120, report["last_step"] + 1)),
    }
    for name in ("ttft", "itl"):
        for percentile, seconds in summary["latency_s"][name].items():
            expect(seconds > 0, f"{name} {percentile} is {seconds}")
            expected[f"{name}_{percentile}"] = digits(1e3 * seconds)
    for name, text in expected.items():
        expect_equal(figure(page, name), text, name)

    found = {row[0]: row[1:] for row in rows(page, "ops")}
    expect_equal(set(found), {op["op"] for op in report["ops"]}, "the ops")
    for op in report["ops"]:
        expect_equal(found[op["op"]], [
            f"{percent(op['time_share'])} %", f"{op['calls']:,}", digits(op["call_us"]["mean"]), digits(op["gbps"]),
            digits(1e3 * op["tflops"]), f"{percent(op['roofline'])} %", op["bound"]], op["op"])
    wall_us, steps = report["all"]["wall_us"], report["all"]["steps"]
    for name, share, us in rows(page, "spans"):
        total = {"ops": report["all"]["gpu_us"], "not attributed": report["all"]["unattributed_us"],
                 **report["all"]["host_us"]}[name]
        expect_equal([share, us], [f"{percent(total / wall_us)} %", digits(total / steps)], name)
    expect_equal([row[:2] for row in rows(page, "phases")],
                 [[phase, f"{report['by_phase'].get(phase, {'steps': 0})['steps']:,}"] for phase in ("prefill", "decode", "mixed")],
                 "phases")


def check_layout(page: Page) -> None:
    expect(page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than its window")
    clipped = page.evaluate("[...document.querySelectorAll('th, td, dd, dt')].filter(cell => cell.scrollWidth > cell.clientWidth + 1)"
                            ".map(cell => cell.textContent)")
    expect_equal(clipped, [], "cells whose text does not fit")
    shift = page.evaluate("new Promise(resolve => new PerformanceObserver(list => resolve(list.getEntries().reduce("
                          "(sum, entry) => sum + entry.value, 0))).observe({type: 'layout-shift', buffered: true}) ||"
                          " setTimeout(() => resolve(0), 500))")
    expect(shift < 0.1, f"cumulative layout shift {shift:.3f}, expected below 0.1")


def check_names(page: Page) -> None:
    """Everything that is no text has a name for those who do not see it."""
    nodes = page.command("Accessibility.getFullAXTree")["nodes"]
    named = {"image", "button", "table", "textbox", "link", "status"}
    for node in nodes:
        role = node.get("role", {}).get("value")
        if role in named - {"table", "status"} and not node.get("ignored"):
            expect(bool(node.get("name", {}).get("value")), f"a {role} without a name")
    expect(sum(node.get("role", {}).get("value") == "image" for node in nodes) >= 4, "the charts are no images")


def check_picture(page: Page, dark: bool, path: str | None) -> None:
    """The page is drawn: many colours, those of the phases among them, on a light or a dark ground."""
    if path is not None:
        page.screenshot(path)
    pixels = [pixel[:3] for row in png_rows(page.screenshot(scale=0.4)) for pixel in row]
    brightness = sum(sum(pixel) for pixel in pixels) / (3 * len(pixels))
    expect(brightness < 80 if dark else brightness > 200, f"mean brightness {brightness:.0f} in {'dark' if dark else 'light'}")
    expect(len(set(pixels)) > 300, f"only {len(set(pixels))} colours")
    for chart in ("steps", "batch", "throughput", "kv"):
        colours = page.evaluate(
            f"(() => {{ const c = document.getElementById('{chart}'); const d = c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data; const s = new Set(); for (let i = 0; i < d.length; i += 4)"
            " if (d[i + 3] === 255) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return [...s]; })()")
        decode = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--decode').trim()")
        expect(int(decode[1:], 16) in colours, f"chart {chart}: nothing is drawn in {decode}")


def check_pause(page: Page, server: Server) -> None:
    page.evaluate("document.getElementById('pause').click()")
    expect_equal(state(page), "paused", "state")
    before = figure(page, "generated_tokens")
    server.complete("Once upon a time", 5)
    time.sleep(1.5)  # several of the page's intervals: it would have asked
    expect_equal(figure(page, "generated_tokens"), before, "tokens while paused")
    page.evaluate("document.getElementById('pause').click()")
    page.wait_for(f"document.querySelector('[data-figure=generated_tokens]').textContent !== '{before}'")
    expect_equal(state(page), "live", "state")


def check_without_server(page: Page, server: Server, minfer: str, folder: str) -> None:
    """The page says when its server is gone, and goes on when there is one again, whose steps begin at 0."""
    port = server.port
    server.stop()
    wait_for_state(page, "gone")
    text = page.evaluate("document.getElementById('state').textContent")
    expect(text.startswith("server gone since "), text)
    check_no_errors(page, allowed="ERR_CONNECTION_REFUSED")
    with Server(minfer, folder, port=port) as again:
        wait_for_state(page, "live")
        expect(page.evaluate("document.getElementById('empty').checkVisibility()"), "steps of the server before")
        again.complete("Once upon a time", 7)
        page.wait_for("document.querySelector('[data-figure=strip_steps]').textContent === '7'")


def check_key(page: Page, minfer: str, folder: str) -> None:
    """The page is open, its data are not; and a name that looks like markup is text."""
    markup = "<img src=x onerror=alert(1)>"
    with Server(minfer, folder, "--api-key", "open sesame", "--served-model-name", markup) as server:
        page.open(server.url + "/")
        page.wait_for("document.getElementById('login')?.checkVisibility()")
        expect_equal(state(page), "locked", "state without a key")
        enter = ("document.getElementById('key').value = '{}';"
                 "document.querySelector('#login button').click()")
        page.evaluate(enter.format("wrong"))
        page.wait_for("document.getElementById('login').checkVisibility()")
        page.evaluate(enter.format("open sesame"))
        wait_for_state(page, "live")
        expect(not page.evaluate("document.getElementById('login').checkVisibility()"), "the form stays")
        page.open(server.url + "/")
        wait_for_state(page, "live")  # the tab has kept it
        page.wait_for("document.title !== 'minfer'")
        expect_equal(page.evaluate("document.title"), f"minfer: {markup}", "title")
        expect_equal(page.evaluate("document.images.length"), 0, "images made of the server's text")
        line = page.evaluate("document.getElementById('curl').textContent")
        expect(markup in line and "$MINFER_API_KEY" in line and "sesame" not in line, f"the command: {line}")
    check_no_errors(page, allowed="401")


def run(arguments: argparse.Namespace, program: str, folder: str) -> None:
    def picture(name: str) -> str | None:
        return None if arguments.out is None else os.path.join(arguments.out, name + ".png")

    set_ceilings(arguments.minfer, folder)
    with contextlib.closing(Page(program, width=1366, height=768)) as page, Server(arguments.minfer, folder) as server:
        page.open(server.url + "/")
        wait_for_state(page, "live")
        if arguments.out is not None:
            page.screenshot(picture("empty"))
        check_empty(page, server)
        check_under_load(page, server)
        eventually(check_figures, page, server)
        check_layout(page)
        check_names(page)
        for dark, name in ((False, "light"), (True, "dark")):
            page.set_dark(dark)
            eventually(check_picture, page, dark, path=picture(name))
        check_pause(page, server)
        check_no_errors(page)
        check_without_server(page, server, arguments.minfer, folder)
        page.errors.clear()
        check_key(page, arguments.minfer, folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minfer", required=True)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    program = find_chromium()
    if program is None:
        print("skipped: no Chromium here (Debian package: chromium)")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="minfer-page-") as folder:
        run(arguments, program, folder)
    print("the live page shows what the endpoints say")
    return 0


if __name__ == "__main__":
    sys.exit(main())
