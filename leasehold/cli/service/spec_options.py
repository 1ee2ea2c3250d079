"""A job from options: ``leasehold submit [options] -- python train.py``."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from leasehold.cli.service.completion import complete_job, complete_project
from leasehold.cli.service.pairs import parse_figures, parse_pairs, split_list
from leasehold.cli.service.spec_files import parse_size
from leasehold.cli.service.times import parse_deadline, parse_span
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Name: TypeAlias = Annotated[
    str | None, typer.Option("--name", "-n", help="Its name; the program's by default.")
]
Project: TypeAlias = Annotated[
    str | None,
    typer.Option("--project", "-p", help="Its project.", autocompletion=complete_project),
]
Workers: TypeAlias = Annotated[
    str | None,
    typer.Option("--workers", "-w", metavar="N[,M...]", help="Worker counts that it can run at."),
]
Types: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--type", "-t", metavar="A[,B...]", help="Worker types that it may run on."),
]
Steps: TypeAlias = Annotated[
    float | None, typer.Option("--steps", help="Steps until it is complete.")
]
Duration: TypeAlias = Annotated[
    str | None, typer.Option("--duration", metavar="SPAN", help="Estimate of its run time.")
]
JobType: TypeAlias = Annotated[
    str | None, typer.Option("--job-type", help="Key into the throughput table.")
]
Throughput: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--throughput", metavar="TYPE=X", help="Steps/s on a worker type. Repeatable."),
]
Weight: TypeAlias = Annotated[float | None, typer.Option("--weight", help="Its importance.")]
Deadline: TypeAlias = Annotated[
    str | None,
    typer.Option("--deadline", metavar="WHEN", help="By when: 2h from now, or an ISO 8601 time."),
]
MaxRunTime: TypeAlias = Annotated[
    str | None,
    typer.Option("--max-run-time", metavar="SPAN", help="How long it may hold workers in all."),
]
Retries: TypeAlias = Annotated[
    int | None, typer.Option("--retries", min=0, help="Failures of its own that are retried.")
]
NoRetryOom: TypeAlias = Annotated[
    bool, typer.Option("--no-retry-oom", help="Running out of memory is final.")
]
CheckpointDir: TypeAlias = Annotated[
    str | None, typer.Option("--checkpoint-dir", metavar="DIR", help="Where it keeps its state.")
]
Env: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="K[=V]", help="Variable, or one of yours. Repeatable."),
]
Label: TypeAlias = Annotated[
    list[str] | None, typer.Option("--label", "-l", metavar="K=V", help="Label. Repeatable.")
]
Entity: TypeAlias = Annotated[
    str | None, typer.Option("--entity", help="Whom its share is accounted to.")
]
After: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="JOB",
        help="Runs when that job has completed. Repeatable.",
        autocompletion=complete_job,
    ),
]
WorkingDir: TypeAlias = Annotated[
    str | None, typer.Option("--working-dir", "-C", metavar="DIR", help="Where it is started.")
]
Image: TypeAlias = Annotated[str | None, typer.Option("--image", help="Container image.")]
Notice: TypeAlias = Annotated[
    str | None, typer.Option("--notice", metavar="SPAN", help="From the notice to SIGTERM.")
]
Grace: TypeAlias = Annotated[
    str | None, typer.Option("--grace", metavar="SPAN", help="From SIGTERM to SIGKILL.")
]
Restart: TypeAlias = Annotated[
    str | None,
    typer.Option("--restart", metavar="SPAN", help="Work that a change of workers costs it."),
]
ProgressRegex: TypeAlias = Annotated[
    str | None,
    typer.Option("--progress-regex", metavar="RE", help="Finds the count of steps in its output."),
]
ProgressFile: TypeAlias = Annotated[
    str | None,
    typer.Option("--progress-file", metavar="FILE", help="Its last number is the steps done."),
]
Memory: TypeAlias = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Limit of host memory, as in 8GiB.")
]
Cpus: TypeAlias = Annotated[float | None, typer.Option("--cpus", help="Limit of processor cores.")]
NoSharing: TypeAlias = Annotated[
    bool, typer.Option("--no-space-sharing", help="Never shares workers with another job.")
]

#: Options that go into a job as they are -> field.
_AS_THEY_ARE: Final = {
    "name": "name",
    "project": "project",
    "steps": "total_steps",
    "job_type": "job_type",
    "weight": "weight",
    "retries": "max_failures",
    "entity": "entity",
    "image": "image",
    "progress_regex": "progress_regex",
    "progress_file": "progress_file",
    "cpus": "cpus",
    "hold": "held",
    "array": "array",
}
_SPANS: Final = ("duration", "max_run_time", "notice", "grace", "restart")
#: Options that switch something off -> field.
_OFF: Final = {"no_retry_oom": "retry_oom", "no_space_sharing": "space_sharing"}
_PATHS: Final = ("working_dir", "checkpoint_dir")


def job_of_options(
    command: list[str], options: dict[str, Any], *, env: dict[str, str]
) -> dict[str, Any]:
    """Make a job of what stands on the command line.

    Args:
        command: program and arguments; empty where the options change jobs of a file.
        options: by the names of ``submit``'s parameters; those that are None or empty say nothing.
        env: the caller's environment, for ``--env NAME``.

    Raises:
        InputError: an option cannot be used.
    """
    given = {k: v for k, v in options.items() if v is not None and v is not False and v != []}
    job: dict[str, Any] = {"command": command, "name": _name(command)} if command else {}
    job |= {field: given[key] for key, field in _AS_THEY_ARE.items() if key in given}
    job |= {field: False for key, field in _OFF.items() if key in given}
    for key in given.keys() & set(_SPANS):
        job[f"{key}_s"] = parse_span(given[key], name=f"--{key.replace('_', '-')}")
    for key in given.keys() & set(_PATHS):
        # The node sees the same path where the folder is shared; `~` and `.` mean ours.
        job[key] = os.path.abspath(Path(given[key]).expanduser())  # noqa: PTH100 - drops `..` too
    for key in given.keys() & _READERS.keys():
        field, reader = _READERS[key]
        job[field] = reader(given[key])
    if "env" in given:
        job["env"] = _environment(given["env"], env)
    if "deadline" in given:
        job |= parse_deadline(given["deadline"], name="--deadline")
    return job


def _name(command: list[str]) -> str:
    """Return a name that the scheduler takes."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(_program(command)).stem).strip("-._")
    return name[:100] or "job"


