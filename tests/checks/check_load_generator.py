#!/usr/bin/env python3
"""Compares `minfer bench --base-url` with a load generator that nobody here wrote: AIPerf (PyPI: aiperf), unmodified.

Starts a server, sends the same prompts with both at the same concurrency, in turn and several times, prints both reports as they
are, and the medians of their figures side by side. The server is `minfer serve` with a model, which has to be slow enough to leave
the generators' own time out of the figures, on a machine with nothing else to do; or, with --server, a program that takes --port
and serves OpenAI's API: the tests' paced_server is minfer's server with a model whose steps take a fixed time, so that neither
AIPerf's processes nor others change what is measured (scripts/build.sh release -DMINFER_TESTS=ON -- paced_server makes it).

AIPerf's inter token latency is a mean of each request, (latency - ttft) / (tokens - 1): what vLLM and minfer call TPOT. It takes
token counts from the server here; the tokenizer it asks for is a folder with a byte vocabulary, made on the spot.

Exit status: 0 all figures agree within --limit percent, 1 some do not or something failed, 77 skipped because AIPerf is not
there (--install gets it from PyPI into a virtual environment of its own in ~/.cache/minfer).
"""

import argparse
import json
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

AIPERF = "aiperf==0.13.0"
ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = ("time year people way day man thing woman life child world school state family student group country hand part place case "
         "week system work number night point home water room mother area money story fact month").split()
# What is compared: name, field of minfer's result, metric and statistic of AIPerf's.
FIGURES = [
    ("request throughput (1/s)", "request_throughput", "request_throughput", "avg"),
    ("output throughput (tokens/s)", "output_throughput", "output_token_throughput", "avg"),
    ("mean TTFT (ms)", "mean_ttft_ms", "time_to_first_token", "avg"),
    ("median TTFT (ms)", "median_ttft_ms", "time_to_first_token", "p50"),
    ("mean TPOT (ms)", "mean_tpot_ms", "inter_token_latency", "avg"),
    ("median TPOT (ms)", "median_tpot_ms", "inter_token_latency", "p50"),
    ("mean latency (ms)", "mean_e2el_ms", "request_latency", "avg"),
    ("median latency (ms)", "median_e2el_ms", "request_latency", "p50"),
]


def skip(reason):
    print(f"SKIPPED: check_load_generator.py: {reason}")
    sys.exit(77)


def find_aiperf(args):
    """The program as given, from PATH, or from a virtual environment that --install makes."""
    given = args.aiperf or shutil.which("aiperf")
    if given:
        return given
    environment = pathlib.Path.home() / ".cache/minfer" / AIPERF.replace("==", "-")
    program = environment / "bin/aiperf"
    if not program.exists():
        if not args.install:
            skip("aiperf is not on PATH; --install gets it from PyPI")
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        pip = subprocess.run([environment / "bin/pip", "install", "--quiet", AIPERF])
        if pip.returncode != 0:
            shutil.rmtree(environment)
            skip(f"pip cannot install {AIPERF}")
    return str(program)


