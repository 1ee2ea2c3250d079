"""A job from options and files, and the code that is sent with it."""