def _program(command: list[str]) -> str:
    """Return what names the job: the script rather than its interpreter."""
    first, *rest = command
    if Path(first).name.startswith(("python", "bash", "sh")):
        script = next((argument for argument in rest if not argument.startswith("-")), first)
        # Behind -c stands a program, not its name.
        return first if {"-c", "-lc", "-ec"} & set(rest) or not script else script
    return first


def _counts(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InputError(f"--workers is '{text}'; give counts such as 4 or 1,2,4") from None


def _environment(items: list[str], env: dict[str, str]) -> dict[str, str]:
    full = []
    for item in items:
        if "=" not in item and item not in env:
            raise InputError(
                f"--env is '{item}', which is not in your environment; give {item}=..."
            )
        full.append(item if "=" in item else f"{item}={env[item]}")
    return parse_pairs(full, option="--env")


#: Options whose text is read -> field, and what reads it.
_READERS: Final[Mapping[str, tuple[str, Callable[[Any], object]]]] = {
    "workers": ("scale_factor", _counts),
    "type": ("worker_types", partial(split_list, option="--type")),
    "after": ("depends_on", partial(split_list, option="--after")),
    "throughput": ("throughputs", partial(parse_figures, option="--throughput")),
    "label": ("labels", partial(parse_pairs, option="--label")),
    "memory": ("memory_bytes", partial(parse_size, name="--memory")),
}
