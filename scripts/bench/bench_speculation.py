#!/usr/bin/env python3
"""What speculative decoding gains, and what it costs where it gains nothing: load tests with and without it, in turns.

    bench_speculation.py --minfer build/release/minfer [--rounds 7] [--cases PART;...] [--out FILE.jsonl]

Each round runs `minfer bench` once for each way of a case, so that all see the same machine; each run is a process of its own, which learns what
drafts are worth anew. A case is a model, prompts, requests at once, and ways to speculate. Prints the medians of output tokens a second, and of their
ratio to the run without speculation of the same round, with the range; likewise tokens by the processor's time, which counts little of what other
programs do to a machine that is not idle.
"""

import json
import os
import platform
import random
import resource
import sys
import tempfile
import time

from minfer_server import append_lines, load_test, parser_of_rounds, spread


def copying(index):
    """A text to say again: what a summary or an edit of a text looks like, and what the demo model can do."""
    words = random.Random(index).sample("silver ten near basket garden morning bridge white pencil drum river stone".split(), 7)
    return "<s><|user|>\nSay: " + " ".join(words * 4) + "<|end|><|assistant|>\n"


def telling(index):
    """A story to go on with, of which nothing has to come again."""
    return f"Once upon a time there was a {['cat', 'dog', 'bird', 'girl', 'king'][index % 5]} who lived in house {index}. One day"


def noise(index):
    """Words in no order: n-grams that came before say nothing."""
    words = random.Random(index)
    return " ".join("".join(words.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in range(40))


NGRAM = ["--speculative", "ngram"]
CASES = {
    "demo, copying": ("", copying, 1, 16, {"ngram": NGRAM}),
    "demo, copying, 8 at once": ("", copying, 8, 32, {"ngram": NGRAM}),
    "demo, stories": ("", telling, 1, 16, {"ngram": NGRAM}),
    "demo, stories, 8 at once": ("", telling, 8, 32, {"ngram": NGRAM}),
    "demo, stories, 32 at once": ("", telling, 32, 64, {"ngram": NGRAM}),
    # A model with random weights soon repeats itself. As its own draft model it is always right, but too slow to gain: the cost remains.
    "llama-272m:q8_0, noise": ("synthetic:llama-272m:q8_0", noise, 1, 2,
                               {"ngram": NGRAM, "itself": ["--speculative-model", "synthetic:llama-272m:q8_0"]}),
    "llama-272m:bf16, noise": ("synthetic:llama-272m:bf16", noise, 1, 2, {"ngram": NGRAM}),
}


def processor_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(args, model, prompts, at_once, options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as dataset:
        dataset.writelines(json.dumps({"prompt": prompt, "output_len": args.tokens}) + "\n" for prompt in prompts)
        dataset.flush()
        before = processor_s()
        found = load_test(args.minfer, "--model", model, "--dataset", dataset.name, "--max-concurrency", at_once, "--kv-cache-memory", "512MiB",
                          "--no-enable-prefix-caching", "--threads", args.threads, *options)
    found["tokens_per_processor_s"] = found["total_output_tokens"] / (processor_s() - before)
    return found


def measure(args, name):
    model, prompt, at_once, count, ways = CASES[name]
    prompts = [prompt(index) for index in range(count)]
    found = {way: [] for way in ("off", *ways)}
    for turn in range(args.rounds):
        for way in list(found) if turn % 2 == 0 else list(found)[::-1]:
            found[way].append(run(args, model, prompts, at_once, ways.get(way, [])))
    for way, runs in found.items():
        (rates, of_off), (by_processor, of_off_by_processor) = (
            ([run[key] for run in runs], [run[key] / off[key] for run, off in zip(runs, found["off"])])
            for key in ("output_throughput", "tokens_per_processor_s"))
        drafts = [[run.get("spec_decode_acceptance_rate"), run.get("spec_decode_acceptance_length"), run.get("spec_decode_draft_tokens", 0)] for run in runs]
        print(f"{name}: {way}: {spread(rates)} tok/s, {spread(of_off, 3)} of off, {spread(of_off_by_processor, 3)} by the processor's time; "
              f"last run (accepted share, tokens a check, drafts): {drafts[-1]}", flush=True)
        yield {"benchmark": "speculation", "case": name, "model": model or "demo", "at_once": at_once, "prompts": count, "output_tokens": args.tokens,
               "way": way, "options": ways.get(way, []), "tokens_per_s": rates, "of_off": of_off, "tokens_per_processor_s": by_processor,
               "of_off_by_processor": of_off_by_processor, "drafts": drafts, "machine": f"{os.cpu_count()} cores, {platform.machine()}",
               "date": time.strftime("%Y-%m-%d"), "command": " ".join(sys.argv)}


def main():
    parser = parser_of_rounds(__doc__, 7)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=192, help="of each answer")
    parser.add_argument("--cases", help="parts of names, with semicolons between (default: all)")
    args = parser.parse_args()
    parts = args.cases.split(";") if args.cases else [""]
    for name in CASES:
        if any(part in name for part in parts):
            for result in measure(args, name):
                append_lines(args.out, [result])


if __name__ == "__main__":
    main()
