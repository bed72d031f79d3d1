#!/usr/bin/env python3
"""Measures what open pages cost a server: the rate of steps at a constant batch and the time on the processor of its I/O thread and
of all others but the busiest, the engine's, while so many pages read the stream of events and while none does, in alternating windows.

    page_cost.py --minfer BINARY [--pairs 20] [--seconds 5] [--batch 16] [--pages 3] [serve options...]
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import threading
import time


def start(command: list[str]) -> tuple[subprocess.Popen, int]:
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if '"event":"serving"' in line:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, int(json.loads(line)["url"].rsplit(":", 1)[1])
    raise RuntimeError(f"{command} did not start")


class Client:
    """A keep-alive connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def get(self, path: str) -> bytes:
        self._connection.request("GET", path)
        return self._connection.getresponse().read()

    def steps(self) -> float:
        """Steps that the engine has taken; read from a counter, which costs next to nothing."""
        text = self.get("/metrics").decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("minfer:steps_total"))

    def complete(self, max_tokens: int) -> None:
        body = json.dumps({"model": "minfer-demo", "prompt": "Once upon a time", "max_tokens": max_tokens, "ignore_eos": True})
        self._connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        self._connection.getresponse().read()


def keep_busy(port: int, stop: threading.Event, seed: int) -> None:
    """Requests of many lengths, so that the mean length of the contexts hardly changes over time."""
    client = Client(port)
    lengths = random.Random(seed)
    while not stop.is_set():
        client.complete(lengths.randint(50, 450))


class OpenPages:
    """So many readers of the stream of events."""

    def __init__(self, port: int, count: int) -> None:
        self._connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=600) for _ in range(count)]
        self._threads = [threading.Thread(target=self._read, args=(each,), daemon=True) for each in self._connections]
        self.bytes = 0
        for thread in self._threads:
            thread.start()

    def _read(self, connection: http.client.HTTPConnection) -> None:
        connection.request("GET", "/profile/events")
        response = connection.getresponse()
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            while text := response.read1(1 << 16):
                self.bytes += len(text)

    def close(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


def processor_ms(pid: int) -> tuple[float, float]:
    """Time on the processor of the I/O thread, and of the background threads: all others but the busiest."""
    times = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            times[int(thread)] = int(file.read().split()[0]) * 1e-6
    io = times.pop(pid)
    return io, sum(times.values()) - max(times.values())


class Window:
    """What a server does in the next seconds, a second."""

    def __init__(self, client: Client, pid: int, seconds: float, pages: int) -> None:
        readers = OpenPages(client.port, pages)
        time.sleep(1.0)  # until all listen
        begin, first, (io, background), received = time.monotonic(), client.steps(), processor_ms(pid), readers.bytes
        time.sleep(seconds)
        span = time.monotonic() - begin
        self.steps = (client.steps() - first) / span
        self.io_ms, self.background_ms = ((after - before) / span for after, before in zip(processor_ms(pid), (io, background)))
        self.bytes_a_page = (readers.bytes - received) / span / max(1, pages)
        readers.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minfer", required=True)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--pages", type=int, default=3)
    arguments, serve_options = parser.parse_known_args()
    process, port = start([arguments.minfer, "serve", "--port", "0", "--no-access-log", "--log-format", "json", *serve_options])
    stop = threading.Event()
    clients = [threading.Thread(target=keep_busy, args=(port, stop, seed)) for seed in range(arguments.batch)]
    for thread in clients:
        thread.start()
    client = Client(port)
    time.sleep(3.0)
    costs, alone, watched = [], [], []
    for pair in range(arguments.pairs):
        both = [Window(client, process.pid, arguments.seconds, pages)
                for pages in ((0, arguments.pages) if pair % 2 else (arguments.pages, 0))]
        without, with_pages = both if pair % 2 else reversed(both)
        alone.append(without)
        watched.append(with_pages)
        costs.append(100 * (without.steps - with_pages.steps) / without.steps)
        print(f"{without.steps:8.1f} steps/s, with pages {with_pages.steps:8.1f}: {costs[-1]:+.2f} %", flush=True)
    dropped = json.loads(client.get("/profile/summary"))["dropped"]
    stop.set()
    process.terminate()
    for thread in clients:
        thread.join()
    process.wait()

    def middle(windows: list[Window], name: str) -> float:
        return statistics.median(getattr(each, name) for each in windows)

    low, half, high = statistics.quantiles(costs, n=4)
    print(f"batch {arguments.batch}: {middle(alone, 'steps'):.1f} steps/s, with {arguments.pages} pages {middle(watched, 'steps'):.1f}; cost "
          f"{half:.2f} % (quartiles {low:.2f} and {high:.2f}, {len(costs)} pairs); {dropped} steps missing from the ring")
    for name, thread in (("io_ms", "I/O thread"), ("background_ms", "background threads")):
        print(f"{thread}: {middle(alone, name):.2f} ms a second, with pages {middle(watched, name):.2f}")
    print(f"{middle(watched, 'bytes_a_page') * 1e-3:.0f} kB a second and page")


if __name__ == "__main__":
    main()
