#!/usr/bin/env python3
"""Holds what Meta's Holistic Trace Analysis (PyPI: HolisticTraceAnalysis) says of a trace against what minfer says of the same profile.

  python3 -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis==0.5.0 'pandas<3'
  /tmp/hta/bin/python tests/checks/check_trace_hta.py MINFER FILE.jsonl ... [-o RESULT.json]

Exports each profile, which has a traced range, with `minfer profile trace`, loads the file as it is and compares, in microseconds:

  busy      time with at least one kernel running: get_temporal_breakdown, against busy_us of the range
  idle      time with none, from the range's first kernel to its last: get_temporal_breakdown, against idle_us of the range and what
            lies between steps, and against the union of the kernel lines. Where kernels fit no launch of their step (`unmatched`), the
            first is given and not held: time next to such a kernel may have been counted as idle in a step that it was not of.
  by cause  gaps of a stream: get_idle_time_breakdown, their sum against that union; host_wait against gaps that the range says the host
            caused. HTA calls a gap so if its kernel was launched behind it, minfer has gaps between steps by themselves.
  kernels   durations by name: get_gpu_kernel_breakdown, against own_us of the kernel lines; their sum against the ops of the range

Figures that differ by more than --tolerance (of the larger) fail the check. HTA rounds times to whole microseconds unless
HTA_DISABLE_NS_ROUNDING=1, which is set here; what it says with its rounding is given beside, and not held against ours: a step of
kernels of a few microseconds loses one of them a kernel. It leaves the last step out unless asked not to, which is asked here. With pandas 3 its version 0.5.0 loads no trace of more than 127
events, of any program.
"""
import argparse
import collections
import importlib.metadata
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings


def lines_of(path):
    """Up to the last whole line."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def gaps_us(kernels):
    """What the device ran none of these between the first's begin and the last's end; and what of it is between the last of a step and
    the first of the next."""
    none, between, end, step = 0, 0, None, None
    for kernel in sorted(kernels, key=lambda kernel: kernel["start_ns"]):
        gap = max(0, kernel["start_ns"] - end) if end is not None else 0
        none += gap
        between += gap if kernel["step"] != step else 0
        step = kernel["step"]
        end = max(end or 0, kernel["start_ns"] + round(kernel["us"] * 1000))
    return none / 1000, between / 1000


def ours(minfer, profile):
    """From the report, and by kernel from the profile's lines."""
    report = json.loads(subprocess.run([minfer, "profile", "report", profile, "-o", "json"], check=True, capture_output=True).stdout)
    ranges = [entry for entry in report["ranges"] if entry["kernels"] > 0]
    if len(ranges) != 1:
        sys.exit(f"{profile}: has {len(ranges)} ranges with kernels, expected one")
    traced = ranges[0]
    kernels = [line for line in lines_of(profile) if line["schema"] == "minfer.kernel/1" and line.get("kind") == "kernel"]
    by_name = collections.Counter()
    for kernel in kernels:
        by_name[kernel["kernel"]] += kernel["own_us"]
    # A profile of before gaps had causes has none between steps.
    union, between_lines = gaps_us(kernels)
    between = traced["idle"]["start"]["us"] or between_lines
    causes = traced["idle"]
    return {"steps": traced["steps"], "kernels": traced["kernels"], "busy_us": traced["busy_us"],
            "idle_us": traced["idle_us"] + between, "idle_union_us": union, "unmatched": traced["unmatched"], "idle_between_steps_us": between, "idle_host_us": causes["host"]["us"],
            "ops_own_us": sum(op["own_us"] for op in traced["attribution"]["ops"]), "kernel_own_us": dict(by_name)}


def theirs(folder, round_times):
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "0" if round_times else "1"
    from hta.trace_analysis import TraceAnalysis
    analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
    temporal = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    idle = analysis.get_idle_time_breakdown(visualize=False)[0]
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, duration_ratio=1.0, num_kernels=1_000_000,
                                                       include_memory_kernels=True)
    by_name = {row["name"]: float(row["sum (us)"]) for _, row in kernels[kernels["kernel_type"] == "COMPUTATION"].iterrows()}
    causes = collections.Counter()
    for _, row in idle.iterrows():
        causes[row["idle_category"]] += float(row["idle_time"])
    return {"iterations": len(analysis.t.get_iterations()), "busy_us": float(temporal["compute_time(us)"]),
            "copies_us": float(temporal["non_compute_time(us)"]), "idle_us": float(temporal["idle_time(us)"]),
            "span_us": float(temporal["kernel_time(us)"]), "idle_by_cause_us": dict(causes), "kernel_own_us": by_name,
            "kernel_kinds_percent": {row["kernel_type"]: float(row["percentage"]) for _, row in kinds.iterrows()}}


