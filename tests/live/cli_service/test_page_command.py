"""``leasehold page``: a link that signs a browser in, once."""

from __future__ import annotations

import json

import httpx

from api.auth.browser import COOKIE


def test_the_link_signs_in_as_the_caller_once(serve, leasehold, monkeypatch):
    scheduler = serve(auth=True)
    secret = scheduler.token("user", subject="ann")
    monkeypatch.setenv("LEASEHOLD_TOKEN", secret)
    ran = leasehold("page")
    assert ran.code == 0
    assert ran.err == "leasehold: it signs in as you, once, within 60 s\n"
    link = ran.out.strip()
    assert link.startswith(f"{scheduler.url}/sign-in?code=")
    assert secret not in ran.out
    form = {"code": link.partition("code=")[2]}
    answers = [
        httpx.post(f"{scheduler.url}/sign-in", data=form, headers={"Origin": scheduler.url})
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [303, 401]
    assert answers[0].cookies[COOKIE] == secret


def test_without_tokens_the_link_is_the_first_page(scheduler, leasehold, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda link: opened.append(link) is None)
    found = json.loads(leasehold("page", "--json", "--open").out)
    assert found == {"link": f"{scheduler.url}/", "valid_s": 0.0}
    assert opened == [found["link"]]
    monkeypatch.setattr("webbrowser.open", lambda _link: False)
    ran = leasehold("page", "--open")
    assert (ran.code, "no browser was found" in ran.err) == (0, True)


def test_a_token_of_an_agent_gets_no_link(serve, leasehold, monkeypatch):
    scheduler = serve(auth=True)
    monkeypatch.setenv("LEASEHOLD_TOKEN", scheduler.token("agent", subject="alpha"))
    assert leasehold("page").code == 4
