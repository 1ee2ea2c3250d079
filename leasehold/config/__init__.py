"""The daemon's configuration: defaults, a TOML file, the environment, flags."""
