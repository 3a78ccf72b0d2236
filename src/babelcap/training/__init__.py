"""Training: one loop from a laptop to a cluster, exactly repeatable and exactly resumable."""
