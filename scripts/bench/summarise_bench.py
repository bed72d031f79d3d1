#!/usr/bin/env python3
"""Prints a file of scripts/bench/bench_cpu.sh as a table: speeds, and decode as a share of the measured read bandwidth."""

import json
import sys

machine, *rows = map(json.loads, open(sys.argv[1]))
bandwidth = machine["ceilings"]["read_gbps"]
print(f"{machine['device']}, {machine['date']}, commit {machine['commit'][:12]}")
print(f"read {bandwidth:.1f} GB/s, {machine['ceilings']['gflops']:.0f} GFLOP/s f32, measured; load before: {machine['load']:.2f}")
for row in rows:
    if "n_gen" in row and "median_ts" in row:
        test = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
        text = f"{row['model_filename']:34} {test:6} x{row['n_parallel']:<3} {row['median_ts']:9.1f} tok/s (sd {row['stddev_ts']:.1f})"
        if row["n_gen"] and row["n_parallel"] == 1:
            text += f"  {row['model_size'] * row['median_ts'] / 1e9 / bandwidth:6.1%} of the read bandwidth"
        print(text)
    elif "output_throughput" in row:
        print(f"load test: {row['output_throughput']:.0f} output tok/s, TTFT median {row['median_ttft_ms']:.1f} ms, "
              f"ITL median {row['median_itl_ms']:.2f} ms")
    elif "overhead" in row:
        print(f"recording: {row['median_recorded_ts']:.1f} tok/s with, {row['median_unrecorded_ts']:.1f} without: {row['overhead']:.2%}")
    elif "cpu_time" in row:
        print(f"{row['name']:70} {row['real_time']:9.2f} {row['time_unit']}")
