"""Pod templates: what they may say, and how they are merged. Pure."""
