"""Common part of all calls of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from leasehold.client.errors import ClientError, NoSchedulerError
from leasehold.naming import meaning

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from leasehold.client.exchange import Exchange

T = TypeVar("T")


class Calls:
    """Requests to one scheduler, and their answers."""

    _exchange: Exchange

    @classmethod
    def over(cls, exchange: Exchange) -> Self:
        """Build a client on an existing exchange."""
        made = cls.__new__(cls)
        made._exchange = exchange  # noqa: SLF001 - it is ours
        return made

    @property
    def server(self) -> str:
        """The scheduler's address."""
        return self._exchange.connection.server

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the next call makes new ones."""
        await self._exchange.close()

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        repeatable: bool = True,
    ) -> Any:
        """Make a request beneath ``/v1`` and return its decoded answer; None for an empty one.

        Args:
            method: of HTTP.
            path: as in ``/nodes``.
            body: sent as JSON.
            params: of the query; None or empty ones are left out.
            key: by which a repeated write is recognised; a new one unless given.
            repeatable: whether a repetition is harmless; if not, the call is retried only if it
                surely was not executed.

        Raises:
            ClientError: the request was refused, or no scheduler answered.
            UnsendableError: the body has no JSON form; a ValueError.
        """
        response = await self._exchange.ask(
            method, f"/v1{path}", body, params=params, key=key, repeatable=repeatable
        )
        return self._read(response)

    def _read(self, response: Any) -> Any:
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError:
            raise NoSchedulerError(
                f"{response.url} answered with something that is no JSON; is that a scheduler?",
                status=response.status_code,
            ) from None

    async def _once(self, path: str, body: object) -> Any:
        return await self.call("POST", path, body, repeatable=False)

    # -- finding the job of a word ---------------------------------------------------------------

    async def _on_job(self, word: str, do: Callable[[str], Awaitable[T]]) -> T:
        """Call a function with the id of the job that a word means."""
        try:
            return await do(word)
        except ClientError as error:
            if error.status != 404:
                raise
            found = await meaning(word, self._page_of_jobs)
            if found is None or found == word:
                raise
        return await do(found)

    async def _page_of_jobs(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a page of the jobs of a name; an empty page if no job can have it."""
        try:
            found: Mapping[str, Any] = await self.call("GET", "/jobs", params=params)
        except ClientError as error:
            if error.status != 422:
                raise
            return {"jobs": [], "next_cursor": None}
        return found
