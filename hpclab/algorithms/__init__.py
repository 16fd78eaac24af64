"""Learning algorithms: from samples to parameters."""
