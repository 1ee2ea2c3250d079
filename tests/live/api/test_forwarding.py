"""A standby passes requests on to the leader, as if the leader had been asked."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, StreamingResponse
from starlette.routing import Route

from api.app import create_app
from api.auth.browser import COOKIE, form_key
from api.auth.tokens import hash_secret, new_secret
from api.edge.forwarding import FORWARDED, same_certificate
from api.settings import ApiSettings
from leasehold_testing.browsing import submit
from leasehold_testing.listening import Scheduler
from leasehold_testing.service import FakeService
from scheduler.store.rows import TokenRow
from scheduler.views.types import Health

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from starlette.requests import Request


class Leader:
    """A leader that returns its request."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.asked = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/stream", self.stream),
                Route("/v1/moved", self.moved),
                Route("/{path:path}", self.echo, methods=["GET", "POST", "DELETE"]),
            ]
        )

    async def echo(self, request: Request) -> JSONResponse:
        self.asked += 1
        body = await request.body()
        told = {
            "method": request.method,
            "path": request.url.path,
            "query": request.url.query,
            "body": body.decode(),
            "token": request.headers.get("authorization"),
            "mark": request.headers.get(FORWARDED),
            "for": request.headers.getlist("x-forwarded-for"),
            "by": request.headers.get("forwarded"),
        }
        return JSONResponse(told, 201, headers={"x-own": "1", "x-request-id": "the-leaders"})

    async def moved(self, _request: Request) -> RedirectResponse:
        return RedirectResponse("http://10.0.0.9:8642/v1/moved", 307)

    async def stream(self, _request: Request) -> StreamingResponse:
        async def lines() -> AsyncIterator[str]:
            try:
                for number in range(1000):
                    yield f"{number}\n"
                    await asyncio.sleep(0.02)
            finally:
                self.gone.set()

        return StreamingResponse(lines())


class Standby(FakeService):
    """A service that does not lead and knows the leader."""

    leader_address = ""

    def health(self) -> Health:
        return Health(
            ready=True, leading=self.leading, leader_address=self.leader_address,
            problems=(), started_s=0.0, version="9",
        )  # fmt: skip


@contextlib.asynccontextmanager
async def serving(app: Any, **more: Any) -> AsyncIterator[str]:
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="error", proxy_headers=False, **more
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[method-assign]
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it sets no event
        await asyncio.sleep(0.01)
    scheme = "https" if "ssl_certfile" in more else "http"
    yield f"{scheme}://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = server.force_exit = True
    await task


@contextlib.asynccontextmanager
async def both(**settings: Any) -> AsyncIterator[tuple[Leader, Standby, httpx.AsyncClient]]:
    leader, standby = Leader(), Standby(now_s=1e6)
    standby.leading = False
    app = create_app(standby, ApiSettings(**({"forward": True, "auth": False} | settings)))
    async with serving(leader.app()) as there, serving(app, lifespan="on") as here:
        standby.leader_address = there
        async with httpx.AsyncClient(base_url=here) as client:
            yield leader, standby, client


def test_a_request_goes_on_and_its_answer_comes_back_as_they_are() -> None:
    async def scenario() -> None:
        async with both() as (_, _, client):
            answer = await client.post(
                "/v1/jobs?a=b%20c&d", content=b'{"x": 1}', headers={"Authorization": "Bearer t"}
            )
            assert answer.status_code == 201
            assert answer.headers["x-own"] == "1"
            assert answer.json() == {
                "method": "POST", "path": "/v1/jobs", "query": "a=b%20c&d", "body": '{"x": 1}',
                "token": "Bearer t", "mark": "1", "for": ["127.0.0.1"], "by": None,
            }  # fmt: skip
            # Reading, too: a standby's state may be older than the caller's last action.
            assert (await client.get("/v1/jobs")).json()["method"] == "GET"
            assert (await client.delete("/v1/agent/x")).json()["method"] == "DELETE"

    asyncio.run(scenario())


