"""Keys of an identity provider: fetched within bounds, kept, and fetched again seldom."""

import asyncio
import json

import httpx
import pytest
from joserfc import jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OctKey, RSAKey

from api.auth.identity import ALGORITHMS, Grant, ProviderSettings, is_safe_url, parse_grant
from api.auth.oidc import MOST_BYTES, MOST_KEYS, Provider
from api.auth.roles import Principal, Role, TokenFault
from leasehold.config.load import load_config
from scheduler.errors import ConfigError, InputError

ISSUER = "https://id.example"
DISCOVERY, KEYS = f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"
BACK = "https://gpu.example/sign-in-done"
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
CURVE = ECKey.generate_key("P-256", {"kid": "curve"})


class World:
    """A provider with answers and times set by a test."""

    def __init__(self, **settings):
        self.now = 1_000_000.0
        self.keys = [RSA.as_dict(private=False)]
        self.answers = {}
        self.asked = []
        self.cookies = []
        known = {
            "issuer": ISSUER,
            "audience": "us",
            "grants": {"g": Grant(role=Role.VIEWER)},
            "algorithms": ("RS256", "ES256"),
        }
        self.provider = Provider(
            ProviderSettings(**known | settings),
            now=lambda: self.now,
            monotonic=lambda: self.now,
            transport=httpx.MockTransport(self.answer),
        )

    def answer(self, request):
        url = str(request.url)
        self.asked.append(url)
        self.cookies.append(request.headers.get("cookie"))
        if url in self.answers:
            if isinstance(self.answers[url], Exception):
                raise self.answers[url]
            return self.answers[url]
        if url == DISCOVERY:
            return httpx.Response(200, json={"issuer": ISSUER, "jwks_uri": KEYS})
        return httpx.Response(200, json={"keys": self.keys}, headers={"set-cookie": "a=b; Path=/"})

    def token(self, key=RSA, *, algorithm="RS256", header=None, **claims):
        usual = {"iss": ISSUER, "aud": ["us", "them"], "sub": "ann", "exp": self.now + 300}
        usual |= {"groups": ["g"]}
        head = {"alg": algorithm, "kid": key.kid} | (header or {})
        return jwt.encode(head, usual | claims, key, algorithms=[algorithm])

    def ask(self, token):
        return asyncio.run(self.provider.principal(token))

    def fetches(self):
        return self.asked.count(KEYS)


def test_keys_are_fetched_once_and_again_when_they_are_old():
    world = World()
    for _ in range(5):
        assert isinstance(world.ask(world.token()), Principal)
    assert world.asked == [DISCOVERY, KEYS]
    world.now += 3601
    assert isinstance(world.ask(world.token()), Principal)
    assert world.fetches() == 2


def test_cookies_of_the_provider_are_not_kept():
    world = World()
    world.ask(world.token())
    world.now += 3601
    world.ask(world.token())
    assert world.fetches() == 2
    assert world.cookies == [None] * len(world.asked)


def test_old_keys_are_good_for_a_day_where_they_cannot_be_fetched():
    world = World()
    assert isinstance(world.ask(world.token()), Principal)
    world.answers[DISCOVERY] = httpx.Response(500)
    world.now += 3601
    assert isinstance(world.ask(world.token()), Principal)
    world.now += 86_400
    fault = world.ask(world.token())
    assert isinstance(fault, TokenFault)
    assert fault.away


@pytest.mark.parametrize("answer", [httpx.Response(503), httpx.ReadTimeout(""), TimeoutError()])
def test_without_any_keys_tokens_may_be_taken_later(answer):
    world = World()
    world.answers[KEYS] = answer
    fault = world.ask(world.token())
    assert fault == TokenFault("the provider's keys cannot be fetched at the moment", away=True)
    for _ in range(10):
        world.ask(world.token())
    assert world.fetches() == 1
    del world.answers[KEYS]
    world.now += 6
    assert isinstance(world.ask(world.token()), Principal)


