"""The views for administration: what each role sees and may do, forms, secrets shown once."""

from __future__ import annotations

import dataclasses
import re
from html import unescape
from typing import Any

import pytest

from api.pages.model_forms import fields_of, read_values, write_value
from api.schemas.admin import EnrolmentIn, ProjectIn, ReservationIn, TokenIn
from scheduler.errors import InputError

NOW_S = 1_000_000.0


def plain(page: Any) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.text)).split())


def tabs(page: Any) -> list[str]:
    return re.findall(r'href="\.\./admin/(\w+)"', page.text.split("<table")[0])


def shown(page: Any) -> str:
    """Return the secret on a page."""
    return unescape(re.search(r'aria-label="Secret">([^<]*)<', page.text)[1])


@pytest.mark.parametrize(
    ("role", "projects", "sections"),
    [
        ("viewer", (), ["projects", "reservations", "webhooks", "nodes"]),
        ("user", ("vision",), ["projects", "reservations", "webhooks", "nodes"]),
        ("operator", (), ["projects", "reservations", "webhooks", "nodes"]),
        ("operator", ("vision",), ["projects", "reservations", "webhooks", "nodes"]),
        ("admin", (), ["projects", "reservations", "webhooks", "nodes", "tokens"]),
    ],
)
def test_each_role_has_its_sections(
    daemon: Any, role: str, projects: tuple[str, ...], sections: list[str]
) -> None:
    page = daemon.browser(role, projects=projects).get("/admin/projects")
    assert tabs(page) == sections


def test_a_token_is_made_shown_once_and_revoked(daemon: Any) -> None:
    browser = daemon.browser("admin", subject="root")
    form = {"subject": "ann", "role": "user", "projects": "vision, speech", "ttl_s": "2d"}
    page = browser.send("/admin/tokens/new", **form)
    secret = shown(page)
    assert "content-encoding" not in page.headers
    once = {"once": "1" * 32}
    twice = [browser.send("/admin/tokens/new", subject="bob", role="user", **once) for _ in "ab"]
    assert [one.status_code for one in twice] == [200, 409]
    assert sum(row.subject == "bob" for row in daemon.service.store.tokens()) == 1
    row = next(row for row in daemon.service.store.tokens() if row.subject == "ann")
    assert (row.role, row.projects) == ("user", ("speech", "vision"))
    assert row.expires_s == pytest.approx(NOW_S + 2 * 86400)
    caller = dataclasses.replace(browser, headers={"Authorization": f"Bearer {secret}"})
    assert caller.get("/v1/whoami").json()["subject"] == "ann"
    listed = browser.get("/admin/tokens")
    assert secret not in listed.text
    asked = plain(browser.get(f"/admin/tokens/{row.token_id}/revoke"))
    assert "It is of ann, with role user, confined to speech, vision." in asked
    assert browser.get("/admin/tokens/nothing/revoke").status_code == 404
    assert ">ann<" not in browser.get("/admin/tokens?q=root").text
    answer = browser.send(f"/admin/tokens/{row.token_id}/revoke")
    assert (answer.status_code, answer.headers["location"]) == (303, "../../tokens")
    assert caller.get("/v1/whoami").status_code == 401
    assert "revoked" in browser.get("/admin/tokens").text
    assert "root" in browser.get("/events?kind=token_revoked").text


def test_the_last_administrator_is_kept(daemon: Any) -> None:
    browser = daemon.browser("admin")
    admins = [row for row in daemon.service.store.tokens() if row.role == "admin"]
    for row in admins[:-1]:
        assert browser.send(f"/admin/tokens/{row.token_id}/revoke").status_code == 303
    refused = browser.send(f"/admin/tokens/{admins[-1].token_id}/revoke")
    assert (refused.status_code, "the only one of an administrator" in refused.text) == (409, True)


