#!/usr/bin/env bash
# Installs the Debian 12 packages that minfer is built from, and nothing else. Run it as root, or through sudo.
#   scripts/setup.sh          the packages for the program
#   scripts/setup.sh --tests  also those for the tests and checks
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config libfmt-dev libcli11-dev nlohmann-json3-dev
  libpcre2-dev libutf8proc-dev libxxhash-dev libsimdjson-dev libboost1.81-dev prometheus-cpp-dev
  libjs-chart.js zlib1g-dev cppzmq-dev curl libcurl4-openssl-dev libssl-dev)
tests=(libgtest-dev libgmock-dev libbenchmark-dev clang-14 libclang-rt-14-dev lld clang-format-14 python3
  python3-venv chromium zsh fish haproxy libopenmpi-dev openmpi-bin iproute2)

case "${1:-}" in
  "") wanted=("${build[@]}") ;;
  --tests) wanted=("${build[@]}" "${tests[@]}") ;;
  *) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all ${#wanted[@]} packages are installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: run me as root, or install sudo; missing: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "setup: done"
