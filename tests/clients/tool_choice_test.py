"""Calls that the model must make, by other people's clients, and a run of an agent.

The demo model calls nothing by itself: each call here is one because the answer was held to the tools' schemas."""

import json
import re
from typing import Literal

import anthropic
import openai
import pydantic
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from serving import EXCHANGE_TIMEOUT_S, Server

QUESTION = [{"role": "user", "content": "What is 23 plus 45?"}]
SAMPLINGS = [{"temperature": 0}, {"temperature": 1, "seed": 1}, {"temperature": 2, "seed": 2}]
MAX_TOKENS = 1000  # more than the longest call with all the white space that is allowed


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")


class Add(Strict):
    """Adds two numbers"""

    a: int = pydantic.Field(ge=0, le=99)
    b: int = pydantic.Field(ge=0, le=99)


class Weather(Strict):
    """The weather of a town"""

    town: str = pydantic.Field(max_length=10)
    days: list[int] = pydantic.Field(max_length=2)


class Answer(Strict):
    result: int = pydantic.Field(ge=0, le=198)
    is_even: bool


ARGUMENTS = {model.__name__: model for model in (Add, Weather)}
TOOLS = [{"type": "function", "function": {"name": name, "description": model.__doc__, "parameters": model.model_json_schema()}}
         for name, model in ARGUMENTS.items()]
STRICT_TOOLS = [openai.pydantic_function_tool(model) for model in ARGUMENTS.values()]
NAMED = {"type": "function", "function": {"name": "Weather"}}
CLAUDE_TOOLS = [{"name": name, "description": model.__doc__, "input_schema": model.model_json_schema()}
                for name, model in ARGUMENTS.items()]


# Of each way to write a call one format or more.
FORMATS = ["deepseek_v3", "gemma3", "granite", "kimi_k2", "llama3_json", "minimax_m2", "mistral", "pythonic", "qwen3_coder", "seed_oss"]


@pytest.fixture(scope="module")
def request_fields(model):
    """One call an answer: this model would go on calling until there are no tokens left."""
    return {"model": model, "messages": QUESTION, "max_tokens": MAX_TOKENS, "temperature": 0, "tools": TOOLS, "parallel_tool_calls": False}


def only_call(choice):
    """The call of a choice that is one call and nothing else. Its arguments are valid."""
    assert choice.finish_reason == "tool_calls" and not choice.message.content, choice
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.id
    ARGUMENTS[call.function.name].model_validate_json(call.function.arguments)
    return call


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("strict", [False, True])
def test_required(tool_client, request_fields, sampling, strict):
    tools = [{"type": "function", "function": {**each["function"], "strict": strict}} for each in TOOLS]
    fields = {**request_fields, **sampling, "tools": tools, "tool_choice": "required"}
    only_call(tool_client.chat.completions.create(**fields).choices[0])


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_named(tool_client, request_fields, sampling):
    call = only_call(tool_client.chat.completions.create(**{**request_fields, **sampling, "tool_choice": NAMED}).choices[0])
    assert call.function.name == "Weather"


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_allowed_tools(tool_client, request_fields, sampling):
    allowed = {"mode": "required", "tools": [NAMED]}
    fields = {**request_fields, **sampling, "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}}
    assert only_call(tool_client.chat.completions.create(**fields).choices[0]).function.name == "Weather"
    answer = tool_client.chat.completions.create(**{**fields, "max_tokens": 20, "tool_choice": {
        "type": "allowed_tools", "allowed_tools": {**allowed, "mode": "auto"}}}).choices[0]
    assert answer.message.content and not answer.message.tool_calls


def test_none_and_auto(tool_client, request_fields):
    for choice in ("none", "auto"):
        answer = tool_client.chat.completions.create(**{**request_fields, "tool_choice": choice, "max_tokens": 20}).choices[0]
        assert answer.message.content and not answer.message.tool_calls, choice


def test_several_calls(tool_client, request_fields):
    """Until the tokens end: all calls but the last are whole."""
    fields = {**request_fields, "parallel_tool_calls": True, "tool_choice": "required", "tools": TOOLS[:1], "max_tokens": 400,
              "extra_body": {"min_tokens": 200}}
    calls = tool_client.chat.completions.create(**fields).choices[0].message.tool_calls
    assert len({call.id for call in calls}) == len(calls) > 1
    for call in calls[:-1]:
        ARGUMENTS[call.function.name].model_validate_json(call.function.arguments)


@pytest.mark.parametrize("parser", FORMATS)
def test_formats_of_models(minfer, tool_options, request_fields, parser):
    """What the model is held to is what is read, in any format."""
    with Server(minfer, *tool_options, "--tool-call-parser", parser) as server:
        with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=EXCHANGE_TIMEOUT_S) as client:
            for sampling in SAMPLINGS:
                fields = {**request_fields, **sampling, "tools": STRICT_TOOLS[:1], "tool_choice": "required"}
                whole = only_call(client.chat.completions.create(**fields).choices[0]).function
                with client.chat.completions.stream(**fields) as stream:
                    assert only_call(stream.get_final_completion().choices[0]).function.arguments == whole.arguments


