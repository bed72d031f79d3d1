#!/usr/bin/env bash
# Installs what the tests need, builds everything and runs it.
#   scripts/test.sh             checks, release build, all tests
#   scripts/test.sh --complete  the same, then the CUDA code, and the address sanitizer's build with a short run of the fuzz targets
#   scripts/test.sh --threads   the thread sanitizer's build with the tests that use more than one thread, alone
set -euo pipefail
cd "$(dirname "$0")/.."
complete=false
threads=false
case "${1:-}" in
  "") ;;
  --complete) complete=true ;;
  --threads) threads=true ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

section() { printf '\n== %s\n' "$*"; }
run_tests() { ctest --preset "$1" -j "$(nproc)" "${@:2}"; }

scripts/setup.sh --tests

if $threads; then
  section "thread sanitizer"
  # Those that use more than one thread: the pool and kernels on it, recorder and writer, the engine over both,
  # the server's I/O beside it.
  threaded=(kernels_thread_pool_test kernels_linear_test kernels_attention_test kernels_cpu_backend_test profiling_recorder_test
    profiling_profile_writer_test engine_engine_test server_http_server_test server_disconnect_test
    server_engine_failure_test)
  scripts/build.sh tsan -- "${threaded[@]}"
  run_tests tsan -L "^($(IFS='|'; echo "${threaded[*]}"))\$"
  exit
fi

section "layout"
python3 scripts/check_includes.py
git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run --Werror
echo "clang-format: nothing to change"

section "other people's Python packages, from PyPI"
# Without them (status 77) the tests that run them say that they are skipped.
scripts/test_env.sh || [ $? -eq 77 ]

section "release"
scripts/build.sh release -DMINFER_TESTS=ON -DMINFER_WERROR=ON
run_tests release

if $complete; then
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    section "CUDA code compiles"
    scripts/build.sh cuda -DMINFER_TESTS=OFF -DMINFER_WERROR=ON -- minfer
  else
    echo "no nvcc: the CUDA code is not compiled"
  fi
  section "address and undefined-behaviour sanitizers"
  # Those that read what others wrote (files, requests, templates) and those whose objects come and go: models, server, engine.
  untrusted=(minfer)
  for test in tests/models/*_test.cpp tests/server/[!c]*_test.cpp tests/server/c[!u]*_test.cpp tests/engine/engine_*test.cpp; do
    folder=$(basename "$(dirname "$test")")
    untrusted+=("${folder}_$(basename "$test" .cpp)")
  done
  for target in tests/fuzz/fuzz_*.cpp; do untrusted+=("$(basename "$target" .cpp)"); done
  scripts/build.sh asan -- "${untrusted[@]}"
  run_tests asan -L "^(fuzz|$(IFS='|'; echo "${untrusted[*]}"))\$"
fi
