"""Build a job from options and files, and upload its code."""
