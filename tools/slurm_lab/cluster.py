"""up, down, exec, ps, crash, boot, logs: the life of a cluster.

Every host is a set of namespaces (network, hostname, mounts, processes, cgroups) whose process 1 is host.py. A bridge
in one more network namespace joins them. The machine's own network and /etc are never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from slurm_lab.cgroups import host_cgroups, joined, remove_cgroups
from slurm_lab.config_files import write_all
from slurm_lab.host import DAEMON_ENDED
from slurm_lab.processes import SWITCH, end_all, environment, host_inits, kill_and_wait, members
from slurm_lab.requirements import check_machine, check_state_folder
from slurm_lab.settings import CONTROLLER, ClusterError, DaemonError, Layout, Settings, load_settings, save_settings

TOOLS = Path(__file__).resolve().parent.parent
HANDSHAKE_S = 30.0
READY_S = 30.0
READY_WITH_ACCOUNTING_S = 120.0
USUAL_COMPLAINTS = ("mpi/pmix", "MPI: Cannot create context", "is not enabled!")
"""Errors in the logs of a healthy cluster: no PMIx library, no cgroup controllers; neither is needed."""


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Let one command at a time change the cluster; the kernel frees the lock of a command that was killed."""
    layout.state.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def up(layout: Layout, settings: Settings) -> None:
    """Start a cluster and return when every node is idle. Leaves nothing behind when it fails or is interrupted.

    Raises:
        ClusterError: the machine cannot hold one, one is up already, or a daemon does not start (DaemonError).
    """
    check_machine(accounting=settings.accounting)
    check_state_folder(layout)
    with locked(layout):
        if members(layout):
            raise ClusterError(f"a cluster is up in {layout.state} already; use it, or stop it with: down")
        _clear(layout, logs=True)
        save_settings(layout, settings)
        try:
            write_all(settings, layout)
            switch = start_switch(layout)
            for host in settings.addresses:
                start_host(layout, settings, host, switch)
            wait_until_idle(layout, settings)
        except BaseException as error:
            _end(layout)
            if isinstance(error, subprocess.CalledProcessError | OSError):
                raise ClusterError(f"the cluster did not start: {error}; see {layout.log}") from error
            raise


def down(layout: Layout) -> bool:
    """End a cluster, whatever state it is in; only its logs stay. Returns whether there was anything to end.

    Raises:
        ClusterError: a process or a cgroup does not go away.
    """
    if not layout.state.is_dir():
        return False
    check_state_folder(layout)
    with locked(layout):
        return _end(layout)


def _end(layout: Layout) -> bool:
    was_up = end_all(layout)
    remove_cgroups(layout)
    was_up |= layout.settings.exists()
    _clear(layout, logs=False)
    return was_up


def _clear(layout: Layout, *, logs: bool) -> None:
    for folder in (*layout.folders(), *([layout.log] if logs else [])):
        shutil.rmtree(folder, ignore_errors=True)
    layout.settings.unlink(missing_ok=True)


def start_switch(layout: Layout) -> int:
    """Start the process that holds the bridge between the hosts; returns its id."""
    script = "ip link add br0 type bridge forward_delay 0 && ip link set br0 up && echo ready && exec sleep infinity"
    with layout.console(SWITCH).open("wb") as console:
        process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=console,
            env=environment(layout, SWITCH),
            start_new_session=True,
        )
    _await_line(process, "ready", layout.console(SWITCH))
    return process.pid


def start_host(layout: Layout, settings: Settings, host: str, switch: int) -> None:
    """Make a host's namespaces, plug it into the switch and let it start its daemons."""
    cgroups = host_cgroups(layout, settings, host)
    namespaces = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"]
    command = [*namespaces, sys.executable, "-m", "slurm_lab.host", str(layout.state), host]
    if cgroups:
        for cgroup in cgroups:
            cgroup.mkdir(parents=True, exist_ok=True)
        command.insert(1, "--cgroup")
        command = joined(cgroups, command)  # a cgroup namespace is rooted where the process is that makes it
    with layout.console(host).open("ab") as console:
        process = subprocess.Popen(
            command,
            cwd=TOOLS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=console,
            env=environment(layout, host),
            start_new_session=True,
        )
    _await_line(process, "mounted", layout.console(host))
    init = host_inits(layout)[host]
    plug_in(switch, init, host, settings.addresses[host])
    assert process.stdin is not None
    process.stdin.write(b"plugged in\n")
    process.stdin.close()


def plug_in(switch: int, init: int, host: str, address: str) -> None:
    """Lay a cable from the switch to the host's network namespace."""
    port = f"port-{host}"
    # As with a real network card, the others find the host at the same hardware address after it has booted again.
    hardware_address = "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))
    card = f"peer name eth0 address {hardware_address} netns {init}"
    _ip(switch, f"link add {port} type veth {card}\nlink set {port} master br0 up\n")
    _ip(init, f"address add {address}/24 dev eth0\nlink set eth0 up\n")


