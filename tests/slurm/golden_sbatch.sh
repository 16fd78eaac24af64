#!/bin/bash

# Parameters
#SBATCH --account=abc@h100
#SBATCH --cpus-per-task=24
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
#SBATCH --hint=nomultithread
#SBATCH --job-name=tiny
#SBATCH --mem=65536M
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/TMP/runs/tiny/submitit/%j_0_log.out
#SBATCH --partition=gpu
#SBATCH --requeue
#SBATCH --signal=USR2@120
#SBATCH --time=2160

# setup
source /TMP/project/slurm/setup.sh

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /TMP/runs/tiny/submitit/%j_%t_log.out --kill-on-bad-exit=1 --cpus-per-task=24 --export=ALL PYTHON -u -m submitit.core._submit /TMP/runs/tiny/submitit
