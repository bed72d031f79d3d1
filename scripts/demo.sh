#!/usr/bin/env bash
# From a fresh Debian 12 machine to a running model: installs, builds, lets the demo model write, measures it, shows how its
# steps spent their time, and serves it.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
scripts/build.sh release -DMINFER_TESTS=OFF -- minfer
minfer=build/release/minfer
profile=build/demo-profile.jsonl

say() { printf '\n$ %s\n' "$1"; }
run() { say "$1"; eval "$1"; }

run "$minfer run \"Once upon a time\" -n 120 --temperature 0.8 --seed 7"
run "$minfer run --chat \"What is 23 plus 45?\"" </dev/null
run "$minfer bench -p 512 -n 128 -r 5"
run "$minfer bench --num-prompts 32 --input-len 128 --output-len 64 --profile-out $profile"
run "$minfer profile report $profile"

say "$minfer serve --port 0 &"
log=build/demo-serve.log
$minfer serve --port 0 >"$log" 2>&1 &  # a free port
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
until url=$(grep -om1 'http://127.0.0.1:[0-9]*' "$log"); do
  kill -0 "$server" || { cat "$log"; exit 1; }
  sleep 0.05
done

ask() { say "curl $url$1 -d '$2'"; curl -sSN "$url$1" -d "$2"; }
ask /v1/completions '{"model": "minfer-demo", "prompt": "Once upon a time", "max_tokens": 40, "temperature": 0.8, "seed": 7}'
ask /v1/chat/completions '{"model": "minfer-demo", "messages": [{"role": "user", "content": "What is 23 plus 45?"}], "stream": true, "stream_interval": 4}'
kill "$server"
wait "$server"

printf '\nNext: %s serve, then open http://127.0.0.1:8000 in a browser, or give http://127.0.0.1:8000/v1 to any OpenAI client.\n' \
  "$minfer"
