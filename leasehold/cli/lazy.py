"""A command group that imports a command's module only when that command is used.

``leasehold --help`` has to be quick, and the solvers behind ``simulate`` take a second to import.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from leasehold.cli.extras import check_scheduler, missing_extra

#: Key of the running command's name.
_COMMAND_KEY = "leasehold.name"
#: typer's words for the types of options -> those of the help.
_VALUES: Final = {
    "<str>": "TEXT",
    "<list[str]>": "TEXT",
    "<path>": "PATH",
    "<int>": "N",
    "<int range>": "N",
    "<float>": "X",
    "<float range>": "X",
}


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


class _Overview(TyperGroup):
    """A group with options that name their values by short words."""

    def get_params(self, ctx: Any) -> Any:
        """Return its options."""
        return _name_values(super().get_params(ctx), ctx)


def lazy_group(commands: dict[str, LazyCommand]) -> type[TyperGroup]:
    """Make a group class that offers those commands, in that order."""

    class LazyGroup(_Overview):
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
    made: Any
    if isinstance(target, TyperCommand):
        made = target
    elif isinstance(target, typer.Typer):
        made = typer.main.get_group(target)
    else:
        single = typer.Typer(add_completion=False)
        single.command(name)(target)
        made = typer.main.get_command(single)
    made.name = name
    _name_all_values(made)
    return made


def _name_all_values(command: Any) -> None:
    """Let the help of a command, and of those below it, name values by short words."""
    params = command.get_params
    command.get_params = lambda ctx: _name_values(params(ctx), ctx)
    for below in getattr(command, "commands", {}).values():
        _name_all_values(below)


def _name_values(params: Any, ctx: Any) -> Any:
    """Give the options of a command that have no word for their value one; flags have none."""
    for param in params:
        if param.metavar is None and param.param_type_name == "option":
            if param.is_flag or param.count:
                param.metavar = ""
            elif hasattr(param, "display_type_rich"):
                shown = str(param.display_type_rich(ctx))
                param.metavar = _VALUES.get(shown, shown)
    return params
