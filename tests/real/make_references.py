#!/usr/bin/env python3
"""Writes what the tests compare trained models with: NAME.json and NAME-TEXT.logits in this folder, for the models of models.txt.

    make_references.py [--only NAME] [--keep FOLDER]

Everything is computed by transformers in float64 (reference_model.py), ids by the package tokenizers; needs both, torch, gguf, jinja2 and regex.

  texts         of each text in texts/: logits of 20 positions at 64 entries of the vocabulary, in a .logits file (int32 positions, int32 entries,
                int32 position[], float32 logits[positions][entries]); log-sum-exp and first choice there, over the whole vocabulary; the mean loss
                (log of the perplexity); a digest of the first choices of all positions but those whose best two logits are closer than 0.01
  greedy        continuations of prompts, and the least lead of a first choice over the second in them
  tokenisation  of 2,000 texts put together from fragments.json by a seeded generator, a digest of each text's ids
  schema        a greedy answer whose text can be matched by an expression all the way
  chat          ids of conversations rendered by the file's own template, a tool's loop with `content: null` among them
"""

import argparse
import json

import jinja2
import numpy as np
import regex

from reference_model import FOLDER, ReferenceModel, fnv, models, texts

POSITIONS, ENTRIES, NEAR_TIE = 20, 64, 0.01
PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "Water boils at a temperature of", "1, 2, 3, 5, 8,"]
GREEDY_TOKENS = 32
NUM_TEXTS, SEED = 2000, 43
# A member of each kind; the expression has the same white space as minfer's grammars of JSON.
SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["city", "country", "capital", "population"],
    "properties": {"city": {"type": "string", "maxLength": 20}, "country": {"enum": ["Germany", "France", "Spain", "Japan"]},
                   "capital": {"type": "boolean"}, "population": {"type": "integer", "minimum": 0, "maximum": 99999999}},
}
SPACE = r"(?: |\n[ \t]{0,20})?"
SCHEMA_EXPRESSION = SPACE.join([
    r"\{", '"city":', r'"[^"\\\x00-\x1f]{0,20}",', '"country":', '(?:"Germany"|"France"|"Spain"|"Japan"),', '"capital":', "(?:true|false),",
    '"population":', "(?:0|[1-9][0-9]{0,7})", r"\}"])
QUESTION = "Describe Paris as JSON with the members city, country, capital and population."
TOOLS_IN_PROMPT = 'You can call get_weather(city). Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call> to call it.'
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
CHATS = {
    "question": [{"role": "user", "content": QUESTION}],
    "turns": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end|>\n there"},
              {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "  2 + 2?\n"}],
    "tool loop": [{"role": "system", "content": TOOLS_IN_PROMPT}, {"role": "user", "content": "What is the weather in Paris?"},
                  {"role": "assistant", "content": None, "tool_calls": [CALL]},
                  {"role": "tool", "tool_call_id": "call_1", "content": '{"celsius": 21}'}],
}


def random_numbers(seed):
    """SplitMix64, which the test has too."""
    state = seed
    while True:
        state = (state + 0x9e3779b97f4a7c15) % 2**64
        z = (state ^ state >> 30) * 0xbf58476d1ce4e5b9 % 2**64
        z = (z ^ z >> 27) * 0x94d049bb133111eb % 2**64
        yield z ^ z >> 31


def random_texts():
    fragments = json.loads((FOLDER / "fragments.json").read_text())
    numbers = random_numbers(SEED)
    for _ in range(NUM_TEXTS):
        text = ""
        glue = ["", " ", " ", None][next(numbers) % 4]
        for _ in range(1 + next(numbers) % 30):
            text += fragments[next(numbers) % len(fragments)]
            text += glue if glue is not None else " " * (next(numbers) % 2)
        yield text


def of_text(model, name, text, model_name):
    ids = model.encode(text)
    positions = [round(i * (len(ids) - 1) / (POSITIONS - 1)) for i in range(POSITIONS)]
    chosen, firsts, losses, near_ties = {}, [], [], []
    for start, rows in model.logits(ids):
        largest = rows.max(axis=1)
        totals = largest + np.log(np.exp(rows - largest[:, None]).sum(axis=1))
        for i, row in enumerate(rows):
            position = start + i
            best = np.argpartition(row, -2)[-2:]
            firsts.append(int(row.argmax()))
            if abs(row[best[0]] - row[best[1]]) < NEAR_TIE:
                near_ties.append(position)
            if position + 1 < len(ids):
                losses.append(float(totals[i] - row[ids[position + 1]]))
            if position in positions:
                chosen[position] = (row, float(totals[i]))
    entries = [round(i * (model.vocab_size - 1) / (ENTRIES - 1)) for i in range(ENTRIES)]
    values = np.array([chosen[p][0][entries] for p in positions])
    header = np.array([POSITIONS, ENTRIES, *positions], dtype="<i4")
    (FOLDER / f"{model_name}-{name}.logits").write_bytes(header.tobytes() + values.astype("<f4").tobytes())
    return {"num_tokens": len(ids), "ids": fnv(ids), "mean_loss": float(np.mean(losses)), "log_sum_exp": [round(chosen[p][1], 7) for p in positions],
            "first": [firsts[p] for p in positions], "near_ties": near_ties,
            "all_first": fnv([first for p, first in enumerate(firsts) if p not in set(near_ties)])}


