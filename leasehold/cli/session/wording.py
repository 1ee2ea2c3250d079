"""Names of request fields on the command line, or in the file that they came from."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from scheduler.domain.jobs.spec import JOB_FIELDS
from scheduler.views.job_documents import SHORT_NAMES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

#: Path of a field in a request, as in ``scale_factor.0`` -> the user's name.
Wording: TypeAlias = Callable[[str], str]

#: Field -> option, or another name on the command line.
_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {known.name: known.flag for known in JOB_FIELDS if known.flag}
    | {
        "worker_type": "--type",
        "held": "--hold",
        "deadline_in_s": "--deadline",
        "subject_kind": "--subject",
        "projects": "--project",
        "parameters": "--param",
        "tail_bytes": "--tail",
        "ids": "the job id",
        "job_id": "the job id",
        "token_id": "the token id",
        "subject": "the subject",
        "node": "the node",
        "command": "the command",
    }
)
#: Fields that are not of a job and have an option of the same name, with dashes.
_PLAIN: Final = frozenset(
    {
        "actor", "array", "attempt", "client_id", "inner_policy", "kind", "label", "limit",
        "max_jobs", "max_workers", "owner", "reason", "role", "selector", "since_s", "sort",
        "status", "stream", "ttl_s",
    }
)  # fmt: skip
#: Options with named values, as in ``--env NAME=VALUE``.
_NAMED: Final = frozenset({"env", "secret_env", "labels", "throughputs", "parameters"})
#: Matches fields that the scheduler names in its sentences.
_IN_SENTENCES: Final = re.compile(
    r"\b(deadline_s|notice_s|grace_s|depends_on|total_steps|duration_s|deadline_in_s|until_s"
    r"|from_s|min_workers|max_workers|scale_factor)\b"
)
#: Matches a field at the beginning of a sentence.
_BEGINNING: Final = re.compile(r"^([a-z_]+)(?=: )")


def option_of(field: str) -> str:
    """Return the option of a field; the field itself if it has no option."""
    root, _, rest = field.partition(".")
    if root in _OPTIONS:
        option = _OPTIONS[root]
    elif root in _PLAIN:
        option = "--" + root.removesuffix("_s").replace("_", "-")
    else:
        return _path(field)
    return f"{option} {rest}" if rest and root in _NAMED else option


def wording_of(**own: str) -> Wording:
    """Return the wording of a command that has its own names for some fields.

    Args:
        own: field -> the command's name.
    """

    def word(field: str) -> str:
        root, _, rest = field.partition(".")
        if root not in own:
            return option_of(field)
        return f"{own[root]} {rest}" if rest and not rest.isdecimal() else own[root]

    return word


def wording_of_job(document: Mapping[str, Any] | None, options: Collection[str]) -> Wording:
    """Return the user's names for the fields of a job.

    Args:
        document: the job in its file; None if it is on the command line.
        options: fields that were given by options, even with a file.
    """

    def word(field: str) -> str:
        root, _, rest = field.partition(".")
        if document is None or root in options:
            return option_of(field)
        short = () if root in document else SHORT_NAMES.get(root, ())
        key = next((s for s in short if s in document), root)
        # A single count is sent as a list of one.
        alone = rest.isdecimal() and not isinstance(document.get(key), list)
        return key if alone else _path(f"{key}.{rest}" if rest else key)

    return word


def reword(text: str, wording: Wording) -> str:
    """Return the scheduler's message, with the user's names for its fields."""
    return _IN_SENTENCES.sub(lambda found: wording(found[1]), _BEGINNING.sub(_begin(wording), text))


def _begin(wording: Wording) -> Callable[[re.Match[str]], str]:
    """Return the replacement for a field at the beginning of a sentence, if it has an option."""

    def option(found: re.Match[str]) -> str:
        word = wording(found[1])
        return word if word.startswith("--") else found[1]

    return option


def _path(field: str) -> str:
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", field)