def test_limits_of_a_project_are_set_and_shown_and_kept_if_they_cannot_be_read(
    daemon: Any,
) -> None:
    browser = daemon.browser("operator", subject="olga")
    found = browser.get("/admin/set-project?name=vision")
    assert found.headers["location"] == "projects/vision"
    form = {
        "weight": "2",
        "max_workers": "16",
        "max_workers_of": "v100=8, a100=4",
        "inner_policy": "fifo",
        "idle_quota": "lend",
        "entities": "nlp, asr",
        "budget_gpu_hours": "500",
    }
    answer = browser.send("/admin/projects/vision", **form)
    assert (answer.status_code, answer.headers["location"]) == (303, "../projects")
    limits = daemon.service.projects()[0].limits
    assert (limits.weight, limits.max_workers, limits.inner_policy) == (2.0, 16, "fifo")
    assert dict(limits.max_workers_of) == {"v100": 8, "a100": 4}
    assert (limits.entities, limits.budget_gpu_hours) == (("nlp", "asr"), 500.0)
    page = browser.get("/admin/projects/vision").text
    for name, value in (("max_workers_of", "v100=8, a100=4"), ("entities", "nlp, asr")):
        assert f'name="{name}" value="{value}"' in page
    assert "<option selected>lend</option>" in page
    again = browser.send("/admin/projects/vision", weight="much", max_workers_of="v100")
    assert (again.status_code, 'value="v100"' in again.text) == (422, True)
    assert "give NAME=NUMBER" in plain(again)
    assert "weight" in plain(browser.send("/admin/projects/vision", weight="much"))
    assert 'name="entities" value=""' in again.text
    form |= {"weight": "1", "inner_policy": "fairness", "idle_quota": "keep"}
    cleared = browser.send(
        "/admin/projects/vision",
        **form | dict.fromkeys(("max_workers", "max_workers_of", "entities"), ""),
    )
    assert cleared.status_code == 303
    limits = daemon.service.projects()[0].limits
    assert (limits.max_workers, dict(limits.max_workers_of), limits.entities) == (None, {}, None)
    for name in ("a%20b", "%0A", "x" * 64):
        assert browser.get(f"/admin/projects/{name}").status_code == 422
        assert browser.send(f"/admin/projects/{name}", weight="1").status_code == 422


def test_workers_are_reserved_and_given_back(daemon: Any) -> None:
    browser = daemon.browser("operator")
    form = {"name": "demo", "worker_type": "v100", "workers": "2", "project": "vision"}
    late = browser.send("/admin/reservations/new", **form, from_s="soon", until_s="3h")
    assert "from_s is 'soon'" in plain(late)
    assert 'name="worker_type" value="v100"' in late.text
    zoneless = browser.send(
        "/admin/reservations/new", **form, from_s="2027-01-15T18:00", until_s="3h"
    )
    assert "without a zone" in plain(zoneless)
    made = browser.send("/admin/reservations/new", **form, from_s="1h", until_s="3h")
    assert made.headers["location"] == "../reservations"
    (rule,) = [one.reservation for one in daemon.service.reservations()]
    assert (rule.from_s, rule.until_s) == (NOW_S + 3600, NOW_S + 10_800)
    assert "demo" in browser.get("/admin/reservations").text
    confined = daemon.browser("viewer", projects=("speech",)).get("/admin/reservations").text
    assert "vision" not in confined
    assert browser.send("/admin/reservations/demo/delete").status_code == 303
    assert daemon.service.reservations() == ()


def test_a_webhook_is_registered_tested_and_deleted(daemon: Any) -> None:
    browser = daemon.browser("user", subject="ann", projects=("vision",))
    form = {"name": "chat", "url": "https://example.com/hook", "on": "job_failed, job_completed"}
    refused = browser.send("/admin/webhooks/new", **form, template="json")
    assert (refused.status_code, "https://example.com/hook" in refused.text) == (403, True)
    page = browser.send("/admin/webhooks/new", **form, project="vision", template="slack")
    secret = shown(page)
    listed = browser.get("/admin/webhooks").text
    assert "chat" in listed
    assert secret not in listed
    assert "hook" not in listed.split("<tbody>")[1].replace("webhooks", "")
    tested = browser.send("/admin/webhooks/chat/test?project=vision")
    assert "Test of webhook chat" in tested.text
    assert browser.send("/admin/webhooks/chat/resume?project=vision").status_code == 303
    foreign = daemon.browser("user", subject="bob", projects=("vision",))
    assert foreign.send("/admin/webhooks/chat/delete?project=vision").status_code == 403
    assert browser.send("/admin/webhooks/chat/delete?project=b%20ad").status_code == 422
    assert browser.send("/admin/webhooks/chat/delete?project=vision").status_code == 303
    assert "There are no webhooks" in browser.get("/admin/webhooks").text


