#!/usr/bin/env python3
"""Trains minfer's demo model: a Llama of about 5 M parameters, on text that the script generates, in minutes on one GPU.

    python3 scripts/train_demo_model.py                 # 7 minutes on a GPU -> models/demo/
    python3 scripts/train_demo_model.py --quick         # smoke run of a smaller model, on a CPU too -> build/demo-quick/

Writes the model (Q8_0 matrices, F32 norms), beside it a log and `eval.jsonl`, questions with their exact answers. Needs PyTorch,
numpy and sentencepiece; uses no network. What is learnt when follows the clock, so the script ends on time on any machine: text
is generated first, then short rows teach the tasks, then rows of the full context teach recall at a distance.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

import numpy as np
import torch
from torch import Tensor

import demo_eval
import demo_text
from demo_model import (
    Block, DemoModel, ModelConfig, export_weights, load_weights, make_optimizers, round_to_q8_0, token_losses, write_gguf,
)  # fmt: skip
from demo_tokenizer import DemoTokenizer, train

ROOT = Path(__file__).resolve().parent.parent
CLASS_WEIGHTS = (0.0, 1.0, 4.0)  # by loss class: questions, text, answers
RECALL_SHARE = 0.45  # of the rows
PEAK_LEARNING_RATE = 4e-3
WARM_UP, DECAY_START = 0.02, 0.5  # shares of the training time
ROWS_PER_JOB_TOKENS = 1 << 19


class Settings(NamedTuple):
    model: ModelConfig
    short_length: int  # tokens a row in the first phase; the second uses the context length
    short_share: float  # of the training time
    tokens_per_step: int
    vocabulary_documents: int
    max_tokens: int  # training tokens to generate
    generation_share: float  # of the whole time, at most
    eval_counts: dict[str, int]
    eval_every: float  # share of the training time


FULL = Settings(ModelConfig(), 512, 0.35, 1 << 16, 20000, 480_000_000, 0.12, dict.fromkeys(demo_text.TASKS, 200), 0.125)
QUICK = Settings(
    ModelConfig(vocab_size=2048, context_length=256, hidden=128, num_layers=2, num_heads=2, num_kv_heads=1, ffn=256),
    128, 0.5, 1 << 12, 2000, 4_000_000, 0.2, dict.fromkeys(demo_text.TASKS, 8), 0.25,
)  # fmt: skip


class Log:
    """Prints lines and keeps them in a file, with the seconds since the start."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "w", encoding="utf-8")
        self.start = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def line(self, text: str) -> None:
        stamped = f"[{self.elapsed():6.1f} s] {text}"
        print(stamped, flush=True)
        self._file.write(stamped + "\n")
        self._file.flush()


# --- Text -----------------------------------------------------------------------------------------------------------------------

_worker_tokenizer: DemoTokenizer | None = None  # one a worker process, so that its word cache lives on


def _start_worker(model_proto: bytes) -> None:
    global _worker_tokenizer
    _worker_tokenizer = DemoTokenizer(model_proto)


def _generate(job: tuple[int, int, int]) -> tuple[int, np.ndarray]:
    seed, num_rows, length = job
    return length, demo_text.training_rows(random.Random(seed), _worker_tokenizer, num_rows, length, RECALL_SHARE)


