#!/usr/bin/env python3
"""Ranks in two processes that mpirun starts, each on a GPU: the same results as of one, and what happens when they fail.

    tests/server/mpi/mpi_gpus_test.py --minfer build/cuda/minfer

Skipped where there is no mpirun, or fewer than two GPUs. Without mpirun the tests of engine_cuda_tests run two processes.
"""

import os
import shutil
import signal
import unittest
from pathlib import Path

from mpi_support import (MPIRUN, Server, expect_end_with_first_rank, expect_refused, expect_same_text, expect_streams_to_finish,
                         expect_told_of_other_rank, minfer_and_rest, run, skip)

MINFER = Path()
MPIRUN = [*MPIRUN, "--bind-to", "none"]
# Each process sees a GPU of its own, and the second one another name of its host: NCCL and minfer take them for two hosts. As root.
TWO_HOSTS = [*MPIRUN, "-np", 2, "sh", "-c", """export CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_RANK
[ $OMPI_COMM_WORLD_RANK = 0 ] && exec "$@"
exec unshare --uts sh -c 'hostname host-b; exec "$@"' sh "$@"
""", "sh"]
MODEL = "synthetic:llama-3.2-1b:bf16"  # whose answers take long enough to be broken off
LONG = 8000
GREEDY = ["run", "--device", "cuda", "--dtype", "f32", "Once upon a time", "-n", 60, "--quiet"]


def on_two(*arguments, mpi_options: list = ()):
    return run([*MPIRUN, *mpi_options, "-np", 2, MINFER, *arguments])


def server(*options, launcher: list = None) -> Server:
    return Server(MINFER, ["--max-model-len", 16384, "--max-num-seqs", 8, *options], device="cuda", model=MODEL,
                  launcher=launcher or [*MPIRUN, "-np", 2])


def end_first_rank(both: Server) -> None:
    os.kill(both.ranks[0], signal.SIGTERM)


class ResultsTest(unittest.TestCase):
    def test_greedy_continuation_is_that_of_one_gpu(self):
        alone = run([MINFER, *GREEDY])
        for how in ("peer", "nccl", "auto"):
            for graphs in ([], ["--no-cuda-graphs"]):
                with self.subTest(how=how, graphs=graphs):
                    expect_same_text(on_two(*GREEDY, "--all-reduce", how, *graphs), alone)

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
        expect_same_text(run([*TWO_HOSTS, MINFER, *GREEDY]), run([MINFER, *GREEDY]), "rank 1 (host host-b")

    @needs_host_names
    def test_memory_of_another_host_cannot_be_asked_for(self):
        command = [MINFER, "run", "--device", "cuda", "--all-reduce", "peer", "hello", "-n", 4]
        expect_refused(run([*TWO_HOSTS, *command]), "the ranks are on several hosts")

    @needs_host_names
    def test_a_rank_that_is_killed(self):
        expect_told_of_other_rank(server(launcher=TWO_HOSTS), LONG, signal.SIGKILL, "rank 1 (host host-b", "has gone")

    @needs_host_names
    def test_sigterm_to_the_first_rank_lets_streams_finish(self):
        expect_streams_to_finish(server(launcher=TWO_HOSTS), 200, end_first_rank, count=1)


class DifferencesTest(unittest.TestCase):
    def test_too_few_gpus_on_a_host(self):
        both = on_two("run", "--device", "cuda", "hello", "-n", 4, mpi_options=["-x", "CUDA_VISIBLE_DEVICES=0"])
        expect_refused(both, f"host {os.uname().nodename} has 1 GPUs, 2 are needed")

    def test_a_device_of_another_kind(self):
        command = [MINFER, "run", "hello", "-n", 4, "--device"]
        both = run([*MPIRUN, "-np", 1, *command, "cuda", ":", "-np", 1, *command, "cpu"])
        expect_refused(both, "rank 1", "device is cpu, rank 0 has cuda")

    def test_several_gpus_a_process(self):
        expect_refused(on_two("run", "--device", "cuda", "--tp", 4, "hello"), "--tensor-parallel-size: 4, expected 2",
                       "with one GPU")


class FaultsTest(unittest.TestCase):
    def test_a_rank_that_is_killed(self):
        for how in ("peer", "nccl"):
            with self.subTest(how=how):
                expect_told_of_other_rank(server("--all-reduce", how), LONG, signal.SIGKILL, "rank 1", "has gone")

    def test_a_rank_that_hangs(self):
        for how in ("peer", "nccl"):
            with self.subTest(how=how):
                both = server("--all-reduce", how, "--rank-timeout", 2)
                expect_told_of_other_rank(both, LONG, signal.SIGSTOP, "waited 2000 ms for", "rank 1")

    def test_the_first_rank_is_killed(self):
        expect_end_with_first_rank(server(), LONG)


class EndTest(unittest.TestCase):
    def test_sigterm_to_the_first_rank_lets_streams_finish(self):
        for how in ("peer", "nccl", "auto"):
            with self.subTest(how=how):
                expect_streams_to_finish(server("--all-reduce", how), 200, end_first_rank)


if __name__ == "__main__":
    MINFER, rest = minfer_and_rest(__doc__)
    gpus = run(["nvidia-smi", "--list-gpus"]).stdout.splitlines() if shutil.which("nvidia-smi") else []
    if len(gpus) < 2:
        skip(f"{len(gpus)} GPUs")
    unittest.main(argv=[__file__, *rest])
