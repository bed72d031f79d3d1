"""/openapi.json against the answers: whole ones, errors, and each event of streams. tests/clients/by_hand/schemathesis.sh tries many more
requests, but does not look into the data of events."""

import json
import urllib.error
import urllib.request

import jsonschema
import pytest

from serving import EXCHANGE_TIMEOUT_S, Server

JSON_TYPE = "application/json"
STREAM_TYPE = "text/event-stream"
MESSAGES = [{"role": "user", "content": "What is 2 + 3?"}]
FUNCTION = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
CHAT_TOOL = {"type": "function", "function": FUNCTION}
CUSTOM_TOOL = {"type": "custom", "name": "sum", "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9][+][0-9]"}}
CHAT_CUSTOM_TOOL = {"type": "custom", "custom": {"name": "sum", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[0-9][+][0-9]"}}}}
MESSAGES_TOOL = {"name": "add", "input_schema": FUNCTION["parameters"]}

# Path, body, and what a streamed one has beside.
ANSWERS = [
    ("/v1/completions", {"prompt": "Once", "max_tokens": 5, "logprobs": 2}, {"stream_options": {"include_usage": True}}),
    ("/v1/completions", {"prompt": ["Once", "Two"], "max_tokens": 5, "n": 2, "echo": True, "logprobs": 0}, {}),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 9, "stop": ["e", "a"]},
     {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 8, "logprobs": True, "top_logprobs": 2}, {}),
    ("/v1/chat/completions", {"messages": MESSAGES, "tools": [CHAT_TOOL], "tool_choice": "required", "service_tier": "auto"}, {}),
    ("/v1/chat/completions", {"messages": MESSAGES, "tools": [CHAT_CUSTOM_TOOL], "tool_choice": {"type": "custom", "custom": {"name": "sum"}}}, {}),
    ("/v1/responses", {"input": "Once", "max_output_tokens": 5, "instructions": "Be brief", "metadata": {"a": "b"}}, {}),
    ("/v1/responses", {"input": "Once", "tools": [{"type": "function", **FUNCTION}], "tool_choice": "required"}, {}),
    ("/v1/responses", {"input": "Once", "tools": [CUSTOM_TOOL], "tool_choice": {"type": "custom", "name": "sum"}}, {}),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 5, "stop_sequences": ["e"]}, {}),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 5, "timings_per_token": True}, {"stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 5, "timings_per_token": True}, {}),
    ("/v1/responses", {"input": "Once", "max_output_tokens": 5, "timings_per_token": True}, {}),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 5, "timings_per_token": True}, {}),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 300, "tools": [MESSAGES_TOOL], "tool_choice": {"type": "any"}}, {}),
]
# Answers that are streamed as a line an object.
LINES = [
    ("/api/chat", {"messages": MESSAGES, "options": {"num_predict": 5}, "timings_per_token": True}),
    ("/api/chat", {"messages": MESSAGES, "options": {"num_predict": 1500, "temperature": 1, "seed": 1}, "tools": [CHAT_TOOL], "tool_choice": "required"}),
    ("/api/generate", {"prompt": "Once", "options": {"num_predict": 5}}),
]
OTHERS = [
    ("POST", "/v1/messages/count_tokens", {"messages": MESSAGES}),
    ("POST", "/tokenize", {"prompt": "Once", "return_token_strs": True}),
    ("POST", "/tokenize", {"messages": MESSAGES}),
    ("POST", "/detokenize", {"tokens": [300, 301]}),
    ("POST", "/api/show", {"model": "minfer-demo"}),
    *[("POST", path, {**body, "stream": False}) for path, body in LINES],
    *[("GET", path, None) for path in ["/v1/models", "/tokenizer_info", "/version", "/health", "/openapi.json", "/profile/steps",
                                       "/profile/summary", "/profile/requests", "/api/tags", "/api/ps", "/api/version"]],
]
WRONG = [
    ("/v1/completions", {}), ("/v1/chat/completions", {"messages": []}), ("/v1/responses", {"input": 3}),
    ("/v1/messages", {"messages": MESSAGES}), ("/v1/messages/count_tokens", {}), ("/tokenize", {"prompt": 1}),
    ("/detokenize", {"tokens": [-1]}), ("/api/chat", {"messages": []}), ("/api/generate", {"prompt": 1}), ("/api/show", {"model": 1}), ("/infill", {"input_prefix": "a", "input_suffix": "b"}), ("/start_profile", {"detail": "all"}),
]


