#!/usr/bin/env bash
# Schemathesis against `minfer serve`: requests made from the server's own /openapi.json, right ones and wrong ones. Every answer must be as
# the document says: its status, content type and schema; wrong requests must be refused; nothing may be a 5xx.
#   tests/clients/by_hand/schemathesis.sh MINFER [Schemathesis's arguments, e.g. --max-examples 200 --seed 7]
# Its environment, build/schemathesis-env, is made unless it is there already.
set -euo pipefail
minfer=$(realpath "${1:?the program is missing: $0 MINFER}")
shift
cd "$(dirname "$0")/../../.."
env=$PWD/build/schemathesis-env
wanted=schemathesis==4.32.5
if ! "$env/bin/python" -m pip freeze 2>/dev/null | grep -qx "$wanted"; then
  rm -rf "$env"
  "${PYTHON:-python3}" -m venv "$env"
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check "$wanted"
fi

folder=$(mktemp -d)
: >"$folder/log"
# The model answers to any name, and writes little. What it is given cannot always be served, though the schema allows it (prompts that are
# too long, grammars that are none, conversations that a chat template refuses): positive_data_acceptance is left out.
(cd "$folder" && MINFER_CEILINGS=skip exec "$minfer" serve --port 0 --served-model-name minfer-demo --served-model-name '*' \
  --max-model-len 100 --log-format json --no-access-log >"$folder/log" 2>&1) &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
url=
for _ in $(seq 1200); do
  url=$(sed -n 's/.*"event":"serving","url":"\([^"]*\)".*/\1/p' "$folder/log")
  [[ -n $url ]] || ! kill -0 "$server" 2>/dev/null || { sleep 0.1; continue; }
  break
done
[[ -n $url ]] || { cat "$folder/log" >&2; exit 1; }

cd "$folder"  # where it keeps what it has seen
# /profile/events is a stream without end.
"$env/bin/schemathesis" run "$url/openapi.json" --exclude-path /profile/events --max-examples 20 --continue-on-failure --no-color \
  --phases coverage,fuzzing,stateful --exclude-checks positive_data_acceptance "$@"
