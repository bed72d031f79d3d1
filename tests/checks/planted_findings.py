#!/usr/bin/env python3
"""Runs cases with one thing wrong each on the CPU backend and holds the first finding's estimated gain against the real one.

    tests/checks/planted_findings.py MINFER [-r TURNS] [--only NAME ...] [-o RESULTS.jsonl]

A turn runs the case, then the same work with the fault mended. A row of the result has the medians over turns: of what
`minfer profile explain` says first, and of the change in the case's metric. Exit code 1 if a finding has another name, or the real
gain lies outside its range. Cases whose cause this machine cannot have (a control group with a quota needs root) are skipped.
"""

import argparse
import contextlib
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


@contextlib.contextmanager
def control_group(cores):
    """Words in front of a command that run it in a control group with a quota of so many cores; 0: none."""
    if not cores:
        yield []
        return
    group = f"/sys/fs/cgroup/cpu/minfer-planted-{os.getpid()}"
    os.mkdir(group)
    try:
        for name, value in (("cpu.cfs_period_us", 100_000), ("cpu.cfs_quota_us", int(100_000 * cores))):
            with open(f"{group}/{name}", "w") as file:
                file.write(str(value))
        yield ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$0" "$@"']
    finally:
        os.rmdir(group)


def run(minfer, arguments, profile):
    program = minfer if isinstance(minfer, list) else [minfer]
    command = [*program, *arguments, "--profile-out", profile, "-o", "json"]
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


def mean_ttft(result):
    return result[0]["mean_ttft_ms"]


def prompts_of(folder, name, lengths, output_len):
    """A data set of random prompts."""
    path = os.path.join(folder, name)
    numbers = random.Random(1)
    with open(path, "w") as file:
        for length in lengths:
            file.write(json.dumps({"prompt": [numbers.randrange(300, 4000) for _ in range(length)], "output_len": output_len}) + "\n")
    return path


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


def shared_by_turns(folder):
    """Four beginnings of 256 tokens that 48 prompts share in turn."""
    path = os.path.join(folder, "shared.jsonl")
    numbers = random.Random(2)
    tokens = lambda count: [numbers.randrange(300, 4000) for _ in range(count)]
    beginnings = [tokens(256) for _ in range(4)]
    with open(path, "w") as file:
        for index in range(48):
            file.write(json.dumps({"prompt": beginnings[index % 4] + tokens(32), "output_len": 4}) + "\n")
    return path


def between_tokens(result):
    return result[0]["median_itl_ms"]


