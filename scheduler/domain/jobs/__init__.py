"""Jobs: what is submitted, its fields, files of jobs, and expressions for progress."""
