"""Reports of a run: an HTML page, charts, and a trace for Perfetto."""
