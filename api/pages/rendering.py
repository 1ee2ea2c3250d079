"""Make pages from templates: values every page needs, and how figures and times are written."""

from __future__ import annotations

import gzip
import math
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from api.auth.browser import FORM_KEY, form_key, session_of
from api.auth.roles import Principal, Role
from api.context import context_of
from api.pages.queries import write_query
from api.pages.static import SHARED, static_urls
from scheduler.views.plan_words import plan_in_words
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
    "vary": "Accept-Encoding, Cookie, HX-Request",
}
#: Views of the navigation: name -> path from the root.
_VIEWS: Final = {
    name: name.lower()
    for name in (
        "Jobs",
        "Cluster",
        "Rounds",
        "Fairness",
        "Policies",
        "Usage",
        "Events",
        "Submit",
        "Admin",
    )
}
#: Views that need more than a viewer's role.
_NEEDS: Final = {"Submit": Role.USER}
#: Pages from this size on are compressed for browsers that accept it, except those with a form: the
#: size of a page that is compressed says something about the key in it.
_COMPRESSED_BYTES: Final = 4096
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
    "ok": "✓",
    "warned": "!",
    "spent": "✕",
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
    return _answer(request, text, status, is_compressible="secret" not in values)


def _answer(request: Request, text: str, status: int, *, is_compressible: bool) -> HTMLResponse:
    body, headers = text.encode(), dict(_HEADERS)
    may = is_compressible and FORM_KEY not in text and _takes_gzip(request)
    if may and len(body) >= _COMPRESSED_BYTES:
        body = gzip.compress(body, compresslevel=4, mtime=0)
        headers["content-encoding"] = "gzip"
    return HTMLResponse(body, status, headers=headers)


def _takes_gzip(request: Request) -> bool:
    offers = request.headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
    return any(one == "gzip" or (one.startswith("gzip;q=") and one[7:8] == "1") for one in offers)


def root_of(request: Request) -> str:
    """Return the relative URL of the first page, so that pages work behind any path prefix."""
    return "../" * (request.url.path.count("/") - 1) or "./"


def _common(request: Request) -> Mapping[str, object]:
    context = context_of(request)
    principal = getattr(request.state, "principal", None)
    health = context.service.health()
    caller = principal if isinstance(principal, Principal) else None
    may = caller.has if caller else lambda _role: False
    return {
        "root": root_of(request),
        "here": _here(request),
        "principal": caller,
        "may": may,
        "Role": Role,
        "signs_in": context.settings.auth,
        "form_key": form_key(session_of(request)),
        "views": {n: path for n, path in _VIEWS.items() if may(_NEEDS.get(n, Role.VIEWER))},
        "version": health.version,
        "problems": health.problems if _is_reader(principal) else (),
        "standby": not health.leading,
        "ready": health.ready,
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


def write_time(at_s: float | None, kind: str = "") -> Markup | str:
    """Write a time in UTC; a script writes how long ago it was.

    Args:
        at_s: seconds since 1970.
        kind: ``exact``: the script writes date and time in the browser's zone instead.
    """
    if at_s is None or not math.isfinite(at_s) or not 0 <= at_s < 2**37:
        return ""
    moment = datetime.fromtimestamp(at_s, UTC)
    stamp, text = moment.strftime("%Y-%m-%dT%H:%M:%SZ"), moment.strftime("%Y-%m-%d %H:%M UTC")
    exact = Markup(" data-exact") if kind else ""
    return Markup('<time datetime="{}"{}>{}</time>').format(stamp, exact, text)


def write_date(at_s: float) -> str:
    """Write the date of a time in UTC."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d}"


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
    if 0 < value < 0.001:
        return "<\N{NARROW NO-BREAK SPACE}0.001"
    if -0.001 < value < 0:
        return "0"
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{value:.3g}"


def write_percent(part: float | None) -> str:
    """Write a part of 1 as whole percent; 100 % only for all of it."""
    if part is None or not math.isfinite(part):
        return ""
    return f"{math.floor(part * 100 + 1e-9)}\N{NARROW NO-BREAK SPACE}%"


def write_usd(value: float) -> str:
    """Write an amount of money; empty for none."""
    return f"{value:,.2f} USD".replace(",", "\N{NARROW NO-BREAK SPACE}") if value >= 0.005 else ""


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


def write_count(count: int, noun: str) -> str:
    """Write how many there are: ``1 job``, ``6 jobs``."""
    return f"{write_number(count)} {noun}{'' if count == 1 else 's'}"


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader((Path(__file__).parent / "templates", SHARED)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "time": write_time,
        "date": write_date,
        "moment": partial(write_time, kind="exact"),
        "span": write_span,
        "number": write_number,
        "plan": plan_in_words,
        "percent": write_percent,
        "usd": write_usd,
        "state": write_state,
        "progress": write_progress,
        "capitalize_first": lambda text: text[:1].upper() + text[1:],
        "count_of": write_count,
        "query": write_query,
        "reason": reason_in_words,
        "wait": wait_in_words,
    }
    parts: Any = made.get_template("parts.html").module
    made.globals |= {
        name: getattr(parts, name) for name in ("word", "copies", "left_out", "refused", "why_of")
    }
    return made


_TEMPLATES: Final = _environment()
