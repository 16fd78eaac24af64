"""Process 1 of a host: mounts, daemons, reaping. Started by cluster.start_host inside the host's namespaces.

It writes "mounted" to its standard output, then waits for a line on its standard input, which says that the network
cable is plugged in, and starts the daemons. The kernel ends everything on the host when it ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from slurm_lab import accounting
from slurm_lab.cgroups import MOUNT_POINTS, mounts
from slurm_lab.settings import CONTROLLER, ClusterError, Layout, Settings, load_settings

DAEMON_ENDED = "ended with exit code"
"""On a host's console: one of its daemons has ended."""


def main(state: str, name: str) -> None:
    """Be process 1 of host `name` of the cluster in `state`, until killed."""
    layout = Layout(Path(state))
    settings = load_settings(layout)
    os.chdir("/")
    socket.sethostname(name)
    mount_own_files(layout, settings)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    print("mounted", flush=True)
    if not sys.stdin.readline():
        sys.exit(f"{name}: nobody plugged in the network")
    # From here on nobody reads our pipes.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    reap_forever(start_daemons(layout, settings, name))


def mount_own_files(layout: Layout, settings: Settings) -> None:
    """Give this host its own /run, /dev/shm and /etc entries; all else is shared, as on a cluster's file system."""
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    mount("--bind", str(layout.etc / "hosts"), "/etc/hosts")
    mount("--bind", str(layout.slurm_etc), "/etc/slurm")
    mount("--bind", str(layout.ssh / "ssh_config"), "/etc/ssh/ssh_config")
    for arguments in mounts(settings):
        mount(*arguments)
    if settings.tracking == "cgroup/v2":
        # slurmd makes its scope in there, and expects systemd to have made the slice.
        (MOUNT_POINTS[settings.tracking] / "system.slice").mkdir(exist_ok=True)
    for folder in ("/run/sshd", "/run/munge", "/run/lock", "/run/mysqld"):
        Path(folder).mkdir(mode=0o755)


def mount(*arguments: str) -> None:
    """Mount something in this host's own mount namespace.

    Raises:
        ClusterError: in the words of mount(8).
    """
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(done.stderr.strip().splitlines()[0] if done.stderr else f"mount {arguments} failed")


def start_daemons(layout: Layout, settings: Settings, name: str) -> list[subprocess.Popen[bytes]]:
    """Start what this host runs; returns the processes that are to run until it ends."""
    start_munge(layout, name)
    if name == CONTROLLER:
        before = accounting.start(layout) if settings.accounting else []
        return [*before, subprocess.Popen(["slurmctld", "-D"])]
    daemons = [subprocess.Popen(["slurmd", "-D", "-N", name])]
    if settings.ssh:
        # sshd insists on its absolute path, since it executes itself again for each connection.
        sshd = str(shutil.which("sshd"))
        daemons.append(subprocess.Popen([sshd, "-D", "-e", "-f", str(layout.ssh / "sshd_config")]))
    return daemons


def start_munge(layout: Layout, name: str) -> None:
    """Start munged with the key that only this cluster's hosts share; it returns when its socket answers.

    Raises:
        ClusterError: it did not start; its own words are on the console.
    """
    files = [
        "--pid-file=/run/munge/munged.pid",
        "--seed-file=/run/munge/seed",
        f"--log-file={layout.log}/munged-{name}.log",
    ]
    # --force: a key below a folder that others may write, as /tmp is, gives a warning and no error.
    command = ["munged", "--force", f"--key-file={layout.munge_key}", *files]
    if subprocess.run(command, check=False).returncode != 0:
        raise ClusterError("munged did not start")


def reap_forever(daemons: list[subprocess.Popen[bytes]]) -> None:
    """Collect ended children, also those that lost their parent, and say on the console when a daemon ended."""
    names = {daemon.pid: Path(str(daemon.args[0])).name for daemon in daemons if isinstance(daemon.args, list)}
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            signal.pause()
            continue
        if pid in names:
            print(f"{names[pid]} {DAEMON_ENDED} {os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ClusterError as error:
        sys.exit(f"fatal: {error}")
