#!/usr/bin/env python3
"""Trains minfer's demo model: a Llama of about 5 M parameters, on text that the script generates, in minutes on one GPU.

    python3 scripts/demo_model/train_demo_model.py                 # 7 minutes on a GPU -> models/demo/
    python3 scripts/demo_model/train_demo_model.py --quick         # smoke run of a smaller model, on a CPU too -> build/demo-quick/

Writes the model (Q8_0 matrices, F32 norms), beside it a log and `eval.jsonl`, questions with their exact answers. Needs PyTorch 2.9,
numpy and sentencepiece; uses no network. What is learnt when follows the clock, so the script ends on time on any machine: text
is generated first, then short rows teach the tasks, then rows of the full context teach recall at a distance.
"""

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import Iterator, NamedTuple

import numpy as np
import torch
from torch import Tensor

import demo_text
from demo_model import Block, DemoModel, ModelConfig, make_optimizers, round_to_q8_0, token_losses, write_gguf
from demo_tokenizer import END, DemoTokenizer, render_chat, train

ROOT = Path(__file__).resolve().parents[2]
CLASS_WEIGHTS = (0.0, 1.0, 4.0)  # by loss class: questions, text, answers
RECALL_SHARE = 0.45  # share of the rows
PEAK_LEARNING_RATE = 4e-3
WARM_UP, DECAY_START = 0.02, 0.5  # shares of the training time
CHUNK_ROWS = 16  # generated at a time
EVAL_BATCH = 16
EVAL_FILE_COUNTS = {"sum": 20, "difference": 20, "count": 15, "copy": 20, "recall_short": 15, "recall_long": 12, "name": 8}


class Settings(NamedTuple):
    model: ModelConfig
    short_length: int  # tokens a row in the first phase; the second uses the context length
    short_share: float  # of the training time
    tokens_per_step: int
    vocabulary_documents: int
    max_tokens: int  # training tokens to generate
    generation_share: float  # of the whole time, at most
    eval_count: int  # questions of each task


FULL = Settings(ModelConfig(), 512, 0.35, 1 << 16, 20000, 480_000_000, 0.12, 200)
QUICK = Settings(ModelConfig(vocab_size=2048, context_length=256, hidden=128, num_layers=2, num_heads=2, num_kv_heads=1, ffn=256),
                 128, 0.5, 1 << 12, 2000, 4_000_000, 0.2, 8)


