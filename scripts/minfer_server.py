"""A `minfer serve` for as long as a script needs it."""

import re
import subprocess
import sys
import tempfile
import time


def start(minfer, model, options=()):
    """The process, which the caller ends, and its address. `model` empty: the demo model."""
    log = tempfile.NamedTemporaryFile("r", prefix="minfer-serve-")
    server = subprocess.Popen([minfer, "serve", *([model] if model else []), "--port", "0", "--max-num-seqs", "64", *options],
                              stderr=open(log.name, "w"), stdout=subprocess.DEVNULL)
    while server.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", open(log.name).read()):
            return server, found.group()
        time.sleep(0.05)
    sys.exit(f"minfer serve does not start: {open(log.name).read()[-1000:]}")
