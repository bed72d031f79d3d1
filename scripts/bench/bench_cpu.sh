#!/usr/bin/env bash
# Measures the CPU backend and writes one JSON object a line to tests/benchmarks/results/cpu-DATE.jsonl: first the machine, the
# commit and the ceilings, then each result with its command. Takes about five minutes; nothing else should run on the machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
export XDG_CACHE_HOME
XDG_CACHE_HOME=$(mktemp -d)  # ceilings are measured anew
trap 'rm -rf "$XDG_CACHE_HOME"' EXIT

scripts/build.sh release -DMINFER_TESTS=ON -- minfer scheduler_benchmark
minfer=build/release/minfer
out=${1:-tests/benchmarks/results/cpu-$(date -u +%Y-%m-%d).jsonl}
mkdir -p "$(dirname "$out")"
: >"$out"

record() {  # record COMMAND...: runs it and appends its JSON lines together with the command
  echo "+ $*" >&2
  "$@" | python3 -c '
import json, sys
for line in sys.stdin:
    print(json.dumps({"command": sys.argv[1], **json.loads(line)}))' "$*" >>"$out"
}

$minfer bench -p 0 -n 8 -r 1 --profile-out "$XDG_CACHE_HOME/profile.jsonl" >/dev/null
python3 - "$XDG_CACHE_HOME/profile.jsonl" >>"$out" <<'PY'
import datetime, json, os, subprocess, sys
header = json.loads(open(sys.argv[1]).readline())["header"]
commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
print(json.dumps({"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "commit": commit,
                  "device": header["device"], "cores": os.cpu_count(), "ceilings": header["ceilings"], "load": os.getloadavg()[0]}))
PY
for type in bf16 q8_0 q4_k_m; do
  record $minfer bench -m "synthetic:llama-272m:$type" -p 256 -n 64 -r 5 --max-model-len 512 -o jsonl
  record $minfer bench -m "synthetic:llama-272m:$type" -p 0 -n 64 -r 3 --parallel 16 --max-model-len 512 -o jsonl
done
record $minfer bench -p 512 -n 128 -r 10 -o jsonl
record $minfer bench --num-prompts 64 --input-len 128 --output-len 64 -o jsonl
record $minfer bench --profile-overhead -n 128 -r 40 -o jsonl
echo "+ build/release/scheduler_benchmark" >&2
build/release/scheduler_benchmark --benchmark_repetitions=5 --benchmark_report_aggregates_only=true \
  --benchmark_format=json 2>/dev/null | python3 -c '
import json, sys
for row in json.load(sys.stdin)["benchmarks"]:
    if row["aggregate_name"] in ("median", "stddev"):
        print(json.dumps({"command": "scheduler_benchmark", "name": row["name"], "real_time": row["real_time"],
                          "cpu_time": row["cpu_time"], "time_unit": row["time_unit"]}))' >>"$out"
python3 - "$out" <<'PY'
import json, sys
machine, *rows = map(json.loads, open(sys.argv[1]))
for row in rows:
    figures = [f"{name} {row[name]:.4g}" for name in ("median_ts", "output_throughput", "overhead", "real_time") if name in row]
    if row.get("n_gen") and row.get("n_parallel") == 1 and "median_ts" in row:  # a token reads all weights
        figures.append(f"{row['model_size'] * row['median_ts'] / 1e9 / machine['ceilings']['read_gbps']:.1%} of the read bandwidth")
    print(row.get("name", row["command"]), *figures, sep="  ")
PY
