#!/usr/bin/env python3
"""Measures vLLM beside `minfer bench`: shapes of models with random weights, offline and with requests that arrive at random.

  scripts/bench/bench_vllm.py [--model NAME] [--fp8] [--rates 16,20,24,28] [--seconds 15] [--rounds 2] [--lengths 512,128]
                        [--decode 1,64] [--contexts 2048,8192] [--out FILE.jsonl]

Needs an installed vLLM (written for 0.26.0), no network, tokeniser or model files. AsyncLLM with its engine in a process of its own and the defaults of
`vllm serve`, but no prefix caching. One JSON line a result: 512 requests of 512 + 128 tokens (--lengths), at most 256 at once; each
rate; --decode: so many sequences after 512 tokens; --contexts: a prompt of so many tokens, and decoding behind it. Of these two a token's time is that of
129 outputs less that of one, by 128; streamed_tok_s counts the tokens that come while all sequences decode. A part that fails prints its traceback, and
the next one runs. Exit status: 0; 3: the engine did not start; 4: --limit ran out; 5: the engine died.

The same of minfer: `minfer bench -m synthetic:llama-3.1-8b:bf16 --max-model-len 4096 --max-num-seqs 256 --no-enable-prefix-caching --num-warmups 32
--num-prompts N --input-len 512 --output-len 128 [--request-rate R --goodput ttft:500 tpot:20]`, N = seconds x R.

Definitions are those of minfer (server/bench/load_metrics.cpp): TTFT from the sending of a request to its first output; TPOT = (last output - first
output) / (tokens - 1); ITL: gaps between outputs as they arrive; percentiles interpolate linearly. Gaps between arrivals are exponential, scaled so that
the last request is sent at N / rate.
"""
import argparse
import asyncio
import collections
import fcntl
import gc
import itertools
import json
import os
import pathlib
import random
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field

import numpy

for name, value in dict(
        VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_USE_FLASHINFER_SAMPLER="0",
        VLLM_HOST_IP="127.0.0.1", GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo", VLLM_LOGGING_LEVEL="INFO",
        TOKENIZERS_PARALLELISM="false", VLLM_ENABLE_V1_MULTIPROCESSING="1").items():
    os.environ.setdefault(name, value)

COMMON = dict(initializer_range=0.02, torch_dtype="bfloat16", use_cache=True, attention_bias=False, hidden_act="silu", rms_norm_eps=1e-6,
              bos_token_id=0, eos_token_id=1)
# The synthetic shapes of minfer with the same names.
MODELS = {
    "llama-3.1-8b": dict(
        COMMON, architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=128256, hidden_size=4096, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, intermediate_size=14336, max_position_embeddings=131072,
        rope_theta=500000.0, rms_norm_eps=1e-5, tie_word_embeddings=False, mlp_bias=False),
    "gpt-oss-20b": dict(
        COMMON, architectures=["GptOssForCausalLM"], model_type="gpt_oss", vocab_size=201088, hidden_size=2880, num_hidden_layers=24,
        num_attention_heads=64, num_key_value_heads=8, head_dim=64, intermediate_size=2880, num_local_experts=32, num_experts_per_tok=4,
        max_position_embeddings=131072, rope_theta=150000.0, rms_norm_eps=1e-5, attention_bias=True, tie_word_embeddings=False,
        sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 12, swiglu_limit=7.0,
        rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=4096, truncate=False),
        quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                              "model.embed_tokens", "lm_head"])),
    "qwen3-30b-a3b": dict(
        COMMON, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", vocab_size=151936, hidden_size=2048, num_hidden_layers=48,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, intermediate_size=6144, moe_intermediate_size=768, num_experts=128,
        num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], max_position_embeddings=40960,
        rope_theta=1000000.0, tie_word_embeddings=False),
    "gemma-3-12b": dict(
        COMMON, architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", vocab_size=262144, hidden_size=3840, num_hidden_layers=48,
        num_attention_heads=16, num_key_value_heads=8, head_dim=256, intermediate_size=15360, hidden_activation="gelu_pytorch_tanh",
        max_position_embeddings=131072, rope_theta=1000000.0, rope_local_base_freq=10000.0, query_pre_attn_scalar=256, sliding_window=1024,
        layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 8, tie_word_embeddings=True),
    "deepseek-v2-lite": dict(
        COMMON, architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", vocab_size=102400, hidden_size=2048, num_hidden_layers=27,
        num_attention_heads=16, num_key_value_heads=16, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, intermediate_size=10944, moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
        first_k_dense_replace=1, moe_layer_freq=1, scoring_func="softmax", topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False,
        routed_scaling_factor=1.0, max_position_embeddings=163840, rope_theta=10000.0, tie_word_embeddings=False),
}


