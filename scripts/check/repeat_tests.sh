#!/usr/bin/env bash
# Runs the whole test suite again and again, to find tests that depend on the speed of the machine or on its other work: N rounds
# on the machine as it is, then rounds beside busy processes, then rounds pinned to one core. Builds first. Prints a line for each
# round, with the place of its output if it failed, and at the end each test that failed even once: how often, and under which condition.
#   scripts/check/repeat_tests.sh N [BUSY [ONE_CORE]] [OPTION...] [-- CTEST_OPTION...]
#     BUSY, ONE_CORE    rounds beside busy processes (default N/2), rounds on one core (default N/4); 0 leaves them out
#     --preset PRESET   the build to run (default release)
#     --targets LIST    builds these targets, given as one word, instead of all
#     --jobs JOBS       tests at a time in every condition (default: one for each core)
#     --out FOLDER      where to keep the output of failed rounds (default build/repeat-tests)
#     CTEST_OPTION...   selects tests, for example -R server/; GTEST_FILTER selects among GoogleTest's
# Exit status: 0 if every test passed every time, 1 if one failed, 2 for a mistake on the command line.
set -euo pipefail
cd "$(dirname "$0")/../.."
usage() { sed -n '2,13s/^# \{0,1\}//p' "$0"; exit "$1"; }
mistake() { echo "repeat_tests: $*" >&2; usage 2 >&2; }

rounds=()
preset=release targets="" jobs=$(nproc) out=build/repeat-tests
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage 0 ;;
    --preset | --targets | --jobs | --out)
      [ $# -ge 2 ] || mistake "$1 needs a value"
      declare "${1#--}=$2"
      shift
      ;;
    --) shift; break ;;
    *[!0-9]* | "") mistake "expected a number of rounds or an option, found '$1'" ;;
    *) rounds+=("$1") ;;
  esac
  shift
done
chosen=("$@")  # ctest's own options
[ ${#rounds[@]} -ge 1 ] && [ ${#rounds[@]} -le 3 ] || mistake "expected one to three numbers of rounds, found ${#rounds[@]}"
idle_rounds=${rounds[0]} busy_rounds=${rounds[1]:-$(((rounds[0] + 1) / 2))}
one_core_rounds=${rounds[2]:-$(((rounds[0] + 3) / 4))}

# Enough to keep every core busy, and at least two.
busy_count=$(($(nproc) > 2 ? $(nproc) : 2))
busy=()
trap '[ ${#busy[@]} -eq 0 ] || kill "${busy[@]}"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

scripts/test_env.sh || [ $? -eq 77 ]
read -ra wanted <<<"$targets"
scripts/build.sh "$preset" -DMINFER_TESTS=ON ${wanted:+-- "${wanted[@]}"}
mkdir -p "$out"
rm -f "$out"/{idle,busy,one-core}-*.log
failed_tests=build/$preset/Testing/Temporary/LastTestsFailed.log  # lines NUMBER:NAME, of ctest: a shard of a folder, or a test of its own
failures=$out/failures.txt                                        # a line for each failed test of a round: its name and the condition
: >"$failures"

# One round: run_round CONDITION ROUND ROUNDS COMMAND...; the command runs ctest.
run_round() {
  local condition=$1 log=$out/$1-$2.log status=0 start=$SECONDS
  local round="$condition: round $2 of $3"
  shift 3
  rm -f "$failed_tests"
  "$@" ctest --preset "$preset" --no-tests=error --output-on-failure -j "$jobs" "${chosen[@]}" >"$log" 2>&1 || status=$?
  if [ $status -eq 0 ]; then
    rm "$log"
    echo "$round passed in $((SECONDS - start)) s"
    return
  fi
  echo "$round FAILED in $((SECONDS - start)) s: see $log"
  # A shard that failed, and its failed tests: none if the shard broke off. Neither: ctest itself failed.
  { sed -n 's/^\[  FAILED  \] \([^ ,]*\).* ms)$/\1/p' "$log"
    if [ -s "$failed_tests" ]; then cut -d: -f2 "$failed_tests"; else echo "ctest"; fi; } | sort -u | sed "s/\$/, $condition/" >>"$failures"
}

for ((i = 1; i <= idle_rounds; i++)); do run_round idle $i "$idle_rounds"; done
if [ "$busy_rounds" -gt 0 ]; then
  for ((i = 0; i < busy_count; i++)); do
    while :; do :; done &
    busy+=($!)
  done
  for ((i = 1; i <= busy_rounds; i++)); do run_round busy $i "$busy_rounds"; done
  kill "${busy[@]}"
  busy=()
fi
core=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')  # the first core that this process may use
for ((i = 1; i <= one_core_rounds; i++)); do run_round one-core $i "$one_core_rounds" taskset -c "$core"; done

printf '\n%s rounds idle, %s beside %s busy processes, %s on one core: ' "$idle_rounds" "$busy_rounds" "$busy_count" "$one_core_rounds"
[ -s "$failures" ] || { echo "no test failed"; exit; }
echo "how often each of these tests failed"
sort "$failures" | uniq -c
exit 1