def test_parse(tool_client, request_fields):
    """The client makes the tools of pydantic models, and the calls' arguments these again."""
    fields = {**request_fields, "tools": [openai.pydantic_function_tool(Add)], "tool_choice": "required"}
    (choice,) = tool_client.chat.completions.parse(**fields).choices
    assert isinstance(only_call(choice).function.parsed_arguments, Add)


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_stream(tool_client, request_fields, sampling, choice):
    """By the client's own accumulator of chunks."""
    fields = {**request_fields, **sampling, "tools": STRICT_TOOLS, "tool_choice": choice}
    with tool_client.chat.completions.stream(**fields) as stream:
        events = list(stream)
        streamed = only_call(stream.get_final_completion().choices[0]).function
    whole = only_call(tool_client.chat.completions.create(**fields).choices[0]).function
    assert (streamed.name, streamed.arguments) == (whole.name, whole.arguments)
    deltas = [event.arguments_delta for event in events if event.type == "tool_calls.function.arguments.delta"]
    assert "".join(deltas) == whole.arguments and len([delta for delta in deltas if delta]) > 1
    (done,) = (event for event in events if event.type == "tool_calls.function.arguments.done")
    assert done.parsed_arguments == streamed.parsed_arguments == ARGUMENTS[whole.name].model_validate_json(whole.arguments)
    assert not [event for event in events if event.type == "content.delta" and event.delta]


@pytest.mark.parametrize("choice, name", [
    ("required", None), ({"type": "function", "name": "Weather"}, "Weather"),
    ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "Weather"}]}, "Weather")])
def test_responses(tool_client, model, choice, name):
    fields = {"model": model, "input": QUESTION, "max_output_tokens": MAX_TOKENS, "temperature": 0, "parallel_tool_calls": False,
              "tools": [{"type": "function", "strict": True, **each["function"]} for each in TOOLS], "tool_choice": choice}
    response = tool_client.responses.create(**fields)
    (item,) = response.output
    assert response.status == "completed" and item.type == "function_call" and name in (None, item.name)
    ARGUMENTS[item.name].model_validate_json(item.arguments)
    with tool_client.responses.stream(**fields) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.function_call_arguments.delta")
        (streamed,) = stream.get_final_response().output
    assert deltas == streamed.arguments == item.arguments


SUM = {"type": "custom", "name": "sum", "description": "Adds", "format": {"type": "grammar", "syntax": "regex", "definition": r"\d{1,3}(\+\d{1,3}){1,3}"}}
NAMED_SUM = {"type": "custom", "name": "sum"}


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1}, {"temperature": 2}])
@pytest.mark.parametrize("choice", ["required", NAMED_SUM, {"type": "allowed_tools", "mode": "required", "tools": [NAMED_SUM]}])
def test_custom_tools(tool_client, model, choice, sampling):
    """The input is the text itself, and matches the tool's expression. Sent back or kept, the call reads alike."""
    fields = {"model": model, "input": QUESTION, "max_output_tokens": MAX_TOKENS, "parallel_tool_calls": False, **sampling,
              "tools": [SUM], "tool_choice": choice}
    response = tool_client.responses.create(**fields)
    (item,) = response.output
    assert response.status == "completed" and (item.type, item.name) == ("custom_tool_call", "sum") and item.id.startswith("ctc_")
    assert re.fullmatch(SUM["format"]["definition"], item.input)
    with tool_client.responses.stream(**fields) as stream:
        events = list(stream)
        (streamed,) = stream.get_final_response().output
    deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    (done,) = (event for event in events if event.type == "response.custom_tool_call_input.done")
    assert "".join(deltas) == done.input == streamed.input and done.item_id == streamed.id
    assert re.fullmatch(SUM["format"]["definition"], streamed.input)
    result = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "68"}
    after = {**fields, "temperature": 0, "max_output_tokens": 8, "tool_choice": "none"}
    kept = tool_client.responses.create(**{**after, "input": [result], "previous_response_id": response.id})
    sent = tool_client.responses.create(**{**after, "input": [*QUESTION, item, result]})
    assert kept.output_text == sent.output_text and kept.usage.input_tokens == sent.usage.input_tokens


CHAT_SUM = {"type": "custom", "custom": {"name": "sum", "description": "Adds",
                                         "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": SUM["format"]["definition"]}}}}


@pytest.mark.parametrize("choice", ["required", {"type": "custom", "custom": {"name": "sum"}}])
def test_custom_tools_of_chats(tool_client, model, choice):
    fields = {"model": model, "messages": QUESTION, "max_tokens": MAX_TOKENS, "parallel_tool_calls": False, "temperature": 0,
              "tools": [CHAT_SUM], "tool_choice": choice}
    answer = tool_client.chat.completions.create(**fields).choices[0]
    (call,) = answer.message.tool_calls
    assert answer.finish_reason == "tool_calls" and (call.type, call.custom.name) == ("custom", "sum")
    assert re.fullmatch(SUM["format"]["definition"], call.custom.input)
    deltas = [call for chunk in tool_client.chat.completions.create(**fields, stream=True) for call in chunk.choices[0].delta.tool_calls or []]
    assert deltas[0].type == "custom" and deltas[0].custom["name"] == "sum"
    assert "".join(delta.custom["input"] for delta in deltas) == call.custom.input
    result = {"role": "tool", "tool_call_id": call.id, "content": "68"}
    after = {**fields, "messages": [*QUESTION, answer.message, result], "tool_choice": "none"}
    assert tool_client.chat.completions.create(**after).choices[0].message.role == "assistant"


