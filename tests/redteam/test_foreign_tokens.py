"""Attacks with tokens that no identity provider has issued."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import sys
import time

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc.jwk import RSAKey
from real_service import running_service

from leasehold_testing.identity_provider import AUDIENCE, IdentityProvider

pytestmark = pytest.mark.redteam

GROUPS = {
    "vision-team": "user:vision",
    "nlp-team": "user:nlp",
    "readers": "viewer",
    "operators": "operator",
    "admins": "admin",
    "prometheus": "metrics",
}


@pytest.fixture
def provider():
    with IdentityProvider() as made:
        yield made


def oidc(provider, **more):
    groups = {f"oidc__groups__{name}": role for name, role in GROUPS.items()}
    return {"oidc__issuer": provider.issuer, "oidc__audience": AUDIENCE} | groups | more


def b64(data):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def by_hand(head, claims, sign):
    body = f"{b64(head)}.{b64(claims)}"
    return f"{body}.{b64(sign(body.encode()))}"


def signature_of(provider):
    """Return a function that signs with the provider's own key, for any header."""
    key = provider.keys["k1"].private_key
    return lambda body: key.sign(body, PKCS1v15(), SHA256())


def public_pem(provider):
    return provider.keys["k1"].as_pem(private=False)


def attacks(provider):
    """Return the attacks: name -> token."""
    now_s = int(time.time())
    whole, ok = provider.claims(groups=["admins"]), provider.token(groups=["admins"])
    stranger = RSAKey.generate_key(2048)
    head, _, rest = ok.partition(".")
    _, _, signature = rest.partition(".")
    pem = public_pem(provider)
    n = base64.urlsafe_b64decode(provider.public("k1")["n"] + "==")

    def mac(key):
        return lambda body: hmac.new(key, body, hashlib.sha256).digest()

    own = {"alg": "RS256", "kid": "k1", "jwk": stranger.as_dict(private=False)}
    strange = IdentityProvider.token
    provider.keys["stranger"] = stranger
    try:
        by_stranger = strange(provider, key="stranger", header={"kid": "k1"}, groups=["admins"])
        with_own_key = strange(provider, key="stranger", header=own, groups=["admins"])
        unknown_kid = strange(provider, key="stranger", groups=["admins"])
        no_kid = strange(provider, key="stranger", header={"kid": ""}, groups=["admins"])
    finally:
        del provider.keys["stranger"]
    return {
        "none": by_hand({"alg": "none"}, whole, lambda _: b""),
        "none_with_a_key": by_hand({"alg": "none", "kid": "k1"}, whole, lambda _: b""),
        "None": by_hand({"alg": "None", "kid": "k1"}, whole, lambda _: b""),
        "no_signature": ok.rpartition(".")[0] + ".",
        "two_parts": ok.rpartition(".")[0],
        "public_key_as_password": by_hand({"alg": "HS256", "kid": "k1"}, whole, mac(pem)),
        "modulus_as_password": by_hand({"alg": "HS256", "kid": "k1"}, whole, mac(n)),
        "empty_password": by_hand({"alg": "HS256", "kid": "k1"}, whole, mac(b"")),
        "listed_name_with_a_mac": by_hand({"alg": "RS256", "kid": "k1"}, whole, mac(pem)),
        "other_claims": f"{head}.{b64(whole | {'sub': 'boss'})}.{signature}",
        "anothers_key": by_stranger,
        "a_key_of_its_own": with_own_key,
        "unknown_key": unknown_kid,
        "no_key_named": no_kid,
        "unlisted_algorithm": provider.token(algorithm="RS512", groups=["admins"]),
        "expired": provider.token(groups=["admins"], exp=now_s - 61),
        "never_expires": provider.token(groups=["admins"], exp=None),
        "expires_as_text": provider.token(groups=["admins"], exp="9999999999"),
        "expires_in_eternity": provider.token(groups=["admins"], exp=1e300),
        "not_yet": provider.token(groups=["admins"], nbf=now_s + 90),
        "issued_later": provider.token(groups=["admins"], iat=now_s + 90),
        "another_audience": provider.token(groups=["admins"], aud="grafana"),
        "no_audience": provider.token(groups=["admins"], aud=None),
        "audience_within": provider.token(groups=["admins"], aud=f"{AUDIENCE}-dev"),
        "audience_as_object": provider.token(groups=["admins"], aud={AUDIENCE: 1}),
        "another_issuer": provider.token(groups=["admins"], iss="https://evil.example"),
        "issuer_with_a_slash": provider.token(groups=["admins"], iss=f"{provider.issuer}/"),
        "no_issuer": provider.token(groups=["admins"], iss=None),
        "no_groups": provider.token(groups=None),
        "other_groups": provider.token(groups=["admins2", "Admins", "admins "]),
        "groups_as_object": provider.token(groups={"admins": True}),
        "logout_token": provider.token(groups=["admins"], header={"typ": "logout+jwt"}),
        "critical_header": by_hand(
            {"alg": "RS256", "kid": "k1", "crit": ["x"], "x": 1}, whole, signature_of(provider)
        ),
        "no_name": provider.token(groups=["admins"], sub=None),
        "name_with_a_line": provider.token(groups=["admins"], sub="a\nsubject=admin"),
        "name_as_number": provider.token(groups=["admins"], sub=7),
        "huge": provider.token(groups=["admins"], padding="x" * 9000),
        "many_groups": provider.token(groups=[*("g" for _ in range(1000)), "admins"]),
        "deep": f"{b64(b'[' * 3000)}.{b64(b'{}')}.x",
        "encrypted_form": f"{ok}.a.b",
        "garbage": "a.b.c",
        "key_id_as_list": by_hand({"alg": "RS256", "kid": ["k1"]}, whole, mac(pem)),
        "algorithm_as_list": by_hand({"alg": ["RS256"], "kid": "k1"}, whole, mac(pem)),
    }


