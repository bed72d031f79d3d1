"""Hugging Face transformers' model of a GGUF file, in float64 from its dequantised weights, and the tokenizer of the package tokenizers.

transformers computes norms, the softmax of attention and rotary angles in float32 whatever the type of the weights; here they are float64 as
well. Weights are dequantised by the package gguf, which the authors of the format publish. Needs: pip install torch transformers gguf
"""

import json
import os
import pathlib
import sys

import numpy as np
import torch
import transformers
from gguf import GGUFReader
from gguf.quants import dequantize
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.llama import modeling_llama

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/checks"))

FOLDER = pathlib.Path(__file__).resolve().parent
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # tokenizer.ggml.token_type


def models():
    """Name to file of the models in models.txt, where scripts/test_env.sh keeps them."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = pathlib.Path(os.environ.get("MINFER_TEST_MODELS") or cache / "minfer" / "models")
    rows = [line.split() for line in (FOLDER / "models.txt").read_text().splitlines() if not line.startswith("#")]
    return {row[0]: folder / f"{row[0]}.gguf" for row in rows}


def texts():
    """Name to content of the texts whose logits are compared."""
    return {path.stem: path.read_text() for path in sorted((FOLDER / "texts").glob("*.txt"))}


def fnv(ids):
    """FNV-1a of token ids, four bytes each: what the tests compare instead of long lists."""
    value = 0xcbf29ce484222325
    for byte in np.asarray(ids, dtype="<i4").tobytes():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{value:016x}"


class Float64Torch:
    """torch, but that float32 is float64: for modules that cast to float32."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


torch.Tensor.float = torch.Tensor.double
torch.nn.Linear.reset_parameters = transformers.PreTrainedModel._init_weights = lambda *_: None  # every weight is loaded
modeling_llama.torch = modeling_gemma3.torch = Float64Torch()

