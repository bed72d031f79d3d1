#!/usr/bin/env bash
# Configures and builds one preset: scripts/build.sh PRESET [cmake options...] [-- targets...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
options=()
while [ $# -gt 0 ] && [ "$1" != "--" ]; do options+=("$1"); shift; done
[ $# -gt 0 ] && shift
# Checkouts in different folders share cached objects.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_IGNOREOPTIONS="-fmacro-prefix-map=* --param=ggc-*"
echo "build: preset $preset ($(nproc) cores)"
cmake --preset "$preset" "${options[@]}" >"/tmp/minfer-configure-$$.log" || { cat "/tmp/minfer-configure-$$.log"; exit 1; }
rm -f "/tmp/minfer-configure-$$.log"
cmake --build --preset "$preset" -j "$(nproc)" ${@:+--target "$@"}
