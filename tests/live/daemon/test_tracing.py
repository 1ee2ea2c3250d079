"""Traces of jobs: a real daemon and agent, and a collector that takes OTLP over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.server
import threading
import time

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from scheduler.domain.jobs.trace_ids import trace_id, traceparent

#: An address at which nothing listens.
AWAY = "http://127.0.0.1:9"


class Collector:
    """Takes spans, as a collector of OpenTelemetry does."""

    def __init__(self):
        self.spans, self.services = [], set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for pair in part.resource.attributes:
                        if pair.key == "service.name":
                            outer.services.add(pair.value.string_value)
                    outer.spans += [s for scope in part.scope_spans for s in scope.spans]
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def wait_for(self, name):
        """Wait until a span of a name has come."""
        end = time.monotonic() + 60.0
        while name not in (names := [span.name for span in self.spans]):
            assert time.monotonic() < end, f"no span '{name}' has come, only {names}"
            time.sleep(0.05)

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.close()


@contextlib.asynccontextmanager
async def cluster(start, tmp_path, daemon, config):
    """Run a daemon in this process with an agent beside it; gives a client of it."""
    async with daemon(config) as (running, client):
        until_s = time.monotonic() + 60.0
        while not (await client.get("/readyz")).json()["leading"]:
            assert time.monotonic() < until_s
            await asyncio.sleep(0.05)
        start(
            *("agent", f"--server={running.url}", "--node=alpha", "--worker=v100:1"),
            f"--state-dir={tmp_path / 'a'}",
            quick=False,
        )
        yield client


async def ended(client, **fields):
    """Submit a job and return it after it has ended."""
    made = await client.post("/v1/jobs", json=fields)
    assert made.status_code == 201, made.text
    job_id, until_s = made.json()["job_id"], time.monotonic() + 120.0
    while True:
        found = (await client.get(f"/v1/jobs/{job_id}")).json()
        if found["status"] in ("completed", "failed"):
            return found
        assert time.monotonic() < until_s, found
        await asyncio.sleep(0.1)


def test_a_job_becomes_a_trace_that_its_processes_can_join(
    tmp_path, start, daemon, make_config, collector
):
    config = make_config(tracing__endpoint=collector.url, server__no_auth="true")

    async def story():
        async with cluster(start, tmp_path, daemon, config) as client:
            # The agent reports the first step before the job ends.
            command = ["sh", "-c", "echo got $TRACEPARENT; echo step 1; sleep 5; echo step 2"]
            job = await ended(
                client,
                name="traced",
                command=command,
                total_steps=2,
                progress_regex=r"step (\d+)",
            )
            await asyncio.to_thread(collector.wait_for, "traced")
            return job["job_id"], (await client.get(f"/v1/jobs/{job['job_id']}/log")).text

    job_id, log = asyncio.run(story())
    spans = {span.name: span for span in collector.spans}
    assert len(spans) == len(collector.spans)
    whole, waiting, attempt = spans["traced"], spans["waiting"], spans["attempt 1"]
    assert whole.trace_id.hex() == trace_id(job_id)
    assert waiting.parent_span_id == attempt.parent_span_id == whole.span_id
    assert whole.start_time_unix_nano == waiting.start_time_unix_nano
    assert waiting.end_time_unix_nano == attempt.start_time_unix_nano
    assert attempt.end_time_unix_nano == whole.end_time_unix_nano
    launch, first = spans["launch"], spans["first step"]
    assert launch.parent_span_id == first.parent_span_id == attempt.span_id
    assert launch.start_time_unix_nano == attempt.start_time_unix_nano
    assert launch.end_time_unix_nano == first.start_time_unix_nano
    assert first.end_time_unix_nano < attempt.end_time_unix_nano
    attributes = {pair.key: pair.value for pair in attempt.attributes}
    assert attributes["leasehold.worker_type"].string_value == "v100"
    assert collector.services == {"leasehold"}
    assert attempt.span_id.hex() in traceparent(job_id, 1)
    assert f"got {traceparent(job_id, 1)}" in log


def test_jobs_run_and_the_daemon_stops_if_the_collector_is_away(
    tmp_path, start, daemon, make_config
):
    config = make_config(tracing__endpoint=AWAY, server__no_auth="true")

    async def story():
        async with cluster(start, tmp_path, daemon, config) as client:
            return await ended(client, name="untraced", command=["true"])

    assert asyncio.run(story())["status"] == "completed"
