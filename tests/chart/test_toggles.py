"""Each value of the chart has its effect."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tomllib

from chart_rendering import CHART, as_mounted, configuration, environment, mounts, render, volumes

from agent.kubernetes.pods.pods import GUARD_WINDOW_S
from leasehold.config.load import load_config

POSTGRESQL = {"database__type": "postgresql", "database__postgresql__existingSecret": "db"}


# -- the scheduler -------------------------------------------------------------------------------


def test_with_sqlite_there_is_one_process_and_its_volume_is_never_shared(minimal):
    spec = minimal.one("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    claim = minimal.one("PersistentVolumeClaim")
    state = volumes(minimal.pod())["state"]
    assert state["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
    assert minimal.pod()["hostname"] == "leasehold"
    assert "PodDisruptionBudget" not in minimal.kinds
    assert "LEASEHOLD_STORE__URL" not in environment(minimal.container())


def test_a_volume_can_be_ones_own_or_none():
    own = render(scheduler__persistence__existingClaim="mine")
    assert "PersistentVolumeClaim" not in own.kinds
    assert volumes(own.pod())["state"]["persistentVolumeClaim"] == {"claimName": "mine"}
    none = render(scheduler__persistence__enabled=False)
    assert volumes(none.pod())["state"] == {"name": "state", "emptyDir": {}}
    claim = render(scheduler__persistence__keep=False).one("PersistentVolumeClaim")
    assert "annotations" not in claim["metadata"]


def test_with_postgresql_replicas_roll_and_one_may_be_down(ha):
    spec = ha.one("Deployment")["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    budget = ha.one("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == spec["selector"]
    assert "PersistentVolumeClaim" not in ha.kinds
    assert "hostname" not in ha.pod(), "each replica leads under its own name"
    assert "podAntiAffinity" in ha.pod()["affinity"]
    url = environment(ha.container())["LEASEHOLD_STORE__URL"]["valueFrom"]["secretKeyRef"]
    assert url == {"name": "leasehold-database", "key": "url"}
    assert mounts(ha.container())["logs"] == "/var/lib/leasehold/logs"
    assert volumes(ha.pod())["logs"]["persistentVolumeClaim"]["claimName"] == "leasehold-logs"


def test_one_replica_on_postgresql_needs_no_budget():
    assert "PodDisruptionBudget" not in render(**POSTGRESQL).kinds
    values = POSTGRESQL | {"scheduler__podDisruptionBudget__enabled": False}
    assert "PodDisruptionBudget" not in render(**values, scheduler__replicas=2).kinds


def test_a_password_is_never_part_of_a_url(everything):
    given = environment(everything.container())
    url = "postgresql://scheduler@db.example:5433/gpus?sslmode=verify-full"
    assert given["LEASEHOLD_STORE__URL"]["value"] == url
    password = {"name": "leasehold-database", "key": "password"}
    assert given["PGPASSWORD"]["valueFrom"]["secretKeyRef"] == password


def test_the_program_takes_the_configuration_that_the_chart_writes(everything, tmp_path):
    text = as_mounted(configuration(everything), tmp_path)
    (tmp_path / "leasehold.toml").write_text(text)
    variables = {"LEASEHOLD_STORE__URL": "postgresql://x@db/y"}
    config = load_config(path=str(tmp_path / "leasehold.toml"), environment=variables).config
    assert (config.state_dir, config.server.host) == ("/var/lib/leasehold", "::")
    assert config.engine.round_length_s == 120
    assert config.policy.parameters == {"alpha": "2"}
    assert config.retention.finished_days == float("inf")
    assert config.retention.log_bytes == 8388608
    assert config.kubernetes.agent_account == "gpus/gpu-agent"
    assert config.kubernetes.audience == "gpus"
    assert config.server.admin_token_file == str(tmp_path / "token")
    assert config.store.migrate is False
    assert config.log.json is False


def test_the_defaults_make_a_configuration_that_the_program_takes(minimal, tmp_path):
    (tmp_path / "leasehold.toml").write_text(as_mounted(configuration(minimal), tmp_path))
    config = load_config(path=str(tmp_path / "leasehold.toml"), environment={}).config
    assert config.log.json
    assert config.store.url == "sqlite:////var/lib/leasehold/leasehold.db"
    assert config.kubernetes.agent_account == "gpus/lh-leasehold-agent"


def test_a_silent_nodes_workers_wait_until_the_guards_have_ended_its_pods(minimal):
    leases = tomllib.loads(configuration(minimal))["leases"]
    assert leases == {"margin_s": GUARD_WINDOW_S}
    given = render(scheduler__config={"leases": {"margin_s": 12, "grace_s": 3}})
    assert tomllib.loads(configuration(given))["leases"] == {"margin_s": 12, "grace_s": 3}
    assert "leases" not in tomllib.loads(configuration(render(agent__enabled=False)))


def test_replicas_may_speak_to_one_another_under_a_policy():
    values = POSTGRESQL | {"networkPolicies__scheduler__enabled": True}
    values["networkPolicies__scheduler__from"] = [{"podSelector": {}}]
    own = '"app.kubernetes.io/component": "scheduler"'
    spec = render(**values, scheduler__replicas=2).one("NetworkPolicy", "-scheduler")["spec"]
    assert own in json.dumps(spec["ingress"])
    (rule,) = [rule for rule in spec["egress"] if own in json.dumps(rule)]
    assert rule["ports"] == [{"port": "http", "protocol": "TCP"}]
    alone = render(**values, scheduler__replicas=1).one("NetworkPolicy", "-scheduler")["spec"]
    assert own not in json.dumps([alone["ingress"], alone["egress"]])


def test_with_replicas_a_standby_passes_requests_on_to_the_leader(ha, minimal):
    assert tomllib.loads(configuration(ha))["server"]["forward"] is True
    assert "forward" not in tomllib.loads(configuration(minimal))["server"]
    own = render(
        **POSTGRESQL, scheduler__replicas=2, scheduler__config={"server": {"forward": False}}
    )
    assert tomllib.loads(configuration(own))["server"]["forward"] is False


def test_replicas_on_different_nodes_leave_room_for_what_their_clocks_differ(ha):
    assert tomllib.loads(configuration(ha))["leases"]["margin_s"] >= 10
    apart = render(agent__enabled=False, scheduler__replicas=2, **POSTGRESQL)
    assert tomllib.loads(configuration(apart))["leases"]["margin_s"] >= 10


def test_images_are_pulled_ahead_where_the_values_say_so(tmp_path):
    text = configuration(render(scheduler__config={"kubernetes": {"prepull_images": 3}}))
    (tmp_path / "leasehold.toml").write_text(as_mounted(text, tmp_path))
    config = load_config(path=str(tmp_path / "leasehold.toml"), environment={}).config
    assert config.kubernetes.prepull_images == 3
    assert config.kubernetes.agent_account == "gpus/lh-leasehold-agent"


def test_groups_of_a_provider_reach_the_program():
    groups = {"eng/ml": "user:vision", "ops": "operator"}
    given = {"issuer": "https://id.example", "audience": "leasehold", "groups": groups}
    text = configuration(render(scheduler__config={"oidc": given}))
    assert tomllib.loads(text)["oidc"] == given


def test_text_cannot_break_out_of_the_configuration():
    name = 'a"\n[server]\nno_auth = true #\\ <é>'
    config = {"policy": {"name": "fifo", "parameters": {"x": name}}}
    text = configuration(render(scheduler__config=config))
    parsed = tomllib.loads(text)
    assert parsed["policy"]["parameters"]["x"] == name
    assert "no_auth" not in parsed["server"]


def test_a_changed_configuration_starts_new_pods():
    def checksum(**values):
        meta = render(**values).one("Deployment")["spec"]["template"]["metadata"]
        return meta["annotations"]["checksum/config"]

    assert checksum() == checksum(scheduler__resources={})
    assert checksum() != checksum(scheduler__config={"engine": {"round_length_s": 60}})


def test_the_administrators_token_is_made_or_given(minimal):
    secret = minimal.one("Secret")
    token = base64.b64decode(secret["data"]["token"]).decode()
    assert re.fullmatch(r"lh_[A-Za-z0-9]{43}", token)
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    given = render(scheduler__adminToken__existingSecret="mine", scheduler__adminToken__key="admin")
    assert "Secret" not in given.kinds
    admin = volumes(given.pod())["admin"]["secret"]
    assert (admin["secretName"], admin["items"]) == ("mine", [{"key": "admin", "path": "token"}])
    reference = environment(given.one("Pod")["spec"]["containers"][0])["LEASEHOLD_TOKEN"]
    assert reference["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "admin"}


def test_the_keys_of_secret_variables_come_from_a_secret(minimal):
    assert "secret-keys" not in volumes(minimal.pod())
    assert "secrets" not in tomllib.loads(configuration(minimal))
    given = render(scheduler__secretKeys__existingSecret="mine", scheduler__secretKeys__key="all")
    keys = volumes(given.pod())["secret-keys"]["secret"]
    assert (keys["secretName"], keys["items"]) == ("mine", [{"key": "all", "path": "keys"}])
    (mount,) = [m for m in given.container()["volumeMounts"] if m["name"] == "secret-keys"]
    file = tomllib.loads(configuration(given))["secrets"]["key_file"]
    assert file == f"{mount['mountPath']}/keys"


def test_tls_reaches_the_server_the_probes_the_agents_and_the_test(minimal, ha):
    parsed = tomllib.loads(configuration(ha))
    assert parsed["server"]["tls_cert"] == "/etc/leasehold/tls/tls.crt"
    assert "tls_cert" not in tomllib.loads(configuration(minimal))["server"]
    for rendered, scheme in ((minimal, "HTTP"), (ha, "HTTPS")):
        container = rendered.container()
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["scheme"] == scheme
        server = f"--server={scheme.lower()}://lh-leasehold.gpus.svc:8642"
        assert server in rendered.container("DaemonSet")["args"]
    assert "--ca-file=/etc/leasehold/ca/ca.crt" in ha.container("DaemonSet")["args"]
    assert not any("ca-file" in one for one in minimal.container("DaemonSet")["args"])
    test = ha.one("Pod")["spec"]["containers"][0]
    assert environment(test)["SSL_CERT_FILE"]["value"] == "/etc/leasehold/ca/ca.crt"
    endpoint = ha.one("ServiceMonitor")["spec"]["endpoints"][0]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] == "lh-leasehold.gpus.svc"


def test_probes_ask_what_they_should(minimal):
    container = minimal.container()
    paths = [
        container[f"{p}Probe"]["httpGet"]["path"] for p in ("startup", "liveness", "readiness")
    ]
    assert paths == ["/readyz", "/healthz", "/readyz"]
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 300
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["http"] == tomllib.loads(configuration(minimal))["server"]["port"]


def test_an_image_is_pinned_by_its_digest_or_else_its_tag(everything, minimal):
    assert re.search(r"scheduler@sha256:[0-9a-f]{64}$", everything.container()["image"])
    assert minimal.container()["image"] == "leasehold/scheduler:dev"
    assert render().container()["image"] == "leasehold/scheduler:0.2.0"
    assert everything.pod()["imagePullSecrets"] == [{"name": "registry"}]


def test_the_service_leads_to_the_schedulers_pods_and_to_no_others(everything):
    service = everything.one("Service", "shared-gpus")
    labels = everything.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    agents = everything.one("DaemonSet", "-gpu")["spec"]["template"]["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= agents.items()
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["nodePort"], port["targetPort"]) == (80, 30642, "http")


def test_an_ingress_leads_to_the_service(everything, minimal):
    assert "Ingress" not in minimal.kinds
    spec = everything.one("Ingress")["spec"]
    assert spec["ingressClassName"] == "nginx"
    (rule,) = spec["rules"]
    assert rule["host"] == "leasehold.example"
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": "shared-gpus", "port": {"name": "http"}}
    assert spec["tls"][0]["secretName"] == "leasehold-public"


def test_migrations_run_at_the_start_or_as_a_hook_before_it(everything, minimal):
    assert "Job" not in minimal.kinds
    assert "migrate" not in tomllib.loads(configuration(minimal)).get("store", {})
    job = everything.one("Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["migrate"]
    names = {"PGPASSWORD", "LEASEHOLD_STORE__URL"}
    assert names <= set(environment(container))
    # A hook runs before the release's own objects are there.
    text = json.dumps(job)
    assert "serviceAccountName" not in text
    assert "shared-gpus-config" not in text


def test_what_is_given_for_the_schedulers_pods_reaches_them(everything):
    pod, container = everything.pod(), everything.container()
    assert container["args"][-2:] == ["--set", "log.level=info"]
    assert environment(container)["HTTPS_PROXY"]["value"].startswith("http://proxy")
    assert container["envFrom"][0]["configMapRef"]["name"] == "scheduler-env"
    assert mounts(container)["tables"] == "/tables"
    assert pod["initContainers"][0]["name"] == "wait"
    assert [one["name"] for one in pod["containers"]] == ["scheduler", "proxy"]
    assert pod["securityContext"]["runAsUser"] == 1500
    assert pod["securityContext"]["runAsGroup"] == 64200, "merged, not replaced"
    assert container["securityContext"]["runAsUser"] == 1500
    assert pod["priorityClassName"] == "high"
    assert list(pod["nodeSelector"]) == ["node-role.kubernetes.io/control-plane"]
    assert pod["tolerations"][0]["operator"] == "Exists"
    assert "requiredDuringSchedulingIgnoredDuringExecution" in pod["affinity"]["podAntiAffinity"]
    assert pod["topologySpreadConstraints"][0]["maxSkew"] == 1
    assert pod["terminationGracePeriodSeconds"] == 60
    meta = everything.one("Deployment")["spec"]["template"]["metadata"]
    assert meta["annotations"]["example.com/scrape"] == "true"
    assert meta["labels"]["tier"] == "control"
    assert container["resources"]["limits"]["cpu"] == 4
    account = everything.one("ServiceAccount", "gpu-scheduler")
    assert pod["serviceAccountName"] == account["metadata"]["name"]


def test_common_labels_and_annotations_are_everywhere(everything):
    for item in everything.objects:
        if item["metadata"]["name"] not in {"second", "shared-gpus-motd"}:
            assert item["metadata"]["labels"]["team"] == "platform"
            assert item["metadata"]["annotations"]["example.com/owner"] == "platform@example.com"


def test_objects_of_ones_own_are_templates(everything):
    assert everything.one("ConfigMap", "shared-gpus-motd")["data"] == {"motd": "hello"}
    assert everything.one("ConfigMap", "second")


def test_long_names_stay_within_what_kubernetes_takes():
    rendered = render(release="r" * 53, fullnameOverride="f" * 63)
    for item in rendered.objects:
        limit = 63 if item["kind"] in {"Service", "Pod", "DaemonSet", "Deployment"} else 253
        assert len(item["metadata"]["name"]) <= limit


# -- rights --------------------------------------------------------------------------------------


def rules(role):
    return {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_agents_may_do_what_they_need_where_jobs_run_and_nothing_elsewhere(everything):
    role = everything.one("Role", "gpus-shared-gpus-agent")
    assert role["metadata"]["namespace"] == "training"
    granted = rules(role)
    assert granted == {
        *(("pods", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
        ("pods/log", "get"),
        ("services", "get"),
        ("services", "create"),
        ("secrets", "create"),
        ("leases", "create"),
        ("leases", "get"),
        ("namespaces", "get"),
    }
    assert rules(everything.one("ClusterRole", "-agent")) == {("nodes", "get")}
    binding = everything.one("RoleBinding", "gpus-shared-gpus-agent")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "gpu-agent", "namespace": "gpus"}
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_agents_may_enter_pods_only_where_an_operator_allows_it():
    role = render(agent__exec=True).one("Role", "-agent")
    assert {("pods/exec", "get"), ("pods/exec", "create")} <= rules(role)


def test_the_scheduler_may_only_ask_whose_a_token_is_and_what_a_node_was_approved(
    everything, minimal
):
    reviews = {("tokenreviews", "create")}
    assert rules(minimal.one("ClusterRole", "-scheduler")) == reviews
    assert rules(everything.one("ClusterRole", "-scheduler")) == reviews | {("nodes", "get")}


def test_rights_can_be_left_to_others():
    assert not render(rbac__create=False).kinds & {
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    }
    own = render(
        agent__serviceAccount__create=False,
        agent__serviceAccount__name="mine",
    )
    assert own.pod("DaemonSet")["serviceAccountName"] == "mine"
    assert own.one("RoleBinding", "-leasehold-agent")["subjects"][0]["name"] == "mine"


# -- the jobs' namespace ---------------------------------------------------------------------------


def test_the_namespace_of_jobs_is_restricted_and_stays(minimal, everything):
    meta = minimal.one("Namespace")["metadata"]
    assert meta["name"] == "leasehold-jobs"
    assert meta["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert meta["annotations"]["helm.sh/resource-policy"] == "keep"
    other = everything.one("Namespace")["metadata"]["labels"]
    assert other["pod-security.kubernetes.io/enforce"] == "baseline"
    assert other["istio-injection"] == "disabled"
    assert "Namespace" not in render(jobs__createNamespace=False).kinds


def test_jobs_have_an_account_without_a_token(everything):
    account = everything.one("ServiceAccount", "trainer")
    assert account["automountServiceAccountToken"] is False
    assert account["metadata"]["namespace"] == "training"
    subjects = [s for b in everything.all("RoleBinding") for s in b["subjects"]]
    assert "trainer" not in {subject["name"] for subject in subjects}


def test_quotas_and_limits_are_made_where_asked_for(everything, minimal):
    assert not minimal.kinds & {"ResourceQuota", "LimitRange"}
    hard = everything.one("ResourceQuota")["spec"]["hard"]
    assert hard == {"requests.nvidia.com/gpu": "64", "pods": "500"}
    assert everything.one("LimitRange")["spec"]["limits"][0]["type"] == "Container"


# -- networks --------------------------------------------------------------------------------------


def test_jobs_reach_each_other_their_agent_and_the_internet_but_no_private_address(minimal):
    spec = minimal.one("NetworkPolicy", "-jobs")["spec"]
    assert spec["podSelector"] == {}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"from": [{"podSelector": {}}]}]
    gang, dns, agent, internet = spec["egress"]
    assert gang == {"to": [{"podSelector": {}}]}
    assert {port["port"] for port in dns["ports"]} == {53}
    labels = minimal.one("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert agent["to"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    assert agent["ports"] == [{"port": 8643, "protocol": "TCP"}]
    assert "169.254.0.0/16" in internet["to"][0]["ipBlock"]["except"]
    closed = render(networkPolicies__jobs__internet=False).one("NetworkPolicy", "-jobs")["spec"]
    gang_too, name_servers, agent_too = closed["egress"]
    assert [gang_too, agent_too] == [gang, agent]
    assert name_servers["ports"] == dns["ports"]
    near, *ranges = name_servers["to"]
    assert near == {"namespaceSelector": {}}
    assert [one["ipBlock"]["cidr"] for one in ranges] == internet["to"][0]["ipBlock"]["except"]
    assert {"168.63.129.16/32", "192.0.0.0/24"} <= {one["ipBlock"]["cidr"] for one in ranges}


def test_jobs_reach_the_internet_by_ipv6_once_its_private_ranges_are_named():
    ranges = ["10.0.0.0/8", "2001:db8:1::/48", "fd00::/8"]
    named = render(networkPolicies__jobs__privateRanges=ranges).one("NetworkPolicy", "-jobs")
    assert named["spec"]["egress"][-1]["to"] == [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}},
        {"ipBlock": {"cidr": "::/0", "except": ["2001:db8:1::/48", "fd00::/8"]}},
    ]


def test_policies_of_scheduler_and_agents_let_in_whom_they_name(everything, minimal):
    names = {item["metadata"]["name"].rpartition("-")[2] for item in minimal.all("NetworkPolicy")}
    assert names == {"agent", "foreign", "jobs", "scheduler"}
    scheduler = everything.one("NetworkPolicy", "-scheduler")["spec"]
    peers = json.dumps(scheduler["ingress"][0]["from"])
    assert "ingress-nginx" in peers
    assert '"app.kubernetes.io/component": "agent"' in peers
    ports = {port["port"] for rule in scheduler["egress"] for port in rule.get("ports", ())}
    assert ports == {53, 443, 6443, 5433, "http"}
    agent = everything.one("NetworkPolicy", "-agent")["spec"]
    assert agent["ingress"][0]["ports"] == [{"port": "jobs", "protocol": "TCP"}]
    assert "training" in json.dumps(agent["ingress"])
    assert everything.one("NetworkPolicy", "-jobs")["spec"]["ingress"][1]["ports"] == [
        {"port": 6006}
    ]
    assert {port["port"] for rule in agent["egress"] for port in rule.get("ports", ())} >= {8642}
    open_one = minimal.one("NetworkPolicy", "-scheduler")["spec"]
    assert "from" not in open_one["ingress"][0], "Ingress and Prometheus reach it"


# -- helm test and notes ---------------------------------------------------------------------------


def test_helm_test_runs_a_script_that_is_python_and_submits_nothing(minimal):
    pod = minimal.one("Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    container = pod["spec"]["containers"][0]
    script = container["args"][0]
    compile(script, "ready.py", "exec")
    assert "dry_run=true" in script
    given = environment(container)
    assert given["LEASEHOLD_SERVER"]["value"] == "http://lh-leasehold.gpus.svc:8642"
    assert "Pod" not in render(tests__enabled=False).kinds


def test_the_same_values_render_the_same_objects_but_for_the_token(minimal):
    def digest(rendered):
        kept = [item for item in rendered.objects if item["kind"] != "Secret"]
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()

    assert digest(minimal) == digest(render(CHART / "ci" / "minimal-values.yaml"))


def test_a_setting_that_is_gone_is_rendered_and_the_program_warns(tmp_path):
    file = tmp_path / "leasehold.toml"
    text = configuration(render(scheduler__config__engine__stay=False))
    file.write_text(as_mounted(text, tmp_path))
    loaded = load_config(path=str(file), environment={})
    assert [line.partition(": 'engine.stay' is no setting")[0] for line in loaded.warnings] == [
        f"{file}: engine.stay"
    ]