class Log:
    """Prints lines and keeps them in a file, with the seconds since the start."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "w", encoding="utf-8", buffering=1)
        self.start = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def line(self, text: str) -> None:
        stamped = f"[{self.elapsed():6.1f} s] {text}"
        print(stamped, flush=True)
        print(stamped, file=self._file)


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


# --- Text -----------------------------------------------------------------------------------------------------------------------


class TextGenerator:
    """Makes rows of tokens in processes of its own, until the deadline (seconds of the log's clock) or until there are enough. Create it
    before the first use of the GPU: they are forks."""

    def __init__(self, tokenizer: DemoTokenizer, settings: Settings, seed: int, deadline: float, log: Log) -> None:
        self._lengths = settings.short_length, settings.model.context_length
        # A third of the tokens in short rows, the rest in long ones; chunks of both by turns, of each at least one.
        counts = [max(1, int(settings.max_tokens * share / length / CHUNK_ROWS)) for length, share in zip(self._lengths, (1 / 3, 2 / 3))]
        chunks = sorted((number / count, length) for length, count in zip(self._lengths, counts) for number in range(count))
        context = multiprocessing.get_context("fork")
        self._pool = context.Pool(max(1, num_cores() - 1), _set_generator, (tokenizer, seed, deadline, log))
        self._rows = self._pool.starmap_async(_generate, enumerate(chunks), chunksize=1)

    def collect(self, device: torch.device) -> list[Tensor]:
        """Waits for the processes; the short and the long rows [rows, length + 1] on the device, one more token for the targets."""
        made = [rows for rows in self._rows.get() if rows is not None]
        self._pool.terminate()
        return [torch.from_numpy(np.concatenate([rows for rows in made if rows.shape[1] == length + 1])).to(device) for length in self._lengths]


def _set_generator(*arguments) -> None:
    global generator_arguments
    generator_arguments = arguments


def _generate(number: int, chunk: tuple[float, int]) -> np.ndarray | None:
    """Rows of one chunk; None behind the deadline."""
    tokenizer, seed, deadline, log = generator_arguments
    part, length = chunk
    if part > 0 and log.elapsed() > deadline:
        return None
    return demo_text.training_rows(random.Random((seed << 20) + number), tokenizer, CHUNK_ROWS, length + 1, RECALL_SHARE)


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


class Trainer:
    """Owns the model and its optimizers; on a GPU blocks and losses are compiled."""

    def __init__(self, settings: Settings, device: torch.device, seed: int) -> None:
        torch.manual_seed(seed)
        self.device = device
        self.model = DemoModel(settings.model).to(device)
        self.optimizers = make_optimizers(self.model)
        self._class_weights = torch.tensor(CLASS_WEIGHTS, device=device)
        self._precision, self._run_block, self._token_losses = contextlib.nullcontext(), Block.forward, token_losses
        if device.type == "cuda":
            self._precision = torch.autocast("cuda", torch.bfloat16)
            self._run_block, self._token_losses = torch.compile(Block.forward, dynamic=False), torch.compile(token_losses, dynamic=False)

    def backward(self, tokens: Tensor, targets: Tensor, classes: Tensor) -> list[Tensor]:
        """Gradients, and the mean losses in nats of a batch: weighted by class (this one is minimised), of text alone, of answers alone."""
        with self._precision:
            hidden = self.model(tokens, self._run_block)
            each = self._token_losses(hidden, self.model.token_embd.weight, targets)
        weights = self._class_weights[classes]
        weighted = (each * weights).sum() / weights.sum()
        weighted.backward()
        means = [(each.detach() * (classes == c)).sum() / (classes == c).sum().clamp(min=1) for c in (demo_text.TEXT, demo_text.ANSWER)]
        return [weighted.detach(), *means]

    def step(self, batch: tuple[Tensor, Tensor, Tensor], learning_rate: float) -> list[Tensor]:
        losses = self.backward(*batch)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            optimizer.step()
        self.model.zero_grad(set_to_none=True)
        return losses


def learning_rate_at(progress: float) -> float:
    """Warm-up, constant, then linearly down to 2 %; progress is the share of the training time that has passed."""
    warm = min(1.0, progress / WARM_UP)
    cool = min(1.0, max(0.02, (1 - progress) / (1 - DECAY_START)))
    return PEAK_LEARNING_RATE * warm * cool


def run_training(trainer: Trainer, rows: list[Tensor], settings: Settings, until: float, seed: int, log: Log) -> None:
    """Trains until the log's clock reads `until`. ArithmeticError for a loss that is no number."""
    start = log.elapsed()
    short, long = (batches(part, settings.tokens_per_step // (part.shape[1] - 1), seed + i) for i, part in enumerate(rows))
    step, tokens, next_line = 0, 0, 0.0
    while (progress := (log.elapsed() - start) / max(1e-3, until - start)) < 1:
        batch = next(short if progress < settings.short_share else long)
        loss, text, answers = trainer.step(batch, learning_rate_at(progress))
        step, tokens = step + 1, tokens + batch[0].numel()
        if step % 10 == 0 and not math.isfinite(loss.item()):  # .item() also keeps the host from running ahead
            raise ArithmeticError(f"step {step}: the loss is no number")
        if step % 10 == 0 and progress >= next_line:
            rate = tokens / (log.elapsed() - start)
            log.line(f"step {step}, {100 * progress:.0f} %, row {batch[0].shape[1]}, loss {loss.item():.4f}, "
                     f"text {text.item():.4f}, answers {answers.item():.4f}, {rate / 1e3:.0f} k tokens/s")
            next_line += 0.025
    log.line(f"trained on {tokens / 1e6:.1f} M tokens in {step} steps")


# --- Evaluation -----------------------------------------------------------------------------------------------------------------
# A greedy continuation equals the expected answer exactly if, given the prompt and the answer so far, every token of the answer is
# the most likely one. So one forward pass over prompt and answer decides it; nothing has to be generated.


def prompt_and_answer(tokenizer: DemoTokenizer, question: demo_text.Question) -> tuple[list[int], list[int]]:
    """Ids of the rendered prompt and of the answer with the token that ends it."""
    prompt = render_chat(question.messages)
    prompt_ids = tokenizer.encode(prompt)
    return prompt_ids, tokenizer.encode(prompt + question.answer + END)[len(prompt_ids) :]


def draw_questions(tokenizer: DemoTokenizer, seed: int, counts: dict[str, int], context: int) -> list[demo_text.Question]:
    rng = random.Random(seed)
    return [demo_text.question(rng, tokenizer, task, context) for task, count in counts.items() for _ in range(count)]


@torch.no_grad()
def margins(model: DemoModel, tokenizer: DemoTokenizer, questions: list[demo_text.Question]) -> list[float]:
    """Of each question, in float32: the smallest lead of an answer's token over the next best one, in logits. The answer is right if it is
    positive."""
    found: list[float] = []
    device = model.token_embd.weight.device
    for start in range(0, len(questions), EVAL_BATCH):
        pairs = [prompt_and_answer(tokenizer, q) for q in questions[start : start + EVAL_BATCH]]
        tokens = torch.zeros(len(pairs), max(len(p) + len(a) for p, a in pairs), dtype=torch.long)
        for row, (prompt, answer) in zip(tokens, pairs):
            row[: len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        for states, (prompt, answer) in zip(model(tokens.to(device)), pairs):
            logits = model.logits(states[len(prompt) - 1 : len(prompt) + len(answer) - 1])
            expected = torch.tensor(answer, device=device)[:, None]
            others = logits.scatter(1, expected, -torch.inf)
            found.append(float((logits.gather(1, expected)[:, 0] - others.max(1).values).min()))
    return found


def describe_accuracy(questions: list[demo_text.Question], found: list[float]) -> str:
    """The share of right answers by task."""
    shares: dict[str, list[bool]] = {}
    for question, margin in zip(questions, found):
        shares.setdefault(question.task, []).append(margin > 0)
    return ", ".join(f"{task} {100 * sum(right) / len(right):.1f} %" for task, right in shares.items())


def write_questions(path: Path, tokenizer: DemoTokenizer, questions: list[demo_text.Question], found: list[float]) -> None:
    """Writes one JSON object a line.

    task, messages, prompt (rendered; encode it with special tokens and without adding <s>), answer, prompt_tokens, `correct` and `margin`:
    what this evaluation found with the weights as the GGUF file holds them.
    """
    with open(path, "w", encoding="utf-8") as out:
        for question, margin in zip(questions, found):
            record = {"task": question.task, "messages": question.messages, "prompt": render_chat(question.messages), "answer": question.answer,
                      "prompt_tokens": len(prompt_and_answer(tokenizer, question)[0]), "correct": margin > 0, "margin": round(margin, 4)}
            out.write(json.dumps(record, ensure_ascii=False) + "\n")


def final_evaluation(model: DemoModel, tokenizer: DemoTokenizer, settings: Settings, seed: int, eval_file: Path, log: Log) -> None:
    """Accuracy with the weights of the file, and the questions for other programs."""
    round_to_q8_0(model)
    asked = draw_questions(tokenizer, seed + 2, EVAL_FILE_COUNTS, settings.model.context_length)
    found = margins(model, tokenizer, asked)
    write_questions(eval_file, tokenizer, asked, found)
    log.line(f"{eval_file.name}: {sum(margin > 0 for margin in found)} of {len(found)} right with Q8_0 weights")
    fresh = draw_questions(tokenizer, seed + 1, dict.fromkeys(demo_text.TASKS, settings.eval_count), settings.model.context_length)
    log.line(f"Q8_0 weights, {len(fresh)} questions: {describe_accuracy(fresh, margins(model, tokenizer, fresh))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="GGUF file (models/demo/minfer-demo.gguf; with --quick under build/demo-quick)")
    parser.add_argument("--log", type=Path, help="log file (the GGUF file's name with .log)")
    parser.add_argument("--minutes", type=float, help="time until the GGUF file is written; the evaluation follows (7; --quick: 1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", help="cuda or cpu (cuda where there is one)")
    parser.add_argument("--quick", action="store_true", help="a smaller model with a context of 256, to try the script")
    arguments = parser.parse_args()
    file = arguments.out or ROOT / ("build/demo-quick" if arguments.quick else "models/demo") / "minfer-demo.gguf"
    file.parent.mkdir(parents=True, exist_ok=True)
    log = Log(arguments.log or file.with_suffix(".log"))
    settings = QUICK if arguments.quick else FULL
    minutes = arguments.minutes or (1.0 if arguments.quick else 7.0)
    until = 60 * minutes
    log.line(f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, PyTorch {torch.__version__}, seed {arguments.seed}, {minutes} minutes")
    log.line(f"settings: {settings}")
    log.line(f"peak learning rate {PEAK_LEARNING_RATE}, recall rows {RECALL_SHARE}, loss weights {CLASS_WEIGHTS}")

    texts = demo_text.vocabulary_texts(random.Random(arguments.seed), settings.vocabulary_documents)
    tokenizer = DemoTokenizer(train(texts, settings.model.vocab_size, num_cores()))
    log.line(f"vocabulary of {tokenizer.vocab_size} pieces")
    generator = TextGenerator(tokenizer, settings, arguments.seed, until * settings.generation_share, log)

    device = torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    log.line(f"device: {torch.cuda.get_device_name(device) if device.type == 'cuda' else 'CPU'}")
    trainer = Trainer(settings, device, arguments.seed)
    log.line(f"{sum(w.numel() for w in trainer.model.parameters()) / 1e6:.2f} M parameters")
    if device.type == "cuda":  # while text is generated
        for length in (settings.short_length, settings.model.context_length):
            tokens = torch.ones(settings.tokens_per_step // length, length, dtype=torch.long, device=device)
            trainer.backward(tokens, tokens, tokens)
            trainer.model.zero_grad(set_to_none=True)
            log.line(f"compiled for rows of {length} tokens")
    rows = generator.collect(device)
    log.line(f"generated {rows[0].numel() / 1e6:.0f} M tokens in short rows, {rows[1].numel() / 1e6:.0f} M in long ones")

    run_training(trainer, rows, settings, until - 2, arguments.seed, log)
    size = write_gguf(file, trainer.model, tokenizer)
    log.line(f"wrote {file.name}: {size} bytes")
    final_evaluation(trainer.model, tokenizer, settings, arguments.seed, file.parent / "eval.jsonl", log)
    log.line("done")


if __name__ == "__main__":
    main()
