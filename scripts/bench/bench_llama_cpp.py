#!/usr/bin/env python3
"""llama.cpp beside minfer on CPU cores: the same GGUF files of llama-272m's shape, in turns.

    bench_llama_cpp.py --minfer build/release/minfer --llama-cpp BUILD/bin --llama-cpp-version TAG [--rounds 5] [--out FILE.jsonl]

BUILD is a build of llama.cpp with llama-bench and llama-quantize; a checkout builds them by
    cmake -B BUILD -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF && cmake --build BUILD --target llama-bench llama-quantize
scripts/golden/make_large_gguf.py writes the file in BF16 (needs numpy), llama-quantize the others. A round has a prompt of 256 tokens and 64 decoded
ones of each program, type by type. The first line of the output names the machine and both versions; then a line for each program and type: tokens a
second of each round, and for minfer the ratio of both, round by round. The machine should do nothing else.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from minfer_server import processor

TYPES = ["bf16", "q8_0", "q4_k_m"]
PROMPT, DECODE = 256, 64


def output(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def write_models(folder, llama_cpp):
    """Type to file."""
    files = {kind: folder / f"llama-272m-{kind}.gguf" for kind in TYPES}
    output(sys.executable, Path(__file__).resolve().parents[1] / "golden/make_large_gguf.py", files["bf16"], "--shape", "llama-272m")
    for kind in TYPES[1:]:
        output(llama_cpp / "llama-quantize", files["bf16"], files[kind], kind.upper())
    return files


def commands(args, file):
    sizes = ["-m", file, "-p", PROMPT, "-n", DECODE, "-t", args.threads, "-r", 1, "-o", "jsonl"]
    return {"llama.cpp": [args.llama_cpp / "llama-bench", *sizes],
            "minfer": [args.minfer, "bench", *sizes, "--max-model-len", 512, "--device", "cpu"]}


def measure(command):
    """Tokens a second of the prompt and of decoding."""
    lines = [json.loads(line) for line in output(*command).splitlines() if line.startswith("{")]
    return {"prefill": next(line["avg_ts"] for line in lines if line["n_prompt"] > 0 and line["n_gen"] == 0),
            "decode": next(line["avg_ts"] for line in lines if line["n_gen"] > 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minfer", type=Path, required=True)
    parser.add_argument("--llama-cpp", type=Path, required=True, help="folder of llama-bench and llama-quantize")
    parser.add_argument("--llama-cpp-version", required=True, help="tag or commit, for the record")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="also written here, as JSON lines")
    args = parser.parse_args()
    records = [{"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "cpu": processor(),
                "cores": os.cpu_count(), "load": os.getloadavg()[0], "llama.cpp": args.llama_cpp_version,
                "minfer": output(args.minfer, "--version").strip(),
                "what": f"llama-272m's shape, the same files; a prompt of {PROMPT} tokens, {DECODE} decoded, in turns"}]
    with tempfile.TemporaryDirectory() as folder:
        for kind, file in write_models(Path(folder), args.llama_cpp).items():
            ways, rounds = commands(args, file), []
            for number in range(1 + args.rounds):  # the first round reads the file into the page cache
                print(f"{kind}: round {number} of {args.rounds}", file=sys.stderr)
                measured = {name: measure(command) for name, command in ways.items()}
                if number > 0:
                    rounds.append(measured)
            for name, command in ways.items():
                words = [word.name if isinstance(word, Path) else str(word) for word in command]
                record = {"program": name, "type": kind, "command": " ".join(words)}
                for phase in ("prefill", "decode"):
                    values = [measured[name][phase] for measured in rounds]
                    record[phase] = {"median": round(statistics.median(values), 1), "rounds": [round(v, 1) for v in values]}
                    if name == "minfer":
                        ratios = sorted(measured["minfer"][phase] / measured["llama.cpp"][phase] for measured in rounds)
                        record[phase]["to_llama_cpp"] = {"median": round(statistics.median(ratios), 3), "least": round(ratios[0], 3),
                                                         "most": round(ratios[-1], 3)}
                records.append(record)
                print(f"{kind:8} {name:10} prefill {record['prefill']['median']:8.1f}   decode {record['decode']['median']:8.1f}")
    if args.out:
        args.out.write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    main()
