#!/usr/bin/env python3
"""Writes a GGUF file of a Llama's shape with random BF16 weights: Llama-3.1-8B's (16 GB), to measure how long a real file takes to load, or
llama-272m's (0.5 GB), to measure beside others on a CPU.

    scripts/golden/make_large_gguf.py FILE [--shape llama-3.1-8b|llama-272m] [--layers N]

The vocabulary is made up: bytes and numbered words. Weights repeat one block of normal values, so that writing is as fast as the disk.
"""

import argparse
import dataclasses
from typing import Iterator

import numpy as np

from gguf_writer import GgufWriter, TensorType, ValueType


@dataclasses.dataclass
class Shape:
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    layers: int
    context: int
    rope_base: float


SHAPES = {"llama-3.1-8b": Shape(4096, 14336, 32, 8, 128256, 32, 131072, 5e5),
          "llama-272m": Shape(1024, 2816, 16, 4, 8192, 24, 512, 1e4)}


def add_metadata(writer: GgufWriter, shape: Shape) -> None:
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += [f"\u2581w{i}" for i in range(shape.vocab - len(tokens))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (shape.vocab - 259)  # unknown, control, byte, normal
    numbers = {"block_count": shape.layers, "context_length": shape.context, "embedding_length": shape.hidden,
               "feed_forward_length": shape.ffn, "attention.head_count": shape.heads,
               "attention.head_count_kv": shape.kv_heads, "rope.dimension_count": shape.hidden // shape.heads}
    writer.add("general.architecture", "llama")
    for key, value in numbers.items():
        writer.add(f"llama.{key}", value, ValueType.UINT32)
    writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add("llama.rope.freq_base", shape.rope_base)
    writer.add("tokenizer.ggml.model", "llama")
    writer.add("tokenizer.ggml.tokens", tokens)
    writer.add("tokenizer.ggml.scores", [-float(i) for i in range(shape.vocab)])
    writer.add("tokenizer.ggml.token_type", kinds, ValueType.INT32)
    writer.add("tokenizer.ggml.bos_token_id", 1, ValueType.UINT32)
    writer.add("tokenizer.ggml.eos_token_id", 2, ValueType.UINT32)


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape, rows first."""
    hidden, ffn, kv = shape.hidden, shape.ffn, shape.hidden // shape.heads * shape.kv_heads
    yield from (("token_embd", (shape.vocab, hidden)), ("output_norm", (hidden,)), ("output", (shape.vocab, hidden)))
    for layer in range(shape.layers):
        yield from ((f"blk.{layer}.{name}", sizes) for name, sizes in (
            ("attn_norm", (hidden,)), ("attn_q", (hidden, hidden)), ("attn_k", (kv, hidden)), ("attn_v", (kv, hidden)),
            ("attn_output", (hidden, hidden)), ("ffn_norm", (hidden,)), ("ffn_gate", (ffn, hidden)),
            ("ffn_up", (ffn, hidden)), ("ffn_down", (hidden, ffn))))


def repeated(block: memoryview, size: int) -> Iterator[memoryview]:
    for first in range(0, size, len(block)):
        yield block[: min(len(block), size - first)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.1-8b")
    parser.add_argument("--layers", type=int, help="other than the shape's")
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    if args.layers:
        shape = dataclasses.replace(shape, layers=args.layers)
    writer = GgufWriter()
    add_metadata(writer, shape)
    random = np.random.default_rng(1).normal(0.0, 0.02, 1 << 24).astype(np.float32)
    weights = memoryview((random.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    for name, sizes in tensors(shape):
        if len(sizes) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(sizes), TensorType.F32)
        else:
            size = 2 * sizes[0] * sizes[1]
            writer.add_pieces(f"{name}.weight", sizes, TensorType.BF16, size, repeated(weights, size))
    writer.write(args.file)


if __name__ == "__main__":
    main()