def test_the_leader_hears_from_whom_a_request_comes_and_not_whom_its_sender_names() -> None:
    async def scenario() -> None:
        async with both() as (_, _, client):
            lies = {"X-Forwarded-For": "10.9.9.9", "Forwarded": "for=10.9.9.9"}
            told = (await client.get("/v1/jobs", headers=lies)).json()
            assert (told["for"], told["by"]) == (["127.0.0.1"], None)

    asyncio.run(scenario())


def test_a_large_body_is_kept_only_for_somebody_who_is_known() -> None:
    async def scenario() -> None:
        async with both(auth=True) as (leader, standby, client):
            secret = new_secret()
            standby.store.add_token(
                TokenRow(
                    token_id="t", secret_hash=hash_secret(secret), subject="ann", role="user",
                    created_s=1e6,
                )
            )  # fmt: skip
            large, small = b" " * 100_000, b" " * 1000
            assert (await client.post("/v1/jobs", content=large)).status_code == 413
            assert leader.asked == 0
            assert (await client.post("/v1/jobs", content=small)).status_code == 201
            headers = {"Authorization": f"Bearer {secret}"}
            answer = await client.post("/v1/jobs", content=large, headers=headers)
            assert answer.status_code == 201
            assert answer.json()["body"] == large.decode()

    asyncio.run(scenario())


def test_half_of_a_request_is_not_passed_on() -> None:
    async def scenario() -> None:
        async with both() as (leader, _, client):
            url = client.base_url
            _, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(
                b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            )
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            assert (await client.get("/v1/jobs")).status_code == 201
            assert leader.asked == 1

    asyncio.run(scenario())


def test_what_is_about_the_process_itself_is_answered_here() -> None:
    async def scenario() -> None:
        async with both() as (leader, standby, client):
            for path in ("/healthz", "/readyz", "/metrics"):
                assert (await client.get(path)).status_code == 200
            assert (await client.get("/readyz")).json()["leading"] is False
            # No request goes round in circles.
            again = await client.post("/v1/jobs", json={}, headers={FORWARDED: "1"})
            assert again.status_code in {307, 422, 503}
            standby.leading = True
            assert (await client.get("/v1/jobs")).json() == {"jobs": [], "next_cursor": None}
            assert leader.asked == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "moved"])
def test_a_leader_that_is_gone_is_waited_for_by_the_caller(address: str) -> None:
    async def scenario() -> None:
        async with both() as (_, standby, client):
            if address != "moved":
                standby.leader_address = address
            answer = await client.get("/v1/moved")
            assert answer.status_code == 503
            assert "is a standby" in answer.json()["detail"]
            assert answer.headers["retry-after"]

    asyncio.run(scenario())


def test_a_stream_comes_through_as_it_is_made_and_ends_with_its_reader() -> None:
    async def scenario() -> None:
        async with both() as (leader, _, client):
            async with client.stream("GET", "/v1/stream") as stream:
                lines = stream.aiter_lines()
                assert [await anext(lines) for _ in range(3)] == ["0", "1", "2"]
                assert not leader.gone.is_set()
            await asyncio.wait_for(leader.gone.wait(), 60.0)

    asyncio.run(scenario())


def test_a_body_that_is_too_large_goes_nowhere() -> None:
    async def scenario() -> None:
        async with both(max_body_bytes=1000) as (leader, _, client):
            answer = await client.post("/v1/jobs", content=b"x" * 2000)
            assert answer.status_code == 413
            assert leader.asked == 0

    asyncio.run(scenario())


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[Path, Path]:
    """Make two pairs of key and certificate for another name than the servers' here."""
    made = []
    for name in ("one", "other"):
        path = tmp_path / f"{name}.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=leasehold.example", "-keyout", str(path),
             "-out", str(tmp_path / f"{name}.crt")],
            check=True, capture_output=True,
        )  # fmt: skip
        path.write_text(path.read_text() + (tmp_path / f"{name}.crt").read_text())
        made.append(path)
    return made[0], made[1]


