#!/usr/bin/env python3
"""Records a load of a server, runs it again from the record, and holds the one against the other.

    tests/checks/check_replay.py MINFER [-o RESULTS.jsonl] [--only NAME ...] [--gpu]

Each load is sent to `minfer serve --profile-out` by `minfer bench --base-url`; `minfer bench --replay` then reports the figures of the
record beside its own. Exit code 1 if throughput, or time to the first token or between tokens at the median or the 99th percentile,
differs by more than 5 %. The load is sent twice, so that a difference can be held against the one between two runs of the same load.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

CPU = ["-m", "synthetic:llama-272m:q8_0", "--max-model-len", "2048"]
LARGE = ["-m", "synthetic:llama-3.2-1b:bf16", "--max-model-len", "4096"]
HUGE = ["-m", "synthetic:llama-3.1-8b:bf16", "--max-model-len", "4096"]


def load(prompts, prompt_tokens, answer_tokens, *others):
    return ["--num-prompts", str(prompts), "--input-len", str(prompt_tokens), "--output-len", str(answer_tokens), "--ignore-eos",
            *others]


CPU_LOADS = {
    "steady": (CPU, [], load(40, 64, 24, "--request-rate", "0.8")),
    "one at a time": (CPU, [], load(8, 64, 32, "--max-concurrency", "1")),
    "four clients": (CPU, [], load(24, 64, 24, "--max-concurrency", "4")),
    "all at once": (CPU, ["--max-num-seqs", "8"], load(24, 64, 24)),
    "shared beginnings": (CPU, [], load(40, 32, 16, "--random-prefix-len", "128", "--request-rate", "0.8")),
}
GPU_LOADS = {
    "steady, 8B": (HUGE, [], load(400, 512, 128, "--request-rate", "20")),
    "64 clients, 8B": (HUGE, [], load(256, 512, 128, "--max-concurrency", "64")),
    "all at once, 1B": (LARGE, ["--max-num-seqs", "64"], load(256, 256, 64)),
    "shared beginnings, 1B": (LARGE, [], load(400, 64, 64, "--random-prefix-len", "1024", "--request-rate", "40")),
}

FIGURES = ["output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms"]


def serve(minfer, options, profile):
    server = subprocess.Popen([minfer, "serve", *options, "--host", "127.0.0.1", "--port", "0", "--profile-out", profile],
                              stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            return server, found.group(0)
    raise RuntimeError("the server ended")


def send(minfer, model, options, sent, profile):
    """What the load's sender has measured."""
    server, url = serve(minfer, [*model, *options], profile)
    try:
        done = subprocess.run([minfer, "bench", "--base-url", url, "--tokenizer", model[1], *sent, "-o", "json"], capture_output=True,
                              text=True, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-400:])
        return json.loads(done.stdout)[0]
    finally:
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
        server.wait()


def measure(minfer, model, options, sent, folder):
    """The replay's result, and how figures of the same load sent twice differ."""
    profile = os.path.join(folder, "recorded.jsonl")
    first = send(minfer, model, options, sent, profile)
    second = send(minfer, model, options, sent, os.path.join(folder, "again.jsonl"))
    done = subprocess.run([minfer, "bench", *model, *options, "--replay", profile, "-o", "json"], capture_output=True, text=True,
                          timeout=300)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-400:])
    return json.loads(done.stdout), {figure: second[figure] / first[figure] for figure in FIGURES}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minfer")
    parser.add_argument("-o", "--output")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--gpu", action="store_true", help="loads that a GPU serves")
    arguments = parser.parse_args()
    rows = []
    for name, (model, options, sent) in (GPU_LOADS if arguments.gpu else CPU_LOADS).items():
        if arguments.only and name not in arguments.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            result, again = measure(arguments.minfer, model, options, sent, folder)
        replay = result[0]["replay"]
        ratios = {figure: replay["ratio"][figure] for figure in FIGURES}
        good = all(abs(ratio - 1.0) <= 0.05 for ratio in ratios.values())
        print(f"{name}: " + ", ".join(f"{figure} {100 * (ratio - 1):+.1f} %" for figure, ratio in ratios.items())
              + ("" if good else "  <- not as it should be")
              + "; sent once more: " + ", ".join(f"{100 * (ratio - 1):+.1f} %" for ratio in again.values()), flush=True)
        rows.append({"load": name, "model": model, "options": options, "sent": sent, "good": good, "recorded": replay["recorded"],
                     "replayed": replay["replayed"], "ratio": ratios, "sent_again": again, "date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(),
                     "command": "tests/checks/check_replay.py MINFER" + (" --gpu" if arguments.gpu else "")})
        if arguments.output:
            with open(arguments.output, "w") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0 if all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
