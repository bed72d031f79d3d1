"""What the tests of ranks in several processes share: mpirun, a server under it, clients."""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PATIENCE_S = 60  # for what happens within a second or two on an idle machine
SKIPPED = 77
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
MODEL = "synthetic:tiny:q8_0"
# Whose answers take seconds, to be broken off: those of the other one may be over before that.
SLOW_MODEL = "synthetic:llama-272m:q4_0"


def minfer_and_rest(description: str) -> tuple[Path, list]:
    """The program to test, which --minfer names, and the other arguments. Skips without MPI."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--minfer", type=Path, required=True)
    options, rest = parser.parse_known_args()
    minfer = options.minfer.resolve()
    require_mpi(minfer)
    return minfer, rest


def skip(why: str) -> None:
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def require_mpi(minfer: Path) -> None:
    if shutil.which("mpirun") is None:
        skip("no mpirun (package openmpi-bin)")
    if not (minfer.parent / "libminfer_mpi.so").exists():
        skip("this build has no MPI (package libopenmpi-dev)")


def wait_until(condition, what: str):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


def run(command: list, **more) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=2 * PATIENCE_S,
                          stdin=subprocess.DEVNULL, **more)


def is_alive(process_id: int) -> bool:
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """`minfer serve` on two processes."""

    def __init__(self, minfer: Path, options: list = (), mpi_options: list = (), launcher: list = None,
                 address: str = "127.0.0.1", namespace: str = "", device: str = "cpu", model: str = MODEL):
        self.model = model
        self.url = f"http://{address}:{free_port()}"
        self.namespace = namespace  # of the network that the first rank is in; empty: this process's
        self.log_file = tempfile.NamedTemporaryFile("w+", prefix="minfer-mpi-", suffix=".log")
        command = (launcher or MPIRUN) + list(mpi_options)
        if launcher is None:
            command += ["-np", "2"]
        command += [minfer, "serve", "--model", model, "--device", device, "--threads", "1", "--host", address,
                    "--port", self.url.rsplit(":", 1)[1], *options]
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.log_file,
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        wait_until(lambda: "info serving" in self.log() or self.process.poll() is not None, "the server")
        assert self.process.poll() is None, self.log()
        self.ranks = self.find_ranks()

    def log(self) -> str:
        return Path(self.log_file.name).read_text()

    def find_ranks(self) -> dict:
        """Process ids by rank."""
        port = self.url.rsplit(":", 1)[1].encode()
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                is_of_this = (entry / "comm").read_text() == "minfer\n" and port in (entry / "cmdline").read_bytes().split(b"\0")
                environment = (entry / "environ").read_bytes() if is_of_this else b""
            except OSError:
                continue
            if is_of_this:
                found[int(re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", environment).group(1))] = int(entry.name)
        assert sorted(found) == [0, 1], found
        return found

    def stream(self, max_tokens: int) -> "Stream":
        return Stream(self.url, max_tokens, self.namespace, self.model)

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE_S)

    def expect_nothing_left(self) -> None:
        wait_until(lambda: not any(is_alive(process_id) for process_id in self.ranks.values()),
                   f"the end of {self.ranks}\n{self.log()}")

    def close(self) -> None:
        for process_id in self.ranks.values():
            if is_alive(process_id):
                os.kill(process_id, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log_file.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def expect_same_text(both: subprocess.CompletedProcess, alone: subprocess.CompletedProcess, other: str = "rank 1") -> None:
    """Two ranks write what one does, and the log names the `other` one."""
    assert alone.returncode == 0, alone.stderr
    assert both.returncode == 0, both.stderr
    assert both.stdout == alone.stdout, (both.stdout, alone.stdout)
    assert other in both.stderr, both.stderr


def expect_refused(result: subprocess.CompletedProcess, *words: str) -> None:
    assert result.returncode != 0, result.stdout
    for word in words:
        assert word in result.stderr, result.stderr


def expect_told(server: Server, stream: "Stream", *words: str) -> None:
    """Client and log say what happened, and no process is left."""
    stream.end()
    assert stream.error() != "", (stream.events[-2:], server.log())
    assert server.wait() != 0, server.log()
    for word in words:
        assert word in stream.error(), stream.error()
        assert word in server.log(), server.log()
    server.expect_nothing_left()


def expect_told_of_other_rank(server: Server, max_tokens: int, what: signal.Signals, *words: str) -> None:
    """The second rank is stopped in the middle of a stream."""
    with server:
        stream = server.stream(max_tokens)
        stream.wait_for_tokens()
        os.kill(server.ranks[1], what)
        expect_told(server, stream, *words)


def expect_end_with_first_rank(server: Server, max_tokens: int) -> None:
    """The first rank is killed in the middle of a stream: nothing is left."""
    with server:
        stream = server.stream(max_tokens)
        stream.wait_for_tokens()
        os.kill(server.ranks[0], signal.SIGKILL)
        stream.end()
        assert server.wait() != 0, server.log()
        server.expect_nothing_left()


def expect_streams_to_finish(server: Server, max_tokens: int, end, count: int = 4) -> None:
    """`end`, called with the server, asks it to end in the middle of `count` streams: they finish first."""
    with server:
        streams = [server.stream(max_tokens) for _ in range(count)]
        for stream in streams:
            stream.wait_for_tokens()
        end(server)
        for stream in streams:
            stream.end()
            found = (stream.finish_reason(), stream.error(), stream.events[-1])
            assert found == ("length", "", "[DONE]"), (found, server.log())
        assert server.wait() == 0, server.log()
        server.expect_nothing_left()


class Stream:
    """A streamed completion, read by curl, which can be in another network."""

    def __init__(self, url: str, max_tokens: int, namespace: str = "", model: str = MODEL):
        body = {"model": model, "prompt": [5, 6, 7], "max_tokens": max_tokens, "ignore_eos": True, "stream": True}
        command = ["ip", "netns", "exec", namespace] if namespace else []
        command += ["curl", "-sN", "--max-time", str(PATIENCE_S), f"{url}/v1/completions", "-d", json.dumps(body)]
        self.events = []
        self.curl = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self) -> None:
        for line in self.curl.stdout:
            if line.startswith("data: "):
                self.events.append(line[6:].strip())
        self.curl.stdout.close()
        self.curl.wait()

    def wait_for_tokens(self, count: int = 5) -> None:
        wait_until(lambda: len(self.events) >= count or not self.thread.is_alive(), "tokens")
        assert self.thread.is_alive(), self.events[-3:]

    def end(self) -> None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), "the stream does not end"

    def error(self) -> str:
        """Of the error event at its end; empty: there is none."""
        for event in self.events[-2:]:
            if event != "[DONE]" and "error" in json.loads(event):
                return json.loads(event)["error"]["message"]
        return ""

    def finish_reason(self) -> str:
        for event in reversed(self.events):
            if event != "[DONE]" and json.loads(event).get("choices"):
                return json.loads(event)["choices"][0]["finish_reason"]
        return ""
