"""Refusals of the command line itself: the message names the option and its value."""

from __future__ import annotations

import socket
import sys

import httpx
import pytest

from leasehold.cli.main import main
from leasehold.cli.session.client import ServiceClient
from leasehold.cli.session.problems import problem_error
from leasehold.cli.session.wording import option_of, reword, wording_of, wording_of_job
from leasehold.client.exchange import Patience
from leasehold.connection import Connection, SettingsError, find_connection
from scheduler.errors import InputError, UnreachableError

#: No process listens there; a sent request ends with another code.
NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def refused(capfd, monkeypatch, tmp_path):
    """Return a function that runs a command refused without a scheduler; it returns the message."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LEASEHOLD_SERVER", NOBODY)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["leasehold", *arguments])
        try:
            code = main()
        except SystemExit as end:
            code = end.code
        said = capfd.readouterr()
        assert (code, said.out) == (2, "")
        return said.err.splitlines()[0].removeprefix("leasehold: ")

    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit", "--array", "-1", "--", "a"], "--array is '-1'; give 1 or more"),
        (["submit", "--retries", "-1", "--", "a"], "--retries is '-1'; give 0 or more"),
        (["submit", "--weight", "x", "--", "a"], "--weight is 'x'; give a number"),
        (["logs", "a", "--attempt", "0"], "--attempt is '0'; give 1 or more"),
        (["jobs", "--limit", "9999"], "--limit is '9999'; give 1000 or less"),
        (["exec", "a", "--rank", "1.5"], "--rank is '1.5'; give a whole number"),
        (["alerts", "--deadline-s", "inf"], "inf is no span; give seconds"),
        (["alerts", "--round-length-s", "inf"], "inf is no span; give seconds"),
        (["set", "a", "--weight", "nan"], "--weight is nan; give a finite number"),
        (
            ["throughputs", "--job-type", "a", "--declare", "v100=nan"],
            "--declare 'v100' is 'nan'; give a finite number",
        ),
        (
            ["throughputs", "--job-type", "a", "--declare", "v100=-1"],
            "--declare 'v100' is -1; give steps/s, 0 or more",
        ),
        (["project", "set", "a", "--max-workers", "v100=1,v100=2"], "which names 'v100' twice"),
        (["project", "set", "a", "--max-workers", "1,2"], "--max-workers is '1,2', which gives"),
        (["project", "set", "a", "--max-workers", "9" * 20], f"--max-workers is '{'9' * 20}'"),
        (["project", "set", "a", "--max-workers-per-user", "v100=1e3"], "give whole numbers"),
        (["project", "set", "a", "--max-jobs", "-1"], "--max-jobs is '-1'; give a whole number"),
        (["project", "set", "a", "--max-job-weight", "nan"], "--max-job-weight is 'nan'"),
        (
            ["project", "set", "a", "--budget", "5 gpu-hours,6 gpu-hours"],
            "--budget is '5 gpu-hours,6 gpu-hours', which gives gpu-hours twice",
        ),
        (["project", "set", "a", "--budget", "nan usd"], "--budget is 'nan usd'; give"),
        (["watch", "--after", "3", "--since", "1h"], "--since '1h' and --after 3 exclude"),
        (["usage", "--idle", "--by", "job"], "--by 'job' and --idle exclude each other"),
        (["usage", "--idle", "--since", "1h"], "--since '1h' and --idle exclude each other"),
        (["usage", "--since", "1h", "--until", "2h"], "--since is '1h', which is not before"),
        (["usage", "--since", "9999-01-01"], "--since is '9999-01-01'; give a time before 5138-"),
        (["approve", "vm", "--worker", "v100:0"], "--worker is 'v100:0'; give TYPE:COUNT"),
        (["token", "enrol", "--worker", "v100:0"], "--worker is 'v100:0'; give TYPE:COUNT"),
        (["token", "enrol", "--worker", "v100:99999"], "--worker is 'v100:99999'"),
        (
            ["reservation", "add", "r", "-t", "v100", "-n", "1", "--from", "2h", "--until", "1h",
             "--project", "a"],
            "--until is '1h', which is not after --from, '2h'",
        ),
        (["nodes", "--server", "http://host:99999"], "the server is 'http://host:99999'"),
        (["exec", "a", "ls"], "give the command behind --"),
    ],
)  # fmt: skip
def test_the_option_and_its_value_are_named(refused, arguments, said):
    assert said in refused(*arguments)


def problem(field, value, said):
    return {
        "type": "urn:leasehold:problem:invalid",
        "title": "Unprocessable",
        "status": 422,
        "errors": [{"field": field, "value": value, "problem": said}],
    }


@pytest.mark.parametrize(
    ("field", "value", "said", "line"),
    [
        ("ttl_s", 0.0, "must be at least 1.0", "--ttl is 0s: must be at least 1s"),
        ("ttl_s", 8.64e7, "must be at most 2592000.0", "--ttl is 1000d00h: must be at most 30d00h"),
        ("weight", -1.0, "must be at least 1e-06", "--weight is -1: must be at least 1e-06"),
        ("weight", 2e4, "must be at most 1000.0", "--weight is 20000: must be at most 1000"),
        ("since_s", -1.0, "must be at least 0.0", "--since is -1: must be at least 0"),
        ("array", True, "must be a whole number", "--array is true: must be a whole number"),
        ("role", "zz", "must be x", '--role is "zz": must be x'),
    ],
)  # fmt: skip
def test_values_are_shown_in_the_form_in_which_people_give_them(field, value, said, line):
    assert problem_error(problem(field, value, said)).__notes__ == [line]


def test_a_moment_is_shown_as_a_time():
    error = problem_error(problem("since_s", 1.8e9, "must be at most 1700000000.0"))
    (line,) = error.__notes__
    assert line.startswith("--since is 2027-01-")
    assert ": must be at most 2023-11-" in line


def test_a_command_may_have_its_own_names_for_fields():
    wording = wording_of(name="the policy", on="--on", max_workers_of="--max-workers")
    assert wording("name") == "the policy"
    assert wording("on.0") == "--on"
    assert wording("max_workers_of.v100") == "--max-workers v100"
    assert wording("weight") == option_of("weight")


def test_a_file_with_two_deadlines_is_told_which():
    wording = wording_of_job({"deadline": "2h", "deadline_in_s": 5}, ())
    assert (wording("deadline_s"), wording("deadline_in_s")) == ("deadline", "deadline_in_s")


def failing(error):
    def answer(request):
        raise error

    return ServiceClient(
        Connection(server="https://host:8642"),
        patience=Patience.of(0.0),
        transport=httpx.MockTransport(answer),
    )


def test_a_server_that_knows_no_https_is_told():
    error = httpx.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    with pytest.raises(UnreachableError, match=r"not speak https; is its address http://host:8642"):
        failing(error).nodes()


def test_a_name_that_dns_does_not_know_is_named():
    error = httpx.ConnectError("[Errno -2] Name or service not known")
    error.__cause__ = socket.gaierror(-2, "Name or service not known")
    with pytest.raises(
        UnreachableError, match="the server https://host:8642: Name or service not known"
    ):
        failing(error).nodes()


@pytest.mark.parametrize("server", ["http://h:99999", "http://h:0", "http://h:abc", "http://[::1"])
def test_an_address_that_is_none_is_told(server):
    with pytest.raises(SettingsError, match="the server is '"):
        find_connection(server=server, environment={"HOME": "/nowhere"})


def test_a_number_that_is_not_finite_is_named_by_its_field():
    service = failing(httpx.ConnectError("nobody"))
    with pytest.raises(InputError, match=r"--weight is nan; give a finite number"):
        service.set_project("a", weight=float("nan"))
    with pytest.raises(InputError, match=r"--throughput 0.steps_per_s is inf"):
        service.declare_throughputs([{"worker_type": "a", "steps_per_s": float("inf")}])


def test_a_sentence_has_the_command_s_names_of_its_fields():
    named = wording_of(until_s="--until", url="--url", node="--node")
    said = "until_s of reservation 'r' is 2021-01-01, which has passed"
    assert reword(said, named) == "--until of reservation 'r' is 2021-01-01, which has passed"
    assert reword("url: has port 99999", named) == "--url: has port 99999"
    assert reword("node: the job does not run on 'zz'", named).startswith("--node: the job")
    assert reword("job: is away", named) == "job: is away"
