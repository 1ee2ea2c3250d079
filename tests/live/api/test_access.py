"""Access to routes: a table of every route and every role."""

from __future__ import annotations

import gzip
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest
from starlette.routing import Route

from api.app import create_app
from api.auth.browser import page_of
from api.settings import ApiSettings
from leasehold_testing.service import FakeService
from scheduler.archive import digest_of
from scheduler.store.uploads import UploadLimits

if TYPE_CHECKING:
    from collections.abc import Callable

ROLES = ("nobody", "viewer", "user", "operator", "admin", "agent", "metrics")
EVERYBODY = set(ROLES)
ANY_TOKEN = EVERYBODY - {"nobody", "metrics"}
READ = {"viewer", "user", "operator", "admin"}
WRITE = {"user", "operator", "admin"}
OPERATE = {"operator", "admin"}
ADMIN = {"admin"}
AGENT = {"agent"}

REPORT = {
    "node": "alpha", "incarnation": 1.0, "sequence": 1, "term": 1, "revision": 1, "workers": [],
    "leases": [],
}  # fmt: skip
#: A tree of code with nothing in it.
CODE = gzip.compress(bytes(1024), mtime=0)
DIGEST = digest_of(CODE)
SENT = {"archive": b64encode(CODE).decode()}
HOOK = {
    "name": "hook", "url": "https://example.com/hook", "on": ["job_failed"], "project": "default",
}  # fmt: skip
FIGURE = {"throughputs": [{"job_type": "a", "worker_type": "v100", "steps_per_s": 1}]}
KEPT = {
    "name": "kept", "worker_type": "v100", "workers": 1, "from_s": 2e9, "until_s": 3e9,
    "project": "vision",
}  # fmt: skip
EXEC, TOLD = "0" * 32, {"number": 0, "pieces": []}
#: Let in, but nothing runs on the fake daemon; what runs beside jobs is in tests/redteam/test_exec.
NOTHING_RUNS = {404, 409}
#: (method, path as registered) -> allowed roles, a concrete path, a body.
TABLE: dict[tuple[str, str], tuple[set[str], str, object]] = {
    ("GET", "/healthz"): (EVERYBODY, "/healthz", None),
    ("GET", "/readyz"): (EVERYBODY, "/readyz", None),
    ("GET", "/v1/openapi.json"): (EVERYBODY, "/v1/openapi.json", None),
    ("GET", "/metrics"): (READ | {"metrics"}, "/metrics", None),
    ("GET", "/v1/version"): (ANY_TOKEN, "/v1/version", None),
    ("GET", "/v1/whoami"): (ANY_TOKEN, "/v1/whoami", None),
    ("POST", "/v1/jobs"): (WRITE, "/v1/jobs", {"name": "a", "command": ["b"]}),
    ("GET", "/v1/jobs"): (READ, "/v1/jobs", None),
    ("PATCH", "/v1/jobs"): (WRITE, "/v1/jobs", {"ids": ["job-1"], "weight": 2}),
    ("POST", "/v1/jobs:act"): (WRITE, "/v1/jobs:act", {"ids": ["job-1"], "action": "hold"}),
    ("GET", "/v1/jobs/{job_id}"): (READ, "/v1/jobs/job-1", None),
    ("PATCH", "/v1/jobs/{job_id}"): (WRITE, "/v1/jobs/job-1", {"weight": 2}),
    ("POST", "/v1/jobs/{job_id}/{action}"): (WRITE, "/v1/jobs/job-1/hold", None),
    ("GET", "/v1/jobs/{job_id}/attempts"): (READ, "/v1/jobs/job-1/attempts", None),
    ("GET", "/v1/jobs/{job_id}/events"): (READ, "/v1/jobs/job-1/events", None),
    ("GET", "/v1/jobs/{job_id}/explain"): (READ, "/v1/jobs/job-1/explain", None),
    ("GET", "/v1/jobs/{job_id}/log"): (READ, "/v1/jobs/job-1/log", None),
    ("GET", "/v1/uploads/{digest}"): (WRITE, f"/v1/uploads/{DIGEST}", None),
    ("PUT", "/v1/uploads/{digest}"): (WRITE, f"/v1/uploads/{DIGEST}", SENT),
    # The job is the administrator's, and only its owner runs commands beside a job.
    ("POST", "/v1/jobs/{job_id}/exec"): (ADMIN, "/v1/jobs/job-1/exec", {"command": ["ls"]}),
    ("GET", "/v1/jobs/{job_id}/exec/{exec_id}"): (ADMIN, f"/v1/jobs/job-1/exec/{EXEC}", None),
    ("DELETE", "/v1/jobs/{job_id}/exec/{exec_id}"): (ADMIN, f"/v1/jobs/job-1/exec/{EXEC}", None),
    ("GET", "/v1/webhooks"): (READ, "/v1/webhooks", None),
    ("POST", "/v1/webhooks"): (WRITE, "/v1/webhooks", HOOK | {"name": "other"}),
    # The webhook is the administrator's.
    ("POST", "/v1/webhooks/{name}/test"): (OPERATE, "/v1/webhooks/hook/test", None),
    ("POST", "/v1/webhooks/{name}/resume"): (OPERATE, "/v1/webhooks/hook/resume", {}),
    ("DELETE", "/v1/webhooks/{name}"): (OPERATE, "/v1/webhooks/hook", None),
    ("GET", "/v1/reservations"): (READ, "/v1/reservations", None),
    ("GET", "/v1/reservations/{name}"): (READ, "/v1/reservations/kept", None),
    ("POST", "/v1/reservations"): (OPERATE, "/v1/reservations", KEPT | {"name": "other"}),
    ("DELETE", "/v1/reservations/{name}"): (OPERATE, "/v1/reservations/kept", None),
    ("GET", "/v1/events"): (READ, "/v1/events", None),
    ("GET", "/v1/nodes"): (READ, "/v1/nodes", None),
    ("GET", "/v1/nodes/{name}"): (READ, "/v1/nodes/alpha", None),
    ("GET", "/v1/nodes/{name}/attempts"): (READ, "/v1/nodes/alpha/attempts", None),
    ("POST", "/v1/nodes/{name}/{action}"): (OPERATE, "/v1/nodes/alpha/drain", {"reason": "dust"}),
    ("PUT", "/v1/nodes/{name}/workers"): (
        OPERATE,
        "/v1/nodes/alpha/workers",
        {"workers": {"v100": 1}},
    ),
    ("DELETE", "/v1/nodes/{name}"): (OPERATE, "/v1/nodes/alpha", None),
    ("GET", "/v1/cluster"): (READ, "/v1/cluster", None),
    ("GET", "/v1/leases"): (READ, "/v1/leases", None),
    ("GET", "/v1/plan"): (READ, "/v1/plan", None),
    ("GET", "/v1/attempts"): (READ, "/v1/attempts", None),
    ("GET", "/v1/allocation"): (READ, "/v1/allocation", None),
    ("GET", "/v1/policies"): (READ, "/v1/policies", None),
    ("GET", "/v1/policies/{name}"): (READ, "/v1/policies/fifo", None),
    ("GET", "/v1/policy"): (READ, "/v1/policy", None),
    ("PUT", "/v1/policy"): (OPERATE, "/v1/policy", {"name": "fifo"}),
    ("POST", "/v1/policy:try"): (OPERATE, "/v1/policy:try", {"name": "fifo"}),
    ("GET", "/v1/projects"): (READ, "/v1/projects", None),
    ("PUT", "/v1/projects/{name}"): (OPERATE, "/v1/projects/vision", {}),
    ("GET", "/v1/usage"): (READ, "/v1/usage", None),
    ("GET", "/v1/throughputs"): (READ, "/v1/throughputs", None),
    ("PUT", "/v1/throughputs"): (OPERATE, "/v1/throughputs", FIGURE),
    ("DELETE", "/v1/throughputs"): (OPERATE, "/v1/throughputs?job_type=a", None),
    ("POST", "/v1/sign-in-codes"): (READ, "/v1/sign-in-codes", None),
    ("GET", "/v1/tokens"): (ADMIN, "/v1/tokens", None),
    ("POST", "/v1/tokens"): (ADMIN, "/v1/tokens", {"subject": "ann", "role": "viewer"}),
    ("DELETE", "/v1/tokens/{token_id}"): (ADMIN, "/v1/tokens/viewer-1", None),
    ("POST", "/v1/enrolments"): (ADMIN, "/v1/enrolments", {}),
    # The secret of an enrolment is needed here; this one is wrong for all.
    ("POST", "/v1/agent/enrol"): (set(), "/v1/agent/enrol", {"node": "alpha", "secret": "no"}),
    ("POST", "/v1/agent/token"): (AGENT, "/v1/agent/token", {}),
    ("GET", "/v1/agent/desired"): (AGENT, "/v1/agent/desired", None),
    ("GET", "/v1/agent/code/{lease_id}"): (AGENT, "/v1/agent/code/1", None),
    ("POST", "/v1/agent/execs/{exec_id}"): (AGENT, f"/v1/agent/execs/{EXEC}", TOLD),
    ("POST", "/v1/agent/report"): (AGENT, "/v1/agent/report", REPORT),
    ("PUT", "/v1/agent/logs/{lease_id}/{stream}"): (AGENT, "/v1/agent/logs/1/out", None),
}  # fmt: skip


