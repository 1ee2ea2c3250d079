#!/usr/bin/env bash
# Build a tool that a test needs, once, and print where the program is.
#
#   tests/tools/build.sh helm      ->  /home/me/.cache/leasehold-tools/3f0c.../helm
#
# Each folder beside this file is a Go module that names its programs as `tool`s, so that go.mod and
# go.sum say exactly what is built. The cache is keyed by both, by Go files there and by Go's version; what is there is
# used as it is. GO names another go, LEASEHOLD_TOOLS another cache. A file `ldflags` beside a go.mod has
# options for the linker, such as the version that its programs are to report.
set -euo pipefail

tool=${1:?usage: tests/tools/build.sh TOOL}
here=$(cd "$(dirname "$0")" && pwd)
go=${GO:-$(command -v go || echo /usr/local/go/bin/go)}
[ -x "$go" ] || { echo "build.sh: there is no go here; install Go 1.26 or name it: GO=/path/to/go" >&2; exit 2; }

package=
for module in "$here"/*/go.mod; do
  # `tool PATH`, or PATH in a block `tool ( ... )`; the program is called like the path's last part.
  package=$(awk '/^tool \(/ { block = 1; next } /^\)/ { block = 0 } /^tool / { print $2 } block { print $1 }' "$module" \
    | grep -E "/($tool(/v[0-9]+)?|$tool/server/v[0-9]+)\$" | head -n 1) && break
done
[ -n "$package" ] || { echo "build.sh: no go.mod in $here names a tool '$tool'" >&2; exit 2; }

folder=$(dirname "$module")
options=$(cat "$folder/ldflags" 2> /dev/null || true)
key=$( { cat "$folder/go.mod" "$folder/go.sum"; cat "$folder"/*.go 2> /dev/null || true; printf %s "$options"; "$go" env GOVERSION GOOS GOARCH; } | sha256sum | cut -c 1-16)
cache=${LEASEHOLD_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/leasehold-tools}/$key
mkdir -p "$cache"

if [ ! -x "$cache/$tool" ]; then
  exec 9> "$cache/$tool.lock"
  flock 9  # two tests may ask at once
  if [ ! -x "$cache/$tool" ]; then
    echo "build.sh: building $tool; the first time takes minutes" >&2
    (cd "$folder" && nice -n 19 "$go" build -trimpath -ldflags="-s -w $options" -o "$cache/$tool.new" "$package") >&2
    mv "$cache/$tool.new" "$cache/$tool"
  fi
fi
echo "$cache/$tool"
