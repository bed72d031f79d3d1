#!/usr/bin/env python3
"""Measures what serving costs: the same load once through the engine alone and once through `minfer serve`,
in turn, at several stream intervals.

For each interval and repetition it runs `minfer bench` (the engine in the process) and then `minfer serve`
with `minfer bench --base-url`; their output throughputs give one ratio. The server's step records give the
host's time in a step and the device's idle time. Prints a table; --out appends one JSON object an interval,
behind one that names the machine.

  scripts/bench/bench_server.py --concurrency 64 --num-prompts 256 --input-len 64 --output-len 128 --intervals 1,16
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile

from minfer_server import append_lines, load_test, processor, start, stop


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def describe_machine():
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": os.environ.get("MINFER_COMMIT") or output("git", "rev-parse", "HEAD"),
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader") or None,
        "load": os.getloadavg()[0],
    }


def median_step(profile):
    """Of the decode steps of at least half the largest batch: the medians, in us, of each host span, the wall time and the
    device's idle time."""
    with open(profile, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    steps = [line for line in lines if line["schema"].startswith("minfer.step/") and "step" in line]
    most = max(step["batch"]["decode_requests"] for step in steps)
    full = [step for step in steps if step["phase"] == "decode" and step["batch"]["decode_requests"] * 2 >= most]
    spans = {name: statistics.median(step["host_us"].get(name, 0.0) for step in full) for name in full[0]["host_us"]}
    return {
        "steps": len(full),
        "decode_requests": statistics.median(step["batch"]["decode_requests"] for step in full),
        "wall_us": statistics.median(step["wall_us"] for step in full),
        "host_us": spans,
        "idle_share": sum(step["gpu_idle_us"] for step in full) / sum(step["wall_us"] for step in full),
    }


def measure(args, interval):
    load = ["--num-prompts", args.num_prompts, "--input-len", args.input_len, "--output-len", args.output_len, "--max-concurrency", args.concurrency]
    model = ["--model", args.model] if args.model else []
    engine = [*model, "--stream-interval", str(interval), *args.engine_options]
    pairs, step = [], None
    for _ in range(args.repetitions):
        offline = load_test(args.minfer, *load, *engine)
        with tempfile.TemporaryDirectory() as folder:
            profile = os.path.join(folder, "steps.jsonl")
            server, url = start(args.minfer, "", ["--no-access-log", *engine, "--profile-out", profile], max_num_seqs=None)
            served = load_test(args.minfer, "--base-url", url, "--tokenizer", args.model or "demo", *load)
            stop(server)
            step = median_step(profile)
        pairs.append((offline, served))
        print(".", end="", file=sys.stderr, flush=True)
    ratios = [served["output_throughput"] / offline["output_throughput"] for offline, served in pairs]
    fields = ("output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms", "median_tpot_ms")
    return {
        "command": " ".join(["scripts/bench/bench_server.py", *sys.argv[1:]]),
        "stream_interval": interval,
        "concurrency": args.concurrency,
        "offline_output_throughput": [offline["output_throughput"] for offline, _ in pairs],
        "server_output_throughput": [served["output_throughput"] for _, served in pairs],
        "ratio_median": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "server": {field: statistics.median(served[field] for _, served in pairs) for field in fields if field in pairs[0][1]},
        "failed": sum(served.get("failed", 0) for _, served in pairs),
        "decode_step": step,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minfer", default="build/release/minfer")
    parser.add_argument("--model", default="", help="default: the demo model")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--num-prompts", type=int, default=256)
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--intervals", default="1,16")
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("--out", help="append the results to this file, one JSON object a line")
    parser.add_argument("engine_options", nargs="*", help="further options of bench and serve, behind --")
    args = parser.parse_args()
    if args.out and not os.path.exists(args.out):
        append_lines(args.out, [describe_machine()])
    for interval in map(int, args.intervals.split(",")):
        result = measure(args, interval)
        host_us = sum(us for name, us in result["decode_step"]["host_us"].items() if name != "wait")
        print(f"\ninterval {interval:3}: offline {statistics.median(result['offline_output_throughput']):9.1f} tok/s, "
              f"server {statistics.median(result['server_output_throughput']):9.1f} tok/s, "
              f"ratio {result['ratio_median']:.3f} [{result['ratio_min']:.3f}, {result['ratio_max']:.3f}], "
              f"host {host_us:.0f} us of a step of {result['decode_step']['wall_us']:.0f}, "
              f"idle {100 * result['decode_step']['idle_share']:.1f} %, failed {result['failed']}")
        append_lines(args.out, [result])


if __name__ == "__main__":
    main()
