"""LangChain's OpenAI adapter on both endpoints."""

import asyncio

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

QUESTION = "What is 23 plus 45?"


@pytest.fixture(scope="module")
def llm(server, model):
    return OpenAI(model=model, base_url=server.base_url, api_key="none", temperature=0, max_tokens=24, max_retries=0)


@pytest.fixture(scope="module")
def chat_model(server, model):
    return ChatOpenAI(model=model, base_url=server.base_url, api_key="none", temperature=0, max_tokens=40, max_retries=0)


def test_completions(llm):
    whole = llm.invoke("Once upon a time")
    assert whole and "".join(llm.stream("Once upon a time")) == whole
    assert llm.batch(["Once upon a time", "The cat"])[0] == whole
    generated = llm.generate(["Once upon a time", "The cat"])
    assert generated.generations[0][0].text == whole and generated.llm_output["token_usage"]["completion_tokens"] == 48
    assert whole.startswith(llm.invoke("Once upon a time", stop=[whole.split()[5]]))


def test_chat(chat_model):
    answer = chat_model.invoke(QUESTION)
    assert "68" in answer.content and answer.response_metadata["finish_reason"] == "stop"
    assert answer.usage_metadata["total_tokens"] == answer.usage_metadata["input_tokens"] + answer.usage_metadata["output_tokens"]


def test_chat_stream(chat_model):
    chunks = list(chat_model.stream(QUESTION, stream_usage=True))
    assert len(chunks) > 1
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    whole = chat_model.invoke(QUESTION)
    assert total.content == whole.content
    assert total.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]


def test_chat_batch(chat_model):
    questions = [f"What is {a} plus 12?" for a in range(10, 18)]
    assert [answer.content for answer in chat_model.batch(questions)] == [chat_model.invoke(each).content for each in questions]


def test_chat_astream(chat_model):
    async def joined():
        return "".join([chunk.content async for chunk in chat_model.astream(QUESTION)])

    assert asyncio.run(joined()) == chat_model.invoke(QUESTION).content


def test_conversation(chat_model):
    messages = [SystemMessage("You are a helpful assistant."), HumanMessage(QUESTION), AIMessage("68"), HumanMessage("What is 11 plus 12?")]
    assert "23" in chat_model.invoke(messages).content


def test_chain(chat_model):
    chain = ChatPromptTemplate.from_messages([("user", "What is {a} plus {b}?")]) | chat_model.bind(stop=["\n"]) | StrOutputParser()
    assert "68" in chain.invoke({"a": 23, "b": 45})


def test_logprobs(chat_model):
    content = chat_model.bind(logprobs=True, top_logprobs=2).invoke(QUESTION).response_metadata["logprobs"]["content"]
    assert content and all(len(entry["top_logprobs"]) == 2 for entry in content)


def test_tools(chat_model):
    @tool
    def get_weather(town: str) -> str:
        """The weather of a town"""
        return "sunny in " + town

    answer = chat_model.bind_tools([get_weather]).invoke(QUESTION)
    assert answer.tool_calls == [] and "68" in answer.content
