#!/usr/bin/env python3
"""What bounding the prompt tokens beside decoding does to throughput and latency, over request rates.

    bench_scheduling.py --minfer build/release/minfer [--model MODEL] [--rates 1,4,inf] [--rounds 5] [--targets 10,25,50] [--budgets 256]
                        [--policies shortest] [--num-prompts 64] [--short 128] [--long 1024] [--long-share 0.1] [--output-len 64]
                        [--goodput ttft:1000 tpot:50] [--out FILE.jsonl] [-- OPTIONS OF MINFER BENCH]

Each round runs `minfer bench` on the same requests at the same times with every setting in turn, so that all see the same machine: "off" (a step
takes what prompt tokens --max-num-batched-tokens leaves), each of --targets as --target-itl-ms, each of --budgets as --max-num-batched-tokens, each
of --policies as --scheduling-policy. Requests are short prompts with some long ones between them, all of random tokens. Prints medians over the rounds
and, against "off", the median of the rounds' ratios; --out appends a line for each setting and rate with the values of every round.
"""

import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time

from minfer_server import append_lines, load_test, parser_of_rounds

FIGURES = ["output_throughput", "request_goodput", "duration", "median_ttft_ms", "p95_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p95_itl_ms", "p99_itl_ms",
           "mean_tpot_ms", "p99_e2el_ms"]


def write_requests(path, args, seed):
    """Lengths vary by a half; token ids are such that every vocabulary has them."""
    draw = random.Random(seed)
    with open(path, "w") as out:
        for _ in range(args.num_prompts):
            mean = args.long if draw.random() < args.long_share else args.short
            prompt = [draw.randrange(260, 500) for _ in range(draw.randint(mean // 2, mean * 3 // 2))]
            output_len = draw.randint(args.output_len // 2, args.output_len * 3 // 2)
            out.write(json.dumps({"prompt": prompt, "output_len": max(1, output_len)}) + "\n")


def run(args, options, rate, requests, seed):
    result = load_test(args.minfer, *(["--model", args.model] if args.model else []), "--dataset", requests, "--request-rate", rate, "--seed", seed,
                       "--num-warmups", 2, "--max-model-len", args.max_model_len, "--metric-percentiles", "95,99",
                       "--percentile-metrics", "ttft,tpot,itl,e2el", "--goodput", *args.goodput, *options, *args.options)
    if result["failed"] > 0:
        sys.exit(f"{' '.join(options) or 'off'}: {result['failed']} requests failed: {result['error_counts']}")
    return result


def settings_of(args):
    settings = {"off": []}
    for option, values in (("--target-itl-ms", args.targets), ("--max-num-batched-tokens", args.budgets), ("--scheduling-policy", args.policies)):
        for value in filter(None, values.split(",")):
            settings[f"{option[2:]} {value}"] = [option, value]
    return settings


def report(rate, values):
    print(f"rate {rate}")
    for name, own in values.items():
        texts = []
        for figure in ("output_throughput", "request_goodput", "median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p95_itl_ms", "p99_itl_ms"):
            ratios = [mine / off for mine, off in zip(own[figure], values["off"][figure]) if off > 0]
            ratio = f" ({statistics.median(ratios):.2f})" if ratios and name != "off" else ""
            texts.append(f"{figure.removesuffix('_ms')} {statistics.median(own[figure]):.1f}{ratio}")
        print(f"  {name:28} " + ", ".join(texts), flush=True)


def main():
    parser = parser_of_rounds(__doc__, 5)
    parser.add_argument("--model", default="")
    parser.add_argument("--rates", default="1,4,inf")
    parser.add_argument("--targets", default="10,25,50")
    parser.add_argument("--budgets", default="256")
    parser.add_argument("--policies", default="shortest")
    parser.add_argument("--num-prompts", type=int, default=64)
    parser.add_argument("--short", type=int, default=128, help="mean tokens of a short prompt")
    parser.add_argument("--long", type=int, default=1024, help="and of a long one")
    parser.add_argument("--long-share", type=float, default=0.1)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--goodput", nargs="+", default=["ttft:1000", "tpot:50"])
    parser.add_argument("options", nargs="*", help="of minfer bench, behind --")
    args = parser.parse_args()
    settings = settings_of(args)
    with tempfile.TemporaryDirectory() as folder:
        requests = os.path.join(folder, "requests.jsonl")
        for rate in args.rates.split(","):
            values = {name: {figure: [] for figure in FIGURES} for name in settings}
            for seed in range(args.rounds):
                write_requests(requests, args, seed)
                # Each round begins with another one.
                names = list(settings)
                for name in names[seed % len(names):] + names[:seed % len(names)]:
                    result = run(args, settings[name], rate, requests, seed)
                    for figure in FIGURES:
                        values[name][figure].append(round(result[figure], 3))
            report(rate, values)
            append_lines(args.out, (
                {"benchmark": "scheduling", "model": args.model or "demo", "setting": name, "rate": rate, **figures,
                 "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"),
                 "command": " ".join(sys.argv)} for name, figures in values.items()))


if __name__ == "__main__":
    main()
