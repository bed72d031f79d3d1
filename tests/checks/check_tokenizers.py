#!/usr/bin/env python3
"""Compares `minfer tokenize` with the Python packages tokenizers and sentencepiece on random Unicode strings.

For every pre-tokeniser in pretokenizer_facts.py a byte-level BPE is trained on generated text and run by tokenizers with the
steps of that family's tokenizer.json; for SentencePiece vocabularies a BPE model with byte fallback is trained and run by
sentencepiece; for Gemma 4 a BPE over characters, which tokenizers runs with the steps that transformers gives Gemma's. Each is written as a vocabulary-only GGUF file, and both sides must give the same ids for every text.
Files are temporary. Exit status: 0 all equal, 1 a difference (with the shortest text found that shows it), 77 skipped
because a package is missing (scripts/test_env.sh installs them, "scripts/test_env.sh python" runs with them).
"""

import argparse
import concurrent.futures
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

try:
    import numpy  # noqa: F401  gguf_writer needs it
    import sentencepiece
    import tokenizers
except ImportError as error:
    print(f"SKIPPED: check_tokenizers.py needs numpy, tokenizers and sentencepiece: {error}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/golden"))
from gguf_writer import GgufWriter
from pretokenizer_facts import FAMILIES, byte_level, digits

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # tokenizer.ggml.token_type
CORPUS_TEXTS = 800
BPE_VOCAB = 1200
SPM_VOCAB = 900
# SentencePiece vocabularies: name -> (tokenizer.ggml.pre, a space is put in front)
# Pre-tokeniser, whether a space is put in front, pieces that are cut out of the text before merging.
GEMMA_PIECES = ["<start_of_turn>", "\n", "\n\n", "\n\n\n", "\t", *("▁" * n for n in range(2, 9)), "<b>", "</b>", "[@BOS@]"]
SPM_CASES = {"llama-spm": ("default", True, []), "llama-spm-no-prefix": ("default", False, []), "phi-3": ("phi-3", True, []),
             "gemma": ("default", False, GEMMA_PIECES)}


CHARACTER_BPE = "gemma4"
CHARACTER_BPE_VOCAB = 900
CASES = pathlib.Path(__file__).resolve().parents[2] / "tests/models/data/character_bpe.json"


def chars(*ranges):
    return [chr(c) for first, last in ranges for c in range(first, last + 1)]


# What texts are made of. Every character has been in Unicode since version 9 at the latest, so that the tables of two
# libraries cannot differ by age.
WORDS = ("the The THE of and code naïve façade straße ИЛИ мир Мир λόγος Σίσυφος ΟΔΟΣ שלום مرحبا नमस्ते ไทย ខ្មែរ "
         "中文 漢字 かな カナ 한국어 camelCase HTTPServer snake_case x86 iPhone ǅungla ʰa e\u0301te\u0301 A\u030a n\u0303o ﬁn Ａｂｃ").split()
CONTRACTIONS = [mark + end for mark in "'’" for end in "s S t T re RE Re ve vE m M ll LL lL d D x \u017f".split()]
NUMBERS = "0 1 7 12 99 123 2024 12345 1234567 3.14 1,000,000 ١٢٣ ४२ Ⅷ ½ x² ٣ １２ 一二三 ①".split()
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
PUNCTUATION += "… — “ ” 。 、 ！ （ « ¿ -- ... != // ``` ])} ؟ · ׀ ‘‘".split()
SYMBOLS = "€ © ™ ∑ → ° ± × ÷ ♥ ☃ ¨ ^ ` ˆ ﷼".split()
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧", "🇩🇪🇫🇷", "❤️", "1️⃣", "🏴‍☠️"]
SPACE = [" ", "  ", "   ", "        ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", " \t \n", "\u00a0", "\u3000", "\u2003", "\u2028",
         "\u0085", "\u180e", "\u200b", "\x0b", "\x0c", "\x1c", "\r", "\u202f"]
ODD = ["\x00", "\x01", "\x7f", "\ufffd", "\ufffe", "\uffff", "\ue000", "\ufeff", "\U0010ffff", "\U000e0001", "\u2581", "\u0301",
       "\u093f", "\u0e34", "\u1100\u1161\u11a8", "\u212b", "\u2126", "\ud7a3", "<|endoftext|>", "</s>", "<0x41>", "<s>"]
