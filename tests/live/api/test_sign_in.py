"""Sessions of browsers: how they begin and end, and what their cookie is good for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import pytest

from api.auth.browser import COOKIE, KEPT_S, form_key
from api.auth.codes import MOST, SignInCodes

if TYPE_CHECKING:
    import httpx

ORIGIN = {"Origin": "http://localhost"}
HOME = {"Sec-Fetch-Site": "same-origin"}


def sign_in(daemon: Any, secret: str, *, path: str = "", **headers: str) -> httpx.Response:
    form = {"token": secret, "next": path}
    answer: httpx.Response = daemon.client.post("/sign-in", data=form, headers=headers or HOME)
    return answer


def test_a_token_begins_a_session_in_a_cookie_that_scripts_and_other_pages_cannot_use(
    daemon: Any,
) -> None:
    secret = daemon.secret("user")
    answer = sign_in(daemon, f"  {secret}\n", path="jobs?status=waiting")
    assert (answer.status_code, answer.headers["location"]) == (303, "./jobs?status=waiting")
    kept = f"{COOKIE}={secret}; Max-Age={KEPT_S}; HttpOnly; SameSite=Strict"
    assert answer.headers["set-cookie"] == kept
    assert daemon.session(secret).get("/jobs").status_code == 200
    assert secret not in daemon.session(secret).get("/jobs").text


def test_with_tls_the_cookie_is_never_sent_without(daemon: Any) -> None:
    secret = daemon.secret("user")
    answer = daemon.client.post(
        "https://localhost/sign-in", data={"token": secret}, headers={"Origin": "https://localhost"}
    )
    assert answer.headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize(
    ("role", "words"),
    [("", "unknown, has expired"), ("agent", "has no pages"), ("metrics", "has no pages")],
)
def test_other_tokens_begin_none(daemon: Any, role: str, words: str) -> None:
    answer = sign_in(daemon, daemon.secret(role) if role else "lh_guessed")
    assert answer.status_code == 401
    assert words in answer.text
    assert "set-cookie" not in answer.headers


def test_guesses_are_slowed_for_their_address_alone(daemon: Any) -> None:
    good = daemon.secret("viewer")
    assert {sign_in(daemon, good).status_code for _ in range(20)} == {303}
    statuses = [sign_in(daemon, f"lh_{i}").status_code for i in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    other = dataclasses.replace(daemon.client, address="10.0.0.7")
    form = {"token": daemon.secret("viewer")}
    assert other.post("/sign-in", data=form, headers=HOME).status_code == 303
    daemon.clock.seconds += 2.0
    assert sign_in(daemon, "lh_again").status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", **ORIGIN}, 403),
        ({"Origin": "http://localhost.evil"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Accept": "*/*"}, 403),
        (ORIGIN, 303),
        (HOME, 303),
    ],
)
def test_only_a_page_of_this_scheduler_may_begin_a_session(
    daemon: Any, headers: dict[str, str], status: int
) -> None:
    assert sign_in(daemon, daemon.secret("user"), **headers).status_code == status


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        "jobs/../../evil",
        "jobs/%2e%2e/x",
        "a b",
        "jobs\r\nset-cookie: x=1",
        "jobs?" + "x" * 3000,
        "",
    ],
)
def test_a_session_goes_on_with_a_page_of_this_scheduler_whatever_is_asked_for(
    daemon: Any, path: str
) -> None:
    answer = sign_in(daemon, daemon.secret("user"), path=path)
    assert answer.status_code == 303
    place = urlsplit(urljoin("http://localhost/sign-in", answer.headers["location"]))
    assert (place.netloc, place.path) == ("localhost", "/")


def test_a_caller_without_a_session_signs_in_and_comes_back(daemon: Any) -> None:
    answer = daemon.client.get("/jobs/a-1?x=1")
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "../sign-in?next=jobs%2Fa-1%3Fx%3D1",
    )
    form = daemon.client.get("/sign-in?next=jobs%2Fa-1%3Fx%3D1")
    assert 'value="jobs/a-1?x=1"' in form.text
    known = daemon.browser("viewer").get("/sign-in?next=jobs%2Fa-1%3Fx%3D1")
    assert known.headers["location"] == "./jobs/a-1?x=1"


def test_a_link_from_elsewhere_is_opened_once_more_since_the_cookie_did_not_come(
    daemon: Any,
) -> None:
    """Browsers send a strict cookie with requests of its own pages only."""
    answer = daemon.client.get("/jobs", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200
    assert 'http-equiv="refresh" content="0"' in answer.text
    assert daemon.client.get("/jobs", headers=HOME).status_code == 303


def test_the_cookie_counts_on_pages_only(daemon: Any) -> None:
    browser = daemon.browser("admin")
    assert browser.get("/jobs").status_code == 200
    for path in ("/v1/jobs", "/v1/whoami", "/metrics", "/v1/tokens"):
        assert browser.get(path).status_code == 401
    job = {"name": "a", "command": ["b"]}
    assert browser.post("/v1/jobs", json=job).status_code == 401


ODD = [
    "",
    "=",
    "leasehold_token",
    'leasehold_token="',
    "leasehold_token=other",
    "a=\x01; b",
    'prefs={"a": 1}',
    "n=John Smith",
    "a" + "=" * 60_000,
    "leasehold_token=" + "\\a" * 20_000,
]


@pytest.mark.parametrize("cookie", ODD, ids=range(len(ODD)))
def test_an_odd_cookie_is_none_and_hides_no_session(daemon: Any, cookie: str) -> None:
    answer = daemon.client.get("/jobs", headers={"Cookie": cookie, **HOME})
    assert answer.status_code == 303
    good = f"{COOKIE}={daemon.secret('viewer')}"
    for both in (f"{cookie}; {good}", f"{good}; {cookie}", f"{cookie};{good}"):
        browser = daemon.client
        assert browser.get("/jobs", headers={"Cookie": both, **HOME}).status_code == 200


def test_the_form_key_is_that_of_the_session_beside_another_cookie(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    browser = daemon.browser("user")
    secret = browser.headers["Cookie"].partition("=")[2]
    both = f"{COOKIE}=lh_of_another_path; {COOKIE}={secret}"
    form = {"form_key": form_key(secret)}
    answer = browser.post(f"/jobs/{job}/hold", data=form, headers={"Cookie": both})
    assert answer.status_code == 303


def test_signing_out_ends_the_session_of_this_browser_only(daemon: Any) -> None:
    secret = daemon.secret("user")
    browser = daemon.session(secret)
    answer = browser.post("/sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "./sign-in")
    assert answer.headers["set-cookie"].startswith(f"{COOKIE}=; Max-Age=0;")
    assert daemon.session(secret).get("/jobs").status_code == 200
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert daemon.client.post("/sign-out", headers=foreign).status_code == 403


def test_a_revoked_token_ends_its_sessions_and_their_streams(daemon: Any) -> None:
    secret = daemon.secret("user")
    browser = daemon.session(secret)
    row = daemon.service.store.tokens()[-1]

    async def happen() -> bytes:
        stream = daemon.stream("/changes", Cookie=f"{COOKIE}={secret}")
        assert (await stream.piece() or b"").startswith(b"event: change")
        daemon.service.store.revoke_token(row.token_id, now_s=daemon.clock())
        daemon.clock.seconds += 10.0
        await daemon.app.state.context.end_lapsed()
        return bytes(await stream.rest())

    assert daemon.run(happen()) == b""
    assert browser.get("/jobs").status_code == 303
    open_page = browser.get("/jobs", headers={"HX-Request": "true"})
    assert open_page.status_code == 401


def test_a_link_signs_in_once_and_within_a_minute(daemon: Any) -> None:
    secret = daemon.secret("user", subject="ann")
    ann = daemon.bearer(secret)
    link = ann.post("/v1/sign-in-codes").json()
    assert link["valid_s"] == 60.0
    code = link["path"].partition("code=")[2]
    for _ in range(2):  # looking at a link uses nothing up
        page = daemon.client.get(link["path"]).text
        assert f'name="code" value="{code}"' in page
        assert "signs in as <b>ann</b> (user)" in page
        assert secret not in page
    answer = daemon.client.post("/sign-in", data={"code": code}, headers=HOME)
    assert answer.status_code == 303
    assert answer.headers["set-cookie"].startswith(f"{COOKIE}={secret};")
    again = daemon.client.post("/sign-in", data={"code": code}, headers=HOME)
    assert (again.status_code, "used already" in again.text) == (401, True)
    codes = [ann.post("/v1/sign-in-codes").json()["path"].partition("code=")[2] for _ in "ab"]
    early, late = ({"code": code} for code in codes)
    assert daemon.client.post("/sign-in", data=early, headers=HOME).status_code == 401
    daemon.clock.seconds += 61.0
    assert daemon.client.post("/sign-in", data=late, headers=HOME).status_code == 401


@pytest.mark.parametrize(
    ("site", "session", "sends"),
    [("none", False, True), ("none", True, False), ("same-origin", False, False)],
)
def test_a_link_sends_itself_only_for_a_person_who_opens_it_without_a_session(
    daemon: Any, site: str, session: bool, sends: bool
) -> None:
    """A foreign page could else put its reader into a session of its own author."""
    path = daemon.caller("user", subject="eve").post("/v1/sign-in-codes").json()["path"]
    browser = daemon.browser("viewer", subject="vera") if session else daemon.client
    page = browser.get(path, headers={"Sec-Fetch-Site": site}).text
    assert "signs in as <b>eve</b>" in page
    assert ("data-send" in page) is sends
    assert ("signed in as vera now" in page) is session


def test_a_code_is_no_better_than_its_token(daemon: Any) -> None:
    secret = daemon.secret("user")
    code = daemon.bearer(secret).post("/v1/sign-in-codes").json()["path"].partition("code=")[2]
    daemon.service.store.revoke_token(
        daemon.service.store.tokens()[-1].token_id, now_s=daemon.clock()
    )
    daemon.clock.seconds += 10.0
    assert daemon.client.post("/sign-in", data={"code": code}, headers=HOME).status_code == 401


def test_codes_at_a_time_are_bounded_and_the_oldest_goes() -> None:
    codes = SignInCodes(lambda: 0.0)
    first = codes.make("a")
    last = [codes.make(f"b{i}") for i in range(MOST)][-1]
    assert (codes.take(first), codes.take(last)) == ("", f"b{MOST - 1}")
    assert (codes.take(last), codes.take("\ud800")) == ("", "")


def test_without_tokens_there_is_no_sign_in(serve: Any) -> None:
    client = serve(auth=False).client
    page = client.get("/jobs")
    assert page.status_code == 200
    assert "Sign out" not in page.text
    assert client.get("/sign-in").status_code == 303
    assert client.post("/v1/sign-in-codes").json() == {"path": "/", "valid_s": 0.0}
    foreign = client.get("/jobs", headers={"Host": "evil.example"})
    assert foreign.status_code == 421
