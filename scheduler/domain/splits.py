"""How a model is split over workers, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def split_in_words(sizes: Mapping[str, int]) -> str:
    """Return a split in a few words, such as ``tp4 pp2 b1 recompute``.

    Args:
        sizes: the attributes of ``planner.plans.plan.Plan``.
    """
    groups = (("tp", sizes["tensor"]), ("pp", sizes["pipeline"]), ("dp", sizes["data"]))
    words = [f"{name}{size}" for name, size in groups if size > 1] or ["whole"]
    words.append(f"b{sizes['microbatch']}")
    if sizes["chunks"] > 1:
        words.append(f"v{sizes['chunks']}")
    if sizes["recompute"]:
        words.append("recompute")
    if sizes["zero"]:
        words.append(f"zero{sizes['zero']}")
    if sizes["offload"]:
        words.append("offload")
    return " ".join(words)
