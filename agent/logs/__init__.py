"""Output of jobs: files, the upload to the scheduler, and the search for steps."""
