#!/usr/bin/env python3
"""Compares our grammars of JSON schemas with the package jsonschema on random schemas.

Both directions, by tests' try_grammars: texts from random walks over what a grammar allows must all be valid, and a random instance must
be allowed if and only if it is valid. Members stand in the order of their declarations, so an instance counts as allowed if one order
of its members is. Besides, regular expressions are compared with Python's re.
Exit status: 0 all equal, 1 a difference (the first are printed), 77 skipped because jsonschema is missing.
"""

import argparse
import collections
import itertools
import json
import random
import re
import subprocess
import sys

try:
    import jsonschema
except ImportError as error:
    print(f"SKIPPED: check_grammars.py needs jsonschema: {error}")
    sys.exit(77)

NAMES = ["a", "b", "ab", "c\"", "é"]
PATTERNS = ["a", "^a", "b$", "^[ab]*$", "^(a|bc)+$", "[^a]", "^.{1,2}$", "^$|b", "é", "b\\d?$"]  # Python's \w and $ say something else than ECMA-262's
TEXTS = ["", "a", "b", "ab", "ba", "abc", "bcbc", "é", "\na", "\"", "aaaa", "😀b", "c\""]
FORMATS = ["date", "time", "date-time", "ipv4", "ipv6", "email", "uuid", "hostname", "duration", "uri"]
NUMBERS = [-12, -3, -2.5, -1, 0, 0.25, 0.5, 1, 2, 3, 5, 7.75, 10, 12, 60, 119, 1000]
SCALARS = [None, True, False, *NUMBERS, *TEXTS]
CONTAINERS = [[], [1], ["a", 2], {}, {"a": 1}, {"b": "ab", "a": None}, {"ab": {"b": 3}}]


