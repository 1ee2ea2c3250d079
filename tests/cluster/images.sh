#!/usr/bin/env bash
# Build the images of the cluster's tests, once, and print where their archive is:
#
#   tests/cluster/images.sh     ->  /home/me/.cache/leasehold-tools/images/3f0c....tar
#
# leasehold.test/scheduler:1 and agent:1 come from docker/Dockerfile, train:1 from train/Dockerfile, pause:1
# keeps a pod's network. No image can be pulled here, so their base is made by debootstrap. Wheels come from
# pip's index, before anything is built: the builds have no network. Needs root, and what .ci/test-cluster
# installs.
set -euo pipefail
# Mounts of a build that is interrupted go with this namespace.
[[ -n ${IMAGES_INSIDE:-} ]] || IMAGES_INSIDE=1 exec unshare --mount --propagation private "$0" "$@"

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
tools=${LEASEHOLD_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/leasehold-tools}
cache=$tools/images
mkdir -p "$cache"
exec 9> "$cache/lock"
flock 9
cd "$root"

# The base: Debian's Python, packed so that the same folder makes the same layer.
suite=bookworm packages=python3,python3-venv,ca-certificates
base=$cache/base-$suite.tar
if [[ ! -e $base ]]; then
    echo "images.sh: making the base; a minute" >&2
    work=$(mktemp -d)
    debootstrap --variant=minbase --include="$packages" "$suite" "$work/root" > "$cache/debootstrap.log" 2>&1 \
        || { tail "$cache/debootstrap.log" >&2; exit 1; }
    rm -rf "$work"/root/var/cache/apt/* "$work"/root/var/lib/apt/lists/* "$work"/root/usr/share/{doc,man,locale}/*
    # python:3.11 calls it so, too; debootstrap leaves it out of a minimal system.
    ln -sf python3 "$work/root/usr/bin/python"
    tar --create --file "$base.new" --numeric-owner --sort=name --exclude=./dev/'*' -C "$work/root" .
    rm -rf "$work"
    mv "$base.new" "$base"
fi

# The wheels that the project and its build need.
"$python" docker/requirements.py pyproject.toml > "$cache/requirements.txt"
wheels_key=$(sha256sum "$cache/requirements.txt" | cut -c 1-16)
wheels=$cache/wheels-$wheels_key
if [[ ! -d $wheels ]]; then
    echo "images.sh: fetching wheels" >&2
    rm -rf "$cache"/wheels-*
    "$python" -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version=3.11 \
        --dest "$wheels.new" -r "$cache/requirements.txt" hatchling >&2
    mv "$wheels.new" "$wheels"
fi

sources() { git ls-files -z --cached --others --exclude-standard -- pyproject.toml README.md LICENSE .dockerignore docker leasehold scheduler policies planner simulator traces agent api; }
key=$({ sources | xargs -0 sha256sum; cat "$here"/train/* "$here/images.sh"; stat -c %s%Y "$base"; echo "$wheels_key"; } | sha256sum | cut -c 1-16)
made=$cache/$key.tar
if [[ ! -e $made ]]; then
    echo "images.sh: building the images; the first time takes minutes" >&2
    # Layers are kept, up to 8 GB, so that a change of the program does not install everything anew.
    (($(du -sxm "$cache/storage" 2> /dev/null | cut -f 1 || true) + 0 < 8000)) || rm -rf "$cache/storage"
    context=$(mktemp -d)
    trap 'rm -rf "$context"' EXIT
    sources | xargs -0 cp --parents --target-directory="$context"
    cp "$wheels"/*.whl "$context/docker/wheels/"
    find "$context" -exec touch -h -d @0 {} +  # a layer is found again by its content
    export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=${STORAGE_DRIVER:-overlay}
    store=(nice -n 10 buildah --root "$cache/storage" --runroot "$cache/storage.run")
    build() { "${store[@]}" bud --quiet --layers --network=none --pull-never "$@" > /dev/null; }

    mkdir "$context/base" "$context/pause"
    ln "$base" "$context/base/base.tar" 2> /dev/null || cp "$base" "$context/base/base.tar"
    printf 'FROM scratch\nADD base.tar /\n' > "$context/base/Dockerfile"
    build -t localhost/base:1 "$context/base"
    cp "$(command -v busybox)" "$context/pause/busybox"
    printf 'FROM scratch\nCOPY busybox /busybox\nUSER 65534:65534\nCMD ["/busybox", "sleep", "1000000000"]\n' > "$context/pause/Dockerfile"
    build -t leasehold.test/pause:1 "$context/pause"
    for target in agent scheduler; do
        build --build-arg BASE=localhost/base:1 --build-arg PIP_OPTIONS=--no-index --target "$target" \
            -f "$context/docker/Dockerfile" -t "leasehold.test/$target:1" "$context"
    done
    build --build-arg BASE=leasehold.test/agent:1 -t leasehold.test/train:1 "$here/train"
    # One archive, in which the images share layers.
    mkdir "$context/archive"
    for name in pause agent scheduler train; do
        "${store[@]}" push --quiet --format oci --compression-format zstd --compression-level 1 "leasehold.test/$name:1" "oci:$context/archive:$name" >&2
    done
    "$python" - "$context/archive/index.json" << 'END'
import json, pathlib, sys

path = pathlib.Path(sys.argv[1])
index = json.loads(path.read_text())
for image in index["manifests"]:
    names = image["annotations"]
    names["io.containerd.image.name"] = f"leasehold.test/{names['org.opencontainers.image.ref.name']}:1"
path.write_text(json.dumps(index))
END
    tar --create --file "$made.new" -C "$context/archive" .
    rm -f "$cache"/????????????????.tar  # older ones
    mv "$made.new" "$made"
fi
echo "$made"