class Busy(Bench):
    """A case with other programs on the same cores, or in a control group with a quota."""

    def __init__(self, name, finding, work, metric, processes=0, quota_cores=0.0):
        super().__init__(name, finding, work, [], [], metric)
        self.processes, self.quota_cores = processes, quota_cores

    def options(self, which):
        return self.work

    def can_run(self):
        return self.quota_cores == 0.0 or os.access("/sys/fs/cgroup/cpu", os.W_OK)

    def measure(self, minfer, which, profile):
        has_fault, others = which == "fault", []
        try:
            if has_fault:
                others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(self.processes)]
            with control_group(self.quota_cores if has_fault else 0) as words:
                return self.metric(run([*words, minfer], self.bench_arguments(), profile))
        finally:
            for other in others:
                other.kill()
                other.wait()

    def bench_arguments(self):
        return ["bench", *self.work]


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
        # Of kinds that the rules were not made for at first.
        Busy("six busy processes on the same cores", "cores taken", generate + ["-n", "64", "--parallel", "8"], token_time, processes=6),
        Busy("a load beside two busy processes", "cores taken", ["--num-prompts", "24", "--input-len", "64", "--output-len", "64"],
             load_time, processes=2),
        Busy("a quota of half a core", "CPU quota", generate + ["-n", "64", "--parallel", "8"], token_time, quota_cores=0.5),
        Bench("four times as many threads as cores", "more threads than cores", generate + ["-n", "64", "--parallel", "8"],
              ["-t", str(4 * os.cpu_count())], [], token_time),
        Bench("two slots for 32 requests", "batch too small", ["--num-prompts", "32", "--input-len", "16", "--output-len", "64"],
              ["--max-num-seqs", "2"], ["--max-num-seqs", "4"], load_time),
        Bench("a KV cache for three requests", "KV cache too small", ["--num-prompts", "24", "--input-len", "200", "--output-len",
              "40", "--no-enable-prefix-caching"], ["--num-blocks", "48"], ["--num-blocks", "96"], load_time),
        Bench("a cache that evicts what prompts share", "prefix not cached", ["--dataset", shared_by_turns(folder),
              "--max-num-seqs", "2"], ["--num-blocks", "48"], ["--num-blocks", "800"], load_time),
        Bench("drafts that are never right", "drafts that lose", ["-m", "synthetic:tiny:q8_0", "-p", "0", "-n", "160", "-r", "5",
              "--parallel", "8", "--max-model-len", "1024"],
              ["--speculative", "ngram", "--no-adaptive-speculation", "--synthetic-acceptance-rate", "0"], [], token_time),
        Bench("one context of 1,900 tokens among fifteen short ones", "uneven batch", ["--output-len", "96"],
              ["--dataset", prompts_of(folder, "uneven.jsonl", [1900] + [32] * 15, 96)],
              ["--dataset", prompts_of(folder, "even.jsonl", [32] * 16, 96)], between_tokens),
        Bench("requests faster than they are served", "overload", ["--num-prompts", "200", "--input-len", "128", "--output-len", "32"],
              ["--request-rate", "200"], ["--request-rate", "5"], mean_ttft),
        Bench("keys and values in f32 behind long contexts", "wide KV cache", ["-m", "synthetic:llama-3.2-1b:q8_0", "-p", "0", "-n",
              "12", "-d", "4096", "-r", "1", "--max-model-len", "4352"], [], ["--kv-cache-dtype", "f16"], token_time),
        # Healthy ones: no fault, and no finding above 5 %.
        Bench("sixteen sequences", None, generate + ["-n", "64", "--parallel", "16"], [], [], token_time),
        Bench("prompts of 512 tokens", None, ["-p", "512", "-n", "0", *SPEED], [], [], token_time),
        Bench("a load of 24 requests", None, ["--num-prompts", "24", "--input-len", "64", "--output-len", "64"], [], [],
              load_time),
    ]


def take_turns(minfer, case, turns, folder):
    first, estimates, ranges, gains = [], [], [], []
    turns = min(turns, getattr(case, "most_turns", turns))
    for turn in range(turns):
        profile = os.path.join(folder, "fault.jsonl")
        fault = case.measure(minfer, "fault", profile)
        said = explain(minfer, profile)
        findings = [each for each in said["findings"] if each.get("has_option", True)]
        worst = findings[0] if findings else {"finding": None, "gain": 0.0}
        first.append(worst["finding"])
        estimates.append(worst["gain"])
        ranges.append((worst.get("gain_from", worst["gain"]), worst.get("gain_to", worst["gain"])))
        if case.finding is not None:
            gains.append(1.0 - case.measure(minfer, "mended", os.path.join(folder, "mended.jsonl")) / fault)
    row = {"case": case.name, "expected": case.finding, "first": max(set(first), key=first.count),
           "named_right": sum(name == case.finding for name in first), "turns": turns,
           "estimated_gain": round(statistics.median(estimates), 3),
           "estimated_range": [round(statistics.median(ends), 3) for ends in zip(*ranges)]}
    if gains:
        row["real_gain"] = round(statistics.median(gains), 3)
        row["real_gains"] = [round(gain, 3) for gain in gains]
        row["options"] = {"fault": case.options("fault"), "mended": case.options("mended")}
        row["inside"] = row["estimated_range"][0] - 0.01 <= row["real_gain"] <= row["estimated_range"][1] + 0.01
        row["good"] = row["first"] == case.finding and row["inside"]
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
            if not getattr(case, "can_run", lambda: True)():
                print(f"{case.name}: skipped, this machine cannot have it", flush=True)
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
