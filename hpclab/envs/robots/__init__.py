"""Robot models, written here as MJCF, and the numbers that tasks share."""
