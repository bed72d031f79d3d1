"""What scripts that measure minfer share: a `minfer serve` for as long as it is needed, runs of `minfer bench`, and their results."""

import json
import re
import subprocess
import sys
import tempfile
import time


def start(minfer, model, options=(), max_num_seqs=64):
    """The process, which the caller ends, and its address. `model` empty: the demo model. `max_num_seqs` None: the server's default."""
    log = tempfile.NamedTemporaryFile("r", prefix="minfer-serve-")
    server = subprocess.Popen([minfer, "serve", *([model] if model else []), "--port", "0",
                               *(["--max-num-seqs", str(max_num_seqs)] if max_num_seqs else []), *options],
                              stderr=open(log.name, "w"), stdout=subprocess.DEVNULL)
    while server.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", open(log.name).read()):
            return server, found.group()
        time.sleep(0.05)
    sys.exit(f"minfer serve does not start: {open(log.name).read()[-1000:]}")


def stop(server):
    server.terminate()
    if server.wait(60) != 0:
        sys.exit(f"minfer serve: exit code {server.returncode}")


def load_test(minfer, *options):
    """The result of one load test of `minfer bench`."""
    command = [minfer, "bench", *map(str, options), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)[0]


def append_lines(path, records):
    """One JSON object a line; nowhere if there is no path."""
    if path:
        with open(path, "a", encoding="utf-8") as out:
            out.writelines(json.dumps(record) + "\n" for record in records)


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "unknown")
