"""The bytes on the wire, read with Python's http.client: server-sent events, keep-alive, errors."""

import http.client
import json

import pytest

from serving import EXCHANGE_TIMEOUT_S

REQUEST = {"model": "minfer-demo", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}


@pytest.fixture
def connection(server):
    made = http.client.HTTPConnection("127.0.0.1", server.port, timeout=EXCHANGE_TIMEOUT_S)
    yield made
    made.close()


def post(connection, path, body):
    """(status, headers, body) of an answer."""
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    connection.request("POST", path, text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def events(body):
    """The data of each event. Nothing but data lines with an empty line behind each."""
    text = body.decode()
    assert text.endswith("\n\n") and "\r" not in text
    parts = text[:-2].split("\n\n")
    assert all(part.startswith("data: ") and "\n" not in part for part in parts)
    return [part.removeprefix("data: ") for part in parts]


def test_stream(connection):
    status, headers, body = post(connection, "/v1/completions", {**REQUEST, "stream": True})
    assert status == 200 and headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["transfer-encoding"] == "chunked" and headers["content-length"] is None
    assert headers["cache-control"] == "no-cache" and headers["x-request-id"]
    *chunks, last = events(body)
    assert last == "[DONE]" and 1 <= len(chunks) <= 12
    chunks = [json.loads(chunk) for chunk in chunks]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"} and len({chunk["id"] for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)


def test_connection_serves_on(connection):
    """After a stream, a whole answer and an error."""
    for _ in range(2):
        assert post(connection, "/v1/completions", {**REQUEST, "stream": True})[0] == 200
        socket = connection.sock
        assert post(connection, "/v1/completions", REQUEST)[0] == 200
        assert post(connection, "/v1/completions", {**REQUEST, "model": "x", "stream": True})[0] == 404
        assert connection.sock is socket


def test_error_before_a_stream_is_plain_json(connection):
    status, headers, body = post(connection, "/v1/completions", {**REQUEST, "stream": True, "n": 0})
    assert status == 400 and headers["content-type"] == "application/json"
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["param"] == "n"


@pytest.mark.parametrize("body", ["", "{", "[]", '"x"', "null", b'{"model":"\xff"}', '{"model":"minfer-demo","model":"x"}', "[" * 10000])
def test_bad_bodies(connection, body):
    status, _, answer = post(connection, "/v1/completions", body)
    assert status == 400 and json.loads(answer)["error"]["type"] == "invalid_request_error"
    assert post(connection, "/v1/completions", REQUEST)[0] == 200


def test_wrong_method_and_path(connection):
    connection.request("GET", "/v1/completions")
    answer = connection.getresponse()
    assert answer.status == 405 and answer.headers["allow"] == "POST" and json.loads(answer.read())["error"]
    assert post(connection, "/v1/nothing", {})[0] == 404


def test_body_sent_in_chunks(connection):
    """As clients do that do not know the length beforehand."""
    text = json.dumps(REQUEST).encode()
    pieces = [text[i : i + 7] for i in range(0, len(text), 7)]
    connection.request("POST", "/v1/completions", iter(pieces), {"Content-Type": "application/json"}, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 200 and json.loads(answer.read())["choices"][0]["text"]


def test_text_is_whole_utf8_in_every_event(connection, server):
    """Bytes of a character that several tokens make never come apart."""
    text = "naïve façade, 中文 😀👍🏽"
    ids = server.tokens(text)
    body = {"model": "minfer-demo", "prompt": ids, "echo": True, "max_tokens": 1, "stream": True}
    _, _, answer = post(connection, "/v1/completions", body)
    assert text in "".join(json.loads(event)["choices"][0]["text"] for event in events(answer)[:-1])
    euro = server.tokens("€")
    for token in set(ids + euro):  # each by itself, among them halves of characters
        body = {**REQUEST, "logit_bias": {str(token): 100}, "max_tokens": 3, "stream": True, "logprobs": 1}
        for event in events(post(connection, "/v1/completions", body)[2])[:-1]:
            json.loads(event)["choices"][0]["text"].encode()


def test_small_endpoints(server):
    assert json.loads(server.get("/health")) == {"status": "ok"}
    assert json.loads(server.get("/version"))["version"]
    tokens = server.post("/tokenize", {"model": "minfer-demo", "prompt": "Hello there"})
    assert tokens["count"] == len(tokens["tokens"])
    assert server.post("/detokenize", {"model": "minfer-demo", "tokens": tokens["tokens"]})["prompt"].endswith("Hello there")


def test_other_sites_are_kept_out(connection):
    """A page that somebody else serves cannot use the server of the machine that it is read on."""
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        connection.request("GET", "/v1/models", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 403 and json.loads(answer.read())["error"]["message"]
