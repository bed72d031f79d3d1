#!/usr/bin/env python3
"""Compiles the device code of a configured build with CUDA for another GPU target, to see that it does: ptxas takes every kernel's registers
and static shared memory, static_asserts the rest. The default, sm_86, has the least of both. Nothing is linked or kept.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

BLOCK_SHARED_KIB = 99  # of these targets: see kernels/cuda/device/block_shared.h
TARGETS = ("sm_86", "sm_89", "sm_120")


def device_command(entry, target, output):
    """The command of an object file, changed to compile its device code alone for the target."""
    command = re.sub(r"--generate-code=\S+", "", entry["command"])
    command = re.sub(r"-DMINFER_(BLOCK|PANEL)_SHARED_KIB=\S+", "", command)
    command = re.sub(r"\s-o\s+\S+", f" -o {shlex.quote(str(output))}", command)
    return f"{command} -cubin -arch={target} -DMINFER_BLOCK_SHARED_KIB={BLOCK_SHARED_KIB}"


def files_that_depend_on_changes(build, commit):
    """The sources with kernels whose device code changed since the commit: they or a .cuh that they include, by what the compiler read."""
    def lines(*command):
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    changed = {os.path.abspath(name) for name in lines("git", "diff", "--name-only", commit).splitlines()
               if name.endswith((".cu", ".cuh"))}
    sources = set()
    for block in lines("ninja", "-C", str(build), "-t", "deps").split("\n\n"):
        read = [os.path.abspath(build / line.strip()) for line in block.splitlines()[1:]]
        if changed.intersection(read):
            sources.update(path for path in read if path.endswith(".cu"))
    return sources


def compile_all(build, target, chosen):
    entries = [entry for entry in json.loads((build / "compile_commands.json").read_text()) if entry["file"].endswith(".cu")]
    if not entries:
        sys.exit(f"{build}: no CUDA code is configured there")
    if chosen is not None:
        entries = [entry for entry in entries if entry["file"] in chosen]
    begin = time.monotonic()
    launcher = [ccache] if (ccache := shutil.which("ccache")) else []
    environment = os.environ | {"CCACHE_BASEDIR": os.getcwd(), "CCACHE_NOHASHDIR": "1"}
    failures = []
    with tempfile.TemporaryDirectory() as outputs, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def compile_one(index):
            command = shlex.split(device_command(entries[index], target, pathlib.Path(outputs) / f"{index}.cubin"))
            known = command if "ccache" in command[0] else launcher + command
            return subprocess.run(known, cwd=entries[index]["directory"], env=environment, capture_output=True, text=True)

        for entry, result in zip(entries, pool.map(compile_one, range(len(entries)))):
            if result.returncode != 0:
                failures.append(f"{entry['file']}:\n{result.stderr or result.stdout}")
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"{target}: {len(entries) - len(failures)} of {len(entries)} files with kernels compile ({time.monotonic() - begin:.0f} s)")
    return not failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a folder that is configured with CUDA")
    parser.add_argument("targets", nargs="*", choices=TARGETS, default="sm_86")
    parser.add_argument("--since", metavar="COMMIT", help="only files that changed, or include a .cuh that did; the folder must be built")
    arguments = parser.parse_args()
    targets = arguments.targets if isinstance(arguments.targets, list) else [arguments.targets]
    chosen = files_that_depend_on_changes(arguments.build, arguments.since) if arguments.since else None
    if not all([compile_all(arguments.build, target, chosen) for target in targets]):
        sys.exit(1)


if __name__ == "__main__":
    main()
