"""The official openai client on /v1/completions. How many tokens an event of a stream has is no matter of course: those that
come faster than they are sent share one."""

import openai
import pytest

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def complete(client, model):
    """Completes PROMPT, greedily unless told otherwise."""

    def call(**fields):
        return client.completions.create(**{"model": model, "prompt": PROMPT, "max_tokens": 24, "temperature": 0, **fields})

    return call


def text_of(completion):
    assert len(completion.choices) == 1
    return completion.choices[0].text


def joined(stream):
    return "".join(choice.text for chunk in stream for choice in chunk.choices)


def test_whole_answer(complete, model):
    answer = complete()
    assert answer.object == "text_completion" and answer.model == model
    assert answer.id.startswith("cmpl-") and answer.created > 1_700_000_000 and answer.system_fingerprint
    assert answer.choices[0].finish_reason == "length" and answer.choices[0].logprobs is None
    assert answer.usage.completion_tokens == 24 and answer.usage.prompt_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24


def test_max_tokens_is_16_unless_given(client, model):
    answer = client.completions.create(model=model, prompt=PROMPT, temperature=0)
    assert answer.usage.completion_tokens == 16


def test_stream_equals_whole_answer(complete):
    chunks = list(complete(stream=True))
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert all(chunk.usage is None for chunk in chunks)
    assert joined(chunks) == text_of(complete())


def test_stream_with_usage(complete):
    chunks = list(complete(stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and all(chunk.usage is None for chunk in chunks[:-1])
    whole = complete().usage
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (whole.prompt_tokens, 24)


def test_usage_in_every_event(complete):
    options = {"include_usage": True, "continuous_usage_stats": True}
    counts = [chunk.usage.completion_tokens for chunk in complete(stream=True, stream_options=options)]
    assert counts == sorted(counts) and 1 <= counts[0] <= counts[-1] == 24


def test_same_seed_same_text(complete):
    drawn = [text_of(complete(temperature=1, seed=seed)) for seed in (7, 7, 8, 9)]
    assert drawn[0] == drawn[1] and len(set(drawn)) > 1
    assert joined(complete(temperature=1, seed=7, stream=True)) == drawn[0]


def test_without_seed_texts_differ(complete):
    assert len({text_of(complete(temperature=1)) for _ in range(4)}) > 1


def test_n(complete):
    answer = complete(n=3, temperature=1, seed=11)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.text for choice in answer.choices}) > 1
    assert answer.usage.completion_tokens == 3 * 24 and answer.usage.prompt_tokens == complete().usage.prompt_tokens
    # The i-th choice is the one that seed + i gives by itself.
    assert answer.choices[2].text == text_of(complete(temperature=1, seed=13))
    texts = ["", "", ""]
    for chunk in complete(n=3, temperature=1, seed=11, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in answer.choices]


def test_stop(complete):
    whole = text_of(complete())
    word = whole.split()[5]
    for stop in (word, ["never in this text", word]):
        choice = complete(stop=stop).choices[0]
        assert choice.text == whole[: whole.index(word)] and choice.finish_reason == "stop"
        assert choice.stop_reason == word
        assert joined(complete(stop=stop, stream=True)) == choice.text
    kept = complete(stop=word, extra_body={"include_stop_str_in_output": True})
    assert text_of(kept) == whole[: whole.index(word) + len(word)]


def test_stop_token_ids(complete, server):
    whole = text_of(complete())
    token = server.tokens(whole.split()[5])[0]
    choice = complete(extra_body={"stop_token_ids": [token]}).choices[0]
    assert choice.finish_reason == "stop" and choice.stop_reason == token
    assert whole.startswith(choice.text) and len(choice.text) < len(whole)


def test_logprobs(complete):
    choice = complete(logprobs=3).choices[0]
    given = choice.logprobs
    assert len(given.tokens) == len(given.token_logprobs) == len(given.top_logprobs) == len(given.text_offset) == 24
    assert "".join(given.tokens) == choice.text
    for token, logprob, top, offset in zip(given.tokens, given.token_logprobs, given.top_logprobs, given.text_offset):
        assert choice.text[offset : offset + len(token)] == token
        assert len(top) == 3 and top[token] == logprob == max(top.values()) <= 0
    streamed = [chunk.choices[0].logprobs for chunk in complete(logprobs=3, stream=True)]
    assert [token for each in streamed if each for token in each.tokens] == given.tokens
    assert [offset for each in streamed if each for offset in each.text_offset] == given.text_offset


