"""Pod templates: their allowed fields, and how they are merged. Pure."""
