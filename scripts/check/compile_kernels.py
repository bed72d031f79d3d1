#!/usr/bin/env python3
"""Compiles CUDA code of a configured build to see that it does. Nothing is linked; only objects of the build itself are kept.

  compile_kernels.py BUILD sm_86 [sm_89] [sm_120]   all device code for these targets. sm_86 has the least registers and shared memory:
                                                    ptxas takes every kernel's registers and static shared memory, static_asserts the rest
  compile_kernels.py BUILD --since COMMIT           what changed since the commit: the build's CUDA objects whose sources or headers
                                                    did, and for sm_86 the kernels whose .cu or .cuh did. Options of CMake do not
                                                    count: nightly.sh compiles all
"""

import argparse
import concurrent.futures
import functools
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTANCES = ROOT / "kernels/cuda/instances.cmake"  # CMake makes sources in the build folder from it
BLOCK_SHARED_KIB = 99  # for these targets: see kernels/cuda/device/block_shared.h
TARGETS = ("sm_86", "sm_89", "sm_120")


def device_command(entry, target, output):
    """The command of an object file, changed to compile its device code alone for the target."""
    command = re.sub(r"--generate-code=\S+", "", entry["command"])
    command = re.sub(r"-DMINFER_(BLOCK|STRIP)_SHARED_KIB=\S+", "", command)
    command = re.sub(r"\s-o\s+\S+", f" -o {shlex.quote(str(output))}", command)
    return f"{command} -cubin -arch={target} -DMINFER_BLOCK_SHARED_KIB={BLOCK_SHARED_KIB}"


@functools.cache
def read_by(path):
    """The source and the project's files that it includes, directly or not. Includes are written from the root: check_includes.py."""
    read = {path, INSTANCES} if path.suffix == ".cu" and ROOT / "kernels" not in path.parents else {path}
    waiting = [path]
    while waiting:
        for name in re.findall(r'^#include "([^"]+)"', waiting.pop().read_text(), re.MULTILINE):
            included = ROOT / name  # `name` itself if that is absolute, as in sources that CMake writes
            if included.is_file() and included not in read:
                read.add(included)
                waiting.append(included)
    return frozenset(read)


def changed_since(commit):
    names = subprocess.run(["git", "diff", "--name-only", commit], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return {ROOT / name for name in names.splitlines()}


def is_of_cuda(path):
    """True for a source that builds without CUDA leave out, or compile otherwise."""
    names = [source.relative_to(ROOT).parts for source in read_by(path) if source.suffix == ".cpp" and source.is_relative_to(ROOT)]
    return path.suffix == ".cu" or any("cuda" in part for parts in names if parts[0] != "build" for part in parts)


def compile_objects(build, entries):
    """Objects of the build, as it compiles them."""
    begin = time.monotonic()
    outputs = [re.search(r"\s-o\s+(\S+)", entry["command"]).group(1) for entry in entries]
    if outputs and subprocess.run(["cmake", "--build", str(build), "-j", str(os.cpu_count()), "--target", *outputs]).returncode != 0:
        return False
    print(f"{len(outputs)} files with code for CUDA that changed compile ({time.monotonic() - begin:.0f} s)", flush=True)
    return True


def compile_device_code(target, entries):
    begin = time.monotonic()
    launcher = [ccache] if (ccache := shutil.which("ccache")) else []
    num_failed = 0
    with tempfile.TemporaryDirectory() as outputs, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:

        def compile_one(index):
            command = shlex.split(device_command(entries[index], target, pathlib.Path(outputs) / f"{index}.cubin"))
            known = command if "ccache" in command[0] else launcher + command
            return subprocess.run(known, cwd=entries[index]["directory"], capture_output=True, text=True)

        for entry, result in zip(entries, pool.map(compile_one, range(len(entries)))):
            if result.returncode != 0:
                num_failed += 1
                print(f"{entry['file']}:\n{result.stderr or result.stdout}", file=sys.stderr)
    print(f"{target}: {len(entries) - num_failed} of {len(entries)} files with kernels compile ({time.monotonic() - begin:.0f} s)", flush=True)
    return num_failed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a folder that is configured with CUDA")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--since", metavar="COMMIT")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"expected targets of {', '.join(TARGETS)}, found {', '.join(sorted(unknown))}")
    if bool(arguments.targets) == bool(arguments.since):
        parser.error("expected either targets or --since COMMIT")
    entries = json.loads((arguments.build / "compile_commands.json").read_text())
    kernels = [entry for entry in entries if entry["file"].endswith(".cu")]
    if not kernels:
        sys.exit(f"{arguments.build}: no CUDA code is configured there")
    os.environ.update({"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1", "CCACHE_IGNOREOPTIONS": "-fmacro-prefix-map=*"})
    if not arguments.since:
        passed = [compile_device_code(target, kernels) for target in arguments.targets]
        sys.exit(0 if all(passed) else 1)
    changed = changed_since(arguments.since)
    changed_device_code = {path for path in changed if path.suffix in (".cu", ".cuh") or path == INSTANCES}
    objects = [entry for entry in entries
               if is_of_cuda(path := pathlib.Path(entry["file"])) and not changed.isdisjoint(read_by(path))]
    device_code = [entry for entry in kernels if not changed_device_code.isdisjoint(read_by(pathlib.Path(entry["file"])))]
    passed = compile_objects(arguments.build, objects) and compile_device_code("sm_86", device_code)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
