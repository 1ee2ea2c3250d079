"""Messages of webhooks: one line of history each, as JSON or in Slack's format, signed.

Signatures are those of Standard Webhooks, https://www.standardwebhooks.com: HMAC-SHA256 over
``ID.TIMESTAMP.BODY``. The id is the same however often a message is sent.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from scheduler.domain.lease_life import words_of_code
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.rows import HistoryRow, JobRow

_PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = 32
#: Fields of a line's data to send: figures and short words, without commands or variables.
_TOLD: Final = (
    *("lease", "attempt", "reason", "exit_code", "trouble", "category", "code", "failures"),
    *("steps_done", "node", "nodes", "workers", "worker_type", "silent_s", "held_s"),
    *("relative_speed", "refused", "approved", "project", "losses"),
)
_LONGEST_TEXT, _MOST_ITEMS = 300, 20
#: Kind of the message of ``leasehold webhook test``.
TEST: Final = "webhook_test"


class Template(enum.StrEnum):
    """How a message looks."""

    JSON = "json"  #: type, timestamp and data, as Standard Webhooks has it
    SLACK = "slack"  #: what Slack's incoming webhooks take


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message.

    Attributes:
        message_id: marks a message that a receiver has had already.
        body: JSON.
    """

    message_id: str
    body: bytes

    def headers(self, secret: str, *, now_s: float) -> dict[str, str]:
        """Return the headers to send at a time: id, time and signature."""
        at = str(int(now_s))
        return {
            "content-type": "application/json",
            "webhook-id": self.message_id,
            "webhook-timestamp": at,
            "webhook-signature": sign_message(secret, self.message_id, at, self.body),
        }


def new_secret() -> str:
    """Return a new secret for signatures."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def sign_message(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a message.

    Raises:
        InputError: the secret is malformed.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the secret of a webhook is whsec_ and base64; this one is not") from None
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def message_of(row: HistoryRow, job: JobRow | None, *, hook_id: str, template: Template) -> Message:
    """Return a webhook's message for a line of history.

    Args:
        row: the line.
        job: the line's job, if it has one that is still known.
        hook_id: of the webhook.
        template: the format.
    """
    # A restored backup gives event ids a second time, to other events.
    message_id = f"{hook_id}_{row.event_id}_{int(row.at_s * 1000):x}"
    text = _sentence(row, job)
    if template is Template.SLACK:
        return Message(message_id=message_id, body=orjson.dumps(_for_slack(text)))
    data: dict[str, Any] = {
        "event_id": row.event_id,
        "at_s": row.at_s,
        "subject_kind": row.subject_kind,
        "subject": row.subject,
        "actor": row.actor,
        "job": None if job is None else _job(job),
        "details": _details(row.figures),
        "text": text,
    }
    at = datetime.fromtimestamp(row.at_s, UTC).isoformat().replace("+00:00", "Z")
    body = {"type": row.kind, "timestamp": at, "data": data}
    return Message(message_id=message_id, body=orjson.dumps(body, default=str))


def _job(job: JobRow) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "name": job.name,
        "project": job.project,
        "owner": job.owner,
        "job_type": job.job_type,
        "status": job.status.value,
        "scale_factor": job.scale_factor,
    }


def _details(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _bounded(figures[name]) for name in _TOLD if name in figures}


def _bounded(value: Any, *, deep: bool = True) -> Any:
    """Return a value, cut to the size that a message may hold."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if deep and isinstance(value, list | tuple):
        return [_bounded(item, deep=False) for item in value[:_MOST_ITEMS]]
    if deep and hasattr(value, "items"):
        some = list(value.items())[:_MOST_ITEMS]
        return {str(name)[:64]: _bounded(item, deep=False) for name, item in some}
    return str(value)[:_LONGEST_TEXT]


def _sentence(row: HistoryRow, job: JobRow | None) -> str:
    """Return the message as text."""
    what = row.kind.replace("_", " ")
    parts = [f"{what[:1].upper()}{what[1:]}"]
    if job is not None:
        parts.append(f"{job.name} ({job.job_id}), project {job.project}, owner {job.owner}")
    elif row.subject:
        parts.append(row.subject)
    figures = row.figures
    reasons = [str(figures["reason"])] if figures.get("reason") else []
    if isinstance(code := figures.get("exit_code"), int):
        reasons.append(words_of_code(code))
    why = ", ".join(reasons)
    if why:
        parts.append(why[:_LONGEST_TEXT])
    by = f" (by {row.actor})" if row.actor else ""
    return ": ".join(parts) + by


def _for_slack(text: str) -> dict[str, Any]:
    """Return a message in Slack's format, in which names given by users are never markup."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = {"type": "plain_text", "text": text, "emoji": False}
    return {"text": escaped, "blocks": [{"type": "section", "text": plain}]}
