"""Pages: who may open them, what they show, and what they do with hostile input."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from starlette.routing import Route

from api import pages
from api.app import create_app
from api.auth.browser import PAGES, page_of
from api.pages.routing import MOST_FIELDS, MOST_FORM_BYTES
from api.settings import ApiSettings, RateLimit
from leasehold_testing.service import FakeService
from scheduler.errors import ConflictError, NotLeadingError
from scheduler.logs.output import LogChunk
from scheduler.store.queries import JobQuery

STATIC = Path(pages.__file__).parent / "static"
READ = {"viewer", "user", "operator", "admin"}
WRITE = {"user", "operator", "admin"}
OPERATE = {"operator", "admin"}
ROLES = ("viewer", "user", "operator", "admin", "agent", "metrics")
#: (method, path as registered) -> allowed roles, a concrete path.
TABLE: dict[tuple[str, str], tuple[set[str], str]] = {
    ("GET", "/"): (READ, "/"),
    ("GET", "/jobs"): (READ, "/jobs"),
    ("GET", "/jobs/-/{action}"): (WRITE, "/jobs/-/hold"),
    ("POST", "/jobs/-/{action}"): (WRITE, "/jobs/-/hold"),
    ("GET", "/jobs/{job_id}"): (READ, "/jobs/job-1"),
    ("GET", "/jobs/{job_id}/log.txt"): (READ, "/jobs/job-1/log.txt"),
    ("GET", "/jobs/{job_id}/forecast"): (READ, "/jobs/job-1/forecast"),
    ("GET", "/jobs/{job_id}/output"): (READ, "/jobs/job-1/output"),
    ("GET", "/jobs/{job_id}/change"): (WRITE, "/jobs/job-1/change"),
    ("POST", "/jobs/{job_id}/change"): (WRITE, "/jobs/job-1/change"),
    ("GET", "/jobs/{job_id}/{action}"): (WRITE, "/jobs/job-1/hold"),
    ("POST", "/jobs/{job_id}/{action}"): (WRITE, "/jobs/job-1/hold"),
    ("GET", "/events"): (READ, "/events"),
    ("GET", "/rounds"): (READ, "/rounds"),
    ("GET", "/fairness"): (READ, "/fairness"),
    ("GET", "/policies"): (READ, "/policies"),
    ("GET", "/policies/-/compare"): (READ, "/policies/-/compare"),
    ("GET", "/policies/{name}"): (READ, "/policies/fifo"),
    ("POST", "/policies/{name}"): (OPERATE, "/policies/fifo"),
    ("GET", "/usage"): (READ, "/usage"),
    ("GET", "/usage-figures"): (READ, "/usage-figures"),
    ("GET", "/usage/usage.csv"): (READ, "/usage/usage.csv"),
    ("GET", "/submit"): (WRITE, "/submit"),
    ("POST", "/submit"): (WRITE, "/submit"),
    ("GET", "/words"): (READ, "/words"),
    ("GET", "/cluster"): (READ, "/cluster"),
    ("GET", "/cluster/{name}/{action}"): (OPERATE, "/cluster/alpha/drain"),
    ("POST", "/cluster/{name}/{action}"): (OPERATE, "/cluster/alpha/drain"),
}
ADMIN = {"admin"}
#: Pages of a thing that is not there, or that lead elsewhere.
LOOKED_UP = {
    *("/admin/set-project", "/admin/tokens/{name}/revoke", "/admin/reservations/{name}/delete"),
}
#: Paths of administration -> allowed roles, and a name in the path.
ADMINISTRATION = {
    "tokens/new": (ADMIN, ""),
    "nodes/new": (ADMIN, ""),
    "reservations/new": (OPERATE, ""),
    "webhooks/new": (WRITE, ""),
    "projects/{name}": (OPERATE, "vision"),
    "nodes/{name}/workers": (OPERATE, "alpha"),
    "nodes/{name}/forget": (OPERATE, "alpha"),
    "tokens/{name}/revoke": (ADMIN, "t-1"),
    "reservations/{name}/delete": (OPERATE, "demo"),
    **{
        f"webhooks/{{name}}/{verb}": (WRITE, "chat")
        for verb in ("test", "resume", "skip", "delete")
    },
}
TABLE |= {
    ("GET", "/admin"): (READ, "/admin"),
    ("GET", "/admin/set-project"): (OPERATE, "/admin/set-project?name=vision"),
    **{
        ("GET", f"/admin/{name}"): (READ, f"/admin/{name}")
        for name in ("projects", "reservations", "webhooks")
    },
    ("GET", "/admin/nodes"): (READ, "/admin/nodes"),
    ("GET", "/admin/tokens"): (ADMIN, "/admin/tokens"),
    **{
        (method, f"/admin/{path}"): (roles, f"/admin/{path.format(name=name)}")
        for path, (roles, name) in ADMINISTRATION.items()
        for method in ("GET", "POST")
    },
}
#: Pages that have tests of their own: streams, files, signing in and out.
OTHERS = {"changes", "static", "sign-in", "sign-out", "sign-in-provider", "sign-in-done"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "\u202eexe.gpj",
    "a\u2028b",
    "\N{PILE OF POO}" * 20,
]


def registered() -> list[tuple[str, str]]:
    app = create_app(FakeService(), ApiSettings())
    return sorted(
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route) and page_of(route.path) not in {None, *OTHERS}
        for method in (route.methods or set()) - {"HEAD"}
    )


def test_every_page_has_a_line_in_the_table_and_every_line_a_page() -> None:
    assert registered() == sorted(TABLE)
    app = create_app(FakeService(), ApiSettings())
    firsts = {route.path.split("/")[1] for route in app.routes if isinstance(route, Route)}
    assert firsts - {"v1", "healthz", "readyz", "metrics"} == PAGES


@pytest.mark.parametrize(("method", "path"), registered())
def test_a_page_lets_in_exactly_the_roles_of_the_table(serve: Any, method: str, path: str) -> None:
    allowed, url = TABLE[method, path]
    for role in ROLES:
        daemon = serve()
        daemon.caller("admin").submit()
        caller = daemon.browser(role)
        status = (caller.send if method == "POST" else caller.get)(url).status_code
        # A form without its fields cannot be used.
        is_form = path.startswith("/admin/") or path.endswith("/change")
        lets_in = {200, 303, 404, 409, 422} if is_form else {200, 303}
        assert status in (lets_in if role in allowed else {403}), role
    nobody = serve().client
    if method == "GET":
        assert nobody.get(url).status_code == 303
    else:
        assert nobody.post(url, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 401


@pytest.mark.parametrize(("method", "path"), [one for one in registered() if one[0] == "POST"])
def test_an_action_needs_the_key_of_the_session_and_a_page_of_this_scheduler(
    serve: Any, method: str, path: str
) -> None:
    _, url = TABLE[method, path]
    daemon = serve()
    job = daemon.caller("admin").submit()
    browser = daemon.browser("admin")
    before = daemon.service.store.job(job).status, daemon.service.nodes()[0].state
    answers = [
        browser.post(url),
        browser.post(url, data={"form_key": "0" * 32}),
        browser.post(url, data={"form_key": "ä"}),
        browser.post(url, json={"form_key": "x"}),
        browser.post(url, content=b"\xff\xfe"),
        browser.send(url, reason="a\nb"),
    ]
    takes_a_reason = path not in {"/submit", "/policies/{name}"}  # else it is a trial
    last = 422 if takes_a_reason else 200
    if path.startswith("/admin/") or path.endswith("/change"):  # without its fields
        last = answers[-1].status_code
        assert last in {200, 303, 404, 409, 422}
    assert [answer.status_code for answer in answers] == [403, 403, 403, 403, 400, last]
    assert daemon.service.policy().name == "max_min_fairness"
    assert len(daemon.service.store.jobs(JobQuery()).rows) == 1
    for elsewhere in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "none"}):
        foreign = dataclasses.replace(browser, headers=browser.headers | elsewhere)
        assert foreign.send(url).status_code == 403
    assert (daemon.service.store.job(job).status, daemon.service.nodes()[0].state) == before


def test_a_form_has_bounds(daemon: Any) -> None:
    browser = daemon.browser("admin")
    url = f"/jobs/{daemon.caller('admin').submit()}/hold"
    assert browser.send(url, reason="x" * MOST_FORM_BYTES).status_code == 413
    many = {f"f{i}": "x" for i in range(MOST_FIELDS)}
    assert browser.send(url, **many).status_code == 400


def test_each_file_of_others_has_its_licence_version_and_digest() -> None:
    listed = {one["file"]: one for one in json.loads((STATIC / "vendored.json").read_text())}
    assert listed.keys() == {file.name for file in STATIC.glob("*.min.*")}
    for name, one in listed.items():
        data = (STATIC / name).read_bytes()
        assert (one["bytes"], one["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        assert one["licence"] in {"0BSD", "MIT"}
        assert one["version"].encode() in data


# -- what every page is ----------------------------------------------------------------------------


class Elements(HTMLParser):
    """Collects what a page loads, and what a browser would run of it."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.risky: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.risky += [name for name in given if name.startswith("on") or name == "style"]
        self.risky += [tag] if tag in {"style", "iframe", "object"} else []
        self.risky += [tag] if tag == "script" and "src" not in given else []
        self.risky += [v for n, v in attrs if n.startswith("hx-") and ":" in (v or "")]
        self.sources += [str(given[n]) for n in ("src", "href") if tag != "a" and given.get(n)]
        self.risky += [h for h in [given.get("href") or ""] if h.lower().startswith("javascript")]
        self.ids += [str(given["id"])] if given.get("id") else []


