"""Signing in at an identity provider: the way there and back, and what does not pass."""

from __future__ import annotations

import re
import time
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from api.auth.browser import COOKIE, SIGN_IN_COOKIE
from api.auth.code_flow import BegunSignIn
from api.auth.identity import Grant, ProviderSettings
from api.auth.oidc import Provider
from api.auth.roles import Role
from leasehold_testing.identity_provider import AUDIENCE, IdentityProvider

if TYPE_CHECKING:
    from collections.abc import Iterator

BACK = "http://localhost/sign-in-done"


@pytest.fixture
def idp() -> Iterator[IdentityProvider]:
    with IdentityProvider() as made:
        yield made


class Person:
    """A person with a browser, which keeps cookies."""

    def __init__(self, serve: Any, idp: IdentityProvider, **settings: Any) -> None:
        self.idp = idp
        given = {"issuer": idp.issuer, "audience": AUDIENCE, "client_id": "page"}
        given |= {"redirect_url": BACK, "scopes": ("openid", "groups")}
        given["grants"] = {"vision-team": Grant(role=Role.USER, projects=frozenset({"vision"}))}
        provider = Provider(
            ProviderSettings(**given | settings), now=time.time, monotonic=time.monotonic
        )
        self.daemon = serve(provider=provider)
        self.cookies: dict[str, str] = {}

    def get(self, url: str, **headers: str) -> Any:
        headers = {"Sec-Fetch-Site": "same-origin"} | headers
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = self.daemon.client.get(url, headers={"Cookie": cookies} | headers)
        for line in answer.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
            assert "HttpOnly" in line
            assert ("SameSite=Lax" in line) == (name == SIGN_IN_COOKIE)
        return answer

    def leave(self, wanted: str = "") -> str:
        """Go to the provider; return its address."""
        answer = self.get(f"/sign-in-provider?next={wanted}")
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def come_back(self, address: str, **changes: str | None) -> Any:
        """Agree there, and return with its answer."""
        place = urlsplit(address)
        back = self.idp.agree(f"{place.path}?{place.query}")
        query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()} | {
            name: value for name, value in changes.items() if value is not None
        }
        for name in [name for name, value in changes.items() if value is None]:
            del query[name]
        return self.get(
            "/sign-in-done?" + "&".join(f"{name}={value}" for name, value in query.items()),
            **{"Sec-Fetch-Site": "cross-site"},
        )


def problem(answer: Any) -> str:
    found = re.search(r'role="alert">(.*?)</p>', answer.text, re.DOTALL)
    return unescape(found[1]) if found else ""


@pytest.mark.parametrize("secret", ["", "s%c:r&t"])
def test_a_person_signs_in_at_the_provider_and_goes_on_with_the_page(
    serve: Any, idp: IdentityProvider, secret: str
) -> None:
    idp.secret = secret
    ann = Person(serve, idp, client_secret=secret)
    page = ann.get("/sign-in?next=jobs%3Fstatus%3Dwaiting")
    assert "Sign in at 127.0.0.1" in page.text
    address = ann.leave("jobs%3Fstatus%3Dwaiting")
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    assert (query["client_id"], query["redirect_uri"]) == ("page", BACK)
    assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
    assert query["scope"] == "openid groups"
    assert all(len(query[name]) == 43 for name in ("state", "nonce", "code_challenge"))
    answer = ann.come_back(address)
    assert (answer.status_code, answer.headers["location"]) == (303, "./jobs?status=waiting")
    assert ann.cookies[SIGN_IN_COOKIE] == ""
    assert "oidc-ann" in ann.get("/jobs").text
    session = {"Cookie": f"{COOKIE}={ann.cookies[COOKIE]}"}
    assert ann.daemon.client.get("/v1/jobs", headers=session).status_code == 401


