"""Jobs as people write them: YAML, JSON or TOML; one job, a list, or ``jobs:`` with a list."""

from __future__ import annotations

import json
import math
import tomllib
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.jobs.documents import check_expansion, with_plain_numbers
from scheduler.domain.jobs.fields import Number, Word, Written
from scheduler.domain.jobs.spec import JOB_FIELDS
from scheduler.errors import InputError
from scheduler.views.times import parse_deadline, parse_span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from scheduler.domain.jobs.fields import Asked

#: A document of this many levels is not read.
_MOST_LEVELS: Final = 1000
#: Most levels of lists and mappings in a job; the scheduler has the same limit.
_DEEPEST: Final = 60
#: The scheduler's field -> short forms that a file may use.
SHORT_NAMES: Final = {known.name: (known.short_name,) for known in JOB_FIELDS if known.short_name}
SHORT_NAMES["deadline_in_s"] = SHORT_NAMES["deadline_s"]
#: Characters of a key in the name of a field.
_SHOWN_KEY: Final = 80
_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def read_documents(
    text: str, *, kind: str, where: str, mistakes: list[str] | None = None
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Read the jobs of a text.

    Args:
        text: of one or more documents.
        kind: ``toml`` or ``json``; anything else is YAML, which includes JSON.
        where: the source, for messages.
        mistakes: as for ``to_scheduler_form``.

    Returns:
        The jobs in the scheduler's form, not checked further, each with its original text.

    Raises:
        InputError: the text cannot be read or holds no jobs.
    """
    documents = read_values(text, kind=kind, where=where)
    try:
        jobs = [job for document in documents for job in _jobs(document, where)]
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    if not jobs:
        raise InputError(f"{where} holds no job; write one with at least `name` and `command`")
    written = [_as_json(job, where) for job in jobs]
    return [(to_scheduler_form(job, where=where, mistakes=mistakes), job) for job in written]


def read_values(text: str, *, kind: str, where: str) -> list[Any]:
    """Read the documents of a text.

    Args:
        text: of one or more documents.
        kind: ``toml`` or ``json``; anything else is YAML, which includes JSON.
        where: the source, for messages.

    Raises:
        InputError: the text cannot be read.
    """
    try:
        if kind == "toml":
            return [tomllib.loads(text)]
        if kind == "json":
            return [json.loads(text, object_pairs_hook=_once)]
        return _yaml(text)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    except RecursionError:
        raise InputError(
            f"{where} is nested too deeply to be read; a few levels are enough"
        ) from None


def to_scheduler_form(
    job: dict[str, Any], *, where: str, mistakes: list[str] | None = None
) -> dict[str, Any]:
    """Translate a job from the form of files into the scheduler's form.

    ``deadline: 2h``, ``duration: 90m`` and ``memory: 4GiB`` become ``deadline_in_s`` and so on. An
    unknown field stays, and the scheduler reports it.

    Args:
        job: as written.
        where: the file, for messages.
        mistakes: receives unusable values, which are then left out; None: raise instead.

    Raises:
        InputError: a value cannot be used, and ``mistakes`` is None.
    """
    made, found = dict(job), list[str]()
    for short, read in _READERS.items():
        if short not in made:
            continue
        try:
            for field, value in read(str(made.pop(short)), f"{where}: {short}").items():
                made[_free(made, short, field, where)] = value
        except InputError as error:
            found.append(str(error))
    if mistakes is not None:
        mistakes += found
    elif found:
        raise error_of_mistakes(found)
    return made


def error_of_mistakes(mistakes: Sequence[str]) -> InputError:
    """Make one error of all mistakes of a file."""
    if len(mistakes) == 1:
        return InputError(mistakes[0])
    error = InputError(f"nothing was submitted, for {len(mistakes)} mistakes:")
    for mistake in mistakes:
        error.add_note(mistake)
    return error


def parse_size(text: str, *, name: str) -> int:
    """Return bytes: ``512M``, ``4GiB``, ``1.5g``; units are powers of 1,024.

    Raises:
        InputError: the text is not such a size.
    """
    rest = "".join(text.lower().split())
    unit = rest.lstrip("0123456789.")
    factor = 1 if unit in {"", "b"} else _SIZES.get(unit.removesuffix("b").removesuffix("i"), 0)
    try:
        size = float(rest.removesuffix(unit)) * factor
    except ValueError:
        size = 0.0
    if size < 1:
        raise InputError(f"{name} is '{text}'; give bytes, or a size such as 512M or 4GiB")
    return int(size)


def _reader(known: Asked) -> Callable[[str, str], dict[str, Any]]:
    """Return the reader of a field; it gets the text and the user's name of the field."""
    if known.kind is Word.MOMENT:
        return lambda text, name: dict(parse_deadline(text, name=name))
    if isinstance(known.kind, Number) and known.kind.written is Written.SIZE:
        return lambda text, name: {known.name: parse_size(text, name=name)}
    return lambda text, name: {known.name: parse_span(text, name=name)}


#: Field of a file -> reader that converts it to the scheduler's fields.
_READERS: Final[Mapping[str, Callable[[str, str], dict[str, Any]]]] = {
    known.short_name: _reader(known) for known in JOB_FIELDS if known.short_name
}


def _yaml(text: str) -> list[Any]:
    import yaml  # noqa: PLC0415 - the command line starts without it

    # Without the C loader 1,000 jobs take seconds.
    kind = with_plain_numbers(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        _check_depth(yaml.parse(text, kind))
        return list(_documents(kind(text)))
    except yaml.YAMLError as error:
        if "nesting depth" in str(error):  # PyYAML >= 6.0.4 has a bound of its own
            raise RecursionError from None
        raise ValueError(" ".join(str(error).split())) from None


def _check_depth(events: Iterable[Any]) -> None:
    """Refuse nesting so deep that the C loader would overflow the stack.

    Args:
        events: of the parser, which does not recurse.

    Raises:
        RecursionError: the nesting is too deep.
    """
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > _MOST_LEVELS:
            raise RecursionError


def _documents(loader: Any) -> Iterator[Any]:
    try:
        while loader.check_node():
            node = loader.get_node()
            check_expansion(node)
            _check_keys(node)
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def _check_keys(root: Any) -> None:
    """Refuse a mapping that has a key twice, since one value would be lost silently.

    Args:
        root: node of a YAML document, before anything is merged into it.

    Raises:
        ValueError: a mapping has a key twice; names the key and its line.
    """
    left, seen = [root], {id(root)}
    while left:
        node = left.pop()
        if node is None or isinstance(node.value, str):
            continue
        parts = node.value
        if parts and isinstance(parts[0], tuple):
            _check_mapping(key for key, _ in parts)
            parts = [part for pair in parts for part in pair]
        fresh = [part for part in parts if id(part) not in seen]
        seen.update(map(id, fresh))
        left += fresh


def _check_mapping(keys: Iterable[Any]) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key in keys:
        if not isinstance(key.value, str):
            continue
        line, name = key.start_mark.line + 1, (key.tag, key.value)
        if name in lines:
            raise ValueError(
                f"line {line}: key '{key.value[:80]}' is there already, in line {lines[name]}; "
                "write it once"
            )
        lines[name] = line


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object.

    Raises:
        ValueError: it has a key twice.
    """
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"key '{key[:80]}' is there twice in one object; write it once")
        made[key] = value
    return made


def _jobs(document: Any, name: str) -> list[dict[str, Any]]:
    if document is None:
        return []
    if isinstance(document, dict) and set(document) == {"jobs"}:
        document = document["jobs"]
    found = document if isinstance(document, list) else [document]
    for i, job in enumerate(found):
        if not isinstance(job, dict):
            raise InputError(
                f"{name}: job {i} is {str(job)[:80]!r}; a job has fields such as name and command"
            )
    return found


def _as_json(job: dict[str, Any], name: str) -> dict[str, Any]:
    """Write dates as text, and refuse values that JSON cannot hold."""
    check_values(job, word=lambda field: f"{name}: {field}")
    try:
        return dict(json.loads(json.dumps(job, default=str, allow_nan=False)))
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: {error}") from None


def check_values(job: Mapping[str, Any], *, word: Callable[[str], str]) -> None:
    """Refuse values that no JSON document can hold; the error names the field.

    Args:
        job: as a file or the command line has it.
        word: returns the user's name of a field.

    Raises:
        InputError: a number is not finite or has more than 64 bits, a text is no Unicode, or values
            are nested too deeply (also: contain themselves).
    """
    left: list[tuple[str, Any, int]] = [("", job, 0)]
    while left:
        field, value, depth = left.pop()
        if isinstance(value, dict | list):
            if depth > _DEEPEST:
                raise InputError(
                    f"{word(field[:60])}... is nested deeper than {_DEEPEST} levels; a job needs "
                    "a few"
                )
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                name = str(key)
                _check_text(name, word(ascii(name[:_SHOWN_KEY])))
                name = name[:_SHOWN_KEY]
                left.append((f"{field}.{name}" if field else name, inner, depth + 1))
        elif isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{word(field)} is {value}; give a finite number")
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InputError(f"{word(field)} is a number of more than 64 bits; give a smaller one")
        if isinstance(value, str):
            _check_text(value, word(field))


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{where} is {text[:60]!a}, which is no Unicode text (bytes that "
            "are not UTF-8, or half a surrogate pair); write it in UTF-8"
        ) from None


def _free(job: dict[str, Any], short: str, field: str, where: str) -> str:
    if field in job:
        raise InputError(f"{where}: a job has both {short} and {field}; give one")
    return field
