#!/usr/bin/env python3
"""What one long answer costs the others: n 128, max_tokens 300, top_logprobs 20, about 54 MB of JSON.

    scripts/measure_long_answer.py --minfer build/release/minfer

Starts a server with the demo model and asks it for that answer. Meanwhile another process asks for /health, one request after the
other over one connection, and its latencies are counted by phase: while the engine computes, and while the answer is made and sent
(from its first byte to its last). The server's resident memory is read from /proc before and meanwhile; requests for the same tokens
without logprobs come first, so that the KV cache, which they fill, is not counted. Prints a JSON line for each repetition.
"""

import argparse
import datetime
import http.client
import json
import multiprocessing
import os
import platform
import re
import socket
import subprocess
import threading
import time


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ask_health(port: int, stop, results) -> None:
    """Pairs of when a request began and what it took, in seconds of the monotonic clock, until `stop` is set."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    latencies = []
    while not stop.is_set():
        begin = time.monotonic()
        connection.request("GET", "/health")
        connection.getresponse().read()
        latencies.append((begin, time.monotonic() - begin))
        time.sleep(0.002)
    results.put(latencies)


def processor_name() -> str:
    with open("/proc/cpuinfo") as info:
        found = re.search(r"model name\s*:\s*(.*)", info.read())
    return found.group(1) if found else platform.machine()


def summary(latencies: list[float]) -> dict:
    latencies = sorted(latencies)
    if not latencies:
        return {"count": 0}
    at = lambda share: round(1e3 * latencies[min(len(latencies) - 1, int(share * len(latencies)))], 3)
    return {"count": len(latencies), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)}


def read_answer(port: int, body: bytes) -> tuple[int, int, float, float]:
    """Status and bytes of the answer, and when its first and its last byte came."""
    with socket.create_connection(("127.0.0.1", port), timeout=1200) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
        head = connection.recv(1 << 20)
        first, received = time.monotonic(), len(head)
        buffer = bytearray(1 << 20)
        while count := connection.recv_into(buffer):
            received += count
    return int(head.split()[1]), received, first, time.monotonic()


def start_server(minfer: str, arguments: list[str]) -> tuple[subprocess.Popen, int]:
    server = subprocess.Popen([minfer, "serve", "--port", "0", "--no-access-log", *arguments], stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return server, int(found.group(1))
    raise SystemExit("the server did not start")


def measure(server: subprocess.Popen, port: int, request: dict) -> dict:
    before = resident_bytes(server.pid)
    stop, results = multiprocessing.Event(), multiprocessing.Queue()
    other = multiprocessing.Process(target=ask_health, args=(port, stop, results))
    other.start()
    peak, ended = [before], threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            peak[0] = max(peak[0], resident_bytes(server.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.monotonic()
    status, size, first, last = read_answer(port, json.dumps(request).encode())
    ended.set()
    stop.set()
    latencies = results.get()
    other.join()
    watcher.join()
    return {
        "status": status, "answer_bytes": size, "resident_before_bytes": before, "resident_growth_bytes": peak[0] - before,
        "growth_per_answer_byte": round((peak[0] - before) / size, 3),
        "compute_s": round(first - begin, 2), "send_s": round(last - first, 3),
        "others_while_computing": summary([took for at, took in latencies if at < first]),
        "others_while_sending": summary([took for at, took in latencies if first <= at + took and at <= last]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minfer", default="build/release/minfer")
    parser.add_argument("--n", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=300)
    parser.add_argument("--top-logprobs", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("server_arguments", nargs="*", help="further arguments of minfer serve, behind --")
    args = parser.parse_args()
    request = {"model": "minfer-demo", "messages": [{"role": "user", "content": "Tell me a story."}], "n": args.n,
               "max_tokens": args.max_tokens, "ignore_eos": True, "logprobs": True, "top_logprobs": args.top_logprobs}
    num_blocks = args.n * (args.max_tokens // 16 + 8)
    server, port = start_server(args.minfer, ["--num-blocks", str(num_blocks), *args.server_arguments])
    try:
        for _ in range(2):
            read_answer(port, json.dumps({**request, "logprobs": False, "top_logprobs": None}).encode())
        for _ in range(args.repeat):
            result = measure(server, port, request)
            print(json.dumps({"date": datetime.date.today().isoformat(), "machine": processor_name(),
                              "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "n": args.n,
                              "max_tokens": args.max_tokens, "top_logprobs": args.top_logprobs, **result}), flush=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