def make_model_dir(name):
    folder, config = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-")), MODELS[name]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({key: config[key] for key in ("bos_token_id", "eos_token_id")}))
    return str(folder)


# vLLM's random weights are within 1e-3, also norms and biases. Then a router's bias, or bf16's rounding, chooses the same few experts for
# all tokens, and a step reads only these. vLLM leaves integers uninitialised. So weights get the sizes of trained ones.
PLUGIN = """
import torch


def register():
    from vllm.model_executor.model_loader import dummy_loader
    usual = dummy_loader.initialize_dummy_weights

    def initialize(module, *args, **kwargs):  # called for each module
        usual(module, *args, **kwargs)
        kind = type(module).__name__
        vector = 1.0 if "Norm" in kind and "Gemma" not in kind else 0.0  # Gemma's norms add 1 to it
        for name, parameter in module.named_parameters(recurse=False):
            tensor = parameter.data
            if tensor.dtype == torch.uint8:
                tensor.fill_(118) if name.endswith("scale") else tensor.random_(0, 256)
            elif tensor.dtype in (torch.bfloat16, torch.float32):
                tensor.fill_(vector) if tensor.dim() == 1 else tensor.normal_(0.0, 0.02)

    dummy_loader.initialize_dummy_weights = initialize
"""


def add_plugin():
    """Lets all processes of vLLM find PLUGIN."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="vllm-plugin-"))
    info = folder / "minfer_weights-1.dist-info"
    info.mkdir()
    (folder / "minfer_weights.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: minfer-weights\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nminfer_weights = minfer_weights:register\n")
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))


def percentile(values, share):
    """minfer's percentile_of."""
    return float(numpy.quantile(values, share)) if values else 0.0


def r(value, digits=3):
    return round(value, digits)


@dataclass(slots=True)
class Record:
    """One request: when it was due and sent, when its outputs came (seconds of perf_counter), and how many tokens they brought."""
    due: float = 0.0
    sent: float | None = None
    times: list = field(default_factory=list)
    counts: list = field(default_factory=list)
    done: bool = False
    error: str | None = None

    tokens = property(lambda self: sum(self.counts))
    ttft_ms = property(lambda self: (self.times[0] - self.sent) * 1e3)
    tpot_ms = property(lambda self: (self.times[-1] - self.times[0]) * 1e3 / (self.tokens - 1) if self.tokens > 1 else 0.0)
    itl_ms = property(lambda self: [(b - a) * 1e3 for a, b in zip(self.times, self.times[1:])])


