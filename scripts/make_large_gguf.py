#!/usr/bin/env python3
"""Writes a GGUF file of a Llama's shape with random BF16 weights: Llama-3.1-8B's (16 GB), to measure how long a real file takes to load, or
llama-272m's (0.5 GB), to measure beside others on a CPU.

    scripts/make_large_gguf.py FILE [--shape llama-3.1-8b|llama-272m] [--layers N]

The vocabulary is made up: bytes and numbered words. Weights repeat one block of normal values, so that writing is as fast as the disk.
"""

import argparse
import dataclasses
import struct

import numpy as np

ALIGNMENT = 32
BF16, F32 = 30, 0
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5


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


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, items: list[bytes]) -> bytes:
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def metadata(shape: Shape) -> list[bytes]:
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += [f"\u2581w{i}" for i in range(shape.vocab - len(tokens))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (shape.vocab - 259)  # unknown, control, byte, normal
    numbers = {"block_count": shape.layers, "context_length": shape.context, "embedding_length": shape.hidden,
               "feed_forward_length": shape.ffn, "attention.head_count": shape.heads,
               "attention.head_count_kv": shape.kv_heads, "rope.dimension_count": shape.hidden // shape.heads}
    return [
        entry("general.architecture", STRING, text("llama")),
        *(entry(f"llama.{key}", UINT32, struct.pack("<I", value)) for key, value in numbers.items()),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, struct.pack("<f", 1e-5)),
        entry("llama.rope.freq_base", FLOAT32, struct.pack("<f", shape.rope_base)),
        entry("tokenizer.ggml.model", STRING, text("llama")),
        entry("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(token) for token in tokens])),
        entry("tokenizer.ggml.scores", ARRAY, array(FLOAT32, [struct.pack("<f", -float(i)) for i in range(shape.vocab)])),
        entry("tokenizer.ggml.token_type", ARRAY, array(INT32, [struct.pack("<i", kind) for kind in kinds])),
        entry("tokenizer.ggml.bos_token_id", UINT32, struct.pack("<I", 1)),
        entry("tokenizer.ggml.eos_token_id", UINT32, struct.pack("<I", 2)),
    ]


def tensors(shape: Shape) -> list[tuple[str, tuple[int, ...], int]]:
    """Name, shape with the contiguous dimension first as GGUF has it, type."""
    hidden, ffn, kv = shape.hidden, shape.ffn, shape.hidden // shape.heads * shape.kv_heads
    found = [("token_embd.weight", (hidden, shape.vocab), BF16), ("output_norm.weight", (hidden,), F32),
             ("output.weight", (hidden, shape.vocab), BF16)]
    for layer in range(shape.layers):
        found += [(f"blk.{layer}.{name}.weight", sizes, F32 if len(sizes) == 1 else BF16) for name, sizes in (
            ("attn_norm", (hidden,)), ("attn_q", (hidden, hidden)), ("attn_k", (hidden, kv)), ("attn_v", (hidden, kv)),
            ("attn_output", (hidden, hidden)), ("ffn_norm", (hidden,)), ("ffn_gate", (hidden, ffn)),
            ("ffn_up", (hidden, ffn)), ("ffn_down", (ffn, hidden)))]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.1-8b")
    parser.add_argument("--layers", type=int, help="other than the shape's")
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    if args.layers:
        shape = dataclasses.replace(shape, layers=args.layers)
    entries = metadata(shape)
    described, sizes, offset = [], [], 0
    for name, extents, kind in tensors(shape):
        size = int(np.prod(extents)) * (2 if kind == BF16 else 4)
        described.append(text(name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, kind, offset))
        sizes.append((size, kind))
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(described), len(entries)) + b"".join(entries) + b"".join(described)
    random = np.random.default_rng(1).normal(0.0, 0.02, 1 << 24).astype(np.float32)
    weights = memoryview((random.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    with open(args.file, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for size, kind in sizes:
            if kind == F32:
                file.write(np.ones(size // 4, np.float32).tobytes())
            else:
                for first in range(0, size, len(weights)):
                    file.write(weights[: min(len(weights), size - first)])
            file.write(bytes(-size % ALIGNMENT))


if __name__ == "__main__":
    main()
