"""Metrics: what is recorded each iteration, and the sinks it goes to."""
