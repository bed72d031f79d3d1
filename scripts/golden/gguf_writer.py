"""Writes GGUF version 3 files: metadata of every value kind, tensors in F32, F16, BF16 and Q8_0.

A file is: header, metadata, tensor descriptions, padding, tensor data. All numbers are little-endian, each tensor starts at a
multiple of `general.alignment` (32 here) from the start of the data section. Numbers are rounded as ggml's reference code does,
so a tensor quantised here is bit-identical to one quantised there.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

    writer = GgufWriter()
    writer.add("general.architecture", "llama")
    writer.add("llama.block_count", 6, ValueType.UINT32)
    writer.add_tensor("token_embd.weight", embedding, TensorType.Q8_0)
    writer.write("model.gguf")
"""

from __future__ import annotations

import enum
import os
import struct
from pathlib import Path
from typing import BinaryIO, Iterable, NamedTuple, Sequence, Union

import numpy as np

MAGIC = b"GGUF"
VERSION = 3
ALIGNMENT = 32
Q8_0_BLOCK = 32  # values a block; one block is a float16 scale and 32 int8

Scalar = Union[int, float, bool, str]
Value = Union[Scalar, Sequence[Scalar]]


class ValueType(enum.IntEnum):
    """Kinds of metadata values, numbered as in the file."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


class TensorType(enum.IntEnum):
    """Tensor types this writer can produce, numbered as in the file."""

    F32 = 0
    F16 = 1
    Q8_0 = 8
    BF16 = 30


_STRUCT_CODES = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}


class _Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]  # numpy order, rows last; the file stores it reversed
    type: TensorType
    size: int  # bytes
    pieces: Iterable[bytes]


def quantize_q8_0(values: np.ndarray) -> np.ndarray:
    """Blocks of Q8_0: values [..., 32 n] -> uint8 [..., 34 n].

    Per block: d = max|x| / 127, q = round(x * (1 / d)) with halves away from zero; d is stored as float16. The quotient uses d
    before it is rounded to float16, as ggml does.
    """
    x = _float_rows(values)
    blocks = x.reshape(-1, Q8_0_BLOCK)
    scale = np.abs(blocks).max(axis=1) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = (blocks * inverse[:, None]).astype(np.float64)  # in double, adding 0.5 is exact
    quants = (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int8)
    packed = np.empty((blocks.shape[0], 2 + Q8_0_BLOCK), np.uint8)
    packed[:, :2] = scale.astype("<f2").view(np.uint8).reshape(-1, 2)
    packed[:, 2:] = quants.view(np.uint8)
    return packed.reshape(*x.shape[:-1], -1)


def dequantize_q8_0(packed: np.ndarray) -> np.ndarray:
    """Values of Q8_0 blocks: uint8 [..., 34 n] -> float32 [..., 32 n]."""
    blocks = packed.reshape(-1, 2 + Q8_0_BLOCK)
    scale = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    quants = np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)
    return (quants * scale).reshape(*packed.shape[:-1], -1)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Upper halves of float32 values, rounded to nearest even: uint16 of the same shape. A NaN stays a (quiet) NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, (bits >> 16) | 0x40, rounded).astype("<u2")


def _float_rows(values: np.ndarray) -> np.ndarray:
    x = np.ascontiguousarray(values, np.float32)
    if x.ndim == 0 or x.shape[-1] % Q8_0_BLOCK != 0:
        raise ValueError(f"Q8_0 needs rows of a multiple of {Q8_0_BLOCK} values, found shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError("Q8_0 cannot hold NaN or infinity")
    return x


def _tensor_bytes(values: np.ndarray, kind: TensorType) -> bytes:
    if kind == TensorType.F32:
        return np.ascontiguousarray(values, "<f4").tobytes()
    if kind == TensorType.F16:
        return np.ascontiguousarray(values, "<f2").tobytes()
    if kind == TensorType.BF16:
        return to_bf16(values).tobytes()
    if kind == TensorType.Q8_0:
        return quantize_q8_0(values).tobytes()
    raise ValueError(f"tensor type {kind!r} is not one this writer produces")


def _pack_string(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def _pack_scalar(value: Scalar, kind: ValueType) -> bytes:
    if kind == ValueType.STRING:
        return _pack_string(str(value))
    return struct.pack("<" + _STRUCT_CODES[kind], value)


def _infer_type(value: Scalar) -> ValueType:
    """The kind of a Python value; integers have no natural width and need an explicit kind."""
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, str):
        return ValueType.STRING
    if isinstance(value, float):
        return ValueType.FLOAT32
    raise TypeError(f"the value kind of {value!r} must be given")


class GgufWriter:
    """Collects metadata and tensors, then writes one file. Keys and tensor names are unique; order is the order of adding."""

    def __init__(self) -> None:
        self._metadata: dict[str, bytes] = {}
        self._tensors: dict[str, _Tensor] = {}

    def add(self, key: str, value: Value, kind: ValueType | None = None) -> None:
        """Adds a metadata entry. `kind` is the kind of the value, for a list that of its elements; inferred for bool, str, float.

        Raises ValueError for a key already present, TypeError where the kind is missing, struct.error where the value is out
        of the kind's range.
        """
        if key in self._metadata:
            raise ValueError(f"metadata key {key} added twice")
        if isinstance(value, (list, tuple)):
            if kind is None and not value:
                raise TypeError(f"metadata key {key}: the element kind of an empty list must be given")
            element = kind if kind is not None else _infer_type(value[0])
            head = struct.pack("<IIQ", ValueType.ARRAY, element, len(value))
            self._metadata[key] = head + b"".join(_pack_scalar(v, element) for v in value)
        else:
            scalar = kind if kind is not None else _infer_type(value)
            self._metadata[key] = struct.pack("<I", scalar) + _pack_scalar(value, scalar)

    def add_tensor(self, name: str, values: np.ndarray, kind: TensorType) -> None:
        """Adds a tensor, converted to `kind`. `values` has 1 to 4 dimensions in numpy order: a matrix is [rows, columns]."""
        data = _tensor_bytes(values, kind)
        self.add_pieces(name, values.shape, kind, len(data), [data])

    def add_pieces(self, name: str, shape: Sequence[int], kind: TensorType, size: int, pieces: Iterable[bytes]) -> None:
        """Adds a tensor of `size` bytes that are taken piece by piece when the file is written."""
        if name in self._tensors:
            raise ValueError(f"tensor {name} added twice")
        if not 1 <= len(shape) <= 4:
            raise ValueError(f"tensor {name}: {len(shape)} dimensions, expected 1 to 4")
        self._tensors[name] = _Tensor(name, tuple(shape), kind, size, pieces)

    def write(self, path: str | Path) -> int:
        """Writes the file and returns its size in bytes. A file of that name is replaced only once the new one is whole."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        with open(partial, "wb") as out:
            self._write_header(out)
            for tensor in self._tensors.values():
                out.writelines(tensor.pieces)
                _pad(out)  # also after the last one: readers may size the data section from the padded tensors
            size = out.tell()
        os.replace(partial, path)
        return size

    def _write_header(self, out: BinaryIO) -> None:
        out.write(MAGIC + struct.pack("<IQQ", VERSION, len(self._tensors), len(self._metadata)))
        for key, packed in self._metadata.items():
            out.write(_pack_string(key) + packed)
        offset = 0
        for tensor in self._tensors.values():
            dimensions = tuple(reversed(tensor.shape))  # the file names the fastest dimension first
            out.write(_pack_string(tensor.name))
            out.write(struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, tensor.type, offset))
            offset += -(-tensor.size // ALIGNMENT) * ALIGNMENT
        _pad(out)


def _pad(out: BinaryIO) -> None:
    out.write(b"\0" * (-out.tell() % ALIGNMENT))
