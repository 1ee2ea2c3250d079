"""The link over real HTTP, with a scheduler that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from agent.link.http_link import (
    HttpLink,
    LinkSettings,
    RefusedError,
    enrol,
    server_address,
    tls_context,
)
from leasehold_testing.ports import free_ports
from scheduler.errors import InputError, NotPermittedError
from scheduler.protocol.reports import NodeReport

TIMES = LinkSettings(wait_s=0.3, slack_s=0.5, connect_s=1.0, reply_s=1.0)
REPORT = NodeReport(
    node="n1", incarnation=1.0, sequence=1, term=1, revision=1, workers=(), leases=()
)


def run(main):
    return asyncio.run(asyncio.wait_for(main, 30))


def link(*servers, token="lh_good", settings=TIMES, **more):
    return HttpLink(
        servers=[getattr(s, "address", s) for s in servers],
        node="n1",
        token=token if callable(token) else lambda: token,
        address="10.0.0.7",
        version="1.2",
        settings=settings,
        **more,
    )


def closed_port():
    (port,) = free_ports(1)
    return f"http://127.0.0.1:{port}"


def test_news_comes_at_once_and_silence_after_the_wait(scheduler, node):
    async def main():
        way = link(scheduler)
        scheduler.want(node.lease(1, "pass"))
        first = await way.desired(after=(0, -1))
        assert [lease.lease_id for lease in first.leases] == [1]
        assert (first.term, first.revision) == (1, 1)
        began_s = time.monotonic()
        again = await way.desired(after=(1, 1))
        assert 0.25 < again.held_s <= time.monotonic() - began_s
        waiting = asyncio.create_task(way.desired(after=(1, 1)))
        await asyncio.sleep(0.05)
        scheduler.want()
        assert (await waiting).revision == 2
        await way.close()

    run(main())


def test_reports_carry_the_token_the_address_and_the_version(scheduler):
    async def main():
        way = link(scheduler)
        await way.report(REPORT)
        assert scheduler.reports == [REPORT]
        told = scheduler.headers[-1]
        assert told["authorization"] == "Bearer lh_good"
        assert told["x-leasehold-address"] == "10.0.0.7"
        assert told["x-leasehold-agent"] == "1.2"
        assert told["x-leasehold-node"] == "n1"
        await way.close()

    run(main())


def test_output_is_appended_where_the_last_piece_ended(scheduler):
    async def main():
        way = link(scheduler)
        assert await way.append_log(3, "out", offset=0, data=b'{"a": 1}\n') == 9
        assert await way.append_log(3, "out", offset=4, data=b"lost") == 9
        assert await way.append_log(3, "out", offset=9, data=b"\xff\0") == 11
        assert scheduler.logs == {(3, "out"): b'{"a": 1}\n\xff\0'}
        await way.close()

    run(main())


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (503, ConnectionError, "told to say 503"),
        (429, ConnectionError, "429"),
        (500, ConnectionError, "500"),
        (404, InputError, "told to say 404"),
        (401, RefusedError, "enrol again"),
        (403, RefusedError, "token file"),
        ("cut", ConnectionError, "RemoteProtocolError"),
        (b"no JSON", InputError, "not JSON: no JSON"),
        (b"[1]", InputError, "must be an object"),
        (b'{"term": 1}', InputError, "revision"),
        (3.0, TimeoutError, "in time"),
    ],
)
def test_what_goes_wrong_has_a_name_and_the_next_call_works(scheduler, fault, error, words):
    async def main():
        way = link(scheduler)
        scheduler.faults = [fault]
        with pytest.raises(error, match=words):
            await way.desired(after=(0, -1))
        assert (await way.desired(after=(0, -1))).revision == 0
        await way.close()

    run(main())


def test_the_bad_fields_of_a_request_are_told():
    problem = {"title": "no", "errors": [{"field": "node", "problem": "has a blank"}, 3]}
    answers = httpx.MockTransport(lambda _: httpx.Response(422, json=problem))

    async def main():
        way = HttpLink(servers=["http://a"], node="n 1", transport=answers)
        with pytest.raises(InputError, match="422: no; node has a blank"):
            await way.desired(after=(0, -1))
        await way.close()

    run(main())


def test_refusals_count_as_unreachable_and_fetch_the_token_again(scheduler):
    tokens = ["lh_old", "lh_good"]

    async def main():
        way = link(scheduler, token=lambda: tokens.pop(0))
        with pytest.raises(OSError, match="unknown token"):
            await way.report(REPORT)
        await way.report(REPORT)  # the token file has been replaced meanwhile
        await way.close()

    run(main())


def test_a_dead_address_leads_to_the_next_one(scheduler):
    async def main():
        way = link(closed_port(), scheduler)
        with pytest.raises(ConnectionError):
            await way.report(REPORT)
        await way.report(REPORT)
        assert way.server == scheduler.address
        scheduler.faults = [503, 503]
        with pytest.raises(ConnectionError):
            await way.report(REPORT)
        assert way.server != scheduler.address  # all of them, in turn
        await way.close()

    run(main())


def test_a_standby_leads_to_the_leader_who_gets_the_token(scheduler, start_scheduler):
    leader = start_scheduler()

    async def main():
        way = link(scheduler)
        scheduler.faults = [leader.address]
        await way.report(REPORT)
        await way.report(REPORT)
        assert (len(leader.reports), len(scheduler.requests)) == (2, 1)
        assert leader.headers[-1]["authorization"] == "Bearer lh_good"
        leader.faults = [503]  # it leads no longer: back to those that were given
        with pytest.raises(ConnectionError):
            await way.report(REPORT)
        await way.report(REPORT)
        assert len(scheduler.reports) == 1
        await way.close()

    run(main())


def test_redirects_in_a_circle_and_to_other_schemes_are_not_followed(scheduler):
    async def main():
        way = link(scheduler)
        scheduler.faults = [scheduler.address] * 9
        with pytest.raises(ConnectionError, match="circles"):
            await way.report(REPORT)
        scheduler.faults = ["ftp://127.0.0.1"]
        with pytest.raises(ConnectionError, match="not followed"):
            await way.report(REPORT)
        await way.close()

    run(main())


def test_a_token_never_goes_from_tls_to_plain_http():
    import httpx

    seen = []

    def answer(request):
        seen.append(str(request.url))
        return httpx.Response(307, headers={"location": "http://other.example/v1/agent/report"})

    async def main():
        way = link("https://a.example", transport=httpx.MockTransport(answer))
        with pytest.raises(ConnectionError, match="not followed"):
            await way.report(REPORT)
        assert seen == ["https://a.example/v1/agent/report"]

    run(main())


def test_an_enrolment_is_good_for_one_token(scheduler):
    async def main():
        token = await enrol(servers=[scheduler.address], node="n1", secret="lhe_once")
        assert token == "lh_n1"
        way = link(scheduler, token=token)
        await way.report(REPORT)
        await way.close()
        with pytest.raises(NotPermittedError, match="wrong, used or too old"):
            await enrol(servers=[scheduler.address], node="n1", secret="lhe_once")

    run(main())


@pytest.mark.parametrize(
    "text", ["host:8642", "ftp://host", "http://", "http://h?x=1", "http://h:port"]
)
def test_an_address_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="address"):
        server_address(text)


def test_a_link_needs_an_address_and_certificates_that_can_be_read(tmp_path):
    with pytest.raises(InputError, match="--server"):
        link()
    (tmp_path / "ca.pem").write_text("none")
    for path in (tmp_path / "ca.pem", tmp_path / "missing.pem"):
        with pytest.raises(InputError, match="certificates"):
            tls_context(path)
