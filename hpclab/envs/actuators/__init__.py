"""Actuator models: what a drive makes of its target, computed before each physics substep."""
