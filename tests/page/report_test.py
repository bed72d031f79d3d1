#!/usr/bin/env python3
"""Holds the page that `minfer profile view` writes against `minfer profile report` in a headless Chromium: opened as a file, wide and
narrow, in light and dark, of a short profile and of one of many steps. Exits with 77 where there is no Chromium.

    report_test.py --minfer BINARY [--out FOLDER]     keeps the screenshots in FOLDER
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from chromium import Page, find_chromium
from page_checks import (check_flame, check_folding, check_names, check_no_errors, check_request, check_step_by_keyboard, check_views, check_width, digits,
                         eventually, expect, expect_equal, figure, percent, rows)

SKIPPED = 77
RESULTS = pathlib.Path(__file__).parent.parent / "benchmarks" / "results"
MAKE_LONG_PROFILE = pathlib.Path(__file__).parent.parent.parent / "scripts/profiles/make_long_profile.py"


def run(*command: str | pathlib.Path) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def report_of(minfer: str, profile: pathlib.Path, *options: str) -> dict:
    return json.loads(run(minfer, "profile", "report", profile, "-o", "json", "--top", "0", *options))


def add_counters(profile: pathlib.Path, counted: pathlib.Path) -> None:
    """The profile with windows of hardware counters of two ranks, and a third one that says why it has none."""
    def window(rank: int, **bytes_of_step: float) -> dict:
        op = {"op": "of no step", "phase": "decode", "calls": 4, "samples": 1981, "us": 40.5, "counted_read_bytes": 2e6, "dram_read_bytes": 2.1e6,
              "sm_active": 0.75, "tensor_active": 0.1875 * (rank + 1), "read_gbps": 51.85}
        missed = {"op": "too short", "phase": "decode", "calls": 1, "samples": 0, "us": 0.5, "counted_read_bytes": 1e3}
        step = {"step": 3, "us": 1200.5, "covered": 1, "counted_read_bytes": 1_500_000_000, "counted_written_bytes": 9_000_000}
        return {"schema": "minfer.counters/1", **({"rank": rank} if rank > 0 else {}), "begin_ns": 1, "us": 10000.0, "interval_ns": 1000,
                "clock": "device", "clock_shift_ns": 0, "samples": 10000, "lost": 0, "counters": ["dram_read_bytes"], "left_out": [],
                "cost": {"start_ms": 1, "stop_ms": 2, "drain_ms": 300, "attribution_ms": 9}, "steps": [{**step, **bytes_of_step}],
                "work": [{"phase": "decode", "graph": "decode_b4", "steps": 3, "replays": 9, "ops": [op, missed]}]}

    lines = [window(0, dram_read_bytes=1.5125e9, dram_written_bytes=9.5e6),
             window(1, dram_read_bytes=1.4875e9, nvlink_received_bytes=2.125e6, nvlink_sent_bytes=2.25e6),
             {"schema": "minfer.counters/1", "rank": 2, "error": "hardware counters of rank 2: refused (35)"}]
    counted.write_text(profile.read_text() + "".join(json.dumps(line) + "\n" for line in lines))


def add_fp8(profile: pathlib.Path, changed: pathlib.Path) -> None:
    """The profile as if products had run on FP8 tensor cores."""
    first, rest = profile.read_text().split("\n", 1)
    line = json.loads(first)
    line["header"]["ceilings"]["fp8_gflops"] = 1_623_456.7
    for op in line["header"]["ops"]:
        if op["kind"] in ("linear", "gate_up_swiglu") and op["layer"] >= 0:
            op["fp8_products"] = True
    changed.write_text(json.dumps(line) + "\n" + rest)


def check_report_figures(page: Page, report: dict) -> None:
    everything = report["all"]
    expected = {
        "report_steps": f"{everything['steps']:,}", "first_step": f"{report['first_step']:,}", "last_step": f"{report['last_step']:,}",
        "file_tokens_per_s": digits(everything["tokens_per_s"]), "file_decode_tokens": f"{everything['decode_tokens']:,}",
        "step_median": digits(everything["step_us"]["median"] / 1e3), "step_max": digits(everything["step_us"]["max"] / 1e3),
        "attributed": percent(report["attributed"]), "ops_share": percent(everything["gpu_us"] / everything["wall_us"]),
    }
    for name, text in expected.items():
        expect_equal(figure(page, name), text, name)
    expect_equal({row[0]: row[1:3] for row in rows(page, "ops")},
                 {op["op"]: [f"{percent(op['time_share'])} %", f"{op['calls']:,}"] for op in report["ops"]}, "ops")


def check_slowest(page: Page, report: dict) -> None:
    """The slowest step is there whatever was left out, and opens."""
    slowest = report["slowest"][0]
    page.evaluate("document.querySelector('#slowest button').click()")
    expect_equal(page.evaluate("document.querySelector('[data-text=step_title]').textContent"), f"Step {slowest['step']:,}", "slowest")


def check_requests(page: Page, minfer: str, profile: pathlib.Path) -> None:
    """The slowest requests, as the command tells them; the first of them stays open."""
    told = json.loads(run(minfer, "profile", "requests", profile, "-o", "json", "--slowest", "3"))["slowest"]
    requests = {(each["id"], each["arrival_ns"]): each for each in json.loads(page.evaluate("document.getElementById('data').textContent"))["requests"]}
    for each in told:
        check_request(page, requests[each["request"]["id"], each["request"]["arrival_ns"]], each)
    if told:
        page.evaluate("document.querySelector('#requests button').click()")
        page.wait_for("document.activeElement.id === 'request'")


def check_page(page: Page, minfer: str, profile: pathlib.Path, folder: pathlib.Path, out: pathlib.Path | None) -> None:
    html = folder / (profile.stem + ".html")
    run(minfer, "profile", "view", profile, "-o", html)
    report, view = report_of(minfer, profile), report_of(minfer, profile, "--view", "top-down")
    page.loaded.clear()
    page.open(html.as_uri())
    page.wait_for("document.getElementById('state').dataset.state === 'file'")
    expect_equal(page.evaluate("document.title"), f"minfer: {profile.name}", "title")
    check_report_figures(page, report)
    ceilings, fp8_gflops = page.evaluate("document.querySelector('[data-text=ceilings]').textContent"), report["ceilings"]["fp8_gflops"]
    expect(ceilings.endswith(f", {fp8_gflops:.1f} GFLOP/s fp8") if fp8_gflops > 0 else "fp8" not in ceilings, ceilings)
    check_views(page, report, view)
    check_folding(page)
    check_flame(page, view)
    check_step_by_keyboard(page)
    check_slowest(page, report)
    check_requests(page, minfer, profile)
    check_names(page, images=1)
    for width in (390, 1280):
        eventually(check_width, page, width)
        for dark in (False, True):
            page.set_dark(dark)
            if out is not None:
                page.screenshot(str(out / f"{profile.stem}-{width}-{'dark' if dark else 'light'}.png"))
    expect_equal([url for url in page.loaded if not url.startswith(("file:", "data:"))], [], "what the page loads")
    check_no_errors(page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minfer", required=True)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    program = find_chromium()
    if program is None:
        print("skipped: no Chromium here (Debian package: chromium)")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="minfer-report-") as name, contextlib.closing(Page(program, width=1280)) as page:
        folder = pathlib.Path(name)
        batch = RESULTS / "cuda-2026-11-22-steps-b64.jsonl"
        long = folder / "long.jsonl"
        run(sys.executable, MAKE_LONG_PROFILE, batch, "--steps", "10000", "-o", long)
        mixed = folder / "mixed.jsonl"
        subprocess.run([arguments.minfer, "bench", "--num-prompts", "24", "--input-len", "64", "--output-len", "24", "--device", "cpu",
                        "--threads", "1", "--profile-out", mixed], check=True, capture_output=True,
                       env={**os.environ, "MINFER_CEILINGS": "skip"})
        ranks = folder / "ranks.jsonl"
        subprocess.run([arguments.minfer, "bench", "-p", "32", "-n", "48", "-r", "1", "--parallel", "4", "--device", "cpu", "--threads", "2",
                        "--tensor-parallel-size", "2", "--profile-out", ranks], check=True, capture_output=True,
                       env={**os.environ, "MINFER_CEILINGS": "skip"})
        expect_equal(len(report_of(arguments.minfer, ranks)["ranks"]["ranks"]), 2, "ranks of the report")
        counted = folder / "counted.jsonl"
        add_counters(ranks, counted)
        expect_equal([rank["windows"] for rank in report_of(arguments.minfer, counted)["rank_counters"]], [1, 1, 0], "ranks' windows")
        fp8 = folder / "fp8.jsonl"
        add_fp8(RESULTS / "planted-h200" / "batch-64-bf16.jsonl", fp8)
        trial = {"schema": "minfer.trial/1", "option": "--quantization fp8", "beside": "", "finding": "memory-bound", "figure": "busy_s",
                 "error": "", "device": "NVIDIA H200", "date": "2026-11-28", "estimated": 0.02, "estimated_from": 0.01,
                 "estimated_to": 0.02, "median": 0.3, "least": 0.28, "most": 0.31, "turns": 3, "fitted": True}
        with open(fp8, "a") as file:
            print(json.dumps(trial), file=file)
        for profile in (batch, long, mixed, ranks, counted, fp8, RESULTS / "two-gpus-b64.jsonl"):
            check_page(page, arguments.minfer, profile, folder, arguments.out)
    print("the page of a file shows what the report says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
