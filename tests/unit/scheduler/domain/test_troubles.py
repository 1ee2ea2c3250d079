"""Every reason of Kubernetes that a pod can meet has a kind for programs."""

import pytest

from scheduler.domain.facts.troubles import REMEDIES, Trouble, trouble_of

#: Messages as kube-scheduler, kube-apiserver and kubelets write them.
NODES = "0/3 nodes are available: "
OTHERS = "2 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are available"
CASES = [
    ("ImagePullBackOff", 'Back-off pulling image "team/train:9"', "image"),
    ("ErrImagePull", "manifest unknown", "image"),
    ("InvalidImageName", "couldn't parse image name", "image_name"),
    ("CreateContainerConfigError", 'secret "wandb" not found', "configuration"),
    ("RunContainerError", 'exec: "trian": executable file not found', "start"),
    ("StartError", "", "start"),
    ("OOMKilled", "", "out_of_memory"),
    ("Evicted", "The node was low on resource: ephemeral-storage.", "evicted"),
    ("EvictionByEvictionAPI", "Eviction API: evicting", "evicted"),
    ("PreemptionByScheduler", "default-scheduler: preempting to accommodate a pod", "disrupted"),
    ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", "disrupted"),
    ("NodeShutdown", "Pod was terminated in response to imminent node shutdown.", "node_down"),
    ("UnexpectedAdmissionError", "Allocate failed due to no healthy devices", "node_refused"),
    ("OutOfnvidia.com/gpu", "Node didn't have enough resource: nvidia.com/gpu", "node_refused"),
    ("Unschedulable", f"{NODES}1 Insufficient nvidia.com/gpu, {OTHERS}", "no_resources"),
    ("Unschedulable", f"{NODES}1 node(s) had untolerated taint {{a: b}}, {OTHERS}", "tainted"),
    ("Unschedulable", f"{NODES}1 node(s) were unschedulable, {OTHERS}", "cordoned"),
    ("Unschedulable", 'persistentvolumeclaim "data" not found', "volume"),
    ("Unschedulable", f"{NODES}1 node(s) had volume node affinity conflict, {OTHERS}", "volume"),
    ("Unschedulable", f"{NODES}3 node(s) didn't match Pod's node affinity/selector.", "affinity"),
    ("Unschedulable", "something new", "unschedulable"),
    ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates", "gated"),
    ("NotBound", "no node has taken the pod after 120 s", "not_bound"),
    ("DiskFull", "exit code 1; the agent cannot write in /s: No space left on device", "disk"),
    ("NotStarted", "its container has not been started after 1800 s", "not_started"),
    ("QuotaExceeded", 'pods "x" is forbidden: exceeded quota: few, requested: pods=1', "quota"),
    ("AdmissionDenied", 'admission webhook "a.b" denied the request: no', "admission"),
    ("Invalid", "spec.containers[0].image: Required value", "admission"),
    ("Forbidden", "maximum cpu usage per Container is 4, but limit is 8", "admission"),
    ("OwnContainerRefused", "must specify limits.cpu for: leasehold-guard", "own_container"),
    ("PodSecurity", 'violates PodSecurity "restricted:latest"', "pod_security"),
    ("ApiUnavailable", 'Internal error: failed calling webhook "a.b": timeout', "webhook_down"),
    ("ApiUnavailable", "no answer (timed out)", "api_down"),
    ("Forbidden", 'User "system:serviceaccount:a:b" cannot create resource "pods"', "permission"),
    ("Unauthorized", "", "permission"),
    ("NotFound", 'namespaces "jobs" not found', "namespace"),
    ("Forbidden", "unable to create new content because it is being terminated", "namespace"),
    ("AlreadyExists", "pod job1-1-0 belongs to another lease", "name_taken"),
    ("DeadlineExceeded", "Pod was active longer than specified deadline", "time_limit"),
    ("LeftUnasked", "", "left_unasked"),
    ("ContainerStatusUnknown", "", "node_down"),
    ("Unknown", "", "node_down"),
    ("StartError", "nvidia-container-cli: initialization error", "node_refused"),
    ("StartError", 'exec: "x": executable file not found in $PATH', "start"),
    ("SomethingNew", "", "other"),
]


@pytest.mark.parametrize(("code", "message", "kind"), CASES)
def test_each_word_has_its_kind(code, message, kind):
    assert trouble_of(code, message) is Trouble(kind)


def test_every_kind_can_be_met_and_has_a_remedy():
    assert {Trouble(kind) for _, _, kind in CASES} == set(Trouble)
    assert set(REMEDIES) == set(Trouble)
    assert all(REMEDIES.values())


def test_no_word_is_no_trouble():
    assert trouble_of("") is None
