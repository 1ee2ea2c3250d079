"""What an operator may set about the daemon, section by section."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  the annotations are read at run time
from dataclasses import dataclass, field
from typing import ClassVar

from api.settings import RequestSettings
from scheduler.operator_settings import (
    IdleSettings,
    LearningSettings,
    LeaseSettings,
    RetentionSettings,
    RoundSettings,
    UidSettings,
    setting,
)
from scheduler.store.uploads import UploadLimits
from scheduler.webhooks.webhooks import WebhookRules


@dataclass(frozen=True, kw_only=True)
class ServerSection(RequestSettings):
    """The daemon's addresses, and its limits on requests."""

    host: str = setting(
        "127.0.0.1", "Address to listen on; 0.0.0.0 for all of IPv4, :: for all of IPv4 and IPv6."
    )
    port: int = setting(8642, "Port to listen on; 0 for any free one.", ge=0, le=65535)
    advertise: str | None = setting(
        None,
        "URL under which others reach this process; a standby sends writers to the leader's.",
        derived="from host and port",
    )
    tls_cert: str | None = setting(None, "PEM file with the certificate and its chain.")
    tls_key: str | None = setting(None, "PEM file with the certificate's private key.")
    no_auth: bool = setting(
        False, "Ask for no tokens: every caller is an administrator. Only on a loopback address."
    )
    admin_token_file: str | None = setting(
        None, "File with an administrator's token, instead of a first one that the daemon makes."
    )
    rate_per_s: float = setting(200.0, "Requests per second of one token in the long run.", gt=0)
    rate_burst: int = setting(1000, "Requests of one token at once after a pause.", ge=1)
    anonymous_rate_per_s: float = setting(
        20.0, "Requests per second of one address that shows no valid token.", gt=0
    )
    anonymous_rate_burst: int = setting(
        200, "Requests at once of one address that shows no valid token.", ge=1
    )
    connections: int | None = setting(
        None,
        "Connections at once; the process's limit of descriptors is the bound in any case.",
        ge=8,
        derived="the descriptors that may be open, less a reserve; at most 10000",
    )
    connections_per_address: int | None = setting(
        None,
        "Connections of one address without a valid token so far.",
        ge=1,
        derived="a quarter of connections",
    )
    header_timeout_s: float = setting(
        10.0, "How long the head of a request may take to arrive.", gt=0
    )
    body_timeout_s: float = setting(
        60.0, "How long its body may take to arrive, and a caller may stop reading an answer.", gt=0
    )
    hosts: str = setting(
        "",
        "Further names, separated by commas, under which a scheduler without tokens may be called.",
    )
    trusted_proxies: str = setting(
        "",
        "Addresses and networks, separated by commas, with trusted "
        "X-Forwarded-For and -Proto headers.",
    )
    shutdown_s: float = setting(
        10.0, "How long open requests may take to finish when the daemon stops.", ge=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSection:
    """An identity provider (OpenID Connect); its tokens work beside the scheduler's own."""

    issuer: str | None = setting(
        None, "Its address, as its tokens name it; without it no such tokens are taken."
    )
    audience: str | None = setting(None, "Audience that its tokens must be made for.")
    groups: Mapping[str, str] = setting(
        {}, "Group -> role, or role:project,project for viewer and user. In a file."
    )
    groups_claim: str = setting(
        "groups", "Claim with the user's groups; dots lead into objects: realm_access.roles."
    )
    subject_claim: str = setting("sub", "Claim that names the user: sub, email, ...")
    subject_prefix: str = setting(
        "oidc-", "Put before that name, so that it differs from the owners of tokens made here."
    )
    client_id: str | None = setting(
        None, "Client by which it knows the page, to sign people in there; needs redirect_url."
    )
    client_secret_file: str | None = setting(
        None, "File with the secret of that client; none for a public client."
    )
    redirect_url: str | None = setting(
        None, "Where it sends them back, as registered there: https://HOST/sign-in-done."
    )
    scopes: tuple[str, ...] = setting(
        ("openid", "profile", "email"), "What the page asks it for; some need groups, too."
    )
    jwks_url: str | None = setting(
        None, "URL of its keys.", derived="the issuer's discovery document"
    )
    algorithms: tuple[str, ...] = setting(
        ("RS256", "PS256", "ES256"), "Algorithms of signatures that are taken."
    )
    ca_file: str | None = setting(
        None, "PEM file with the authorities of its certificate, instead of the system's."
    )
    leeway_s: float = setting(60.0, "By how much clocks may differ.", ge=0, le=600)
    keep_s: float = setting(3600.0, "After so long its keys are fetched again.", ge=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSection:
    """Where everything is kept."""

    url: str | None = setting(
        None,
        "sqlite:////path/leasehold.db or postgresql://user:password@host/database.",
        derived="leasehold.db in state_dir",
    )
    wait_s: float = setting(
        60.0, "How long a start waits for a database server that does not answer.", ge=0
    )
    migrate: bool = setting(
        True, "Bring an older schema up to date at the start, rather than refuse it."
    )
    snapshot_entries: int = setting(
        1000, "Journal entries after which the engine's state is written as a whole.", ge=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsSection:
    """With what the secret variables of jobs are encrypted. Without a key no job may have any."""

    key_file: str | None = setting(
        None, "File with keys, as `leasehold secrets new-key` makes it; the first one encrypts."
    )
    keys: str | None = setting(
        None, "The keys themselves, apart by commas; for the environment, never for a file."
    )


@dataclass(frozen=True, kw_only=True)
class EngineSection(RoundSettings):
    """Rounds."""

    plan_lead_s: float | None = setting(
        None,
        "How long before a round ends the next one is planned and announced.",
        ge=0,
        derived="leases.notice_s + leases.grace_s + leases.margin_s + 1",
    )
    tick_s: float = setting(
        1.0, "Longest time between two looks at nodes, leases and limits.", gt=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySection:
    """The policy at the first start. One that is switched later is stored, and wins then."""

    name: str = setting("max_min_fairness", "As listed by `leasehold policies list`.")
    parameters: Mapping[str, str] = setting({}, "The policy's parameters by name.")
    agnostic: bool = setting(False, "Hide from the policy that worker types differ.")
    space_sharing: bool = setting(False, "Let two jobs share workers.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverSection:
    """The processes in which policies compute."""

    workers: int = setting(1, "Processes, so questions that are answered at once.", ge=1, le=64)
    deadline_s: float = setting(
        60.0, "After so long an answer is given up and the last good allocation stays.", gt=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipSection:
    """Which of several daemons on one database schedules."""

    ttl_s: float = setting(15.0, "A leader that is silent for so long is succeeded.", ge=1)


@dataclass(frozen=True, kw_only=True)
class ThroughputsSection(LearningSettings):
    """Known throughputs of job types, before they run."""

    path: str | None = setting(
        None, "Table to declare at every start: a CSV or JSON file, or `bundled`."
    )
    hardware: str | None = setting(
        None, "YAML file of accelerators beside the bundled ones, for jobs that give their model."
    )
    sources: tuple[str, ...] = setting(
        (), "Plugins that know further ways to run jobs, by the names of their entry points."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSection:
    """What a daemon in a cluster lets agents in by."""

    agent_account: str | None = setting(
        None,
        "Service account, as namespace/name; its pods may enrol as the agents of their nodes.",
    )
    audience: str = setting("leasehold", "Audience that those pods' tokens must be made for.")
    approved_label: str | None = setting(
        None,
        "Prefix of the labels of a node for the workers that it may have, "
        "as PREFIX/TYPE=COUNT; without it such a node may have what its "
        "agent reports.",
    )
    prepull_images: int = setting(
        0, "Images at most that a node pulls for waiting jobs before they start; 0 for none.", ge=0
    )
    template_allows: tuple[str, ...] = setting(
        (),
        "Fields that pod templates may set beside the list, as the error of"
        " a submission names them: spec.volumes[].nfs, "
        "spec.priorityClassName=low, metadata.labels.example.com/*.",
    )


@dataclass(frozen=True, kw_only=True)
class WebhooksSection(WebhookRules):
    """How webhooks send, and the addresses that are allowed."""

    allowed_networks: tuple[str, ...] = setting(
        (),
        "Networks that webhooks may send to though they are not public, as 10.0.0.0/8; plain "
        "http goes to these alone.",
    )
    ca_file: str | None = setting(
        None, "PEM file with the authorities of receivers' certificates, instead of the system's."
    )
    timeout_s: float = setting(10.0, "How long a receiver may take for a message.", gt=0, le=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSection:
    """Traces of jobs by OpenTelemetry."""

    endpoint: str | None = setting(
        None,
        "Collector of OpenTelemetry that takes a trace of each job by OTLP over HTTP, such as "
        "http://collector:4318; needs the extra `tracing`.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetsSection:
    """What workers cost, for budgets in money."""

    prices: Mapping[str, str] = setting(
        {}, "Worker type -> USD per hour of one worker; others cost nothing. In a file."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """What the daemon says on its standard error."""

    level: str = setting(
        "info", "Least severity that is logged.", choices=("debug", "info", "warning", "error")
    )
    json: bool = setting(False, "One JSON object per line.")
    requests: bool = setting(False, "Log a line for every request.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """All settings of the daemon."""

    PREFIX: ClassVar[str] = "LEASEHOLD_"
    #: The variable that names the file, its usual name, and the command that lists the settings.
    NAMED_BY: ClassVar[str] = "LEASEHOLD_CONFIG"
    FILE: ClassVar[str] = "leasehold.toml"
    REFERENCE: ClassVar[str] = "leasehold config reference"
    #: Removed settings -> the behaviour without them. A source that still gives one is read with
    #: a warning for one release.
    GONE: ClassVar[Mapping[str, str]] = {
        "engine.stay": "a job always moves only for a gain that is certain",
    }

    state_dir: str | None = setting(
        None,
        "Folder of the database, the jobs' output and the first token.",
        derived="leasehold in $XDG_STATE_HOME (~/.local/state)",
    )
    server: ServerSection = field(default_factory=ServerSection)
    oidc: OidcSection = field(default_factory=OidcSection)
    store: StoreSection = field(default_factory=StoreSection)
    secrets: SecretsSection = field(default_factory=SecretsSection)
    engine: EngineSection = field(default_factory=EngineSection)
    policy: PolicySection = field(default_factory=PolicySection)
    solver: SolverSection = field(default_factory=SolverSection)
    leases: LeaseSettings = field(default_factory=LeaseSettings)
    idle: IdleSettings = field(default_factory=IdleSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    uploads: UploadLimits = field(default_factory=UploadLimits)
    leadership: LeadershipSection = field(default_factory=LeadershipSection)
    throughputs: ThroughputsSection = field(default_factory=ThroughputsSection)
    kubernetes: KubernetesSection = field(default_factory=KubernetesSection)
    isolation: UidSettings = field(default_factory=UidSettings)
    webhooks: WebhooksSection = field(default_factory=WebhooksSection)
    tracing: TracingSection = field(default_factory=TracingSection)
    budgets: BudgetsSection = field(default_factory=BudgetsSection)
    log: LogSection = field(default_factory=LogSection)
