#!/usr/bin/env python3
"""What grammars, schemas and expressions that were made to hurt cost the others: `grammar_bombs.py MINFER MODEL.gguf > RESULT.json`.

Serves the model, streams free text all the time, and asks beside it for answers that are held to --count random bombs, --at-once of them at a
time; before that, for the same answers without their grammars. Written down: the times between tokens of the free text in both parts, how
far the server's memory grew, how each bomb ended, and what the server takes to end while bombs run. Exit status 1: above the bounds (50 ms
at the 99th percentile, 200 MB, 60 s for each, 3 s for the end). Wants two idle cores.
"""

import argparse
import http.client
import json
import os
import random
import signal
import string
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../scripts/bench"))
import minfer_server

MOST_GAP_MS, MOST_GROWTH_MB, MOST_SECONDS, MOST_END_SECONDS = 50, 200, 60, 3
CLASSES = [r"[^\n]", r"[a-z ]", r"[^x]", r"[\x20-\x7e]", r"[^\x00-\x1f]"]
REGEX_CLASSES = [r"\p{L}", r"\p{Lu}", r"\p{Ll}", r"[^\p{L}]", r"\P{N}", r"[\s\S]", r"\w", r"."]


def counted_behind(rng):
    """A letter that may be any of those behind it: sets of places double with each character."""
    of, last = rng.choice(CLASSES), rng.choice("xae ")
    return {"guided_grammar": f'root ::= "Q" {of}* "{last}" {of}{{{rng.choice([5, 20, 40, 200, 400])}}}'}


def overlapping_classes(rng):
    many = "|".join(rng.sample(REGEX_CLASSES, rng.randint(2, 5)))
    return {"guided_regex": f"({many})*{rng.choice('xea')}({'|'.join(rng.sample(REGEX_CLASSES, 2))}){{{rng.choice([40, 300, 2000])}}}"}


def nested_rules(rng):
    """Many rules that match letters with their capitals: as many places behind each letter."""
    count = rng.choice([1, 10, 100, 300, 1000])
    letters = string.ascii_lowercase
    rules = [f'r{i} ::= "." | ' + " | ".join(f'"{c}" r{i} "{c.upper()}"' for c in letters) for i in range(count)]
    return {"guided_grammar": "root ::= " + " | ".join(f"r{i}" for i in range(count)) + "\n" + "\n".join(rules)}


def doubling_rules(rng):
    kind = rng.choice(["[a-z ]", '"a"', "[^x]"])
    return {"guided_grammar": f'root ::= t\nt ::= {kind} t "x" | {kind} u "y" | {kind}\nu ::= {kind} u "x" | {kind} t "y" | "b"'}


def nested_counts(rng):
    count = rng.choice([100, 1000, 30000])
    return {"guided_regex": rng.choice([f"((a|b?){{0,{count}}}c?){{0,{count}}}d", f"(a?){{{count}}}a{{{min(count, 1000)}}}",
                                        f"(.{{0,{count}}}x){{0,{count}}}", f"[^a]{{{count}}}(a|ab|abc){{0,{count}}}"])}


def many_choices(rng):
    letters = rng.choice([string.ascii_lowercase, "ab", string.printable])
    return {"guided_choice": ["".join(rng.choice(letters) for _ in range(rng.randint(1, 60))) for _ in range(rng.choice([100, 5000, 20000]))]}


def pattern(rng):
    return rng.choice([r"^(a|b)*a(a|b){%d}$" % rng.choice([8, 14, 30]), "x.{%d}" % rng.choice([10, 200]), r"^\w+@\w+$", "(a|aa)+b", r"^[^ab]{3,900}$"])


def schema(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice([{"type": "string", "pattern": pattern(rng)}, {"type": "string", "minLength": 5, "maxLength": rng.choice([50, 5000, 1000000])},
                           {"type": "string", "format": rng.choice(["date-time", "email", "uri", "hostname"])}, {"type": "integer", "multipleOf": rng.choice([7, 97, 997])},
                           {"type": "number", "minimum": -1e300, "maximum": 1e300}, {"enum": [rng.random() for _ in range(rng.choice([3, 500]))]}])
    parts = [schema(rng, depth - 1) for _ in range(rng.randint(2, 6))]
    if kind < 0.5:
        return {rng.choice(["anyOf", "oneOf", "allOf"]): parts}
    if kind < 0.6:
        return {"allOf": [{"type": "string", "pattern": pattern(rng)} for _ in range(rng.randint(2, 4))]}
    if kind < 0.75:
        return {"type": "array", "items": parts[0], "minItems": rng.choice([0, 3]), "maxItems": rng.choice([10, 10000])}
    names = {f"n{i}": part for i, part in enumerate(parts * rng.choice([1, 10]))}
    return {"type": "object", "properties": names, "required": rng.sample(sorted(names), rng.randint(0, 2)),
            **rng.choice([{}, {"additionalProperties": False}, {"patternProperties": {pattern(rng): parts[0]}}, {"propertyNames": {"pattern": pattern(rng)}}])}


def schemas(rng):
    made = schema(rng, rng.randint(2, 5))
    if rng.random() < 0.3:
        made = {"$defs": {"a": {"anyOf": [made, {"type": "array", "items": {"$ref": "#/$defs/a"}}]}}, "$ref": "#/$defs/a"}
    return {"guided_json": made}


def lark(rng):
    count = rng.choice([2, 20, 200])
    parts = " | ".join(f'A a{i} "y"' for i in range(count))
    rules = "\n".join(f'a{i}: A a{i} B | "."' for i in range(count))
    return {"guided_grammar": f"start: {parts}\n{rules}\nA: /[a-z]{{1,{rng.choice([3, 300])}}}/\nB: /[^.]+/"}


KINDS = [counted_behind, overlapping_classes, nested_rules, doubling_rules, nested_counts, many_choices, schemas, schemas, lark]


class Server:
    def __init__(self, process, url):
        self.process, self.address = process, urllib.parse.urlparse(url).netloc

    def memory_mb(self, what):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(what)) / 1024

    def ask(self, members, timeout=600):
        """Status and body of an answer."""
        connection = http.client.HTTPConnection(self.address, timeout=timeout)
        body = {"prompt": "Write a line: Q", "max_tokens": 12, "temperature": 1, **members}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


