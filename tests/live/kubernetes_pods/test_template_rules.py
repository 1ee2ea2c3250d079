"""The list of allowed fields of pod templates, and an operator's additions."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agent.kubernetes.pods.pods import PodPlace, PodSettings, PodWorker, build_pod
from agent.kubernetes.templates.options import pod_options
from agent.kubernetes.templates.rules import check_submitted
from api.jobs.pod_preview import pod_preview
from api.problems import ProblemError
from scheduler.domain.jobs.spec import JobSpec
from scheduler.errors import InputError

SPEC = JobSpec(name="train", command=("python", "a.py"), image="team/train:1")
V100 = PodWorker(worker_type="v100")


def check(kubernetes, *, env=(), allows=()):
    check_submitted(pod_options(kubernetes), dict(env), allows=allows)


def job(**fields):
    return {"spec": {"containers": [{"name": "job", **fields}]}}


def beside(part="containers", **fields):
    return {"spec": {part: [{"name": "other", "image": "i", **fields}]}}


def pod(**fields):
    return {"spec": fields}


def volume(**kind):
    return pod(volumes=[{"name": "v", **kind}])


def own_volume(**spec):
    return volume(ephemeral={"volumeClaimTemplate": {"spec": spec}})


def security(**fields):
    return job(securityContext=fields)


SECRET = "train-5k2m9x7q-1-0-0123456789abcdef0123"  # of some pod's secret variables
TOKEN = {"sources": [{"secret": {"name": "s"}}, {"serviceAccountToken": {"path": "t"}}]}
REFUSED = {
    "projected token": (volume(projected=TOKEN), "spec.volumes[0].projected.sources[1].service"),
    "a neighbour's secret variable": (
        job(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": SECRET, "key": "B"}}}]),
        "spec.containers[0].env[0].valueFrom.secretKeyRef.name",
    ),
    "a neighbour's secret variables": (
        beside(envFrom=[{"secretRef": {"name": SECRET}}]),
        "spec.containers[0].envFrom[0].secretRef.name",
    ),
    "a neighbour's secrets as files": (
        volume(secret={"secretName": SECRET}),
        "spec.volumes[0].secret.secretName",
    ),
    "a neighbour's secrets among files": (
        volume(projected={"sources": [{"secret": {"name": SECRET}}]}),
        "spec.volumes[0].projected.sources[0].secret.name",
    ),
    "a neighbour's secrets for images": (
        pod(imagePullSecrets=[{"name": SECRET}]),
        "spec.imagePullSecrets[0].name",
    ),
    "csi in the pod": (volume(csi={"driver": "d"}), "spec.volumes[0].csi"),
    "nfs in the pod": (volume(nfs={"server": "s", "path": "/"}), "spec.volumes[0].nfs"),
    "a volume of the cluster": (
        own_volume(volumeName="models"),
        "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.volumeName",
    ),
    "any volume of the cluster": (own_volume(selector={}), "volumeClaimTemplate.spec.selector"),
    "a copy of a claim": (
        own_volume(dataSource={"kind": "PersistentVolumeClaim", "name": "models"}),
        "volumeClaimTemplate.spec.dataSource",
    ),
    "a copy of what another namespace has": (
        own_volume(dataSourceRef={"kind": "VolumeSnapshot", "name": "s", "namespace": "other"}),
        "volumeClaimTemplate.spec.dataSourceRef",
    ),
    "a raw volume of its own": (
        own_volume(volumeMode="Block"),
        "volumeClaimTemplate.spec.volumeMode",
    ),
    "programs of the cluster by a volume": (
        volume(ephemeral={"volumeClaimTemplate": {"metadata": {"labels": {"velero.io/b": "1"}}}}),
        "volumeClaimTemplate.metadata.labels.velero.io/b",
    ),
    "files of the node": (volume(hostPath={"path": "/"}), "spec.volumes[0].hostPath"),
    "critical priority": (
        pod(priorityClassName="system-node-critical"),
        "spec.priorityClassName",
    ),
    "a priority class": (pod(priorityClassName="high"), "spec.priorityClassName"),
    "a priority": (pod(priority=10**9), "spec.priority"),
    "another scheduler": (pod(schedulerName="mine"), "spec.schedulerName"),
    "claims of devices": (pod(resourceClaims=[{"name": "gpu"}]), "spec.resourceClaims"),
    "network of the node": (pod(hostNetwork=True), "spec.hostNetwork"),
    "processes of the node": (pod(hostPID=True), "spec.hostPID"),
    "memory of the node": (pod(hostIPC=True), "spec.hostIPC"),
    "processes of the guard": (pod(shareProcessNamespace=True), "spec.shareProcessNamespace"),
    "nobody beside me": (
        pod(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}),
        "spec.affinity.podAntiAffinity",
    ),
    "kernel settings": (pod(securityContext={"sysctls": []}), "spec.securityContext.sysctls"),
    "a field of a later Kubernetes": (pod(novelty={"x": 1}), "spec.novelty"),
    "privileged": (security(privileged=True), "spec.containers[0].securityContext.privileged"),
    "privileged, in words": (security(privileged="true"), "securityContext.privileged"),
    "more rights": (security(allowPrivilegeEscalation=None), "allowPrivilegeEscalation"),
    "capabilities": (security(capabilities={"add": ["SYS_ADMIN"]}), "capabilities.add"),
    "capabilities that stay": (security(capabilities={"drop": []}), "capabilities.drop"),
    "no seccomp": (security(seccompProfile={"type": "Unconfined"}), "seccompProfile.type"),
    "its own proc": (security(procMount="Unmasked"), "securityContext.procMount"),
    "ports of the node": (
        job(ports=[{"containerPort": 80, "hostPort": 80}]),
        "spec.containers[0].ports[0].hostPort",
    ),
    "devices by resource": (
        beside(resources={"limits": {"gpu.intel.com/i915": 1}}),
        "spec.containers[0].resources.limits.gpu.intel.com/i915",
    ),
    "devices by a claim of the container": (
        job(resources={"claims": [{"name": "gpu"}]}),
        "spec.containers[0].resources.claims",
    ),
    "devices by a mount": (
        job(volumeMounts=[{"name": "v", "mountPath": "/var/run//nvidia-container-devices/all"}]),
        "spec.containers[0].volumeMounts[0].mountPath",
    ),
    "mounts that come back": (
        job(volumeMounts=[{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}]),
        "volumeMounts[0].mountPropagation",
    ),
    "raw volumes": (job(volumeDevices=[{"name": "v", "devicePath": "/d"}]), "volumeDevices"),
    "requests of the kubelet": (
        job(readinessProbe={"httpGet": {"port": 80, "host": "169.254.169.254"}}),
        "spec.containers[0].readinessProbe.httpGet.host",
    ),
    "hooks of the kubelet": (
        beside(lifecycle={"preStop": {"tcpSocket": {"port": 1, "host": "10.0.0.1"}}}),
        "lifecycle.preStop.tcpSocket.host",
    ),
    "devices by annotation": (
        {"metadata": {"annotations": {"cdi.k8s.io/gpu": "nvidia.com/gpu=all"}}},
        "metadata.annotations.cdi.k8s.io/gpu",
    ),
    "a hypervisor by annotation": (
        {"metadata": {"annotations": {"io.katacontainers.config.hypervisor/path": "/x"}}},
        "metadata.annotations.io.katacontainers",
    ),
    "an identity by label": (
        {"metadata": {"labels": {"azure.workload.identity/use": "true"}}},
        "metadata.labels.azure.workload.identity/use",
    ),
    "names that are put together": (
        job(envFrom=[{"prefix": "NVIDIA_VISIBLE_", "configMapRef": {"name": "c"}}]),
        "spec.containers[0].envFrom[0].prefix",
    ),
    "no list": (pod(volumes={"a": 1}), "spec.volumes"),
    "no object": (pod(affinity=[1]), "spec.affinity"),
}
CHOOSING = (
    "NVIDIA_VISIBLE_DEVICES",
    "AMD_VISIBLE_DEVICES",
    "HABANA_VISIBLE_DEVICES",
    "INTEL_VISIBLE_DEVICES",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_IMEX_CHANNELS",
    "DOCKER_RESOURCE_GPU",
)
TAKEN = {
    "metadata": {
        "labels": {"team": "vision"},
        "annotations": {"note": "x", "prometheus.io/scrape": "true"},
    },
    "spec": {
        "securityContext": {"runAsUser": 2001, "runAsGroup": 2001, "fsGroup": 2001},
        "schedulerName": "default-scheduler",
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "runtimeClassName": "gvisor",
        "hostUsers": False,
        "imagePullSecrets": [{"name": "registry"}],
        "containers": [
            {
                "name": "job",
                "env": [
                    {"name": "HF_HOME", "value": "/data/hf"},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {"name": "CUDA_VISIBLE_DEVICES_ORDER", "value": "x"},
                ],
                "envFrom": [
                    {"secretRef": {"name": "s3-keys"}},
                    {"prefix": "S3_", "configMapRef": {"name": "c"}},
                ],
                "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
                "ports": [{"containerPort": 6006}],
                "securityContext": {
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                },
            },
            {
                "name": "board",
                "image": "team/board:1",
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "readinessProbe": {"httpGet": {"path": "/", "port": 6006}},
            },
        ],
        "initContainers": [{"name": "fetch", "image": "team/fetch:1", "command": ["fetch"]}],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}},
            {
                "name": "disk",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"labels": {"team": "vision"}},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "storageClassName": "fast",
                            "volumeMode": "Filesystem",
                            "resources": {"requests": {"storage": "100Gi"}},
                        },
                    }
                },
            },
            {"name": "keys", "projected": {"sources": [{"secret": {"name": "s"}}]}},
        ],
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_on_the_list_is_refused_by_path_and_value_with_what_to_do(name):
    template, path = REFUSED[name]
    with pytest.raises(InputError, match=re.escape(path)) as caught:
        check({"template": template})
    told = str(caught.value)
    assert told.startswith("field 'kubernetes.template.")
    assert "' is " in told
    assert 'an operator may allow it: kubernetes.template_allows = ["' in told


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_error_names_is_what_an_operator_adds(name):
    template, _ = REFUSED[name]
    with pytest.raises(InputError) as caught:
        check({"template": template})
    (entry,) = re.findall(r'template_allows = \["(.*)"\]', str(caught.value))
    check({"template": template}, allows=(entry,))


def test_what_a_job_needs_for_itself_is_taken():
    check({"template": TAKEN}, env={"BATCH": "64", "CUDA_VISIBLE_DEVICES": "0"})
    assert pod_preview(replace(SPEC, kubernetes={"template": TAKEN})) is not None


@pytest.mark.parametrize("variable", CHOOSING)
@pytest.mark.parametrize("make", [job, beside, lambda **f: beside("initContainers", **f)])
def test_no_container_chooses_its_devices_whatever_an_operator_allows(variable, make):
    template = make(env=[{"name": "A", "value": "b"}, {"name": variable, "value": "all"}])
    with pytest.raises(InputError, match=rf"env\[1\].name' is '{variable}': .* from its lease"):
        check({"template": template}, allows=("spec.*", f"env.{variable}"))


@pytest.mark.parametrize("variable", CHOOSING)
def test_nor_does_a_variable_of_the_job(variable):
    with pytest.raises(InputError, match=f"field 'env.{variable}' is 'all': "):
        check({}, env={variable: "all"}, allows=("env.*",))


def test_parts_of_the_driver_are_an_operators_to_allow():
    variable = "NVIDIA_DRIVER_CAPABILITIES"
    template = beside(env=[{"name": variable, "value": "all"}])
    for given in ({"template": template}, {}):
        env = {} if given else {variable: "all"}
        with pytest.raises(InputError, match=rf"{variable}.*\[\"env.{variable}\"\]"):
            check(given, env=env)
        check(given, env=env, allows=(f"env.{variable}",))


def test_one_value_and_one_domain_can_be_allowed():
    low, high = ({"template": pod(priorityClassName=name)} for name in ("low", "high"))
    check(low, allows=("spec.priorityClassName=low",))
    with pytest.raises(InputError, match="'high'"):
        check(high, allows=("spec.priorityClassName=low",))
    labelled = {"template": {"metadata": {"labels": {"example.com/cost": "7"}}}}
    check(labelled, allows=("metadata.labels.example.com/*",))
    with pytest.raises(InputError, match=r"example\.com/cost"):
        check(labelled, allows=("metadata.annotations.example.com/*",))


def test_what_is_the_schedulers_nobody_can_allow():
    spec = replace(SPEC, kubernetes={"template": pod(nodeName="n1")})
    with pytest.raises(ProblemError, match=r"spec\.nodeName"):
        pod_preview(spec, allows=("spec.nodeName",))


@pytest.mark.parametrize(
    ("kubernetes", "path"),
    [
        ({"requests": {"gpu.intel.com/i915": "1"}}, "kubernetes.requests.gpu.intel.com/i915"),
        (
            {"volumes": [{"claim": "c", "path": "/run/nvidia-container-devices/all"}]},
            "kubernetes.volumes[0].path",
        ),
    ],
)
def test_the_other_words_about_pods_choose_no_devices_either(kubernetes, path):
    with pytest.raises(ProblemError) as caught:
        pod_preview(replace(SPEC, kubernetes=kubernetes))
    assert [problem.field for problem in caught.value.errors] == [path]
    assert pod_preview(replace(SPEC, kubernetes={"requests": {"cpu": "4"}})) is not None


@pytest.mark.parametrize("name", REFUSED)
def test_the_agent_still_makes_the_pods_of_jobs_that_were_stored_before(make_lease, name):
    template, _ = REFUSED[name]
    if name in {"no list", "no object"}:
        return  # the API server never took those
    lease = make_lease(kubernetes={"template": template})
    made = build_pod(
        lease,
        PodPlace(node="n1", hostname="n1", workers=(V100,)),
        secret="s",
        settings=PodSettings(),
    )
    assert made["spec"]["containers"][0]["name"] == "job"


def test_but_nothing_in_them_sees_devices_that_are_not_the_leases(make_lease):
    chosen = [{"name": name, "value": "all"} for name in CHOOSING]
    template = {
        "spec": {
            "containers": [
                {"name": "job", "env": [v for v in chosen if v["name"] != CHOOSING[0]]},
                {"name": "exporter", "image": "e", "env": [*chosen, {"name": "A", "value": "b"}]},
                {"name": "plain", "image": "p"},
            ],
            "initContainers": [{"name": "fetch", "image": "f", "env": chosen}],
        }
    }
    lease = make_lease(
        kubernetes={"template": template}, env={"NVIDIA_VISIBLE_DEVICES": "all", "B": "c"}
    )
    made = build_pod(
        lease,
        PodPlace(node="n1", hostname="n1", workers=(V100,)),
        secret="s",
        settings=PodSettings(guard_image="g"),
    )
    containers = {
        one["name"]: {v["name"]: v.get("value") for v in one.get("env", ())}
        for one in (*made["spec"]["containers"], *made["spec"]["initContainers"])
    }
    assert not set(CHOOSING) & set(containers["job"])  # the device plugin says it
    assert containers["job"]["B"] == "c"
    void = {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert containers["exporter"] == {"A": "b"} | void
    assert containers["plain"] == containers["fetch"] == void


def test_annotations_that_leave_no_room_for_ours_are_refused_with_size_and_bound():
    """Kubernetes refuses a pod with more than 256 KiB of them; counted in bytes."""

    def noted(letters):
        return {"template": {"metadata": {"annotations": {"note": "é" * letters}}}}

    check(noted(65_534))
    with pytest.raises(
        InputError, match=r"metadata\.annotations' has 131,074 bytes; at most 131,072"
    ):
        check(noted(65_535))
