"""Answers whose form is given, by other people's clients: JSON by a schema, and vLLM's regular expressions, choices and grammars.

The demo model knows no JSON: what is valid here is so because the answer was held to its form."""

import asyncio
import json
import re
from typing import Literal

import anthropic
import openai
import pydantic
import pytest
from langchain_openai import ChatOpenAI

from serving import EXCHANGE_TIMEOUT_S

QUESTION = [{"role": "user", "content": "Tell me of a town."}]
# Greedily, and as the model would hardly write.
SAMPLINGS = [{"temperature": 0}, {"temperature": 1, "seed": 1}, {"temperature": 2, "seed": 2}]
MAX_TOKENS = 1000  # more than the longest Town with all the white space that is allowed


class Strict(pydantic.BaseModel):
    """No further members: a model that likes to write would add some for as long as it may."""

    model_config = pydantic.ConfigDict(extra="forbid")


class Person(Strict):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=0, le=99)


class Town(Strict):
    """Small, so that any answer ends."""

    name: str = pydantic.Field(max_length=12)
    kind: Literal["village", "town", "city"]
    coastal: bool
    mayor: Person | None
    years: list[int] = pydantic.Field(max_length=2)


class Weather(Strict):
    """Without what Anthropic's client takes out of a schema: lengths and ranges."""

    sky: Literal["blue", "grey"]
    windy: bool


@pytest.fixture(scope="module")
def request_fields(model):
    return {"model": model, "messages": QUESTION, "max_tokens": MAX_TOKENS, "temperature": 0}


@pytest.fixture(scope="module")
def text_of(client, request_fields):
    """The text of an answer that ended by itself."""

    def call(**fields):
        (choice,) = client.chat.completions.create(**{**request_fields, **fields}).choices
        assert choice.finish_reason == "stop", choice
        return choice.message.content

    return call


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_chat_parse(client, request_fields, sampling):
    (choice,) = client.chat.completions.parse(**{**request_fields, **sampling}, response_format=Town).choices
    assert choice.finish_reason == "stop" and isinstance(choice.message.parsed, Town) and choice.message.refusal is None
    assert list(json.loads(choice.message.content)) == list(Town.model_fields)


def test_chat_json_schema(text_of):
    wanted = {"name": "town", "strict": True, "schema": Town.model_json_schema()}
    Town.model_validate_json(text_of(response_format={"type": "json_schema", "json_schema": wanted}))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_chat_json_object(text_of, sampling):
    assert isinstance(json.loads(text_of(response_format={"type": "json_object"}, **sampling)), dict)


def test_several_choices(client, request_fields):
    fields = {**request_fields, "n": 3, "temperature": 1, "seed": 5}
    choices = client.chat.completions.parse(**fields, response_format=Town).choices
    assert len(choices) == 3 and all(isinstance(choice.message.parsed, Town) for choice in choices)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_chat_stream(client, request_fields, sampling):
    """By the client's own accumulator of chunks."""
    fields = {**request_fields, **sampling, "response_format": Town}
    with client.chat.completions.stream(**fields, stream_options={"include_usage": True}) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    whole = client.chat.completions.parse(**fields)
    deltas = [event for event in events if event.type == "content.delta"]
    assert len(deltas) > 1 and "".join(event.delta for event in deltas) == whole.choices[0].message.content
    (done,) = (event for event in events if event.type == "content.done")
    assert done.parsed == final.choices[0].message.parsed == whole.choices[0].message.parsed
    assert final.usage.completion_tokens == whole.usage.completion_tokens


def test_responses_parse(client, model):
    response = client.responses.parse(model=model, input=QUESTION, max_output_tokens=MAX_TOKENS, text_format=Town, temperature=0)
    assert response.status == "completed" and isinstance(response.output_parsed, Town)
    assert response.text.format.type == "json_schema" and response.text.format.name == "Town"


def test_responses_stream(client, model):
    fields = {"model": model, "input": QUESTION, "max_output_tokens": MAX_TOKENS, "text_format": Town, "temperature": 0}
    with client.responses.stream(**fields) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_parsed == Town.model_validate_json(deltas) == client.responses.parse(**fields).output_parsed


def test_responses_json_object(client, model):
    answer = client.responses.create(model=model, input=QUESTION, max_output_tokens=MAX_TOKENS, temperature=0,
                                     text={"format": {"type": "json_object"}})
    assert isinstance(json.loads(answer.output_text), dict)


@pytest.fixture(scope="module")
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=EXCHANGE_TIMEOUT_S) as made:
        yield made


def test_anthropic_parse(claude, model):
    answer = claude.messages.parse(model=model, messages=QUESTION, max_tokens=MAX_TOKENS, output_format=Weather)
    assert answer.stop_reason == "end_turn" and isinstance(answer.parsed_output, Weather)


