"""The official openai client on /v1/responses."""

import openai
import pytest

QUESTION = "What is 23 plus 45?"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a town",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    "strict": True,
}


@pytest.fixture(scope="module")
def ask(client, model):
    """Answers QUESTION, greedily unless told otherwise."""

    def call(**fields):
        return client.responses.create(**{"model": model, "input": QUESTION, "max_output_tokens": 40, "temperature": 0, **fields})

    return call


def test_whole_answer(ask, model):
    answer = ask()
    assert answer.object == "response" and answer.status == "completed" and answer.model == model
    assert answer.id.startswith("resp_") and "68" in answer.output_text and answer.error is None
    assert [item.type for item in answer.output] == ["message"] and answer.output[0].status == "completed"
    usage = answer.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens and usage.output_tokens_details.reasoning_tokens == 0


def test_stream_equals_whole_answer(ask):
    events = list(ask(stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == events[-1].response.output_text == ask().output_text


def test_stream_helper(client, model, ask):
    """The client's own accumulator of events."""
    with client.responses.stream(model=model, input=QUESTION, temperature=0, max_output_tokens=40) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert deltas == final.output_text == ask().output_text


def test_an_answer_that_is_cut(ask):
    answer = ask(max_output_tokens=3)
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.output_tokens == 3 and answer.output[0].status == "incomplete"
    assert list(ask(max_output_tokens=3, stream=True))[-1].type == "response.incomplete"


def test_items_and_instructions(ask):
    part = {"type": "input_text", "text": QUESTION}
    assert ask(input=[{"role": "user", "content": [part]}]).output_text == ask().output_text
    advised = ask(user="u", metadata={"a": "b"}, prompt_cache_key="k", truncation="auto", service_tier="auto", store=False,
                  include=["reasoning.encrypted_content"], reasoning={"effort": "low"}, parallel_tool_calls=False)
    assert advised.output_text == ask().output_text and advised.metadata == {"a": "b"} and advised.reasoning.effort == "low"
    instructed = ask(instructions="You are a helpful assistant.")
    assert instructed.instructions == "You are a helpful assistant."
    assert instructed.usage.input_tokens > ask().usage.input_tokens


def test_conversations(ask, client):
    """Kept here, or sent back by the client: the same."""
    first = ask()
    kept = ask(input="What is 11 plus 12?", previous_response_id=first.id)
    sent = ask(input=[{"role": "user", "content": QUESTION}, *first.output, {"role": "user", "content": "What is 11 plus 12?"}])
    assert "23" in kept.output_text and kept.output_text == sent.output_text
    assert kept.usage.input_tokens == sent.usage.input_tokens > first.usage.input_tokens
    assert kept.previous_response_id == first.id
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    for lost in (lambda: client.responses.retrieve(first.id), lambda: ask(previous_response_id=first.id)):
        with pytest.raises(openai.NotFoundError):
            lost()
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(ask(store=False).id)
    streamed = list(ask(stream=True))[-1].response
    assert client.responses.retrieve(streamed.id).output_text == streamed.output_text


def test_tools(ask, client, model):
    """The demo model's template shows no tools, so offering them changes nothing."""
    assert ask(tools=[WEATHER], tool_choice="auto").output_text == ask().output_text
    raw = client.responses.with_raw_response.create(model=model, input=QUESTION, max_output_tokens=4, tools=[{"type": "web_search"}])
    assert raw.headers["x-minfer-ignored-fields"] == "tools[].web_search"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(tools=[WEATHER], tool_choice="required")
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(
    "field, value",
    [("input", []), ("input", [{"role": "ghost", "content": "x"}]), ("temperature", -1), ("max_output_tokens", 0), ("background", True),
     ("input", [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]), ("conversation", "c"),
     ("text", {"format": {"type": "xml"}})],
)
def test_refused_values_name_the_field(ask, field, value):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(**{field: value})
    assert caught.value.param.split("[")[0].split(".")[0] == field
