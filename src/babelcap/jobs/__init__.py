"""What runs work: progress, processes that survive a worker's death, shards, Slurm, stop signals."""
