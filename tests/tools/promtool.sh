#!/usr/bin/env bash
# Print where promtool is. Where there is none, take it out of Debian's package `prometheus`, which is not
# installed: no service, no user, 19 MB once per machine. apt checks the package's signature.
#
#   tests/tools/promtool.sh        ->  /home/me/.cache/leasehold-tools/promtool/usr/bin/promtool
set -euo pipefail

if command -v promtool; then exit; fi
cache=${LEASEHOLD_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/leasehold-tools}
tool=$cache/promtool/usr/bin/promtool
mkdir -p "$cache"
if [ ! -x "$tool" ]; then
  command -v apt-get > /dev/null || { echo "promtool.sh: there is no promtool and no apt-get here; install Prometheus" >&2; exit 2; }
  exec 9> "$cache/promtool.lock"
  flock 9  # two tests may ask at once
  if [ ! -x "$tool" ]; then
    echo "promtool.sh: fetching promtool, 19 MB" >&2
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    if ! apt-get download -qq prometheus 2> /dev/null; then  # an image without lists of packages
      sudo=()
      ((EUID == 0)) || sudo=(sudo -n)
      "${sudo[@]}" apt-get update -qq
      apt-get download -qq prometheus
    fi >&2
    dpkg-deb --extract prometheus_*.deb new
    rm -rf "$cache/promtool"
    mv new "$cache/promtool"
  fi
fi
echo "$tool"
