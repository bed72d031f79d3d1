#!/usr/bin/env python3
"""Compares our chat templates with Python's Jinja2 on random conversations.

Every .jinja file of the folders given is rendered by jinja2 in Hugging Face's environment (immutable sandbox, trim_blocks,
lstrip_blocks, loop controls, their tojson, raise_exception, strftime_now and generation tag) and by tests' render_chats, and both
must give the same text or both must fail. Besides, no byte that a conversation brings may stand where special tokens are
looked for: texts of conversations carry a mark that templates do not have.
Short templates that show the language (tests/models/data/jinja_snippets.txt) are compared in the same way; what Jinja2 makes of
them is kept beside them for tests without Python.
Exit status: 0 all equal, 1 a difference (the shortest conversation found that shows it is printed), 77 skipped because
jinja2 or the templates are missing.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError as error:
    print(f"SKIPPED: check_templates.py needs jinja2: {error}")
    sys.exit(77)

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)  # the time of render_chats
MARK = "\ue000"  # stands in texts of conversations only

WORDS = ("the quick brown fox naïve straße ΣΊΣΥΦΟΣ мир 日本語 한국어 e\u0301 ﬁ 😀 👩‍👩‍👧 don't \"quoted\" it's back\\slash a/b <b>bold</b> & "
         "{{ x }} {% raw %} {# c #} <|im_end|> <|eot_id|> <|end|> </s> <s> [INST] [/INST] <think> </think> <tool_call> </tool_call> "
         "/no_think /think <|im_start|>system %s %d {0} {} 1,000 3.14 0x1F None true null").split(" ")
SPACES = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u2028", "\u3000", ""]
SNIPPETS = pathlib.Path(__file__).resolve().parents[2] / "tests/models/data/jinja_snippets.txt"
SNIPPET_VARIABLES = {
    "s": "Hello, Wörld!", "l": [3, 1, 2], "d": {"b": 1, "a": 2, "items": 3},
    "p": [{"name": "Ann", "age": 30, "city": "Oslo", "tags": ["x"]}, {"name": "bob", "age": 41, "city": "Rome", "tags": []},
          {"name": "Cy", "age": 25, "city": "Oslo", "tags": ["y"]}],
    "t": [{"v": 1, "c": [{"v": 2}, {"v": 3, "c": [{"v": 4}]}]}, {"v": 5}]}
NAMES = ["get_weather", "search", "run_code", "a", "größe", "get time", "items", "keys", "x-1"]


class Conversations:
    """Random input of templates. Most are as clients send them, many of those plain alternating turns; `wild` ones miss fields or
    have others' types."""

    def __init__(self, rng):
        self.rng = rng
        self.tools = self.parts = False  # whether this conversation calls tools, has contents of parts

    def text(self, longest=12):
        rng = self.rng
        parts = [rng.choice(SPACES)] if rng.random() < 0.3 else []
        for _ in range(rng.randint(0, longest)):
            parts += [rng.choice(WORDS), rng.choice(SPACES)]
        if rng.random() < 0.2:
            parts.insert(rng.randint(0, len(parts)), "<think>" + rng.choice(WORDS) + "</think>")
        text = "".join(parts)
        return text[:len(text) // 2] + MARK + text[len(text) // 2:] if rng.random() < 0.7 else text

    def scalar(self):
        rng = self.rng
        return rng.choice([None, True, False, 0, 1, -7, 42, 2**40, 1.5, -0.0, 1e16, 1e-7, 123456.789, 100.0, "", self.text(3)])

    def value(self, depth=2):
        rng = self.rng
        kind = rng.random()
        if depth == 0 or kind < 0.6:
            return self.scalar()
        if kind < 0.8:
            return [self.value(depth - 1) for _ in range(rng.randint(0, 3))]
        return self.mapping(depth - 1)

    def mapping(self, depth=1):
        rng = self.rng
        keys = ["city", "unit", "x", "größe", "items", "a b", "type", "n"]
        return {key: self.value(depth) for key in rng.sample(keys, rng.randint(0, 4))}

    def schema(self, depth=2):
        rng = self.rng
        kind = rng.choice(["string", "integer", "number", "boolean", "array", "object", ["string", "null"]])
        schema = {"type": kind}
        if rng.random() < 0.6:
            schema["description"] = self.text(4)
        if rng.random() < 0.2:
            schema["enum"] = [self.text(1), self.text(1), rng.randint(0, 9)]
        if rng.random() < 0.1:
            schema["default"] = self.scalar()
        if rng.random() < 0.1:
            schema["nullable"] = rng.random() < 0.5
        if kind == "array" and depth > 0:
            schema["items"] = self.schema(depth - 1)
        if kind == "object" and depth > 0:
            schema.update(self.object_schema(depth - 1))
        return schema

    def object_schema(self, depth=2):
        rng = self.rng
        names = rng.sample(["city", "unit", "days", "filter", "größe", "tags"], rng.randint(0, 3))
        schema = {"type": "object", "properties": {name: self.schema(depth) for name in names}}
        if rng.random() < 0.7:
            schema["required"] = [name for name in names if rng.random() < 0.5]
        if rng.random() < 0.1:
            schema["additionalProperties"] = False
        return schema

    def tool(self, wild):
        rng = self.rng
        function = {"name": rng.choice(NAMES), "description": self.text(6), "parameters": self.object_schema()}
        if rng.random() < 0.15:
            function["return"] = {"type": "string", "description": self.text(3)}
        if wild and rng.random() < 0.3:
            del function[rng.choice(sorted(function))]
        if wild and rng.random() < 0.1:
            return function
        return {"type": "function", "function": function}

    def call(self, wild):
        rng = self.rng
        arguments = self.mapping()
        if rng.random() < 0.3:
            arguments = json.dumps(arguments, ensure_ascii=rng.random() < 0.5)
        call = {"id": f"call{rng.randint(0, 10**5):05d}", "type": "function",
                "function": {"name": rng.choice(NAMES), "arguments": arguments}}
        if wild and rng.random() < 0.4:
            del call[rng.choice(sorted(call))]
        return call

    def content(self, wild):
        rng = self.rng
        kind = rng.random()
        if kind < 0.6 or not (wild or self.parts):
            return self.text()
        parts = [{"type": "text", "text": self.text()} for _ in range(rng.randint(0 if wild else 1, 2))]
        if wild and rng.random() < 0.5:
            parts.append(rng.choice([{"type": "image"}, {"type": "image_url", "image_url": {"url": "u"}}, {"text": self.text()},
                                     {"type": "audio"}, {"type": "video"}, self.text(), {"type": "text"}]))
        return rng.choice([parts, None, self.scalar(), self.mapping()]) if wild else parts

    def message(self, role, wild):
        rng = self.rng
        message = {"role": role, "content": self.content(wild)}
        if role == "assistant" and rng.random() < 0.15:
            message[rng.choice(["reasoning_content", "thinking", "reasoning"])] = self.text()
        if wild and rng.random() < 0.1:
            message["name"] = self.text(1)
        if wild and rng.random() < 0.1:
            message[rng.choice(["prefix", "tool_plan", "refusal", "weight"])] = self.scalar()
        if wild and rng.random() < 0.06:
            del message[rng.choice(sorted(message))]
        return message

    def tool_turn(self, wild):
        """An assistant's calls and their results."""
        rng = self.rng
        calls = [self.call(wild) for _ in range(rng.choice([1, 1, 1, 2]))]
        first = self.message("assistant", wild)
        first["tool_calls"] = calls
        if rng.random() < 0.6:
            first["content"] = rng.choice([None, "", self.text(3)])
        if rng.random() < 0.15:
            first.pop("content", None)
        turn = [first]
        for call in calls:
            result = {"role": rng.choice(["tool"] * 9 + ["ipython"]), "content": rng.choice([self.text(), json.dumps(self.mapping())]),
                      "tool_call_id": call.get("id", "call00000")}
            if rng.random() < 0.6:
                result["name"] = call.get("function", {}).get("name", "a")
            if wild and rng.random() < 0.2:
                result["content"] = self.value()
            turn.append(result)
        return turn

    def messages(self, wild):
        rng = self.rng
        roles = ["system", "developer", "user", "assistant", "tool", "function", "critic", ""]
        messages = []
        if rng.random() < 0.4:
            messages.append(self.message(rng.choice(["system"] * 5 + ["developer"]), wild and rng.random() < 0.3))
        for _ in range(rng.randint(0 if wild else 1, 4)):
            messages.append(self.message("user", wild and rng.random() < 0.5))
            if self.tools and rng.random() < 0.5:
                messages += self.tool_turn(wild)
            if not wild or rng.random() < 0.85:
                messages.append(self.message("assistant", wild and rng.random() < 0.5))
            if wild and rng.random() < 0.15:
                messages.append(self.message(rng.choice(roles), wild))
        if rng.random() < 0.7 and messages and messages[-1].get("role") == "assistant":
            messages.append(self.message("user", wild and rng.random() < 0.2))
        if wild and rng.random() < 0.1:
            rng.shuffle(messages)
        return messages

    def make(self):
        rng = self.rng
        wild = rng.random() < 0.3
        self.tools = rng.random() < 0.4
        self.parts = rng.random() < 0.2
        chat = {"messages": self.messages(wild), "bos_token": "<s>", "eos_token": "</s>"}
        if rng.random() < 0.8:
            chat["add_generation_prompt"] = rng.random() < 0.7
        if rng.random() < 0.4:
            chat["tools"] = [self.tool(wild) for _ in range(rng.randint(0, 3))]
        if rng.random() < 0.15:
            chat["enable_thinking"] = rng.random() < 0.5
        if rng.random() < 0.05:
            chat["documents"] = [{"doc_id": 1, "title": self.text(2), "text": self.text(4), "contents": self.text(2)}]
        for name in ("tools_in_user_message", "date_string", "thinking", "keep_past_thinking", "reasoning_effort", "strftime_now",
                     "custom_tools", "controls", "available_tools", "thinking_budget", "citations"):
            if rng.random() < 0.02:
                chat[name] = rng.choice([True, False, self.text(1), 10, None])
        if chat.get("strftime_now") is None:
            chat.pop("strftime_now", None)
        return chat


class Generation(jinja2.ext.Extension):
    """{% generation %} as transformers has it: a call block, rendered as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    return environment


def expected(template, chat):
    """(text, None), or (None, the error)."""
    variables = {"tools": None, "documents": None, "add_generation_prompt": False, **chat}
    try:
        return template.render(**variables), None
    except Exception as error:  # templates fail with any of Python's errors
        return None, error


def ours(command, path, chats):
    """What render_chats makes of the conversations with one template, or without a path with the template of each."""
    lines = "".join(json.dumps(chat, ensure_ascii=False) + "\n" for chat in chats)
    done = subprocess.run([command] + ([str(path)] if path else []), input=lines.encode(), capture_output=True, check=False, timeout=600)
    if done.returncode != 0:
        return None, done.stderr.decode(errors="replace").strip()
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line], None


def difference(result, text, error):
    """What differs, or None."""
    if "error" in result:
        return None if error is not None else f"minfer fails: {result['error']}"
    if error is not None:
        return f"jinja2 fails, minfer does not: {type(error).__name__}: {error}"
    rendered = "".join(part for part, _ in result["parts"])
    if rendered != text:
        at = next((i for i, (a, b) in enumerate(zip(rendered, text)) if a != b), min(len(rendered), len(text)))
        return f"at {at}: minfer {ascii(rendered[max(0, at - 40):at + 40])}, jinja2 {ascii(text[max(0, at - 40):at + 40])}"
    if any(MARK in part for part, special in result["parts"] if special):
        return "a text of the conversation where special tokens are looked for"
    return None


def shrink(chat, differs):
    """A smaller conversation that still differs: fields and elements are left out while that holds."""

    def smaller(value):
        if isinstance(value, dict):
            for key in value:
                yield {k: v for k, v in value.items() if k != key}
            for key, inner in value.items():
                for less in smaller(inner):
                    yield {**value, key: less}
        elif isinstance(value, list):
            for i in range(len(value)):
                yield value[:i] + value[i + 1:]
            for i, inner in enumerate(value):
                for less in smaller(inner):
                    yield value[:i] + [less] + value[i + 1:]
        elif isinstance(value, str) and len(value) > 1:
            yield value[:len(value) // 2]
            yield value[len(value) // 2:]

    for _ in range(60):
        candidates = [c for c in smaller(chat) if "messages" in c and "bos_token" in c and "eos_token" in c][:400]
        found = differs(candidates)
        if found is None:
            return chat
        chat = found
    return chat


def check(command, path, environment, chats):
    """Number of conversations that differ, and how many both refuse; None if jinja2 does not take the template."""
    source = path.read_bytes().decode("utf-8")
    try:
        template = environment.from_string(source)
    except Exception as error:
        return None, f"jinja2 refuses the template: {error}"
    results, failure = ours(command, path, chats)
    if failure is not None:
        return len(chats), failure
    refused = 0
    wrong = []
    for chat, result in zip(chats, results):
        text, error = expected(template, chat)
        refused += error is not None
        what = difference(result, text, error)
        if what is not None:
            wrong.append((chat, what))
    if not wrong:
        return 0, f"{len(chats)} conversations equal, of which both refuse {refused}"

    def first_differing(candidates):
        outcomes, _ = ours(command, path, candidates) if candidates else ([], None)
        for candidate, outcome in zip(candidates, outcomes or []):
            if difference(outcome, *expected(template, candidate)) is not None:
                return candidate
        return None

    chat = shrink(min((chat for chat, _ in wrong), key=lambda c: len(json.dumps(c))), first_differing)
    (result,), _ = ours(command, path, [chat])
    what = difference(result, *expected(template, chat))
    return len(wrong), f"{len(wrong)} of {len(chats)} conversations differ, e.g. {json.dumps(chat)}: {what}"


def expected_snippets(environment):
    """[(template, text, error)]."""
    lines = SNIPPETS.read_text().split("\n")
    templates = [line.replace("⏎", "\n") for line in lines if line and not line.startswith("# ")]
    snippets = []
    for template in templates:
        try:
            parsed = environment.from_string(template)
        except Exception as error:
            snippets.append((template, None, error))
            continue
        snippets.append((template, *expected(parsed, {"messages": [], **SNIPPET_VARIABLES})))
    return snippets


def write_snippets(environment):
    cases = [{"template": template, **({"rendered": text} if error is None else {"error": f"{type(error).__name__}: {error}"})}
             for template, text, error in expected_snippets(environment)]
    content = {"variables": SNIPPET_VARIABLES, "cases": cases}
    SNIPPETS.with_suffix(".json").write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def check_snippets(command, environment):
    """Number of snippets that differ; prints each."""
    snippets = expected_snippets(environment)
    inputs = [{"messages": [], **SNIPPET_VARIABLES, "template": template} for template, _, _ in snippets]
    results, failure = ours(command, None, inputs)
    if failure is not None:
        sys.exit(failure)
    differences = 0
    for (template, text, error), result in zip(snippets, results):
        what = difference(result, text, error)
        if what is not None:
            differences += 1
            print(f"snippet {ascii(template)}: {what}")
    print(f"{len(snippets) - differences} of {len(snippets)} snippets equal")
    return differences


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=pathlib.Path, help="folders or .jinja files (default: ../shared/fixtures/templates)")
    parser.add_argument("--render-chats", default=str(root / "build/release/render_chats"), help="the command (default: %(default)s)")
    parser.add_argument("--conversations", type=int, default=1000, help="random conversations a template (default: %(default)s)")
    parser.add_argument("--write-snippets", action="store_true", help=f"write {SNIPPETS.with_suffix('.json').name} and do nothing else")
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    arguments = parser.parse_args()
    environment = make_environment()
    if arguments.write_snippets:
        write_snippets(environment)
        return 0
    if not os.access(arguments.render_chats, os.X_OK):
        parser.error(f"no command at {arguments.render_chats}: build it, or name it with --render-chats")
    folders = arguments.folders or [pathlib.Path(os.environ.get("MINFER_FIXTURES", root / "../shared/fixtures")) / "templates"]
    paths = sorted(p for folder in folders for p in ([folder] if folder.is_file() else folder.rglob("*.jinja")))
    if not paths:
        print(f"SKIPPED: no .jinja file in {', '.join(map(str, folders))}")
        return 77

    differing_snippets = check_snippets(arguments.render_chats, environment)
    equal = refused = 0
    for path in paths:
        make = Conversations(random.Random(f"{arguments.seed} {path.name}")).make
        differing, message = check(arguments.render_chats, path, environment, [make() for _ in range(arguments.conversations)])
        print(f"{path.name}: {message}", flush=True)
        refused += differing is None
        equal += differing == 0
    print(f"{equal} of {len(paths) - refused} templates equal; {refused} that jinja2 refuses")
    return 0 if equal + refused == len(paths) and differing_snippets == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