def test_the_leader_must_show_the_same_certificate_whatever_its_address(
    certificates: tuple[Path, Path], tmp_path: Path
) -> None:
    async def scenario() -> None:
        one, other = certificates
        standby = Standby(now_s=1e6)
        standby.leading = False
        settings = ApiSettings(forward=True, auth=False, certificate=str(tmp_path / "one.crt"))
        app = create_app(standby, settings)
        async with serving(app, lifespan="on") as here, httpx.AsyncClient(base_url=here) as client:
            for shown, status in ((one, 201), (other, 503)):
                async with serving(Leader().app(), ssl_certfile=shown) as there:
                    standby.leader_address = there
                    assert (await client.get("/v1/jobs")).status_code == status

    asyncio.run(scenario())
    assert same_certificate((tmp_path / "one.crt").read_text()).verify_mode is ssl.CERT_REQUIRED


def test_a_renewed_certificate_of_all_schedulers_needs_no_restart(
    certificates: tuple[Path, Path], tmp_path: Path
) -> None:
    async def scenario() -> None:
        one, other = certificates
        shared = tmp_path / "shared.crt"
        shared.write_text(one.read_text())
        standby = Standby(now_s=1e6)
        standby.leading = False
        app = create_app(standby, ApiSettings(forward=True, auth=False, certificate=str(shared)))
        async with serving(app, lifespan="on") as here, httpx.AsyncClient(base_url=here) as client:
            for shown in (one, other):
                shared.write_text(shown.read_text())
                async with serving(Leader().app(), ssl_certfile=shown) as there:
                    standby.leader_address = there
                    assert (await client.get("/v1/jobs")).status_code == 201
            shared.unlink()
            assert (await client.get("/v1/jobs")).status_code == 503

    asyncio.run(scenario())


@pytest.fixture
def leader_and_standby() -> Iterator[tuple[Scheduler, Scheduler]]:
    """Return two schedulers that require tokens; the other forwards to the first."""
    one, other = Scheduler(settings=ApiSettings()), Scheduler(settings=ApiSettings(forward=True))
    health = dataclasses.replace(other.service.health(), leading=False, leader_address=one.url)
    other.service.leading = False
    other.service.health = lambda: health  # type: ignore[method-assign]
    yield one, other
    other.stop()
    one.stop()


def state_on_page(browser: httpx.Client, job: str) -> str:
    """Return the state of a job on the page of the leader."""
    page = browser.get("/jobs", params={"status": "held"})
    assert page.status_code == 200
    return "held" if job in page.text else "waiting"


def test_a_browser_signs_in_and_acts_through_a_standby(
    leader_and_standby: tuple[Scheduler, Scheduler],
) -> None:
    leader, standby = leader_and_standby
    secret, job = leader.token("admin"), submit(leader, "train")
    own = {"Origin": standby.url}
    with httpx.Client(base_url=standby.url) as browser:
        assert browser.get("/jobs").headers["location"] == "./sign-in?next=jobs"
        answer = browser.post("/sign-in", data={"token": secret}, headers=own)
        assert (answer.status_code, browser.cookies[COOKIE]) == (303, secret)
        page = browser.get(f"/jobs/{job}/hold")
        assert form_key(secret) in page.text
        form = {"form_key": form_key(secret), "reason": "maintenance"}
        foreign = browser.post(
            f"/jobs/{job}/hold", data=form, headers={"Origin": "https://evil.example"}
        )
        assert foreign.status_code == 403
        assert state_on_page(browser, job) == "waiting"
        assert browser.post(f"/jobs/{job}/hold", data=form, headers=own).status_code == 303
        assert state_on_page(browser, job) == "held"
        stranger = httpx.post(f"{standby.url}/jobs/{job}/release", data=form, headers=own)
        assert stranger.status_code == 401
        assert state_on_page(browser, job) == "held"
    assert leader.requests > 5
