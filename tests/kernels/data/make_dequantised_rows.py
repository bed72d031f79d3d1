"""Writes dequantised_rows.bin: rows of random blocks of every GGUF type and their values as the `gguf` package of the
llama.cpp project (PyPI, 0.19.0) dequantises them.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 && venv/bin/python make_dequantised_rows.py

A record is uint32 ggml type, uint32 elements, the row's bytes, float32 values[elements]; little-endian.
"""

import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

# Byte offsets of the half-precision numbers of a block, which random bytes would make NaN.
HALVES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.F16: [0], Type.BF16: [0], Type.F32: [], Type.MXFP4: [],
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
    for offset in HALVES[dtype]:
        scales = rng.choice(SCALES, len(blocks))
        if dtype == Type.BF16:
            scales = (rng.standard_normal(len(blocks)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        blocks[:, offset:offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def main():
    rng = np.random.default_rng(20)
    with open(pathlib.Path(__file__).parent / "dequantised_rows.bin", "wb") as out:
        for dtype in HALVES:
            row = random_row(rng, dtype)
            values = dequantize(row, dtype).astype(np.float32)
            assert values.size == ELEMENTS and np.isfinite(values).all()
            out.write(np.array([dtype, ELEMENTS], np.uint32).tobytes() + row.tobytes() + values.tobytes())


main()
