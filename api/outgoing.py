"""Clients of HTTP that send for several callers."""

from __future__ import annotations

from http.cookiejar import CookieJar, DefaultCookiePolicy


def no_cookies() -> CookieJar:
    """Return a jar that keeps no cookie of any answer.

    A client of httpx otherwise sends the cookie that one caller was given with requests of others.
    """
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))
