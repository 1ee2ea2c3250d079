"""Names of the release before that tests of plugins may still use."""
