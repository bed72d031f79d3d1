#!/usr/bin/env python3
"""Checks every Markdown file of the repository: relative links lead to files and headings that are there, and README.md stays short.

    tests/checks/check_docs.py

Prints FILE:LINE: MESSAGE for each fault, and exits with status 1 if there is one, with 77 if this is no git checkout.
"""

import os
import re
import subprocess
import sys
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
README_LINES, README_COLUMNS = 250, 120
LINK = re.compile(r"\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+\"[^\"]*\")?\s*\)")  # its text may begin a line before
DEFINITION = re.compile(r"^ {0,3}\[([^\]]+)\]:\s*<?([^\s>]+)>?")
REFERENCE = re.compile(r"\[[^\]]+\]\[([^\]]+)\]")
IMAGE = re.compile(r"<(?:img|a)\b[^>]*\b(?:src|href)=\"([^\"]+)\"")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")


def documents():
    """The paths of Markdown files, from the root: those that git tracks, or would with the next `git add`."""
    command = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode != 0:
        print(f"skipped: {listed.stderr.strip()}")
        sys.exit(77)
    return sorted({path for path in listed.stdout.splitlines() if os.path.exists(os.path.join(ROOT, path))})


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read().split("\n")


def prose_lines(lines):
    """(number, line) of those outside fenced code."""
    fence = None
    for number, line in enumerate(lines, 1):
        mark = re.match(r" *(```+|~~~+)", line)
        if mark and fence is None:
            fence = mark.group(1)
        elif mark and mark.group(1).startswith(fence):
            fence = None
        elif fence is None:
            yield number, line


def anchors(lines):
    """What GitHub calls the headings of a document: a heading's text in small letters without punctuation, numbered where it repeats."""
    found = set()
    for _, line in prose_lines(lines):
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*\s*$", line)
        if heading is None:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).replace("`", "").lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = 0
        while (f"{name}-{count}" if count else name) in found:
            count += 1
        found.add(f"{name}-{count}" if count else name)
    return found


def links_of(lines):
    """(number, target) of the links of a document; a reference without a definition has the target None."""
    defined = {match.group(1).lower() for _, line in prose_lines(lines) if (match := DEFINITION.match(line))}
    for number, line in prose_lines(lines):
        text = CODE.sub("", line)
        definition = DEFINITION.match(text)
        if definition:
            yield number, definition.group(2)
        for pattern in (LINK, IMAGE):
            for match in pattern.finditer(text):
                yield number, match.group(1)
        for match in REFERENCE.finditer(text):
            if match.group(1).lower() not in defined:
                yield number, None


def fault_of(path, target):
    """What is wrong with a link of a document, or None."""
    if target is None:
        return "a link without a definition of its name"
    if re.match(r"[a-z][a-z0-9+.-]*:", target, re.I):
        return None
    name, _, anchor = urllib.parse.unquote(target).partition("#")
    file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
    if file.startswith("..") or not os.path.exists(os.path.join(ROOT, file)):
        return f"{target}: no such file"
    if anchor and file.endswith(".md") and anchor not in anchors(read(file)):
        return f"{target}: {file} has no such heading"
    return None


def main():
    faults = []
    for path in documents():
        for number, target in links_of(read(path)):
            if fault := fault_of(path, target):
                faults.append(f"{path}:{number}: {fault}")
    lines = "\n".join(read("README.md")).rstrip("\n").split("\n")
    if len(lines) > README_LINES:
        faults.append(f"README.md:{README_LINES + 1}: {len(lines)} lines, at most {README_LINES}")
    faults += [f"README.md:{number}: {len(line)} columns, at most {README_COLUMNS}"
               for number, line in enumerate(lines, 1) if len(line) > README_COLUMNS]
    print("\n".join(faults) or f"{len(documents())} documents: every link leads somewhere")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
