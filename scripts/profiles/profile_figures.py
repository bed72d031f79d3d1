#!/usr/bin/env python3
"""Figures of a profile file that say whether the profiler tells the truth, as one line of JSON.

  scripts/profiles/profile_figures.py MINFER FILE

Those of `minfer profile report -o json` (by_phase, attributed, ranges, counters, memory), and

  range_cost     what a traced range cost its steps: against the same steps of repetitions that are not traced, in the same process. For
                 files of several repetitions with steps around the range, e.g. bench -n 200 -d 512 -r 3 --profile-range 60:110
                 --profile-margin 100000
  decode_charge  what decode was charged in mixed steps, against pure decode steps of as many tokens and about the same context
"""
import collections
import json
import subprocess
import sys
from statistics import median


def decode_charge(steps):
    """For each number of decode tokens that occurs in both: the median charge in mixed steps over that in pure ones. Steps of one
    number of tokens have sequences of the same lengths in these loads, so the context is about the same."""
    pure, mixed = collections.defaultdict(list), collections.defaultdict(list)
    for step in steps:
        if step["phase"] in ("decode", "mixed"):
            found = (pure if step["phase"] == "decode" else mixed)[step["batch"]["decode_tokens"]]
            found.append((step["phases"]["decode"]["us"], step["batch"]["prefill_tokens"]))
    result = []
    for tokens in sorted(tokens for tokens in pure if min(len(pure[tokens]), len(mixed[tokens])) >= 5):
        charge, alone = (median(us for us, _ in found[tokens]) for found in (mixed, pure))
        result.append({"decode_tokens": tokens, "pure_steps": len(pure[tokens]), "mixed_steps": len(mixed[tokens]),
                       "prefill_tokens": median(count for _, count in mixed[tokens]),
                       "pure_us": round(alone, 1), "charged_us": round(charge, 1), "ratio": round(charge / alone, 4)})
    return result


def repetitions_of(steps):
    """Runs of decode steps of one number of tokens. Repetitions of a benchmark have the same steps, so that the k-th of one has the
    context of the k-th of another."""
    result = []
    for step in (step for step in steps if step["phase"] == "decode"):
        before = result[-1][-1] if result else None
        if before is None or before["step"] + 1 != step["step"] or before["batch"]["decode_tokens"] != step["batch"]["decode_tokens"] \
                or before["kv"]["blocks_used"] > step["kv"]["blocks_used"]:
            result.append([])
        result[-1].append(step)
    longest = max(map(len, result), default=0)
    return [run for run in result if 2 * len(run) > longest]


def range_cost(steps, ranges):
    """By the part of the traced repetition, before, within and behind the range: its median step, the median of the same steps of
    the others, and the median of the ratios of step to step. The first steps of the parts are left out: before them the tracing
    is attached or detached, which first_us shows."""
    ranges = [each for each in ranges if each["steps"] > 0 and not each["error"]]
    repetitions = repetitions_of(steps)
    if len(ranges) != 1 or len(repetitions) < 2:
        return None
    first, last = ranges[0]["first_step"], ranges[0]["last_step"]
    traced = [run for run in repetitions if run[0]["step"] <= last and first <= run[-1]["step"]]
    others = [run for run in repetitions if run not in traced]
    if len(traced) != 1 or not others:
        return None
    parts = {"before": [], "within": [], "after": []}
    for index, step in enumerate(traced[0]):
        part = "before" if step["step"] < first else "within" if step["step"] <= last else "after"
        if same := [run[index]["wall_us"] for run in others if index < len(run)]:
            parts[part].append((step["wall_us"], median(same)))
    result = {"repetitions": len(repetitions)}
    for part, ((first_us, first_untraced_us), *pairs) in ((part, pairs) for part, pairs in parts.items() if len(pairs) >= 3):
        result[part] = {"steps": len(pairs), "median_us": round(median(us for us, _ in pairs), 2),
                        "untraced_us": round(median(us for _, us in pairs), 2), "ratio": round(median(us / other for us, other in pairs), 5),
                        "first_us": round(first_us, 1), "first_untraced_us": round(first_untraced_us, 1)}
    return result


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: scripts/profiles/profile_figures.py MINFER FILE")
    minfer, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    steps = [line for line in lines if line["schema"].startswith("minfer.step/") and "step" in line]
    report = json.loads(subprocess.run([minfer, "profile", "report", path, "-o", "json"], check=True, capture_output=True,
                                       text=True).stdout)
    reported = ("model", "device", "by_phase", "attributed", "attributed_by", "ranges", "counters", "memory")
    print(json.dumps({**{name: report[name] for name in reported}, "range_cost": range_cost(steps, report["ranges"] or []),
                      "decode_charge": decode_charge(steps)}))


if __name__ == "__main__":
    main()