class FreeText(threading.Thread):
    """Streams until it is stopped; `gaps` has the times between tokens, in ms."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.gaps, self.stopped = server, [], False
        self.start()

    def run(self):
        while not self.stopped:
            connection = http.client.HTTPConnection(self.server.address, timeout=600)
            body = {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer, last = connection.getresponse(), None
            for line in answer:
                if self.stopped or not line.startswith(b"data: {"):
                    continue
                now = time.monotonic()
                if last is not None:
                    self.gaps.append((now - last) * 1000)
                last = now
            connection.close()

    def result(self):
        self.stopped = True
        gaps = sorted(self.gaps)
        return {"tokens": len(gaps), **{name: round(gaps[min(len(gaps) - 1, int(len(gaps) * part))], 2) for name, part in
                                        [("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("most_ms", 1.0)]}}


def run_all(server, bombs, at_once):
    """How each ended, as (seconds, status, what was said)."""
    ends, lock, waiting = [None] * len(bombs), threading.Lock(), iter(range(len(bombs)))

    def work():
        while True:
            with lock:
                index = next(waiting, None)
            if index is None:
                return
            begin = time.monotonic()
            status, text = server.ask({**bombs[index], "seed": index})
            ends[index] = (round(time.monotonic() - begin, 2), status, text)

    workers = [threading.Thread(target=work) for _ in range(at_once)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return ends


def outcome(status, text):
    body = json.loads(text)
    if "error" in body:
        return f"{status}: {body['error']['message'][:160]}"
    return f"{status}: {body['choices'][0]['finish_reason']}"


def end_seconds(server, bombs):
    """From SIGTERM to the end, while bombs run."""
    for bomb in bombs:
        threading.Thread(target=lambda bomb=bomb: server.ask({**bomb, "max_tokens": 200}), daemon=True).start()
    time.sleep(1)
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    server.process.send_signal(signal.SIGTERM)  # at once, not when all have been answered
    server.process.wait()
    return round(time.monotonic() - begin, 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("minfer")
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2)
    args = parser.parse_args()
    threading.excepthook = lambda problem: None if isinstance(problem.exc_value, (ConnectionError, http.client.HTTPException)) else threading.__excepthook__(problem)
    rng = random.Random(args.seed)
    kinds = [KINDS[i % len(KINDS)] for i in range(args.count)]
    bombs = [kind(rng) for kind in kinds]
    # A cache that is full before the bombs come: its pages are not their growth.
    server = Server(*minfer_server.start(args.minfer, args.model, ["--kv-cache-memory", "32MiB", "--max-model-len", "512"]))
    free = FreeText(server)
    run_all(server, [{"ignore_eos": True} for _ in range(max(4, args.count // 4))], args.at_once)
    quiet, before = free.result(), server.memory_mb("VmRSS")
    free = FreeText(server)
    ends = run_all(server, bombs, args.at_once)
    result = {"command": " ".join(sys.argv), "cpus": os.cpu_count(), "load": os.getloadavg()[0], "without": quiet, "beside_bombs": free.result(),
              "growth_mb": round(server.memory_mb("VmHWM") - before, 1), "slowest_s": max(end[0] for end in ends),
              "end_s": end_seconds(server, [nested_rules(random.Random(3)), *bombs[:3]]),
              "bombs": [{"kind": kind.__name__, "seconds": end[0], "outcome": outcome(*end[1:])} for kind, end in zip(kinds, ends)]}
    print(json.dumps(result, indent=1))
    good = (result["beside_bombs"]["p99_ms"] <= MOST_GAP_MS and result["growth_mb"] <= MOST_GROWTH_MB
            and result["slowest_s"] <= MOST_SECONDS and result["end_s"] <= MOST_END_SECONDS)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
