"""Forbidden addresses of webhooks; an address is secret but for its scheme, and never shown."""

from __future__ import annotations

import asyncio

import pytest

from leasehold.daemon.webhook_post import WebPost
from scheduler.errors import InputError


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://192.0.2.1:99999/secret", "url: "),
        ("https://192.0.2.1:0/secret", "url: has port 0; ports are 1 to 65535"),
        ("ftp://192.0.2.1/secret", "url: 'ftp://...', which is no web address"),
        ("192.0.2.1/secret", "url: is no web address"),
    ],
)
def test_an_address_that_is_none_is_refused(url, said):
    async def check():
        post = WebPost()
        try:
            await post.check(url)
        finally:
            await post.close()

    with pytest.raises(InputError) as caught:
        asyncio.run(check())
    assert str(caught.value).startswith(said)
    assert "secret" not in str(caught.value)
