#!/usr/bin/env bash
# The GPU's part of the tests: builds the CUDA code on a machine with a GPU, runs its tests there, runs the small ones under
# compute-sanitizer, and measures. Results go to tests/benchmarks/results/cuda-DATE.jsonl: first the device, driver, clocks, date
# and commit, then each result with its command.
#   scripts/gpu/gpu_test.sh [build] [test] [bench] [families] [long] [ranks] [overhead] [profile] [sanitize]     all nine without arguments
#     families   models with experts, windows and latent attention: to families-DATE.jsonl
#     long       contexts of up to 130,000 tokens, and as many requests as there are slots: to long-DATE.jsonl
#     ranks      two GPUs, of one process and of two: models that they share, all-reduces; to two-gpus-DATE.jsonl. mpirun, if
#                there is one, starts the two processes; each also runs under compute-sanitizer
#     overhead   the cost of recording every step, against steps that launch nothing for it: to overhead-DATE.jsonl
#     profile    the profiler's figures against the driver's tracing and hardware counters: to profile-DATE.jsonl
# MINFER_SANITIZE names the families to run under compute-sanitizer, if not all ("prefill fp8").
# MINFER_FIXTURES names a folder with golden models, if there is one. MINFER_TEST_MODELS names one with trained models (files NAME.gguf of
# tests/real/models.txt), if scripts/test_env.sh has not put them into the user's cache. MINFER_COMMIT names the commit if there is no .git.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- build test bench families long ranks overhead profile sanitize
command -v nvidia-smi >/dev/null || { echo "gpu_test: no nvidia-smi: this needs a machine with a GPU" >&2; exit 1; }
export PATH=$PATH:/usr/local/cuda/bin
build=build/cuda
results=${MINFER_RESULTS:-tests/benchmarks/results/cuda-$(date -u +%Y-%m-%d).jsonl}
folder=$(dirname "$results") day=$(date -u +%Y-%m-%d)
mkdir -p "$folder"

section() { printf '\n== %s (%s)\n' "$*" "$(date -u +%T)"; }

run_build() {
  section build
  if command -v dpkg-query >/dev/null && [ -z "${MINFER_NO_SETUP:-}" ]; then scripts/setup.sh --tests; fi
  scripts/build.sh cuda -DMINFER_TESTS=ON -- minfer cuda_tests cuda_all_reduce_benchmark cuda_delta_benchmark cuda_product_benchmark
}