def greedy(model, ids, count, allowed=lambda taken, logits: int(logits.argmax())):
    """Tokens, and the least lead over the second choice."""
    cache, given, taken, margin = model.new_cache(), ids, [], float("inf")
    while len(taken) < count:
        logits = model.next_logits(given, cache)
        token = allowed(taken, logits)
        if token is None:
            break
        second = np.partition(logits, -2)[-2]
        margin = min(margin, float(logits.max() - second))
        taken.append(token)
        given = [token]
    return taken, margin


def continuations(model):
    for prompt in PROMPTS:
        taken, margin = greedy(model, model.encode(prompt), GREEDY_TOKENS)
        yield {"prompt": prompt, "tokens": taken, "least_lead": round(margin, 4)}


def answer_by_schema(model, pieces):
    """The best token at each step behind which the text can still be completed; the text ends where it is complete."""
    expression = regex.compile(SCHEMA_EXPRESSION)

    def best_allowed(taken, logits):
        text = "".join(pieces(token) for token in taken)
        if expression.fullmatch(text):
            return None
        for token in np.argsort(-logits):
            piece = pieces(int(token))
            if piece and expression.fullmatch(text + piece, partial=True):
                return int(token)
        raise AssertionError(text)

    taken, _ = greedy(model, model.encode_markup(render(model, CHATS["question"])), 100, best_allowed)
    return "".join(pieces(token) for token in taken)


def render(model, messages):
    """`content: null` beside tool calls is an empty text: templates print it. What the loop's calls are is this template's to ignore."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    messages = [{**message, "content": message["content"] or ""} for message in messages]
    return environment.from_string(model.metadata("tokenizer.chat_template")).render(messages=messages, add_generation_prompt=True)


def encode_chat(model, messages):
    """As minfer does, a user's text is text: names of control tokens in it are taken letter by letter."""
    marks = {f"\ue001{i}\ue002": message["content"] for i, message in enumerate(messages)}
    rendered = render(model, [{**message, "content": mark} for message, mark in zip(messages, marks)])
    ids, text = [], ""
    control = [t for t, kind in zip(model.metadata("tokenizer.ggml.tokens"), model.metadata("tokenizer.ggml.token_type")) if kind == 3]
    for piece in regex.split("(" + "|".join(map(regex.escape, control)) + ")", rendered):
        if piece in control:
            ids.append(model.metadata("tokenizer.ggml.tokens").index(piece))
            continue
        for mark, content in marks.items():
            piece = piece.replace(mark, content or "")
        ids += model.tokenizer.encode(piece, add_special_tokens=False).ids
    return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=models(), help="this model alone")
    parser.add_argument("--keep", help="a folder: hidden states stay there, and a second run, or beside_llama_cpp.py, reads them")
    arguments = parser.parse_args()
    for name, path in models().items():
        if arguments.only not in (None, name):
            continue
        model = ReferenceModel(path, arguments.keep)
        reference = {"made_by": "tests/real/make_references.py", "texts": {}}
        for text_name, text in texts().items():
            reference["texts"][text_name] = of_text(model, text_name, text, name)
            print(name, text_name, reference["texts"][text_name]["num_tokens"], "tokens", flush=True)
        reference["tokenisation"] = {"num_texts": NUM_TEXTS, "seed": SEED, "digests": "".join(
            fnv(model.tokenizer.encode(text, add_special_tokens=False).ids)[-4:] for text in random_texts())}
        reference["greedy"] = list(continuations(model))
        print(name, "greedy: least leads", [entry["least_lead"] for entry in reference["greedy"]], flush=True)
        if model.metadata("tokenizer.chat_template"):
            from tokenizers import decoders
            bytes_of = decoders.ByteLevel()
            tokens, types = model.metadata("tokenizer.ggml.tokens"), model.metadata("tokenizer.ggml.token_type")
            reference["schema"] = {"schema": SCHEMA, "text": answer_by_schema(
                model, lambda token: "" if types[token] == 3 else bytes_of.decode([tokens[token]]))}
            reference["chat"] = [{"name": chat, "messages": messages, "ids": encode_chat(model, messages)} for chat, messages in CHATS.items()]
            print(name, "schema:", reference["schema"]["text"], flush=True)
        (FOLDER / f"{name}.json").write_text(json.dumps(reference, indent=1).replace("\n   ", " ").replace("\n  ]", " ]") + "\n")


if __name__ == "__main__":
    main()
