"""A small API server: enough of pods, nodes and services, with faults on demand."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


def now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def holds(condition):
    return {"type": condition, "status": "True", "lastTransitionTime": now()}


def failure(code, reason, message, **headers):
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return JSONResponse(body, code, headers=headers)


def labels_match(pod, selector):
    labels = pod["metadata"].get("labels", {})
    return all(
        labels.get(part.partition("=")[0]) == part.partition("=")[2]
        for part in (selector or "").split(",")
        if part
    )


class FakeApi:
    """Pods move when the test says so; ``run`` and ``finish`` are the kubelet."""

    def __init__(self, node):
        self.nodes = {node["metadata"]["name"]: node}
        self.pods, self.services, self.secrets, self.logs = {}, {}, {}, {}
        self.config_maps, self.namespaces, self.leases = {}, {}, {}
        self.version, self.oldest, self.history = 100, 0, []
        self.news = asyncio.Event()
        #: (method, text in path) -> list of responses to give instead, first come first served.
        self.faults = []
        self.requests = []
        #: labels that an admission webhook sets on each pod that is made or changed.
        self.forced_labels = {}
        self.places = True  # a pod is on its node at once; else no scheduler looks at it
        self.mute = False  # watches that are open send nothing, and do not end
        self.hold_deleted = True  # a pod with grace stays until ``vanish``, as with a kubelet

    # -- actions of the cluster

    def fault(self, method, part, response, times=1):
        self.faults += [(method, part, response)] * times

    def record(self, kind, pod):
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, kind, json.loads(json.dumps(pod))))
        self.news.set()
        self.news = asyncio.Event()

    def forget_history(self):
        """Let watches from older versions be refused with 410, and end those there are."""
        self.version += 1000
        self.oldest = self.version
        self.news.set()
        self.news = asyncio.Event()

    def by_name(self, name):
        return self.pods[name]

    def status(self, name, **status):
        pod = self.pods[name]
        pod["status"] = pod.get("status", {}) | status
        self.record("MODIFIED", pod)

    def run(self, name, devices=()):
        own = {"name": "job", "state": {"running": {"startedAt": now()}}}
        if devices:
            ids = [{"resourceID": device, "health": "Healthy"} for device in devices]
            own["allocatedResourcesStatus"] = [{"name": "nvidia.com/gpu", "resources": ids}]
        conditions = [
            *self.pods[name]["status"]["conditions"],
            holds("Initialized"),
            holds("Ready"),
        ]
        self.status(name, phase="Running", conditions=conditions, containerStatuses=[own])

    def wait(self, name, reason, message=""):
        state = {"waiting": {"reason": reason, "message": message}}
        self.status(name, phase="Pending", containerStatuses=[{"name": "job", "state": state}])

    def finish(self, name, code, reason=None):
        ended = {"exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error")}
        ended |= {"startedAt": now(), "finishedAt": now()}
        phase = "Succeeded" if code == 0 else "Failed"
        state = [{"name": "job", "state": {"terminated": ended}}]
        self.status(name, phase=phase, containerStatuses=state)
        if self.pods[name]["metadata"].get("deletionTimestamp"):
            self.vanish(name)

    def relabel(self, name, **labels):
        """Change labels by hand; None removes one."""
        known = self.pods[name]["metadata"]["labels"] | labels
        left = {label: value for label, value in known.items() if value is not None}
        self.pods[name]["metadata"]["labels"] = left
        self.record("MODIFIED", self.pods[name])

    def vanish(self, name):
        self.record("DELETED", self.pods.pop(name))

    @staticmethod
    def too_long(pod):
        """Return the refusal of a pod with too many bytes of annotations, as of Kubernetes."""
        pairs = pod["metadata"].get("annotations", {}).items()
        if sum(len(f"{name}{text}".encode()) for name, text in pairs) <= 262144:
            return None
        why = "metadata.annotations: Too long: may not be more than 262144 bytes"
        return failure(422, "Invalid", why)

    def collect(self):
        """Request the deletion of pods whose owner is gone, as the garbage collector does."""
        uids = {item["metadata"]["uid"] for item in self.leases.values()}
        for pod in self.pods.values():
            owners = pod["metadata"].get("ownerReferences", [])
            if owners and all(owner["uid"] not in uids for owner in owners):
                pod["metadata"]["deletionTimestamp"] = now()
                self.record("MODIFIED", pod)

    def creations(self):
        return [r for r in self.requests if r[0] == "POST" and r[1].endswith("/pods")]

    # -- answers to a client

    def app(self):
        base = "/api/v1/namespaces/{namespace}"
        leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        return Starlette(
            routes=[
                Route("/api/v1/nodes/{name}", self.get_node),
                Route("/api/v1/pods", self.list_pods),
                Route(base, self.get_namespace),
                Route(base + "/configmaps", self.list_config_maps),
                Route(base + "/configmaps/{name}", self.patch_config_map, methods=["PATCH"]),
                Route(base + "/pods", self.list_pods),
                Route(base + "/pods", self.create_pod, methods=["POST"]),
                Route(base + "/services", self.create_service, methods=["POST"]),
                Route(base + "/services/{name}", self.get_service),
                Route(base + "/secrets", self.create_secret, methods=["POST"]),
                Route(leases, self.create_lease, methods=["POST"]),
                Route(leases + "/{name}", self.get_lease),
                Route(base + "/pods/{name}", self.get_pod),
                Route(base + "/pods/{name}", self.patch_pod, methods=["PATCH"]),
                Route(base + "/pods/{name}", self.delete_pod, methods=["DELETE"]),
                Route(base + "/pods/{name}/log", self.read_log),
            ]
        )

    def check(self, request):
        self.requests.append((request.method, request.url.path, dict(request.query_params)))
        for position, (method, part, response) in enumerate(self.faults):
            if method == request.method and part in str(request.url):
                del self.faults[position]
                return response
        return None

    async def get_node(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        node = self.nodes.get(request.path_params["name"])
        return JSONResponse(node) if node else failure(404, "NotFound", "no such node")

    async def get_namespace(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        found = self.namespaces.get(request.path_params["namespace"])
        return JSONResponse(found) if found else failure(404, "NotFound", "no such namespace")

    async def list_config_maps(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        name = request.query_params["fieldSelector"].removeprefix("metadata.name=")

        def matches(item):
            return "data" in item and item["metadata"]["name"] == name

        if request.query_params.get("watch"):
            return StreamingResponse(self.watch(request, matches), media_type="application/json")
        items = [item for item in self.config_maps.values() if matches(item)]
        return JSONResponse({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def patch_config_map(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        item = self.config_maps.get(request.path_params["name"])
        if item is None:
            return failure(404, "NotFound", "no such config map")
        patch = await request.json()
        data = item["data"] | patch.get("data", {})
        item["data"] = {name: text for name, text in data.items() if text is not None}
        told = patch.get("metadata", {}).get("annotations", {})
        item["metadata"].setdefault("annotations", {}).update(told)
        self.record("MODIFIED", item)
        return JSONResponse(item)

    def add_config_map(self, name):
        self.config_maps[name] = {"metadata": {"name": name}, "data": {}}
        self.record("ADDED", self.config_maps[name])

    def matching(self, request):
        query = request.query_params
        namespace = request.path_params.get("namespace")
        node = ""
        if query.get("fieldSelector", "").startswith("spec.nodeName="):
            node = query["fieldSelector"].removeprefix("spec.nodeName=")

        def matches(pod):
            return (
                "spec" in pod
                and (not namespace or pod["metadata"]["namespace"] == namespace)
                and labels_match(pod, query.get("labelSelector"))
                and (not node or pod["spec"].get("nodeName") == node)
            )

        return matches

    async def list_pods(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        matches = self.matching(request)
        if request.query_params.get("watch"):
            return StreamingResponse(self.watch(request, matches), media_type="application/json")
        items = [pod for pod in self.pods.values() if matches(pod)]
        start = int(request.query_params.get("continue", 0))
        limit = int(request.query_params.get("limit", 500))
        metadata = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return JSONResponse({"metadata": metadata, "items": items[start : start + limit]})

    async def watch(self, request, matches):
        at, done = int(request.query_params["resourceVersion"]), 0
        shown = {}
        end = asyncio.get_running_loop().time() + float(request.query_params["timeoutSeconds"])
        silenced = False
        while asyncio.get_running_loop().time() < end:
            news = self.news
            silenced |= self.mute
            if silenced:
                await asyncio.sleep(end - asyncio.get_running_loop().time())
                return
            if at < self.oldest:
                gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                yield json.dumps({"type": "ERROR", "object": gone}) + "\n"
                return
            for version, kind, pod in self.history[done:]:
                name = pod["metadata"]["name"]
                before = shown.pop(name, None)
                if matches(pod):
                    if kind != "DELETED":
                        shown[name] = pod
                    if version > at:
                        yield json.dumps({"type": kind, "object": pod}) + "\n"
                elif before is not None and version > at:  # as it was when it still matched
                    yield json.dumps({"type": "DELETED", "object": before}) + "\n"
            done = len(self.history)
            at = max(at, self.version)
            mark = {"kind": "Pod", "metadata": {"resourceVersion": str(at)}}
            yield json.dumps({"type": "BOOKMARK", "object": mark}) + "\n"
            try:
                await asyncio.wait_for(news.wait(), end - asyncio.get_running_loop().time())
            except TimeoutError:
                return

    async def create_pod(self, request):
        pod = await request.json()
        if (bad := self.check(request)) is not None:
            return bad
        if (bad := self.too_long(pod)) is not None:
            return bad
        name = pod["metadata"]["name"]
        if name in self.pods:
            return failure(409, "AlreadyExists", f'pods "{name}" already exists')
        pod["metadata"]["uid"] = f"uid-{name}-{self.version}"
        pod["metadata"]["labels"] |= self.forced_labels
        pod["status"] = {"phase": "Pending", "conditions": []}
        if self.places:
            pod["spec"]["nodeName"] = pod["spec"]["nodeSelector"]["kubernetes.io/hostname"]
            pod["status"]["conditions"] = [holds("PodScheduled")]
        self.pods[name] = pod
        self.record("ADDED", pod)
        return JSONResponse(pod, 201)

    async def create_service(self, request):
        service = await request.json()
        if (bad := self.check(request)) is not None:
            return bad
        name = service["metadata"]["name"]
        if name in self.services:
            return failure(409, "AlreadyExists", f'services "{name}" already exists')
        self.services[name] = service
        return JSONResponse(service, 201)

    async def get_service(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        found = self.services.get(request.path_params["name"])
        return JSONResponse(found) if found else failure(404, "NotFound", "no such service")

    async def create_secret(self, request):
        secret = await request.json()
        if (bad := self.check(request)) is not None:
            return bad
        name = secret["metadata"]["name"]
        if name in self.secrets:
            return failure(409, "AlreadyExists", f'secrets "{name}" already exists')
        self.secrets[name] = secret
        return JSONResponse(secret, 201)

    async def get_lease(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        found = self.leases.get(request.path_params["name"])
        return JSONResponse(found) if found else failure(404, "NotFound", "no such lease")

    async def create_lease(self, request):
        item = await request.json()
        if (bad := self.check(request)) is not None:
            return bad
        name = item["metadata"]["name"]
        if name in self.leases:
            return failure(409, "AlreadyExists", f'leases "{name}" already exists')
        self.version += 1
        item["metadata"]["uid"] = f"uid-{name}-{self.version}"
        self.leases[name] = item
        return JSONResponse(item, 201)

    async def get_pod(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        pod = self.pods.get(request.path_params["name"])
        return JSONResponse(pod) if pod else failure(404, "NotFound", "no such pod")

    async def patch_pod(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        pod = self.pods.get(request.path_params["name"])
        if pod is None:
            return failure(404, "NotFound", "no such pod")
        patch = await request.json()
        for field in ("annotations", "labels"):
            pod["metadata"].setdefault(field, {}).update(patch["metadata"].get(field, {}))
        pod["metadata"]["labels"] |= self.forced_labels
        self.record("MODIFIED", pod)
        return JSONResponse(pod)

    async def delete_pod(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        options = await request.json()
        name = request.path_params["name"]
        pod = self.pods.get(name)
        if pod is None:
            return failure(404, "NotFound", "no such pod")
        if options["preconditions"]["uid"] != pod["metadata"]["uid"]:
            return failure(409, "Conflict", "the UID in the precondition does not match")
        pod["metadata"]["deletionTimestamp"] = now()
        pod["metadata"]["deletionGracePeriodSeconds"] = options["gracePeriodSeconds"]
        ended = pod["status"]["phase"] in {"Succeeded", "Failed"}
        self.record("MODIFIED", pod)
        if ended or options["gracePeriodSeconds"] == 0 or not self.hold_deleted:
            self.vanish(name)
        return JSONResponse(pod)

    async def read_log(self, request):
        if (bad := self.check(request)) is not None:
            return bad
        lines = self.logs.get(request.path_params["name"], [])
        since = request.query_params.get("sinceTime", "")
        kept = [line for line in lines if line[:19] >= since[:19]]
        return Response("".join(line + "\n" for line in kept), media_type="text/plain")


class Running:
    """A FakeApi that listens on loopback."""

    def __init__(self, api):
        self.api = api

    async def __aenter__(self):
        config = uvicorn.Config(
            self.api.app(), host="127.0.0.1", port=0, log_level="error", lifespan="off",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self.server.install_signal_handlers = lambda: None
        self.task = asyncio.ensure_future(self.server.serve())
        while not self.server.started:  # noqa: ASYNC110 - it sets no event
            await asyncio.sleep(0.01)
        self.url = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.server.should_exit = True
        self.server.force_exit = True
        self.api.news.set()
        await self.task
