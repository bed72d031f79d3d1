#!/usr/bin/env python3
"""Writes tests/golden/heads: EAGLE-3 heads (Li et al. 2025, arXiv:2503.01840) for models of tests/golden. eagle3-TARGET.gguf is in the format
of llama.cpp's converter; eagle3-TARGET.drafts has the logits of drafts in float64: float32 [tokens + 1, VOCAB], little-endian, -inf for tokens that the
head does not draft. Row p is the draft behind token p of TARGET.logits; the last row is a second draft at the last token, behind the head's
own state of the token in front. Row 0 means nothing: no head drafts behind the first token.

The reference is written here, since transformers has no such model. eagle3.json has the distance of other readings of the format (controls).
"""

import argparse
import json
import math
import pathlib
from typing import NamedTuple

import numpy as np
import torch

from gguf_writer import GgufWriter, TensorType
from make_golden_models import BASE_CONFIG, CASES, NMSE_TOLERANCE, VOCAB, add_tokenizer, draw_case, interleave_heads, nmse, rounded


class Head(NamedTuple):
    """A head, and the model that it drafts for."""

    target: str  # of CASES
    covers: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: tuple  # of the target, whose inputs it takes; the number of the target's layers: the output of the last one
    drafted: int = 0  # tokens that it drafts; 0: all, by the target's output
    ffn: int = 40
    rope_theta: float = 10000.0
    rope_factors: bool = False
    norms_features: bool = False
    norms_residual: bool = False
    own_embedding: bool = False


HEADS = [
    Head("mistral", "a head of other sizes than its model, which drafts a third of the tokens", hidden=48, heads=3, kv_heads=1, head_dim=32,
         layers=(0, 1, 2), drafted=96, rope_theta=500.0, rope_factors=True, own_embedding=True),
    Head("gemma3", "embedding and output of the model, which has windows; norms of the features and in front of the residual", hidden=32, heads=4,
         kv_heads=2, head_dim=16, layers=(2, 3, 4), norms_features=True, norms_residual=True),
]
EPS = 1e-5


