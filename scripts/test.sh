#!/usr/bin/env bash
# Installs what the tests need, builds everything and runs it.
#   scripts/test.sh             checks, release build, all tests
#   scripts/test.sh --complete  the same, then the sanitizer builds with their tests and a short run of the fuzz targets
set -euo pipefail
cd "$(dirname "$0")/.."
complete=false
case "${1:-}" in
  "") ;;
  --complete) complete=true ;;
  *) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

section() { printf '\n== %s\n' "$*"; }
run_tests() { ctest --preset "$1" -j "$(nproc)" "${@:2}"; }

scripts/setup.sh --tests

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
  scripts/build.sh asan
  run_tests asan
  section "thread sanitizer"
  # Those that use more than one thread: the pool and kernels on it, recorder and writer, the engine over both,
  # the server's I/O beside it.
  threaded=(kernels_thread_pool_test kernels_linear_test kernels_attention_test kernels_cpu_backend_test profiling_recorder_test
    profiling_profile_writer_test engine_engine_test server_http_server_test server_disconnect_test
    server_engine_failure_test)
  scripts/build.sh tsan -- "${threaded[@]}"
  run_tests tsan -L "^($(IFS='|'; echo "${threaded[*]}"))\$"
fi
