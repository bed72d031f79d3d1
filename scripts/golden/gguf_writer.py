"""Writes GGUF version 3 files: metadata, and tensors in F32, BF16, Q8_0 and I64.

A file is: header, metadata, tensor descriptions, padding, tensor data. All numbers are little-endian, each tensor starts at a
multiple of `general.alignment` (32 here) from the start of the data section. Numbers are rounded as ggml's reference code does,
so a tensor quantised here is bit-identical to one quantised there.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

    writer = GgufWriter()
    writer.add("general.architecture", "llama")
    writer.add_all("llama.", {"block_count": 6, "embedding_length": 256})
    writer.add_tensor("token_embd.weight", embedding, TensorType.Q8_0)
    writer.write("model.gguf")
"""

import enum
import struct

import numpy as np

ALIGNMENT = 32
Q8_0_BLOCK = 32  # values a block; one block is a float16 scale and 32 int8


class TensorType(enum.IntEnum):
    """Tensor types this writer can produce, numbered as in the file."""

    F32 = 0
    Q8_0 = 8
    I64 = 27
    BF16 = 30


# Kinds of metadata values: number in the file, struct's letter.
ARRAY, STRING = 9, 8
SCALARS = {int: (4, "I"), float: (6, "f"), bool: (7, "?")}
ELEMENTS = {**SCALARS, int: (5, "i")}


def quantize_q8_0(values: np.ndarray) -> np.ndarray:
    """Blocks of Q8_0: finite values [..., 32 n] -> uint8 [..., 34 n].

    Per block: d = max|x| / 127, q = round(x * (1 / d)) with halves away from zero; d is stored as float16. The quotient uses d
    before it is rounded to float16, as ggml does.
    """
    blocks = np.ascontiguousarray(values, np.float32).reshape(-1, Q8_0_BLOCK)
    scale = np.abs(blocks).max(axis=1) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = (blocks * inverse[:, None]).astype(np.float64)  # in double, adding 0.5 is exact
    quants = (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int8)
    packed = np.concatenate([scale.astype("<f2")[:, None].view(np.uint8), quants.view(np.uint8)], axis=1)
    return packed.reshape(*values.shape[:-1], -1)


def dequantize_q8_0(packed: np.ndarray) -> np.ndarray:
    """Values of Q8_0 blocks: uint8 [..., 34 n] -> float32 [..., 32 n]."""
    blocks = packed.reshape(-1, 2 + Q8_0_BLOCK)
    scale = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    return (blocks[:, 2:].view(np.int8) * scale).reshape(*packed.shape[:-1], -1)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


class GgufWriter:
    """Collects metadata and tensors, then writes one file. Order is the order of adding."""

    def __init__(self) -> None:
        self._metadata: list[bytes] = []
        self._tensors = []  # name, shape in numpy's order, type, pieces

    def add(self, key: str, value) -> None:
        """Adds a metadata entry: bool, str, float (as F32), int (as UINT32), or a list that is not empty of one of these (int as INT32)."""
        is_list = isinstance(value, list)
        values = value if is_list else [value]
        if isinstance(values[0], str):
            kind, packed = STRING, b"".join(map(_string, values))
        else:
            kind, letter = (ELEMENTS if is_list else SCALARS)[type(values[0])]
            packed = struct.pack(f"<{len(values)}{letter}", *values)
        head = struct.pack("<IIQ", ARRAY, kind, len(values)) if is_list else struct.pack("<I", kind)
        self._metadata.append(_string(key) + head + packed)

    def add_all(self, prefix: str, values: dict) -> None:
        for key, value in values.items():
            self.add(prefix + key, value)

    def add_tensor(self, name: str, values: np.ndarray, kind: TensorType) -> None:
        """Adds a tensor as F32 or Q8_0. `values` has 1 to 4 dimensions in numpy order: a matrix is [rows, columns]."""
        data = quantize_q8_0(values) if kind == TensorType.Q8_0 else values.astype("<f4")
        self.add_pieces(name, values.shape, kind, [data.tobytes()])

    def add_pieces(self, name: str, shape, kind: TensorType, pieces: list) -> None:
        """Adds a tensor whose bytes are written one piece after the other. The same piece may stand in it more than once."""
        self._tensors.append((name, shape, kind, pieces))

    def write(self, path) -> int:
        """Writes the file and returns its size in bytes."""
        with open(path, "wb") as out:
            out.write(b"GGUF" + struct.pack("<IQQ", 3, len(self._tensors), len(self._metadata)))
            out.writelines(self._metadata)
            offset = 0
            for name, shape, kind, pieces in self._tensors:
                out.write(_string(name))
                # The file names the fastest dimension first.
                out.write(struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset))
                size = sum(map(len, pieces))
                offset += size + -size % ALIGNMENT
            out.write(bytes(-out.tell() % ALIGNMENT))
            for *_, pieces in self._tensors:
                out.writelines(pieces)
                out.write(bytes(-out.tell() % ALIGNMENT))  # also after the last one: readers may size the data section from the padded tensors
            return out.tell()
