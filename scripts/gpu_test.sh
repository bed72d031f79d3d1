#!/usr/bin/env bash
# What CI cannot do: builds the CUDA code on a machine with a GPU, runs its tests there, runs the small ones under
# compute-sanitizer, and measures. Results go to tests/benchmarks/results/cuda-DATE.jsonl: device, driver, clocks, date and
# commit first, then each result with its command.
#   scripts/gpu_test.sh [build] [test] [sanitize] [bench]     all four without arguments
# MINFER_FIXTURES names a folder with golden models, if there is one. MINFER_COMMIT names the commit where there is no .git.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- build test sanitize bench
command -v nvidia-smi >/dev/null || { echo "gpu_test: no nvidia-smi: this needs a machine with a GPU" >&2; exit 1; }
export PATH=$PATH:/usr/local/cuda/bin
build=build/cuda
results=${MINFER_RESULTS:-tests/benchmarks/results/cuda-$(date -u +%Y-%m-%d).jsonl}

section() { printf '\n== %s (%s)\n' "$*" "$(date -u +%T)"; }

run_build() {
  section build
  if command -v dpkg-query >/dev/null && [ -z "${MINFER_NO_SETUP:-}" ]; then scripts/setup.sh --tests; fi
  scripts/build.sh cuda -DMINFER_TESTS=ON -- minfer cuda_tests
}

run_tests() {
  section tests
  ctest --test-dir $build -L '_cuda_' --output-on-failure -j 2
}

run_sanitizer() {
  for tool in memcheck racecheck; do
    section "compute-sanitizer $tool"
    for test in "$build"/kernels_cuda_*_test "$build"/engine_cuda_engine_test; do
      echo "-- $(basename "$test")"
      # Tests that only repeat others at sizes, and those that count bytes, are left out: the tool slows kernels down a
      # hundredfold.
      timeout 300 compute-sanitizer --tool $tool --error-exitcode 1 "$test" --gtest_brief=1 \
        --gtest_filter='*Small*:*Padding*:*Graph*:*Poison*:*Refuses*:*StopsAStepLate*:*Cancelled*'
    done
  done
}

record() {  # record COMMAND...: runs it and appends its JSON lines with the command
  echo "+ $*" >&2
  "$@" | python3 -c '
import json, sys
for line in sys.stdin:
    print(json.dumps({"command": sys.argv[1], **json.loads(line)}))' "$*" >>"$results"
}

run_bench() {
  section benchmarks
  local minfer=$build/minfer
  mkdir -p "$(dirname "$results")"
  python3 - >"$results" <<'PY'
import datetime, json, os, subprocess
def output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
fields = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit"
gpu = [value.strip() for value in output("nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader").split(",")]
print(json.dumps({"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                  "commit": os.environ.get("MINFER_COMMIT") or output("git", "rev-parse", "HEAD"),
                  "cuda": output("nvcc", "--version").splitlines()[-1], **dict(zip(fields.split(","), gpu))}))
PY
  for type in bf16 q8_0 q4_k_m; do
    record $minfer bench -m "synthetic:llama-3.1-8b:$type" -p 512,2048 -n 128 -r 5 --max-model-len 4096 -o jsonl
  done
  record $minfer bench -m synthetic:llama-3.1-8b:bf16 -p 0 -n 128 -d 512 --parallel 8,32,64,128 -r 3 \
    --max-model-len 4096 -o jsonl
  record $minfer bench -m synthetic:llama-3.1-8b:q4_k_m -p 0 -n 128 -d 512 --parallel 8,64 -r 3 --max-model-len 4096 -o jsonl
  record $minfer bench -m synthetic:llama-3.2-1b:bf16 -p 512,2048 -n 128 -r 5 --max-model-len 4096 -o jsonl
  for model in llama-3.1-8b llama-3.2-1b; do
    record $minfer bench -m synthetic:$model:bf16 --profile-overhead -n 128 -r 20 --max-model-len 4096 -o jsonl
  done
  record $minfer bench -m synthetic:llama-3.1-8b:bf16 --kernels -o jsonl
  for parallel in 1 64; do
    local profile=${results%.jsonl}-steps-b$parallel.jsonl
    $minfer bench -m synthetic:llama-3.1-8b:bf16 -p 0 -n 48 -d 512 -r 1 --parallel $parallel --max-model-len 4096 \
      --profile-out "$profile" --profile-range 24:27 >/dev/null
    $minfer profile report "$profile"
  done
}

for part in "$@"; do
  case $part in
    build) run_build ;;
    test) run_tests ;;
    sanitize) run_sanitizer ;;
    bench) run_bench ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
done
echo "gpu_test: done: $*"
