#!/usr/bin/env bash
# The server's load tests and hostile-client tests at their full size (minutes): 1,000 clients, three in ten of which leave, 10,000
# idle connections, SIGTERM under load x 100, and every fault. Builds the release preset; prints the measurements.
#   scripts/bench/soak_server.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-1}
tests='DisconnectTest*:StepsTest*:EngineFailureTest*:HangTest*:Slow*Test*:WrongRequestTest*:HttpRandomBytesTest*:Serve*Test*'
tests+=':StreamSplitTest*'
scripts/build.sh release -DMINFER_TESTS=ON -- minfer server_tests
export MINFER_SOAK=1 MINFER_CEILINGS=skip CUDA_VISIBLE_DEVICES=
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
for ((round = 1; round <= rounds; round++)); do
  echo "== round $round"
  MINFER_TEST_SEED=$round MINFER_TEST_OPS=4000000 build/release/server_tests --gtest_brief=1 \
    --gtest_filter="$tests" --gtest_output="json:$results/tests.json"
  python3 - "$results/tests.json" <<'PYTHON'
import json, sys
fixed = {"name", "file", "line", "status", "result", "timestamp", "time", "classname", "failures"}
for suite in json.load(open(sys.argv[1]))["testsuites"]:
    for test in suite["testsuite"]:
        measured = ", ".join(f"{k} {v}" for k, v in test.items() if k not in fixed)
        print(f"  {suite['name']}.{test['name']} {test['time']}" + (f": {measured}" if measured else ""))
PYTHON
done
