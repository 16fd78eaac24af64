"""The first node's task: it launches the ranks, turns notices into one stop, and decides what becomes of the job."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from subprocess import CalledProcessError, TimeoutExpired
from typing import NoReturn

from hpclab.errors import ConfigError, HpclabError, LaunchError, WorkerError
from hpclab.launch import environment, jobs, lock, queue
from hpclab.launch.agent_host import AgentHost, node_address
from hpclab.launch.allotted import allotted_gpus
from hpclab.launch.budget import budgets_of, judge
from hpclab.launch.ends import close_lost
from hpclab.launch.failures import describe
from hpclab.launch.handover import Handover
from hpclab.launch.lost import describe_exit, lost_node, note_lost_nodes
from hpclab.launch.network import interface_of
from hpclab.launch.node import Node, count_restart, walltime_left_s
from hpclab.launch.node_job import NodeJob
from hpclab.launch.preemption import Decision, Notices, decide
from hpclab.launch.preemption_watch import PreemptionWatch
from hpclab.launch.rank import run_rank
from hpclab.launch.ssh import SshNodes
from hpclab.launch.starved_tasks import start_words
from hpclab.launch.torchrunx_launcher import Nodes, launch
from hpclab.launch.walltime import WalltimeWatch
from hpclab.launch.watching import watching
from hpclab.worker.spec import Outcome, WorkerSpec

EXIT_UNFINISHED = 143
_AGENT_WAIT_S = 10.0
_LEAVE_S = 10.0
"""Of the walltime's last seconds, kept for what comes after Slurm's answer."""
_REQUEUE_TRIES = 3
_LATENESS_S = 90.0
"""Slurm sends its notice before the walltime's end up to about a minute early."""


