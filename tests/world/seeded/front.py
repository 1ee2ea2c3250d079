"""What agents reach of a scheduler: the routes of ``api.routes.agents`` without the web server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson

from api.problems import fault_of
from scheduler.errors import LeaseholdError, NotLeadingError
from scheduler.protocol.reports import report_from_dict

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from scheduler.protocol.reports import NodeReport
    from scheduler.runtime.service import LiveService


class Front:
    """Answers agents' requests from a service in this process.

    Args:
        service: answers requests.
        told: called with node and desired set as it is sent.
        reported: called with a report that was taken in.
    """

    def __init__(
        self,
        service: LiveService,
        *,
        told: Callable[[str, Any], None],
        reported: Callable[[NodeReport], None],
    ) -> None:
        self._service = service
        self._told, self._reported = told, reported

    async def __call__(self, _source: str, request: Any) -> Any:
        """Answer a request of an agent, or make the call of another caller."""
        if callable(request):
            try:
                return await request(self._service)
            except LeaseholdError as error:
                return error
        try:
            return await self._answer(request)
        except NotLeadingError as error:
            if error.leader_address:
                where = error.leader_address + request.url.raw_path.decode()
                return {"status_code": 307, "headers": {"location": where}, "request": request}
            return _problem(error, request)
        except LeaseholdError as error:
            return _problem(error, request)

    async def _answer(self, request: httpx.Request) -> dict[str, Any]:
        node = unquote(request.headers["x-leasehold-node"])
        if request.url.path == "/v1/agent/desired":
            given = request.url.params
            after = int(given["term"]), int(given["revision"])
            body = await self._service.desired_json(
                node,
                after=after,
                wait_s=float(given["wait_s"]),
                instance=request.headers.get("x-leasehold-instance", ""),
            )
            self._told(node, orjson.loads(body))
            return {"status_code": 200, "content": body, "request": request}
        if request.url.path == "/v1/agent/report":
            report = report_from_dict(orjson.loads(request.content))
            await self._service.report(
                report,
                address=request.headers["x-leasehold-address"],
                version=request.headers["x-leasehold-agent"],
            )
            self._reported(report)
            return {"status_code": 204, "request": request}
        return {"status_code": 404, "content": b"{}", "request": request}


def _problem(error: LeaseholdError, request: Any) -> dict[str, Any]:
    fault = fault_of(error)  # none of a write that the database has refused: that is a 500
    detail, status = (str(error), 500) if fault is None else (fault.detail, fault.status)
    body = orjson.dumps({"title": type(error).__name__, "detail": detail})
    return {"status_code": status, "content": body, "request": request}
