#!/usr/bin/env python3
"""Compiles the device code of a configured build with CUDA for another GPU target, to see that it does: ptxas takes every kernel's registers
and static shared memory, static_asserts the rest. The default, sm_86, has the least of both. Nothing is linked or kept.
  scripts/compile_kernels.py BUILD_FOLDER [sm_86|sm_89|sm_120 ...]
"""

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


def compile_all(build, target):
    entries = [entry for entry in json.loads((build / "compile_commands.json").read_text()) if entry["file"].endswith(".cu")]
    if not entries:
        sys.exit(f"{build}: no CUDA code is configured there")
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
    arguments = sys.argv[1:]
    targets = arguments[1:] or ["sm_86"]
    if not arguments or not set(targets) <= set(TARGETS):
        sys.exit(__doc__)
    if not all([compile_all(pathlib.Path(arguments[0]), target) for target in targets]):
        sys.exit(1)


if __name__ == "__main__":
    main()