def test_a_client_that_may_only_post_its_secret_does_so(serve: Any, idp: IdentityProvider) -> None:
    idp.secret = "quiet"
    idp.described = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    ann = Person(serve, idp, client_secret="quiet")
    assert ann.come_back(ann.leave()).status_code == 303


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "x" * 43}, "not begun in this browser"),
        ({"state": None}, "not begun in this browser"),
        ({"iss": "https://evil.example"}, "another identity provider"),
        ({"code": None}, "no code"),
        ({"code": "guessed"}, "answers 400"),
        ({"code": "x" * 5000}, "no code"),
        ({"error": "access_denied"}, "does not sign you in: access_denied."),
        ({"error": "e", "error_description": "<b>no"}, "does not sign you in: <b>no."),
        ({"error": "%00"}, "gives no reason"),
    ],
)
def test_an_answer_that_is_not_right_begins_no_session(
    serve: Any, idp: IdentityProvider, changes: dict[str, str | None], words: str
) -> None:
    ann = Person(serve, idp)
    answer = ann.come_back(ann.leave(), **changes)
    assert answer.status_code == 401
    assert words in problem(answer)
    assert "<b>no" not in answer.text
    assert COOKIE not in ann.cookies
    assert (ann.cookies[SIGN_IN_COOKIE] == "") == ("state" not in changes)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"nonce": "of another"}, "of another sign-in"),
        ({"azp": "another"}, "another audience"),
        ({"azp": ["page"]}, "another audience"),
        ({"aud": "another"}, "of another client"),
        ({"aud": AUDIENCE}, "of another client"),
        ({"groups": []}, "no group that has a role"),
        ({"exp": 1}, "has expired"),
        ({"note": "x" * 4000}, "browsers keep 3800"),
    ],
)
def test_a_token_that_is_not_right_begins_no_session(
    serve: Any, idp: IdentityProvider, claims: dict[str, Any], words: str
) -> None:
    idp.person = claims
    ann = Person(serve, idp)
    answer = ann.come_back(ann.leave())
    assert answer.status_code == 401
    assert words in problem(answer)
    assert COOKIE not in ann.cookies


def test_a_code_is_good_once_and_for_the_browser_that_began(
    serve: Any, idp: IdentityProvider
) -> None:
    ann = Person(serve, idp)
    address = ann.leave()
    kept = dict(ann.cookies)
    back = "/sign-in-done?" + urlsplit(idp.agree("/authorize?" + urlsplit(address).query)).query
    bob = Person(serve, idp)
    bob.leave()
    assert "not begun in this browser" in problem(bob.get(back))
    assert ann.get(back).status_code == 303
    ann.cookies = kept
    assert "answers 400" in problem(ann.get(back))


@pytest.mark.parametrize(
    "answers",
    [
        {"/.well-known/openid-configuration": (500, b"")},
        {"/.well-known/openid-configuration": (200, b"{")},
        {"/.well-known/openid-configuration": (200, b'{"issuer": "https://evil.example"}')},
    ],
)
def test_a_provider_that_is_away_is_told_and_tokens_still_sign_in(
    serve: Any, idp: IdentityProvider, answers: dict[str, tuple[int, bytes]]
) -> None:
    idp.answers = answers
    ann = Person(serve, idp)
    answer = ann.get("/sign-in-provider")
    assert (answer.status_code, "does not answer" in problem(answer)) == (503, True)
    assert 'name="token"' in answer.text
    asked = len(idp.asked)
    assert ann.get("/sign-in-provider").status_code == 503
    assert len(idp.asked) == asked  # it is not asked again at once


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
def test_addresses_that_others_could_read_are_not_used(
    serve: Any, idp: IdentityProvider, name: str
) -> None:
    idp.described = {name: "http://id.example/x"}
    ann = Person(serve, idp)
    if name == "authorization_endpoint":
        answer = ann.get("/sign-in-provider")
    else:
        answer = ann.come_back(ann.leave())
    assert "names no https address" in problem(answer)
    assert "/token" not in idp.asked


def test_the_way_there_is_limited_for_each_address(serve: Any, idp: IdentityProvider) -> None:
    ann = Person(serve, idp)
    statuses = [ann.get("/sign-in-provider").status_code for _ in range(52)]
    assert statuses == [303] * 50 + [429] * 2
    bob = Person(serve, idp)
    failed = [bob.come_back(bob.leave(), code="guessed").status_code for _ in range(12)]
    assert failed == [401] * 10 + [429] * 2
    good = Person(serve, idp)
    assert {good.come_back(good.leave()).status_code for _ in range(12)} == {303}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_from_elsewhere_begins_no_sign_in(
    serve: Any, idp: IdentityProvider, site: str
) -> None:
    ann = Person(serve, idp)
    answer = ann.get("/sign-in-provider?next=jobs", **{"Sec-Fetch-Site": site})
    assert (answer.status_code, "Sign in at" in answer.text) == (200, True)
    assert ann.cookies == {}


