"""Starts runs: in this process, on this machine through torchrunx, on Slurm through submitit; and looks after them."""
