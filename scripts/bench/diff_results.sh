#!/usr/bin/env bash
# Writes the output of `minfer profile diff` for the profiles that are kept with the results: scripts/bench/diff_results.sh [MINFER]
set -euo pipefail
cd "$(dirname "$0")/../.."
minfer=$(realpath "${1:-build/release/minfer}")
results=$PWD/tests/benchmarks/results
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cp "$results"/cuda-2026-11-22-steps-b{1,64}.jsonl "$folder"
cp "$results"/planted-h200/batch-64-{bf16,q4_k_m}.jsonl "$folder"
for name in profile-b64-2026-11-22 steps-h200-b{8,32} attention-cpu-{before,after}; do
  xz -dc "$results/$name.jsonl.xz" >"$folder/$name.jsonl"
done
cd "$folder"

# title, note, A, B
section() {
  printf '\n# %s\n\n%s\n\n`minfer profile diff %s %s -o md`\n\n' "$1" "$2" "$3" "$4"
  "$minfer" profile diff "$3" "$4" -o md | sed 's/^#/##/'
}

{
  echo "Made by \`scripts/bench/diff_results.sh\` of the profiles beside this file (those that end in .xz unpacked). No run of its own."
  section "Batch 1 against batch 64" \
    "Llama 3.1 8B, BF16, one H200, context 512: no step of both has the same batch, so they are compared by token." \
    cuda-2026-11-22-steps-b1.jsonl cuda-2026-11-22-steps-b64.jsonl
  section "Batch 64 with short and with longer contexts" \
    "The same model and GPU, steps 24 to 27 against steps 100 to 200 of a run each: keys and values to read grow, weights do not." \
    cuda-2026-11-22-steps-b64.jsonl profile-b64-2026-11-22.jsonl
  section "BF16 against Q4_K_M at batch 64" \
    "The same model and GPU, steps of decoding 64 sequences: why the file of a third of the size is slower." \
    batch-64-bf16.jsonl batch-64-q4_k_m.jsonl
  section "Batch 8 against batch 32" "The same model and GPU, BF16, decode after prompts of 512 tokens." \
    steps-h200-b8.jsonl steps-h200-b32.jsonl
  section "Two commits: attention on a CPU" \
    "The demo model, 24 sequences with 256 tokens of context and more, two cores with AVX-512: before and since commit 9aa6878, which a finding led to (diagnosis-cpu-2026-11-22.jsonl)." \
    attention-cpu-before.jsonl attention-cpu-after.jsonl
} >"$results/diff-2026-11-22.md"
echo "wrote tests/benchmarks/results/diff-2026-11-22.md"
