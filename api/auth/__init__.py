"""Authentication: tokens, roles, and the identity provider."""