class Bench:
    def __init__(self, engine):
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind
        self.engine, self.params_class, self.kinds, self.as_input, self.number = engine, SamplingParams, RequestOutputKind, tokens_input, 0

    def prompts(self, count, length, seed):
        draw = random.Random(seed)
        return [draw.choices(range(1000, 100000), k=length) for _ in range(count)]

    async def send(self, prompt, out_len, kind, record):
        params = self.params_class(temperature=0.0, max_tokens=out_len, ignore_eos=True, detokenize=False, output_kind=kind)
        self.number += 1
        try:
            record.sent = time.perf_counter()
            async for out in self.engine.generate(self.as_input(prompt), params, f"r{os.getpid()}-{self.number}"):
                if out.outputs and out.outputs[0].token_ids:
                    record.times.append(time.perf_counter())
                    record.counts.append(len(out.outputs[0].token_ids))
                record.done = out.finished
        except asyncio.CancelledError:
            record.error = "abandoned"
            raise
        except Exception as e:
            record.error = f"{type(e).__name__}: {str(e)[:200]}"

    async def finish(self, tasks, timeout):
        """How many have not ended in time; they are cancelled, which aborts the requests."""
        if not tasks:
            return 0
        _, pending = await asyncio.wait(tasks, timeout=timeout)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=10)
        return len(pending)

    async def offline(self, count, length, out_len, seed, timeout):
        return (await self.answered(self.kinds.FINAL_ONLY, count, length, out_len, seed, timeout))[0]

    async def answered(self, kind, count, length, out_len, seed, timeout):
        """Seconds and records of requests that are sent at once."""
        prompts = self.prompts(count, length, seed)
        records = [Record() for _ in prompts]
        begin = time.perf_counter()
        late = await self.finish([asyncio.ensure_future(self.send(p, out_len, kind, rec)) for p, rec in zip(prompts, records)], timeout)
        seconds = time.perf_counter() - begin
        tokens = sum(rec.tokens for rec in records)
        if late or tokens != count * out_len:
            errors = sorted({rec.error for rec in records if rec.error})[:3]
            raise RuntimeError(f"{tokens} tokens of {count * out_len}, in time: {not late}, errors: {errors}")
        return seconds, records

    async def streamed_rate(self, count, length, out_len, seed, timeout):
        """Tokens a second between the last first output and the first last one."""
        _, records = await self.answered(self.kinds.DELTA, count, length, out_len, seed, timeout)
        begin, end = max(rec.times[0] for rec in records), min(rec.times[-1] for rec in records)
        tokens = sum(n for rec in records for at, n in zip(rec.times, rec.counts) if begin < at <= end)
        return tokens / (end - begin) if end > begin else 0.0

    async def throughput(self, count, length, out_len, rounds, timeout):
        seconds = [await self.offline(count, length, out_len, 100 + i, timeout) for i in range(rounds)]
        mid = percentile(seconds, 0.5)
        return dict(requests=count, prompt=length, out=out_len, out_tok_s=r(count * out_len / mid, 1), req_s=r(count / mid), t=[r(s) for s in seconds],
                    out_tok_s_rounds=[r(count * out_len / s, 1) for s in seconds])

    async def decode(self, count, length, rounds, timeout):
        """`count` sequences after prompts of `length` tokens; and how fast the prompts were."""
        steps = 128
        seconds = {}
        for out_len in (1, 1 + steps):
            await self.offline(count, length, out_len, 1, timeout)
            runs = [await self.offline(count, length, out_len, 2 + i, timeout) for i in range(rounds)]
            seconds[out_len] = percentile(runs, 0.5)
        streamed = [await self.streamed_rate(count, length, 1 + steps, 2 + i, timeout) for i in range(rounds)]
        return dict(batch=count, prompt=length, tok_s=r(count * steps / (seconds[1 + steps] - seconds[1]), 1),
                    prefill_tok_s=r(count * length / seconds[1], 1), t_short=r(seconds[1], 4), t_long=r(seconds[1 + steps], 4),
                    streamed_tok_s=r(percentile(streamed, 0.5), 1))

    async def rate(self, rate, seconds, length, out_len, seed, grace=30.0):
        count = max(2, round(rate * seconds))
        draw = random.Random(seed)
        due = list(itertools.accumulate(draw.expovariate(rate) for _ in range(count)))
        prompts = self.prompts(count, length, seed + 7)
        records = [Record(t * count / rate / due[-1]) for t in due]
        clock, tasks = time.perf_counter, []
        gc.collect()
        begin = clock()
        deadline = begin + count / rate + grace
        for prompt, record in zip(prompts, records):
            while (wait := begin + record.due - clock()) > 0:
                await asyncio.sleep(wait)
            if clock() > deadline:
                record.error = "not sent in time"
                continue
            tasks.append(asyncio.ensure_future(self.send(prompt, out_len, self.kinds.DELTA, record)))
            await asyncio.sleep(0)
        abandoned = await self.finish(tasks, max(0.0, deadline - clock()))
        return self.report(rate, records, begin, min(clock(), deadline), abandoned, out_len)

    @staticmethod
    def report(rate, records, begin, ended, abandoned, out_len):
        ok = [rec for rec in records if rec.done and rec.times]
        end = max((rec.times[-1] for rec in ok), default=ended)
        duration = (ended if abandoned else end) - begin
        count = len(records)
        # Abandoned and failed requests count as sent, but not as good.
        good = sum(rec.ttft_ms <= 500 and rec.tpot_ms <= 20 for rec in ok)
        ttft, tpot = [rec.ttft_ms for rec in ok], [rec.tpot_ms for rec in ok]
        itl = [gap for rec in ok for gap in rec.itl_ms]
        late = [(rec.sent - begin - rec.due) * 1e3 for rec in records if rec.sent is not None]
        tokens, chunks = sum(rec.tokens for rec in ok), sum(len(rec.times) for rec in ok)
        errors = collections.Counter(rec.error for rec in records if rec.error)
        # How full it was: the mean number of requests in flight (Little's law).
        in_flight = sum(rec.times[-1] - rec.sent for rec in ok) / duration if duration > 0 else 0.0
        return dict(
            rate=rate, requests=count, completed=len(ok), abandoned=abandoned, duration=r(duration, 2),
            good_share=r(good / count, 4), good_req_s=r(good / duration),
            median_ttft_ms=r(percentile(ttft, 0.5)), p90_ttft_ms=r(percentile(ttft, 0.9)), p99_ttft_ms=r(percentile(ttft, 0.99)),
            median_tpot_ms=r(percentile(tpot, 0.5)), p90_tpot_ms=r(percentile(tpot, 0.9)), p99_tpot_ms=r(percentile(tpot, 0.99)),
            median_itl_ms=r(percentile(itl, 0.5)), p95_itl_ms=r(percentile(itl, 0.95)), p99_itl_ms=r(percentile(itl, 0.99)),
            out_tok_s=r(tokens / duration, 1), req_s=r(len(ok) / duration), mean_in_flight=r(in_flight, 1), tokens_per_output=r(tokens / chunks if chunks else 0.0),
            short_outputs=sum(rec.tokens != out_len for rec in ok), p99_late_ms=r(percentile(late, 0.99)), errors=errors)


