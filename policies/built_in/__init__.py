"""The policies that come with the package: one a file."""
