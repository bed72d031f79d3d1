#!/usr/bin/env python3
"""Makes the examples of the guide to the profiler from real runs, and checks that they are still what the program prints.

    scripts/profiles/make_profiling_guide.py MINFER [--profiles FOLDER] [--no-runs]
    scripts/profiles/make_profiling_guide.py MINFER --check

An example is a transcript: its lines that begin with `$ ` are run (`\\` continues one), and what stands below is replaced.

    <!-- example: NAME; finding: RULE; parts: TITLE | TITLE; rows: N; bench: shown -->
    ```text
    $ minfer profile explain PROFILE
    ```
    <!-- end -->

finding  the rule that `minfer profile explain` has to name first; of its output only this finding is in words
parts    of the output only the paragraphs that begin so
rows     lines of each paragraph at most
bench    shown: what `minfer bench` prints too; it is left out otherwise
quota    cores of a control group that commands with --profile-out run in

What is left out has a line `...` in its place. Blocks `<!-- table: planted faults on H200 -->` and
`<!-- table: gain on CPU: CASE -->` are made from the results of planted faults.

Examples of profiles kept in tests/ say the same on every machine: --check compares them. Those that run a model are made anew
without --no-runs; --check looks at their options and at the finding they show. --profiles cuts the kept profiles of planted faults
anew from those that `planted_gpu_findings.py collect` left in FOLDER.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from cut_profile import cut
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/checks"))
from planted_findings import SlowClients, control_group

GUIDES = ["README.md", "profiling/README.md", "profiling/examples.md"]
RESULTS = ROOT / "tests/benchmarks/results"
BLOCK = re.compile(r"^<!-- (example|table): ([^;\n]+?)((?:; [^;\n]+?)*) -->\n(.*?)^<!-- end -->$", re.M | re.S)

RUNS = {"H200": "findings-h200-2026-11-22.jsonl", "CPU": "findings-cpu-2026-11-22.jsonl"}  # of the profiles in the examples
PLANTED = {"H200": "findings-h200-2026-11-28.jsonl", "CPU": "findings-cpu-2026-11-28.jsonl"}

# Kept profile: its name in planted_gpu_findings.py, the steps that stay, other lines that stay.
CUTS = {
    "f32-lanes": ("arithmetic-in-f32.fault", [(0, 11)], []),
    "graph-misses": ("graphs-off--tiny-model.fault", [(60, 71)], []),
    "attention-split": ("attention-on-an-eighth-of-the-grid.fault", [(40, 51)], []),
    "small-grid": ("products-without-a-split-of-K.fault", [(40, 51)], []),
    "tail-wave": ("a-prompt-of-a-wave-and-a-bit.fault", [(0, 2)], []),
    "synchronous-copy": ("a-copy-that-the-host-waits-for.fault", [(50, 51)], ["kernel"]),
    "another-process": ("a-second-process.fault", [(100, 119)], []),
    "batch-too-small": ("eight-slots-for-64-clients.fault", [(64, 75)], []),
    "prefill-starves-decode": ("long-prompts-beside-decoding.fault", [(64, 76)], []),
    "batch-64-q4_k_m": ("4-bits-at-batch-64.fault", [(17, 26)], []),
    "batch-64-bf16": ("4-bits-at-batch-64.mended", [(16, 26)], []),
}


class Fault(Exception):
    """Something in the guide or in a run of it is not as it should be."""


class Example:
    """A block of the guide that is a transcript."""

    def __init__(self, name, options, body):
        self.name = name
        self.options = dict(option.split(": ", 1) for option in options.split("; ") if option)
        fenced = re.fullmatch(r"```text\n(.*?)```\n", body, re.S)
        if not fenced:
            raise Fault(f"{name}: is no block of ```text")
        self.shown = fenced.group(1)
        self.commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", self.shown, re.M)

    def is_of_kept_profiles(self):
        """Whether it says the same everywhere."""
        return all(re.fullmatch(r"minfer profile \w+ (tests/.*)", command.replace("\\\n", "")) for command in self.commands)

    def text(self, run):
        text = ""
        for command in self.commands:
            output = run(command, float(self.options.get("quota", 0)) if "--profile-out" in command else 0)
            text += f"$ {command}\n"
            if command.startswith("minfer profile") or self.options.get("bench") == "shown":
                text += self.shortened(output, command)
        self.check_finding(text)
        return f"```text\n{text}```\n"

    def check_finding(self, text):
        expected = self.options.get("finding")
        if expected and f"\n1. {expected}: " not in text:
            raise Fault(f"{self.name}: the first finding is not {expected}")

    def shortened(self, output, command):
        paragraphs = output.strip("\n").split("\n\n")
        rows, titles = int(self.options.get("rows", 1000)), [""]
        if "profile explain" in command and "finding" in self.options:
            rows, titles = min(rows, 9), [paragraphs[0], "Findings", "1. "]
        elif "profile" in command and "parts" in self.options:
            titles = self.options["parts"].split(" | ")
        kept, left_out = [], False
        for paragraph in paragraphs:
            if paragraph.startswith(tuple(titles)):
                lines = paragraph.split("\n")
                left_out = len(lines) > rows
                kept.append("\n".join(lines[:rows] + ["..."] * left_out))
            elif not left_out:
                kept.append("...")
                left_out = True
        return "\n\n".join(kept).replace("\n\n...", "\n...").replace("...\n\n", "...\n") + "\n"


class Runner:
    """Runs an example's commands in a folder of its own, where `minfer` is the program and `tests` the repository's."""

    def __init__(self, minfer, folder):
        self.folder, self.minfer = Path(folder), os.path.abspath(minfer)
        (self.folder / "minfer").symlink_to(self.minfer)
        (self.folder / "tests").symlink_to(ROOT / "tests")
        self.environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")

    def __call__(self, command, quota=0):
        if re.match(r"minfer serve .*--profile-out", command):
            return self.serve(command)
        with control_group(quota) as words:
            done = subprocess.run([*words, "bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise Fault(f"{command}: {done.stderr.strip()}")
        return done.stdout

    def serve(self, command):
        """A server with clients that read slowly: what the example's text says of it."""
        class Clients(SlowClients):
            def options(self, which):
                return re.search(r"--stream-interval \d+", command).group().split()

        Clients().measure(self.minfer, "fault", str(self.folder / re.search(r"--profile-out (\S+)", command).group(1)))
        return ""

    def check_options(self, command):
        words = command.replace("\\\n", " ").split()
        subcommand = words[1:3] if words[1] == "profile" else words[1:2]
        known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", self(" ".join(["minfer", *subcommand, "--help"]))))
        for word in words:
            if re.match(r"--?[a-z]", word) and word not in known:
                raise Fault(f"{command}: {' '.join(subcommand)} has no option {word}")


