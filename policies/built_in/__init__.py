"""The policies that come with the package, one per file."""