class TextPool:
    """Generates rows in worker processes. Start it before the first use of the GPU: its workers are forks."""

    def __init__(self, tokenizer: DemoTokenizer, settings: Settings, seed: int) -> None:
        self._lengths = (settings.short_length + 1, settings.model.context_length + 1)  # inputs and, one later, targets
        num_jobs = max(2, settings.max_tokens // ROWS_PER_JOB_TOKENS)
        jobs = []
        for index in range(num_jobs):
            length = self._lengths[0] if index % 3 == 0 else self._lengths[1]
            jobs.append(((seed << 20) + index, ROWS_PER_JOB_TOKENS // length, length))
        context = multiprocessing.get_context("fork")
        self._pool = context.Pool(max(1, (os.cpu_count() or 2) - 1), _start_worker, (tokenizer.model_proto,))
        self._results = self._pool.imap_unordered(_generate, jobs)

    def collect(self, deadline: float, log: Log) -> tuple[Tensor, Tensor]:
        """Short and long rows [rows, length + 1] int16 that are ready at the deadline (seconds of the log's clock); at least one job each."""
        rows: dict[int, list[np.ndarray]] = {length: [] for length in self._lengths}
        while log.elapsed() < deadline or not all(rows.values()):
            try:
                length, part = self._results.next(timeout=1.0)
            except multiprocessing.TimeoutError:
                continue
            except StopIteration:
                break
            rows[length].append(part)
        self._pool.terminate()
        short, long = (torch.from_numpy(np.concatenate(rows[length]).view(np.int16)) for length in self._lengths)
        return short, long


def batches(rows: Tensor, batch_rows: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Endless batches of inputs, targets and loss classes [batch_rows, length] from rows on the device, reshuffled every epoch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        for start in range(0, max(1, len(rows) - batch_rows + 1), batch_rows):
            packed = rows[order[start : start + batch_rows]].long()
            tokens, classes = packed & demo_text.TOKEN_MASK, packed >> demo_text.CLASS_SHIFT
            yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), classes[:, 1:].contiguous()


# --- Training -------------------------------------------------------------------------------------------------------------------


class Losses(NamedTuple):
    weighted: Tensor  # what is minimised
    text: Tensor
    answer: Tensor


class Trainer:
    """Owns the model and its optimizers; `step` is compiled where that works."""

    def __init__(self, settings: Settings, device: torch.device, seed: int) -> None:
        torch.manual_seed(seed)
        self.device = device
        self.model = DemoModel(settings.model).to(device)
        self.muon, self.adam = make_optimizers(self.model)
        self._run_block: Callable[..., Tensor] = Block.forward
        self._token_losses: Callable[..., Tensor] = token_losses
        self._class_weights = torch.tensor(CLASS_WEIGHTS, device=device)

    def compile(self, shapes: list[tuple[int, int]], log: Log) -> None:
        """Compiles block and loss for batches of these shapes; stays uncompiled, and says so, if that fails."""
        try:
            self._run_block = torch.compile(Block.forward, dynamic=False)
            self._token_losses = torch.compile(token_losses, dynamic=False)
            for shape in shapes:
                tokens = torch.randint(1, self.model.config.vocab_size, shape, device=self.device)
                self.losses(tokens, tokens, torch.ones_like(tokens)).weighted.backward()
                log.line(f"compiled for batches of {shape[0]} x {shape[1]} tokens")
        except Exception as error:  # whatever the compiler or its tools lack here
            log.line(f"not compiled: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            torch.compiler.reset()
            self._run_block, self._token_losses = Block.forward, token_losses
        self.model.zero_grad(set_to_none=True)

    def losses(self, tokens: Tensor, targets: Tensor, classes: Tensor) -> Losses:
        """Mean losses in nats of a batch: weighted by class, of text alone, of answers alone."""
        precision = torch.autocast(self.device.type, torch.bfloat16) if self.device.type == "cuda" else contextlib.nullcontext()
        with precision:
            hidden = self.model(tokens, self._run_block)
            each = self._token_losses(hidden, self.model.token_embd.weight, targets)
        weights = self._class_weights[classes]
        detached = each.detach()
        means = [(detached * (classes == c)).sum() / (classes == c).sum().clamp(min=1) for c in (demo_text.TEXT, demo_text.ANSWER)]
        return Losses((each * weights).sum() / weights.sum(), *means)

    def step(self, batch: tuple[Tensor, Tensor, Tensor], learning_rate: float) -> Losses:
        losses = self.losses(*batch)
        losses.weighted.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.adam.param_groups:
            group["lr"] = learning_rate
        self.muon.step(learning_rate)
        self.adam.step()
        self.model.zero_grad(set_to_none=True)
        return losses


def learning_rate_at(progress: float) -> float:
    """Warm-up, constant, then linearly down to 2 %; progress is the share of the training time that has passed."""
    warm = min(1.0, progress / WARM_UP)
    cool = min(1.0, max(0.02, (1 - progress) / (1 - DECAY_START)))
    return PEAK_LEARNING_RATE * warm * cool


def run_training(trainer: Trainer, rows: tuple[Tensor, Tensor], settings: Settings, until: float, seed: int, log: Log,
                 evaluate: Callable[[], str]) -> None:  # fmt: skip
    """Trains until the log's clock reads `until`. A loss that is no number takes the last good weights and half the rate."""
    start = log.elapsed()
    short, long = (
        batches(part, settings.tokens_per_step // (part.shape[1] - 1), seed + i) for i, part in enumerate(rows)
    )
    good = [weight.detach().clone() for weight in trainer.model.parameters()]
    step, tokens, damping, next_eval, next_line = 0, 0, 1.0, settings.eval_every, 0.0
    while (progress := (log.elapsed() - start) / max(1e-3, until - start)) < 1:
        batch = next(short if progress < settings.short_share else long)
        losses = trainer.step(batch, damping * learning_rate_at(progress))
        step, tokens = step + 1, tokens + batch[0].numel()
        if step % 10 == 0 and not math.isfinite(losses.weighted.item()):  # .item() also keeps the host from running ahead
            log.line(f"step {step}: the loss is no number; back to the last good weights at half the learning rate")
            with torch.no_grad():
                torch._foreach_copy_(list(trainer.model.parameters()), good)
            trainer.muon, trainer.adam = make_optimizers(trainer.model)
            damping /= 2
        elif step % 10 == 0 and progress >= next_line:
            good = [weight.detach().clone() for weight in trainer.model.parameters()]
            rate = tokens / (log.elapsed() - start)
            log.line(f"step {step}, {100 * progress:.0f} %, row {batch[0].shape[1]}, loss {losses.weighted.item():.4f}, "
                     f"text {losses.text.item():.4f}, answers {losses.answer.item():.4f}, {rate / 1e3:.0f} k tokens/s")  # fmt: skip
            next_line += 0.025
        if progress >= next_eval:
            log.line(evaluate())
            next_eval += settings.eval_every
    log.line(f"trained on {tokens / 1e6:.1f} M tokens in {step} steps")


# --- Evaluation -----------------------------------------------------------------------------------------------------------------


def format_accuracy(accuracy: dict[str, float]) -> str:
    return ", ".join(f"{task} {100 * share:.1f} %" for task, share in accuracy.items())


def final_evaluation(model: DemoModel, tokenizer: DemoTokenizer, settings: Settings, seed: int, eval_file: Path, log: Log) -> None:
    """Accuracy with the trained weights and with those of the file, sample texts, and the questions for other programs."""
    context = settings.model.context_length
    asked = demo_eval.draw_questions(tokenizer, seed + 2, demo_eval.EVAL_FILE_COUNTS, context)
    demo_eval.write_questions(eval_file, tokenizer, asked, None)
    fresh = demo_eval.draw_questions(tokenizer, seed + 1, settings.eval_counts, context)
    log.line("trained weights: " + format_accuracy(demo_eval.accuracy_by_task(fresh, demo_eval.outcomes(model, tokenizer, fresh))))
    load_weights(model, round_to_q8_0(export_weights(model)))
    log.line("Q8_0 weights:    " + format_accuracy(demo_eval.accuracy_by_task(fresh, demo_eval.outcomes(model, tokenizer, fresh))))
    results = demo_eval.outcomes(model, tokenizer, asked)
    demo_eval.write_questions(eval_file, tokenizer, asked, results)
    log.line(f"{eval_file.name}: {sum(r.correct for r in results)} of {len(results)} right with Q8_0 weights")
    for prompt, continuation in demo_eval.sample_continuations(model, tokenizer, min(200, context // 2)):
        log.line(f"{prompt!r} -> {continuation!r}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="GGUF file (models/demo/minfer-demo.gguf; with --quick under build/demo-quick)")
    parser.add_argument("--log", type=Path, help="log file (the GGUF file's name with .log)")
    parser.add_argument("--minutes", type=float, help="time until the GGUF file is written; evaluation takes at most 1.5 more (7; --quick: 1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", help="cuda or cpu (cuda where there is one)")
    parser.add_argument("--quick", action="store_true", help="a smaller model with a context of 256, to try the script")
    arguments = parser.parse_args()
    folder = ROOT / ("build/demo-quick" if arguments.quick else "models/demo")
    arguments.out = arguments.out or folder / "minfer-demo.gguf"
    arguments.log = arguments.log or arguments.out.with_suffix(".log")
    arguments.minutes = arguments.minutes or (1.0 if arguments.quick else 7.0)
    return arguments


def main() -> int:
    arguments = parse_arguments()
    log = Log(arguments.log)
    settings = QUICK if arguments.quick else FULL
    until = 60 * arguments.minutes
    log.line(f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, PyTorch {torch.__version__}, seed {arguments.seed}, {arguments.minutes} minutes")
    log.line(f"settings: {settings}")
    log.line(f"peak learning rate {PEAK_LEARNING_RATE}, recall rows {RECALL_SHARE}, loss weights {CLASS_WEIGHTS}")

    texts = demo_text.vocabulary_texts(random.Random(arguments.seed), settings.vocabulary_documents)
    tokenizer = DemoTokenizer(train(texts, settings.model.vocab_size, os.cpu_count() or 2))
    log.line(f"vocabulary of {tokenizer.vocab_size} pieces")
    pool = TextPool(tokenizer, settings, arguments.seed)

    device = torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    log.line(f"device: {torch.cuda.get_device_name(device) if device.type == 'cuda' else 'CPU'}")
    trainer = Trainer(settings, device, arguments.seed)
    log.line(f"{sum(w.numel() for w in trainer.model.parameters()) / 1e6:.2f} M parameters")
    if device.type == "cuda":
        lengths = (settings.short_length, settings.model.context_length)
        trainer.compile([(settings.tokens_per_step // length, length) for length in lengths], log)
    short, long = pool.collect(until * settings.generation_share, log)
    log.line(f"generated {short.numel() / 1e6:.0f} M tokens in short rows, {long.numel() / 1e6:.0f} M in long ones")

    context = settings.model.context_length
    probe = demo_eval.draw_questions(tokenizer, arguments.seed + 3, dict.fromkeys(demo_text.TASKS, 16), context)
    evaluate = lambda: "greedy: " + format_accuracy(  # noqa: E731
        demo_eval.accuracy_by_task(probe, demo_eval.outcomes(trainer.model, tokenizer, probe))
    )
    run_training(trainer, (short.to(device), long.to(device)), settings, until - 2, arguments.seed, log, evaluate)
    size = write_gguf(arguments.out, settings.model, tokenizer, export_weights(trainer.model))
    log.line(f"wrote {arguments.out.name}: {size} bytes")
    try:
        final_evaluation(trainer.model, tokenizer, settings, arguments.seed, arguments.out.parent / "eval.jsonl", log)
    except Exception:  # the model is written; a failed evaluation must not hide that
        log.line("evaluation failed:\n" + traceback.format_exc())
        return 1
    log.line("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
