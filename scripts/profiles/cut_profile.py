#!/usr/bin/env python3
"""Cuts a profile to some of its steps, so that it is small enough to be kept.

    scripts/profiles/cut_profile.py PROFILE --steps A:B [--steps C:D ...] [--keep request kernel memory] [-o CUT.jsonl]

Whole lines are left out, none is changed: the header stays, and launches up to the last that a kept step names (they are
numbered by their order). Lines of ranks and of kernels go with their steps; the line of a traced range and that of memory stand for the
whole run.
"""

import argparse
import json
import sys

KINDS = ("request", "kernel", "memory")


def kind_of(line):
    return line["schema"].split("/")[0].removeprefix("minfer.")


def step_of(line):
    """The step that a line of kernels belongs to; None: it stands for the whole range."""
    return line["traced_step"]["step"] if "traced_step" in line else line.get("step")


def cut(lines, ranges, keep=()):
    """The lines that stay. `ranges`: first and last step of each; `keep`: kinds of lines besides steps and launches."""
    chosen = lambda number: any(first <= number <= last for first, last in ranges)
    parsed = [(text, json.loads(text)) for text in lines]
    steps = [line for _, line in parsed if kind_of(line) == "step" and "header" not in line and chosen(line["step"])]
    last_launch = max((number for step in steps for op in step["ops"] for number in op.get("launches", [])), default=-1)
    stays = {"step": lambda line: "header" in line or chosen(line["step"]),
             "launch": lambda line: line["launch"] <= last_launch,
             "kernel": lambda line: "kernel" in keep and (step_of(line) is None or chosen(step_of(line))),
             "rank": lambda line: chosen(line["step"]),
             "request": lambda line: "request" in keep, "memory": lambda line: "memory" in keep}
    return [text for text, line in parsed if kind_of(line) in stays and stays[kind_of(line)](line)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("--steps", action="append", required=True, metavar="A:B")
    parser.add_argument("--keep", nargs="*", default=[], choices=KINDS)
    parser.add_argument("-o", "--output")
    arguments = parser.parse_args()
    with open(arguments.profile) as file:
        lines = cut(file.readlines(), [tuple(map(int, steps.split(":"))) for steps in arguments.steps], arguments.keep)
    with open(arguments.output, "w") if arguments.output else sys.stdout as file:
        file.writelines(lines)


if __name__ == "__main__":
    main()