# report_tests NAME LOG...: prints the output of tests that failed or did not end, then one line for all; 1 if any failed or broke off.
report_tests() {
  local name=$1 failed=0 log
  shift
  for log in "$@"; do
    grep -qE '^\[  PASSED  \]' "$log" && ! grep -qE '^\[  FAILED  \]' "$log" && continue
    failed=1
    awk '/^\[ RUN/ { lines = "" } { lines = lines $0 "\n" } /^\[       OK|^\[  SKIPPED|^\[---|^\[===/ { lines = "" }
         /^\[  FAILED .* ms\)$/ { printf "%s", lines; lines = "" } /^\[  PASSED/ { exit }
         END { if (lines !~ /PASSED/) printf "%s", lines }' "$log"
  done
  printf -- '-- %s: %s passed, %s skipped, %s failed\n' "$name" "$(cat "$@" | grep -cE '^\[ +OK \]')" \
    "$(cat "$@" | grep -cE '^\[  SKIPPED \] .*\)$')" "$(cat "$@" | grep -cE '^\[  FAILED  \] .* ms\)$')"
  return $failed
}

run_test() {
  section tests
  # Most of the kernels' tests wait for their references on the CPU, so shards of them run in parallel. Counters cover the whole device.
  local failed=0 alone='*PmSampler*:*RangeProfiler*' shards shard test logs
  shards=$(nproc)
  logs=$(mktemp -d)
  export MINFER_CEILINGS=skip
  for ((shard = 0; shard < shards; ++shard)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard timeout 500 \
      "$build/kernels_cuda_tests" --gtest_filter="-$alone" >"$logs/$shard" 2>&1 &
  done
  wait
  timeout 500 "$build/kernels_cuda_tests" --gtest_filter="$alone" >"$logs/alone" 2>&1 || true
  report_tests "kernels_cuda_tests, $shards shards" "$logs"/* || failed=1
  for test in "$build"/*_cuda_tests; do
    [ "$(basename "$test")" = kernels_cuda_tests ] && continue
    timeout 500 "$test" >"$logs/0" 2>&1 || true
    report_tests "$(basename "$test")" "$logs/0" || failed=1
  done
  rm -rf "$logs"
  return $failed
}

# findings_of_ours LOG: the tool's reports, without those that racecheck cannot judge. It does not know that a wait for a barrier in shared
# memory (mbarrier) ends after all arrivals. This affects cuBLASLt's kernels (nvjet_*); in prefill attention, the query tile that is handed
# over (hand_over) and, with a cache in fp8, the mark behind the last tile (end_raw_tiles) and rows behind a sequence's end that are cleared
# in a tile that another warp has widened (clear_values); the largest values that blocks of fp8_gemm exchange (store_in_block); and the data
# that the blocks of a row of logits mail each other before they rewrite its slice (RowRuns, RowSampler, SliceCopies).
findings_of_ours() {
  awk '/^=========/ { if ($0 ~ /^=========[ ]*$/) { if (keep && report != "") printf "%s", report; report = ""; keep = 1 }
                      else { report = report $0 "\n"; if ($0 ~ /nvjet_|hand_over|end_raw_tiles|clear_values|store_in_block|address_in_block|RowRuns|RowSampler|SliceCopies/) keep = 0 } }
       BEGIN { keep = 1 } END { if (keep) printf "%s", report }' "$1"
}

# sanitize NAME TOOL EXECUTABLE FILTER: prints one line, and the end of the log if our kernels have a finding or a test failed.
sanitize() {
  local log ours passed missing="did not end" failed=0 begin=$SECONDS
  log=$(mktemp)
  MINFER_CEILINGS=skip timeout 400 compute-sanitizer --tool "$2" "$build/$3" --gtest_brief=1 --gtest_filter="$4" >"$log" 2>&1 || true
  ours=$(findings_of_ours "$log" | grep -cE "access at|Invalid|Error:|leaked|Unused" || true)
  passed=$(grep -E "^\[  PASSED" "$log" | tail -1 || true)
  if [[ $passed == *" 0 tests"* ]]; then  # tests that this machine is too small for, or a filter that matches no test any more
    passed=$(grep -E "^\[  SKIPPED" "$log" | tail -1 || true)
    missing="no such test"
  fi
  printf '%-10s %-12s %s, %s findings in our kernels, %s s\n' "$2" "$1" "${passed:-$missing}" "$ours" $((SECONDS - begin))
  if [ "$ours" != 0 ] || [ -z "$passed" ]; then
    failed=1
    findings_of_ours "$log" | tail -20
    tail -3 "$log"
  fi
  rm -f "$log"
  return $failed
}

run_sanitize() {
  # The tools slow kernels down a hundredfold: from each family run the tests that are small and reach its kernels.
  local -A small=(
    [attention]='kernels *DecodesEveryHeadSizeAndTypeExactly*:*MixesDecodeAndPrefill*:*WritesOnly*'
    [prefill]='kernels CudaAttention.PrefillsEveryHeadSizeAndType:CudaAttention.GivesTheSameBits*'
    [options]='kernels CudaAttentionOptions.GiveTheSameBits*:CudaAttentionOptions.ValuesOf*:CudaAttentionOptions.ACaptured*:CudaAttentionOptions.InChunks'
    [linear]='kernels *MatchesTheReferenceForAny*/bf16:*MatchesTheReferenceForAny*/q8_0:*MatchesTheReferenceForAny*/q4_k:*GateAndUp*/q6_k'
    [stream]='kernels Shapes/CudaStreamProduct.*/TheLeast:Shapes/CudaStreamProduct.*/TailsOfBoth:Shapes/CudaStreamProduct.Adds*/Clusters*:Shapes/CudaStreamProduct.Adds*/Blocks*'
    [tiles]='kernels *CudaTileStream.*/q4_k_T*:*CudaTileStream.Adds*/q6_k_Clusters*:*CudaTileStream.Adds*/q5_k_Blocks*:*CudaTileStream.Mult*/fp8_Tails*:*CudaTileStream.Adds*/q3_k_T*:*CudaTileStream.Mult*/iq4_xs_T*:*CudaTileStream.Adds*/iq2_xs_T*:*MultipliesLargeTiles/q4_k'
    [fp8]='kernels *CudaFp8Stream.*/TheLeast:*CudaFp8Stream.*/TailsOfBoth:*CudaFp8Stream.MultipliesGateAndUp/ManyTiles*:CudaFp8Norm.*'
    [moe]='kernels CudaMoeProducts.TakeOddShapes*:CudaMoeProducts.AGraph*:CudaMoeProducts.WeighWhat*:CudaMoeProducts.DownGroups*:CudaStepMemory.*'
    [strips]='kernels *CudaExpertStrips.TakeOddShapes/q4_k:*CudaExpertStrips.TakeOddShapes/mxfp4:*CudaExpertStrips.TakeOddShapes/q8_0'
    [wide]='kernels CudaAttention.LayersOfAStep*:CudaRope.NormsValues*'
    [latent]='kernels CudaLatent.WritesWhat*:CudaLatent.ProductsOfHeadsOfEverySize:CudaLatent.Decodes'
    [experts]='kernels *CudaExpertStream.Writes*/bf16:*CudaExpertStream.Writes*/q8_0:*CudaExpertStream.Writes*/q4_k:*CudaExpertStream.Writes*/fp8:*CudaExpertStream.Writes*/iq3_s:*CudaExpertStream.WeighsWhat*/bf16:*CudaExpertStream.WeighsWhat*/q4_k'
    [gate]='kernels *CudaGateActivation.*OddShapes/gelu_bf16:*CudaGateActivation.*OddShapes/gelu_q4_k:*CudaMoeActivation.IsExact*/gelu'
    [vector]='kernels CudaLinear.TakesANorm*:CudaLinear.MultipliesTwoTypes*:CudaLinear.StreamsTwoTypes*:CudaLinear.PassesOn*:CudaLinear.TakesF32*'
    [norm]='kernels CudaRmsNorm.*:CudaNormKinds.*:CudaMixStreams.*'
    [ranks]='kernels *CudaAllReduce.SumsSmallRows*/lines:*CudaAllReduce.SumsSmallRows*/chunks'
    [delta]='kernels CudaDeltaNet.PaddingHas*:CudaDeltaNet.StepsMay*:CudaDeltaNet.LargeGates*:CudaDeltaNet.GatesOfHeadsMatch*:CudaShortConvs.PaddingHas*:CudaMamba.PaddingHas*'
    [hybrid]='engine CudaHybrid.SlotsThat*'
    [weights]='kernels *CudaWeightsOfType*/q4_k:*CudaWeightsOfType*/q6_k:CudaWeights.*'
    [rope]='kernels CudaRope.Saturates*:CudaRope.LeavesTheRest*:CudaRope.Scales*'
    [sampling]='kernels CudaSampling.*Padding*:CudaSampling.*Pending*:CudaSampling.GreedyTakes*:CudaSampling.*RowsMix*:CudaSampling.ARowWithout*:CudaSampling.NanIs*:CudaSamplingByCpu.CutsRows*:CudaSamplingRounds.PaddingRows*'
    [masks]='kernels CudaSamplingMask.*'
    [drafts]='engine CudaDraftGraphs.*'
    [grammar]='engine CudaGrammar.AStepAhead*:CudaGrammar.Cancelled*'
    [engine]='engine CudaEngine.StopsAStepLate*:CudaEngine.RepeatsItself*'
  )
  # racecheck slows these down so far that it runs fewer of their tests, and one whole model: it checks kernels, which have their families.
  local -A raced=(
    [sampling]='kernels CudaSampling.*Padding*:CudaSampling.GreedyTakes*:CudaSampling.ARowWithout*'
    [tiles]='kernels *CudaTileStream.Adds*/q4_k_Tails*:*CudaTileStream.Adds*/q4_k_ClustersOfTwo:*CudaTileStream.Adds*/q4_k_Blocks*:*MultipliesLargeTiles/q4_k'
    [fp8]='kernels *CudaFp8Stream.Mult*/TheLeast:*CudaFp8Stream.Adds*/ClustersOfTwo:CudaFp8Norm.*'
    [prefill]='kernels CudaAttention.PrefillsEveryHeadSizeAndType'
    [engine]='engine CudaEngine.StopsAStepLate*'
    [drafts]='' [grammar]='' [hybrid]=''
  )
  # In parallel, but not all at once: the longest tests would wait for the GPU as often as the others.
  local failed=0 tool name names tests pids
  section "compute-sanitizer memcheck and racecheck"
  local groups=("attention prefill options linear vector stream tiles fp8 moe strips experts latent wide" "gate norm weights rope ranks delta sampling masks" "drafts grammar engine hybrid")
  [ -z "${MINFER_SANITIZE:-}" ] || groups=("$MINFER_SANITIZE")
  for names in "${groups[@]}"; do
    pids=()
    for tool in memcheck racecheck; do
      for name in $names; do
        tests=${small[$name]}
        [ $tool = memcheck ] || tests=${raced[$name]-$tests}
        [ -n "$tests" ] || continue
        sanitize "$name" $tool "${tests%% *}_cuda_tests" "${tests#* }" &
        pids+=($!)
      done
    done
    for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  done
  return $failed
}

record() {  # record COMMAND...: runs it and appends its JSON lines together with the command, or with what `as` says
  echo "+ ${as:-$*}" >&2
  "$@" | python3 -c '
import json, sys
for line in sys.stdin:
    print(json.dumps({"command": sys.argv[1], **json.loads(line)}))' "${as:-$*}" >>"$results"
}

begin_results() {  # begin_results FILE: later records go there; writes the machine to its first line
  results=$1
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
}

run_overhead() {
  section "what recording costs"
  begin_results "$folder/overhead-$day.jsonl"
  local overhead=("$build/minfer" bench --profile-overhead -r 20 --max-model-len 4096 -o jsonl)
  record "${overhead[@]}" -m synthetic:llama-3.1-8b:bf16 -n 64
  record "${overhead[@]}" -m synthetic:llama-3.1-8b:bf16 -p 2048 -n 0 --parallel 8
  record "${overhead[@]}" -m synthetic:llama-3.1-8b:bf16 -n 64 -d 512 --parallel 8,64
  record "${overhead[@]}" -m synthetic:llama-3.1-8b:bf16 -n 0 --pg 512,64 --parallel 32
  record "${overhead[@]}" -m synthetic:llama-3.1-8b:q4_k_m -n 64
  record "${overhead[@]}" -m synthetic:llama-3.2-1b:bf16 -n 128
}

# sanitize_processes TOOL HOW: a short run of two processes, each under its own tool. With two devices in one process the tool runs
# one kernel at a time, so kernels that wait for each other would never end.
sanitize_processes() {
  local logs findings ended status=0 summaries=1
  logs=$(mktemp -d)
  local tool=(compute-sanitizer --tool "$1")
  if command -v mpirun >/dev/null && [ -e "$build/libminfer_mpi.so" ]; then
    summaries=2
    timeout 500 mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2 \
      "${tool[@]}" --log-file "$logs/%q{OMPI_COMM_WORLD_RANK}" \
      "$build/minfer" run -m synthetic:tiny:bf16 --device cuda --all-reduce "$2" --rank-timeout 300 "w1 w2" -n 6 --quiet \
      >"$logs/output" 2>&1 || status=$?
  else
    timeout 500 "${tool[@]}" --target-processes all "$build/engine_cuda_tests" --gtest_brief=1 \
      --gtest_filter="*CudaTwoProcessesBy.GiveTheLogitsOfOne/$2_eager" >"$logs/output" 2>&1 || status=$?
  fi
  findings=$(cat "$logs"/* | grep -E "^=========.*(access at|Invalid|Race reported)" | grep -cv nvjet_ || true)
  ended=$(cat "$logs"/* | grep -cE "^========= (ERROR|RACECHECK) SUMMARY" || true)
  printf '%-10s two processes, %-4s exit code %s, %s summaries, %s findings\n' "$1" "$2" $status "$ended" "$findings"
  if [ $status -ne 0 ] || [ "$findings" != 0 ] || [ "$ended" -lt $summaries ]; then
    tail -n 25 "$logs"/*
    status=1
  fi
  rm -rf "$logs"
  return $status
}

test_processes() {
  local failed=0 tool how status=0
  section "two GPUs of two processes"
  tests/server/mpi/mpi_gpus_test.py --minfer "$build/minfer" || status=$?
  [ $status -eq 0 ] || [ $status -eq 77 ] || failed=1
  for tool in memcheck racecheck; do
    for how in peer nccl; do sanitize_processes $tool $how || failed=1; done
  done
  return $failed
}

run_ranks() {
  section "two GPUs"
  if [ "$(nvidia-smi --list-gpus | wc -l)" -lt 2 ]; then
    echo "skipped: fewer than two GPUs"
    return
  fi
  local failed=0
  test_processes || failed=1
  begin_results "$folder/two-gpus-$day.jsonl"
  local bench=("$build/minfer" bench --tp 2 -o jsonl)
  record "${bench[@]}" -m synthetic:llama-3.1-8b:bf16 -p 0 -n 128 -d 512 --parallel 1,8,32,64,128 -r 5
  record "${bench[@]}" -m synthetic:llama-3.1-8b:bf16 -p 2048 -n 0 --parallel 1,8 --max-num-batched-tokens 8192 -r 10
  record "${bench[@]}" -m synthetic:llama-3.1-70b:bf16 -p 0 -n 64 -d 512 --parallel 1,8 -r 3 --max-model-len 1024 --max-num-seqs 16
  record "$build/cuda_all_reduce_benchmark" 2 4096 64
  if command -v mpirun >/dev/null && [ -e "$build/libminfer_mpi.so" ]; then
    local processes=(mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2 "$build/minfer" bench -o jsonl)
    for how in peer nccl; do
      record "${processes[@]}" --all-reduce $how -m synthetic:llama-3.1-8b:bf16 -p 0 -n 128 -d 512 --parallel 1,8,32,64 -r 5
    done
    record "${processes[@]}" -m synthetic:llama-3.1-8b:bf16 -p 2048 -n 0 --parallel 1,8 --max-num-batched-tokens 8192 -r 10
  fi
  return $failed
}

# profile_case MODEL BENCH_OPTION...: runs a profiled benchmark and appends the profile's figures.
profile_case() {
  local file
  file=$(mktemp --suffix .jsonl)
  "$build/minfer" bench -m "synthetic:$1" "${@:2}" --max-model-len 4096 --profile-out "$file" >/dev/null
  as="minfer bench -m synthetic:$*" record scripts/profiles/profile_figures.py "$build/minfer" "$file"
  rm -f "$file"
}

run_profile() {
  section "the profiler against the driver's tracing and hardware counters"
  begin_results "$folder/profile-$day.jsonl"
  local decode=(-p 0 -n 200 -d 512 -r 1)
  for model in llama-3.1-8b:bf16 llama-3.1-8b:q4_k_m llama-3.2-1b:bf16; do
    profile_case $model "${decode[@]}" --profile-range 60:110
    profile_case $model "${decode[@]}" --profile-counters
  done
  for parallel in 8 64; do
    profile_case llama-3.1-8b:bf16 "${decode[@]}" --parallel $parallel --profile-range 60:110
    profile_case llama-3.1-8b:bf16 "${decode[@]}" --parallel $parallel --profile-counters
  done
  profile_case llama-3.1-8b:bf16 -p 2048 -n 0 -r 40 --profile-range 10:30
  profile_case llama-3.1-8b:bf16 -p 0 -n 0 --pg 512,64 --parallel 32 -r 3 --profile-range 5:60
  # The cost of tracing: the traced steps against the same steps of two repetitions without tracing.
  local cost=(-p 0 -n 200 -d 512 -r 3 --profile-range 60:110 --profile-margin 100000)
  profile_case llama-3.1-8b:bf16 "${cost[@]}"
  profile_case llama-3.1-8b:bf16 "${cost[@]}" --parallel 64
  profile_case llama-3.2-1b:bf16 "${cost[@]}"
  # Decode's charge: steps of at most 64 tokens are bound by memory, mixed or not.
  profile_case llama-3.1-8b:bf16 --num-prompts 200 --input-len 64 --output-len 64 --max-concurrency 32 \
    --max-num-batched-tokens 64
  # One profile with every kind of line, kept with its report.
  local kept=$folder/profile-b64-$day
  "$build/minfer" bench -m synthetic:llama-3.1-8b:bf16 -p 0 -n 256 -d 512 -r 1 --parallel 64 --max-model-len 4096 \
    --profile-range 100:200 --profile-counters --profile-out "$kept.jsonl" >/dev/null
  "$build/minfer" profile report "$kept.jsonl" | tee "$kept.txt"
  xz -f "$kept.jsonl"
}

run_bench() {
  section benchmarks
  local minfer=$build/minfer
  begin_results "$results"
  local weights
  for weights in bf16 q8_0 q4_k_m mxfp4 "bf16 --quantization fp8"; do
    # shellcheck disable=SC2086 -- a type and options
    record $minfer bench -m synthetic:llama-3.1-8b:$weights -p 512,2048 -n 128 -r 5 --max-model-len 4096 -o jsonl
  done
  for weights in bf16 q4_k_m "bf16 --quantization fp8"; do
    # shellcheck disable=SC2086 -- a type and options
    record $minfer bench -m synthetic:llama-3.1-8b:$weights -p 0 -n 128 -d 512 --parallel 8,32,64,128 -r 3 --max-model-len 4096 -o jsonl
  done
  for weights in q3_k_m iq4_xs q2_k; do
    record $minfer bench -m synthetic:llama-3.1-8b:$weights -p 2048 -n 0 -r 3 --max-model-len 4096 -o jsonl
    record $minfer bench -m synthetic:llama-3.1-8b:$weights -p 0 -n 64 -d 512 --parallel 1,8,64 -r 3 --max-model-len 4096 -o jsonl
  done
  record $minfer bench -m synthetic:llama-3.2-1b:bf16 -p 512,2048 -n 128 -r 5 --max-model-len 4096 -o jsonl
  record $minfer bench -m synthetic:qwen3-30b-a3b:bf16 -p 0 -n 64 -d 512 --parallel 1,8,64 -r 3 --max-model-len 4096 -o jsonl
  record $minfer bench -m synthetic:qwen3-30b-a3b:bf16 -p 2048 -n 0 -r 5 --max-model-len 4096 -o jsonl
  record $minfer bench -m synthetic:llama-3.1-8b:bf16 --kernels -o jsonl
  record "$build/cuda_product_benchmark" --types bf16,fp8,q8_0,q6_k,q5_k,q4_k,q4_0,mxfp4
  record "$build/cuda_product_benchmark" --shapes square
  record "$build/cuda_delta_benchmark"
  scripts/bench/product_figures.py "$results"
  if python3 -c "import numpy" 2>/dev/null; then
    local large
    large=$(mktemp --suffix .gguf)
    scripts/golden/make_large_gguf.py "$large"
    for _ in 1 2 3; do
      local begin=$EPOCHREALTIME
      $minfer run --model "$large" --device cuda "w1 w2" -n 1 >/dev/null 2>&1
      printf '{"command": "minfer run, a BF16 file of 16 GB in the page cache, to the first token", "seconds": %.2f}\n' \
        "$(awk "BEGIN { print $EPOCHREALTIME - $begin }")" | tee -a "$results"
    done
    rm -f "$large"
  fi
  local load="--num-prompts 512 --input-len 512 --output-len 128 --max-concurrency 256" interval options
  for interval in 8 1; do
    options="--model synthetic:llama-3.1-8b:bf16 --max-model-len 4096 --stream-interval $interval"
    scripts/bench/bench_turns.py --rounds 3 --out "$folder/server-$(basename "$results")" --serve "$minfer $options --no-access-log" \
      engine="$minfer bench $options $load" server="$minfer bench --base-url URL --tokenizer synthetic:llama-3.1-8b:bf16 $load"
  done
  for parallel in 1 64; do
    local profile=${results%.jsonl}-steps-b$parallel.jsonl
    $minfer bench -m synthetic:llama-3.1-8b:bf16 -p 0 -n 48 -d 512 -r 1 --parallel $parallel --max-model-len 4096 \
      --profile-out "$profile" --profile-range 24:27 >/dev/null
    $minfer profile report "$profile"
  done
}

run_families() {
  section "experts, windows, latent attention"
  begin_results "$folder/families-$day.jsonl"
  local model bench
  for model in gpt-oss-20b:mxfp4 qwen3-30b-a3b:bf16 qwen3-30b-a3b:q4_k_m deepseek-v2-lite:bf16 gemma-3-12b:bf16; do
    bench=("$build/minfer" bench -m "synthetic:$model" -o jsonl --max-model-len 4096)
    record "${bench[@]}" -p 2048 -n 0 -r 5
    record "${bench[@]}" -p 0 -n 64 -d 512 --parallel 1,8,32,64,128 -r 3
  done
}

run_long() {
  section "long contexts, full load"
  begin_results "$folder/long-$day.jsonl"
  local bench=("$build/minfer" bench -m synthetic:llama-3.1-8b:bf16 -o jsonl) depth
  record "${bench[@]}" -p 2048 -n 0 -r 10 --parallel 8 --max-num-batched-tokens 8192 --max-model-len 4096
  record "${bench[@]}" -p 8192,32768,65536,130000 -n 0 -r 2 --max-model-len 131072
  for depth in 8192 32768 65536 130000; do
    record "${bench[@]}" -p 0 -n 64 -d $depth -r 2 --max-model-len 131072
  done
  local load=(--max-concurrency 256 --max-num-seqs 256 --num-prompts 512 --no-enable-prefix-caching --num-warmups 32 --max-model-len 4096)
  record "${bench[@]}" "${load[@]}" --input-len 512 --output-len 128
  record "${bench[@]}" "${load[@]}" --input-len 512 --output-len 128 --quantization fp8
  record "${bench[@]}" "${load[@]}" --input-len 1000 --output-len 1000
}

for part in "$@"; do
  declare -F "run_$part" >/dev/null || { sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2; }
done
for part in "$@"; do "run_$part"; done
echo "gpu_test: done: $*"
