#!/usr/bin/env python3
"""Calculates what a step of a model costs on several GPUs and hosts, and keeps the tables of engine/SCALE.md.

    scripts/bench/scale_model.py                          # prints all tables
    scripts/bench/scale_model.py errors one-host          # prints these
    scripts/bench/scale_model.py --write engine/SCALE.md  # replaces what stands between `<!-- table: NAME -->` and `<!-- end -->`
    scripts/bench/scale_model.py --check engine/SCALE.md  # exit code 1 if a table is not current

Times are in microseconds, sizes in bytes, rates in bytes (or FLOPs) a microsecond: 1,000 bytes/us = 1 GB/s, 1e6 FLOP/us = 1 TFLOP/s.
engine/SCALE.md has the formulas and says which constants are measured, which are assumed.
"""

import argparse
import itertools
import json
import math
import pathlib
import re
import sys
from typing import NamedTuple

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "tests/benchmarks/results"
BLOCK = re.compile(r"^<!-- table: ([^\n]+?) -->\n(.*?)^<!-- end -->$", re.M | re.S)

GB, TFLOPS = 1e3, 1e6  # GB/s and TFLOP/s in the units above
BF16, F32 = 2, 4

# Constants: name -> (value, how it is shown, source). M: measured by us; D: NVIDIA's data sheet; A: assumed.
# Rates of weights in a decode step, by number of tokens: all four products of a layer, minus kernel_us each.
WEIGHT_RATE = {1: 4520 * GB, 8: 3290 * GB, 32: 3780 * GB, 64: 3450 * GB, 128: 3060 * GB, 256: 2250 * GB}
STEPS = "M: the 8B shape's kept decode steps"
OPS = "M: ops by themselves, 8B shape"
LINKS = "M: all-reduce of two H200"
CONSTANTS = {
    "memory_bytes": (150.1e9, "150.1 GB", "M: what the driver reports (D: 141 GB)"),
    "memory_share": (0.9, "0.9", "minfer's default"),
    "other_bytes": (1.8e9, "1.8 GB a GPU", "M: activations, workspace and driver of the 8B shape"),
    "kernel_us": (2.6, "2.6 us", OPS + ", 1 token: intercept over the bytes"),
    "flops": (640 * TFLOPS, "640 TFLOP/s", OPS + ", 2,048 tokens (cuBLASLt's best alone: 833)"),
    "attention_us": (8.5, "8.5 us", STEPS + ", 1 to 64 sequences"),
    "kv_rate": (4200 * GB, "4,200 GB/s", STEPS + ", 1 to 64 sequences"),
    "attention_flops": (307 * TFLOPS, "307 TFLOP/s", OPS + ", causal, 2,048 tokens (8,192: 400)"),
    "norm_us": (1.85, "1.85 us", STEPS + ", 1 token"),
    "norm_token_us": (7.6e-3 / 4096, "7.6 ns at 4,096 wide", OPS + ", 2,048 tokens"),
    "rope_us": (1.2, "1.2 us", STEPS + ", 1 token"),
    "rope_token_us": (14.5e-3 / 48, "0.3 ns a head", OPS + ", 2,048 tokens"),
    "step_us": (26.0, "26 us", STEPS + ": inputs, embedding, last norm, sampler, results"),
    "sample_us": (0.12, "0.12 us", OPS + ", greedy"),
    "lines_us": (3.7, "3.7 us", LINKS + ", `lines`, 32 to 256 KB"),
    "lines_rate": (131 * GB, "131 GB/s of sums", LINKS + ", `lines`: every 4 bytes take 8 on the link"),
    "chunks_us": (6.3, "6.3 us", LINKS + ", `chunks`, 1 to 64 MB"),
    "chunks_rate": (291 * GB, "291 GB/s", LINKS + ", `chunks` (D: 450 GB/s each way)"),
    "two_shot_us": (8.5, "8.5 us", LINKS + ", `two_shot`, 64 KB to 1 MB"),
    "two_shot_rate": (239 * GB, "239 GB/s", LINKS + ", `two_shot`, 16 to 64 MB, norm of all rows included"),
    "rank_us": (0.3, "0.3 us", "A: each rank beyond two, for each exchange"),
    "moe_kernels": (5, "5 kernels", "A: router, order, two products of experts, sum"),
}
C = type("C", (), {name: value for name, (value, _, _) in CONSTANTS.items()})


