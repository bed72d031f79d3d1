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
from page_checks import (check_flame, check_folding, check_names, check_no_errors, check_step_by_keyboard, check_views, check_width, digits,
                         eventually, expect, expect_equal, figure, percent, rows)

SKIPPED = 77
RESULTS = pathlib.Path(__file__).parent.parent / "benchmarks" / "results"
SCRIPTS = pathlib.Path(__file__).parent.parent.parent / "scripts"


def run(*command: str | pathlib.Path) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def report_of(minfer: str, profile: pathlib.Path, *options: str) -> dict:
    return json.loads(run(minfer, "profile", "report", profile, "-o", "json", "--top", "0", *options))


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


def check_page(page: Page, minfer: str, profile: pathlib.Path, folder: pathlib.Path, out: pathlib.Path | None) -> None:
    html = folder / (profile.stem + ".html")
    run(minfer, "profile", "view", profile, "-o", html)
    report, view = report_of(minfer, profile), report_of(minfer, profile, "--view", "top-down")
    page.loaded.clear()
    page.open(html.as_uri())
    page.wait_for("document.getElementById('state').dataset.state === 'file'")
    expect_equal(page.evaluate("document.title"), f"minfer: {profile.name}", "title")
    check_report_figures(page, report)
    check_views(page, report, view)
    check_folding(page)
    check_flame(page, view)
    check_step_by_keyboard(page)
    check_slowest(page, report)
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
        run(sys.executable, SCRIPTS / "make_long_profile.py", batch, "--steps", "10000", "-o", long)
        mixed = folder / "mixed.jsonl"
        subprocess.run([arguments.minfer, "bench", "--num-prompts", "24", "--input-len", "64", "--output-len", "24", "--device", "cpu",
                        "--threads", "1", "--profile-out", mixed], check=True, capture_output=True,
                       env={**os.environ, "MINFER_CEILINGS": "skip"})
        ranks = folder / "ranks.jsonl"
        subprocess.run([arguments.minfer, "bench", "-p", "32", "-n", "48", "-r", "1", "--parallel", "4", "--device", "cpu", "--threads", "2",
                        "--tensor-parallel-size", "2", "--profile-out", ranks], check=True, capture_output=True,
                       env={**os.environ, "MINFER_CEILINGS": "skip"})
        expect_equal(len(report_of(arguments.minfer, ranks)["ranks"]["ranks"]), 2, "ranks of the report")
        for profile in (batch, long, mixed, ranks, RESULTS / "two-gpus-b64.jsonl"):
            check_page(page, arguments.minfer, profile, folder, arguments.out)
    print("the page of a file shows what the report says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
