"""Fields that harm nobody, as clients send them: the answer is the one without them."""

import json
import time

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from serving import Server

QUESTION = [{"role": "user", "content": "What is 23 plus 45?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "strict": True,
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "additionalProperties": False},
    },
}
# What OpenAI's own interface has and its client takes by name.
ADVICE = {
    "parallel_tool_calls": False,
    "reasoning_effort": "high",
    "verbosity": "low",
    "service_tier": "flex",
    "store": True,
    "metadata": {"team": "blue"},
    "prompt_cache_key": "k",
    "safety_identifier": "somebody",
    "user": "somebody",
    "prediction": {"type": "content", "content": "68"},
}
# What others send, and what nobody knows.
UNKNOWN = {"provider": {"order": ["a"]}, "thinking": {"type": "enabled"}, "length_penalty": 1.0, "x-my.field": None, "num_ctx": 2048}
IGNORED = {"provider", "thinking", "length_penalty", "num_ctx"}
# The demo model's template has no use for these.
UNUSED = {"tools", "reasoning_effort"}
# A template of a model that is shown calls and their results, with nothing of its own between them.
TOOL_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% if m.tool_calls %}{{ m.tool_calls }}{% endif %}\n{% endfor %}"


def ask(client, **fields):
    """The answer to QUESTION, greedily, and the names of the fields that were ignored."""
    raw = client.chat.completions.with_raw_response.create(
        **{"model": "minfer-demo", "messages": QUESTION, "max_completion_tokens": 40, "temperature": 0, **fields})
    ignored = raw.headers.get("x-minfer-ignored-fields", "")
    return raw.parse(), set(ignored.split(", ")) - {""}


def text_of(answer):
    return answer.choices[0].message.content


def test_advice(client):
    plain, _ = ask(client)
    answer, ignored = ask(client, tools=[WEATHER], **ADVICE)
    assert text_of(answer) == text_of(plain) and answer.service_tier == "default"
    assert ignored == UNUSED
    for name, value in ADVICE.items():
        assert text_of(ask(client, **{name: value})[0]) == text_of(plain), name
    nested = {"metadata": {"a": {"b": [1, None]}}, "store": "yes", "verbosity": 3}
    assert text_of(ask(client, extra_body=nested)[0]) == text_of(plain)


def test_unknown_fields(client):
    answer, ignored = ask(client, extra_body=UNKNOWN)
    assert text_of(answer) == text_of(ask(client)[0]) and ignored == IGNORED
    stream = client.chat.completions.with_raw_response.create(
        model="minfer-demo", messages=QUESTION, max_tokens=40, temperature=0, stream=True, extra_body=UNKNOWN)
    assert set(stream.headers["x-minfer-ignored-fields"].split(", ")) == IGNORED
    chunks = list(stream.parse())
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text_of(answer)


def test_messages_as_other_interfaces_have_them(client):
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "user", "name": "Ann",
               "content": [{"type": "text", "text": QUESTION[0]["content"], "cache_control": {"type": "ephemeral"}}]}
    answer, ignored = ask(client, messages=[message])
    assert text_of(answer) == text_of(ask(client)[0])
    assert ignored == {"messages[].id", "messages[].status", "messages[].content[].cache_control", "messages[].name"}


def test_each_is_logged_once(minfer):
    with Server(minfer) as server, openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        for _ in range(3):
            ask(client, extra_body={"num_ctx": 1, "a\nb": 2})
        ask(client, extra_body={"num_ctx": 1, "num_gpu": 2})

        def logged():
            return [line["fields"] for line in server.log_lines() if "fields" in line]

        deadline = time.monotonic() + 60
        while len(logged()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert logged() == ["num_ctx,a?b", "num_gpu"]  # the server has ended, its log is whole


def test_strict_fields(minfer):
    with Server(minfer, "--strict-fields") as server, openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        assert text_of(ask(client, tools=[WEATHER], **ADVICE)[0])
        for fields, param in (({"extra_body": {"num_ctx": 1}}, "num_ctx"),
                              ({"messages": [{**QUESTION[0], "id": "m"}]}, "messages[0].id")):
            with pytest.raises(openai.BadRequestError) as caught:
                ask(client, **fields)
            assert caught.value.param == param and "Unrecognized" in caught.value.message


@pytest.mark.parametrize("field", ["logits_processors", "bad_words", "documents", "best_of"])
def test_what_would_change_the_answer_is_refused(client, field):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, extra_body={field: 7})
    assert caught.value.param == field and caught.value.code == "unsupported_value"


def test_langchain_with_every_field(server):
    plain = ChatOpenAI(model="minfer-demo", base_url=server.base_url, api_key="none", temperature=0, max_tokens=40, max_retries=0)
    full = ChatOpenAI(
        model="minfer-demo", base_url=server.base_url, api_key="none", temperature=0, max_tokens=40, max_retries=0, n=1, seed=1, top_p=1,
        presence_penalty=0, frequency_penalty=0, logprobs=True, top_logprobs=1, stop=["@"], reasoning_effort="low", verbosity="low",
        service_tier="auto", store=False, metadata={"a": "b"}, logit_bias={"7": 0}, extra_body={"num_ctx": 5},
        model_kwargs={"user": "u", "prompt_cache_key": "k", "safety_identifier": "s", "parallel_tool_calls": False})
    question = QUESTION[0]["content"]
    assert full.invoke(question).content == plain.invoke(question).content
    streamed = list(full.stream(question))
    assert "".join(chunk.content for chunk in streamed) == plain.invoke(question).content
    bound = full.bind_tools([WEATHER["function"]], tool_choice="auto", strict=True, parallel_tool_calls=False)
    assert bound.invoke([HumanMessage(question, name="Ann")]).content == plain.invoke(question).content


def test_a_tool_call_goes_back_as_it_came(minfer, tmp_path):
    """`index`, which streams have, and what LangChain adds."""
    template = tmp_path / "tools.jinja"
    template.write_text(TOOL_TEMPLATE)
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": json.dumps({"town": "Ulm"})}}
    result = {"role": "tool", "tool_call_id": "call_1", "name": "get_weather", "content": "sunny"}
    messages = [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    with Server(minfer, "--chat-template", str(template)) as server:
        with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
            answer, ignored = ask(client, messages=messages, tools=[WEATHER], parallel_tool_calls=False)
            del call["index"]
            assert ignored == {"tools", "messages[].name"} and text_of(answer) == text_of(ask(client, messages=messages)[0])
        chat = ChatOpenAI(model="minfer-demo", base_url=server.base_url, api_key="none", temperature=0, max_tokens=10, max_retries=0)
        calls = [{"name": "get_weather", "args": {"town": "Ulm"}, "id": "call_1"}]
        history = [HumanMessage("Weather?"), AIMessage("", tool_calls=calls), ToolMessage("sunny", tool_call_id="call_1", name="get_weather")]
        assert chat.bind_tools([WEATHER["function"]]).invoke(history).response_metadata["finish_reason"] in ("length", "stop")
