"""Names in paths of requests: none of them can lead to something else."""

from __future__ import annotations

import httpx
import pytest

from leasehold.cli.session.client import ServiceClient
from leasehold.client import Client
from leasehold.client.errors import UnsendableError
from leasehold.client.exchange import Exchange, Patience
from leasehold.client.paths import Named, path_of
from leasehold.client.wires import BlockingWire
from leasehold.connection import Connection
from scheduler.errors import InputError

NOT_NAMES = ("", ".", "..", "/", "vm/attempts", "../jobs", None, 7)
#: What each method sends a name of, and that name's field.
CALLS = {
    "the job": [
        lambda c, name: c.job(name),
        lambda c, name: c.ids_of(name),
        lambda c, name: c.cancel(name),
        lambda c, name: c.hold(name),
        lambda c, name: c.release(name),
        lambda c, name: c.requeue(name),
        lambda c, name: c.change(name, weight=2.0),
        lambda c, name: c.explain(name),
        lambda c, name: c.attempts(name),
        lambda c, name: c.job_events(name),
        lambda c, name: c.wait(name),
        lambda c, name: c.log(name),
        lambda c, name: list(c.log_pieces(name)),
        lambda c, name: c.begin_exec(name, command=["true"]),
        lambda c, name: c.read_exec(name, "x"),
        lambda c, name: c.end_exec(name, "x"),
    ],
    "the command's id": [
        lambda c, name: c.read_exec("job-1", name),
        lambda c, name: c.end_exec("job-1", name),
    ],
    "the upload": [
        lambda c, name: c.find_upload(name),
        lambda c, name: c.keep_upload(name, archive=""),
    ],
    "the node": [
        lambda c, name: c.node(name),
        lambda c, name: c.node_attempts(name),
        lambda c, name: c.cordon(name),
        lambda c, name: c.drain(name),
        lambda c, name: c.uncordon(name),
        lambda c, name: c.approve_workers(name, {"v100": 1}),
        lambda c, name: c.forget_node(name),
    ],
    "the policy": [lambda c, name: c.policy_details(name)],
    "the project": [lambda c, name: c.set_project(name, weight=1.0)],
    "the reservation": [
        lambda c, name: c.reservation(name),
        lambda c, name: c.delete_reservation(name),
    ],
    "the token id": [lambda c, name: c.revoke_token(name)],
    "the webhook": [
        lambda c, name: c.test_webhook(name),
        lambda c, name: c.resume_webhook(name),
        lambda c, name: c.delete_webhook(name),
    ],
}
EACH = [(field, call) for field, calls in CALLS.items() for call in calls]


def nobody(request: httpx.Request) -> httpx.Response:
    pytest.fail(f"{request.method} {request.url} was sent")


@pytest.fixture
def client() -> Client:
    exchange = Exchange(
        Connection(server="http://scheduler"),
        patience=Patience(),
        wire=BlockingWire(httpx.MockTransport(nobody)),
    )
    made = Client.__new__(Client)
    made._talk_over(exchange)
    return made


@pytest.mark.parametrize("name", NOT_NAMES)
def test_what_is_no_name_is_refused_before_anything_is_sent(client, name):
    for field, call in EACH:
        with pytest.raises(UnsendableError) as caught:
            call(client, name)
        said = str(caught.value)
        assert said.startswith(field)
        assert (f"'{name}'" if isinstance(name, str) else repr(name)) in said or "empty" in said


def test_the_command_line_says_the_same_as_bad_input():
    service = ServiceClient(
        Connection(server="http://scheduler"), transport=httpx.MockTransport(nobody)
    )
    with pytest.raises(InputError, match=r"^the node is 'vm/attempts'; no node has such a name"):
        service.node("vm/attempts")


def test_other_names_are_quoted():
    assert path_of("jobs", Named("job", "a[3]"), "log") == "/jobs/a%5B3%5D/log"
    assert path_of("nodes", Named("node", "a b?c#d%2F")) == "/nodes/a%20b%3Fc%23d%252F"
    assert path_of("nodes", Named("node", "...")) == "/nodes/..."
    with pytest.raises(UnsendableError, match="no Unicode"):
        path_of("nodes", Named("node", "\udc80"))
