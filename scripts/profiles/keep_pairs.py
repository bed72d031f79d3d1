#!/usr/bin/env python3
"""Adds what `minfer profile explain PROFILE --try` kept in profiles to the pairs of estimated and measured gains.

  scripts/profiles/keep_pairs.py [--root FOLDER] PROFILE ...

Of each finding it takes the option that gained most. Build again then: the ranges of estimates are fitted from these pairs.
"""

import argparse
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAIRS, RESULTS = "profiling/findings/measured_pairs.inc", "tests/benchmarks/results/tried-pairs.jsonl"


def rows_of(profile):
    lines = [json.loads(line) for line in profile.read_text().splitlines()]
    trials = {trial["option"]: trial for trial in lines if trial["schema"] == "minfer.trial/1" and trial["finding"] and trial["turns"]}
    best = {trial["finding"]: trial for trial in sorted(trials.values(), key=lambda trial: trial["median"])}
    for rule, trial in best.items():
        yield {"case": profile.name, "expected": rule, "first": rule, "on_gpu": lines[0]["header"]["backend"] != "cpu",
               "is_fitted": trial["fitted"], "estimated_gain": round(trial["estimated"], 3),
               "estimated_range": [round(trial["estimated_from"], 3), round(trial["estimated_to"], 3)],
               "real_gain": round(trial["median"], 3), **{key: trial[key] for key in ("option", "turns", "device", "date")}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", type=pathlib.Path, metavar="PROFILE")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="of the sources")
    arguments = parser.parse_args()
    with open(arguments.root / RESULTS, "a+") as results, open(arguments.root / PAIRS, "a") as pairs:
        results.seek(0)
        known = set(results.read().splitlines())
        for row in (row for profile in arguments.profiles for row in rows_of(profile)):
            if json.dumps(row) in known:
                continue
            print(json.dumps(row), file=results)
            values = [row["first"], row["on_gpu"], row["is_fitted"], row["estimated_gain"], row["real_gain"]]
            print(f"    {{{json.dumps(values)[1:-1]}}},", file=pairs)
            print(f"{row['first']}: estimated {row['estimated_gain']}, measured {row['real_gain']}")


if __name__ == "__main__":
    main()
