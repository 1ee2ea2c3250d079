"""The driver of control: leadership, recovery from the store, snapshots, turns."""
