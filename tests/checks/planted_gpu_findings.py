#!/usr/bin/env python3
"""Cases with one thing wrong each on a GPU, as planted_findings.py has them for a CPU, in two parts: the runs need the GPU, the
findings only what the runs left.

    tests/checks/planted_gpu_findings.py collect MINFER FOLDER [--planted MINFER] [--seconds S] [--only NAME ...]
    tests/checks/planted_gpu_findings.py judge MINFER FOLDER [-o RESULTS.jsonl]

`collect` runs each case and the same work with the fault mended, keeps their profiles, and writes FOLDER/runs.json; --planted is
a program built with tests/benchmarks/planted_faults.patch, without which its cases are left out. `judge` holds the first finding
of each profile and its estimated gain against the real one. Exit code 1 if a finding has another name, the real gain lies
outside its range, or a healthy run has a finding above 5 %.
"""

import argparse
import json
import os
import subprocess
import sys
import time

from planted_findings import Bench, explain, between_tokens, load_time, longest_gap, mean_ttft, prompts_of, token_time

HUGE = ["-m", "synthetic:llama-3.1-8b:bf16", "--max-model-len", "4096"]
HUGE_Q4 = ["-m", "synthetic:llama-3.1-8b:q4_k_m", "--max-model-len", "4096"]
LARGE = ["-m", "synthetic:llama-3.2-1b:bf16", "--max-model-len", "4096"]
LARGE_Q4 = ["-m", "synthetic:llama-3.2-1b:q4_k_m", "--max-model-len", "4096"]
ONCE = ["-r", "1"]
DRAFTS = ["--speculative", "ngram", "--no-adaptive-speculation", "--synthetic-acceptance-rate"]


def decode(model, tokens, sequences, depth=0):
    return [*model, *ONCE, "-p", "0", "-n", str(tokens), "-d", str(depth), "--parallel", str(sequences)]


def load(model, prompts, prompt_tokens, answer_tokens, at_once):
    return [*model, "--num-prompts", str(prompts), "--input-len", str(prompt_tokens), "--output-len", str(answer_tokens),
            "--max-concurrency", str(at_once)]


class Planted(Bench):
    """A fault that is built into the other program."""

    def __init__(self, name, finding, work, fault, metric=token_time):
        super().__init__(name, finding, work, [], [], metric)
        self.fault_name = fault


class Beside(Bench):
    """A second process on the same GPU, which computes."""

    def neighbour(self, minfer):
        return [minfer, "bench", *decode(LARGE, 3000, 8), *self.fault]


class BesideCopies(Beside):
    """One that copies memory."""

    def neighbour(self, minfer):
        return [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "copy_gpu_memory.py")]


