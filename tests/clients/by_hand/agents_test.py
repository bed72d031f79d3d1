"""Packages that build agents and read answers into objects: instructor, pydantic-ai, LiteLLM and openai-agents.

The demo model calls nothing and writes no JSON by itself: each call and object here is one because the answer was held to its form."""

import json
from typing import Literal

import agents
import instructor
import litellm
import openai
import pydantic
import pydantic_ai
import pytest
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

QUESTION = [{"role": "user", "content": "What is 23 plus 45?"}]
MAX_TOKENS = 1000


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")


class Add(Strict):
    """Adds two numbers"""

    a: int = pydantic.Field(ge=0, le=99)
    b: int = pydantic.Field(ge=0, le=99)


class Report(Strict):
    """What came out"""

    result: int = pydantic.Field(ge=0, le=999)
    mood: Literal["good", "bad"]


TOOL = {"type": "function", "function": {"name": "Add", "description": Add.__doc__, "parameters": Add.model_json_schema()}}


@pytest.fixture
def asynchronous(tool_server):
    return openai.AsyncOpenAI(base_url=tool_server.base_url, api_key="none", max_retries=0)


# --- instructor


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_instructor(tool_client, model, mode):
    client = instructor.from_openai(tool_client, mode=mode)
    fields = {"model": model, "messages": QUESTION, "temperature": 0, "max_tokens": MAX_TOKENS, "max_retries": 0}
    assert isinstance(client.chat.completions.create(**fields, response_model=Report), Report)


def test_instructor_json(tool_client, model):
    """Asks for an object alone: the schema stands in the prompt."""

    class Anything(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")

    client = instructor.from_openai(tool_client, mode=instructor.Mode.JSON)
    fields = {"model": model, "messages": QUESTION, "temperature": 0, "max_tokens": MAX_TOKENS, "max_retries": 0}
    assert isinstance(client.chat.completions.create(**fields, response_model=Anything), Anything)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_instructor_partial(tool_client, model, mode):
    client = instructor.from_openai(tool_client, mode=mode)
    fields = {"model": model, "messages": QUESTION, "temperature": 0, "max_tokens": MAX_TOKENS, "max_retries": 0}
    parts = list(client.chat.completions.create_partial(**fields, response_model=Report))
    assert len(parts) > 1 and Report.model_validate(parts[-1].model_dump())


# --- pydantic-ai


@pytest.fixture(params=[OpenAIChatModel, OpenAIResponsesModel])
def ai_model(request, asynchronous, model):
    return request.param(model, provider=OpenAIProvider(openai_client=asynchronous))


@pytest.mark.parametrize("output", [pydantic_ai.ToolOutput, pydantic_ai.NativeOutput])
def test_pydantic_ai_output(ai_model, output):
    agent = pydantic_ai.Agent(ai_model, output_type=output(Report), model_settings={"temperature": 0, "max_tokens": MAX_TOKENS}, retries=0)
    assert isinstance(agent.run_sync("What is 23 plus 45?").output, Report)


def test_pydantic_ai_stream(ai_model):
    agent = pydantic_ai.Agent(ai_model, output_type=pydantic_ai.NativeOutput(Report),
                              model_settings={"temperature": 0, "max_tokens": MAX_TOKENS}, retries=0)
    result = agent.run_stream_sync("What is 23 plus 45?")
    assert isinstance(result.get_output(), Report)


# --- LiteLLM


@pytest.fixture
def complete(tool_server):
    def call(**fields):
        return litellm.completion(**{"model": "openai/minfer-demo", "api_base": tool_server.base_url, "api_key": "none",
                                     "messages": QUESTION, "temperature": 0, "max_tokens": MAX_TOKENS, "num_retries": 0, **fields})

    return call


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "Add"}}])
def test_litellm_tools(complete, choice):
    fields = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
    answer = complete(**fields).choices[0]
    (call,) = answer.message.tool_calls
    arguments = Add.model_validate_json(call.function.arguments)
    assert answer.finish_reason == "tool_calls" and call.function.name == "Add"
    rebuilt = litellm.stream_chunk_builder(list(complete(**fields, stream=True)), messages=QUESTION).choices[0]
    assert [each.function.arguments for each in rebuilt.message.tool_calls] == [call.function.arguments]
    result = {"role": "tool", "tool_call_id": call.id, "content": str(arguments.a + arguments.b)}
    final = complete(messages=[*QUESTION, answer.message, result], response_format=Report)
    assert Report.model_validate_json(final.choices[0].message.content)


def test_litellm_response_format(complete):
    assert Report.model_validate_json(complete(response_format=Report).choices[0].message.content)
    assert isinstance(json.loads(complete(response_format={"type": "json_object"}).choices[0].message.content), dict)


# --- openai-agents


@pytest.fixture(params=[agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel])
def sdk_model(request, asynchronous, model):
    agents.set_tracing_disabled(True)
    return request.param(model=model, openai_client=asynchronous)


@pytest.fixture
def calculator():
    """A tool, and the sums that it was asked for."""
    sums = []

    async def invoke(_, text):
        arguments = Add.model_validate_json(text)
        sums.append(arguments.a + arguments.b)
        return str(sums[-1])

    tool = agents.FunctionTool(name="Add", description=Add.__doc__, params_json_schema=Add.model_json_schema(), on_invoke_tool=invoke)
    return tool, sums


def settings(**fields):
    return agents.ModelSettings(temperature=0, max_tokens=MAX_TOKENS, **fields)


def test_openai_agents_tool(sdk_model, calculator):
    tool, sums = calculator
    agent = agents.Agent(name="calculator", instructions="Add.", model=sdk_model, tools=[tool], tool_use_behavior="stop_on_first_tool",
                         model_settings=settings(tool_choice="required", parallel_tool_calls=False))
    result = agents.Runner.run_sync(agent, "What is 23 plus 45?")
    assert len(sums) == 1 and result.final_output == str(sums[0])


def test_openai_agents_output(sdk_model):
    agent = agents.Agent(name="reporter", model=sdk_model, output_type=Report, model_settings=settings())
    assert isinstance(agents.Runner.run_sync(agent, "What is 23 plus 45?").final_output, Report)


def test_openai_agents_tool_and_output(sdk_model, calculator):
    """A forced call first; then the model is free to answer or to call again, and this one calls as long as it may."""
    tool, sums = calculator
    agent = agents.Agent(name="both", model=sdk_model, tools=[tool], output_type=Report,
                         model_settings=settings(tool_choice="required", parallel_tool_calls=False))
    try:
        assert isinstance(agents.Runner.run_sync(agent, "What is 23 plus 45?", max_turns=4).final_output, Report)
    except agents.exceptions.MaxTurnsExceeded:
        assert len(sums) == 4
    assert sums
