"""What systems answered: predicted into folders named by all that decides it, scored apart, and shown."""
