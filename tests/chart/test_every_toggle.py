"""Each switch of the chart, on and off: the objects that it adds and changes, and no others."""

from __future__ import annotations

import json

import pytest
import yaml
from chart_rendering import CHART, render

from agent.kubernetes.node.foreign_pods import SHARDS

EVERYTHING, MINIMAL = (CHART / "ci" / f"{n}-values.yaml" for n in ("everything", "minimal"))
SCHEDULERS = """
ClusterRole/gpus-shared-gpus-scheduler ClusterRoleBinding/gpus-shared-gpus-scheduler
ConfigMap/shared-gpus-config ConfigMap/shared-gpus-dashboard Deployment/shared-gpus-scheduler
Ingress/shared-gpus Job/shared-gpus-migrate NetworkPolicy/shared-gpus-scheduler Pod/shared-gpus-test
PodDisruptionBudget/shared-gpus-scheduler PrometheusRule/shared-gpus-scheduler Service/shared-gpus
ServiceAccount/gpu-scheduler ServiceMonitor/shared-gpus-scheduler
"""
COUNTER = """
ClusterRole/gpus-shared-gpus-foreign ClusterRoleBinding/gpus-shared-gpus-foreign
Deployment/shared-gpus-foreign NetworkPolicy/shared-gpus-foreign Role/shared-gpus-foreign
Role/shared-gpus-foreign-agents RoleBinding/shared-gpus-foreign
RoleBinding/shared-gpus-foreign-agents ServiceAccount/shared-gpus-foreign
""" + " ".join(f"ConfigMap/shared-gpus-foreign-{n}" for n in range(SHARDS))
OWN_NODE = """
ValidatingAdmissionPolicy/gpus-shared-gpus-own-node
ValidatingAdmissionPolicyBinding/gpus-shared-gpus-own-node
ValidatingAdmissionPolicy/gpus-shared-gpus-job-objects
ValidatingAdmissionPolicyBinding/gpus-shared-gpus-job-objects
"""
JOB_PODS = """
ValidatingAdmissionPolicy/gpus-shared-gpus-job-pods
ValidatingAdmissionPolicyBinding/gpus-shared-gpus-job-pods
"""
AGENTS = f"""
ClusterRole/gpus-shared-gpus-agent ClusterRole/gpus-shared-gpus-scheduler
ClusterRoleBinding/gpus-shared-gpus-agent ClusterRoleBinding/gpus-shared-gpus-scheduler
DaemonSet/shared-gpus-agent-amd DaemonSet/shared-gpus-agent-gpu LimitRange/gpus-shared-gpus-jobs
Namespace/training NetworkPolicy/gpus-shared-gpus-jobs NetworkPolicy/shared-gpus-agent
ResourceQuota/gpus-shared-gpus-jobs Role/gpus-shared-gpus-agent RoleBinding/gpus-shared-gpus-agent
Service/shared-gpus-agent ServiceAccount/gpu-agent ServiceAccount/trainer
{OWN_NODE} {JOB_PODS} {COUNTER}
"""
RIGHTS = f"""
ClusterRole/gpus-shared-gpus-agent ClusterRole/gpus-shared-gpus-scheduler
ClusterRoleBinding/gpus-shared-gpus-agent ClusterRoleBinding/gpus-shared-gpus-scheduler
Role/gpus-shared-gpus-agent RoleBinding/gpus-shared-gpus-agent {COUNTER}
"""
DAEMONS = "DaemonSet/shared-gpus-agent-amd DaemonSet/shared-gpus-agent-gpu"
SETTINGS = "ConfigMap/shared-gpus-config Deployment/shared-gpus-scheduler"
#: Switch -> (objects that it adds, objects that it changes).
TOGGLES = {
    "scheduler.enabled": (SCHEDULERS, "NetworkPolicy/shared-gpus-agent"),
    "scheduler.ingress.enabled": ("Ingress/shared-gpus", ""),
    "scheduler.migrations.hook": ("Job/shared-gpus-migrate", SETTINGS),
    "scheduler.podDisruptionBudget.enabled": ("PodDisruptionBudget/shared-gpus-scheduler", ""),
    "scheduler.serviceAccount.create": ("ServiceAccount/given", ""),
    "agent.enabled": (AGENTS, SETTINGS),
    "agent.exec": ("", "Role/gpus-shared-gpus-agent"),
    "agent.guard.enabled": ("", "DaemonSet/shared-gpus-agent-gpu"),
    "agent.uploads.enabled": ("", "DaemonSet/shared-gpus-agent-gpu"),
    "agent.logJson": ("", f"{DAEMONS} Deployment/shared-gpus-foreign"),
    "agent.serviceAccount.create": ("ServiceAccount/given", ""),
    "jobs.createNamespace": ("Namespace/training", ""),
    "jobs.resourceQuota.enabled": ("ResourceQuota/gpus-shared-gpus-jobs", ""),
    "jobs.limitRange.enabled": ("LimitRange/gpus-shared-gpus-jobs", ""),
    "rbac.create": (RIGHTS, DAEMONS),
    "rbac.foreignPods": (COUNTER, DAEMONS),
    "admissionPolicy.enabled": (f"{OWN_NODE} {JOB_PODS}", ""),
    "admissionPolicy.jobPods.enabled": (JOB_PODS, ""),
    "networkPolicies.scheduler.enabled": ("NetworkPolicy/shared-gpus-scheduler", ""),
    "networkPolicies.agent.enabled": (
        "NetworkPolicy/shared-gpus-agent NetworkPolicy/shared-gpus-foreign",
        "",
    ),
    "networkPolicies.jobs.enabled": ("NetworkPolicy/gpus-shared-gpus-jobs", ""),
    "networkPolicies.jobs.internet": ("", "NetworkPolicy/gpus-shared-gpus-jobs"),
    "monitoring.metricsOpen": ("", SETTINGS),
    "monitoring.serviceMonitor.enabled": ("ServiceMonitor/shared-gpus-scheduler", ""),
    "monitoring.prometheusRule.enabled": ("PrometheusRule/shared-gpus-scheduler", ""),
    "monitoring.dashboard.enabled": ("ConfigMap/shared-gpus-dashboard", ""),
    "tests.enabled": ("Pod/shared-gpus-test", ""),
}
#: Those of a scheduler with SQLite; they are looked at without a database server.
OF_SQLITE = {
    "scheduler.persistence.enabled": (
        "PersistentVolumeClaim/lh-leasehold-state",
        "Deployment/lh-leasehold-scheduler",
    ),
    "scheduler.persistence.keep": ("", "PersistentVolumeClaim/lh-leasehold-state"),
}
#: What else a switch needs to be set.
NEEDS = {
    "scheduler.enabled": {"agent__servers": ["https://leasehold.example:8642"]},
    "scheduler.serviceAccount.create": {"scheduler__serviceAccount__name": "given"},
    "agent.serviceAccount.create": {"agent__serviceAccount__name": "given"},
}


def switches(values, before=""):
    for name, value in values.items():
        if isinstance(value, bool):
            yield f"{before}{name}"
        elif isinstance(value, dict):
            yield from switches(value, f"{before}{name}.")


def rendered(name, file, *, on):
    values = {name.replace(".", "__"): on} | NEEDS.get(name, {})
    objects = render(file, **values).objects
    return {
        f"{o['kind']}/{o['metadata']['name']}": json.dumps(o, sort_keys=True)
        for o in objects
        if o["kind"] != "Secret"  # the administrator's token is random
    }


def test_every_switch_is_looked_at():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(switches(values)) == set(TOGGLES) | set(OF_SQLITE)


@pytest.mark.parametrize("name", [*TOGGLES, *OF_SQLITE])
def test_a_switch_brings_and_changes_what_it_should_and_nothing_else(name):
    brought, changed = (TOGGLES | OF_SQLITE)[name]
    file = MINIMAL if name in OF_SQLITE else EVERYTHING
    on, off = (rendered(name, file, on=value) for value in (True, False))
    assert set(on) - set(off) == set(brought.split())
    assert set(off) - set(on) == set()
    assert {key for key in set(on) & set(off) if on[key] != off[key]} == set(changed.split())