#: The messages of some of them, so that each is refused for its own fault.
REASONS = {
    "none": "algorithm",
    "public_key_as_password": "algorithm",
    "unlisted_algorithm": "algorithm",
    "listed_name_with_a_mac": "signature",
    "other_claims": "signature",
    "anothers_key": "signature",
    "a_key_of_its_own": "signature",
    "critical_header": "signature",
    "no_key_named": "signature",
    "unknown_key": "does not show",
    "expired": "has expired",
    "never_expires": "never expires",
    "expires_as_text": "'exp' is no time",
    "not_yet": "not valid yet",
    "issued_later": "not valid yet",
    "another_audience": "another audience",
    "audience_within": "another audience",
    "audience_as_object": "another audience",
    "another_issuer": "another issuer",
    "issuer_with_a_slash": "another issuer",
    "other_groups": "no group that has a role",
    "many_groups": "no group that has a role",
    "logout_token": "header",
    "name_with_a_line": "no name",
    "huge": "longer than",
    "two_parts": "no valid token",
}


def test_no_forged_token_lets_anybody_in(provider, tmp_path, capsys):
    async def attack():
        found = {}
        async with running_service(tmp_path, **oidc(provider)) as (_, client):
            good = provider.token(groups=["admins"])
            bearer = {"Authorization": f"Bearer {good}"}
            assert (await client.get("/v1/tokens", headers=bearer)).status_code == 200
            tokens = attacks(provider)
            for name, token in tokens.items():
                header = {"Authorization": f"Bearer {token}"}
                answer = await client.get("/v1/whoami", headers=header)
                found[name] = answer.status_code
                assert REASONS.get(name, "") in answer.json()["detail"], (name, answer.text)
                assert token not in answer.text
        return found, tokens

    found, tokens = asyncio.run(attack())
    assert {name: status for name, status in found.items() if status != 401} == {}
    assert len(found) > 40
    said = capsys.readouterr().err
    assert not any(token in said for token in tokens.values() if len(token) > 100)


