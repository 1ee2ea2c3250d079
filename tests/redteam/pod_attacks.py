"""Pod fields of hostile jobs: each would reach its neighbours, or its node."""

from __future__ import annotations

TOKEN = {"sources": [{"serviceAccountToken": {"path": "token", "audience": "leasehold"}}]}


def template(**spec):
    return {"kubernetes": {"template": {"spec": spec}}}


def containers(*more, **fields):
    return [{"name": "job", **fields}, *more]


ALL = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
ATTACKS = {
    "sees_every_gpu_by_a_variable": {"env": {"NVIDIA_VISIBLE_DEVICES": "all"}},
    "sees_every_gpu_of_amd": {"env": {"AMD_VISIBLE_DEVICES": "all"}},
    "sees_every_gpu_from_a_sidecar": template(
        containers=containers({"name": "spy", "image": "cuda", "env": ALL})
    ),
    "sees_every_gpu_before_it_begins": template(
        initContainers=[{"name": "spy", "image": "cuda", "env": ALL}]
    ),
    "sees_every_gpu_from_a_container_added_later": template(
        ephemeralContainers=[{"name": "spy", "image": "cuda", "env": ALL}]
    ),
    "sees_every_gpu_by_a_mount": {
        "kubernetes": {"volumes": [{"claim": "c", "path": "/var/run/nvidia-container-devices/all"}]}
    },
    "sees_every_gpu_by_an_annotation": {
        "kubernetes": {
            "template": {"metadata": {"annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=all"}}}
        }
    },
    "takes_gpus_of_intel_that_nobody_counts": template(
        containers=containers(resources={"limits": {"gpu.intel.com/i915": "1"}})
    ),
    "takes_gpus_by_a_claim": template(resourceClaims=[{"name": "g", "resourceClaimName": "g"}]),
    "gets_the_token_of_an_account": template(volumes=[{"name": "t", "projected": TOKEN}]),
    "gets_the_token_that_agents_enrol_by": template(
        serviceAccountName="leasehold-agent", volumes=[{"name": "t", "projected": TOKEN}]
    ),
    "evicts_the_nodes_own_pods": template(priorityClassName="system-node-critical"),
    "is_placed_by_a_scheduler_that_counts_nothing": template(schedulerName="mine"),
    "passes_the_scheduler_by": template(nodeName="n2"),
    "keeps_all_others_off_its_node": template(
        affinity={
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "namespaceSelector": {},
                        "labelSelector": {},
                    }
                ]
            }
        }
    ),
    "reads_the_nodes_files": template(volumes=[{"name": "r", "hostPath": {"path": "/"}}]),
    "takes_a_volume_of_the_cluster": template(
        volumes=[
            {
                "name": "v",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "accessModes": ["ReadOnlyMany"],
                            "resources": {"requests": {"storage": "1Gi"}},
                            "volumeName": "backups",
                        }
                    }
                },
            }
        ]
    ),
    "listens_on_the_nodes_network": template(hostNetwork=True),
    "sees_the_nodes_processes": template(hostPID=True),
    "reads_the_nodes_memory": template(hostIPC=True),
    "is_root_on_the_node": template(containers=containers(securityContext={"privileged": True})),
    "keeps_its_capabilities": template(
        containers=containers(securityContext={"capabilities": {"add": ["SYS_PTRACE"]}})
    ),
    "takes_a_port_of_the_node": template(
        containers=containers(ports=[{"containerPort": 22, "hostPort": 22}])
    ),
    "has_the_kubelet_ask_the_clouds_metadata": template(
        containers=containers(startupProbe={"httpGet": {"host": "169.254.169.254", "port": 80}})
    ),
    "stops_the_guard_of_its_lease": template(shareProcessNamespace=True),
    "is_kept_when_its_lease_is_over": template(terminationGracePeriodSeconds=10**6),
    "cannot_be_deleted": {"kubernetes": {"template": {"metadata": {"finalizers": ["a/b"]}}}},
    "says_that_it_is_another_lease": {
        "kubernetes": {"template": {"metadata": {"labels": {"leasehold.dev/lease": "7"}}}}
    },
}
