"""Jobs, nodes and shares as people see them, with reasons; jobs and times as people write them."""