@pytest.fixture(scope="module")
def claude(tool_server):
    with anthropic.Anthropic(base_url=tool_server.url, api_key="none", max_retries=0, timeout=EXCHANGE_TIMEOUT_S) as made:
        yield made


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "Weather"}])
def test_anthropic(claude, model, choice):
    fields = {"model": model, "messages": QUESTION, "max_tokens": MAX_TOKENS, "tools": CLAUDE_TOOLS, "extra_body": {"temperature": 0},
              "tool_choice": {**choice, "disable_parallel_tool_use": True}}
    message = claude.messages.create(**fields)
    (block,) = message.content
    assert message.stop_reason == "tool_use" and block.type == "tool_use" and choice.get("name") in (None, block.name)
    ARGUMENTS[block.name].model_validate(block.input)
    with claude.messages.stream(**fields) as stream:
        events = list(stream)
        (streamed,) = stream.get_final_message().content
    assert (streamed.type, streamed.name, streamed.input) == ("tool_use", block.name, block.input)
    parts = [event.partial_json for event in events if event.type == "input_json"]
    assert len(parts) > 1 and json.loads("".join(parts)) == block.input
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "68"}
    history = [*QUESTION, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    answer = claude.messages.create(**{**fields, "messages": history, "tool_choice": {"type": "none"}, "max_tokens": 8})
    assert answer.usage.output_tokens > 0 and all(block.type == "text" for block in answer.content)


def test_anthropic_tool_runner(claude, model):
    """The client runs the tools itself."""
    sums = []

    @anthropic.beta_tool
    def add(first: Literal[1, 2, 3], second: Literal[4, 5, 6]) -> str:
        """Adds two numbers"""
        sums.append(first + second)
        return str(sums[-1])

    messages = list(claude.beta.messages.tool_runner(
        model=model, messages=QUESTION, max_tokens=MAX_TOKENS, tools=[add], max_iterations=3, thread=False, extra_body={"temperature": 0},
        tool_choice={"type": "any", "disable_parallel_tool_use": True}))
    inputs = [message.content[0].input for message in messages]
    assert len(messages) == 3 and sums == [each["first"] + each["second"] for each in inputs[: len(sums)]] and len(sums) >= 2


@pytest.fixture(scope="module")
def chat_model(tool_server, model):
    return ChatOpenAI(model=model, base_url=tool_server.base_url, api_key="none", temperature=0, max_tokens=MAX_TOKENS, max_retries=0)


def test_langchain_structured_output(chat_model):
    structured = chat_model.with_structured_output(Weather, method="function_calling")
    assert isinstance(structured.invoke("The weather of Ulm?"), Weather)


def test_langchain_tools(chat_model):
    """A call, its result, and a call again."""

    @tool(args_schema=Add)
    def plus(a: int, b: int) -> int:
        """Adds two numbers"""
        return a + b

    bound = chat_model.bind_tools([plus], tool_choice="any", strict=True, parallel_tool_calls=False)
    message = bound.invoke("What is 23 plus 45?")
    (call,) = message.tool_calls
    assert call["name"] == "plus" and message.invalid_tool_calls == []
    result = plus.invoke(call)
    assert isinstance(result, ToolMessage) and int(result.content) == call["args"]["a"] + call["args"]["b"]
    assert len(bound.invoke([HumanMessage("What is 23 plus 45?"), message, result]).tool_calls) == 1
    total = None
    for chunk in bound.stream("What is 23 plus 45?"):
        total = chunk if total is None else total + chunk
    assert total.tool_calls[0]["args"] == call["args"]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_agent_run(tool_client, request_fields, sampling):
    """Two calls of a calculator, their results, and an answer by a schema."""
    messages = list(QUESTION)
    for _ in range(2):
        fields = {**request_fields, **sampling, "messages": messages, "tool_choice": {"type": "function", "function": {"name": "Add"}}}
        (choice,) = tool_client.chat.completions.create(**fields).choices
        arguments = Add.model_validate_json(only_call(choice).function.arguments)
        result = {"role": "tool", "tool_call_id": choice.message.tool_calls[0].id, "content": str(arguments.a + arguments.b)}
        messages += [choice.message, result]
    fields = {**request_fields, **sampling, "messages": messages, "response_format": Answer, "tools": STRICT_TOOLS}
    (choice,) = tool_client.chat.completions.parse(**fields, tool_choice="none").choices
    assert choice.finish_reason == "stop" and isinstance(choice.message.parsed, Answer) and not choice.message.tool_calls
    (choice,) = tool_client.chat.completions.parse(**fields, tool_choice="auto").choices  # a call or the answer, as the model likes
    assert isinstance(choice.message.parsed, Answer) if choice.finish_reason == "stop" else only_call(choice)
