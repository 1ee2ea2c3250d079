#!/usr/bin/env bash
# Build the images of the cluster's tests, once, and print where their archives are, a line each:
#
#   tests/cluster/images.sh     ->  /home/me/.cache/leasehold-tools/images/3f0c....tar
#                                   /home/me/.cache/leasehold-tools/images/release-1e85bf4-....tar
#                                   /home/me/.cache/leasehold-tools/images/release-9d5e9d5-....tar
#
# leasehold.test/scheduler:1 and agent:1 come from docker/Dockerfile, train:1 from train/Dockerfile, pause:1
# keeps a pod's network. The others have scheduler:COMMIT and agent:COMMIT of releases before, made from the git
# history; without a history there are none. No image can be pulled here, so their base is made by debootstrap.
# Wheels come from pip's index, before anything is built: the builds have no network. Needs root, and what
# .ci/test-cluster installs.
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
wheels_key=$(cat locks/image.txt locks/build.txt | sha256sum | cut -c 1-16)
wheels=$cache/wheels-$wheels_key
if [[ ! -d $wheels ]]; then
    echo "images.sh: fetching wheels" >&2
    rm -rf "$cache"/wheels-*
    "$python" -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version=3.11 \
        --no-deps --require-hashes --dest "$wheels.new" -r locks/image.txt -r locks/build.txt >&2
    mv "$wheels.new" "$wheels"
fi

releases=(1e85bf4 9d5e9d5)  # as in tests/support/leasehold_testing/releases.py
# Layers are kept, up to 8 GB, so that a change of the program does not install everything anew.
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=${STORAGE_DRIVER:-overlay}
store=(nice -n 10 buildah --root "$cache/storage" --runroot "$cache/storage.run")
build() { "${store[@]}" bud --quiet --layers --network=none --pull-never "$@" > /dev/null; }

prepare() {  # CONTEXT: put the wheels into a folder with sources, and build the base
    cp "$wheels"/*.whl "$1/docker/wheels/"
    find "$1" -exec touch -h -d @0 {} +  # a layer is found again by its content
    mkdir "$1/base"
    ln "$base" "$1/base/base.tar" 2> /dev/null || cp "$base" "$1/base/base.tar"
    printf 'FROM scratch\nADD base.tar /\n' > "$1/base/Dockerfile"
    build -t localhost/base:1 "$1/base"
}

program() {  # CONTEXT TAG: build the images of the agent and the scheduler
    for target in agent scheduler; do
        build --build-arg BASE=localhost/base:1 --build-arg PIP_OPTIONS=--no-index --target "$target" \
            -f "$1/docker/Dockerfile" -t "leasehold.test/$target:$2" "$1"
    done
}

pack() {  # FILE TAG NAME...: put images into one archive, in which they share layers
    local file=$1 tag=$2 name
    shift 2
    mkdir "$context/archive"
    for name; do
        "${store[@]}" push --quiet --format oci --compression-format zstd --compression-level 1 "leasehold.test/$name:$tag" "oci:$context/archive:$name" >&2
    done
    "$python" - "$context/archive/index.json" "$tag" << 'END'
import json, pathlib, sys

path, tag = pathlib.Path(sys.argv[1]), sys.argv[2]
index = json.loads(path.read_text())
for image in index["manifests"]:
    names = image["annotations"]
    names["io.containerd.image.name"] = f"leasehold.test/{names['org.opencontainers.image.ref.name']}:{tag}"
path.write_text(json.dumps(index))
END
    tar --create --file "$file.new" -C "$context/archive" .
    mv "$file.new" "$file"
}

sources() { git ls-files -z --cached --others --exclude-standard -- pyproject.toml README.md LICENSE .dockerignore docker locks sdk leasehold scheduler policies planner simulator traces agent api; }
key=$({ sources | xargs -0 sha256sum; cat "$here"/train/* "$here/images.sh"; stat -c %s%Y "$base"; echo "$wheels_key"; } | sha256sum | cut -c 1-16)
made=$cache/$key.tar
if [[ ! -e $made ]]; then
    echo "images.sh: building the images; the first time takes minutes" >&2
    (($(du -sxm "$cache/storage" 2> /dev/null | cut -f 1 || true) + 0 < 8000)) || rm -rf "$cache/storage"
    context=$(mktemp -d)
    trap 'rm -rf "$context"' EXIT
    sources | xargs -0 cp --parents --target-directory="$context"
    prepare "$context"
    mkdir "$context/pause"
    cp "$(command -v busybox)" "$context/pause/busybox"
    printf 'FROM scratch\nCOPY busybox /busybox\nUSER 65534:65534\nCMD ["/busybox", "sleep", "1000000000"]\n' > "$context/pause/Dockerfile"
    build -t leasehold.test/pause:1 "$context/pause"
    program "$context" 1
    build --build-arg BASE=leasehold.test/agent:1 -t leasehold.test/train:1 "$here/train"
    pack "$made" 1 pause agent scheduler train
    find "$cache" -maxdepth 1 -name '????????????????.tar' ! -path "$made" -delete  # older ones
    rm -rf "$context"
fi
echo "$made"

key=$({ stat -c %s%Y "$base"; cat "$here/images.sh"; } | sha256sum | cut -c 1-8)
find "$cache" -maxdepth 1 -name 'release-*.tar' ! -name "release-*-$key.tar" -delete  # older ones
for release in "${releases[@]}"; do
    git cat-file -e "$release^{commit}" 2> /dev/null || continue
    made=$cache/release-$release-$key.tar
    if [[ ! -e $made ]]; then
        echo "images.sh: building the images of release $release" >&2
        context=$(mktemp -d)
        trap 'rm -rf "$context"' EXIT
        git archive "$release" | tar --extract -C "$context"
        prepare "$context"
        program "$context" "$release"
        pack "$made" "$release" agent scheduler
        rm -rf "$context"
    fi
    echo "$made"
done