def registered() -> list[tuple[str, str]]:
    app = create_app(FakeService(), ApiSettings())
    return sorted(
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route) and page_of(route.path) is None  # see pages/
        for method in (route.methods or set()) - {"HEAD"}
    )


def test_every_route_has_a_line_in_the_table_and_every_line_a_route() -> None:
    assert registered() == sorted(TABLE)


@pytest.mark.parametrize(("method", "path"), registered())
def test_a_route_lets_in_exactly_the_roles_of_the_table(
    serve: Callable[..., object], method: str, path: str
) -> None:
    allowed, url, body = TABLE[method, path]
    for role in ROLES:
        daemon = serve()
        daemon.service.store.keep_upload("default", DIGEST, CODE, now_s=1.0, limits=UploadLimits())
        job = {"name": "a", "command": ["b"], "upload": DIGEST}
        daemon.caller("admin").post("/v1/jobs", json=job)
        daemon.service.run("job-1")
        for kind, made in (("webhooks", HOOK), ("reservations", KEPT)):
            assert daemon.caller("admin").post(f"/v1/{kind}", json=made).status_code == 201
        daemon.caller("admin").put("/v1/throughputs", json=FIGURE)
        if method == "DELETE" and "nodes" in path:
            daemon.caller("admin").post("/v1/nodes/alpha/drain")
        daemon.secret("viewer")
        target = url.replace("viewer-1", daemon.service.store.tokens()[-1].token_id)
        caller = (
            daemon.client
            if role == "nobody"
            else daemon.caller(role, subject="alpha" if role == "agent" else role)
        )
        status = caller.request(method, target, json=body).status_code
        if role in allowed:
            assert status < 300 or ("exec" in path and status in NOTHING_RUNS), (role, status)
        elif role == "nobody" and path != "/v1/agent/enrol":
            assert status == 401
        else:
            assert status == 403, (role, status)