def cases():
    traced = ["--profile-range", "40:60"]
    return [
        Bench("healthy: 8 sequences of 8B", None, decode(HUGE, 64, 8, 512), [], [], token_time),
        Bench("healthy: 64 sequences of 8B", None, decode(HUGE, 64, 64, 512), [], [], token_time),
        Bench("healthy: prompts of 2,048 tokens", None, [*HUGE, *ONCE, "-p", "2048", "-n", "0", "--parallel", "4"], [], [],
              token_time),
        Bench("healthy: 64 clients", None, load(HUGE, 192, 512, 128, 64), [], [], load_time),
        Bench("healthy: 16 sequences of 1B", None, decode(LARGE, 128, 16, 256), [], [], token_time),
        Bench("graphs off", "graph misses", decode(LARGE_Q4, 192, 8), ["--no-cuda-graphs"], [], token_time),
        Bench("graphs off, tiny model", "graph misses",
              decode(["-m", "synthetic:tiny:bf16", "--max-model-len", "512"], 192, 8), ["--no-cuda-graphs"], [], token_time),
        Bench("arithmetic in f32", "f32 lanes", [*LARGE, *ONCE, "-p", "512", "-n", "32", "--parallel", "16"], ["--dtype", "f32"],
              [], lambda result: sum(1.0 / row["avg_ts"] for row in result)),
        # Was a fault until 2026-11: bf16 takes 16 % longer now.
        Bench("healthy: 4 bits at batch 64", None, decode(HUGE_Q4, 64, 64, 512), [], [], token_time),
        Planted("attention on an eighth of the grid", "attention split", decode(LARGE, 384, 8, 3500), "attention grid"),
        Planted("products on an eighth of the grid", "small grid", decode(LARGE, 192, 8), "product grid"),
        # Was a fault until 2026-11-29, when tiles had 128 or 256 tokens: a token took 18 % longer than with 512.
        Bench("healthy: a prompt of 528 tokens", None, [*LARGE[:2], "-n", "0", "-r", "3", "-p", "528"], [], [], token_time),
        Planted("a copy that the host waits for", "synchronous copy", decode(LARGE, 128, 8) + traced, "copy"),
        Beside("a second process", "another process", decode(LARGE, 384, 8), ["--gpu-memory-utilization", "0.3"],
               ["--gpu-memory-utilization", "0.3"], token_time),
        BesideCopies("a neighbour that copies, 1B", "another process", decode(LARGE, 384, 8), [], [], token_time),
        BesideCopies("a neighbour that copies, 8B", "another process", decode(HUGE, 192, 32), [], [], token_time),
        *(Bench(f"healthy: {sequences} sequences of {model}", None,
                decode(["-m", f"synthetic:{model}", "--max-model-len", "4096"], 96, sequences, 512), [], [], token_time)
          for model in ("llama-3.2-1b:bf16", "llama-3.2-1b:q4_k_m", "qwen3-8b:bf16", "llama-3.1-8b:q4_k_m", "olmoe-1b-7b:bf16")
          for sequences in (8, 24, 64)),
        Bench("healthy: a KV block of one token", None, [*decode(LARGE, 128, 16, 256), "--block-size", "1"], [], [], token_time),
        *(Bench(f"drafts that are never right, {sequences} of {name}", "drafts that lose", decode(model, tokens, sequences),
                [*DRAFTS, "0"], [], token_time)
          for name, model, sequences, tokens in (("1B", LARGE, 8, 192), ("8B", HUGE, 8, 96), ("8B", HUGE, 32, 64))),
        Bench("healthy: drafts that are right seven times of ten", None, [*decode(HUGE, 96, 4), *DRAFTS, "0.7"], [], [], token_time),
        Bench("one context of 24,000 tokens among fifteen short ones", "uneven batch",
              ["-m", "synthetic:llama-3.2-1b:bf16", "--max-model-len", "32768"],
              ["--dataset", prompts_of("/tmp", "uneven-gpu.jsonl", [24_000] + [200] * 15, 300)],
              ["--dataset", prompts_of("/tmp", "even-gpu.jsonl", [200] * 16, 300)], between_tokens),
        Bench("requests faster than they are served", "overload",
              [*LARGE, "--num-prompts", "1200", "--input-len", "512", "--output-len", "64"], ["--request-rate", "600"],
              ["--request-rate", "60"], mean_ttft),
        Bench("a KV cache for twelve requests", "KV cache too small",
              load(LARGE, 384, 1000, 16, 384) + ["--no-enable-prefix-caching"], ["--num-blocks", "800"], ["--num-blocks", "1600"],
              load_time),
        Bench("a token budget of 72", "tiny chunks", load(LARGE, 192, 64, 128, 96), ["--max-num-batched-tokens", "72"],
              ["--max-num-batched-tokens", "512"], load_time),
        Bench("decoding takes a token budget of 512", "decode starves prefill",
              load(LARGE, 700, 32, 400, 700) + ["--max-num-seqs", "700"], ["--max-num-batched-tokens", "512"],
              ["--max-num-batched-tokens", "2048"], mean_ttft),
        Bench("one sequence at a time", "too little load", decode(HUGE, 48, 1)[:-1], ["1"], ["8"], token_time),
        Bench("KV cache of 1,600 blocks", "preemption thrash", load(LARGE, 64, 512, 256, 64), ["--num-blocks", "1600"], [],
              load_time),
        Bench("eight slots for 64 clients", "batch too small", load(HUGE, 64, 64, 64, 64), ["--max-num-seqs", "8"],
              ["--max-num-seqs", "16"], load_time),
        Bench("prompts in pieces of 64 tokens", "tiny chunks", load(LARGE, 64, 1024, 16, 64), ["--max-num-batched-tokens", "64"],
              ["--max-num-batched-tokens", "512"], load_time),
        Bench("prefix cache off", "prefix not cached", load(HUGE, 48, 64, 16, 16) + ["--random-prefix-len", "1024"],
              ["--no-enable-prefix-caching"], [], load_time),
        Bench("long prompts beside decoding", "prefill starves decode", load(HUGE, 32, 3900, 64, 16),
              ["--max-num-batched-tokens", "8192"], ["--max-num-batched-tokens", "512"], longest_gap),
        Bench("32 sequences of 8B", None, decode(HUGE, 64, 32, 512), [], [], token_time),
    ]


