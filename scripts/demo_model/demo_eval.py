"""Evaluates the demo model: share of exactly right answers per task, and the questions as a file for other programs.

A greedy continuation equals the expected answer exactly if, given the prompt and the answer so far, every token of the answer is
the most likely one. So one forward pass over prompt and answer decides it; nothing has to be generated.
"""

import json
import random
from pathlib import Path

import torch

import demo_text
from demo_model import DemoModel
from demo_text import Question
from demo_tokenizer import END, DemoTokenizer, render_chat

EVAL_FILE_COUNTS = {"sum": 20, "difference": 20, "count": 15, "copy": 20, "recall_short": 15, "recall_long": 12, "name": 8}
BATCH_SIZE = 16


def prompt_and_answer(tokenizer: DemoTokenizer, question: Question) -> tuple[list[int], list[int]]:
    """Ids of the rendered prompt and of the answer with the token that ends it."""
    prompt = render_chat(question.messages)
    prompt_ids = tokenizer.encode(prompt)
    return prompt_ids, tokenizer.encode(prompt + question.answer + END)[len(prompt_ids) :]


def draw_questions(tokenizer: DemoTokenizer, seed: int, counts: dict[str, int], context: int) -> list[Question]:
    rng = random.Random(seed)
    return [demo_text.question(rng, tokenizer, task, context) for task, count in counts.items() for _ in range(count)]


@torch.no_grad()
def margins(model: DemoModel, tokenizer: DemoTokenizer, questions: list[Question]) -> list[float]:
    """Of each question, in float32: the smallest lead of an answer's token over the next best one, in logits. The answer is right if it is
    positive."""
    found: list[float] = []
    device = model.token_embd.weight.device
    for start in range(0, len(questions), BATCH_SIZE):
        pairs = [prompt_and_answer(tokenizer, q) for q in questions[start : start + BATCH_SIZE]]
        tokens = torch.zeros(len(pairs), max(len(p) + len(a) for p, a in pairs), dtype=torch.long)
        for row, (prompt, answer) in zip(tokens, pairs):
            row[: len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        for states, (prompt, answer) in zip(model(tokens.to(device)), pairs):
            logits = model.logits(states[len(prompt) - 1 : len(prompt) + len(answer) - 1])
            expected = torch.tensor(answer, device=device)[:, None]
            others = logits.scatter(1, expected, -torch.inf)
            found.append(float((logits.gather(1, expected)[:, 0] - others.max(1).values).min()))
    return found


def describe_accuracy(questions: list[Question], found: list[float]) -> str:
    """The share of right answers by task."""
    shares: dict[str, list[bool]] = {}
    for question, margin in zip(questions, found):
        shares.setdefault(question.task, []).append(margin > 0)
    return ", ".join(f"{task} {100 * sum(right) / len(right):.1f} %" for task, right in shares.items())


def write_questions(path: Path, tokenizer: DemoTokenizer, questions: list[Question], found: list[float]) -> None:
    """Writes one JSON object a line.

    task, messages, prompt (rendered; encode it with special tokens and without adding <s>), answer, prompt_tokens, `correct` and `margin`:
    what this evaluation found with the weights as the GGUF file holds them.
    """
    with open(path, "w", encoding="utf-8") as out:
        for question, margin in zip(questions, found):
            record = {"task": question.task, "messages": question.messages, "prompt": render_chat(question.messages), "answer": question.answer,
                      "prompt_tokens": len(prompt_and_answer(tokenizer, question)[0]), "correct": margin > 0, "margin": round(margin, 4)}
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
