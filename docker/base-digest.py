# ruff: noqa: INP001 - a script of the images
"""Ask the registry for the digest of the images' base, and write it into the Dockerfile.

    python docker/base-digest.py                 writes it
    python docker/base-digest.py --check         says by its exit code whether it is that of today

Needs nothing but the standard library, and a way to the registry.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

HOSTS = {"docker.io": "https://registry-1.docker.io"}
KINDS = (
    "application/vnd.oci.image.index.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json"
)


def ask(url: str, method: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers in small letters, and body; a refusal is an answer, too."""
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - given by us
    try:
        answer = urllib.request.urlopen(request, timeout=30)  # noqa: S310 - likewise
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        names = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status, names, answer.read()


def digest_of(image: str, registry: str) -> str:
    """Return the digest that a tag names; a registry that asks for one gives a token to anybody."""
    host, _, rest = image.partition("/")
    name, _, tag = rest.rpartition(":")
    url = f"{registry or HOSTS.get(host, f'https://{host}')}/v2/{name}/manifests/{tag}"
    headers = {"Accept": KINDS}
    status, told, _ = ask(url, "HEAD", headers)
    if status == 401:
        parts = dict(re.findall(r'(\w+)="([^"]*)"', told.get("www-authenticate", "")))
        query = urllib.parse.urlencode({k: v for k, v in parts.items() if k != "realm"})
        _, _, body = ask(f"{parts['realm']}?{query}", "GET", {})
        headers["Authorization"] = f"Bearer {json.loads(body)['token']}"
        status, told, _ = ask(url, "HEAD", headers)
    digest = told.get("docker-content-digest", "")
    if status != 200 or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise SystemExit(f"base-digest: {url} answers {status}, without a digest")
    return digest


def main() -> int:
    """Compare or write."""
    parser = argparse.ArgumentParser(description="The digest of the images' base.")
    own = Path(__file__).with_name("Dockerfile")
    parser.add_argument("file", nargs="?", type=Path, default=own)
    parser.add_argument("--registry", default="", help="ask there, such as a mirror")
    parser.add_argument("--check", action="store_true", help="change nothing")
    given = parser.parse_args()
    text = given.file.read_text(encoding="utf-8")
    image = re.search(r"^ARG IMAGE=(\S+)$", text, re.MULTILINE)
    before = re.search(r'^ARG DIGEST="(.*)"$', text, re.MULTILINE)
    if image is None or before is None:
        raise SystemExit(f"base-digest: {given.file} has no ARG IMAGE and ARG DIGEST")
    digest = digest_of(image[1], given.registry)
    sys.stdout.write(f"{image[1]}@{digest}\n")
    if given.check:
        return int(before[1] != digest)
    given.file.write_text(text.replace(before[0], f'ARG DIGEST="{digest}"'), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
