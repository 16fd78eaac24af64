#!/usr/bin/env python3
"""A real Slurm cluster of several hosts on this machine, for whoever changes how hpclab launches.

Every host (ctl: controller and login node; n1, n2, ...: compute nodes) has its own address, hostname, processes, sshd
and cgroups; the file system is shared by all. Needs root, on Debian; nothing of the machine itself is changed.

  up                       start it (about 1.5 s)
  exec ctl sbatch job.sh   run a command on a host
  crash n1; boot n1        cut a node's power; start it again
  down                     end it and everything on it

Partitions: low (default; preempted by high: requeued after a grace time), lownograce (the same without grace time),
lowcancel (preempted: cancelled), high. Several clusters can be up at once, each in its own --state folder.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from slurm_lab import cluster
from slurm_lab.cgroups import detect_tracking, memory_cgroup
from slurm_lab.requirements import check_machine
from slurm_lab.settings import MAX_NODES, ClusterError, DaemonError, Layout, Settings, Tracking, default_state

PROCESS_COLUMNS = "pid,ppid,pgid,sid,stat,etimes,args"


def main() -> int:
    """Run one command; returns the exit code."""
    options = parser().parse_args()
    layout = Layout(options.state.absolute())
    try:
        run(options, layout)
    except ClusterError as error:
        print(f"slurm_cluster.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def run(options: argparse.Namespace, layout: Layout) -> None:
    match options.command:
        case "up":
            start = time.monotonic()
            settings = bring_up(options, layout)
            names = ", ".join(settings.addresses)
            print(
                f"up in {time.monotonic() - start:.1f} s: {names}; {settings.tracking} tracking; state {layout.state}"
            )
        case "down":
            print("down" if cluster.down(layout) else f"nothing was up in {layout.state}")
        case "exec":
            execute(layout, options.host, options.argv[1:] if options.argv[:1] == ["--"] else options.argv)
        case "ps":
            execute(layout, options.host, ["ps", "-e", "--forest", "-o", PROCESS_COLUMNS])
        case "crash":
            cluster.crash(layout, options.host)
        case "boot":
            cluster.boot(layout, options.host)
        case "logs":
            follow = ["-F"] if options.follow else []
            logs = [str(path) for path in cluster.log_files(layout, options.host)]
            os.execvp("tail", ["tail", f"--lines={options.lines}", *follow, "--", *logs])


def execute(layout: Layout, host: str, argv: list[str]) -> None:
    """Become a command on a host."""
    command, environment = cluster.host_command(layout, host, argv)
    os.execvpe(command[0], command, environment)


def bring_up(options: argparse.Namespace, layout: Layout) -> Settings:
    """Start the cluster; where tracking by cgroup does not work, say so on stderr and track by linuxproc instead."""
    check_machine(accounting=options.dbd)
    tracking: Tracking = "linuxproc" if options.tracking == "linuxproc" else detect_tracking()
    reason = "no cgroup hierarchy here that Slurm can use"
    if tracking != "linuxproc":
        try:
            cluster.up(layout, settings := settings_from(options, tracking))
            return settings
        except DaemonError as error:
            if options.tracking == "cgroup" or "cgroup" not in str(error):
                raise
            reason = f"tracking by {tracking} failed ({error})"
    elif options.tracking == "cgroup":
        raise ClusterError(f"{reason}; use --tracking linuxproc, where signals reach every process of a job")
    if options.tracking == "auto":
        print(
            f"slurm_cluster.py: {reason}; using linuxproc, where signals reach every process of a job", file=sys.stderr
        )
    cluster.up(layout, settings := settings_from(options, "linuxproc"))
    return settings


def settings_from(options: argparse.Namespace, tracking: Tracking) -> Settings:
    """Turn the options of `up` into settings."""
    return Settings(
        nodes=options.nodes,
        cpus=options.cpus,
        gpus=options.gpus,
        tracking=tracking,
        preempt_notice=options.preempt_notice,
        grace_s=options.grace,
        kill_wait_s=options.kill_wait,
        cred_expire_s=options.cred_expire,
        accounting=options.dbd,
        memory_cgroup=memory_cgroup(tracking) if options.memory_limits else "",
        ssh=not options.no_ssh,
        extra=tuple(options.conf),
    )


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    state, defaults = default_state(), Settings()
    top.add_argument(
        "--state", type=Path, default=state, help="folder of this cluster (default: $HPCLAB_CLUSTER, else %(default)s)"
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    start = commands.add_parser("up", help="start a cluster", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    start.add_argument("--nodes", type=bounded(1, MAX_NODES), default=defaults.nodes, help="compute nodes")
    start.add_argument("--cpus", type=bounded(1, 1024), default=defaults.cpus, help="CPUs a node claims to have")
    start.add_argument("--gpus", type=bounded(0, 64), default=defaults.gpus, help="fake GPUs of a node")
    tracking = "how Slurm finds a job's processes; auto: by cgroup where possible"
    start.add_argument("--tracking", choices=("auto", "cgroup", "linuxproc"), default="auto", help=tracking)
    notice = "what a preempted job with --signal gets first: that signal, or CONT and TERM"
    start.add_argument(
        "--preempt-notice", choices=("user-signal", "term"), default=defaults.preempt_notice, help=notice
    )
    start.add_argument(
        "--grace", type=bounded(0, 3600), default=defaults.grace_s, help="grace time of a preemption [s]"
    )
    wait = "time between TERM and KILL of a cancelled job [s]"
    start.add_argument("--kill-wait", type=bounded(1, 3600), default=defaults.kill_wait_s, help=wait)
    expire = "life of a credential [s]; a requeued job waits about as long"
    start.add_argument("--cred-expire", type=bounded(5, 3600), default=defaults.cred_expire_s, help=expire)
    start.add_argument("--dbd", action="store_true", help="with accounting (sacct); takes a few seconds more")
    limits = "the kernel kills a process of a job that takes more memory than its --mem"
    start.add_argument("--memory-limits", action="store_true", help=limits)
    start.add_argument("--no-ssh", action="store_true", help="no sshd on the nodes")
    start.add_argument(
        "--conf", action="append", default=[], metavar="LINE", help="further line of slurm.conf; repeatable"
    )

    commands.add_parser("down", help="end the cluster, whatever state it is in; its logs stay")
    execute_parser = commands.add_parser(
        "exec", help="run a command, else a shell, on a host, in this working directory"
    )
    execute_parser.add_argument("host")
    execute_parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD ...")
    commands.add_parser("ps", help="show a host's processes").add_argument("host")
    commands.add_parser("crash", help="cut a host's power").add_argument("host")
    commands.add_parser("boot", help="start a crashed host again").add_argument("host")
    logs = commands.add_parser("logs", help="show the daemons' logs, also after down")
    logs.add_argument("host", nargs="?")
    logs.add_argument(
        "--lines", type=bounded(0, 10**9), default=40, help="last lines of each log (default: %(default)s)"
    )
    logs.add_argument("-f", "--follow", action="store_true", help="go on as they grow")
    return top


def bounded(low: int, high: int) -> Callable[[str], int]:
    """An argparse type: an integer between two bounds, both included."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not between {low} and {high}")
        return value

    parse.__name__ = "integer"
    return parse


if __name__ == "__main__":
    sys.exit(main())
