#!/usr/bin/env python3
"""Writes a profile of many steps, to see what reading one takes: the lines of decode steps of a file, over and over, with step
numbers and times that ascend and op times that vary by a few per cent.

  scripts/profiles/make_long_profile.py FILE --steps 1000000 -o long.jsonl

For one of a 1B model as `bench` writes it:

  minfer bench -m llama-3.2-1b.gguf -p 0 -n 64 --profile-out FILE
"""

import argparse
import json
import random


def variants(step, count):
    """Lines of one step with other times, cut where its number and its begin stand."""
    lines = []
    for _ in range(count):
        factor = random.gauss(1.0, 0.02)
        varied = json.loads(step)
        for op in varied["ops"]:
            op["us"] = round(op["us"] * random.gauss(factor, 0.01), 3)
        for key in ("wall_us", "gpu_us"):
            varied[key] = round(varied[key] * factor, 3)
        number, begin = varied["step"], varied["start_ns"]
        text = json.dumps(varied, separators=(",", ":"))
        front, back = text.split(f'"step":{number},"start_ns":{begin}', 1)
        lines.append((front + '"step":', ',"start_ns":', back + "\n", int(varied["wall_us"] * 1e3)))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--layers", action="store_true", help="keep the lines' detail by layer")
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    random.seed(1)
    with open(args.file, encoding="utf-8") as file:
        lines = [line for line in file if line.endswith("\n")]
    head = [line for line in lines[:1]] + [line for line in lines if line.startswith('{"schema":"minfer.launch/')]
    steps = []
    for line in lines[1:]:
        if not line.startswith('{"schema":"minfer.step/'):
            continue
        step = json.loads(line)
        if step["phase"] == "decode":
            if not args.layers:
                step.pop("layers", None)
            steps.append(json.dumps(step, separators=(",", ":")))
    kinds = [each for step in steps[:64] for each in variants(step, max(1, 256 // len(steps[:64])))]
    begin_ns = 81_000_000_000_000
    with open(args.output, "w", encoding="utf-8", buffering=1 << 20) as out:
        out.writelines(head)
        for number in range(args.steps):
            front, middle, back, wall_ns = kinds[random.randrange(len(kinds))]
            out.write(f"{front}{number}{middle}{begin_ns}{back}")
            begin_ns += wall_ns


if __name__ == "__main__":
    main()
