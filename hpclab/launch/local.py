"""Train with several workers on this machine, through torchrunx."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from hpclab.errors import HpclabError, WorkerError
from hpclab.launch import detached, environment, jobs
from hpclab.launch.failures import describe
from hpclab.launch.follow import Following
from hpclab.launch.network import LOOPBACK, interface_of
from hpclab.launch.node_scratch import temporary_folder
from hpclab.launch.preemption import Notices
from hpclab.launch.rank import run_rank
from hpclab.launch.torchrunx_launcher import Nodes, launch
from hpclab.run_folder import RunFolder
from hpclab.worker.spec import Outcome, WorkerSpec
from hpclab.worker.stop import hangup_signals

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
_AGENT_GRACE_S = 5.0


def train_locally(run: RunFolder, devices: Sequence[str], *, torchrunx_logs: str) -> Outcome:
    """Train one attempt of a run that this process owns, one worker per device, and record how it ended.

    The first Ctrl-C, TERM, USR2 or HUP makes all ranks save and stop together; a second Ctrl-C ends them at once.

    Raises:
        WorkerError: a rank failed.
    """
    attempt = jobs.begin(run, "local", hosts=[LOOPBACK], num_workers=len(devices))
    run.logs(attempt).mkdir(parents=True, exist_ok=True)
    variables = _worker_environment(len(devices))
    agents = _Agents(variables)
    stop_file = run.stop_file(attempt)

    def on_notice(number: signal.Signals) -> None:
        if stop_file.exists() and number == signal.SIGINT:
            print("ending at once", file=sys.stderr, flush=True)
            agents.kill()
            return
        stop_file.touch()
        print(f"{number.name}: saving and stopping; Ctrl-C again to end at once", file=sys.stderr, flush=True)

    cause: jobs.Cause = "crashed"
    note = ""
    spec = WorkerSpec(str(run.path), attempt, tuple(devices), console=False, master_addr=LOOPBACK)
    try:
        with (
            Notices(on_notice, (*_SIGNALS, *hangup_signals())) as notices,
            Following(run.rank_log(attempt, 0), sys.stdout),
            temporary_folder(variables),
            agents,
        ):
            outcome: Outcome = launch(
                run_rank,
                spec,
                None,
                nodes=Nodes((LOOPBACK,), len(devices), LOOPBACK),
                handler=agents,
                environment=environment.carried(agents.environment) | {"HPCLAB_RUN": str(run.path)},
                launcher_log=run.launcher_log(attempt),
                torchrunx_logs=torchrunx_logs,
            )
        interrupted = signal.SIGUSR2 in notices.received
        cause = "completed" if outcome.kind == "completed" else "preempted" if interrupted else "cancelled"
    except HpclabError as error:
        note = str(error)
        raise
    except Exception as error:
        if notices.received.count(signal.SIGINT) > 1:
            cause, note = "cancelled", "ended at once by a second Ctrl-C"
            raise KeyboardInterrupt from error
        note = describe(run, attempt, error)
        raise WorkerError(note) from error
    finally:
        jobs.finish(run, attempt, cause, note=note)
    return outcome


class _Agents:
    """This machine's agent: started when torchrunx asks for it, ended with the block."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._processes: list[subprocess.Popen[bytes]] = []
        self._killed = False

    def __call__(self, host: str, command: str) -> None:
        if command.startswith("kill "):
            return  # agents leave by themselves; what is left at the end is killed there
        if self._killed:
            raise RuntimeError("ended before the agent had started")
        self._processes.append(detached.start(command, self.environment))

    def kill(self) -> None:
        self._killed = True
        for process in self._processes:
            detached.end(process, grace_s=0.0)

    def __enter__(self) -> _Agents:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            detached.end(process, grace_s=_AGENT_GRACE_S)


def _worker_environment(num_workers: int) -> dict[str, str]:
    variables = environment.local()
    environment.share_cores(variables, num_workers)
    # gloo looks its own host name up, which a laptop or a container often cannot resolve.
    interface = interface_of(LOOPBACK) or "lo"
    variables.setdefault("GLOO_SOCKET_IFNAME", interface)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    return variables
