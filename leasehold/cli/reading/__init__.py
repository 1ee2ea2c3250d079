"""Read user input: times, KEY=VALUE pairs, and files of jobs."""