def difference(a, b):
    """Of the larger."""
    most = max(abs(a), abs(b))
    return abs(a - b) / most if most > 0 else 0.0


def compare(own, hta):
    figures = {"busy": (own["busy_us"], hta["busy_us"]), "idle": (own["idle_us"], hta["idle_us"]),
               "idle, union": (own["idle_union_us"], hta["idle_us"]),
               "idle, sum of causes": (own["idle_union_us"], sum(hta["idle_by_cause_us"].values())),
               "kernels, sum": (own["ops_own_us"], sum(hta["kernel_own_us"].values()))}
    result = {what: {"minfer_us": round(a, 3), "hta_us": round(b, 3), "difference": round(difference(a, b), 6)}
              for what, (a, b) in figures.items()}
    # host_wait has the gaps between steps whose first kernel was launched too late, too: ours are the least and the most it can be.
    waits = hta["idle_by_cause_us"].get("host_wait", 0.0)
    least, most = own["idle_host_us"], own["idle_host_us"] + own["idle_between_steps_us"]
    result["idle, host"] = {"minfer_us": [round(least, 3), round(most, 3)], "hta_us": round(waits, 3),
                            "difference": round(difference(waits, min(max(waits, least), most)), 6)}
    if own["unmatched"] > 0:
        result["idle"]["held"] = f"no: {own['unmatched']} kernels fit no launch of the step that they were given"
    differ = {name: difference(own["kernel_own_us"].get(name, 0.0), hta["kernel_own_us"].get(name, 0.0))
              for name in set(own["kernel_own_us"]) | set(hta["kernel_own_us"])}
    worst = max(differ, key=differ.get)
    result["kernels, by name"] = {"names": len(differ), "worst": worst, "minfer_us": round(own["kernel_own_us"].get(worst, 0.0), 3),
                                  "hta_us": round(hta["kernel_own_us"].get(worst, 0.0), 3), "difference": round(differ[worst], 6)}
    return result


def check(minfer, profile, tolerance):
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json.gz"
        subprocess.run([minfer, "profile", "trace", profile, "-o", trace], check=True, stdout=subprocess.DEVNULL)
        own, hta, rounded = ours(minfer, profile), theirs(folder, False), theirs(folder, True)
        size = trace.stat().st_size
    compared = compare(own, hta)
    return {"profile": pathlib.Path(profile).name, "trace_bytes": size, "steps": own["steps"], "hta_iterations": hta["iterations"],
            "kernels": own["kernels"], "compared": compared, "hta_span_us": round(hta["span_us"], 3),
            "hta_idle_by_cause_us": {cause: round(us, 3) for cause, us in hta["idle_by_cause_us"].items()},
            "hta_kernel_kinds_percent": hta["kernel_kinds_percent"],
            "hta_with_its_rounding": {"busy_us": rounded["busy_us"], "idle_us": rounded["idle_us"]},
            "agrees": all("held" in entry or entry["difference"] <= tolerance for entry in compared.values())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minfer")
    parser.add_argument("profiles", nargs="+")
    parser.add_argument("-o", "--output", help="also write the figures here")
    parser.add_argument("--tolerance", type=float, default=0.02)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    results = [check(arguments.minfer, profile, arguments.tolerance) for profile in arguments.profiles]
    figures = {"command": "tests/checks/check_trace_hta.py minfer " + " ".join(pathlib.Path(p).name for p in arguments.profiles),
               "versions": {"HolisticTraceAnalysis": importlib.metadata.version("HolisticTraceAnalysis"),
                            "pandas": importlib.metadata.version("pandas"), "python": sys.version.split()[0],
                            "minfer": subprocess.run([arguments.minfer, "--version"], capture_output=True, text=True).stdout.strip(),
                            "commit": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()},
               "environment": {"HTA_DISABLE_NS_ROUNDING": "1"}, "tolerance": arguments.tolerance, "profiles": results}
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.output:
        pathlib.Path(arguments.output).write_text(text + "\n", encoding="utf-8")
    return 0 if all(result["agrees"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