def test_unknown_keys_are_asked_for_every_half_minute_at_most():
    world = World()
    world.ask(world.token())
    for step in range(60):
        fault = world.ask(world.token(CURVE, algorithm="ES256", header={"kid": f"k{step}"}))
        assert "does not show" in fault.why
        world.now += 1
    assert world.fetches() <= 1 + 2
    world.keys.append(CURVE.as_dict(private=False))
    world.now += 31
    assert isinstance(world.ask(world.token(CURVE, algorithm="ES256")), Principal)


def test_a_key_that_is_withdrawn_signs_nothing_any_more():
    world = World()
    token = world.token(exp=world.now + 9000)
    assert isinstance(world.ask(token), Principal)
    world.keys = [CURVE.as_dict(private=False)]
    world.now += 3601
    assert isinstance(world.ask(token), TokenFault)


def test_a_token_that_is_remembered_expires_all_the_same():
    world = World()
    token = world.token(exp=world.now + 1)
    assert isinstance(world.ask(token), Principal)
    world.now += 1 + 59
    assert isinstance(world.ask(token), Principal)  # within what clocks may differ by
    world.now += 1
    assert world.ask(token).why == "it has expired"


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        (KEYS, httpx.Response(200, content=b"x" * (MOST_BYTES + 1))),
        (KEYS, httpx.Response(200, content=b"[" * 100_000)),
        (KEYS, httpx.Response(200, json=[])),
        (KEYS, httpx.Response(200, json={"keys": {}})),
        (KEYS, httpx.Response(200, json={"keys": [{"kty": "RSA"}, 7, {"kty": "EC", "crv": 1}]})),
        (KEYS, httpx.Response(302, headers={"Location": "https://evil.example/keys"})),
        (DISCOVERY, httpx.Response(200, json={"issuer": "https://evil.example"})),
        (DISCOVERY, httpx.Response(200, json={"issuer": ISSUER})),
        (
            DISCOVERY,
            httpx.Response(200, json={"issuer": ISSUER, "jwks_uri": "http://id.example/k"}),
        ),
    ],
)
def test_documents_that_cannot_be_right_give_no_keys(url, answer):
    world = World()
    world.answers[url] = answer
    assert world.ask(world.token()).away
    assert all(asked.startswith(ISSUER) for asked in world.asked)


def test_shared_secrets_small_keys_and_too_many_are_passed_over():
    with pytest.warns(SecurityWarning):
        weak = RSAKey.generate_key(1024, {"kid": "weak"})
    shared = OctKey.generate_key(256)
    world = World(algorithms=("RS256",))
    shown = json.loads(json.dumps(shared.as_dict(private=True))) | {"kid": "shared"}
    padding = [CURVE.as_dict(private=False) | {"kid": f"c{n}"} for n in range(MOST_KEYS - 3)]
    world.keys = [weak.as_dict(private=False), shown, *world.keys, *padding, CURVE.as_dict()]
    assert isinstance(world.ask(world.token()), Principal)
    assert "does not show" in world.ask(world.token(weak)).why
    forged = world.token(header={"kid": "shared"})
    assert "does not show" in world.ask(forged).why
    assert "curve" not in world.provider._keys


@pytest.mark.parametrize("name", ["", " ", None, 5, [], "a b", "ann\n"])
def test_a_person_without_a_name_is_nobody(name):
    world = World()
    assert "its claim 'sub' is no name" in world.ask(world.token(sub=name)).why


@pytest.mark.parametrize("more", [{"use": "enc"}, {"alg": "RS512"}])
def test_a_key_for_something_else_signs_no_tokens(more):
    world = World()
    world.keys = [RSA.as_dict(private=False) | more]
    assert "signature" in world.ask(world.token()).why


def test_a_token_without_a_key_id_is_tried_with_every_key():
    world = World()
    world.keys = [CURVE.as_dict(private=False), RSA.as_dict(private=False)]
    token = jwt.encode(
        {"alg": "RS256"},
        {"iss": ISSUER, "aud": "us", "sub": "ann", "exp": world.now + 9, "groups": "g"},
        RSA,
        algorithms=["RS256"],
    )
    assert isinstance(world.ask(token), Principal)


