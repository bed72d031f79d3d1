#!/usr/bin/env python3
"""scripts/bench/product_figures.py on a results file of a few lines."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/bench/product_figures.py"

RESULTS = """\
{"date": "2026-11-23T10:00:00+00:00", "commit": "0123456789ab", "name": "NVIDIA H200"}
{"command": "minfer bench", "n_prompt": 0, "median_ts": 246.0}
{"command": "cuda_product_benchmark", "shape": "qkv", "type": "bf16", "rows": 6144, "cols": 4096, "tokens": 1, "path": "bf16_strip", \
"floor_us": 11.1, "read_gbps": 4530.0, "tflops": 833.0, "repeats": 15, "own_us": 99.0, "own_us_lowest": 98.0, "own_us_highest": 100.0, \
"read_us": 13.0, "cublaslt_us": 20.0}
{"command": "cuda_product_benchmark", "shape": "qkv", "type": "bf16", "rows": 6144, "cols": 4096, "tokens": 1, "path": "bf16_strip", \
"floor_us": 11.1, "read_gbps": 4530.0, "tflops": 833.0, "repeats": 15, "own_us": 16.0, "own_us_lowest": 15.5, "own_us_highest": 17.25, \
"read_us": 12.0, "cublaslt_us": 32.0}
{"command": "cuda_product_benchmark", "shape": "down", "type": "bf16", "rows": 4096, "cols": 14336, "tokens": 64, "path": "stream_product", \
"floor_us": 26.5, "read_gbps": 4530.0, "tflops": 833.0, "repeats": 15, "own_us": 40.0, "own_us_lowest": 39.0, "own_us_highest": 41.0, \
"read_us": 30.0, "cublaslt_us": 20.0}
{"command": "cuda_product_benchmark", "shape": "down", "type": "bf16", "rows": 4096, "cols": 14336, "tokens": 2048, "path": "cublasLt", \
"floor_us": 290.0, "read_gbps": 4530.0, "tflops": 833.0, "repeats": 15, "own_us": 310.0, "own_us_lowest": 309.0, "own_us_highest": 312.0, \
"read_us": 30.0, "cublaslt_us": 31.0}
{"command": "cuda_product_benchmark", "shape": "qkv", "type": "q4_k", "rows": 6144, "cols": 4096, "tokens": 8, "path": "tile_strip", \
"floor_us": 3.2, "read_gbps": 4530.0, "tflops": 833.0, "repeats": 15, "own_us": 10.0, "own_us_lowest": 9.5, "own_us_highest": 11.0, \
"read_us": 7.0}
"""


def report(results: str) -> subprocess.CompletedProcess:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(results)
        file.flush()
        return subprocess.run([sys.executable, str(SCRIPT), file.name], capture_output=True, text=True)


class ProductFigures(unittest.TestCase):
    def test_a_table_for_each_type(self):
        text = report(RESULTS).stdout
        self.assertIn("Read 4,530 GB/s, products 833 TFLOP/s", text)
        self.assertLess(text.index("### bf16"), text.index("### q4_k"))
        self.assertIn("| qkv 6,144 x 4,096 | 1 | 16.0 | 15.5 to 17.2 | bf16_strip | 32.0 | 0.50 | 12.0 | 0.75 | 11.1 | 0.69 |", text)
        self.assertIn("| qkv 6,144 x 4,096 | 8 | 10.0 | 9.5 to 11.0 | tile_strip |  |  | 7.0 | 0.70 | 3.2 | 0.32 |", text)
        self.assertNotIn("99.0", text)  # measured again behind it

    def test_means_are_of_the_tokens_of_steps(self):
        text = report(RESULTS).stdout
        # sqrt(0.5 * 2); the 2,048 tokens are not among them.
        self.assertIn("bf16, 1 to 256 tokens: 1.000 of cuBLASLt's time (geometric mean of 2, 0.50 to 2.00)", text)
        self.assertIn("bf16, 1 to 16 tokens: a read of the weights takes 0.75 of the time or more (least: qkv, 1 tokens)", text)
        self.assertIn("q4_k, 1 to 16 tokens: a read of the weights takes 0.70 of the time or more (least: qkv, 8 tokens)", text)

    def test_a_file_without_products_is_refused(self):
        outcome = report(RESULTS.splitlines()[0] + "\n")
        self.assertNotEqual(outcome.returncode, 0)
        self.assertIn("no lines of cuda_product_benchmark", outcome.stderr)


if __name__ == "__main__":
    unittest.main()
