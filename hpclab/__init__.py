"""Train robot policies on a laptop or a Slurm cluster from one YAML file."""

__version__ = "0.1.0"