def byte_alphabet():
    """The 256 characters that stand for bytes in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]


def write_tokenizer(folder):
    folder.mkdir()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary = {character: i for i, character in enumerate(byte_alphabet())}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
                 "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))


def write_prompts(args, folder):
    """The same prompts for both programs."""
    rng = random.Random(1)
    prompts = [" ".join(rng.choices(WORDS, k=args.input_words)) for _ in range(args.num_prompts)]
    with open(folder / "minfer.jsonl", "w") as ours, open(folder / "aiperf.jsonl", "w") as theirs:
        for prompt in prompts:
            ours.write(json.dumps({"prompt": prompt, "output_len": args.output_len}) + "\n")
            theirs.write(json.dumps({"text": prompt, "output_length": args.output_len}) + "\n")


class Server:
    """The server on a free port, while it is open."""

    def __init__(self, args, log):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        command = [*(args.server or [args.minfer, "serve", "--log-level", "warning", *args.serve]),
                   "--port", self.url.rsplit(":", 1)[1]]
        self.log = open(log, "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.log.close()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return response.read().decode()

    def wait_until_ready(self):
        for _ in range(1200):
            if self.process.poll() is not None:
                sys.exit(f"the server ended: {pathlib.Path(self.log.name).read_text()}")
            try:
                return json.loads(self.get("/v1/models"))["data"][0]["id"]
            except OSError:
                time.sleep(0.1)
        sys.exit("the server is not ready after two minutes")


class Comparison:
    def __init__(self, args, aiperf, folder, server):
        self.args, self.aiperf, self.folder, self.server = args, aiperf, folder, server
        self.model = server.wait_until_ready()

    def start_minfer(self):
        args = self.args
        command = [args.minfer, "bench", "--base-url", self.server.url, "--model", self.model, "--dataset",
                   self.folder / "minfer.jsonl", "--ignore-eos", "--max-concurrency", str(args.concurrency),
                   "--result-filename", self.folder / "minfer.json"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def start_aiperf(self):
        args = self.args
        command = [self.aiperf, "profile", "--model", self.model, "--url", self.server.url, "--endpoint-type", "completions",
                   "--streaming", "--input-file", self.folder / "aiperf.jsonl", "--custom-dataset-type", "single_turn",
                   "--request-count", str(args.num_prompts), "--concurrency", str(args.concurrency), "--use-legacy-max-tokens",
                   "--extra-inputs", "ignore_eos:true", "temperature:0", "--tokenizer", self.folder / "tokenizer",
                   "--use-server-token-count", "--ui", "none", "--artifact-dir", self.folder / "artifacts"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self, name, process):
        report, _ = process.communicate(timeout=self.args.timeout)
        if process.returncode != 0:
            sys.exit(f"{name} failed:\n{report}")
        return report

    def run_once(self):
        """Both reports, and both sets of figures."""
        reports = self.finish("minfer bench", self.start_minfer()), self.finish("aiperf", self.start_aiperf())
        ours = json.loads((self.folder / "minfer.json").read_text())
        theirs = json.loads((self.folder / "artifacts/profile_export_aiperf.json").read_text())
        return reports, [(ours[field], theirs[metric][statistic]) for _, field, metric, statistic in FIGURES]


def compare(runs, limit):
    """Prints the medians of all runs. True if they agree."""
    print(f"\n{'medians of ' + str(len(runs)) + ' runs':30} {'minfer':>12} {'aiperf':>12} {'difference':>12}")
    agree = True
    for (name, *_), pairs in zip(FIGURES, zip(*runs)):
        ours, theirs = (statistics.median(values) for values in zip(*pairs))
        difference = 100.0 * (ours / theirs - 1.0)
        agree = agree and abs(difference) <= limit
        print(f"{name:30} {ours:12.2f} {theirs:12.2f} {difference:+10.2f} %{'' if abs(difference) <= limit else '  <--'}")
    return agree


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minfer", default=str(ROOT / "build/release/minfer"))
    parser.add_argument("--aiperf", help="the program (default: from PATH)")
    parser.add_argument("--install", action="store_true", help="get AIPerf from PyPI if it is not there")
    parser.add_argument("--num-prompts", type=int, default=16)
    parser.add_argument("--input-words", type=int, default=40)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=float, default=3.0, help="percent by which figures may differ")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one run of one program")
    parser.add_argument("--server", nargs=1, metavar="PROGRAM", help="another server")
    parser.add_argument("serve", nargs="*", default=["--model", "synthetic:llama-272m:q8_0", "--threads", "1", "--max-model-len",
                                                     "1024", "--no-enable-prefix-caching"],
                        help="options of minfer serve, behind --")
    args = parser.parse_args()
    aiperf = find_aiperf(args)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_tokenizer(folder / "tokenizer")
        write_prompts(args, folder)
        with Server(args, folder / "serve.log") as server:
            comparison = Comparison(args, aiperf, folder, server)
            comparison.finish("warm-up", comparison.start_minfer())
            runs = []
            for run in range(args.repeat):
                reports, figures = comparison.run_once()
                runs.append(figures)
                print(f"run {run + 1}: " + ", ".join(f"{name} {ours:.2f} / {theirs:.2f}"
                                                     for (name, *_), (ours, theirs) in zip(FIGURES, figures)), flush=True)
    print(f"\n{reports[0]}\n{reports[1]}")
    sys.exit(0 if compare(runs, args.limit) else 1)


if __name__ == "__main__":
    main()
