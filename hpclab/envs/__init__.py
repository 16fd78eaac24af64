"""Environments: physics, terms, managers and tasks."""