def test_names_come_from_the_claim_that_was_chosen():
    world = World(subject_claim="email", subject_prefix="", groups_claim="access.roles")
    claims = {"email": "ann@example.com", "access": {"roles": ["g"]}, "groups": None}
    found = world.ask(world.token(**claims))
    assert (found.subject, found.role, found.foreign) == ("ann@example.com", Role.VIEWER, True)
    assert "not verified" in world.ask(world.token(**claims, email_verified=False)).why
    assert "no name" in world.ask(world.token(**claims | {"email": "a b@c"})).why


def test_of_several_groups_the_highest_role_counts_with_its_projects():
    grants = {
        "a": parse_grant("user:vision"),
        "b": parse_grant("user:nlp, speech"),
        "c": parse_grant("viewer"),
        "d": parse_grant("user"),
        "e": parse_grant("operator"),
    }
    world = World(grants=grants)

    def allowed(*groups):
        found = world.ask(world.token(groups=list(groups)))
        return found.role.value, sorted(found.projects)

    assert allowed("a", "b", "c", "zz") == ("user", ["nlp", "speech", "vision"])
    assert allowed("a", "d") == ("user", [])
    assert allowed("c") == ("viewer", [])
    assert allowed("a", "e") == ("operator", [])


@pytest.mark.parametrize(
    "text", ["", "agent", "boss", "admin:vision", "metrics:a", "user:", "User"]
)
def test_what_a_group_cannot_be_given_is_refused(text):
    with pytest.raises(InputError):
        parse_grant(text)


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://id.example/a", True),
        ("http://127.0.0.1:8080", True),
        ("http://id.example", False),
        ("file:///etc/keys", False),
        ("https://", False),
        ("id.example", False),
    ],
)
def test_keys_come_by_tls_or_from_this_machine(url, safe):
    assert is_safe_url(url) is safe


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"issuer": "http://id.example"}, "oidc.issuer"),
        ({"audience": ""}, "oidc.audience"),
        ({"jwks_url": "http://id.example/keys"}, "oidc.jwks_url"),
        ({"algorithms": "HS256"}, "oidc.algorithms"),
        ({"algorithms": "RS256,none"}, "oidc.algorithms"),
        ({"groups.g": "agent"}, "oidc.groups"),
        ({"ca_file": "/nowhere"}, "oidc.ca_file"),
        ({"client_id": "page"}, "oidc.redirect_url"),
        ({"client_id": "page", "redirect_url": "http://a/sign-in-done"}, "oidc.redirect_url"),
        ({"client_id": "page", "redirect_url": "https://a/back"}, "oidc.redirect_url"),
        ({"client_id": "page", "redirect_url": f"https://a/?x={BACK}"}, "oidc.redirect_url"),
        ({"client_id": "page", "redirect_url": f"{BACK}#x"}, "oidc.redirect_url"),
        ({"redirect_url": BACK}, "without oidc.client_id"),
        ({"client_id": "page", "redirect_url": BACK, "scopes": "email"}, "oidc.scopes"),
        (
            {"client_id": "page", "redirect_url": BACK, "client_secret_file": "/nowhere"},
            "oidc.client_secret_file",
        ),
    ],
)
def test_settings_that_would_let_others_in_are_refused(tmp_path, settings, problem):
    usual = {"issuer": ISSUER, "audience": "us", "groups.g": "viewer"}
    texts = {f"oidc.{k}": (f"--set oidc.{k}", v) for k, v in (usual | settings).items()}
    with pytest.raises(ConfigError, match=problem.replace(".", r"\.")):
        load_config(environment={"XDG_CONFIG_HOME": str(tmp_path)}, texts=texts)


def test_all_algorithms_that_may_be_listed_need_a_private_key():
    assert not any(name.startswith(("HS", "none", "A", "dir")) for name in ALGORITHMS)
