#!/usr/bin/env python3
"""minfer and llama.cpp beside float64: both compute the same ids of the same GGUF files on the CPU, and transformers the reference.

    beside_llama_cpp.py --minfer build/release/minfer --llama-cpp-version COMMIT [--out FILE.jsonl] [--keep FOLDER]

Of all positions of the texts in texts/: NMSE of the logits; Kullback-Leibler divergence of the distributions, mean and largest, in nats; how
often the first choice is the reference's; the perplexity. llama.cpp is libllama of the package llama-cpp-python with its defaults (KV cache in
f16), built for this processor by
    CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python==0.3.36
Needs that, torch, transformers, gguf and tokenizers, and the models (scripts/test_env.sh). --keep as of make_references.py.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import tempfile

import numpy as np

from reference_model import FOLDER, ReferenceModel, models, texts


def logits_of_minfer(program, path, ids, folder):
    (folder / "ids").write_text(" ".join(map(str, ids)))
    subprocess.run([program, "eval", path, "--device", "cpu", "--tokens", folder / "ids", "--logits", folder / "logits"], check=True, capture_output=True)
    count, vocabulary = np.fromfile(folder / "logits", "<i4", 2)
    return np.memmap(folder / "logits", "<f4", "r", offset=8 + 4 * count, shape=(count, vocabulary))


def logits_of_llama_cpp(path, ids, vocabulary, folder, threads):
    import llama_cpp

    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx, parameters.n_threads, parameters.n_threads_batch = 2048, threads, threads
    context = llama_cpp.llama_init_from_model(model, parameters)
    step = 256
    batch = llama_cpp.llama_batch_init(step, 0, 1)
    out = np.memmap(folder / "llama", "<f4", "w+", shape=(len(ids), vocabulary))
    for first in range(0, len(ids), step):
        batch.n_tokens = len(ids[first:first + step])
        for i, token in enumerate(ids[first:first + step]):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, first + i, 1, 0, True
        assert llama_cpp.llama_decode(context, batch) == 0
        values = llama_cpp.llama_get_logits(context)
        out[first:first + batch.n_tokens] = np.ctypeslib.as_array(values, (batch.n_tokens, vocabulary))
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    llama_cpp.llama_log_set(llama_cpp.llama_log_callback(0), None)
    return out


def log_softmax(rows):
    largest = rows.max(axis=1, keepdims=True)
    return rows - largest - np.log(np.exp(rows - largest).sum(axis=1, keepdims=True))


class Distance:
    """Of one program's logits from the reference's, over positions as they come."""

    def __init__(self):
        self.error = self.power = self.right = 0
        self.divergences, self.losses = [], []

    def add(self, logits, reference, next_ids):
        logits = logits.astype(np.float64)
        self.error += float(((logits - reference) ** 2).sum())
        self.power += float((reference ** 2).sum())
        self.right += int((logits.argmax(axis=1) == reference.argmax(axis=1)).sum())
        found, expected = log_softmax(logits), log_softmax(reference)
        self.divergences += (np.exp(expected) * (expected - found)).sum(axis=1).tolist()
        self.losses += [-float(found[i, token]) for i, token in enumerate(next_ids)]

    def record(self):
        count = len(self.divergences)
        return {"positions": count, "nmse": self.error / self.power, "kl_mean": float(np.mean(self.divergences)), "kl_most": float(np.max(self.divergences)),
                "first_choices_right": self.right, "share": self.right / count, "perplexity": float(np.exp(np.mean(self.losses)))}


def processor():
    return re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minfer", type=pathlib.Path, required=True)
    parser.add_argument("--llama-cpp-version", required=True, help="commit, for the record")
    parser.add_argument("--threads", type=int, default=2, help="of llama.cpp")
    parser.add_argument("--only", choices=models(), help="this model alone")
    parser.add_argument("--out", type=pathlib.Path, help="also written here, as JSON lines")
    parser.add_argument("--keep", help="a folder in which the reference's hidden states stay")
    arguments = parser.parse_args()
    version = subprocess.run([arguments.minfer, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "-C", FOLDER, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    records = [{"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "cpu": processor(), "minfer": f"{version} ({commit})",
                "llama.cpp": arguments.llama_cpp_version, "command": "tests/real/beside_llama_cpp.py",
                "what": "logits of all positions of tests/real/texts against transformers in float64 from the dequantised weights; both on the CPU, defaults"}]
    for name, path in models().items():
        if arguments.only not in (None, name):
            continue
        reference = ReferenceModel(path, arguments.keep)
        total = {"minfer": Distance(), "llama.cpp": Distance()}
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            for text_name, text in texts().items():
                ids = reference.encode(text)
                found = {"minfer": logits_of_minfer(arguments.minfer, path, ids, folder),
                         "llama.cpp": logits_of_llama_cpp(path, ids, reference.vocab_size, folder, arguments.threads)}
                of_text = {program: Distance() for program in total}
                for first, rows in reference.logits(ids):
                    for program, logits in found.items():
                        for distance in (of_text[program], total[program]):
                            distance.add(logits[first:first + len(rows)], rows, ids[first + 1:first + 1 + len(rows)])
                for program, distance in of_text.items():
                    records.append({"model": name, "text": text_name, "program": program, **distance.record()})
                    print(json.dumps(records[-1]), flush=True)
        for program, distance in total.items():
            records.append({"model": name, "text": "all", "program": program, **distance.record()})
            print(json.dumps(records[-1]), flush=True)
    if arguments.out:
        arguments.out.write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    main()
