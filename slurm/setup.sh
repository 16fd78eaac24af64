# Sourced by every job in its batch step, before srun starts one task per node; what is exported here reaches all
# workers. Fill in what your site needs. As it stands it changes nothing that is set already, and is safe anywhere.

# Modules: the CUDA driver comes with the node and torch brings its own CUDA, so most sites need none.
# module purge
# module load arch/h100

# The virtual environment. The job runs the interpreter that submitted it, so this is only for programs on PATH.
# source "$HOME/hpclab/.venv/bin/activate"

# Kernel and JIT caches, on local scratch: hundreds of ranks compiling into one home folder contend for its locks.
if [ -n "${SLURM_TMPDIR:-}" ]; then
    export WARP_CACHE_PATH="${WARP_CACHE_PATH:-$SLURM_TMPDIR/warp}"
    export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-$SLURM_TMPDIR/triton}"
fi

# Network. NCCL and gloo find the interface of the job's nodes by themselves; name it when a node has several and the
# first one is slow or does not reach the others.
# export NCCL_SOCKET_IFNAME=ib0
# export GLOO_SOCKET_IFNAME=ib0
# export NCCL_IB_HCA=mlx5

# What NCCL decided, in the ranks' logs: first thing to read when an all-reduce is slow or hangs.
# export NCCL_DEBUG=INFO

# Python: print at once, and write no .pyc files into a shared source tree.
export PYTHONUNBUFFERED=1
export PYTHONDONTWRITEBYTECODE="${PYTHONDONTWRITEBYTECODE:-1}"