class Network(NamedTuple):
    """Between hosts. All of it is assumed."""
    name: str
    hop_us: float   # a small message from GPU to GPU
    rate: float     # of one adapter
    per_gpu: bool   # each GPU has an adapter, or each host has one


IB = Network("400 Gb/s a GPU", 10.0, 45 * GB, True)
ETHERNET = Network("100 GbE a host", 40.0, 11 * GB, False)


class Model(NamedTuple):
    """A decoder's shape; with experts, ffn is the width of one."""
    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    head_size: int = 128
    experts: int = 0
    used: int = 0

    def attention_params(self):
        """Of a layer: query, key, value and output."""
        return self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)

    def ffn_params(self):
        """Of a layer, or of one expert of it."""
        return 3 * self.hidden * self.ffn

    def layer_bytes(self):
        return BF16 * (self.attention_params() + self.ffn_params() * max(1, self.experts))

    def head_bytes(self):
        return BF16 * self.vocab * self.hidden

    def weight_bytes(self):
        return self.layers * self.layer_bytes() + 2 * self.head_bytes()

    def kv_bytes(self):
        """A token's keys and values in one layer."""
        return 2 * BF16 * self.kv_heads * self.head_size


LLAMA_8B = Model("8B", 32, 4096, 14336, 32, 8, 128256)
LLAMA_70B = Model("70B", 80, 8192, 28672, 64, 8, 128256)
LLAMA_405B = Model("405B", 126, 16384, 53248, 128, 8, 128256)
DENSE = [LLAMA_8B, LLAMA_70B, LLAMA_405B]
MIXTRAL = Model("Mixtral-8x7B", 32, 4096, 14336, 32, 8, 32000, experts=8, used=2)
QWEN_30B = Model("Qwen3-30B-A3B", 48, 2048, 768, 32, 4, 151936, experts=128, used=8)

CONTEXT = 2048   # tokens of context of a sequence in the tables of decode steps
PROMPT = 2048    # tokens of a prompt in the tables of prefill
HOST_GPUS = 8


class Group(NamedTuple):
    """GPUs that share every product: `gpus` of each of `hosts` hosts."""
    gpus: int = 1
    hosts: int = 1
    network: Network = IB

    def size(self):
        return self.gpus * self.hosts


def weight_rate(tokens):
    """Reachable rate of weights in products with so many tokens; between measured ones by the logarithm."""
    tokens = min(max(tokens, min(WEIGHT_RATE)), max(WEIGHT_RATE))
    below, above = next(pair for pair in itertools.pairwise(WEIGHT_RATE) if tokens <= pair[1])
    part = math.log(tokens / below) / math.log(above / below)
    return WEIGHT_RATE[below] * (1 - part) + WEIGHT_RATE[above] * part


def product_us(weight_bytes, tokens, flops=None):
    """Products without their fixed costs: limited by memory or by arithmetic."""
    flops = weight_bytes / BF16 * 2 * tokens if flops is None else flops
    return max(weight_bytes / weight_rate(tokens), flops / C.flops)


def all_reduce_us(num_bytes, group):
    """Sum, residual and norm in one kernel within a host; between hosts each GPU's part goes round by doubling."""
    n, more = group.gpus, group.gpus - 2
    if n == 1:
        inside = 0.0
    elif n == 2:
        inside = min(C.lines_us + num_bytes / C.lines_rate, C.chunks_us + num_bytes / C.chunks_rate)
    else:
        inside = min(C.lines_us + C.rank_us * more + (n - 1) * num_bytes / C.lines_rate,
                     C.two_shot_us + 2 * C.rank_us * more + 2 * (n - 1) / n * num_bytes / C.two_shot_rate)
    if group.hosts == 1:
        return inside
    h, network = group.hosts, group.network
    part = num_bytes / n if network.per_gpu else num_bytes
    return inside + 2 * math.ceil(math.log2(h)) * network.hop_us + 2 * (h - 1) / h * part / network.rate


def attention_us(model, tokens, sequences, context, gpus, prefill):
    heads = max(1, model.kv_heads / gpus)  # with more GPUs than KV heads, some GPUs hold the same heads
    if prefill:
        return C.attention_us + tokens * context * 2 * model.heads / gpus * model.head_size / C.attention_flops
    return C.attention_us + sequences * context * model.kv_bytes() * heads / model.kv_heads / C.kv_rate


