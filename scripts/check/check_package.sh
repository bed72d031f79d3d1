#!/usr/bin/env bash
# Builds the Debian package, installs it in a fresh Debian 12 that holds nothing else, and uses it there: generates, serves,
# completes, removes. Run it as root; takes minutes. Needs the network for the packages that it depends on.
#   scripts/check/check_package.sh [PACKAGE.deb]    without an argument it first builds the package
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" -eq 0 ] || { echo "check_package: a fresh root needs root" >&2; exit 1; }
say() { printf '== %s (%d s)\n' "$*" "$SECONDS"; }

command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap
if [ $# -eq 0 ]; then
  scripts/setup.sh
  scripts/build.sh release -- minfer
  say "built"
  (cd build/release && rm -f ./*.deb && cpack -G DEB >/dev/null)
  set -- build/release/minfer_*.deb
fi
package=$1
dpkg-deb --info "$package" | grep -E '^ (Package|Version|Depends|Installed-Size)'
say "package $(basename "$package"), $(stat -c %s "$package") bytes"

root=$(mktemp -d /var/tmp/minfer-root.XXXXXX)
chmod 755 "$root"
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  for mounted in proc dev; do mountpoint -q "$root/$mounted" && umount "$root/$mounted"; done
  rm -rf --one-file-system "$root"
}
trap finish EXIT
debootstrap --variant=minbase bookworm "$root" "${MINFER_MIRROR:-http://deb.debian.org/debian}" >/var/tmp/minfer-debootstrap.log ||
  { tail -20 /var/tmp/minfer-debootstrap.log; exit 1; }
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
say "fresh Debian 12"

inside=(chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive)
cp "$package" "$root/minfer.deb"
"${inside[@]}" apt-get update -qq
"${inside[@]}" apt-get install -y -qq --no-install-recommends /minfer.deb curl >"$root/apt.log" 2>&1 || { tail -20 "$root/apt.log"; exit 1; }
say "installed with $("${inside[@]}" dpkg-query -f '.\n' -W | wc -l) packages in all"

"${inside[@]}" minfer run -n 5 hi
"${inside[@]}" minfer run --chat "What is 23 plus 45?" </dev/null
for file in /etc/default/minfer /lib/systemd/system/minfer.service /usr/share/doc/minfer/copyright /usr/share/doc/minfer/examples/haproxy.cfg \
  /usr/share/bash-completion/completions/minfer /usr/share/zsh/vendor-completions/_minfer \
  /usr/share/fish/vendor_completions.d/minfer.fish /usr/share/man/man1/minfer.1 /usr/share/man/man1/minfer-profile-explain.1; do
  "${inside[@]}" test -s "$file" || { echo "check_package: no $file" >&2; exit 1; }
done
"${inside[@]}" grep -q "Chart.js" /usr/share/doc/minfer/copyright
"${inside[@]}" bash -c 'source /usr/share/bash-completion/completions/minfer; COMP_WORDS=(minfer run --devi); COMP_CWORD=2; _minfer
  [ "${COMPREPLY[*]}" = --device ]'
say "generates, completes"

# The unit's command line, with the options of its options file.
"${inside[@]}" sed -i 's|^MINFER_OPTIONS=.*|MINFER_OPTIONS="--port 8765 --max-model-len 1024"|' /etc/default/minfer
"${inside[@]}" sh -c '. /etc/default/minfer; eval exec "$(sed -n s/^ExecStart=//p /lib/systemd/system/minfer.service)"' \
  >"$root/serve.log" 2>&1 &
server=$!
for _ in $(seq 1 600); do
  command=$(sed -n 's/^  \(curl .*\)/\1/p' "$root/serve.log")
  [ -z "$command" ] || break
  kill -0 "$server" || { cat "$root/serve.log"; exit 1; }
  sleep 0.1
done
cat "$root/serve.log"
printf '$ %s\n' "$command"
"${inside[@]}" bash -c "$command" 2>/dev/null | tee "$root/answer.json"
grep -q '"choices"' "$root/answer.json"
kill "$server"
wait "$server"
server=
say "serves"

"${inside[@]}" apt-get install -y -qq --no-install-recommends systemd >"$root/apt.log" 2>&1
"${inside[@]}" systemd-analyze verify /lib/systemd/system/minfer.service
"${inside[@]}" systemd-analyze security --offline=yes minfer.service | tail -1
"${inside[@]}" apt-get purge -y -qq minfer >/dev/null 2>&1
if "${inside[@]}" find /usr /etc /lib/ -name '*minfer*' | grep .; then
  echo "check_package: left behind" >&2
  exit 1
fi
say "the unit is in order, and nothing is left when it is removed"