def file_name(case, which):
    return "".join(letter if letter.isalnum() else "-" for letter in case.name) + f".{which}.jsonl"


def measure(case, which, minfer, planted, folder):
    program, environment = minfer, dict(os.environ)
    if isinstance(case, Planted) and which == "fault":
        program, environment["MINFER_PLANTED_FAULT"] = planted, case.fault_name
    other = None
    if isinstance(case, Beside) and which == "fault":
        other = subprocess.Popen(case.neighbour(minfer), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(4)
    try:
        profile = os.path.join(folder, file_name(case, which))
        command = [program, "bench", *case.options(which), "-o", "json", "--profile-out", profile]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-400:])
        return case.metric(json.loads(done.stdout))
    finally:
        if other is not None:
            other.kill()
            other.wait()


def collect(arguments):
    os.makedirs(arguments.folder, exist_ok=True)
    end = time.monotonic() + arguments.seconds
    kept = {"date": time.strftime("%Y-%m-%d"), "runs": {}}
    for case in cases():
        if (arguments.only and case.name not in arguments.only) or (isinstance(case, Planted) and not arguments.planted):
            continue
        for which in ("fault", "mended") if case.finding else ("fault",):
            if time.monotonic() > end:
                print(f"{case.name} ({which}): no time left", flush=True)
                continue
            began = time.monotonic()
            try:
                value = measure(case, which, arguments.minfer, arguments.planted, arguments.folder)
                kept["runs"].setdefault(case.name, {})[which] = value
            except (RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                value = f"failed: {error}"
            print(f"{case.name} ({which}): {value} in {time.monotonic() - began:.1f} s", flush=True)
            with open(os.path.join(arguments.folder, "runs.json"), "w") as file:
                json.dump(kept, file, indent=1)


def judge(arguments):
    with open(os.path.join(arguments.folder, "runs.json")) as file:
        kept = json.load(file)
    rows = []
    for case in cases():
        run = kept["runs"].get(case.name, {})
        if "fault" not in run:
            continue
        profile = os.path.join(arguments.folder, file_name(case, "fault"))
        with open(profile) as file:
            device = json.loads(file.readline())["header"]["device"]
        said = explain(arguments.minfer, profile)
        findings = [each for each in said["findings"] if each.get("has_option", True)]
        first = findings[0] if findings else {"finding": None, "gain": 0.0, "weight": 0.0}
        row = {"case": case.name, "expected": case.finding, "first": first["finding"],
               "estimated_gain": round(first["gain"], 3),
               "estimated_range": [round(first.get(end, first["gain"]), 3) for end in ("gain_from", "gain_to")],
               "findings": [[finding["finding"], round(finding["gain"], 4), finding["gain_of"]] for finding in findings[:4]],
               "options": case.options("fault"), "date": kept["date"], "device": device}
        if isinstance(case, Planted):
            row["planted"] = case.fault_name
        if case.finding is None:
            row["good"] = said["healthy"]
        elif "mended" in run:
            row["mended"] = case.options("mended")
            row["real_gain"] = round(1.0 - run["mended"] / run["fault"], 3)
            row["inside"] = row["estimated_range"][0] - 0.01 <= row["real_gain"] <= row["estimated_range"][1] + 0.01
            row["good"] = row["first"] == case.finding and row["inside"]
        else:
            row["good"] = row["first"] == case.finding
        rows.append(row)
        real = f", real {100 * row['real_gain']:.1f} %" if "real_gain" in row else ""
        print(f"{row['case']}: {row['first']}, estimated {100 * row['estimated_gain']:.1f} %{real}"
              f"{'' if row['good'] else '  <- not as it should be'}  {row['findings'][1:3]}")
    if arguments.output:
        with open(arguments.output, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    sys.exit(0 if all(row["good"] for row in rows) else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("--planted")
    collecting.add_argument("--seconds", type=float, default=3600.0)
    collecting.add_argument("--only", nargs="*", default=[])
    collecting.set_defaults(run=collect)
    judging = commands.add_parser("judge")
    judging.add_argument("-o", "--output")
    judging.set_defaults(run=judge)
    for command in (collecting, judging):
        command.add_argument("minfer")
        command.add_argument("folder")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
