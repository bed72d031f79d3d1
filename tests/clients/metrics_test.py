"""/metrics, read by Prometheus's own Python parser."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving import EXCHANGE_TIMEOUT_S

# What the dashboards in vLLM's repository query: examples/online_serving/prometheus_grafana/grafana.json, and
# performance_statistics.json and query_statistics.json in examples/online_serving/dashboards/grafana (which write vllm_ for
# vllm:). Not here: vllm:num_requests_swapped and vllm:cpu_cache_usage_perc of older versions, for nothing is swapped.
LATENCIES = ["vllm:e2e_request_latency_seconds", "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
             "vllm:time_per_output_token_seconds"]
QUERIED = {
    *(name + suffix for name in LATENCIES for suffix in ("_bucket", "_sum", "_count")),
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:request_prompt_tokens_bucket",
    "vllm:request_generation_tokens_bucket",
    "vllm:request_success_total",
    "vllm:request_queue_time_seconds_sum",
    "vllm:request_prefill_time_seconds_sum",
    "vllm:request_decode_time_seconds_sum",
    "vllm:request_max_num_generation_tokens_sum",
    "vllm:iteration_tokens_total_count",
}


@pytest.fixture
def families(server):
    return list(text_string_to_metric_families(server.get("/metrics")))


def test_content_type(server):
    with urllib.request.urlopen(server.url + "/metrics", timeout=EXCHANGE_TIMEOUT_S) as answer:
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_names_of_the_dashboards(families):
    samples = {sample.name for family in families for sample in family.samples}
    assert not QUERIED - samples


def test_every_metric_has_help_and_type(families):
    assert len({family.name for family in families}) == len(families) > 20
    for family in families:
        assert family.name.startswith(("vllm:", "minfer:")) and family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        assert all(sample.labels["model_name"] == "minfer-demo" for sample in family.samples)


def test_reasons_of_the_end(families):
    """The dashboard draws a line a reason."""
    reasons = {sample.labels["finished_reason"] for family in families for sample in family.samples
               if sample.name == "vllm:request_success_total"}
    assert {"stop", "length", "abort"} <= reasons


def test_histograms_are_cumulative(families):
    for family in families:
        if family.type != "histogram":
            continue
        series = {}
        for sample in family.samples:
            labels = frozenset(item for item in sample.labels.items() if item[0] != "le")
            series.setdefault(labels, {}).setdefault(sample.name.removeprefix(family.name), []).append(sample)
        for samples in series.values():
            values = [sample.value for sample in samples["_bucket"]]
            assert values == sorted(values) and samples["_bucket"][-1].labels["le"] == "+Inf"
            assert values[-1] == samples["_count"][0].value


def test_counts_of_a_request(client, server, model):
    before = server.wait_until_idle()
    usage = client.completions.create(model=model, prompt="Once upon a time", max_tokens=20, n=2, temperature=1,
                                      extra_body={"ignore_eos": True}).usage
    after = server.wait_until_idle()  # the last step is counted after its tokens have gone out

    def gained(name):
        return after[name] - before[name]

    assert gained("vllm:generation_tokens_total") == usage.completion_tokens == 40
    assert gained("vllm:prompt_tokens_total") == 2 * usage.prompt_tokens  # of each choice
    assert gained("vllm:request_success_total") == gained("vllm:time_to_first_token_seconds_count") == 2
    assert gained("vllm:inter_token_latency_seconds_count") == 2 * 19
    assert gained("vllm:request_max_num_generation_tokens_count") == 1
    assert gained("vllm:request_max_num_generation_tokens_sum") == 20
    assert gained("vllm:iteration_tokens_total_sum") == 40 - 2 + 2 * usage.prompt_tokens
    assert 0 < gained("vllm:time_to_first_token_seconds_sum") <= gained("vllm:e2e_request_latency_seconds_sum")
    assert gained("minfer:steps_total") >= 20
