#!/usr/bin/env python3
"""Writes a GGUF file of a Llama's shape with random BF16 weights: Llama-3.1-8B's (16 GB), to measure how long a real file takes to load, or
llama-272m's (0.5 GB), to measure beside others on a CPU.

    scripts/golden/make_large_gguf.py FILE [--shape llama-3.1-8b|llama-272m]

The vocabulary is made up: bytes and numbered words. Weights repeat one block of normal values, so that writing is as fast as the disk.
"""

import argparse
import math

import numpy as np

from gguf_writer import GgufWriter, TensorType

# hidden, FFN, heads, KV heads, vocabulary, layers, context, RoPE's base
SHAPES = {"llama-3.1-8b": (4096, 14336, 32, 8, 128256, 32, 131072, 5e5), "llama-272m": (1024, 2816, 16, 4, 8192, 24, 512, 1e4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.1-8b")
    args = parser.parse_args()
    hidden, ffn, heads, kv_heads, vocab, layers, context, rope_base = SHAPES[args.shape]
    kv = hidden // heads * kv_heads

    writer = GgufWriter()
    writer.add("general.architecture", "llama")
    writer.add_all("llama.", {
        "block_count": layers, "context_length": context, "embedding_length": hidden, "feed_forward_length": ffn, "attention.head_count": heads,
        "attention.head_count_kv": kv_heads, "rope.dimension_count": hidden // heads, "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": rope_base})
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    writer.add_all("tokenizer.ggml.", {
        "model": "llama", "tokens": tokens + [f"\u2581w{i}" for i in range(vocab - len(tokens))], "scores": [-float(i) for i in range(vocab)],
        "token_type": [2, 3, 3] + [6] * 256 + [1] * (vocab - 259),  # unknown, control, byte, normal
        "bos_token_id": 1, "eos_token_id": 2})

    tensors = {"token_embd": (vocab, hidden), "output_norm": (hidden,), "output": (vocab, hidden)}  # rows first
    layer = {"attn_norm": (hidden,), "attn_q": (hidden, hidden), "attn_k": (kv, hidden), "attn_v": (kv, hidden), "attn_output": (hidden, hidden),
             "ffn_norm": (hidden,), "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn)}
    tensors |= {f"blk.{number}.{name}": shape for number in range(layers) for name, shape in layer.items()}
    random = np.random.default_rng(1).normal(0.0, 0.02, 1 << 24).astype(np.float32)
    block = memoryview((random.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    for name, shape in tensors.items():
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(shape), TensorType.F32)
        else:
            whole, rest = divmod(2 * math.prod(shape), len(block))
            writer.add_pieces(f"{name}.weight", shape, TensorType.BF16, [block] * whole + [block[:rest]])
    writer.write(args.file)


if __name__ == "__main__":
    main()