def test_anthropic_output_config(claude, model):
    fields = {"model": model, "messages": QUESTION, "max_tokens": MAX_TOKENS, "extra_body": {"temperature": 0},
              "output_config": {"format": {"type": "json_schema", "schema": Town.model_json_schema()}}}
    (block,) = claude.messages.create(**fields).content
    Town.model_validate_json(block.text)
    with claude.messages.stream(**fields) as stream:
        assert "".join(stream.text_stream) == block.text


@pytest.fixture(scope="module")
def chat_model(server, model):
    return ChatOpenAI(model=model, base_url=server.base_url, api_key="none", temperature=0, max_tokens=MAX_TOKENS, max_retries=0)


def test_langchain_json_schema(chat_model):
    structured = chat_model.with_structured_output(Town, method="json_schema")
    assert isinstance(structured.invoke("Tell me of a town."), Town)
    assert list(structured.stream("Tell me of a town."))[-1] == structured.invoke("Tell me of a town.")
    raw = chat_model.with_structured_output(Town, method="json_schema", include_raw=True).invoke("Tell me of a town.")
    assert raw["parsing_error"] is None and raw["parsed"] == Town.model_validate_json(raw["raw"].content)


def test_langchain_json_mode(chat_model):
    assert isinstance(chat_model.with_structured_output(None, method="json_mode").invoke("Tell me of a town."), dict)


REGEX = "[A-Z][a-z]{2,5}-[0-9]{3}"
CHOICE = ["Paris", "Rome", "a village by the sea"]
GRAMMAR = 'root ::= sum " = " number\nsum ::= number " + " number\nnumber ::= [1-9] [0-9]?'


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("field, value, is_valid", [
    ("regex", REGEX, re.compile(REGEX).fullmatch),
    ("choice", CHOICE, CHOICE.__contains__),
    ("grammar", GRAMMAR, re.compile(r"[1-9]\d? \+ [1-9]\d? = [1-9]\d?").fullmatch),
    ("json", Person.model_json_schema(), Person.model_validate_json),
])
def test_vllm_fields(text_of, field, value, is_valid, sampling):
    newer = text_of(extra_body={"structured_outputs": {field: value}}, **sampling)
    assert is_valid(newer), newer
    assert text_of(extra_body={"guided_" + field: value}, **sampling) == newer


def test_vllm_json_object_without_spaces(text_of):
    text = text_of(extra_body={"structured_outputs": {"json": Person.model_json_schema(), "disable_any_whitespace": True}})
    assert text == json.dumps(Person.model_validate_json(text).model_dump(), separators=(",", ":"), ensure_ascii=False)


def test_text_completion(client, model):
    """vLLM's fields are for both endpoints."""
    answer = client.completions.create(model=model, prompt="A town:", max_tokens=MAX_TOKENS, temperature=0,
                                       extra_body={"structured_outputs": {"regex": REGEX}})
    assert re.fullmatch(REGEX, answer.choices[0].text) and answer.choices[0].finish_reason == "stop"


FORMS = [{}, {"response_format": {"type": "json_object"}}, {"structured_outputs": {"json": Town.model_json_schema()}},
         {"guided_regex": REGEX}, {"guided_choice": CHOICE}, {"guided_grammar": GRAMMAR}]


def test_many_forms_at_once(server, request_fields, client):
    """Each answer of a batch is held to its own form: it is the one that it is alone."""
    requests = [{**request_fields, "temperature": 1, "seed": seed, "extra_body": form} for seed in range(4) for form in FORMS]

    async def run():
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=EXCHANGE_TIMEOUT_S) as made:
            return await asyncio.gather(*(made.chat.completions.create(**each) for each in requests))

    texts = [answer.choices[0].message.content for answer in asyncio.run(run())]
    assert texts == [client.chat.completions.create(**each).choices[0].message.content for each in requests]
    for form, text in zip(FORMS * 4, texts):
        assert "structured_outputs" not in form or Town.model_validate_json(text)
        assert "guided_choice" not in form or text in CHOICE
        assert "guided_regex" not in form or re.fullmatch(REGEX, text)


@pytest.mark.parametrize("field, body", [
    ("guided_regex", {"guided_regex": "(a"}),
    ("guided_grammar", {"guided_grammar": "root ::= missing"}),
    ("structured_outputs.choice", {"structured_outputs": {"choice": []}}),
    ("guided_choice", {"guided_choice": CHOICE, "guided_regex": REGEX}),
    ("response_format.json_schema.schema", {"response_format": {"type": "json_schema", "json_schema": {"name": "none", "schema": False}}}),
])
def test_refused_forms_name_the_field(client, request_fields, field, body):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**request_fields, extra_body=body)
    assert caught.value.param == field
