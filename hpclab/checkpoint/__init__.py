"""Checkpoints: what is saved (state.py), and where and how (store.py)."""
