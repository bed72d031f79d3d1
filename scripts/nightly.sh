#!/usr/bin/env bash
# The tests that scripts/test.sh leaves out for their time, some two hours on two cores: all tests under both sanitizers, fuzz targets
# for ten minutes each, and all kernels for GPUs other than Hopper.
#   scripts/nightly.sh [asan] [threads] [kernels]     all three without arguments
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- asan threads kernels

night_asan() {
  scripts/build.sh asan -DMINFER_TESTS=ON -DMINFER_FUZZ_SECONDS=600
  ctest --preset asan -j "$(nproc)" -LE '^checked_tests$'
}
night_threads() {
  scripts/build.sh tsan -DMINFER_TESTS=ON
  ctest --preset tsan -j "$(nproc)" -LE '^checked_tests$'
}
night_kernels() {
  scripts/build.sh cuda -DMINFER_TESTS=ON -- minfer cuda_tests
  scripts/check/compile_kernels.py build/cuda sm_86 sm_89 sm_120
  git rev-parse HEAD >.ci/cuda_compiled  # commit this file: checks compile the code that changed since
}

for part in "$@"; do
  declare -F "night_$part" >/dev/null || { sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 2; }
done
scripts/setup.sh --tests
for part in "$@"; do "night_$part"; done
echo "nightly: passed: $*"