def test_logit_bias(complete, server):
    first = text_of(complete(max_tokens=1))
    banned = text_of(complete(max_tokens=1, logit_bias={str(server.tokens(first)[-1]): -100}))
    assert banned != first
    forced = server.tokens("upon")[0]
    choice = complete(max_tokens=3, logit_bias={str(forced): 100}).choices[0]
    assert choice.text == " upon" * 3


@pytest.mark.parametrize("penalty", [{"frequency_penalty": 2}, {"presence_penalty": 2}, {"extra_body": {"repetition_penalty": 2}}])
def test_penalties(complete, server, penalty):
    """Each makes the answer repeat itself less."""

    def num_repeats(answer):
        tokens = answer.choices[0].logprobs.tokens
        return len(tokens) - len(set(tokens))

    assert num_repeats(complete(max_tokens=80, logprobs=0, **penalty)) < num_repeats(complete(max_tokens=80, logprobs=0))


@pytest.mark.parametrize("narrowed", [{"top_p": 1e-6}, {"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 1.0}}])
def test_narrowed_draw_is_greedy(complete, narrowed):
    assert text_of(complete(temperature=1, seed=3, **narrowed)) == text_of(complete())


def test_min_tokens_and_ignore_eos(complete):
    question = "<|user|>\nWhat is 23 plus 45?<|end|><|assistant|>\n"
    ended = complete(prompt=question, max_tokens=100)
    assert ended.choices[0].finish_reason == "stop" and ended.usage.completion_tokens < 50
    longer = complete(prompt=question, max_tokens=100, extra_body={"min_tokens": 60})
    assert longer.usage.completion_tokens >= 60
    endless = complete(prompt=question, max_tokens=100, extra_body={"ignore_eos": True})
    assert endless.choices[0].finish_reason == "length" and endless.usage.completion_tokens == 100


def test_stream_interval(complete):
    chunks = list(complete(stream=True, max_tokens=33, extra_body={"stream_interval": 8}))
    assert len(chunks) <= 6  # the first token, then at least eight each time, then the rest
    assert joined(chunks) == text_of(complete(max_tokens=33))


def test_echo(complete):
    assert text_of(complete(echo=True)) == PROMPT + text_of(complete())
    assert joined(complete(echo=True, stream=True)) == PROMPT + text_of(complete())


def test_kinds_of_prompts(complete, server):
    ids = server.post("/tokenize", {"model": "minfer-demo", "prompt": PROMPT})["tokens"]
    expected = text_of(complete())
    assert text_of(complete(prompt=ids)) == expected
    other = text_of(complete(prompt="The cat"))
    for prompts in ([PROMPT, "The cat"], [ids, server.post("/tokenize", {"model": "minfer-demo", "prompt": "The cat"})["tokens"]]):
        answer = complete(prompt=prompts)
        assert [(choice.index, choice.text) for choice in answer.choices] == [(0, expected), (1, other)]
    answer = complete(prompt=[PROMPT, "The cat"], n=2)
    assert [choice.text for choice in answer.choices] == [expected, expected, other, other]


def test_cached_tokens(complete):
    story = "Tom and Mia walked to the old mill by the river and looked for the lost key of the little blue door. " * 4
    first, second = complete(prompt=story), complete(prompt=story)
    assert first.usage.prompt_tokens_details.cached_tokens < second.usage.prompt_tokens_details.cached_tokens
    assert second.usage.prompt_tokens_details.cached_tokens % 16 == 0
    assert second.usage.prompt_tokens_details.cached_tokens >= second.usage.prompt_tokens - 17
    assert text_of(first) == text_of(second)


def test_accepted_without_effect(complete):
    assert text_of(complete(user="somebody")) == text_of(complete())


@pytest.mark.parametrize(
    "field, value",
    [("temperature", 3), ("top_p", 0), ("max_tokens", 0), ("n", 0), ("logprobs", 1000), ("presence_penalty", -3), ("suffix", "x"),
     ("best_of", 2), ("stop", ["a"] * 100), ("seed", "x"), ("logit_bias", {"x": 1}), ("prompt", []), ("prompt", [[]])],
)
def test_refused_values_name_the_field(complete, field, value):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(**{field: value})
    assert caught.value.param.split("[")[0].split(".")[0] == field
    assert caught.value.type == "invalid_request_error" and field in caught.value.message


@pytest.mark.parametrize("field, value", [("top_k", -2), ("min_p", 2), ("stream_interval", 0), ("priority", 1)])
def test_refused_values_beyond_openai(complete, field, value):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(stream=True, extra_body={field: value})
    assert caught.value.param == field


def test_prompt_beyond_the_context(complete):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(prompt=[5] * 3000)
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "prompt"
