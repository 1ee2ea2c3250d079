"""Sends messages of webhooks, only to addresses that the operator allows.

By registering a webhook, a user makes the scheduler call an address. So the name is resolved, every
resulting address is checked, and the connection goes to a checked one. A name that resolves
differently a moment later has no effect. Redirects are not followed, proxies are not used, and only
the head of an answer is read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeAlias

import httpx

from api.outgoing import no_cookies
from scheduler.errors import InputError
from scheduler.webhooks.webhooks import Posted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Longest address.
_LONGEST_URL: Final = 2000
_LAST_PORT: Final = 65535
_GOOD: Final = range(200, 300)
#: Prefix of IPv4 addresses in IPv6-only networks.
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
#: Bits 32 to 63 of an ISATAP address, whose last 32 bits are an IPv4 address (RFC 5214, 6.1).
_ISATAP, _ISATAP_MASK = 0x00005EFE, 0xFDFFFFFF
#: Global unicast addresses of IPv6, and those of them that are no one's on the internet: protocol
#: assignments, documentation, 6to4 without a public address.
_UNICAST: Final = ipaddress.ip_network("2000::/3")
_SPECIAL: Final = tuple(
    map(ipaddress.ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
)
#: Names that are resolved at the same time.
_LOOKUPS: Final = 4


#: Azure and Oracle's cloud serve credentials here, but some Python versions call it public.
_METADATA: Final = tuple(map(ipaddress.ip_network, ("168.63.129.16/32", "192.0.0.0/24")))


class WebPost:
    """The port ``scheduler.webhooks.webhooks.Post`` over HTTP.

    Args:
        allowed: networks that are allowed though they are not public; plain http goes only to
            these.
        timeout_s: for a message as a whole.
        ca_file: certificate authorities; None for the system's.
    """

    def __init__(
        self,
        *,
        allowed: Sequence[Network] = (),
        timeout_s: float = 10.0,
        ca_file: str | None = None,
    ) -> None:
        self._allowed = tuple(allowed)
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            verify=ssl.create_default_context(cafile=ca_file),
            follow_redirects=False,
            trust_env=False,
            cookies=no_cookies(),
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )
        # Separate threads, so that a silent name server delays no other work.
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="webhook-names")

    async def check(self, url: str) -> None:
        """Refuse an address that is not allowed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._target(_parsed(url))
        except TimeoutError:
            raise InputError(
                f"url: the name of the address was not found within {self._timeout_s:g} s"
            ) from None

    async def send(self, url: str, *, headers: Mapping[str, str], body: bytes) -> Posted:
        """Send a message, once."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._send(_parsed(url), headers, body)
        except InputError as error:
            return Posted(problem=str(error))
        except TimeoutError:
            return Posted(problem=f"no answer within {self._timeout_s:g} s")
        except httpx.LocalProtocolError as error:
            return Posted(problem=f"the message cannot be sent by HTTP: {str(error)[:200]}")
        except httpx.RemoteProtocolError as error:  # its text holds what the other side sent
            left = str(error).startswith("Server disconnected")
            said = "it closed the connection" if left else "its answer is not HTTP"
            return Posted(problem=said)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ssl.SSLError) as error:
            words = " ".join(str(error).split()) or type(error).__name__
            return Posted(problem=f"it cannot be reached: {words[:200]}")

    async def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._client.aclose()

    async def _send(self, url: httpx.URL, headers: Mapping[str, str], body: bytes) -> Posted:
        address = await self._target(url)
        host = url.netloc.decode("ascii")
        request = self._client.build_request(
            "POST",
            url.copy_with(host=str(address)),
            headers={**headers, "host": host, "user-agent": "leasehold-webhooks"},
            content=body,
            # The certificate is checked against the name, not against the address.
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
        )
        response = await self._client.send(request, stream=True)
        try:
            status = response.status_code
            if status in _GOOD:
                return Posted(status=status)
            problem = f"it answered {status}"
            if response.is_redirect:
                problem += ", and redirects are not followed; register the address that it leads to"
            after_s = _seconds(response.headers.get("retry-after", ""))
            return Posted(status=status, problem=problem, retry_after_s=after_s)
        finally:
            await response.aclose()

    async def _target(self, url: httpx.URL) -> Address:
        """Return the address to connect to.

        Raises:
            InputError: the name has no address, or one of them is not allowed.
        """
        found = await self._addresses(url)
        allowed = [self._is_allowed(address) for address in found]
        for address, known in zip(found, allowed, strict=True):
            if not known and not is_public(address):
                named = "" if url.host == str(address) else f"{url.host} is {address}, and "
                raise InputError(
                    f"url: {named}{address} is no public address; an operator can allow it in the "
                    "setting webhooks.allowed_networks"
                )
        if url.scheme == "http" and not all(allowed):
            raise InputError(
                "url: begins with http://, which can be read on the way; "
                "give https://, or have an operator allow its address in "
                "the setting webhooks.allowed_networks"
            )
        return found[0]

    def _is_allowed(self, address: Address) -> bool:
        plain = _embedded(address)
        return any(plain in network for network in self._allowed)

    async def _addresses(self, url: httpx.URL) -> list[Address]:
        try:
            return [ipaddress.ip_address(url.host)]
        except ValueError:
            pass
        port = url.port or (443 if url.scheme == "https" else 80)
        name = url.raw_host.decode("ascii")
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._threads, _look_up, name, port
            )
        except (OSError, UnicodeError) as error:
            raise InputError(
                f"url: the name {name} is not known: {getattr(error, 'strerror', None) or error}"
            ) from None
        if not found:
            raise InputError(f"url: the name {name} has no address")
        return found


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet and is not private.

    Of IPv6, only the range that is given out for that does, less some parts (the registries of
    special addresses of IANA).
    """
    plain = _embedded(address)
    if isinstance(plain, ipaddress.IPv6Address):
        if plain not in _UNICAST or any(plain in network for network in _SPECIAL):
            return False
        if int(plain) >> 32 & _ISATAP_MASK == _ISATAP:  # a router passes it on to the IPv4 address
            return is_public(ipaddress.IPv4Address(int(plain) & 0xFFFFFFFF)) and plain.is_global
    elif plain.is_multicast or any(plain in network for network in _METADATA):
        return False
    return plain.is_global


def _embedded(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    teredo = address.teredo
    inner = address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address if inner is None else inner


def _look_up(name: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    # A link-local address carries the name of an interface.
    return [ipaddress.ip_address(str(place[0]).partition("%")[0]) for *_, place in found]


def _parsed(url: str) -> httpx.URL:
    """Return the parsed address.

    Raises:
        InputError: it is not a web address; the message omits the secret part after the host.
    """
    if len(url) > _LONGEST_URL:
        raise InputError(f"url: has {len(url)} characters; the most are {_LONGEST_URL}")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError, TypeError) as error:
        raise InputError(f"url: is no web address: {error}") from None
    if parsed.scheme not in {"https", "http"} or not parsed.host:
        shown = f"'{parsed.scheme[:20]}://...', which is" if parsed.scheme else "is"
        raise InputError(f"url: {shown} no web address; give one as https://host/path")
    if parsed.port is not None and not 1 <= parsed.port <= _LAST_PORT:
        raise InputError(f"url: has port {parsed.port}; ports are 1 to {_LAST_PORT}")
    if parsed.userinfo:
        raise InputError("url: must hold no user or password; put secrets into its path")
    return parsed


def _seconds(text: str) -> float:
    """Return the value of Retry-After if it is a number."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0.0