def layer_us(model, tokens, sequences, context, group, prefill=False):
    """A layer of a model without experts: (computing, all-reduce with the norms in it)."""
    n = group.size()
    compute = product_us(model.layer_bytes() / n, tokens) + 4 * C.kernel_us
    compute += attention_us(model, tokens, sequences, context, n, prefill)
    compute += C.rope_us + C.rope_token_us * tokens * (model.heads + 2 * model.kv_heads) / n
    if n == 1:
        return compute + 2 * (C.norm_us + C.norm_token_us * model.hidden * tokens), 0.0
    return compute, 2 * all_reduce_us(tokens * model.hidden * BF16, group)


def head_us(model, sequences, group):
    """Logits, and their way to the GPU that samples: (computing, communication)."""
    n = group.size()
    moved = sequences * model.vocab * F32 * (n - 1) / n
    link = group.network.rate if group.hosts > 1 else 2 * C.lines_rate
    return product_us(model.head_bytes() / n, sequences) + C.kernel_us + C.sample_us * sequences, moved / link


def step_us(model, tokens, sequences, context, group, prefill=False):
    """(computing, communication)"""
    layer, sums = layer_us(model, tokens, sequences, context, group, prefill)
    head, moved = head_us(model, sequences, group)
    return model.layers * layer + head + C.step_us, model.layers * sums + moved


def decode_us(model, sequences, group, context=CONTEXT):
    return sum(step_us(model, sequences, sequences, context, group))


def prefill_us(model, group, prompts=1, length=PROMPT):
    return sum(step_us(model, prompts * length, prompts, length, group, prefill=True))


def kv_tokens(model, group, stages=1):
    """Tokens of KV cache that fit beside the weights (of a stage: with one of the two vocabulary matrices)."""
    n = group.size()
    layers = math.ceil(model.layers / stages)
    weights = layers * model.layer_bytes() + (2 if stages == 1 else 1) * model.head_bytes()
    room = C.memory_bytes * C.memory_share - C.other_bytes - weights / n
    shared = min(n, model.kv_heads)
    return max(0, int(room / (model.kv_bytes() * layers / shared)))


def hop_us(model, tokens, gpus, network):
    """Hidden states from a stage to the next: each GPU sends its part, and the parts meet inside the host."""
    rate = network.rate * (gpus if network.per_gpu else 1)
    meet = C.lines_us + C.rank_us * (gpus - 2) if gpus > 1 else 0.0
    return network.hop_us + tokens * model.hidden * BF16 / rate + meet


def pipeline_us(model, sequences, stages, gpus, network):
    """Time between two tokens of a sequence, with the best number of micro-batches: (us, micro-batches)."""
    group, cycles = Group(gpus), []
    for micro in range(1, min(stages, sequences) + 1):
        m = math.ceil(sequences / micro)
        layer, head = sum(layer_us(model, m, m, CONTEXT, group)), sum(head_us(model, m, group)) + C.step_us
        hop = hop_us(model, m, gpus, network)
        latency = model.layers * layer + head + stages * hop
        # The last stage has the head and correspondingly fewer layers; a stage has a whole number of layers.
        slowest = max(math.ceil(model.layers / stages) * layer, (model.layers * layer + head) / stages) + hop
        cycles.append((max(latency, micro * slowest), micro))
    return min(cycles)


# Experts

def busiest(mean, n):
    """Expected most of n equal shares of random routes, about."""
    return mean if n == 1 else mean + math.sqrt(2 * mean * math.log(n))


def experts_touched(model, tokens):
    return model.experts * (1 - (1 - model.used / model.experts) ** tokens)


def moe_columns_us(model, sequences, group):
    """Every expert cut by columns over all GPUs, as minfer does: a decode step."""
    n = group.size()
    touched, routes = experts_touched(model, sequences), sequences * model.used
    attention = product_us(BF16 * model.attention_params() / n, sequences) + 2 * C.kernel_us
    attention += attention_us(model, sequences, sequences, CONTEXT, n, False) + C.rope_us
    experts = product_us(touched * BF16 * model.ffn_params() / n, routes / touched, 2 * routes * model.ffn_params() / n)
    sums = 2 * all_reduce_us(sequences * model.hidden * BF16, group) if n > 1 else 2 * C.norm_us
    return model.layers * (attention + experts + C.moe_kernels * C.kernel_us + sums) + sum(head_us(model, sequences, group)) + C.step_us


