"""The command ``leasehold``."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any, TextIO

import typer

from leasehold import __version__
from leasehold.cli import exit_codes
from leasehold.cli.guard import check_packages
from leasehold.cli.lazy import LazyCommand, lazy_group
from scheduler.errors import LeaseholdError

#: typer's exception for an unusable command line; it has no public name.
_UsageProblem: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

_BOUNDS = ("ge", "gt", "le", "lt")
#: pydantic's kinds of wrong values -> the wanted values.
_WANTED = {
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
}

COMMANDS = {
    "simulate": LazyCommand(
        module="leasehold.cli.local.simulate",
        attribute="simulate",
        summary="Replay a trace under one policy.",
        extras=("simulator",),
    ),
    "compare": LazyCommand(
        module="leasehold.cli.local.compare",
        attribute="compare",
        summary="Replay a trace under several policies and write one report.",
        extras=("simulator",),
    ),
    "sweep": LazyCommand(
        module="leasehold.cli.local.sweep",
        attribute="sweep",
        summary="Run a grid of arrival rates, policies and seeds; resumable.",
        extras=("simulator",),
    ),
    "savings": LazyCommand(
        module="leasehold.cli.local.savings",
        attribute="savings",
        summary="Show the savings of policies over a plain queue.",
        extras=("simulator",),
    ),
    "advise": LazyCommand(
        module="leasehold.cli.local.advise",
        attribute="advise",
        summary="Say which worker types to add or drop for a load.",
        extras=("simulator",),
    ),
    "plan": LazyCommand(
        module="leasehold.cli.local.plan",
        attribute="plan",
        summary="Show how a model could run on a cluster: plans, speed, memory.",
        extras=("simulator",),
    ),
    "serve": LazyCommand(
        module="leasehold.cli.local.serve",
        attribute="serve",
        summary="Run the scheduler: the REST interface and the rounds.",
        extras=("scheduler",),
    ),
    "migrate": LazyCommand(
        module="leasehold.cli.local.migrate",
        attribute="migrate",
        summary="Bring the database's schema up to this release, and end.",
        extras=("scheduler",),
    ),
    "secrets": LazyCommand(
        module="leasehold.cli.local.secrets",
        attribute="app",
        summary="Make and change the keys of jobs' secret variables.",
        extras=("scheduler",),
    ),
    "up": LazyCommand(
        module="leasehold.cli.local.up",
        attribute="up",
        summary="Run a scheduler and an agent of this machine in one, for a laptop.",
        extras=("scheduler", "agent"),
    ),
    "config": LazyCommand(
        module="leasehold.cli.config",
        attribute="app",
        summary="Show and check the daemon's configuration.",
        extras=("scheduler",),
    ),
    "policies": LazyCommand(
        module="leasehold.cli.local.policies",
        attribute="app",
        summary="List the policies and show their programs and parameters.",
        extras=("simulator",),
    ),
    "traces": LazyCommand(
        module="leasehold.cli.local.traces",
        attribute="app",
        summary="Inspect, convert and generate traces.",
        extras=("simulator",),
    ),
    "agent": LazyCommand(
        module="leasehold.cli.local.agent",
        attribute="agent",
        summary="Run this node's agent: hold leases and run jobs under them.",
        extras=("agent",),
    ),
    "count-pods": LazyCommand(
        module="leasehold.cli.local.count_pods",
        attribute="count_pods",
        summary="Count the accelerators that pods of others hold on Kubernetes, for all agents.",
        extras=("agent", "kubernetes"),
    ),
    "alerts": LazyCommand(
        module="leasehold.cli.local.monitoring",
        attribute="alerts",
        summary="Print alert rules for Prometheus.",
    ),
    "dashboard": LazyCommand(
        module="leasehold.cli.local.monitoring",
        attribute="dashboard",
        summary="Print a dashboard for Grafana.",
    ),
    "submit": LazyCommand(
        module="leasehold.cli.service.submit",
        attribute="command",
        summary="Submit jobs from files or the command line.",
    ),
    "exec": LazyCommand(
        module="leasehold.cli.service.execute",
        attribute="command",
        summary="Run a command inside a running job, end with its exit code.",
    ),
    "run": LazyCommand(
        module="leasehold.cli.service.run",
        attribute="command",
        summary="Submit a command, follow its output, end with its exit code.",
    ),
    "jobs": LazyCommand(
        module="leasehold.cli.service.jobs",
        attribute="jobs",
        summary="List jobs.",
    ),
    "job": LazyCommand(
        module="leasehold.cli.service.job",
        attribute="job",
        summary="Show a job: state, attempts, history.",
    ),
    "explain": LazyCommand(
        module="leasehold.cli.service.job",
        attribute="explain",
        summary="Show why a job waits, and until when.",
    ),
    "watch": LazyCommand(
        module="leasehold.cli.service.watch",
        attribute="watch",
        summary="Follow the history.",
    ),
    "logs": LazyCommand(
        module="leasehold.cli.service.logs",
        attribute="logs",
        summary="Print or follow a job's output.",
    ),
    "cancel": LazyCommand(
        module="leasehold.cli.service.act",
        attribute="cancel",
        summary="Cancel jobs.",
    ),
    "hold": LazyCommand(
        module="leasehold.cli.service.act",
        attribute="hold",
        summary="Keep jobs from running.",
    ),
    "release": LazyCommand(
        module="leasehold.cli.service.act",
        attribute="release",
        summary="Let held jobs run again.",
    ),
    "requeue": LazyCommand(
        module="leasehold.cli.service.act",
        attribute="requeue",
        summary="Stop jobs and put them back in the queue.",
    ),
    "set": LazyCommand(
        module="leasehold.cli.service.act",
        attribute="change",
        summary="Change weight or deadline of jobs.",
    ),
    "top": LazyCommand(
        module="leasehold.cli.service.top",
        attribute="top",
        summary="Watch nodes, leases and queue.",
    ),
    "nodes": LazyCommand(
        module="leasehold.cli.service.nodes",
        attribute="nodes",
        summary="List nodes, or the workers of one.",
    ),
    "cordon": LazyCommand(
        module="leasehold.cli.service.nodes",
        attribute="cordon",
        summary="Let nothing new start on a node.",
    ),
    "drain": LazyCommand(
        module="leasehold.cli.service.nodes",
        attribute="drain",
        summary="Empty a node with notice to its jobs.",
    ),
    "uncordon": LazyCommand(
        module="leasehold.cli.service.nodes",
        attribute="uncordon",
        summary="Put a node back into service.",
    ),
    "approve": LazyCommand(
        module="leasehold.cli.service.nodes",
        attribute="approve",
        summary="Set the workers that a node may have.",
    ),
    "page": LazyCommand(
        module="leasehold.cli.service.page",
        attribute="page",
        summary="Print a link to the page for the browser, signed in.",
    ),
    "policy": LazyCommand(
        module="leasehold.cli.service.policy",
        attribute="app",
        summary="Show or switch the policy in force.",
    ),
    "project": LazyCommand(
        module="leasehold.cli.service.projects",
        attribute="app",
        summary="Show or set shares and quotas of projects.",
    ),
    "reservation": LazyCommand(
        module="leasehold.cli.service.reservations",
        attribute="app",
        summary="Reserve workers for a time window.",
    ),
    "usage": LazyCommand(
        module="leasehold.cli.service.usage",
        attribute="usage",
        summary="Show worker-hours by project, user, job type and more.",
    ),
    "throughputs": LazyCommand(
        module="leasehold.cli.service.throughputs",
        attribute="throughputs",
        summary="Show or declare steps/s of job types.",
    ),
    "token": LazyCommand(
        module="leasehold.cli.service.tokens",
        attribute="app",
        summary="Make, list and revoke tokens; enrol agents.",
    ),
    "webhook": LazyCommand(
        module="leasehold.cli.service.webhooks",
        attribute="app",
        summary="Register, list, test, resume and delete webhooks.",
    ),
}

app = typer.Typer(
    name="leasehold",
    cls=lazy_group(COMMANDS),
    help="Share a cluster of unlike GPUs among training jobs.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:  # typer calls it positionally
    if wanted:
        typer.echo(f"leasehold {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Share a cluster of unlike GPUs among training jobs."""


