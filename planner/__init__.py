"""Sources of configurations: what ways there are to run a job."""