SCRIPTS = chars((0x21, 0x7E), (0xA1, 0x17F), (0x370, 0x373), (0x391, 0x3A1), (0x3B1, 0x3C9), (0x410, 0x44F),
                (0x531, 0x556), (0x561, 0x586), (0x5D0, 0x5EA), (0x620, 0x669), (0x905, 0x94D), (0xE01, 0xE3A),
                (0x10A0, 0x10C5), (0x1100, 0x1112), (0x1E00, 0x1EFF), (0x1F70, 0x1F7D), (0x2010, 0x2027), (0x20A0, 0x20AC),
                (0x2100, 0x218B), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x4E80), (0xAC00, 0xAC80),
                (0xFF01, 0xFF5E), (0x10400, 0x1044F), (0x1D400, 0x1D430), (0x1F600, 0x1F640))


def random_text(rng):
    """One to thirty fragments of all kinds, spaces between some of them."""
    pools = [WORDS, WORDS, CONTRACTIONS, NUMBERS, PUNCTUATION, SYMBOLS, EMOJI, SPACE, SPACE, ODD, SCRIPTS]
    glue = rng.choice(["", " ", " ", None])
    fragments = []
    for _ in range(rng.randint(1, 30)):
        fragments.append(rng.choice(rng.choice(pools)))
        fragments.append(rng.choice(SPACE + [""] * 20) if glue is None else glue)
    return "".join(fragments)


def fixed_texts():
    """Edge cases that chance may miss."""
    return ["", " ", "\n", "a", "'s", " 's", "I'll 'LL", "it'\u017fxy", "   a", "a   ", "a\n\n\n", "\r\n\r\n",
            "!!!\n\n/x", "123456789 " * 3, "a" * 300, " " * 100, "=" * 64, "é" * 40, "e\u0301" * 40, "".join(SPACE), "".join(ODD), "".join(NUMBERS), "ǅUNGLA"]


def make_bpe(family, vocab, merges):
    """The tokenizers package's tokenizer of a family over a vocabulary {token: id} and merges [[left, right]]."""
    model = {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": family.ignore_merges}
    return tokenizers.Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None, "decoder": None,
        "normalizer": {"type": family.normal_form} if family.normal_form else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": family.steps}, "model": model,
    }))


def train_merges(name, corpus):
    """(vocab, merges) of a BPE trained without the family's splits. Its merges cross every border that a split draws, so a
    missing split shows in the ids as clearly as one too many."""
    trained = make_bpe(FAMILIES[name], {}, [])
    # Falcon's Digits step sees characters that stand for bytes, some of which count as numeric (U+043C has the bytes D0 BC,
    # and BC prints as a quarter). It cuts inside characters there, which shows only with merges that no Falcon has.
    steps = [byte_level(use_regex=False)] + ([digits(individual=False)] if name == "falcon" else [])
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([_step(step) for step in steps])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=BPE_VOCAB, min_frequency=2, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trained.train_from_iterator(corpus, trainer)
    model = json.loads(trained.to_str())["model"]
    return model["vocab"], [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]


def _step(step):
    if step["type"] == "Digits":
        return tokenizers.pre_tokenizers.Digits(individual_digits=step["individual_digits"])
    return tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=step["use_regex"])


def drop_some_merges(merges):
    """Without every seventh merge that no other needs: its token is then reached only where ignore_merges is set."""
    needed = {part for pair in merges for part in pair}
    return [pair for i, pair in enumerate(merges) if i % 7 != 0 or "".join(pair) in needed]


def build_bpe(name, corpus, path):
    """Writes the family's GGUF file and returns its reference: text -> ids."""
    vocab, merges = train_merges(name, corpus)
    if name != "gpt-4o":  # its published files disagree about ignore_merges: keep both readings the same
        merges = drop_some_merges(merges)
    tokens = sorted(vocab, key=vocab.get)
    end = vocab["<|endoftext|>"]
    writer = start_file("gpt2", name, tokens, [CONTROL if token == tokens[end] else NORMAL for token in tokens], end, end)
    writer.add("tokenizer.ggml.merges", [" ".join(pair) for pair in merges])
    writer.write(path)
    reference = make_bpe(FAMILIES[name], vocab, merges)
    return lambda text: reference.encode(text, add_special_tokens=False).ids