def main() -> int:
    """Run the command line.

    Returns:
        0, or the error's code by ``exit_codes``; other ends raise ``SystemExit``.
    """
    try:
        check_packages()
        with warnings.catch_warnings():  # after it, they are shown as before
            warnings.showwarning = _tell_warning
            # Usage errors are written like all others, not in typer's boxes.
            code = app(prog_name="leasehold", standalone_mode=False)
    except _UsageProblem as error:
        return _tell_usage(error)
    except typer.Abort:
        sys.stderr.write("leasehold: interrupted\n")
        return exit_codes.INTERRUPTED
    except LeaseholdError as error:
        details = "".join(f"  {note}\n" for note in getattr(error, "__notes__", ()))
        sys.stderr.write(f"leasehold: {_sentences(str(error)) or type(error).__name__}\n{details}")
        return exit_codes.code_of(error)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"leasehold: {where}{error.strerror or error}\n")
        return exit_codes.FAILED
    except KeyboardInterrupt:
        sys.stderr.write("leasehold: interrupted\n")
        return exit_codes.INTERRUPTED
    return code if isinstance(code, int) else 0


def _tell_warning(  # noqa: PLR0917  as Python calls it
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning for users like other remarks, and one for programmers with its place."""
    if issubclass(category, UserWarning):
        sys.stderr.write(f"leasehold: warning: {_one_line(str(message))}\n")
        return
    said = warnings.formatwarning(message, category, filename, lineno, line)
    (file or sys.stderr).write(said)


def _tell_usage(error: Any) -> int:
    """Print the fault of the command line, and the command with the right usage."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help was its answer
        typer.echo(error.format_message(), err=True, nl=False)
        return int(error.exit_code)
    context = getattr(error, "ctx", None)
    hint = "" if context is None else f"  see `{context.command_path} --help`\n"
    said = _of_value(error) or _of_missing(error) or error.format_message()
    sys.stderr.write(f"leasehold: {_one_line(said)}\n{hint}")
    return int(error.exit_code)


def _of_value(error: Any) -> str:
    """Return the wrong value and its option as text; empty if the fault is another."""
    faults = getattr(error.__cause__, "errors", None)
    param = getattr(error, "param", None)
    if faults is None or param is None:
        return ""
    fault = faults()[0]
    wanted = _WANTED.get(fault["type"])
    if wanted is None:
        return ""
    name = param.human_readable_name if param.param_type_name == "argument" else param.opts[0]
    # The type of ``--limit x`` has no bounds.
    limits = {key: f"{bound:g}" for key, bound in fault.get("ctx", {}).items() if key in _BOUNDS}
    return f"{name} is '{fault['input']}'; give {wanted.format(**limits)}"


def _of_missing(error: Any) -> str:
    """Return the missing option and its help; empty if the fault is another."""
    param = getattr(error, "param", None)
    use = getattr(param, "help", None)
    if type(error).__name__ != "MissingParameter" or param is None or not use:
        return ""
    if param.param_type_name == "argument":
        return ""
    return f"{param.opts[0]} is missing: {use[0].lower()}{use[1:].rstrip('.')}"


def _sentences(said: str) -> str:
    """Return lines joined to one, with separate paragraphs kept apart."""
    lines = [_one_line(line) for line in said.splitlines() if line.strip()]
    parts = [line if line.endswith(tuple(",;:.")) else f"{line};" for line in lines]
    return _one_line(" ".join(parts)).removesuffix(";") if lines else ""


def _one_line(said: str) -> str:
    return " ".join(said.split())


if __name__ == "__main__":
    sys.exit(main())
