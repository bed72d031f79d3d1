#!/usr/bin/env python3
"""Measures what the live page costs the engine: the rate of steps at a constant batch while /profile/summary and
/profile/steps are asked for twice a second, as the page does, and while nobody asks, in alternating windows.

    poll_cost.py --minfer BINARY [--pairs 20] [--seconds 5] [--batch 16] [--rate 2] [serve options...]
"""

import argparse
import http.client
import json
import random
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


def poll_like_the_page(client: Client, newest: int) -> int:
    client.get("/profile/summary")
    return json.loads(client.get(f"/profile/steps?last=120&since={newest}"))["newest"]


def window(client: Client, seconds: float, rate: float) -> float:
    """Steps a second of the next `seconds`, with so many polls a second."""
    begin, first = time.monotonic(), client.steps()
    newest = -1
    while time.monotonic() < begin + seconds:
        if rate > 0:
            newest = poll_like_the_page(client, newest)
        time.sleep(1 / rate if rate > 0 else 0.5)
    return (client.steps() - first) / (time.monotonic() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minfer", required=True)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2.0)
    arguments, serve_options = parser.parse_known_args()
    process, port = start([arguments.minfer, "serve", "--port", "0", "--no-access-log", "--log-format", "json", *serve_options])
    stop = threading.Event()
    clients = [threading.Thread(target=keep_busy, args=(port, stop, seed)) for seed in range(arguments.batch)]
    for thread in clients:
        thread.start()
    client = Client(port)
    time.sleep(3.0)
    costs, quiet, polled = [], [], []
    for pair in range(arguments.pairs):
        both = [window(client, arguments.seconds, rate) for rate in ((0, arguments.rate) if pair % 2 else (arguments.rate, 0))]
        without, with_polls = both if pair % 2 else reversed(both)
        quiet.append(without)
        polled.append(with_polls)
        costs.append(100 * (without - with_polls) / without)
        print(f"{without:8.1f} steps/s, polled {with_polls:8.1f}: {costs[-1]:+.2f} %", flush=True)
    dropped = json.loads(client.get("/profile/summary"))["dropped"]
    stop.set()
    process.terminate()
    for thread in clients:
        thread.join()
    process.wait()
    low, middle, high = statistics.quantiles(costs, n=4)
    print(f"batch {arguments.batch}: {statistics.median(quiet):.1f} steps/s, polled {arguments.rate:g} times a second "
          f"{statistics.median(polled):.1f}; cost {middle:.2f} % (quartiles {low:.2f} and {high:.2f}, {len(costs)} pairs); "
          f"{dropped} steps missing from the ring")


if __name__ == "__main__":
    main()
