"""What the official openai client makes of models, errors, headers, retries, and many streams at once."""

import asyncio
import threading
import time

import openai
import pytest

from serving import ABORTED, EXCHANGE_TIMEOUT_S, Server

# Many long answers at once: on any machine they outlast by far what a test does meanwhile.
LONG_CHOICES = 32
LONG = {"prompt": "Once upon a time", "max_tokens": 1900, "n": LONG_CHOICES, "temperature": 1,
        "extra_body": {"ignore_eos": True}}
LONG_STREAM = {**LONG, "stream": True, "extra_body": {"ignore_eos": True, "stream_interval": 100}}  # of few events
SHORT = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
REFUSED = 'minfer:http_responses_total{status="429"}'


def connect(server, **options):
    return openai.OpenAI(**{"base_url": server.base_url, "api_key": "none", "max_retries": 0, "timeout": EXCHANGE_TIMEOUT_S,
                            **options})


def test_models(client):
    models = client.models.list()
    assert [each.id for each in models] == ["minfer-demo"]
    assert models.data[0].object == "model" and models.data[0].owned_by == "minfer"
    assert client.models.retrieve("minfer-demo").id == "minfer-demo"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-9")
    assert caught.value.code == "model_not_found"


def test_served_model_names(minfer):
    """Names as hubs have them: with a slash, which the client escapes in the path."""
    with Server(minfer, "--served-model-name", "some-org/a model", "short") as server, connect(server) as client:
        assert [each.id for each in client.models.list()] == ["some-org/a model", "short"]
        for name in ("some-org/a model", "short"):
            assert client.models.retrieve(name).id == name
            assert client.completions.create(model=name, **SHORT).model == name
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="minfer-demo", **SHORT)


def test_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt-9", **SHORT)
    assert caught.value.code == "model_not_found" and caught.value.param == "model" and "gpt-9" in caught.value.message
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="minfer-demo", input="x")


def test_api_key(minfer):
    with Server(minfer, "--api-key", "sesame") as server:
        with connect(server, api_key="sesame") as client:
            assert client.completions.create(model="minfer-demo", **SHORT).choices[0].text
        with connect(server, api_key="sesam") as client, pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key" and "sesam" not in caught.value.message
        assert "sesame" not in "".join(str(line) for line in server.log_lines())


def test_full_queue(minfer):
    """429 while all slots are taken; a client that may retry waits for one."""
    with Server(minfer, "--max-num-seqs", str(LONG_CHOICES), "--max-queue-size", "0") as server, connect(server) as client:
        stream = client.completions.create(model="minfer-demo", **LONG_STREAM)
        next(iter(stream))
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(model="minfer-demo", **SHORT)
        assert caught.value.code == "rate_limit_exceeded" and caught.value.response.headers["retry-after"] == "1"

        def leave():
            server.wait_for_metrics(lambda metrics: metrics.get(REFUSED, 0) >= 2)  # the first attempt of the client below too
            stream.close()

        leaving = threading.Thread(target=leave)
        leaving.start()
        assert client.with_options(max_retries=100).completions.create(model="minfer-demo", **SHORT).choices[0].text
        leaving.join()
        server.wait_until_idle(aborted=LONG_CHOICES)


def test_priority(minfer):
    with Server(minfer, "--scheduling-policy", "priority") as server, connect(server) as client:
        answer = client.completions.create(model="minfer-demo", extra_body={"priority": -3}, **SHORT)
        assert answer.usage.completion_tokens == 4


def test_request_id(client, server):
    answer = client.completions.with_raw_response.create(model="minfer-demo", **SHORT)
    given = answer.headers["x-request-id"]
    assert given and answer.parse()._request_id == given and answer.parse().id == f"cmpl-{given}"
    assert answer.headers["content-type"] == "application/json"
    own = client.completions.with_raw_response.create(model="minfer-demo", extra_headers={"x-request-id": "my-id-1"}, **SHORT)
    assert own.headers["x-request-id"] == "my-id-1"
    deadline = time.monotonic() + EXCHANGE_TIMEOUT_S
    while not [line for line in server.log_lines() if line.get("id") == "my-id-1" and line["status"] == 200]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_streaming_response(client):
    """The answer's lines as the client reads them."""
    with client.completions.with_streaming_response.create(model="minfer-demo", stream=True, **SHORT) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert len(lines) >= 2 and all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"


def test_closed_stream_frees_its_request(client, server):
    before = server.wait_until_idle()
    stream = client.completions.create(model="minfer-demo", **LONG_STREAM)
    for _ in zip(range(3), stream):
        pass
    server.wait_for_metrics(lambda metrics: metrics["vllm:num_requests_running"] > 0)  # gauges follow each step
    stream.close()
    after = server.wait_until_idle(aborted=before[ABORTED] + LONG_CHOICES)
    assert after["vllm:generation_tokens_total"] > before["vllm:generation_tokens_total"]


def test_client_timeout_frees_its_request(client, server):
    """The time is doubled until it was enough for the server to begin."""
    before = server.wait_until_idle()
    timeout_s = 0.05
    while server.wait_until_idle()[ABORTED] == before[ABORTED]:
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=timeout_s).completions.create(model="minfer-demo", **LONG)
        timeout_s *= 2
    server.wait_until_idle(aborted=before[ABORTED] + LONG_CHOICES)


async def consume(client, seed, cancel_after=None):
    """A stream's text, or what came until it was left."""
    text, received = "", 0
    stream = await client.completions.create(model="minfer-demo", prompt=f"{seed} friends went", max_tokens=60, temperature=0,
                                             stream=True, extra_body={"ignore_eos": True})
    async with stream:
        async for chunk in stream:
            text += chunk.choices[0].text
            received += 1
            if cancel_after is not None and received >= cancel_after:
                break
    return text


def test_fifty_streams_at_once(server, client):
    """Each gives what it gives alone, though every third is left early."""

    async def run():
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=EXCHANGE_TIMEOUT_S) as made:
            return await asyncio.gather(*(consume(made, i, cancel_after=i // 3 if i % 3 == 2 else None) for i in range(50)))

    texts = asyncio.run(run())
    for i in (0, 1, 2, 30, 47, 49):
        alone = client.completions.create(model="minfer-demo", prompt=f"{i} friends went", max_tokens=60, temperature=0,
                                          extra_body={"ignore_eos": True}).choices[0].text
        assert alone.startswith(texts[i]) and (i % 3 == 2 or alone == texts[i])
    server.wait_until_idle()


def test_cancelled_task_frees_its_request(server):
    async def run():
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0) as made:
            task = asyncio.create_task(made.completions.create(model="minfer-demo", **LONG))
            await asyncio.to_thread(server.wait_for_metrics, lambda metrics: metrics["vllm:num_requests_running"] > 0)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    before = server.wait_until_idle()
    asyncio.run(run())
    server.wait_until_idle(aborted=before[ABORTED] + LONG_CHOICES)
