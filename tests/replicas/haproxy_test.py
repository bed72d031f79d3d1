"""Two servers behind Debian's HAProxy with the configuration that the package brings: one is killed under load, comes back, and one
is ended in order."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time

import pytest

from serving import ABORTED, EXCHANGE_TIMEOUT_S, Server

PATIENCE_S = 120
CONFIGURATION = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/packaging/haproxy.cfg"
HAPROXY = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")

if HAPROXY is None:
    pytest.skip("there is no haproxy (Debian's package haproxy)", allow_module_level=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def status(port, path):
    """Of a GET; None if nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=EXCHANGE_TIMEOUT_S)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.request("GET", path)
        return connection.getresponse().status
    return None


class Router:
    """HAProxy in front of servers."""

    def __init__(self, *servers):
        self.port = free_port()
        environment = {**os.environ, "MINFER_BIND": f"127.0.0.1:{self.port}"}
        for number, server in enumerate(servers, 1):
            environment[f"MINFER_SERVER_{number}"] = f"127.0.0.1:{server.port}"
        self._process = subprocess.Popen([HAPROXY, "-db", "-f", str(CONFIGURATION)], env=environment)
        self.wait_until(lambda: status(self.port, "/health") == 200)

    def wait_until(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self._process.poll() is None, "haproxy has ended"
            assert time.monotonic() < deadline, "the condition does not come to hold"
            time.sleep(0.05)

    def stop(self):
        self._process.terminate()
        self._process.wait(PATIENCE_S)


class Stream:
    """A streamed completion through the router, read by a thread of its own."""

    def __init__(self, router, pool, max_tokens):
        self._body = json.dumps({"model": "minfer-demo", "prompt": [300 + max_tokens % 50], "max_tokens": max_tokens,
                                 "ignore_eos": True, "stream": True})
        self._port = router.port
        self.status = None
        self.server = None   # its name in HAProxy's configuration
        self.is_whole = False
        self.begun = threading.Event()
        self._reading = pool.submit(self._read)

    def _read(self):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=EXCHANGE_TIMEOUT_S)
        with contextlib.closing(connection), contextlib.suppress(http.client.HTTPException, ConnectionError):
            connection.request("POST", "/v1/completions", self._body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            self.status = response.status
            self.server = response.getheader("x-served-by")
            for line in response:
                self.begun.set()
                self.is_whole = self.is_whole or line.strip() == b"data: [DONE]"

    def end(self):
        """Itself, when it has ended, well or not."""
        self._reading.result(PATIENCE_S)
        return self


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(64) as threads:
        yield threads


@contextlib.contextmanager
def serving(minfer, port=0):
    server = Server(minfer, "--num-blocks", "2048", "--threads", "1", port=port)
    try:
        yield server
    finally:
        server.kill()


def begin(router, pool, count, max_tokens):
    """Streams that have had their first event, some on each server."""
    streams = [Stream(router, pool, max_tokens) for _ in range(count)]
    for stream in streams:
        assert stream.begun.wait(PATIENCE_S) and stream.status == 200
    return streams


def generated(server):
    return server.metrics()["vllm:generation_tokens_total"]


@pytest.fixture
def replicas(minfer):
    with serving(minfer) as one, serving(minfer) as two:
        router = Router(one, two)
        try:
            yield router, one, two
        finally:
            router.stop()


def wait_until_both_work(router, pool, servers):
    def both_work():
        for stream in [Stream(router, pool, 2) for _ in range(4)]:
            stream.end()
        return all(generated(server) > 0 for server in servers)

    router.wait_until(both_work)


def test_a_killed_server_takes_its_own_streams_along(minfer, replicas, pool):
    router, one, two = replicas
    wait_until_both_work(router, pool, (one, two))
    streams = begin(router, pool, 12, max_tokens=1900)
    of_one = [stream for stream in streams if stream.server == "one"]
    of_two = [stream for stream in streams if stream.server == "two"]
    assert len(of_one) + len(of_two) == 12 and abs(len(of_one) - len(of_two)) <= 2
    one.kill()
    early = [stream for stream in of_one if stream.is_whole]
    later = [Stream(router, pool, 20).end() for _ in range(12)]  # one after the other: from the moment on in which it is gone
    assert [(stream.status, stream.server, stream.is_whole) for stream in later] == [(200, "two", True)] * 12
    assert all(stream.end().is_whole for stream in of_two)
    assert len(early) < len(of_one) and not any(stream.end().is_whole for stream in of_one if stream not in early)

    with serving(minfer, port=one.port) as again:
        wait_until_both_work(router, pool, (again,))
        assert all(stream.end().is_whole for stream in begin(router, pool, 8, max_tokens=50))


def test_a_server_that_ends_in_order_loses_nothing(replicas, pool):
    router, one, two = replicas
    wait_until_both_work(router, pool, (one, two))
    streams = begin(router, pool, 8, max_tokens=1900)
    ending = pool.submit(two.stop)  # SIGTERM, and exit status 0
    router.wait_until(lambda: status(two.port, "/health") == 503)
    answers = []
    while not ending.done() or len(answers) < 8:
        answers.append(Stream(router, pool, 5).end())
    ending.result()
    assert {(stream.end().status, stream.is_whole) for stream in answers + streams} == {(200, True)}
    assert {stream.server for stream in streams} == {"one", "two"} and answers[-1].server == "one"


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_goes_takes_its_request_along(replicas, streams):
    router, *servers = replicas

    def total(name):
        return sum(server.metrics()[name] for server in servers)

    connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=EXCHANGE_TIMEOUT_S)
    with contextlib.closing(connection):  # far more than is computed before it goes
        connection.request("POST", "/v1/completions", json.dumps(
            {"model": "minfer-demo", "prompt": "The", "max_tokens": 1900, "ignore_eos": True, "n": 64, "stream": streams}))
        if streams:
            connection.getresponse().readline()
        router.wait_until(lambda: total("vllm:num_requests_running") > 0)
    router.wait_until(lambda: total(ABORTED) == 64)
    assert total("vllm:kv_cache_usage_perc") == 0
