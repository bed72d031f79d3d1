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

from chromium import Page, find_chromium, png_rows
from page_checks import (check_flame, check_folding, check_layout, check_names, check_no_errors, check_ranks, check_request,
                         check_step_by_keyboard, check_views, check_width, digits, eventually, expect, expect_equal, figure, percent, rows)

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

    def event(self) -> dict:
        """The next event for those who look on."""
        with urllib.request.urlopen(self.url + "/profile/events", timeout=120) as response:
            return json.loads(response.readline().removeprefix(b"data: "))

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


def state(page: Page) -> str:
    return page.evaluate("document.getElementById('state').dataset.state")


def wait_for_state(page: Page, name: str) -> None:
    page.wait_for(f"document.getElementById('state').dataset.state === '{name}'")


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
    """Those that do not change while the engine is idle; the page shows them once an event has come since the last step."""
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


def check_views_of_server(page: Page, server: Server) -> None:
    event = server.event()
    check_views(page, event["report"], event["view"])
    requests = event["requests"][::-1]
    expect_equal([row[0] for row in rows(page, "requests")], [request["id"] for request in requests], "requests")
    for found, request in zip(rows(page, "requests"), requests):
        cached = f" ({request['cached_tokens']:,} cached)" if request["cached_tokens"] else ""
        expect_equal(found[1:], [
            digits(request["queue_us"] / 1e3), digits(request["prefill_us"] / 1e3), digits(request["decode_us"] / 1e3),
            f"{request['prompt_tokens']:,}{cached}", f"{request['output_tokens']:,}", f"{request['first_step']:,} – {request['last_step']:,}",
            digits(request["device_us"] / 1e3), f"{percent(request['device_share'])} %", request["finish"]], request["id"])


def check_step(page: Page, server: Server) -> None:
    number = check_step_by_keyboard(page)
    [step] = [each for each in server.get("/profile/steps?last=200")["steps"] if each["step"] == number]
    found = {row[0]: row[2:4] for row in rows(page, "step-ops")}
    expect_equal(set(found), {op["op"] for op in step["ops"]}, "ops of the step")
    for op in step["ops"]:
        # The page gets hundredths, the endpoint thousandths, each rounded from the time itself.
        times = {digits(round(op["us"] + rounding, 2)) for rounding in (-0.0005, 0.0, 0.0005)}
        expect(found[op["op"]][0] in times and found[op["op"]][1] == f"{op['calls']:,}", f"{op}: found {found[op['op']]}")
    facts = dict(page.evaluate("[...document.querySelectorAll('#step-facts div')].map(each => [...each.children].map(part => part.textContent))"))
    expect_equal(facts["KV blocks"], f"{step['kv']['blocks_used']:,} of {step['kv']['blocks_total']:,}", "KV blocks of the step")
    page.press("Escape")
    expect(page.evaluate("document.getElementById('step').hidden"), "Escape does not close the step")


def check_requests(page: Page, server: Server) -> None:
    """Each request shows what the server tells of it, whose steps need no file to be known; one that is not kept says so."""
    requests = server.event()["requests"]
    expect_equal([row[0] for row in rows(page, "requests")], [request["id"] for request in requests[::-1]], "requests")
    for request in (requests[-1], requests[0]):
        [told] = server.get(f"/profile/requests?id={request['id']}")["slowest"]
        expect_equal(told["known_steps"], request["prefill_steps"] + request["decode_steps"], "known steps")
        check_request(page, request, told)
    page.evaluate("document.querySelector('#requests tbody .bar').click()")
    page.wait_for("document.activeElement.id === 'request'")
    page.evaluate("document.querySelector('#request-steps button').click()")
    page.wait_for("document.activeElement.id === 'step'")
    page.evaluate("document.getElementById('request-close').click()")
    expect(page.evaluate("document.getElementById('request').hidden"), "its button does not close the request")


