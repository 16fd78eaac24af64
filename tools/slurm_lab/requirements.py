"""What the machine must offer, said in one line when it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from slurm_lab.settings import ClusterError, Layout

SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"

PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sinfo": "slurm-client",
    "munged": "munge",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "ps": "procps",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
"""Program -> the Debian package that holds it."""
ACCOUNTING_PROGRAMS = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server"}

HIDDEN_ON_HOSTS = ("/proc", "/run", "/var/run", "/dev", "/sys", "/etc/slurm")
"""Folders that a host replaces by its own: a state folder below them would not be seen there."""


def lacking(*, accounting: bool = False) -> str | None:
    """Say in one line why this machine cannot hold a cluster and how to change that; None when it can."""
    if sys.platform != "linux":
        return "the test cluster needs Linux namespaces; run it on a Linux machine"
    packages = missing_packages(accounting=accounting)
    if packages:
        names = " ".join(packages)
        return (
            f"the test cluster lacks {', '.join(packages)}; on Debian: apt-get install --no-install-recommends {names}"
        )
    if os.geteuid() != 0:
        return "the test cluster needs root (it makes namespaces and starts daemons); run it as root"
    probe = ["unshare", "--net", "--uts", "--mount", "--pid", "--cgroup", "--fork", "--mount-proc", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        return "the test cluster may not make namespaces here; in a container, start it privileged"
    return None


def check_machine(*, accounting: bool = False) -> None:
    """Refuse a machine that cannot hold a cluster.

    Raises:
        ClusterError: with what is lacking and how to get it.
    """
    problem = lacking(accounting=accounting)
    if problem:
        raise ClusterError(problem)


def missing_packages(*, accounting: bool = False) -> list[str]:
    """Debian packages that hold what is not installed, sorted."""
    programs = PROGRAMS | (ACCOUNTING_PROGRAMS if accounting else {})
    packages = {package for program, package in programs.items() if not shutil.which(program, path=SEARCH_PATH)}
    if not plugin_installed("select_cons_tres"):
        packages.add("slurm-wlm-basic-plugins")
    if accounting and not plugin_installed("accounting_storage_mysql"):
        packages.add("slurm-wlm-mysql-plugin")
    return sorted(packages)


def plugin_installed(name: str) -> bool:
    """Whether a Slurm plugin (e.g. proctrack_cgroup) is there, in Debian's folder or upstream's."""
    patterns = (f"*/slurm-wlm/{name}.so", f"*/slurm/{name}.so", f"slurm/{name}.so")
    return any(any(Path(root).glob(pattern)) for root in ("/usr/lib", "/usr/lib64") for pattern in patterns)


def check_state_folder(layout: Layout) -> None:
    """Refuse a state folder that the hosts would not see, or that holds somebody else's files.

    Raises:
        ClusterError: with the reason and what to choose instead.
    """
    state = layout.state
    for hidden in HIDDEN_ON_HOSTS:
        if state.is_relative_to(hidden):
            raise ClusterError(f"{state}: every host has a {hidden} of its own; choose a --state elsewhere")
    if any(character.isspace() or character in "#%\\\"'" for character in str(state)):
        raise ClusterError(
            f"{state}: slurm.conf cannot hold blanks, quotes, '#', '%' or '\\' in a path; choose another --state"
        )
    if state.exists() and not state.is_dir():
        raise ClusterError(f"{state}: is not a folder; choose another --state")
    if state.exists() and state.lstat().st_uid != os.geteuid():
        # Under /tmp anybody can make the folder first; this tool writes keys into it as root.
        raise ClusterError(f"{state}: belongs to another user; choose another --state")
    if state.is_dir() and not layout.settings.exists() and {path.name for path in state.iterdir()} - {"log", "lock"}:
        raise ClusterError(f"{state}: holds files that are not a cluster's; choose an empty or new folder as --state")