def test_groups_give_roles_and_projects_and_no_more(provider, tmp_path):
    async def attack():
        async with running_service(tmp_path, **oidc(provider)) as (_, client):

            async def who(**claims):
                header = {"Authorization": f"Bearer {provider.token(**claims)}"}
                found = (await client.get("/v1/whoami", headers=header)).json()
                return header, (found["subject"], found["role"], sorted(found["projects"]))

            header, ann = await who()
            assert ann == ("oidc-ann", "user", ["vision"])
            both = await who(groups=["vision-team", "nlp-team", "readers"])
            assert both[1] == ("oidc-ann", "user", ["nlp", "vision"])
            assert (await who(groups=["readers"]))[1] == ("oidc-ann", "viewer", [])
            assert (await who(groups="operators", sub="bob"))[1][1] == "operator"
            job = {"name": "a", "command": ["b"], "env": {"PASSWORD": "hunter2"}}
            made = await client.post("/v1/jobs", json=job, headers=header)
            for _ in range(300):  # until it leads
                if made.status_code != 503:
                    break
                await asyncio.sleep(0.1)
                made = await client.post("/v1/jobs", json=job, headers=header)
            assert made.status_code == 201, made.text
            path = f"/v1/jobs/{made.json()['job_id']}"
            mine = (await client.get(path, headers=header)).json()
            assert (mine["owner"], mine["project"]) == ("oidc-ann", "vision")
            assert mine["spec"]["env"] == job["env"]
            eve, _ = await who(sub="eve")
            assert (await client.get(path, headers=eve)).json()["spec"]["env"] == {
                "PASSWORD": "***"
            }
            nlp, _ = await who(groups=["nlp-team"])
            assert (await client.get(path, headers=nlp)).status_code == 404
            assert (await client.get("/v1/tokens", headers=header)).status_code == 403
            asked = await client.get("/v1/agent/desired", headers=header)
            assert asked.status_code == 403
            prometheus = {"Authorization": f"Bearer {provider.token(groups=['prometheus'])}"}
            assert (await client.get("/metrics", headers=prometheus)).status_code == 200
            assert (await client.get("/v1/jobs", headers=prometheus)).status_code == 403

    asyncio.run(attack())


def test_the_provider_is_asked_seldom_whatever_keys_are_named(provider, tmp_path):
    async def attack():
        async with running_service(tmp_path, **oidc(provider)) as (_, client):
            good = {"Authorization": f"Bearer {provider.token()}"}
            assert (await client.get("/v1/whoami", headers=good)).status_code == 200
            before = len(provider.asked)
            provider.add_key("new")
            late = {"Authorization": f"Bearer {provider.token(key='new')}"}
            await client.get("/v1/whoami", headers=late)

            async def forged(number):
                token = by_hand({"alg": "RS256", "kid": f"k{number}x"}, {}, lambda _: b"x")
                return await client.get("/v1/whoami", headers={"Authorization": f"Bearer {token}"})

            answers = await asyncio.gather(*(forged(number) for number in range(100)))
            assert {answer.status_code for answer in answers} <= {401, 429}
            assert len(provider.asked) - before <= 2  # one reading: the document and the keys
            assert (await client.get("/v1/whoami", headers=good)).status_code == 200

    asyncio.run(attack())


def test_the_command_line_sends_such_a_token(provider, tmp_path):
    async def attack():
        async with running_service(tmp_path, **oidc(provider)) as (running, _):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "leasehold", "token", "whoami", "--json"),
                stdout=asyncio.subprocess.PIPE,
                env=os.environ
                | {
                    "HOME": str(tmp_path),
                    "LEASEHOLD_SERVER": running.url,
                    "LEASEHOLD_TOKEN": provider.token(),
                },
            )
            out, _ = await asyncio.wait_for(process.communicate(), 60)
            return json.loads(out)

    found = asyncio.run(attack())
    assert (found["subject"], found["role"]) == ("oidc-ann", "user")
