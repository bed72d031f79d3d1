#!/usr/bin/env python3
"""Counts the files and lines of each folder as git has them: sources, then tests. What is longest to read stands in the sums.

  scripts/check/count_lines.py [--rooms] [--most LINES]
"""

import argparse
import collections
import pathlib
import subprocess
import sys

SOURCES = {".h", ".cpp", ".cu", ".cuh", ".inc", ".py", ".sh", ".js", ".css", ".html"}
FOLDERS = ["kernels", "profiling", "models", "engine", "server", "scripts", "tests"]


def count(root, rooms):
    """{folder: [files, lines]} in the order of reading; with `rooms` folders inside folders by themselves."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, check=True,
                            capture_output=True, text=True).stdout
    counts = collections.defaultdict(lambda: [0, 0])
    for path in map(pathlib.PurePath, listed.split("\0")):
        if path.suffix in SOURCES and path.parts[0] in FOLDERS and (root / path).is_file():
            folder = str(path.parent) if rooms else path.parts[0]
            counts[folder][0] += 1
            counts[folder][1] += (root / path).read_bytes().count(b"\n")
    return dict(sorted(counts.items(), key=lambda item: (FOLDERS.index(item[0].split("/")[0]), item[0])))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", action="store_true", help="folders inside folders too")
    parser.add_argument("--most", type=int, metavar="LINES", help="exit code 1 if there are more without tests")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    counts = count(root, arguments.rooms)
    without_tests = [numbers for folder, numbers in counts.items() if folder.split("/")[0] != "tests"]
    sums = {name: [sum(column) for column in zip(*rows)] for name, rows in (("all but tests", without_tests), ("all", counts.values()))}
    print(f"{'folder':<28} {'files':>6} {'lines':>8}")
    for name, (files, lines) in (counts | sums).items():
        print(f"{name:<28} {files:>6} {lines:>8,}")
    return int(arguments.most is not None and sums["all but tests"][1] > arguments.most)


if __name__ == "__main__":
    sys.exit(main())
