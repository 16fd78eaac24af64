"""One node's task of a job: torchrunx's agents run as children of the job's own tasks.

Task 0 runs torchrunx's launcher, which hands each node's start command to the task there; every task runs its agent as
a child in a session of its own. So no ssh is needed, Slurm accounts for everything, and each worker sits in the right
cgroup. Agents are deaf to notices: task 0 turns them into the stop file, all ranks save and stop together, and task 0
decides what becomes of the job.

Called by `NodeJob` inside submitit's tasks (one per node), and without submitit by slurm/train.sbatch, which starts
`srun --ntasks-per-node=1 python -m hpclab.launch.node_main run RUN`. Without srun the batch step is the first task.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from hpclab.errors import LaunchError, WorkerError
from hpclab.launch import out_of_memory
from hpclab.launch.agent_host import AgentHost
from hpclab.launch.handover import Handover
from hpclab.launch.leader import Leader
from hpclab.launch.lock import process_is_alive
from hpclab.launch.lost import note_lost_nodes
from hpclab.launch.node import Node
from hpclab.launch.node_job import NodeJob
from hpclab.launch.preemption import Notices
from hpclab.worker.spec import Outcome

_COMMAND_WAIT_S = 900.0
_OUTCOME_WAIT_S = 60.0
_LEFT_WAIT_S = 90.0


def run_node(job: NodeJob, node: Node, *, through_submitit: bool) -> Outcome | None:
    """Run this node's task: its agent, and on the first node the launcher and the decision afterwards.

    Returns:
        How the run ended, on the first node; None on the others.

    Raises:
        LaunchError: the nodes are not those that were asked for, or the first one is gone.
        WorkerError: the run failed.
        SystemExit: the job was interrupted; no result of an interrupted job may exist.
    """
    if len(node.hosts) != job.num_nodes:
        raise LaunchError(
            f"launch.num_nodes={job.num_nodes} needs {job.num_nodes * job.workers_per_node} workers, but job "
            f"{node.job_id} was given {len(node.hosts)} nodes. Lower --nodes or resubmit."
        )
    if node.pseudo:
        _take_share_of_cores(node)
    handover = Handover.of(job.run, node.job_id, node.restart)
    agent = AgentHost(job, node, handover)
    with out_of_memory.watched(job.run, handover, host=node.hosts[node.index]):
        if node.leads:
            return Leader(job, node, handover, agent).run(through_submitit=through_submitit)
        _follow(job, node, handover, agent)
    return None


def _follow(job: NodeJob, node: Node, handover: Handover, agent: AgentHost) -> None:
    """Run a later node's agent, and leave as the first node says."""

    def on_notice(number: signal.Signals) -> None:
        print(f"{node.hosts[node.index]}: {number.name} received", flush=True)
        handover.put(f"{node.index}.notice", number.name)
        attempt = handover.get("attempt")  # not there yet: the first node sees the notice when it makes one
        if attempt is not None:
            stop_file = job.run.stop_file(int(attempt))
            stop_file.touch()
            if number == signal.SIGTERM and not node.pseudo:  # the first node may be the one that is gone
                threading.Thread(target=note_lost_nodes, args=(stop_file, node.hosts), daemon=True).start()

    with Notices(on_notice, restore=False):
        _run_and_leave(node, handover, agent)


def _run_and_leave(node: Node, handover: Handover, agent: AgentHost) -> None:
    first = node.hosts[0]

    def first_lives() -> bool:
        # On Slurm --kill-on-bad-exit ends this task when the first one dies; among pseudo-nodes nothing does.
        text = handover.get("leader") if node.pseudo else None
        leader = json.loads(text) if text else None
        return leader is None or process_is_alive(leader["pid"], leader["started"])

    own_command = f"{node.index}.command"
    if not handover.wait_for(own_command, "outcome", timeout_s=_COMMAND_WAIT_S, alive=first_lives):
        raise LaunchError(f"{node.hosts[node.index]}: no word from {first}, which starts this job's workers")
    agent.run()
    if not handover.wait_for("outcome", timeout_s=_OUTCOME_WAIT_S, alive=first_lives):
        raise LaunchError(f"{node.hosts[node.index]}: {first} left without saying how the run ended")
    outcome = handover.get("outcome")
    if outcome == "failed":
        raise WorkerError(f"the run failed; {first} reports why")
    if outcome == "interrupted":
        # After the first node, which may be asking for the requeue: a step that ends early can end as COMPLETED.
        handover.wait_for("left", timeout_s=_LEFT_WAIT_S, alive=first_lives)
        sys.exit(0)


def _take_share_of_cores(node: Node) -> None:
    """Give each pseudo-node its own cores, so that thread counts come out as on a node of that size."""
    cores = sorted(os.sched_getaffinity(0))
    share = cores[node.index :: len(node.hosts)] or [cores[node.index % len(cores)]]
    os.sched_setaffinity(0, share)
