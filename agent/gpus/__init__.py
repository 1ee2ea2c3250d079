"""GPUs of this node: the inventory of workers, and their use."""
