"""Build a job from options: ``leasehold submit [options] -- python train.py``."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leasehold.cli.reading.pairs import parse_figures, parse_pairs, split_list
from leasehold.cli.session.completion import complete_job, complete_project
from scheduler.domain.jobs.fields import Number, Word, Written
from scheduler.domain.jobs.spec import JOB_FIELDS
from scheduler.errors import InputError
from scheduler.views.job_documents import parse_size
from scheduler.views.model_files import load_model
from scheduler.views.times import parse_deadline, parse_span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.domain.jobs.fields import Asked


#: Fields of the request that come from options of ``submit`` and are not part of a specification.
_BESIDE: Final = {"hold": "held", "array": "array"}


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of a job, in place of its ``**of_jobs``."""
    signature = inspect.signature(command)
    parameters = {name: p for name, p in signature.parameters.items() if name != "of_jobs"}
    positional = [p for p in parameters.values() if p.kind is not p.KEYWORD_ONLY]
    named = [p for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    options = [
        inspect.Parameter(
            _parameter(known),
            inspect.Parameter.KEYWORD_ONLY,
            default=False if known.kind is Word.FLAG else None,
            annotation=Annotated[_type(known), _option(known)],
        )
        for known in OPTIONAL
    ]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*positional, *options, *named]
    )
    command.__annotations__.pop("of_jobs")
    command.__annotations__ |= {option.name: option.annotation for option in options}
    return command


def job_of_options(
    command: list[str], options: dict[str, Any], *, env: dict[str, str]
) -> dict[str, Any]:
    """Build a job from the command line.

    Args:
        command: program and arguments; empty if the options change jobs of a file.
        options: by the names of ``submit``'s parameters; None or empty ones are not given.
        env: the caller's environment, for ``--env NAME``.

    Raises:
        InputError: an option cannot be used.
    """
    given = {k: v for k, v in options.items() if v is not None and v is not False and v != []}
    job: dict[str, Any] = {"command": command, "name": _name(command)} if command else {}
    job |= {field: given[key] for key, field in _BESIDE.items() if key in given}
    for known in OPTIONAL:
        if (key := _parameter(known)) in given:
            job |= _read(known, given[key], env)
    return job


def _parameter(known: Asked) -> str:
    return known.flag.removeprefix("--").replace("-", "_")


def _type(known: Asked) -> Any:
    """Return the type that the command line is read as."""
    kind = known.kind
    if kind is Word.FLAG:
        return bool
    if isinstance(kind, Number) and kind.written is Written.PLAIN:
        return (int if kind.whole else float) | None
    return (list[str] if kind in _REPEATED else str) | None


def _option(known: Asked) -> Any:
    option, kind = known.option, known.kind
    assert option is not None
    whole = isinstance(kind, Number) and kind.whole and kind.written is Written.PLAIN
    return typer.Option(
        known.flag,
        *filter(None, [option.short]),
        help=option.help,
        metavar=option.metavar or None,
        min=int(kind.ge) if whole and isinstance(kind, Number) and kind.ge is not None else None,
        autocompletion=_COMPLETED.get(kind) if isinstance(kind, Word) else None,
    )


def _read(known: Asked, value: Any, env: dict[str, str]) -> dict[str, Any]:
    """Return the fields of the request that an option stands for."""
    name, kind = known.name, known.kind
    if isinstance(kind, Number):
        return {name: _NUMBERS[kind.written](value, known.flag)}
    if kind is Word.FLAG:
        return {name: not known.default}
    if kind is Word.MOMENT:
        return dict(parse_deadline(value, name=known.flag))
    if kind is Word.VARIABLES:
        return {name: _environment(value, known.flag, env)}
    if kind is Word.SECRETS:
        return {name: _secrets(value, known.flag, env)}
    return {name: _READERS[kind](value, known.flag) if kind in _READERS else value}


def _name(command: list[str]) -> str:
    """Return a name that the scheduler accepts."""
    program = Path(_program(command))
    folder = program.parent.name if program.stem in _COMMON_NAMES else ""
    text = f"{folder}-{program.stem}" if folder else program.stem
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return name[:100] or "job"


def _program(command: list[str]) -> str:
    """Return the program that names the job: the script, not its interpreter or launcher."""
    first, *rest = command
    name = Path(first).name
    if _INTERPRETER.fullmatch(name):
        return _script(first, rest)
    if name in _LAUNCHER_PROGRAMS:
        for place, word in enumerate(rest):
            if word == "-m" and place + 1 < len(rest):
                return rest[place + 1].replace(".", "-")
            if word.endswith((".py", ".sh")):
                return word
    return first


