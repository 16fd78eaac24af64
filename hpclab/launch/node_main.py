"""The commands that slurm/train.sbatch runs: the same job as `hpclab submit`, without submitit.

python -m hpclab.launch.node_main prepare CONFIG [key.sub=value ...]   once, in the batch step: prints `AGENTS RUN`
python -m hpclab.launch.node_main run RUN                              under srun on every node for agents `tasks`,
                                                                       else in the batch step
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hpclab.config.load import load_config, load_profile
from hpclab.errors import ConfigError, HpclabError
from hpclab.launch import runs
from hpclab.launch.lock import Owner
from hpclab.launch.node import Node, own_job_id
from hpclab.launch.plan import plan_of, with_options
from hpclab.run_folder import RunFolder


def prepare(config_path: Path, overrides: list[str]) -> str:
    """Create or open the run in the name of the surrounding job, with as many nodes as the job has.

    Returns:
        `slurm.agents`, a space, and the run folder.
    """
    job_id = own_job_id()
    if job_id is None:
        raise ConfigError("SLURM_JOB_ID is not set; start this with sbatch slurm/train.sbatch")
    config = load_config(config_path, overrides, profile=load_profile("default"))
    nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
    config = with_options(config, num_nodes=nodes, gpus_per_node=None, workers_per_node=None)
    plan = plan_of(runs.run_folder(config, config_path), config)
    owner = Owner.job(job_id)
    with runs.opened(plan.run, config, {"command": "submit", "local": False}, owner=owner) as opened:
        for note in opened.notes:
            print(note, file=sys.stderr)
        plan.run.submitit.mkdir(exist_ok=True)
    return f"{config.slurm.agents} {plan.run.path}"


def run(folder: Path) -> None:
    """Run this node's task."""
    from hpclab.launch.agents import run_node

    run_folder = RunFolder(folder.absolute())
    plan = plan_of(run_folder, load_config(run_folder.config))
    run_node(plan.job(), Node.of_slurm(), through_submitit=False)


def main(arguments: list[str]) -> None:
    """Run one command, print an error as one line, and exit with its code."""
    try:
        match arguments:
            case ["prepare", config, *overrides]:
                print(prepare(Path(config), overrides))
            case ["run", folder]:
                run(Path(folder))
            case _:
                raise ConfigError("usage: python -m hpclab.launch.node_main prepare CONFIG [key=value ...] | run RUN")
    except HpclabError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(sys.argv[1:])