#: Of a project, or of a job in one: a user that may not see it gets "not found".
OF_A_PROJECT = ("/exec", "/webhooks/")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        route
        for route in registered()
        if TABLE[route][0] in (OPERATE, ADMIN)
        and not any(part in route[1] for part in OF_A_PROJECT)
    ],
)
def test_what_concerns_all_projects_is_changed_by_unconfined_tokens_only(
    serve: Callable[..., object], method: str, path: str
) -> None:
    _, url, body = TABLE[method, path]
    daemon = serve()
    caller = daemon.caller("admin", projects=("vision",))
    assert caller.request(method, url, json=body).status_code == 403
    assert "confined to vision" in caller.request(method, url, json=body).json()["detail"]


def test_without_authentication_everybody_is_an_administrator(serve: Callable[..., object]) -> None:
    client = serve(auth=False).client
    assert client.get("/v1/whoami").json() == {
        "subject": "anonymous",
        "role": "admin",
        "projects": [],
        "token_id": "",
        "expires_s": None,
    }
    assert client.get("/v1/tokens").status_code == 200
    stale = client.get("/v1/whoami", headers={"Authorization": "Bearer lh_of_another_server"})
    assert stale.json()["subject"] == "anonymous"


def test_metrics_can_be_opened_and_readiness_tells_details_to_known_callers_only(
    serve: Callable[..., object],
) -> None:
    daemon = serve(metrics_open=True)
    assert daemon.client.get("/metrics").status_code == 200
    daemon.service.ready = False
    public = daemon.client.get("/readyz")
    assert (public.status_code, public.json()["problems"]) == (503, ["the database is away"])
    known = daemon.caller("viewer").get("/readyz").json()
    assert known["problems"] == ["the database is away: no route to 10.0.0.7"]
    daemon.service.ready = True
    daemon.service.problems = ("policy 'p' gives no answer: job 'j'",)
    assert daemon.client.get("/readyz").json()["problems"] == []