def build_spm(name, corpus, path):
    pre, add_space_prefix, user_defined = SPM_CASES[name]
    model = io.BytesIO()
    # Lines and NUL would be cut by the trainer; the encoder takes them as bytes.
    sentences = [line for text in corpus for line in text.replace("\0", "").splitlines() if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, model_type="bpe", vocab_size=SPM_VOCAB, hard_vocab_limit=False,
        byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity", add_dummy_prefix=add_space_prefix,
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, split_digits=True, num_threads=1, minloglevel=2,
        user_defined_symbols=user_defined)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(reference.vocab_size())
    kinds = [(UNKNOWN, reference.is_unknown), (CONTROL, reference.is_control), (BYTE, reference.is_byte),
             (USER_DEFINED, lambda i: reference.id_to_piece(i) in user_defined), (NORMAL, lambda _: True)]
    types = [next(kind for kind, applies in kinds if applies(i)) for i in ids]
    # Converters write spaces as such where the text is matched as it is.
    tokens = [reference.id_to_piece(i).replace("▁", " ") if types[i] == USER_DEFINED else reference.id_to_piece(i) for i in ids]
    writer = start_file("llama", pre, tokens, types, reference.bos_id(), reference.eos_id())
    writer.add("tokenizer.ggml.scores", [reference.get_score(i) for i in ids])
    writer.add("tokenizer.ggml.unknown_token_id", reference.unk_id())
    writer.add("tokenizer.ggml.add_space_prefix", add_space_prefix)
    writer.write(path)
    return lambda text: reference.encode(text, out_type=int)


