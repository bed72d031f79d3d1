#!/usr/bin/env python3
"""Compares our masks with those of the package llguidance or xgrammar, on random walks over the tokens of a vocabulary.

    compare_masks.py --try-grammars build/release/try_grammars VOCABULARY [--peer xgrammar] [--schemas 200] [--steps 40]

VOCABULARY is a GGUF file, or a tekken_*.json as the package mistral_common has them.

Schemas are those of check_grammars.py that both compile, in compact style and with members that no schema declares where the draft allows
them. In front of each token of a walk both say which tokens may come. Where one allows more, one such token is drawn, the text is brought to
an end as that grammar likes, byte by byte, and jsonschema says whether the value is valid: of ours none may be invalid. Theirs that are valid
are texts that ours do not write: numbers of more digits are counted by themselves.
Prints these counts, with the first few differences, and what our masks and compiling took. Standard error is the package's own warnings.
Exit status: 0; 1 if an end of ours is invalid; 77 if a package is missing.
"""

import argparse
import base64
import collections
import importlib.metadata
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

try:
    import jsonschema
    from check_grammars import Schemas, unique_members
except ImportError as error:
    print(f"SKIPPED: compare_masks.py needs jsonschema: {error}")
    sys.exit(77)


def tekken_as_gguf(path, to):
    """A vocabulary-only GGUF file of the tokens that a model with it has. Byte-level BPE writes bytes as letters; merges say nothing here."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/golden"))
    from gguf_writer import GgufWriter

    listed = json.load(open(path))
    num_special = listed["config"]["default_num_special_tokens"]
    plain = [byte for byte in range(256) if 33 <= byte <= 126 or byte >= 161 and byte != 173]
    letters = {byte: chr(byte) for byte in plain}
    letters.update({byte: chr(256 + i) for i, byte in enumerate(byte for byte in range(256) if byte not in letters)})
    texts = ["".join(letters[byte] for byte in base64.b64decode(token["token_bytes"]))
             for token in listed["vocab"][:listed["config"]["default_vocab_size"] - num_special]]
    special = ["<unk>", "<s>", "</s>"] + [f"<SPECIAL_{i}>" for i in range(3, num_special)]
    writer = GgufWriter()
    writer.add("general.architecture", "llama")
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.pre", "tekken")
    writer.add("tokenizer.ggml.tokens", special + texts)
    writer.add("tokenizer.ggml.token_type", [3] * len(special) + [1] * len(texts))
    writer.add("tokenizer.ggml.merges", ["e r"])
    writer.add("tokenizer.ggml.bos_token_id", 1)
    writer.add("tokenizer.ggml.eos_token_id", 2)
    writer.write(to)


class Vocabulary:
    """What llguidance asks of a tokeniser. Of tokens with equal bytes it sees the first alone: `same` says which that is."""

    def __init__(self, listed):
        self.tokens = [bytes.fromhex(token) for token in listed["tokens"]]
        first, self.same = {}, []
        for i, token in enumerate(self.tokens):
            self.same.append(first.setdefault(token, i))
            if not token or self.same[i] != i or b"\xff" in token:
                self.tokens[i] = b"\xff<%d>" % i
        self.first = first
        self.eos_token_id = listed["end"][0]
        self.bos_token_id = None
        self.special_token_ids = [i for i, token in enumerate(self.tokens) if token.startswith(b"\xff<")]

    def __call__(self, text):
        """The longest token each time: it looks for text that is forced."""
        text = text if isinstance(text, bytes) else text.encode()
        ids = []
        while text:
            size = next(size for size in range(min(len(text), 16), 0, -1) if text[:size] in self.first)
            ids.append(self.first[text[:size]])
            text = text[size:]
        return ids


class Llguidance:
    def __init__(self, vocabulary):
        import llguidance

        self.package, self.size = llguidance, len(vocabulary.tokens)
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary))

    def grammar(self, schema):
        """None if the package does not take the schema."""
        grammar = self.package.LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": False})
        return None if self.package.LLMatcher.validate_grammar(grammar, self.tokenizer) else grammar

    def matcher(self, grammar):
        return self.package.LLMatcher(self.tokenizer, grammar)

    def mask(self, matcher):
        return {i for i, byte in enumerate(matcher.compute_logit_bias()[:self.size]) if byte}

    def accept(self, matcher, token):
        return matcher.consume_token(token)


class Xgrammar:
    def __init__(self, vocabulary):
        import xgrammar

        self.package, self.size = xgrammar, len(vocabulary.tokens)
        tokens = xgrammar.TokenizerInfo(vocabulary.tokens, stop_token_ids=[vocabulary.eos_token_id])
        self.compiler = xgrammar.GrammarCompiler(tokens, max_threads=1, cache_enabled=False)
        self.bits = xgrammar.allocate_token_bitmask(1, self.size)

    def grammar(self, schema):
        """None if the package does not take the schema."""
        try:
            return self.compiler.compile_json_schema(json.dumps(schema), any_whitespace=False, separators=(",", ":"), strict_mode=False)
        except Exception:  # whatever it raises
            return None

    def matcher(self, grammar):
        return self.package.GrammarMatcher(grammar)

    def mask(self, matcher):
        self.bits.fill_(-1)  # it is left as it is where all tokens may come
        matcher.fill_next_token_bitmask(self.bits)
        return {32 * i + bit for i, word in enumerate(self.bits[0].tolist()) if word for bit in range(32) if word >> bit & 1}

    def accept(self, matcher, token):
        return matcher.accept_token(token)


PEERS = {"llguidance": Llguidance, "xgrammar": Xgrammar}


def bits_of(words_hex):
    words = (int(words_hex[i:i + 8], 16) for i in range(0, len(words_hex), 8))
    return {32 * i + bit for i, word in enumerate(words) if word for bit in range(32) if word >> bit & 1}


class Ends:
    """Brings texts to an end, and counts which of them are valid."""

    def __init__(self, args, peer, vocabulary, count):
        self.bytes = subprocess.Popen([args.try_grammars], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.peer, self.vocabulary, self.count, self.rng = peer, vocabulary, count, random.Random(args.seed)
        self.single = {vocabulary.first[bytes([byte])]: byte for byte in range(255) if bytes([byte]) in vocabulary.first}

    def of_ours(self, schema, text):
        try:
            asked = {"schema": schema, "prefix": text.decode(), "walks": 12, "seed": self.rng.randrange(1 << 30)}
        except UnicodeDecodeError:  # the token ends inside a character
            return None
        self.bytes.stdin.write(json.dumps(asked) + "\n")
        self.bytes.stdin.flush()
        return next(iter(json.loads(self.bytes.stdout.readline())["walked"]), None)

    def of_theirs(self, grammar, tokens):
        matcher = self.peer.matcher(grammar)
        if not all(self.peer.accept(matcher, token) for token in tokens):
            return None
        text = b"".join(self.vocabulary.tokens[token] for token in tokens)
        for _ in range(300):
            allowed = self.peer.mask(matcher)
            if self.vocabulary.eos_token_id in allowed or not allowed:
                return text.decode(errors="replace")
            single = [token for token in allowed if token in self.single]
            closing = [token for token in single if self.single[token] in b"}]\":0"]
            token = self.rng.choice(closing or single or sorted(allowed))
            self.peer.accept(matcher, token)
            text += self.vocabulary.tokens[token]
        return None

    def judge(self, whose, validator, text, is_number):
        if text is None:
            self.count[f"{whose} alone: no end found"] += 1
            return None
        try:
            value = json.loads(text, object_pairs_hook=unique_members)
            is_valid = validator.is_valid(value)
        except (KeyError, RecursionError):
            return None
        except ValueError:
            is_valid = False
        self.count[f"{whose} alone: " + ("invalid" if not is_valid else "valid, a longer number" if is_number else "valid")] += 1
        return is_valid


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabulary")
    parser.add_argument("--try-grammars", required=True)
    parser.add_argument("--peer", choices=PEERS, default="llguidance")
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=12)
    args = parser.parse_args()
    folder = tempfile.TemporaryDirectory()
    if args.vocabulary.endswith(".json"):
        args.vocabulary, listed = folder.name + "/tekken.gguf", args.vocabulary
        tekken_as_gguf(listed, args.vocabulary)
    ours = subprocess.Popen([args.try_grammars, args.vocabulary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    vocabulary = Vocabulary(json.loads(ours.stdout.readline()))
    try:
        peer = PEERS[args.peer](vocabulary)
    except ImportError as error:
        print(f"SKIPPED: compare_masks.py needs {args.peer}: {error}")
        sys.exit(77)
    compared = set(range(len(vocabulary.tokens))) - set(vocabulary.special_token_ids)
    schemas = Schemas(random.Random(args.seed))
    count, times, compiling = collections.Counter(), [], []
    ends, shown = Ends(args, peer, vocabulary, count), collections.Counter()
    while count["schemas"] < args.schemas:
        schema = schemas.root()
        ours.stdin.write(json.dumps({"schema": schema, "steps": args.steps, "seed": count["tried"]}) + "\n")
        ours.stdin.flush()
        result = json.loads(ours.stdout.readline())
        count["tried"] += 1
        grammar = None if "error" in result else peer.grammar(schema)
        if grammar is None:
            continue
        count["schemas"] += 1
        compiling.append(result["compile_us"])
        matcher, tokens = peer.matcher(grammar), []
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for step in result["steps"]:
            times.append(step["us"])
            mine = bits_of(step["mask"]) & compared
            theirs = peer.mask(matcher) & compared
            count["masks"] += 1
            count["equal"] += mine == theirs
            text = b"".join(vocabulary.tokens[token] for token in tokens)
            for whose, alone in (("ours", sorted(mine - theirs)), ("theirs", sorted(theirs - mine))):
                if not alone:
                    continue
                count[f"{whose} allow more"] += 1
                for token in ends.rng.sample(alone, min(5, len(alone))):  # behind a part of a character there may be no end that is drawn
                    end = (ends.of_ours(schema, text + vocabulary.tokens[token]) if whose == "ours" else
                           ends.of_theirs(grammar, tokens + [token]))
                    if end is not None:
                        break
                is_number = re.search(rb"[0-9][-+.eE0-9]*$", text) is not None and re.match(rb"[-+.eE0-9]", vocabulary.tokens[token]) is not None
                is_valid = ends.judge(whose, validator, end, is_number)
                if not is_number and shown[whose, is_valid] < args.show and (whose, is_valid, count["schemas"]) not in shown:
                    shown[whose, is_valid, count["schemas"]] = 1  # of a schema one
                    shown[whose, is_valid] += 1
                    print(whose, "alone:", vocabulary.tokens[token], "behind", text[-60:], "to", str(end)[-80:],
                          {True: "valid", False: "INVALID"}.get(is_valid, "-"), json.dumps(schema)[:400])
            if step["token"] < 0:
                break
            token = vocabulary.same[step["token"]]
            if not peer.accept(matcher, token):
                count["walks that end at a token of ours alone"] += 1
                break
            tokens.append(token)
    print(args.peer, importlib.metadata.version(args.peer), json.dumps(count, indent=1))
    for what, all_us in (("masks", sorted(times)), ("compiling", sorted(compiling))):
        print(f"our {what}: median {all_us[len(all_us) // 2]:.2f} us, 99th percentile {all_us[len(all_us) * 99 // 100]:.1f} us, longest {all_us[-1]:.0f} us")
    return 1 if count["ours alone: invalid"] else 0


if __name__ == "__main__":
    sys.exit(main())
