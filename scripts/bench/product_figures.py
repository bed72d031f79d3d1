#!/usr/bin/env python3
"""Prints the lines of cuda_product_benchmark in a results file (scripts/gpu/gpu_test.sh bench) as Markdown: a table for each type of weights,
then how the whole compares with cuBLASLt and with reading the weights' bytes.
  scripts/bench/product_figures.py RESULTS.jsonl
"""

import json
import math
import sys

STEP_TOKENS = range(1, 257)  # for the mean against cuBLASLt
FEW_TOKENS = range(1, 17)  # bound by reading the weights


def products(lines):
    """The benchmark's records among those of a results file; of a case measured twice the last one."""
    cases = {}
    for row in map(json.loads, filter(str.strip, lines)):
        if "own_us" in row and "read_us" in row:
            cases[(row["type"], row["shape"], row["tokens"])] = row
    return list(cases.values())


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def table(rows):
    """Rows of one type: a line for each shape and number of tokens."""
    lines = ["| product | tokens | us | lowest to highest | path | cuBLASLt us | us / cuBLASLt's | read us | read / us | floor us | floor / us |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        other = [f"{row['cublaslt_us']:.1f}", f"{row['own_us'] / row['cublaslt_us']:.2f}"] if "cublaslt_us" in row else ["", ""]
        cells = [f"{row['shape']} {row['rows']:,} x {row['cols']:,}", f"{row['tokens']:,}", f"{row['own_us']:.1f}",
                 f"{row['own_us_lowest']:.1f} to {row['own_us_highest']:.1f}", row["path"], *other, f"{row['read_us']:.1f}",
                 f"{row['read_us'] / row['own_us']:.2f}", f"{row['floor_us']:.1f}", f"{row['floor_us'] / row['own_us']:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def summary(rows):
    lines = []
    ratios = [row["own_us"] / row["cublaslt_us"] for row in rows if "cublaslt_us" in row and row["tokens"] in STEP_TOKENS]
    if ratios:
        lines.append(f"- bf16, 1 to 256 tokens: {geometric_mean(ratios):.3f} of cuBLASLt's time (geometric mean of {len(ratios)}, "
                     f"{min(ratios):.2f} to {max(ratios):.2f}); gate and up with SwiGLU, cuBLASLt without")
    for weights in dict.fromkeys(row["type"] for row in rows):
        few = [row for row in rows if row["type"] == weights and row["tokens"] in FEW_TOKENS]
        if few:
            worst = min(few, key=lambda row: row["read_us"] / row["own_us"])
            lines.append(f"- {weights}, 1 to 16 tokens: a read of the weights takes {worst['read_us'] / worst['own_us']:.2f} of the time or more "
                         f"(least: {worst['shape']}, {worst['tokens']} tokens)")
    return lines


def report(lines):
    rows = products(lines)
    if not rows:
        raise SystemExit("product_figures: no lines of cuda_product_benchmark")
    text = [f"Read {rows[0]['read_gbps']:,.0f} GB/s, products {rows[0]['tflops']:.0f} TFLOP/s, measured in the same run; medians of "
            f"{rows[0]['repeats']}."]
    for weights in dict.fromkeys(row["type"] for row in rows):
        text += ["", f"### {weights}", ""] + table([row for row in rows if row["type"] == weights])
    return "\n".join(text + [""] + summary(rows)) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__.strip())
    with open(sys.argv[1], encoding="utf-8") as results:
        print(report(results), end="")