def train_character_bpe(corpus):
    """A tokenizer of Gemma 4's kind: spaces become U+2581, characters are merged across words, rare ones are their bytes. Runs of line
    ends, and a word here and there, are cut out of the text before."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"]
    cut_out = ["\n" * n for n in range(1, 6)] + ["<table>"]
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    # Without splits at words, but for what is cut out of texts later, so that no merge joins it.
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("\n+|<table>"), "isolated")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=CHARACTER_BPE_VOCAB, limit_alphabet=200, min_frequency=2, max_token_length=12, show_progress=False,
        special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)])
    trained.train_from_iterator(corpus, trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
    # Nor do Gemma's merges make line ends, or the name of a byte.
    merges = [pair for pair in merges if not any("\n" in text or is_byte(text) for text in (*pair, "".join(pair)))]
    vocab = {text: i for i, text in enumerate(text for text in sorted(model["vocab"], key=model["vocab"].get))}
    for text in cut_out:
        vocab.setdefault(text, len(vocab))
    reference = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab=vocab, merges=[tuple(pair) for pair in merges], fuse_unk=True, unk_token="<unk>", byte_fallback=True))
    reference.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    reference.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "merged_with_previous")
    decoders = tokenizers.decoders
    reference.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    reference.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in cut_out])
    return reference, merges, special, cut_out


def is_byte(text):
    return re.fullmatch("<0x[0-9A-F]{2}>", text) is not None


def character_bpe_types(tokens, special, cut_out):
    """As converters write them: runs of line ends are plain tokens."""
    def type_of(text):
        if text in special:
            return UNKNOWN if text == "<unk>" else CONTROL
        if text in cut_out and text.strip("\n"):
            return USER_DEFINED
        return BYTE if is_byte(text) else NORMAL
    return [type_of(text) for text in tokens]


def build_character_bpe(name, corpus, path):
    reference, merges, special, cut_out = train_character_bpe(corpus)
    vocab = reference.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    writer = start_file(name, "default", tokens, character_bpe_types(tokens, special, cut_out), vocab["<bos>"], vocab["<eos>"])
    writer.add("tokenizer.ggml.unknown_token_id", vocab["<unk>"])
    writer.add("tokenizer.ggml.merges", [" ".join(pair) for pair in merges])
    writer.write(path)
    return lambda text: reference.encode(text, add_special_tokens=False).ids


def write_character_bpe_cases(corpus, texts, path):
    """What tests/models/tokenizer/character_bpe_test.cpp compares with: a vocabulary, and the ids and the decoded text of each text."""
    reference, merges, special, cut_out = train_character_bpe(corpus)
    vocab = reference.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    cases = []
    for text in texts:
        ids = reference.encode(text, add_special_tokens=False).ids
        cases.append({"text": text, "ids": ids, "decoded": reference.decode(ids, skip_special_tokens=False)})
    content = {"tokens": tokens, "types": character_bpe_types(tokens, special, cut_out), "merges": [" ".join(pair) for pair in merges],
               "cases": cases}
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    path.write_text("{\n" + lines.replace('}, {"text"', '},\n  {"text"') + "\n}\n")


def texts_for(name, texts):
    """Without U+2581 where pieces of spaces are cut out before: SentencePiece takes it for a space then, files have spaces there."""
    return texts if name not in SPM_CASES or not SPM_CASES[name][2] else [text for text in texts if "▁" not in text]


def start_file(model, pre, tokens, types, bos, eos):
    """A vocabulary-only GGUF file, less what its kind of tokeniser needs besides."""
    writer = GgufWriter()
    writer.add("general.architecture", "llama")
    writer.add("tokenizer.ggml.model", model)
    writer.add("tokenizer.ggml.pre", pre)
    writer.add("tokenizer.ggml.tokens", tokens)
    writer.add("tokenizer.ggml.token_type", types)
    writer.add("tokenizer.ggml.bos_token_id", bos)
    writer.add("tokenizer.ggml.eos_token_id", eos)
    writer.add("tokenizer.ggml.add_bos_token", False)
    writer.add("tokenizer.ggml.add_eos_token", False)
    return writer


def minfer_ids(minfer, path, text):
    """Ids from the command; exits with its message when it fails."""
    command = [minfer, "tokenize", "--model", str(path), "--ids", "--no-bos", "--no-parse-special"]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(command)}: no answer within a minute for {ascii(text)}")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode} for {ascii(text)}: {done.stderr.decode(errors='replace')}")
    return [int(word) for word in done.stdout.split()]


def shrink(text, differs):
    """A shorter text that still differs: pieces of falling size are cut out while that holds."""
    size = len(text) // 2
    while size > 0:
        start = 0
        while start < len(text):
            shorter = text[:start] + text[start + size:]
            if differs(shorter):
                text = shorter
            else:
                start += size
        size //= 2
    return text


def check(name, path, reference, minfer, texts, pool):
    """Number of texts whose ids differ; prints the first, shortened."""
    ours = list(pool.map(lambda text: minfer_ids(minfer, path, text), texts))
    wrong = [text for text, ids in zip(texts, ours) if ids != reference(text)]
    if wrong:
        text = shrink(min(wrong, key=len), lambda t: minfer_ids(minfer, path, t) != reference(t))
        print(f"{name}: {len(wrong)} of {len(texts)} texts differ, e.g. {ascii(text)}: "
              f"minfer {minfer_ids(minfer, path, text)}, expected {reference(text)}")
    else:
        print(f"{name}: {len(texts)} texts equal")
    return len(wrong)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    names = [*FAMILIES, *SPM_CASES, CHARACTER_BPE]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minfer", default=str(root / "build/release/minfer"), help="the command (default: %(default)s)")
    parser.add_argument("--texts", type=int, default=100, help="random texts per vocabulary, each a process (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="of texts and training data (default: 1)")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=f"of {' '.join(names)}")
    parser.add_argument("--keep", type=pathlib.Path, help="write the GGUF files into this folder and leave them there")
    parser.add_argument("--write-cases", action="store_true", help=f"write {CASES.relative_to(root)} and do nothing else")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    corpus = [random_text(rng) for _ in range(CORPUS_TEXTS)]
    texts = fixed_texts() + [random_text(rng) for _ in range(arguments.texts)]
    if arguments.write_cases:
        write_character_bpe_cases(corpus, texts, CASES)
        return 0
    if not os.access(arguments.minfer, os.X_OK):
        parser.error(f"no command at {arguments.minfer}: build it, or name it with --minfer")

    differences = 0
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = arguments.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.only:
            path = folder / f"{name}.gguf"
            build = build_bpe if name in FAMILIES else build_spm if name in SPM_CASES else build_character_bpe
            reference = build(name, corpus, path)
            differences += check(name, path, reference, arguments.minfer, texts_for(name, texts), pool)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
