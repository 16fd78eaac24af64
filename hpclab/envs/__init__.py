"""Batched environments: tasks made of named terms, on a simulation that runs on the CPU or a GPU."""
