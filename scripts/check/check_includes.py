#!/usr/bin/env python3
"""Checks that dependencies go one way: kernels <- profiling <- models <- engine <- server.

A file of a folder may include project headers of its own folder and of those left of it. tests/ may include all. Folders
of any depth include each other in no circle. A dialect of the server includes no other. Prints each offending line and exits 1 if
there is one.
"""

import fnmatch
import re
import sys
from pathlib import Path

ORDER = ["kernels", "profiling", "models", "engine", "server"]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+["<]((?:%s|tests)/[^">]+)[">]' % "|".join(ORDER))
# The folders of the server that these folders may include, beside themselves.
LEAVES = {"server/http": [], "server/api": [], "server/terminal": [], "server/dialects/*": ["server/api/", "server/http/"]}


def includes_of(root: Path) -> list[tuple[Path, int, str]]:
    """The file, the line and the project header of each include."""
    files = (path for folder in ORDER for path in sorted((root / folder).rglob("*")) if path.suffix in (".h", ".cpp", ".cu", ".cuh"))
    return [(path.relative_to(root), number, match.group(1)) for path in files
            for number, line in enumerate(path.read_text().splitlines(), 1) if (match := INCLUDE.match(line))]


def is_allowed(path: Path, included: str) -> bool:
    for leaf, others in LEAVES.items():
        own = "/".join(path.parts[: leaf.count("/") + 1]) + "/"
        if fnmatch.fnmatch(own, leaf + "/") and own != f"{path}/" and included.startswith("server/") and not included.startswith((own, *others)):
            return False
    return included.split("/")[0] in ORDER[: ORDER.index(path.parts[0]) + 1]


def circle(includes: list[tuple[Path, int, str]], base: str) -> list[str]:
    """The folders in and below `base` that include each other in a circle, and those that include them."""
    included: dict[str, set[str]] = {}
    for path, _, header in includes:
        if path.is_relative_to(base):
            others = included.setdefault(str(path.parent), set())
            if Path(header).is_relative_to(base) and Path(header).parent != path.parent:
                others.add(str(Path(header).parent))
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
    includes = includes_of(root)
    found = [f"{path}:{number}: may not include {included}" for path, number, included in includes if not is_allowed(path, included)]
    found += [f"folders in a circle of includes, or above one: {', '.join(folders)}" for base in ORDER if (folders := circle(includes, base))]
    print("\n".join(found) if found else "check_includes: dependencies go one way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
