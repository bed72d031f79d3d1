#!/usr/bin/env bash
# The server's tests of load and hostile clients at their full size (minutes): 1,000 clients of whom three in ten leave, 10,000
# idle connections, SIGTERM under load x 100, and every fault. Builds the release preset; prints what was measured.
#   scripts/soak_server.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-1}
tests=(server_disconnect_test server_engine_failure_test server_hostile_clients_test server_http_random_bytes_test
  server_serve_process_test server_stream_split_test)
scripts/build.sh release -DMINFER_TESTS=ON -- minfer "${tests[@]}"
export MINFER_SOAK=1 MINFER_CEILINGS=skip CUDA_VISIBLE_DEVICES=
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
for ((round = 1; round <= rounds; round++)); do
  for test in "${tests[@]}"; do
    echo "== round $round: $test"
    MINFER_TEST_SEED=$round MINFER_TEST_OPS=4000000 "build/release/$test" --gtest_brief=1 \
      --gtest_output="json:$results/$test.json"
    python3 - "$results/$test.json" <<'PYTHON'
import json, sys
fixed = {"name", "file", "line", "status", "result", "timestamp", "time", "classname", "failures"}
for suite in json.load(open(sys.argv[1]))["testsuites"]:
    for test in suite["testsuite"]:
        measured = ", ".join(f"{k} {v}" for k, v in test.items() if k not in fixed)
        print(f"  {suite['name']}.{test['name']} {test['time']}" + (f": {measured}" if measured else ""))
PYTHON
  done
done
