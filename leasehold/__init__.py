"""What training scripts and clients import. Standard library only."""

__version__ = "0.1.0"
