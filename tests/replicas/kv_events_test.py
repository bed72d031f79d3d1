"""KV events of `minfer serve`, read by pyzmq and msgspec: a mirror of the prefix cache, under random load with shared prefixes in a
small cache, foretells what later requests find there."""

import concurrent.futures
import random

import pytest

pytest.importorskip("zmq")
pytest.importorskip("msgspec")

from kv_mirror import KvMirror  # noqa: E402
from serving import Server  # noqa: E402

TOPIC = "kv@replica-1@minfer-demo"
ANY_PORT = "tcp://127.0.0.1:*"
SHARED, OWN, SALTED = range(300, 340), range(400, 440), range(500, 540)  # tokens of prompts


class Load:
    """Prompts that begin alike, from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.beginnings = [self._tokens(SHARED, 64) for _ in range(4)]

    def _tokens(self, vocabulary, most):
        return [self.random.choice(vocabulary) for _ in range(self.random.randint(1, most))]

    def prompt(self):
        beginning = self.random.choice(self.beginnings)
        return beginning[:self.random.randint(1, len(beginning))] + self._tokens(OWN, 40)

    def body(self):
        body = {"model": "minfer-demo", "prompt": self.prompt(), "max_tokens": self.random.randint(1, 60),
                "ignore_eos": True, "n": self.random.choice([1, 1, 2])}
        if self.random.random() < 0.1:
            body |= {"prompt": self._tokens(SALTED, 60), "cache_salt": "a tenant's own", "max_tokens": 1}
        return body


def serve(minfer, *options):
    return Server(minfer, "--kv-events-endpoint", ANY_PORT, "--kv-events-replay-endpoint", ANY_PORT, *options)


def num_batches(server):
    """Numbers that have been given once the server is idle and has published all it had to."""
    server.wait_until_idle()
    name = "minfer:kv_event_batches_total"
    metrics = server.wait_for_metrics(lambda metrics: metrics["minfer:engine_busy"] == 0
                                      and metrics["minfer:kv_event_batches_queued"] == 0)
    assert metrics[name + '{outcome="dropped"}'] == 0
    return metrics[name]


def ask(server, prompt):
    """Tokens of the prompt that the server found in its cache."""
    answer = server.post("/v1/completions", {"model": "minfer-demo", "prompt": prompt, "max_tokens": 1})
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def subscribe(server, topic="", array_like=False):
    log = next(line for line in server.log_lines() if line["event"] == "KV events")
    return KvMirror(log["listens"], log["replay"], topic, array_like)


@pytest.mark.parametrize("form", ["map", "array"])
def test_mirror(minfer, form):
    load = Load(seed=1 if form == "map" else 2)
    options = ["--kv-events-topic", TOPIC, "--kv-events-format", form, "--max-model-len", "256", "--block-size", "8",
               "--num-blocks", "48", "--max-num-batched-tokens", "64"]
    with serve(minfer, *options) as server, subscribe(server, TOPIC, form == "array") as mirror:
        bodies = [load.body() for _ in range(120)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = pool.map(lambda body: server.post("/v1/completions", body), bodies)
            assert all(answer["choices"] for answer in answers)
        mirror.catch_up(num_batches(server))
        mirror.check()
        hits = []
        for i in range(40):
            held = load.random.choice(list(mirror.prefixes.values()))
            prompt = load.prompt() if i % 2 else list(held) + [load.random.choice(OWN)]
            predicted = mirror.hit(prompt)
            assert ask(server, prompt) == predicted
            hits.append(predicted)
            mirror.catch_up(num_batches(server))
            mirror.check()
        assert sum(hits) > 0 and 0 in hits
        assert server.metrics()["vllm:num_preemptions_total"] > 0
        assert min(mirror.counts["BlockStored"], mirror.counts["BlockRemoved"]) > 100 and mirror.counts["AllBlocksCleared"] == 1
        assert mirror.beginnings & set(SHARED) and not mirror.beginnings & set(SALTED)
        print(mirror.counts, hits)


def test_equal_keys_give_equal_hashes(minfer):
    """Servers that share a key: some routers take a hash for the same block on each of them."""
    hashes = []
    for key in ("7", "7", "8"):
        with serve(minfer, "--prefix-hash-key", key, "--num-blocks", "256") as server, subscribe(server) as mirror:
            ask(server, list(range(300, 340)))
            mirror.catch_up(num_batches(server))
            hashes.append(set(mirror.prefixes))
    assert hashes[0] == hashes[1] and len(hashes[0]) == 2
    assert not hashes[0] & hashes[2]
