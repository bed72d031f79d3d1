#!/usr/bin/env python3
"""Figures of a profile file that say whether the profiler tells the truth, as one line of JSON.

  scripts/profile_figures.py MINFER FILE

  steps        how many, and the median of their wall time, by phase
  traced       of a traced range: how far the ops' intervals are from their kernels' own durations, records lost, idle time
  counters     of windows of hardware counters: bytes measured against those counted, by op and for whole steps
  decode       what decode was charged in mixed steps, against pure decode steps of as many tokens and about the same context
  memory       how much of what the driver says is in use is explained
"""
import json
import statistics
import subprocess
import sys


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def steps_by_phase(steps):
    result = {}
    for phase in sorted({step["phase"] for step in steps}):
        times = [step["wall_us"] for step in steps if step["phase"] == phase]
        result[phase] = {"steps": len(times), "median_us": round(statistics.median(times), 1)}
    return result


def attributed(steps):
    result = {}
    for step in steps:
        entry = result.setdefault(step["attributed_by"], [])
        entry.append(step["attributed"])
    return {source: {"steps": len(shares), "median": round(statistics.median(shares), 4)}
            for source, shares in result.items()}


def decode_charge(steps):
    """For each number of decode tokens that occurs in both: the median charge in mixed steps over that in pure ones. Steps of one
    number of tokens have sequences of the same lengths in these loads, so the context is about the same."""
    pure, mixed = {}, {}
    for step in steps:
        tokens = step["batch"]["decode_tokens"]
        if step["phase"] == "decode":
            pure.setdefault(tokens, []).append(step["phases"]["decode"]["us"])
        elif step["phase"] == "mixed":
            mixed.setdefault(tokens, []).append((step["phases"]["decode"]["us"], step["batch"]["prefill_tokens"]))
    result = []
    for tokens in sorted(set(pure) & set(mixed)):
        if len(pure[tokens]) < 5 or len(mixed[tokens]) < 5:
            continue
        charge = statistics.median(us for us, _ in mixed[tokens])
        alone = statistics.median(pure[tokens])
        result.append({"decode_tokens": tokens, "pure_steps": len(pure[tokens]), "mixed_steps": len(mixed[tokens]),
                       "prefill_tokens": statistics.median(count for _, count in mixed[tokens]),
                       "pure_us": round(alone, 1), "charged_us": round(charge, 1), "ratio": round(charge / alone, 4)})
    return result


def memory_of(header):
    memory = header.get("memory")
    if memory is None:
        return None
    known = memory["used_before_bytes"] + sum(part["bytes"] for part in memory["parts"] if part["place"] == "device")
    return {"used_bytes": memory["used_bytes"], "explained": round(known / memory["used_bytes"], 5)}


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: scripts/profile_figures.py MINFER FILE")
    minfer, path = sys.argv[1:]
    lines = lines_of(path)
    header = lines[0]["header"]
    steps = [line for line in lines if line["schema"].startswith("minfer.step/") and "step" in line]
    report = json.loads(subprocess.run([minfer, "profile", "report", path, "-o", "json"], check=True, capture_output=True,
                                       text=True).stdout)
    print(json.dumps({"model": header["model"], "device": header["device"], "steps": steps_by_phase(steps),
                      "attributed": attributed(steps), "traced": report.get("ranges"), "counters": report.get("counters"),
                      "decode": decode_charge(steps), "memory": memory_of(header)}))


if __name__ == "__main__":
    main()
