"""Nodes: reports, inventory, health, silence and images."""