async def run(args, emit, begin):
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM
    import torch
    import vllm

    max_len = max([4096, *(context + 256 for context in args.contexts)])
    kw = dict(model=make_model_dir(args.model), load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", max_model_len=max_len,
              gpu_memory_utilization=args.mem, enable_prefix_caching=False, max_num_seqs=args.max_seqs, seed=0, disable_log_stats=True)
    asked = dict(quantization=args.fp8 and "fp8", kv_cache_memory_bytes=int(args.kv_cache_gib * 2**30), max_num_batched_tokens=args.max_num_batched_tokens)
    kw |= {name: value for name, value in asked.items() if value}
    # Defaults depend on the usage context: 8,192 tokens a step for a server on an H200.
    try:
        engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**kw), usage_context=UsageContext.OPENAI_API_SERVER)
    except BaseException as e:
        traceback.print_exc()
        emit(test="start", error=f"{type(e).__name__}: {str(e)[:500]}", start_seconds=r(time.perf_counter() - begin, 1))
        return 3

    scheduler, cache, model = engine.vllm_config.scheduler_config, engine.vllm_config.cache_config, engine.vllm_config.model_config
    compilation = engine.vllm_config.compilation_config
    emit(test="start", version=vllm.__version__, torch=torch.__version__, start_seconds=r(time.perf_counter() - begin, 1),
         max_num_batched_tokens=scheduler.max_num_batched_tokens, max_num_seqs=scheduler.max_num_seqs, async_scheduling=scheduler.async_scheduling,
         chunked_prefill=scheduler.enable_chunked_prefill, stream_interval=scheduler.stream_interval, prefix_caching=cache.enable_prefix_caching,
         v2_model_runner=engine.vllm_config.use_v2_model_runner, cudagraph_mode=str(compilation.cudagraph_mode),
         capture_sizes=compilation.cudagraph_capture_sizes, quantization=model.quantization, kv_cache_dtype=str(cache.cache_dtype),
         num_gpu_blocks=cache.num_gpu_blocks, core=type(engine.engine_core).__name__)
    if args.lock:
        lock = open(args.lock, "w", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX)  # until this process ends
    bench = Bench(engine)
    status = 0

    async def part(name, needed_s, make):
        """Runs one part if there is time for it; whatever it raises is printed, and the next one runs."""
        nonlocal status
        start = time.perf_counter()
        if status:
            return
        if start - begin + needed_s > args.limit:
            emit(test=name, error="skipped: out of time")
            return
        try:
            emit(test=name, **(await make()), took_s=r(time.perf_counter() - start, 2))
        except Exception as e:
            traceback.print_exc()
            emit(test=name, error=f"{type(e).__name__}: {str(e)[:300]}", took_s=r(time.perf_counter() - start, 2))
        if getattr(engine, "errored", False):
            emit(test=name, error="the engine is dead")
            status = 5

    async def warm_up():
        seconds = await bench.offline(32, 512, 128, 1, 90)
        await bench.rate(20, 2, 512, 128, 2, 20)  # prompts beside decoding
        return dict(requests=72, first_s=r(seconds))

    await part("warm_up", 5, warm_up)
    gc.collect()
    gc.freeze()  # like vLLM's server
    if args.rounds > 0:
        length, out_len = args.lengths
        await part(f"throughput_512x({length}+{out_len})", 20, lambda: bench.throughput(512, length, out_len, args.rounds, 150))
    for count in args.decode:
        await part(f"decode_{count}", 10, lambda: bench.decode(count, 512, 3, 60))
    for context in args.contexts:
        await part(f"context_{context}", 10, lambda: bench.decode(1, context, 2, 120))
    for rate in args.rates:
        await part(f"rate_{rate:g}", args.seconds + 10, lambda: bench.rate(rate, args.seconds, 512, 128, args.seed, args.grace))
        await asyncio.sleep(0.5)
    emit(test="end", total_seconds=r(time.perf_counter() - begin, 1), status=status)
    try:
        engine.shutdown(timeout=5)
    except Exception:
        traceback.print_exc()
    return status


