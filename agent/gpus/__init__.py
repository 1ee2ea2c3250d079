"""GPUs of this node: the inventory of workers, and how busy they are."""
