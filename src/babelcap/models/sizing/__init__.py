"""What a model is and costs, counted without weights; what trains."""