OF_LAYER = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
}
OF_LLAMA = {**OF_LAYER, "ffn_norm": "post_attention_layernorm"}
OF_GEMMA3 = {**OF_LAYER, "ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm",
             "post_ffw_norm": "post_feedforward_layernorm", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


class ReferenceModel:
    def __init__(self, path, keep=None):
        """`keep`: a folder in which what the model made of a text stays for other runs."""
        self.keep = keep and pathlib.Path(keep)
        self.reader = GGUFReader(path)
        self.architecture = self.metadata("general.architecture")
        self.model = {"llama": self._llama, "gemma3": self._gemma3}[self.architecture]()
        self.vocab_size = self.model.config.vocab_size
        self.tokenizer = _make_tokenizer(self)

    def metadata(self, key, default=None):
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def _of_architecture(self, key, default=None):
        return self.metadata(f"{self.architecture}.{key}", default)

    def _base_config(self):
        heads, width = self._of_architecture("attention.head_count"), self._of_architecture("embedding_length")
        return {
            "vocab_size": len(self.metadata("tokenizer.ggml.tokens")), "hidden_size": width, "num_attention_heads": heads,
            "intermediate_size": self._of_architecture("feed_forward_length"), "num_hidden_layers": self._of_architecture("block_count"),
            "num_key_value_heads": self._of_architecture("attention.head_count_kv"),
            "head_dim": self._of_architecture("attention.key_length", width // heads),
            "rms_norm_eps": float(np.float32(self._of_architecture("attention.layer_norm_rms_epsilon"))),
            "max_position_embeddings": self._of_architecture("context_length"), "tie_word_embeddings": True,
            "attn_implementation": "eager", "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
        }

    def _llama(self):
        config = transformers.LlamaConfig(**self._base_config(), rope_parameters={
            "rope_type": "default", "rope_theta": self._of_architecture("rope.freq_base")})
        model = transformers.LlamaForCausalLM(config).double()
        return self._load(model, OF_LLAMA, 0.0, {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads})

    def _gemma3(self):
        # Published facts that the file does not hold: every sixth layer reads everything, the others rotate by another base.
        config = transformers.Gemma3TextConfig(
            **self._base_config(), sliding_window=self._of_architecture("attention.sliding_window"),
            query_pre_attn_scalar=self._of_architecture("attention.key_length"),
            layer_types=["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(self._of_architecture("block_count"))],
            rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": self._of_architecture("rope.freq_base")},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
        return self._load(transformers.Gemma3ForCausalLM(config).double(), OF_GEMMA3, 1.0, {})

    def _load(self, model, names, norm_offset, interleaved):
        """GGUF keeps Gemma's norms with the one that the model adds, and Llama's queries and keys with their pairs side by side."""
        state = {}
        for tensor in self.reader.tensors:
            weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).astype(np.float64))
            name = tensor.name.removesuffix(".weight")
            weight = weight - norm_offset if name.endswith("norm") else weight
            if name == "token_embd":
                state["model.embed_tokens.weight"] = state["lm_head.weight"] = weight
            elif name == "output_norm":
                state["model.norm.weight"] = weight
            else:
                _, layer, part = name.split(".")
                if part in interleaved:
                    rows, columns = weight.shape
                    weight = weight.reshape(interleaved[part], -1, 2, columns).transpose(1, 2).reshape(rows, columns)
                state[f"model.layers.{layer}.{names[part]}.weight"] = weight
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert not missing and not unexpected, (missing, unexpected)
        return model.eval()

    def hidden(self, tokens):
        """What the output head reads, [tokens, hidden size]."""
        kept = self.keep and self.keep / f"{fnv(tokens)}-{self.architecture}.pt"
        if kept and kept.exists():
            return torch.load(kept)
        with torch.no_grad():
            hidden = self.model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0]
        if kept:
            torch.save(hidden, kept)
        return hidden

    def head(self, hidden):
        with torch.no_grad():
            return self.model.lm_head(hidden).numpy()

    def logits(self, tokens, rows_at_once=128):
        """(first position, logits [rows, vocabulary]) of all positions, a piece at a time."""
        hidden = self.hidden(tokens)
        for first in range(0, len(tokens), rows_at_once):
            yield first, self.head(hidden[first:first + rows_at_once])

    def next_logits(self, tokens, cache):
        """Of the last of `tokens`, which continue what `cache` (of new_cache()) holds."""
        with torch.no_grad():
            hidden = self.model.model(torch.tensor([tokens]), past_key_values=cache, use_cache=True).last_hidden_state
            return self.model.lm_head(hidden[0, -1]).numpy()

    def new_cache(self):
        return transformers.DynamicCache(config=self.model.config)

    def encode(self, text):
        """Of plain text, in which the names of control tokens are text; with the token that the vocabulary wants in front."""
        bos = [self.metadata("tokenizer.ggml.bos_token_id")] if self.metadata("tokenizer.ggml.add_bos_token", False) else []
        return bos + self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode_markup(self, text):
        """The same of a rendered chat, in which names of control tokens are those tokens."""
        if not hasattr(self, "_markup"):
            self._markup = _make_tokenizer(self, with_control=True)
        return self._markup.encode(text, add_special_tokens=False).ids


def _make_tokenizer(model, with_control=False):
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

    tokens, types = model.metadata("tokenizer.ggml.tokens"), model.metadata("tokenizer.ggml.token_type")
    vocab = {token: i for i, token in enumerate(tokens)}
    cut_out = {USER_DEFINED, CONTROL} if with_control else {USER_DEFINED}
    if model.metadata("tokenizer.ggml.model") == "gpt2":
        from pretokenizer_facts import FAMILIES
        merges = [merge.split(" ") for merge in model.metadata("tokenizer.ggml.merges")]
        steps = FAMILIES[model.metadata("tokenizer.ggml.pre")].steps
        tokenizer = Tokenizer.from_str(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None, "decoder": None, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "model": {"type": "BPE", "vocab": vocab, "merges": merges}}))
    else:
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=_merges_by_score(model, tokens, types), fuse_unk=True, unk_token="<unk>",
                                         byte_fallback=True))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token, kind in zip(tokens, types) if kind in cut_out])
    return tokenizer


def _merges_by_score(model, tokens, types):
    """SentencePiece joins two neighbours whose join has the highest score: as merges, as transformers makes them of such a file."""
    scores = model.metadata("tokenizer.ggml.scores")
    normal = {token: scores[i] for i, token in enumerate(tokens) if types[i] == NORMAL}
    order = {token: i for i, token in enumerate(tokens)}
    merges = []
    for token, score in normal.items():
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token)) if token[:cut] in normal and token[cut:] in normal]
        merges += [(-score, order[left], order[right], left, right) for left, right in pairs]
    return [(left, right) for _, _, _, left, right in sorted(merges)]
