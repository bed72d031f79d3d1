"""Writes dequantised_rows.bin: rows of random blocks of every GGUF type and their values as the `gguf` package of the
llama.cpp project (PyPI, 0.19.0) dequantises them.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 && venv/bin/python make_dequantised_rows.py

A record is uint32 ggml type, uint32 elements, the row's bytes, float32 values[elements]; little-endian. Prints the checksums of grids
that tests/kernels/quant_grids_test.cpp compares.
"""

import pathlib
import zlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf import quants
from gguf.quants import dequantize

# Byte offsets of the half-precision numbers of a block, which random bytes would make NaN.
HALVES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.F16: [0], Type.BF16: [0], Type.F32: [], Type.MXFP4: [],
    Type.TQ1_0: [52], Type.TQ2_0: [64], Type.IQ2_XXS: [0], Type.IQ2_XS: [0], Type.IQ2_S: [0], Type.IQ3_XXS: [0],
    Type.IQ3_S: [0], Type.IQ1_S: [0], Type.IQ1_M: [],
}
ELEMENTS = 512
# From the smallest denormal to large, both signs: scale * element must stay exact over the whole range.
SCALES = np.array([2.0**-24, -(2.0**-15), 0.01234, -0.777, 1.0, 31.97, -1023.5, 60000.0, 0.0, 6.1e-5], np.float16)


def random_row(rng, dtype):
    block_elements, block_bytes = GGML_QUANT_SIZES[dtype]
    blocks = rng.integers(0, 256, (ELEMENTS // block_elements, block_bytes), np.uint8)
    if dtype == Type.F32:
        return rng.standard_normal(ELEMENTS).astype(np.float32).view(np.uint8)
    if dtype == Type.MXFP4:  # from the smallest power of two to one whose largest number f32 still has
        blocks[:, 0] = rng.choice(np.array([0, 1, 2, 100, 120, 127, 135, 252], np.uint8), len(blocks))
    if dtype == Type.IQ1_M:  # four bits in each of the last four words
        halves = rng.choice(SCALES, len(blocks)).view(np.uint16)
        for i in range(4):
            high = (halves >> (4 * i) & 15).astype(np.uint8)
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | high << 4
    for offset in HALVES[dtype]:
        scales = rng.choice(SCALES, len(blocks))
        if dtype == Type.BF16:
            scales = (rng.standard_normal(len(blocks)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        blocks[:, offset:offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def print_grid_checksums():
    for name in "IQ2_XXS IQ2_XS IQ2_S IQ1_S IQ3_XXS IQ3_S".split():
        kind = getattr(quants, name)
        kind.init_grid()
        digits = np.searchsorted(np.array(kind.grid_map), kind.grid[0, 0]).astype(np.uint8)
        print(f"{name} {zlib.crc32(digits.tobytes()):#010x}")


def main():
    print_grid_checksums()
    rng = np.random.default_rng(20)
    with open(pathlib.Path(__file__).parent / "dequantised_rows.bin", "wb") as out:
        for dtype in HALVES:
            row = random_row(rng, dtype)
            values = dequantize(row, dtype).astype(np.float32)
            assert values.size == ELEMENTS and np.isfinite(values).all()
            out.write(np.array([dtype, ELEMENTS], np.uint32).tobytes() + row.tobytes() + values.tobytes())


main()
