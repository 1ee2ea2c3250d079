"""Command groups with a default command."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


def group_with_default(default: str) -> type[TyperGroup]:
    """Make a group class in which ``leasehold GROUP`` means ``leasehold GROUP DEFAULT``."""

    class DefaultGroup(TyperGroup):
        """Inserts the default's name if the arguments do not begin with a command."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if not args or (args[0].startswith("-") and not {"--help", "-h"} & set(args)):
                args = [default, *args]
            return super().parse_args(ctx, args)

    return DefaultGroup