def end_children():
    """Those of this process: an engine core that outlives it would keep the GPU's memory."""
    import psutil
    children = psutil.Process().children(recursive=True)
    for child in children:
        child.terminate()
    _, alive = psutil.wait_procs(children, timeout=5)
    for child in alive:
        child.kill()


def main():
    numbers = lambda kind: lambda text: [kind(part) for part in text.split(",") if part]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), default="llama-3.1-8b", help="the shape")
    parser.add_argument("--fp8", action="store_true", help="weights quantised to FP8 (default: BF16)")
    parser.add_argument("--rates", type=numbers(float), default=[16, 20, 24, 28], help="requests a second, e.g. 16,20; empty: none")
    parser.add_argument("--decode", type=numbers(int), default=[], help="sequences at once, e.g. 1,64")
    parser.add_argument("--contexts", type=numbers(int), default=[], help="tokens of prompts, e.g. 2048,130000")
    parser.add_argument("--lengths", type=numbers(int), default=[512, 128], help="tokens of the prompts and answers of the 512 requests")
    parser.add_argument("--seconds", type=float, default=15, help="of arrivals, for each rate")
    parser.add_argument("--grace", type=float, default=30, help="seconds after the last arrival, then the rest is abandoned")
    parser.add_argument("--rounds", type=int, default=2, help="of the 512 requests; 0: none")
    parser.add_argument("--max-num-batched-tokens", type=int, default=0, help="0: vLLM's default")
    parser.add_argument("--max-seqs", type=int, default=256, help="requests at once")
    parser.add_argument("--mem", type=float, default=0.85, help="share of the GPU's memory")
    parser.add_argument("--kv-cache-gib", type=float, default=0, help="size of the KV cache; 0: what --mem leaves")
    parser.add_argument("--lock", help="file: several engines may start side by side, and whoever has it locked measures")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=570, help="seconds for all: no part starts that would outlast them")
    parser.add_argument("--out", help="file that also gets the JSON lines")
    args = parser.parse_args()
    if len(args.lengths) != 2:
        parser.error(f"--lengths: expected two numbers, found {len(args.lengths)}")
    begin = time.perf_counter()
    add_plugin()
    out_file = open(args.out, "a", encoding="utf-8") if args.out else None
    base = dict(engine="vllm", model=args.model, weights="fp8" if args.fp8 else "bf16")

    def emit(**kw):
        line = json.dumps({**base, **kw})
        print(line, flush=True)
        if out_file:
            out_file.write(line + "\n")
            out_file.flush()

    def give_up():
        emit(test="end", error="--limit ran out", total_seconds=r(time.perf_counter() - begin, 1))
        end_children()
        os._exit(4)

    watchdog = threading.Timer(args.limit + 15, give_up)
    watchdog.daemon = True
    watchdog.start()
    status = 3
    try:
        import uvloop  # like vLLM's server
        status = uvloop.run(run(args, emit, begin))
    except BaseException as e:
        traceback.print_exc()
        emit(test="end", error=f"{type(e).__name__}: {str(e)[:300]}")
    sys.stdout.flush()
    end_children()
    os._exit(status)


if __name__ == "__main__":
    main()
