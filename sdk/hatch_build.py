"""Hooks of hatchling for the project's two distributions: docs/adr/0028."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


# The hook is generic in the configuration of its builder, which it does not use.
class SdkFiles(BuildHookInterface):  # type: ignore[type-arg]
    """Put the package, and copies of what it shares with the scheduler, into the SDK's wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files, which lie beside this folder."""
        if version == "editable":  # the sources are on the path
            return
        sources = Path(self.root).parent
        files = {"leasehold": "leasehold"}
        for name in self.config["shared"]:
            files[f"scheduler/{name}"] = f"leasehold/_shared/scheduler/{name}"
        build_data["force_include"] = {str(sources / of): to for of, to in files.items()}


class SdkOfTheSameVersion(MetadataHookInterface):
    """Make the scheduler's distribution require the SDK of its own version."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Write the requirement."""
        metadata["dependencies"] = [f"leasehold-sdk=={metadata['version']}"]
