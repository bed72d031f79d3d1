#!/usr/bin/env bash
# From a fresh Debian 12 machine to a running model: installs, builds, then lets the demo model write, measures it and shows
# where the time of its steps went.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
scripts/build.sh release -DMINFER_TESTS=OFF -- minfer
minfer=build/release/minfer
profile=build/demo-profile.jsonl

say() { printf '\n$ %s\n' "$*"; }

say "$minfer run \"Once upon a time\" -n 120 --temperature 0.8 --seed 7"
$minfer run "Once upon a time" -n 120 --temperature 0.8 --seed 7

say "$minfer run --chat \"What is 23 plus 45?\""
$minfer run --chat "What is 23 plus 45?" </dev/null

say "$minfer bench -p 512 -n 128 -r 5"
$minfer bench -p 512 -n 128 -r 5

say "$minfer bench --num-prompts 32 --input-len 128 --output-len 64 --profile-out $profile"
$minfer bench --num-prompts 32 --input-len 128 --output-len 64 --profile-out $profile

say "$minfer profile report $profile"
$minfer profile report $profile
