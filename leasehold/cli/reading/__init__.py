"""What people write: times, KEY=VALUE pairs, and files of jobs."""
