#!/usr/bin/env bash
# Installs the packages that the tests need, builds everything and runs the tests.
#   scripts/test.sh              checks, release build, all tests
#   scripts/test.sh --only NAME  builds and runs one suite of GoogleTest (EngineTest), or one other test of ctest (server/clients)
#   scripts/test.sh --complete   all tests, CUDA code changed since nightly.sh compiled all of it (if there is nvcc), --asan, --threads
#   scripts/test.sh --cuda       only CUDA code changed since nightly.sh compiled all of it
#   scripts/test.sh --asan       only the address and undefined-behaviour sanitizers: code that reads foreign input, and the fuzz targets
#   scripts/test.sh --threads    only the thread sanitizer: code that uses more than one thread
# scripts/nightly.sh runs the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
stages=(release)
case "${1:-}" in
  "") ;;
  --only) stages=(only) only=${2:?--only needs the name of a suite} ;;
  --complete) stages=(release cuda asan threads) ;;
  --cuda) stages=(cuda) ;;
  --asan) stages=(asan) ;;
  --threads) stages=(threads) ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

section() { printf '\n== %s (%d min %02d s)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }
# Some tests wait for clients and browsers: one more than there are cores keeps the cores busy.
run_tests() { ctest --preset "$1" -j $(($(nproc) + 1)) "${@:2}"; }

run_only() {
  local files targets target
  files=$(grep -rlE "^[A-Z_]+\\(([A-Za-z0-9_]+, *)?$only[,)]" tests/*/ --include='*_test.cpp' | grep -v '/cuda_' || true)
  if [ -z "$files" ]; then
    scripts/build.sh release -DMINFER_TESTS=ON
    run_tests release --no-tests=error -R "^(.*/)?$only\$"
    return
  fi
  read -ra targets <<<"$(cut -d/ -f2 <<<"$files" | sort -u | sed 's/$/_tests/' | tr '\n' ' ')"
  scripts/build.sh release -DMINFER_TESTS=ON -- "${targets[@]}"
  for target in "${targets[@]}"; do
    CUDA_VISIBLE_DEVICES='' MINFER_CEILINGS=skip "build/release/$target" --gtest_filter="$only.*:*/$only.*:$only/*:*/$only/*"
  done
}

run_release() {
  section "layout"
  python3 scripts/check/check_includes.py
  git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run --Werror
  echo "clang-format: nothing to change"
  scripts/check/count_lines.py --most 125400  # added lines are paid for by removed ones
  git apply --check tests/benchmarks/planted_faults.patch
  echo "planted faults: the patch applies"
  if git grep -nE '^(<{7}|>{7}) '; then
    echo "these lines are left of a merge: keep one side of each" >&2
    return 1
  fi

  section "release, and other people's Python packages from PyPI meanwhile"
  # Without them (status 77) the tests that need them report that they are skipped.
  local packages
  packages=$(mktemp)
  scripts/test_env.sh >"$packages" 2>&1 &
  local test_env=$! status=0 begin=$SECONDS
  scripts/build.sh release -DMINFER_TESTS=ON
  compiled=$((SECONDS - begin > 570 ? 570 : SECONDS - begin))
  wait $test_env || status=$?
  cat "$packages"
  rm -f "$packages"
  [ $status -eq 0 ] || [ $status -eq 77 ]
  section "tests"
  run_tests release
}

run_cuda() {
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    section "CUDA code that changed since $(head -c 9 .ci/cuda_compiled) compiles, also for a GPU with less shared memory"
    local since
    since=$(cat .ci/cuda_compiled)
    git cat-file -e "$since" || since=$(git hash-object -t tree /dev/null)  # not in this clone: all of it
    cmake --preset cuda -DMINFER_TESTS=ON >/dev/null
    scripts/check/compile_kernels.py build/cuda --since "$since"
  else
    echo "no nvcc: the CUDA code is not compiled"
  fi
}

# Tests that compute for long are left out: the release build runs them, and scripts/nightly.sh with sanitizers.
run_asan() {
  section "address and undefined-behaviour sanitizers"
  local fuzz=(tests/fuzz/fuzz_*.cpp) long
  fuzz=("${fuzz[@]##*/}")
  scripts/build.sh asan -DMINFER_TESTS=ON -DMINFER_FUZZ_SECONDS=2 -- minfer checked_tests "${fuzz[@]%.cpp}"
  long=(JinjaLimits.Hold{Memory,Time,WorkThatMakesNothing,TheDepthOfParsing} JinjaLimits.{CountValues,ALongChain}\* TokenizerMemory.\*
    ProfileLimits.NoNumber\* \*LongRunsTakeLinearTime\* JsonSchemaBounds.\* TokenGrammar.{ExponentialSets,AMaskThatTakes}\* JsonSchema.Numbers
    GrammarLanguage.{LongRepetitions,WhatIsTooLarge}\* Regex.{IsBounded,MatchesWholeTexts} \*ChatGrammarOfFormat.RequiredCalls\*
    {KernelLines,CutProfileTest}.EveryCut\* SseParser.EventsAreTheSame\* StreamSplitTest.\* Choices.MayBeMany
    AnswerStream.AMegabyte\* AnswerFixtures.\* GgufLimits.\* \*ChatGrammarOfFormat.OptionalCalls\* JsonBodyTest.HoldsItsLimits\*
    JsonSchemaLogic.ManyConditions\*)
  GTEST_FILTER="-$(IFS=:; echo "${long[*]}")" run_tests asan -L '^(fuzz|checked_tests)$'
}

run_threads() {
  section "thread sanitizer"
  scripts/build.sh tsan -DMINFER_TESTS=ON -- minfer checked_tests
  # Long tests are left out if shorter ones take the same paths between threads; also LongRecording: the sanitizer's own memory would grow.
  local long=(StreamSplit\* LongRecording.\* EngineSoakTest.{ShortestFirst,AStepAhead,ByPriority}\* ConstrainedAhead.Answers\*
    HttpRandomBytesTest.\* WrongRequestTest.\* ProfileRoutesTest.Views\* Ranks.AnEngineOfTwo\* ResponsesAnswerTest.\* \*EngineWindows.\*)
  GTEST_FILTER="-$(IFS=:; echo "${long[*]}")" run_tests tsan -L '^checked_tests$'
}

scripts/setup.sh --tests
# Seconds of each sanitizer on two cores with a full ccache and with an empty one. The release build, which takes 570 s with an empty one,
# tells how full it is. A sanitizer that might end after 14 minutes is skipped, and the check says so.
declare -A full=([asan]=151 [threads]=115) empty=([asan]=472 [threads]=336)
compiled=0 passed=()
for stage in "${stages[@]}"; do
  expected=$((${full[$stage]:-0} + (${empty[$stage]:-0} - ${full[$stage]:-0}) * compiled / 570))
  if [ ${#stages[@]} -gt 1 ] && [ $((SECONDS + expected)) -gt 840 ]; then
    section "$stage: skipped, since it might end after 14 minutes; scripts/test.sh --$stage and scripts/nightly.sh run it"
    continue
  fi
  "run_$stage"
  passed+=("$stage")
done
section "passed: ${passed[*]}"
