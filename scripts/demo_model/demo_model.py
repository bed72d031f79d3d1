"""The demo model in PyTorch: a Llama decoder, its optimizer, and its GGUF file.

Differences from common PyTorch Llamas: rotary embedding turns neighbouring pairs (2i, 2i + 1), which is how GGUF's llama
architecture stores Q and K, so weights are written as they are; input and output embedding are one matrix.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from demo_tokenizer import DemoTokenizer
sys.path.append(str(Path(__file__).resolve().parents[1] / "golden"))
from gguf_writer import GgufWriter, TensorType, dequantize_q8_0, quantize_q8_0

FILE_TYPE_MOSTLY_Q8_0 = 7  # general.file_type, as llama.cpp numbers it


@dataclass(frozen=True)
class ModelConfig:
    vocab_size: int = 4096
    context_length: int = 2048
    hidden: int = 256
    num_layers: int = 6
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 64
    ffn: int = 704
    # The slowest third of the pairs turn by less than a radian over 2,048 tokens: they find a name at any distance.
    rope_base: float = 100000.0
    norm_epsilon: float = 1e-5


def rope_tables(config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Cosine and sine [context_length, head_size / 2] of position times base^(-2i / head_size)."""
    pair = torch.arange(config.head_size // 2, dtype=torch.float64)
    angle = torch.arange(config.context_length)[:, None] * config.rope_base ** (-2 * pair / config.head_size)
    return angle.cos().float(), angle.sin().float()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (2i, 2i + 1) of x [batch, heads, tokens, head_size] by its position's angle."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


class Block(nn.Module):
    """Grouped-query attention and a SwiGLU feed-forward network, each normalised before and added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, kv_width = config.num_heads * config.head_size, config.num_kv_heads * config.head_size
        self.attn_norm = nn.RMSNorm(config.hidden, config.norm_epsilon)
        self.attn_q = nn.Linear(config.hidden, width, bias=False)
        self.attn_k = nn.Linear(config.hidden, kv_width, bias=False)
        self.attn_v = nn.Linear(config.hidden, kv_width, bias=False)
        self.attn_output = nn.Linear(width, config.hidden, bias=False)
        self.ffn_norm = nn.RMSNorm(config.hidden, config.norm_epsilon)
        self.ffn_gate = nn.Linear(config.hidden, config.ffn, bias=False)
        self.ffn_up = nn.Linear(config.hidden, config.ffn, bias=False)
        self.ffn_down = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [batch, tokens, hidden] -> the same shape; cos and sin [tokens, head_size / 2]."""
        x = x + self._attention(self.attn_norm(x), cos, sin)
        normed = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(normed)) * self.ffn_up(normed))

    def _attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (linear(x).unflatten(-1, (-1, self.config.head_size)).transpose(1, 2) for linear in (self.attn_q, self.attn_k, self.attn_v))
        mixed = F.scaled_dot_product_attention(apply_rope(q, cos, sin), apply_rope(k, cos, sin), v, is_causal=True, enable_gqa=True)
        return self.attn_output(mixed.transpose(1, 2).flatten(-2))


class DemoModel(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embd = nn.Embedding(config.vocab_size, config.hidden)
        self.blk = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.output_norm = nn.RMSNorm(config.hidden, config.norm_epsilon)
        cos, sin = rope_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                writes_residual = name.endswith(("attn_output.weight", "ffn_down.weight"))
                std = 0.02 / math.sqrt(2 * self.config.num_layers) if writes_residual else 0.02
                nn.init.normal_(weight, std=std)

    def forward(self, tokens: Tensor, run_block: Callable[..., Tensor] = Block.forward) -> Tensor:
        """Hidden states [batch, tokens, hidden] after the last norm; `run_block` may be a compiled Block.forward."""
        x = self.token_embd(tokens)
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for block in self.blk:
            x = run_block(block, x, cos, sin)
        return self.output_norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.token_embd.weight)


def token_losses(hidden: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy in nats of each target [batch, tokens]."""
    logits = F.linear(hidden, embedding).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)


def make_optimizers(model: DemoModel) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, with updates as large as Adam's, so that both share a learning rate; AdamW for the embedding
    and the norms."""
    matrices = [weight for weight in model.blk.parameters() if weight.ndim == 2]
    others = [weight for name, weight in model.named_parameters() if weight.ndim == 1 or name == "token_embd.weight"]
    return [torch.optim.Muon(matrices, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0)]


@torch.no_grad()
def round_to_q8_0(model: DemoModel) -> None:
    """Gives it the weights that a reader of the GGUF file computes with: matrices through Q8_0, norms as they are."""
    for weight in model.parameters():
        if weight.ndim == 2:
            weight.copy_(torch.from_numpy(dequantize_q8_0(quantize_q8_0(weight.detach().cpu().numpy()))))


def write_gguf(path: Path, model: DemoModel, tokenizer: DemoTokenizer) -> int:
    """Writes the model with Q8_0 matrices and F32 norms, which the module's attributes name as GGUF does; returns the size in bytes."""
    config = model.config
    writer = GgufWriter()
    writer.add_all("general.", {
        "architecture": "llama", "name": "minfer demo", "description": "A tiny model for tests and demonstrations, trained on generated text",
        "license": "mit", "file_type": FILE_TYPE_MOSTLY_Q8_0, "quantization_version": 2})
    writer.add_all("llama.", {
        "vocab_size": config.vocab_size, "context_length": config.context_length, "embedding_length": config.hidden,
        "block_count": config.num_layers, "feed_forward_length": config.ffn, "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads, "attention.key_length": config.head_size, "attention.value_length": config.head_size,
        "rope.dimension_count": config.head_size, "rope.freq_base": config.rope_base, "attention.layer_norm_rms_epsilon": config.norm_epsilon})
    tokenizer.add_to(writer)
    for name, weight in model.named_parameters():
        writer.add_tensor(name, weight.detach().cpu().numpy(), TensorType.Q8_0 if weight.ndim == 2 else TensorType.F32)
    return writer.write(path)