def draw(head, target_hidden, rng):
    """Tensors by their names in checkpoints. q and k are large enough for attention to choose."""
    def matrix(rows, cols, gain=1.0):
        return np.float32(gain / math.sqrt(cols)) * rng.standard_normal((rows, cols), dtype=np.float32)

    def norm(size):
        return np.float32(1.0) + np.float32(0.1) * rng.standard_normal(size, dtype=np.float32)

    size = head.hidden
    weights = {
        "fc": matrix(size, 3 * target_hidden), "input_norm": norm(3 * target_hidden), "hidden_norm": norm(size), "input_layernorm": norm(size),
        "post_attention_layernorm": norm(size), "norm": norm(size), "q_proj": matrix(head.heads * head.head_dim, 2 * size, 2.0),
        "k_proj": matrix(head.kv_heads * head.head_dim, 2 * size, 2.0), "v_proj": matrix(head.kv_heads * head.head_dim, 2 * size),
        "o_proj": matrix(size, head.heads * head.head_dim), "gate_proj": matrix(head.ffn, size), "up_proj": matrix(head.ffn, size),
        "down_proj": matrix(size, head.ffn), "rope_factors": np.linspace(1, 8, head.head_dim // 2, dtype=np.float32)}
    if head.own_embedding:
        weights["embed_tokens"] = matrix(VOCAB, size, 4.0)
    if head.drafted:
        weights["lm_head"] = matrix(head.drafted, size, 2.0)
        weights["tokens"] = np.sort(rng.choice(VOCAB, head.drafted, replace=False)).astype("<i8")
    return weights


def features_of(model, tokens, layers):
    """[tokens, 3 hidden]: the residual stream in front of these layers of the model, behind the last one for their number."""
    found, stack = {}, model.model.layers
    hooks = [layer.register_forward_pre_hook(lambda _, args, kwargs, i=i: found.__setitem__(i, (args or [kwargs["hidden_states"]])[0][0]),
                                             with_kwargs=True) for i, layer in enumerate(stack)]
    hooks.append(stack[-1].register_forward_hook(lambda _, __, out: found.__setitem__(len(stack), (out[0] if isinstance(out, tuple) else out)[-len(tokens):].reshape(len(tokens), -1))))
    with torch.no_grad():
        model.model(torch.tensor([tokens]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return torch.cat([found[i] for i in layers], dim=-1)


class Reference:
    """A head's drafts."""

    def __init__(self, head, weights, model, dtype=torch.float64):
        self.head = head
        self.weights = {name: torch.from_numpy(values).to(dtype) for name, values in weights.items() if name != "tokens"}
        table = self.weights["embed_tokens"] if head.own_embedding else model.model.embed_tokens.weight.to(dtype)
        self.embedding, self.output = table, self.weights.get("lm_head", model.lm_head.weight.to(dtype))
        self.sees_first = False  # a pair of the first token and zeros

    def norm(self, name, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.weights[name]

    def rotated(self, x):
        """[tokens, heads, size], halves of heads as pairs."""
        size = x.shape[-1]
        frequencies = self.head.rope_theta ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
        if self.head.rope_factors:
            frequencies = frequencies / self.weights["rope_factors"]
        angles = torch.arange(len(x), dtype=x.dtype)[:, None] * frequencies
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def attention(self, rows):
        head, w = self.head, self.weights
        q, k, v = (( rows @ w[f"{part}_proj"].T).reshape(len(rows), -1, head.head_dim) for part in "qkv")
        group = head.heads // head.kv_heads
        q, k, v = self.rotated(q), self.rotated(k).repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(head.head_dim)
        sees = torch.ones(len(rows), len(rows)).tril().bool()
        if not self.sees_first:
            sees[1:, 0] = False
        weights = torch.softmax(scores.masked_fill(~sees, -math.inf), dim=-1)
        return torch.einsum("hqk,khd->qhd", weights, v).flatten(1) @ w["o_proj"].T

    def states(self, tokens, previous):
        """y of each token, from g of the positions in front."""
        w = self.weights
        hidden = self.norm("hidden_norm", previous)
        rows = torch.cat([self.norm("input_layernorm", self.embedding[tokens]), hidden], dim=-1)
        y = (hidden if self.head.norms_residual else previous) + self.attention(rows)
        normed = self.norm("post_attention_layernorm", y)
        gate = torch.nn.functional.silu(normed @ w["gate_proj"].T)
        return y + (gate * (normed @ w["up_proj"].T)) @ w["down_proj"].T

    def drafts(self, tokens, features, sees_hidden=True):
        """[tokens + 1, drafted tokens]."""
        features = features.to(self.embedding.dtype)
        if self.head.norms_features:
            features = self.norm("input_norm", features)
        g = features @ self.weights["fc"].T * (1.0 if sees_hidden else 0.0)
        previous = torch.cat([torch.zeros_like(g[:1]), g[:-1]])
        with torch.no_grad():
            own = self.states(tokens, previous)
            previous[-1] = own[-2]
            rows = torch.cat([own, self.states(tokens, previous)[-1:]])
            return (self.norm("norm", rows) @ self.output.T).double().numpy()


def write_head(head, weights, target_hidden, folder):
    arch, writer = "eagle3", GgufWriter()
    writer.add_all("general.", {"architecture": arch, "name": f"eagle3-{head.target}", "file_type": 0})
    writer.add_all(f"{arch}.", {
        "block_count": 1, "context_length": BASE_CONFIG["max_position_embeddings"], "embedding_length": head.hidden, "feed_forward_length": head.ffn,
        "attention.head_count": head.heads, "attention.head_count_kv": head.kv_heads, "attention.key_length": head.head_dim,
        "attention.value_length": head.head_dim, "rope.dimension_count": head.head_dim, "rope.freq_base": head.rope_theta,
        "attention.layer_norm_rms_epsilon": EPS, "vocab_size": VOCAB, "target_layers": list(head.layers), "target_hidden_size": target_hidden,
        "norm_before_residual": head.norms_residual, "norm_before_fc": head.norms_features})
    add_tokenizer(writer)
    names = {"fc": "fc", "hidden_norm": "blk.0.attn_norm_2", "input_layernorm": "blk.0.attn_norm", "post_attention_layernorm": "blk.0.ffn_norm",
             "norm": "output_norm", "q_proj": "blk.0.attn_q", "k_proj": "blk.0.attn_k", "v_proj": "blk.0.attn_v", "o_proj": "blk.0.attn_output",
             "gate_proj": "blk.0.ffn_gate", "up_proj": "blk.0.ffn_up", "down_proj": "blk.0.ffn_down", "embed_tokens": "token_embd", "lm_head": "output"}
    if head.norms_features:
        names["input_norm"] = "enc.output_norm"
    if head.rope_factors:
        names["rope_factors"] = "rope_freqs"
    for name, of_file in names.items():
        if name in weights:
            values = weights[name]
            if name in ("q_proj", "k_proj"):
                values = interleave_heads(values, head.heads if name == "q_proj" else head.kv_heads)
            writer.add_tensor(f"{of_file}.weight", values, TensorType.F32)
    if head.drafted:
        writer.add_pieces("d2t", weights["tokens"].shape, TensorType.I64, [weights["tokens"].tobytes()])
    writer.write(folder / f"eagle3-{head.target}.gguf")


def make(head, seed, folder):
    """Writes both files; returns the entry of eagle3.json."""
    case = next(case for case in CASES if case.name == head.target)
    _, tokens, model, *_ = draw_case(case, seed)
    rng = np.random.default_rng([seed, *f"eagle3-{head.target}".encode()])
    target_hidden = model.config.hidden_size
    weights = draw(head, target_hidden, rng)
    features = features_of(model, tokens, head.layers)
    reference = Reference(head, weights, model)
    drafts = reference.drafts(tokens, features)

    def distance(other, **changes):
        return rounded(nmse(other.drafts(tokens, features, **changes)[1:], drafts[1:]))

    seeing = Reference(head, weights, model)
    seeing.sees_first = True
    controls = {"without hidden states": distance(reference, sees_hidden=False), "a pair of the first token": distance(seeing),
                "the other residual": distance(Reference(head._replace(norms_residual=not head.norms_residual), weights, model)),
                "the other input of fc": distance(Reference(head._replace(norms_features=not head.norms_features), weights, model))}
    entry = {"name": f"eagle3-{head.target}", "target": head.target, "covers": head.covers,
             "float32_nmse": distance(Reference(head, weights, model, torch.float32)), "controls": controls}
    assert min(controls.values()) > 1e4 * NMSE_TOLERANCE and entry["float32_nmse"] < NMSE_TOLERANCE / 100, entry
    whole = np.full((len(drafts), VOCAB), -np.inf)
    whole[:, weights["tokens"] if head.drafted else slice(None)] = drafts
    (folder / f"eagle3-{head.target}.drafts").write_bytes(whole.astype("<f4").tobytes())
    write_head(head, weights, target_hidden, folder)
    return entry


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests" / "golden" / "heads", help="folder (default: tests/golden/heads)")
    parser.add_argument("--seed", type=int, default=1, help="of the models, as make_golden_models.py had it, and of the heads (default: 1)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order
    entries = [make(head, arguments.seed, arguments.out) for head in HEADS]
    for entry in entries:
        print(f"{entry['name']}: float32 {entry['float32_nmse']}, controls {entry['controls']}")
    (arguments.out / "eagle3.json").write_text(json.dumps({"made_by": f"scripts/golden/make_eagle_heads.py --seed {arguments.seed}", "heads": entries}, indent=1) + "\n")


if __name__ == "__main__":
    main()
