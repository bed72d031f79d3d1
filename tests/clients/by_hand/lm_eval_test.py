"""lm-evaluation-harness's local-completions with tasks of their own making; the server's own tokeniser serves it."""

import array
import json
import math
import pathlib
import subprocess

import pytest

TASKS = pathlib.Path(__file__).resolve().parent / "lm_eval_tasks"
NUM_SUMS = 20


def evaluate(server, folder, task, arguments="", *options):
    """Its results and its samples."""
    model = f"model=minfer-demo,base_url={server.base_url}/completions{arguments}"
    command = ["lm_eval", "--model", "local-completions", "--model_args", model, "--tasks", task, "--include_path", str(TASKS),
               "--output_path", str(folder), "--log_samples", *options]
    done = subprocess.run(command, cwd=TASKS, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    (results,) = folder.glob("*/results_*.json")
    (samples,) = folder.glob("*/samples_*.jsonl")
    return json.loads(results.read_text())["results"][task], [json.loads(line) for line in samples.read_text().splitlines()]


def scores(samples):
    """Loglikelihood and whether it is the greedy answer, of each choice."""
    return {(sample["doc_id"], i): (float(response[0][0]), response[0][1] in (True, "True"))
            for sample in samples for i, response in enumerate(sample["resps"])}


def own_loglikelihood(minfer, server, folder, context, continuation):
    """What `minfer eval --logits` gives, and whether each token is the likeliest. White space at the context's end counts to the
    continuation, as the harness has it."""
    ids, num_context = server_tokens(server, context + continuation), len(server_tokens(server, context.rstrip()))
    tokens, logits = folder / "tokens", folder / "logits"
    tokens.write_text(" ".join(map(str, ids)))
    subprocess.run([minfer, "eval", "--tokens", str(tokens), "--logits", str(logits)], check=True, capture_output=True, timeout=120)
    head = 4 * (2 + len(ids))  # number of tokens, size of the vocabulary, the tokens
    values = array.array("f", logits.read_bytes()[head:])
    size = len(values) // len(ids)
    rows = [values[i * size : (i + 1) * size] for i in range(len(ids))]
    total, greedy = 0.0, True
    for i in range(num_context, len(ids)):
        row = rows[i - 1]
        most = max(row)
        total += row[ids[i]] - most - math.log(sum(math.exp(x - most) for x in row))
        greedy = greedy and row[ids[i]] == most
    return total, greedy


def server_tokens(server, text):
    return server.post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]


def test_loglikelihoods_are_the_models(server, minfer, tmp_path):
    result, samples = evaluate(server, tmp_path / "out", "minfer_sums", ",num_concurrent=4")
    assert result["acc,none"] == 1.0 and len(samples) == NUM_SUMS
    given = scores(samples)
    worst = 0.0
    for sample in samples[:5]:
        for i, choice in enumerate(sample["doc"]["choices"]):
            expected, greedy = own_loglikelihood(minfer, server, tmp_path, sample["doc"]["question"], choice)
            assert given[sample["doc_id"], i] == (pytest.approx(expected, abs=1e-4), greedy), choice
            worst = max(worst, abs(given[sample["doc_id"], i][0] - expected))
    print(f"{result['acc,none']:.2f} of {NUM_SUMS} sums; 20 loglikelihoods differ from minfer eval's by at most {worst:.1e}")


def test_many_prompts_a_request_give_the_same(server, tmp_path):
    plain = scores(evaluate(server, tmp_path / "plain", "minfer_sums")[1])
    other = scores(evaluate(server, tmp_path / "other", "minfer_sums", ",num_concurrent=4", "--batch_size", "8")[1])
    assert other == {key: (pytest.approx(value, abs=1e-4), greedy) for key, (value, greedy) in plain.items()}


def test_answers_that_are_written(server, tmp_path):
    assert evaluate(server, tmp_path / "out", "minfer_sums_written", ",num_concurrent=4")[0]["exact_match,none"] == 1.0