def read_rows(name):
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines()]


def option_pairs(words):
    """Options with their values, as they are typed."""
    pairs = []
    for word in map(os.path.basename, words):
        if word.startswith("-") or not pairs:
            pairs.append(word)
        else:
            pairs[-1] += " " + word
    return pairs


def mended_by(row):
    """What differs between the options of the run with the fault and those of the mended one."""
    if "planted" in row:
        return "a program without the fault"
    options = row["options"] if isinstance(row["options"], dict) else {"fault": row["options"], "mended": row.get("mended", [])}
    fault, mended = option_pairs(options["fault"]), option_pairs(options["mended"])
    added = " ".join(option for option in mended if option not in fault)
    removed = " ".join(option for option in fault if option not in mended)
    if not mended:
        return "not mended"
    if added and removed:
        return f"`{added}` instead of `{removed}`"
    return f"`{added}`" if added else f"without `{removed}`" if removed else "a device of its own"


def planted_table(name):
    """A table of planted faults: the first finding, what it said that mending gives, and what it gave."""
    percent = lambda share: "not measured" if share is None else f"{100 * share:.0f} %"
    return "| case | mended by | first finding | estimated gain | real gain |\n|---|---|---|---|---|\n" + "".join(
        f"| {row['case']} | {mended_by(row)} | {row['first'] or 'none'} | {percent(row['estimated_gain'])} | {percent(row.get('real_gain'))} |\n"
        for row in read_rows(name) if row["expected"] is not None)


def gain_of(name, case):
    """A sentence: what mending a planted fault gave."""
    row = next((row for row in read_rows(name) if row["case"] == case), None)
    if row is None:
        raise Fault(f"{case}: is not in {name}")
    if "real_gain" not in row:
        return "The gain of mending it was not measured.\n"
    return (f"Mended ({mended_by(row)}): the whole run's estimate was {100 * row['estimated_gain']:.0f} %, the real gain "
            f"{100 * row['real_gain']:.0f} %.\n")


def table_of(name):
    found = re.fullmatch(r"(planted faults|gain) on (H200|CPU)(?:: (.*))?", name)
    if not found:
        raise Fault(f"{name}: no such table")
    kind, place, case = found.groups()
    return planted_table(PLANTED[place]) if kind == "planted faults" else gain_of(RUNS[place], case)


def cut_profiles(folder):
    for name, (source, steps, keep) in CUTS.items():
        lines = Path(folder, source + ".jsonl").read_text().splitlines(keepends=True)
        (RESULTS / "planted-h200" / f"{name}.jsonl").write_text("".join(cut(lines, steps, keep)))


def update(guide, runner, arguments, faults):
    """The guide's text with its blocks made anew; when checking, with those that have to be the same everywhere."""
    def replaced(match):
        kind, name, options, body = match.groups()
        begin = match.group(0)[:match.group(0).index("\n") + 1]
        try:
            if kind == "table":
                return f"{begin}{table_of(name)}<!-- end -->"
            example = Example(name, options.removeprefix("; "), body)
            if example.is_of_kept_profiles() or not (arguments.check or arguments.no_runs):
                print(f"{name} ...", file=sys.stderr, flush=True)
                return f"{begin}{example.text(runner)}<!-- end -->"
            for command in example.commands:
                runner.check_options(command)
            example.check_finding(example.shown)
        except Fault as fault:
            faults.append(str(fault))
        return match.group(0)

    return BLOCK.sub(replaced, guide)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minfer")
    parser.add_argument("--profiles", metavar="FOLDER")
    parser.add_argument("--no-runs", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.profiles:
        cut_profiles(arguments.profiles)
    faults = []
    for path in GUIDES:
        guide = (ROOT / path).read_text()
        if guide.count("<!-- end -->") != len(BLOCK.findall(guide)):
            faults.append(f"{path}: a block has no begin or no end")
        with tempfile.TemporaryDirectory() as folder:
            made = update(guide, Runner(arguments.minfer, folder), arguments, faults)
        if arguments.check:
            differing = [old.group(2) for old, new in zip(BLOCK.finditer(guide), BLOCK.finditer(made))
                         if old.group() != new.group()]
            faults += [f"{path}: {name} is not what minfer prints: scripts/profiles/make_profiling_guide.py MINFER --no-runs makes it anew"
                       for name in differing]
        elif made != guide:
            (ROOT / path).write_text(made)
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
