#!/usr/bin/env python3
"""Compares our masks with those of the package llguidance, on random walks over the tokens of a vocabulary.

    compare_masks.py --try-grammars build/release/try_grammars VOCABULARY.gguf [--schemas 200] [--steps 40]

Schemas are those of check_grammars.py that both compile, in compact style. In front of each token of a walk both say which tokens may come.
Prints how many masks are equal, equal but for two known differences (ours allow DEL and "\\/" in strings; theirs allow numbers of any length), and
different otherwise, with the first few of these; then what our masks took.
Exit status: 0; 77 if llguidance is missing.
"""

import argparse
import collections
import json
import random
import re
import subprocess
import sys

try:
    import llguidance
except ImportError as error:
    print(f"SKIPPED: compare_masks.py needs llguidance: {error}")
    sys.exit(77)

from check_grammars import Schemas


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


def bits_of(words_hex):
    words = (int(words_hex[i:i + 8], 16) for i in range(0, len(words_hex), 8))
    return {32 * i + bit for i, word in enumerate(words) if word for bit in range(32) if word >> bit & 1}


def is_known(token, is_ours):
    if is_ours:
        return b"\x7f" in token or b"\\/" in token
    return re.fullmatch(rb"[-+.eE]*[0-9][-+.eE0-9]*[,\]}\s:\"{\[]*.*", token, re.DOTALL) is not None


def their_bits(matcher, size):
    mask = matcher.compute_logit_bias()
    return {i for i, byte in enumerate(mask[:size]) if byte}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabulary")
    parser.add_argument("--try-grammars", required=True)
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    ours = subprocess.Popen([args.try_grammars, args.vocabulary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    vocabulary = Vocabulary(json.loads(ours.stdout.readline()))
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary))
    compared = set(range(len(vocabulary.tokens))) - set(vocabulary.special_token_ids)
    schemas = Schemas(random.Random(args.seed))
    count = collections.Counter()
    times, shown = [], 0
    while count["schemas"] < args.schemas:
        schema = schemas.root()
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": False})
        ours.stdin.write(json.dumps({"schema": schema, "steps": args.steps, "seed": count["tried"]}) + "\n")
        ours.stdin.flush()
        result = json.loads(ours.stdout.readline())
        count["tried"] += 1
        if "error" in result or llguidance.LLMatcher.validate_grammar(grammar, tokenizer):
            continue
        count["schemas"] += 1
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        text = b""
        for step in result["steps"]:
            times.append(step["us"])
            mine = bits_of(step["mask"]) & compared
            theirs = their_bits(matcher, len(vocabulary.tokens)) & compared
            count["masks"] += 1
            alone = [vocabulary.tokens[t] for t in sorted(mine - theirs) if not is_known(vocabulary.tokens[t], True)]
            theirs_alone = [vocabulary.tokens[t] for t in sorted(theirs - mine) if not is_known(vocabulary.tokens[t], False)]
            count["equal" if mine == theirs else "different" if alone or theirs_alone else "known differences"] += 1
            if (alone or theirs_alone) and shown < 12:
                shown += 1
                print(json.dumps(schema)[:300], "behind", text[-60:], "ours:", alone[:6], "theirs:", theirs_alone[:6])
            if step["token"] < 0:
                break
            token = vocabulary.same[step["token"]]
            if not matcher.consume_token(token):
                count["walks that end at a token of ours alone"] += 1
                break
            text += vocabulary.tokens[token]
    times.sort()
    print(dict(count))
    print(f"our masks: median {times[len(times) // 2]:.2f} us, 99th percentile {times[len(times) * 99 // 100]:.1f} us, longest {times[-1]:.0f} us")


if __name__ == "__main__":
    main()
