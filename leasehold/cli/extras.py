"""Find the missing distribution or extra of a command."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING, Final

from leasehold.distributions import SCHEDULER, SDK, scheduler_folder
from scheduler.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Modules with a distribution of another name.
_DISTRIBUTIONS: Final = {
    "aiohttp": "kubernetes",
    "prometheus_client": "prometheus-client",
    "pydantic_core": "pydantic",
    "pynvml": "nvidia-ml-py",
    "re2": "google-re2",
    "starlette": "fastapi",
}
#: The extra that contains all others.
_EVERYTHING: Final = "all"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA: Final = re.compile(r"extra == ['\"]([\w-]+)['\"]")


def missing_extra(
    error: ModuleNotFoundError, *, command: str, extras: Sequence[str]
) -> MissingExtraError | None:
    """Return the message about a module that an extra would install; None if no extra would.

    Args:
        error: that the command met.
        command: its name.
        extras: that it needs.
    """
    module = (error.name or "").partition(".")[0]
    bringing = extras_by_distribution().get(_DISTRIBUTIONS.get(module, module), ())
    if not bringing:  # a bug, or a library that a plugin needs
        return None
    wanted = list(extras)
    if not set(bringing) & set(extras):
        wanted.append(bringing[0])
    return MissingExtraError(
        f"`leasehold {command}` needs more than is installed here (there is no module "
        f"'{module}'); get it by: pip install '{SCHEDULER}[{','.join(wanted)}]'"
    )


def check_scheduler(*, command: str, extras: Sequence[str]) -> None:
    """Check that the distribution of a command's extras is installed.

    Raises:
        MissingExtraError: only the SDK is installed.
    """
    if extras and scheduler_folder() is None:
        raise MissingExtraError(
            f"`leasehold {command}` needs more than is installed here (there is only {SDK}); "
            f"get it by: pip install '{SCHEDULER}[{','.join(extras)}]'"
        )


def extras_by_distribution() -> Mapping[str, Sequence[str]]:
    """Return the extras that install each distribution."""
    found: dict[str, list[str]] = {}
    try:
        requirements = requires(SCHEDULER) or []
    except PackageNotFoundError:  # a source checkout that was never installed
        return found
    for requirement in requirements:
        name, extra = _NAME.match(requirement), _EXTRA.search(requirement)
        if name and extra and extra[1] != _EVERYTHING:
            found.setdefault(name[0].lower(), []).append(extra[1])
    return found
