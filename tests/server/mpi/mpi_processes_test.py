#!/usr/bin/env python3
"""Ranks in several processes of one host, started by mpirun: the same results as of one rank, and what happens when they fail.

    tests/server/mpi/mpi_processes_test.py --minfer build/release/minfer
"""

import json
import os
import shutil
import signal
import struct
import tempfile
import unittest
from pathlib import Path

from mpi_support import (MPIRUN, SLOW_MODEL, Server, expect_end_with_first_rank, expect_refused, expect_same_text,
                         expect_streams_to_finish, expect_told_of_other_rank, minfer_and_rest, run)

MINFER = Path()
DEMO = Path(__file__).resolve().parents[3] / "models/demo/minfer-demo.gguf"
LONG = 2000  # tokens of an answer that is broken off
TOKENS = " ".join(str(3 + 37 * i % 500) for i in range(96))


def on_ranks(*arguments, count: int = 2, mpi_options: list = ()):
    return run([*MPIRUN, *mpi_options, "-np", count, MINFER, *arguments])


def on_two_with(first: list, second: list):
    """Two ranks of which each has its own command line."""
    return run([*MPIRUN, "-np", 1, MINFER, *first, ":", "-np", 1, MINFER, *second])


def logits(path: Path) -> list:
    data = path.read_bytes()
    positions, vocabulary = struct.unpack_from("<ii", data)
    return struct.unpack_from(f"<{positions * vocabulary}f", data, 8 + 4 * positions)


def nmse(values: list, expected: list) -> float:
    return sum((a - b) ** 2 for a, b in zip(values, expected)) / sum(b * b for b in expected)


class ResultsTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="minfer-mpi-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def test_greedy_continuation_is_that_of_one_rank(self):
        command = ["run", "--device", "cpu", "--threads", 1, "Once upon a time", "-n", 40, "--quiet"]
        expect_same_text(on_ranks(*command), run([MINFER, *command]))

    def test_logits_are_those_of_threads_and_nearly_those_of_one_rank(self):
        tokens = self.folder / "tokens"
        tokens.write_text(TOKENS)
        command = ["eval", "--device", "cpu", "--threads", 2, "--tokens", tokens, "--chunk", 40, "--logits"]
        alone, threads, processes = (self.folder / name for name in ("alone", "threads", "processes"))
        self.assertEqual(run([MINFER, *command, alone]).returncode, 0)
        self.assertEqual(run([MINFER, *command, threads, "--tp", 2]).returncode, 0)
        both = on_ranks(*command, processes)
        self.assertEqual(both.returncode, 0, both.stderr)
        self.assertEqual(processes.read_bytes(), threads.read_bytes())
        self.assertLess(nmse(logits(processes), logits(alone)), 1e-10)

    def test_only_the_first_rank_writes(self):
        profile = self.folder / "profile.jsonl"
        both = on_ranks("bench", "--device", "cpu", "--threads", 1, "-p", 16, "-n", 8, "-r", 1, "-o", "json",
                        "--profile-out", profile)
        self.assertEqual(both.returncode, 0, both.stderr)
        self.assertEqual(both.stdout.count('"n_prompt"'), 2)  # one for each test
        self.assertEqual([path.name for path in self.folder.iterdir()], ["profile.jsonl"])
        report = run([MINFER, "profile", "report", profile])
        self.assertEqual(report.returncode, 0, report.stderr)
        lines = [json.loads(line) for line in profile.read_text().splitlines()]
        steps = [sum(line["schema"] == "minfer.rank/1" and line["rank"] == rank for line in lines) for rank in (0, 1)]
        self.assertGreater(steps[1], steps[0] // 2)  # the last of each run may come too late
        self.assertIn("\nRanks (", report.stdout)


class DifferencesTest(unittest.TestCase):
    def test_options(self):
        command = ["run", "--device", "cpu", "hello", "-n", 4, "--max-model-len"]
        expect_refused(on_two_with([*command, 512], [*command, 256]), "rank 1", "max-model-len is 256, rank 0 has 512")

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "other.gguf"
            data = bytearray(DEMO.read_bytes())
            data[-1] ^= 1  # of the last tensor
            other.write_bytes(data)
            command = ["run", "--device", "cpu", "-n", 4, "--model"]
            expect_refused(on_two_with([*command, DEMO, "hello"], [*command, other, "hello"]), "rank 1", ": tensor ")

    def test_a_file_that_one_host_lacks(self):
        command = ["run", "--device", "cpu", "-n", 4, "--model"]
        expect_refused(on_two_with([*command, DEMO, "hello"], [*command, "/nowhere/x.gguf", "hello"]), "/nowhere/x.gguf")

    def test_another_number_of_ranks(self):
        expect_refused(on_ranks("run", "--device", "cpu", "--tp", 3, "hello"), "--tensor-parallel-size: 3, expected 2")

    def test_gpus_that_a_host_lacks(self):
        both = on_ranks("run", "--device", "cuda", "hello", "-n", 4)
        self.assertNotEqual(both.returncode, 0)
        self.assertRegex(both.stderr, "host .* has 0 GPUs, 2 are needed|this build has no CUDA code")

    def test_what_runs_in_one_process_says_so(self):
        expect_refused(on_ranks("bench", "--kernels"), "runs in one process")


class FaultsTest(unittest.TestCase):
    def test_a_rank_that_is_killed(self):
        expect_told_of_other_rank(Server(MINFER, model=SLOW_MODEL), LONG, signal.SIGKILL, "rank 1", "has gone")

    def test_a_rank_that_is_killed_where_messages_go_through_sockets(self):
        server = Server(MINFER, mpi_options=["--mca", "btl", "tcp,self"], model=SLOW_MODEL)
        expect_told_of_other_rank(server, LONG, signal.SIGKILL, "rank 1", "has gone")

    def test_a_rank_that_is_killed_while_there_is_nothing_to_do(self):
        with Server(MINFER) as server:
            os.kill(server.ranks[1], signal.SIGKILL)
            self.assertNotEqual(server.wait(), 0)
            self.assertIn("rank 1", server.log())
            self.assertIn("has gone", server.log())
            server.expect_nothing_left()

    def test_a_rank_that_hangs(self):
        server = Server(MINFER, ["--rank-timeout", 2], model=SLOW_MODEL)
        expect_told_of_other_rank(server, LONG, signal.SIGSTOP, "waited 2000 ms for rank 1")

    def test_the_first_rank_is_killed(self):
        expect_end_with_first_rank(Server(MINFER, model=SLOW_MODEL), LONG)


class EndTest(unittest.TestCase):
    def test_sigusr1_to_mpirun_lets_streams_finish(self):
        expect_streams_to_finish(Server(MINFER), 300, lambda server: server.process.send_signal(signal.SIGUSR1))

    def test_sigterm_to_all_processes_lets_streams_finish(self):
        """As srun and systems that stop a service do it: each process gets the signal, and the time to end."""
        def end(server):
            for process_id in server.ranks.values():
                os.kill(process_id, signal.SIGTERM)

        expect_streams_to_finish(Server(MINFER), 300, end)

    def test_sigterm_to_mpirun_leaves_nothing(self):
        """mpirun gives its processes two seconds: streams finish or are broken off, nothing hangs."""
        with Server(MINFER) as server:
            stream = server.stream(20)
            stream.end()
            self.assertEqual(stream.finish_reason(), "length")
            server.process.send_signal(signal.SIGTERM)
            server.wait()
            server.expect_nothing_left()


if __name__ == "__main__":
    MINFER, rest = minfer_and_rest(__doc__)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    unittest.main(argv=[__file__, *rest])
