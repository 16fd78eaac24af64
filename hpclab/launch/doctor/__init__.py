"""`hpclab doctor`: what of this machine and cluster would stop or slow a run. One file for each family of checks."""