class Schemas:
    """Random schemas of what is supported, and instances that have a chance to be valid."""

    def __init__(self, rng):
        self.rng = rng

    def schema(self, depth):
        rng = self.rng
        kind = rng.random()
        if kind < 0.03:
            return rng.random() < 0.7
        if depth > 0 and kind < 0.25:
            word = rng.choice(["anyOf", "allOf", "oneOf", "anyOf", "allOf"])
            made = {word: [self.schema(depth - 1) for _ in range(rng.randint(1, 3))]}
            if rng.random() < 0.5:
                made.update(self.typed(depth - 1))
            return made
        if depth > 0 and kind < 0.35:
            made = {"$ref": "#/$defs/" + rng.choice("xy")}
            if rng.random() < 0.3:
                made.update(self.typed(depth - 1))
            return made
        return self.typed(depth)

    def typed(self, depth):
        rng = self.rng
        types = rng.sample(["null", "boolean", "integer", "number", "string", "string", "array", "object", "object"], rng.choice([1, 1, 1, 2]))
        made = {}
        if rng.random() < 0.9:
            made["type"] = types[0] if len(types) == 1 else list(dict.fromkeys(types))
        if rng.random() < 0.12:
            made["enum"] = rng.sample(SCALARS + CONTAINERS, rng.randint(1, 6))
        if rng.random() < 0.05:
            made["const"] = rng.choice(SCALARS)
        self.some(made, 0.08, **{"not": lambda: self.complemented(min(2, depth))})
        if rng.random() < 0.08:
            made["if"] = self.complemented(min(2, depth))
            self.some(made, 0.7, **{"then": lambda: self.typed(max(0, depth - 1)), "else": lambda: self.typed(max(0, depth - 1))})
        for type_ in types:
            getattr(self, "add_" + type_, lambda made, depth: None)(made, depth)
        return made

    def complemented(self, depth):
        """What can be excluded, by "not" and "if"."""
        rng = self.rng
        kind = rng.choice(["values", "values", "typed", "typed", "ref", "all", "anyOf", "allOf", "oneOf", "not", "if", "members", "members"])
        if kind == "all":
            return rng.choice([{}, False, True])
        if kind == "ref":
            return {"$ref": "#/$defs/z"}
        if depth > 0 and kind in ("anyOf", "allOf", "oneOf"):
            return {kind: [self.complemented(depth - 1) for _ in range(rng.randint(1, 2))]}
        if depth > 0 and kind in ("not", "if"):
            return {word: self.complemented(depth - 1) for word in ([kind] if kind == "not" else ["if", "then", "else"])}
        if depth > 0 and kind == "members":
            made = {"properties": {name: self.complemented(depth - 1) for name in rng.sample(NAMES, rng.randint(1, 2))}}
            self.some(made, 0.5, required=lambda: rng.sample(NAMES, rng.randint(0, 2)), type=lambda: "object")
            self.some(made, 0.1, minProperties=lambda: rng.randint(0, 2), maxProperties=lambda: rng.randint(0, 2))
            return made
        made = {}
        if kind == "values":
            self.some(made, 0.6, const=lambda: rng.choice(SCALARS + CONTAINERS))
            self.some(made, 0.6, enum=lambda: rng.sample(SCALARS + CONTAINERS, rng.randint(1, 6)))
            return made
        self.some(made, 0.5, type=lambda: rng.choice(["null", "boolean", "integer", "number", "string", "array", "object"]))
        self.some(made, 0.2, minimum=lambda: rng.choice(NUMBERS), exclusiveMaximum=lambda: rng.choice(NUMBERS), maxLength=lambda: rng.randint(0, 3),
                  minLength=lambda: rng.randint(0, 3), pattern=lambda: rng.choice(PATTERNS), minItems=lambda: rng.randint(0, 2),
                  required=lambda: rng.sample(NAMES, rng.randint(0, 2)), maxItems=lambda: rng.randint(0, 2),
                  prefixItems=lambda: [self.complemented(0) for _ in range(rng.randint(1, 2))])
        return made

    def some(self, made, chance, **keywords):
        for keyword, make in keywords.items():
            if self.rng.random() < chance:
                made[keyword] = make()

    def add_number(self, made, _depth):
        number = lambda: self.rng.choice(NUMBERS) if self.rng.random() < 0.6 else self.number()
        self.some(made, 0.25, minimum=number, maximum=number, exclusiveMinimum=number, exclusiveMaximum=number)
        self.some(made, 0.1, multipleOf=lambda: self.rng.choice([1, 2, 3, 5, 10, 12, 60]))

    add_integer = add_number

    def number(self, near=0):
        value = round(near + self.rng.choice([0, 1, -1, 0.01, -0.01, self.rng.uniform(-1500, 1500)]), self.rng.randint(0, 4))
        return int(value) if value == int(value) else value  # 1.0 is an integer that grammars write as 1

    def add_string(self, made, _depth):
        self.some(made, 0.25, minLength=lambda: self.rng.randint(0, 3), maxLength=lambda: self.rng.randint(0, 4),
                  pattern=lambda: self.rng.choice(PATTERNS))
        self.some(made, 0.04, format=lambda: self.rng.choice(FORMATS))

    def add_array(self, made, depth):
        if depth == 0:
            return
        child = lambda: self.schema(depth - 1)
        self.some(made, 0.6, items=child)
        if self.rng.random() < 0.15:
            made.update(items={"enum": self.rng.sample(SCALARS + CONTAINERS, self.rng.randint(1, 5))}, uniqueItems=True)
        self.some(made, 0.25, minItems=lambda: self.rng.randint(0, 2), maxItems=lambda: self.rng.randint(0, 3),
                  prefixItems=lambda: [child() for _ in range(self.rng.randint(1, 3))])

    def add_object(self, made, depth):
        if depth == 0:
            return
        rng = self.rng
        child = lambda: self.schema(depth - 1)
        self.some(made, 0.8, properties=lambda: {name: child() for name in rng.sample(NAMES, rng.randint(1, 3))})
        self.some(made, 0.4, required=lambda: rng.sample(NAMES, rng.randint(1, 2)),
                  additionalProperties=lambda: rng.choice([False, False, child()]))
        self.some(made, 0.1, patternProperties=lambda: {rng.choice(PATTERNS): child()}, propertyNames=lambda: self.name_schema(),
                  minProperties=lambda: rng.randint(0, 2), maxProperties=lambda: rng.randint(0, 3))
        self.some(made, 0.06, dependentRequired=lambda: {rng.choice(NAMES): rng.sample(NAMES, rng.randint(0, 2)) for _ in range(2)},
                  dependentSchemas=lambda: {rng.choice(NAMES): child() for _ in range(2)})

    def name_schema(self):
        made = {}
        self.add_string(made, 0)
        return made

    def root(self):
        made = self.schema(3)
        if made in (True, False) or "$ref" in made:
            made = {"allOf": [made]}
        return {**made, "$defs": {"x": self.schema(2), "y": self.typed(2), "z": self.complemented(1)}}

    def instance(self, schema, root, depth=4):
        """A value that follows the schema in part: whether it is valid is for jsonschema to say."""
        rng = self.rng
        if schema in (True, False) or depth == 0 or rng.random() < 0.05:
            return rng.choice(SCALARS + [[], {}])
        if "$ref" in schema and rng.random() < 0.8:
            return self.instance(root["$defs"][schema["$ref"][-1]], root, depth - 1)
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema and rng.random() < 0.6:
                return self.instance(rng.choice(schema[word]), root, depth)
        if "const" in schema and rng.random() < 0.9:
            return schema["const"]
        if "enum" in schema and rng.random() < 0.9:
            return rng.choice(schema["enum"])
        types = schema.get("type", ["object", "array", "string", "number"])
        type_ = rng.choice(types) if isinstance(types, list) else types
        if type_ == "object":
            declared = schema.get("properties", {})
            names = [name for name in declared if rng.random() < 0.6 or name in schema.get("required", [])]
            names += [name for name in schema.get("required", []) if name not in names and rng.random() < 0.9]
            names += [name for name in rng.sample(NAMES, rng.choice([0, 0, 1])) if name not in names]
            other = schema.get("additionalProperties", True)
            return {name: self.instance(declared.get(name, other), root, depth - 1) for name in names[:3]}
        if type_ == "array":
            prefix = schema.get("prefixItems", [])
            size = rng.randint(schema.get("minItems", 0), 3)
            return [self.instance(prefix[i] if i < len(prefix) else schema.get("items", True), root, depth - 1) for i in range(size)]
        if type_ == "string":
            return rng.choice(TEXTS)
        if type_ in ("integer", "number"):
            limits = [schema[k] for k in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf") if k in schema]
            if limits and rng.random() < 0.7:
                return self.number(rng.choice(limits))
            return rng.choice(NUMBERS if type_ == "number" else [n for n in NUMBERS if isinstance(n, int)])
        return rng.choice([True, False]) if type_ == "boolean" else None


def orders(value):
    """All texts of a value, by the order of members."""
    if isinstance(value, dict):
        members = [[json.dumps(name, ensure_ascii=False) + ":" + text for text in orders(item)] for name, item in value.items()]
        return ["{" + ",".join(chosen) + "}" for order in itertools.permutations(members) for chosen in itertools.product(*order)]
    if isinstance(value, list):
        return ["[" + ",".join(chosen) + "]" for chosen in itertools.product(*[orders(item) for item in value])]
    return [json.dumps(value, ensure_ascii=False)]


def unique_members(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise KeyError("twice the same name")  # grammars cannot tell names apart that no schema declares
    return dict(pairs)


class Comparison:
    def __init__(self, args):
        self.args = args
        self.rng = random.Random(args.seed)
        self.counts = collections.Counter()
        self.failures = []

    def run_inputs(self, inputs):
        lines = "".join(json.dumps(line) + "\n" for line in inputs)
        done = subprocess.run([self.args.try_grammars], input=lines, capture_output=True, text=True, timeout=1800)
        if done.returncode != 0:
            sys.exit(f"try_grammars: status {done.returncode}\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.split("\n")[:-1]]

    def fail(self, what, input_, text):
        self.failures.append(f"{what}: {text}\n  {json.dumps({k: v for k, v in input_.items() if k not in ('texts', 'walks')}, ensure_ascii=False)}")

    def check_schemas(self):
        schemas = Schemas(self.rng)
        inputs, instances = [], []
        for number in range(self.args.schemas):
            schema = schemas.root()
            values = [schemas.instance(schema, schema) for _ in range(8)]
            texts = [orders(value) for value in values]
            values, texts = zip(*[(v, t) for v, t in zip(values, texts) if len(t) <= 200]) if any(len(t) <= 200 for t in texts) else ((), ())
            instances.append(list(zip(values, texts)))
            inputs.append({"schema": schema, "texts": [t for some in texts for t in some], "walks": 4, "seed": number,
                           "style": self.rng.choice(["free", "compact"])})
        for input_, cases, result in zip(inputs, instances, self.run_inputs(inputs)):
            validator = jsonschema.Draft202012Validator(input_["schema"], format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
            self.check_instances(input_, cases, result, validator)
            self.check_walks(input_, result, validator)

    def check_formats(self):
        inputs = [{"schema": {"type": "string", "format": format_}, "walks": 300, "seed": self.args.seed} for format_ in FORMATS]
        for input_, result in zip(inputs, self.run_inputs(inputs)):
            checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
            name = input_["schema"]["format"]
            self.counts[f"format {name}" + ("" if name in checker.checkers else " (jsonschema does not look at it)")] += len(result["walked"])
            self.check_walks(input_, result, jsonschema.Draft202012Validator(input_["schema"], format_checker=checker))

    def check_instances(self, input_, cases, result, validator):
        if "error" in result and "no text at all" not in result["error"]:
            self.counts["refused: " + re.sub(r"\d+", "N", result["error"].split(": ", 1)[-1])[:60]] += 1
            return
        self.counts["schemas"] += 1
        accepted = iter(result.get("accepted") or [False] * sum(len(texts) for _, texts in cases))
        for value, texts in cases:
            is_allowed = any([next(accepted) for _ in texts])
            try:
                is_valid = validator.is_valid(value)
            except RecursionError:
                continue
            self.counts["valid instances" if is_valid else "invalid instances"] += 1
            if is_valid and not is_allowed and "\"format\":" in json.dumps(input_["schema"]):
                continue  # formats have more texts than the grammar allows, or than jsonschema looks at
            if is_valid != is_allowed:
                self.fail("valid, but not allowed" if is_valid else "allowed, but not valid", input_, texts[0])

    def check_walks(self, input_, result, validator):
        for text in result.get("walked", []):
            try:
                value = json.loads(text, object_pairs_hook=unique_members)
            except KeyError:
                self.counts["walks with a name twice"] += 1
                continue
            except ValueError as error:
                self.fail(f"walked, but no JSON ({error})", input_, text)
                continue
            self.counts["walks"] += 1
            try:
                is_valid = validator.is_valid(value)
            except RecursionError:  # a schema that refers to itself in a branch that grammars have left out before
                continue
            if not is_valid:
                self.fail("walked, but not valid: " + next(validator.iter_errors(value)).message[:100], input_, text)

    def check_regexes(self):
        rng = self.rng
        def part(depth):
            kind = rng.random()
            if depth == 0 or kind < 0.4:
                return rng.choice(["a", "b", "c", ".", "[ab]", "[^a]", "\\d", "\\w", "é", "[a-c]", "1"])
            if kind < 0.6:
                return part(depth - 1) + part(depth - 1)
            if kind < 0.75:
                return "(" + part(depth - 1) + "|" + part(depth - 1) + ")"
            return "(?:" + part(depth - 1) + ")" + rng.choice(["*", "+", "?", "{2}", "{1,3}", "{0,2}?", "{2,}"])
        inputs = []
        for number in range(self.args.schemas):
            texts = ["".join(rng.choice("aabbc1é") for _ in range(rng.randint(0, 6))) for _ in range(20)]
            inputs.append({"regex": part(4), "texts": texts, "walks": 4, "seed": number})
        for input_, result in zip(inputs, self.run_inputs(inputs)):
            pattern = re.compile(input_["regex"], re.ASCII)
            for text, is_allowed in zip(input_["texts"], result["accepted"]):
                self.counts["regular expressions tried"] += 1
                if is_allowed != (pattern.fullmatch(text) is not None):
                    self.fail(f"re.fullmatch says {not is_allowed}", input_, text)
            for text in result["walked"]:
                if not pattern.fullmatch(text):
                    self.fail("walked, but re.fullmatch fails", input_, repr(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--try-grammars", required=True)
    parser.add_argument("--schemas", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    comparison = Comparison(parser.parse_args())
    comparison.check_schemas()
    comparison.check_formats()
    comparison.check_regexes()
    for name, count in comparison.counts.most_common():
        print(f"{count:8}  {name}")
    for failure in comparison.failures[:10]:
        print(failure)
    print(f"{len(comparison.failures)} differences")
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
