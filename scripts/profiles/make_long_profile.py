#!/usr/bin/env python3
"""Writes a profile of many steps, to see what reading one takes: the lines of decode steps of a file, over and over, with step
numbers and times that ascend and op times that vary by a few per cent.

  scripts/profiles/make_long_profile.py FILE --steps 1000000 -o long.jsonl

For one of a 1B model as `bench` writes it:

  minfer bench -m llama-3.2-1b.gguf -p 0 -n 64 --profile-out FILE
"""

import argparse
import copy
import json
import random


def variants(step, count):
    """Lines of one step with other times and without detail by layer, cut where its number and its begin stand."""
    step.pop("layers", None)
    lines = []
    for _ in range(count):
        factor = random.gauss(1.0, 0.02)
        varied = copy.deepcopy(step)
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
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    random.seed(1)
    with open(args.file, encoding="utf-8") as file:
        head, *lines = file
    launches = [line for line in lines if line.startswith('{"schema":"minfer.launch/')]
    steps = [json.loads(line) for line in lines if line.startswith('{"schema":"minfer.step/')]
    steps = [step for step in steps if step["phase"] == "decode"][:64]
    kinds = [each for step in steps for each in variants(step, max(1, 256 // len(steps)))]
    begin_ns = 81_000_000_000_000
    with open(args.output, "w", encoding="utf-8", buffering=1 << 20) as out:
        out.writelines([head, *launches])
        for number in range(args.steps):
            front, middle, back, wall_ns = random.choice(kinds)
            out.write(f"{front}{number}{middle}{begin_ns}{back}")
            begin_ns += wall_ns


if __name__ == "__main__":
    main()
