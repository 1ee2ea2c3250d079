"""Configuration of daemon and agent: files, environment, flags."""
