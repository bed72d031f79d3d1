#!/usr/bin/env python3
"""Runs `minfer bench` in several ways, in turns, and compares each way with the first. So all ways see the same machine.

    bench_turns.py [--rounds 5] [--serve "PROGRAM OPTION..."] [--out FILE.jsonl] "NAME=PROGRAM OPTION..." ["NAME=PROGRAM OPTION..." ...]

A way is a program and options of its `bench`, which give one result. Ways may differ in options or in the version of the program:

    bench_turns.py "off=build/release/minfer --num-prompts 64" "auto=build/release/minfer --num-prompts 64 --target-itl-ms auto"
    bench_turns.py "before=old/minfer -p 0 -n 128" "now=build/release/minfer -p 0 -n 128"

With --serve, a way that names URL goes to a `serve` with these options, which runs as long as the way does. So this measures what serving costs:

    bench_turns.py --serve build/release/minfer "engine=build/release/minfer --num-prompts 256" \
        "server=build/release/minfer --base-url URL --tokenizer demo --num-prompts 256"

Prints the median and range of each figure over the rounds and, in brackets, of its ratio to the first way's in the same round. Tokens by the
processor's time count little of what other programs do to a machine that is not idle. --out appends a line for each way with the values of every round.
"""

import argparse
import os
import resource
import shlex
import statistics
import time

from minfer_server import append_lines, load_test, processor, start, stop

FIGURES = ["median_ts", "output_throughput", "tokens_per_processor_s", "request_goodput", "median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms"]


def spread(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def processor_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(way, serve):
    program, *options = shlex.split(way)
    if not serve or "URL" not in options:
        return load_test(program, *options)
    served, *serve_options = shlex.split(serve)
    server, url = start(served, "", serve_options, max_num_seqs=None)
    try:
        return load_test(program, *(url if option == "URL" else option for option in options))
    finally:
        stop(server)


def measure(way, serve):
    before = processor_s()
    found = run(way, serve)
    if "total_output_tokens" in found and "base_url" not in found:  # the engine ran in the process
        found["tokens_per_processor_s"] = found["total_output_tokens"] / (processor_s() - before)
    return {figure: found[figure] for figure in FIGURES if found.get(figure) is not None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="+", metavar="NAME=PROGRAM OPTION...")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", metavar="PROGRAM OPTION...", help="the server of ways that name URL")
    parser.add_argument("--out", help="append the results to this file, one JSON object a line")
    args = parser.parse_args()
    if unnamed := [way for way in args.ways if "=" not in way.split(" ")[0]]:
        parser.error(f"expected NAME=PROGRAM OPTION..., found {unnamed[0]}")
    ways = dict(way.split("=", 1) for way in args.ways)
    runs = {name: [] for name in ways}
    for turn in range(args.rounds):
        begin = turn % len(ways)  # each round begins with another way
        for name in [*ways][begin:] + [*ways][:begin]:
            runs[name].append(measure(ways[name], args.serve))
    first = next(iter(runs.values()))
    for name, own in runs.items():
        print(name)
        for figure in own[0]:
            ratios = [run[figure] / other[figure] for run, other in zip(own, first) if other.get(figure)]
            print(f"  {figure:24} {spread([run[figure] for run in own])}" + (f"  [{spread(ratios)}]" if own is not first and ratios else ""))
        append_lines(args.out, [{"benchmark": "turns", "way": name, "command": ways[name], "serve": args.serve, "rounds": own, "machine": f"{processor()}, {os.cpu_count()} cores",
                                 "date": time.strftime("%Y-%m-%d")}])


if __name__ == "__main__":
    main()
