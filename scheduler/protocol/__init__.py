"""What scheduler and agents say to one another: messages, bounds, and how they are read."""
