"""The node that pods run on: its workers, pods of others, and images."""