def all_to_all_us(num_bytes, group):
    """Each GPU sends so many bytes, to all others alike."""
    n, g = group.size(), group.gpus
    if n == 1:
        return 0.0
    inside = C.lines_us + C.rank_us * max(0, g - 2) + num_bytes * (g - 1) / n / (2 * C.lines_rate)
    if group.hosts == 1:
        return inside
    outside = num_bytes * (n - g) / n * (1 if group.network.per_gpu else g)
    return max(inside, group.network.hop_us + outside / group.network.rate)


def moe_experts_us(model, sequences, group):
    """Whole experts on each GPU, sequences divided among the GPUs for all else: a decode step."""
    n = group.size()
    own = math.ceil(sequences / n)
    touched, routes = experts_touched(model, sequences), sequences * model.used
    attention = product_us(BF16 * model.attention_params(), own) + 2 * C.kernel_us
    attention += attention_us(model, own, own, CONTEXT, 1, False) + C.rope_us + 2 * C.norm_us
    read = max(1.0, min(model.experts / n, busiest(touched / n, n)))
    most = min(routes, busiest(routes / n, n))
    experts = product_us(read * BF16 * model.ffn_params(), routes / touched, 2 * most * model.ffn_params())
    moved = 2 * all_to_all_us(busiest(routes / n, n) * model.hidden * BF16, group)
    head = product_us(model.head_bytes(), own) + C.kernel_us + C.sample_us * own
    return model.layers * (attention + experts + C.moe_kernels * C.kernel_us + moved) + head + C.step_us


# Tables

def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def tokens_of(count):
    return "does not fit" if count <= 0 else f"{count / 1e6:.2f} M" if count >= 1e6 else f"{count / 1e3:.0f} K"


def table(head, rows):
    lines = ["| " + " | ".join(map(str, line)) + " |\n" for line in (head, *rows)]
    lines.insert(1, "|---" * len(head) + "|\n")
    return "".join(lines)


def constants_table():
    rows = [[f"`{name}`", shown, source] for name, (_, shown, source) in CONSTANTS.items()]
    rates = ", ".join(f"{rate / GB:,.0f}" for rate in WEIGHT_RATE.values())
    sizes = ", ".join(map(str, WEIGHT_RATE))
    rows.insert(3, ["weights' rate", f"{rates} GB/s at {sizes} tokens", STEPS + " to 64; beyond: ops by themselves"])
    for network in (IB, ETHERNET):
        rows.append([network.name, f"{network.hop_us:.0f} us a hop, {network.rate / GB:.0f} GB/s",
                     f"A: {'InfiniBand or RoCE, GPUs and adapters directly' if network.per_gpu else 'through memory of the hosts'}"])
    return table(["constant", "value", "source"], rows)


def results(name):
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines() if line]


def measured(model, gpus, parallel, prompt=0):
    """A median in tokens/s of the kept results."""
    found = [row["median_ts"] for row in results("cuda-2026-11-22.jsonl" if gpus == 1 else "two-gpus-2026-11-22.jsonl")
             if "median_ts" in row and f"synthetic:llama-3.1-{model.name.lower()}:bf16" in row["command"]
             and row["n_parallel"] == parallel and row["n_prompt"] == prompt and ("--tp 2" in row["command"]) == (gpus == 2)]
    if len(found) != 1:
        sys.exit(f"{len(found)} results of {model.name}, {gpus} GPUs, {parallel} sequences, prompt {prompt}")
    return found[0]


def errors_table():
    rows = []

    def add(what, gpus, made, seen):
        # Constants were fitted to one GPU alone.
        rows.append([what, gpus, number(made), number(seen), f"{100 * (made / seen - 1):+.1f} %", "a fit" if gpus == 1 else "a prediction"])

    for gpus in (1, 2):
        for parallel in (1, 8, 32, 64, 128):
            context = 64 if gpus == 1 and parallel == 1 else 576  # the middle of 128 tokens, after prompts of 512
            add(f"8B decode, {parallel}", gpus, parallel / decode_us(LLAMA_8B, parallel, Group(gpus), context) * 1e6, measured(LLAMA_8B, gpus, parallel))
        add("8B prefill of 2,048", gpus, 2048 / prefill_us(LLAMA_8B, Group(gpus)) * 1e6, measured(LLAMA_8B, gpus, 1, 2048))
    add("8B prefill, 4 x 2,048 a step", 2, 8192 / prefill_us(LLAMA_8B, Group(2), 4) * 1e6, measured(LLAMA_8B, 2, 8, 2048))
    for parallel in (1, 8):
        add(f"70B decode, {parallel}", 2, parallel / decode_us(LLAMA_70B, parallel, Group(2), 544) * 1e6, measured(LLAMA_70B, 2, parallel))
    return table(["tokens/s", "GPUs", "calculated", "measured", "error", "the calculated one is"], rows)


