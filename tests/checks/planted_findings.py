#!/usr/bin/env python3
"""Runs cases with one thing wrong each on the CPU backend and holds the first finding's estimated gain against the real one.

    tests/checks/planted_findings.py MINFER [-r TURNS] [--only NAME ...] [-o RESULTS.jsonl]

A turn runs the case, then the same work with the fault mended. A row of the result has the medians over turns: of what
`minfer profile explain` says first, and of the change in the case's metric. Exit code 1 if a finding has another name, or its
estimate is off by more than a factor of two.
"""

import argparse
import datetime
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

SPEED = ["-r", "10"]


def run(minfer, arguments, profile):
    command = [minfer, *arguments, "--profile-out", profile, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def explain(minfer, profile):
    done = subprocess.run([minfer, "profile", "explain", profile, "-o", "json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def token_time(result):
    """Seconds a token, of a speed test."""
    return 1.0 / result[0]["avg_ts"]


def load_time(result):
    return result[0]["duration"]


def longest_gap(result):
    return result[0]["p99_itl_ms"]


def long_prompts(folder):
    """Eight answers of 300 tokens, then prompts of 1,960 tokens beside them."""
    path = os.path.join(folder, "long_prompts.jsonl")
    numbers = random.Random(1)
    tokens = lambda count: [numbers.randrange(300, 4000) for _ in range(count)]
    with open(path, "w") as file:
        for _ in range(8):
            file.write(json.dumps({"prompt": tokens(16), "output_len": 300}) + "\n")
        for _ in range(32):
            file.write(json.dumps({"prompt": tokens(1960), "output_len": 2}) + "\n")
    return path


class Bench:
    """A case of `minfer bench`: `fault` and `mended` are the options that differ."""

    def __init__(self, name, finding, work, fault, mended, metric):
        self.name, self.finding, self.metric = name, finding, metric
        self.work, self.fault, self.mended = work, fault, mended

    def options(self, which):
        return self.work + (self.fault if which == "fault" else self.mended)

    def measure(self, minfer, which, profile):
        return self.metric(run(minfer, ["bench", *self.options(which)], profile))


class SlowClients:
    """Clients of `minfer serve` that read so many bytes a second; the metric is the time until the last one has its answer."""

    name, finding = "clients that read slowly", "clients too slow"
    most_turns = 2  # a minute each
    bytes_per_second = 12_000

    def options(self, which):
        return ["--stream-interval", "1" if which == "fault" else "8"]

    def measure(self, minfer, which, profile):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(
            [minfer, "serve", "--port", str(port), "--profile-out", profile, "--log-level", "off", *self.options(which)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.wait_until_ready(port)
            begin = time.monotonic()
            sockets = [self.ask(port) for _ in range(8)]
            self.read_slowly(sockets)
            return time.monotonic() - begin
        finally:
            server.terminate()
            server.wait(60)

    @staticmethod
    def wait_until_ready(port):
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
                return
            except OSError:
                time.sleep(0.1)
        sys.exit("the server does not answer")

    @staticmethod
    def ask(port):
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True, "stream": True,
                           "temperature": 0, "model": "minfer-demo"})
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}").encode())
        client.setblocking(False)
        return client

    def read_slowly(self, sockets):
        open_ones, interval = set(sockets), 0.02
        while open_ones:
            for client in list(open_ones):
                try:
                    if not client.recv(int(self.bytes_per_second * interval)):
                        open_ones.discard(client)
                except BlockingIOError:
                    pass
            time.sleep(interval)


def cases(folder):
    generate = ["-p", "0", *SPEED]
    return [
        Bench("one sequence at a time", "too little load", generate + ["-n", "96"], [], ["--parallel", "8"], token_time),
        # Attention of the CPU backend puts keys of any block into the same places: no loss, and none is to be found.
        Bench("a KV block of one token", None, generate + ["-n", "96", "-d", "512", "--parallel", "8",
              "--max-num-batched-tokens", "512"], ["--block-size", "1"], [], token_time),
        Bench("prompts in pieces of 8 tokens", "tiny chunks", ["-p", "512", "-n", "0", *SPEED],
              ["--max-num-batched-tokens", "8"], ["--max-num-batched-tokens", "512"], token_time),
        Bench("one thread", "too few threads", generate + ["-n", "64", "--parallel", "8"], ["-t", "1"], [], token_time),
        Bench("KV cache of 40 blocks", "preemption thrash", ["--num-prompts", "24", "--input-len", "64", "--output-len",
              "96"], ["--num-blocks", "40"], [], load_time),
        Bench("prefix cache off", "prefix not cached", ["--num-prompts", "48", "--input-len", "32", "--random-prefix-len",
              "256", "--output-len", "4", "--max-num-seqs", "8"], ["--no-enable-prefix-caching"], [], load_time),
        Bench("long prompts beside decoding", "prefill starves decode", ["--dataset", long_prompts(folder),
              "--max-concurrency", "12", "--no-enable-prefix-caching"], ["--max-num-batched-tokens", "8192"],
              ["--max-num-batched-tokens", "64"], longest_gap),
        SlowClients(),
        # Healthy ones: no fault, and no finding above 5 %.
        Bench("sixteen sequences", None, generate + ["-n", "64", "--parallel", "16"], [], [], token_time),
        Bench("prompts of 512 tokens", None, ["-p", "512", "-n", "0", *SPEED], [], [], token_time),
        Bench("a load of 24 requests", None, ["--num-prompts", "24", "--input-len", "64", "--output-len", "64"], [], [],
              load_time),
    ]


def take_turns(minfer, case, turns, folder):
    first, estimates, gains = [], [], []
    turns = min(turns, getattr(case, "most_turns", turns))
    for turn in range(turns):
        profile = os.path.join(folder, "fault.jsonl")
        fault = case.measure(minfer, "fault", profile)
        said = explain(minfer, profile)
        worst = said["findings"][0] if said["findings"] else {"finding": None, "gain": 0.0}
        first.append(worst["finding"])
        estimates.append(worst["gain"])
        if case.finding is not None:
            gains.append(1.0 - case.measure(minfer, "mended", os.path.join(folder, "mended.jsonl")) / fault)
    row = {"case": case.name, "expected": case.finding, "first": max(set(first), key=first.count),
           "named_right": sum(name == case.finding for name in first), "turns": turns,
           "estimated_gain": round(statistics.median(estimates), 3)}
    if gains:
        row["real_gain"] = round(statistics.median(gains), 3)
        row["real_gains"] = [round(gain, 3) for gain in gains]
        row["options"] = {"fault": case.options("fault"), "mended": case.options("mended")}
        row["good"] = row["first"] == case.finding and 0.5 <= row["estimated_gain"] / row["real_gain"] <= 2.0
    else:
        row["options"] = {"healthy": case.options("mended")}
        row["good"] = row["estimated_gain"] <= 0.05
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minfer")
    parser.add_argument("-r", "--turns", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    version = subprocess.run([arguments.minfer, "--version"], capture_output=True, text=True).stdout.strip()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(folder):
            if arguments.only and case.name not in arguments.only:
                continue
            row = take_turns(arguments.minfer, case, arguments.turns, folder)
            row |= {"date": datetime.date.today().isoformat(), "minfer": version, "cores": os.cpu_count()}
            row["load_average"] = os.getloadavg()[0]  # of the machine: what else runs on it moves every figure
            rows.append(row)
            if arguments.output:
                with open(arguments.output, "a") as file:
                    file.write(json.dumps(row) + "\n")
            print(f"{row['case']}: {row['first']} ({row['named_right']} of {row['turns']} turns as expected), estimated "
                  f"{100 * row['estimated_gain']:.0f} %, real {100 * row.get('real_gain', 0):.0f} %"
                  f"{'' if row['good'] else '  <- not as it should be'}", flush=True)
    sys.exit(0 if all(row["good"] for row in rows) else 1)


if __name__ == "__main__":
    main()