def _ip(pid: int, commands: str) -> None:
    """Run `ip` commands, one a line, in the network namespace of a process."""
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"]
    subprocess.run(command, input=commands, text=True, capture_output=True, check=True)


def _await_line(process: subprocess.Popen[bytes], expected: str, console: Path) -> None:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], HANDSHAKE_S)
    line = process.stdout.readline().decode().strip() if ready else ""
    process.stdout.close()
    if line != expected:
        raise DaemonError(f"a host did not start: {_complaint([console])}; see {console}")


def wait_until_idle(layout: Layout, settings: Settings) -> None:
    """Wait until every node is idle: there is no event to wait for, so Slurm is asked.

    Raises:
        DaemonError: a daemon ended or a node is not ready in time, with what was complained about last.
    """
    limit_s = READY_WITH_ACCOUNTING_S if settings.accounting else READY_S
    deadline = time.monotonic() + limit_s
    query = ["timeout", "2", "sinfo", "--noheader", "--Node", "--partition=low", "--format=%t"]
    argv, env = host_command(layout, CONTROLLER, query)
    while True:
        answer = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        if answer.stdout.split() == ["idle"] * settings.nodes:
            return
        for host in settings.addresses:
            console = layout.console(host)
            if DAEMON_ENDED in console.read_text(errors="replace"):
                raise DaemonError(f"{host}: {_complaint([console])}; see {console}")
        if time.monotonic() > deadline:
            complaint = _complaint(sorted(layout.log.glob("*.log")))
            raise DaemonError(f"the nodes are not ready after {limit_s:g} s: {complaint}; see {layout.log}")
        time.sleep(0.05)


def _complaint(logs: Sequence[Path]) -> str:
    """The first line about an error in the logs that is not there every time, else the last line."""
    lines = [line.strip() for log in logs if log.exists() for line in log.read_text(errors="replace").splitlines()]
    lines = [line for line in lines if line and not any(words in line for words in USUAL_COMPLAINTS)]
    errors = [line for line in lines if "error:" in line or "fatal:" in line]
    return errors[0] if errors else lines[-1] if lines else "nothing was logged"


def running_host(layout: Layout, host: str) -> int:
    """Process id of a running host's process 1.

    Raises:
        ClusterError: no cluster is up, it has no such host, or the host is down.
    """
    settings = load_settings(layout)
    _check_host(settings, host)
    inits = host_inits(layout)
    if not inits:
        raise ClusterError(f"the cluster in {layout.state} has ended; clear it with: down")
    if host not in inits:
        raise ClusterError(f"{host} is down; start it with: boot {host}")
    return inits[host]


def _check_host(settings: Settings, host: str) -> None:
    if host not in settings.addresses:
        raise ClusterError(f"no host {host!r}; this cluster has {', '.join(settings.addresses)}")


def host_command(layout: Layout, host: str, argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """What to execute here, and with which environment, so that `argv` runs on a host in this working directory."""
    init = running_host(layout, host)
    settings = load_settings(layout)
    enter = ["nsenter", f"--target={init}", "--net", "--uts", "--mount", "--pid", f"--wd={Path.cwd()}"]
    cgroups = host_cgroups(layout, settings, host)
    if cgroups:
        enter.append("--cgroup")
    return joined(cgroups, [*enter, "--", *argv]), environment(layout, host)


def crash(layout: Layout, host: str) -> None:
    """Cut a host's power: the cable goes first, so that no connection is closed, then everything ends at once.

    Raises:
        ClusterError: no such host, or it is down already.
    """
    with locked(layout):
        init = running_host(layout, host)
        _ip(_switch(layout), f"link delete port-{host}\n")
        kill_and_wait([init], time.monotonic() + 30)
        rest = [member.pid for member in members(layout) if member.host == host]
        kill_and_wait(rest, time.monotonic() + 30)
        remove_cgroups(layout, host)


def boot(layout: Layout, host: str) -> None:
    """Start a crashed host again; its disk (spool folder, logs) is what it was.

    Raises:
        ClusterError: no such host, or it is running.
    """
    settings = load_settings(layout)
    _check_host(settings, host)
    with locked(layout):
        if host in host_inits(layout):
            raise ClusterError(f"{host} is running; cut its power with: crash {host}")
        start_host(layout, settings, host, _switch(layout))


def _switch(layout: Layout) -> int:
    for member in members(layout):
        if member.host == SWITCH:
            return member.pid
    raise ClusterError(f"the cluster in {layout.state} has ended; clear it with: down")


def log_files(layout: Layout, host: str | None) -> list[Path]:
    """The logs of one host, or of all.

    Raises:
        ClusterError: there are none.
    """
    logs = sorted(layout.log.glob("*.log"))
    if host == CONTROLLER:
        logs = [log for log in logs if log.stem in (CONTROLLER, "slurmctld", "slurmdbd", f"munged-{CONTROLLER}")]
    elif host is not None:
        logs = [log for log in logs if log.stem in (host, f"slurmd-{host}", f"munged-{host}")]
    if not logs:
        raise ClusterError(f"no logs{f' of {host}' if host else ''} in {layout.log}; was a cluster up there?")
    return logs
