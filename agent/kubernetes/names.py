"""Names, labels and annotations of a lease's objects in Kubernetes. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from scheduler.protocol.desired import to_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.protocol.desired import DesiredLease

#: Longest label value, host name and Service name.
LONGEST: Final = 63
#: Hexadecimal digits that keep a changed name apart from others.
HASH_DIGITS: Final = 8
#: The prefix of our own labels and annotations.
OWN: Final = "leasehold.dev/"
LEASE: Final = OWN + "lease"
TOKEN: Final = OWN + "token"
JOB: Final = OWN + "job"
ATTEMPT: Final = OWN + "attempt"
RANK: Final = OWN + "rank"
NODE: Final = OWN + "node"
INSTANCE: Final = "app.kubernetes.io/instance"
#: The job's project and owner; for admission policies and network policies of the cluster.
PROJECT: Final = OWN + "project"
OWNER: Final = OWN + "owner"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
AGENT: Final = "leasehold-agent"
#: Annotations: the job's id unchanged, the lease as JSON, why the pod is being deleted.
JOB_ID: Final = OWN + "job-id"
LEASE_JSON: Final = OWN + "lease-json"
ENDING: Final = OWN + "ending"
#: The command in the second one, which the pod has already.
UNTOLD: Final = "-"
#: The value of the last one if the job itself has ended, and only other containers are left.
JOB_ENDED: Final = "the job has ended"
#: The replacement of the name of a Secret with a pod's secret variables.
HIDDEN: Final = "***"
_SECRET_OF_POD: Final = re.compile(r"[a-z0-9][a-z0-9.-]*-\d+-\d+-[0-9a-f]{20}(?![a-z0-9-])")


def pod_name(job_id: str, attempt: int, rank: int) -> str:
    """Return the name of a member's pod, which is its host name as well.

    It differs between the members of all attempts of all jobs.

    Args:
        job_id: the job.
        attempt: 1 for the job's first lease.
        rank: global rank of the member's first process.
    """
    return _bounded(job_id, f"-{attempt}-{rank}")


def secret_of_pod(pod: str, digest: str) -> str:
    """Return the name of the Secret with a pod's secret variables.

    Args:
        pod: name of the pod.
        digest: 20 hexadecimal digits that cannot be guessed.
    """
    return f"{pod}-{digest}"


def names_secret_of_pod(text: str) -> bool:
    """Return whether a name is that of a Secret with some pod's secret variables."""
    return _SECRET_OF_POD.fullmatch(text) is not None


def without_secrets_of_pods(text: str) -> str:
    """Return a text with the names of such Secrets replaced."""
    return _SECRET_OF_POD.sub(HIDDEN, text)


def uid_of(pod: Mapping[str, Any]) -> str:
    """Return a pod's uid; empty if it has none."""
    return str((pod.get("metadata") or {}).get("uid") or "")


def lease_of(pod: Mapping[str, Any]) -> tuple[int, int]:
    """Return a pod's lease and fencing token from its labels; -1 if they are missing."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    values = (labels.get(LEASE, ""), labels.get(TOKEN, ""))
    lease_id, token = (int(v) if v.isdecimal() else -1 for v in values)
    return lease_id, token


def service_name(job_id: str, attempt: int) -> str:
    """Return the name of the headless Service of an attempt, its pods' subdomain."""
    return _bounded(job_id, f"-{attempt}")


def owner_name(instance: str) -> str:
    """Return the name of the object that owns an installation's pods; the chart's Role has it."""
    return f"leasehold-pods-{_digest(instance)}"


def label_value(text: str) -> str:
    """Return a text as a label's value: unfit characters are replaced and a hash is added."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")
    if plain == text and len(text) <= LONGEST:
        return text
    return f"{plain[: LONGEST - HASH_DIGITS - 1].rstrip('._-')}-{_digest(text)}".lstrip("-")


def lease_labels(lease: DesiredLease, *, node: str, instance: str) -> dict[str, str]:
    """Return the labels of a member's pod, by which it is found again.

    Args:
        lease: the lease that it runs under.
        node: the node that it is for.
        instance: name of the installation; another one may use the same namespace.
    """
    whose = {PROJECT: lease.project, OWNER: lease.owner}
    return (
        attempt_labels(lease, instance=instance)
        | {RANK: str(lease.rank), NODE: label_value(node)}
        | {name: label_value(text) for name, text in whose.items() if text}
    )


def attempt_labels(lease: DesiredLease, *, instance: str) -> dict[str, str]:
    """Return the labels that all pods of a gang, and its Service, have in common."""
    return {
        "app.kubernetes.io/name": "leasehold-job",
        "app.kubernetes.io/component": "job",
        INSTANCE: label_value(instance),
        MANAGED_BY: AGENT,
        JOB: label_value(lease.job_id),
        ATTEMPT: str(lease.attempt),
        LEASE: str(lease.lease_id),
        TOKEN: str(lease.token),
    }


def lease_annotations(lease: DesiredLease) -> dict[str, str]:
    """Return the annotations from which an agent without its files restores the lease.

    All annotations of an object may have 256 KiB, and a command may have more. So it is left out:
    it stands in the pod, and a pod that exists is not made again. Every release wants some command.
    """
    plain = to_dict(lease) | {"env": {}, "kubernetes": {}, "command": [UNTOLD]}
    if "force_delete" in lease.kubernetes:
        plain["kubernetes"] = {"force_delete": lease.kubernetes["force_delete"]}
    text = json.dumps(plain, sort_keys=True, ensure_ascii=False)  # escapes take three times as much
    return {JOB_ID: lease.job_id, LEASE_JSON: text}


def is_ours(pod: Mapping[str, Any], *, instance: str) -> bool:
    """Return whether an agent of this installation has made a pod."""
    labels = pod.get("metadata", {}).get("labels") or {}
    return labels.get(MANAGED_BY) == AGENT and labels.get(INSTANCE) == label_value(instance)


def pod_selector(*, node: str, instance: str) -> str:
    """Return the label selector of a node's pods."""
    return f"{MANAGED_BY}={AGENT},{INSTANCE}={label_value(instance)},{NODE}={label_value(node)}"


def _bounded(job_id: str, tail: str) -> str:
    """Return a DNS label: letters, digits and dashes, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", job_id.lower()).strip("-")
    if not plain[:1].isalpha():
        plain = f"job-{plain}".rstrip("-")
    if plain == job_id and len(plain) + len(tail) <= LONGEST:
        return plain + tail
    room = LONGEST - len(tail) - HASH_DIGITS - 1
    return f"{plain[:room].rstrip('-')}-{_digest(job_id)}{tail}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]
