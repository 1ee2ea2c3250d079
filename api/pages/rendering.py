"""Make pages from templates: values every page needs, and how figures and times are written."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from api.auth.browser import form_key, session_of
from api.auth.roles import Principal, Role
from api.context import context_of
from api.pages.static import static_urls
from scheduler.views.reason_words import reason_in_words, wait_in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

#: Header of htmx's requests: they want the changing part of a page only.
_PARTIAL: Final = "hx-request"
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "vary": "HX-Request, Cookie",
}
#: Views of the navigation: name -> path from the root.
_VIEWS: Final = {"Jobs": "jobs", "Cluster": "cluster", "Events": "events"}
#: The sign beside the colour of a state.
_SIGNS: Final = {
    "waiting": "○",
    "running": "▶",
    "held": "❚❚",
    "completed": "✓",
    "cancelled": "-",
    "failed": "✕",
    "refused": "⊘",
    "ready": "✓",
    "cordoned": "⊘",
    "draining": "↓",
    "drained": "⊘",
    "lost": "✕",
    "silent": "…",
    "unknown": "?",
    "free": "□",
    "busy": "■",
    "out": "✕",
}


def render(request: Request, template: str, *, status: int = 200, **values: object) -> HTMLResponse:
    """Return a page; of a request by htmx only its block ``live``.

    Args:
        request: of the page.
        template: its file.
        status: HTTP status.
        values: of the template, beside those that each page has.
    """
    follows = request.method == "GET" and not 400 <= status < 500
    given = {**_common(request), "follows": follows, **values}
    found = _TEMPLATES.get_template(template)
    if _PARTIAL in request.headers and "live" in found.blocks:
        text = "".join(found.blocks["live"](found.new_context(given)))
    else:
        text = found.render(given)
    return HTMLResponse(text, status, headers=dict(_HEADERS))


def root_of(request: Request) -> str:
    """Return the relative URL of the first page, so that pages work behind any path prefix."""
    return "../" * (request.url.path.count("/") - 1) or "./"


def _common(request: Request) -> Mapping[str, object]:
    context = context_of(request)
    principal = getattr(request.state, "principal", None)
    health = context.service.health()
    return {
        "root": root_of(request),
        "here": _here(request),
        "principal": principal if isinstance(principal, Principal) else None,
        "may": principal.has if isinstance(principal, Principal) else lambda _role: False,
        "Role": Role,
        "signs_in": context.settings.auth,
        "form_key": form_key(session_of(request)),
        "views": _VIEWS,
        "version": health.version,
        "problems": health.problems if _is_reader(principal) else (),
        "standby": not health.leading,
        "leader": health.leader_address,
        "now_s": context.now(),
        "static": static_urls,
    }


def _here(request: Request) -> str:
    """Return the relative URL of a page; it never begins with a scheme."""
    if request.url.query:
        return f"?{request.url.query}"
    return f"./{quote(request.url.path.rpartition('/')[2], safe='')}"


def _is_reader(principal: object) -> bool:
    return isinstance(principal, Principal) and principal.has(Role.VIEWER)


def write_time(at_s: float | None) -> Markup | str:
    """Write a time in UTC; a script adds the browser's zone, and how long ago it was."""
    if at_s is None or not math.isfinite(at_s) or not 0 <= at_s < 2**37:
        return ""
    moment = datetime.fromtimestamp(at_s, UTC)
    stamp, text = moment.strftime("%Y-%m-%dT%H:%M:%SZ"), moment.strftime("%Y-%m-%d %H:%M UTC")
    return Markup('<time datetime="{}">{}</time>').format(stamp, text)


def write_span(seconds: float | None) -> str:
    """Write a span with its two largest units: ``45s``, ``3m20s``, ``2h05m``, ``3d04h``."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    minutes, s = divmod(round(abs(seconds)), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    sign = "-" if seconds < -0.5 else ""
    if days:
        return f"{sign}{days}d{h:02d}h"
    if hours:
        return f"{sign}{hours}h{m:02d}m"
    return f"{sign}{minutes}m{s:02d}s" if minutes else f"{sign}{s}s"


def write_number(value: float | None) -> str:
    """Write a number in a few digits, with spaces between thousands."""
    if value is None or not math.isfinite(value):
        return ""
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{value:.3g}"


def write_percent(part: float | None) -> str:
    """Write a part of 1 as whole percent; 100 % only for all of it."""
    if part is None or not math.isfinite(part):
        return ""
    return f"{math.floor(part * 100 + 1e-9)}\N{NARROW NO-BREAK SPACE}%"


def write_state(state: str) -> Markup:
    """Write a state with its colour and its sign."""
    sign = _SIGNS.get(state, "•")
    return Markup('<span class="state {0}"><i aria-hidden="true">{1}</i>{0}</span>').format(
        state, sign
    )


def write_progress(job: Mapping[str, Any]) -> str:
    """Write the part of a job's work that is done; empty if that is unknown."""
    if job["status"] == "completed":
        return write_percent(1.0)
    total = job["total_steps"]
    if not total or job["steps_done"] > total:  # a duration, but the job counts steps
        return ""
    return write_percent(min(job["steps_done"] / total, 0.99))


def write_json(value: Any) -> str:
    """Write a value as JSON for people."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "time": write_time,
        "span": write_span,
        "number": write_number,
        "percent": write_percent,
        "state": write_state,
        "progress": write_progress,
        "reason": reason_in_words,
        "wait": wait_in_words,
    }
    return made


_TEMPLATES: Final = _environment()
