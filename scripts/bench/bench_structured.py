#!/usr/bin/env python3
"""What structured output costs: throughput of constrained answers beside free ones, and what free neighbours notice.

    bench_structured.py --minfer build/release/minfer [--model MODEL] [--rounds 7] [--forms letters] [--out FILE.jsonl]

Starts the server itself. Each round asks for 32 answers at a time, free and constrained in turns (same length, ignore_eos), so that both see the
same machine; then for 8 streamed free answers beside 24 others that are free or constrained. Forms are such that no text is forced. Prints medians
and spread of tokens a second, their ratio by round, and the time between tokens of the free streams.

On an H100 or H200, in less than a minute:

    bench_structured.py --minfer build/release/minfer --model synthetic:llama-3.1-8b:bf16 --rounds 5 --tokens 192 --forms letters

Of a synthetic model's vocabulary the bytes alone have a text: masks have all of its bits, but finding one takes less than with a real one.
"""

import concurrent.futures
import json
import platform
import statistics
import sys
import time
import urllib.request

from minfer_server import append_lines, parser_of_rounds, spread, start, stop

FORMS = {
    "free": {},
    "letters": {"structured_outputs": {"regex": "[a-z ,.]+"}},
    "list of texts": {"structured_outputs": {"regex": r'\["[a-z ]*"(, "[a-z ]*")*'}},
    # Each place in these is a separate state, whose mask nobody has requested before.
    "counted letters": {"structured_outputs": {"regex": "[a-z ,.]{4000}"}},
    "counted JSON list": {"structured_outputs": {"json": {"type": "array", "minItems": 1000, "items": {"anyOf": [
        {"type": "string", "maxLength": 40}, {"type": "integer"}, {"type": "array", "items": {"type": "boolean"}, "maxItems": 5}]}}}},
}


def post(url, fields, seed, num_tokens, stream=False):
    body = {"prompt": f"Story {seed}:", "temperature": 1, "seed": seed, "max_tokens": num_tokens, "ignore_eos": True, "stream": stream, **fields}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=600)


def answer(url, fields, seed, num_tokens):
    with post(url, fields, seed, num_tokens) as response:
        return json.load(response)["usage"]["completion_tokens"]


def streamed(url, seed, num_tokens):
    """Times between the events of a free stream, ms."""
    times = []
    with post(url, {}, seed, num_tokens, True) as response:
        for line in response:
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
    return [1e3 * (b - a) for a, b in zip(times[1:], times[2:])]


def throughput(pool, url, fields, num_tokens):
    begin = time.perf_counter()
    tokens = sum(pool.map(lambda seed: answer(url, fields, seed, num_tokens), range(32)))
    return tokens / (time.perf_counter() - begin)


def neighbours(pool, url, fields, num_tokens):
    others = [pool.submit(answer, url, fields, seed, num_tokens) for seed in range(24)]
    gaps = [gap for times in pool.map(lambda seed: streamed(url, seed, num_tokens // 2), range(100, 108)) for gap in times]
    for other in others:
        other.result()
    gaps.sort()
    return gaps[len(gaps) // 2], gaps[len(gaps) * 99 // 100]


def main():
    parser = parser_of_rounds(__doc__, 7)
    parser.add_argument("--model", default="")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--forms", default=",".join(list(FORMS)[1:]), help="beside free answers, by commas: %(default)s")
    args = parser.parse_args()
    forms = {name: FORMS[name] for name in ["free", *args.forms.split(",")]}
    server, url = start(args.minfer, args.model)
    try:
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            for form in forms.values():  # compiles the grammars, warms the caches, makes a GPU's graphs
                throughput(pool, url, form, 16)
                neighbours(pool, url, form, 32)
            rates = {name: [] for name in forms}
            gaps = {name: [] for name in forms}
            for _ in range(args.rounds):
                for name, form in forms.items():
                    rates[name].append(throughput(pool, url, form, args.tokens))
                    gaps[name].append(neighbours(pool, url, form, args.tokens))
    finally:
        stop(server)
    for name in forms:
        ratio = [own / free for own, free in zip(rates[name], rates["free"])]
        p99 = [own[1] / free[1] for own, free in zip(gaps[name], gaps["free"])]
        print(f"{name}: {spread(rates[name])} tok/s, {statistics.median(ratio):.3f} of free ({min(ratio):.3f} to {max(ratio):.3f}); free streams beside it: "
              f"median {spread([g[0] for g in gaps[name]])} ms, 99th percentile {spread([g[1] for g in gaps[name]])} ms, "
              f"{statistics.median(p99):.3f} of that beside free ones")
        append_lines(args.out, [{"benchmark": "structured", "model": args.model or "demo", "form": name, "tokens_per_s": rates[name], "gaps_ms": gaps[name],
                                 "machine": platform.processor() or platform.machine(), "date": time.strftime("%Y-%m-%d"), "command": " ".join(sys.argv)}])


if __name__ == "__main__":
    main()