def all_reduce_table():
    seen = {row["bytes"]: max(row["us"]) for row in results("two-gpus-2026-11-22.jsonl") if row.get("what") == "fused"}
    sizes = [1 << 15, 1 << 16, 1 << 18, 1 << 19, 1 << 20, 1 << 22, 1 << 24, 1 << 26]
    kb = lambda size: f"{size >> 10} KB" if size < 1 << 20 else f"{size >> 20} MB"
    return table(["us of one all-reduce", *map(kb, sizes)], [
        ["2 GPUs, measured", *(f"{seen[size]:.1f}" for size in sizes)],
        *([f"{n} GPUs, calculated", *(f"{all_reduce_us(size, Group(n)):.1f}" for size in sizes)] for n in (2, 4, 8)),
        *([f"{h} x 8 GPUs, {network.name}", *(f"{all_reduce_us(size, Group(8, h, network)):.0f}" for size in sizes)]
          for h, network in ((2, IB), (16, IB), (2, ETHERNET)))])


def one_host_table():
    rows = []
    for model in DENSE:
        for gpus in (1, 2, 4, 8):
            group, room = Group(gpus), kv_tokens(model, Group(gpus))
            rows.append([model.name, gpus, number(model.weight_bytes() / gpus / 1e9), tokens_of(room)])
            if room <= 0:
                rows[-1] += "-----"
                continue
            compute, comm = step_us(model, 1, 1, CONTEXT, group)
            many = min(128, room // CONTEXT)
            decode = many / decode_us(model, many, group) * 1e6
            rows[-1] += [number(1e6 / (compute + comm)), f"{100 * comm / (compute + comm):.0f} %",
                         number(decode) + ("" if many == 128 else f" (at {many})"),
                         number(PROMPT / prefill_us(model, group) * 1e6), number(prefill_us(model, group) / 1e3)]
    return table(["shape", "GPUs", "weights, GB a GPU", "KV tokens", "tokens/s, 1 sequence", "of it communication",
                  "tokens/s, 128 sequences", "prefill, tokens/s", "first token of 2,048, ms"], rows)


def layout_us(model, sequences, gpus):
    """A decode step of replicas of so many GPUs of a host, which share the sequences."""
    replicas = HOST_GPUS // gpus
    own = math.ceil(sequences / replicas)
    room = kv_tokens(model, Group(gpus))
    return decode_us(model, own, Group(gpus)) if room >= own * CONTEXT else None


def layouts_table():
    loads = (1, 8, 32, 128, 512, 1024)
    rows = []
    for model in DENSE:
        times = {gpus: [layout_us(model, load, gpus) for load in loads] for gpus in (8, 4, 2, 1)}
        best = [min((t[i] for t in times.values() if t[i]), default=None) for i in range(len(loads))]
        for gpus, row in times.items():
            if any(row):
                name = f"{HOST_GPUS // gpus} x {gpus}"
                rates = [t and number(load / t * 1e6) for load, t in zip(loads, row)]
                cells = ["-" if t is None else f"**{rate}**" if t == most else rate for rate, t, most in zip(rates, row, best)]
                rows.append([model.name, name, *cells])
    return table(["shape", "replicas x GPUs", "1 sequence", *(f"{load:,}" for load in loads[1:])], rows)


def tensor_rate(model, sequences, hosts, network, without):
    """Tokens/s of all GPUs of the hosts; `without` where heads do not divide. KV heads need not: where there are fewer, ranks hold the
    same ones."""
    group = Group(HOST_GPUS, hosts, network)
    return without if model.heads % group.size() else number(sequences / decode_us(model, sequences, group) * 1e6)


def hosts_one_table():
    rows = []
    for model, hosts in itertools.product(DENSE, (2, 4, 8, 16)):
        tensor = [tensor_rate(model, 1, hosts, network, "heads do not divide") for network in (IB, ETHERNET)]
        pipeline = [number(1e6 / pipeline_us(model, 1, hosts, HOST_GPUS, network)[0]) for network in (IB, ETHERNET)]
        rows.append([model.name, hosts, number(1e6 / decode_us(model, 1, Group(HOST_GPUS))), *tensor, *pipeline])
    return table(["shape", "hosts", "one host of them alone", f"tensor, {IB.name}", f"tensor, {ETHERNET.name}", f"pipeline, {IB.name}",
                  f"pipeline, {ETHERNET.name}"], rows)


def hosts_many_table(sequences_a_host=64):
    rows = []
    for model, hosts in itertools.product(DENSE, (2, 4, 8, 16)):
        total = sequences_a_host * hosts
        data = total / decode_us(model, sequences_a_host, Group(HOST_GPUS)) * 1e6
        pipelines = [pipeline_us(model, total, hosts, HOST_GPUS, network) for network in (IB, ETHERNET)]
        rows.append([model.name, hosts, f"{total:,}", number(data), tensor_rate(model, total, hosts, IB, "-"),
                     *(f"{number(total / cycle * 1e6)} ({micro})" for cycle, micro in pipelines),
                     tokens_of(hosts * kv_tokens(model, Group(HOST_GPUS))), tokens_of(kv_tokens(model, Group(HOST_GPUS), hosts))])
    return table(["shape", "hosts", "sequences", "a replica a host", f"tensor, {IB.name}", f"pipeline, {IB.name} (micro-batches)",
                  f"pipeline, {ETHERNET.name}", "KV tokens, replicas", "KV tokens, pipeline"], rows)


SMALL_HOSTS = ((LLAMA_70B, 2, 1), (LLAMA_70B, 4, 1), (LLAMA_405B, 2, 4), (LLAMA_405B, 4, 2), (LLAMA_405B, 8, 1))


def small_hosts_table():
    rows = []
    for model, hosts, gpus in SMALL_HOSTS:
        times = [(load, us) for load in (1, 64) for network in (IB, ETHERNET)
                 for us in (decode_us(model, load, Group(gpus, hosts, network)), pipeline_us(model, load, hosts, gpus, network)[0])]
        inside = decode_us(model, 1, Group(hosts * gpus)), decode_us(model, 64, Group(hosts * gpus))
        rows.append([model.name, f"{hosts} x {gpus}", *(number(load / us * 1e6) for load, us in times),
                     f"{1e6 / inside[0]:,.0f} and {64e6 / inside[1]:,.0f}"])
    head = [f"{load}: {kind}, {network}" for load in (1, 64) for network in ("400 Gb/s", "100 GbE") for kind in ("tensor", "pipeline")]
    return table(["shape", "hosts x GPUs", *head, "all in one host: 1 and 64"], rows)


def experts_table():
    rows = []
    for model in (MIXTRAL, QWEN_30B):  # 32 heads each, so columns can be split over at most 32 GPUs
        for group in (Group(1), Group(2), Group(4), Group(8), Group(8, 2), Group(8, 4)):
            place = f"{group.gpus}" if group.hosts == 1 else f"{group.hosts} hosts x {group.gpus}"
            cells = []
            for load in (1, 32, 256, 2048):
                columns = load / moe_columns_us(model, load, group) * 1e6
                whole = load / moe_experts_us(model, load, group) * 1e6
                if group.size() == 1 or group.size() > model.experts:  # one GPU, or more GPUs than experts
                    cells.append(number(columns))
                elif columns >= whole:
                    cells.append(f"**{number(columns)}** / {number(whole)}")
                else:
                    cells.append(f"{number(columns)} / **{number(whole)}**")
            mean = 256 * model.used / group.size()
            share = f"{busiest(mean, group.size()) / mean:.2f}" if group.size() <= model.experts else "-"
            rows.append([model.name, place, *cells, share])
    return table(["shape", "GPUs", "1 sequence", "32", "256", "2,048", "busiest over mean, 256"], rows)


def disaggregation_table():
    rows = []
    for model, gpus in ((LLAMA_8B, 1), (LLAMA_70B, 4), (LLAMA_405B, 8)):
        moved = PROMPT * model.kv_bytes() * model.layers
        rows.append([model.name, gpus, number(moved / 1e6), number(prefill_us(model, Group(gpus)) / 1e3),
                     number(moved / (IB.rate * min(gpus, model.kv_heads)) / 1e3), number(moved / ETHERNET.rate / 1e3)])
    return table(["shape", "GPUs", "KV of 2,048 tokens, MB", "their prefill, ms", f"moving it, {IB.name}, ms",
                  f"moving it, {ETHERNET.name}, ms"], rows)


def since(better, step, never="never", most=4096, where=""):
    """From which number of sequences on it holds: for that and for `step` more, since whole numbers of sequences make it jump."""
    load = next((load for load in range(1, most + 1) if better(load) and better(load + step)), None)
    return never if load is None else ("always" if load == 1 else f"from {load} sequences") + where


def crossovers_table():
    rows = []
    for model in DENSE:
        for more, fewer in ((8, 4), (4, 2), (2, 1)):
            if kv_tokens(model, Group(fewer)) <= 0:
                continue
            beats = lambda load: (t := layout_us(model, load, fewer)) and (s := layout_us(model, load, more)) and t < s
            rows.append([f"{model.name}: {HOST_GPUS // fewer} replicas of {fewer} give more than {HOST_GPUS // more} of {more}",
                         since(beats, HOST_GPUS, "never, up to what fits", where=" on 8 GPUs")])
    for model in DENSE:
        alone = decode_us(model, 1, Group(HOST_GPUS))
        two = lambda hop: decode_us(model, 1, Group(HOST_GPUS, 2, Network("", hop, IB.rate, True)))
        # Two hops for each all-reduce, two all-reduces for each layer.
        hop = (alone - two(0.0)) / (4 * model.layers)
        rows.append([f"{model.name}: 16 GPUs of two hosts answer one sequence sooner than 8 of one",
                     f"if a hop takes less than {hop:.1f} us" if hop > 0 else "never"])
    for model, hosts, gpus in (SMALL_HOSTS[0], SMALL_HOSTS[2]):
        for network in (IB, ETHERNET):
            room = min(kv_tokens(model, Group(gpus, hosts)), kv_tokens(model, Group(gpus), hosts)) // CONTEXT
            ahead = lambda load: pipeline_us(model, load, hosts, gpus, network)[0] < decode_us(model, load, Group(gpus, hosts, network))
            place = f"{model.name} on {hosts} hosts of {gpus} GPU{'s' * (gpus > 1)}, {network.name}"
            rows.append([f"{place}: a pipeline gives more than tensor", since(ahead, hosts, f"never, up to the {room} sequences that fit", room)])
    for model in (MIXTRAL, QWEN_30B):
        rows.append([f"{model.name}: whole experts on 8 GPUs give more than columns of all",
                     since(lambda load: moe_experts_us(model, load, Group(8)) < moe_columns_us(model, load, Group(8)), 16)])
    return table(["what", "when"], rows)


TABLES = {
    "constants": constants_table, "all-reduce": all_reduce_table, "errors": errors_table, "one-host": one_host_table, "layouts": layouts_table,
    "hosts-one": hosts_one_table, "hosts-many": hosts_many_table, "small-hosts": small_hosts_table, "experts": experts_table,
    "disaggregation": disaggregation_table, "crossovers": crossovers_table}


def update(path, check):
    """Makes the tables of the file anew; returns what is wrong."""
    text = pathlib.Path(path).read_text()
    blocks = dict(BLOCK.findall(text))
    faults = [f"{path}: table {name} is missing, has no end, or there is none of that name" for name in blocks.keys() ^ TABLES.keys()]
    if faults:
        return faults
    made = {name: make() for name, make in TABLES.items()}
    if not check:
        pathlib.Path(path).write_text(BLOCK.sub(lambda match: f"<!-- table: {match.group(1)} -->\n{made[match.group(1)]}<!-- end -->", text))
        return []
    return [f"{path}: table {name} is not current: scripts/bench/scale_model.py --write {path} makes it anew"
            for name in blocks if blocks[name] != made[name]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all if none is named")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", metavar="FILE", help="replace the tables of this file")
    action.add_argument("--check", metavar="FILE", help="say whether the tables of this file are current")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.tables if name not in TABLES]
    if unknown:
        parser.error(f"no such table: {', '.join(unknown)}; there are {', '.join(TABLES)}")
    if path := arguments.write or arguments.check:
        if arguments.tables:
            parser.error("--write and --check take all tables of the file")
        faults = update(path, check=bool(arguments.check))
        print("".join(f"{fault}\n" for fault in faults), end="")
        sys.exit(bool(faults))
    for name in arguments.tables or TABLES:
        print(f"{name}\n\n{TABLES[name]()}")


if __name__ == "__main__":
    main()
