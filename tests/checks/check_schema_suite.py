#!/usr/bin/env python3
"""Measures grammar engines on a public suite of JSON schemas: which schemas compile, and whose instances are judged as the suite does.

    check_schema_suite.py --try-grammars build/release/try_grammars FOLDER [--engines minfer,llguidance,xgrammar] [--show 20]

FOLDER holds the files of MaskBench, JSONSchemaBench's schemas with instances: maskbench/data of github.com/guidance-ai/jsonschemabench. A file
is {"schema": ..., "tests": [{"valid": BOOL, "data": ...}, ...]}. Engines are ours (by tests' try_grammars) and the packages llguidance and
xgrammar, this one as it comes and ("xgrammar-open") with strict_mode=False, which allows members that no schema declares. White space is
free. An instance is the text that json.dumps writes; the vocabulary is all bytes.
Prints for each engine, as shares of the schemas: compiled; right, which is compiled with each instance judged as the suite does, of those
with instances; and how many schemas refuse a valid instance (members in another order among them) or allow an invalid one.
With --show so many of these are printed for each engine. Exit status: 0.
"""

import argparse
import collections
import concurrent.futures
import importlib.metadata
import json
import pathlib
import re
import select
import statistics
import subprocess
import sys
import time

TIMEOUT_S = 60  # for a schema with its instances; then the engine is started anew
END = 256  # the token behind all bytes


def llguidance_judge():
    import llguidance

    class Bytes:
        tokens = [bytes([byte]) for byte in range(256)] + [b"\xff<end>"]
        eos_token_id, bos_token_id, special_token_ids = END, None, [END]

        def __call__(self, text):
            return list(text if isinstance(text, bytes) else text.encode())

    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))

    def judge(schema, texts):
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
        if error := llguidance.LLMatcher.validate_grammar(grammar, tokenizer):
            raise ValueError(error)
        accepted = []
        for text in texts:
            matcher = llguidance.LLMatcher(tokenizer, grammar)
            accepted.append(all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting())
        return accepted

    return judge


def xgrammar_judge(strict_mode):
    import xgrammar

    vocabulary = xgrammar.TokenizerInfo([bytes([byte]) for byte in range(256)] + [b"</s>"], stop_token_ids=[END])
    compiler = xgrammar.GrammarCompiler(vocabulary, max_threads=1, cache_enabled=False)

    def judge(schema, texts):
        grammar = compiler.compile_json_schema(json.dumps(schema), strict_mode=strict_mode)
        accepted = []
        for text in texts:
            matcher = xgrammar.GrammarMatcher(grammar)
            accepted.append(all(matcher.accept_token(byte) for byte in text.encode()) and matcher.accept_token(END))
        return accepted

    return judge


JUDGES = {"llguidance": llguidance_judge, "xgrammar": lambda: xgrammar_judge(True), "xgrammar-open": lambda: xgrammar_judge(False)}


def serve(engine):
    """Answers lines as try_grammars does."""
    judge = JUDGES[engine]()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            result = {"accepted": judge(asked["schema"], asked["texts"])}
        except Exception as error:  # whatever a package raises for a schema that it does not take
            result = {"error": str(error)}
        print(json.dumps(result), flush=True)


class Engine:
    """A process that judges. One that crashes or takes too long is started anew for the next schema."""

    def __init__(self, name, args):
        self.command = [args.try_grammars] if name == "minfer" else [sys.executable, __file__, "--serve", name]
        self.process = None

    def judge(self, schema, texts):
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.ask({"schema": {}, "texts": []})  # loading the package is no schema's time
        result = self.ask({"schema": schema, "texts": texts, "style": "free"})
        if result is None:
            self.stop()
            return {"error": "crashed, or too slow"}
        return result

    def ask(self, question):
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        answer, end = b"", time.monotonic() + TIMEOUT_S
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            part = self.process.stdout.read1() if ready else b""
            if not part:
                return None
            answer += part
        return json.loads(answer)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None


def measure(name, files, args):
    engine = Engine(name, args)
    count, refusals, times, shown = collections.Counter(), collections.Counter(), [], []
    for file in files:
        entry = json.loads(file.read_text())
        tests = entry["tests"]
        begin = time.monotonic()
        result = engine.judge(entry["schema"], [json.dumps(test["data"], ensure_ascii=False) for test in tests])
        times.append(time.monotonic() - begin)
        count["schemas"] += 1
        count["tested"] += bool(tests)
        if "error" in result:
            count["slow or crashed"] += result["error"] == "crashed, or too slow"
            refusals[re.sub(r"\d+", "N", ": ".join(result["error"].rstrip().split("\n")[-1].split(": ")[-2:]))[:80]] += 1  # "if: not supported"
            continue
        count["compiled"] += 1
        wrong = [test["valid"] for test, is_allowed in zip(tests, result["accepted"]) if test["valid"] != is_allowed]
        count["compiled, tested"] += bool(tests)
        count["right"] += bool(tests) and not wrong
        count["refuses a valid one"] += True in wrong
        count["allows an invalid one"] += False in wrong
        if wrong:
            shown.append(("refuses: " if True in wrong else "allows: ") + file.name)
    engine.stop()
    version = "" if name == "minfer" else " " + importlib.metadata.version(name.split("-")[0])
    share = lambda part, whole: f"{count[part]} of {count[whole]} ({100 * count[part] / max(1, count[whole]):.1f} %)"
    lines = [f"{name}{version}", f"  compiled {share('compiled', 'schemas')}", f"  right {share('right', 'tested')}",
             f"  refuses a valid one {share('refuses a valid one', 'compiled, tested')}",
             f"  allows an invalid one {share('allows an invalid one', 'compiled, tested')}",
             f"  crashed or took more than {TIMEOUT_S} s {count['slow or crashed']}",
             f"  a schema with its instances: median {1e3 * statistics.median(times):.1f} ms, longest {max(times):.1f} s"]
    lines += [f"  {number:6} {what}" for what, number in refusals.most_common(args.show)] + ["  " + line for line in shown[:args.show]]
    return "\n".join(lines)


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--try-grammars", required=True)
    parser.add_argument("--engines", default="minfer,llguidance,xgrammar,xgrammar-open")
    parser.add_argument("--show", type=int, default=0)
    args = parser.parse_args()
    files = sorted(args.folder.glob("*.json"))
    with concurrent.futures.ThreadPoolExecutor() as pool:  # an engine is a process
        for text in pool.map(lambda name: measure(name, files, args), args.engines.split(",")):
            print(text, flush=True)


if __name__ == "__main__":
    main()
