#!/usr/bin/env python3
"""Checks that dependencies go one way: kernels <- profiling <- models <- engine <- server.

A file of a folder may include project headers of its own folder and of those left of it. tests/ may include all. Within kernels/, engine/,
server/ and models/decoder/ folders of any depth include each other in no circle. A dialect of the server includes no other. Prints each
offending line and exits 1 if there is one.
"""

import re
import sys
from pathlib import Path

ORDER = ["kernels", "profiling", "models", "engine", "server"]
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]((?:%s|tests)/[^">]+)[">]' % "|".join(ORDER))
WITHOUT_CIRCLES = ["kernels", "models/decoder", "engine", "server"]
# The folders of the server that these folders may include, beside themselves.
LEAVES = {"server/http": [], "server/api": [], "server/terminal": [], "server/dialects/*": ["server/api/", "server/http/"]}
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def offences(root: Path) -> list[str]:
    found = []
    for rank, folder in enumerate(ORDER):
        allowed = set(ORDER[: rank + 1])
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if match and match.group(1).split("/")[0] not in allowed:
                    found.append(f"{path.relative_to(root)}:{number}: {folder}/ may not include {match.group(1)}")
    for pattern, others in LEAVES.items():
        for leaf in [path for path in sorted(root.glob(pattern)) if path.is_dir()]:
            own = f"{leaf.relative_to(root)}/"
            for path in [path for path in sorted(leaf.rglob("*")) if path.suffix in SUFFIXES]:
                for included in re.findall(r'#include "(server/[^"]+)"', path.read_text()):
                    if not included.startswith((own, *others)):
                        found.append(f"{path.relative_to(root)}: {own} may not include {included}")
    return found


def circle(root: Path, base: str) -> list[str]:
    """The folders in and below `base` that include each other in a circle, and those that include them."""
    included: dict[str, set[str]] = {}
    for path in (root / base).rglob("*"):
        if path.suffix in SUFFIXES:
            own = str(path.parent.relative_to(root))
            others = re.findall(rf'#include "({base}(?:/[^"/]+)*)/[^"/]+"', path.read_text())
            included.setdefault(own, set()).update(set(others) - {own})
    while free := [folder for folder, others in included.items() if not others & included.keys()]:
        for folder in free:
            del included[folder]
    return sorted(included)


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    missing = [folder for folder in ORDER if not (root / folder).is_dir()]
    if missing:
        print(f"check_includes: {root} has no folder {', '.join(missing)}", file=sys.stderr)
        return 2
    found = offences(root)
    for base in WITHOUT_CIRCLES:
        if folders := circle(root, base):
            found.append(f"folders in a circle of includes, or above one: {', '.join(folders)}")
    print("\n".join(found) if found else "check_includes: dependencies go one way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