def test_workers_beyond_the_approved_ones_are_approved(daemon: Any, monkeypatch: Any) -> None:
    (node,) = daemon.service.nodes()
    node = dataclasses.replace(node, approved={"v100": 4}, refused={"v100": 4, "a100": 1})
    monkeypatch.setattr(daemon.service, "nodes", lambda: (node,))
    browser = daemon.browser("operator")
    assert "4 \N{MULTIPLICATION SIGN} v100" in plain(browser.get("/admin/nodes"))
    page = browser.get("/admin/nodes/alpha/workers")
    assert 'name="workers" value="v100=8, a100=1"' in page.text
    answer = browser.send("/admin/nodes/alpha/workers", workers="v100=8, a100=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "../../nodes")
    assert daemon.service.approved["alpha"] == {"v100": 8, "a100": 1}
    assert browser.get("/admin/nodes/nothing/workers").status_code == 404
    empty = browser.send("/admin/nodes/alpha/workers", workers=" ")
    assert (empty.status_code, "workers" in plain(empty)) == (422, True)
    secret = shown(daemon.browser("admin").send("/admin/nodes/new", ttl_s="1h", node="beta"))
    assert secret.startswith("lh")


def test_the_fields_of_a_form_are_those_of_the_body() -> None:
    assert [one.name for one in fields_of(TokenIn)] == list(TokenIn.model_fields)
    kinds = {one.name: one.kind.value for one in fields_of(ReservationIn)}
    assert (kinds["from_s"], kinds["workers"], kinds["job"]) == ("moment", "number", "text")
    (ttl,) = [one for one in fields_of(EnrolmentIn) if one.name == "ttl_s"]
    assert (ttl.kind.value, ttl.value) == ("span", "1h00m")
    assert write_value({"v100": 4}) == "v100=4"
    given = read_values(ProjectIn, {"max_workers_of": "a100 80GB=4, k80=x"}, now_s=0.0)
    assert given["max_workers_of"] == {"a100 80GB": 4, "k80": "x"}
    assert set(given) == {"max_workers_of"}
    assert read_values(ProjectIn, {"entities": ""}, now_s=0.0) == {"entities": None}
    with pytest.raises(InputError, match="give NAME=NUMBER"):
        read_values(ProjectIn, {"max_workers_of": "v100"}, now_s=0.0)


@pytest.mark.parametrize("entities", [None, (), ("nlp",)])
def test_a_form_that_is_sent_unchanged_changes_nothing(
    daemon: Any, entities: tuple[str, ...] | None
) -> None:
    limits: dict[str, Any] = {
        "weight": 12345.0625,
        "max_workers_of": {"a100 80GB": 3},
        "entities": None if entities is None else list(entities),
        "job_types": ["resnet*", 'BERT (batch 32, 512 tokens) "x"'],
        "budget_usd": 0.1 + 0.2,
        "budget_warning": 0.8125,
    }
    assert daemon.caller("operator").put("/v1/projects/vision", json=limits).status_code == 200
    before = daemon.service.projects()[0].limits
    browser = daemon.browser("operator")
    page = browser.get("/admin/projects/vision").text.split("card fields")[1]
    fields = {
        name: unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', page)
    }
    fields |= dict(re.findall(r'name="(\w+)">.*?<option selected>(\w+)<', page))
    del fields["form_key"]
    assert browser.send("/admin/projects/vision", **fields).status_code == 303
    assert daemon.service.projects()[0].limits == before
