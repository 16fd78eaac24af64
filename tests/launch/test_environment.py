from __future__ import annotations

import os

from hpclab.launch import environment


def test_workers_get_what_the_software_needs_and_nothing_of_a_node_or_a_rank() -> None:
    given = {
        "PATH": "/bin", "LD_LIBRARY_PATH": "/l", "NCCL_DEBUG": "INFO", "WANDB_API_KEY": "k", "OMP_NUM_THREADS": "2",
        "MUJOCO_GL": "egl", "CUDA_HOME": "/cuda", "HOME": "/home/me", "TMPDIR": "/a", "HPCLAB_TMPDIR": "/a",
        "CUDA_VISIBLE_DEVICES": "3", "SLURM_PROCID": "1", "RANK": "7", "EDITOR": "vi",
    }  # fmt: skip
    kept = environment.carried(given)
    left = {"CUDA_VISIBLE_DEVICES", "SLURM_PROCID", "RANK", "EDITOR", "TMPDIR", "HPCLAB_TMPDIR"}
    assert set(given) - set(kept) == left


def test_a_local_run_does_not_see_the_job_around_it() -> None:
    given = {"SLURM_NTASKS": "8", "SLURM_CONF": "/etc/slurm.conf", "RANK": "3", "MASTER_ADDR": "x", "HOME": "/h"}
    assert environment.local(given) == {"SLURM_CONF": "/etc/slurm.conf", "HOME": "/h"}


def test_a_submission_drops_leaks_by_name_and_keeps_the_cluster() -> None:
    given = {
        "SBATCH_PARTITION": "debug", "SLURM_CPU_BIND": "quiet", "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": "3",
        "SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin",
    }  # fmt: skip
    kept, dropped = environment.for_submission(given)
    assert dropped == ["SBATCH_PARTITION", "SLURM_CPUS_PER_TASK", "SLURM_CPU_BIND", "SLURM_JOB_ID"]
    assert kept == {"SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin"}


def test_replaced_puts_everything_back() -> None:
    before = dict(os.environ)
    with environment.replaced({"ONLY": "this"}):
        assert dict(os.environ) == {"ONLY": "this"}
    assert dict(os.environ) == before


def test_workers_share_the_cores_and_spin_briefly_unless_the_user_decides() -> None:
    variables: dict[str, str] = {}
    environment.share_cores(variables, 10_000)
    assert variables == {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "20000"}
    chosen = {"OMP_NUM_THREADS": "7", "OMP_WAIT_POLICY": "ACTIVE"}
    environment.share_cores(chosen, 2)
    assert chosen == {"OMP_NUM_THREADS": "7", "OMP_WAIT_POLICY": "ACTIVE"}
