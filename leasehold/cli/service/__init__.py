"""The commands of the service's users: everything that talks to a running scheduler."""
