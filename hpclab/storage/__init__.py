"""Where samples wait until they are learned from."""
