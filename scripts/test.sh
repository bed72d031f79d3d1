#!/usr/bin/env bash
# Installs what the tests need, builds everything and runs it.
#   scripts/test.sh             checks, release build, all tests
#   scripts/test.sh --complete  the same, then: the CUDA code and its tests compile (where there is nvcc), and its kernels for sm_86 as well;
#                               --asan and --threads
#   scripts/test.sh --asan      the address and undefined-behaviour sanitizers alone: what reads foreign input, and the fuzz targets
#   scripts/test.sh --threads   the thread sanitizer alone: what uses more than one thread
set -euo pipefail
cd "$(dirname "$0")/.."
stages=(release)
case "${1:-}" in
  "") ;;
  --complete) stages=(release cuda asan threads) ;;
  --asan) stages=(asan) ;;
  --threads) stages=(threads) ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

section() { printf '\n== %s (%d min %02d s)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }
run_tests() { ctest --preset "$1" -j "$(nproc)" "${@:2}"; }

run_release() {
  section "layout"
  python3 scripts/check_includes.py
  git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run --Werror
  echo "clang-format: nothing to change"
  git apply --check tests/benchmarks/planted_faults.patch
  echo "planted faults: the patch applies"

  section "release, and other people's Python packages from PyPI meanwhile"
  # Without them (status 77) the tests that run them say that they are skipped.
  local packages
  packages=$(mktemp)
  scripts/test_env.sh >"$packages" 2>&1 &
  local test_env=$! status=0
  scripts/build.sh release -DMINFER_TESTS=ON
  wait $test_env || status=$?
  cat "$packages"
  rm -f "$packages"
  [ $status -eq 0 ] || [ $status -eq 77 ]
  run_tests release
}

run_cuda() {
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    section "CUDA code and its tests compile; those that need no GPU"
    scripts/build.sh cuda -DMINFER_TESTS=ON -- minfer cuda_tests
    local tests
    for tests in build/cuda/*_cuda_tests; do
      echo "$(basename "$tests"):"
      CUDA_VISIBLE_DEVICES= "$tests" --gtest_brief=1 2>&1 |
        sed '/: Skipped$/d; /^$/d; /^\(no\|fewer\) /d'
    done
    section "its kernels compile for a GPU with less shared memory"
    scripts/compile_kernels.py build/cuda sm_86
  else
    echo "no nvcc: the CUDA code is not compiled"
  fi
}

# Those that read what others wrote (files, requests, templates) and those whose objects come and go.
run_asan() {
  section "address and undefined-behaviour sanitizers"
  local untrusted=(models_tests engine_tests server_tests) target
  for target in tests/fuzz/fuzz_*.cpp; do untrusted+=("$(basename "$target" .cpp)"); done
  scripts/build.sh asan -DMINFER_TESTS=ON -DMINFER_FUZZ_SECONDS=5 -- minfer "${untrusted[@]}"
  # Without a few that compute long, whose code smaller tests run too: the release build has them.
  run_tests asan -L "^(fuzz|$(IFS='|'; echo "${untrusted[*]}"))\$" \
    -E 'LongRunsTakeLinearTime|models/(AnswerStream.AMegabyteOfWhatMisleads|JsonSchemaBounds.(Products|Complements)OfManyParts)|engine/(DemoModelTest|Models/Invariance.WithATable|DraftModel.TheSameModelIsAlwaysRight|EngineSoakTest.(AStepAhead|ByPriority|FirstCome|ShortestFirst)|Speculation.(AloneAndInBatches|GivesTheSameOutput)|StopMatcherTest.(EverySplit|PiecesThatMayNot)|PromptLogprobsTest.DoNotDependOn)|server/(KernelBenchTest|SseParser.EventsAreTheSame|ModelArgumentTest.RunTakes|CommandsTest.(BenchMeasures|EvalComputes)|Commands/HelpTest.ItsExamplesWork)'
}

# The pool and kernels on it, recorder and writer, the engine over both, the server's I/O beside it, the requests that it parses
# on other threads; not the commands, which have one thread besides.
run_threads() {
  section "thread sanitizer"
  scripts/build.sh tsan -DMINFER_TESTS=ON -- minfer kernels_tests profiling_tests engine_tests server_tests
  run_tests tsan -R '^(kernels/(ThreadPool|CpuBackend|Attention|.*Linear)|profiling/(StepRecorder|ProfileWriter|LiveProfile)|engine/(Engine|ConstrainedAhead)|server/)' \
    -E 'engine/EngineSoakTest.(ByPriority|FirstCome)|server/(Commands|KernelBench|SseParser|ModelArgument|JsonBody|StreamSplit|OpenAi)'
}

scripts/setup.sh --tests
for stage in "${stages[@]}"; do "run_$stage"; done
section "passed: ${stages[*]}"
