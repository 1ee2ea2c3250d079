"""What a run looks like to people: an HTML page, charts, and a trace for Perfetto."""
