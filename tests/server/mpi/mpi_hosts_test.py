#!/usr/bin/env python3
"""Two network namespaces as two hosts with names of their own, a rank on each: no sshd, only sockets between them. As root.

    tests/server/mpi/mpi_hosts_test.py --minfer build/release/minfer
"""

import contextlib
import os
import shutil
import signal
import tempfile
import unittest
from pathlib import Path

from mpi_support import (MPIRUN, SLOW_MODEL, Server, expect_same_text, expect_told_of_other_rank, minfer_and_rest, run,
                         skip)

MINFER = Path()
FIRST, SECOND = "10.211.77.1", "10.211.77.2"


@contextlib.contextmanager
def two_hosts():
    """A command that starts mpirun on the first, with a process on each. Skips where namespaces are not permitted."""
    names = [f"minfer-{os.getpid()}-{letter}" for letter in "ab"]
    folder = Path(tempfile.mkdtemp(prefix="minfer-hosts-"))

    def ip(*words):
        result = run(["ip", *words])
        if result.returncode != 0:
            skip(f"ip {' '.join(words)}: {result.stderr.strip()}")

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "va", "netns", names[0], "type", "veth", "peer", "name", "vb", "netns", names[1])
        for name, link, address in zip(names, ("va", "vb"), (FIRST, SECOND)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            for device in (link, "lo"):
                ip("-n", name, "link", "set", device, "up")
        # What mpirun starts instead of ssh: AGENT HOST COMMAND...
        agent = folder / "agent.sh"
        agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {names[1]} unshare --uts sh -c "hostname host-b; $*"\n')
        agent.chmod(0o755)
        yield ["ip", "netns", "exec", names[0], "unshare", "--uts", "sh", "-c", 'hostname host-a; exec "$@"', "sh",
               *MPIRUN, "--host", f"{FIRST}:1,{SECOND}:1", "--mca", "plm_rsh_agent", agent, "--mca", "btl",
               "tcp,self", "-np", "2"], names[0]
    finally:
        for name in names:
            for process_id in run(["ip", "netns", "pids", name]).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process_id), signal.SIGKILL)
            run(["ip", "netns", "del", name])
        shutil.rmtree(folder)


class TwoHostsTest(unittest.TestCase):
    def test_generates_as_one_rank_does(self):
        command = ["run", "--device", "cpu", "--threads", 1, "Once upon a time", "-n", 40, "--quiet"]
        with two_hosts() as (mpirun, _):
            expect_same_text(run([*mpirun, MINFER, *command]), run([MINFER, *command]), "rank 1 (host host-b")

    def test_different_options_name_the_host(self):
        command = [MINFER, "run", "--device", "cpu", "hello", "-n", 4, "--max-model-len"]
        with two_hosts() as (mpirun, _):
            result = run([*mpirun[:-1], 1, *command, 512, ":", "-np", 1, *command, 256])
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stderr, r"rank 1 \(host host-b, process \d+\): max-model-len is 256, rank 0 has 512")

    def test_a_rank_that_is_killed_on_the_other_host(self):
        with two_hosts() as (mpirun, namespace):
            server = Server(MINFER, launcher=mpirun, address=FIRST, namespace=namespace, model=SLOW_MODEL)
            expect_told_of_other_rank(server, 2000, signal.SIGKILL, "rank 1 (host host-b", "has gone")

    def test_a_host_that_is_lost(self):
        with two_hosts() as (mpirun, namespace):
            # For mpirun itself, which else waits for minutes for the other host.
            keepalive = ["--mca", "oob_tcp_keepalive_time", 1, "--mca", "oob_tcp_keepalive_intvl", 1, "--mca",
                         "oob_tcp_keepalive_probes", 3]
            with Server(MINFER, launcher=[*mpirun, *keepalive], address=FIRST, namespace=namespace,
                        model=SLOW_MODEL) as server:
                stream = server.stream(2000)
                stream.wait_for_tokens()
                run(["ip", "-n", namespace, "link", "set", "va", "down"])
                stream.end()
                self.assertIn("rank 1 (host host-b", stream.error(), (stream.events[-3:], server.log()))
                self.assertNotEqual(server.wait(), 0)
                server.expect_nothing_left()


if __name__ == "__main__":
    MINFER, rest = minfer_and_rest(__doc__)
    if os.geteuid() != 0 or shutil.which("ip") is None:
        skip("network namespaces need root and ip (package iproute2)")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with two_hosts():
        pass  # they can be had
    unittest.main(argv=[__file__, *rest])
