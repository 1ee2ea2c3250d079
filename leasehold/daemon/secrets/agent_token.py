"""The agent's token: its sources, and its renewal before it expires."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.link.http_link import HttpLink, RefusedError, enrol
from leasehold.config.secret_files import read_secret
from scheduler.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("leasehold.agent")

#: The token that an enrolment brought, in the state folder.
TOKEN_FILE = "agent.token"  # noqa: S105 - a file's name
#: Longest wait between two attempts to enrol.
ENROL_MOST_S = 10.0
#: Shortest and longest wait before the agent asks the scheduler for a new token.
LEAST_S, MOST_S = 60.0, 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToken:
    """The token of one agent.

    Attributes:
        node: the node's name.
        file: stores a token from an enrolment or a renewal.
        given: the token itself; empty: from a file.
        given_file: a file that another program maintains; None: ``file``.
        enrolment: one-time secret; empty: from a file, or not given.
        enrolment_file: a file with the one-time secret.
        servers: addresses of the scheduler's processes.
        ca_file: certificates that verify the scheduler's certificate.
    """

    node: str
    file: Path
    given: str = ""
    given_file: Path | None = None
    enrolment: str = ""
    enrolment_file: Path | None = None
    servers: tuple[str, ...] = ()
    ca_file: Path | None = None

    def read(self) -> str:
        """Return the present token; empty if there is no token.

        Raises:
            InputError: the token file cannot be read or is empty.
        """
        if self.given:
            return self.given
        if self.given_file is not None:
            return read_secret(self.given_file, "token")
        return read_secret(self.file, "token") if self.file.exists() else ""

    @property
    def is_kept(self) -> bool:
        """Whether the agent stores the token itself, and so may replace it."""
        return not self.given and self.given_file is None

    async def enrol_if_needed(self) -> None:
        """Exchange the secret for a token, once, with retries until it succeeds.

        A token that expired while no agent ran is replaced too, if the secret is still valid, as
        those of Kubernetes are.

        Raises:
            InputError: there is no token, and the secret is refused.
        """
        if not (self.enrolment or self.enrolment_file is not None):
            return
        if not self.read():
            await self._enrol()
        elif self.is_kept and await self._is_refused():
            try:
                await self._enrol()
            except InputError as error:
                _log.error("the token in %s is refused, and %s", self.file, error)

    async def keep_renewed(self, link: HttpLink) -> None:
        """Renew the token in time, until cancelled, unless another program maintains it."""
        while self.is_kept:
            # Without a file the scheduler requires no token.
            wait_s = await self._renew(link) if self.file.exists() else MOST_S
            await asyncio.sleep(wait_s * random.uniform(0.8, 1.0))  # noqa: S311 - spreads load

    async def _is_refused(self) -> bool:
        link = HttpLink(servers=self.servers, node=self.node, token=self.read, ca_file=self.ca_file)
        try:
            await link.desired(after=(0, -1))
        except RefusedError:
            return True
        except (OSError, InputError):  # the next request reports it
            return False
        finally:
            await link.close()
        return False

    async def _enrol(self) -> None:
        secret = self.enrolment
        if self.enrolment_file is not None:
            secret = read_secret(self.enrolment_file, "enrolment")
        wait_s = 0.5
        for server in itertools.cycle(self.servers):
            try:
                token = await enrol(
                    servers=[server], node=self.node, secret=secret, ca_file=self.ca_file
                )
            except OSError as error:
                wait_s = min(wait_s * 1.5, ENROL_MOST_S)
                _log.warning("cannot enrol yet (%s); again in %.1f s", error, wait_s)
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load
                continue
            write_secret(self.file, token)
            _log.info("enrolled as node %s; the token is in %s", self.node, self.file)
            return

    async def _renew(self, link: HttpLink) -> float:
        """Ask for a new token, and use it; return the time until the next renewal in seconds."""
        try:
            token, wait_s = await link.renew_token()
            if token:
                # The old token stays valid until the new one is used: a crash in between is safe.
                await asyncio.to_thread(write_secret, self.file, token)
                link.take_token()
                _log.info("the token of this node was renewed; it is in %s", self.file)
                _, wait_s = await link.renew_token()
        except RefusedError as error:
            _log.error("the token cannot be renewed: %s", error)
            return LEAST_S
        except OSError as error:
            _log.warning("the token cannot be renewed now: %s", error)
            return LEAST_S
        except InputError as error:
            _log.debug("the scheduler renews no tokens: %s", error)
            return MOST_S
        return min(max(wait_s, LEAST_S), MOST_S)


def write_secret(path: Path, text: str) -> None:
    """Replace a file that only its owner may read, atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
