"""The official anthropic client on /v1/messages."""

import anthropic
import pytest

from serving import EXCHANGE_TIMEOUT_S, Server

QUESTION = [{"role": "user", "content": "What is 23 plus 45?"}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a town",
    "input_schema": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
}
# Shows the model what a conversation holds beside texts.
TOOL_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }} {% if m.tool_calls %}{{ m.tool_calls }}{% endif %}\n{% endfor %}")


@pytest.fixture(scope="module")
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=EXCHANGE_TIMEOUT_S) as made:
        yield made


@pytest.fixture(scope="module")
def ask(claude, model):
    """Answers QUESTION, greedily unless told otherwise. The client has no names for fields of sampling any more."""

    def call(create=claude.messages.create, **fields):
        return create(**{"model": model, "messages": QUESTION, "max_tokens": 40, "extra_body": {"temperature": 0}, **fields})

    return call


def text_of(message):
    assert [block.type for block in message.content] == ["text"]
    return message.content[0].text


def test_whole_answer(ask, model):
    answer = ask()
    assert answer.type == "message" and answer.role == "assistant" and answer.model == model
    assert answer.id.startswith("msg_") and "68" in text_of(answer)
    assert answer.stop_reason == "end_turn" and answer.stop_sequence is None
    assert answer._request_id and answer._request_id in answer.id
    usage = answer.usage
    assert usage.output_tokens > 0 and usage.input_tokens + usage.cache_read_input_tokens > 0


def test_stream_equals_whole_answer(ask, claude):
    """By the client's own accumulator of events."""
    with ask(claude.messages.stream) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_message()
    whole = ask()
    assert text_of(final) == text_of(whole) and final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert events[0] == "message_start" and events[-1] == "message_stop" and "text" in events
    with ask(claude.messages.stream) as stream:
        assert "".join(stream.text_stream) == text_of(whole)


def test_raw_stream(ask):
    types = [event.type for event in ask(stream=True)]
    assert types[:2] == ["message_start", "content_block_start"]  # the client keeps pings to itself
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(types[2:-3]) == {"content_block_delta"}


def test_stop_reasons(ask):
    assert ask(max_tokens=3).stop_reason == "max_tokens"
    stopped = ask(stop_sequences=["68"])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "68" and "68" not in text_of(stopped)
    assert ask(max_tokens=1_000_000).stop_reason == "end_turn"  # a bound: what the context leaves is taken


def test_system_blocks_and_fields_without_effect(ask):
    plain = ask()
    cached = {"type": "ephemeral"}
    blocks = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"], "cache_control": cached}]}]
    assert text_of(ask(messages=blocks, metadata={"user_id": "u"}, service_tier="auto")) == text_of(plain)
    system = [{"type": "text", "text": "You are a helpful assistant.", "cache_control": cached}]
    assert text_of(ask(system=system)) == text_of(ask(system="You are a helpful assistant."))
    assert text_of(ask(tools=[{**WEATHER, "cache_control": cached}], tool_choice={"type": "auto"})) == text_of(plain)
    assert text_of(ask(thinking={"type": "disabled"}, extra_body={"temperature": 0, "top_k": 5, "top_p": 0.9},
                       extra_headers={"anthropic-beta": "x"})) == text_of(plain)


def test_conversation(ask):
    """An answer goes back as the client has it."""
    messages = [*QUESTION, {"role": "assistant", "content": ask().content}, {"role": "user", "content": "What is 11 plus 12?"}]
    assert "23" in text_of(ask(messages=messages))
    prefilled = ask(messages=[*QUESTION, {"role": "assistant", "content": "23 plus"}])
    assert text_of(ask()) == "23 plus" + text_of(prefilled)


def test_count_tokens(claude, model, ask):
    usage = ask().usage
    counted = claude.messages.count_tokens(model=model, messages=QUESTION)
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_calls_and_results_reach_the_template(minfer, tmp_path, model):
    template = tmp_path / "tools.jinja"
    template.write_text(TOOL_TEMPLATE)
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"town": "Ulm"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "sunny"}]}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, call]},
        {"role": "user", "content": [result]},
    ]
    with Server(minfer, "--chat-template", str(template)) as server:
        with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=EXCHANGE_TIMEOUT_S) as client:
            fields = {"model": model, "messages": messages, "max_tokens": 4, "tools": [WEATHER]}
            assert client.messages.create(**fields).usage.output_tokens > 0
            shorter = client.messages.count_tokens(model=model, messages=QUESTION).input_tokens
            assert client.messages.count_tokens(model=model, messages=messages).input_tokens > shorter + 10


def test_tools_of_the_server_are_left_out(claude, model):
    raw = claude.messages.with_raw_response.create(model=model, messages=QUESTION, max_tokens=4, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert raw.headers["x-minfer-ignored-fields"] == "tools[].web_search_20250305"


@pytest.mark.parametrize(
    "field, value",
    [("messages", []), ("messages", [{"role": "ghost", "content": "x"}]), ("max_tokens", 0),
     ("messages", [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}])],
)
def test_refused_values_name_the_field(ask, field, value):
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(**{field: value})
    assert caught.value.body["error"]["type"] == "invalid_request_error" and field in caught.value.body["error"]["message"]


def test_errors(claude, ask):
    with pytest.raises(anthropic.NotFoundError):
        ask(model="claude")
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(messages=[{"role": "user", "content": "word " * 5000}])
    assert "maximum context length" in str(caught.value)


def test_keys(minfer):
    with Server(minfer, "--api-key", "secret") as server:
        def models(**key):
            with anthropic.Anthropic(base_url=server.url, max_retries=0, timeout=EXCHANGE_TIMEOUT_S, **key) as client:
                return client.messages.count_tokens(model="minfer-demo", messages=QUESTION).input_tokens

        assert models(api_key="secret") == models(auth_token="secret")
        with pytest.raises(anthropic.AuthenticationError):
            models(api_key="wrong")