def _script(interpreter: str, rest: list[str]) -> str:
    """Return the script or module that an interpreter runs; itself if it is given a program."""
    for place, word in enumerate(rest):
        if word == "-m" and place + 1 < len(rest):
            module, behind = rest[place + 1], rest[place + 2 :]
            launcher = _LAUNCHING_MODULES.get(module)
            return _program([launcher, *behind]) if launcher else module.replace(".", "-")
        if not word.startswith("-"):
            return word or interpreter
        if word.startswith(("-c", "-lc", "-ec")):  # behind it stands a program, not its name
            break
    return interpreter


def _counts(text: str, flag: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InputError(f"{flag} is '{text}'; give counts such as 4 or 1,2,4") from None


def _folder(text: str, _flag: str) -> str:
    # The node sees the same path if the folder is shared; `~` and `.` mean the user's.
    return os.path.abspath(Path(text).expanduser())  # noqa: PTH100 - drops `..` too


def _environment(items: list[str], flag: str, env: dict[str, str]) -> dict[str, str]:
    full = []
    for item in items:
        if "=" not in item and item not in env:
            raise InputError(
                f"{flag} is '{item}', which is not in your environment; give {item}=..."
            )
        full.append(item if "=" in item else f"{item}={env[item]}")
    return parse_pairs(full, option=flag)


def _secrets(names: list[str], flag: str, env: dict[str, str]) -> dict[str, str]:
    """Return variables from the caller's environment; other users could read arguments."""
    for name in names:
        if "=" in name:
            raise InputError(
                f"{flag} is '{name.partition('=')[0]}=...': give the name alone, and the value in "
                "your environment; other users of this machine can read arguments"
            )
        if name not in env:
            raise InputError(f"{flag} is '{name}', which is not in your environment; put it there")
    return {name: env[name] for name in names}


_INTERPRETER: Final = re.compile(r"(?:python|pypy)[0-9.]*|bash|sh|dash|zsh|ksh")
#: Programs that start the one that is meant.
_LAUNCHER_PROGRAMS: Final = frozenset(
    {
        *("torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "srun"),
        *("env", "nice", "nohup", "numactl", "stdbuf", "time", "timeout", "taskset"),
        *("uv", "poetry", "pipenv", "conda", "mamba", "pixi", "coverage"),
    }
)
_LAUNCHING_MODULES: Final = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
#: Names that say little without the folder.
_COMMON_NAMES: Final = frozenset(
    {"train", "main", "run", "test", "job", "script", "finetune", "pretrain", "launch", "__main__"}
)
#: Fields with an option, in the order of the specification.
OPTIONAL: Final = tuple(known for known in JOB_FIELDS if known.option is not None)
#: Options that may be given several times.
_REPEATED: Final = frozenset(
    {
        *(Word.VARIABLES, Word.SECRETS, Word.LABELS, Word.JOB_IDS, Word.WORKER_TYPES),
        *(Word.RATES, Word.RESTARTS),
    }
)
_COMPLETED: Final[Mapping[Word, Callable[..., Any]]] = {
    Word.PROJECT: complete_project,
    Word.JOB_IDS: complete_job,
}
#: Readers of values by kind; each gets the value and the option.
_READERS: Final[Mapping[Word, Callable[[Any, str], object]]] = {
    Word.PATH: _folder,
    Word.MODEL: lambda text, flag: load_model(text, Path(), place=flag),
    Word.WORKER_COUNTS: _counts,
    Word.WORKER_TYPES: lambda items, flag: split_list(items, option=flag),
    Word.JOB_IDS: lambda items, flag: split_list(items, option=flag),
    Word.RATES: lambda items, flag: parse_figures(items, option=flag),
    Word.RESTARTS: lambda items, flag: parse_figures(items, option=flag),
    Word.LABELS: lambda items, flag: parse_pairs(items, option=flag),
}
_NUMBERS: Final[Mapping[Written, Callable[[Any, str], object]]] = {
    Written.PLAIN: lambda number, _flag: number,
    Written.SPAN: lambda text, flag: parse_span(text, name=flag),
    Written.SIZE: lambda text, flag: parse_size(text, name=flag),
}