class Described:
    """A server, and what its document says."""

    def __init__(self, url):
        self._url = url
        self.document = json.loads(self.call("GET", "/openapi.json")[1])

    def call(self, method, path, body=None):
        """(status, text) of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"content-type": JSON_TYPE}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=EXCHANGE_TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def errors(self, schema, value):
        """What of a value is not as its schema says."""
        whole = {"allOf": [schema], "components": self.document["components"]}
        return [error.message for error in jsonschema.Draft202012Validator(whole).iter_errors(value)]

    def schema(self, method, path, status, content_type):
        responses = self.document["paths"][path][method.lower()]["responses"]
        found = self.resolved(responses[str(status)] if str(status) in responses else responses[f"{status // 100}XX"])
        return found["content"][content_type]["schema"]

    def resolved(self, schema):
        while "$ref" in schema:
            place = self.document
            for name in schema["$ref"].removeprefix("#/").split("/"):
                place = place[name]
            schema = place
        return schema

    def data_errors(self, event_schema, data):
        """The same of an event's data, which is JSON in a string."""
        described = self.resolved(event_schema)["properties"]["data"]
        contents = [each["contentSchema"] for each in described.get("anyOf", [described]) if "contentSchema" in each]
        assert contents
        tried = [self.errors(content, data) for content in contents]
        return [] if [] in tried else tried


@pytest.fixture(scope="module")
def described(minfer, tool_options):
    with Server(minfer, *tool_options, "--tool-call-parser", "hermes") as server:
        yield Described(server.url)


def events(text):
    """The fields of each event."""
    return [dict(line.split(": ", 1) for line in event.split("\n")) for event in text.split("\n\n") if event]


@pytest.mark.parametrize("path, body, _", ANSWERS)
def test_whole_answers(described, path, body, _):
    status, text = described.call("POST", path, body)
    assert status == 200, text
    assert described.errors(described.schema("POST", path, status, JSON_TYPE), json.loads(text)) == []


@pytest.mark.parametrize("path, body, more", ANSWERS)
def test_events(described, path, body, more):
    status, text = described.call("POST", path, {**body, "stream": True, **more})
    assert status == 200, text
    schema = described.schema("POST", path, status, STREAM_TYPE)
    found = events(text)
    assert len(found) > 1
    for event in found:
        assert described.errors(schema, event) == []
        if event["data"] == "[DONE]":
            continue
        data = json.loads(event["data"])
        assert "error" not in data
        assert described.data_errors(schema, data) == []
        assert event.get("event", data.get("type")) == data.get("type")


@pytest.mark.parametrize("path, body", LINES)
def test_lines(described, path, body):
    status, text = described.call("POST", path, body)
    assert status == 200, text
    schema = described.schema("POST", path, status, "application/x-ndjson")
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) > 1 and all("error" not in line for line in lines)
    assert [error for line in lines for error in described.errors(schema, line)] == []


@pytest.mark.parametrize("method, path, body", OTHERS)
def test_other_answers(described, method, path, body):
    status, text = described.call(method, path, body)
    assert status == 200, text
    assert described.errors(described.schema(method, path, status, JSON_TYPE), json.loads(text)) == []


@pytest.mark.parametrize("path, body", WRONG)
def test_errors(described, path, body):
    status, text = described.call("POST", path, body)
    assert status == 400
    assert described.errors(described.schema("POST", path, status, JSON_TYPE), json.loads(text)) == []


def check_call(described, method, path, url, expected):
    status, text = described.call(method, url)
    assert status == expected, text
    assert described.errors(described.schema(method, path, status, JSON_TYPE), json.loads(text)) == []


def test_profiles(described):
    for path, expected in [("/stop_profile", 409), ("/start_profile", 200), ("/start_profile", 409), ("/stop_profile", 200)]:
        check_call(described, "POST", path, path, expected)


def test_kept_responses(described):
    kept = json.loads(described.call("POST", "/v1/responses", {"input": "Once", "max_output_tokens": 2})[1])
    for method, expected in [("GET", 200), ("DELETE", 200), ("GET", 404), ("DELETE", 404)]:
        check_call(described, method, "/v1/responses/{id}", f"/v1/responses/{kept['id']}", expected)


def test_a_value_that_is_not_as_described_is_found(described):
    schema = described.schema("POST", "/v1/completions", 200, JSON_TYPE)
    assert described.errors(schema, {"id": 1})
    assert described.data_errors(described.schema("POST", "/v1/completions", 200, STREAM_TYPE), {"id": 1})