def test_a_sign_in_begins_at_the_host_to_which_the_provider_leads_back(
    serve: Any, idp: IdentityProvider
) -> None:
    ann = Person(serve, idp, redirect_url="https://gpu.example/lab/sign-in-done")
    moved = ann.leave("jobs")
    assert moved == "https://gpu.example/lab/sign-in-provider?next=jobs&moved=1"
    assert ann.cookies == {}
    # The proxy there may have another name for this scheduler.
    assert ann.get("/sign-in-provider?next=jobs&moved=1").headers["location"].startswith(idp.issuer)


def test_cookies_are_for_tls_alone_if_the_way_back_is(serve: Any, idp: IdentityProvider) -> None:
    ann = Person(serve, idp, redirect_url="https://gpu.example/sign-in-done")
    answer = ann.get("/sign-in-provider?moved=1")
    assert answer.headers["set-cookie"].endswith("; Secure")
    answer = ann.come_back(answer.headers["location"])
    assert all(line.endswith("; Secure") for line in answer.headers.get_list("set-cookie"))


def test_another_visit_does_not_end_a_sign_in(serve: Any, idp: IdentityProvider) -> None:
    ann = Person(serve, idp)
    address = ann.leave()
    assert "not begun in this browser" in problem(ann.get("/sign-in-done?code=x&state=y"))
    assert ann.come_back(address).status_code == 303


@pytest.mark.parametrize("ways", [None, 7, "client_secret_post", []])
def test_a_strange_description_is_no_fault_of_the_scheduler(
    serve: Any, idp: IdentityProvider, ways: Any
) -> None:
    idp.secret = "quiet"
    idp.described = {"token_endpoint_auth_methods_supported": ways}
    ann = Person(serve, idp, client_secret="quiet")
    assert ann.come_back(ann.leave()).status_code == 303


def test_an_error_of_the_provider_is_named_here_and_in_the_log(
    serve: Any, idp: IdentityProvider, caplog: Any
) -> None:
    ann = Person(serve, idp)
    assert "(invalid_grant)" in problem(ann.come_back(ann.leave(), code="guessed"))
    assert "gives no token" in caplog.text
    assert "guessed" not in caplog.text


def test_a_page_that_is_too_long_for_a_cookie_is_left_out() -> None:
    begun = BegunSignIn.begin("jobs?q=" + "\u00e4" * 1500)
    assert len(begun.written()) < 200
    assert BegunSignIn.read(begun.written()).wanted == ""


def test_without_a_client_there_is_no_such_way(serve: Any, idp: IdentityProvider) -> None:
    ann = Person(serve, idp, client_id="", redirect_url="")
    assert "Sign in at" not in ann.get("/sign-in").text
    for path in ("/sign-in-provider", "/sign-in-done?code=x&state=y"):
        assert ann.get(path).status_code == 404


@pytest.mark.parametrize("text", ["", "a.b.c.d", "x" * 500, ".".join(["x" * 43] * 3), "\x00"])
def test_garbage_in_the_cookie_is_no_sign_in(text: str) -> None:
    assert BegunSignIn.read(text) is None


def test_a_cookie_holds_the_whole_sign_in() -> None:
    begun = BegunSignIn.begin("jobs/a.b?status=x&q=\u00e4;=")
    assert BegunSignIn.read(begun.written()) == begun
    assert re.fullmatch(r"[A-Za-z0-9._%~-]+", begun.written())


@pytest.mark.parametrize("wanted", ["https://evil.example", "//evil.example", "..%2F..%2Fx"])
def test_the_page_to_go_on_with_is_one_of_this_scheduler(
    serve: Any, idp: IdentityProvider, wanted: str
) -> None:
    ann = Person(serve, idp)
    answer = ann.come_back(ann.leave(wanted))
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
