"""Validates every line of a profile file: check_schema.py SCHEMA FILE. Exits with 77 where `jsonschema` is not installed."""

import json
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    sys.exit(77)

schema_path, profile_path = sys.argv[1:]
with open(schema_path, encoding="utf-8") as file:
    schema = json.load(file)
Draft202012Validator.check_schema(schema)
validator = Draft202012Validator(schema)
with open(profile_path, encoding="utf-8") as file:
    for number, line in enumerate(file, start=1):
        for error in validator.iter_errors(json.loads(line)):
            sys.exit(f"{profile_path}:{number}: {error.json_path}: {error.message}")
