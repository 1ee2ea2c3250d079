"""Jobs: their specification, its fields, files of jobs, and expressions for progress."""
