"""Foreign data into the store."""
