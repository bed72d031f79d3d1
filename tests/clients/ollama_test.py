"""The official ollama client on Ollama's API."""

import json
import urllib.request

import httpx
import ollama
import pytest

from serving import EXCHANGE_TIMEOUT_S, Server

QUESTION = [{"role": "user", "content": "What is 23 plus 45?"}]
GREEDY = {"temperature": 0, "num_predict": 40}
CAT = {
    "type": "object", "additionalProperties": False, "required": ["name", "age"],
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 30}},
}


SUM = {"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "required": ["a", "b"],
    "properties": {"a": {"type": "integer", "enum": [23, 45]}, "b": {"type": "integer", "enum": [23, 45]}}}}}


class WithMembers(httpx.HTTPTransport):
    """Sends requests with further members."""

    def __init__(self, **members):
        super().__init__()
        self._members = members

    def handle_request(self, request):
        content = json.dumps({**json.loads(request.read()), **self._members}).encode()
        headers = {**request.headers, "content-length": str(len(content))}
        return super().handle_request(httpx.Request(request.method, request.url, headers=headers, content=content))


def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
      a: the first
      b: the second
    """
    return a + b


@pytest.fixture(scope="module")
def llama(server):
    return ollama.Client(host=server.url, timeout=EXCHANGE_TIMEOUT_S)


@pytest.fixture(scope="module")
def tool_llama(tool_server):
    return ollama.Client(host=tool_server.url, timeout=EXCHANGE_TIMEOUT_S)


@pytest.fixture(scope="module")
def chat(llama, model):
    """Answers QUESTION greedily unless told otherwise."""

    def call(client=llama, **fields):
        return client.chat(**{"model": model, "messages": QUESTION, "options": GREEDY, **fields})

    return call


def test_whole_chat(chat, model):
    answer = chat()
    assert answer.model == model and answer.message.role == "assistant" and "68" in answer.message.content
    assert answer.done and answer.done_reason == "stop" and answer.created_at
    assert answer.message.tool_calls is None and answer.message.thinking is None
    assert answer.prompt_eval_count > 0 and answer.eval_count > 0 and answer.eval_duration > 0
    assert answer.total_duration == answer.load_duration + answer.prompt_eval_duration + answer.eval_duration


def test_stream_joins_to_the_whole_chat(chat):
    whole, parts = chat(), list(chat(stream=True))
    assert len(parts) > 2 and [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert parts[-1].done_reason == "stop" and parts[-1].eval_count == whole.eval_count


def test_generate(llama, model, chat):
    """A prompt is a message of the user."""
    whole = llama.generate(model, QUESTION[0]["content"], options=GREEDY)
    assert whole.response == chat().message.content and whole.done_reason == "stop"
    parts = list(llama.generate(model, QUESTION[0]["content"], options=GREEDY, stream=True))
    assert "".join(part.response for part in parts) == whole.response
    system = llama.generate(model, QUESTION[0]["content"], system="You are a helpful assistant.", options=GREEDY)
    assert system.response == chat(messages=[{"role": "system", "content": "You are a helpful assistant."}, *QUESTION]).message.content


def test_raw_prompts_see_no_template(llama, model, client):
    raw = llama.generate(model, "Once upon a time", raw=True, options=GREEDY)
    plain = client.completions.create(model=model, prompt="Once upon a time", max_tokens=40, temperature=0)
    assert raw.response == plain.choices[0].text
    assert raw.prompt_eval_count == plain.usage.prompt_tokens


def test_options(chat):
    assert chat(options={"num_predict": 3}).done_reason == "length"
    stopped = chat(options={**GREEDY, "stop": ["68"]})
    assert stopped.done_reason == "stop" and "68" not in stopped.message.content
    warm = {"temperature": 1.5, "seed": 7, "top_k": 50, "top_p": 0.95, "min_p": 0.01, "num_predict": 20, "repeat_penalty": 1.1}
    assert chat(options=warm).message.content == chat(options=warm).message.content
    bound = chat(options={"num_ctx": chat().prompt_eval_count + 4})
    assert bound.eval_count == 4 and bound.done_reason == "length"
    assert chat(options=ollama.Options(temperature=0, num_predict=2, num_thread=2)).eval_count == 2


def test_names_with_the_tag(chat, model):
    assert chat(model=f"{model}:latest").model == f"{model}:latest"


def test_json_and_schemas(llama, chat, model):
    cat = json.loads(chat(format=CAT, options={"num_predict": 80}).message.content)
    assert set(cat) == {"name", "age"} and 0 <= cat["age"] <= 30
    parts = chat(format=CAT, options={"num_predict": 80, "temperature": 0}, stream=True)
    assert set(json.loads("".join(part.message.content for part in parts))) == {"name", "age"}
    assert llama.generate(model, "A cat.", format="json", options={"num_predict": 8}).response.lstrip().startswith("{")


@pytest.mark.parametrize("stream", [False, True])
def test_calls(tool_server, model, stream):
    """The demo model calls nothing by itself, and the client has no name for tool_choice."""
    client = ollama.Client(host=tool_server.url, timeout=EXCHANGE_TIMEOUT_S, transport=WithMembers(tool_choice="required"))
    answers = client.chat(model, QUESTION, tools=[SUM], options={"temperature": 1, "seed": 1, "num_predict": 1500}, stream=stream)
    parts = list(answers) if stream else [answers]
    calls = [call.function for part in parts for call in part.message.tool_calls or []]
    assert [call.name for call in calls] == ["add"] and "".join(part.message.content for part in parts) == ""
    assert set(calls[0].arguments) >= {"a", "b"} and calls[0].arguments["a"] in (23, 45)
    assert parts[-1].done_reason == "stop"


def test_tools_of_functions(tool_llama, chat):
    """The template shows them; the demo model answers all the same."""
    answer = chat(tool_llama, tools=[add])
    assert answer.message.tool_calls is None and answer.prompt_eval_count > chat(tool_llama).prompt_eval_count


def test_results_reach_the_template(minfer, model, tmp_path):
    template = tmp_path / "calls.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }} {{ m.tool_calls }} {{ m.name }}\n{% endfor %}")
    messages = [
        *QUESTION,
        ollama.Message(role="assistant", content="", thinking="hm", tool_calls=[
            ollama.Message.ToolCall(function=ollama.Message.ToolCall.Function(name="add", arguments={"a": 23, "b": 45}))]),
        {"role": "tool", "tool_name": "add", "content": "68"},
    ]
    with Server(minfer, "--chat-template", str(template)) as server:
        client = ollama.Client(host=server.url, timeout=EXCHANGE_TIMEOUT_S)
        short = client.chat(model, QUESTION, options=GREEDY)
        assert client.chat(model, messages, options=GREEDY).prompt_eval_count > short.prompt_eval_count + 10


def test_models(llama, tool_llama, model):
    (listed,) = llama.list().models
    assert listed.model == f"{model}:latest" and listed.size > 0 and listed.modified_at.year >= 2026
    assert listed.details.format == "gguf" and listed.details.family and listed.details.parameter_size
    shown = llama.show(listed.model)
    architecture = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{architecture}.context_length"] == 2048 and shown.capabilities == ["completion"]
    assert "tools" in tool_llama.show(model).capabilities
    (running,) = llama.ps().models
    assert running.model == listed.model and running.context_length == 2048


@pytest.mark.parametrize(
    "field, value",
    [("messages", []), ("messages", [{"role": "ghost", "content": "x"}]), ("options", {"num_predict": "x"}), ("options", {"typical_p": 0.5}),
     ("messages", [{"role": "user", "content": "x", "images": [b"x"]}]), ("logprobs", True), ("format", {"type": "thing"})],
)
def test_refused_values_name_the_field(chat, field, value):
    with pytest.raises(ollama.ResponseError) as caught:
        chat(**{field: value})
    assert caught.value.status_code == 400 and field in caught.value.error


def test_errors(llama, chat, model):
    for stream in (False, True):
        with pytest.raises(ollama.ResponseError) as caught:
            list(chat(model="llama3", stream=stream))
        assert caught.value.status_code == 404 and "llama3" in caught.value.error
    for call in (lambda: llama.show("llama3"), lambda: llama.embed(model, "x"), lambda: llama.pull("llama3")):
        with pytest.raises(ollama.ResponseError) as caught:
            call()
        assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError) as caught:
        chat(messages=[{"role": "user", "content": "word " * 5000}])
    assert "maximum context length" in caught.value.error


def test_ignored_fields_are_named(server):
    body = {"messages": QUESTION, "stream": False, "keep_alive": "5m", "options": {"num_predict": 2, "num_gpu": 1}}
    request = urllib.request.Request(server.url + "/api/chat", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=EXCHANGE_TIMEOUT_S) as answer:
        assert answer.headers["x-minfer-ignored-fields"] == "keep_alive, options.num_gpu"


def test_keys(minfer):
    with Server(minfer, "--api-key", "secret") as server:
        with pytest.raises(ollama.ResponseError) as caught:
            ollama.Client(host=server.url).list()
        assert caught.value.status_code == 401
        assert ollama.Client(host=server.url, headers={"authorization": "Bearer secret"}).list().models
