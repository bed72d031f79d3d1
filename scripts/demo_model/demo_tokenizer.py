"""The demo model's vocabulary: SentencePiece BPE with byte fallback, as llama.cpp's "llama" tokeniser reads it.

Conventions of that tokeniser, which `encode` follows: special tokens are cut out first; every piece of text that starts the input
or follows a special token gets a space in front (add_space_prefix); spaces are written as U+2581; letters without a piece fall
back to byte tokens. Digits are pieces of their own, so a number is the sequence of its digits.
"""

import io
import re
import sys
from pathlib import Path
from typing import Iterable

import sentencepiece

sys.path.append(str(Path(__file__).resolve().parents[1] / "golden"))
from gguf_writer import GgufWriter

BOS, EOS = "<s>", "</s>"
SYSTEM, USER, ASSISTANT, END = "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
CHAT_TOKENS = (SYSTEM, USER, ASSISTANT, END)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
_WORD = re.compile(r" ?[^ \n]+| |\n")
_SPECIAL = re.compile("(" + "|".join(re.escape(token) for token in (BOS, EOS, *CHAT_TOKENS)) + ")")


def train(texts: Iterable[str], vocab_size: int, num_threads: int) -> bytes:
    """Learns a vocabulary from texts and returns it as a serialised ModelProto.

    Lines keep the space in front that `encode` will give them, so the trainer adds none of its own.
    """
    lines = (line for text in texts for line in (" " + text).split("\n") if line.strip())
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, model_type="bpe", vocab_size=vocab_size, num_threads=num_threads,
        split_digits=True, byte_fallback=True, character_coverage=1.0, normalization_rule_name="identity",
        add_dummy_prefix=False, remove_extra_whitespaces=False, allow_whitespace_only_pieces=False,
        unk_id=0, bos_id=1, eos_id=2, pad_id=-1, unk_piece="<unk>", bos_piece=BOS, eos_piece=EOS,
        control_symbols=list(CHAT_TOKENS), max_sentence_length=1 << 16, minloglevel=2)
    return model.getvalue()


class DemoTokenizer:
    """Text to ids with a trained vocabulary. Not thread safe: words are cached."""

    def __init__(self, model_proto: bytes) -> None:
        self.model_proto = model_proto
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
        self._words: dict[str, list[int]] = {}
        self.special = {token: self._processor.piece_to_id(token) for token in (BOS, EOS, *CHAT_TOKENS)}

    @property
    def vocab_size(self) -> int:
        return self._processor.vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of text in which special tokens are recognised. BOS is not added: write it."""
        parts = _SPECIAL.split(text)  # the special tokens with what stands between them
        return [token for part in parts for token in ([self.special[part]] if part in self.special else self.encode_plain(part))]

    def encode_plain(self, text: str) -> list[int]:
        """Ids of text without special tokens, with the space in front; no ids for an empty text."""
        return self.encode_continued(" " + text) if text else []

    def encode_continued(self, text: str) -> list[int]:
        """Ids of text as it stands. No piece has a space or a newline inside, so words can be encoded one by one and cached."""
        ids: list[int] = []
        for word in _WORD.findall(text):
            if word not in self._words:
                self._words[word] = self._processor.encode(word)
            ids += self._words[word]
        return ids

    def add_to(self, writer: GgufWriter) -> None:
        """Writes the vocabulary, the special tokens and the chat template as `tokenizer.*` metadata."""
        sp = self._processor
        ids = range(self.vocab_size)
        # As llama.cpp numbers them: unknown, control, byte, normal.
        types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in ids]
        writer.add_all("tokenizer.", {
            "ggml.model": "llama", "ggml.pre": "default", "ggml.tokens": [sp.id_to_piece(i) for i in ids],
            "ggml.scores": [sp.get_score(i) for i in ids], "ggml.token_type": types, "ggml.bos_token_id": sp.bos_id(),
            "ggml.eos_token_id": sp.eos_id(), "ggml.eot_token_id": self.special[END], "ggml.unknown_token_id": sp.unk_id(),
            "ggml.add_bos_token": True, "ggml.add_eos_token": False, "ggml.add_space_prefix": True, "chat_template": CHAT_TEMPLATE})


def render_chat(messages: list[dict[str, str]]) -> str:
    """What CHAT_TEMPLATE renders up to the answer: messages are {"role": "system" | "user" | "assistant", "content": text}."""
    return BOS + "".join(f"<|{message['role']}|>\n{message['content']}{END}" for message in messages) + f"{ASSISTANT}\n"
