"""Plans of configurations as people read them. Without numpy: jobs are shown anywhere."""

from __future__ import annotations

import json

from scheduler.domain.splits import split_in_words


def plan_in_words(text: str) -> str:
    """Return the plan of a configuration in a few words; a text of another source as it is."""
    try:
        return split_in_words(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError):
        return text