def elements(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    return found


@pytest.mark.parametrize(
    "url",
    [
        "/sign-in",
        *(url for (m, path), (_, url) in TABLE.items() if m == "GET" and path not in LOOKED_UP),
    ],
)
def test_a_page_loads_its_own_files_only_and_runs_nothing_else(daemon: Any, url: str) -> None:
    daemon.service.run(daemon.caller("admin").submit())
    answer = daemon.browser("admin").get(url) if url != "/sign-in" else daemon.client.get(url)
    assert answer.status_code == 200
    if not url.endswith((".txt", ".csv")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        found = elements(answer.text)
        assert not found.risky
        assert sorted(found.ids) == sorted(set(found.ids))
        assert found.sources
        for source in found.sources:
            if source.startswith("#"):  # a part of the page itself
                assert source.removeprefix("#") in found.ids
                continue
            root = "../" * (url.count("/") - 1) or "./"
            assert source.startswith(f"{root}static/")
            file = daemon.client.get("/" + source.removeprefix(root))
            assert file.status_code == 200
            assert "immutable" in file.headers["cache-control"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_file_of_another_release_is_answered_but_not_kept(daemon: Any) -> None:
    answer = daemon.client.get("/static/0123456789ab/site.css")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert daemon.client.get("/static/0123456789ab/../app.py").status_code in {401, 404}
    assert daemon.client.get("/static/0123456789ab/app.py").status_code == 404


def test_a_page_that_does_not_exist_is_a_page_for_browsers_and_a_problem_for_programs(
    daemon: Any,
) -> None:
    html = {"Accept": "text/html,*/*"}
    for path in ("/jobs/a/b/c/d", "/jobs/nothing", "/static/x"):
        answer = daemon.browser("viewer").get(path, headers=html)
        assert answer.status_code == 404
        assert answer.headers["content-type"].startswith("text/html")
    plain = daemon.browser("viewer").get("/jobs/a/b/c/d")
    assert plain.headers["content-type"] == "application/problem+json"
    for path in ("/v1/jobs/nothing", "/v1/nothing", "/v1/jobs?limit=0"):
        answer = daemon.caller("viewer").get(path, headers=html)
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("status", [421, 429])
def test_what_the_outermost_layers_refuse_is_a_page_for_browsers(serve: Any, status: int) -> None:
    daemon = serve(auth=status != 421, max_body_bytes=5000, rate=RateLimit(per_s=0.001, burst=3))
    caller = daemon.client if status == 421 else daemon.browser("viewer")
    for accept, kind in (("text/html,*/*", "text/html"), ("*/*", "application/problem+json")):
        headers = caller.headers | {"Accept": accept}
        if status == 421:
            headers |= {"Host": "rebound.evil.example"}
        browser = dataclasses.replace(caller, headers=headers)
        for _ in range(4):
            answer = browser.get("/words")
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith(kind)
        assert ("<h1>" in answer.text) == (kind == "text/html")
        assert answer.headers["x-request-id"]
    path = "/v1/jobs"
    answer = dataclasses.replace(caller, headers=headers | {"Accept": "text/html"}).get(path)
    assert "json" in answer.headers["content-type"]


def test_a_bug_is_a_page_that_names_the_line_of_the_log(daemon: Any, caplog: Any) -> None:
    daemon.service.cluster = lambda: 1 / 0
    answer = daemon.browser("viewer").get("/cluster")
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] in answer.text
    assert "ZeroDivisionError" not in answer.text
    assert "ZeroDivisionError" in caplog.text


def test_a_standby_says_so_and_names_the_leader(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    daemon.service.leading, daemon.service.leader_address = False, "http://other:8642"
    daemon.service.failure = NotLeadingError("http://other:8642")
    page = daemon.browser("admin").get("/jobs")
    assert page.status_code == 200
    assert "This scheduler is a standby" in page.text
    assert 'href="http://other:8642"' in page.text
    daemon.service.ready = False  # its solver is still starting
    assert 'href="http://other:8642"' in daemon.browser("admin").get("/jobs").text
    daemon.service.ready = True
    acted = daemon.browser("admin").send(f"/jobs/{job}/hold")
    assert acted.status_code == 503
    assert "location" not in acted.headers


# -- jobs ------------------------------------------------------------------------------------------


def names(page: Any) -> list[str]:
    return re.findall(r'<td><a href="(?:\./|\.\./)jobs/([^"]+)">', page.text)


def test_the_list_has_jobs_with_reason_and_position_and_its_url_is_its_state(daemon: Any) -> None:
    admin = daemon.caller("admin")
    ids = [admin.submit(name=f"j{i}", project="vision" if i % 2 else "speech") for i in range(4)]
    daemon.service.run(ids[0])
    browser = daemon.browser("viewer")
    assert names(browser.get("/jobs")) == ids[::-1]
    assert names(browser.get("/jobs?status=waiting&sort=submitted")) == ids[1:]
    assert names(browser.get("/jobs?project=vision&status=waiting&status=running")) == ids[3:0:-2]
    assert names(browser.get(f"/jobs?q={ids[2]}")) == [ids[2]]
    page = browser.get("/jobs").text
    assert 'class="state running"' in page
    assert "other jobs go first" in page


def test_pages_of_a_long_list_hold_every_job_once(daemon: Any) -> None:
    admin = daemon.caller("admin")
    jobs = [{"name": f"n{i}", "command": ["a"]} for i in range(120)]
    assert admin.post("/v1/jobs", json={"jobs": jobs}).status_code == 200
    browser, url, seen = daemon.browser("viewer"), "/jobs?sort=name&status=waiting", []
    while url:
        page = browser.get(url)
        seen += names(page)
        assert len(page.content) < 60_000
        found = re.search(r'href="(\?[^"]+)" rel="next"', page.text)
        url = "" if found is None else "/jobs" + found[1].replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 120


#: Values of a query that no view takes.
GARBAGE = [*HOSTILE, "\0", "%", "x" * 9000, "\ud800".encode("utf-8", "surrogatepass")]


#: Names in queries that some view reads.
NAMES = [
    *("status", "project", "owner", "job_type", "name", "label", "q", "sort", "cursor"),
    *("state", "after", "about", "subject", "kind", "by", "before", "next", "code"),
    *("span", "until", "month", "page", "at", "parameter.alpha", "group"),
    *("attempt", "node", "stream"),
]


READABLE = ["/jobs", "/cluster", "/events", "/jobs/-/hold", "/rounds", "/fairness", "/usage"]
READABLE += ["/usage-figures"]
READABLE += ["/policies", "/policies/fifo", "/submit", "/admin", "/admin/tokens"]
#: Names -> views that say that they left out such a value.
FILTERS = {
    "status": ["/jobs"],
    "sort": ["/jobs"],
    "group": ["/jobs"],
    "by": ["/rounds", "/usage"],
    "span": ["/rounds"],
    "until": ["/rounds"],
    "month": ["/usage"],
}


@pytest.mark.parametrize("name", NAMES)
def test_garbage_in_the_url_breaks_no_page_and_is_named(daemon: Any, name: str) -> None:
    job = daemon.caller("admin").submit()
    browser = daemon.browser("admin")
    for text in GARBAGE:
        for path in [*READABLE, f"/jobs/{job}/output"]:
            page = browser.get(path, params={name: text})
            assert page.status_code == 200
            assert not elements(page.text).risky
        for path in FILTERS.get(name, ()):
            assert "Left out" in browser.get(path, params={name: text}).text


#: Queries of which a part has no meaning; without that part they select every job.
UNREADABLE = [
    *("project=bad%20name", "projects=vision", "status=none", "label=nonsense", "label=%20=b"),
    *("owner=admin&owner=bob", "label=a=1&label=a=2", "q=job&q=train", "sort=luck"),
    "&".join(f"label=k{i}=v" for i in range(65)),
]


def mark_of(page: Any) -> str:
    return re.search(r'name="mark" value="(\w+)"', page.text)[1]


def test_a_filter_that_cannot_be_read_selects_no_jobs_to_act_on(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    browser = daemon.browser("admin")
    mark = mark_of(browser.get("/jobs/-/cancel"))
    for query in UNREADABLE:
        assert "Nothing was done" in browser.get(f"/jobs/-/cancel?{query}").text
        assert "Nothing was done" in browser.send(f"/jobs/-/cancel?{query}", mark=mark).text
        assert "Left out" in browser.get(f"/jobs?{query}").text
        assert daemon.service.store.job(job).status == "waiting"


def test_what_a_job_says_of_itself_is_shown_as_text(daemon: Any) -> None:
    for text in HOSTILE[:4]:
        job = daemon.caller("admin").submit(
            command=["echo", text], labels={"note": text}, env={"A": text}, job_type=text
        )
        daemon.service.run(job)
        for path in ("/jobs", f"/jobs/{job}"):
            found = elements(daemon.browser("viewer").get(path).text)
            assert not found.risky


def test_an_action_on_one_job_asks_for_a_reason_and_keeps_it(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    browser = daemon.browser("user", subject="ann")
    assert f"Hold job {job}?" in browser.get(f"/jobs/{job}/hold").text
    answer = browser.send(f"/jobs/{job}/hold", reason="room for bob")
    assert (answer.status_code, answer.headers["location"]) == (303, f"../{job}")
    events = daemon.caller("viewer").get(f"/v1/jobs/{job}/events").json()["events"]
    assert (events[-1]["actor"], daemon.service.reason) == ("ann", "room for bob")
    assert browser.send(f"/jobs/{job}/explode").status_code == 422


def test_bulk_actions_say_how_many_and_apply_to_what_matches(daemon: Any) -> None:
    admin = daemon.caller("admin")
    mine = [admin.submit(project="vision") for _ in range(3)]
    other = admin.submit(project="speech")
    browser = daemon.browser("user")
    url = "/jobs/-/cancel?project=vision"
    asked = browser.get(url)
    assert "Cancel 3 of 3 jobs?" in asked.text
    mark = mark_of(asked)
    late = admin.submit(project="vision")
    moved = browser.send(url, mark=mark, reason="wrong data")
    assert "Nothing was done" in moved.text
    assert daemon.service.store.job(mine[0]).status == "waiting"
    done = browser.send(url, mark=mark_of(browser.get(url)), reason="wrong data")
    assert "4 of 4 jobs changed" in done.text
    for job in [*mine, late]:
        assert daemon.service.store.job(job).status == "cancelled"
    assert daemon.service.store.job(other).status == "waiting"
    again = browser.send(url, mark=mark, reason="wrong data")
    assert "0 of 0 jobs changed" in again.text


def test_a_confined_session_sees_and_changes_its_projects_only(daemon: Any) -> None:
    admin = daemon.caller("admin")
    own, foreign = admin.submit(project="vision"), admin.submit(project="speech")
    daemon.service.run(foreign)
    browser = daemon.browser("user", projects=("vision",))
    assert names(browser.get("/jobs")) == [own]
    assert names(browser.get("/jobs?project=speech")) == []
    for path in ("", "/log.txt", "/forecast", "/output", "/change", "/hold"):
        assert browser.get(f"/jobs/{foreign}{path}").status_code == 404
    assert browser.send(f"/jobs/{foreign}/hold").status_code == 404
    browser.send("/jobs/-/cancel", mark=mark_of(browser.get("/jobs/-/cancel")))
    assert daemon.service.store.job(foreign).status == "running"
    assert daemon.service.store.job(own).status == "cancelled"
    cluster = browser.get("/cluster").text
    assert foreign not in cluster
    assert "of another project" in cluster


def test_the_output_of_a_job_loses_its_terminal_codes_and_nothing_else(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    lease = daemon.service.run(job)
    data = b"\x1b[31mred\x1b[0m \x1b]0;title\x07 <b>&\xff\x00 \xe2\x80\xae end\n"
    daemon.run(
        daemon.service.append_log("alpha", lease.lease_id, "out", offset=0, data=data, end=None)
    )
    page = daemon.browser("viewer").get(f"/jobs/{job}").text
    assert "red  &lt;b&gt;&amp;\ufffd\ufffd \ufffd end" in page
    whole = daemon.browser("viewer").get(f"/jobs/{job}/log.txt")
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.content.endswith(data)


# -- the history ---------------------------------------------------------------------------------


def test_the_history_is_filtered_and_paged_and_hides_what_the_caller_may_not_see(
    daemon: Any,
) -> None:
    admin = daemon.caller("admin", subject="root")
    own = admin.submit(project="vision")
    foreign = [admin.submit(project="speech") for _ in range(60)]
    admin.post("/v1/tokens", json={"subject": "secret-person", "role": "viewer"})
    browser, url, seen = daemon.browser("admin"), "/events?about=job&kind=job_submitted", []
    while url:
        page = browser.get(url).text
        seen += re.findall(r'job <a href="\./jobs/([^"]+)">', page)
        found = re.search(r'href="(\?[^"]+)" rel="next"', page)
        url = "" if found is None else "/events" + found[1].replace("&amp;", "&")
    assert seen == [*foreign[::-1], own]
    assert "token created" in browser.get("/events").text
    confined = daemon.browser("viewer", projects=("vision",)).get("/events").text
    assert own in confined
    assert not any(job in confined for job in foreign)
    assert "token created" not in confined
    assert "Left out" in browser.get("/events?kind=explosion&project=a%20b").text


# -- the cluster -----------------------------------------------------------------------------------


def test_the_cluster_says_which_job_holds_what_and_drains_with_a_reason(daemon: Any) -> None:
    job = daemon.caller("admin").submit(scale_factor=2)
    daemon.service.run(job)
    browser = daemon.browser("operator", subject="olga")
    page = browser.get("/cluster").text
    assert re.search(rf'2 \S v100 <a href="\./jobs/{job}">{job}</a>', page)
    assert re.search(r"6 \S v100 free", page)
    assert "Drain node alpha?" in browser.get("/cluster/alpha/drain").text
    answer = browser.send("/cluster/alpha/drain", reason="new cable")
    assert (answer.status_code, answer.headers["location"]) == (303, "../../cluster")
    assert "new cable" in browser.get("/cluster?state=draining").text
    assert browser.get("/cluster/nothing/drain").status_code == 404
    confined = daemon.browser("operator", projects=("vision",))
    assert "cluster/alpha/uncordon" in browser.get("/cluster").text
    assert "cluster/alpha/uncordon" not in confined.get("/cluster").text
    assert browser.send("/cluster/alpha/explode").status_code == 422


def test_a_part_of_a_page_is_the_same_without_its_frame(daemon: Any) -> None:
    daemon.caller("admin").submit()
    browser = daemon.browser("viewer")
    for path in ("/jobs", "/jobs/job-1", "/cluster", "/events", "/rounds", "/fairness", "/usage"):
        part = browser.get(path, headers={"HX-Request": "true"})
        assert part.headers["vary"] == "Accept-Encoding, Cookie, HX-Request"
        assert "<html" not in part.text
        assert part.text.strip() in browser.get(path).text


def test_a_page_asks_to_wait_for_a_new_round_and_a_program_does_not(daemon: Any) -> None:
    daemon.caller("admin").submit()
    browser = daemon.browser("viewer")
    paths = ("/jobs", "/jobs/job-1", "/cluster", "/events", "/rounds", "/fairness", "/usage")
    for count, path in enumerate(paths, 1):
        assert browser.get(path).status_code == 200
        assert daemon.service.readers == count, path
    daemon.caller("viewer").get("/v1/jobs")
    assert daemon.service.readers == len(paths)


def test_pages_without_such_a_part_are_whole_and_do_not_follow(daemon: Any) -> None:
    job = daemon.caller("admin").submit()
    browser = daemon.browser("admin")
    for path in ("/sign-in?code=x", f"/jobs/{job}/hold", "/jobs/-/hold", "/cluster/alpha/drain"):
        part = browser.get(path, headers={"HX-Request": "true"})
        assert (part.status_code, "<html" in part.text) == (200, True)
    daemon.service.failure = ConflictError("it has ended")
    refused = browser.send(f"/jobs/{job}/hold")
    assert (refused.status_code, "it has ended" in refused.text) == (409, True)
    assert "hx-get" not in refused.text
    assert 'hx-get="./jobs"' in browser.get("/jobs").text


@pytest.mark.parametrize("name", ["javascript:alert(1)", "js:x", "a:b", "x[3]"])
def test_no_url_of_a_page_becomes_a_script(daemon: Any, name: str) -> None:
    for path in (f"/jobs/{name}", f"/cluster/alpha/{name}", f"/jobs/-/{name}"):
        page = daemon.browser("admin").get(path)
        assert page.status_code in {404, 422}
        assert not elements(page.text).risky


def test_an_element_of_an_array_has_its_pages(daemon: Any) -> None:
    given = {"name": "sweep", "command": ["a"], "array": {"count": 2}}
    assert daemon.caller("admin").post("/v1/jobs", json=given).status_code == 200
    browser = daemon.browser("admin")
    (first, second) = [unquote(name) for name in names(browser.get("/jobs"))]
    assert browser.get(f"/jobs/{first}").status_code == 200
    assert f'hx-get="./{quote(first, safe="")}"' in browser.get(f"/jobs/{first}").text
    answer = browser.send(f"/jobs/{second}/hold")
    assert unquote(answer.headers["location"]) == f"../{second}"


def test_the_filter_form_keeps_every_filter(daemon: Any) -> None:
    query = "label=a%3D1&label=b%3D2&project=x&project=y&status=waiting&sort=name"
    page = daemon.browser("viewer").get(f"/jobs?{query}").text
    fields = re.findall(r'<input[^>]*name="(\w+)"[^>]*value="([^"]+)"', page)
    fields += [(n, v) for v, n in re.findall(r'<input[^>]*value="([^"]+)"[^>]*name="(\w+)"', page)]
    assert sorted(set(fields)) == [
        *[("label", "a=1"), ("label", "b=2"), ("project", "x"), ("project", "y")],
        *[("sort", "name"), ("status", "waiting")],
    ]


def test_a_gang_of_many_nodes_has_a_page_of_bounded_size(daemon: Any) -> None:
    job = daemon.caller("admin").submit(scale_factor=4)
    daemon.service.run(job)
    data = b"\xc2\x9d" * 50_000
    for i in range(20):
        chunk = LogChunk(
            attempt=1, node=f"node-{i}", stream="out", offset=0, kept_from=0, data=data
        )
        daemon.service.log.append((job, chunk))
    page = daemon.browser("viewer").get(f"/jobs/{job}")
    assert len(page.content) < 150_000
    assert "It has 20 streams; 4 are shown here." in page.text