def check_hidden(page: Page, server: Server) -> None:
    """A page that nobody sees listens to nothing."""
    hide = "Object.defineProperty(document, 'hidden', {{value: {}, configurable: true}}); document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide.format("true"))
    before = figure(page, "generated_tokens")
    server.complete("Once upon a time", 5)
    time.sleep(1.5)  # several events: it would have shown one
    expect_equal(figure(page, "generated_tokens"), before, "tokens while nobody sees the page")
    page.evaluate(hide.format("false"))
    page.wait_for(f"document.querySelector('[data-figure=generated_tokens]').textContent !== '{before}'")


def check_picture(page: Page, dark: bool, path: str | None) -> None:
    """The page is drawn: many colours, those of the phases among them, on a light or a dark ground."""
    if path is not None:
        page.screenshot(path)
    pixels = [pixel[:3] for row in png_rows(page.screenshot(scale=0.4)) for pixel in row]
    brightness = sum(sum(pixel) for pixel in pixels) / (3 * len(pixels))
    expect(brightness < 80 if dark else brightness > 200, f"mean brightness {brightness:.0f} in {'dark' if dark else 'light'}")
    expect(len(set(pixels)) > 300, f"only {len(set(pixels))} colours")
    for chart in ("steps", "batch", "throughput", "kv", "roofline"):
        colours = page.evaluate(
            f"(() => {{ const c = document.getElementById('{chart}'); const d = c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data; const s = new Set(); for (let i = 0; i < d.length; i += 4)"
            " if (d[i + 3] === 255) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return [...s]; })()")
        decode = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--decode').trim()")
        # Dots are translucent.
        drawn = len(colours) > 10 if chart == "roofline" else int(decode[1:], 16) in colours
        expect(drawn, f"chart {chart}: nothing is drawn in {decode}")


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
        leave(page)


def leave(page: Page) -> None:
    """Before its server is killed: a stream that breaks off is an error of the page."""
    page.open("about:blank")
    page.wait_for("location.href === 'about:blank'")


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
        leave(page)
    check_no_errors(page, allowed="401")


def check_ranks_of_server(page: Page, arguments: argparse.Namespace, folder: str, picture) -> None:
    with Server(arguments.minfer, folder, "--tensor-parallel-size", "2") as server:
        page.open(server.url + "/")
        wait_for_state(page, "live")
        server.complete("Once upon a time", 40)
        page.wait_for("document.getElementById('ranks-section').checkVisibility()")
        expect_equal(len(server.event()["report"]["ranks"]["ranks"]), 2, "ranks")
        eventually(lambda: check_ranks(page, server.event()["report"]["ranks"]))
        device = page.evaluate("document.querySelector('[data-text=device]').textContent")
        expect(device.endswith(", 2 ranks of 1 thread"), f"the device: {device}")
        for width in (390, 1280):
            eventually(check_width, page, width)
            clipped = page.evaluate("[...document.querySelectorAll('#ranks :is(th, td)')].filter(cell => "
                                    "cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.textContent)")
            expect_equal(clipped, [], f"cells of ranks whose text does not fit at {width}")
            if arguments.out is not None:
                page.screenshot(picture(f"live-ranks-{width}"))
        leave(page)
    check_no_errors(page)


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
        eventually(check_views_of_server, page, server)
        check_folding(page)
        eventually(lambda: check_flame(page, server.event()["view"]))
        eventually(check_step, page, server)
        eventually(check_requests, page, server)
        check_names(page, images=3)
        page.evaluate("document.querySelector('#requests button').click()")
        page.wait_for("document.activeElement.id === 'request'")
        for width in (390, 1280):
            check_width(page, width)
            for dark, name in ((False, "light"), (True, "dark")):
                page.set_dark(dark)
                eventually(check_picture, page, dark, path=picture(f"live-{width}-{name}"))
        check_hidden(page, server)
        check_pause(page, server)
        # The server cuts off a browser that reads nothing for 30 s, as one beside much other work may. The page connects again:
        # check_pause() saw it live.
        check_no_errors(page, allowed="ERR_INCOMPLETE_CHUNKED_ENCODING")
        check_without_server(page, server, arguments.minfer, folder)
        page.errors.clear()
        check_ranks_of_server(page, arguments, folder, picture)
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
