#!/usr/bin/env bash
# The Python environment of the tests in which other people's packages take part: build/test-env, with the versions of
# tests/clients/requirements.txt from PyPI. Exit status 77: it is not there and could not be made, so skip.
#   scripts/test_env.sh               makes it, unless it is there already
#   scripts/test_env.sh python ARG... runs Python in it
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
env=$root/build/test-env
wanted=$root/tests/clients/requirements.txt
limit_s=240

is_made() { cmp -s "$wanted" "$env/requirements.txt"; }  # copied when all else is done
skip() { echo "skipped: $*"; exit 77; }

if [ $# -gt 0 ]; then
  [ "$1" = python ] || { sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2; }
  is_made || skip "build/test-env is missing or outdated; scripts/test_env.sh makes it from PyPI"
  exec "$env/bin/python" "${@:2}"
fi

if is_made; then
  echo "test-env: is there"
  exit 0
fi
rm -rf "$env"
mkdir -p "$root/build"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
start=$SECONDS
python3 -m venv "$env" >"$log" 2>&1 || skip "python3 makes no virtual environments (Debian: python3-venv): $(tail -1 "$log")"
status=0
timeout "$limit_s" "$env/bin/python" -m pip install --quiet --disable-pip-version-check --retries 2 --timeout 15 \
  --no-deps --no-compile --only-binary :all: -r "$wanted" >"$log" 2>&1 || status=$?
if [ $status -eq 124 ]; then skip "PyPI took longer than $limit_s s"; fi
if [ $status -ne 0 ]; then
  if grep -qE 'Retrying|ConnectionError|NewConnectionError|timed out' "$log"; then
    skip "PyPI cannot be reached: $(grep -m1 -E 'Retrying|Connection|timed out' "$log" | cut -c1-300)"
  fi
  cat "$log" >&2
  exit 1
fi
cp "$wanted" "$env/requirements.txt"
echo "test-env: $(grep -c == "$wanted") packages in $((SECONDS - start)) s"
