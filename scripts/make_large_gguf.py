#!/usr/bin/env python3
"""Writes a GGUF file of Llama-3.1-8B's shape with random BF16 weights (16 GB), to measure how long a real file takes to load.

    scripts/make_large_gguf.py FILE [--layers N]

The vocabulary is made up: bytes and numbered words. Weights repeat one block of normal values, so that writing is as fast as the disk.
"""

import argparse
import struct

import numpy as np

ALIGNMENT = 32
BF16, F32 = 30, 0
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5
HIDDEN, FFN, HEADS, KV_HEADS, VOCAB = 4096, 14336, 32, 8, 128256


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, items: list[bytes]) -> bytes:
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def metadata(layers: int) -> list[bytes]:
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += [f"\u2581w{i}" for i in range(VOCAB - len(tokens))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259)  # unknown, control, byte, normal
    numbers = {"block_count": layers, "context_length": 131072, "embedding_length": HIDDEN, "feed_forward_length": FFN,
               "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "rope.dimension_count": HIDDEN // HEADS}
    return [
        entry("general.architecture", STRING, text("llama")),
        *(entry(f"llama.{key}", UINT32, struct.pack("<I", value)) for key, value in numbers.items()),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, struct.pack("<f", 1e-5)),
        entry("llama.rope.freq_base", FLOAT32, struct.pack("<f", 500000.0)),
        entry("tokenizer.ggml.model", STRING, text("llama")),
        entry("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(token) for token in tokens])),
        entry("tokenizer.ggml.scores", ARRAY, array(FLOAT32, [struct.pack("<f", -float(i)) for i in range(VOCAB)])),
        entry("tokenizer.ggml.token_type", ARRAY, array(INT32, [struct.pack("<i", kind) for kind in kinds])),
        entry("tokenizer.ggml.bos_token_id", UINT32, struct.pack("<I", 1)),
        entry("tokenizer.ggml.eos_token_id", UINT32, struct.pack("<I", 2)),
    ]


def tensors(layers: int) -> list[tuple[str, tuple[int, ...], int]]:
    """Name, shape with the contiguous dimension first as GGUF has it, type."""
    kv = HIDDEN // HEADS * KV_HEADS
    found = [("token_embd.weight", (HIDDEN, VOCAB), BF16), ("output_norm.weight", (HIDDEN,), F32),
             ("output.weight", (HIDDEN, VOCAB), BF16)]
    for layer in range(layers):
        found += [(f"blk.{layer}.{name}.weight", shape, F32 if len(shape) == 1 else BF16) for name, shape in (
            ("attn_norm", (HIDDEN,)), ("attn_q", (HIDDEN, HIDDEN)), ("attn_k", (HIDDEN, kv)), ("attn_v", (HIDDEN, kv)),
            ("attn_output", (HIDDEN, HIDDEN)), ("ffn_norm", (HIDDEN,)), ("ffn_gate", (HIDDEN, FFN)),
            ("ffn_up", (HIDDEN, FFN)), ("ffn_down", (FFN, HIDDEN)))]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, default=32)
    args = parser.parse_args()
    entries = metadata(args.layers)
    described, sizes, offset = [], [], 0
    for name, shape, kind in tensors(args.layers):
        size = int(np.prod(shape)) * (2 if kind == BF16 else 4)
        described.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
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
