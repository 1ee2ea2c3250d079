"""The command line: the composition that may import every other part."""
