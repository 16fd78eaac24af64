"""Runners: each owns a training loop."""
