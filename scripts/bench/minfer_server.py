"""A `minfer serve` for as long as a script needs it."""

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
