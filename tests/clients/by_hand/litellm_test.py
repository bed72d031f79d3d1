"""LiteLLM with every field that it passes on to an OpenAI server."""

import asyncio

import litellm
import pytest

QUESTION = [{"role": "user", "content": "What is 23 plus 45?"}]
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "d", "strict": True,
                 "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}},
}
EVERY_FIELD = {
    "max_completion_tokens": 40, "top_p": 1.0, "n": 1, "stop": ["@"], "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {"7": 0},
    "user": "u", "seed": 1, "tools": [WEATHER], "tool_choice": "auto", "parallel_tool_calls": False, "logprobs": True, "top_logprobs": 2,
    "response_format": {"type": "text"}, "reasoning_effort": "low", "verbosity": "low", "service_tier": "auto", "store": True,
    "metadata": {"a": "b"}, "prompt_cache_key": "k", "safety_identifier": "s", "modalities": ["text"],
    "prediction": {"type": "content", "content": "68"},
    "extra_body": {"top_k": 1, "min_p": 0.0, "repetition_penalty": 1.0, "min_tokens": 1, "num_ctx": 5},
}
# Those that LiteLLM keeps for itself unless told that this model takes them.
PASSED_ON = ["reasoning_effort", "verbosity", "service_tier", "store", "prediction", "prompt_cache_key", "safety_identifier", "modalities",
             "metadata", "parallel_tool_calls"]


@pytest.fixture(scope="module")
def ask(server):
    """The answer of a model behind any OpenAI server (LiteLLM: "openai/NAME")."""

    def call(**fields):
        return litellm.completion(**{"model": "openai/minfer-demo", "api_base": server.base_url, "api_key": "none", "messages": QUESTION,
                                     "temperature": 0, "max_tokens": 40, "num_retries": 0, **fields})

    return call


def text_of(answer):
    return answer.choices[0].message.content


def test_whole_answer(ask):
    answer = ask()
    assert "68" in text_of(answer) and answer.usage.total_tokens > 0 and answer.choices[0].finish_reason == "stop"


def test_every_field(ask, server):
    answer = ask(max_tokens=None, allowed_openai_params=PASSED_ON, **EVERY_FIELD)
    assert text_of(answer) == text_of(ask())
    assert answer.choices[0].logprobs.content[0].top_logprobs
    logged = [line["fields"] for line in server.log_lines() if "fields" in line]
    assert logged and all(name in ("num_ctx", "extra_body") for line in logged for name in line.split(",")), logged


def test_stream(ask):
    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text_of(ask())
    rebuilt = litellm.stream_chunk_builder(chunks, messages=QUESTION)
    assert text_of(rebuilt) == text_of(ask()) and rebuilt.usage.completion_tokens == ask().usage.completion_tokens


def test_its_own_answer_goes_back(ask):
    """With what LiteLLM adds to a message (provider_specific_fields, annotations, ...)."""
    message = ask().choices[0].message
    follow_up = {"role": "user", "content": "What is 11 plus 12?"}
    assert "23" in text_of(ask(messages=[*QUESTION, message, follow_up]))
    assert "23" in text_of(ask(messages=[*QUESTION, message.model_dump(), follow_up]))
    cached = {"role": "user", "content": [{"type": "text", "text": "What is 11 plus 12?", "cache_control": {"type": "ephemeral"}}]}
    assert "23" in text_of(ask(messages=[*QUESTION, message, cached]))


def test_many_at_once(ask, server):
    async def run():
        return await asyncio.gather(*(litellm.acompletion(
            model="openai/minfer-demo", api_base=server.base_url, api_key="none", temperature=0, max_tokens=40,
            messages=[{"role": "user", "content": f"What is {a} plus 12?"}]) for a in range(10, 26)))

    assert [text_of(answer) for answer in asyncio.run(run())] == [
        text_of(ask(messages=[{"role": "user", "content": f"What is {a} plus 12?"}])) for a in range(10, 26)]


def test_text_completion(server):
    answer = litellm.text_completion(model="text-completion-openai/minfer-demo", api_base=server.base_url, api_key="none",
                                     prompt="Once upon a time", max_tokens=8, temperature=0, logprobs=1, echo=True, best_of=1, n=1)
    assert answer.choices[0].text.startswith("Once upon a time")


def test_errors(ask):
    with pytest.raises(litellm.NotFoundError, match="minfer-demo"):
        ask(model="openai/gpt-9")
    with pytest.raises(litellm.BadRequestError, match="response_format.json_schema.schema"):
        ask(response_format={"type": "json_schema", "json_schema": {"name": "town", "schema": {"type": "place"}}})
    with pytest.raises(litellm.ContextWindowExceededError):
        ask(messages=[{"role": "user", "content": "word " * 3000}])
