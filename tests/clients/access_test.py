"""Who may ask: several keys, names of the server, pages of other origins, any model's name."""

import http.client
import time

import openai
import pytest

from serving import Server

PAGE = "https://app.example"


def connect(server, **options):
    return openai.OpenAI(**{"base_url": server.base_url, "api_key": "none", "max_retries": 0, "timeout": 60, **options})


def request(server, method, path, headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_several_keys(minfer, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# of the team\nthird\n\n")
    with Server(minfer, "--api-key", "first", "--api-key", "second", "--api-key-file", str(keys)) as server:
        for key in ("first", "second", "third"):
            with connect(server, api_key=key) as client:
                assert client.models.list().data
        for key in ("# of the team", "firstsecond", "x"):
            with connect(server, api_key=key) as client, pytest.raises(openai.AuthenticationError):
                client.models.list()
    log = str(server.log_lines())
    assert not [key for key in ("first", "second", "third") if key in log]


def test_any_model_name(minfer):
    with Server(minfer, "--served-model-name", "*") as server, connect(server) as client:
        assert client.completions.create(model="gpt-9", prompt="The", max_tokens=2).model == "gpt-9"
        assert [each.id for each in client.models.list()] == ["minfer-demo"]


def test_an_unknown_model_is_told_the_names(client):
    with pytest.raises(openai.NotFoundError, match="`minfer-demo`"):
        client.completions.create(model="gpt-9", prompt="The", max_tokens=2)


def test_pages_and_names(minfer):
    with Server(minfer, "--cors-origins", PAGE, "--allowed-hosts", "llm.example,other.example") as server:
        asks = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        preflight = request(server, "OPTIONS", "/v1/chat/completions", asks)
        assert preflight.status == 200 and preflight.getheader("access-control-allow-origin") == PAGE
        assert preflight.getheader("access-control-allow-headers") == "content-type"
        answer = request(server, "GET", "/v1/models", {"Origin": PAGE})
        assert answer.status == 200 and answer.getheader("access-control-allow-origin") == PAGE
        assert request(server, "GET", "/v1/models", {"Origin": "https://evil.example"}).status == 403
        for host, status in (("llm.example", 200), ("other.example:80", 200), ("evil.example", 403)):
            assert request(server, "GET", "/v1/models", {"Host": host}).status == status


def test_open_to_others_without_a_key(minfer):
    """It is said at the start; pages of other sites are kept out all the same."""
    def warnings(server):
        return [line["event"] for line in server.log_lines() if line["level"] == "warning" and "--api-key" in line["event"]]

    with Server(minfer, "--host", "0.0.0.0") as server:
        deadline = time.monotonic() + 60
        while not warnings(server) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(warnings(server)) == 1
        assert request(server, "GET", "/v1/models", {"Host": "box.example"}).status == 200
        assert request(server, "GET", "/v1/models", {"Origin": "http://evil.example"}).status == 403
    with Server(minfer, "--host", "0.0.0.0", "--api-key", "k") as server:
        bearer = {"Authorization": "Bearer k"}
        assert request(server, "GET", "/v1/models", {**bearer, "Origin": "http://evil.example"}).status == 200
    assert not warnings(server)
