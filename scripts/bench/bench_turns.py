#!/usr/bin/env python3
"""Runs several benchmarks in turns and compares each with the first. So all see the same machine.

    bench_turns.py [--rounds 5] [--serve "PROGRAM OPTION..."] [--out FILE.jsonl] NAME="COMMAND" NAME="COMMAND" ...

A command is one of `minfer bench`, or of llama-bench, which writes JSON alike. It gives one result. Commands may differ in options, in the version of
minfer, or in the program:

    bench_turns.py off="build/release/minfer bench --num-prompts 64" auto="build/release/minfer bench --num-prompts 64 --target-itl-ms auto"
    bench_turns.py before="old/minfer bench -p 0 -n 128 -r 1" now="build/release/minfer bench -p 0 -n 128 -r 1"
    bench_turns.py llama.cpp="llama-bench -m FILE -p 0 -n 64 -t 2 -r 1" minfer="build/release/minfer bench -m FILE -p 0 -n 64 -t 2 -r 1"

With --serve, a command that names URL asks a `minfer serve` with these options, which runs as long as the command does. This measures what serving costs:

    bench_turns.py --serve build/release/minfer engine="build/release/minfer bench --num-prompts 256" \\
        server="build/release/minfer bench --base-url URL --tokenizer demo --num-prompts 256"

Prints the median and range of each figure over the rounds and, in brackets, of its ratio to the first command's in the same round. Tokens by the
processor's time count little of what other programs do to a machine that is not idle. --out appends a line for each command with all rounds.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shlex
import statistics
import subprocess
import sys
import time

from minfer_server import start, stop

FIGURES = ["avg_ts", "output_throughput", "tokens_per_processor_s", "request_goodput", "median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms"]


def spread(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def processor_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def result_of(words):
    done = subprocess.run([*words, "-o", "json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(words)}: exit code {done.returncode}\n{done.stderr}")
    results = json.loads(done.stdout)
    if len(results) != 1:
        sys.exit(f"{shlex.join(words)}: {len(results)} results, expected one")
    return results[0]


def run(words, serve):
    if not serve or "URL" not in words:
        return result_of(words)
    program, *options = shlex.split(serve)
    server, url = start(program, "", options, max_num_seqs=None)
    try:
        return result_of([url if word == "URL" else word for word in words])
    finally:
        stop(server)


def measure(command, serve):
    before = processor_s()
    found = run(shlex.split(command), serve)
    if "total_output_tokens" in found and "base_url" not in found:  # the engine ran in the process
        found["tokens_per_processor_s"] = found["total_output_tokens"] / (processor_s() - before)
    return {figure: found[figure] for figure in FIGURES if found.get(figure) is not None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", metavar="PROGRAM OPTION...", help="the server of commands that name URL")
    parser.add_argument("--out", help="append the results to this file, one JSON object a line")
    args = parser.parse_args()
    if unnamed := [command for command in args.commands if "=" not in command.split(" ")[0]]:
        parser.error(f"expected NAME=COMMAND, found {unnamed[0]}")
    commands = dict(command.split("=", 1) for command in args.commands)
    runs = {name: [] for name in commands}
    for turn in range(args.rounds):
        begin = turn % len(commands)  # each round begins with another command
        for name in [*commands][begin:] + [*commands][:begin]:
            runs[name].append(measure(commands[name], args.serve))
    first = next(iter(runs.values()))
    for name, own in runs.items():
        print(name)
        for figure in own[0]:
            ratios = [run[figure] / other[figure] for run, other in zip(own, first) if other.get(figure)]
            print(f"  {figure:24} {spread([run[figure] for run in own])}" + (f"  [{spread(ratios)}]" if own is not first and ratios else ""))
    if args.out:
        processor = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
        machine = {"machine": f"{processor[1] if processor else 'unknown'}, {os.cpu_count()} cores", "date": time.strftime("%Y-%m-%d"), "serve": args.serve}
        with open(args.out, "a", encoding="utf-8") as out:
            out.writelines(json.dumps({"name": name, "command": commands[name], **machine, "rounds": own}) + "\n" for name, own in runs.items())


if __name__ == "__main__":
    main()
