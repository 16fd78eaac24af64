"""Start an agent deaf to notices, in a session of its own, tied to the life of the process that started it.

`python -m hpclab.launch.detached PARENT_PID` becomes the shell that reads the command from its input: every user sees a
process's arguments, and the command has the environment in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

_PR_SET_PDEATHSIG = 1
_DEAF = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


def start(command: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a shell command whose last program is the agent.

    Its process group is its own, so `end` reaches everything it started, and a Ctrl-C in the terminal does not. The
    kernel kills it when the calling thread ends: call from a thread that waits for it.
    """
    head, _, program = command.rpartition(" && ")
    one_process = f"{head} && exec {program}" if head else f"exec {program}"
    arguments = [sys.executable, "-m", "hpclab.launch.detached", str(os.getpid())]
    process = subprocess.Popen(arguments, env=dict(environment), stdin=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as script:  # it may have been killed already
        script.write(os.fsencode(f"{one_process} </dev/null\n"))
    return process


def end(process: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """Wait up to `grace_s` for the agent to leave by itself, then kill all that is left of its process group."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, grace_s))
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def die_with_parent(number: signal.Signals = signal.SIGKILL, *, parent: int | None = None) -> None:
    """Ask the kernel to signal this process when its parent ends; where it cannot (not Linux), do nothing."""
    if sys.platform != "linux":
        return
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:  # it ended in between
        os.kill(os.getpid(), number)
        time.sleep(1)


def main() -> None:
    parent = int(sys.argv[1])
    for number in _DEAF:
        signal.signal(number, signal.SIG_IGN)  # both survive exec
    die_with_parent(parent=parent)
    os.execvp("bash", ["bash", "-s"])


if __name__ == "__main__":
    main()
