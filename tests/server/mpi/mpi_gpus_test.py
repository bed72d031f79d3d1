#!/usr/bin/env python3
"""Ranks in two processes that mpirun starts, each on a GPU: the same results as of one, and what happens when they fail.

    tests/server/mpi/mpi_gpus_test.py --minfer build/cuda/minfer

Skipped where there is no mpirun, or fewer than two GPUs. Without mpirun the tests of engine_cuda_tests run two processes.
"""

import argparse
import os
import shutil
import signal
import unittest
from pathlib import Path

from mpi_support import MPIRUN, Server, expect_told, require_mpi, run, skip

MINFER = Path()
MPIRUN = [*MPIRUN, "--bind-to", "none"]
# Each process sees a GPU of its own, and the second one another name of its host: NCCL and minfer take them for two hosts. As root.
TWO_HOSTS = [*MPIRUN, "-np", 2, "sh", "-c", """export CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_RANK
[ $OMPI_COMM_WORLD_RANK = 0 ] && exec "$@"
exec unshare --uts sh -c 'hostname host-b; exec "$@"' sh "$@"
""", "sh"]
MODEL = "synthetic:llama-3.2-1b:bf16"  # whose answers take long enough to be broken off
LONG = 8000


def on_two(*arguments, mpi_options: list = ()):
    return run([*MPIRUN, *mpi_options, "-np", 2, MINFER, *arguments])


def server(*options, launcher: list = None) -> Server:
    return Server(MINFER, ["--max-model-len", 16384, "--max-num-seqs", 8, *options], device="cuda", model=MODEL,
                  launcher=launcher or [*MPIRUN, "-np", 2])


class ResultsTest(unittest.TestCase):
    def test_greedy_continuation_is_that_of_one_gpu(self):
        command = ["run", "--device", "cuda", "--dtype", "f32", "Once upon a time", "-n", 60, "--quiet"]
        alone = run([MINFER, *command])
        self.assertEqual(alone.returncode, 0, alone.stderr)
        for how in ("peer", "nccl", "auto"):
            for graphs in ([], ["--no-cuda-graphs"]):
                both = on_two(*command, "--all-reduce", how, *graphs)
                self.assertEqual(both.returncode, 0, both.stderr)
                self.assertEqual(both.stdout, alone.stdout, how)
                self.assertIn("rank 1", both.stderr)

    def test_bench_measures(self):
        both = on_two("bench", "--device", "cuda", "-m", MODEL, "-p", 128, "-n", 16, "-r", 1, "-o", "json")
        self.assertEqual(both.returncode, 0, both.stderr)
        self.assertIn('"n_prompt"', both.stdout)


def needs_host_names(test):
    may = shutil.which("unshare") and run(["unshare", "--uts", "hostname", "host-b"]).returncode == 0
    return unittest.skipUnless(may, "a host name of its own needs root and unshare")(test)


class TwoHostsTest(unittest.TestCase):
    @needs_host_names
    def test_greedy_continuation_is_that_of_one_gpu(self):
        command = ["run", "--device", "cuda", "--dtype", "f32", "Once upon a time", "-n", 60, "--quiet"]
        alone = run([MINFER, *command])
        both = run([*TWO_HOSTS, MINFER, *command])
        self.assertEqual(both.returncode, 0, both.stderr)
        self.assertEqual(both.stdout, alone.stdout)
        self.assertIn("rank 1 (host host-b", both.stderr)

    @needs_host_names
    def test_memory_of_another_host_cannot_be_asked_for(self):
        both = run([*TWO_HOSTS, MINFER, "run", "--device", "cuda", "--all-reduce", "peer", "hello", "-n", 4])
        self.assertNotEqual(both.returncode, 0)
        self.assertIn("the ranks are on several hosts", both.stderr)

    @needs_host_names
    def test_a_rank_that_is_killed(self):
        with server(launcher=TWO_HOSTS) as both:
            stream = both.stream(LONG)
            stream.wait_for_tokens()
            os.kill(both.ranks[1], signal.SIGKILL)
            expect_told(both, stream, "rank 1 (host host-b", "has gone")

    @needs_host_names
    def test_sigterm_to_the_first_rank_lets_streams_finish(self):
        with server(launcher=TWO_HOSTS) as both:
            stream = both.stream(200)
            stream.wait_for_tokens()
            os.kill(both.ranks[0], signal.SIGTERM)
            stream.end()
            self.assertEqual((stream.finish_reason(), stream.error()), ("length", ""))
            self.assertEqual(both.wait(), 0, both.log())
            both.expect_nothing_left()


class DifferencesTest(unittest.TestCase):
    def expect(self, result, *words):
        self.assertNotEqual(result.returncode, 0)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_too_few_gpus_on_a_host(self):
        both = on_two("run", "--device", "cuda", "hello", "-n", 4, mpi_options=["-x", "CUDA_VISIBLE_DEVICES=0"])
        self.expect(both, f"host {os.uname().nodename} has 1 GPUs, 2 are needed")

    def test_a_device_of_another_kind(self):
        command = [MINFER, "run", "hello", "-n", 4, "--device"]
        both = run([*MPIRUN, "-np", 1, *command, "cuda", ":", "-np", 1, *command, "cpu"])
        self.expect(both, "rank 1", "device is cpu, rank 0 has cuda")

    def test_several_gpus_a_process(self):
        self.expect(on_two("run", "--device", "cuda", "--tp", 4, "hello"), "--tensor-parallel-size: 4, expected 2",
                    "with one GPU")


class FaultsTest(unittest.TestCase):
    def test_a_rank_that_is_killed(self):
        for how in ("peer", "nccl"):
            with server("--all-reduce", how) as both:
                stream = both.stream(LONG)
                stream.wait_for_tokens()
                os.kill(both.ranks[1], signal.SIGKILL)
                expect_told(both, stream, "rank 1", "has gone")

    def test_a_rank_that_hangs(self):
        for how in ("peer", "nccl"):
            with server("--all-reduce", how, "--rank-timeout", 2) as both:
                stream = both.stream(LONG)
                stream.wait_for_tokens()
                os.kill(both.ranks[1], signal.SIGSTOP)
                expect_told(both, stream, "waited 2000 ms for", "rank 1")

    def test_the_first_rank_is_killed(self):
        with server() as both:
            stream = both.stream(LONG)
            stream.wait_for_tokens()
            os.kill(both.ranks[0], signal.SIGKILL)
            stream.end()
            self.assertNotEqual(both.wait(), 0)
            both.expect_nothing_left()


class EndTest(unittest.TestCase):
    def test_sigterm_to_the_first_rank_lets_streams_finish(self):
        for how in ("peer", "nccl", "auto"):
            with server("--all-reduce", how) as both:
                streams = [both.stream(200) for _ in range(4)]
                for stream in streams:
                    stream.wait_for_tokens()
                os.kill(both.ranks[0], signal.SIGTERM)
                for stream in streams:
                    stream.end()
                    self.assertEqual((stream.finish_reason(), stream.error()), ("length", ""))
                self.assertEqual(both.wait(), 0, both.log())
                both.expect_nothing_left()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minfer", type=Path, required=True)
    options, rest = parser.parse_known_args()
    MINFER = options.minfer.resolve()
    require_mpi(MINFER)
    gpus = run(["nvidia-smi", "--list-gpus"]).stdout.splitlines() if shutil.which("nvidia-smi") else []
    if len(gpus) < 2:
        skip(f"{len(gpus)} GPUs")
    unittest.main(argv=[__file__, *rest])