class Leader:
    """Runs one attempt of a job from its first node."""

    def __init__(self, job: NodeJob, node: Node, handover: Handover, agent: AgentHost) -> None:
        self._job = job
        self._run = job.run
        self._node = node
        self._handover = handover
        self._agent = agent
        self._attempt: int | None = None
        left_s = walltime_left_s(os.environ, time.time())
        self._walltime = WalltimeWatch(
            job.run,
            end=time.time() + (60 * job.walltime_min if left_s is None else left_s),
            walltime_s=60 * job.walltime_min,
            signal_lead_s=job.signal_lead_s,
            stop=self._stop,
            say=self._say,
        )
        self._others: SshNodes | None = None
        batch_step = job.agents != "tasks" and not node.pseudo
        self._preemption = PreemptionWatch(node.job_id, self._stop) if batch_step else None
        self._submitter_gone = False
        self._down: list[str] = []

    def run(self, *, through_submitit: bool) -> Outcome:
        """Train, and return how the run ended; see `agents.run_node` for what it raises."""
        with Notices(self._on_notice, restore=False) as notices, self._submitter_watched():
            self._handover.put_process("leader", os.getpid())
            self._take_run()
            self._check_budgets()
            attempt = self._begin(notices)
            with self._walltime.running(), self._preemption.running() if self._preemption else nullcontext():
                outcome, error = self._launch(attempt)
            if error is None and outcome is not None and outcome.kind == "completed":
                self._end(attempt, "completed")
                self._handover.put_outcome("completed")
                self._wait_for_agents()
                return outcome
            if error is not None and self._is_crash(notices):
                self._crashed(attempt, error, notices, through_submitit=through_submitit)
            if error is not None:
                self._say(f"the ranks did not stop in good order: {describe(self._run, attempt, error)}")
            self._handover.put_outcome("interrupted")
            try:
                self._leave(attempt, notices, through_submitit=through_submitit)
            finally:
                self._handover.put("left")
        raise AssertionError("an interrupted job never returns")

    def _is_crash(self, notices: Notices) -> bool:
        """Whether ranks that failed did so by themselves: nobody had asked them to stop.

        TERM alone may be srun's, which ends the step when a node's task has died; Slurm knows of a preemption.
        """
        names = self._notice_names(notices)
        if names != {"SIGTERM"} or self._node.pseudo or self._run.cancel_request.exists():
            return not names
        job = self._ask()
        return job is not None and job.state == "RUNNING" and not job.preempted

    def _crashed(self, attempt: int, error: Exception, notices: Notices, *, through_submitit: bool) -> NoReturn:
        """Record which node or rank failed first, and requeue within the budget, else fail."""
        cause: jobs.Cause = "crashed"
        began = not isinstance(error, HpclabError)  # else it says itself which node it was
        lost = lost_node(self._run, attempt, self._handover) if began else None  # first: it waits for late words
        note = describe(self._run, attempt, error)
        if lost is not None:
            cause, note = lost.cause, f"{lost}; then {note}"
        self._say(note)
        # One in a terminal's foreground fails where its user sees it; a launch that cannot be never will be.
        if not self._node.pseudo and not isinstance(error, LaunchError):
            verdict = judge(jobs.as_ended(self._run, attempt, cause), budgets_of(self._run))
            if verdict.goes_on:
                jobs.finish(self._run, attempt, cause, note=note)  # at once: Slurm may take long to answer
                if self._may_requeue():
                    self._say(f"requeue: {verdict.reason}")
                    self._handover.put_outcome("interrupted")
                    if not notices.received:  # else srun ends the step, and kills this task soon
                        self._wait_for_agents()
                    try:
                        if self._may_requeue():  # still: Slurm would bring a job that is cancelled by now back to life
                            self._requeue(notices, through_submitit=through_submitit)
                        elif self._was_requeued():
                            sys.exit(EXIT_UNFINISHED)
                    finally:
                        self._handover.put("left")
            why = "Slurm refuses" if verdict.goes_on else verdict.reason
            cause, note = verdict.cause, f"{note}; not requeued: {why}"
        self._end(attempt, cause, note)
        self._handover.put_outcome("failed")
        self._wait_for_agents()
        raise WorkerError(note) from error

    def _ask(self) -> queue.JobInfo | None:
        return queue.ask_again(self._node.job_id, patience_s=self._walltime.left_s() - _LEAVE_S)

    def _may_requeue(self) -> bool:
        """Whether Slurm would take a crashed job back."""
        if self._run.cancel_request.exists():
            return False
        job = self._ask()
        return job is not None and job.state == "RUNNING" and job.may_requeue

    def _take_run(self) -> None:
        """Own the run, also where its submission was ended before it could hand it over, or the run was freed since.

        Raises:
            WorkerError: another one owns it.
        """
        if self._node.pseudo:
            return  # the submitting process holds the lock
        try:
            lock.take_over(self._run, lock.Owner.job(self._node.job_id), submitter=self._job.submitter)
        except ConfigError as error:
            self._handover.put_outcome("failed")
            raise WorkerError(f"job {self._node.job_id} does not begin: {error}") from error

    def _check_budgets(self) -> None:
        """Refuse to begin where Slurm itself brought back, after a lost node, what the budgets would have ended.

        Raises:
            WorkerError: it does not go on.
        """
        close_lost(self._run, own_job=self._node.job_id)
        attempts = jobs.read(self._run)
        if self._node.restart == 0 or not attempts or attempts[-1].job_id != self._node.job_id:
            return  # a user started this one
        if attempts[-1].cause in ("completed", "cancelled"):
            return
        verdict = judge(attempts, budgets_of(self._run))
        if not verdict.goes_on:
            self._end(attempts[-1].number, verdict.cause, f"not started again: {verdict.reason}")
            self._handover.put_outcome("failed")
            raise WorkerError(f"not started again: {verdict.reason}. Go on with: hpclab resume {self._run.argument}")

    def _begin(self, notices: Notices) -> int:
        node, job = self._node, self._job
        attempt = jobs.begin(
            self._run,
            "pseudo_nodes" if node.pseudo else "slurm",
            hosts=node.hosts,
            num_workers=job.num_nodes * job.workers_per_node,
            job_id=node.job_id,
        )
        self._run.logs(attempt).mkdir(parents=True, exist_ok=True)
        self._attempt = attempt
        self._handover.put("attempt", str(attempt))
        if self._notice_names(notices) or self._run.cancel_request.exists():
            self._run.stop_file(attempt).touch()  # it came before there was a stop file to touch
        self._say(f"{start_words(self._run, attempt)}job {node.job_id}, nodes {', '.join(node.hosts)}")
        return attempt

    def _launch(self, attempt: int) -> tuple[Outcome | None, Exception | None]:
        node, job = self._node, self._job
        carried = environment.carried() | {"HPCLAB_RUN": str(self._run.path)}
        address = node_address(node)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_of(address) or "lo")
        self._agent_thread = threading.Thread(target=self._agent.run, name="agent", daemon=True)
        self._agent_thread.start()

        if job.agents == "ssh" and not node.pseudo:
            gpus = allotted_gpus(node.job_id) if job.use_gpus else {}
            self._others = SshNodes(job, node, self._handover, self._say, gpus=gpus)

        def hand_over(host: str, command: str) -> None:
            suffix = "kill" if command.startswith("kill ") else "command"
            self._handover.put(f"{node.hosts.index(host)}.{suffix}", command)
            if self._others is not None and suffix == "command" and host != node.hosts[node.index]:
                self._others.start(host)

        devices = () if job.use_gpus else ("cpu",) * job.workers_per_node
        spec = WorkerSpec(self._job.run_folder, attempt, devices, console=False, master_addr=address)
        try:
            outcome: Outcome = launch(
                run_rank,
                spec,
                job.devices_by_node,
                nodes=Nodes(node.hosts, job.workers_per_node, address),
                handler=hand_over,
                environment=carried,
                launcher_log=self._run.launcher_log(attempt),
                torchrunx_logs=job.torchrunx_logs,
                check=self._check_agents,
            )
        except Exception as error:
            return None, error
        self._say(f"the ranks have {outcome.kind} before iteration {outcome.iteration}")
        return outcome, None

    def _check_agents(self) -> None:
        """See that no agent has ended before its ranks were started.

        Raises:
            WorkerError: one has.
        """
        for path in sorted(self._handover.folder.glob("*.gone")):
            host, code = self._node.hosts[int(path.stem)], int(json.loads(path.read_text())["code"])
            raise WorkerError(f"{host}: its agent {describe_exit(code)} before its ranks began")

    def _wait_for_agents(self) -> None:
        """Let the agents leave, which know the outcome by now; those behind ssh are ended if they do not."""
        self._agent_thread.join(_AGENT_WAIT_S)
        if self._others is not None:
            self._others.close(wait_s=_AGENT_WAIT_S)

    def _leave(self, attempt: int, notices: Notices, *, through_submitit: bool) -> None:
        """Decide what becomes of the job, and record it before all else: Slurm may kill this task at any moment."""
        decision = self._decide(notices)
        self._say(f"{decision.action}: {decision.reason}")
        if decision.action == "requeue":
            verdict = judge(jobs.as_ended(self._run, attempt, decision.cause), budgets_of(self._run))
            if not verdict.goes_on:
                jobs.finish(self._run, attempt, verdict.cause, note=f"not requeued: {verdict.reason}")
                self._give_up(verdict.reason)
            jobs.finish(self._run, attempt, decision.cause, note=decision.reason)
            self._wait_for_agents()
            for _ in range(_REQUEUE_TRIES):
                # Once more: Slurm would bring a job that is cancelled by now back to life.
                if (decision := self._decide(notices)).action != "requeue":
                    self._say(f"{decision.action}: {decision.reason}")
                    break
                self._requeue(notices, through_submitit=through_submitit)
            else:
                self._give_up("Slurm refused the requeue")
        cause: jobs.Cause = decision.cause
        if self._down and _slurm_goes_on(decision):
            cause = "node_failure"  # Slurm ends and requeues a job that has lost a node
        self._end(attempt, cause, decision.reason, keep_lock=_slurm_goes_on(decision))
        self._wait_for_agents()
        if decision.action == "fail":
            self._give_up(decision.reason)
        sys.exit(EXIT_UNFINISHED)

    def _decide(self, notices: Notices) -> Decision:
        names = self._notice_names(notices)
        return decide(
            queue.JobInfo("RUNNING") if self._node.pseudo else self._ask(),
            usr2="SIGUSR2" in names,
            term="SIGTERM" in names,
            cancel_requested=self._run.cancel_request.exists(),
            timed_out=self._timed_out(),
            restarts=self._node.restart,
        )

    def _requeue(self, notices: Notices, *, through_submitit: bool) -> None:
        """Requeue and leave by SystemExit; return when Slurm refuses."""
        try:
            self._ask_for_requeue(notices, through_submitit=through_submitit)
        finally:
            if not self._node.pseudo and self._run.cancel_request.exists():
                queue.slurm_command("scancel", self._node.job_id)  # the user's own may have come before the requeue

    def _ask_for_requeue(self, notices: Notices, *, through_submitit: bool) -> None:
        node = self._node
        if not through_submitit:
            if queue.slurm_command("scontrol", "requeue", node.job_id) is not None or self._was_requeued():
                sys.exit(EXIT_UNFINISHED)
            return
        import submitit

        pickle = submitit.JobEnvironment().paths.submitted_pickle
        pickle.with_suffix(".pkl.save_tmp").unlink(missing_ok=True)  # left by a killed attempt, it blocks the requeue
        if node.pseudo:
            count_restart(self._run, node.job_id, node.restart + 1)
        with suppress(CalledProcessError, TimeoutExpired):
            notices.previous_handler(signal.SIGUSR2)(signal.SIGUSR2, None)  # submitit's: ends with SystemExit
        if self._was_requeued():
            sys.exit(EXIT_UNFINISHED)

    def _was_requeued(self) -> bool:
        """Whether Slurm has taken a requeue although scontrol failed: its TERM can end scontrol before the answer."""
        job = None if self._node.pseudo else self._ask()
        return job is not None and job.restarts > self._node.restart

    def _give_up(self, reason: str) -> NoReturn:
        lock.release(self._run)
        self._wait_for_agents()
        self._say(f"not requeued: {reason}. Go on with: hpclab resume {self._run.argument}")
        sys.exit(EXIT_UNFINISHED)

    def _end(self, attempt: int, cause: jobs.Cause, note: str = "", *, keep_lock: bool = False) -> None:
        jobs.finish(self._run, attempt, cause, note=note)
        if not keep_lock and not self._node.pseudo:  # pseudo-nodes: the submitting process holds the lock
            lock.release(self._run)

    def _on_notice(self, number: signal.Signals) -> None:
        self._stop(f"{number.name} received")
        if number == signal.SIGTERM and not self._node.pseudo:
            threading.Thread(target=self._name_lost_nodes, name="lost nodes", daemon=True).start()

    def _name_lost_nodes(self) -> None:
        """Note at once why TERM came: Slurm also ends a job with it that has lost a node, and kills it soon after."""
        if self._attempt is not None:
            self._down = note_lost_nodes(self._run.stop_file(self._attempt), self._node.hosts)
        if self._down:
            self._say(f"{jobs.NODES_LOST}: {', '.join(self._down)}")

    def _stop(self, why: str) -> None:
        if self._attempt is not None and not self._run.stop_file(self._attempt).exists():
            self._run.stop_file(self._attempt).write_text(why)
        self._say(f"{why}: the ranks save and stop")

    def _notice_names(self, notices: Notices) -> set[str]:
        """Return the notices that any node got."""
        names = {number.name for number in notices.received}
        if self._preemption is not None and self._preemption.seen:
            names.add("SIGUSR2")
        if self._submitter_gone:
            names.add("SIGTERM")
        return names | {path.read_text() for path in self._handover.folder.glob("*.notice")}

    def _timed_out(self) -> bool:
        return self._walltime.stopped or self._walltime.left_s() < self._job.signal_lead_s + _LATENESS_S

    def _submitter_watched(self) -> AbstractContextManager[None]:
        """Stop the job when the process in whose foreground it runs is gone."""
        submitter, parent = self._job.submitter if self._node.pseudo else None, os.getppid()

        def look() -> bool:
            if submitter is None:
                return True
            if os.getppid() != parent or not lock.process_is_alive(submitter.pid, submitter.started):
                self._submitter_gone = True
                self._stop("the submitting process is gone")
            return self._submitter_gone

        return watching(look, every_s=1.0, name="submitter")

    def _say(self, text: str) -> None:
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self._node.hosts[0]} {text}"
        with suppress(OSError):  # where the disk is full, all else that must be done still is
            print(line, flush=True)
        if self._attempt is not None:
            with suppress(OSError), self._run.launcher_log(self._attempt).open("a", encoding="utf-8") as log:
                log.write(line + "\n")


def _slurm_goes_on(decision: Decision) -> bool:
    return decision.action == "leave" and decision.cause in ("preempted", "timeout")
