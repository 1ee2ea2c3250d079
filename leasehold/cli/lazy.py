"""A command group that imports a command's module only when that command is used.

``leasehold --help`` has to be quick, and the solvers behind ``simulate`` take a second to import.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from leasehold.cli.extras import check_scheduler, missing_extra

#: Key of the running command's name.
_COMMAND_KEY = "leasehold.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyCommand:
    """Location of a command, and its line in the overview.

    Attributes:
        module: dotted name.
        attribute: a ``typer.Typer`` (mounted as a group), a function (mounted as a command), or a
            command that is ready.
        summary: one line for ``leasehold --help``.
        extras: extras of the distribution that the command needs.
    """

    module: str
    attribute: str
    summary: str
    extras: tuple[str, ...] = ()


def lazy_group(commands: dict[str, LazyCommand]) -> type[TyperGroup]:
    """Make a group class that offers those commands, in that order."""

    class LazyGroup(TyperGroup):
        """Shows stubs in overviews and loads a command when it is run."""

        def list_commands(self, ctx: Any) -> list[str]:
            return [*commands, *super().list_commands(ctx)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in commands:
                return super().get_command(ctx, cmd_name)
            return TyperCommand(cmd_name, help=commands[cmd_name].summary)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            try:
                name, command, rest = super().resolve_command(ctx, args)
            except Exception as error:
                _suggest(error, args[0], self.list_commands(ctx))
                raise
            if name in commands:
                ctx.meta[_COMMAND_KEY] = name
                check_scheduler(command=name, extras=commands[name].extras)
                command = load(name, commands[name])
            return name, command, rest

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except ModuleNotFoundError as error:
                name = ctx.meta.get(_COMMAND_KEY, "")
                extras = commands[name].extras if name in commands else ()
                told = missing_extra(error, command=name, extras=extras)
                if told is None:
                    raise
                raise told from None

    return LazyGroup


def _suggest(error: Any, word: str, commands: list[str]) -> None:
    """Add a suggestion to the error about an unknown command."""
    near = difflib.get_close_matches(word, commands, n=1)
    said = getattr(error, "message", "")
    if near and said and "did you mean" not in said.lower():
        error.message = f"{said.rstrip('.')}; did you mean '{near[0]}'?"


def load(name: str, command: LazyCommand) -> Any:
    """Import a command and return it ready to run."""
    target = getattr(importlib.import_module(command.module), command.attribute)
    if isinstance(target, TyperCommand):
        target.name = name
        return target
    if isinstance(target, typer.Typer):
        group = typer.main.get_group(target)
        group.name = name
        return group
    single = typer.Typer(add_completion=False)
    single.command(name)(target)
    return typer.main.get_command(single)
