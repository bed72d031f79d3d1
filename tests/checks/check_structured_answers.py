#!/usr/bin/env python3
"""Asks a server for answers to random JSON schemas, at temperature 1, and checks each that has ended with the package jsonschema.

    check_structured_answers.py --minfer build/release/minfer [--schemas 10000] [--model MODEL]

Starts the server itself (the demo model unless told otherwise). Schemas are those of check_grammars.py. Prints how many the server refused,
how many answers ended, and how many of those are valid. Exit status: 0 all valid, 1 one is not (the first are printed) or an answer failed,
77 skipped because jsonschema is missing.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import sys
import urllib.error
import urllib.request

try:
    import jsonschema
except ImportError as error:
    print(f"SKIPPED: check_structured_answers.py needs jsonschema: {error}")
    sys.exit(77)

from check_grammars import Schemas

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/bench"))
from minfer_server import start

FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER


def ask(url, schema, seed, style):
    body = {"prompt": "Once upon a time", "temperature": 1, "seed": seed, "max_tokens": 300,
            "structured_outputs": {"json": schema, "disable_any_whitespace": style == "compact"}}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            choice = json.load(response)["choices"][0]
            return choice["finish_reason"], choice["text"]
    except urllib.error.HTTPError as error:
        return f"status {error.code}", error.read().decode()


def judge(schema, finish, text, count):
    """What is wrong with an answer; None: nothing."""
    if finish == "status 400":
        count["refused"] += 1
        return None
    if finish == "length":
        count["cut off"] += 1
        return None
    if finish != "stop":
        return finish
    count["ended"] += 1
    try:
        jsonschema.Draft202012Validator(schema, format_checker=FORMATS).validate(json.loads(text))
    except RecursionError:  # references that lead back without an end, in an alternative that does not matter
        count["not judged"] += 1
        return None
    except (ValueError, jsonschema.ValidationError) as error:
        return str(error).splitlines()[0]
    count["valid"] += 1
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minfer", required=True)
    parser.add_argument("--model", default="")
    parser.add_argument("--schemas", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    schemas = Schemas(random.Random(args.seed))
    server, url = start(args.minfer, args.model)
    count, wrong = collections.Counter(), []
    try:
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            asked = []
            for i in range(args.schemas):
                schema = schemas.root()
                asked.append((schema, pool.submit(ask, url, schema, i, "compact" if i % 2 else "free")))
            for schema, answer in asked:
                finish, text = answer.result()
                problem = judge(schema, finish, text, count)
                if problem:
                    wrong.append((schema, text, problem))
    finally:
        server.terminate()
        server.wait(30)
    for schema, text, problem in wrong[:10]:
        print(f"{problem}\n  schema {json.dumps(schema)}\n  answer {text[:500]}")
    print(f"{args.schemas} schemas: {dict(count)}, {len(wrong)} wrong")
    sys.exit(1 if wrong or not count["valid"] else 0)


if __name__ == "__main__":
    main()
