"""GuideLLM measures the server, on both endpoints and in several ways."""

import json
import os
import subprocess

import pytest

PROMPTS = ["Once upon a time there was a cat.", "What is 23 plus 45?", "Tell me a story about a dog.", "The sun"]


@pytest.fixture(scope="module")
def measure(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guidellm")
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": each}) + "\n" for each in PROMPTS * 8))
    environment = {**os.environ, "LD_LIBRARY_PATH": os.environ["TORCH_LIBRARIES"], "PYTHONPATH": os.environ["TORCH_FOLDER"]}

    def run(profile, path, more=""):
        command = ["guidellm", "run", "--backend", f"kind=openai_http,target={server.url},request_format={path}{more}", "--profile", profile,
                   "--constraint", "kind=max_requests,count=12", "--data", "kind=json_file,path=prompts.jsonl", "--disable-progress",
                   "--output", "kind=json,path=report.json"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        (benchmark,) = json.loads((folder / "report.json").read_text())["benchmarks"]
        return benchmark

    return run


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("profile", ["kind=synchronous", "kind=concurrent,streams=4", "kind=throughput,max_concurrency=8", "kind=constant,rate=20"])
def test_every_request_is_answered(measure, server, profile, path):
    benchmark = measure(profile, path, ",max_tokens=16")
    totals = benchmark["metrics"]["request_totals"]
    assert totals["successful"] >= 12 and totals["errored"] == 0, benchmark["requests"]["errored"]
    for request in benchmark["requests"]["successful"]:
        assert request["output"] and request["prompt_tokens"] > 0 and 0 < request["output_tokens"] <= 16
        assert request["time_to_first_token_ms"] > 0
    assert not [line for line in server.log_lines() if "fields" in line], "it sends a field that is not known"
